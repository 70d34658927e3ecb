//! Openib's messages: a header of four bytes in front of each, and the messages of its own.
//!
//! | bytes | header |
//! |---|---|
//! | 0 | tag; 0x20: the message is openib's own |
//! | 1 | credit messages of this queue whose buffers are posted again |
//! | 2..4 | buffers of this queue that are posted again; 0x8000: of the ring for short messages instead |
//!
//! Of its own messages the first byte says what they are: 0, credits of another queue, which count as the header's, and of
//! the ring; 1, where such a ring lies, for whoever wants to write messages there; 2, several of the host's messages, one
//! after the other; 3, that the receives are posted, which is the first message of a connection.

/// Bytes of a header.
pub const HEADER: usize = 4;

/// Bytes in front of one of several messages.
pub const JOINED: usize = 12;

/// Bytes that there may be in a buffer besides as many as its queue is said to have.
pub const OVERHEAD: usize = HEADER + 1 + JOINED;

/// The tag of openib's own messages (`MCA_BTL_TAG_IB`).
const OWN: u8 = 0x20;

/// The credits are of the ring.
const OF_RING: u16 = 0x8000;

/// What stands in front of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The host's tag; `None`: the message is openib's own.
    pub tag: Option<u8>,
    /// Credit messages whose buffers are posted again.
    pub seen: u8,
    /// Buffers that are posted again.
    pub credits: u16,
}

impl Header {
    /// As bytes.
    #[inline]
    pub const fn to_bytes(self) -> [u8; HEADER] {
        let tag = match self.tag {
            Some(tag) => tag,
            None => OWN,
        };
        let [low, high] = (self.credits & !OF_RING).to_ne_bytes();
        [tag, self.seen, low, high]
    }

    /// From bytes. Credits of a ring, where this side never writes, are none.
    #[inline]
    pub const fn parse([tag, seen, low, high]: [u8; HEADER]) -> Self {
        let credits = u16::from_ne_bytes([low, high]);
        Self {
            tag: if tag == OWN { None } else { Some(tag) },
            seen,
            credits: if credits & OF_RING == 0 { credits } else { 0 },
        }
    }
}

/// A message of openib's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// What the header says is of this queue.
    Credits {
        /// Which.
        queue: u8,
    },
    /// Short messages may also be written to a ring, which nobody has to.
    Ring,
    /// The host's messages follow.
    Joined,
    /// The receives are posted.
    Ready,
}

/// Bytes of the longest one that is sent.
pub const LONGEST_CONTROL: usize = 4;

impl Control {
    /// As bytes: how many, and in what. Neither a ring nor joined messages are ever sent.
    pub const fn to_bytes(self) -> ([u8; LONGEST_CONTROL], usize) {
        match self {
            Self::Credits { queue } => ([0, queue, 0, 0], 4),
            Self::Ring => ([1, 0, 0, 0], 4),
            Self::Joined => ([2, 0, 0, 0], 1),
            Self::Ready => ([3, 0, 0, 0], 1),
        }
    }

    /// From the first bytes behind the header, of a message of `length` bytes behind it; `None` when it is none.
    pub fn parse([what, queue, ..]: [u8; LONGEST_CONTROL], length: usize) -> Option<Self> {
        match (what, length) {
            (0, 4) => Some(Self::Credits { queue }),
            (1, 16) => Some(Self::Ring),
            (2, 1..) => Some(Self::Joined),
            (3, 1) => Some(Self::Ready),
            _ => None,
        }
    }
}

/// What stands in front of one of several messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The host's tag.
    pub tag: u8,
    /// Bytes of the message.
    pub length: usize,
    /// Bytes until the next one.
    pub whole: usize,
}

impl Joined {
    /// From bytes, of which `left` are left behind them; `None` when they are none.
    pub fn parse(bytes: [u8; JOINED], left: usize) -> Option<Self> {
        let [tag, _, _, _, length @ ..] = bytes;
        let ([length, whole], []) = length.as_chunks::<4>() else { return None };
        let [length, whole] = [length, whole].map(|size| u32::from_ne_bytes(*size) as usize);
        (tag != OWN && length <= whole && whole <= left).then_some(Self { tag, length, whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_it_was_made_of_and_nothing_of_rings() {
        for tag in [None, Some(0), Some(0x21), Some(0xFF)] {
            let header = Header { tag, seen: 255, credits: 0x7FFF };
            assert_eq!(Header::parse(header.to_bytes()), header);
        }
        assert_eq!(Header { tag: None, seen: 1, credits: 0x0203 }.to_bytes(), [0x20, 1, 3, 2]);
        assert_eq!(Header::parse([0x41, 2, 5, 0x80]), Header { tag: Some(0x41), seen: 2, credits: 0 });
    }

    #[test]
    fn messages_of_its_own_have_their_lengths() {
        for control in [Control::Credits { queue: 3 }, Control::Joined, Control::Ready] {
            let (bytes, len) = control.to_bytes();
            assert_eq!(Control::parse(bytes, len), Some(control));
        }
        for (what, length) in [(0, 3), (0, 5), (1, 15), (1, 17), (2, 0), (3, 0), (3, 2), (4, 1), (0xFF, 4)] {
            assert_eq!(Control::parse([what, 0, 0, 0], length), None, "{what} of {length} bytes");
        }
        assert_eq!(Control::parse([1, 0xEE, 0xEE, 0xEE], 16), Some(Control::Ring));
    }

    #[test]
    fn one_of_several_is_no_longer_than_what_is_left_and_not_openibs_own() {
        let bytes = [7, 0xEE, 0xEE, 0xEE, 3, 0, 0, 0, 5, 0, 0, 0];
        assert_eq!(Joined::parse(bytes, 5), Some(Joined { tag: 7, length: 3, whole: 5 }));
        assert_eq!(Joined::parse(bytes, 4), None);
        let longer = [7, 0, 0, 0, 6, 0, 0, 0, 5, 0, 0, 0];
        let own = [OWN, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0];
        let greatest = [7, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
        assert!([longer, own, greatest].into_iter().all(|bytes| Joined::parse(bytes, 64).is_none()));
    }
}

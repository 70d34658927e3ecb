//! Messages of the verbs BTL: a header of eight bytes in front of each, and the messages of its own.
//!
//! | bytes | header, little-endian |
//! |---|---|
//! | 0 | tag of the host's |
//! | 1 | lower four bits: the queue that the limit is of; 0x40: the message is our own; 0x80: the sender has more for this queue than it has credit |
//! | 2..4 | lower half of the limit of that queue |
//! | 4..8 | bytes that follow |
//!
//! A limit is how many messages may ever be sent by a queue, counted from the beginning of the connection: it can be
//! told twice or late. It also travels as a *word*, that is written to the peer's memory while no message goes there.

/// Bytes of a header.
pub const HEADER: usize = 8;

/// Most queues that a header can name.
pub const QUEUES: usize = 16;

/// The message is our own.
const OWN: u8 = 0x40;

/// The sender has more for this queue than it has credit.
const WANTS: u8 = 0x80;

/// What stands in front of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The host's tag; `None`: the message is our own.
    pub tag: Option<u8>,
    /// Queue of the limit, below [`QUEUES`].
    pub queue: u8,
    /// Lower half of the limit.
    pub limit: u16,
    /// The sender has more for the queue by which this comes than it has credit.
    pub wants: bool,
    /// Bytes that follow.
    pub length: u32,
}

impl Header {
    /// As bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let [low, high] = self.limit.to_le_bytes();
        let [a, b, c, d] = self.length.to_le_bytes();
        let wants = if self.wants { WANTS } else { 0 };
        let (tag, own) = self.tag.map_or((0, OWN), |tag| (tag, 0));
        [tag, self.queue & 0x0F | wants | own, low, high, a, b, c, d]
    }

    /// The tag and the limit of a message of the host's, of so many bytes, header and all, whose limit is of the first queue and whose
    /// sender has all the credit that it needs; `None` of any other.
    #[inline]
    pub fn plain(bytes: &[u8; HEADER], received: usize) -> Option<(u8, u16)> {
        let [tag, queue, low, high, a, b, c, d] = *bytes;
        let length = u32::from_le_bytes([a, b, c, d]);
        let is_plain = queue == 0 && received.checked_sub(HEADER) == Some(length as usize);
        is_plain.then(|| (tag, u16::from_le_bytes([low, high])))
    }

    /// Of a message of so many bytes, header and all; `None` when they are not one.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER], received: usize) -> Option<Self> {
        let [tag, queue, low, high, a, b, c, d] = *bytes;
        let length = u32::from_le_bytes([a, b, c, d]);
        let is_whole = received.checked_sub(HEADER) == Some(length as usize);
        let is_own = queue & OWN != 0;
        (is_whole && queue & !(WANTS | OWN | 0x0F) == 0 && !(is_own && tag != 0)).then_some(Self {
            tag: (!is_own).then_some(tag),
            queue: queue & 0x0F,
            limit: u16::from_le_bytes([low, high]),
            wants: queue & WANTS != 0,
            length,
        })
    }
}

/// A message of our own. But for [`Open`](Self::Open), it goes by the private queue that is for control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The first one of a connection: where the peer may write words, one for each queue.
    Hello {
        /// Address of the first.
        address: u64,
        /// Key of the memory.
        key: u32,
        /// Limits that hold from the beginning.
        limits: [u32; QUEUES],
    },
    /// Credit of a shared queue is wanted.
    Ask {
        /// Which.
        queue: u8,
    },
    /// Credit of a shared queue is to be given back.
    Recall {
        /// Which.
        queue: u8,
        /// All but so much.
        keep: u32,
    },
    /// It is.
    Return {
        /// Which.
        queue: u8,
        /// So much.
        count: u32,
    },
    /// Nothing follows, and the connection ends.
    Bye,
    /// The first thing on a queue, where nothing else is to be sent: who was connected to over iWARP may answer there.
    Open,
}

/// Bytes of the longest one.
pub const LONGEST_CONTROL: usize = 16 + 4 * QUEUES;

impl Control {
    /// As bytes: how many, and in what.
    pub fn to_bytes(self) -> ([u8; LONGEST_CONTROL], usize) {
        let mut bytes = [0; LONGEST_CONTROL];
        let (kind, queue, number) = match self {
            Self::Hello { address, key, limits } => {
                bytes[4..8].copy_from_slice(&key.to_le_bytes());
                bytes[8..16].copy_from_slice(&address.to_le_bytes());
                for (to, limit) in bytes[16..].as_chunks_mut::<4>().0.iter_mut().zip(limits) {
                    *to = limit.to_le_bytes();
                }
                bytes[0] = 1;
                return (bytes, LONGEST_CONTROL);
            }
            Self::Ask { queue } => (2, queue, 0),
            Self::Recall { queue, keep } => (3, queue, keep),
            Self::Return { queue, count } => (4, queue, count),
            Self::Bye => (5, 0, 0),
            Self::Open => (6, 0, 0),
        };
        (bytes[0], bytes[1]) = (kind, queue);
        bytes[4..8].copy_from_slice(&number.to_le_bytes());
        (bytes, 8)
    }

    /// From bytes; `None` when they are no such message.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let &[kind, queue, zero, another, a, b, c, d] = head;
        let number = u32::from_le_bytes([a, b, c, d]);
        if zero != 0 || another != 0 || usize::from(queue) >= QUEUES || (kind != 1 && !rest.is_empty()) {
            return None;
        }
        match (kind, queue, number) {
            (1, 0, key) => {
                let (address, rest) = rest.split_first_chunk::<8>()?;
                let limits: &[[u8; 4]; QUEUES] = rest.as_chunks::<4>().0.try_into().ok()?;
                (rest.len() == 4 * QUEUES).then_some(Self::Hello {
                    address: u64::from_le_bytes(*address),
                    key,
                    limits: limits.map(u32::from_le_bytes),
                })
            }
            (2, queue, 0) => Some(Self::Ask { queue }),
            (3, queue, keep) => Some(Self::Recall { queue, keep }),
            (4, queue, count) => Some(Self::Return { queue, count }),
            (5, 0, 0) => Some(Self::Bye),
            (6, 0, 0) => Some(Self::Open),
            _ => None,
        }
    }
}

/// A limit as it is written to a peer's memory. Its second half denies the first, so that one that is read while it is
/// written is seen as none, however the device writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    /// Of a limit.
    #[inline]
    pub const fn new(limit: u32) -> Self {
        Self((!limit as u64) << 32 | limit as u64)
    }

    /// The limit; `None` of memory that nobody has written, and of half a word.
    #[inline]
    pub const fn limit(self) -> Option<u32> {
        let limit = self.0 as u32;
        if (self.0 >> 32) as u32 == !limit { Some(limit) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_journey_and_must_tell_the_length() {
        for header in [
            Header { tag: Some(65), queue: 0, limit: 0, wants: false, length: 0 },
            Header { tag: Some(0), queue: 1, limit: 2, wants: false, length: 3 },
            Header { tag: None, queue: 1, limit: 2, wants: true, length: 3 },
            Header { tag: Some(255), queue: 15, limit: 0xFEDC, wants: true, length: 0x0102_0304 },
        ] {
            let bytes = header.to_bytes();
            let length = HEADER + header.length as usize;
            assert_eq!(Header::parse(&bytes, length), Some(header));
            for wrong in [0, 7, length - 1, length + 1, usize::MAX] {
                assert_eq!(Header::parse(&bytes, wrong), None, "{wrong}");
            }
        }
        for wrong in [[65, 0x10], [65, 0x20], [65, 0x40]] {
            assert_eq!(Header::parse(&[wrong[0], wrong[1], 0, 0, 0, 0, 0, 0], HEADER), None);
        }
    }

    #[test]
    fn a_plain_header_is_one_that_says_nothing_but_a_tag_a_length_and_a_limit_of_the_first_queue() {
        let mut plain = 0;
        for queue in 0..=255 {
            for (tag, length) in [(0, 0), (65, 3), (255, 0x0102_0304)] {
                let bytes = [
                    tag,
                    queue,
                    7,
                    8,
                    length as u8,
                    (length >> 8) as u8,
                    (length >> 16) as u8,
                    (length >> 24) as u8,
                ];
                for received in [0, 7, HEADER, HEADER + length, HEADER + length + 1, usize::MAX] {
                    let whole = Header::parse(&bytes, received);
                    let wanted = whole
                        .filter(|it| it.queue == 0 && !it.wants)
                        .and_then(|it| Some((it.tag?, it.limit)));
                    assert_eq!(Header::plain(&bytes, received), wanted, "{bytes:?} of {received}");
                    plain += usize::from(wanted.is_some());
                }
            }
        }
        // Of no bytes, two of the lengths are the same.
        assert_eq!(plain, 4);
    }

    #[test]
    fn control_messages_survive_the_journey() {
        let limits = std::array::from_fn(|queue| 0x8000_0000 | queue as u32);
        for message in [
            Control::Hello { address: 0x0102_0304_0506_0708, key: 0x090A_0B0C, limits },
            Control::Ask { queue: 15 },
            Control::Recall { queue: 3, keep: 1 << 31 },
            Control::Return { queue: 1, count: 7 },
            Control::Bye,
            Control::Open,
        ] {
            let (bytes, len) = message.to_bytes();
            assert_eq!(Control::parse(&bytes[..len]), Some(message));
            for other in (0..LONGEST_CONTROL).filter(|other| *other != len) {
                assert_eq!(Control::parse(&bytes[..other]), None, "{message:?} in {other} bytes");
            }
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_none() {
        let mut state = 1_u64;
        let mut known = 0;
        for _ in 0..200_000 {
            let mut bytes = [0; 100];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = if state >> 62 == 0 { (state >> 40) as u8 } else { 0 };
            }
            bytes[0] &= 7;
            let len = if state & 1 == 0 { 8 } else { (state >> 20) as usize % 100 };
            if let Some(message) = Control::parse(&bytes[..len]) {
                let (again, length) = message.to_bytes();
                assert_eq!((&again[..length], length), (&bytes[..len], len));
                known += 1;
            }
        }
        assert!(known > 100, "{known}");
    }

    #[test]
    fn half_a_word_says_nothing() {
        for (old, new) in [(0, 1), (255, 256), (0xFFFF_FFFF, 0), (0x00FF_FFFF, 0x0100_0000), (7, 8)] {
            let (before, after) = (Word::new(old).0.to_le_bytes(), Word::new(new).0.to_le_bytes());
            for split in 0..=8 {
                for (first, second) in [(before, after), (after, before)] {
                    let mut bytes = first;
                    bytes[split..].copy_from_slice(&second[split..]);
                    let read = Word(u64::from_le_bytes(bytes)).limit();
                    assert!([None, Some(old), Some(new)].contains(&read), "{old} {new} {split}: {read:?}");
                }
            }
        }
        assert_eq!((Word(0).limit(), Word(u64::MAX).limit()), (None, None));
    }
}

//! [`Control`] and [`Ancillary`]: the control messages of `cmsg(3)` that go to the kernel with what is sent, and come from
//! it with what is received.
//!
//! They are read and written as bytes, in the layout of 64-bit hosts. What is broken is cut, and says nothing.

/// Room for one control message with an `int` or less in it, in the kernel's layout
/// (`CMSG_SPACE(sizeof(int))` on 64-bit hosts).
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control([u8; 24]);

const _: () = assert!(size_of::<libc::cmsghdr>() == 16 && size_of::<usize>() == 8);

impl Control {
    pub(super) const ROOM: usize = size_of::<Self>();

    /// Asks the kernel to cut the message into datagrams of `size` bytes (`UDP_SEGMENT`).
    pub(super) fn segments(size: u16) -> Self {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&18_usize.to_ne_bytes());
        bytes[8..12].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
        bytes[12..16].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
        bytes[16..18].copy_from_slice(&size.to_ne_bytes());
        Self(bytes)
    }
}

/// What the kernel says of a message that it received. Room for a time stamp and an `int`, in its layout
/// (`CMSG_SPACE` of either on 64-bit hosts).
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Ancillary([u8; 56]);

/// The same, understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Size of the datagrams that the kernel joined (`UDP_GRO`), if it did.
    pub(super) joined: Option<usize>,
    /// When the first of them came, in nanoseconds of the time of day (`SO_TIMESTAMPNS`); 0: not said.
    pub(super) stamp: u64,
}

impl Ancillary {
    pub(super) const EMPTY: Self = Self([0; 56]);
    pub(super) const ROOM: usize = size_of::<Self>();

    /// What it says. `len` is what the kernel wrote.
    #[inline]
    pub(super) fn said(&self, len: usize) -> Said {
        let mut said = Said::default();
        for (level, kind, data) in controls(self.0.get(..len).unwrap_or_default()) {
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = data.first_chunk().map_or(0, |size| i32::from_ne_bytes(*size));
                    said.joined = usize::try_from(size).ok().filter(|size| *size > 0);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => said.stamp = stamp(data).unwrap_or(0),
                _ => {}
            }
        }
        said
    }
}

/// Nanoseconds of a `struct timespec`.
fn stamp(data: &[u8]) -> Option<u64> {
    let seconds = u64::from_ne_bytes(*data.first_chunk()?);
    let nanos = u64::from_ne_bytes(*data.get(8..)?.first_chunk()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Bytes before the data of a control message.
const HEAD: usize = size_of::<libc::cmsghdr>();

/// Level, type and data of each control message.
pub(super) fn controls(mut bytes: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    std::iter::from_fn(move || {
        let first = first_control(bytes)?;
        // The next one is aligned; behind a broken one there is nothing.
        bytes = bytes.get((HEAD + first.2.len()).next_multiple_of(8)..).unwrap_or_default();
        Some(first)
    })
}

/// Level, type and data of the first control message.
fn first_control(bytes: &[u8]) -> Option<(i32, i32, &[u8])> {
    let len = usize::from_ne_bytes(*bytes.first_chunk()?);
    let level = i32::from_ne_bytes(*bytes.get(8..)?.first_chunk()?);
    let kind = i32::from_ne_bytes(*bytes.get(12..)?.first_chunk()?);
    Some((level, kind, bytes.get(HEAD..len.min(bytes.len()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_in_the_kernels_layout() {
        let control = Control::segments(1472);
        assert_eq!(first_control(&control.0), Some((libc::SOL_UDP, libc::UDP_SEGMENT, &[0xC0, 5][..])));
    }

    /// A control message of the kernel's.
    fn put(to: &mut Ancillary, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
        let end = at + 16 + data.len();
        to.0[at..at + 8].copy_from_slice(&(16 + data.len()).to_ne_bytes());
        to.0[at + 8..at + 12].copy_from_slice(&level.to_ne_bytes());
        to.0[at + 12..at + 16].copy_from_slice(&kind.to_ne_bytes());
        to.0[at + 16..end].copy_from_slice(data);
        end.next_multiple_of(8)
    }

    #[test]
    fn what_the_kernel_says_of_a_message_is_understood_in_any_order() {
        let stamp: Vec<u8> = [3_u64, 500].iter().flat_map(|part| part.to_ne_bytes()).collect();
        let size = 1000_i32.to_ne_bytes();
        let both = Said { joined: Some(1000), stamp: 3_000_000_500 };
        let mut ancillary = Ancillary::EMPTY;
        let at = put(&mut ancillary, 0, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &stamp);
        assert_eq!(ancillary.said(at), Said { joined: None, ..both });
        let at = put(&mut ancillary, at, libc::SOL_UDP, libc::UDP_GRO, &size);
        assert_eq!((at, ancillary.said(at)), (Ancillary::ROOM, both));
        let at = put(&mut ancillary, 0, libc::SOL_UDP, libc::UDP_GRO, &size);
        assert_eq!(ancillary.said(at), Said { stamp: 0, ..both });
        let at = put(&mut ancillary, at, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &stamp);
        assert_eq!(ancillary.said(at), both);
        assert_eq!(ancillary.said(0), Said::default());
        assert_eq!(ancillary.said(57), Said::default(), "longer than the room");
        put(&mut ancillary, 0, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[0xFF; 16]);
        assert_eq!(ancillary.said(32).stamp, 0, "no time that there is");
    }

    #[test]
    fn control_messages_that_lie_about_their_length_are_cut() {
        for len in [0_usize, 1, 15, 16, 17, usize::MAX] {
            let mut bytes = [7_u8; 24];
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            let _ = first_control(&bytes);
            let mut ancillary = Ancillary([7; 56]);
            ancillary.0[..8].copy_from_slice(&len.to_ne_bytes());
            let _ = (ancillary.said(24), ancillary.said(56));
        }
    }
}

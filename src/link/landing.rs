//! Messages of which parts go straight to where they belong, and only the rest into a buffer.

use super::Lent;
use super::inbox::BUFFER;

/// Datagrams of one message that are led to their place.
const DATAGRAMS: usize = 64;

/// Where the next datagrams belong, if they are what they are taken for: between what each begins and ends with, the next
/// `payload` bytes of the memory.
#[derive(Clone, Debug)]
pub struct Landing {
    /// What may be written to, and read back, until what has landed is [settled](super::Inbox::settle_landed).
    pub memory: Lent,
    /// Bytes of the header of each datagram.
    pub header: usize,
    /// Bytes of data behind it.
    pub payload: usize,
    /// Bytes behind the data.
    pub trailer: usize,
}

impl Landing {
    /// Bytes of a whole datagram.
    #[inline]
    pub(super) fn step(&self) -> usize {
        self.header + self.payload + self.trailer
    }

    /// Those parts of a message of at most `room` bytes that belong elsewhere: where in the message they are, and
    /// their place. What is between and behind them stays.
    fn parts(&self, room: usize) -> impl Iterator<Item = (usize, Lent)> + use<> {
        let (&Self { memory, header, payload, .. }, step) = (self, self.step());
        (0..DATAGRAMS).map_while(move |at| {
            let (place, offset) = (at * step + header, at * payload);
            let len = payload.min(memory.len().saturating_sub(offset)).min(room.saturating_sub(place));
            (len > 0).then(|| (place, memory.slice(offset, len)))
        })
    }

    /// Copies back into the buffer what of the first `len` bytes of a message, from `start` on, has landed elsewhere.
    #[cold]
    pub(super) fn fetch_back(&self, buffer: &mut [u8], start: usize, len: usize) {
        for (place, part) in self.parts(len.min(buffer.len())) {
            if place >= start
                && let Some(to) = buffer.get_mut(place..place + part.len())
            {
                part.read(0, to);
            }
        }
    }
}

/// The list of pieces of one message, for the kernel.
pub(super) struct Scatter {
    pieces: Vec<libc::iovec>,
}

// SAFETY: the pointers are written anew before each call, and used by nobody else.
unsafe impl Send for Scatter {}

impl Scatter {
    pub(super) fn new() -> Self {
        Self { pieces: Vec::with_capacity(2 * DATAGRAMS + 1) }
    }

    /// Leads a message to the buffer, but for what lands elsewhere; the buffer has room for all of it.
    pub(super) fn aim(&mut self, landing: &Landing, buffer: &mut [u8]) -> &mut [libc::iovec] {
        self.pieces.clear();
        let (mut rest, mut at) = (buffer, 0);
        for (place, part) in landing.parts(BUFFER) {
            let (head, behind) = rest.split_at_mut((place - at).min(rest.len()));
            self.pieces.push(libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() });
            self.pieces.push(libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
            // There it is written to if it must be fetched back.
            rest = behind.get_mut(part.len()..).unwrap_or_default();
            at = place + part.len();
        }
        self.pieces.push(libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() });
        &mut self.pieces
    }
}

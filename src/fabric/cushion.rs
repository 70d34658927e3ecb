//! [`Cushion`]: where the rest of a message goes that is longer than its receive.
//!
//! The TCP providers stop reading a message where its receive ends: libfabric 1.17 then drops the
//! connection and what is under way on it, 2.1 may take the rest for the next message's. With a
//! second piece of memory behind every receive they never meet that case. Nobody reads what lands
//! there, so that all receives share it.

use std::ffi::c_void;

use memmap2::{MmapMut, MmapOptions, UncheckedAdvice};

use super::{Info, Piece};

/// The longest rest that is caught, bytes. Only addresses: pages come when something lands there.
const LEN: usize = 1 << 30;
/// A longer rest is given back to the system at once, bytes.
const KEEP: usize = 1 << 20;

pub(super) struct Cushion {
    memory: MmapMut,
}

/// The memory of a receive on the short path, its own and then the cushion. It is written for each receive, and
/// read by the provider during the call.
pub(super) struct Pieces(pub(super) [libc::iovec; 2]);

impl Default for Pieces {
    fn default() -> Self {
        Self([Piece::EMPTY.into(); 2])
    }
}

impl Cushion {
    /// A cushion, for a provider that needs one, where the process may have that many addresses.
    pub(super) fn for_provider(info: &Info<'_>) -> Option<Self> {
        let needs = info.provider().split(';').any(|layer| matches!(layer, "tcp" | "net"));
        if !needs || info.receive_pieces() < 2 {
            return None;
        }
        let memory = MmapOptions::new().len(LEN).no_reserve_swap().map_anon().ok()?;
        Some(Self { memory })
    }

    /// The receive's own memory, then the cushion.
    pub(super) fn behind(&self, to: Piece) -> [libc::iovec; 2] {
        let rest = self.memory.as_ptr().cast_mut().cast::<c_void>();
        [to.into(), libc::iovec { iov_base: rest, iov_len: LEN }]
    }

    /// The pieces of receives whose own memory is not known yet.
    pub(super) fn pieces(&self) -> Pieces {
        Pieces(self.behind(Piece::EMPTY))
    }

    /// So many bytes came to lie here.
    pub(super) fn shake_out(&self, len: usize) {
        if len > KEEP {
            // SAFETY: nobody reads this memory, so that nobody misses what it held. It stays usable if the
            // advice is not taken.
            let _ = unsafe { self.memory.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    }
}

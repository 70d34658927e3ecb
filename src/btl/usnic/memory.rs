//! The host's memory, as the engine sees it: by copies only.

use crate::engine::Memory;
use crate::link::Lent;

impl Memory for Lent {
    fn len(&self) -> usize {
        Self::len(*self)
    }

    fn read(&self, offset: usize, to: &mut [u8]) {
        Self::read(*self, offset, to);
    }

    fn append(&self, offset: usize, len: usize, to: &mut Vec<u8>) {
        self.slice(offset, len).append_to(to);
    }

    fn write(&self, offset: usize, from: &[u8]) {
        Self::write(*self, offset, from);
    }

    fn change<R>(&self, offset: usize, len: usize, change: impl FnOnce(&mut [u8]) -> R) -> R {
        Self::change(*self, offset, len, change)
    }
}

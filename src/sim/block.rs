//! The memory of simulated nodes.

use std::cell::RefCell;
use std::rc::Rc;

use crate::engine::Memory;

/// Bytes that may be shared: the simulator's memory.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Rc<RefCell<Vec<u8>>>,
    start: usize,
    len: usize,
}

impl Block {
    /// A block of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { bytes: Rc::new(RefCell::new(bytes)), start: 0, len }
    }

    /// A part of it.
    pub fn slice(&self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.len, "outside of the block");
        Self { bytes: Rc::clone(&self.bytes), start: self.start + start, len }
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.borrow()[self.start..self.start + self.len].to_vec()
    }

    /// How many hold on to the bytes.
    pub fn holders(&self) -> usize {
        Rc::strong_count(&self.bytes)
    }
}

impl Memory for Block {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= self.len, "read outside of the block");
        let start = self.start + offset;
        to.copy_from_slice(&self.bytes.borrow()[start..start + to.len()]);
    }

    fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.len, "write outside of the block");
        let start = self.start + offset;
        self.bytes.borrow_mut()[start..start + from.len()].copy_from_slice(from);
    }
}

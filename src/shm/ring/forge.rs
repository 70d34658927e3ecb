//! What a hostile peer can do to a ring, for tests.

use std::sync::atomic::Ordering;

use super::{READ_AT, Sender};

/// Writes a word where a header is.
pub(crate) fn header(sender: &Sender, offset: usize, word: u64) {
    sender.memory.header(offset).store(word, Ordering::Release);
}

/// The same where the next entry goes.
pub(crate) fn next(sender: &Sender, word: u64) {
    header(sender, sender.offset, word);
}

/// Says how far the reader has come.
pub(crate) fn read(sender: &Sender, position: u64) {
    sender.memory.control(READ_AT).store(position, Ordering::Release);
}

/// How much of the ring is used, and where the next entry goes.
pub(crate) fn bound(sender: &Sender) -> (usize, usize) {
    (sender.bound, sender.offset)
}

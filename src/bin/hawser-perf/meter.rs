//! How far a measurement is, for a person at a terminal.

use std::io::{IsTerminal, Write, stderr};

/// How often it is said, nanoseconds.
const OFTEN: u64 = 500_000_000;

/// Says it on standard error, where that is a terminal.
pub(crate) struct Meter {
    is_seen: bool,
    /// When it is said next.
    next: u64,
    has_said: bool,
}

impl Meter {
    /// For the side that a person looks at.
    pub(crate) fn new(is_client: bool) -> Self {
        Self { is_seen: is_client && stderr().is_terminal(), next: 0, has_said: false }
    }

    /// So many messages of `count` are over. Returns whether it is time to look at other things.
    #[inline]
    pub(crate) fn tick(&mut self, now: u64, length: usize, done: u64, count: u32) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + OFTEN;
        self.say(length, done, count);
        true
    }

    #[cold]
    fn say(&mut self, length: usize, done: u64, count: u32) {
        if self.is_seen {
            let _ = write!(stderr(), "\r{length} bytes: {} % ", done * 100 / u64::from(count.max(1)));
            self.has_said = true;
        }
    }

    /// Takes it away again.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.has_said) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

//! [`Waiter`]: sleeping until one of several descriptors has something, `poll(2)`.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// A list of descriptors to wait for.
#[derive(Default)]
pub struct Waiter(Vec<libc::pollfd>);

impl Waiter {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the list.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds one; its place in the list. It must stay open until the list has been waited for.
    pub fn add(&mut self, what: &impl AsFd) -> usize {
        let fd = what.as_fd().as_raw_fd();
        self.0.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        self.0.len() - 1
    }

    /// Sleeps until one of them has something to read, an error, or an end; `None`: however long.
    pub fn wait(&mut self, most: Option<Duration>) {
        // Up to the next millisecond: to wake too early would be to wake twice.
        let most =
            most.map_or(-1, |most| i32::try_from(most.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let count = self.0.len() as libc::nfds_t;
        // SAFETY: so many entries; a descriptor that is no longer open is reported as such.
        let ready = unsafe { libc::poll(self.0.as_mut_ptr(), count, most) };
        if ready < 0 {
            // Interrupted: nothing is ready.
            self.0.iter_mut().for_each(|entry| entry.revents = 0);
        }
    }

    /// Whether the one at this place has something.
    pub fn is_ready(&self, place: usize) -> bool {
        self.0.get(place).is_some_and(|entry| entry.revents != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_who_has_something_is_ready() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        let (_other, quiet) = UnixStream::pair().expect("a pair");
        let mut waiter = Waiter::new();
        let (one, two) = (waiter.add(&there), waiter.add(&quiet));
        waiter.wait(Some(Duration::ZERO));
        assert!(!waiter.is_ready(one) && !waiter.is_ready(two));
        here.write_all(&[1]).expect("written");
        waiter.wait(None);
        assert!(waiter.is_ready(one) && !waiter.is_ready(two) && !waiter.is_ready(2));
    }

    #[test]
    fn an_end_is_something() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let mut waiter = Waiter::new();
        let place = waiter.add(&there);
        drop(here);
        waiter.wait(None);
        assert!(waiter.is_ready(place));
    }
}

//! [`Waiter`]: sleeping until one of several descriptors has something, `epoll(7)`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Most that one call tells of; the others are told of by the next.
const MOST: usize = 64;

/// Descriptors to wait for, each under a number of the caller's. One that is closed everywhere leaves by
/// itself.
pub struct Waiter {
    epoll: OwnedFd,
    ready: Vec<u64>,
}

impl Waiter {
    /// Waits for nothing yet.
    ///
    /// # Errors
    /// Of `epoll_create1(2)`.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, ready: Vec::with_capacity(MOST) })
    }

    /// Adds one: it is ready when it has something to read, an error, or an end.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub fn add(&self, what: &impl AsFd, number: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, what, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?)
    }

    /// Adds one for which several processes wait: what comes wakes one of those that are waiting. A
    /// process that is stopped, or has ended, does not wait.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub fn add_shared(&self, what: &impl AsFd, number: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.epoll, what, epoll::EventData::new_u64(number), flags)?)
    }

    /// Takes one out that stays open.
    pub fn remove(&self, what: &impl AsFd) {
        let _ = epoll::delete(&self.epoll, what);
    }

    /// Sleeps until one of them is [ready](Self::ready); `None`: however long. A signal may end it before, with
    /// nothing ready.
    ///
    /// # Errors
    /// Of `epoll_wait(2)`: it is no descriptor to wait for any more, because the program has closed it.
    pub fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        self.ready.clear();
        // Up to the next millisecond: to wake too early would be to wake twice.
        let millis = |most: Duration| most.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
        let most = most
            .map(millis)
            .map(|millis| Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 });
        let mut events = [const { MaybeUninit::uninit() }; MOST];
        match epoll::wait(&self.epoll, &mut events, most.as_ref()) {
            Ok((events, _)) => self.ready.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The numbers of those that had something when [`wait`](Self::wait) returned.
    pub fn ready(&self) -> &[u64] {
        &self.ready
    }
}

/// Puts another file in the place of a descriptor.
#[cfg(test)]
pub(crate) fn replace_descriptor(descriptor: std::os::fd::RawFd) {
    use std::os::fd::AsRawFd;
    let null = std::fs::File::open("/dev/null").expect("it is there");
    // SAFETY: the first is open. Whoever uses the second finds another file there, which is the purpose.
    assert!(unsafe { libc::dup2(null.as_raw_fd(), descriptor) } >= 0);
}

/// Replaces all descriptors of this process but the first three, as a program that closes what is not its own
/// and opens other files.
#[cfg(test)]
pub(crate) fn replace_descriptors() {
    use std::os::fd::AsRawFd;
    let null = std::fs::File::open("/dev/null").expect("it is there");
    let entries = std::fs::read_dir("/proc/self/fd").expect("proc(5)").flatten();
    let names: Vec<_> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in names.into_iter().filter(|descriptor: &i32| *descriptor > 2) {
        // The one by which the list was read is closed by now.
        // SAFETY: asks about a number, whatever it is.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } >= 0 {
            // SAFETY: both are open. Whoever used that descriptor finds another file there, which is the purpose.
            unsafe { libc::dup2(null.as_raw_fd(), descriptor) };
        }
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
        let mut waiter = Waiter::new().expect("a waiter");
        waiter.add(&there, 1).expect("added");
        waiter.add(&quiet, 2).expect("added");
        waiter.wait(Some(Duration::ZERO)).expect("waited");
        assert_eq!(waiter.ready(), [0_u64; 0]);
        here.write_all(&[1]).expect("written");
        waiter.wait(None).expect("waited");
        assert_eq!(waiter.ready(), [1]);
        waiter.remove(&there);
        waiter.wait(Some(Duration::from_millis(1))).expect("waited");
        assert_eq!(waiter.ready(), [0_u64; 0]);
    }

    #[test]
    fn an_end_is_something() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let mut waiter = Waiter::new().expect("a waiter");
        waiter.add(&there, 9).expect("added");
        drop(here);
        waiter.wait(None).expect("waited");
        assert_eq!(waiter.ready(), [9]);
    }

    /// As after a program has closed descriptors that are not its own, and opened others in their place.
    #[test]
    fn what_is_no_waiter_any_more_is_an_error_and_not_silence() {
        let mut waiter = Waiter::new().expect("a waiter");
        replace_descriptor(std::os::fd::AsRawFd::as_raw_fd(&waiter.epoll));
        assert!(waiter.wait(None).is_err());
    }

    /// What is shared wakes somebody who waits, and not one who only could.
    #[test]
    fn who_does_not_wait_is_not_relied_on() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        let idle = Waiter::new().expect("a waiter");
        idle.add_shared(&there, 1).expect("added");
        let mut waiter = Waiter::new().expect("a waiter");
        waiter.add_shared(&there, 2).expect("added");
        let waiting = std::thread::spawn(move || {
            waiter.wait(None).expect("waited");
            waiter.ready().to_vec()
        });
        here.write_all(&[1]).expect("written");
        assert_eq!(waiting.join().expect("no panic"), [2]);
    }
}

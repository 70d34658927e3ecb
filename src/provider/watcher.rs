//! [`Watcher`]: the thread of a domain that makes progress for whoever sleeps on a descriptor.
//!
//! What peers write into memory wakes nobody. So once a program has a descriptor to sleep on, or says that it is going
//! to (`fi_trywait`), somebody looks for it every now and then, until the domain is closed. Domains of programs that
//! never do that have no thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::errno::{Errno, Outcome};
use super::traffic::Traffic;
use crate::sync::EngineCell;

/// Bytes of its stack.
const STACK: usize = 256 << 10;
/// Between looks.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The thread, which ends with this.
pub struct Watcher {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts it.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn start(traffic: &Arc<EngineCell<Traffic>>) -> Outcome<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (traffic, stopped) = (Arc::clone(traffic), Arc::clone(&stop));
        let watch = move || {
            // A signal is none of ours.
            while matches!(
                poll(&mut [PollFd::new(&*stopped, PollFlags::IN)], Some(&NAP)),
                Ok(0) | Err(rustix::io::Errno::INTR)
            ) {
                traffic.with(Traffic::progress_all);
            }
        };
        let thread = crate::sync::spawn("hawser gni", STACK, watch);
        let thread = thread.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic there was told where it was.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_ends_with_its_owner() {
        let traffic = Arc::new(EngineCell::new(Traffic::new()));
        for _ in 0..10 {
            let watcher = Watcher::start(&traffic).expect("a thread");
            assert_eq!(Arc::strong_count(&traffic), 2);
            drop(watcher);
            assert_eq!(Arc::strong_count(&traffic), 1);
        }
    }
}

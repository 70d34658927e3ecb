//! [`Helper`]: the thread of a domain that makes progress by itself (`FI_PROGRESS_AUTO`): of data and connections, or of
//! connections only.
//!
//! It sleeps until there is something to do, and while the program looks for that itself it only sees now and then whether
//! it still does, by a number, without coming in: then the program is not in its way, nor it in the program's, whose way
//! into the domain is the short one until somebody else takes it (`EngineCell`). It is there from when the first endpoint
//! is enabled to when the domain is closed. A child of fork(2) does not have it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::errno::{Errno, Outcome};
use super::guard::guard;
use super::traffic::{Rests, Traffic};
use super::wait::Beside;
use crate::sync::EngineCell;

/// Bytes of its stack.
const STACK: usize = 256 << 10;
/// Between looks at a program that makes progress itself, nanoseconds.
const NAP: u64 = 1_000_000;

/// What it sees to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Everything.
    All,
    /// Connections.
    Control,
}

/// The thread, which ends with this.
pub struct Helper {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Has it end.
struct Stop {
    is_over: AtomicBool,
    event: OwnedFd,
}

impl Helper {
    /// Starts it.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn start(traffic: &Arc<EngineCell<Traffic>>, span: Span) -> Outcome<Self> {
        // What it sleeps on is there before it is: nobody would hear of it otherwise.
        let rests = traffic.with(Traffic::rests)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(Stop { is_over: AtomicBool::new(false), event });
        let (traffic, until) = (Arc::clone(traffic), Arc::clone(&stop));
        let help = move || {
            guard("progress", || match span {
                Span::All => help(&traffic, &until, &rests),
                Span::Control => help_to_connect(&traffic, &until, &rests),
            });
        };
        let thread = crate::sync::spawn("hawser gni", STACK, help);
        let thread = thread.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop.is_over.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.stop.event, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic there was told where it was.
            let _ = thread.join();
        }
    }
}

impl Stop {
    /// Sleeps on a set of descriptors; whether it is not over.
    fn sleep(&self, set: Option<&OwnedFd>, most: Option<u64>) -> bool {
        let most = most.map(|nanos| Timespec { tv_sec: 0, tv_nsec: nanos as i64 });
        let stop = PollFd::new(&self.event, PollFlags::IN);
        // A signal is none of ours.
        let _ = match set {
            Some(set) => poll(&mut [stop, PollFd::new(set, PollFlags::IN)], most.as_ref()),
            None => poll(&mut [stop], most.as_ref()),
        };
        self.goes_on()
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }
}

/// Whether the program has called since it was last seen to.
struct Calls<'a> {
    passes: &'a AtomicU32,
    seen: Option<u32>,
}

impl Calls<'_> {
    fn has_called(&mut self) -> bool {
        let passes = Some(self.passes.load(Ordering::Relaxed));
        std::mem::replace(&mut self.seen, passes) != passes
    }
}

fn help(traffic: &EngineCell<Traffic>, stop: &Stop, rests: &Rests) -> Outcome<()> {
    let mut calls = Calls { passes: &rests.passes, seen: None };
    while stop.goes_on() {
        if calls.has_called() {
            stop.sleep(None, Some(NAP));
            continue;
        }
        let beside = traffic.with(|traffic| {
            let beside = traffic.arm();
            // That was a pass of its own.
            calls.has_called();
            beside
        });
        if let Beside::Set(set, most) = beside? {
            stop.sleep(Some(&set), most);
        }
    }
    Ok(())
}

fn help_to_connect(traffic: &EngineCell<Traffic>, stop: &Stop, rests: &Rests) -> Outcome<()> {
    let mut calls = Calls { passes: &rests.passes, seen: None };
    while stop.sleep(Some(&rests.control), None) {
        if calls.has_called() {
            stop.sleep(None, Some(NAP));
            continue;
        }
        while traffic.with(Traffic::control_again) && stop.goes_on() {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Bars;

    #[test]
    fn who_only_connects_leaves_the_program_its_short_way_in() {
        let traffic = Arc::new(EngineCell::new(Traffic::new()));
        let is_short = || traffic.with_unless(Bars::NONE, |_| ()).is_some();
        for _ in 0..10 {
            let helper = Helper::start(&traffic, Span::Control).expect("a thread");
            // It sleeps, or has not begun to; nothing happens that it could be woken by.
            traffic.with(|traffic| (0..1000).for_each(|_| _ = traffic.progress()));
            drop(helper);
            assert!(is_short());
        }
    }

    #[test]
    fn who_has_called_is_left_alone_until_he_does_not() {
        let passes = AtomicU32::new(7);
        let mut calls = Calls { passes: &passes, seen: None };
        assert!(calls.has_called() && !calls.has_called());
        passes.store(8, Ordering::Relaxed);
        assert!(calls.has_called() && !calls.has_called());
    }

    #[test]
    fn the_thread_ends_with_its_owner() {
        for span in [Span::All, Span::Control] {
            let traffic = Arc::new(EngineCell::new(Traffic::new()));
            for _ in 0..10 {
                let helper = Helper::start(&traffic, span).expect("a thread");
                assert_eq!(Arc::strong_count(&traffic), 2);
                drop(helper);
                assert_eq!(Arc::strong_count(&traffic), 1);
            }
        }
    }
}

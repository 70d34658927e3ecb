//! [`Wait`]: what a queue or counter wakes sleepers by (`FI_WAIT_FD`, `FI_WAIT_UNSPEC`), an `eventfd(2)`.
//!
//! It costs a system call only where somebody sleeps, or has said that he will (`fi_trywait`): then it is *armed*, and
//! the next thing that is worth waking for writes to the descriptor and disarms it. Whoever sleeps sleeps on what is
//! [beside](Beside) it, too: progress may have to be made before there is anything worth waking for.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use super::argument::Out;
use super::errno::{Errno, Outcome};
use super::sys;
use crate::link::Clock;

/// How an object can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Not at all.
    Never,
    /// By the calls that wait.
    Calls,
    /// By those, and by a descriptor.
    Descriptor,
}

/// What sleepers sleep on.
#[derive(Debug)]
pub struct Wait {
    manner: Manner,
    /// Made for the first sleeper, or at once where its number is asked for.
    event: OnceLock<OwnedFd>,
    /// What programs sleep on: the event, and what is beside it (`epoll(7)`).
    outside: Option<OwnedFd>,
    is_armed: AtomicBool,
}

/// Nanoseconds of a millisecond.
const MILLI: u64 = 1_000_000;
/// How long it looks all the time before it sleeps.
const AWAKE: u64 = 50_000;

/// What a sleeper sleeps on beside the object that it waits for.
#[derive(Debug)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Nothing yet: something has been done, and it is to be looked again.
    Moved,
    /// A descriptor, for so many nanoseconds at most.
    Set(Arc<OwnedFd>, Option<u64>),
}

/// Looks at what is beside an object before it is left alone.
const LOOKS: usize = 16;

impl Wait {
    /// For an attribute `wait_obj`, and what descriptors are to tell of besides.
    ///
    /// # Errors
    /// `FI_ENOSYS` for a kind that there is not; those of `eventfd(2)` and `epoll_create(2)`.
    pub fn new(object: u32, beside: impl FnOnce() -> Outcome<Option<Arc<OwnedFd>>>) -> Outcome<Self> {
        let manner = match object {
            sys::FI_WAIT_NONE => Manner::Never,
            sys::FI_WAIT_UNSPEC => Manner::Calls,
            sys::FI_WAIT_FD => Manner::Descriptor,
            _ => return Err(Errno::NOSYS),
        };
        // Whoever has the descriptor may sleep on it without a word.
        let is_armed = AtomicBool::new(manner == Manner::Descriptor);
        let mut wait = Self { manner, event: OnceLock::new(), outside: None, is_armed };
        if manner == Manner::Descriptor {
            let outside = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let nothing = epoll::EventData::new_u64(0);
            epoll::add(&outside, wait.event()?, nothing, epoll::EventFlags::IN)?;
            if let Some(beside) = beside()? {
                epoll::add(&outside, &*beside, nothing, epoll::EventFlags::IN)?;
            }
            wait.outside = Some(outside);
        }
        Ok(wait)
    }

    /// How it can be waited for.
    pub fn manner(&self) -> Manner {
        self.manner
    }

    fn event(&self) -> Outcome<&OwnedFd> {
        if let Some(event) = self.event.get() {
            return Ok(event);
        }
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(self.event.get_or_init(|| made))
    }

    /// Something is there that sleepers sleep for.
    #[inline]
    pub fn notify(&self) {
        if self.manner == Manner::Never {
            return;
        }
        // SYNC POINT: wait (the other half in `arm`): either the sleeper sees what is there, or we see that it is armed.
        fence(Ordering::SeqCst);
        if self.is_armed.load(Ordering::Relaxed) && self.is_armed.swap(false, Ordering::AcqRel) {
            self.ring();
        }
    }

    /// Wakes everybody who sleeps, whatever is there.
    pub fn ring(&self) {
        if let Some(event) = self.event.get() {
            // Full is as good: it is readable.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// From now on the next thing that is there wakes. What is there already must be looked for after this, and if
    /// there is something, [`ring`](Self::ring) is owed to other sleepers.
    ///
    /// # Errors
    /// Those of `eventfd(2)`.
    pub fn arm(&self) -> Outcome<()> {
        let event = self.event()?;
        let _ = rustix::io::read(event, &mut [0; 8]);
        self.is_armed.store(true, Ordering::Relaxed);
        // SYNC POINT: wait (the other half in `notify`)
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Looks until there is something, for so many milliseconds at most; negative is for ever. `None`: the time is over.
    /// Sleeps on what is beside when that has been armed.
    ///
    /// # Errors
    /// `FI_ENOSYS` where there is no waiting; those of `eventfd(2)` and `poll(2)`.
    pub fn until<R>(
        &self,
        timeout: i32,
        mut arm: impl FnMut() -> Outcome<Beside>,
        mut look: impl FnMut() -> Option<R>,
    ) -> Outcome<Option<R>> {
        if self.manner == Manner::Never {
            return Err(Errno::NOSYS);
        }
        let clock = Clock::new();
        let most = u64::try_from(timeout).ok().map(|millis| millis * MILLI);
        loop {
            if let Some(found) = look() {
                return Ok(Some(found));
            }
            let left = match most.map(|most| most.saturating_sub(clock.nanos())) {
                Some(0) => return Ok(None),
                left => left,
            };
            if clock.nanos() < AWAKE {
                std::thread::yield_now();
                continue;
            }
            self.arm()?;
            let beside = arm()?;
            if let Some(found) = look() {
                self.ring();
                return Ok(Some(found));
            }
            let own = PollFd::new(self.event()?, PollFlags::IN);
            let timespec = |nanos| Timespec {
                tv_sec: (nanos / (1000 * MILLI)) as i64,
                tv_nsec: (nanos % (1000 * MILLI)) as i64,
            };
            let slept = match &beside {
                Beside::Moved => continue,
                Beside::Nothing => poll(&mut [own], left.map(timespec).as_ref()),
                Beside::Set(set, most) => {
                    let most = left.into_iter().chain(*most).min().map(timespec);
                    poll(&mut [own, PollFd::new(&**set, PollFlags::IN)], most.as_ref())
                }
            };
            match slept {
                // A signal is none of ours: its handler has run, and the time goes on.
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether a program may sleep on the descriptor now, that is, nothing is there (`fi_trywait`).
    ///
    /// # Errors
    /// `FI_EAGAIN`: something is there. `FI_EINVAL`: there is no descriptor.
    pub fn try_wait(
        &self,
        mut arm: impl FnMut() -> Outcome<Beside>,
        is_something_there: impl Fn() -> bool,
    ) -> Outcome<()> {
        if self.manner == Manner::Never {
            return Err(Errno::INVAL);
        }
        self.arm()?;
        for _ in 0..LOOKS {
            let beside = arm()?;
            if is_something_there() {
                break;
            }
            // A program that sleeps for ever where something may come without a sign would never see it.
            match beside {
                Beside::Nothing | Beside::Set(_, None) => return Ok(()),
                Beside::Moved | Beside::Set(_, Some(_)) => {}
            }
        }
        self.ring();
        Err(Errno::AGAIN)
    }

    /// Answers `fi_control(3)` about waiting.
    ///
    /// # Safety
    /// `argument` is what the command wants: NULL, or a variable of that type.
    pub(super) unsafe fn control(&self, command: i32, argument: *mut c_void) -> Outcome<()> {
        match command {
            sys::FI_GETWAIT if self.manner == Manner::Descriptor => {
                // SAFETY: the contract: an `int`.
                let number = unsafe { Out::<i32>::new(argument.cast()) }?;
                number.write(self.outside.as_ref().ok_or(Errno::INVAL)?.as_raw_fd());
                Ok(())
            }
            sys::FI_GETWAITOBJ => {
                // SAFETY: the contract: an `enum fi_wait_obj`.
                let object = unsafe { Out::<u32>::new(argument.cast()) }?;
                object.write(match self.manner {
                    Manner::Never => sys::FI_WAIT_NONE,
                    Manner::Calls => sys::FI_WAIT_UNSPEC,
                    Manner::Descriptor => sys::FI_WAIT_FD,
                });
                Ok(())
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

/// Looks again and again, for so many milliseconds at most; negative is for ever. `None`: the time is over.
pub fn watch<R>(timeout: i32, mut look: impl FnMut() -> Option<R>) -> Option<R> {
    let clock = Clock::new();
    let most = u64::try_from(timeout).ok().map(|millis| millis * MILLI);
    loop {
        let found = look();
        if found.is_some() || most.is_some_and(|most| clock.nanos() >= most) {
            return found;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn new(object: u32) -> Outcome<Wait> {
        Wait::new(object, || Ok(None))
    }

    fn nothing() -> Outcome<Beside> {
        Ok(Beside::Nothing)
    }

    fn is_readable(wait: &Wait) -> bool {
        let event = wait.outside.as_ref().expect("a descriptor");
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&now)).expect("poll") == 1
    }

    #[test]
    fn what_cannot_be_waited_for_says_so() {
        let wait = new(sys::FI_WAIT_NONE).expect("made");
        assert_eq!(wait.until(0, nothing, || Some(1)), Err(Errno::NOSYS));
        assert_eq!(wait.try_wait(nothing, || false), Err(Errno::INVAL));
        // A wait set, and a mutex.
        assert!([2, 4, 5, 6, 7].into_iter().all(|object| new(object).is_err()));
    }

    #[test]
    fn the_descriptor_is_readable_while_something_is_there() {
        let wait = new(sys::FI_WAIT_FD).expect("made");
        assert!(!is_readable(&wait));
        wait.notify();
        assert!(is_readable(&wait), "without a word before");
        assert_eq!(wait.try_wait(nothing, || true), Err(Errno::AGAIN));
        assert!(is_readable(&wait), "still there");
        assert_eq!(wait.try_wait(nothing, || false), Ok(()));
        assert!(!is_readable(&wait));
        wait.notify();
        assert!(is_readable(&wait));
    }

    #[test]
    fn what_is_beside_wakes_and_is_looked_at_again_when_it_has_moved() {
        let beside = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("an event"));
        let wait = Wait::new(sys::FI_WAIT_FD, || Ok(Some(Arc::clone(&beside)))).expect("made");
        let set = || Ok(Beside::Set(Arc::clone(&beside), None));
        assert_eq!(wait.try_wait(set, || false), Ok(()));
        assert!(!is_readable(&wait));
        rustix::io::write(&*beside, &1_u64.to_ne_bytes()).expect("written");
        assert!(is_readable(&wait));
        let turns = std::cell::Cell::new(0);
        let arm = || {
            turns.set(turns.get() + 1);
            if turns.get() < 5 { Ok(Beside::Moved) } else { set() }
        };
        assert_eq!(wait.try_wait(arm, || false), Ok(()));
        // Its sleep ends as often as it is looked after that.
        turns.set(0);
        assert_eq!(wait.until(-1, arm, || (turns.get() > 9).then_some(1)), Ok(Some(1)));
        assert_eq!(wait.try_wait(|| Ok(Beside::Moved), || false), Err(Errno::AGAIN));
    }

    #[test]
    fn the_time_is_over_some_time() {
        let wait = new(sys::FI_WAIT_UNSPEC).expect("made");
        assert_eq!(wait.until(0, nothing, || None::<()>), Ok(None));
        assert_eq!(wait.until(3, nothing, || None::<()>), Ok(None));
        assert_eq!(wait.until(-1, nothing, || Some(1)), Ok(Some(1)));
    }

    #[test]
    fn several_sleepers_all_get_what_is_theirs() {
        let wait = new(sys::FI_WAIT_UNSPEC).expect("made");
        let there = AtomicU32::new(0);
        const EACH: u32 = 2000;
        let take =
            || there.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1)).ok();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        wait.until(-1, nothing, take).expect("waited").expect("something");
                    }
                });
            }
            for _ in 0..3 * EACH {
                there.fetch_add(1, Ordering::SeqCst);
                wait.notify();
            }
        });
        assert_eq!(there.load(Ordering::SeqCst), 0);
    }
}

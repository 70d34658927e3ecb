//! [`Wait`]: what a queue or counter wakes sleepers by (`FI_WAIT_FD`, `FI_WAIT_UNSPEC`), an `eventfd(2)` for each of them.
//!
//! It costs a system call only where somebody sleeps, or has said that he will (`fi_trywait`): then it is *armed*, and
//! the next thing that is worth waking for writes to all descriptors and disarms it. Whoever sleeps sleeps on what is
//! [beside](Beside) it, too: progress may have to be made before there is anything worth waking for.
//!
//! Who looks empties his own descriptor first and no other: what was there for one sleeper is not for another to take, who
//! may wait for something else.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::Mutex;
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
    /// What programs sleep on.
    outside: Option<Outside>,
    /// Those who sleep in calls.
    sleepers: Mutex<Sleepers>,
    is_armed: AtomicBool,
}

/// What programs sleep on: the event, and a set of it and of what is beside it (`epoll(7)`).
#[derive(Debug)]
struct Outside {
    event: OwnedFd,
    set: OwnedFd,
}

/// The events of those who sleep, and of those who have.
#[derive(Debug, Default)]
struct Sleepers {
    asleep: Vec<Arc<OwnedFd>>,
    spare: Vec<Arc<OwnedFd>>,
}

/// Somebody who sleeps, or is going to.
struct Sleeper<'a> {
    wait: &'a Wait,
    event: Arc<OwnedFd>,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let mut sleepers = self.wait.sleepers.lock();
        sleepers.asleep.retain(|event| !Arc::ptr_eq(event, &self.event));
        if sleepers.spare.len() < SPARE {
            sleepers.spare.push(Arc::clone(&self.event));
        }
    }
}

/// Events that are kept for sleepers to come.
const SPARE: usize = 4;

fn new_event() -> Outcome<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Whoever sleeps on an event wakes.
fn write(event: &OwnedFd) {
    // Full is as good: it is readable.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
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
        let outside = if manner == Manner::Descriptor {
            let (event, set) = (new_event()?, epoll::create(epoll::CreateFlags::CLOEXEC)?);
            let nothing = epoll::EventData::new_u64(0);
            epoll::add(&set, &event, nothing, epoll::EventFlags::IN)?;
            if let Some(beside) = beside()? {
                epoll::add(&set, &*beside, nothing, epoll::EventFlags::IN)?;
            }
            Some(Outside { event, set })
        } else {
            None
        };
        Ok(Self { manner, outside, sleepers: Mutex::default(), is_armed })
    }

    /// For an attribute `wait_obj` of what may be in a wait set: there it has a descriptor.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub fn of_member(object: u32, beside: impl FnOnce() -> Outcome<Option<Arc<OwnedFd>>>) -> Outcome<Self> {
        Self::new(if object == sys::FI_WAIT_SET { sys::FI_WAIT_FD } else { object }, beside)
    }

    /// What programs sleep on, if they can.
    pub fn descriptor(&self) -> Option<&OwnedFd> {
        self.outside.as_ref().map(|outside| &outside.set)
    }

    /// How it can be waited for.
    pub fn manner(&self) -> Manner {
        self.manner
    }

    /// Somebody who is woken from now on.
    fn sleeper(&self) -> Outcome<Sleeper<'_>> {
        let mut sleepers = self.sleepers.lock();
        let event = match sleepers.spare.pop() {
            Some(event) => event,
            None => Arc::new(new_event()?),
        };
        sleepers.asleep.push(Arc::clone(&event));
        Ok(Sleeper { wait: self, event })
    }

    /// Something is there that sleepers sleep for.
    #[inline(always)]
    pub fn notify(&self) {
        if self.manner != Manner::Never {
            self.notify_sleepers();
        }
    }

    #[inline(never)]
    fn notify_sleepers(&self) {
        // SYNC POINT: wait (the other half in `arm`): either the sleeper sees what is there, or we see that it is armed.
        fence(Ordering::SeqCst);
        if self.is_armed.load(Ordering::Relaxed) && self.is_armed.swap(false, Ordering::AcqRel) {
            self.ring();
        }
    }

    /// Wakes everybody who sleeps, whatever is there.
    pub fn ring(&self) {
        self.outside.iter().for_each(|outside| write(&outside.event));
        self.sleepers.lock().asleep.iter().for_each(|event| write(event));
    }

    /// From now on the next thing that is there wakes whoever sleeps on this event, and all others. What is there already
    /// must be looked for after this.
    fn arm(&self, event: &OwnedFd) {
        let _ = rustix::io::read(event, &mut [0; 8]);
        self.is_armed.store(true, Ordering::Relaxed);
        // SYNC POINT: wait (the other half in `notify`)
        fence(Ordering::SeqCst);
    }

    /// Looks until there is something, for so many milliseconds at most; negative is for ever. `None`: the time is over.
    /// Sleeps on what is beside when that has been armed. Before each look but the last one before sleep something is done to
    /// make progress: what is left to be done then was left by whoever armed, and would end the sleep at once.
    ///
    /// # Errors
    /// `FI_ENOSYS` where there is no waiting; those of `eventfd(2)` and `poll(2)`.
    pub fn until<R>(
        &self,
        timeout: i32,
        mut arm: impl FnMut() -> Outcome<Beside>,
        progress: impl Fn(),
        mut look: impl FnMut() -> Option<R>,
    ) -> Outcome<Option<R>> {
        if self.manner == Manner::Never {
            return Err(Errno::NOSYS);
        }
        let clock = Clock::new();
        let most = u64::try_from(timeout).ok().map(|millis| millis * MILLI);
        let mut sleeper: Option<Sleeper<'_>> = None;
        loop {
            progress();
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
            let event = match &sleeper {
                Some(sleeper) => &sleeper.event,
                None => &sleeper.insert(self.sleeper()?).event,
            };
            self.arm(event);
            let beside = arm()?;
            if let Some(found) = look() {
                return Ok(Some(found));
            }
            let own = PollFd::new(&**event, PollFlags::IN);
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
        self.outside.iter().for_each(|outside| self.arm(&outside.event));
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
        self.outside.iter().for_each(|outside| write(&outside.event));
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
                number.write(self.descriptor().ok_or(Errno::INVAL)?.as_raw_fd());
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
        let event = wait.descriptor().expect("a descriptor");
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&now)).expect("poll") == 1
    }

    #[test]
    fn what_cannot_be_waited_for_says_so() {
        let wait = new(sys::FI_WAIT_NONE).expect("made");
        assert_eq!(wait.until(0, nothing, || {}, || Some(1)), Err(Errno::NOSYS));
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
        assert_eq!(wait.until(-1, arm, || {}, || (turns.get() > 9).then_some(1)), Ok(Some(1)));
        assert_eq!(wait.try_wait(|| Ok(Beside::Moved), || false), Err(Errno::AGAIN));
    }

    #[test]
    fn the_time_is_over_some_time() {
        let wait = new(sys::FI_WAIT_UNSPEC).expect("made");
        assert_eq!(wait.until(0, nothing, || {}, || None::<()>), Ok(None));
        assert_eq!(wait.until(3, nothing, || {}, || None::<()>), Ok(None));
        assert_eq!(wait.until(-1, nothing, || {}, || Some(1)), Ok(Some(1)));
    }

    #[test]
    fn what_wakes_one_sleeper_is_not_taken_by_another_who_waits_for_more() {
        let wait = new(sys::FI_WAIT_UNSPEC).expect("made");
        let (count, asleep) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                // It is armed, and finds nothing, and has not slept yet when all else happens.
                let arm = || Ok(Beside::Nothing).inspect(|_| asleep.store(1, Ordering::SeqCst));
                let look = || {
                    let found = (count.load(Ordering::SeqCst) >= 1).then_some(());
                    if found.is_none() && asleep.load(Ordering::SeqCst) == 1 {
                        asleep.store(2, Ordering::SeqCst);
                        while asleep.load(Ordering::SeqCst) == 2 {
                            std::thread::yield_now();
                        }
                    }
                    found
                };
                wait.until(-1, arm, || {}, look)
            });
            while asleep.load(Ordering::SeqCst) != 2 {
                std::thread::yield_now();
            }
            count.store(1, Ordering::SeqCst);
            wait.notify();
            let turns = std::cell::Cell::new(0);
            let arm = || Ok(Beside::Moved).inspect(|_| turns.set(turns.get() + 1));
            let look = || (turns.get() == 2).then_some(());
            assert_eq!(wait.until(-1, arm, || {}, look), Ok(Some(())), "for something else");
            asleep.store(3, Ordering::SeqCst);
            assert_eq!(first.join().expect("no panic"), Ok(Some(())));
        });
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
                        wait.until(-1, nothing, || {}, take).expect("waited").expect("something");
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

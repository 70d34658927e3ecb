//! The wait set, `fi_poll(3)`: what sleeps until one of several completion queues and counters has something new.
//!
//! Each of them has a descriptor to sleep on, and the set is a set of those (`epoll(7)`). They hold it, so that it is not
//! closed before them; it only knows of them.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::argument::{Out, copy};
use super::cntr::Counter;
use super::cq::Cq;
use super::errno::{Errno, Outcome};
use super::fabric::Fabric;
use super::guard::guard;
use super::object::{self, Object, body, fid_of};
use super::sys::{self, fi_ops, fi_ops_wait, fi_wait_attr, fid, fid_wait};
use super::wait::Wait;
use crate::link::Clock;
use crate::sync::EngineCell;

/// Nanoseconds of a millisecond.
const MILLI: u64 = 1_000_000;

/// A wait set.
pub(super) struct WaitSet {
    fabric: Arc<Fabric>,
    /// Programs may have its descriptor.
    is_shown: bool,
    epoll: OwnedFd,
    members: EngineCell<Vec<Member>>,
}

// SAFETY: `fid_wait` is libfabric's structure of the class, and `open` below opens those.
unsafe impl Object for WaitSet {
    type Head = fid_wait;
    const CLASS: usize = sys::FI_CLASS_WAIT;
}

/// What is waited for.
#[derive(Clone)]
pub(super) enum Member {
    Queue(Weak<Cq>),
    /// With its values when they were last told of.
    Counter(Weak<Counter>, (u64, u64)),
}

impl WaitSet {
    /// The set that an object of this fabric is to wake, if it is to wake one.
    ///
    /// # Safety
    /// A set that is open, where `object` says that it is one.
    pub(super) unsafe fn of(
        object: u32,
        set: *mut fid_wait,
        fabric: &Arc<Fabric>,
    ) -> Outcome<Option<Arc<Self>>> {
        if object != sys::FI_WAIT_SET {
            return Ok(None);
        }
        // SAFETY: the contract.
        let set = unsafe { body::<Self>(set) }?;
        if !Arc::ptr_eq(&set.fabric, fabric) {
            return Err(Errno::INVAL);
        }
        Ok(Some(Arc::clone(set)))
    }

    /// It wakes whoever waits for the set from now on.
    ///
    /// # Errors
    /// Of `epoll_ctl(2)`.
    pub(super) fn add(&self, member: Member, wait: &Wait) -> Outcome<()> {
        let descriptor = wait.descriptor().ok_or(Errno::INVAL)?;
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        self.members.with(|members| {
            members.retain(Member::is_there);
            members.push(member);
        });
        Ok(())
    }

    /// Whether there is something; if not, whatever comes from now on wakes who sleeps on the descriptor.
    fn has_something(&self) -> Outcome<bool> {
        let members = self.members.with(|members| members.clone());
        let mut found = false;
        for member in &members {
            found |= match member {
                Member::Queue(queue) => queue.upgrade().is_some_and(|queue| queue.try_wait().is_err()),
                Member::Counter(counter, told) => counter.upgrade().is_some_and(|counter| {
                    counter.try_wait_for_change().is_err() || self.tell(&counter, *told)
                }),
            };
        }
        Ok(found)
    }

    /// Whether a counter has others than these values, which are told of with this.
    fn tell(&self, counter: &Arc<Counter>, told: (u64, u64)) -> bool {
        let values = counter.values();
        if values != told {
            self.members.with(|members| {
                for member in members {
                    if let Member::Counter(known, told) = member
                        && std::ptr::eq(known.as_ptr(), Arc::as_ptr(counter))
                    {
                        *told = values;
                    }
                }
            });
        }
        values != told
    }

    /// Sleeps until there is something, for so many milliseconds at most; negative is for ever.
    fn wait(&self, timeout: c_int) -> Outcome<()> {
        let clock = Clock::new();
        let most = u64::try_from(timeout).ok().map(|millis| millis * MILLI);
        while !self.has_something()? {
            let left = match most.map(|most| most.saturating_sub(clock.nanos())) {
                Some(0) => return Err(Errno::TIMEDOUT),
                left => left,
            };
            let left = left.map(|nanos| Timespec {
                tv_sec: (nanos / (1000 * MILLI)) as i64,
                tv_nsec: (nanos % (1000 * MILLI)) as i64,
            });
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], left.as_ref()) {
                // A signal is none of ours.
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether a program may sleep on the descriptor.
    pub(super) fn try_wait(&self) -> Outcome<()> {
        if self.has_something()? { Err(Errno::AGAIN) } else { Ok(()) }
    }
}

impl Member {
    fn is_there(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.strong_count() != 0,
            Self::Counter(counter, _) => counter.strong_count() != 0,
        }
    }
}

static OPS: fi_ops = object::ops(close, object::no_bind, control);

static TABLE: fi_ops_wait = fi_ops_wait { size: size_of::<fi_ops_wait>(), wait: Some(wait) };

/// Opens a wait set.
///
/// # Safety
/// The contract of `fi_wait_open(3)`.
pub(super) unsafe fn open(
    fabric: &Arc<Fabric>,
    attr: *mut fi_wait_attr,
    to: *mut *mut fid_wait,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or attributes.
    let attr = unsafe { copy(attr) }?;
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    if attr.flags != 0 {
        return Err(Errno::INVAL);
    }
    let is_shown = match attr.wait_obj {
        sys::FI_WAIT_UNSPEC => false,
        sys::FI_WAIT_FD => true,
        _ => return Err(Errno::NOSYS),
    };
    let set = WaitSet {
        fabric: Arc::clone(fabric),
        is_shown,
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        members: EngineCell::new(Vec::new()),
    };
    let head = fid_wait {
        fid: fid_of::<WaitSet>(std::ptr::null_mut(), &OPS),
        ops: std::ptr::from_ref(&TABLE).cast_mut(),
    };
    to.write(object::open(head, Arc::new(set)));
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a wait set", || unsafe { object::close::<WaitSet>(fid) })
}

unsafe extern "C" fn wait(set: *mut fid_wait, timeout: c_int) -> c_int {
    guard("fi_wait", || {
        // SAFETY: the contract of `fi_wait(3)`: a wait set.
        unsafe { body::<WaitSet>(set) }?.wait(timeout)
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard("fi_control of a wait set", || {
        // SAFETY: the contract of `fi_control(3)`.
        let set = unsafe { body::<WaitSet>(fid.cast()) }?;
        match command {
            sys::FI_GETWAIT if set.is_shown => {
                // SAFETY: the same: an `int`.
                let number = unsafe { Out::<i32>::new(argument.cast()) }?;
                number.write(set.epoll.as_raw_fd());
                Ok(())
            }
            sys::FI_GETWAITOBJ => {
                // SAFETY: the same: an `enum fi_wait_obj`.
                let object = unsafe { Out::<u32>::new(argument.cast()) }?;
                object.write(if set.is_shown { sys::FI_WAIT_FD } else { sys::FI_WAIT_UNSPEC });
                Ok(())
            }
            _ => Err(Errno::NOSYS),
        }
    })
}

//! The counter, `fi_cntr(3)`: how many operations have ended, well and not.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::argument::{Out, copy};
use super::domain::Domain;
use super::errno::{Errno, Outcome};
use super::guard::{guard, guard_or};
use super::object::{self, Object, body, fid_of};
use super::sys::{self, CntrAttr, OpsCntr, fi_ops, fid, fid_cntr};
use super::traffic::Traffic;
use super::wait::{Manner, Wait, watch};
use super::wait_set::{Member, WaitSet};

/// A counter.
pub struct Counter {
    domain: Arc<Domain>,
    well: AtomicU64,
    failed: AtomicU64,
    /// What the program has read of both.
    known: Known,
    wait: Wait,
    /// Whose sleepers are woken.
    set: OnceLock<Arc<WaitSet>>,
}

/// The values that a program has read last, or has waited by. One that never asks how many have failed is taken to know that with
/// the other.
#[derive(Default)]
struct Known {
    well: AtomicU64,
    failed: AtomicU64,
    asks_for_failed: AtomicBool,
}

impl Known {
    fn note_well(&self, well: u64, failed: u64) {
        self.well.store(well, Ordering::Relaxed);
        if !self.asks_for_failed.load(Ordering::Relaxed) {
            self.failed.store(failed, Ordering::Relaxed);
        }
    }

    fn note_failed(&self, failed: u64) {
        self.asks_for_failed.store(true, Ordering::Relaxed);
        self.failed.store(failed, Ordering::Relaxed);
    }
}

// SAFETY: `fid_cntr` is libfabric's structure of the class, and `open` below opens those.
unsafe impl Object for Counter {
    type Head = fid_cntr;
    const CLASS: usize = sys::FI_CLASS_CNTR;
}

impl Counter {
    pub(super) fn new(domain: Arc<Domain>, attr: &CntrAttr) -> Outcome<Self> {
        // Completions are all that can be counted.
        if attr.events != 0 || attr.flags != 0 {
            return Err(Errno::INVAL);
        }
        let wait = Wait::of_member(attr.wait_obj, || domain.descriptor().map(Some))?;
        let (well, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { domain, well, failed, known: Known::default(), wait, set: OnceLock::new() })
    }

    /// What it was opened of.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// How many operations have ended well.
    #[inline]
    pub fn value(&self) -> u64 {
        self.well.load(Ordering::Acquire)
    }

    /// That, and how many have not.
    pub(super) fn values(&self) -> (u64, u64) {
        (self.value(), self.failed.load(Ordering::Acquire))
    }

    /// So many operations have ended well.
    #[inline]
    pub fn add(&self, count: u64) {
        self.well.fetch_add(count, Ordering::Release);
        self.wait.notify();
    }

    /// So many have not.
    pub fn add_failed(&self, count: u64) {
        self.failed.fetch_add(count, Ordering::Release);
        self.wait.notify();
    }

    /// That it is so many from now on.
    pub(super) fn set(&self, value: u64) {
        self.well.store(value, Ordering::Release);
        self.wait.notify();
    }

    fn set_failed(&self, value: u64) {
        self.failed.store(value, Ordering::Release);
        self.wait.notify();
    }

    /// The program changes it, and something may have waited for that.
    pub(super) fn change(&self, what: impl FnOnce(&Self)) {
        what(self);
        // Whoever makes progress meanwhile may have looked before.
        self.domain.traffic.with(Traffic::progress);
    }

    /// Waits until so many have ended well.
    fn reach(&self, threshold: u64, timeout: i32) -> Outcome<()> {
        let before = self.failed.load(Ordering::Acquire);
        let look = || {
            let (well, failed) = self.values();
            self.known.note_well(well, failed);
            if well >= threshold {
                return Some(Ok(()));
            }
            (failed != before).then_some(Err(Errno::AVAIL))
        };
        let reached = match self.wait.manner() {
            // Nobody is woken by it.
            Manner::Never => watch(timeout, || {
                self.domain.progress_all();
                look()
            }),
            _ => self.wait.until(timeout, || self.domain.arm(), || self.domain.progress_all(), look)?,
        };
        reached.unwrap_or(Err(Errno::TIMEDOUT))
    }

    /// Whether a program may sleep on the descriptor: it has read the values that there are. What changed after it has read
    /// them, and before it asks this, has been told of before it sleeps and would not wake it.
    pub(super) fn try_wait(&self) -> Outcome<()> {
        self.wait.try_wait(|| self.domain.arm(), || self.is_news())
    }

    /// The same for who knows the values in another way, and compares them after this.
    pub(super) fn try_wait_for_change(&self) -> Outcome<()> {
        self.wait.try_wait(|| self.domain.arm(), || false)
    }

    fn is_news(&self) -> bool {
        let known = (self.known.well.load(Ordering::Relaxed), self.known.failed.load(Ordering::Relaxed));
        self.values() != known
    }
}

static OPS: fi_ops = object::ops(close, object::no_bind, control);

static TABLE: OpsCntr = OpsCntr {
    size: size_of::<OpsCntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
};

/// Opens a counter.
///
/// # Safety
/// The contract of `fi_cntr_open(3)`.
pub(super) unsafe fn open(
    domain: &Arc<Domain>,
    attr: *mut CntrAttr,
    to: *mut *mut fid_cntr,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or attributes.
    let attr = unsafe { copy(attr) }?;
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    // SAFETY: the contract: a set, where the attributes say so.
    let set = unsafe { WaitSet::of(attr.wait_obj, attr.wait_set, &domain.fabric) }?;
    let counter = Arc::new(Counter::new(Arc::clone(domain), &attr)?);
    if let Some(set) = set {
        set.add(Member::Counter(Arc::downgrade(&counter), counter.values()), &counter.wait)?;
        let _ = counter.set.set(set);
    }
    let head =
        fid_cntr { fid: fid_of::<Counter>(context, &OPS), ops: std::ptr::from_ref(&TABLE).cast_mut().cast() };
    to.write(object::open(head, counter));
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a counter", || unsafe { object::close::<Counter>(fid) })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard("fi_control of a counter", || {
        // SAFETY: the contract of `fi_control(3)`.
        let counter = unsafe { body::<Counter>(fid.cast()) }?;
        // SAFETY: the same.
        unsafe { counter.wait.control(command, argument) }
    })
}

/// A value of a counter, which is noted to be known; of what is no counter, 0.
unsafe fn value(entry: &str, counter: *mut fid_cntr, of: fn(&Counter) -> u64) -> u64 {
    guard_or(entry, 0, || {
        // SAFETY: the contract of `fi_cntr_read(3)`: a counter.
        let Ok(counter) = (unsafe { body::<Counter>(counter) }) else { return 0 };
        counter.domain.progress();
        of(counter)
    })
}

unsafe extern "C" fn read(counter: *mut fid_cntr) -> u64 {
    // SAFETY: the contract of `fi_cntr_read(3)`.
    unsafe {
        value("fi_cntr_read", counter, |counter| {
            let (well, failed) = counter.values();
            counter.known.note_well(well, failed);
            well
        })
    }
}

unsafe extern "C" fn readerr(counter: *mut fid_cntr) -> u64 {
    // SAFETY: the contract of `fi_cntr_readerr(3)`.
    unsafe {
        value("fi_cntr_readerr", counter, |counter| {
            let (_, failed) = counter.values();
            counter.known.note_failed(failed);
            failed
        })
    }
}

/// Does something to a counter.
unsafe fn change(entry: &str, counter: *mut fid_cntr, what: impl FnOnce(&Counter)) -> c_int {
    guard(entry, || {
        // SAFETY: the contract of `fi_cntr(3)`: a counter.
        unsafe { body::<Counter>(counter) }?.change(what);
        Ok(())
    })
}

unsafe extern "C" fn add(counter: *mut fid_cntr, count: u64) -> c_int {
    // SAFETY: the contract of `fi_cntr_add(3)`.
    unsafe { change("fi_cntr_add", counter, |counter| counter.add(count)) }
}

unsafe extern "C" fn adderr(counter: *mut fid_cntr, count: u64) -> c_int {
    // SAFETY: the contract of `fi_cntr_adderr(3)`.
    unsafe { change("fi_cntr_adderr", counter, |counter| counter.add_failed(count)) }
}

unsafe extern "C" fn set(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the contract of `fi_cntr_set(3)`.
    unsafe { change("fi_cntr_set", counter, |counter| counter.set(value)) }
}

unsafe extern "C" fn seterr(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: the contract of `fi_cntr_seterr(3)`.
    unsafe { change("fi_cntr_seterr", counter, |counter| counter.set_failed(value)) }
}

unsafe extern "C" fn wait(counter: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    guard("fi_cntr_wait", || {
        // SAFETY: the contract of `fi_cntr_wait(3)`: a counter.
        unsafe { body::<Counter>(counter) }?.reach(threshold, timeout)
    })
}

//! The poll set, `fi_poll(3)`: which of several completion queues and counters of a domain have something new.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::argument::{Foreign, Out, Room, copy};
use super::cntr::Counter;
use super::cq::Cq;
use super::domain::Domain;
use super::errno::{Errno, Outcome};
use super::guard::{guard, size};
use super::object::{self, Object, body, fid_of};
use super::sys::{self, fi_ops, fi_ops_poll, fi_poll_attr, fid, fid_poll};
use crate::sync::EngineCell;

/// A poll set.
pub(super) struct Poll {
    domain: Arc<Domain>,
    members: EngineCell<Members>,
}

// SAFETY: `fid_poll` is libfabric's structure of the class, and `open` below opens those.
unsafe impl Object for Poll {
    type Head = fid_poll;
    const CLASS: usize = sys::FI_CLASS_POLL;
}

/// What is in it.
struct Members {
    all: Vec<Member>,
    /// Which of them is looked at first, next time: whoever was not looked at for want of room.
    first: usize,
}

/// One of them, which cannot be closed meanwhile.
struct Member {
    /// What its user calls it.
    context: Foreign,
    kind: Kind,
}

enum Kind {
    Queue(Arc<Cq>),
    /// With its values when they were last told of.
    Counter(Arc<Counter>, (u64, u64)),
}

impl Kind {
    /// That object, if it is one that can be in a set.
    ///
    /// # Safety
    /// An object that is open.
    unsafe fn of(fid: *mut fid) -> Outcome<Self> {
        // SAFETY: the contract.
        match unsafe { object::class(fid) }? {
            // SAFETY: the contract.
            sys::FI_CLASS_CQ => Ok(Self::Queue(Arc::clone(unsafe { body::<Cq>(fid.cast()) }?))),
            sys::FI_CLASS_CNTR => {
                // SAFETY: the contract.
                let counter = unsafe { body::<Counter>(fid.cast()) }?;
                Ok(Self::Counter(Arc::clone(counter), counter.values()))
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn domain(&self) -> &Arc<Domain> {
        match self {
            Self::Queue(queue) => queue.domain(),
            Self::Counter(counter, _) => counter.domain(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Queue(one), Self::Queue(two)) => Arc::ptr_eq(one, two),
            (Self::Counter(one, _), Self::Counter(two, _)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    /// Whether a queue has entries, or a counter others than were told of; which are told of with this.
    fn has_something(&mut self) -> bool {
        match self {
            Self::Queue(queue) => queue.has_entries(),
            Self::Counter(counter, told) => {
                let values = counter.values();
                std::mem::replace(told, values) != values
            }
        }
    }
}

impl Members {
    /// Tells of those that have something, of so many at most; where that is not of all, of the others first next time.
    fn tell(&mut self, most: usize, mut tell: impl FnMut(Foreign)) {
        let (count, mut told) = (self.all.len(), 0);
        let order = (0..count).map(|index| (self.first + index) % count);
        for index in order {
            if told == most {
                self.first = index;
                return;
            }
            let Member { context, kind } = &mut self.all[index];
            if kind.has_something() {
                tell(*context);
                told += 1;
            }
        }
    }
}

static OPS: fi_ops = object::ops(close, object::no_bind, object::no_control);

static TABLE: fi_ops_poll = fi_ops_poll {
    size: size_of::<fi_ops_poll>(),
    poll: Some(poll),
    poll_add: Some(add),
    poll_del: Some(delete),
};

/// Opens a poll set.
///
/// # Safety
/// The contract of `fi_poll_open(3)`.
pub(super) unsafe fn open(
    domain: &Arc<Domain>,
    attr: *mut fi_poll_attr,
    to: *mut *mut fid_poll,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or attributes.
    let attr = unsafe { copy(attr) }?;
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    if attr.flags != 0 {
        return Err(Errno::INVAL);
    }
    let poll =
        Poll { domain: Arc::clone(domain), members: EngineCell::new(Members { all: Vec::new(), first: 0 }) };
    let head = fid_poll {
        fid: fid_of::<Poll>(std::ptr::null_mut(), &OPS),
        ops: std::ptr::from_ref(&TABLE).cast_mut(),
    };
    to.write(object::open(head, Arc::new(poll)));
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a poll set", || unsafe { object::close::<Poll>(fid) })
}

unsafe extern "C" fn add(set: *mut fid_poll, event: *mut fid, flags: u64) -> c_int {
    guard("fi_poll_add", || {
        // SAFETY: the contract of `fi_poll_add(3)`: a poll set.
        let set = unsafe { body::<Poll>(set) }?;
        // SAFETY: the same: an object that is open.
        let kind = unsafe { Kind::of(event) }?;
        if flags != 0 || !Arc::ptr_eq(kind.domain(), &set.domain) {
            return Err(Errno::INVAL);
        }
        // SAFETY: open, hence a `fid`; only whoever has opened it writes its context.
        let context = Foreign(unsafe { (*event).context });
        set.members.with(|members| {
            if !members.all.iter().any(|member| member.kind.is(&kind)) {
                members.all.push(Member { context, kind });
            }
        });
        Ok(())
    })
}

unsafe extern "C" fn delete(set: *mut fid_poll, event: *mut fid, flags: u64) -> c_int {
    guard("fi_poll_del", || {
        // SAFETY: the contract of `fi_poll_del(3)`: a poll set.
        let set = unsafe { body::<Poll>(set) }?;
        // SAFETY: the same: an object that is open.
        let kind = unsafe { Kind::of(event) }?;
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        let is_it = |member: &Member| member.kind.is(&kind);
        let removed = set.members.with(|members| {
            let index = members.all.iter().position(is_it)?;
            Some(members.all.swap_remove(index))
        });
        removed.map(|_| ()).ok_or(Errno::NOENT)
    })
}

unsafe extern "C" fn poll(set: *mut fid_poll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    let found = size("fi_poll", || {
        // SAFETY: the contract of `fi_poll(3)`: a poll set.
        let set = unsafe { body::<Poll>(set) }?;
        let most = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        if most != 0 && contexts.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the same: room for so many contexts.
        let contexts = unsafe { Room::new(contexts, most) };
        set.domain.progress();
        Ok(set.members.with(|members| {
            let mut told = 0;
            members.tell(most, |context| {
                contexts.write(told, context.0);
                told += 1;
            });
            told
        }))
    });
    // No more than `count`, or a code.
    found as c_int
}

//! The event queue, `fi_eq(3)`.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::argument::{Foreign, Out, Room, array, copy};
use super::cm::Notice;
use super::errno::{Errno, Outcome};
use super::fabric::Fabric;
use super::guard::{guard, guard_or, size};
use super::info::Made;
use super::object::{self, Object, body, fid_of};
use super::strerror::describe;
use super::sys::{
    self, EqEntry, fi_eq_attr, fi_eq_cm_entry, fi_eq_err_entry, fi_ops, fi_ops_eq, fid, fid_eq,
};
use super::wait::{Beside, Wait};
use super::watch::{Owner, Watch};
use crate::sync::EngineCell;

/// Events that a program may write when it says nothing of it.
const USUAL: usize = 256;

/// An operation that did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The object that it was an operation of.
    pub fid: Foreign,
    /// What its caller gave for it.
    pub context: Foreign,
    /// Which of several.
    pub data: u64,
    /// Why, a positive code.
    pub code: i32,
    /// What the other side of a connection has said.
    pub said: Vec<u8>,
}

/// What is in the queue.
enum Event {
    /// Of an object, or of the program's own; and what goes to the program with it.
    Said {
        event: u32,
        bytes: Vec<u8>,
        fid: Foreign,
        made: Option<Made>,
    },
    Failed(Failure),
}

impl Event {
    fn is_of(&self, object: Foreign) -> bool {
        match self {
            Self::Said { fid, .. } | Self::Failed(Failure { fid, .. }) => *fid == object,
        }
    }
}

/// An event queue.
pub struct Eq {
    fabric: Arc<Fabric>,
    is_writable: bool,
    size: usize,
    wait: Wait,
    events: EngineCell<VecDeque<Event>>,
    /// The sockets of the connected endpoints that are bound to it.
    watch: EngineCell<Watch>,
    sockets: Arc<OwnedFd>,
    /// What was said with the failure that was read last.
    said: EngineCell<Vec<u8>>,
}

// SAFETY: `fid_eq` is libfabric's structure of the class, and `open` below opens those.
unsafe impl Object for Eq {
    type Head = fid_eq;
    const CLASS: usize = sys::FI_CLASS_EQ;
}

impl Eq {
    fn new(fabric: Arc<Fabric>, attr: &fi_eq_attr) -> Outcome<Self> {
        if attr.flags & !(sys::FI_WRITE | sys::FI_AFFINITY) != 0 {
            return Err(Errno::INVAL);
        }
        let watch = Watch::new()?;
        let sockets = watch.descriptor();
        Ok(Self {
            fabric,
            is_writable: attr.flags & sys::FI_WRITE != 0,
            size: if attr.size == 0 { USUAL } else { attr.size },
            wait: Wait::new(attr.wait_obj, || Ok(Some(Arc::clone(&sockets))))?,
            events: EngineCell::new(VecDeque::new()),
            watch: EngineCell::new(watch),
            sockets,
            said: EngineCell::new(Vec::new()),
        })
    }

    /// What it was opened of.
    pub(super) fn fabric(&self) -> &Arc<Fabric> {
        &self.fabric
    }

    /// Has its sockets changed.
    pub(super) fn watch<R>(&self, change: impl FnOnce(&mut Watch) -> R) -> R {
        self.watch.with(change)
    }

    /// An end is closed: nothing is told of it any more.
    pub(super) fn leave(&self, owner: &Owner, fid: Foreign) {
        self.watch.with(|watch| watch.leave(owner));
        self.events.with(|events| events.retain(|event| !event.is_of(fid)));
    }

    /// Looks at its sockets.
    fn progress(&self) {
        self.watch.with(|watch| watch.look(|owner, notice| self.tell(&owner, notice)));
    }

    /// What has become of a connection.
    pub(super) fn tell(&self, owner: &Owner, notice: Notice) {
        let fid = match owner {
            Owner::Passive(passive) => &passive.fid,
            Owner::Session(session) => &session.fid,
        };
        let fid = fid.get().copied().unwrap_or(Foreign::NULL);
        // `struct fi_eq_cm_entry`.
        let entry = |made: Option<&Made>, data: &[u8]| {
            let info = made.map_or(0, |made| made.address().expose_provenance() as u64);
            let words = [fid.0.expose_provenance() as u64, info];
            let head = words.into_iter().flat_map(u64::to_ne_bytes);
            head.chain(data.iter().copied()).collect::<Vec<u8>>()
        };
        self.push(match notice {
            Notice::Asked(made, data) => {
                let bytes = entry(Some(&made), &data);
                Event::Said { event: sys::FI_CONNREQ, bytes, fid, made: Some(made) }
            }
            Notice::Connected(data) => {
                let bytes = entry(None, &data);
                Event::Said { event: sys::FI_CONNECTED, bytes, fid, made: None }
            }
            Notice::Over => {
                let bytes = entry(None, &[]);
                Event::Said { event: sys::FI_SHUTDOWN, bytes, fid, made: None }
            }
            Notice::Refused(code, said) => {
                Event::Failed(Failure { fid, context: Foreign::NULL, data: 0, code, said })
            }
        });
    }

    fn push(&self, event: Event) {
        self.events.with(|events| events.push_back(event));
        self.wait.notify();
    }

    /// An operation of this object has ended well, so many times (`FI_AV_COMPLETE` …).
    pub fn complete(&self, event: u32, fid: Foreign, context: Foreign, data: u64) {
        let words = [fid.0.expose_provenance() as u64, context.0.expose_provenance() as u64, data];
        let bytes = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.push(Event::Said { event, bytes, fid, made: None });
    }

    /// An operation has not ended well.
    pub fn fail(&self, failure: Failure) {
        self.push(Event::Failed(failure));
    }

    /// An event of the program's own.
    fn write(&self, event: u32, bytes: &[u8]) -> Outcome<usize> {
        if !self.is_writable {
            return Err(Errno::INVAL);
        }
        self.events.with(|events| {
            if events.len() >= self.size {
                return Err(Errno::AGAIN);
            }
            let bytes = bytes.to_vec();
            events.push_back(Event::Said { event, bytes, fid: Foreign::NULL, made: None });
            Ok(())
        })?;
        self.wait.notify();
        Ok(bytes.len())
    }

    /// Hands the first event to `take`, and removes it unless it is only looked at.
    fn read<R>(&self, is_look: bool, take: impl FnOnce(&Event) -> Outcome<R>) -> Outcome<R> {
        if self.events.with(|events| events.is_empty()) {
            self.progress();
        }
        self.events.with(|events| {
            let result = take(events.front().ok_or(Errno::AGAIN)?)?;
            if !is_look && let Some(Event::Said { made: Some(made), .. }) = events.pop_front() {
                made.give();
            }
            Ok(result)
        })
    }

    fn read_said(&self, is_look: bool, room: &Room<'_, u8>, length: usize) -> Outcome<(u32, usize)> {
        self.read(is_look, |first| match first {
            Event::Failed(_) => Err(Errno::AVAIL),
            Event::Said { bytes, .. } if length < bytes.len() => Err(Errno::TOOSMALL),
            Event::Said { event, bytes, .. } => {
                room.fill(bytes);
                Ok((*event, bytes.len()))
            }
        })
    }

    fn read_failed(&self, is_look: bool) -> Outcome<Failure> {
        self.read(is_look, |first| match first {
            Event::Said { .. } => Err(Errno::AGAIN),
            Event::Failed(failure) => Ok(failure.clone()),
        })
    }

    /// What waiting for it sleeps on besides.
    fn beside(&self) -> Outcome<Beside> {
        Ok(Beside::Set(Arc::clone(&self.sockets), None))
    }

    /// Whether a program may sleep on the descriptor.
    pub(super) fn try_wait(&self) -> Outcome<()> {
        self.progress();
        self.wait.try_wait(|| self.beside(), || self.events.with(|events| !events.is_empty()))
    }
}

static OPS: fi_ops = object::ops(close, object::no_bind, control);

static TABLE: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
};

/// Opens an event queue.
///
/// # Safety
/// The contract of `fi_eq_open(3)`.
pub(super) unsafe fn open(
    fabric: &Arc<Fabric>,
    attr: *mut fi_eq_attr,
    to: *mut *mut fid_eq,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or attributes.
    let attr = unsafe { copy(attr) }?;
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    let eq = Eq::new(Arc::clone(fabric), &attr)?;
    let head = fid_eq { fid: fid_of::<Eq>(context, &OPS), ops: std::ptr::from_ref(&TABLE).cast_mut() };
    to.write(object::open(head, Arc::new(eq)));
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of an eq", || unsafe { object::close::<Eq>(fid) })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard("fi_control of an eq", || {
        // SAFETY: the contract of `fi_control(3)`.
        let eq = unsafe { body::<Eq>(fid.cast()) }?;
        // SAFETY: the same.
        unsafe { eq.wait.control(command, argument) }
    })
}

/// Flags of reads.
fn is_look(flags: u64) -> Outcome<bool> {
    if flags & !sys::FI_PEEK == 0 { Ok(flags != 0) } else { Err(Errno::INVAL) }
}

unsafe extern "C" fn read(
    eq: *mut fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    length: usize,
    flags: u64,
) -> isize {
    size("fi_eq_read", || {
        // SAFETY: the contract of `fi_eq_read(3)`.
        let eq = unsafe { body::<Eq>(eq) }?;
        // SAFETY: the same: NULL, or a variable of the caller's.
        let event = unsafe { Room::new(event, 1) };
        // SAFETY: the same: NULL, or so many bytes.
        let room = unsafe { Room::new(buffer.cast::<u8>(), length) };
        let (said, length) = eq.read_said(is_look(flags)?, &room, length)?;
        event.write(0, said);
        Ok(length)
    })
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    length: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    size("fi_eq_sread", || {
        // SAFETY: the contract of `fi_eq_sread(3)`.
        let eq = unsafe { body::<Eq>(eq) }?;
        // SAFETY: the same: NULL, or a variable of the caller's.
        let event = unsafe { Room::new(event, 1) };
        // SAFETY: the same: NULL, or so many bytes.
        let room = unsafe { Room::new(buffer.cast::<u8>(), length) };
        let is_look = is_look(flags)?;
        let read = eq.wait.until(
            timeout,
            || eq.beside(),
            || {},
            || match eq.read_said(is_look, &room, length) {
                Err(Errno::AGAIN) => None,
                result => Some(result),
            },
        )?;
        let (said, length) = read.ok_or(Errno::AGAIN)??;
        event.write(0, said);
        Ok(length)
    })
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, entry: *mut fi_eq_err_entry, flags: u64) -> isize {
    size("fi_eq_readerr", || {
        // SAFETY: the contract of `fi_eq_readerr(3)`.
        let eq = unsafe { body::<Eq>(eq) }?;
        // SAFETY: the same: NULL, or an entry of the caller's.
        let before = unsafe { copy(entry) }?;
        // SAFETY: the same.
        let entry = unsafe { Out::new(entry) }?;
        let failure = eq.read_failed(is_look(flags)?)?;
        let length = failure.said.len();
        // Since version 1.5 the caller may have room for what was said; otherwise it is ours until the next is read.
        let (err_data, err_data_size) =
            if eq.fabric.version >= sys::version(1, 5) && before.err_data_size != 0 {
                // SAFETY: the same: so many bytes of the caller's.
                unsafe { Room::new(before.err_data.cast::<u8>(), before.err_data_size) }.fill(&failure.said);
                (before.err_data, length.min(before.err_data_size))
            } else {
                let kept = eq.said.with(|said| {
                    *said = failure.said;
                    said.as_mut_ptr().cast()
                });
                (if length == 0 { std::ptr::null_mut() } else { kept }, length)
            };
        entry.write(fi_eq_err_entry {
            fid: failure.fid.0.cast(),
            context: failure.context.0,
            data: failure.data,
            err: failure.code,
            prov_errno: failure.code,
            err_data,
            err_data_size,
        });
        Ok(size_of::<fi_eq_err_entry>())
    })
}

unsafe extern "C" fn write(
    eq: *mut fid_eq,
    event: u32,
    buffer: *const c_void,
    length: usize,
    flags: u64,
) -> isize {
    size("fi_eq_write", || {
        // SAFETY: the contract of `fi_eq_write(3)`.
        let eq = unsafe { body::<Eq>(eq) }?;
        // SAFETY: the same: so many bytes.
        let bytes = unsafe { array(buffer.cast::<u8>(), length) }?;
        if flags != 0 { Err(Errno::INVAL) } else { eq.write(event, bytes) }
    })
}

unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    code: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    length: usize,
) -> *const c_char {
    // SAFETY: the contract of `fi_eq_strerror(3)`: NULL, or so many bytes.
    guard_or("fi_eq_strerror", c"".as_ptr(), || unsafe { describe(code, buffer, length) })
}

/// The entry that [`Eq::complete`] writes as three words.
const _: () = assert!(size_of::<EqEntry>() == 24);

/// That which [`Eq::tell`] begins with two words, and data follows.
const _: () = assert!(size_of::<fi_eq_cm_entry>() == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn eq(flags: u64, size: usize) -> Eq {
        let attr = fi_eq_attr {
            size,
            flags,
            wait_obj: sys::FI_WAIT_NONE,
            signaling_vector: 0,
            wait_set: ptr::null_mut(),
        };
        Eq::new(Arc::new(Fabric::new(sys::version(1, 17))), &attr).expect("an eq")
    }

    fn none() -> Room<'static, u8> {
        // SAFETY: no room.
        unsafe { Room::new(ptr::null_mut(), 0) }
    }

    #[test]
    fn what_is_written_is_read_in_order_and_looked_at_before() {
        let eq = eq(sys::FI_WRITE, 2);
        assert_eq!(eq.read_said(false, &none(), 9), Err(Errno::AGAIN));
        assert_eq!(eq.write(7, b"seven"), Ok(5));
        assert_eq!(eq.write(8, b""), Ok(0));
        assert_eq!(eq.write(9, b""), Err(Errno::AGAIN), "full");
        assert_eq!(eq.read_said(true, &none(), 5), Ok((7, 5)));
        assert_eq!(eq.read_said(false, &none(), 4), Err(Errno::TOOSMALL));
        assert_eq!(eq.read_said(false, &none(), 5), Ok((7, 5)));
        assert_eq!(eq.read_said(false, &none(), 0), Ok((8, 0)));
    }

    #[test]
    fn a_failure_keeps_its_place() {
        let eq = eq(0, 0);
        assert_eq!(eq.write(7, b""), Err(Errno::INVAL), "not for writing");
        let failure = Failure {
            fid: Foreign::NULL,
            context: Foreign::NULL,
            data: 3,
            code: libc::EINVAL,
            said: Vec::new(),
        };
        eq.complete(sys::FI_AV_COMPLETE, Foreign::NULL, Foreign::NULL, 1);
        eq.fail(failure.clone());
        assert_eq!(eq.read_failed(false), Err(Errno::AGAIN));
        assert_eq!(eq.read_said(false, &none(), 24), Ok((sys::FI_AV_COMPLETE, 24)));
        assert_eq!(eq.read_said(false, &none(), 24), Err(Errno::AVAIL));
        assert_eq!(eq.read_failed(true), Ok(failure.clone()));
        assert_eq!(eq.read_failed(false), Ok(failure));
        assert_eq!(eq.read_failed(false), Err(Errno::AGAIN));
    }
}

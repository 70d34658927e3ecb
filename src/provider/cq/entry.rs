//! The functions in a completion queue's table.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::super::argument::{Out, Room, copy, optional};
use super::super::domain::Domain;
use super::super::errno::{Errno, Outcome};
use super::super::guard::{guard, guard_or, size};
use super::super::object::{self, body, fid_of};
use super::super::strerror::describe;
use super::super::sys::{
    self, CqAttr, CqEntry, CqErrEntry, CqErrEntryOf10, CqErrEntrySource, OpsCq, fi_ops, fid, fid_cq,
};
use super::super::wait_set::WaitSet;
use super::{Completion, Cq, Format};

static OPS: fi_ops = object::ops(close, object::no_bind, control);

static TABLE: OpsCq = OpsCq {
    size: size_of::<OpsCq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};

/// Opens a completion queue.
///
/// # Safety
/// The contract of `fi_cq_open(3)`.
pub(in super::super) unsafe fn open(
    domain: &Arc<Domain>,
    attr: *mut CqAttr,
    to: *mut *mut fid_cq,
    context: *mut c_void,
) -> Outcome<()> {
    // SAFETY: the contract: NULL, or attributes.
    let attr = unsafe { copy(attr) }?;
    // SAFETY: the contract: NULL, or a variable of the caller's.
    let to = unsafe { Out::new(to) }?;
    // SAFETY: the contract: a set, where the attributes say so.
    let set = unsafe { WaitSet::of(attr.wait_obj, attr.wait_set, &domain.fabric) }?;
    let cq = Arc::new(Cq::new(Arc::clone(domain), &attr)?);
    if let Some(set) = set {
        cq.join(set)?;
    }
    let head = fid_cq { fid: fid_of::<Cq>(context, &OPS), ops: std::ptr::from_ref(&TABLE).cast_mut().cast() };
    to.write(object::open(head, cq));
    Ok(())
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the contract of `fi_close(3)`.
    guard("fi_close of a cq", || unsafe { object::close::<Cq>(fid) })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard("fi_control of a cq", || {
        // SAFETY: the contract of `fi_control(3)`.
        let cq = unsafe { body::<Cq>(fid.cast()) }?;
        // SAFETY: the same.
        unsafe { cq.wait.control(command, argument) }
    })
}

/// Bytes of each part of an entry.
const WORD: usize = size_of::<u64>();
/// Bytes of the longest entry.
const TAGGED: usize = size_of::<CqEntry>();

/// Bytes of an entry.
fn length_of(format: Format) -> usize {
    match format {
        Format::Context => 8,
        Format::Message => 24,
        Format::Data => 40,
        Format::Tagged => TAGGED,
    }
}

/// Room of a program's for entries, and for who has sent them.
struct Entries<'a> {
    start: *mut u8,
    length: usize,
    most: usize,
    sources: Room<'a, u64>,
}

impl Entries<'_> {
    /// # Safety
    /// NULL, or room for so many entries of the queue's format; NULL, or room for so many addresses.
    unsafe fn new(cq: &Cq, buffer: *mut c_void, count: usize, sources: *mut u64) -> Outcome<Self> {
        if count != 0 && (buffer.is_null() || !buffer.cast::<u64>().is_aligned()) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the contract.
        let sources = unsafe { Room::new(sources, count) };
        Ok(Self { start: buffer.cast(), length: length_of(cq.format), most: count, sources })
    }

    #[inline(always)]
    fn write(&self, index: usize, completion: &Completion) {
        debug_assert!(index < self.most, "no more than there is room for is read");
        let (from, to) = (
            std::ptr::from_ref(completion).cast::<u64>(),
            self.start.wrapping_add(index * self.length).cast::<u64>(),
        );
        let put = |length: usize| {
            for word in 0..length / WORD {
                // A word at a time, as they were written just now: a wider load would have to wait until they are in the cache.
                // SAFETY: a word of the completion, which is longer than any entry, and a number or an address of C's.
                let value = unsafe { from.wrapping_add(word).read_volatile() };
                // SAFETY: every format is how a completion begins, and there is room for one here, as `new` was promised.
                unsafe { to.wrapping_add(word).write(value) };
            }
        };
        // Numbers that are known here need no loop.
        match self.length {
            TAGGED => put(TAGGED),
            8 => put(8),
            length => put(length),
        }
        self.sources.write(index, completion.source);
    }
}

unsafe extern "C" fn read(cq: *mut fid_cq, buffer: *mut c_void, count: usize) -> isize {
    // SAFETY: the contract of `fi_cq_read(3)`.
    unsafe { readfrom(cq, buffer, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> isize {
    size("fi_cq_readfrom", || {
        // SAFETY: the contract of `fi_cq_readfrom(3)`.
        let cq = unsafe { body::<Cq>(cq) }?;
        // SAFETY: the same.
        let entries = unsafe { Entries::new(cq, buffer, count, sources) }?;
        cq.read(count, |index, completion| entries.write(index, completion))
    })
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the contract of `fi_cq_sread(3)`.
    unsafe { sreadfrom(cq, buffer, count, std::ptr::null_mut(), condition, timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut u64,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    size("fi_cq_sreadfrom", || {
        // SAFETY: the contract of `fi_cq_sreadfrom(3)`.
        let cq = unsafe { body::<Cq>(cq) }?;
        // SAFETY: the same.
        let entries = unsafe { Entries::new(cq, buffer, count, sources) }?;
        let condition = if cq.has_threshold { condition } else { std::ptr::null() };
        // SAFETY: the same: NULL, or a `size_t` where the queue was opened with that condition.
        let least = unsafe { optional(condition.cast::<usize>()) }.unwrap_or(1);
        cq.read_within(count, least, timeout, |index, completion| entries.write(index, completion))
    })
}

unsafe extern "C" fn readerr(cq: *mut fid_cq, entry: *mut CqErrEntry, flags: u64) -> isize {
    size("fi_cq_readerr", || {
        // SAFETY: the contract of `fi_cq_readerr(3)`.
        let cq = unsafe { body::<Cq>(cq) }?;
        // SAFETY: the same: NULL, or an entry of the caller's, which begins so.
        let room = unsafe { Out::new(entry.cast::<CqErrEntryOf10>()) }?;
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        let failure = cq.read_failed()?;
        let version = cq.domain.fabric.version;
        // Since version 1.5 the caller may have room for more about it, of which nothing is used; it says so itself.
        // SAFETY: the same: in this version the structure is longer.
        let before = (version >= sys::version(1, 5)).then(|| unsafe { copy(entry) }).transpose()?;
        let err_data = before.filter(|before| before.err_data_size != 0).map(|before| before.first.err_data);
        room.write(CqErrEntryOf10 {
            op_context: failure.of.context.0,
            flags: failure.of.flags,
            len: failure.of.length,
            buf: failure.of.buffer.0,
            data: failure.of.data,
            tag: failure.of.tag,
            olen: failure.overflow,
            err: failure.code,
            prov_errno: failure.detail,
            err_data: err_data.unwrap_or(std::ptr::null_mut()),
        });
        if before.is_some() {
            // SAFETY: the same.
            unsafe { (*entry).err_data_size = 0 };
        }
        if version >= sys::version(1, 20) {
            // SAFETY: the same: in this version the structure is longer.
            unsafe { (*entry.cast::<CqErrEntrySource>()).src_addr = failure.of.source };
        }
        Ok(1)
    })
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    // SAFETY: the contract of `fi_cq_signal(3)`.
    guard("fi_cq_signal", || unsafe { body::<Cq>(cq) }?.signal())
}

unsafe extern "C" fn strerror(
    _: *mut fid_cq,
    code: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    length: usize,
) -> *const c_char {
    // SAFETY: the contract of `fi_cq_strerror(3)`: NULL, or so many bytes.
    guard_or("fi_cq_strerror", c"".as_ptr(), || unsafe { describe(code, buffer, length) })
}

/// Formats are how an entry begins, and an entry is how a completion does.
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(CqEntry, flags) == 8 && offset_of!(Completion, flags) == 8);
    assert!(offset_of!(CqEntry, len) == offset_of!(Completion, length));
    assert!(offset_of!(CqEntry, buf) == 24 && offset_of!(Completion, buffer) == 24);
    assert!(offset_of!(CqEntry, data) == offset_of!(Completion, data));
    assert!(offset_of!(CqEntry, tag) == 40 && offset_of!(Completion, tag) == 40);
    assert!(size_of::<Completion>() > TAGGED && align_of::<Completion>() == WORD);
};

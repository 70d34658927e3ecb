//! What this program gives hawser as its caller: its functions, and what they use.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use hawser::capi::abi::{HAWSER_ABI, HAWSER_LOG_INFO, HAWSER_THREAD_SINGLE, Host, Parameter};
use hawser::capi::code::{HAWSER_ERR_HOST, HAWSER_ERR_NOT_FOUND, HAWSER_ERR_TOO_LONG, HAWSER_SUCCESS};
use hawser::capi::hawser_strerror;

/// What a process has published: a key and its bytes.
pub(crate) type Record = (CString, Vec<u8>);

/// What the functions that hawser calls use.
pub(crate) struct Caller {
    pub(crate) settings: Vec<(CString, CString)>,
    pub(crate) declared: RefCell<Vec<CString>>,
    pub(crate) published: RefCell<Vec<Record>>,
    pub(crate) found: RefCell<Vec<Record>>,
    pub(crate) peer: Cell<u64>,
    /// The last thing that the transport has said, and how bad it is.
    pub(crate) line: RefCell<(u32, String)>,
    pub(crate) is_verbose: bool,
    /// What it says is news.
    listens: Cell<bool>,
}

impl Caller {
    /// With parameters of these values.
    pub(crate) fn new(settings: Vec<(CString, CString)>, is_verbose: bool) -> Self {
        Self {
            settings,
            declared: RefCell::default(),
            published: RefCell::default(),
            found: RefCell::default(),
            peer: Cell::new(0),
            line: RefCell::new((HAWSER_LOG_INFO, String::new())),
            is_verbose,
            listens: Cell::new(true),
        }
    }

    /// The table for `open`, of a process and node of these names.
    pub(crate) fn table(&self, name: u64, node: &CStr) -> Host {
        Host {
            size: size_of::<Host>(),
            abi: HAWSER_ABI,
            threads: HAWSER_THREAD_SINGLE,
            name,
            node: node.as_ptr(),
            context: ptr::from_ref(self).cast_mut().cast(),
            publish: Some(publish),
            lookup: Some(lookup),
            parameter: Some(parameter),
            declare: Some(declare),
            log: Some(log),
            verbose: u32::from(self.is_verbose),
            reserved: 0,
        }
    }

    /// The last thing that the transport has said, once.
    pub(crate) fn said(&self) -> String {
        self.line.replace((HAWSER_LOG_INFO, String::new())).1
    }

    /// An error of a transport, with what it has said last.
    pub(crate) fn check(&self, transport: &str, what: &str, code: i32) -> Result<i32, String> {
        if code >= 0 {
            return Ok(code);
        }
        let line = self.said();
        let why = if line.is_empty() { meaning(code) } else { format!("{} ({line})", meaning(code)) };
        Err(format!("{transport} {what}: {why}"))
    }

    /// Keeps no line from now on, and, if it was about the loss of the other side, not the last one either.
    pub(crate) fn conclude(&self, is_lost: bool) {
        self.listens.set(false);
        if is_lost {
            self.said();
        }
    }
}

/// What a code means.
pub(crate) fn meaning(code: i32) -> String {
    // SAFETY: a text that lives as long as the process.
    unsafe { CStr::from_ptr(hawser_strerror(code)) }.to_string_lossy().into_owned()
}

/// The caller behind a context.
///
/// # Safety
/// The context is a [`Caller`]'s address, and the caller lives for `'a`.
unsafe fn caller<'a>(context: *mut c_void) -> &'a Caller {
    // SAFETY: by the contract; all that changes is in cells, and one thread is at it.
    unsafe { &*context.cast::<Caller>() }
}

unsafe extern "C" fn publish(
    context: *mut c_void,
    key: *const c_char,
    bytes: *const c_void,
    length: usize,
) -> i32 {
    if key.is_null() || bytes.is_null() && length != 0 {
        return HAWSER_ERR_HOST;
    }
    // SAFETY: a text, borrowed for the call.
    let key = unsafe { CStr::from_ptr(key) }.to_owned();
    let mut record = vec![0; length];
    // SAFETY: `length` bytes, borrowed for the call, to as much room.
    unsafe { ptr::copy_nonoverlapping(bytes.cast(), record.as_mut_ptr(), length) };
    // SAFETY: the caller of this transport.
    let mut published = unsafe { caller(context) }.published.borrow_mut();
    // The last one under a key is the one.
    published.retain(|(known, _)| *known != key);
    published.push((key, record));
    HAWSER_SUCCESS
}

unsafe extern "C" fn lookup(
    context: *mut c_void,
    key: *const c_char,
    name: u64,
    buffer: *mut c_void,
    length: *mut usize,
) -> i32 {
    // SAFETY: the caller of this transport.
    let caller = unsafe { caller(context) };
    // SAFETY: a text, borrowed for the call.
    let key = unsafe { CStr::from_ptr(key) };
    let found = caller.found.borrow();
    let Some((_, record)) =
        found.iter().find(|(known, _)| **known == *key).filter(|_| name == caller.peer.get())
    else {
        return HAWSER_ERR_NOT_FOUND;
    };
    // SAFETY: a number, to be replaced.
    let room = unsafe { length.replace(record.len()) };
    if record.len() > room {
        return HAWSER_ERR_TOO_LONG;
    }
    // SAFETY: there is room for it.
    unsafe { ptr::copy_nonoverlapping(record.as_ptr(), buffer.cast(), record.len()) };
    HAWSER_SUCCESS
}

unsafe extern "C" fn parameter(context: *mut c_void, name: *const c_char) -> *const c_char {
    // SAFETY: the caller of this transport.
    let caller = unsafe { caller(context) };
    // SAFETY: a text, borrowed for the call.
    let name = unsafe { CStr::from_ptr(name) };
    let set = caller.settings.iter().rfind(|(known, _)| **known == *name);
    set.map_or(ptr::null(), |(_, value)| value.as_ptr())
}

unsafe extern "C" fn declare(context: *mut c_void, parameter: *const Parameter) {
    // SAFETY: a structure that lives for the call.
    let name = unsafe { (*parameter).name };
    // SAFETY: a text of it.
    let name = unsafe { CStr::from_ptr(name) }.to_owned();
    // SAFETY: the caller of this transport.
    unsafe { caller(context) }.declared.borrow_mut().push(name);
}

unsafe extern "C" fn log(context: *mut c_void, level: u32, line: *const c_char) {
    // SAFETY: the caller of this transport.
    let caller = unsafe { caller(context) };
    // SAFETY: a text, borrowed for the call.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy().into_owned();
    if caller.is_verbose {
        eprintln!("hawser-perf: {line}");
    }
    let mut last = caller.line.borrow_mut();
    if caller.listens.get() && level <= last.0 {
        *last = (level, line);
    }
}

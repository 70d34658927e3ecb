//! The caller: its table, copied, as transports see a host.

use std::ffi::{CStr, CString, c_char, c_void};

use super::abi::{
    self, Declare, HAWSER_ABI, HAWSER_LOG_INFO, HAWSER_LOG_WARNING, HAWSER_THREAD_MULTIPLE,
    HAWSER_THREAD_SINGLE, Log, Value,
};
use super::code::{HAWSER_ERR_ABI, HAWSER_ERR_ARGUMENT, HAWSER_ERR_TOO_LONG, HAWSER_SUCCESS, Outcome};
use crate::btl::{Host, Peer};
use crate::error::{Error, Result, room, say};
use crate::sync::fork;

/// Room for a record at first.
const ROOM: usize = 4096;
/// No record is longer.
const LONGEST: usize = 1 << 20;
/// How often it is asked for one record.
const ROUNDS: u32 = 8;

/// A pointer of the caller's, which only goes back to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context(pub(super) *mut c_void);

// SAFETY: an address that nothing here follows; the caller says that any thread may pass it back.
unsafe impl Send for Context {}
// SAFETY: the same.
unsafe impl Sync for Context {}

type Publish = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_void, usize) -> i32;
type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char, u64, *mut c_void, *mut usize) -> i32;

/// The caller of a component.
///
/// INVARIANT: the functions are of their types, and may be called with the context until `close`.
pub(super) struct Caller {
    /// The process that it is, by the number of [`fork::generation`].
    process: u32,
    context: Context,
    name: u64,
    node: String,
    threads: u32,
    is_verbose: bool,
    publish: Publish,
    lookup: Lookup,
    parameter: Value,
    declare: Declare,
    log: Log,
}

/// A text of C's, which ends with zero; `None` for NULL.
///
/// # Safety
/// NULL, or such a text.
pub(super) unsafe fn text(raw: *const c_char) -> Option<String> {
    if raw.is_null() {
        return None;
    }
    // SAFETY: not null, and by the contract a text.
    Some(unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned())
}

/// The longest line that people are told, in characters.
const LONGEST_LINE: usize = 2000;

/// A line as people are told it: what a user or a peer has put into it neither ends it nor moves their cursor, and it has
/// an end.
fn one_line(line: &str) -> String {
    let mut chars = line.chars().map(|char| if char.is_control() { '?' } else { char });
    let mut told: String = chars.by_ref().take(LONGEST_LINE).collect();
    if chars.next().is_some() {
        told.push_str(" ...");
    }
    told
}

/// What a pointer leads to; `HAWSER_ERR_ARGUMENT` where it is NULL or misaligned.
///
/// # Safety
/// NULL, or a value of the type that nobody writes to for the time of `'a`.
pub(super) unsafe fn value<'a, V>(raw: *const V) -> Outcome<&'a V> {
    if raw.is_null() || !raw.is_aligned() {
        return Err(HAWSER_ERR_ARGUMENT);
    }
    // SAFETY: not null and aligned; the rest is the contract.
    Ok(unsafe { &*raw })
}

/// A text for C.
pub(super) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

impl Caller {
    /// Copies the caller's table.
    ///
    /// # Safety
    /// NULL, or a table as [`abi::Host`] says it, at least as long as its size says, with functions of their types.
    pub(super) unsafe fn copy(raw: *const abi::Host) -> Outcome<Self> {
        if raw.is_null() || !raw.is_aligned() {
            return Err(HAWSER_ERR_ARGUMENT);
        }
        // SAFETY: not null and aligned; every version of the table begins with its size.
        let size = unsafe { raw.cast::<usize>().read() };
        // Later versions of the table are longer.
        if size < size_of::<abi::Host>() {
            return Err(HAWSER_ERR_ABI);
        }
        // SAFETY: not null, aligned, and so long at least, as its size says.
        let host = unsafe { raw.read() };
        if host.abi != HAWSER_ABI {
            return Err(HAWSER_ERR_ABI);
        }
        let (Some(publish), Some(lookup)) = (host.publish, host.lookup) else {
            return Err(HAWSER_ERR_ARGUMENT);
        };
        if host.threads > HAWSER_THREAD_MULTIPLE || host.reserved != 0 {
            return Err(HAWSER_ERR_ARGUMENT);
        }
        // SAFETY: NULL, or a text, by the contract.
        let node = unsafe { text(host.node) };
        Ok(Self {
            process: fork::generation(),
            context: Context(host.context),
            name: host.name,
            node: node.unwrap_or_else(|| "this host".to_owned()),
            threads: host.threads,
            is_verbose: host.verbose != 0,
            publish,
            lookup,
            parameter: host.parameter,
            declare: host.declare,
            log: host.log,
        })
    }

    /// Says one line to people.
    pub(super) fn log(&self, level: u32, line: &str) {
        let line = &one_line(line);
        let Some(log) = self.log else { return say(format_args!("{line}")) };
        let line = c_text(line);
        // SAFETY: the caller's function, by the invariant; the text lives for the call.
        unsafe { log(self.context.0, level, line.as_ptr()) };
    }

    /// What the caller sets a parameter to.
    pub(super) fn parameter(&self, name: &CStr) -> Option<String> {
        // SAFETY: the caller's function, by the invariant; the name lives for the call.
        let raw = unsafe { (self.parameter?)(self.context.0, name.as_ptr()) };
        // SAFETY: NULL, or a text that lives until the next call of the function.
        unsafe { text(raw) }
    }

    /// Whether this process is the caller, and not a child that one of its functions has made.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.process == fork::generation()
    }

    /// The name of this process.
    pub(super) fn name(&self) -> u64 {
        self.name
    }

    /// Whether several threads will call.
    pub(super) fn has_threads(&self) -> bool {
        self.threads > HAWSER_THREAD_SINGLE
    }

    /// Whether it wants to know what is chosen and why.
    pub(super) fn is_verbose(&self) -> bool {
        self.is_verbose
    }

    /// Publishes a record of this process.
    pub(super) fn publish(&self, key: &CStr, bytes: &[u8]) -> Result<()> {
        let Caller { context, publish, .. } = self;
        // SAFETY: the caller's function, by the invariant; key and bytes live for the call.
        let code = unsafe { publish(context.0, key.as_ptr(), bytes.as_ptr().cast(), bytes.len()) };
        if code == HAWSER_SUCCESS { Ok(()) } else { Err(Error::Host(code)) }
    }

    /// What another process has published.
    pub(super) fn published(&self, key: &CStr, name: u64) -> Result<Vec<u8>> {
        let Caller { context, lookup, .. } = self;
        let mut room = ROOM;
        // A record that grows each time it is asked for is none.
        for _ in 0..ROUNDS {
            let mut record = room::filled(0_u8, room)?;
            let mut length = room;
            // SAFETY: the caller's function, by the invariant; it writes `length` bytes at most and says how many.
            let code =
                unsafe { lookup(context.0, key.as_ptr(), name, record.as_mut_ptr().cast(), &raw mut length) };
            match code {
                // Whose peer it is, is nothing to a child.
                _ if !self.is_here() => return Err(Error::NotFound),
                HAWSER_SUCCESS if length <= room => {
                    record.truncate(length);
                    return Ok(record);
                }
                HAWSER_ERR_TOO_LONG if length > room && length <= LONGEST => room = length,
                _ => return Err(Error::NotFound),
            }
        }
        Err(Error::NotFound)
    }

    /// Tells of a parameter.
    pub(super) fn declare(&self, parameter: &abi::Parameter) {
        if let Some(declare) = self.declare {
            // SAFETY: the caller's function, by the invariant; what it is told of lives for the call.
            unsafe { declare(self.context.0, parameter) };
        }
    }
}

const _: () = assert!(std::mem::offset_of!(abi::Host, size) == 0);

/// The caller, as a transport of this name sees it.
pub(super) struct View<'a> {
    pub(super) caller: &'a Caller,
    /// With that of its framework: `btl_smcuda`.
    pub(super) component: &'static str,
    pub(super) defaults: &'static crate::btl::Parameters,
}

impl Host for View<'_> {
    fn name(&self) -> u64 {
        self.caller.name
    }

    fn node(&self) -> String {
        self.caller.node.clone()
    }

    fn meets_again(&self) -> bool {
        true
    }

    fn publish(&self, key: &'static CStr, bytes: &[u8]) -> Result<()> {
        self.caller.publish(key, bytes)
    }

    fn published(&self, key: &'static CStr, name: u64) -> Result<Vec<u8>> {
        self.caller.published(key, name)
    }

    fn text(&self, parameter: &CStr) -> Option<String> {
        let name = c_text(&format!("{}_{}", self.component, parameter.to_string_lossy()));
        self.caller.parameter(&name).or_else(|| {
            let text = self.defaults.texts.iter().find(|text| text.name == parameter)?;
            Some(text.default?.to_string_lossy().into_owned())
        })
    }

    /// Who opens a component by its name asks for it.
    fn is_asked_for(&self) -> bool {
        true
    }

    fn is_verbose(&self) -> bool {
        self.caller.is_verbose
    }

    #[inline]
    fn is_here(&self) -> bool {
        self.caller.is_here()
    }

    fn notice(&self, _topic: &str, line: &str) {
        self.caller.log(HAWSER_LOG_WARNING, line);
    }

    fn say(&self, line: &str) {
        self.caller.log(HAWSER_LOG_INFO, line);
    }

    fn report(&self, line: &str) {
        self.say(line);
    }
}

/// A peer that the caller names.
pub(super) struct Named {
    name: u64,
    node: Option<String>,
}

impl Named {
    /// # Safety
    /// The node is NULL or a text.
    pub(super) unsafe fn new(peer: abi::Peer) -> Self {
        // SAFETY: NULL, or a text, by the contract.
        Self { name: peer.name, node: unsafe { text(peer.node) } }
    }
}

impl Peer for Named {
    fn name(&self) -> u64 {
        self.name
    }

    fn node(&self) -> Option<String> {
        self.node.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_are_told_is_one_line_that_ends() {
        assert_eq!(one_line("a\nb\r\u{1b}[31mc\u{85}é"), "a?b??[31mc?é");
        let long = one_line(&"é".repeat(LONGEST_LINE + 1));
        assert_eq!(long.chars().count(), LONGEST_LINE + 4);
        assert_eq!(one_line(&"é".repeat(LONGEST_LINE)).chars().count(), LONGEST_LINE);
    }
}

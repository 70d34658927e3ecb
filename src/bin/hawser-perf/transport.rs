//! A transport by hawser's C functions, opened as any C program opens one: what byte transports and matching ones have in
//! common. What they have not is in [`bytes`](crate::bytes) and [`matching`](crate::matching).

use std::ffi::{CStr, CString};
use std::rc::Rc;

use hawser::capi::abi::{BtlComponent, HAWSER_ABI, HAWSER_LOG_INFO, Host, Remote};
use hawser::capi::code::{HAWSER_DONE, HAWSER_ERR_AGAIN, HAWSER_ERR_UNREACHABLE, HAWSER_SUCCESS};
use hawser::capi::mtl::abi::MtlComponent;
use hawser::capi::{hawser_btl_find, hawser_mtl_find, hawser_strerror};

use crate::block::{Block, pattern};
use crate::bytes::Bytes;
use crate::caller::{Caller, Record};
use crate::inbox::Inbox;
use crate::matching::{Coming, Matching, room};
use crate::plan::Plan;

/// The number of the message that nobody sends.
const NOBODY: u64 = 0;

/// What to do with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Its end is told later.
    UnderWay,
    /// It is over.
    Over,
    /// There is no room: make progress.
    NotNow,
}

/// What every transport has.
pub(crate) struct Base {
    name: String,
    /// Boxed, because hawser has its address until `close`.
    pub(crate) caller: Box<Caller>,
    /// The same.
    pub(crate) inbox: Rc<Inbox>,
    /// What is sent, put, or got by the other side.
    pub(crate) outgoing: Block,
    /// What the other side puts, what is got from it, or what is received.
    pub(crate) incoming: Block,
}

impl Base {
    /// An error, with what the transport has said last.
    pub(crate) fn check(&self, what: &str, code: i32) -> Result<i32, String> {
        if code >= 0 {
            return Ok(code);
        }
        let line = self.caller.said();
        let why = if line.is_empty() { meaning(code) } else { format!("{} ({line})", meaning(code)) };
        Err(format!("{} {what}: {why}", self.name))
    }

    /// Why the other side is lost.
    fn loss(&self) -> String {
        let said = self.caller.said();
        let why = if said.is_empty() { "its process has ended" } else { &said };
        format!("the other side is lost: {why}; see what it says there")
    }

    /// What a code of an operation says.
    #[inline]
    pub(crate) fn taken(&self, what: &str, code: i32) -> Result<Taken, String> {
        match code {
            HAWSER_SUCCESS => Ok(Taken::UnderWay),
            HAWSER_DONE => Ok(Taken::Over),
            HAWSER_ERR_AGAIN => Ok(Taken::NotNow),
            HAWSER_ERR_UNREACHABLE => Err(self.loss()),
            _ => self.check(what, code).map(|_| Taken::Over),
        }
    }
}

/// The functions that the components of both kinds have.
struct Calls {
    open: unsafe extern "C" fn(host: *const Host) -> i32,
    register_parameters: unsafe extern "C" fn() -> i32,
    progress: unsafe extern "C" fn() -> i32,
    close: unsafe extern "C" fn() -> i32,
}

/// What a transport has of its kind.
enum Way {
    Bytes(Bytes),
    Matching(Matching),
}

/// An open transport, with the other side as its peer once it has [joined](Transport::join).
pub(crate) struct Transport {
    calls: Calls,
    base: Base,
    way: Way,
    is_open: bool,
}

/// What a code means.
pub(crate) fn meaning(code: i32) -> String {
    // SAFETY: a text that lives as long as the process.
    unsafe { CStr::from_ptr(hawser_strerror(code)) }.to_string_lossy().into_owned()
}

/// The byte transport of a name.
fn find_bytes(name: &CStr) -> Option<&'static BtlComponent> {
    // SAFETY: a text that ends with zero.
    let component = unsafe { hawser_btl_find(name.as_ptr()) };
    // SAFETY: NULL, or a table that lives as long as the process.
    unsafe { component.as_ref() }
}

/// The matching transport of a name.
fn find_matching(name: &CStr) -> Option<&'static MtlComponent> {
    // SAFETY: a text that ends with zero.
    let component = unsafe { hawser_mtl_find(name.as_ptr()) };
    // SAFETY: NULL, or a table that lives as long as the process.
    unsafe { component.as_ref() }
}

/// The transport of a name, and the version of its interface.
fn find(plan: &Plan, name: &CStr, inbox: &Rc<Inbox>) -> Result<(u32, Calls, Way), String> {
    if let Some(found) = find_bytes(name) {
        let BtlComponent { open, register_parameters, progress, close, .. } = *found;
        let calls = Calls { open, register_parameters, progress, close };
        return Ok((found.abi, calls, Way::Bytes(Bytes::new(found))));
    }
    let found = find_matching(name).ok_or_else(|| {
        format!("there is no transport {}: take smcuda, usnic, verbs or ofi", plan.transport)
    })?;
    let MtlComponent { open, register_parameters, progress, close, .. } = *found;
    let calls = Calls { open, register_parameters, progress, close };
    Ok((found.abi, calls, Way::Matching(Matching::new(found, inbox, plan.window))))
}

impl Transport {
    /// Opens the component that is planned. `name` is this process's among those that talk.
    pub(crate) fn open(
        plan: &Plan,
        name: u64,
        settings: &[(String, String)],
        is_verbose: bool,
    ) -> Result<Self, String> {
        let c = |text: &str| CString::new(text).map_err(|_| format!("{text:?} has a zero in it"));
        let inbox = Rc::default();
        let (abi, calls, way) = find(plan, &c(&plan.transport)?, &inbox)?;
        if abi != HAWSER_ABI {
            return Err("the library has another interface: install both of one version".to_owned());
        }
        let settings = settings.iter().map(|(name, value)| Ok((c(name)?, c(value)?)));
        let settings = settings.collect::<Result<_, String>>()?;
        let longest = plan.longest().max(1);
        let incoming = match way {
            Way::Bytes(_) => longest,
            Way::Matching(_) => room(longest, plan.window),
        };
        let base = Base {
            name: plan.transport.clone(),
            caller: Box::new(Caller::new(settings, is_verbose)),
            inbox,
            outgoing: Block::new(longest),
            incoming: Block::new(incoming),
        };
        let mut opened = Self { calls, base, way, is_open: false };
        opened.start(name)?;
        Ok(opened)
    }

    fn start(&mut self, name: u64) -> Result<(), String> {
        let node = CString::new(crate::node()).unwrap_or_default();
        let host = self.base.caller.table(name, &node);
        // SAFETY: a whole table; its functions have their types, and the caller lives until `close`.
        let code = unsafe { (self.calls.open)(&host) };
        self.base.check("cannot be opened", code)?;
        self.is_open = true;
        // SAFETY: nothing is asked of the caller.
        let code = unsafe { (self.calls.register_parameters)() };
        self.base.check("does not take its parameters", code)?;
        let declared = self.base.caller.declared.take();
        if let Some((name, _)) = self.base.caller.settings.iter().find(|(name, _)| !declared.contains(name)) {
            return Err(format!(
                "--set {}: there is no such parameter; hawser-info --params lists them",
                name.to_string_lossy()
            ));
        }
        match &mut self.way {
            Way::Bytes(bytes) => bytes.start(&self.base),
            Way::Matching(matching) => matching.start(&self.base),
        }
    }

    /// Makes the other side known, by what it has published, and chooses the module: the first that reaches it, or the one
    /// of that name.
    pub(crate) fn join(
        &mut self,
        name: u64,
        records: Vec<Record>,
        device: Option<&str>,
    ) -> Result<(), String> {
        self.base.caller.found.replace(records);
        self.base.caller.peer.set(name);
        match &mut self.way {
            Way::Bytes(bytes) => bytes.join(&self.base, name, device),
            Way::Matching(matching) => matching.join(&self.base, name, device),
        }
    }

    /// Why the other side is lost.
    pub(crate) fn loss(&self) -> String {
        self.base.loss()
    }

    /// Why this side ends is known. That the other side is lost, and what closing brings, are no news beside it.
    pub(crate) fn conclude(&self) {
        self.base.caller.conclude(self.inbox().is_lost.get());
    }

    /// What this side has published.
    pub(crate) fn published(&self) -> Vec<Record> {
        self.base.caller.published.borrow().clone()
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.base.inbox
    }

    /// The name of what is used.
    pub(crate) fn device(&self) -> String {
        match &self.way {
            Way::Bytes(bytes) => bytes.device(),
            Way::Matching(_) => "libfabric".to_owned(),
        }
    }

    /// Why there are no PUTs, or GETs, if there are none.
    pub(crate) fn refusal(&self, is_put: bool) -> Option<&'static str> {
        match &self.way {
            Way::Bytes(bytes) if bytes.can_transfer(is_put) => None,
            Way::Bytes(_) => {
                Some("to the other side (the system may not let processes read each other's memory)")
            }
            Way::Matching(_) => Some("at all: a matching transport has messages only"),
        }
    }

    /// Messages of this length are to be sent, with the bytes of that number, and to come. Those that are to be looked at
    /// do not lie there before.
    pub(crate) fn begin(&self, bytes: usize, keep: bool, number: u64, coming: Coming) -> Result<(), String> {
        self.base.inbox.begin(bytes, keep && matches!(self.way, Way::Bytes(_)));
        self.base.outgoing.fill(number, bytes);
        if keep {
            self.base.incoming.fill(NOBODY, bytes);
        }
        match &self.way {
            Way::Bytes(_) => Ok(()),
            Way::Matching(matching) => matching.begin(&self.base, bytes, coming),
        }
    }

    /// Whether the message that has come has the bytes of that number.
    pub(crate) fn has_come(&self, number: u64, length: usize) -> bool {
        match self.way {
            Way::Bytes(_) => {
                let kept = self.base.inbox.take();
                kept.len() == length && kept.iter().enumerate().all(|(at, byte)| *byte == pattern(number, at))
            }
            Way::Matching(_) => self.is_filled(number, length),
        }
    }

    /// Whether what was put or got has.
    pub(crate) fn is_filled(&self, number: u64, length: usize) -> bool {
        self.base.incoming.is_filled(number, length)
    }

    /// Answers go the way that messages come.
    pub(crate) fn follow(&mut self) {
        if let (Way::Bytes(bytes), Some(from)) = (&mut self.way, self.base.inbox.from()) {
            bytes.follow(from);
        }
    }

    /// One pass. Returns how much happened.
    #[inline]
    pub(crate) fn progress(&self) -> Result<i32, String> {
        // SAFETY: nothing is asked of the caller.
        let code = unsafe { (self.calls.progress)() };
        if let Way::Matching(matching) = &self.way {
            matching.post(&self.base)?;
        }
        if code >= 0 { Ok(code) } else { self.base.check("makes no progress", code) }
    }

    /// Sends the first bytes of `outgoing` as a message, from a place on, and says how far it has come: a message that
    /// is longer than a fragment goes in several.
    #[inline]
    pub(crate) fn send(&self, tag: u8, length: usize, done: usize) -> Result<Option<usize>, String> {
        match &self.way {
            Way::Bytes(bytes) => bytes.send(&self.base, tag, length, done),
            Way::Matching(matching) => matching.send(&self.base, tag, length),
        }
    }

    /// Opens the blocks to the other side: `incoming` to be written, or `outgoing` to be read. Returns its name.
    pub(crate) fn lend(&self, is_put: bool) -> Result<Vec<u8>, String> {
        match &self.way {
            Way::Bytes(bytes) => bytes.lend(&self.base, is_put),
            Way::Matching(_) => Err(self.without_memory()),
        }
    }

    /// Puts so many bytes of `outgoing`, or gets as many to `incoming`.
    #[inline]
    pub(crate) fn transfer(&self, is_put: bool, length: usize, remote: &Remote) -> Result<Taken, String> {
        match &self.way {
            Way::Bytes(bytes) => bytes.transfer(&self.base, is_put, length, remote),
            Way::Matching(_) => Err(self.without_memory()),
        }
    }

    fn without_memory(&self) -> String {
        format!("{} opens no memory to the other side", self.base.name)
    }

    /// Ends what is under way. The sends of a matching transport have [ended](Inbox::sends) before.
    pub(crate) fn flush(&self) -> Result<(), String> {
        match &self.way {
            Way::Bytes(bytes) => bytes.flush(&self.base),
            Way::Matching(_) => Ok(()),
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if self.is_open {
            // SAFETY: nothing is asked of the caller; no other call runs.
            unsafe { (self.calls.close)() };
        }
        let (level, line) = &*self.base.caller.line.borrow();
        if *level != HAWSER_LOG_INFO && !self.base.caller.is_verbose {
            eprintln!("hawser-perf: {line}");
        }
    }
}

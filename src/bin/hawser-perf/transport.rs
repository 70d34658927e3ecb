//! A byte transport by hawser's C functions, opened as any C program opens one.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{self, NonNull};

use hawser::capi::abi::{
    Btl, BtlComponent, BtlLimits, BtlModule, Endpoint, Fragment, HAWSER_ABI, HAWSER_CAN_GET, HAWSER_CAN_PUT,
    HAWSER_LOG_INFO, HAWSER_PRIORITY, HAWSER_READ, HAWSER_REMOTE_BYTES, HAWSER_WRITE, Memory, Peer, Remote,
};
use hawser::capi::code::{HAWSER_DONE, HAWSER_ERR_AGAIN, HAWSER_SUCCESS};
use hawser::capi::{hawser_btl_find, hawser_strerror};

use crate::caller::{Caller, Record};
use crate::inbox::{self, Inbox, PIECE, PLACE};

/// Data up to this length is copied when it is sent, where a message may be so long.
const COPY: usize = 8192;
/// How long the end of what is under way may take, milliseconds.
const FLUSH: u32 = 10_000;

/// Memory that peers and the transport read and write at any time.
///
/// INVARIANT: `length` bytes from `start` on are this program's until its end.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    start: NonNull<u8>,
    length: usize,
}

impl Block {
    /// So many zeros, which nobody frees: who uses them is gone only when the process is.
    fn new(length: usize) -> Self {
        let bytes = Box::leak(vec![0_u8; length].into_boxed_slice());
        Self { start: NonNull::from(bytes).cast(), length }
    }

    fn byte(self, at: usize) -> *mut u8 {
        assert!(at < self.length, "within the block");
        self.start.as_ptr().wrapping_add(at)
    }

    /// Writes the bytes of a message, by a number.
    pub(crate) fn fill(self, number: u64, length: usize) {
        for at in 0..length {
            // SAFETY: within the block, which is ours by the invariant.
            unsafe { self.byte(at).write_volatile(pattern(number, at)) };
        }
    }

    /// Whether they are those.
    pub(crate) fn is_filled(self, number: u64, length: usize) -> bool {
        // SAFETY: within the block, which is ours by the invariant.
        (0..length).all(|at| unsafe { self.byte(at).read_volatile() } == pattern(number, at))
    }
}

/// The byte of a message at a place.
pub(crate) fn pattern(number: u64, at: usize) -> u8 {
    (number.wrapping_mul(31).wrapping_add(at as u64 * 7).wrapping_add(at as u64 >> 8)) as u8
}

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

/// An open transport, with the other side as its peer once it has [joined](Transport::join).
pub(crate) struct Transport {
    component: &'static BtlComponent,
    /// Boxed, because hawser has its address until `close`.
    caller: Box<Caller>,
    inbox: Box<Inbox>,
    modules: Vec<Btl>,
    pub(crate) limits: BtlLimits,
    to: (Btl, Endpoint),
    /// What is sent, put, or got by the other side.
    pub(crate) outgoing: Block,
    /// What the other side puts, or what is got from it.
    pub(crate) incoming: Block,
    is_open: bool,
}

/// What a code means.
fn meaning(code: i32) -> String {
    // SAFETY: a text that lives as long as the process.
    unsafe { CStr::from_ptr(hawser_strerror(code)) }.to_string_lossy().into_owned()
}

impl Transport {
    /// Opens the component of this name. `name` is this process's among those that talk.
    pub(crate) fn open(
        transport: &str,
        name: u64,
        settings: &[(String, String)],
        is_verbose: bool,
        longest: usize,
    ) -> Result<Self, String> {
        let c = |text: &str| CString::new(text).map_err(|_| format!("{text:?} has a zero in it"));
        let wanted = c(transport)?;
        // SAFETY: a text that ends with zero.
        let component = unsafe { hawser_btl_find(wanted.as_ptr()) };
        // SAFETY: NULL, or a table that lives as long as the process.
        let component = unsafe { component.as_ref() };
        let component =
            component.ok_or_else(|| format!("there is no transport {transport}: take smcuda or usnic"))?;
        if component.abi != HAWSER_ABI {
            return Err("the library has another interface: install both of one version".to_owned());
        }
        let settings = settings.iter().map(|(name, value)| Ok((c(name)?, c(value)?)));
        let settings = settings.collect::<Result<_, String>>()?;
        let caller = Box::new(Caller::new(settings, is_verbose));
        // SAFETY: numbers, of which zeros are values.
        let limits = unsafe { std::mem::zeroed::<BtlLimits>() };
        let mut opened = Self {
            component,
            caller,
            inbox: Box::default(),
            modules: Vec::new(),
            limits: BtlLimits { size: size_of::<BtlLimits>(), ..limits },
            to: (Btl { id: 0 }, Endpoint { id: 0 }),
            outgoing: Block::new(longest),
            incoming: Block::new(longest),
            is_open: false,
        };
        opened.start(name)?;
        Ok(opened)
    }

    fn start(&mut self, name: u64) -> Result<(), String> {
        let node = CString::new(crate::node()).unwrap_or_default();
        let host = self.caller.table(name, &node);
        // SAFETY: a whole table; its functions have their types, and the caller lives until `close`.
        let code = unsafe { (self.component.open)(&host) };
        self.check("cannot be opened", code)?;
        self.is_open = true;
        // SAFETY: nothing is asked of the caller.
        let code = unsafe { (self.component.register_parameters)() };
        self.check("does not take its parameters", code)?;
        let declared = self.caller.declared.take();
        if let Some((name, _)) = self.caller.settings.iter().find(|(name, _)| !declared.contains(name)) {
            return Err(format!(
                "--set {}: there is no such parameter; hawser-info --params lists them",
                name.to_string_lossy()
            ));
        }
        let mut count = 0;
        // SAFETY: a number to write to.
        let code = unsafe { (self.component.init)(&raw mut count) };
        self.check("does not start", code)?;
        for at in 0..count {
            let mut module = Btl { id: 0 };
            // SAFETY: a handle to write to.
            let code = unsafe { (self.component.module_at)(at, &raw mut module) };
            self.check("has no module", code)?;
            self.modules.push(module);
        }
        Ok(())
    }

    /// An error, with what the transport has said last.
    fn check(&self, what: &str, code: i32) -> Result<i32, String> {
        if code >= 0 {
            return Ok(code);
        }
        let line = self.caller.said();
        let why = if line.is_empty() { meaning(code) } else { format!("{} ({line})", meaning(code)) };
        // SAFETY: a text that lives as long as the process.
        let name = unsafe { CStr::from_ptr(self.component.name) }.to_string_lossy();
        Err(format!("{name} {what}: {why}"))
    }

    /// Why the other side is lost.
    pub(crate) fn loss(&self) -> String {
        let said = self.caller.said();
        let why = if said.is_empty() { "its process has ended" } else { &said };
        format!("the other side is lost: {why}; see what it says there")
    }

    fn table(&self) -> &'static BtlModule {
        self.component.module
    }

    /// What this side has published.
    pub(crate) fn published(&self) -> Vec<Record> {
        self.caller.published.borrow().clone()
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// What callbacks about messages and operations are handed.
    fn context(&self) -> *mut c_void {
        ptr::from_ref::<Inbox>(&self.inbox).cast_mut().cast()
    }

    /// Makes the other side known, by what it has published, and chooses the module: the first that reaches it, or the one
    /// of that name.
    pub(crate) fn join(
        &mut self,
        name: u64,
        records: Vec<Record>,
        device: Option<&str>,
    ) -> Result<(), String> {
        self.caller.found.replace(records);
        self.caller.peer.set(name);
        let peer = Peer { name, node: ptr::null() };
        let mut devices = Vec::new();
        for module in self.modules.clone() {
            self.listen(module)?;
            let mut endpoint = Endpoint { id: 0 };
            // SAFETY: one peer, and room for one endpoint.
            let code = unsafe { (self.table().add_peers)(module, 1, &raw const peer, &raw mut endpoint) };
            self.check("does not take the other side", code)?;
            let mut limits = self.limits;
            // SAFETY: room for the structure, which says its size.
            let code = unsafe { (self.table().limits)(module, &raw mut limits) };
            self.check("has no limits", code)?;
            let is_wanted = device.is_none_or(|device| device == device_of(&limits));
            if endpoint.id != 0 && is_wanted && self.to.1.id == 0 {
                self.to = (module, endpoint);
                self.limits = limits;
            }
            devices.push(device_of(&limits));
        }
        if self.to.1.id == 0 {
            let said = self.caller.said();
            let remedy = "smcuda is for two processes of one user on one machine, and usnic needs a network that leads there";
            return Err(format!(
                "no module{} reaches the other side (modules: {}){}{said}; {remedy}",
                device.map_or_else(String::new, |device| format!(" {device}")),
                devices.join(", "),
                if said.is_empty() { "" } else { ": " },
            ));
        }
        Ok(())
    }

    /// What comes through a module goes to the inbox.
    fn listen(&self, module: Btl) -> Result<(), String> {
        for tag in [inbox::WHOLE, PIECE, inbox::ANSWER] {
            // SAFETY: a function of its type, and the inbox, which lives until `close`.
            let code = unsafe {
                (self.table().register_receive)(module, tag, Some(inbox::received), self.context())
            };
            self.check("takes no messages", code)?;
        }
        // SAFETY: the same.
        let code = unsafe { (self.table().register_error)(module, Some(inbox::lost), self.context()) };
        self.check("tells no losses", code).map(drop)
    }

    /// The name of the module that is used.
    pub(crate) fn device(&self) -> String {
        device_of(&self.limits)
    }

    /// Whether there are PUTs, or GETs.
    pub(crate) fn can_transfer(&self, is_put: bool) -> bool {
        self.limits.flags & if is_put { HAWSER_CAN_PUT } else { HAWSER_CAN_GET } != 0
    }

    /// Answers go the way that messages come.
    pub(crate) fn follow(&mut self) {
        if let Some(from) = self.inbox.from() {
            self.to = from;
        }
    }

    /// One pass. Returns how much happened.
    #[inline]
    pub(crate) fn progress(&self) -> Result<i32, String> {
        // SAFETY: nothing is asked of the caller.
        let code = unsafe { (self.component.progress)() };
        if code >= 0 { Ok(code) } else { self.check("makes no progress", code) }
    }

    /// What a code of an operation says.
    #[inline]
    fn taken(&self, what: &str, code: i32) -> Result<Taken, String> {
        match code {
            HAWSER_SUCCESS => Ok(Taken::UnderWay),
            HAWSER_DONE => Ok(Taken::Over),
            HAWSER_ERR_AGAIN => Ok(Taken::NotNow),
            _ => self.check(what, code).map(|_| Taken::Over),
        }
    }

    /// Sends the first bytes of `outgoing` as a message, from a place on, and says how far it has come: a message that
    /// is longer than a fragment goes in several.
    #[inline]
    pub(crate) fn send(&self, tag: u8, length: usize, done: usize) -> Result<Option<usize>, String> {
        assert!(length <= self.outgoing.length, "the longest message fits");
        if length <= COPY.min(self.limits.eager) {
            return self.send_copy(tag, length);
        }
        let whole = length <= self.limits.max_send;
        let (head, tag) = if whole { (0, tag) } else { (PLACE, PIECE) };
        let part = (length - done).min(self.limits.max_send.saturating_sub(head)).max(1);
        let data = self.outgoing.start.as_ptr().wrapping_add(done);
        let (mut fragment, mut memory) = (Fragment { id: 0 }, ptr::null_mut());
        let (module, endpoint) = self.to;
        // SAFETY: `part` bytes of the block, which lives as long as the process and is written only after a flush; a
        // handle and an address to write to.
        let code = unsafe {
            (self.table().prepare_src)(module, head, data.cast(), part, &raw mut fragment, &raw mut memory)
        };
        if self.taken("makes no fragment", code)? == Taken::NotNow {
            return Ok(None);
        }
        if !whole {
            // SAFETY: memory for so many bytes, which is the caller's until it is sent.
            unsafe { memory.cast::<[u8; PLACE]>().write_unaligned((done as u64).to_le_bytes()) };
        }
        // SAFETY: nobody is to be called.
        let code = unsafe {
            (self.table().send)(module, endpoint, fragment, tag, HAWSER_PRIORITY, None, ptr::null_mut())
        };
        if code < 0 {
            // SAFETY: a handle.
            unsafe { (self.table().free)(module, fragment) };
        }
        Ok((self.taken("does not send", code)? != Taken::NotNow).then_some(done + part))
    }

    #[inline]
    fn send_copy(&self, tag: u8, length: usize) -> Result<Option<usize>, String> {
        let data: *const u8 = self.outgoing.start.as_ptr();
        let (module, endpoint) = self.to;
        // SAFETY: no header, and `length` bytes of the block.
        let code =
            unsafe { (self.table().sendi)(module, endpoint, tag, ptr::null(), 0, data.cast(), length) };
        Ok((self.taken("does not send", code)? != Taken::NotNow).then_some(length))
    }

    /// Opens the blocks to the other side: `incoming` to be written, or `outgoing` to be read. Returns its name.
    pub(crate) fn lend(&self, is_put: bool) -> Result<Vec<u8>, String> {
        let (block, access) =
            if is_put { (self.incoming, HAWSER_WRITE) } else { (self.outgoing, HAWSER_READ) };
        let mut memory = Memory { id: 0 };
        let mut remote = Remote { bytes: [0; HAWSER_REMOTE_BYTES] };
        let (module, address) = (self.to.0, block.start.as_ptr().cast());
        // SAFETY: memory that lives as long as the process; a handle to write to.
        let code =
            unsafe { (self.table().register_memory)(module, address, block.length, access, &raw mut memory) };
        self.check("does not open memory", code)?;
        // SAFETY: room for the name.
        let code = unsafe { (self.table().memory_key)(module, memory, &raw mut remote) };
        self.check("has no name for memory", code)?;
        Ok(remote.bytes.to_vec())
    }

    /// Puts so many bytes of `outgoing`, or gets as many to `incoming`.
    #[inline]
    pub(crate) fn transfer(&self, is_put: bool, length: usize, remote: &Remote) -> Result<Taken, String> {
        let (module, endpoint) = self.to;
        let block = if is_put { self.outgoing } else { self.incoming };
        assert!(length <= block.length, "the longest message fits");
        let local = block.start.as_ptr();
        let (ended, context) = (Some(inbox::ended as unsafe extern "C" fn(_, _, _, _)), self.context());
        let code = if is_put {
            // SAFETY: `length` bytes of a block that is never freed; a function of its type, with the inbox.
            unsafe { (self.table().put)(module, endpoint, local.cast(), length, remote, 0, ended, context) }
        } else {
            // SAFETY: the same, to be written.
            unsafe { (self.table().get)(module, endpoint, local.cast(), length, remote, 0, ended, context) }
        };
        self.taken(if is_put { "does not put" } else { "does not get" }, code)
    }

    /// Ends what is under way.
    pub(crate) fn flush(&self) -> Result<(), String> {
        let (module, endpoint) = self.to;
        // SAFETY: nothing is asked of the caller.
        let code = unsafe { (self.table().flush)(module, endpoint, FLUSH) };
        self.check("does not come to an end", code).map(drop)
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if self.is_open {
            // SAFETY: nothing is asked of the caller; no other call runs.
            unsafe { (self.component.close)() };
        }
        let (level, line) = &*self.caller.line.borrow();
        if *level != HAWSER_LOG_INFO && !self.caller.is_verbose {
            eprintln!("hawser-perf: {line}");
        }
    }
}

fn device_of(limits: &BtlLimits) -> String {
    let bytes = limits.device.iter().take_while(|byte| **byte != 0).map(|byte| byte.cast_unsigned());
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

//! A byte transport: messages in fragments, PUTs and GETs.

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use hawser::capi::abi::{
    Btl, BtlComponent, BtlLimits, BtlModule, Endpoint, Fragment, HAWSER_CAN_GET, HAWSER_CAN_PUT,
    HAWSER_PRIORITY, HAWSER_READ, HAWSER_REMOTE_BYTES, HAWSER_WRITE, Memory, Peer, Remote,
};

use crate::inbox::{self, PIECE, PLACE};
use crate::transport::{Base, Taken};

/// Data up to this length is copied when it is sent, where a message may be so long.
const COPY: usize = 8192;
/// How long the end of what is under way may take, milliseconds.
const FLUSH: u32 = 10_000;

/// The component with its modules, of which one reaches the other side.
pub(crate) struct Bytes {
    component: &'static BtlComponent,
    modules: Vec<Btl>,
    limits: BtlLimits,
    to: (Btl, Endpoint),
}

/// What callbacks about messages and operations are handed.
fn context(base: &Base) -> *mut c_void {
    Rc::as_ptr(&base.inbox).cast_mut().cast()
}

impl Bytes {
    pub(crate) fn new(component: &'static BtlComponent) -> Self {
        // SAFETY: numbers, of which zeros are values.
        let limits = unsafe { std::mem::zeroed::<BtlLimits>() };
        Self {
            component,
            modules: Vec::new(),
            limits: BtlLimits { size: size_of::<BtlLimits>(), ..limits },
            to: (Btl { id: 0 }, Endpoint { id: 0 }),
        }
    }

    fn table(&self) -> &'static BtlModule {
        self.component.module
    }

    /// Opens the modules.
    pub(crate) fn start(&mut self, base: &Base) -> Result<(), String> {
        let mut count = 0;
        // SAFETY: a number to write to.
        let code = unsafe { (self.component.init)(&raw mut count) };
        base.check("does not start", code)?;
        for at in 0..count {
            let mut module = Btl { id: 0 };
            // SAFETY: a handle to write to.
            let code = unsafe { (self.component.module_at)(at, &raw mut module) };
            base.check("has no module", code)?;
            self.modules.push(module);
        }
        Ok(())
    }

    /// Makes the other side known, and chooses the module.
    pub(crate) fn join(&mut self, base: &Base, name: u64, device: Option<&str>) -> Result<(), String> {
        let peer = Peer { name, node: ptr::null() };
        let mut devices = Vec::new();
        for module in self.modules.clone() {
            self.listen(base, module)?;
            let mut endpoint = Endpoint { id: 0 };
            // SAFETY: one peer, and room for one endpoint.
            let code = unsafe { (self.table().add_peers)(module, 1, &raw const peer, &raw mut endpoint) };
            base.check("does not take the other side", code)?;
            let mut limits = self.limits;
            // SAFETY: room for the structure, which says its size.
            let code = unsafe { (self.table().limits)(module, &raw mut limits) };
            base.check("has no limits", code)?;
            let is_wanted = device.is_none_or(|device| device == device_of(&limits));
            if endpoint.id != 0 && is_wanted && self.to.1.id == 0 {
                self.to = (module, endpoint);
                self.limits = limits;
            }
            devices.push(device_of(&limits));
        }
        if self.to.1.id == 0 {
            let said = base.caller.said();
            let remedy = "smcuda is for two processes of one user on one machine, and usnic and verbs need a network that leads there";
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
    fn listen(&self, base: &Base, module: Btl) -> Result<(), String> {
        for tag in [inbox::WHOLE, PIECE, inbox::ANSWER] {
            // SAFETY: a function of its type, and the inbox, which lives until `close`.
            let code =
                unsafe { (self.table().register_receive)(module, tag, Some(inbox::received), context(base)) };
            base.check("takes no messages", code)?;
        }
        // SAFETY: the same.
        let code = unsafe { (self.table().register_error)(module, Some(inbox::lost), context(base)) };
        base.check("tells no losses", code).map(drop)
    }

    /// The name of the module that is used.
    pub(crate) fn device(&self) -> String {
        device_of(&self.limits)
    }

    /// Whether there are PUTs, or GETs.
    pub(crate) fn can_transfer(&self, is_put: bool) -> bool {
        self.limits.flags & if is_put { HAWSER_CAN_PUT } else { HAWSER_CAN_GET } != 0
    }

    /// What is sent from here on goes the way that something has come.
    pub(crate) fn follow(&mut self, from: (Btl, Endpoint)) {
        self.to = from;
    }

    /// Sends the first bytes of `outgoing` as a message, from a place on, and says how far it has come: a message that
    /// is longer than a fragment goes in several.
    #[inline]
    pub(crate) fn send(
        &self,
        base: &Base,
        tag: u8,
        length: usize,
        done: usize,
    ) -> Result<Option<usize>, String> {
        if length <= COPY.min(self.limits.eager) {
            return self.send_copy(base, tag, length);
        }
        let whole = length <= self.limits.max_send;
        let (head, tag) = if whole { (0, tag) } else { (PLACE, PIECE) };
        let part = (length - done).min(self.limits.max_send.saturating_sub(head)).max(1);
        let data = base.outgoing.part(done, part);
        let (mut fragment, mut memory) = (Fragment { id: 0 }, ptr::null_mut());
        let (module, endpoint) = self.to;
        // SAFETY: `part` bytes of the block, which lives as long as the process and is written only after a flush; a
        // handle and an address to write to.
        let code = unsafe {
            (self.table().prepare_src)(module, head, data.cast(), part, &raw mut fragment, &raw mut memory)
        };
        if base.taken("makes no fragment", code)? == Taken::NotNow {
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
        Ok((base.taken("does not send", code)? != Taken::NotNow).then_some(done + part))
    }

    #[inline]
    fn send_copy(&self, base: &Base, tag: u8, length: usize) -> Result<Option<usize>, String> {
        let data: *const u8 = base.outgoing.part(0, length);
        let (module, endpoint) = self.to;
        // SAFETY: no header, and `length` bytes of the block.
        let code =
            unsafe { (self.table().sendi)(module, endpoint, tag, ptr::null(), 0, data.cast(), length) };
        Ok((base.taken("does not send", code)? != Taken::NotNow).then_some(length))
    }

    /// Opens the blocks to the other side: `incoming` to be written, or `outgoing` to be read. Returns its name.
    pub(crate) fn lend(&self, base: &Base, is_put: bool) -> Result<Vec<u8>, String> {
        let (block, access) =
            if is_put { (base.incoming, HAWSER_WRITE) } else { (base.outgoing, HAWSER_READ) };
        let mut memory = Memory { id: 0 };
        let mut remote = Remote { bytes: [0; HAWSER_REMOTE_BYTES] };
        let (module, address) = (self.to.0, block.part(0, block.length()).cast());
        // SAFETY: memory that lives as long as the process; a handle to write to.
        let code = unsafe {
            (self.table().register_memory)(module, address, block.length(), access, &raw mut memory)
        };
        base.check("does not open memory", code)?;
        // SAFETY: room for the name.
        let code = unsafe { (self.table().memory_key)(module, memory, &raw mut remote) };
        base.check("has no name for memory", code)?;
        Ok(remote.bytes.to_vec())
    }

    /// Puts so many bytes of `outgoing`, or gets as many to `incoming`.
    #[inline]
    pub(crate) fn transfer(
        &self,
        base: &Base,
        is_put: bool,
        length: usize,
        remote: &Remote,
    ) -> Result<Taken, String> {
        let (module, endpoint) = self.to;
        let block = if is_put { base.outgoing } else { base.incoming };
        let local = block.part(0, length);
        let (ended, context) = (Some(inbox::ended as unsafe extern "C" fn(_, _, _, _)), context(base));
        let code = if is_put {
            // SAFETY: `length` bytes of a block that is never freed; a function of its type, with the inbox.
            unsafe { (self.table().put)(module, endpoint, local.cast(), length, remote, 0, ended, context) }
        } else {
            // SAFETY: the same, to be written.
            unsafe { (self.table().get)(module, endpoint, local.cast(), length, remote, 0, ended, context) }
        };
        base.taken(if is_put { "does not put" } else { "does not get" }, code)
    }

    /// Ends what is under way.
    pub(crate) fn flush(&self, base: &Base) -> Result<(), String> {
        let (module, endpoint) = self.to;
        // SAFETY: nothing is asked of the caller.
        let code = unsafe { (self.table().flush)(module, endpoint, FLUSH) };
        base.check("does not come to an end", code).map(drop)
    }
}

fn device_of(limits: &BtlLimits) -> String {
    let bytes = limits.device.iter().take_while(|byte| **byte != 0).map(|byte| byte.cast_unsigned());
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

//! [`DatagramPort`]: one unreliable endpoint with buffers of its own (`FI_EP_DGRAM`).
//!
//! All memory that the provider sees is one block, registered once if the provider wants that: slots
//! for receives, which are posted again as soon as they have been read, and slots for sends, into
//! which datagrams are copied. Every slot begins with the room that the provider wants for its own
//! headers (`FI_MSG_PREFIX`). The operation's context is the slot's own scratch, so that completions
//! lead back to their slot.
//!
//! Answers to `fi_endpoint(3)`, `fi_msg(3)`, `fi_cq(3)`, `fi_mr(3)`.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use memmap2::MmapMut;

use super::completion::ErrorEntry;
use super::info::Info;
use super::objects::{AddressVector, Domain, Object, name_of, table};
use super::{Address, PostError, done, posted, sys};
use crate::error::{Error, Result};

/// Completions that are read at once.
const BATCH: usize = 32;

/// Slots of either kind, unless the provider has fewer.
const SLOTS: usize = 512;

/// Bytes of a slot beyond the longest datagram, so that a longer one shows.
const MARGIN: usize = 8;

/// Slots begin at cache lines.
const LINE: usize = 64;

type Send = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    sys::fi_addr_t,
    *mut c_void,
) -> isize;
type Inject = unsafe extern "C" fn(*mut sys::fid_ep, *const c_void, usize, sys::fi_addr_t) -> isize;
type Recv = unsafe extern "C" fn(
    *mut sys::fid_ep,
    *mut c_void,
    usize,
    *mut c_void,
    sys::fi_addr_t,
    *mut c_void,
) -> isize;
type Read = unsafe extern "C" fn(*mut sys::fid_cq, *mut c_void, usize) -> isize;
type ReadError = unsafe extern "C" fn(*mut sys::fid_cq, *mut sys::fi_cq_err_entry, u64) -> isize;

/// What [`DatagramPort::poll`] found.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// A datagram.
    Datagram(&'a [u8]),
    /// A datagram that is longer than any that is sent.
    TooLong,
    /// A receive, or the queue itself, failed with this positive `fi_errno(3)` code.
    Error(i32),
}

struct Failure {
    slot: Option<usize>,
    code: i32,
}

/// How many datagrams may wait; `None`: as many as is usual, or as the provider has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slots {
    /// Sends under way.
    pub send: Option<usize>,
    /// Receives posted.
    pub receive: Option<usize>,
    /// Completions of either kind; never fewer than there are slots.
    pub completions: Option<usize>,
}

/// A block of slots.
struct Block {
    memory: MmapMut,
    stride: usize,
}

impl Block {
    fn new(slots: usize, stride: usize) -> Result<Self> {
        let size = slots.checked_mul(stride).ok_or(Error::OutOfResource)?;
        let memory = MmapMut::map_anon(size).map_err(|_| Error::OutOfResource)?;
        Ok(Self { memory, stride })
    }

    /// Where a slot begins. `slot` is one of ours.
    #[inline]
    fn at(&self, slot: usize) -> *mut u8 {
        self.memory.as_ptr().cast_mut().wrapping_add(slot * self.stride)
    }
}

/// An unreliable endpoint with its queues and its buffers. Sends and receives complete in different
/// queues, so that room for sends can be found without receiving.
pub struct DatagramPort {
    ep: *mut sys::fid_ep,
    sent: *mut sys::fid_cq,
    received: *mut sys::fid_cq,
    send: Send,
    /// Where sends from any memory that is free again at once are possible.
    inject: Option<Inject>,
    recv: Recv,
    read: Read,
    read_error: ReadError,
    inject_size: usize,
    prefix: usize,
    longest: usize,
    desc: *mut c_void,
    contexts: Box<[sys::fi_context2]>,
    /// Slots below this number are for receives.
    receives: usize,
    free: Vec<usize>,
    unposted: Vec<usize>,
    // Closed in this order: the endpoint, what it used, the memory.
    object: Object,
    _region: Option<Object>,
    _queues: [Object; 2],
    block: Block,
    _addresses: Arc<AddressVector>,
}

// SAFETY: the pointers are to objects and memory that the port owns; it is used through `&mut` only,
// and the domain was opened for at least that (`FI_THREAD_DOMAIN`).
unsafe impl std::marker::Send for DatagramPort {}

impl DatagramPort {
    /// Opens and enables the endpoint of an offer and posts its receives. Datagrams will have at most
    /// `longest` bytes.
    pub fn open(
        info: &Info<'_>,
        domain: &Arc<Domain>,
        addresses: &Arc<AddressVector>,
        longest: usize,
        slots: &Slots,
    ) -> Result<Self> {
        let prefix = info.prefix_size();
        let sends = info.transmit_size().min(slots.send.unwrap_or(SLOTS));
        let receives = info.receive_size().min(slots.receive.unwrap_or(SLOTS));
        let stride = (prefix + longest + MARGIN).next_multiple_of(LINE);
        let block = Block::new(sends + receives, stride)?;
        let format = sys::fi_cq_format_FI_CQ_FORMAT_MSG;
        let queue = |slots_of: usize| {
            domain.completion_queue(slots.completions.map_or(slots_of, |most| most.max(slots_of)), format)
        };
        let queues = [queue(sends)?, queue(receives)?];
        let object = domain.endpoint(info)?;
        addresses.serve(&object)?;
        object.bind(&queues[0], u64::from(sys::FI_TRANSMIT))?;
        object.bind(&queues[1], u64::from(sys::FI_RECV))?;
        let (mut region, mut desc) = (None, ptr::null_mut());
        if info.wants_registration() {
            let access = u64::from(sys::FI_SEND) | u64::from(sys::FI_RECV);
            // SAFETY: the block outlives the region, which is closed before it.
            let registered = unsafe { domain.register(block.at(0), block.memory.len(), access) }?;
            desc = registered.1;
            region = Some(registered.0);
        }
        object.enable()?;
        let ep: *mut sys::fid_ep = object.as_ptr();
        let received: *mut sys::fid_cq = queues[1].as_ptr();
        let (ops, queue_ops) = (table!(ep, msg), table!(received, ops));
        let may_inject = prefix == 0 && !info.wants_registration();
        let mut port = Self {
            ep,
            sent: queues[0].as_ptr(),
            received,
            send: ops.send.ok_or(Error::Unsupported)?,
            inject: ops.inject.filter(|_| may_inject),
            recv: ops.recv.ok_or(Error::Unsupported)?,
            read: queue_ops.read.ok_or(Error::Unsupported)?,
            read_error: queue_ops.readerr.ok_or(Error::Unsupported)?,
            inject_size: info.inject_size(),
            prefix,
            longest,
            desc,
            contexts: vec![sys::fi_context2::default(); sends + receives].into(),
            receives,
            free: (receives..sends + receives).collect(),
            unposted: (0..receives).collect(),
            object,
            _region: region,
            _queues: queues,
            block,
            _addresses: Arc::clone(addresses),
        };
        port.post_receives();
        if port.unposted.len() == receives {
            return Err(Error::OutOfResource);
        }
        Ok(port)
    }

    /// The endpoint's name, to be inserted by peers.
    pub fn name(&self) -> Result<Vec<u8>> {
        name_of(&self.object)
    }

    /// Receives that can wait here.
    pub fn depth(&self) -> usize {
        self.receives
    }

    /// Sends a datagram of `len` bytes, which `fill` writes. The memory that it reads is free again
    /// when this returns.
    pub fn send(
        &mut self,
        to: Address,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> std::result::Result<(), PostError> {
        if len > self.longest {
            return Err(PostError::Refused(libc::EMSGSIZE));
        }
        let slot = *self.free.last().ok_or(PostError::TryAgain)?;
        let start = self.block.at(slot);
        // SAFETY: inside the slot, which nobody else uses: it is free.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.wrapping_add(self.prefix), len) };
        fill(bytes);
        // Where a provider has a prefix it does not inject.
        if let Some(sent) = self.send_at_once(to, bytes) {
            return sent;
        }
        let context = self.context(slot);
        // SAFETY: the endpoint is open; slot and context are not touched until the completion.
        posted(unsafe { (self.send)(self.ep, start.cast(), self.prefix + len, self.desc, to.0, context) })?;
        self.free.pop();
        Ok(())
    }

    /// Sends a short datagram from where it lies; `None` if the provider needs it elsewhere.
    #[inline]
    pub fn send_at_once(&mut self, to: Address, bytes: &[u8]) -> Option<std::result::Result<(), PostError>> {
        let inject = self.inject.filter(|_| bytes.len() <= self.inject_size)?;
        // SAFETY: the endpoint is open; the bytes are read during the call only.
        Some(posted(unsafe { inject(self.ep, bytes.as_ptr().cast(), bytes.len(), to.0) }))
    }

    /// Reads one batch of what arrived, hands it over, and posts the receives again. Returns the number
    /// of datagrams.
    #[inline]
    pub fn poll(&mut self, mut take: impl FnMut(Arrival<'_>)) -> usize {
        let mut entries = [sys::fi_cq_msg_entry::default(); BATCH];
        let count = match self.completions(self.received, &mut entries) {
            Ok(count) => count,
            Err(failure) => {
                if let Some(slot) = failure.slot.filter(|slot| *slot < self.receives) {
                    self.unposted.push(slot);
                    self.post_receives();
                }
                let too_long = failure.code == sys::FI_ETRUNC as i32;
                take(if too_long { Arrival::TooLong } else { Arrival::Error(failure.code) });
                return 0;
            }
        };
        for entry in &entries[..count] {
            let Some(slot) = self.slot(entry.op_context).filter(|slot| *slot < self.receives) else {
                continue;
            };
            let len = entry.len.saturating_sub(self.prefix);
            if len > self.longest {
                take(Arrival::TooLong);
            } else {
                let start = self.block.at(slot).wrapping_add(self.prefix);
                // SAFETY: inside the slot; the provider is done with it until it is posted again.
                take(Arrival::Datagram(unsafe { std::slice::from_raw_parts(start, len) }));
            }
            self.unposted.push(slot);
        }
        if !self.unposted.is_empty() {
            self.post_receives();
        }
        count
    }

    /// Makes room for sends once half of it is used; `lost` hears the positive codes of those that failed.
    #[inline]
    pub fn reap(&mut self, mut lost: impl FnMut(i32)) {
        let sends = self.contexts.len() - self.receives;
        while self.free.len() <= sends / 2 {
            let mut entries = [sys::fi_cq_msg_entry::default(); BATCH];
            match self.completions(self.sent, &mut entries) {
                Ok(0) => return,
                Ok(count) => {
                    for entry in &entries[..count] {
                        self.free.extend(self.slot(entry.op_context).filter(|slot| *slot >= self.receives));
                    }
                }
                Err(failure) => {
                    lost(failure.code);
                    match failure.slot.filter(|slot| *slot >= self.receives) {
                        Some(slot) => self.free.push(slot),
                        None => return,
                    }
                }
            }
        }
    }

    /// Reads completions, or the failure that stands before them.
    #[inline]
    fn completions(
        &self,
        queue: *mut sys::fid_cq,
        entries: &mut [sys::fi_cq_msg_entry; BATCH],
    ) -> std::result::Result<usize, Failure> {
        // SAFETY: the queue is open; the buffer has room for as many entries of its format.
        let read = unsafe { (self.read)(queue, entries.as_mut_ptr().cast(), BATCH) };
        match usize::try_from(read) {
            Ok(count) => Ok(count.min(BATCH)),
            Err(_) if read == -(sys::FI_EAGAIN as isize) => Ok(0),
            Err(_) => self.failure(queue, read),
        }
    }

    #[cold]
    fn failure(&self, queue: *mut sys::fid_cq, code: isize) -> std::result::Result<usize, Failure> {
        if code != -(sys::FI_EAVAIL as isize) {
            return Err(Failure { slot: None, code: i32::try_from(-code).unwrap_or(i32::MAX) });
        }
        let mut room = ErrorEntry::default();
        // SAFETY: the queue is open; the entry has room for what any known version writes.
        let read = unsafe { (self.read_error)(queue, (&raw mut room).cast(), 0) };
        if read <= 0 {
            return Ok(0);
        }
        Err(Failure { slot: self.slot(room.entry.op_context), code: room.entry.err })
    }

    /// Posts the receives that are not posted; what the provider does not take now waits.
    fn post_receives(&mut self) {
        while let Some(slot) = self.unposted.last().copied() {
            let (start, context) = (self.block.at(slot), self.context(slot));
            let (len, anybody) = (self.prefix + self.longest + MARGIN, Address::ANY.0);
            // SAFETY: the endpoint is open; slot and context are not touched until the completion.
            let result =
                posted(unsafe { (self.recv)(self.ep, start.cast(), len, self.desc, anybody, context) });
            if result.is_err() {
                return;
            }
            self.unposted.pop();
        }
    }

    #[inline]
    fn context(&mut self, slot: usize) -> *mut c_void {
        (&raw mut self.contexts[slot]).cast()
    }

    /// The slot whose context this is.
    #[inline]
    fn slot(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let slot = offset / size_of::<sys::fi_context2>();
        (slot < self.contexts.len()).then_some(slot)
    }
}

/// What a registration gives: the region, and what operations on it carry.
pub(super) type Registered = (Object, *mut c_void);

impl Domain {
    /// Registers memory (`fi_mr_reg(3)`).
    ///
    /// # Safety
    /// The memory stays until the region is closed.
    unsafe fn register(&self, start: *mut u8, len: usize, access: u64) -> Result<Registered> {
        let fid: *mut sys::fid_domain = self.object().as_ptr();
        let register = table!(fid, mr).reg.ok_or(Error::Unsupported)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the domain is open, the memory lives by the caller's promise; one owned object is written.
        done(unsafe {
            register(fid.cast(), start.cast(), len, access, 0, 0, 0, &raw mut raw, ptr::null_mut())
        })?;
        // SAFETY: just made, ours.
        let object = unsafe { Object::own(raw) }?;
        // SAFETY: an open region, which nobody changes.
        let desc = unsafe { &*raw }.mem_desc;
        Ok((object, desc))
    }
}

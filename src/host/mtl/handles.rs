//! The host's structures as the transports see them: addresses, with the few fields that are read.
//!
//! A handle is made of a live structure, and lives no longer: whoever makes one says so. What differs
//! between the versions is asked of [`Abi`].

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::fabric::{Device, Piece};
use crate::host::abi::{self, Abi};
use crate::host::copy_hook;
use crate::host::copy_hook::refusal::{self, Why};
use crate::host::services::{self, Services};
use crate::host::sys;
use crate::mtl::{self, Envelope, Outcome, Route};

/// A communicator.
#[derive(Clone, Copy)]
pub struct Comm<A>(NonNull<abi::Communicator>, PhantomData<fn() -> A>);
/// A process.
#[derive(Clone, Copy)]
pub struct Proc<A>(NonNull<sys::Proc>, PhantomData<fn() -> A>);
/// A convertor.
#[derive(Clone, Copy)]
pub struct Conv<A>(NonNull<sys::ConvertorHead>, PhantomData<fn() -> A>);
/// A request head.
pub struct Req(NonNull<sys::MtlRequest>);

// SAFETY: an address; what is read behind it, the host writes before it shares the communicator, and
// the slots that change later are atomic.
unsafe impl<A> Send for Comm<A> {}
// SAFETY: an address; the name behind it does not change, and the transport's slot is atomic.
unsafe impl<A> Send for Proc<A> {}
// SAFETY: an address; the host lets any thread work on a convertor, one at a time, and a handle is used
// by whoever holds its operation.
unsafe impl<A> Send for Conv<A> {}
// SAFETY: an address; completing consumes the handle, and the host lets any thread complete.
unsafe impl Send for Req {}

/// Reads a field of a structure of the host's: only for those that a handle of this module names, or
/// that such a one points to.
macro_rules! field {
    ($raw:expr, $name:ident) => {{
        let raw = $raw.as_ptr();
        // SAFETY: a handle's structure is alive, and so is what it points to; `c-tests/layout` proves
        // that the field lies there.
        unsafe { (&raw const (*raw).$name).read() }
    }};
}

impl<A: Abi> Comm<A> {
    /// # Safety
    /// A live communicator of this version, for as long as the handle is used.
    #[inline]
    pub(super) unsafe fn new(raw: *mut abi::Communicator) -> Self {
        // SAFETY: live, hence not null.
        Self(unsafe { NonNull::new_unchecked(raw) }, PhantomData)
    }

    /// Its address.
    pub(in crate::host) const fn as_ptr(self) -> *mut abi::Communicator {
        self.0.as_ptr()
    }

    /// The value of a field.
    ///
    /// # Safety
    /// The version's offset of a field of this type.
    #[inline]
    unsafe fn field<T: Copy>(self, offset: usize) -> T {
        // SAFETY: the offset of a field lies within the structure.
        let field = unsafe { self.0.byte_add(offset) }.cast::<T>();
        // SAFETY: a handle's communicator is alive, and there is a field of this type there.
        unsafe { field.read() }
    }

    /// The group that ranks count in: the own one of an intracommunicator.
    #[inline]
    fn remote_group(self) -> NonNull<sys::GroupHead> {
        // SAFETY: the version's offset of the pointer to the remote group, which a live communicator has.
        unsafe { self.field::<NonNull<sys::GroupHead>>(const { A::COMMUNICATOR.remote_group }) }
    }

    /// Where the process of a rank is.
    #[inline(always)]
    fn slot<'a>(self, rank: i32) -> Option<&'a AtomicPtr<sys::Proc>> {
        let group = self.remote_group();
        // Whom an answer goes to, a message says; what is on the wire is not to be trusted.
        if rank.cast_unsigned() >= field!(group, size).cast_unsigned() {
            return None;
        }
        let procs = field!(group, procs);
        // SAFETY: below the group's size, which is the number of its slots.
        let slot = unsafe { procs.add(rank.cast_unsigned() as usize) };
        // SAFETY: a live slot; other threads of the host may replace its sentinel.
        Some(unsafe { AtomicPtr::from_ptr(slot) })
    }
}

impl<A: Abi> mtl::Communicator for Comm<A> {
    type Peer = Proc<A>;

    #[inline]
    fn context_id(self) -> u32 {
        // SAFETY: a version's offset of a number of this type in its live communicator.
        unsafe { self.field::<u32>(const { A::COMMUNICATOR.context_id }) }
    }

    #[inline]
    fn is_global(self) -> bool {
        A::is_global(self)
    }

    fn extended_id(self) -> [u64; 2] {
        A::extended_id(self)
    }

    fn size(self) -> usize {
        usize::try_from(field!(self.remote_group(), size)).unwrap_or(0)
    }

    fn note(self) -> usize {
        A::note(self).map_or(0, |slot| slot.load(Ordering::Acquire))
    }

    fn set_note(self, value: usize) {
        if let Some(slot) = A::note(self) {
            slot.store(value, Ordering::Release);
        }
    }

    #[inline]
    fn rank(self) -> i32 {
        // SAFETY: a version's offset of a number of this type in its live communicator.
        unsafe { self.field::<i32>(const { A::COMMUNICATOR.rank }) }
    }

    fn peer(self, rank: i32) -> Result<Proc<A>> {
        let slot = self.slot(rank).ok_or(Error::Unreachable)?;
        let found = slot.load(Ordering::Relaxed);
        at_hand(found).map_or_else(|| resolve(slot, found), Ok)
    }

    #[inline(always)]
    fn peer_at_hand(self, rank: i32) -> Option<Proc<A>> {
        at_hand(self.slot(rank)?.load(Ordering::Relaxed))
    }
}

/// What a slot holds, if it is a process.
#[inline(always)]
fn at_hand<A: Abi>(found: *mut sys::Proc) -> Option<Proc<A>> {
    // SAFETY: a slot below the group's size holds a live process or a sentinel, never null.
    unsafe { std::hint::assert_unchecked(!found.is_null()) };
    // SAFETY: no sentinel, hence a live process.
    (found.addr() & 1 == 0).then(|| unsafe { Proc::new(found) })
}

/// A slot may hold a name instead of a process: bit 0, then 15 bits of the job's number in
/// its family, 16 bits of family, and the rank in the upper half (`ompi_proc_sentinel_to_name`).
#[cold]
fn resolve<A: Abi>(slot: &AtomicPtr<sys::Proc>, sentinel: *mut sys::Proc) -> Result<Proc<A>> {
    let bits = sentinel.addr() as u64;
    let name = ((bits & 0xFFFF_0000) | ((bits >> 1) & 0x7FFF)) | (bits & 0xFFFF_FFFF_0000_0000);
    // SAFETY: the name is passed by value as the host passes it, in one register.
    let found = unsafe { (Services::host().proc_for_name)(name) };
    let proc = NonNull::new(found.cast::<sys::Proc>()).ok_or(Error::Unreachable)?;
    if slot.compare_exchange(sentinel, proc.as_ptr(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        let object = proc.cast::<sys::Object>().as_ptr();
        // SAFETY: every process of the host's begins with an object head.
        let references = unsafe { &raw mut (*object).references };
        // SAFETY: an aligned number in a live object, which the host too changes atomically.
        let references = unsafe { AtomicI32::from_ptr(references) };
        // The slot now holds a reference.
        references.fetch_add(1, Ordering::AcqRel);
    }
    // SAFETY: the host has just given it to us, and its table of processes keeps it.
    Ok(unsafe { Proc::new(proc.as_ptr()) })
}

impl<A: Abi> Proc<A> {
    /// # Safety
    /// A live process of the host's, for as long as the handle is used.
    #[inline]
    pub(super) unsafe fn new(raw: *mut sys::Proc) -> Self {
        // SAFETY: live, hence not null.
        Self(unsafe { NonNull::new_unchecked(raw) }, PhantomData)
    }

    #[inline]
    fn slot(self) -> &'static AtomicU64 {
        // SAFETY: the process is alive as long as any communicator or caller names it.
        let slot = unsafe { &raw mut (*self.0.as_ptr()).endpoint };
        // SAFETY: the slot is the transport's own, pointer-sized and aligned.
        unsafe { AtomicU64::from_ptr(slot.cast()) }
    }
}

impl<A: Abi> mtl::Peer for Proc<A> {
    #[inline]
    fn note(self) -> u64 {
        self.slot().load(Ordering::Acquire)
    }

    fn set_note(self, note: u64) {
        self.slot().store(note, Ordering::Release);
    }

    fn published(self) -> Result<Vec<u8>> {
        A::published(field!(self.0, name))
    }
}

/// Flags of a convertor (`opal/datatype/opal_convertor.h`).
mod flag {
    pub(super) const CONTIGUOUS: u32 = 0x10;
    pub(super) const NO_GAPS: u32 = 0x20;
    pub(super) const HOMOGENEOUS: u32 = 0x0008_0000;
    pub(super) const DEVICE: u32 = 0x0040_0000;
}

/// No flag: memory of the host.
const HOST: u32 = 0;

impl<A: Abi> Conv<A> {
    /// # Safety
    /// A live convertor that stays where it is for as long as the handle is used.
    #[inline]
    pub(super) unsafe fn new(raw: *mut abi::Convertor) -> Self {
        // SAFETY: live, hence not null; every version's convertor begins with this head.
        Self(unsafe { NonNull::new_unchecked(raw.cast()) }, PhantomData)
    }

    /// The datatype; an empty convertor may have none.
    ///
    /// # Safety
    /// The convertor is not empty.
    #[inline]
    unsafe fn datatype(self) -> NonNull<sys::Datatype> {
        let datatype = field!(self.0, datatype).cast_mut();
        // SAFETY: the host prepares every convertor that is not empty with a datatype.
        unsafe { NonNull::new_unchecked(datatype) }
    }

    /// The first byte of data behind a prepared convertor.
    ///
    /// # Safety
    /// The convertor is not empty.
    #[inline]
    unsafe fn first(self) -> *mut u8 {
        // SAFETY: the caller says that the convertor is not empty.
        let datatype = unsafe { self.datatype() };
        let offset = field!(datatype, true_lb).wrapping_add_unsigned(field!(self.0, converted));
        field!(self.0, base).wrapping_offset(offset)
    }

    fn convert(
        self,
        start: *mut u8,
        len: usize,
        convert: unsafe extern "C" fn(*mut c_void, *mut libc::iovec, *mut u32, *mut usize) -> c_int,
    ) -> Result<()> {
        let mut vector = libc::iovec { iov_base: start.cast(), iov_len: len };
        let (mut count, mut max) = (1_u32, len);
        let raw = self.0.as_ptr().cast();
        // SAFETY: a live, prepared convertor; one vector entry of `len` bytes.
        let code = unsafe { convert(raw, &raw mut vector, &raw mut count, &raw mut max) };
        if code < 0 || max != len { Err(Error::Host(code)) } else { Ok(()) }
    }
}

impl<A: Abi> Conv<A> {
    /// The bytes to send, if they lie in one piece of memory of the wanted kind: `HOST` or `flag::DEVICE`.
    #[inline]
    fn payload_on(self, route: Route, on: u32) -> Option<Piece> {
        let len = field!(self.0, local_size);
        if len == 0 {
            return Some(Piece::EMPTY);
        }
        // SAFETY: its packed size is not 0, so it is not empty.
        let datatype = unsafe { self.datatype() };
        let flags = u32::from(field!(datatype, flags));
        let one_piece = !flags & (flag::CONTIGUOUS | flag::NO_GAPS) == 0
            || (flags & flag::CONTIGUOUS != 0 && field!(self.0, count) == 1);
        if !one_piece || (field!(self.0, flags) ^ on) & flag::DEVICE != 0 {
            return None;
        }
        let start = match route {
            Route::Placed => field!(self.0, base),
            // SAFETY: its packed size is not 0, so it is not empty.
            Route::Prepared => unsafe { self.first() },
        };
        Some(Piece { start, len })
    }

    /// Where to receive, if it is one piece of memory of the wanted kind.
    #[inline]
    fn landing_on(self, on: u32) -> Option<Piece> {
        let len = field!(self.0, local_size);
        if len == 0 {
            return Some(Piece::EMPTY);
        }
        let flags = field!(self.0, flags);
        let has = |wanted: u32| {
            let looked_at = wanted | flag::HOMOGENEOUS | flag::DEVICE;
            flags & looked_at == wanted | flag::HOMOGENEOUS | on
        };
        let one_piece = has(flag::NO_GAPS) || (has(flag::CONTIGUOUS) && field!(self.0, count) == 1);
        if !one_piece {
            return None;
        }
        // SAFETY: its packed size is not 0, so it is not empty.
        let start = unsafe { self.first() };
        Some(Piece { start, len })
    }

    /// Refuses memory that only a device may touch, where the host does not know it: libfabric would take it for the
    /// processor's.
    #[inline]
    fn look(piece: Option<Piece>) -> Option<Piece> {
        if !A::DEVICE
            && let Some(piece) = &piece
            && copy_hook::is_for_devices(piece.start.addr())
        {
            refusal::end(Why::Matched);
        }
        piece
    }

    /// Whether there is nothing to look at.
    #[inline]
    fn is_known() -> bool {
        A::DEVICE || !copy_hook::is_on()
    }
}

// SAFETY: a host lends a convertor with its buffer: the MPI program keeps its send buffer unchanged,
// and leaves its receive buffer alone, until the request completes. The flags say which memory it is.
unsafe impl<A: Abi> mtl::Convertor for Conv<A> {
    #[inline]
    fn packed_size(self) -> usize {
        field!(self.0, local_size)
    }

    #[inline]
    fn payload(self, route: Route) -> Option<Piece> {
        Self::look(self.payload_on(route, HOST))
    }

    #[inline]
    fn landing(self) -> Option<Piece> {
        Self::look(self.landing_on(HOST))
    }

    #[inline]
    fn payload_at_once(self, route: Route) -> Option<Piece> {
        if Self::is_known() { self.payload_on(route, HOST) } else { None }
    }

    #[inline]
    fn landing_at_once(self) -> Option<Piece> {
        if Self::is_known() { self.landing_on(HOST) } else { None }
    }

    fn device_payload(self, route: Route) -> Option<Piece> {
        self.payload_on(route, flag::DEVICE)
    }

    fn device_landing(self) -> Option<Piece> {
        self.landing_on(flag::DEVICE)
    }

    fn device(self) -> Option<Device> {
        A::device(field!(self.0, base))
    }

    fn pack(self, into: &mut [u8]) -> Result<()> {
        self.convert(into.as_mut_ptr(), into.len(), Services::host().pack)
    }

    fn unpack(self, from: &[u8]) -> Result<()> {
        self.convert(from.as_ptr().cast_mut(), from.len(), Services::host().unpack)
    }
}

/// What `pml/cm` calls its requests.
mod kind {
    pub(super) const THIN_SEND: i32 = 1;
    pub(super) const HEAVY_RECEIVE: i32 = 2;
}

impl Req {
    /// # Safety
    /// A live request head of `pml/cm`'s, with the memory behind it that the module's table asks for, for as
    /// long as the handle is used.
    #[inline]
    pub(super) unsafe fn new(raw: *mut sys::MtlRequest) -> Self {
        // SAFETY: live, hence not null.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }

    /// The transport's memory.
    #[inline]
    pub(super) fn behind<T>(&self) -> NonNull<T> {
        // SAFETY: the head and what lies behind it are one allocation, by the promise of `new`.
        unsafe { self.0.add(1) }.cast()
    }

    /// The host's request, which the head names from the start.
    #[inline]
    fn request(&self) -> NonNull<sys::CmRequest> {
        let request = field!(self.0, request).cast();
        // SAFETY: the host set the pointer to its live request, not null, before it called us.
        unsafe { NonNull::new_unchecked(request) }
    }

    /// Whether the host made it without a request that users see whole (`MCA_PML_REQUEST_SEND_THIN`).
    #[inline]
    pub(in crate::host) fn is_thin_send(&self) -> bool {
        field!(self.request(), kind) == kind::THIN_SEND
    }

    /// Whether it is a receive's.
    pub(super) fn is_receive(&self) -> bool {
        field!(self.request(), kind) >= kind::HEAVY_RECEIVE
    }

    #[inline]
    fn status(&self) -> NonNull<sys::Status> {
        // SAFETY: a field lies within the live request, whose first part is `sys::Request`.
        unsafe { self.request().byte_add(offset_of!(sys::Request, status)) }.cast()
    }

    #[inline]
    fn complete(self) {
        let complete = field!(self.0, complete);
        // SAFETY: the host set the function before it called us.
        let complete = unsafe { complete.unwrap_unchecked() };
        // SAFETY: called once per request, which is not touched afterwards.
        unsafe { complete(self.0.as_ptr()) };
    }
}

/// `MPI_ERR_TRUNCATE` and `MPI_ERR_INTERN`.
const fn mpi_error(outcome: Outcome) -> i32 {
    match outcome {
        Outcome::Success | Outcome::Cancelled => 0,
        Outcome::Truncated => 15,
        Outcome::Failed => 17,
    }
}

impl mtl::Request for Req {
    #[inline]
    fn sent(self, outcome: Outcome) {
        let status = self.status().as_ptr();
        // SAFETY: the live request's status.
        unsafe { (*status).error = mpi_error(outcome) };
        self.complete();
    }

    #[inline]
    fn received(self, envelope: Envelope, outcome: Outcome) {
        let status = self.status().as_ptr();
        let seen = if outcome == Outcome::Cancelled {
            // SAFETY: the live request's status.
            let preset = unsafe { status.read() };
            sys::Status { cancelled: 1, error: 0, ..preset }
        } else {
            sys::Status {
                source: envelope.source,
                tag: envelope.tag,
                error: mpi_error(outcome),
                cancelled: 0,
                count: envelope.len,
            }
        };
        // SAFETY: the live request's status.
        unsafe { status.write(seen) };
        self.complete();
    }
}

impl<A: Abi> mtl::Upcalls for A {
    type Comm = Comm<A>;
    type Proc = Proc<A>;
    type Conv = Conv<A>;
    type Req = Req;

    // HOST: the cm PML takes the failure of a nonblocking send for the program's (pml_cm.h).
    const SENDS_WAIT: bool = true;

    fn progress() {
        // SAFETY: may be called at any time between the host's init and finalize; it nests.
        unsafe { (Services::host().progress)() };
    }

    fn notice(topic: &str, text: &str) {
        services::show_help(topic, text);
    }

    fn last_words(text: &str) {
        services::say(text);
    }
}

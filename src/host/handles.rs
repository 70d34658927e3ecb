//! The host's structures as the transports see them, written once for every version's layouts.

/// Implements the handles of [`crate::mtl`] over a version's `sys` module.
///
/// `$abi` is the version's marker type. The version's module has the functions that differ:
/// `published`, `is_global`, `extended_id`, `note` and `device`.
macro_rules! handles {
    ($abi:ident) => {
        use std::ptr::NonNull;
        use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

        use $crate::error::{Error, Result};
        use $crate::fabric::{Device, Piece};
        use $crate::host::services::Services;
        use $crate::host::{abi, sys as shared};
        use $crate::mtl::{self, Envelope, Outcome, Route};

        /// A communicator.
        #[derive(Clone, Copy)]
        pub struct Comm(pub(super) NonNull<sys::Communicator>);
        /// A process.
        #[derive(Clone, Copy)]
        pub struct Proc(pub(super) NonNull<shared::Proc>);
        /// A convertor.
        #[derive(Clone, Copy)]
        pub struct Conv(pub(super) NonNull<shared::ConvertorHead>);
        /// A request head.
        pub struct Req(pub(super) NonNull<shared::MtlRequest>);

        // SAFETY: the host lets any thread use its objects; the handles are plain addresses.
        unsafe impl Send for Comm {}
        // SAFETY: as above.
        unsafe impl Send for Proc {}
        // SAFETY: as above.
        unsafe impl Send for Conv {}
        // SAFETY: as above.
        unsafe impl Send for Req {}

        /// Reads a field of a host structure.
        macro_rules! field {
            ($raw:expr, $name:ident) => {{
                let raw = $raw.as_ptr();
                // SAFETY: the handle's structure is alive, and its layout is the host's (`c-tests/layout`).
                unsafe { (&raw const (*raw).$name).read() }
            }};
        }

        impl mtl::Communicator for Comm {
            type Peer = Proc;

            #[inline]
            fn context_id(self) -> u32 {
                field!(self.0, index)
            }

            #[inline]
            fn is_global(self) -> bool {
                is_global(self)
            }

            fn extended_id(self) -> [u64; 2] {
                extended_id(self)
            }

            fn size(self) -> usize {
                let remote_group = field!(self.0, remote_group);
                // SAFETY: a live communicator has a remote group; that of an intracommunicator is its own.
                let group = unsafe { NonNull::new_unchecked(remote_group) };
                usize::try_from(field!(group, size)).unwrap_or(0)
            }

            fn note(self) -> usize {
                note(self).map_or(0, |slot| slot.load(Ordering::Acquire))
            }

            fn set_note(self, value: usize) {
                if let Some(slot) = note(self) {
                    slot.store(value, Ordering::Release);
                }
            }

            #[inline]
            fn rank(self) -> i32 {
                field!(self.0, rank)
            }

            #[inline]
            fn peer(self, rank: i32) -> Result<Proc> {
                let group = field!(self.0, remote_group);
                // SAFETY: a live communicator has a remote group; that of an intracommunicator is its own.
                let group = unsafe { NonNull::new_unchecked(group) };
                let procs = field!(group, procs);
                // SAFETY: the host has checked the rank against the group's size.
                let slot = unsafe { procs.add(rank as usize) };
                // SAFETY: a live slot; other threads of the host may replace its sentinel.
                let slot = unsafe { AtomicPtr::from_ptr(slot) };
                let found = slot.load(Ordering::Relaxed);
                if found.addr() & 1 == 0 {
                    // SAFETY: a slot below the group's size holds a process or a sentinel, never null.
                    Ok(Proc(unsafe { NonNull::new_unchecked(found) }))
                } else {
                    resolve(slot, found)
                }
            }
        }

        /// A slot may hold a name instead of a process: bit 0, then 15 bits of the job's number in
        /// its family, 16 bits of family, and the rank in the upper half (`ompi_proc_sentinel_to_name`).
        #[cold]
        fn resolve(slot: &AtomicPtr<shared::Proc>, sentinel: *mut shared::Proc) -> Result<Proc> {
            let bits = sentinel.addr() as u64;
            let name = ((bits & 0xFFFF_0000) | ((bits >> 1) & 0x7FFF)) | (bits & 0xFFFF_FFFF_0000_0000);
            // SAFETY: the name is passed by value as the host passes it, in one register.
            let found = unsafe { (Services::host().proc_for_name)(name) };
            let proc = NonNull::new(found.cast::<shared::Proc>()).ok_or(Error::Unreachable)?;
            if slot.compare_exchange(sentinel, proc.as_ptr(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let object = proc.cast::<shared::Object>().as_ptr();
                // SAFETY: every process begins with an object head; the slot now holds a reference.
                let references = unsafe { AtomicI32::from_ptr(&raw mut (*object).references) };
                references.fetch_add(1, Ordering::AcqRel);
            }
            Ok(Proc(proc))
        }

        impl Proc {
            #[inline]
            fn slot(self) -> &'static AtomicU64 {
                // SAFETY: the process is alive as long as any communicator or caller names it; the
                // slot is the transport's own, pointer-sized and aligned.
                unsafe { AtomicU64::from_ptr((&raw mut (*self.0.as_ptr()).endpoint).cast()) }
            }
        }

        impl mtl::Peer for Proc {
            #[inline]
            fn note(self) -> u64 {
                self.slot().load(Ordering::Acquire)
            }

            fn set_note(self, note: u64) {
                self.slot().store(note, Ordering::Release);
            }

            fn published(self) -> Result<Vec<u8>> {
                published(self)
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

        impl Conv {
            /// The datatype; an empty convertor may have none.
            ///
            /// # Safety
            /// The convertor is not empty.
            #[inline]
            unsafe fn datatype(self) -> NonNull<shared::Datatype> {
                let datatype = field!(self.0, datatype).cast_mut();
                // SAFETY: the promise above: the host prepared the convertor with a datatype.
                unsafe { NonNull::new_unchecked(datatype) }
            }

            /// The first byte of data behind a prepared convertor.
            ///
            /// # Safety
            /// The convertor is not empty.
            #[inline]
            unsafe fn first(self) -> *mut u8 {
                // SAFETY: the promise above.
                let datatype = unsafe { self.datatype() };
                let offset = field!(datatype, true_lb).wrapping_add_unsigned(field!(self.0, converted));
                field!(self.0, base).wrapping_offset(offset)
            }

            fn convert(
                self,
                start: *mut u8,
                len: usize,
                convert: unsafe extern "C" fn(
                    *mut std::ffi::c_void,
                    *mut libc::iovec,
                    *mut u32,
                    *mut usize,
                ) -> std::ffi::c_int,
            ) -> Result<()> {
                let mut vector = libc::iovec { iov_base: start.cast(), iov_len: len };
                let (mut count, mut max) = (1_u32, len);
                let raw = self.0.as_ptr().cast();
                // SAFETY: a live, prepared convertor; one vector entry of `len` bytes.
                let code = unsafe { convert(raw, &raw mut vector, &raw mut count, &raw mut max) };
                if code < 0 || max != len { Err(Error::Host(code)) } else { Ok(()) }
            }
        }

        impl Conv {
            /// The bytes to send, if they lie in one piece of memory of the wanted kind: `HOST` or `flag::DEVICE`.
            #[inline]
            fn payload_on(self, route: Route, on: u32) -> Option<Piece> {
                let len = field!(self.0, local_size);
                if len == 0 {
                    return Some(Piece::EMPTY);
                }
                // SAFETY: not empty.
                let datatype = unsafe { self.datatype() };
                let flags = u32::from(field!(datatype, flags));
                let gapless = flags & flag::NO_GAPS != 0 || field!(self.0, count) == 1;
                if flags & flag::CONTIGUOUS == 0
                    || !gapless
                    || (field!(self.0, flags) ^ on) & flag::DEVICE != 0
                {
                    return None;
                }
                let start = match route {
                    Route::Placed => field!(self.0, base),
                    // SAFETY: not empty.
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
                let one_piece = flags & flag::NO_GAPS != 0
                    || (flags & flag::CONTIGUOUS != 0 && field!(self.0, count) == 1);
                if flags & (flag::HOMOGENEOUS | flag::DEVICE) != flag::HOMOGENEOUS | on || !one_piece {
                    return None;
                }
                // SAFETY: not empty.
                let start = unsafe { self.first() };
                Some(Piece { start, len })
            }
        }

        // SAFETY: a host lends a convertor with its buffer: the MPI program keeps its send buffer unchanged,
        // and leaves its receive buffer alone, until the request completes. The flags say which memory it is.
        unsafe impl mtl::Convertor for Conv {
            #[inline]
            fn packed_size(self) -> usize {
                field!(self.0, local_size)
            }

            #[inline]
            fn payload(self, route: Route) -> Option<Piece> {
                self.payload_on(route, HOST)
            }

            #[inline]
            fn landing(self) -> Option<Piece> {
                self.landing_on(HOST)
            }

            fn device_payload(self, route: Route) -> Option<Piece> {
                self.payload_on(route, flag::DEVICE)
            }

            fn device_landing(self) -> Option<Piece> {
                self.landing_on(flag::DEVICE)
            }

            fn device(self) -> Option<Device> {
                device(self)
            }

            fn pack(self, into: &mut [u8]) -> Result<()> {
                self.convert(into.as_mut_ptr(), into.len(), Services::host().pack)
            }

            fn unpack(self, from: &[u8]) -> Result<()> {
                self.convert(from.as_ptr().cast_mut(), from.len(), Services::host().unpack)
            }
        }

        impl Req {
            #[inline]
            fn status(&self) -> NonNull<shared::Status> {
                let request = field!(self.0, request);
                // SAFETY: the host set the pointer to its live request before it called us.
                unsafe { NonNull::new_unchecked(&raw mut (*request).status) }
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
                    shared::Status { cancelled: 1, error: 0, ..preset }
                } else {
                    shared::Status {
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

        /// Messages of matched probes that are free for use again.
        static MESSAGES: parking_lot::Mutex<Vec<Messages>> = parking_lot::Mutex::new(Vec::new());

        struct Messages(NonNull<shared::Message>);

        // SAFETY: a free message belongs to the list alone.
        unsafe impl Send for Messages {}

        /// `MPI_UNDEFINED`: the message has no Fortran handle.
        const NO_FORTRAN_HANDLE: i32 = -32766;

        impl mtl::Upcalls for $abi {
            type Comm = Comm;
            type Proc = Proc;
            type Conv = Conv;
            type Req = Req;

            fn progress() {
                // SAFETY: may be called at any time between the host's init and finalize; it nests.
                unsafe { (Services::host().progress)() };
            }

            fn notice(topic: &str, text: &str) {
                $crate::host::services::show_help(topic, text);
            }

            fn last_words(text: &str) {
                $crate::host::services::say(text);
            }
        }

        /// The parts of [`Abi`](crate::host::Abi) that read the same in every version.
        macro_rules! shared_abi {
            () => {
                fn threads() -> bool {
                    // SAFETY: a global of the host, set before any component is opened.
                    unsafe { Services::host().thread_multiple.read() }
                }

                fn register_progress(progress: unsafe extern "C" fn() -> std::ffi::c_int) -> std::ffi::c_int {
                    // SAFETY: the function stays callable until it is taken back.
                    unsafe { (Services::host().progress_register)(progress) }
                }

                fn unregister_progress(
                    progress: unsafe extern "C" fn() -> std::ffi::c_int,
                ) -> std::ffi::c_int {
                    // SAFETY: as for registering.
                    unsafe { (Services::host().progress_unregister)(progress) }
                }

                #[inline]
                unsafe fn comm(raw: *mut abi::Communicator) -> Comm {
                    // SAFETY: live, hence not null.
                    Comm(unsafe { NonNull::new_unchecked(raw.cast()) })
                }

                #[inline]
                unsafe fn proc(raw: *mut shared::Proc) -> Proc {
                    // SAFETY: live, hence not null.
                    Proc(unsafe { NonNull::new_unchecked(raw) })
                }

                #[inline]
                unsafe fn conv(raw: *mut abi::Convertor) -> Conv {
                    // SAFETY: live, hence not null.
                    Conv(unsafe { NonNull::new_unchecked(raw.cast()) })
                }

                #[inline]
                unsafe fn req(raw: *mut shared::MtlRequest) -> Req {
                    // SAFETY: live, hence not null.
                    Req(unsafe { NonNull::new_unchecked(raw) })
                }

                unsafe fn is_receive(request: *mut shared::MtlRequest) -> bool {
                    // SAFETY: a live request head, whose host request is alive.
                    let kind = unsafe { (*(*request).request.cast::<shared::CmRequest>()).kind };
                    kind >= 2
                }

                unsafe fn write_status(status: *mut shared::Status, envelope: Envelope) {
                    let Some(mut status) = NonNull::new(status) else { return };
                    // SAFETY: a status of the host's.
                    let status = unsafe { status.as_mut() };
                    status.source = envelope.source;
                    status.tag = envelope.tag;
                    status.count = envelope.len;
                    status.cancelled = 0;
                }

                unsafe fn new_message(
                    comm: *mut abi::Communicator,
                    envelope: Envelope,
                    claim: u64,
                ) -> *mut shared::Message {
                    let message = MESSAGES.lock().pop().map_or_else(
                        || {
                            let fresh = Box::<shared::Message>::new_zeroed();
                            // SAFETY: all fields are plain numbers and pointers; zero is a value of each.
                            NonNull::from(Box::leak(unsafe { fresh.assume_init() }))
                        },
                        |message| message.0,
                    );
                    let raw = message.as_ptr();
                    // SAFETY: a message of our own, in nobody's hands yet.
                    let fields = unsafe { &mut *raw };
                    fields.fortran = NO_FORTRAN_HANDLE;
                    fields.comm = comm;
                    fields.request = std::ptr::without_provenance_mut(claim as usize);
                    fields.peer = envelope.source;
                    fields.count = envelope.len;
                    raw
                }

                unsafe fn take_message(message: *mut *mut shared::Message) -> Option<u64> {
                    let null = Self::null_message();
                    // SAFETY: the host passes the address of the user's handle.
                    let raw = NonNull::new(unsafe { message.replace(null) })?;
                    // That one is the host's own, and stands for none.
                    if raw.as_ptr() == null {
                        return None;
                    }
                    let claim = field!(raw, request);
                    MESSAGES.lock().push(Messages(raw));
                    (!claim.is_null()).then(|| claim.addr() as u64)
                }

                fn null_message() -> *mut shared::Message {
                    Services::host().message_null.cast()
                }
            };
        }
    };
}

pub(super) use handles;

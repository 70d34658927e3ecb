//! Fabric, domain, address vector and endpoint, each closing itself and holding its parent.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::completion::{Inbox, Turn};
use super::context::Context;
use super::cushion::Cushion;
use super::info::{Info, InfoList};
use super::operation::{Lease, Work};
use super::pool::Pool;
use super::{Address, done, sys};
use crate::error::{Error, Result};

/// One of the function tables of an open object.
macro_rules! table {
    ($object:expr, $name:ident) => {{
        // SAFETY: the object is open, and its tables live as long as it.
        let table = unsafe { (&raw const (*$object).$name).read() };
        // SAFETY: an open object has this table, which nobody changes while the object is open.
        unsafe { &*table }
    }};
}
pub(super) use table;

/// Any libfabric object; closed when dropped.
pub(super) struct Object(NonNull<sys::fid>);

// SAFETY: libfabric objects may be used and closed from any thread (`fi_domain(3)`, threading).
unsafe impl Send for Object {}
// SAFETY: a shared object is only read (its tables); calls on it go through `Domain::call` or a context,
// which let them overlap only where the domain's threading level allows it.
unsafe impl Sync for Object {}

impl Object {
    /// # Safety
    /// `raw` is an open object that nobody else closes.
    pub(super) unsafe fn own<T>(raw: *mut T) -> Result<Self> {
        NonNull::new(raw.cast()).map(Self).ok_or(Error::OutOfResource)
    }

    pub(super) fn as_ptr<T>(&self) -> *mut T {
        self.0.as_ptr().cast()
    }

    pub(super) fn ops(&self) -> &sys::fi_ops {
        let fid = self.0.as_ptr();
        table!(fid, ops)
    }

    pub(super) fn bind(&self, other: &Self, flags: u64) -> Result<()> {
        let bind = self.ops().bind.ok_or(Error::Unsupported)?;
        // SAFETY: both objects are open.
        done(unsafe { bind(self.as_ptr(), other.as_ptr(), flags) })
    }

    pub(super) fn enable(&self) -> Result<()> {
        let control = self.ops().control.ok_or(Error::Unsupported)?;
        // SAFETY: an open object; the command takes no argument.
        done(unsafe { control(self.as_ptr(), sys::FI_ENABLE as c_int, ptr::null_mut()) })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: nobody has it any more.
        let _closed = unsafe { self.close_once() };
    }
}

impl Object {
    /// Closes it; whether it is closed.
    pub(super) fn close(self) -> bool {
        let object = ManuallyDrop::new(self);
        // SAFETY: nobody else has it, and it is not dropped.
        unsafe { object.close_once() }
    }

    /// # Safety
    /// It is not used after that.
    unsafe fn close_once(&self) -> bool {
        // SAFETY: open, closed once; children hold their parents, so none is left.
        self.ops().close.is_some_and(|close| unsafe { close(self.as_ptr()) } == 0)
    }
}

/// An entry of an object's table that opens another one: it reads the attributes, and writes one object that is the
/// caller's (`fi_domain(3)`, `fi_endpoint(3)`, `fi_cq(3)`, `fi_av(3)`).
type Open<P, A, C> = unsafe extern "C" fn(*mut P, *mut A, *mut *mut C, *mut c_void) -> c_int;
/// As [`Open`], by number, with the parent's attributes where none are given (`fi_endpoint(3)`, scalable endpoints).
type OpenNumbered<P, A, C> = unsafe extern "C" fn(*mut P, c_int, *mut A, *mut *mut C, *mut c_void) -> c_int;

/// Opens what belongs to an object, with an entry of that object's own table.
fn open_child<P, A, C>(parent: &Object, entry: &Option<Open<P, A, C>>, attributes: &A) -> Result<Object> {
    let open = entry.ok_or(Error::Unsupported)?;
    let mut raw = ptr::null_mut();
    let attributes = ptr::from_ref(attributes).cast_mut();
    // SAFETY: the parent is open, and the entry is of its table, as nothing else in this file gives one; the
    // attributes are read during the call; one owned object is written.
    done(unsafe { open(parent.as_ptr(), attributes, &raw mut raw, ptr::null_mut()) })?;
    // SAFETY: just opened, ours.
    unsafe { Object::own(raw) }
}

/// Opens one of several that an object has by number, with an entry of that object's own table.
fn open_numbered<P, A, C>(
    parent: &Object,
    entry: &Option<OpenNumbered<P, A, C>>,
    index: c_int,
) -> Result<Object> {
    let open = entry.ok_or(Error::Unsupported)?;
    let mut raw = ptr::null_mut();
    // SAFETY: the parent is open, and the entry is of its table, as nothing else in this file gives one; null
    // attributes mean the parent's own; one owned object is written.
    done(unsafe { open(parent.as_ptr(), index, ptr::null_mut(), &raw mut raw, ptr::null_mut()) })?;
    // SAFETY: just opened, ours.
    unsafe { Object::own(raw) }
}

/// The entries that contexts read.
const TAGGED: sys::fi_cq_format = sys::fi_cq_format_FI_CQ_FORMAT_TAGGED;

/// A provider's fabric (`fi_fabric(3)`).
pub struct Fabric(Object);

impl Fabric {
    /// Opens the fabric of an offer.
    pub fn open(info: &Info<'_>) -> Result<Arc<Self>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the attributes are a live part of the info; the library writes one owned object.
        done(unsafe { (info.library.fabric)(info.raw.fabric_attr, &raw mut raw, ptr::null_mut()) })?;
        // SAFETY: just opened, ours.
        Ok(Arc::new(Self(unsafe { Object::own(raw) }?)))
    }

    pub(super) fn object(&self) -> &Object {
        &self.0
    }
}

/// Whether a name begins as an address of a socket of this family does.
fn is_of_family(name: &[u8], family: c_int) -> bool {
    let said = name.first_chunk().map(|bytes| libc::sa_family_t::from_ne_bytes(*bytes));
    said.is_some_and(|said| c_int::from(said) == family)
}

/// A domain: one interface or device (`fi_domain(3)`).
pub struct Domain {
    object: Object,
    /// Keys of registrations: the next, and the bits that the provider takes.
    key: AtomicU64,
    key_bits: u64,
    /// Of a domain that takes one call at a time.
    turn: Option<Arc<Turn>>,
    /// Family and bytes of the names of its endpoints, where they are addresses of sockets.
    family: Option<(c_int, usize)>,
    _fabric: Arc<Fabric>,
}

impl Domain {
    /// Opens the domain of an offer.
    pub fn open(fabric: &Arc<Fabric>, info: &Info<'_>) -> Result<Arc<Self>> {
        let fid: *mut sys::fid_fabric = fabric.0.as_ptr();
        let object = open_child(&fabric.0, &table!(fid, ops).domain, info.raw)?;
        let key_bits = info.registration_key_bits();
        let turn = (!info.is_thread_safe()).then(|| Arc::new(Turn::new(Inbox::default())));
        let family = match info.address_format() {
            sys::FI_SOCKADDR_IN => Some((libc::AF_INET, size_of::<libc::sockaddr_in>())),
            sys::FI_SOCKADDR_IN6 => Some((libc::AF_INET6, size_of::<libc::sockaddr_in6>())),
            _ => None,
        };
        let fabric = Arc::clone(fabric);
        Ok(Arc::new(Self { object, key: AtomicU64::new(0), key_bits, turn, family, _fabric: fabric }))
    }

    /// What a context must hold while it calls, where calls may not overlap.
    pub(super) fn turn(&self) -> Option<&Arc<Turn>> {
        self.turn.as_ref()
    }

    /// Makes a call, after others where they may not overlap.
    pub(super) fn call<R>(&self, call: impl FnOnce() -> R) -> R {
        match &self.turn {
            Some(turn) => turn.with(|_| call()),
            None => call(),
        }
    }

    /// A key that no recent registration has.
    pub(super) fn next_key(&self) -> u64 {
        self.key.fetch_add(1, Ordering::Relaxed) & self.key_bits
    }

    fn ops(&self) -> &sys::fi_ops_domain {
        let fid: *mut sys::fid_domain = self.object.as_ptr();
        table!(fid, ops)
    }

    pub(super) fn object(&self) -> &Object {
        &self.object
    }

    /// An ordinary endpoint of an offer, neither bound nor enabled.
    pub(super) fn endpoint(&self, info: &Info<'_>) -> Result<Object> {
        open_child(&self.object, &self.ops().endpoint, info.raw)
    }

    pub(super) fn completion_queue(&self, size: usize, format: sys::fi_cq_format) -> Result<Object> {
        let attributes = sys::fi_cq_attr { size, format, ..Default::default() };
        open_child(&self.object, &self.ops().cq_open, &attributes)
    }
}

/// The addresses of the peers (`fi_av(3)`).
pub struct AddressVector {
    object: Object,
    domain: Arc<Domain>,
}

impl AddressVector {
    /// Opens a vector for about `count` peers with up to `contexts` receive contexts each.
    pub fn open(domain: &Arc<Domain>, table: bool, count: usize, context_bits: u32) -> Result<Arc<Self>> {
        let attributes = sys::fi_av_attr {
            type_: if table { sys::fi_av_type_FI_AV_TABLE } else { sys::fi_av_type_FI_AV_MAP },
            rx_ctx_bits: context_bits as c_int,
            count,
            ..Default::default()
        };
        let object = open_child(&domain.object, &domain.ops().av_open, &attributes)?;
        Ok(Arc::new(Self { object, domain: Arc::clone(domain) }))
    }

    fn ops(&self) -> &sys::fi_ops_av {
        let fid: *mut sys::fid_av = self.object.as_ptr();
        table!(fid, ops)
    }

    pub(super) fn object(&self) -> &Object {
        &self.object
    }

    /// Lets an endpoint send to these addresses.
    pub(super) fn serve(&self, endpoint: &Object) -> Result<()> {
        endpoint.bind(&self.object, 0)
    }

    /// Makes the endpoint of this name known.
    ///
    /// An address of another family than the domain's is refused here: it is nobody's that could be reached, and
    /// libfabric's vector of IP addresses takes no other one after it.
    pub fn insert(&self, name: &[u8]) -> Result<Address> {
        if !self.domain.family.is_none_or(|(family, bytes)| is_of_family(name, family) && name.len() >= bytes)
        {
            return Err(Error::Unreachable);
        }
        let insert = self.ops().insert.ok_or(Error::Unsupported)?;
        let mut address = u64::MAX;
        // SAFETY: the vector is open; `name` is as long as those of its family, or, where the provider has names of its
        // own, one whole name as `fi_getname` wrote it at the peer.
        let inserted = self.domain.call(|| unsafe {
            insert(self.object.as_ptr(), name.as_ptr().cast(), 1, &raw mut address, 0, ptr::null_mut())
        });
        if inserted == 1 && address != u64::MAX { Ok(Address(address)) } else { Err(Error::Unreachable) }
    }

    /// The name by which an address was made known (`fi_av_lookup`, fi_av(3)).
    pub fn name_of(&self, address: Address) -> Result<Vec<u8>> {
        let lookup = self.ops().lookup.ok_or(Error::Unsupported)?;
        let mut name = vec![0_u8; 256];
        let mut size = name.len();
        // SAFETY: the vector is open; a buffer of `size` bytes, of which the callee writes no more.
        done(self.domain.call(|| unsafe {
            lookup(self.object.as_ptr(), address.0, name.as_mut_ptr().cast(), &raw mut size)
        }))?;
        name.truncate(size);
        Ok(name)
    }

    /// Forgets an address.
    pub fn remove(&self, address: Address) -> Result<()> {
        let remove = self.ops().remove.ok_or(Error::Unsupported)?;
        let mut address = address.0;
        // SAFETY: the vector is open.
        done(self.domain.call(|| unsafe { remove(self.object.as_ptr(), &raw mut address, 1, 0) }))
    }
}

/// An endpoint with its contexts, ready to send and receive, and operations of our own for it.
pub struct Endpoint<W: Work> {
    /// There until the endpoint is dropped.
    object: Option<Arc<Object>>,
    first: ManuallyDrop<Context<W>>,
    others: Vec<Context<W>>,
    pool: Pool<W>,
    addresses: Arc<AddressVector>,
}

impl<W: Work> Drop for Endpoint<W> {
    /// Closes the endpoint as it is, and then frees what operations of the pool are still posted there.
    ///
    /// Nothing is cancelled or read first. Peers are ending too, and what a poll does to a connection that is lost is
    /// not always sound: libfabric 2.1 then frees a stored message that is not whole, and once more when it closes.
    fn drop(&mut self) {
        // The contexts, which close before their queues, hold the last reference.
        self.object = None;
        // SAFETY: taken once, here, and not used again.
        let first = unsafe { ManuallyDrop::take(&mut self.first) };
        for context in std::iter::once(first).chain(std::mem::take(&mut self.others)) {
            // While it is open no other object has its address.
            let posted = self.pool.posted_at(context.address());
            if !context.close() {
                continue;
            }
            for operation in posted {
                // SAFETY: it was posted to this context, which nobody can poll any more, so that it comes back only
                // here. The provider has done with it: what is outstanding when an endpoint is closed is discarded, and
                // gives no completion (`fi_endpoint(3)`); what waits in the queue is lost with that (`fi_cq(3)`).
                let lease = unsafe { Lease::<W>::back(operation) };
                drop(lease);
            }
        }
    }
}

/// How an endpoint is to be made.
pub struct Ready {
    /// Contexts of a scalable endpoint; `None` for an ordinary one.
    pub contexts: Option<usize>,
    /// Completions that a queue holds.
    pub queue_size: usize,
    /// Completions that are read at once.
    pub batch: usize,
}

impl<W: Work> Endpoint<W> {
    /// Opens and enables the endpoint of an offer.
    pub fn open(
        domain: &Arc<Domain>,
        info: &InfoList,
        addresses: &Arc<AddressVector>,
        ready: &Ready,
    ) -> Result<Self> {
        let info = info.iter().next().ok_or(Error::NotFound)?;
        // Several contexts are for several threads: none of them has the turn of the others.
        if ready.contexts.is_some() && domain.turn.is_some() {
            return Err(Error::Unsupported);
        }
        let open = match ready.contexts {
            Some(_) => &domain.ops().scalable_ep,
            None => &domain.ops().endpoint,
        };
        let object = Arc::new(open_child(&domain.object, open, info.raw)?);
        object.bind(&addresses.object, 0)?;
        let both = u64::from(sys::FI_TRANSMIT) | u64::from(sys::FI_RECV) | sys::FI_SELECTIVE_COMPLETION;
        let (first, others): (Context<W>, _) = match ready.contexts {
            None => {
                let queue = domain.completion_queue(ready.queue_size, TAGGED)?;
                object.bind(&queue, both)?;
                object.enable()?;
                let context =
                    Context::new(Arc::clone(&object), Arc::clone(&object), queue, None, domain, ready)?;
                (context.cushioned(Cushion::for_provider(&info)), Vec::new())
            }
            Some(count) => {
                object.enable()?;
                let others = (1..count).map(|index| Self::scalable_context(domain, &object, index, ready));
                (Self::scalable_context(domain, &object, 0, ready)?, others.collect::<Result<_>>()?)
            }
        };
        Ok(Self {
            object: Some(object),
            first: ManuallyDrop::new(first),
            others,
            pool: Pool::default(),
            addresses: Arc::clone(addresses),
        })
    }

    fn scalable_context(
        domain: &Arc<Domain>,
        object: &Arc<Object>,
        index: usize,
        ready: &Ready,
    ) -> Result<Context<W>> {
        let fid: *mut sys::fid_ep = object.as_ptr();
        let ops = table!(fid, ops);
        let index = index as c_int;
        let tx = Arc::new(open_numbered(object, &ops.tx_ctx, index)?);
        let rx = Arc::new(open_numbered(object, &ops.rx_ctx, index)?);
        let queue = domain.completion_queue(ready.queue_size, TAGGED)?;
        tx.bind(&queue, u64::from(sys::FI_TRANSMIT) | sys::FI_SELECTIVE_COMPLETION)?;
        rx.bind(&queue, u64::from(sys::FI_RECV) | sys::FI_SELECTIVE_COMPLETION)?;
        tx.enable()?;
        rx.enable()?;
        Context::new(tx, rx, queue, Some(Arc::clone(object)), domain, ready)
    }

    /// The first context; an ordinary endpoint has no other.
    #[inline]
    pub fn first(&self) -> &Context<W> {
        &self.first
    }

    /// The further contexts of a scalable endpoint.
    #[inline]
    pub fn others(&self) -> &[Context<W>] {
        &self.others
    }

    /// Operations of our own. Those that are posted here when the endpoint ends are ended with it.
    #[inline]
    pub fn pool(&self) -> &Pool<W> {
        &self.pool
    }

    /// The endpoint's name, to be inserted by peers.
    pub fn name(&self) -> Result<Vec<u8>> {
        let object = self.object.as_ref().ok_or(Error::NotFound)?;
        self.addresses.domain.call(|| name_of(object))
    }
}

/// The name of an endpoint, as `fi_getname(3)` writes it.
pub(super) fn name_of(endpoint: &Object) -> Result<Vec<u8>> {
    let fid: *mut sys::fid_ep = endpoint.as_ptr();
    let getname = table!(fid, cm).getname.ok_or(Error::Unsupported)?;
    let mut size = 0_usize;
    // SAFETY: a null buffer of no bytes asks for the size.
    let code = unsafe { getname(endpoint.as_ptr(), ptr::null_mut(), &raw mut size) };
    if code != 0 && code != -(sys::FI_ETOOSMALL as c_int) {
        return Err(Error::Fabric(-code));
    }
    let mut name = vec![0_u8; size];
    // SAFETY: a buffer of `size` bytes.
    done(unsafe { getname(endpoint.as_ptr(), name.as_mut_ptr().cast::<c_void>(), &raw mut size) })?;
    name.truncate(size);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::super::fake::Buffer;
    use super::super::library::Library;
    use super::super::{Loan, Progress, Route, Wishes};
    use super::*;

    /// Says when it is dropped.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[derive(Clone, Copy)]
    struct Plain;

    impl Work for Plain {
        type Convertor = Buffer;
        type Request = Counted;
    }

    fn open(provider: &str) -> Option<Endpoint<Plain>> {
        let library = Library::open().ok()?;
        let mut hints = library.hints().ok()?;
        let unspecified = Progress::Unspecified;
        let caps = u64::from(sys::FI_TAGGED) | sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;
        let wishes = Wishes {
            caps,
            mode: sys::FI_CONTEXT | sys::FI_CONTEXT2,
            mr_mode: 0,
            cq_data_size: 0,
            threads: false,
            table: false,
            control: unspecified,
            data: unspecified,
            provider: Some(provider),
        };
        hints.reliable_datagram(&wishes).ok()?;
        let list = library.info(&hints).ok()?;
        let info = list.iter().find(|info| info.provider() == provider)?.detach(None).ok()?;
        let offer = info.iter().next()?;
        let fabric = Fabric::open(&offer).ok()?;
        let domain = Domain::open(&fabric, &offer).ok()?;
        let addresses = AddressVector::open(&domain, false, 2, 0).ok()?;
        let ready = Ready { contexts: None, queue_size: 256, batch: 16 };
        Some(Endpoint::open(&domain, &info, &addresses, &ready).expect("an endpoint"))
    }

    /// Whatever is posted when the endpoint ends, or has ended and nobody has asked: a message that is half here too.
    #[test]
    fn what_is_posted_ends_with_its_endpoint() {
        const LONG: usize = 4 << 20;
        for provider in ["net", "tcp", "tcp;ofi_rxm"] {
            let Some(endpoint) = open(provider) else { continue };
            let ended = Arc::new(AtomicUsize::new(0));
            let operation = |len: usize| {
                let mut operation = endpoint.pool().take(Plain);
                // SAFETY: the buffer lives for ever.
                let loan = unsafe {
                    Loan::new(Buffer::new(&vec![0; len], true), Route::Prepared, Counted(Arc::clone(&ended)))
                };
                operation.adopt(loan);
                operation
            };
            let to = endpoint.addresses.insert(&endpoint.name().expect("a name")).expect("known");
            let context = endpoint.first();
            let mut posted = 0;
            let mut post = |bits: u64, len: usize, sends: bool| {
                let mut given = operation(len);
                for _ in 0..50_000_000_u64 {
                    let post = match sends {
                        true => context.send(to, bits, None, given),
                        false => context.recv(Address::ANY, bits, 0, given),
                    };
                    match post {
                        Ok(()) => {
                            posted += 1;
                            return;
                        }
                        Err(unposted) => given = unposted.given,
                    }
                    // What has ended is dropped, and counted as such.
                    drop(context.poll());
                }
                panic!("it is not taken");
            };
            for bits in 0..100 {
                post(bits, 64, false);
            }
            for bits in 95..105 {
                post(bits, 64, true);
            }
            post(200, LONG, true);
            // One has been handed out, and others with it have not.
            assert!((0..50_000_000_u64).any(|_| context.poll().is_ok()), "something comes");
            let before = ended.load(Ordering::Relaxed);
            assert!(before < posted, "{provider}: {before} of {posted} had ended");
            assert_eq!(endpoint.pool().out(), posted - before, "{provider}");
            drop(endpoint);
            assert_eq!(ended.load(Ordering::Relaxed), posted, "{provider}");
        }
    }
}

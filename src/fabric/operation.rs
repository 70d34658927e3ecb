//! [`Operation`]: the memory of one posted operation, and [`Lease`], the only right to it.
//!
//! libfabric keeps a pointer to the first 64 bytes (`fi_context2`) from the posting call until the
//! completion is read, and gives it back then. Behind them lies what the operation needs meanwhile, and
//! the transport's own state. Operations live in memory that the host lends ([`Place`]) or in a [`Pool`].
//!
//! A lease is not `Copy`. Posting consumes it, and only the completion brings it back: what is posted
//! cannot be posted again, given back to its pool, or looked at.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::loan::{Convertor, Loan, Memory, Payload, Piece, View};
use super::objects::Domain;
use super::registration::Registration;
use super::sys::fi_context2;
use crate::error::Result;
use crate::sync::EngineCell;

/// The state of a transport's operations, and what their loans are made of.
pub trait Work: Send + Sized {
    /// The host's (buffer, count, datatype).
    type Convertor: Convertor;
    /// The host's request.
    type Request: Send;
}

/// The loan of a transport's operation.
pub type LoanOf<W> = Loan<<W as Work>::Convertor, <W as Work>::Request>;

/// One operation: the provider's scratch, what others may ask while it is posted, and the rest.
#[repr(C)]
pub struct Operation<W: Work> {
    scratch: MaybeUninit<fi_context2>,
    watched: Watched,
    state: State<W>,
}

/// What a [`Standing`] sees.
struct Watched {
    /// Where the operation is posted: the address of the provider's object; 0 when it is not.
    posted_at: AtomicUsize,
    given_up: AtomicBool,
}

impl Watched {
    const fn new() -> Self {
        Self { posted_at: AtomicUsize::new(0), given_up: AtomicBool::new(false) }
    }
}

/// What the operation needs as long as it is posted, and the transport's own state.
struct State<W: Work> {
    /// The pool that it belongs to; null for memory of the host's.
    home: *const Shelf<W>,
    loan: Option<LoanOf<W>>,
    held: Held,
    body: W,
}

/// The memory of the message of an operation.
enum Held {
    /// None: the message is empty.
    Nothing,
    /// What the loan describes, in one piece of host memory.
    Loan,
    /// What the loan describes, on a device, with the provider's right to it; none where it needs none.
    Device(Option<Registration>),
    /// A buffer of our own.
    Bytes(Box<[u8]>),
}

/// Memory of the host's for one operation, and the loan that it is for.
pub struct Place<W: Work> {
    at: NonNull<Operation<W>>,
    loan: LoanOf<W>,
}

impl<W: Work> Place<W> {
    /// # Safety
    /// `at` is valid for writes of an `Operation<W>`, aligned to 8 bytes, and stays so and unmoved until
    /// the loan's request is completed, or the loan is dropped without that. Nobody else uses it, but
    /// for [`Standing::at`].
    #[inline]
    pub unsafe fn new(at: NonNull<Operation<W>>, loan: LoanOf<W>) -> Self {
        const { assert!(align_of::<Operation<W>>() == 8) };
        Self { at, loan }
    }

    /// What is lent.
    #[inline]
    pub fn loan(&self) -> &LoanOf<W> {
        &self.loan
    }

    /// The loan alone: another operation serves the request. What is asked of the [`Standing`] here is
    /// answered with "not posted".
    pub fn vacate(self) -> LoanOf<W> {
        // SAFETY: valid for writes by the promise of `new`.
        unsafe { Operation::vacate(self.at) };
        self.loan
    }

    /// The loan alone: no operation is needed.
    #[inline]
    pub fn into_loan(self) -> LoanOf<W> {
        self.loan
    }

    /// Makes the operation, of the memory that the loan describes.
    #[inline(always)]
    pub fn install(self, body: W) -> Lease<W> {
        let state = State { home: ptr::null(), loan: Some(self.loan), held: Held::Loan, body };
        // SAFETY: valid for this write by the promise of `new`. What was there before needs no drop: a
        // lease that ends moves everything out.
        unsafe { Operation::write(self.at, state) };
        Lease(self.at)
    }
}

impl<W: Work> Operation<W> {
    /// Writes everything but the scratch.
    ///
    /// # Safety
    /// `at` is valid for writes of an operation, and aligned.
    #[inline(always)]
    unsafe fn write(at: NonNull<Self>, state: State<W>) {
        // SAFETY: the caller's promise.
        unsafe { Self::vacate(at) };
        // SAFETY: a field of what the caller says is valid.
        let slot = unsafe { &raw mut (*at.as_ptr()).state };
        // SAFETY: valid and aligned, for the same reason; what was there before needs no drop.
        unsafe { slot.write(state) };
    }

    /// Notes that nothing is posted in memory where no operation is.
    ///
    /// # Safety
    /// `at` is valid for writes of an operation, and aligned.
    #[inline(always)]
    unsafe fn vacate(at: NonNull<Self>) {
        // SAFETY: a field of what the caller says is valid.
        let watched = unsafe { &raw mut (*at.as_ptr()).watched };
        // SAFETY: valid and aligned, for the same reason; what was there before needs no drop.
        unsafe { watched.write(Watched::new()) };
    }
}

/// Which operation: to be compared, and to ask for its cancellation. It gives no right to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub(super) usize);

/// The only right to an operation that is not posted.
///
/// INVARIANT: everything but the scratch is initialised; nobody else reads or writes the state, and only
/// a [`Standing`] what is watched.
pub struct Lease<W: Work>(NonNull<Operation<W>>);

// SAFETY: the only right to the operation goes with it; what lies there may go to another thread: the
// state and the request by the bounds of `Work`, the convertor by those of `Convertor`, buffers and
// registrations are `Send`, and a pool's shelf is reached through its cell.
unsafe impl<W: Work> Send for Lease<W> {}

impl<W: Work> Deref for Lease<W> {
    type Target = W;
    #[inline]
    fn deref(&self) -> &W {
        &self.state().body
    }
}

impl<W: Work> DerefMut for Lease<W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut W {
        &mut self.state_mut().body
    }
}

impl<W: Work> Lease<W> {
    /// Which operation.
    #[inline]
    pub fn id(&self) -> Id {
        Id(self.0.addr().get())
    }

    #[inline(always)]
    fn state(&self) -> &State<W> {
        // SAFETY: initialised, and ours alone, by the invariant.
        unsafe { &(*self.0.as_ptr()).state }
    }

    #[inline(always)]
    fn state_mut(&mut self) -> &mut State<W> {
        // SAFETY: initialised, and ours alone, by the invariant.
        unsafe { &mut (*self.0.as_ptr()).state }
    }

    #[inline(always)]
    fn watched(&self) -> &Watched {
        // SAFETY: initialised by the invariant; all its fields are atomic.
        unsafe { &(*self.0.as_ptr()).watched }
    }

    #[inline(always)]
    fn loan(&self) -> Option<&LoanOf<W>> {
        self.state().loan.as_ref()
    }

    fn hold(&mut self, held: Held) {
        self.state_mut().held = held;
    }

    /// The message that is lent, if any is.
    #[inline]
    pub fn view(&self) -> Option<View<'_, W::Convertor>> {
        self.loan().map(Loan::view)
    }

    /// Bytes that the operation can receive.
    #[inline]
    pub fn room(&self) -> usize {
        match &self.state().held {
            Held::Loan | Held::Device(_) => self.loan().map_or(0, Loan::size),
            Held::Bytes(bytes) => bytes.len(),
            Held::Nothing => 0,
        }
    }

    /// Takes a loan over from an operation that has ended.
    pub fn adopt(&mut self, loan: LoanOf<W>) {
        let state = self.state_mut();
        state.held = Held::Loan;
        state.loan = Some(loan);
    }

    /// Sends these bytes, or receives over them.
    pub fn hold_bytes(&mut self, bytes: Box<[u8]>) {
        self.hold(Held::Bytes(bytes));
    }

    /// The bytes of a buffer of our own.
    pub fn bytes(&self) -> Option<&[u8]> {
        if let Held::Bytes(bytes) = &self.state().held { Some(bytes) } else { None }
    }

    /// Whether the loan's memory can be received into as it lies.
    pub fn lands_in_place(&self) -> bool {
        self.loan().is_some_and(|loan| loan.convertor().landing().is_some())
    }

    /// Sends the loan's memory from its device, if it lies in one piece there; `false` where it does not.
    /// With a domain, the provider gets a registration of it.
    ///
    /// # Errors
    /// The provider does not register it.
    pub fn send_from_device(&mut self, domain: Option<&Arc<Domain>>) -> Result<bool> {
        let Some(source) = self.view().map(|view| view.on_device(domain)).transpose()?.flatten() else {
            return Ok(false);
        };
        let registration = source.into_registration();
        self.hold(Held::Device(registration));
        Ok(true)
    }

    /// Receives into the loan's memory on its device, as [`send_from_device`](Self::send_from_device) sends.
    ///
    /// # Errors
    /// The provider does not register it.
    pub fn receive_on_device(&mut self, domain: Option<&Arc<Domain>>) -> Result<bool> {
        let Some(convertor) = self.loan().map(Loan::convertor) else { return Ok(false) };
        let Some(piece) = convertor.device_landing() else { return Ok(false) };
        let register = |domain| Registration::to_receive(domain, piece, convertor.device());
        let registration = domain.map(register).transpose()?;
        self.hold(Held::Device(registration));
        Ok(true)
    }

    /// Whether the host gave it up.
    pub fn is_given_up(&self) -> bool {
        self.watched().given_up.load(Ordering::Relaxed)
    }

    /// Ends the operation: its memory goes back to where it came from, a registration is given up.
    pub fn end(self) -> Ended<W> {
        let at = ManuallyDrop::new(self).0;
        // SAFETY: initialised but for the scratch, which may be anything, and moved out of once: the lease
        // is gone, and what is written next does not drop what was there.
        let State { home, loan, held, body } = unsafe { at.read() }.state;
        // SAFETY: null, or the pool's shelf, which stays as long as one of its operations is out.
        if let Some(home) = unsafe { home.as_ref() } {
            home.state.with(|state| state.free.push(at));
        }
        let bytes = if let Held::Bytes(bytes) = held { Some(bytes) } else { None };
        Ended { body, loan, bytes }
    }

    /// Where the message is read from.
    pub(super) fn source(&self) -> Memory {
        let view = self.view();
        match &self.state().held {
            Held::Nothing => Memory::EMPTY,
            Held::Loan => Memory::of(view.and_then(|view| view.convertor.payload(view.route)), None),
            Held::Device(right) => {
                Memory::of(view.and_then(|view| view.convertor.device_payload(view.route)), right.as_ref())
            }
            Held::Bytes(bytes) => Memory::of(Some(Payload::of(bytes).piece), None),
        }
    }

    /// Where the message is written to.
    pub(super) fn landing(&mut self) -> Memory {
        let convertor = self.loan().map(Loan::convertor);
        match &mut self.state_mut().held {
            Held::Nothing => Memory::EMPTY,
            Held::Loan => Memory::of(convertor.and_then(Convertor::landing), None),
            Held::Device(right) => Memory::of(convertor.and_then(Convertor::device_landing), right.as_ref()),
            Held::Bytes(bytes) => {
                let piece = Piece { start: bytes.as_mut_ptr(), len: bytes.len() };
                Memory { piece, descriptor: ptr::null_mut() }
            }
        }
    }

    /// Where the loan can be received into in one piece of host memory.
    #[inline(always)]
    pub(super) fn lent_landing(&self) -> Option<Piece> {
        self.loan()?.convertor().landing()
    }

    /// If the operation is the host's and its message lies in the loan's memory, ends it.
    ///
    /// # Errors
    /// The operation itself, if it is another.
    #[inline(always)]
    pub fn end_in_place(self) -> std::result::Result<LoanOf<W>, Self> {
        let state = self.state();
        if !state.home.is_null() || !matches!(state.held, Held::Loan) || state.loan.is_none() {
            return Err(self);
        }
        let at = ManuallyDrop::new(self).0;
        // SAFETY: initialised but for the scratch, which may be anything, and moved out of once: the lease
        // is gone, and what is written next does not drop what was there.
        let State { loan, held, body, .. } = unsafe { at.read() }.state;
        // What lies in the loan's memory holds nothing else, and host memory goes back with the request.
        std::mem::forget(held);
        drop(body);
        loan.ok_or_else(|| unreachable!("looked at above"))
    }

    /// Gives the operation to the provider, at the object of this address: what libfabric gets as its context.
    #[inline(always)]
    pub(super) fn posted(self, at: usize) -> NonNull<c_void> {
        self.watched().posted_at.store(at, Ordering::Relaxed);
        ManuallyDrop::new(self).0.cast()
    }

    /// The lease whose context libfabric gives back, or has not taken.
    ///
    /// # Safety
    /// `context` came from [`posted`](Self::posted) of a lease of the same `W`, and this is the only time
    /// that it comes back.
    #[inline(always)]
    pub(super) unsafe fn back(context: NonNull<c_void>) -> Self {
        let lease = Self(context.cast());
        lease.watched().posted_at.store(0, Ordering::Relaxed);
        lease
    }
}

impl<W: Work> Drop for Lease<W> {
    fn drop(&mut self) {
        // SAFETY: the right to the operation, once more; the one that is dropped here is not used again.
        drop(Self(self.0).end());
    }
}

/// What an operation leaves behind.
pub struct Ended<W: Work> {
    /// The transport's state.
    pub body: W,
    /// What was lent to it.
    pub loan: Option<LoanOf<W>>,
    /// A buffer of our own.
    pub bytes: Option<Box<[u8]>>,
}

/// The place of an operation that may be posted, to be cancelled.
pub struct Standing<'a, W: Work> {
    at: NonNull<Operation<W>>,
    alive: PhantomData<&'a ()>,
}

impl<W: Work> Standing<'_, W> {
    /// # Safety
    /// A [`Place`] of this memory was [installed](Place::install) or [vacated](Place::vacate), or
    /// `Operation::vacate` was called for it, and the memory stays for the lifetime.
    pub unsafe fn at(at: NonNull<Operation<W>>) -> Self {
        Self { at, alive: PhantomData }
    }

    /// Which operation.
    pub fn id(&self) -> Id {
        Id(self.at.addr().get())
    }

    fn watched(&self) -> &Watched {
        // SAFETY: initialised memory by the promise of `at`, all of it atomic; nothing around it is named.
        unsafe { &(*self.at.as_ptr()).watched }
    }

    /// Notes that the host gave it up.
    pub fn give_up(&self) {
        self.watched().given_up.store(true, Ordering::Relaxed);
    }

    /// What the provider knows the operation by, if it is posted at the object of this address.
    pub(super) fn context(&self, at: usize) -> Option<*mut c_void> {
        let posted_at = self.watched().posted_at.load(Ordering::Relaxed);
        (at != 0 && posted_at == at).then(|| self.at.as_ptr().cast())
    }
}

/// Operations of our own: answers, probes, blocking sends.
///
/// Memory grows in blocks. It is given back when the pool ends, unless an operation is out then: its
/// lease keeps what it needs.
pub struct Pool<W: Work> {
    shelf: NonNull<Shelf<W>>,
}

struct Shelf<W: Work> {
    state: EngineCell<Free<W>>,
}

struct Free<W: Work> {
    free: Vec<NonNull<Operation<W>>>,
    blocks: Vec<NonNull<[MaybeUninit<Operation<W>>]>>,
}

// SAFETY: the pointers are to memory that the pool owns; each is handed out to one lease at a time.
unsafe impl<W: Work> Send for Free<W> {}
// SAFETY: a pool owns its shelf, which is reached through a cell.
unsafe impl<W: Work> Send for Pool<W> {}
// SAFETY: the shelf is reached through a cell, which lends it to one thread at a time.
unsafe impl<W: Work> Sync for Pool<W> {}

const BLOCK: usize = 64;

impl<W: Work> Default for Pool<W> {
    /// An empty pool.
    fn default() -> Self {
        let state = EngineCell::new(Free { free: Vec::new(), blocks: Vec::new() });
        Self { shelf: NonNull::from(Box::leak(Box::new(Shelf { state }))) }
    }
}

impl<W: Work> Pool<W> {
    #[inline]
    fn shelf(&self) -> &Shelf<W> {
        // SAFETY: made in `default` and given up in `drop` only.
        unsafe { self.shelf.as_ref() }
    }

    /// An operation with the given state and an empty message.
    #[inline]
    pub fn take(&self, body: W) -> Lease<W> {
        let at = self.shelf().state.with(|state| {
            if state.free.is_empty() {
                state.grow();
            }
            state.free.pop()
        });
        let at = at.expect("a pool that has grown has a free operation");
        let state = State { home: self.shelf.as_ptr(), loan: None, held: Held::Nothing, body };
        // SAFETY: memory of a block, which stays as long as this operation is out; it was free.
        unsafe { Operation::write(at, state) };
        Lease(at)
    }

    /// The operation of this name, if it is one of this pool's.
    pub fn standing(&self, which: Id) -> Option<Standing<'_, W>> {
        self.all().find(|operation| operation.id() == which)
    }

    /// Every operation of this pool, wherever it is.
    pub fn all(&self) -> impl Iterator<Item = Standing<'_, W>> {
        let blocks = self.shelf().state.with(|state| state.blocks.clone());
        blocks.into_iter().flat_map(|block| {
            let first = block.cast::<Operation<W>>();
            (0..BLOCK).map(move |place| {
                // SAFETY: in bounds of the block.
                let at = unsafe { first.add(place) };
                // SAFETY: `grow` made it say that it is not posted; blocks stay as long as the pool.
                unsafe { Standing::at(at) }
            })
        })
    }

    /// Operations that are out.
    pub fn out(&self) -> usize {
        self.shelf().state.with(|state| state.out())
    }
}

impl<W: Work> Drop for Pool<W> {
    fn drop(&mut self) {
        // What is out points to the shelf and lies in its blocks: both stay then.
        let Some(blocks) =
            self.shelf().state.with(|state| (state.out() == 0).then(|| std::mem::take(&mut state.blocks)))
        else {
            return;
        };
        for block in blocks {
            // SAFETY: leaked in `grow`, and nothing in it is in use.
            drop(unsafe { Box::from_raw(block.as_ptr()) });
        }
        // SAFETY: leaked in `default`; no operation is out that could point to it.
        drop(unsafe { Box::from_raw(self.shelf.as_ptr()) });
    }
}

impl<W: Work> Free<W> {
    fn out(&self) -> usize {
        self.blocks.len() * BLOCK - self.free.len()
    }

    #[cold]
    fn grow(&mut self) {
        let block: Box<[MaybeUninit<Operation<W>>]> = (0..BLOCK).map(|_| MaybeUninit::uninit()).collect();
        let block = NonNull::from(Box::leak(block));
        self.blocks.push(block);
        self.free.reserve(BLOCK * self.blocks.len());
        let first = block.cast::<Operation<W>>();
        for place in (0..BLOCK).rev() {
            // SAFETY: in bounds of the block.
            let at = unsafe { first.add(place) };
            // SAFETY: memory of an operation that nobody uses yet.
            unsafe { Operation::vacate(at) };
            self.free.push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{self, Buffer, Request};
    use super::*;

    struct Count {
        count: u64,
    }

    impl Work for Count {
        type Convertor = Buffer;
        type Request = Request;
    }

    #[test]
    fn operations_come_back_and_are_used_again() {
        let pool: Pool<Count> = Pool::default();
        let first = pool.take(Count { count: 7 });
        let which = first.id();
        assert_eq!((first.count, first.room(), pool.out()), (7, 0, 1));
        assert_eq!(first.end().body.count, 7);
        let second = pool.take(Count { count: 8 });
        assert!(second.id() == which && second.count == 8);
        let many: Vec<_> = (0..200).map(|n| pool.take(Count { count: n })).collect();
        assert!(many.iter().enumerate().all(|(n, operation)| operation.count == n as u64));
        assert_eq!(pool.out(), 201);
        drop(many);
        assert_eq!(pool.out(), 1);
    }

    #[test]
    fn an_operation_outlives_its_pool() {
        let pool: Pool<Count> = Pool::default();
        let mut operation = pool.take(Count { count: 7 });
        operation.hold_bytes(vec![1, 2, 3].into());
        drop(pool);
        assert_eq!(operation.count, 7);
        let Ended { body, bytes, .. } = operation.end();
        assert_eq!((body.count, bytes.as_deref()), (7, Some(&[1, 2, 3][..])));
    }

    #[test]
    fn the_memory_of_a_posted_operation_is_its_own() {
        let pool: Pool<Count> = Pool::default();
        let mut operation = pool.take(Count { count: 7 });
        operation.hold_bytes(vec![0; 3].into());
        let (which, Memory { piece, .. }) = (operation.id(), operation.landing());
        let context = operation.posted(5);
        let standing = pool.standing(which).expect("one of the pool's");
        assert_eq!(standing.context(6), None, "posted elsewhere");
        assert_eq!(standing.context(5), Some(context.as_ptr()));
        // SAFETY: as the provider would: the buffer is the operation's, and that is posted.
        unsafe { piece.start.write_bytes(9, piece.len) };
        // SAFETY: posted above, and back this once.
        let operation = unsafe { Lease::<Count>::back(context) };
        assert_eq!((standing.context(5), pool.out()), (None, 1));
        assert_eq!(operation.bytes(), Some(&[9; 3][..]));
    }

    #[test]
    fn a_request_is_free_when_its_operation_has_ended() {
        let (place, host) = fake::receive::<Count>(16);
        let operation = place.install(Count { count: 1 });
        assert!(operation.lands_in_place() && operation.room() == 16);
        let standing = host.standing();
        assert!(!operation.is_given_up() && standing.id() == operation.id());
        standing.give_up();
        assert!(operation.is_given_up());
        let Ok(loan) = operation.end_in_place() else { panic!("it lands in place") };
        assert_eq!(loan.end().number, host.number);
        let (place, host) = fake::receive::<Count>(16);
        assert_eq!(place.vacate().end().number, host.number);
        assert_eq!(host.standing().context(0), None);
    }

    #[test]
    fn an_operation_with_a_buffer_of_its_own_does_not_end_in_place() {
        let (place, _host) = fake::receive::<Count>(16);
        let mut operation = place.install(Count { count: 1 });
        operation.hold_bytes(vec![3; 16].into());
        let Err(operation) = operation.end_in_place() else { panic!("the bytes are elsewhere") };
        let Ended { loan, bytes, .. } = operation.end();
        assert!(loan.is_some() && bytes.is_some_and(|bytes| *bytes == [3; 16]));
    }
}

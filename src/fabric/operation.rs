//! [`Operation`]: the memory of one posted operation, and [`Lease`], the only right to it.
//!
//! libfabric keeps a pointer to the first 64 bytes (`fi_context2`) from the posting call until the
//! completion is read, and gives it back then. Behind them lies what the operation needs meanwhile, and
//! the transport's own state. Operations live in memory that the host lends ([`Place`](super::Place)) or in a [`Pool`](super::Pool).
//!
//! A lease is not `Copy`. Posting consumes it, and only the completion brings it back: what is posted
//! cannot be posted again, given back to its pool, or looked at.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::loan::{Convertor, Loan, Memory, Payload, Piece, Route, View};
use super::objects::Domain;
use super::pool::Home;
use super::registration::Registration;
use super::sys::fi_context2;
use super::watched::Watched;
use crate::error::Result;

/// The state of a transport's operations, and what their loans are made of.
pub trait Work: Copy + Send {
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
    scratch: UnsafeCell<MaybeUninit<fi_context2>>,
    watched: Watched,
    state: UnsafeCell<MaybeUninit<State<W>>>,
}

/// What the operation needs as long as it is posted, and the transport's own state.
struct State<W: Work> {
    kept: Kept<W>,
    body: W,
}

/// Where an operation comes from, and the memory of its message.
enum Kept<W: Work> {
    /// Memory of the host's, and a loan of one piece of host memory, whose convertor is [prepared](Route::Prepared).
    ///
    /// INVARIANT: both were in a loan, and nothing here needs a drop.
    InPlace(W::Convertor, W::Request),
    /// Anything.
    Elsewhere {
        /// The pool that it belongs to; none for memory of the host's.
        home: Option<Home<W>>,
        loan: Option<LoanOf<W>>,
        held: Held,
    },
}

impl<W: Work> Kept<W> {
    /// What the loan describes, in memory of the host's.
    #[inline(always)]
    fn of_host(loan: LoanOf<W>) -> Self {
        const { assert!(!std::mem::needs_drop::<LoanOf<W>>()) }
        match loan.parts() {
            (convertor, Route::Prepared, request) => Self::InPlace(convertor, request),
            (convertor, route, request) => {
                // SAFETY: the parts of that loan.
                let loan = unsafe { Loan::new(convertor, route, request) };
                Self::Elsewhere { home: None, loan: Some(loan), held: Held::Loan }
            }
        }
    }

    #[inline(always)]
    fn view(&self) -> Option<View<'_, W::Convertor>> {
        match self {
            // SAFETY: the convertor is alive and its memory lent as long as its loan is not ended, whose parts are here.
            Self::InPlace(convertor, _) => Some(unsafe { View::new(*convertor, Route::Prepared) }),
            Self::Elsewhere { loan, .. } => loan.as_ref().map(Loan::view),
        }
    }

    fn home(&self) -> Option<Home<W>> {
        if let Self::Elsewhere { home, .. } = self { *home } else { None }
    }

    /// Takes it apart.
    fn into_parts(self) -> (Option<Home<W>>, Option<LoanOf<W>>, Held) {
        match self {
            Self::InPlace(convertor, request) => {
                // SAFETY: the parts of a loan, by the invariant, which are moved out.
                (None, Some(unsafe { Loan::new(convertor, Route::Prepared, request) }), Held::Loan)
            }
            Self::Elsewhere { home, loan, held } => (home, loan, held),
        }
    }

    /// Holds the message in other memory, and another loan if one is given.
    fn hold(&mut self, given: Option<LoanOf<W>>, held: Held) {
        let nothing = Self::Elsewhere { home: None, loan: None, held: Held::Nothing };
        let (home, loan, _) = std::mem::replace(self, nothing).into_parts();
        *self = Self::Elsewhere { home, loan: given.or(loan), held };
    }
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

impl<W: Work> Operation<W> {
    /// Memory where no operation has been.
    pub(super) const fn empty() -> Self {
        Self {
            scratch: UnsafeCell::new(MaybeUninit::uninit()),
            watched: Watched::new(),
            state: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

/// Where an operation lies or may lie.
///
/// INVARIANT: memory of an `Operation<W>`, aligned, whose bytes are initialised, whatever they are; it
/// stays as long as this is used. What is watched may be read and written by anybody, the state by whom the lease
/// says.
pub(super) struct Slot<W: Work>(NonNull<Operation<W>>);

impl<W: Work> Clone for Slot<W> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<W: Work> Copy for Slot<W> {}

impl<W: Work> Slot<W> {
    /// # Safety
    /// The invariant.
    #[inline(always)]
    pub(super) unsafe fn new(at: NonNull<Operation<W>>) -> Self {
        const { assert!(align_of::<Operation<W>>() == 8) };
        Self(at)
    }

    #[inline(always)]
    fn addr(self) -> usize {
        self.0.addr().get()
    }

    /// All of it: atomic, or cells of what may be anything.
    #[inline(always)]
    fn shared(&self) -> &Operation<W> {
        // SAFETY: memory that stays, initialised and aligned, by the invariant; what others write is in cells.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn watched(&self) -> &Watched {
        &self.shared().watched
    }

    #[inline(always)]
    fn state(self) -> *mut State<W> {
        self.shared().state.get().cast()
    }

    /// Notes that nothing is posted here, and nothing given up, in memory of the host's.
    #[inline(always)]
    pub(super) fn vacate(self) {
        self.watched().vacate();
    }

    /// Makes an operation of memory of the host's, and of what the loan describes.
    ///
    /// # Safety
    /// Nobody has a lease of it.
    #[inline(always)]
    pub(super) unsafe fn install(self, loan: LoanOf<W>, body: W) -> Lease<W> {
        let state = State { kept: Kept::of_host(loan), body };
        self.vacate();
        // SAFETY: memory that stays, aligned, by the invariant, and nobody else's by the promise above; what was
        // there before needs no drop, since a lease that ends moves everything out.
        unsafe { self.state().write(state) };
        Lease(self)
    }

    /// As [`install`](Self::install), and gives it to the provider at the object of this address: what libfabric
    /// gets as its context. Nothing is done where the convertor of the loan is not prepared.
    ///
    /// # Safety
    /// Nobody has a lease of it, and nobody can know of this operation yet.
    #[inline(always)]
    pub(super) unsafe fn install_posted(
        self,
        loan: LoanOf<W>,
        body: W,
        at: usize,
    ) -> Option<NonNull<c_void>> {
        const { assert!(!std::mem::needs_drop::<LoanOf<W>>()) }
        let (convertor, Route::Prepared, request) = loan.parts() else { return None };
        let state = State { kept: Kept::InPlace(convertor, request), body };
        self.watched().begin_posted(at);
        // SAFETY: memory that stays, aligned, by the invariant, and nobody else's by the promise above; what was
        // there before needs no drop, since a lease that ends moves everything out.
        unsafe { self.state().write(state) };
        Some(self.0.cast())
    }

    /// Makes an operation of memory of a pool's.
    ///
    /// # Safety
    /// Nobody has a lease of it.
    #[inline]
    pub(super) unsafe fn fill(self, home: Home<W>, body: W) -> Lease<W> {
        self.watched().begin();
        let kept = Kept::Elsewhere { home: Some(home), loan: None, held: Held::Nothing };
        let state = State { kept, body };
        // SAFETY: memory that stays, aligned, by the invariant, and nobody else's by the promise above; what was
        // there before needs no drop, since a lease that ends moves everything out.
        unsafe { self.state().write(state) };
        Lease(self)
    }

    /// Moves the loan out of an operation that is in place.
    ///
    /// # Safety
    /// There is such an operation, whose right is given up for this.
    #[inline(always)]
    unsafe fn move_out(self) -> LoanOf<W> {
        // SAFETY: initialised, and nobody else's.
        let state = unsafe { &*self.state() };
        let Kept::InPlace(convertor, request) = &state.kept else {
            // SAFETY: it is in place.
            unsafe { std::hint::unreachable_unchecked() }
        };
        // SAFETY: moved out once: nobody drops what lies in memory of the host's, and the rest of the state needs no
        // drop, by the invariant of `InPlace`.
        let request = unsafe { ptr::from_ref(request).read() };
        // SAFETY: the parts of a loan, by the same.
        unsafe { Loan::new(*convertor, Route::Prepared, request) }
    }

    /// Which operation lies here, or was the last to.
    #[inline]
    pub(super) fn id(self) -> Id {
        Id { at: self.addr(), generation: self.watched().generation() }
    }

    /// The operation of the host's that lies here.
    pub(super) fn host_id(self) -> Id {
        Id { at: self.addr(), generation: 0 }
    }

    /// Notes that this operation was given up, if it still is the one that lies here.
    pub(super) fn give_up(self, which: Id) {
        self.watched().give_up(which.generation);
    }

    /// What the provider knows this operation by, if it lies here, and is posted at the object of this address.
    pub(super) fn posted_as(self, which: Id, at: usize) -> Option<*mut c_void> {
        let is_there = which.at == self.addr() && self.watched().is_posted(which.generation, at);
        is_there.then(|| self.0.as_ptr().cast())
    }
}

/// Which operation: to be compared, and to ask for its cancellation. It gives no right to the memory.
/// No two operations of a pool have the same, unless 2^63 came between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    pub(super) at: usize,
    generation: usize,
}

/// The only right to an operation that is not posted.
///
/// INVARIANT: everything but the scratch is initialised; nobody else reads or writes the state, and only
/// a [`Standing`](super::Standing) what is watched.
pub struct Lease<W: Work>(Slot<W>);

// SAFETY: the only right to the operation goes with it; what lies there may go to another thread: the
// state and the request by the bounds of `Work`, the convertor by those of `Convertor`, buffers and
// registrations are `Send`, and a pool is reached through its cell.
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
        self.0.id()
    }

    #[inline(always)]
    fn state(&self) -> &State<W> {
        // SAFETY: initialised, and ours alone, by the invariant.
        unsafe { &*self.0.state() }
    }

    #[inline(always)]
    fn state_mut(&mut self) -> &mut State<W> {
        // SAFETY: initialised, and ours alone, by the invariant.
        unsafe { &mut *self.0.state() }
    }

    fn convertor(&self) -> Option<W::Convertor> {
        self.view().map(|view| view.convertor)
    }

    fn hold(&mut self, held: Held) {
        self.state_mut().kept.hold(None, held);
    }

    /// The message that is lent, if any is.
    #[inline]
    pub fn view(&self) -> Option<View<'_, W::Convertor>> {
        self.state().kept.view()
    }

    /// Bytes that the operation can receive.
    #[inline]
    pub fn room(&self) -> usize {
        match &self.state().kept {
            Kept::InPlace(convertor, _) => convertor.packed_size(),
            Kept::Elsewhere { loan, held, .. } => match held {
                Held::Loan | Held::Device(_) => loan.as_ref().map_or(0, Loan::size),
                Held::Bytes(bytes) => bytes.len(),
                Held::Nothing => 0,
            },
        }
    }

    /// Takes a loan over from an operation that has ended.
    pub fn adopt(&mut self, loan: LoanOf<W>) {
        self.state_mut().kept.hold(Some(loan), Held::Loan);
    }

    /// Sends these bytes, or receives over them.
    pub fn hold_bytes(&mut self, bytes: Box<[u8]>) {
        self.hold(Held::Bytes(bytes));
    }

    /// The bytes of a buffer of our own.
    pub fn bytes(&self) -> Option<&[u8]> {
        let Kept::Elsewhere { held: Held::Bytes(bytes), .. } = &self.state().kept else { return None };
        Some(bytes)
    }

    /// Whether the loan's memory can be received into as it lies.
    pub fn lands_in_place(&self) -> bool {
        self.lent_landing().is_some()
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
        let Some(convertor) = self.convertor() else { return Ok(false) };
        let Some(piece) = convertor.device_landing() else { return Ok(false) };
        let register = |domain| Registration::to_receive(domain, piece, convertor.device());
        let registration = domain.map(register).transpose()?;
        self.hold(Held::Device(registration));
        Ok(true)
    }

    /// Whether the host gave it up.
    pub fn is_given_up(&self) -> bool {
        self.0.watched().is_given_up()
    }

    /// Ends the operation: its memory goes back to where it came from, a registration is given up.
    pub fn end(self) -> Ended<W> {
        let slot = ManuallyDrop::new(self).0;
        // SAFETY: initialised, and moved out once: the lease is gone, and what is written here next does not
        // drop what was there.
        let State { kept, body } = unsafe { slot.state().read() };
        let (home, loan, held) = kept.into_parts();
        if let Some(home) = home {
            home.take_back(slot);
        }
        let bytes = if let Held::Bytes(bytes) = held { Some(bytes) } else { None };
        Ended { body, loan, bytes }
    }

    /// Where the message is read from.
    pub(super) fn source(&self) -> Memory {
        let view = self.view();
        let lies = view.map(|view| (view.convertor, view.route));
        let in_place = || Memory::of(lies.and_then(|(convertor, route)| convertor.payload(route)), None);
        let Kept::Elsewhere { held, .. } = &self.state().kept else { return in_place() };
        match held {
            Held::Nothing => Memory::EMPTY,
            Held::Loan => in_place(),
            Held::Device(right) => Memory::of(
                lies.and_then(|(convertor, route)| convertor.device_payload(route)),
                right.as_ref(),
            ),
            Held::Bytes(bytes) => Memory::of(Some(Payload::of(bytes).piece), None),
        }
    }

    /// Where the message is written to.
    pub(super) fn landing(&mut self) -> Memory {
        let convertor = self.convertor();
        let in_place = || Memory::of(convertor.and_then(Convertor::landing), None);
        let Kept::Elsewhere { held, .. } = &mut self.state_mut().kept else { return in_place() };
        match held {
            Held::Nothing => Memory::EMPTY,
            Held::Loan => in_place(),
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
        self.convertor()?.landing()
    }

    /// Ends an operation of the host's whose message of so many bytes lies in the loan's memory, and fits.
    ///
    /// # Errors
    /// The operation itself, if it is another.
    #[inline(always)]
    pub fn end_in_place(self, len: usize) -> std::result::Result<LoanOf<W>, Self> {
        let Kept::InPlace(convertor, _) = &self.state().kept else { return Err(self) };
        if len > convertor.packed_size() {
            return Err(self);
        }
        let slot = ManuallyDrop::new(self).0;
        // SAFETY: it is in place, as was just seen, and the lease is gone.
        Ok(unsafe { slot.move_out() })
    }

    /// Gives the operation to the provider, at the object of this address: what libfabric gets as its context.
    #[inline(always)]
    pub(super) fn posted(self, at: usize) -> NonNull<c_void> {
        self.0.watched().post(at);
        ManuallyDrop::new(self).0.0.cast()
    }

    /// The lease whose context libfabric gives back, or has not taken.
    ///
    /// # Safety
    /// `context` came from [`posted`](Self::posted) of a lease of the same `W`, and this is the only time
    /// that it comes back.
    #[inline(always)]
    pub(super) unsafe fn back(context: NonNull<c_void>) -> Self {
        // SAFETY: the slot of that lease, which stayed as long as the operation was posted.
        let lease = Self(unsafe { Slot::new(context.cast()) });
        lease.0.watched().end();
        lease
    }
}

impl<W: Work> Lease<W> {
    /// Whether what completed with this context is an operation of the host's whose message of so many bytes lies in
    /// the loan's memory, and fits, and is accepted. It is still posted.
    ///
    /// # Safety
    /// That of [`back`](Self::back), which is still to be called.
    #[inline(always)]
    pub(super) unsafe fn is_in_place(
        context: NonNull<c_void>,
        len: usize,
        accept: impl FnOnce(&W) -> bool,
    ) -> bool {
        // SAFETY: the slot of that lease, which stayed as long as the operation was posted.
        let slot: Slot<W> = unsafe { Slot::new(context.cast()) };
        // SAFETY: initialised, and it could come back: nobody else has it.
        let state = unsafe { &*slot.state() };
        matches!(&state.kept, Kept::InPlace(convertor, _) if len <= convertor.packed_size())
            && accept(&state.body)
    }

    /// What is left of such an operation.
    ///
    /// # Safety
    /// That of [`back`](Self::back), and it [is in place](Self::is_in_place).
    #[inline(always)]
    pub(super) unsafe fn back_in_place(context: NonNull<c_void>) -> LoanOf<W> {
        // SAFETY: the slot of that lease, which stayed as long as the operation was posted.
        let slot: Slot<W> = unsafe { Slot::new(context.cast()) };
        slot.watched().end();
        // SAFETY: it has come back, and is in place.
        unsafe { slot.move_out() }
    }
}

impl<W: Work> Drop for Lease<W> {
    fn drop(&mut self) {
        let home = self.state().kept.home();
        // SAFETY: initialised and ours, by the invariant, and not used again: dropped here once.
        unsafe { self.0.state().drop_in_place() };
        if let Some(home) = home {
            home.take_back(self.0);
        }
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

#[cfg(test)]
mod tests {
    use super::super::fake::{self, Buffer, Request};
    use super::super::pool::Pool;
    use super::*;

    #[derive(Clone, Copy)]
    struct Plain;

    impl Work for Plain {
        type Convertor = Buffer;
        type Request = Request;
    }

    #[test]
    fn a_request_is_free_when_its_operation_has_ended() {
        let (place, host) = fake::receive::<Plain>(16);
        let operation = place.install(Plain);
        assert!(operation.lands_in_place() && operation.room() == 16);
        let standing = host.standing();
        assert!(!operation.is_given_up() && standing.id() == operation.id());
        standing.give_up();
        assert!(operation.is_given_up());
        let Err(operation) = operation.end_in_place(17) else { panic!("it is too long") };
        let Ok(loan) = operation.end_in_place(16) else { panic!("it lands in place") };
        assert_eq!(loan.end().number, host.number);
        let (place, host) = fake::receive::<Plain>(16);
        assert_eq!(place.vacate().end().number, host.number);
        assert_eq!(host.standing().context(0), None);
    }

    #[test]
    fn who_is_late_gives_up_nothing() {
        let pool = Pool::<Plain>::default();
        let first = pool.take(Plain);
        let late = pool.standing(first.id()).expect("it is there");
        drop(first);
        let next = pool.take(Plain);
        assert_eq!(next.id().at, late.id().at, "the same memory");
        late.give_up();
        assert!(!next.is_given_up());
        pool.standing(next.id()).expect("it is there").give_up();
        assert!(next.is_given_up());
    }

    #[test]
    fn an_operation_with_a_buffer_of_its_own_does_not_end_in_place() {
        let (place, _host) = fake::receive::<Plain>(16);
        let mut operation = place.install(Plain);
        operation.hold_bytes(vec![3; 16].into());
        let Err(operation) = operation.end_in_place(16) else { panic!("the bytes are elsewhere") };
        let Ended { loan, bytes, .. } = operation.end();
        assert!(loan.is_some() && bytes.is_some_and(|bytes| *bytes == [3; 16]));
    }
}

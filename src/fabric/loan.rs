//! What a host lends for one message: memory described by its convertor, and the request that ends it.
//!
//! A [`Loan`] is the right to that memory for as long as the request is open. It is not `Copy`: whoever
//! completes the request must give the loan up first ([`Loan::end`]), and an operation that is posted
//! holds its loan, so that safe code can neither complete a request whose memory the provider still
//! uses nor touch memory whose request is complete. A blocking call lends a [`View`] instead, for the
//! span of the call.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use super::objects::Domain;
use super::registration::{Device, Registration};
use crate::error::Result;

/// How the host prepared the convertor of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Only its base is valid, and that is the first byte of data.
    Placed,
    /// Fully prepared: its base is the user's buffer.
    Prepared,
}

/// Where one piece of memory lies: an address, and no right to it.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its first byte.
    pub start: *mut u8,
    /// Bytes.
    pub len: usize,
}

impl Piece {
    /// No memory.
    pub const EMPTY: Self = Self { start: ptr::null_mut(), len: 0 };
}

impl From<Piece> for libc::iovec {
    #[inline]
    fn from(piece: Piece) -> Self {
        Self { iov_base: piece.start.cast(), iov_len: piece.len }
    }
}

// SAFETY: a plain address, which nothing here dereferences; who posts it proves the right to it.
unsafe impl Send for Piece {}

/// A (buffer, count, datatype) of the host's, to be sent or received.
///
/// # Safety
/// As long as the convertor is lent ([`Loan::new`], [`View::new`]), `payload` and `device_payload` name
/// memory that can be read and does not change, `landing` and `device_landing` memory that can be
/// written and that nobody else looks at; the same on every call. `payload` and `landing` name memory
/// of the processor, the others memory of [`device`](Self::device).
pub unsafe trait Convertor: Copy + Send {
    /// Bytes when packed.
    fn packed_size(self) -> usize;
    /// The bytes to send, if they lie in one piece of host memory.
    fn payload(self, route: Route) -> Option<Piece>;
    /// Where to receive, if it is one piece of host memory.
    fn landing(self) -> Option<Piece>;
    /// As [`payload`](Self::payload), or `None` where more than the convertor has to be asked.
    #[inline]
    fn payload_at_once(self, route: Route) -> Option<Piece> {
        self.payload(route)
    }
    /// As [`landing`](Self::landing), or `None` where more than the convertor has to be asked.
    #[inline]
    fn landing_at_once(self) -> Option<Piece> {
        self.landing()
    }
    /// The bytes to send, if they lie in one piece of device memory.
    fn device_payload(self, route: Route) -> Option<Piece>;
    /// Where to receive, if it is one piece of device memory.
    fn device_landing(self) -> Option<Piece>;
    /// The device that the memory is on, if libfabric has a name for it.
    fn device(self) -> Option<Device>;
    /// Packs everything.
    fn pack(self, into: &mut [u8]) -> Result<()>;
    /// Unpacks what was received.
    fn unpack(self, from: &[u8]) -> Result<()>;
}

/// A message to be sent, lent for `'a`.
#[derive(Clone, Copy)]
pub struct View<'a, C> {
    pub(super) convertor: C,
    pub(super) route: Route,
    lent: PhantomData<&'a ()>,
}

impl<'a, C: Convertor> View<'a, C> {
    /// # Safety
    /// The convertor is alive, and the memory that it describes is lent, for all of `'a`.
    #[inline]
    pub unsafe fn new(convertor: C, route: Route) -> Self {
        Self { convertor, route, lent: PhantomData }
    }

    /// Bytes when packed.
    #[inline]
    pub fn size(self) -> usize {
        self.convertor.packed_size()
    }

    /// The bytes, if they lie in one piece of host memory.
    #[inline]
    pub fn payload(self) -> Option<Payload<'a>> {
        self.convertor.payload(self.route).map(|piece| Payload { piece, lent: PhantomData })
    }

    /// The same, if nobody has to be asked for it.
    #[inline]
    pub fn payload_at_once(self) -> Option<Payload<'a>> {
        self.convertor.payload_at_once(self.route).map(|piece| Payload { piece, lent: PhantomData })
    }

    /// The bytes, if they lie in one piece of device memory. With a domain, the provider gets a
    /// registration of them.
    ///
    /// # Errors
    /// The provider does not register them.
    pub fn on_device(self, domain: Option<&Arc<Domain>>) -> Result<Option<Source<'a>>> {
        let Some(piece) = self.convertor.device_payload(self.route) else { return Ok(None) };
        let register = |domain| Registration::to_send(domain, piece, self.convertor.device());
        let registration = domain.map(register).transpose()?;
        Ok(Some(Source { piece, registration, lent: PhantomData }))
    }

    /// The bytes in a buffer.
    ///
    /// # Errors
    /// Of the host's.
    pub fn packed(self) -> Result<Box<[u8]>> {
        let mut buffer = vec![0_u8; self.convertor.packed_size()].into_boxed_slice();
        self.convertor.pack(&mut buffer)?;
        Ok(buffer)
    }
}

/// Bytes in host memory that can be read, and do not change, for `'a`.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    pub(super) piece: Piece,
    lent: PhantomData<&'a [u8]>,
}

impl<'a> Payload<'a> {
    /// No bytes.
    pub const EMPTY: Self = Self { piece: Piece::EMPTY, lent: PhantomData };

    /// These bytes.
    pub fn of(bytes: &'a [u8]) -> Self {
        let piece = Piece { start: bytes.as_ptr().cast_mut(), len: bytes.len() };
        Self { piece, lent: PhantomData }
    }

    /// Their number.
    #[inline]
    pub fn len(&self) -> usize {
        self.piece.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.piece.len == 0
    }
}

/// A message in one piece of host or device memory that can be read, and does not change, for `'a`.
pub struct Source<'a> {
    piece: Piece,
    registration: Option<Registration>,
    lent: PhantomData<&'a ()>,
}

impl<'a> From<Payload<'a>> for Source<'a> {
    fn from(bytes: Payload<'a>) -> Self {
        Self { piece: bytes.piece, registration: None, lent: PhantomData }
    }
}

impl Source<'_> {
    pub(super) fn memory(&self) -> Memory {
        Memory::of(Some(self.piece), self.registration.as_ref())
    }

    pub(super) fn into_registration(self) -> Option<Registration> {
        self.registration
    }
}

/// Memory of an operation that is about to be posted, and what the provider is shown with it.
pub(super) struct Memory {
    pub(super) piece: Piece,
    pub(super) descriptor: *mut c_void,
}

impl From<Piece> for Memory {
    /// Memory that needs no descriptor.
    #[inline(always)]
    fn from(piece: Piece) -> Self {
        Self { piece, descriptor: ptr::null_mut() }
    }
}

impl Memory {
    /// None.
    pub(super) const EMPTY: Self = Self { piece: Piece::EMPTY, descriptor: ptr::null_mut() };

    pub(super) fn of(piece: Option<Piece>, right: Option<&Registration>) -> Self {
        let descriptor = right.map_or(ptr::null_mut(), Registration::descriptor);
        Self { piece: piece.unwrap_or(Piece::EMPTY), descriptor }
    }
}

/// The memory of one message, and the request that ends it.
pub struct Loan<C, R> {
    convertor: C,
    request: R,
    route: Route,
}

impl<C: Convertor, R> Loan<C, R> {
    /// # Safety
    /// The convertor stays alive, and the memory that it describes stays lent, until `request` is
    /// completed or the loan is dropped without that.
    #[inline]
    pub unsafe fn new(convertor: C, route: Route, request: R) -> Self {
        Self { convertor, request, route }
    }

    /// The message, to be looked at or sent.
    #[inline]
    pub fn view(&self) -> View<'_, C> {
        View { convertor: self.convertor, route: self.route, lent: PhantomData }
    }

    /// Bytes of the message, or of its room.
    #[inline]
    pub fn size(&self) -> usize {
        self.convertor.packed_size()
    }

    /// Puts what was received in its place.
    ///
    /// # Errors
    /// Of the host's.
    pub fn unpack(&mut self, from: &[u8]) -> Result<()> {
        self.convertor.unpack(from)
    }

    /// Gives the memory up. The request can be completed now.
    #[inline]
    pub fn end(self) -> R {
        self.request
    }

    #[inline]
    pub(super) fn convertor(&self) -> C {
        self.convertor
    }

    /// What it is made of.
    #[inline(always)]
    pub(super) fn parts(self) -> (C, Route, R) {
        (self.convertor, self.route, self.request)
    }
}

//! The caller, as a matcher sees a host. Everything is numbers that are looked up: a matcher may keep what it is given for
//! as long as it likes.

use std::marker::PhantomData;

use super::component::Listed;
use super::requests::End;
use crate::capi::abi::{HAWSER_LOG_ERROR, HAWSER_LOG_WARNING};
use crate::capi::code::{HAWSER_ERR_CANCELLED, HAWSER_ERR_SYSTEM, HAWSER_ERR_TRUNCATED, HAWSER_SUCCESS};
use crate::capi::handle::Key;
use crate::error::{Error, Result};
use crate::fabric::{Device, Piece};
use crate::link::Lent;
use crate::mtl::{self, Convertor, Envelope, Outcome, Route, Upcalls};

/// The program that has a component open.
pub(super) struct Program<T>(PhantomData<fn() -> T>);

/// A context: a communicator of all processes, in which each has the rank that its name says.
pub(super) struct Comm<T> {
    id: u32,
    of: PhantomData<fn() -> T>,
}

/// The process of a rank.
pub(super) struct Proc<T> {
    rank: i32,
    of: PhantomData<fn() -> T>,
}

/// A request of the desk's.
pub(super) struct Req<T> {
    key: Key,
    of: PhantomData<fn() -> T>,
}

/// One piece of the caller's memory, as [`Lent`] has it: until the request with it has ended, or its call returns.
#[derive(Clone, Copy)]
pub(super) struct Buffer(pub(super) Lent);

macro_rules! copies {
    ($($type:ident),*) => {$(
        impl<T> Clone for $type<T> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $type<T> {}
    )*};
}
copies!(Program, Comm, Proc);

impl<T> Comm<T> {
    #[inline]
    pub(super) const fn new(id: u32) -> Self {
        Self { id, of: PhantomData }
    }
}

impl<T> Proc<T> {
    #[inline]
    pub(super) const fn new(rank: i32) -> Self {
        Self { rank, of: PhantomData }
    }
}

impl<T> Req<T> {
    #[inline]
    pub(super) const fn new(key: Key) -> Self {
        Self { key, of: PhantomData }
    }
}

impl<T: Listed> mtl::Communicator for Comm<T> {
    type Peer = Proc<T>;

    #[inline]
    fn context_id(self) -> u32 {
        self.id
    }

    /// The caller says it, at every process.
    #[inline]
    fn is_global(self) -> bool {
        true
    }

    fn extended_id(self) -> [u64; 2] {
        [u64::from(self.id), 0]
    }

    fn size(self) -> usize {
        0
    }

    fn note(self) -> usize {
        0
    }

    fn set_note(self, _note: usize) {}

    #[inline]
    fn rank(self) -> i32 {
        T::component().desk().rank()
    }

    #[inline]
    fn peer(self, rank: i32) -> Result<Proc<T>> {
        self.peer_at_hand(rank).ok_or(Error::Unreachable)
    }

    #[inline]
    fn peer_at_hand(self, rank: i32) -> Option<Proc<T>> {
        T::component().desk().is_known(rank).then(|| Proc::new(rank))
    }
}

impl<T: Listed> mtl::Peer for Proc<T> {
    #[inline]
    fn note(self) -> u64 {
        T::component().desk().note(self.rank)
    }

    fn set_note(self, note: u64) {
        T::component().desk().set_note(self.rank, note);
    }

    fn published(self) -> Result<Vec<u8>> {
        T::component().desk().published(T::COMPONENT, self.rank)
    }
}

const fn status(outcome: Outcome) -> i32 {
    match outcome {
        Outcome::Success => HAWSER_SUCCESS,
        Outcome::Truncated => HAWSER_ERR_TRUNCATED,
        Outcome::Cancelled => HAWSER_ERR_CANCELLED,
        Outcome::Failed => HAWSER_ERR_SYSTEM,
    }
}

impl<T: Listed> mtl::Request for Req<T> {
    #[inline]
    fn sent(self, outcome: Outcome) {
        T::component().desk().end(self.key, End { status: status(outcome), envelope: None });
    }

    #[inline]
    fn received(self, envelope: Envelope, outcome: Outcome) {
        T::component().desk().end(self.key, End { status: status(outcome), envelope: Some(envelope) });
    }
}

impl Buffer {
    #[inline]
    fn piece(self) -> Piece {
        Piece { start: self.0.as_ptr().cast_mut(), len: self.0.len() }
    }
}

// SAFETY: the caller lends the memory, as the functions say, until the request has ended or the call returns: it leaves
// what is sent unchanged, and what is received into alone. It is one piece, and the processor's, by its promise.
unsafe impl Convertor for Buffer {
    #[inline]
    fn packed_size(self) -> usize {
        self.0.len()
    }

    #[inline]
    fn payload(self, _route: Route) -> Option<Piece> {
        Some(self.piece())
    }

    #[inline]
    fn landing(self) -> Option<Piece> {
        Some(self.piece())
    }

    fn device_payload(self, _route: Route) -> Option<Piece> {
        None
    }

    fn device_landing(self) -> Option<Piece> {
        None
    }

    fn device(self) -> Option<Device> {
        None
    }

    fn pack(self, into: &mut [u8]) -> Result<()> {
        if into.len() > self.0.len() {
            return Err(Error::BadParameter);
        }
        self.0.read(0, into);
        Ok(())
    }

    fn unpack(self, from: &[u8]) -> Result<()> {
        if from.len() > self.0.len() {
            return Err(Error::BadParameter);
        }
        self.0.write(0, from);
        Ok(())
    }
}

/// Says something to the caller's people.
fn tell<T: Listed>(level: u32, text: &str) {
    if let Some(caller) = T::component().desk().caller() {
        caller.log(level, &format!("{}: {text}", T::COMPONENT.to_string_lossy()));
    }
}

impl<T: Listed> Upcalls for Program<T> {
    type Comm = Comm<T>;
    type Proc = Proc<T>;
    type Conv = Buffer;
    type Req = Req<T>;

    /// `isend` returns a code.
    const SENDS_WAIT: bool = false;

    /// There is nobody else here that could make any.
    fn progress() {
        std::thread::yield_now();
    }

    #[inline]
    fn is_here() -> bool {
        T::component().desk().is_here()
    }

    fn notice(_topic: &str, text: &str) {
        tell::<T>(HAWSER_LOG_WARNING, text);
    }

    fn last_words(text: &str) {
        tell::<T>(HAWSER_LOG_ERROR, text);
    }
}

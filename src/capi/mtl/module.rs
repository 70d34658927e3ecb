//! A module: a matcher, whichever its type, and what C asks of it.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::abi::{HAWSER_ANY_TAG, HAWSER_SYNCHRONOUS, Matched};
use super::component::Listed;
use super::program::{Buffer, Comm, Proc, Program, Req};
use super::requests::{End, Owed, Wish};
use super::{abi, desk};
use crate::capi::abi::{Endpoint, HAWSER_LOG_WARNING};
use crate::capi::code::{
    self, HAWSER_DONE, HAWSER_ERR_ARGUMENT, HAWSER_ERR_NOT_FOUND, HAWSER_SUCCESS, Outcome,
};
use crate::capi::handle::Key;
use crate::capi::host::Context;
use crate::error::Result;
use crate::fabric::{Loan, Operation, Place, Route, Standing, View};
use crate::link::Lent;
use crate::mtl::{Claim, Component as _, Envelope, Keep, Limits, Matcher, Selector};

/// Passes that a module which ends makes at most to hear how its last operations have ended.
const LAST: usize = 1000;

/// What a message is sent or received as.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) peer: Endpoint,
    pub(super) context: u32,
    pub(super) tag: i32,
}

/// What the caller gives for a request.
#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) bytes: Lent,
    pub(super) callback: Matched,
    pub(super) context: Context,
}

/// A request that is to be begun.
///
/// INVARIANT: the memory is that of the desk's request, which has as many words as the matcher asks for, 8 bytes each,
/// and stays until the request has ended or is forgotten; the buffer is lent for so long.
struct Begun<T> {
    buffer: Buffer,
    memory: NonNull<u64>,
    request: Req<T>,
}

/// A matcher behind its type.
trait Core<T: Listed>: Send + Sync {
    /// Words of an operation.
    fn words(&self) -> usize;
    fn add_peer(&self, peer: Proc<T>) -> Result<()>;
    fn remove_peer(&self, peer: Proc<T>);
    fn send(&self, comm: Comm<T>, to: i32, tag: i32, bytes: Buffer, synchronous: bool) -> Result<()>;
    fn isend(&self, comm: Comm<T>, to: i32, tag: i32, begun: Begun<T>, synchronous: bool) -> Result<()>;
    fn irecv(&self, comm: Comm<T>, from: Selector, tag: Selector, begun: Begun<T>) -> Result<()>;
    fn iprobe(&self, comm: Comm<T>, from: Selector, tag: Selector) -> Result<Option<Envelope>>;
    fn improbe(&self, comm: Comm<T>, from: Selector, tag: Selector) -> Result<Option<Claim>>;
    fn imrecv(&self, message: u64, begun: Begun<T>) -> Result<()>;
    /// Cancels the receive whose memory this is.
    ///
    /// # Safety
    /// It was begun by `irecv` or `imrecv`, and the memory stays for the time of the call.
    unsafe fn cancel(&self, memory: NonNull<u64>);
    fn progress(&self) -> usize;
}

struct Shell<T, M>(M, PhantomData<fn() -> T>);

impl<T: Listed, M: Matcher<Program<T>>> Shell<T, M> {
    #[inline]
    fn place(begun: Begun<T>) -> Place<M::Work> {
        let Begun { buffer, memory, request } = begun;
        // SAFETY: a number, and memory that is lent until the request has ended, by the invariant of `Begun`.
        let loan = unsafe { Loan::new(buffer, Route::Prepared, request) };
        // SAFETY: memory of the desk's, as long as an operation and aligned to its words, which stays and is nobody else's
        // until then, by the same.
        unsafe { Place::new(memory.cast(), loan) }
    }
}

impl<T: Listed, M: Matcher<Program<T>>> Core<T> for Shell<T, M> {
    fn words(&self) -> usize {
        size_of::<Operation<M::Work>>().div_ceil(size_of::<u64>())
    }

    fn add_peer(&self, peer: Proc<T>) -> Result<()> {
        self.0.add_peer(peer)
    }

    fn remove_peer(&self, peer: Proc<T>) {
        self.0.remove_peer(peer);
    }

    fn send(&self, comm: Comm<T>, to: i32, tag: i32, bytes: Buffer, synchronous: bool) -> Result<()> {
        // SAFETY: lent for the time of the call, by the promise of a `Buffer`.
        let view = unsafe { View::new(bytes, Route::Prepared) };
        self.0.send(comm, to, tag, view, synchronous)
    }

    fn isend(&self, comm: Comm<T>, to: i32, tag: i32, begun: Begun<T>, synchronous: bool) -> Result<()> {
        self.0.isend(comm, to, tag, Self::place(begun), synchronous)
    }

    fn irecv(&self, comm: Comm<T>, from: Selector, tag: Selector, begun: Begun<T>) -> Result<()> {
        self.0.irecv(comm, from, tag, Self::place(begun))
    }

    fn iprobe(&self, comm: Comm<T>, from: Selector, tag: Selector) -> Result<Option<Envelope>> {
        self.0.iprobe(comm, from, tag)
    }

    fn improbe(&self, comm: Comm<T>, from: Selector, tag: Selector) -> Result<Option<Claim>> {
        self.0.improbe(comm, from, tag)
    }

    fn imrecv(&self, message: u64, begun: Begun<T>) -> Result<()> {
        self.0.imrecv(message, Self::place(begun))
    }

    unsafe fn cancel(&self, memory: NonNull<u64>) {
        // SAFETY: a place of this memory was installed or vacated: every receive of a matcher's does that; and it stays,
        // by the contract.
        let standing = unsafe { Standing::at(memory.cast()) };
        self.0.cancel(&standing);
    }

    fn progress(&self) -> usize {
        self.0.progress()
    }
}

/// Puts a matcher into a box.
pub(super) struct Boxed;

impl<T: Listed> Keep<Program<T>> for Boxed {
    type Kept = (Module<T>, Vec<u8>);

    fn keep<M: Matcher<Program<T>>>(self, matcher: M, name: Vec<u8>) -> Self::Kept {
        let limits = matcher.limits();
        (Module { limits, core: Box::new(Shell(matcher, PhantomData)) }, name)
    }
}

/// A module.
pub(super) struct Module<T> {
    limits: Limits,
    core: Box<dyn Core<T>>,
}

impl<T: Listed> Module<T> {
    #[inline]
    fn desk() -> &'static desk::Desk {
        T::component().desk()
    }

    /// What it can match.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Words of an operation.
    pub(super) fn words(&self) -> usize {
        self.core.words()
    }

    /// Makes peers known, and returns their endpoints; zeros for those that are not reached.
    pub(super) fn add(&self, names: &[u64]) -> Outcome<Vec<Endpoint>> {
        for name in names {
            if desk::rank_of(*name)? > self.limits.max_source {
                return Err(HAWSER_ERR_ARGUMENT);
            }
        }
        let met = Self::desk().meet(names)?;
        let reach = |held: desk::Held<'_>| match self.core.add_peer(Proc::new(held.rank())) {
            Ok(()) => held.endpoint(),
            Err(error) => {
                let rank = held.rank();
                Self::desk().give_up(&held);
                if let Some(caller) = Self::desk().caller() {
                    let component = T::COMPONENT.to_string_lossy();
                    let line = format!(
                        "{component}: the process of rank {rank} is not reached ({error}): every process must have published its record before, and use the same provider"
                    );
                    caller.log(HAWSER_LOG_WARNING, &line);
                }
                Endpoint { id: 0 }
            }
        };
        Ok(met.into_iter().map(reach).collect())
    }

    /// Forgets peers; none if one of the handles is stale, or something is under way with one of them.
    pub(super) fn delete(&self, endpoints: &[Endpoint]) -> Outcome {
        let ranks = Self::desk().begin_parting(endpoints)?;
        ranks.iter().for_each(|rank| self.core.remove_peer(Proc::new(*rank)));
        Self::desk().part(&ranks);
        Ok(HAWSER_SUCCESS)
    }

    #[inline]
    fn comm(&self, context: u32) -> Outcome<Comm<T>> {
        if context > self.limits.max_context { Err(HAWSER_ERR_ARGUMENT) } else { Ok(Comm::new(context)) }
    }

    /// A tag that a message may have.
    #[inline]
    fn tag(&self, tag: i32) -> Outcome<i32> {
        if (0..=self.limits.max_tag).contains(&tag) { Ok(tag) } else { Err(HAWSER_ERR_ARGUMENT) }
    }

    /// What a receive or a probe asks for, and the peer that it asks for alone.
    #[inline]
    fn wanted(&self, target: Target) -> Outcome<(Comm<T>, Selector, Selector, Option<desk::Held<'static>>)> {
        let Target { peer, context, tag } = target;
        let comm = self.comm(context)?;
        let tag = if tag == HAWSER_ANY_TAG { Selector::ANY } else { Selector(self.tag(tag)?) };
        let with = if peer.id == 0 { None } else { Some(Self::desk().hold(peer)?) };
        let from = with.as_ref().map_or(Selector::ANY, |held| Selector(held.rank()));
        Ok((comm, from, tag, with))
    }

    /// What a send says.
    #[inline]
    fn said(&self, target: Target, flags: u32) -> Outcome<(Comm<T>, desk::Held<'static>, i32, bool)> {
        if flags & !HAWSER_SYNCHRONOUS != 0 {
            return Err(HAWSER_ERR_ARGUMENT);
        }
        let (comm, tag) = (self.comm(target.context)?, self.tag(target.tag)?);
        Ok((comm, Self::desk().hold(target.peer)?, tag, flags & HAWSER_SYNCHRONOUS != 0))
    }

    /// Sends, and waits for the end.
    pub(super) fn send(&self, target: Target, bytes: Lent, flags: u32) -> Outcome {
        let (comm, to, tag, synchronous) = self.said(target, flags)?;
        let sent = self.core.send(comm, to.rank(), tag, Buffer(bytes), synchronous);
        Ok(code::status(sent))
    }

    /// Begins a request, by what `start` asks of the matcher. What is owed, if it is over already.
    #[inline]
    fn begin(
        posted: Posted,
        with: Option<i32>,
        is_receive: bool,
        start: impl FnOnce(Begun<T>) -> Outcome<()>,
    ) -> Outcome<(Key, Option<Owed>)> {
        let Posted { bytes, callback, context } = posted;
        if callback.is_none() {
            return Err(HAWSER_ERR_ARGUMENT);
        }
        let desk = Self::desk();
        let (key, memory) = desk.begin(Wish { callback, context, with, is_receive })?;
        // INVARIANT: the desk's memory of this request, and a buffer that is lent until its end.
        let begun = Begun { buffer: Buffer(bytes), memory, request: Req::new(key) };
        if let Err(code) = start(begun) {
            desk.requests(|requests| requests.forget(key));
            return Err(code);
        }
        Ok((key, desk.requests(|requests| requests.begun(key))?))
    }

    /// Starts a send. The request; none where it is over.
    pub(super) fn isend(&self, target: Target, posted: Posted, flags: u32) -> Outcome<(i32, abi::Request)> {
        let (comm, to, tag, synchronous) = self.said(target, flags)?;
        let start = |begun| self.core.isend(comm, to.rank(), tag, begun, synchronous).map_err(code::of);
        match Self::begin(posted, Some(to.rank()), false, start)? {
            (key, None) => Ok((HAWSER_SUCCESS, Self::desk().request(key))),
            (_, Some(Owed { end: End { status: HAWSER_SUCCESS, .. }, .. })) => {
                Ok((HAWSER_DONE, abi::Request { id: 0 }))
            }
            (_, Some(owed)) => Err(owed.end.status),
        }
    }

    /// The request of a receive that has begun.
    #[inline]
    fn receiving(begun: (Key, Option<Owed>)) -> abi::Request {
        let (key, owed) = begun;
        if let Some(owed) = owed {
            Self::desk().requests(|requests| requests.postpone(owed));
        }
        Self::desk().request(key)
    }

    /// Starts a receive.
    pub(super) fn irecv(&self, target: Target, posted: Posted) -> Outcome<abi::Request> {
        let (comm, from, tag, with) = self.wanted(target)?;
        let start = |begun| self.core.irecv(comm, from, tag, begun).map_err(code::of);
        Self::begin(posted, with.as_ref().map(desk::Held::rank), true, start).map(Self::receiving)
    }

    /// Whether a message is there.
    pub(super) fn iprobe(&self, target: Target) -> Outcome<Envelope> {
        let (comm, from, tag, _held) = self.wanted(target)?;
        self.core.iprobe(comm, from, tag).map_err(code::of)?.ok_or(HAWSER_ERR_NOT_FOUND)
    }

    /// The same, and it is the caller's.
    pub(super) fn improbe(&self, target: Target) -> Outcome<(Envelope, abi::Message)> {
        let (comm, from, tag, _held) = self.wanted(target)?;
        let key = Self::desk().reserve_message()?;
        let found = self.core.improbe(comm, from, tag).map_err(code::of);
        let claimed = found.as_ref().ok().and_then(|claim| claim.map(|claim| claim.message));
        let message = Self::desk().claim(key, claimed);
        let claim = found?.ok_or(HAWSER_ERR_NOT_FOUND)?;
        Ok((claim.envelope, message))
    }

    /// Starts the receive of such a message.
    pub(super) fn imrecv(&self, message: abi::Message, posted: Posted) -> Outcome<abi::Request> {
        let start = |begun| {
            let message = Self::desk().take(message)?;
            self.core.imrecv(message, begun).map_err(code::of)
        };
        Self::begin(posted, None, true, start).map(Self::receiving)
    }

    /// Gives a receive up, if it has matched nothing.
    pub(super) fn cancel(&self, request: abi::Request) -> Outcome {
        let key = Self::desk().key_of(request)?;
        let memory = Self::desk().requests(|requests| requests.cancel(key))?;
        // SAFETY: a receive that has begun; its memory stays until `cancelled` below.
        unsafe { self.core.cancel(memory) };
        Self::desk().requests(|requests| requests.cancelled(key));
        Ok(HAWSER_SUCCESS)
    }

    /// The value of a counter.
    pub(super) fn counter(name: &str) -> Outcome<u64> {
        let found =
            T::Transport::counters().iter().find(|counter| counter.name.to_bytes() == name.as_bytes());
        let value = found.map(|counter| counter.count.load(std::sync::atomic::Ordering::Relaxed));
        value.ok_or(HAWSER_ERR_NOT_FOUND)
    }

    /// Calls back what is owed, and has the matcher make progress.
    #[inline]
    pub(super) fn progress(&self) -> usize {
        let paid = Self::desk().pay();
        if Self::desk().is_here() { paid + self.core.progress() } else { paid }
    }

    /// Hears of what has ended.
    pub(super) fn wind_up(&self) {
        for _ in 0..LAST {
            if self.progress() == 0 || !Self::desk().is_here() {
                break;
            }
        }
    }
}

//! Sends: injected when short, posted otherwise, with an answer awaited when synchronous.

use std::sync::atomic::Ordering;

use super::answer::AnswerKey;
use super::body::{Op, Seen};
use super::doubt::{self, Doubt};
use super::exchange::Waiting;
use super::{Body, Ofi, counters};
use crate::error::{Error, Result};
use crate::fabric::{Address, Context, Payload, Place, PostError, Source, Unposted, View};
use crate::link::Clock;
use crate::mtl::{Communicator, Outcome, Peer, Request, Upcalls};
use crate::wire::tag::Layout;

/// Passes of progress in which there is to be room for a send that does not wait for it.
pub(super) const PASSES: u32 = 32;

/// Short messages that may go in a row without one whose end is told of, over TCP: libfabric's providers drop what is
/// injected for a peer that has ended, and say nothing.
const SILENT: u32 = 128;

/// So many short messages may go; any number where it is not over TCP.
pub(super) const fn silence(is_tcp: bool) -> u32 {
    if is_tcp { SILENT } else { u32::MAX }
}

/// Where a message goes and what its tag bits are.
#[derive(Clone, Copy)]
pub(super) struct Target<H: Upcalls> {
    comm: H::Comm,
    context: usize,
    to: Address,
    bits: u64,
    data: Option<u64>,
    /// The peer's rank, which its answer carries where the tag can.
    dest: i32,
}

/// A send that could not be started, and why.
pub(super) struct Unsent<H: Upcalls> {
    pub(super) operation: Op<H>,
    pub(super) error: Error,
}

impl<H: Upcalls> Ofi<H> {
    /// `index` is what the peer calls the communicator.
    pub(super) fn target<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        index: u32,
    ) -> Result<Target<H>> {
        let context = self.context_of(comm);
        let rank = comm.rank();
        Ok(Target {
            comm,
            context,
            to: self.address(comm, dest, context)?,
            bits: L::send(index, rank, tag),
            data: L::DIRECTED.then_some(rank as u32 as u64),
            dest,
        })
    }

    fn fits(&self, len: usize) -> Result<()> {
        if len > self.max_message { Err(self.too_big(len)) } else { Ok(()) }
    }

    #[cold]
    fn too_big(&self, len: usize) -> Error {
        H::notice(
            "message too big",
            &format!(
                "a message of {len} bytes exceeds the provider's limit of {} bytes and was not sent; send smaller pieces or choose another provider",
                self.max_message
            ),
        );
        Error::MessageTooBig
    }

    /// The message in a buffer, where the provider cannot take it as it lies.
    fn packed(view: View<'_, H::Conv>) -> Result<Box<[u8]>> {
        let buffer = view.packed()?;
        counters::COPIED_SENDS.add(1);
        counters::COPIED_BYTES.add(buffer.len() as u64);
        Ok(buffer)
    }

    /// To a known peer, in one piece, injected at the first try. All else is false.
    #[inline(always)]
    fn inject_once<'a, L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        bytes: impl FnOnce() -> Option<Payload<'a>>,
        inject: impl FnOnce(&Context<Body<H>>, Payload<'a>, Address, u64, Option<u64>) -> bool,
    ) -> bool {
        if comm.is_global()
            && let Some(to) = self.known(comm, dest)
            && let Some(bytes) = bytes()
            && bytes.len() < self.short
            && self.may_be_silent()
        {
            let rank = comm.rank();
            let bits = L::send(comm.context_id(), rank, tag);
            return inject(self.endpoint.first(), bytes, to, bits, L::DIRECTED.then_some(rank as u32 as u64));
        }
        false
    }

    /// Whether the next short message may be one whose end nobody is told of; it is counted. That threads count for each
    /// other, and now and then past each other, does no harm.
    #[inline(always)]
    fn may_be_silent(&self) -> bool {
        let left = self.silent.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        self.silent.store(left - 1, Ordering::Relaxed);
        true
    }

    /// Whether the end of this one is to be told of.
    fn is_silence_over(&self) -> bool {
        let is_over = self.silent.load(Ordering::Relaxed) == 0;
        if is_over {
            self.break_silence();
        }
        is_over && self.is_tcp
    }

    /// The end of what is posted now is told of.
    fn break_silence(&self) {
        self.silent.store(silence(self.is_tcp), Ordering::Relaxed);
    }

    /// The short path: injected at the first try, where this thread has the context at once. Else false.
    #[inline(always)]
    pub fn send_at_once<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        view: View<'_, H::Conv>,
    ) -> bool {
        self.inject_once::<L>(comm, dest, tag, || view.payload_at_once(), Context::inject_at_once)
    }

    /// The same, after other threads; whether it is sent. What the short path was refused is asked for once more here,
    /// since that says no more than that it has not sent: this answer counts.
    ///
    /// # Errors
    /// The provider refuses it.
    fn inject_in_turn<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        view: View<'_, H::Conv>,
    ) -> Result<bool> {
        let mut refusal = None;
        let sent = self.inject_once::<L>(
            comm,
            dest,
            tag,
            || view.payload(),
            |context, bytes, to, bits, data| {
                let posted = context.inject(bytes, to, bits, data);
                refusal = posted.err().filter(|error| *error != PostError::TryAgain);
                posted.is_ok()
            },
        );
        refusal.map_or(Ok(sent), |error| Err(Error::from(error)))
    }

    /// Sends and returns when the buffer may be used again; when `synchronous`, when it was matched.
    ///
    /// # Errors
    /// The peer is unknown, the message too long or not to be packed, or the provider failed to send it.
    pub fn send<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        view: View<'_, H::Conv>,
        synchronous: bool,
    ) -> Result<()> {
        if !synchronous && self.inject_in_turn::<L>(comm, dest, tag, view)? {
            return Ok(());
        }
        let target = self.target::<L>(comm, dest, tag, self.index_at::<L>(comm, dest)?)?;
        self.fits(view.size())?;
        if let Some(bytes) = view.payload() {
            return self.send_bytes::<L>(target, bytes, synchronous);
        }
        // Bytes that are injected are read by the processor: those on a device are not (ofiwg/libfabric#5861).
        if let Some(source) = self.on_device(view) {
            return self.send_and_wait::<L>(target, &source, synchronous);
        }
        let buffer = Self::packed(view)?;
        self.send_bytes::<L>(target, Payload::of(&buffer), synchronous)
    }

    /// Sends what lies in host memory, and waits as long as it must.
    fn send_bytes<L: Layout>(&self, target: Target<H>, bytes: Payload<'_>, synchronous: bool) -> Result<()> {
        if synchronous || bytes.len() > self.inject_size || self.is_silence_over() {
            return self.send_and_wait::<L>(target, &Source::from(bytes), synchronous);
        }
        let Target { to, bits, data, .. } = target;
        let context = self.context(target.context);
        let inject =
            |()| context.inject(bytes, to, bits, data).map_err(|error| Unposted { given: (), error });
        self.post_to::<L, _, _>(target, (), inject).map_err(|(error, ())| error)
    }

    /// As [`post`](Self::post), of something for a peer, which may have ended.
    #[inline]
    fn post_to<L: Layout, T, R>(
        &self,
        target: Target<H>,
        given: T,
        mut post: impl FnMut(T) -> std::result::Result<R, Unposted<T>>,
    ) -> std::result::Result<R, (Error, T)> {
        match post(given) {
            Ok(posted) => Ok(posted),
            Err(Unposted { given, error: PostError::TryAgain }) if self.is_tcp => {
                self.post_in_doubt::<L, _, _>(target, given, post)
            }
            Err(Unposted { given, error: PostError::TryAgain }) => self.post::<L, _, _>(given, post),
            Err(Unposted { given, error }) => Err((Error::from(error), given)),
        }
    }

    /// Posts something for a peer that may not be there, as long as it may be.
    #[cold]
    fn post_in_doubt<L: Layout, T, R>(
        &self,
        target: Target<H>,
        given: T,
        post: impl FnMut(T) -> std::result::Result<R, Unposted<T>>,
    ) -> std::result::Result<R, (Error, T)> {
        let clock = Clock::new();
        let was_gone = self.is_gone(target.to);
        let mut doubt = if was_gone { Doubt::again() } else { Doubt::new() };
        self.post_until::<L, _, _>(given, post, || {
            let is_lost =
                doubt.is_due(clock.nanos()) && doubt.note(Self::is_refused(target.comm, target.dest));
            if is_lost && !was_gone {
                self.lose(target.to, Some(target.dest));
            }
            is_lost.then_some(Error::Unreachable)
        })
    }

    /// Posts something for a peer, if there is room for it within a few passes.
    pub(super) fn post_now<L: Layout, T, R>(
        &self,
        target: Target<H>,
        given: T,
        mut post: impl FnMut(T) -> std::result::Result<R, Unposted<T>>,
    ) -> std::result::Result<R, (Error, T)> {
        let given = match post(given) {
            Ok(posted) => return Ok(posted),
            Err(Unposted { given, error: PostError::TryAgain }) => given,
            Err(Unposted { given, error }) => return Err((Error::from(error), given)),
        };
        let mut passes = 0;
        let posted = self.post_until::<L, _, _>(given, post, || {
            passes += 1;
            (passes == PASSES).then(|| self.put_back(target, self.clock.nanos()))
        });
        if posted.is_ok() {
            self.doubts.with(|doubts| doubts.forget(target.to));
        }
        posted
    }

    /// Why something is given back to the host, for which its peer has no room: to be tried again, or it is lost.
    pub(super) fn put_back(&self, target: Target<H>, now: u64) -> Error {
        let Target { to, comm, dest, .. } = target;
        let is_refused = || Self::is_refused(comm, dest);
        let is_lost = self.is_tcp
            && if self.is_gone(to) { is_refused() } else { self.is_lost(to, Some(dest), now, is_refused) };
        if is_lost { Error::Unreachable } else { Error::OutOfResource }
    }

    pub(super) fn lose(&self, to: Address, rank: Option<i32>) {
        self.gone.with(|gone| gone.push(to));
        let who =
            rank.map_or_else(|| String::from("a process that awaits answers"), |rank| format!("rank {rank}"));
        H::notice(
            "peer unreachable",
            &format!("{who} has ended: nobody has listened at its address for half a minute"),
        );
    }

    /// Whether nobody listens at the peer's address.
    pub(super) fn is_refused(comm: H::Comm, dest: i32) -> bool {
        let name = comm.peer(dest).and_then(Peer::published);
        name.is_ok_and(|name| doubt::is_refused(&name))
    }

    fn send_and_wait<L: Layout>(
        &self,
        target: Target<H>,
        message: &Source<'_>,
        synchronous: bool,
    ) -> Result<()> {
        let Target { to, data, .. } = target;
        let context = self.context(target.context);
        self.break_silence();
        let send = |bits| {
            let post = |operation| {
                context.send_within(message, to, bits, data, operation, |which| self.wait::<L>(which))
            };
            let operation = self.pool().take(Body::Wait(Seen::NOTHING));
            let operation = self.post_to::<L, _, _>(target, operation, post).map_err(|(error, _)| error)?;
            match &*operation {
                Body::Wait(Seen { ended: Err(code), .. }) => Err(Error::Fabric(*code)),
                _ => Ok(()),
            }
        };
        if !synchronous {
            return send(target.bits);
        }
        let answer = self.await_answer::<L>(target)?;
        send(target.bits | L::SYNC).inspect_err(|_| self.forget_answer(answer))?;
        let mut spins = 0;
        loop {
            match self.answers.take(answer) {
                Some(Outcome::Success) => return Ok(()),
                Some(_) => return Err(Error::Unreachable),
                None => self.turn::<L>(&mut spins),
            }
        }
    }

    /// Posts the receive of the answer to a synchronous send, or lets it wait while the message goes out.
    fn await_answer<L: Layout>(&self, target: Target<H>) -> Result<AnswerKey> {
        counters::SYNCHRONOUS_SENDS.add(1);
        let bits = L::ack(target.bits, target.dest);
        let (answer, receive) = self.answers.begin(self.pool(), target.context);
        let posted = self.post_answer(target.context, target.to, bits, receive);
        posted.map(|()| answer).map_err(|(error, _)| {
            self.answers.abandon(answer);
            error
        })
    }

    /// The short path, as that of a blocking send; the request is completed then. If false, its place is to be made
    /// again.
    #[inline(always)]
    pub fn isend_at_once<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        place: Place<Body<H>>,
    ) -> bool {
        let sent = self.send_at_once::<L>(comm, dest, tag, place.loan().view());
        if sent {
            place.into_loan().end().sent(Outcome::Success);
        }
        sent
    }

    /// Sends; the request completes when the buffer may be used again.
    ///
    /// # Errors
    /// The peer is unknown, the message too long or not to be packed, or the provider refuses it, or has no room for it
    /// and the host's sends do not wait. Then the request is not completed.
    pub fn isend<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        place: Place<Body<H>>,
        synchronous: bool,
    ) -> Result<()> {
        // Tried once: spinning here while the peer spins in its own send would hang both.
        if !synchronous && self.inject_in_turn::<L>(comm, dest, tag, place.loan().view())? {
            place.into_loan().end().sent(Outcome::Success);
            return Ok(());
        }
        let operation = place.install(Body::Send);
        let send = Waiting { operation, dest, tag, synchronous };
        match self.index_or_wait::<L>(comm, send)? {
            Some((index, send)) => self.start::<L>(comm, index, send).map_err(|unsent| unsent.error),
            None => Ok(()),
        }
    }

    /// Posts a nonblocking send to a peer that calls the communicator `index`.
    pub(super) fn start<L: Layout>(
        &self,
        comm: H::Comm,
        index: u32,
        send: Waiting<H>,
    ) -> std::result::Result<(), Unsent<H>> {
        let Waiting { mut operation, dest, tag, synchronous } = send;
        let prepared = self
            .target::<L>(comm, dest, tag, index)
            .and_then(|target| self.load(&mut operation).map(|()| target))
            .and_then(|target| {
                Ok((target, synchronous.then(|| self.await_answer::<L>(target)).transpose()?))
            });
        let (target, answer) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(Unsent { operation, error }),
        };
        let mut bits = target.bits;
        if let Some(answer) = answer {
            *operation = Body::SynchronousSend { answer };
            bits |= L::SYNC;
        }
        let context = self.context(target.context);
        self.break_silence();
        let post = |operation| context.send(target.to, bits, target.data, operation);
        let posted = if H::SENDS_WAIT {
            self.post_to::<L, _, _>(target, operation, post)
        } else {
            self.post_now::<L, _, _>(target, operation, post)
        };
        posted.map_err(|(error, operation)| {
            if let Some(answer) = answer {
                self.forget_answer(answer);
            }
            Unsent { operation, error }
        })
    }

    /// Makes the operation hold the message: as it lies, where the provider can take it so.
    fn load(&self, operation: &mut Op<H>) -> Result<()> {
        let Some(view) = operation.view() else { return Err(Error::BadParameter) };
        self.fits(view.size())?;
        if view.payload().is_some() || self.load_from_device(operation) {
            return Ok(());
        }
        let Some(view) = operation.view() else { return Err(Error::BadParameter) };
        let buffer = Self::packed(view)?;
        operation.hold_bytes(buffer);
        Ok(())
    }

    /// Completes a send of the host's.
    #[inline(never)]
    pub(super) fn sent(&self, operation: Op<H>, outcome: Outcome) {
        if let Some(loan) = operation.end().loan {
            loan.end().sent(outcome);
        }
    }
}

//! Sends: injected when short, posted otherwise, with an answer awaited when synchronous.

use std::cell::Cell;

use super::body::{Kept, Kind};
use super::exchange::Waiting;
use super::{Body, Ofi, counters};
use crate::error::{Error, Result};
use crate::fabric::{Address, Descriptor, Lease, Payload, Place};
use crate::mtl::{Communicator, Convertor, Outcome, Request, Route, Upcalls};
use crate::wire::tag::Layout;

/// Where a message goes and what its tag bits are.
#[derive(Clone, Copy)]
struct Target {
    context: usize,
    to: Address,
    bits: u64,
    data: Option<u64>,
    /// The peer's rank, which its answer carries where the tag can.
    dest: i32,
}

impl<H: Upcalls> Ofi<H> {
    /// `index` is what the peer calls the communicator.
    fn target<L: Layout>(&self, comm: H::Comm, dest: i32, tag: i32, index: u32) -> Result<Target> {
        let context = self.context_of(comm);
        let rank = comm.rank();
        Ok(Target {
            context,
            to: self.address(comm, dest, context)?,
            bits: L::send(index, rank, tag),
            data: L::DIRECTED.then_some(rank as u32 as u64),
            dest,
        })
    }

    /// The bytes to send, packed into a buffer of our own where the provider cannot take them as they lie.
    fn payload(&self, convertor: H::Conv, route: Route) -> Result<(Payload, Kept)> {
        let (bytes, kept) = match convertor.payload(route) {
            Some(bytes) => (bytes, Kept::Nothing),
            None => match self.device_payload(convertor, route) {
                Some(found) => found,
                None => self.packed(convertor)?,
            },
        };
        if bytes.len() > self.max_message {
            return Err(self.too_big(bytes.len()));
        }
        Ok((bytes, kept))
    }

    fn packed(&self, convertor: H::Conv) -> Result<(Payload, Kept)> {
        let mut buffer = vec![0_u8; convertor.packed_size()].into_boxed_slice();
        convertor.pack(&mut buffer)?;
        counters::COPIED_SENDS.add(1);
        counters::COPIED_BYTES.add(buffer.len() as u64);
        Ok((Payload::held(&buffer), Kept::Bounce(buffer)))
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

    /// The short path: to a known peer, in one piece, injected at the first try. All else is false.
    #[inline(always)]
    fn inject_at_once<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        convertor: H::Conv,
        route: Route,
    ) -> bool {
        if comm.is_global()
            && let Some(to) = self.known(comm, dest)
            && let Some(bytes) = convertor.payload(route)
            && bytes.len() < self.short
        {
            let rank = comm.rank();
            let bits = L::send(comm.context_id(), rank, tag);
            return self
                .endpoint
                .first()
                .inject(bytes, to, bits, L::DIRECTED.then_some(rank as u32 as u64))
                .is_ok();
        }
        false
    }

    /// Sends and returns when the buffer may be used again; when `synchronous`, when it was matched.
    #[inline(always)]
    pub fn send<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        convertor: H::Conv,
        route: Route,
        synchronous: bool,
    ) -> Result<()> {
        if !synchronous && self.inject_at_once::<L>(comm, dest, tag, convertor, route) {
            return Ok(());
        }
        self.send_slowly::<L>(comm, dest, tag, convertor, route, synchronous)
    }

    #[inline(never)]
    fn send_slowly<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        convertor: H::Conv,
        route: Route,
        synchronous: bool,
    ) -> Result<()> {
        let target = self.target::<L>(comm, dest, tag, self.index_at::<L>(comm, dest)?)?;
        let (bytes, kept) = self.payload(convertor, route)?;
        // Injected bytes are read by the processor (ofiwg/libfabric#5861).
        if !synchronous && bytes.len() <= self.inject_size && kept.descriptor().is_none() {
            return self.post::<L>(|| {
                self.context(target.context).inject(bytes, target.to, target.bits, target.data)
            });
        }
        self.send_and_wait::<L>(target, bytes, kept, synchronous)
    }

    fn send_and_wait<L: Layout>(
        &self,
        target: Target,
        bytes: Payload,
        kept: Kept,
        synchronous: bool,
    ) -> Result<()> {
        let lease = self.pool.take(Body::new(Kind::Wait));
        let through = kept.descriptor();
        lease.kept.set(kept);
        let posted = self.post_send::<L>(target, bytes, through, synchronous, lease);
        if posted.is_ok() {
            self.wait::<L>(lease);
        }
        drop(lease.kept.take());
        let outcome = lease.outcome.get();
        self.pool.put(lease);
        posted?;
        match outcome {
            Outcome::Success => Ok(()),
            _ => Err(Error::Fabric(0)),
        }
    }

    /// Sends; the request completes when the buffer may be used again.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "the host's arguments")]
    pub fn isend<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        convertor: H::Conv,
        route: Route,
        synchronous: bool,
        request: H::Req,
        place: Place<Body<H>>,
    ) -> Result<()> {
        // Tried once: spinning here while the peer spins in its own send would hang both.
        if !synchronous && self.inject_at_once::<L>(comm, dest, tag, convertor, route) {
            request.sent(Outcome::Success);
            return Ok(());
        }
        self.isend_slowly::<L>(comm, dest, tag, convertor, route, synchronous, request, place)
    }

    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "the host's arguments")]
    fn isend_slowly<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        tag: i32,
        convertor: H::Conv,
        route: Route,
        synchronous: bool,
        request: H::Req,
        place: Place<Body<H>>,
    ) -> Result<()> {
        let lease = place.install(Body { request: Cell::new(Some(request)), ..Body::new(Kind::Send) });
        let send = Waiting { lease, dest, tag, convertor, route, synchronous };
        let started = match self.index_or_wait::<L>(comm, send) {
            Ok(Some((index, send))) => self.start::<L>(comm, index, &send),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if started.is_err() {
            lease.kind.set(Kind::Idle);
        }
        started
    }

    /// Posts a nonblocking send to a peer that calls the communicator `index`.
    pub(super) fn start<L: Layout>(&self, comm: H::Comm, index: u32, send: &Waiting<H>) -> Result<()> {
        let target = self.target::<L>(comm, send.dest, send.tag, index)?;
        let (bytes, kept) = self.payload(send.convertor, send.route)?;
        let through = kept.descriptor();
        send.lease.kept.set(kept);
        self.post_send::<L>(target, bytes, through, send.synchronous, send.lease)
            .inspect_err(|_| drop(send.lease.kept.take()))
    }

    fn post_send<L: Layout>(
        &self,
        target: Target,
        bytes: Payload,
        through: Option<Descriptor>,
        synchronous: bool,
        lease: Lease<Body<H>>,
    ) -> Result<()> {
        let context = self.context(target.context);
        if !synchronous {
            return self
                .post::<L>(|| context.send(bytes, through, target.to, target.bits, target.data, lease));
        }
        counters::SYNCHRONOUS_SENDS.add(1);
        // The answer must find its receive posted, so that goes first.
        let ack = self.pool.take(Body::new(Kind::Ack));
        ack.parent.set(Some(lease));
        lease.pending.store(2, std::sync::atomic::Ordering::Release);
        let answer = L::ack(target.bits, target.dest);
        self.post::<L>(|| context.recv(crate::fabric::Landing::EMPTY, target.to, answer, 0, ack))
            .inspect_err(|_| self.pool.put(ack))?;
        let posted = self
            .post::<L>(|| context.send(bytes, through, target.to, target.bits | L::SYNC, target.data, lease));
        if posted.is_err() {
            // The answer will never come. Its operation stays out until the provider gives it back.
            ack.parent.set(None);
            context.cancel(ack);
        }
        posted
    }

    /// Completes a send of the host's. The operation is the host's again afterwards.
    #[inline(never)]
    pub(super) fn sent(&self, lease: Lease<Body<H>>) {
        lease.kind.set(Kind::Idle);
        drop(lease.kept.take());
        let outcome = lease.outcome.get();
        if let Some(request) = lease.request.take() {
            request.sent(outcome);
        }
    }
}

//! Receives that wait for room in the provider.
//!
//! A provider takes so many posted receives (2048 in `tcp;ofi_rxm`), while the host may post any
//! number, and none of its calls may wait for room: what frees it may come later in the same thread.
//! So the rest waits here, in order, and is posted as room comes. Nothing goes past it: while receives
//! wait, later ones queue up behind, and a probe does not see what they will get. When nothing moves,
//! unexpected messages are taken over ([`backlog`](super::backlog)), and waiting receives find theirs.
//! Meanwhile receives wait here too.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::backlog::{Backlog, Shelf};
use super::body::Kind;
use super::{Body, Ofi};
use crate::error::{Error, Result};
use crate::fabric::{Address, Descriptor, Landing, Lease, Place, PostError};
use crate::mtl::{Communicator, Envelope, Outcome, Request, Upcalls};
use crate::wire::tag::{Layout, Pattern, Selector};

/// A receive, ready to be posted.
#[derive(Clone, Copy)]
pub(super) struct Posting<H: Upcalls> {
    lease: Lease<Body<H>>,
    context: usize,
    landing: Landing,
    through: Option<Descriptor>,
    from: Address,
    source: Selector,
    want: Pattern,
    convertor: H::Conv,
}

/// What became of it.
enum Step<H: Upcalls> {
    /// It is posted, or waits, or will get a message that is on its way to the shelf.
    Done,
    /// It gets this message from the shelf.
    Found(Lease<Body<H>>),
    /// The provider did not take it.
    Refused(PostError),
}

impl<H: Upcalls> Shelf<H> {
    fn wait(&mut self, posting: Posting<H>, backlog: &Backlog<H>) {
        self.put_off.push_back(posting);
        self.show(backlog);
    }

    /// Gives a receive its message, if that lies here.
    fn serve<L: Layout>(&mut self, ofi: &Ofi<H>, posting: &Posting<H>) -> Option<Step<H>> {
        let at = self.find::<L>(posting.want, posting.source)?;
        let message = self.messages.remove(at)?;
        let receive = posting.lease;
        receive.kind.set(Kind::Idle);
        drop(receive.kept.take());
        message.request.set(receive.request.take());
        message.comm.set(receive.comm.get());
        message.convertor.set(Some(posting.convertor));
        self.show(&ofi.backlog);
        Some(if message.is_settled() { Step::Found(message) } else { Step::Done })
    }

    /// Takes the first waiting receive out that finds its message here.
    fn serve_waiting<L: Layout>(&mut self, ofi: &Ofi<H>) -> Option<Step<H>> {
        if self.messages.is_empty() {
            return None;
        }
        for at in 0..self.put_off.len() {
            let posting = self.put_off[at];
            if let Some(step) = self.serve::<L>(ofi, &posting) {
                self.put_off.remove(at);
                return Some(step);
            }
        }
        None
    }

    /// The place of the waiting receive that will get such a message.
    fn awaiting<L: Layout>(&self, message: Lease<Body<H>>) -> Option<usize> {
        let (bits, data) = (message.bits.get(), message.data.get());
        self.put_off.iter().position(|Posting { want, source, .. }| {
            (bits ^ want.bits) & !want.ignore == 0 && (source.is_any() || L::source(bits, data) == source.0)
        })
    }
}

impl<H: Upcalls> Ofi<H> {
    /// A receive off the short path.
    #[inline(never)]
    pub(super) fn irecv_slowly<L: Layout>(
        &self,
        comm: H::Comm,
        source: Selector,
        tag: Selector,
        convertor: H::Conv,
        request: H::Req,
        place: Place<Body<H>>,
    ) -> Result<()> {
        let from =
            if L::DIRECTED && !source.is_any() { self.address(comm, source.0, 0)? } else { Address::ANY };
        let want = L::receive(comm.context_id(), source, tag);
        let state =
            Body { request: Cell::new(Some(request)), comm: Cell::new(Some(comm)), ..Body::new(Kind::Recv) };
        let lease = place.install(state);
        let (landing, through) = self.land(convertor, lease);
        let context = self.context_of(comm);
        let posting = Posting { lease, context, landing, through, from, source, want, convertor };
        let step = if !self.backlog.watch.load(Ordering::Relaxed) {
            self.post_once(&posting)
        } else {
            self.backlog.shelf.with(|shelf| {
                if shelf.taking_over {
                    shelf.wait(posting, &self.backlog);
                    return Step::Done;
                }
                if let Some(step) = shelf.serve::<L>(self, &posting) {
                    return step;
                }
                if shelf.put_off.is_empty() {
                    return self.post_once(&posting);
                }
                shelf.wait(posting, &self.backlog);
                Step::Done
            })
        };
        match step {
            Step::Done => {}
            Step::Found(message) => self.hand_over::<L>(message),
            Step::Refused(PostError::TryAgain) => {
                self.backlog.shelf.with(|shelf| shelf.wait(posting, &self.backlog));
                self.deferred.store(true, Ordering::Relaxed);
            }
            Step::Refused(error) => {
                lease.kind.set(Kind::Idle);
                drop(lease.kept.take());
                return Err(Error::from(error));
            }
        }
        Ok(())
    }

    fn post_once(&self, posting: &Posting<H>) -> Step<H> {
        let &Posting { lease, context, landing, through, from, want, .. } = posting;
        let context = self.context(context);
        let posted = match through {
            None => context.recv(landing, from, want.bits, want.ignore, lease),
            Some(through) => context.recv_device(landing, through, from, want.bits, want.ignore, lease),
        };
        match posted {
            Ok(()) => Step::Done,
            Err(error) => Step::Refused(error),
        }
    }

    /// Keeps a place in the provider for claimed messages, with a receive that nothing matches: no message
    /// is synchronous and an answer at once. False when there is no room.
    fn keep_reserve(&self, shelf: &mut Shelf<H>) -> bool {
        if self.backlog.limited && shelf.reserve.is_none() {
            let lease = self.pool.take(Body::new(Kind::Reserve));
            let bits = self.backlog.every_bit;
            if self.endpoint.first().recv(Landing::EMPTY, Address::ANY, bits, 0, lease).is_err() {
                self.pool.put(lease);
                return false;
            }
            shelf.reserve = Some(lease);
        }
        true
    }

    /// Posts receives that wait, as far as there is room.
    pub(super) fn post_waiting(&self) {
        while let Some(lease) = self.backlog.shelf.with(|shelf| {
            let kept = self.keep_reserve(shelf);
            if !kept {
                self.deferred.store(true, Ordering::Relaxed);
            }
            while kept && let Some(posting) = shelf.put_off.front().filter(|_| !shelf.taking_over) {
                let lease = posting.lease;
                match self.post_once(posting) {
                    Step::Refused(PostError::TryAgain) => break,
                    step => {
                        shelf.put_off.pop_front();
                        if let Step::Refused(_) = step {
                            return Some(lease);
                        }
                    }
                }
            }
            if !shelf.put_off.is_empty() {
                self.deferred.store(true, Ordering::Relaxed);
            }
            shelf.show(&self.backlog);
            None
        }) {
            lease.kind.set(Kind::Idle);
            drop(lease.kept.take());
            if let Some(request) = lease.request.take() {
                request.received(Envelope::default(), Outcome::Failed);
            }
        }
    }

    /// Messages have been taken over: waiting receives get theirs, then others may go on.
    pub(super) fn taken_over<L: Layout>(&self) {
        while let Some(step) = self.backlog.shelf.with(|shelf| {
            let step = shelf.serve_waiting::<L>(self);
            if step.is_none() {
                shelf.taking_over = false;
                shelf.show(&self.backlog);
            }
            step
        }) {
            if let Step::Found(message) = step {
                self.hand_over::<L>(message);
            }
        }
        self.post_waiting();
    }

    /// Whether a message that a probe saw will go to a receive that waits.
    pub(super) fn is_awaited<L: Layout>(&self, message: Lease<Body<H>>) -> bool {
        self.backlog.shelf.with(|shelf| shelf.awaiting::<L>(message).is_some())
    }

    /// Gives a receive up that waits; false when it does not.
    pub(super) fn cancel_waiting(&self, lease: Lease<Body<H>>) -> bool {
        let found = self.backlog.shelf.with(|shelf| {
            let at = shelf.put_off.iter().position(|posting| posting.lease == lease)?;
            let found = shelf.put_off.remove(at);
            shelf.show(&self.backlog);
            found
        });
        if found.is_none() {
            return false;
        }
        lease.kind.set(Kind::Idle);
        drop(lease.kept.take());
        if let Some(request) = lease.request.take() {
            request.received(Envelope::default(), Outcome::Cancelled);
        }
        true
    }
}

//! Claimed messages: only the operation that claimed one can receive it, and while it is not received the provider
//! keeps it. Those that a matched probe claimed wait for their receive, those that are taken over come here
//! ([`unexpected`](super::unexpected)).
//!
//! A provider may have no room for one receive more, and what makes some may come later in the same thread. So the
//! receives of claimed messages wait for room too, before all others; where the provider has room for a fixed number,
//! one place of it is kept for them ([`waiting`](super::waiting)).

use std::sync::atomic::Ordering;

use super::body::{Lent, Op, Seen};
use super::unexpected::{Bytes, MessageKey, NO_MESSAGE, Peeked, Queue};
use super::{Body, Ofi, counters};
use crate::error::Result;
use crate::fabric::{Address, Place, PostError, Unposted, sys};
use crate::mtl::{Outcome, Upcalls};
use crate::wire::tag::{Layout, Pattern};

/// A message in the provider that only the operation that claimed it can receive.
pub(super) struct Claimed<H: Upcalls> {
    pub(super) operation: Op<H>,
    pub(super) comm: H::Comm,
    pub(super) context: usize,
    pub(super) seen: Seen,
}

/// The receive of a message that was claimed, ready to be posted.
pub(super) struct Unfetched<H: Upcalls> {
    operation: Op<H>,
    context: usize,
    from: Address,
    want: Pattern,
}

impl<H: Upcalls> Unfetched<H> {
    fn of_anybody(operation: Op<H>, context: usize, seen: &Seen) -> Self {
        let want = Pattern { bits: seen.bits, ignore: 0 };
        Self { operation, context, from: Address::ANY, want }
    }

    /// The message is lost to whoever wanted it, and received all the same: as long as the provider keeps it, that may
    /// read no further.
    fn into_nothing(mut self) -> Self {
        *self.operation = Body::Fetch { message: NO_MESSAGE };
        self.operation.hold_bytes(Box::default());
        self
    }

    fn is_for_nobody(&self) -> bool {
        matches!(*self.operation, Body::Fetch { message: NO_MESSAGE })
    }
}

impl<H: Upcalls> Queue<H> {
    /// Begins to bring a message here.
    pub(super) fn fetch(&mut self, key: MessageKey, context: usize, mut operation: Op<H>, seen: &Seen) {
        counters::COPIED_RECEIVES.add(1);
        counters::COPIED_BYTES.add(seen.len as u64);
        *operation = Body::Fetch { message: key };
        operation.hold_bytes(room(seen.len));
        self.unfetched.push_back(Unfetched::of_anybody(operation, context, seen));
    }

    /// Lets the provider get rid of what was claimed, and of which nobody wants more.
    pub(super) fn receive_nothing(&mut self, peeked: Peeked<H>) {
        let Peeked { mut operation, context, seen } = peeked;
        *operation = Body::Fetch { message: NO_MESSAGE };
        operation.hold_bytes(Box::default());
        self.unfetched.push_back(Unfetched::of_anybody(operation, context, &seen));
    }

    /// Notes what a matched probe claimed.
    pub(super) fn claim(&mut self, peeked: Peeked<H>, comm: H::Comm) -> MessageKey {
        let key = self.next();
        let Peeked { operation, context, seen } = peeked;
        self.claimed.insert(key, Claimed { operation, comm, context, seen });
        key
    }
}

/// Room for so many bytes. A sender can say any length: where there is no memory for it there is none, and the
/// message is lost as one that did not fit.
fn room(len: usize) -> Box<[u8]> {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len).is_ok() {
        bytes.resize(len, 0_u8);
    }
    bytes.into_boxed_slice()
}

impl<H: Upcalls> Ofi<H> {
    /// Posts receives of claimed messages as far as the provider has room; false when it has not.
    pub(super) fn fetch_rest<L: Layout>(&self) -> bool {
        loop {
            let failed = self.unexpected.queue.with(|queue| {
                let failed = self.fetch_some(queue);
                queue.show(&self.unexpected);
                failed
            });
            let (refused, code) = match failed {
                Err(all) => return all,
                Ok(refused) => refused,
            };
            H::notice(
                "provider failed",
                &format!(
                    "the provider refused to hand over a message that it had announced (libfabric error {code}): it is lost, and its receive fails"
                ),
            );
            // Claimed and not to be had: whoever receives it learns that.
            match *refused.operation {
                Body::Claimed { comm, seen } => {
                    let seen = Seen { ended: Err(sys::FI_EOTHER as i32), len: 0, ..seen };
                    self.failed_with::<L>(0, refused.operation, comm, Outcome::Failed, seen);
                }
                Body::Fetch { message } => {
                    let found = self.unexpected.queue.with(|queue| {
                        queue.unfetched.push_back(refused.into_nothing());
                        queue.arrived(message, Bytes::Lost)
                    });
                    if let Some(found) = found {
                        self.hand_over::<L>(found);
                    }
                }
                _ => {}
            }
        }
    }

    /// Posts them until one is refused, which comes back with the code, or there is no room (`Err(false)`), or none is
    /// left. One that nobody wants is tried again later.
    fn fetch_some(&self, queue: &mut Queue<H>) -> std::result::Result<(Unfetched<H>, i32), bool> {
        while let Some(unfetched) = queue.unfetched.pop_front() {
            let Unfetched { operation, context, from, want } = unfetched;
            let Err(Unposted { given: operation, error }) =
                self.context(context).take(from, want.bits, want.ignore, operation)
            else {
                continue;
            };
            let unfetched = Unfetched { operation, context, from, want };
            self.deferred.set(true, Ordering::Relaxed);
            if let PostError::Refused(code) = error {
                if !unfetched.is_for_nobody() {
                    return Ok((unfetched, code));
                }
                queue.unfetched.push_back(unfetched);
                return Err(false);
            }
            queue.unfetched.push_front(unfetched);
            let Some(reserve) = queue.reserve.take() else { return Err(false) };
            self.cancel_own(0, reserve);
        }
        Err(true)
    }

    /// The bytes of a message have arrived here, or are lost.
    pub(super) fn fetched<L: Layout>(&self, operation: Op<H>, well: bool) {
        let Body::Fetch { message } = *operation else { return };
        let bytes = operation.end().bytes.filter(|_| well).map_or(Bytes::Lost, Bytes::Here);
        if let Some(found) = self.unexpected.queue.with(|queue| queue.arrived(message, bytes)) {
            self.hand_over::<L>(found);
        }
    }

    /// Receives the message that a matched probe claimed.
    ///
    /// # Errors
    /// There is no such message. Then the request is not completed.
    pub fn imrecv<L: Layout>(&self, message: MessageKey, place: Place<Body<H>>) -> Result<()> {
        let (claimed, found) = self.unexpected.queue.with(|queue| {
            let receive = place.vacate();
            match queue.claimed.remove(&message) {
                Some(claimed) => Ok((Some((claimed, receive)), None)),
                None => queue.receive(message, receive).map(|found| (None, found)),
            }
        })?;
        if let Some(found) = found {
            self.hand_over::<L>(found);
        }
        if let Some((claimed, receive)) = claimed {
            self.receive_claimed::<L>(claimed, receive);
        }
        Ok(())
    }

    /// Receives what only the operation that claimed it can receive.
    pub(super) fn receive_claimed<L: Layout>(&self, claimed: Claimed<H>, receive: Lent<H>) {
        let Claimed { mut operation, comm, context, seen } = claimed;
        operation.adopt(receive);
        self.land(&mut operation);
        *operation = Body::Claimed { comm, seen };
        let source = seen.envelope::<L>().source;
        let from = if L::DIRECTED { self.address(comm, source, 0) } else { Ok(Address::ANY) };
        let Ok(from) = from else {
            let seen = Seen { ended: Err(sys::FI_EHOSTUNREACH as i32), len: 0, ..seen };
            return self.failed_with::<L>(context, operation, comm, Outcome::Failed, seen);
        };
        let want = Pattern { bits: seen.bits & !L::SYNC, ignore: L::SYNC };
        let unfetched = Unfetched { operation, context, from, want };
        self.unexpected.queue.with(|queue| queue.unfetched.push_back(unfetched));
        // Where there is no room now, what makes some may come later in the same thread.
        self.fetch_rest::<L>();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_absurd_length_gets_no_room() {
        assert_eq!(super::room(3)[..], [0; 3]);
        assert!(super::room(usize::MAX).is_empty() && super::room(isize::MAX as usize).is_empty());
    }
}

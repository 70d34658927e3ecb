//! What is owed to peers: answers to synchronous sends, and announcements. It comes up inside completions, where nothing
//! may wait, so that what the provider puts off is tried again later. A peer that has ended gets none.

use std::sync::atomic::Ordering;

use super::doubt::Doubts;
use super::exchange::CommKey;
use super::{Ofi, counters};
use crate::fabric::{Address, Payload, PostError};
use crate::mtl::Upcalls;
use crate::wire::tag::Layout;

/// What is owed to a peer, from inside a completion: nothing may wait there.
#[derive(Clone, Copy)]
pub(super) enum Outgoing {
    /// The answer to a synchronous send.
    Answer { context: usize, to: Address, bits: u64 },
    /// What we call a communicator.
    Announcement { comm: CommKey, dest: i32, asks: bool },
}

impl<H: Upcalls> Ofi<H> {
    #[cold]
    pub(super) fn flush_outbox<L: Layout>(&self) {
        let waiting = self.outbox.with(|outbox| {
            self.deferred.set(false, Ordering::Relaxed);
            std::mem::take(outbox)
        });
        if waiting.is_empty() {
            return;
        }
        for outgoing in waiting {
            self.dispatch_out::<L>(outgoing);
        }
        if self.outbox.with(|outbox| outbox.is_empty()) {
            self.doubts.with(Doubts::clear);
        }
    }

    /// Sends what is owed, now or as soon as the provider takes it.
    pub(super) fn dispatch_out<L: Layout>(&self, outgoing: Outgoing) {
        let posted = match outgoing {
            Outgoing::Answer { context, to, bits } => {
                self.context(context).inject(Payload::EMPTY, to, bits, None)
            }
            Outgoing::Announcement { comm, dest, asks } => self.post_announcement::<L>(comm, dest, asks),
        };
        match (posted, outgoing) {
            (Ok(()), _) => {}
            (Err(PostError::TryAgain), _) if self.is_tcp && self.is_for_nobody(outgoing) => {
                counters::DROPPED.add(1);
                if let Outgoing::Announcement { comm, dest, .. } = outgoing {
                    self.announcement_failed(comm, dest);
                }
            }
            (Err(PostError::TryAgain), _) => self.outbox.with(|outbox| {
                self.deferred.set(true, Ordering::Relaxed);
                outbox.push(outgoing);
            }),
            (Err(PostError::Refused(code)), Outgoing::Answer { .. }) => {
                H::notice(
                    "provider failed",
                    &format!(
                        "the provider refused the answer to a synchronous send (libfabric error {code}); the sender will wait for it"
                    ),
                );
            }
            (Err(PostError::Refused(_)), Outgoing::Announcement { comm, dest, .. }) => {
                self.announcement_failed(comm, dest)
            }
        }
    }

    /// Whether what is owed, and put off, is for a peer that has ended.
    #[cold]
    fn is_for_nobody(&self, outgoing: Outgoing) -> bool {
        self.is_for_nobody_at(outgoing, self.clock.nanos())
    }

    pub(super) fn is_for_nobody_at(&self, outgoing: Outgoing, now: u64) -> bool {
        let is_gone = |to| self.gone.with(|gone| gone.contains(&to));
        let (comm, dest) = match outgoing {
            Outgoing::Answer { to, .. } => return is_gone(to),
            Outgoing::Announcement { comm, dest, .. } => (comm, dest),
        };
        // The host may have freed the communicator: then nothing is owed.
        let Some(comm) = self.exchange.comm(comm) else { return true };
        let Ok(to) = self.address(comm, dest, 0) else { return true };
        if is_gone(to) {
            return true;
        }
        let is_lost = self.doubts.with(|doubts| doubts.put_off(to, now)) && {
            let is_refused = Self::is_refused(comm, dest);
            self.doubts.with(|doubts| doubts.note(to, is_refused))
        };
        if is_lost {
            self.lose(to, dest);
        }
        is_lost
    }
}

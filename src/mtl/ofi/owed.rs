//! What is owed to peers: answers to synchronous sends, and announcements. It comes up inside completions, where nothing
//! may wait, so that what the provider puts off is tried again later. A peer that has ended gets none.

use std::sync::atomic::Ordering;

use super::doubt::{self, Doubts};
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

/// When what was put off is tried again: at once, and ever less often while the provider takes nothing.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Passes in which nothing was taken.
    vain: u32,
    /// Nanoseconds of the clock.
    next: u64,
}

/// Nanoseconds after the first pass in vain.
const SOON: u64 = 100;
/// After so many passes in vain the pauses grow no longer: 1.6 ms.
const LONGEST: u32 = 14;

impl Pace {
    const fn is_due(&self, now: u64) -> bool {
        now >= self.next
    }

    /// A pass is over, in which something was taken or nothing.
    fn note(&mut self, is_taken: bool, now: u64) {
        self.vain = if is_taken { 0 } else { (self.vain + 1).min(LONGEST) };
        self.next = if is_taken { now } else { now + (SOON << self.vain) };
    }
}

impl<H: Upcalls> Ofi<H> {
    #[cold]
    pub(super) fn flush_outbox<L: Layout>(&self) {
        if !self.pace.with(|pace| pace.is_due(self.clock.nanos())) {
            return;
        }
        let waiting = self.outbox.with(|outbox| {
            self.deferred.set(false, Ordering::Relaxed);
            std::mem::take(outbox)
        });
        if waiting.is_empty() {
            return;
        }
        let count = waiting.len();
        // A peer that takes one answer no more takes no other: each try may be a connection.
        let mut refused: Vec<Address> = Vec::new();
        for outgoing in waiting {
            match outgoing {
                Outgoing::Answer { to, .. } if refused.contains(&to) && !self.is_gone(to) => {
                    self.put_off(outgoing)
                }
                _ => {
                    let taken = self.dispatch_out::<L>(outgoing);
                    if let Outgoing::Answer { to, .. } = outgoing
                        && !taken
                    {
                        refused.push(to);
                    }
                }
            }
        }
        let left = self.outbox.with(|outbox| outbox.len());
        self.pace.with(|pace| pace.note(left < count, self.clock.nanos()));
        if self.outbox.with(|outbox| outbox.is_empty()) {
            self.doubts.with(Doubts::clear);
        }
    }

    fn put_off(&self, outgoing: Outgoing) {
        self.outbox.with(|outbox| {
            self.deferred.set(true, Ordering::Relaxed);
            outbox.push(outgoing);
        });
    }

    /// Sends what is owed, now or as soon as the provider takes it; whether nothing is owed any more.
    pub(super) fn dispatch_out<L: Layout>(&self, outgoing: Outgoing) -> bool {
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
            (Err(PostError::TryAgain), _) => {
                self.put_off(outgoing);
                return false;
            }
            (Err(PostError::Refused(code)), Outgoing::Answer { .. }) => {
                H::notice(
                    "provider failed",
                    &format!(
                        "the provider refused the answer to a synchronous send (libfabric error {code}); the sender will wait for it"
                    ),
                );
            }
            (Err(PostError::Refused(_)), Outgoing::Announcement { comm, dest, .. }) => {
                self.announcement_failed(comm, dest);
            }
        }
        true
    }

    fn is_gone(&self, to: Address) -> bool {
        self.gone.with(|gone| gone.contains(&to))
    }

    /// Whether what is owed, and put off, is for a peer that has ended.
    #[cold]
    fn is_for_nobody(&self, outgoing: Outgoing) -> bool {
        self.is_for_nobody_at(outgoing, self.clock.nanos())
    }

    pub(super) fn is_for_nobody_at(&self, outgoing: Outgoing, now: u64) -> bool {
        let (to, peer) = match outgoing {
            Outgoing::Answer { to, .. } => (to, None),
            Outgoing::Announcement { comm, dest, .. } => {
                // The host may have freed the communicator: then nothing is owed.
                let Some(comm) = self.exchange.comm(comm) else { return true };
                let Ok(to) = self.address(comm, dest, 0) else { return true };
                (to, Some((comm, dest)))
            }
        };
        if self.is_gone(to) {
            return true;
        }
        let is_lost = self.doubts.with(|doubts| doubts.put_off(to, now)) && {
            let is_refused = match peer {
                Some((comm, dest)) => Self::is_refused(comm, dest),
                None => self.addresses.name_of(to).is_ok_and(|name| doubt::is_refused(&name)),
            };
            self.doubts.with(|doubts| doubts.note(to, is_refused))
        };
        if is_lost {
            self.lose(to, peer.map(|(_, dest)| dest));
        }
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_off_is_tried_less_often_while_nothing_is_taken() {
        let mut pace = Pace::default();
        let (mut now, mut passes) = (5_000, 0);
        let begin = now;
        while now - begin < 1_000_000_000 {
            if pace.is_due(now) {
                passes += 1;
                pace.note(false, now);
            }
            now += 100;
        }
        assert!((600..700).contains(&passes), "{passes} passes in a second, at 1.6 ms each");
        now += 2_000_000;
        assert!(pace.is_due(now));
        pace.note(true, now);
        assert!(pace.is_due(now), "at once, once something is taken");
        pace.note(false, now);
        assert!(!pace.is_due(now + SOON) && pace.is_due(now + 2 * SOON), "and soon after that");
    }
}

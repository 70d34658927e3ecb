//! What is owed to peers: answers to synchronous sends, and announcements. It comes up inside completions, where nothing
//! may wait, so that what the provider puts off is tried again later. A peer that has ended gets none.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::doubt;
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

/// When what was put off is tried again, peer by peer: one that takes nothing holds up no other.
#[derive(Debug, Default)]
pub(super) struct Paces {
    /// Nothing is due before: nanoseconds of the clock.
    next: u64,
    /// Of those that something is owed to, by their addresses.
    of: BTreeMap<u64, Pace>,
}

/// When a peer is tried again: at once, and ever less often while it takes nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Tries in vain.
    vain: u32,
    /// Nanoseconds of the clock.
    next: u64,
}

/// Nanoseconds after the first try in vain.
const SOON: u64 = 100;
/// After so many tries in vain the pauses grow no longer: 1.6 ms.
const LONGEST: u32 = 14;

impl Pace {
    const fn is_due(self, now: u64) -> bool {
        now >= self.next
    }

    /// A try is over, in which something was taken or nothing.
    fn note(&mut self, is_taken: bool, now: u64) {
        self.vain = if is_taken { 0 } else { (self.vain + 1).min(LONGEST) };
        self.next = if is_taken { 0 } else { now + (SOON << self.vain) };
    }
}

impl Paces {
    /// Begins a pass, if anything is due: the paces so far. Those of peers that something is still owed to are to be
    /// [kept](Self::keep).
    fn begin(&mut self, now: u64) -> Option<BTreeMap<u64, Pace>> {
        if now < self.next {
            return None;
        }
        self.next = u64::MAX;
        Some(std::mem::take(&mut self.of))
    }

    /// Something is still owed to this peer.
    fn keep(&mut self, peer: Address, pace: Pace) {
        self.of.insert(peer.0, pace);
    }

    /// Something is owed to this peer, which was tried just now, or is tried as the others are.
    fn owe(&mut self, peer: Address) {
        let pace = self.of.entry(peer.0).or_default();
        self.next = self.next.min(pace.next);
    }

    /// The pass is over: the next one begins when the first of those is due that something is still owed to.
    fn end(&mut self) {
        self.next = self.of.values().map(|pace| pace.next).min().unwrap_or(0);
    }
}

impl<H: Upcalls> Ofi<H> {
    #[cold]
    pub(super) fn flush_outbox<L: Layout>(&self) {
        let now = self.clock.nanos();
        let Some(mut paces) = self.paces.with(|paces| paces.begin(now)) else { return };
        let waiting = self.outbox.with(|outbox| {
            self.deferred.set(false, Ordering::Relaxed);
            std::mem::take(outbox)
        });
        for outgoing in waiting {
            let Some(to) = self.recipient(outgoing) else {
                self.dispatch_out::<L>(outgoing);
                continue;
            };
            let pace = paces.entry(to.0).or_default();
            if pace.is_due(now) || self.is_gone(to) {
                let is_taken = self.dispatch_out::<L>(outgoing);
                // One that takes nothing is not tried again in this pass: each try may be a connection.
                pace.note(is_taken, self.clock.nanos());
                if is_taken {
                    self.doubts.with(|doubts| doubts.forget(to));
                    continue;
                }
            } else {
                self.put_off(to, outgoing);
            }
            self.paces.with(|paces| paces.keep(to, *pace));
        }
        self.paces.with(Paces::end);
    }

    /// Who gets it; none where the host has freed the communicator, or nobody knows.
    fn recipient(&self, outgoing: Outgoing) -> Option<Address> {
        match outgoing {
            Outgoing::Answer { to, .. } => Some(to),
            Outgoing::Announcement { comm, dest, .. } => {
                self.address(self.exchange.comm(comm)?, dest, 0).ok()
            }
        }
    }

    pub(super) fn put_off(&self, to: Address, outgoing: Outgoing) {
        self.paces.with(|paces| paces.owe(to));
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
                // Only to somebody it could have been given to.
                if let Some(to) = self.recipient(outgoing) {
                    self.put_off(to, outgoing);
                    return false;
                }
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

    /// A peer is forgotten, and its address may become another's: answers that are still owed to it are dropped.
    pub(super) fn owe_nothing(&self, peer: Address) {
        let is_its = |to: Address| {
            (0..=self.endpoint.others().len())
                .any(|context| to == peer.receive_context(context, self.context_bits))
        };
        let dropped = self.outbox.with(|outbox| {
            let before = outbox.len();
            outbox.retain(|owed| !matches!(owed, Outgoing::Answer { to, .. } if is_its(*to)));
            before - outbox.len()
        });
        counters::DROPPED.add(dropped as u64);
    }

    pub(super) fn is_gone(&self, to: Address) -> bool {
        self.gone.with(|gone| gone.contains(&to))
    }

    /// Whether what is owed, and put off, is for a peer that has ended.
    #[cold]
    fn is_for_nobody(&self, outgoing: Outgoing) -> bool {
        self.is_for_nobody_at(outgoing, self.clock.nanos())
    }

    pub(super) fn is_for_nobody_at(&self, outgoing: Outgoing, now: u64) -> bool {
        // The host may have freed the communicator: then nothing is owed.
        let Some(to) = self.recipient(outgoing) else { return true };
        let peer = match outgoing {
            Outgoing::Answer { .. } => None,
            Outgoing::Announcement { comm, dest, .. } => self.exchange.comm(comm).map(|comm| (comm, dest)),
        };
        let is_refused = || match peer {
            Some((comm, dest)) => Self::is_refused(comm, dest),
            None => self.addresses.name_of(to).is_ok_and(|name| doubt::is_refused(&name)),
        };
        self.is_gone(to) || self.is_lost(to, peer.map(|(_, dest)| dest), now, is_refused)
    }

    /// Whether a peer has ended for which something is put off. `is_refused` asks its address, when it is time to.
    pub(super) fn is_lost(
        &self,
        to: Address,
        rank: Option<i32>,
        now: u64,
        is_refused: impl FnOnce() -> bool,
    ) -> bool {
        let is_lost = self.doubts.with(|doubts| doubts.put_off(to, now)) && {
            let is_refused = is_refused();
            self.doubts.with(|doubts| doubts.note(to, is_refused))
        };
        if is_lost {
            self.lose(to, rank);
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
        let (mut now, mut tries) = (5_000, 0);
        let begin = now;
        while now - begin < 1_000_000_000 {
            if pace.is_due(now) {
                tries += 1;
                pace.note(false, now);
            }
            now += 100;
        }
        assert!((600..700).contains(&tries), "{tries} tries in a second, at 1.6 ms each");
        now += 2_000_000;
        assert!(pace.is_due(now));
        pace.note(true, now + 50);
        assert!(pace.is_due(now), "and so is what else is owed to it, in the same pass");
        assert!(pace.is_due(now), "at once, once something is taken");
        pace.note(false, now);
        assert!(!pace.is_due(now + SOON) && pace.is_due(now + 2 * SOON), "and soon after that");
    }

    /// What is owed to one that takes nothing is tried ever less often; what is owed to others is tried at once.
    #[test]
    fn each_peer_has_a_pace_of_its_own() {
        let (dead, alive) = (Address(1), Address(2));
        let mut paces = Paces::default();
        paces.owe(dead);
        let mut now = 0;
        for _ in 0..20 {
            now = now.max(paces.next);
            let mut before = paces.begin(now).expect("it is due");
            let mut pace = before.remove(&dead.0).unwrap_or_default();
            pace.note(false, now);
            // It is put off again in the pass.
            paces.owe(dead);
            paces.keep(dead, pace);
            paces.end();
        }
        let pause = SOON << LONGEST;
        assert_eq!(paces.next, now + pause);
        assert!(paces.begin(now + pause - 1).is_none());
        paces.owe(alive);
        let before = paces.begin(now + 1).expect("the other is due");
        assert!(!before[&dead.0].is_due(now + 1) && before[&alive.0].is_due(now + 1));
        paces.keep(dead, before[&dead.0]);
        paces.end();
        assert_eq!((paces.next, paces.of.len()), (now + pause, 1), "nothing is owed to the other any more");
        let _before = paces.begin(now + pause);
        paces.end();
        assert_eq!(paces.next, 0, "nothing is owed to anybody");
    }
}

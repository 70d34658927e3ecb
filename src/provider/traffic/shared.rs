//! [`Queue`]: receives that several endpoints share (`fi_srx_context(3)`).
//!
//! Whichever of them a message comes to first takes a receive, and it ends as one of that endpoint. Messages that nobody
//! has asked for wait with their endpoint. No receive is here that one of those fits, and none of those waits for one that
//! is here: both are looked for when either comes.

use std::sync::Arc;

use super::super::argument::Foreign;
use super::super::errno::{Errno, Outcome};
use super::super::names::NOBODY;
use super::Traffic;
use super::context::{Context, Receive, Share};
use super::receive::Want;
use crate::engine::matching::{Arrival, Matching, Message, Posting, ReceiveId, Times, Wanted};
use crate::engine::slab::{Key, Slab};
use crate::sync::EngineCell;

/// Receives that wait, at most, of those with a tag and of the others.
const POSTED: usize = 1 << 20;

/// A receive that is shared.
pub struct SharedWant {
    /// What is wanted; of any source.
    pub want: Want,
    /// It has an entry also where only those have one that ask for it.
    pub asks: bool,
}

/// The receives.
pub struct Queue {
    tagged: Matching<Key, u32>,
    untagged: Matching<Key, u32>,
    wants: Slab<SharedWant>,
    /// The endpoints that share them.
    users: Vec<u32>,
    /// Whose messages are looked at first, next time.
    turn: usize,
}

impl Queue {
    /// None yet.
    pub fn new() -> Self {
        let key = [crate::link::random(), crate::link::random()].map(|word| word.unwrap_or_default());
        let key = (u128::from(key[0]) | u128::from(key[1]) << 64).to_le_bytes();
        Self {
            tagged: Matching::new(POSTED, key),
            untagged: Matching::new(POSTED, key),
            wants: Slab::new(),
            users: Vec::new(),
            turn: 0,
        }
    }

    /// Whether there are any.
    pub(super) fn waits(&self) -> bool {
        self.wants.len() != 0
    }

    fn matching(&mut self, is_tagged: bool) -> &mut Matching<Key, u32> {
        if is_tagged { &mut self.tagged } else { &mut self.untagged }
    }

    /// A receive for a message with this tag, or without one.
    fn take(&mut self, tag: Option<u64>) -> Option<SharedWant> {
        let matching = self.matching(tag.is_some());
        let message = Message { source: 0, tag: tag.unwrap_or(0), bytes: 0, complete: true, token: 0 };
        match matching.arrive(message) {
            Arrival::Taken(key) | Arrival::TakenByMany(key, _) => self.wants.remove(key.index),
            Arrival::Unexpected(id) => {
                // It waits with its endpoint.
                let _ = matching.discard(id);
                None
            }
        }
    }

    fn post(&mut self, shared: SharedWant) -> Outcome<()> {
        let (wanted, is_tagged) = (wanted(&shared.want), shared.want.tag.is_some());
        let key = self.wants.insert(shared);
        match self.matching(is_tagged).post(wanted, Times::Once, key) {
            Ok(Posting::Waits(_)) => Ok(()),
            // No message is ever here.
            Ok(_) | Err(_) => {
                self.wants.remove(key.index);
                Err(Errno::AGAIN)
            }
        }
    }

    /// Takes the oldest receive with this context out.
    fn withdraw(&mut self, of: Foreign) -> Option<SharedWant> {
        for is_tagged in [true, false] {
            let Self { tagged, untagged, wants, .. } = self;
            let matching = if is_tagged { tagged } else { untagged };
            let is_it = |key: &Key| wants.get(*key).is_some_and(|shared| shared.want.context == of);
            let found: Option<(ReceiveId, Key)> = matching.receives().find(|(_, key)| is_it(key));
            if let Some((id, key)) = found {
                matching.withdraw(id);
                return wants.remove(key.index);
            }
        }
        None
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

fn wanted(want: &Want) -> Wanted {
    let (tag, ignore) = want.tag.unwrap_or_default();
    Wanted { source: None, tag, ignore }
}

impl Traffic {
    /// An endpoint shares these receives from now on.
    pub(super) fn join(&mut self, slot: u32, queue: &EngineCell<Queue>) {
        queue.with(|queue| queue.users.push(slot));
    }

    /// It does no more.
    pub(super) fn part(&mut self, slot: u32) {
        let Ok(context) = self.context(slot) else { return };
        if let Some(queue) = context.ends.as_ref().and_then(|ends| ends.queue.as_ref()) {
            queue.with(|queue| queue.users.retain(|user| *user != slot));
        }
    }

    /// Posts a receive for whichever endpoint has, or gets, a message for it.
    ///
    /// # Errors
    /// `FI_EAGAIN`: make progress, and try again.
    pub fn receive_shared(&mut self, queue: &EngineCell<Queue>, shared: SharedWant) -> Outcome<()> {
        let (users, first) = queue.with(|queue| {
            queue.turn = queue.turn.wrapping_add(1);
            (queue.users.clone(), queue.turn)
        });
        let (wanted, is_tagged) = (wanted(&shared.want), shared.want.tag.is_some());
        for index in 0..users.len() {
            let slot = users[(first + index) % users.len()];
            let context = self.context(slot)?;
            if context.matching(is_tagged).peek(&wanted).is_some() {
                let want = context.own(shared);
                return self.receive(slot, want);
            }
        }
        queue.with(|queue| queue.post(shared))
    }

    /// Takes the oldest of these receives with this context back; it ends as one of the first endpoint.
    ///
    /// # Errors
    /// `FI_ENOENT`: there is none. `FI_EAGAIN`: make progress, and try again.
    pub fn cancel_shared(&mut self, queue: &EngineCell<Queue>, of: Foreign) -> Outcome<()> {
        let first = queue.with(|queue| queue.users.first().copied());
        let withdraw = || queue.with(|queue| queue.withdraw(of)).ok_or(Errno::NOENT);
        let Some(slot) = first else { return withdraw().map(|_| ()) };
        let context = self.context(slot)?;
        if !context.has_place() {
            return Err(Errno::AGAIN);
        }
        let key = context.adopt(withdraw()?);
        context.withdrawn(key, libc::ECANCELED);
        self.rouse_deferred();
        Ok(())
    }
}

impl Context {
    /// What is wanted, as one of this endpoint's own.
    fn own(&self, shared: SharedWant) -> Want {
        let direction = self.ends.as_ref().and_then(|ends| ends.receive.as_ref());
        let is_selective = direction.is_some_and(|direction| direction.is_selective);
        Want { source: NOBODY, wants: !is_selective || shared.asks, ..shared.want }
    }

    /// It is one of this endpoint's own.
    fn adopt(&mut self, shared: SharedWant) -> Key {
        let Want { context, buffer, wants, tag, .. } = self.own(shared);
        self.receives.insert(Receive {
            context,
            buffer,
            wants,
            is_tagged: tag.is_some(),
            share: Share::Own,
            instead: None,
        })
    }

    /// A receive that is shared, for a message with this tag, or without one.
    #[cold]
    #[inline(never)]
    pub(super) fn take_shared(&mut self, tag: Option<u64>) -> Option<Key> {
        let queue = self.ends.as_ref().and_then(|ends| ends.queue.as_ref()).map(Arc::clone)?;
        let shared = queue.with(|queue| queue.take(tag))?;
        Some(self.adopt(shared))
    }
}

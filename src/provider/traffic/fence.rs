//! Fences: what is asked of a peer waits until everything before has ended.

use super::context::{Context, Item, Stage};
use super::rma::{Step, Waiting};
use crate::wire::gni::mailbox;

impl Item {
    /// It begins something, rather than answers or goes on.
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Self::Send(_) | Self::Remote(Waiting::Operation(_)))
    }

    /// It tells the peer how something has ended that it has begun.
    pub(super) fn is_answer(&self) -> bool {
        match self {
            Self::Note(note) => mailbox::is_end(note.kind),
            other => matches!(other, Self::Remote(Waiting::Answer(..))),
        }
    }
}

impl Context {
    /// Something is asked of a peer, when it is its turn.
    pub(super) fn ask(&mut self, peer: u32, item: Item, is_fenced: bool) {
        let must_wait = is_fenced && !self.is_quiet(peer);
        let Some(there) = self.peers.get_mut(peer as usize) else { return };
        if must_wait || !there.held.is_empty() {
            there.held.push_back((item, is_fenced));
        } else {
            there.queue.push_back(item);
        }
    }

    /// Whether all that was asked of a peer, but for what is held back, has ended.
    fn is_quiet(&self, peer: u32) -> bool {
        let waits =
            self.peers.get(peer as usize).is_some_and(|there| there.queue.iter().any(Item::is_request));
        let is_sent =
            |index| self.sends.at(index).is_some_and(|of| of.peer == peer && of.stage != Stage::Queued);
        let is_told =
            |index| self.operations.at(index).is_some_and(|of| of.peer == peer && of.step != Step::Queued);
        !waits
            && !self.sends.indices().into_iter().any(is_sent)
            && !self.operations.indices().into_iter().any(is_told)
    }

    /// What was held back goes into the queue, as far as its turn has come; whether anything did.
    #[cold]
    #[inline(never)]
    pub(super) fn unfence(&mut self, peer: u32) -> bool {
        let mut has_moved = false;
        loop {
            let front = self.peers.get(peer as usize).and_then(|there| there.held.front());
            match front {
                None => return has_moved,
                Some((_, true)) if !self.is_quiet(peer) => return has_moved,
                Some(_) => {}
            }
            if let Some(there) = self.peers.get_mut(peer as usize)
                && let Some((item, _)) = there.held.pop_front()
            {
                there.queue.push_back(item);
                has_moved = true;
            }
        }
    }
}

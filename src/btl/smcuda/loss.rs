//! How peers are lost: by what they write, by what they say, or because their processes end.

use super::counters::Counters;
use super::state::{State, Step};
use crate::shm::Corrupt;

/// After so many nanoseconds it is looked whether processes have ended.
const LOOK: u64 = 100_000_000;

/// In every so many of these looks the inbox is looked through for what the dead have left.
const SWEEP: u32 = 64;

/// Why a peer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its process has ended, and has not said that it would.
    Exited,
    /// It has written what no peer writes.
    Corrupt(Corrupt),
    /// It does not reach this process, and has said so.
    Refuses,
    /// It has begun another life, which cannot be reached.
    Apart,
}

impl State {
    /// A peer is lost; nothing of it is looked at again.
    pub(super) fn lose(&mut self, index: usize, why: Loss, counters: &Counters) {
        let peer = &mut self.peers[index];
        if peer.is_lost() {
            return;
        }
        peer.lose();
        let cookies = peer.drop_queue();
        let (id, name) = (peer.id, peer.name);
        match why {
            Loss::Exited | Loss::Refuses | Loss::Apart => counters.num_lost.add(1),
            Loss::Corrupt(_) => counters.num_corrupt.add(1),
        }
        for list in [&mut self.polled, &mut self.rung, &mut self.waiting, &mut self.exited, &mut self.absent]
        {
            list.retain(|other| *other != index);
        }
        self.turn = 0;
        self.news.push_back(Step::Lost(id, name, why, cookies));
    }

    /// Processes that have ended since this was last asked.
    pub(super) fn note_exits(&mut self) {
        for index in self.watch.ended() {
            let index = index as usize;
            let Some(peer) = self.peers.get_mut(index) else { continue };
            peer.has_exited = true;
            if peer.is_usable() {
                self.exited.push(index);
                // It may not have come to ring for the last thing that it wrote.
                if self.peers[index].has_receiver() {
                    self.listen(index);
                }
            }
        }
    }

    /// Whether processes have ended, now and then.
    #[cold]
    pub(super) fn look_around(&mut self, counters: &Counters) {
        let now = self.clock.nanos();
        if now - self.looked < LOOK {
            return;
        }
        self.looked = now;
        // Who has gone may have rung before.
        self.answer();
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if peer.is_usable() && peer.refuses() {
                self.lose(index, Loss::Refuses, counters);
            } else if peer.is_usable() && peer.has_ended() && !peer.has_exited {
                self.follow(index);
            }
        }
        self.note_exits();
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(SWEEP) {
            self.segment.sweep(&[]);
        }
        if !self.closed.is_empty() {
            self.part(false);
        }
        // What a process has sent before it ended is received first.
        for index in std::mem::take(&mut self.exited) {
            let peer = &mut self.peers[index];
            if peer.has_arrived() {
                self.exited.push(index);
            } else if !peer.has_ended() {
                self.lose(index, Loss::Exited, counters);
            } else if peer.has_queue() {
                // It ended as it should, and has not wanted to receive this.
                let over = peer.drop_queue();
                peer.is_waiting = false;
                self.waiting.retain(|other| *other != index);
                self.news.extend(over.into_iter().map(|cookie| Step::Done(cookie, Ok(()))));
            }
        }
    }
}

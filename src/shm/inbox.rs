//! The inbox of a segment: who writes to its owner, and by which ring of its own.
//!
//! A place of the inbox says two things: its claimant writes to the owner, and it may read the ring by which the owner
//! writes to it. Whoever wants neither any more gives its place up; the owner does it for those whose process has
//! ended. Only then is that ring used for another.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::process::{Pid, test_kill_process};

use super::ring::Corrupt;
use super::segment::{INBOX, NONCE, SLOTS, Segment, Shared};

/// Bytes of a place of the inbox: the words below.
pub(super) const PLACE: usize = 64;
/// Whose it is: 0 of nobody's; or the claimant's process, above one more than the ring by which it writes. So the word of one
/// process is never that of another.
const STATE: usize = 0;
const NAME: usize = 8;
const LIFE: usize = 16;
const SERIAL: usize = 32;
/// From where on the claimant writes to who wants it again: see [`Shared::begin_at`].
const SINCE: usize = 40;
/// Where the process is in that word.
const PROCESS: u32 = 16;
/// Beside the ring: the owner does not reach who has claimed the place.
const REFUSED: u64 = 1 << 63;
/// Beside the ring: the life of the claimant is over, and what it has written may not have been heard of. The place is
/// free when the owner has looked there.
const OVER: u64 = 1 << 61;
/// Instead of the ring: this process is writing the rest.
const CLAIMING: u64 = 1 << 62;

const _: () = assert!(SLOTS < 1 << PROCESS);

/// The process that a place's word names.
fn process(state: u64) -> std::result::Result<u32, std::num::TryFromIntError> {
    u32::try_from((state & !(REFUSED | OVER | CLAIMING)) >> PROCESS)
}

/// Who has claimed a place of an inbox, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub name: u64,
    /// Which life of it this is: the nonce of its segment.
    pub life: [u8; NONCE],
    /// Which claim of that life.
    pub serial: u64,
    /// Its process.
    pub pid: u32,
    /// The ring of its segment by which it writes.
    pub ring: usize,
}

/// Whether a life has claimed a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It has.
    Yes,
    /// It has not.
    No,
    /// Somebody is about to claim one.
    Perhaps,
}

/// A nonce as it is written.
pub(super) fn words(nonce: &[u8; NONCE]) -> [u64; 2] {
    let all = u128::from_le_bytes(*nonce);
    [all as u64, (all >> 64) as u64]
}

impl Shared {
    /// Claims a place in the owner's inbox; `None` when all are taken. What a claimant reads of its own segment
    /// afterwards is what the owner has left there before it has asked who has claimed places
    /// ([`Segment::is_claimed`]), or the owner sees the claim.
    pub fn claim(&self, claim: &Claim) -> Option<usize> {
        let own = CLAIMING | u64::from(claim.pid) << PROCESS;
        let free = |place: &usize| {
            let state = self.place(*place, STATE);
            state.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let place = (0..SLOTS).find(free)?;
        self.place(place, NAME).store(claim.name, Ordering::Relaxed);
        for (index, word) in words(&claim.life).into_iter().enumerate() {
            self.place(place, LIFE + 8 * index).store(word, Ordering::Relaxed);
        }
        self.place(place, SERIAL).store(claim.serial, Ordering::Relaxed);
        self.place(place, SINCE).store(0, Ordering::Relaxed);
        // SYNC POINT: place (acquired in `Shared::read`)
        let claimed = u64::from(claim.pid) << PROCESS | (claim.ring as u64 + 1);
        self.place(place, STATE).store(claimed, Ordering::Release);
        fence(Ordering::SeqCst);
        Some(place)
    }

    /// Gives a place of the owner's inbox up, which this life has claimed: it writes there no more, and does not read what the
    /// owner writes to it.
    pub fn give_up(&self, place: usize, life: &[u8; NONCE]) {
        if self.life_at(place) == words(life) {
            // SYNC POINT: given up (acquired in `Shared::claim` and `Segment::is_claimed`)
            self.place(place, STATE).store(0, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }

    /// Gives a place up at the end of a life that may have written what the owner has not heard of yet: the owner frees it.
    /// The ring stays as it is.
    pub fn leave(&self, place: usize, life: &[u8; NONCE]) {
        if self.life_at(place) == words(life) {
            // SYNC POINT: given up (acquired in `Segment::is_claimed`)
            let state = self.place(place, STATE).fetch_or(OVER, Ordering::Release);
            if state & REFUSED != 0 {
                self.place(place, STATE).store(0, Ordering::Release);
            } else {
                self.ring(place);
            }
        }
        fence(Ordering::SeqCst);
    }

    /// Says that what this life writes from now on is not for who may have closed it meanwhile, but for who wants it again. The
    /// mark is another one than before.
    pub fn begin_at(&self, place: usize, life: &[u8; NONCE], mark: u64) {
        if self.life_at(place) == words(life) {
            // SYNC POINT: header (acquired in `Segment::begun_at`): an entry that is written later is seen later.
            self.place(place, SINCE).store(mark, Ordering::Relaxed);
        }
    }

    /// A word of a place of the inbox.
    fn place(&self, place: usize, word: usize) -> &AtomicU64 {
        self.word(INBOX + place % SLOTS * PLACE + word)
    }

    fn life_at(&self, place: usize) -> [u64; 2] {
        [0, 8].map(|index| self.place(place, LIFE + index).load(Ordering::Relaxed))
    }

    /// Who has claimed a place.
    fn read(&self, place: usize) -> std::result::Result<Claim, Corrupt> {
        // SYNC POINT: place (released in `Shared::claim`)
        let state = self.place(place, STATE).load(Ordering::Acquire);
        let name = self.place(place, NAME).load(Ordering::Relaxed);
        let life = self.life_at(place);
        let serial = self.place(place, SERIAL).load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // Who has it next rings when it has written all of it.
        let is_whole = self.place(place, STATE).load(Ordering::Relaxed) & !OVER == state & !OVER;
        let ring = (state as usize & ((1 << PROCESS) - 1)).checked_sub(1);
        match (ring, process(state)) {
            (Some(ring), Ok(pid)) if ring < SLOTS && is_whole && state & (CLAIMING | REFUSED) == 0 => {
                let mut nonce = [0; NONCE];
                for (part, word) in nonce.chunks_exact_mut(8).zip(life) {
                    part.copy_from_slice(&word.to_le_bytes());
                }
                Ok(Claim { name, life: nonce, serial, pid, ring })
            }
            _ => Err(Corrupt::Inbox),
        }
    }

    /// Whether the owner has said that it does not reach who has claimed a place of its inbox.
    pub fn is_refused(&self, place: usize) -> bool {
        self.place(place, STATE).load(Ordering::Relaxed) & REFUSED != 0
    }
}

impl Segment {
    /// Who has claimed a place of the inbox.
    ///
    /// # Errors
    /// When the place says something that no peer says.
    pub fn claimant(&self, place: usize) -> std::result::Result<Claim, Corrupt> {
        self.shared().read(place)
    }

    /// Whether a life of a peer has claimed a place of the inbox: then it may read the ring by which we write to it.
    pub fn is_claimed(&self, life: &[u8; NONCE]) -> Claimed {
        fence(Ordering::SeqCst);
        let mut claimed = Claimed::No;
        for place in 0..SLOTS {
            // SYNC POINT: given up (released in `Shared::give_up`)
            let state = self.shared().place(place, STATE).load(Ordering::Acquire);
            if state & CLAIMING != 0 {
                claimed = Claimed::Perhaps;
            } else if state != 0 && state & OVER == 0 && self.shared().life_at(place) == words(life) {
                return Claimed::Yes;
            }
        }
        claimed
    }

    /// The mark of a life that has claimed a place, 0 at first; `None` where another has it now. Of an entry that has been
    /// seen, all is seen that was marked before it was written.
    pub fn begun_at(&self, place: usize, life: &[u8; NONCE]) -> Option<u64> {
        // SYNC POINT: header (released in `Sender::push`)
        fence(Ordering::Acquire);
        let mark = self.shared().place(place, SINCE).load(Ordering::Relaxed);
        (self.shared().life_at(place) == words(life)).then_some(mark)
    }

    /// Frees a place whose claimant has [left](Shared::leave): it was heard.
    pub fn free(&self, place: usize) {
        let word = self.shared().place(place, STATE);
        let state = word.load(Ordering::Acquire);
        if state & OVER != 0 && state & CLAIMING == 0 {
            let _ = word.compare_exchange(state, 0, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Frees the places of a life that is over.
    pub fn clear(&self, life: &[u8; NONCE]) {
        for place in 0..SLOTS {
            let word = self.shared().place(place, STATE);
            let state = word.load(Ordering::Acquire);
            if state != 0 && state & CLAIMING == 0 && self.shared().life_at(place) == words(life) {
                let _ = word.compare_exchange(state, 0, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// Frees the places of those whose processes have ended without giving them up: of these, which nobody may have waited for
    /// yet, and of any that are not there any more.
    pub fn sweep(&self, ended: &[u32]) {
        for place in 0..SLOTS {
            let word = self.shared().place(place, STATE);
            let state = word.load(Ordering::Relaxed);
            if state == 0 {
                continue;
            }
            let has_ended = |pid: Pid| {
                ended.contains(&pid.as_raw_nonzero().get().unsigned_abs())
                    || test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
            };
            let pid = process(state).ok().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
            // What names no process was written by no peer.
            if pid.is_none_or(has_ended) {
                let _ = word.compare_exchange(state, 0, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// Says that who has claimed a place of the inbox is not reached, if it still is who has: what it sends is received by
    /// nobody.
    pub fn refuse(&self, place: usize, claim: &Claim) {
        let word = self.shared().place(place, STATE);
        let state = word.load(Ordering::Acquire);
        if self.claimant(place).as_ref() == Ok(claim) {
            // Who has it next is another process, or has given it up itself: the word is another one.
            let _ = word.compare_exchange(state, state | REFUSED, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.free(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment {
        Segment::make([7; NONCE]).expect("memory")
    }

    fn claim(name: u64, ring: usize) -> Claim {
        Claim { name, life: [name as u8; NONCE], serial: 1, pid: std::process::id(), ring }
    }

    #[test]
    fn places_of_the_inbox_are_claimed_once_and_lies_in_them_are_seen() {
        let own = segment();
        let peer = Shared::of_peer(own.identity()).expect("mapped");
        assert_eq!(own.claimant(0), Err(Corrupt::Inbox), "nobody is there");
        let [one, two] = [claim(11, 0), claim(12, 3)];
        assert_eq!((peer.claim(&one), peer.claim(&two)), (Some(0), Some(1)));
        assert_eq!((own.claimant(0), own.claimant(1)), (Ok(one), Ok(two)));
        assert!(!peer.is_refused(1));
        own.refuse(1, &one);
        assert!(!peer.is_refused(1), "somebody else is there now");
        own.refuse(1, &two);
        assert!(peer.is_refused(1) && !peer.is_refused(0));
        assert_eq!(own.claimant(1), Err(Corrupt::Inbox), "nobody who counts");
        for wrong in [SLOTS as u64 + 1, u64::MAX, CLAIMING | 7 << PROCESS, 7 << PROCESS, 1 << 60 | 1] {
            peer.word(INBOX).store(wrong, Ordering::Relaxed);
            assert_eq!(own.claimant(0), Err(Corrupt::Inbox));
        }
        assert!((2..SLOTS).all(|_| peer.claim(&one).is_some()) && peer.claim(&one).is_none());
    }

    #[test]
    fn a_place_is_free_when_its_claimant_gives_it_up_or_its_process_has_ended() {
        let own = segment();
        let peer = Shared::of_peer(own.identity()).expect("mapped");
        let one = claim(11, 0);
        assert_eq!((peer.claim(&one), own.is_claimed(&one.life)), (Some(0), Claimed::Yes));
        peer.give_up(0, &[12; NONCE]);
        assert_eq!(own.is_claimed(&one.life), Claimed::Yes, "another's");
        peer.give_up(0, &one.life);
        assert_eq!(own.is_claimed(&one.life), Claimed::No);
        let over = Claim { pid: 1 << 30, ..claim(12, 1) };
        assert_eq!((peer.claim(&over), peer.claim(&one)), (Some(0), Some(1)));
        // It has ended before it has said who it is.
        peer.word(INBOX + 2 * PLACE).store(CLAIMING | 1 << (30 + PROCESS), Ordering::Relaxed);
        assert_eq!(own.is_claimed(&[9; NONCE]), Claimed::Perhaps);
        own.refuse(0, &over);
        own.sweep(&[]);
        assert_eq!(own.is_claimed(&[9; NONCE]), Claimed::No);
        assert_eq!((own.is_claimed(&over.life), own.is_claimed(&one.life)), (Claimed::No, Claimed::Yes));
        assert!(!peer.is_refused(0));
        own.sweep(&[one.pid + 1]);
        assert_eq!(own.is_claimed(&one.life), Claimed::Yes);
        assert_eq!((peer.claim(&over), peer.claim(&over)), (Some(0), Some(2)));
        // It has ended, and nobody has waited for it: its number is not free.
        own.sweep(&[one.pid]);
        assert_eq!(own.is_claimed(&one.life), Claimed::No);
    }

    #[test]
    fn who_begins_again_marks_its_own_place_alone() {
        let own = segment();
        let peer = Shared::of_peer(own.identity()).expect("mapped");
        let [one, two] = [claim(11, 0), claim(12, 3)];
        assert_eq!((peer.claim(&one), own.begun_at(0, &one.life)), (Some(0), Some(0)));
        peer.begin_at(0, &two.life, 5);
        assert_eq!((own.begun_at(0, &one.life), own.begun_at(0, &two.life)), (Some(0), None));
        peer.begin_at(0, &one.life, 7);
        assert_eq!(own.begun_at(0, &one.life), Some(7));
        peer.give_up(0, &one.life);
        assert_eq!((peer.claim(&two), own.begun_at(0, &two.life)), (Some(0), Some(0)));
    }

    #[test]
    fn who_leaves_is_still_heard_and_then_its_place_is_free() {
        let own = segment();
        let peer = Shared::of_peer(own.identity()).expect("mapped");
        let one = claim(11, 4);
        assert_eq!(peer.claim(&one), Some(0));
        own.free(0);
        assert_eq!(own.claimant(0), Ok(one), "it has not left");
        peer.leave(0, &one.life);
        assert!(own.is_rung());
        assert_eq!((own.claimant(0), own.is_claimed(&one.life)), (Ok(one), Claimed::No));
        assert_eq!(peer.claim(&claim(12, 5)), Some(1), "not free yet");
        own.free(0);
        assert_eq!(peer.claim(&one), Some(0));
        own.refuse(0, &one);
        peer.leave(0, &one.life);
        assert_eq!(peer.claim(&one), Some(0), "nobody hears it");
        peer.leave(0, &one.life);
        own.refuse(0, &one);
        assert_eq!(peer.claim(&one), Some(0), "nobody will");
    }
}

//! The alarm of a segment: how its owner sleeps until peers have written something.
//!
//! A word of the segment says what the owner sleeps for, and a pipe wakes it. Whoever has written something looks at the
//! word then, and if it says so, writes to the pipe and takes what the word says away: while the owner is awake that is a load of a
//! line that nobody writes to. Whoever is going to sleep empties the pipe, writes the word, looks once more for what has come
//! ([`Alarm::set`] is between the two), and waits for the pipe. So a pipe is empty while anybody sleeps only if the word
//! is there, and nothing that was written goes unseen; `alarm_model` tries that out.
//!
//! Whoever rings may be stopped or killed at any step. Taken before the pipe is written to, the word would be missing meanwhile, and
//! nobody else would ring. Taken afterwards, it may be that of the next sleep, for which nobody has rung: so each sleep has a
//! number, and only the word that was seen is taken.
//!
//! Each side stores and then loads what the other stores. The half of the barrier that this needs, and that writers have
//! with each entry, costs nothing where the kernel does the other one ([`across`]).

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::pipe::{PipeFlags, pipe_with};

use super::published::Published;
use super::segment::{Segment, Shared, beyond_standard, system};
use crate::error::Result;
use crate::sync::across;

/// What the owner sleeps for; on a line of its own.
const SLEEPS_AT: usize = 128;
/// Its pipe; and whether the kernel does its half of the barrier.
const PIPE: Published = Published(192);
const BARRIER_AT: usize = 216;

/// Bits of the word: entries that have come; and room that readers have given back.
const ENTRIES: u64 = 1;
const ROOM: u64 = 2;
/// Above them, the number of the sleep.
const SLEEP: u64 = 4;

/// Reads that empty a pipe of 64 KiB.
const DRAINS: usize = 16;

/// The owner's end.
pub struct Alarm {
    shared: Shared,
    reads: OwnedFd,
    writes: OwnedFd,
}

fn write(pipe: &OwnedFd) {
    // One that is full is as good: it is readable.
    let _ = rustix::io::write(pipe, &[1]);
}

impl Alarm {
    /// That of a segment, of which nobody knows yet.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn of(segment: &Segment) -> Result<Self> {
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(system)?;
        let (reads, writes) = (beyond_standard(reads)?, beyond_standard(writes)?);
        let shared = segment.shared().clone();
        shared.word(BARRIER_AT).store(across::join().into(), Ordering::Relaxed);
        PIPE.publish(&shared, &writes)?;
        Ok(Self { shared, reads, writes })
    }

    /// What is readable when it goes off.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.reads.as_fd()
    }

    /// From now on the next entry that comes sets it off, and room that is given back, if that is wanted. What has come
    /// before is to be looked for after this. False where a peer may miss it: then nobody may sleep for long.
    pub fn set(&self, wants_room: bool) -> bool {
        // A peer may write for ever. What is left wakes once more than it need.
        let mut rung = [0; 4096];
        for _ in 0..DRAINS {
            if !rustix::io::read(&self.reads, &mut rung).is_ok_and(|length| length == rung.len()) {
                break;
            }
        }
        let what = ENTRIES | if wants_room { ROOM } else { 0 };
        let word = self.shared.word(SLEEPS_AT);
        let last = word.load(Ordering::Relaxed) & !(ENTRIES | ROOM);
        word.store(last.wrapping_add(SLEEP) | what, Ordering::Relaxed);
        // SYNC POINT: sleep (the other half in `Bell`)
        across::heavy() || self.shared.word(BARRIER_AT).load(Ordering::Relaxed) == 0
    }

    /// Sets it off.
    pub fn ring(&self) {
        write(&self.writes);
    }
}

/// A peer's end.
#[derive(Clone)]
pub struct Bell {
    shared: Shared,
    pipe: Arc<File>,
    /// The owner has the kernel do its half of the barrier, also for this process.
    is_light: bool,
}

impl Bell {
    /// That of the segment of a process.
    ///
    /// # Errors
    /// [`NotFound`](crate::error::Error::NotFound) when there is none, or not any more; why it cannot be opened.
    pub fn of_peer(shared: &Shared, pid: u32) -> Result<Self> {
        // Open for reading, too, it is never without a reader: that would be a signal.
        let pipe = PIPE.open(shared, pid, true)?;
        let is_light = shared.word(BARRIER_AT).load(Ordering::Relaxed) != 0 && across::join();
        Ok(Self { shared: shared.clone(), pipe: Arc::new(pipe), is_light })
    }

    /// Wakes the owner if it sleeps for entries: one has been written.
    #[inline(always)]
    pub fn after_entry(&self) {
        self.after(ENTRIES);
    }

    /// The same for room: there is more.
    pub fn after_room(&self) {
        self.after(ROOM);
    }

    #[inline(always)]
    fn after(&self, what: u64) {
        // SYNC POINT: sleep (the other half in `Alarm::set`): either the owner sees what was written, or we see that it sleeps.
        if self.is_light {
            across::light();
        } else {
            fence(Ordering::SeqCst);
        }
        let word = self.word().load(Ordering::Relaxed);
        if word & what != 0 {
            self.wake(word);
        }
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU64 {
        self.shared.word(SLEEPS_AT)
    }

    /// The owner sleeps as this word says.
    #[cold]
    #[inline(never)]
    fn wake(&self, word: u64) {
        // One that is full is as good: it is readable.
        let _ = rustix::io::write(&*self.pipe, &[1]);
        // SYNC POINT: sleep. It is rung before it is taken, and another's ring is none for the sleep that follows.
        let over = word & !(ENTRIES | ROOM);
        let _ = self.word().compare_exchange(word, over, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::NONCE;
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::atomic::AtomicU32;

    fn is_off(alarm: &Alarm) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(alarm.descriptor(), PollFlags::IN)], Some(&now)).expect("poll")
            == 1
    }

    fn both() -> (Segment, Alarm, Bell) {
        let segment = Segment::make([7; NONCE]).expect("memory");
        let alarm = Alarm::of(&segment).expect("a pipe");
        let bell = Bell::of_peer(segment.shared(), std::process::id()).expect("a pipe");
        (segment, alarm, bell)
    }

    #[test]
    fn who_is_awake_is_not_rung_for_and_who_sleeps_is_once() {
        let (_segment, alarm, bell) = both();
        bell.after_entry();
        assert!(!is_off(&alarm));
        for wants_room in [false, true] {
            alarm.set(wants_room);
            bell.after_room();
            assert_eq!(is_off(&alarm), wants_room);
        }
        alarm.set(false);
        assert!(!is_off(&alarm), "what was rung before is over");
        bell.after_entry();
        bell.after_entry();
        assert!(is_off(&alarm));
        let mut rung = [0; 9];
        assert_eq!(rustix::io::read(&alarm.reads, &mut rung), Ok(1));
        alarm.ring();
        assert!(is_off(&alarm));
    }

    #[test]
    fn who_rings_late_takes_nothing_of_the_next_sleep() {
        let (_segment, alarm, bell) = both();
        alarm.set(false);
        let seen = bell.word().load(Ordering::Relaxed);
        alarm.set(false);
        bell.wake(seen);
        let mut rung = [0; 9];
        assert_eq!(rustix::io::read(&alarm.reads, &mut rung), Ok(1));
        bell.after_entry();
        assert!(is_off(&alarm));
    }

    #[test]
    fn only_the_pipe_that_was_told_of_is_rung() {
        let (segment, alarm, _bell) = both();
        let shared = segment.shared();
        let Published(at) = PIPE;
        let right = shared.word(at).load(Ordering::Relaxed);
        // None, no descriptor, another file, and the pipe with another inode.
        for wrong in [0, u64::MAX, 1 << 20, 1] {
            shared.word(at).store(wrong, Ordering::Relaxed);
            assert!(Bell::of_peer(shared, std::process::id()).is_err(), "{wrong:#x}");
        }
        shared.word(at).store(right, Ordering::Relaxed);
        assert!(Bell::of_peer(shared, 1 << 30).is_err());
        shared.word(at + 16).fetch_add(1, Ordering::Relaxed);
        assert!(Bell::of_peer(shared, std::process::id()).is_err());
        assert!(!is_off(&alarm));
    }

    #[test]
    fn a_bell_outlives_the_alarm() {
        let (segment, alarm, bell) = both();
        alarm.set(true);
        drop((alarm, segment));
        bell.after_entry();
        bell.after_room();
    }

    /// Nobody has a time limit: a wake-up that is lost is a test that does not end.
    #[test]
    fn sleepers_see_everything_that_is_written() {
        const EACH: u32 = 20_000;
        for is_light in [false, true] {
            let (_segment, alarm, bell) = both();
            let bell = Bell { is_light: is_light && bell.is_light, ..bell };
            let written = AtomicU32::new(0);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            written.fetch_add(1, Ordering::Relaxed);
                            bell.after_entry();
                        }
                    });
                }
                let mut seen = 0;
                while seen < 2 * EACH {
                    let is_sure = alarm.set(false);
                    let now = written.load(Ordering::Relaxed);
                    if now == seen && is_sure {
                        let mut fds = [PollFd::from_borrowed_fd(alarm.descriptor(), PollFlags::IN)];
                        let _ = poll(&mut fds, None);
                    }
                    seen = now;
                }
            });
        }
    }
}

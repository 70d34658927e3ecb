//! The door of a process: which of its lives the segment belongs to that peers are to map, if any.
//!
//! MPI begins and ends several times in one process (`MPI_Session_init`), with a segment each time, and what a
//! process has published may be read by peers when it has ended that life already (PMIx keeps what it has read, and the
//! fence of a new life is over without a process that is still ending its old one). So what is published names the
//! door, which is the same in every life: a sealed page in memory that stays open as long as the process runs, and shows
//! the present life under a sequence lock, or that there is none.
//!
//! Nothing that a door shows is believed: what does not hold still is refused, and the segment that it names is
//! looked at as closely as before.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{Advice, MmapOptions, MmapRaw};
use parking_lot::Mutex;

use super::segment::{Identity, NONCE, anonymous, foreign, input};
use crate::error::Result;

const LENGTH: usize = 4096;

/// What the page begins with: the layout below, and its version.
const MAGIC: u64 = u64::from_le_bytes(*b"hwsdoor1");

const MAGIC_AT: usize = 0;
const NONCE_AT: usize = 8;
/// Odd while the door is written to.
const SEQUENCE_AT: usize = 64;
/// What it shows: so many words from here on.
const SHOWN_AT: usize = 72;
const SHOWN: usize = 9;

/// Bits of the first of these words.
const LIVES: u64 = 1;
const LETS_IN: u64 = 2;

/// Looks at a door that does not hold still.
const LOOKS: usize = 1000;

/// A life of a process, as its door shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Its segment.
    pub segment: Identity,
    /// Where its probe is, and what it shows.
    pub probe: (u64, [u8; 16]),
    /// Its memory may be read by peers.
    pub lets_in: bool,
}

/// A page of words.
///
/// INVARIANT: `LENGTH` bytes, readable as long as this lives; written to by the owner alone, through a mapping of its
/// own that is writable.
struct Page(MmapRaw);

impl Page {
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset <= LENGTH - 8);
        let at = self.0.as_mut_ptr().wrapping_add(offset);
        // SAFETY: inside the mapping, as just checked, which lives as long as `self`, and aligned. The owner's mapping is
        // writable; through a peer's, which is not, nothing but relaxed loads is done.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn nonce(&self) -> [u8; NONCE] {
        bytes([self.load(NONCE_AT), self.load(NONCE_AT + 8)])
    }
}

fn words(bytes: [u8; 16]) -> [u64; 2] {
    let all = u128::from_le_bytes(bytes);
    [all as u64, (all >> 64) as u64]
}

fn bytes(words: [u64; 2]) -> [u8; 16] {
    (u128::from(words[0]) | u128::from(words[1]) << 64).to_le_bytes()
}

/// The door of this process.
pub struct Door {
    page: Page,
    identity: Identity,
    /// Held by who writes; which life is shown.
    shown: Mutex<Option<[u8; NONCE]>>,
    _file: OwnedFd,
}

/// The one of the process, and which process that is: what a child of fork(2) finds is its parent's.
static OWN: Mutex<Option<Arc<Door>>> = Mutex::new(None);

impl Door {
    /// Makes a door, which shows no life yet.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn make(nonce: [u8; NONCE]) -> Result<Self> {
        let (file, identity) = anonymous("hawser smcuda door", LENGTH, nonce)?;
        let map = MmapOptions::new().len(LENGTH).map_raw(&file).map_err(|error| input(&error))?;
        map.advise(Advice::DontFork).map_err(|error| input(&error))?;
        let page = Page(map);
        for (index, word) in words(nonce).into_iter().enumerate() {
            page.word(NONCE_AT + 8 * index).store(word, Ordering::Relaxed);
        }
        page.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(Self { page, identity, shown: Mutex::new(None), _file: file })
    }

    /// The one door of this process, made with this nonce if there is none yet. It is never closed.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn of_process(nonce: [u8; NONCE]) -> Result<Arc<Self>> {
        let mut own = OWN.lock();
        if let Some(door) = own.as_ref().filter(|door| door.identity.pid == std::process::id()) {
            return Ok(Arc::clone(door));
        }
        let made = Arc::new(Self::make(nonce)?);
        // A parent's is not mapped here, so that there is nothing to be unmapped: something else may lie there.
        std::mem::forget(own.replace(Arc::clone(&made)));
        Ok(made)
    }

    /// What is published: the same in every life.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Shows a life of this process.
    pub fn show(&self, life: &Life) {
        let [nonce, probe] = [words(life.segment.nonce), words(life.probe.1)];
        let flags = LIVES | if life.lets_in { LETS_IN } else { 0 };
        let Identity { descriptor, device, inode, .. } = life.segment;
        let all =
            [flags, descriptor.into(), device, inode, nonce[0], nonce[1], life.probe.0, probe[0], probe[1]];
        self.write(&mut self.shown.lock(), Some(life.segment.nonce), all);
    }

    /// This life is over. Another that is shown meanwhile stays.
    pub fn leave(&self, life: &[u8; NONCE]) {
        let mut shown = self.shown.lock();
        if shown.as_ref() == Some(life) {
            self.write(&mut shown, None, [0; SHOWN]);
        }
    }

    fn write(&self, shown: &mut Option<[u8; NONCE]>, life: Option<[u8; NONCE]>, all: [u64; SHOWN]) {
        let sequence = self.page.load(SEQUENCE_AT) | 1;
        // SYNC POINT: door (acquired in `Outside::shown`)
        self.page.word(SEQUENCE_AT).store(sequence, Ordering::Relaxed);
        fence(Ordering::Release);
        for (index, word) in all.into_iter().enumerate() {
            self.page.word(SHOWN_AT + 8 * index).store(word, Ordering::Relaxed);
        }
        self.page.word(SEQUENCE_AT).store(sequence.wrapping_add(1), Ordering::Release);
        *shown = life;
    }

    /// Leaves the door as a writer does that stops in the middle, for tests.
    #[cfg(test)]
    fn stop_writing(&self) {
        self.page.word(SEQUENCE_AT).fetch_or(1, Ordering::Relaxed);
    }
}

/// The door of a peer.
pub struct Outside {
    page: Page,
    pid: u32,
}

impl Outside {
    /// That which a peer has published.
    ///
    /// # Errors
    /// Why it is not that one, or cannot be mapped.
    pub fn of_peer(identity: &Identity) -> std::result::Result<Self, String> {
        let (file, path) = foreign(identity, LENGTH, false)?;
        let map = MmapOptions::new().len(LENGTH).map_raw_read_only(&file);
        let page = Page(map.map_err(|error| format!("{path} cannot be mapped: {error}"))?);
        let magic = page.load(MAGIC_AT);
        fence(Ordering::Acquire);
        if magic != MAGIC || page.nonce() != identity.nonce {
            return Err(format!("{path} is of another version, or is not what was published"));
        }
        page.0.advise(Advice::DontFork).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self { page, pid: identity.pid })
    }

    /// That of a process which has ended, since a door is open as long as its process lives: it shows no life. `None` where
    /// the process may live.
    pub fn of_ended(identity: &Identity) -> Option<Self> {
        let path = format!("/proc/{}/fd/{}", identity.pid, identity.descriptor);
        let missing = fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let page = missing.then(|| MmapOptions::new().len(LENGTH).map_anon().ok())??;
        Some(Self { page: Page(page.into()), pid: identity.pid })
    }

    /// The process whose door it is, as it says.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The present life of the process; `None` when it has none, or when that cannot be told yet: it was stopped in the
    /// middle of writing.
    ///
    /// # Errors
    /// When that is no life of a process.
    pub fn shown(&self) -> std::result::Result<Option<Life>, &'static str> {
        for _ in 0..LOOKS {
            // SYNC POINT: door (released in `Door::write`)
            let before = self.page.load(SEQUENCE_AT);
            fence(Ordering::Acquire);
            let mut all = [0; SHOWN];
            for (index, word) in all.iter_mut().enumerate() {
                *word = self.page.load(SHOWN_AT + 8 * index);
            }
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.page.load(SEQUENCE_AT) == before {
                return self.parse(all);
            }
            std::hint::spin_loop();
        }
        Ok(None)
    }

    fn parse(&self, all: [u64; SHOWN]) -> std::result::Result<Option<Life>, &'static str> {
        let [flags, descriptor, device, inode, nonce_0, nonce_1, probe, shown_0, shown_1] = all;
        if flags & LIVES == 0 {
            return Ok(None);
        }
        let descriptor =
            u32::try_from(descriptor).map_err(|_| "what it shows of itself is no life of a process")?;
        if flags & !(LIVES | LETS_IN) != 0 {
            return Err("what it shows of itself is no life of a process");
        }
        let nonce = bytes([nonce_0, nonce_1]);
        Ok(Some(Life {
            segment: Identity { pid: self.pid, descriptor, device, inode, nonce },
            probe: (probe, bytes([shown_0, shown_1])),
            lets_in: flags & LETS_IN != 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn life(number: u8) -> Life {
        let segment = Identity {
            pid: std::process::id(),
            descriptor: number.into(),
            device: number.into(),
            inode: number.into(),
            nonce: [number; NONCE],
        };
        Life { segment, probe: (number.into(), [number; 16]), lets_in: number.is_multiple_of(2) }
    }

    #[test]
    fn a_door_shows_the_life_that_there_is() {
        let door = Door::make([7; NONCE]).expect("memory");
        let outside = Outside::of_peer(door.identity()).expect("the right one");
        assert_eq!((outside.pid(), outside.shown()), (std::process::id(), Ok(None)));
        door.show(&life(1));
        assert_eq!(outside.shown(), Ok(Some(life(1))));
        door.show(&life(2));
        door.leave(&[1; NONCE]);
        assert_eq!(outside.shown(), Ok(Some(life(2))), "another has begun");
        door.leave(&[2; NONCE]);
        assert_eq!(outside.shown(), Ok(None));
    }

    #[test]
    fn only_what_was_published_is_a_door() {
        let door = Door::make([7; NONCE]).expect("memory");
        let right = *door.identity();
        let segment = super::super::Segment::make([7; NONCE]).expect("memory");
        for wrong in [
            Identity { nonce: [8; NONCE], ..right },
            Identity { inode: right.inode + 1, ..right },
            Identity { descriptor: 9999, ..right },
            Identity { pid: 1 << 30, ..right },
            *segment.identity(),
        ] {
            assert!(Outside::of_peer(&wrong).is_err(), "{wrong:?}");
        }
        assert!(super::super::Shared::of_peer(&right).is_err(), "a door is no segment");
    }

    #[test]
    fn what_is_shown_is_whole_and_rubbish_is_refused() {
        let door = Door::make([7; NONCE]).expect("memory");
        let outside = Outside::of_peer(door.identity()).expect("the right one");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..200_000_u32 {
                    door.show(&life((turn % 200) as u8 + 1));
                }
                over.store(true, Ordering::Release);
            });
            while !over.load(Ordering::Acquire) {
                // A reader that meets a writer every time sees none.
                if let Ok(Some(seen)) = outside.shown() {
                    assert_eq!(seen, life(seen.probe.1[0]), "of one life");
                }
            }
        });
        door.page.word(SHOWN_AT + 8).store(u64::MAX, Ordering::Relaxed);
        assert!(outside.shown().is_err(), "no descriptor");
        door.show(&life(1));
        door.page.word(SHOWN_AT).store(4 | LIVES, Ordering::Relaxed);
        assert!(outside.shown().is_err(), "no flags");
        door.show(&life(1));
        door.stop_writing();
        assert_eq!(outside.shown(), Ok(None), "in the middle of writing: not yet");
        door.show(&life(3));
        assert_eq!(outside.shown(), Ok(Some(life(3))));
    }

    #[test]
    fn a_process_has_one_door() {
        let [one, two] = [1, 2].map(|number| Door::of_process([number; NONCE]).expect("memory"));
        assert!(Arc::ptr_eq(&one, &two));
    }
}

//! The segment of a process: an anonymous file (`memfd_create(2)`) that its peers map.
//!
//! No name in any folder leads to it, so that nothing is left of it when its process ends, however it ends,
//! and the size of `/dev/shm` is no matter. Peers open it as `/proc/PID/fd/N`, which the kernel allows to the
//! same user, and believe nothing before device, inode, length, seal and nonce are what the owner has published.
//! The file is sealed against shrinking, or a peer could end us by a signal (SIGBUS).
//!
//! ```text
//! page 0    magic, nonce, whether the owner has ended
//! page 1    the bell: a summary, and a bit for each place of the inbox
//! page 2 …  the inbox: for each peer that sends to the owner, its name and which of its rings it writes
//!           rings: one for each peer that the owner sends to
//!           slots: room by way of which device memory goes that peers cannot open
//! ```
//!
//! Pages that nobody has touched take no memory.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

use super::ring::{Corrupt, Receiver, STRIDE, Sender};
use crate::error::{Error, Result};
use crate::link::Lent;

/// Peers that a process can send to, and that can send to it.
pub const SLOTS: usize = 1024;

/// Bytes that nobody can guess, by which a peer knows that it has mapped the right file.
pub const NONCE: usize = 16;

const PAGE: usize = 4096;
const BELL: usize = PAGE;
const INBOX: usize = 2 * PAGE;
/// Bytes of a place of the inbox: the ring and the name, two words.
const PLACE: usize = 16;
/// Beside the ring: the owner does not reach who has claimed the place.
const REFUSED: u64 = 1 << 63;
const RINGS: usize = INBOX + SLOTS * PLACE;
const STAGING: usize = RINGS + SLOTS * STRIDE;
const LENGTH: usize = STAGING + Staging::SLOTS * Staging::SLOT;

/// What the first page begins with: the layout above, and its version.
const MAGIC: u64 = u64::from_le_bytes(*b"hwsmcu02");

/// Words of the first page.
const MAGIC_AT: usize = 0;
const NONCE_AT: usize = 8;
const ENDED_AT: usize = 64;

/// The bell's summary has a bit for each of the words behind it, which stand on lines of their own.
const BELL_WORDS: usize = SLOTS / 64;
const BELL_LINE: usize = 64;

const _: () = {
    assert!(RINGS.is_multiple_of(PAGE) && STRIDE.is_multiple_of(PAGE));
    assert!(BELL_WORDS <= 64 && (1 + BELL_WORDS) * BELL_LINE <= PAGE);
};

/// A segment as it is mapped here: somebody else's, or our own.
///
/// INVARIANT: `LENGTH` bytes, readable and writable as long as this lives: the file was as long when it was
/// mapped, and is sealed against shrinking.
#[derive(Clone)]
pub struct Shared {
    map: Arc<MmapRaw>,
}

/// Which file a segment is, for those that are to map it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The process that has it open.
    pub pid: u32,
    /// Under this descriptor.
    pub descriptor: u32,
    /// Device and inode of the file.
    pub device: u64,
    /// See there.
    pub inode: u64,
    /// What its first page says.
    pub nonce: [u8; NONCE],
}

/// The segment of this process.
pub struct Segment {
    shared: Shared,
    identity: Identity,
    /// Whose rings are taken.
    next_ring: usize,
    _file: OwnedFd,
}

/// The slots of a segment, which stay mapped as long as this lives.
#[derive(Clone)]
pub struct Staging {
    shared: Shared,
}

impl Staging {
    /// How many there are.
    pub const SLOTS: usize = 32;
    /// Bytes of one.
    pub const SLOT: usize = 512 << 10;

    /// So many bytes of a slot; `None` where it has not as many.
    pub fn slot(&self, slot: usize, len: usize) -> Option<Lent> {
        (slot < Self::SLOTS && len <= Self::SLOT).then(|| {
            let at = self.shared.map.as_mut_ptr().wrapping_add(STAGING + slot * Self::SLOT);
            // SAFETY: inside the mapping, as just checked, which lives as long as this, and whoever uses the slot keeps
            // this. Nobody has a reference to what lies there.
            unsafe { Lent::new(at, len) }
        })
    }
}

fn system(error: rustix::io::Errno) -> Error {
    Error::System(error.raw_os_error())
}

fn input(error: &std::io::Error) -> Error {
    Error::System(error.raw_os_error().unwrap_or(libc::EIO))
}

impl Shared {
    fn map(file: &impl AsRawFd) -> Result<Self> {
        let map = MmapOptions::new().len(LENGTH).map_raw(file).map_err(|error| input(&error))?;
        // A child of fork(2) is no part of the job, and the rings are not worth a place in a core dump.
        map.advise(Advice::DontFork).map_err(|error| input(&error))?;
        let _ = map.advise(Advice::DontDump);
        Ok(Self { map: Arc::new(map) })
    }

    /// Maps the segment of a peer.
    ///
    /// # Errors
    /// Why it is not what its owner has published, or cannot be mapped.
    pub fn of_peer(identity: &Identity) -> std::result::Result<Self, String> {
        let path = format!("/proc/{}/fd/{}", identity.pid, identity.descriptor);
        let file = File::options()
            .read(true)
            .write(true)
            .open(Path::new(&path))
            .map_err(|error| format!("{path} cannot be opened ({error}); processes of a job must be one user's, see /proc of one another, and not refuse ptrace"))?;
        let stat = fstat(&file).map_err(|error| format!("{path}: {error}"))?;
        if (stat.st_dev, stat.st_ino) != (identity.device, identity.inode) {
            return Err(format!(
                "{path} is another file: the process is in another PID namespace, or has closed it"
            ));
        }
        let seals = fcntl_get_seals(&file).map_err(|error| format!("{path}: {error}"))?;
        if !seals.contains(SealFlags::SHRINK) || u64::try_from(stat.st_size) != Ok(LENGTH as u64) {
            return Err(format!("{path} is {} bytes long, or not sealed", stat.st_size));
        }
        let shared = Self::map(&file).map_err(|error| format!("{path} cannot be mapped: {error}"))?;
        let nonce = shared.nonce();
        if shared.word(MAGIC_AT).load(Ordering::Acquire) != MAGIC || nonce != identity.nonce {
            return Err(format!("{path} is of another version, or is not what was published"));
        }
        Ok(shared)
    }

    /// The word at an offset, one of this layout.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset <= LENGTH - 8);
        let at = self.map.as_mut_ptr().wrapping_add(offset);
        // SAFETY: inside the mapping, as just checked, which lives as long as `self`; page-aligned and a multiple
        // of 8, hence aligned. What other processes do to it is atomic in effect: aligned words.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn nonce(&self) -> [u8; NONCE] {
        let mut nonce = [0; NONCE];
        for (index, part) in nonce.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&self.word(NONCE_AT + 8 * index).load(Ordering::Relaxed).to_le_bytes());
        }
        nonce
    }

    /// Whether the owner has said that it ends.
    pub fn has_ended(&self) -> bool {
        // SYNC POINT: ended (released in `Segment::end`)
        self.word(ENDED_AT).load(Ordering::Acquire) != 0
    }

    /// Claims a place in the owner's inbox, for who writes to it by this ring of its own; `None` when all
    /// are taken.
    pub fn claim(&self, name: u64, ring: usize) -> Option<usize> {
        let taken = ring as u64 + 1;
        (0..SLOTS).find(|place| {
            let at = INBOX + place * PLACE;
            let claimed =
                self.word(at).compare_exchange(0, taken, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if claimed {
                // Published by the bell.
                self.word(at + 8).store(name, Ordering::Relaxed);
            }
            claimed
        })
    }

    /// Rings the owner's bell for a place of its inbox.
    #[inline]
    pub fn ring(&self, place: usize) {
        let word = place / 64 % BELL_WORDS;
        // SYNC POINT: bell (acquired in `Segment::rung`)
        self.word(BELL + (1 + word) * BELL_LINE).fetch_or(1 << (place % 64), Ordering::Release);
        self.word(BELL).fetch_or(1 << word, Ordering::Release);
    }

    /// Whether the owner has said that it does not reach who has claimed a place of its inbox.
    pub fn is_refused(&self, place: usize) -> bool {
        self.word(INBOX + place % SLOTS * PLACE).load(Ordering::Relaxed) & REFUSED != 0
    }

    /// The ring by which the owner writes to us. At most one at a time.
    pub fn receiver(&self, ring: usize) -> Option<Receiver> {
        (ring < SLOTS).then(|| {
            // SAFETY: `STRIDE` bytes inside the mapping, which `self.map` keeps.
            unsafe { Receiver::new(self.map.as_mut_ptr().wrapping_add(RINGS + ring * STRIDE), self.keep()) }
        })
    }

    /// Its slots.
    pub fn staging(&self) -> Staging {
        Staging { shared: self.clone() }
    }

    /// What keeps the memory mapped.
    fn keep(&self) -> Arc<dyn Send + Sync> {
        Arc::clone(&self.map) as _
    }
}

impl Segment {
    /// Makes the segment of this process.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn make(nonce: [u8; NONCE]) -> Result<Self> {
        let file =
            memfd_create("hawser smcuda", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(system)?;
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if most.is_some_and(|most| most < LENGTH as u64) {
            // The kernel would send a signal.
            return Err(Error::System(libc::EFBIG));
        }
        ftruncate(&file, LENGTH as u64).map_err(system)?;
        fcntl_add_seals(&file, SealFlags::SHRINK).map_err(system)?;
        let stat = fstat(&file).map_err(system)?;
        let shared = Shared::map(&file)?;
        for (index, part) in nonce.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(part.try_into().expect("eight bytes"));
            shared.word(NONCE_AT + 8 * index).store(word, Ordering::Relaxed);
        }
        shared.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        let identity = Identity {
            pid: std::process::id(),
            descriptor: file.as_raw_fd() as u32,
            device: stat.st_dev,
            inode: stat.st_ino,
            nonce,
        };
        Ok(Self { shared, identity, next_ring: 0, _file: file })
    }

    /// How peers find it.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its slots.
    pub fn staging(&self) -> Staging {
        self.shared.staging()
    }

    /// A ring that nobody has used yet, and its number; `None` when there is none left.
    pub fn sender(&mut self) -> Option<(usize, Sender)> {
        let ring = self.next_ring;
        if ring == SLOTS {
            return None;
        }
        self.next_ring += 1;
        let at = self.shared.map.as_mut_ptr().wrapping_add(RINGS + ring * STRIDE);
        // SAFETY: `STRIDE` bytes inside the mapping, which `keep` keeps; no ring has two senders, for each number
        // is given out once.
        Some((ring, unsafe { Sender::new(at, self.shared.keep()) }))
    }

    /// Whether the bell has been rung.
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.shared.word(BELL).load(Ordering::Relaxed) != 0
    }

    /// The places of the inbox for which the bell has been rung since it was last asked.
    pub fn rung(&self, mut heard: impl FnMut(usize)) {
        // SYNC POINT: bell (released in `Shared::ring`)
        let words = self.shared.word(BELL).swap(0, Ordering::Acquire);
        for word in (0..BELL_WORDS).filter(|word| words & 1 << word != 0) {
            let bits = self.shared.word(BELL + (1 + word) * BELL_LINE).swap(0, Ordering::Acquire);
            (0..64).filter(|bit| bits & 1 << bit != 0).for_each(|bit| heard(word * 64 + bit));
        }
    }

    /// Who has claimed a place of the inbox, as it says itself, and which ring it writes by.
    ///
    /// # Errors
    /// When the place says something that no peer says.
    pub fn claimant(&self, place: usize) -> std::result::Result<(u64, usize), Corrupt> {
        let at = INBOX + place % SLOTS * PLACE;
        let ring = self.shared.word(at).load(Ordering::Relaxed);
        let name = self.shared.word(at + 8).load(Ordering::Relaxed);
        match ring.checked_sub(1).map(usize::try_from) {
            Some(Ok(ring)) if ring < SLOTS => Ok((name, ring)),
            _ => Err(Corrupt::Inbox),
        }
    }

    /// Says that who has claimed a place of the inbox is not reached: what it sends is received by nobody.
    pub fn refuse(&self, place: usize) {
        self.shared.word(INBOX + place % SLOTS * PLACE).fetch_or(REFUSED, Ordering::Relaxed);
    }

    /// Says that this process ends as it should.
    pub fn end(&self) {
        // SYNC POINT: ended (acquired in `Shared::has_ended`)
        self.shared.word(ENDED_AT).store(1, Ordering::Release);
    }

    /// As its peers see it, for tests.
    #[cfg(test)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment {
        Segment::make([7; NONCE]).expect("memory")
    }

    #[test]
    fn a_peer_maps_what_was_published_and_nothing_else() {
        let own = segment();
        let right = *own.identity();
        let peer = Shared::of_peer(&right).expect("the right one");
        assert!(!peer.has_ended());
        own.end();
        assert!(peer.has_ended());
        for wrong in [
            Identity { nonce: [8; NONCE], ..right },
            Identity { inode: right.inode + 1, ..right },
            Identity { device: right.device + 1, ..right },
            Identity { descriptor: 0, ..right },
            Identity { descriptor: 9999, ..right },
            Identity { pid: 1 << 30, ..right },
        ] {
            assert!(Shared::of_peer(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_could_shrink_is_not_mapped() {
        let file = memfd_create("soft", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
        ftruncate(&file, LENGTH as u64).expect("a length");
        let stat = fstat(&file).expect("a file");
        let identity = Identity {
            pid: std::process::id(),
            descriptor: file.as_raw_fd() as u32,
            device: stat.st_dev,
            inode: stat.st_ino,
            nonce: [0; NONCE],
        };
        let why = Shared::of_peer(&identity).err().expect("refused");
        assert!(why.contains("not sealed"), "{why}");
    }

    #[test]
    fn the_bell_says_who_rang_once() {
        let own = segment();
        let peer = Shared::of_peer(own.identity()).expect("mapped");
        let heard = || {
            let mut places = Vec::new();
            own.rung(|place| places.push(place));
            places
        };
        assert!(!own.is_rung() && heard().is_empty());
        for place in [0, 63, 64, SLOTS - 1] {
            peer.ring(place);
        }
        assert!(own.is_rung());
        assert_eq!(heard(), [0, 63, 64, SLOTS - 1]);
        assert!(!own.is_rung() && heard().is_empty());
    }

    #[test]
    fn places_of_the_inbox_are_claimed_once_and_lies_in_them_are_seen() {
        let own = segment();
        let peer = Shared::of_peer(own.identity()).expect("mapped");
        assert_eq!(own.claimant(0), Err(Corrupt::Inbox), "nobody is there");
        assert_eq!((peer.claim(11, 0), peer.claim(12, 3)), (Some(0), Some(1)));
        assert_eq!((own.claimant(0), own.claimant(1)), (Ok((11, 0)), Ok((12, 3))));
        assert!(!peer.is_refused(1));
        own.refuse(1);
        assert!(peer.is_refused(1) && !peer.is_refused(0));
        assert_eq!(own.claimant(1), Err(Corrupt::Inbox), "nobody who counts");
        peer.word(INBOX).store(SLOTS as u64 + 1, Ordering::Relaxed);
        assert_eq!(own.claimant(0), Err(Corrupt::Inbox));
        peer.word(INBOX).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(own.claimant(0), Err(Corrupt::Inbox));
        assert!((2..SLOTS).all(|_| peer.claim(1, 1).is_some()) && peer.claim(1, 1).is_none());
    }

    #[test]
    fn rings_are_given_out_once() {
        let mut own = segment();
        let numbers: Vec<usize> = std::iter::from_fn(|| own.sender()).map(|(ring, _)| ring).collect();
        assert!(numbers.into_iter().eq(0..SLOTS));
        assert!(own.shared().receiver(SLOTS).is_none());
    }
}

//! The segment of a process: an anonymous file (`memfd_create(2)`) that its peers map.
//!
//! No name in any folder leads to it, so that nothing is left of it when its process ends, however it ends,
//! and the size of `/dev/shm` is no matter. Peers open it as `/proc/PID/fd/N`, which the kernel allows to the
//! same user, and believe nothing before device, inode, length, seal and nonce are what the owner has published.
//! The file is sealed against shrinking, or a peer could end us by a signal (SIGBUS).
//!
//! ```text
//! page 0    magic, nonce, whether the owner has ended; what it sleeps for, and by what it is woken; its lifeline
//! page 1    the bell: a summary, and a bit for each place of the inbox
//! page 2 …  the inbox: for each peer that sends to the owner, its name and life, and which of its rings it writes
//!           rings: one for each peer that the owner sends to
//!           slots: room by way of which device memory goes that peers cannot open
//! ```
//!
//! Pages that nobody has touched take no memory.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, Stat, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create, stat,
};

use super::inbox::{PLACE, words};
use super::ring::{Receiver, STRIDE, Sender};
use crate::error::{Error, Result};
use crate::link::Lent;

/// Peers that a process can send to, and that can send to it.
pub const SLOTS: usize = 1024;

/// Bytes that nobody can guess, by which a peer knows that it has mapped the right file.
pub const NONCE: usize = 16;

const PAGE: usize = 4096;
const BELL: usize = PAGE;
pub(super) const INBOX: usize = 2 * PAGE;
const RINGS: usize = INBOX + SLOTS * PLACE;
const STAGING: usize = RINGS + SLOTS * STRIDE;
const LENGTH: usize = STAGING + Staging::SLOTS * Staging::SLOT;

/// What the first page begins with: the layout above, and its version.
const MAGIC: u64 = u64::from_le_bytes(*b"hwsmcu08");

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
    file: OwnedFd,
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

pub(super) fn system(error: rustix::io::Errno) -> Error {
    Error::System(error.raw_os_error())
}

pub(super) fn input(error: &std::io::Error) -> Error {
    Error::System(error.raw_os_error().unwrap_or(libc::EIO))
}

/// See [`sync::descriptor::beyond_standard`](crate::sync::descriptor::beyond_standard).
pub(super) fn beyond_standard(file: OwnedFd) -> Result<OwnedFd> {
    crate::sync::descriptor::beyond_standard(file).map_err(|error| input(&error))
}

/// Makes a file of so many bytes in memory, which never gets shorter, and says how peers find it. The nonce is to be written
/// there.
pub(super) fn anonymous(name: &str, length: usize, nonce: [u8; NONCE]) -> Result<(OwnedFd, Identity)> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(system)?;
    let file = beyond_standard(file)?;
    let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if most.is_some_and(|most| most < length as u64) {
        // The kernel would send a signal.
        return Err(Error::System(libc::EFBIG));
    }
    ftruncate(&file, length as u64).map_err(system)?;
    // Nobody seals it further, so that nobody could write there.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL).map_err(system)?;
    let stat = fstat(&file).map_err(system)?;
    let identity = Identity {
        pid: std::process::id(),
        descriptor: file.as_raw_fd() as u32,
        device: stat.st_dev,
        inode: stat.st_ino,
        nonce,
    };
    Ok((file, identity))
}

/// Opens such a file of another process, and says what it is called there.
///
/// # Errors
/// Why it is not what its owner has published.
pub(super) fn foreign(
    identity: &Identity,
    length: usize,
    writes: bool,
) -> std::result::Result<(File, String), Refused> {
    let path = format!("/proc/{}/fd/{}", identity.pid, identity.descriptor);
    let unopened = |error: std::io::Error| {
        let why = match input(&error) {
            Error::System(libc::ENOENT | libc::ESRCH) => Error::NotFound,
            why => why,
        };
        Refused::new(
            why,
            format!(
                "{path} cannot be opened ({error}); processes of a job must be one user's, see /proc of one another, and not refuse ptrace"
            ),
        )
    };
    let other = || {
        let text =
            format!("{path} is another file: the process is in another PID namespace, or has closed it");
        Refused::new(Error::NotFound, text)
    };
    let is_it = |stat: &Stat| (stat.st_dev, stat.st_ino) == (identity.device, identity.inode);
    // By now it may be what cannot be opened at all.
    if !is_it(&stat(&path).map_err(|error| unopened(error.into()))?) {
        return Err(other());
    }
    let file = File::options()
        .read(true)
        .write(writes)
        // It may be anything until it is looked at: also a pipe that nobody writes to.
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(Path::new(&path))
        .map_err(unopened)?;
    let stat = fstat(&file).map_err(|error| Refused::new(system(error), format!("{path}: {error}")))?;
    if !is_it(&stat) {
        return Err(other());
    }
    let seals =
        fcntl_get_seals(&file).map_err(|error| Refused::new(system(error), format!("{path}: {error}")))?;
    if !seals.contains(SealFlags::SHRINK) || u64::try_from(stat.st_size) != Ok(length as u64) {
        let text = format!("{path} is {} bytes long, or not sealed", stat.st_size);
        return Err(Refused::new(Error::BadParameter, text));
    }
    Ok((file, path))
}

/// Why what a peer has published is not taken.
#[derive(Debug)]
pub struct Refused {
    /// [`Error::NotFound`]: the process does not have it, or not any more, or there is no process of this number to be seen.
    pub why: Error,
    text: String,
}

impl Refused {
    pub(super) fn new(why: Error, text: String) -> Self {
        Self { why, text }
    }
}

impl From<Refused> for String {
    fn from(refused: Refused) -> Self {
        refused.text
    }
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
    pub fn of_peer(identity: &Identity) -> std::result::Result<Self, Refused> {
        let (file, path) = foreign(identity, LENGTH, true)?;
        let shared = Self::map(&file)
            .map_err(|error| Refused::new(error, format!("{path} cannot be mapped: {error}")))?;
        let nonce = shared.nonce();
        if shared.word(MAGIC_AT).load(Ordering::Acquire) != MAGIC || nonce != identity.nonce {
            let text = format!("{path} is of another version, or is not what was published");
            return Err(Refused::new(Error::BadParameter, text));
        }
        Ok(shared)
    }

    /// The word at an offset, one of this layout.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
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

    /// The same for whoever asks often: what the owner has done before it said so may not be seen yet.
    #[inline(always)]
    pub fn is_ending(&self) -> bool {
        self.word(ENDED_AT).load(Ordering::Relaxed) != 0
    }

    /// Rings the owner's bell for a place of its inbox.
    #[inline]
    pub fn ring(&self, place: usize) {
        let word = place / 64 % BELL_WORDS;
        // SYNC POINT: bell (acquired in `Segment::rung`)
        self.word(BELL + (1 + word) * BELL_LINE).fetch_or(1 << (place % 64), Ordering::Release);
        self.word(BELL).fetch_or(1 << word, Ordering::Release);
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
        let (file, identity) = anonymous("hawser smcuda", LENGTH, nonce)?;
        let shared = Shared::map(&file)?;
        for (index, word) in words(&nonce).into_iter().enumerate() {
            shared.word(NONCE_AT + 8 * index).store(word, Ordering::Relaxed);
        }
        shared.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(Self { shared, identity, next_ring: 0, file })
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
        // SAFETY: `STRIDE` bytes inside the mapping, which `keep` keeps, and zero, for nobody has used them; no ring has two
        // senders, for each number is given out once here.
        Some((ring, unsafe { Sender::new(self.start(ring), self.shared.keep()) }))
    }

    /// Empties a ring whose reader reads it no more, for the next one. Its number must be that of the sender.
    ///
    /// # Errors
    /// When it cannot be emptied.
    pub fn renew(&self, ring: usize, sender: &mut Sender) -> Result<()> {
        self.empty(ring)?;
        // SAFETY: as in `sender`, and just emptied; the sender that it had is given up for this one.
        *sender = unsafe { Sender::new(self.start(ring), self.shared.keep()) };
        Ok(())
    }

    /// Gives the memory of a ring back, which neither its writer nor its reader uses any more. It is zero then.
    ///
    /// # Errors
    /// When the system does not do it.
    pub fn empty(&self, ring: usize) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let at = RINGS + ring % SLOTS * STRIDE;
        fallocate(&self.file, flags, at as u64, STRIDE as u64).map_err(system)
    }

    fn start(&self, ring: usize) -> *mut u8 {
        self.shared.map.as_mut_ptr().wrapping_add(RINGS + ring % SLOTS * STRIDE)
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

    /// Says that this process ends as it should, and reads no more what was written to it, but where it still has a claim.
    pub fn end(&self) {
        // SYNC POINT: ended (acquired in `Shared::has_ended`)
        self.shared.word(ENDED_AT).store(1, Ordering::Release);
    }

    /// As its peers see it.
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
        for is_over in [Identity { descriptor: 9999, ..right }, Identity { pid: 1 << 30, ..right }] {
            assert_eq!(Shared::of_peer(&is_over).err().expect("refused").why, Error::NotFound, "{is_over:?}");
        }
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_refused_at_once() {
        let (reads, writes) = std::io::pipe().expect("a pipe");
        drop(writes);
        let identity = Identity { descriptor: reads.as_raw_fd() as u32, ..*segment().identity() };
        let refused = foreign(&identity, LENGTH, false).expect_err("refused");
        assert_eq!(refused.why, Error::NotFound);
        assert!(refused.text.contains("is another file"), "{refused:?}");
    }

    #[test]
    fn nobody_takes_the_memory_away_from_those_who_come_later() {
        let own = segment();
        let (file, _) = foreign(own.identity(), LENGTH, true).expect("the right one");
        assert!(fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).is_err());
        Shared::of_peer(own.identity()).expect("mapped");
        own.empty(3).expect("emptied");
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
        let refused = Shared::of_peer(&identity).err().expect("refused");
        assert!(refused.text.contains("not sealed"), "{refused:?}");
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
    fn rings_are_given_out_once_until_they_are_renewed() {
        let mut own = segment();
        let mut all: Vec<(usize, Sender)> = std::iter::from_fn(|| own.sender()).collect();
        assert!(all.iter().map(|(ring, _)| *ring).eq(0..SLOTS));
        assert!(own.shared().receiver(SLOTS).is_none());
        let (ring, mut sender) = all.swap_remove(5);
        let mut receiver = own.shared().receiver(ring).expect("a ring");
        assert_eq!(sender.push_bytes(9, &[1; 100]), Ok(true));
        assert!(receiver.take().is_ok_and(|found| found.is_some()));
        receiver.poll_from_now_on();
        assert!(sender.is_polled());
        assert_eq!(sender.push_bytes(9, &[2; 100]), Ok(true));
        own.renew(ring, &mut sender).expect("emptied");
        assert!(!sender.is_polled() && !receiver.has_next());
        let mut receiver = own.shared().receiver(ring).expect("a ring");
        assert!(receiver.take().is_ok_and(|found| found.is_none()));
        assert_eq!(sender.push_bytes(9, &[3; 100]), Ok(true));
        assert!(receiver.take().is_ok_and(|found| found.is_some()));
    }
}

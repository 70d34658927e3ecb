//! [`Table`]: entries that processes of one user and one node share under a name.
//!
//! Who opens a name that nobody has makes the table: an anonymous file, to which a [plate] leads as long as
//! that one has it open. Others map it, to read, or to write as well. Those that have it keep it when its maker is gone,
//! but it has no name any more, and the next to open the name makes another table. Nothing is left of any of it when its
//! processes have ended, however they end.
//!
//! ```text
//! page 0   magic, kind, the name; how often the table has changed, where to look for a free place, places ever used
//! page 1 … for each place the number that programs have for what is there
//!          places: state, entry
//! ```
//!
//! There is no lock, so nobody waits for a process that is stopped: a place is its writer's from the moment that it
//! has exchanged the state for "taken" until it says "there". A process that dies between the two costs that place. The
//! state counts how often its place was used, and readers look at it before and after: what they have read is one entry,
//! or nothing. All who may write are one user's, yet nothing that lies there is believed: places are counted against the
//! file's length, which is sealed, and entries are words, which whoever reads them has to parse.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{Mode, fchmod, fstat};

use super::plate::{self, Plate};
use super::segment::{Identity, NONCE, anonymous, foreign, input, system};
use crate::error::{Error, Result};
use crate::sync::fork::Own;

/// Words of an entry.
pub(super) const WORDS: usize = 6;
/// An entry.
pub type Entry = [u64; WORDS];
/// How many there may be.
pub const PLACES: usize = 1 << 20;
/// Longest name, bytes.
pub(super) const NAME: usize = 255;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"hwtable1");

pub(super) const MAGIC_AT: usize = 0;
const KIND_AT: usize = 8;
pub(super) const NAME_LENGTH_AT: usize = 16;
pub(super) const NAME_AT: usize = 24;
const CHANGES_AT: usize = 1024;
pub(super) const VACANT_AT: usize = 1088;
pub(super) const USED_AT: usize = 1152;
pub(super) const NUMBERS: usize = 4096;
pub(super) const STATES: usize = NUMBERS + 8 * PLACES;
const STRIDE: usize = 64;
pub(super) const LENGTH: usize = STATES + STRIDE * PLACES;

const _: () = assert!(NAME_AT + NAME < CHANGES_AT && 8 * (1 + WORDS) <= STRIDE);

/// The number of a place where nothing is any more.
pub(super) const NOTHING: u64 = u64::MAX;

/// What a state says beside how often its place was used.
const FREE: u64 = 0;
const TAKEN: u64 = 1;
pub(super) const THERE: u64 = 2;

/// How often a place can be told to have been used: numbers have eight bits to spare, and none is [`NOTHING`].
const GENERATIONS: u32 = u32::MAX >> 8;

pub(super) const fn state(generation: u32, phase: u64) -> u64 {
    (generation as u64) << 32 | phase
}

const fn phase(state: u64) -> u64 {
    state as u32 as u64
}

const fn generation(state: u64) -> u32 {
    (state >> 32) as u32
}

/// The orderings of the state, which `table_model` explores.
pub(super) mod order {
    use std::sync::atomic::Ordering;

    /// Of who takes a free place.
    pub(in super::super) const TAKE: Ordering = Ordering::Acquire;
    /// Of who says that an entry is there.
    pub(in super::super) const PUBLISH: Ordering = Ordering::Release;
    /// Of who takes a place to remove its entry.
    pub(in super::super) const WITHDRAW: Ordering = Ordering::Acquire;
    /// Of who gives a place back.
    pub(in super::super) const FREE: Ordering = Ordering::Release;
}

/// How often a name that changes hands is tried.
const TRIES: usize = 100;

/// What is done to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read, and must be there.
    Read,
    /// It is written to, and made where it is not there.
    Write,
}

/// A table.
///
/// INVARIANT: `LENGTH` bytes are mapped as long as this lives, writable with [`Access::Write`]: the file was as long when it
/// was mapped, and is sealed against shrinking.
pub struct Table {
    pub(super) map: MmapRaw,
    access: Access,
    /// Of its maker: what leads there. It goes first.
    _plate: Option<Plate>,
    _file: Option<(Own, OwnedFd)>,
}

impl Table {
    /// Opens the table of a name, or makes it, with this kind.
    ///
    /// # Errors
    /// `NotFound`: it is to be read, and is not there. `BadParameter`: that is no name. `EACCES`: what has the name is no
    /// such table, or cannot be opened. `EBUSY`: the name changes hands all the time.
    pub fn open(name: &[u8], kind: u64, access: Access) -> Result<Self> {
        if name.is_empty() || name.len() > NAME {
            return Err(Error::BadParameter);
        }
        let mut last = Error::System(libc::EBUSY);
        for _ in 0..TRIES {
            match Self::find(name, access) {
                Err(Error::NotFound) if access == Access::Write => {
                    if let Some(table) = Self::make(name, kind)? {
                        return Ok(table);
                    }
                }
                // Its maker may just have ended.
                Err(error) if error != Error::NotFound => last = error,
                found => return found,
            }
        }
        Err(last)
    }

    /// `None`: the name is somebody's.
    fn make(name: &[u8], kind: u64) -> Result<Option<Self>> {
        let (file, identity) = anonymous("hawser table", LENGTH, [0; NONCE])?;
        let own = Own::new(&file);
        fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(system)?;
        let map = MmapOptions::new().len(LENGTH).map_raw(&file).map_err(|error| input(&error))?;
        let mut table = Self::new(map, Access::Write);
        for (index, chunk) in name.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            table.word(NAME_AT + 8 * index).store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        for (at, value) in [(NAME_LENGTH_AT, name.len() as u64), (KIND_AT, kind), (CHANGES_AT, 1)] {
            table.word(at).store(value, Ordering::Relaxed);
        }
        table.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        table._file = Some((own, file));
        table._plate = Plate::new(name, &identity)?;
        Ok(table._plate.is_some().then_some(table))
    }

    /// The one that somebody has made.
    fn find(name: &[u8], access: Access) -> Result<Self> {
        let files = plate::files(name)?;
        let table = files.iter().find_map(|file| Self::of_other(file, name, access));
        table.ok_or(Error::System(libc::EACCES))
    }

    /// `None`: that is not it, or not any more.
    fn of_other(identity: &Identity, name: &[u8], access: Access) -> Option<Self> {
        let (file, _) = foreign(identity, LENGTH, access == Access::Write).ok()?;
        if fstat(&file).ok()?.st_uid != rustix::process::geteuid().as_raw() {
            return None;
        }
        let options = MmapOptions::new().len(LENGTH).clone();
        let map = match access {
            Access::Read => options.map_raw_read_only(&file),
            Access::Write => options.map_raw(&file),
        };
        let table = Self::new(map.ok()?, access);
        (table.load(MAGIC_AT) == MAGIC && table.is_called(name)).then_some(table)
    }

    fn new(map: MmapRaw, access: Access) -> Self {
        // What processes tell each other is not worth a place in a core dump.
        let _ = map.advise(Advice::DontDump);
        Self { map, access, _plate: None, _file: None }
    }

    fn is_called(&self, name: &[u8]) -> bool {
        let words = name.chunks(8).enumerate();
        self.load(NAME_LENGTH_AT) == name.len() as u64
            && words.into_iter().all(|(index, chunk)| {
                self.load(NAME_AT + 8 * index).to_le_bytes().get(..chunk.len()) == Some(chunk)
            })
    }

    /// The word at an offset, one of this layout. Where the table is only read, nothing but relaxed loads is done.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset <= LENGTH - 8);
        let at = self.map.as_mut_ptr().wrapping_add(offset);
        // SAFETY: inside the mapping, as just checked, which lives as long as `self`, and aligned. What other processes do to
        // it is atomic in effect: aligned words.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    pub(super) fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    /// What its maker has said of it.
    pub fn kind(&self) -> u64 {
        self.load(KIND_AT)
    }

    /// Where the numbers of all places lie, as long as the table is open: zero, where there never was an entry, and all ones, where
    /// there is none any more.
    pub fn numbers(&self) -> *const u64 {
        self.map.as_ptr().wrapping_add(NUMBERS).cast()
    }

    /// Another number each time that it has changed.
    #[inline(always)]
    pub fn changes(&self) -> u64 {
        let changes = self.load(CHANGES_AT);
        // SYNC POINT: change (released in `Table::change`)
        fence(Ordering::Acquire);
        changes
    }

    fn change(&self) {
        // SYNC POINT: change (acquired in `Table::changes`)
        self.word(CHANGES_AT).fetch_add(1, Ordering::Release);
    }

    /// No place from there on was ever used.
    pub fn used(&self) -> usize {
        usize::try_from(self.load(USED_AT)).map_or(PLACES, |used| used.min(PLACES))
    }

    /// The entry of a place, and how often the place was used before.
    pub fn get(&self, place: usize) -> Option<(u32, Entry)> {
        if place >= PLACES {
            return None;
        }
        let at = STATES + place * STRIDE;
        let before = self.load(at);
        // SYNC POINT: there (released in `Table::insert`)
        fence(Ordering::Acquire);
        if phase(before) != THERE {
            return None;
        }
        let entry = std::array::from_fn(|index| self.load(at + 8 * (1 + index)));
        // SYNC POINT: taken (released in `Table::insert`)
        fence(Ordering::Acquire);
        (self.load(at) == before).then_some((generation(before), entry))
    }

    /// Whether it may be written to.
    pub fn is_writable(&self) -> bool {
        self.access == Access::Write
    }

    /// Adds an entry at the first place that is free; answers its number, which is made of the place and of how often that was
    /// used before.
    ///
    /// # Errors
    /// `OutOfResource`: there is no place. `BadParameter`: the table is only to be read.
    pub fn insert(&self, entry: &Entry, number: impl FnOnce(usize, u32) -> u64) -> Result<u64> {
        if !self.is_writable() {
            return Err(Error::BadParameter);
        }
        let vacant = self.word(VACANT_AT);
        // SYNC POINT: vacant (released in `Table::remove`)
        let hint = vacant.load(Ordering::Acquire);
        let from = hint as u32 as usize;
        let (place, generation) =
            (from..PLACES).find_map(|place| Some((place, self.take(place)?))).ok_or(Error::OutOfResource)?;
        // All before it are taken, unless one was given back meanwhile, which has changed the upper half.
        let next = hint & !u64::from(u32::MAX) | (place + 1) as u64;
        let _ = vacant.compare_exchange(hint, next, Ordering::Relaxed, Ordering::Relaxed);
        let at = STATES + place * STRIDE;
        // SYNC POINT: taken (acquired in `Table::get`)
        fence(Ordering::Release);
        for (index, word) in entry.iter().enumerate() {
            self.word(at + 8 * (1 + index)).store(*word, Ordering::Relaxed);
        }
        let number = number(place, generation);
        self.word(NUMBERS + 8 * place).store(number, Ordering::Relaxed);
        self.word(USED_AT).fetch_max((place + 1) as u64, Ordering::Relaxed);
        // SYNC POINT: there (acquired in `Table::get`)
        self.word(at).store(state(generation, THERE), order::PUBLISH);
        self.change();
        Ok(number)
    }

    /// Takes a place, if it is free: how often it was used before.
    fn take(&self, place: usize) -> Option<u32> {
        let word = self.word(STATES + place * STRIDE);
        let seen = word.load(Ordering::Relaxed);
        let (free, generation) = (phase(seen) == FREE, generation(seen));
        // SYNC POINT: free (released in `Table::remove`)
        let taken = || word.compare_exchange(seen, state(generation, TAKEN), order::TAKE, Ordering::Relaxed);
        (free && taken().is_ok()).then_some(generation)
    }

    /// Removes the entry of a place that was used so often before.
    ///
    /// # Errors
    /// `NotFound`: it is not there. `BadParameter`: the table is only to be read.
    pub fn remove(&self, place: usize, generation: u32) -> Result<()> {
        if !self.is_writable() {
            return Err(Error::BadParameter);
        }
        if place >= PLACES {
            return Err(Error::NotFound);
        }
        let word = self.word(STATES + place * STRIDE);
        let (there, taken) = (state(generation, THERE), state(generation, TAKEN));
        word.compare_exchange(there, taken, order::WITHDRAW, Ordering::Relaxed)
            .map_err(|_| Error::NotFound)?;
        self.word(NUMBERS + 8 * place).store(NOTHING, Ordering::Relaxed);
        // SYNC POINT: free (acquired in `Table::take`)
        word.store(state(generation.wrapping_add(1) & GENERATIONS, FREE), order::FREE);
        let lower = |hint: u64| {
            let (count, first) = (hint >> 32, hint as u32 as usize);
            Some((count.wrapping_add(1) << 32) | first.min(place) as u64)
        };
        // SYNC POINT: vacant (acquired in `Table::insert`)
        let _ = self.word(VACANT_AT).fetch_update(Ordering::Release, Ordering::Relaxed, lower);
        self.change();
        Ok(())
    }
}

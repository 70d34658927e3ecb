//! Operations of peers on the memory of this side: what they put, get, and do with values here.
//!
//! They are carried out in the order in which they come. One that goes in parts holds up those behind it, until its last
//! part is here or gone; messages go by. Every part looks anew whether the memory may still be reached.

use std::collections::VecDeque;
use std::ptr;

use super::super::argument::Foreign;
use super::super::cq::{Completion, Entry};
use super::super::errno::{Errno, Outcome};
use super::super::regions::Access;
use super::super::sys;
use super::buffer::copy;
use super::context::{Context, Item, Note};
use super::rma::Waiting;
use super::send::{PIECE, lend};
use super::{EAGER, Lost};
use crate::link::Lent;
use crate::shm::CrossMemory;
use crate::wire::gni::mailbox::Lies;
use crate::wire::gni::remote::{HEAD, PLACES, Places, Remote};

/// Entries that wait for a peer, or to be carried out for it, beyond which it is asking for more than may be asked.
const FLOOD: usize = 1 << 15;
/// Bytes of the second.
const FLOOD_BYTES: usize = 256 << 20;

/// What is carried out in parts.
struct Work {
    operation: u64,
    act: Carried,
    places: Places,
    length: usize,
    done: usize,
    /// 0, or why it has failed.
    code: i32,
}

/// What it is.
#[derive(Clone, Copy)]
enum Carried {
    Put(Option<u64>),
    Get,
}

/// What there is to be done for a peer.
#[derive(Default)]
pub(super) struct Target {
    work: Option<Box<Work>>,
    /// Entries that have come meanwhile, and their bytes.
    waiting: VecDeque<(u8, Box<[u8]>)>,
    waiting_bytes: usize,
}

/// Memory of this side that an operation reaches.
pub(super) struct Spots {
    parts: [Lent; PLACES],
    count: usize,
    is_counted: bool,
}

impl Spots {
    pub(super) fn all(&self) -> &[Lent] {
        &self.parts[..self.count]
    }

    /// Somebody counts what is done in a region of theirs.
    pub(super) fn is_counted(&self) -> bool {
        self.is_counted
    }
}

/// Does something with each run of bytes that lies in one piece on both sides: here, and at an address of the peer's.
fn each_run(
    spots: &[Lent],
    lies: &Lies,
    act: impl Fn(u64, Lent) -> crate::error::Result<()>,
) -> crate::error::Result<()> {
    let mut pieces = lies.pieces().iter().copied();
    let (mut address, mut left) = (0_u64, 0_u64);
    for spot in spots {
        let mut done = 0;
        while done < spot.len() {
            if left == 0 {
                let Some(piece) = pieces.next() else { return Ok(()) };
                (address, left) = piece;
                continue;
            }
            let here = (spot.len() - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            act(address, spot.slice(done, here))?;
            address = address.wrapping_add(here as u64);
            left -= here as u64;
            done += here;
        }
    }
    Ok(())
}

impl Context {
    /// Does what an entry says that is about memory. `None`: it says nothing that may be said.
    #[inline(never)]
    pub(super) fn hear_remote(&mut self, peer: u32, kind: u8, bytes: Lent) -> Option<()> {
        let (entry, head) = parse(kind, bytes)?;
        if entry.begins() {
            let there = self.peers.get_mut(peer as usize)?;
            if there.queue.len() + there.target.waiting.len() > FLOOD {
                return None;
            }
            if there.target.work.is_some() {
                if there.target.waiting_bytes + bytes.len() > FLOOD_BYTES {
                    return None;
                }
                let mut copy = Vec::new();
                bytes.append_to(&mut copy);
                there.target.waiting_bytes += copy.len();
                there.target.waiting.push_back((kind, copy.into_boxed_slice()));
                return Some(());
            }
        }
        self.carry_out(peer, &entry, bytes.slice(head, bytes.len() - head))
    }

    /// Does what has waited for the end of an operation in parts.
    fn catch_up(&mut self, peer: u32) -> Option<()> {
        loop {
            let target = &mut self.peers.get_mut(peer as usize)?.target;
            if target.work.is_some() {
                return Some(());
            }
            let Some((kind, bytes)) = target.waiting.pop_front() else { return Some(()) };
            target.waiting_bytes -= bytes.len();
            let bytes = lend(&bytes);
            let (entry, head) = parse(kind, bytes)?;
            self.carry_out(peer, &entry, bytes.slice(head, bytes.len() - head))?;
        }
    }

    fn carry_out(&mut self, peer: u32, entry: &Remote, payload: Lent) -> Option<()> {
        match *entry {
            Remote::Put { operation, data, ref places } => {
                let outcome = self.spots(places, Access::REMOTE_WRITE).inspect(|spots| {
                    let mut done = 0;
                    for spot in spots.all() {
                        copy(payload.slice(done, spot.len()), *spot);
                        done += spot.len();
                    }
                });
                let is_counted = outcome.as_ref().is_ok_and(|spots| spots.is_counted);
                let code = outcome.map_or_else(|Errno(code)| code, |_| 0);
                self.was_put(peer, operation, data, places, (payload.len(), is_counted), code);
            }
            Remote::Bring { operation, data, ref places, ref lies } => {
                self.bring(peer, operation, data, places, lies)?;
            }
            Remote::Get { operation, ref places, ref lies } => self.give(peer, operation, places, lies)?,
            Remote::Atomic { operation, amo, ref places } => {
                self.combine(peer, operation, amo, places, payload)?;
            }
            Remote::Done { operation, code } => self.hear_done(peer, operation, code, payload)?,
            Remote::Want { operation } => self.hear_want(peer, operation)?,
            Remote::Part { operation, offset, is_put: false } => {
                self.hear_got(peer, operation, offset, payload)?;
            }
            Remote::Part { operation, offset, is_put: true } => {
                self.hear_part(peer, operation, offset, payload)?;
            }
        }
        Some(())
    }

    /// The memory of these places.
    pub(super) fn spots(&self, places: &Places, access: Access) -> Outcome<Spots> {
        let ends = self.ends()?;
        if access.0 & !ends.rights != 0 {
            return Err(Errno::ACCES);
        }
        let mut spots = Spots { parts: [Lent::EMPTY; PLACES], count: 0, is_counted: false };
        // Where nothing is reached, no key is needed.
        for place in places.all().iter().filter(|place| place.length != 0) {
            let length = usize::try_from(place.length).map_err(|_| Errno::INVAL)?;
            let reached = ends.regions.lookup(place.key, place.address, length, access)?;
            let start = ptr::with_exposed_provenance_mut(reached.address);
            // SAFETY: inside of what the program has registered, which is its memory until that is closed; and nothing is
            // closed while this traffic is lent to somebody.
            spots.parts[spots.count] = unsafe { Lent::new(start, length) };
            spots.count += 1;
            spots.is_counted |= reached.is_counted;
        }
        Ok(spots)
    }

    /// A peer has reached memory here in such a way.
    pub(super) fn count_remote(&self, places: &Places, is_counted: bool, access: Access) {
        let Some(ends) = &self.ends else { return };
        let counter =
            if access.0 & sys::FI_REMOTE_READ != 0 { &ends.remote_reads } else { &ends.remote_writes };
        if let Some(counter) = counter {
            counter.add(1);
        }
        if is_counted {
            self.count_regions(places, access);
        }
    }

    /// The same, as those count it who have registered the memory.
    #[cold]
    pub(super) fn count_regions(&self, places: &Places, access: Access) {
        let Some(ends) = &self.ends else { return };
        for (index, place) in places.all().iter().enumerate() {
            if places.all()[..index].iter().all(|before| before.key != place.key) {
                ends.regions.count(place.key, access);
            }
        }
    }

    /// Says that an operation was carried out, or why not.
    pub(super) fn answer(&mut self, peer: u32, operation: u64, code: i32) {
        self.inform(peer, &Remote::Done { operation, code: code as u32 });
    }

    fn inform(&mut self, peer: u32, entry: &Remote) {
        let mut head = [0; HEAD];
        let (kind, length) = entry.emit(&mut head);
        if let Some(there) = self.peers.get_mut(peer as usize) {
            there.queue.push_back(Item::Note(Note::of(kind, &head[..length])));
        }
    }

    /// The same with bytes, as they are now.
    pub(super) fn answer_with(&mut self, peer: u32, operation: u64, bytes: &[Lent]) -> Option<()> {
        let mut head = [0; HEAD];
        let (kind, length) = Remote::Done { operation, code: 0 }.emit(&mut head);
        let head = &head[..length];
        let there = self.peers.get_mut(peer as usize)?;
        if let ([whole], true) = (bytes, there.queue.is_empty())
            && let Some(mailbox) = there.mailbox.as_mut()
            && mailbox.push(kind, [lend(head), *whole]).ok()?
        {
            return Some(());
        }
        let mut answer = head.to_vec();
        bytes.iter().for_each(|part| part.append_to(&mut answer));
        there.queue.push_back(Item::Remote(Waiting::Answer(kind, answer.into_boxed_slice())));
        Some(())
    }

    /// What a peer has put is here, or is not going to be.
    fn was_put(
        &mut self,
        peer: u32,
        operation: u64,
        data: Option<u64>,
        places: &Places,
        (length, is_counted): (usize, bool),
        code: i32,
    ) {
        if code == 0 {
            self.count_remote(places, is_counted, Access::REMOTE_WRITE);
            if let Some(data) = data {
                self.be_told(peer, length, data);
            }
        }
        self.answer(peer, operation, code);
    }

    /// Data that have come with what was put.
    fn be_told(&mut self, peer: u32, length: usize, data: u64) {
        let source = self.source(peer);
        self.enter(Entry::Done(Completion {
            context: Foreign::NULL,
            flags: sys::FI_RMA | sys::FI_REMOTE_WRITE | sys::FI_REMOTE_CQ_DATA,
            length,
            buffer: Foreign::NULL,
            data,
            tag: 0,
            source,
        }));
    }

    /// Reads what is to be put where it lies, or asks for it.
    fn bring(
        &mut self,
        peer: u32,
        operation: u64,
        data: Option<u64>,
        places: &Places,
        lies: &Lies,
    ) -> Option<()> {
        let length = usize::try_from(places.total()?).ok()?;
        let outcome = self.spots(places, Access::REMOTE_WRITE);
        let (code, is_counted) = match &outcome {
            Err(Errno(code)) => (*code, false),
            Ok(spots) => {
                let read = |memory: CrossMemory| {
                    each_run(spots.all(), lies, |address, spot| memory.read(address, spot))
                };
                match self.peers.get(peer as usize)?.copy(read) {
                    Some(Ok(())) => (0, spots.is_counted),
                    None => {
                        self.begin_work(peer, operation, Carried::Put(data), places, length)?;
                        self.inform(peer, &Remote::Want { operation });
                        return Some(());
                    }
                    Some(Err(Errno(code))) => (code, false),
                }
            }
        };
        self.was_put(peer, operation, data, places, (length, is_counted), code);
        Some(())
    }

    /// Answers a get.
    fn give(&mut self, peer: u32, operation: u64, places: &Places, lies: &Lies) -> Option<()> {
        let length = usize::try_from(places.total()?).ok()?;
        let spots = match self.spots(places, Access::REMOTE_READ) {
            Ok(spots) => spots,
            Err(Errno(code)) => {
                self.answer(peer, operation, code);
                return Some(());
            }
        };
        if length <= EAGER {
            self.count_remote(places, spots.is_counted, Access::REMOTE_READ);
            return self.answer_with(peer, operation, spots.all());
        }
        let there = Some(self.peers.get(peer as usize)?).filter(|_| !lies.pieces().is_empty());
        let write =
            |memory: CrossMemory| each_run(spots.all(), lies, |address, spot| memory.write(address, spot));
        match there.and_then(|there| there.copy(write)) {
            Some(Ok(())) => {
                self.count_remote(places, spots.is_counted, Access::REMOTE_READ);
                self.answer(peer, operation, 0);
            }
            None => {
                self.begin_work(peer, operation, Carried::Get, places, length)?;
                self.peers.get_mut(peer as usize)?.queue.push_back(Item::Remote(Waiting::Work));
            }
            Some(Err(Errno(code))) => self.answer(peer, operation, code),
        }
        Some(())
    }

    fn begin_work(
        &mut self,
        peer: u32,
        operation: u64,
        act: Carried,
        places: &Places,
        length: usize,
    ) -> Option<()> {
        // Of nothing there are no parts.
        if length == 0 {
            return None;
        }
        let work = Work { operation, act, places: *places, length, done: 0, code: 0 };
        self.peers.get_mut(peer as usize)?.target.work = Some(Box::new(work));
        Some(())
    }

    /// A part of what is put here.
    fn hear_part(&mut self, peer: u32, operation: u64, offset: u64, payload: Lent) -> Option<()> {
        let work = self.peers.get_mut(peer as usize)?.target.work.take()?;
        let Carried::Put(data) = work.act else { return None };
        let is_next = work.operation == operation && work.done as u64 == offset && !payload.is_empty();
        if !is_next || payload.len() > work.length - work.done {
            return None;
        }
        let mut work = work;
        let mut is_counted = false;
        match self.spots(&work.places, Access::REMOTE_WRITE) {
            Ok(spots) => {
                let mut done = 0;
                for part in parts(spots.all(), work.done, payload.len()) {
                    copy(payload.slice(done, part.len()), part);
                    done += part.len();
                }
                is_counted = spots.is_counted;
            }
            Err(Errno(code)) => work.code = code,
        }
        work.done += payload.len();
        if work.done < work.length {
            self.peers.get_mut(peer as usize)?.target.work = Some(work);
            return Some(());
        }
        let Work { places, length, code, .. } = *work;
        self.was_put(peer, operation, data, &places, (length, is_counted), code);
        self.catch_up(peer)
    }

    /// Sends parts of what a peer gets; whether they were the last.
    pub(super) fn send_work(&mut self, peer: u32) -> Result<bool, Lost> {
        let work = self.peers.get_mut(peer as usize).and_then(|there| there.target.work.take());
        let Some(mut work) = work else { return Ok(true) };
        let mut outcome = Ok(false);
        while work.done < work.length {
            let length = PIECE.min(work.length - work.done);
            let spots = match self.spots(&work.places, Access::REMOTE_READ) {
                Ok(spots) => spots,
                Err(errno) => {
                    outcome = Err(errno);
                    break;
                }
            };
            self.scratch.clear();
            parts(spots.all(), work.done, length).for_each(|part| part.append_to(&mut self.scratch));
            let Some(there) = self.peers.get_mut(peer as usize) else { return Ok(true) };
            let Some(mailbox) = there.mailbox.as_mut() else { return Ok(false) };
            let mut head = [0; HEAD];
            let entry = Remote::Part { operation: work.operation, offset: work.done as u64, is_put: false };
            let (kind, head_length) = entry.emit(&mut head);
            let entry = [lend(&head[..head_length]), lend(&self.scratch)];
            if !mailbox.push(kind, entry).map_err(|_| Lost)? {
                there.target.work = Some(work);
                return Ok(false);
            }
            work.done += length;
            outcome = Ok(spots.is_counted);
        }
        match outcome {
            Ok(is_counted) => {
                self.count_remote(&work.places, is_counted, Access::REMOTE_READ);
                self.answer(peer, work.operation, 0);
            }
            Err(Errno(code)) => self.answer(peer, work.operation, code),
        }
        self.catch_up(peer).ok_or(Lost).map(|()| true)
    }
}

/// Reads the header of an entry that lies there.
fn parse(kind: u8, bytes: Lent) -> Option<(Remote, usize)> {
    Remote::parse(kind, bytes.len(), |at| {
        let mut word = [0; 8];
        bytes.read(at, &mut word);
        u64::from_le_bytes(word)
    })
}

/// The parts in which so many bytes from an offset on lie.
fn parts(spots: &[Lent], offset: usize, length: usize) -> impl Iterator<Item = Lent> {
    let (mut skip, mut left) = (offset, length);
    spots.iter().filter_map(move |spot| {
        let from = skip.min(spot.len());
        skip -= from;
        let here = (spot.len() - from).min(left);
        left -= here;
        (here != 0).then(|| spot.slice(from, here))
    })
}

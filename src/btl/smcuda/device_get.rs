//! The side that copies: GETs from device memory, and to it.

use super::counters::Counters;
use super::device::{Inner, Job, Out};
use super::wire::Message;
use crate::btl::{Cookie, EndpointId, Lent};
use crate::cuda::share::Exported;
use crate::cuda::{self, Place, Transfer};
use crate::error::{Error, Result};

/// What a GET reads.
#[derive(Clone, Copy)]
pub(super) enum Remote {
    /// Host memory of the peer's.
    Host { address: u64 },
    /// What it has registered of a device, from an offset on; and what opens it, if anything does.
    Device { address: u64, serial: u64, offset: u64, exported: Option<Exported> },
}

/// A GET under way.
pub(super) struct Get {
    pub(super) peer: EndpointId,
    cookie: Cookie,
    local: Lent,
    place: Place,
    remote: Remote,
    way: Way,
    /// Bytes that have arrived.
    done: u64,
    /// Copies that are under way.
    copies: u32,
    error: Option<Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From the peer's memory, in one copy.
    Direct,
    /// By way of the peer's slots.
    Staged,
    /// The peer's host memory by way of our slots: from this offset on.
    Read(u64),
}

impl Inner {
    /// Begins a GET; its end comes out.
    pub(super) fn get(
        &mut self,
        id: EndpointId,
        local: Lent,
        remote: Remote,
        cookie: Cookie,
        counters: &Counters,
    ) -> Result<()> {
        let place = super::device::device_of(local.as_ptr()).map_or(Place::Host, Place::Device);
        if let Place::Device(device) = place {
            self.device = Some(device);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let get =
            Get { peer: id, cookie, local, place, remote, way: Way::Direct, done: 0, copies: 0, error: None };
        self.gets.insert(ticket, get);
        if local.is_empty() {
            self.end(ticket, Ok(()));
            return Ok(());
        }
        let begun = match remote {
            Remote::Host { .. } => self.read(ticket),
            Remote::Device { .. } => {
                if !self.direct(ticket, counters) {
                    self.ask(ticket, counters);
                }
                Ok(())
            }
        };
        if begun.is_err() {
            self.gets.remove(&ticket);
        }
        begun
    }

    /// Opens the peer's memory and copies from it; false where that cannot be.
    fn direct(&mut self, ticket: u64, counters: &Counters) -> bool {
        let Some(get) = self.gets.get(&ticket) else { return false };
        let Remote::Device { address, exported: Some(exported), .. } = get.remote else { return false };
        let (peer, local, place) = (get.peer, get.local, get.place);
        let has_failed = self.peers.get(&peer).is_none_or(|peer| peer.handshake.has_failed());
        if has_failed || !self.settings.use_ipc {
            return false;
        }
        let Ok(opened) = self.open(peer, &exported, place, counters) else { return false };
        let Some(from) = opened.lend(address, local.len()) else { return false };
        let places = (place, opened.place());
        let begun = self.copy(Job::Whole { ticket }, Transfer::of(local, from), places, Some(opened));
        if begun && let Some(get) = self.gets.get_mut(&ticket) {
            get.way = Way::Direct;
            get.copies += 1;
        }
        begun
    }

    /// Has the peer send it by way of its slots.
    fn ask(&mut self, ticket: u64, counters: &Counters) {
        let Some(get) = self.gets.get_mut(&ticket) else { return };
        let Remote::Device { serial, offset, .. } = get.remote else { return };
        get.way = Way::Staged;
        get.done = 0;
        counters.num_staged_gets.add(1);
        let len = get.local.len() as u64;
        self.outs.push_back(Out::Send(get.peer, Message::Ask { ticket, serial, offset, len }));
    }

    /// Reads the peer's host memory, piece by piece.
    fn read(&mut self, ticket: u64) -> Result<()> {
        let Some(get) = self.gets.get_mut(&ticket) else { return Ok(()) };
        let peer = self.peers.get(&get.peer).ok_or(Error::Unreachable)?;
        peer.cross.ok_or(Error::Unsupported)?;
        get.way = Way::Read(0);
        self.reading.push_back(ticket);
        Ok(())
    }

    /// Goes on with what is read piece by piece, where there is room.
    pub(super) fn read_on(&mut self, counters: &Counters) {
        for _ in 0..self.reading.len() {
            let Some(ticket) = self.reading.pop_front() else { return };
            if self.read_piece(ticket, counters) {
                self.reading.push_back(ticket);
            }
        }
    }

    /// Reads a piece; whether there is more to come.
    fn read_piece(&mut self, ticket: u64, counters: &Counters) -> bool {
        let Some(get) = self.gets.get(&ticket) else { return false };
        let (Way::Read(next), Remote::Host { address }, None) = (get.way, get.remote, get.error) else {
            return false;
        };
        let (peer, place, local) = (get.peer, get.place, get.local);
        let Some(slot) = self.slots.take(peer) else { return true };
        let len = (local.len() - next as usize).min(crate::shm::Staging::SLOT);
        let cross = self.peers.get(&peer).and_then(|peer| peer.cross);
        let room = self.staging.slot(slot, len);
        let outcome = match (cross, room) {
            (Some(cross), Some(room)) => cross.read(address + next, room).map(|()| room),
            _ => Err(Error::Unsupported),
        };
        let begun = outcome.and_then(|room| {
            if let (Place::Device(device), Some(cuda)) = (place, &self.cuda) {
                self.pins.pin(cuda, &self.staging, slot, device);
            }
            let transfer = Transfer::of(local.slice(next as usize, len), room);
            let job = Job::Part { ticket, slot, len: len as u64 };
            if self.copy(job, transfer, (place, Place::Host), None) {
                Ok(())
            } else {
                Err(Error::Unsupported)
            }
        });
        let Some(get) = self.gets.get_mut(&ticket) else { return false };
        match begun {
            Ok(()) => {
                get.copies += 1;
                get.way = Way::Read(next + len as u64);
                counters.num_staged.add(1);
                counters.staged_bytes.add(len as u64);
                next as usize + len < local.len()
            }
            Err(error) => {
                self.slots.give(slot);
                get.error = Some(error);
                self.settle(ticket);
                false
            }
        }
    }

    /// A copy from the peer's memory is over.
    pub(super) fn whole(&mut self, ticket: u64, outcome: cuda::Result<()>, counters: &Counters) {
        let Some(get) = self.gets.get_mut(&ticket) else { return };
        get.copies -= 1;
        let len = get.local.len() as u64;
        match outcome {
            Ok(()) => {
                get.done = len;
                counters.num_ipc_gets.add(1);
                counters.ipc_bytes.add(len);
                self.settle(ticket);
            }
            // It could be opened, and yet not be copied: there is another way.
            Err(_) => self.ask(ticket, counters),
        }
    }

    /// A peer has filled a slot of its own for us.
    pub(super) fn filled(
        &mut self,
        from: EndpointId,
        ticket: u64,
        slot: u32,
        (at, len): (u64, u32),
        counters: &Counters,
    ) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let Some(room) = peer.staging.slot(slot as usize, len as usize) else {
            counters.num_ipc_strays.add(1);
            return;
        };
        let wanted = self.gets.get_mut(&ticket).filter(|get| {
            let inside = at.checked_add(u64::from(len)).is_some_and(|end| end <= get.local.len() as u64);
            get.peer == from && get.way == Way::Staged && inside
        });
        // What was given up may still come, and its slot is the owner's again.
        let Some(get) = wanted.filter(|get| get.error.is_none()) else {
            self.outs.push_back(Out::Send(from, Message::Emptied { slot }));
            return;
        };
        get.copies += 1;
        counters.num_staged.add(1);
        counters.staged_bytes.add(u64::from(len));
        let (place, to) = (get.place, get.local.slice(at as usize, len as usize));
        let transfer = Transfer::of(to, room);
        let Place::Device(device) = place else {
            transfer.by_processor();
            return self.part(ticket, slot as usize, u64::from(len), true, counters);
        };
        if let Some(cuda) = &self.cuda {
            peer.pins.pin(cuda, &peer.staging, slot as usize, device);
        }
        let job = Job::Part { ticket, slot: slot as usize, len: u64::from(len) };
        if !self.copy(job, transfer, (place, Place::Host), None) {
            self.part(ticket, slot as usize, u64::from(len), false, counters);
        }
    }

    /// A piece has been copied, or not.
    pub(super) fn part(&mut self, ticket: u64, slot: usize, len: u64, copied: bool, _counters: &Counters) {
        let Some(get) = self.gets.get_mut(&ticket) else { return };
        get.copies -= 1;
        if get.way == Way::Staged {
            let emptied = Message::Emptied { slot: slot as u32 };
            self.outs.push_back(Out::Send(get.peer, emptied));
            if !copied && get.error.is_none() {
                self.outs.push_back(Out::Send(get.peer, Message::Withdrawn { ticket }));
            }
        } else {
            self.slots.give(slot);
        }
        if copied {
            get.done = get.done.saturating_add(len);
        } else {
            get.error = Some(Error::OutOfResource);
        }
        self.settle(ticket);
    }

    /// The peer does not send it.
    pub(super) fn failed(&mut self, from: EndpointId, ticket: u64) {
        if let Some(get) = self.gets.get_mut(&ticket)
            && get.peer == from
            && get.way == Way::Staged
        {
            get.error.get_or_insert(Error::NotFound);
            self.settle(ticket);
        }
    }

    /// Ends a GET if nothing of it is under way, and all has come or no more will.
    fn settle(&mut self, ticket: u64) {
        let Some(get) = self.gets.get(&ticket) else { return };
        if get.copies > 0 {
            return;
        }
        if let Some(error) = get.error {
            self.end(ticket, Err(error));
        } else if get.done >= get.local.len() as u64 {
            self.end(ticket, Ok(()));
        }
    }

    /// A GET has ended.
    pub(super) fn end(&mut self, ticket: u64, outcome: Result<()>) {
        if let Some(get) = self.gets.remove(&ticket) {
            self.outs.push_back(Out::Done(get.peer, get.cookie, outcome));
        }
    }
}

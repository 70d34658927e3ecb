//! Device memory between two processes of a node.
//!
//! Whose memory it is registers it, and the peer copies from it: from the memory itself, which the peer's driver
//! opens ([`ipc`](super::ipc) has how both find out that it does), or else by way of the owner's
//! [slots](super::staging). What is in host memory there and on a device here is read by way of our own slots.
//!
//! Nothing of this exists before the first device buffer: a program without any pays one look at a flag. Nothing
//! here calls the host: what it is to be told, and what peers are, waits in one queue ([`Out`]), in order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::counters::Counters;
use super::device_get::Get;
use super::ipc::Handshake;
use super::parameters::Devices as Settings;
use super::staging::Slots;
use super::wire::Message;
use crate::btl::{Cookie, EndpointId, Lent};
use crate::cuda::share::{Bounce, Contexts, Copies, Exports, Imports};
use crate::cuda::{self, Device, Driver, Place};
use crate::error::Result;
use crate::shm::{CrossMemory, Staging};
use crate::sync::EngineCell;

/// Slots that are pinned together.
pub(super) const PINNED: usize = 4;

/// What is to be done outside, in this order for each peer.
pub(super) enum Out {
    /// A message to a peer.
    Send(EndpointId, Message),
    /// Device memory is sent by registering it from now on.
    Enable(EndpointId),
    /// A line for the user who wants to hear it.
    Say(EndpointId, String),
    /// A GET has ended.
    Done(EndpointId, Cookie, Result<()>),
}

impl Out {
    /// Whom it is about.
    pub(super) fn peer(&self) -> EndpointId {
        match self {
            Self::Send(peer, _) | Self::Enable(peer) | Self::Say(peer, _) | Self::Done(peer, ..) => *peer,
        }
    }
}

/// What is known of a peer outside.
pub(super) struct Facts {
    pub(super) name: u64,
    pub(super) staging: Staging,
    pub(super) cross: Option<CrossMemory>,
}

/// A peer with which device memory was spoken of.
pub(super) struct Peer {
    pub(super) handshake: Handshake,
    /// What is open of its memory.
    pub(super) imports: Option<Imports>,
    /// Its slots.
    pub(super) staging: Staging,
    /// Of these, what is pinned.
    pub(super) pins: Pins,
    pub(super) cross: Option<CrossMemory>,
    /// The host is to be told of it as soon as it knows the peer.
    pub(super) is_untold: bool,
}

/// Groups of slots that are pinned, or were to be.
#[derive(Default)]
pub(super) struct Pins([Option<Bounce>; Staging::SLOTS / PINNED]);

impl Pins {
    /// Pins what a slot belongs to, once.
    pub(super) fn pin(&mut self, cuda: &Cuda, staging: &Staging, slot: usize, device: Device) {
        let group = slot / PINNED;
        let Some(pin @ None) = self.0.get_mut(group) else { return };
        if let (Ok(context), Some(first)) =
            (cuda.contexts.of(device), staging.slot(group * PINNED, Staging::SLOT))
        {
            let start = first.as_ptr().addr();
            *pin = Some(Bounce::new(&cuda.contexts, context, start, PINNED * Staging::SLOT));
        }
    }
}

/// The driver, and what was made with it.
pub(super) struct Cuda {
    pub(super) driver: &'static Driver,
    pub(super) contexts: Arc<Contexts>,
    pub(super) exports: Exports,
    pub(super) copies: Copies,
}

/// Memory of a device that peers may copy.
pub(super) struct Registered {
    pub(super) memory: Lent,
    pub(super) device: Device,
}

/// What a copy that is under way is part of.
pub(super) enum Job {
    /// A GET from a peer's memory, which is open here.
    Whole { ticket: u64 },
    /// A GET by way of a slot: of the peer's, or our own.
    Part { ticket: u64, slot: usize, len: u64 },
    /// A slot is filled for a peer.
    Fill { peer: EndpointId, ticket: u64, serial: u64, slot: usize, at: u64, len: u32 },
}

/// All of a module.
pub(super) struct Devices {
    /// There is something to do.
    busy: AtomicBool,
    inner: EngineCell<Inner>,
}

pub(super) struct Inner {
    pub(super) own: u64,
    pub(super) settings: Settings,
    pub(super) cuda: Option<Cuda>,
    /// The device that was seen last.
    pub(super) device: Option<Device>,
    pub(super) peers: HashMap<EndpointId, Peer>,
    pub(super) registered: HashMap<u64, Registered>,
    pub(super) next_serial: u64,
    pub(super) gets: HashMap<u64, Get>,
    pub(super) next_ticket: u64,
    /// GETs that read host memory of a peer, piece by piece.
    pub(super) reading: VecDeque<u64>,
    pub(super) jobs: HashMap<u64, Job>,
    next_job: u64,
    pub(super) slots: Slots,
    pub(super) staging: Staging,
    pub(super) pins: Pins,
    pub(super) outs: VecDeque<Out>,
}

/// Whether memory is a device's and out of the processor's reach, and which.
#[inline]
pub(super) fn device_of(address: *const u8) -> Option<Device> {
    let address = address.addr();
    if cuda::is_surely_host(address) { None } else { ask(address) }
}

#[cold]
fn ask(address: usize) -> Option<Device> {
    match Driver::loaded()?.place(address) {
        Ok(Place::Device(device)) if !device.is_managed => Some(device),
        _ => None,
    }
}

impl Devices {
    pub(super) fn new(own: u64, settings: Settings, staging: Staging) -> Self {
        Self {
            busy: AtomicBool::new(false),
            inner: EngineCell::new(Inner {
                own,
                settings,
                cuda: None,
                device: None,
                peers: HashMap::new(),
                registered: HashMap::new(),
                next_serial: 1,
                gets: HashMap::new(),
                next_ticket: 1,
                reading: VecDeque::new(),
                jobs: HashMap::new(),
                next_job: 1,
                slots: Slots::new(),
                staging,
                pins: Pins::default(),
                outs: VecDeque::new(),
            }),
        }
    }

    /// Whether there is something to do.
    #[inline(always)]
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Has the state do something; what follows is to be done outside.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        self.inner.with(|inner| {
            let result = f(inner);
            self.busy.store(inner.is_busy(), Ordering::Relaxed);
            result
        })
    }
}

impl Inner {
    fn is_busy(&self) -> bool {
        !self.outs.is_empty() || !self.jobs.is_empty() || !self.reading.is_empty() || self.slots.has_wishes()
    }

    /// The next thing to be done outside, but for peers whose rings are full.
    pub(super) fn next_out(&mut self, full: &[EndpointId]) -> Option<Out> {
        let place = self.outs.iter().position(|out| !full.contains(&out.peer()))?;
        self.outs.remove(place)
    }

    /// The driver, if the program has loaded it.
    pub(super) fn cuda(&mut self) -> Option<&mut Cuda> {
        if self.cuda.is_none() {
            let driver = Driver::loaded()?;
            let contexts = Arc::new(Contexts::new(driver));
            self.cuda = Some(Cuda {
                driver,
                exports: Exports::new(Arc::clone(&contexts)),
                copies: Copies::new(Arc::clone(&contexts), self.settings.limits),
                contexts,
            });
        }
        self.cuda.as_mut()
    }

    /// A peer, which becomes known with the first that is heard of it.
    pub(super) fn meet(&mut self, id: EndpointId, facts: impl FnOnce() -> Option<Facts>) -> Option<()> {
        if !self.peers.contains_key(&id) {
            let facts = facts()?;
            let peer = Peer {
                handshake: Handshake::new(self.own > facts.name, facts.name),
                imports: None,
                staging: facts.staging,
                pins: Pins::default(),
                cross: facts.cross,
                is_untold: false,
            };
            self.peers.insert(id, peer);
        }
        Some(())
    }

    /// The host did not know the peer that it was told of: it will when it sends there.
    pub(super) fn tell_later(&mut self, id: EndpointId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.is_untold = true;
        }
    }

    /// Begins a copy that is part of something, and says whether that could be. Its end is seen in
    /// [`turn`](Self::turn).
    pub(super) fn copy(
        &mut self,
        job: Job,
        transfer: cuda::Transfer,
        (to, from): (Place, Place),
        keep: Option<cuda::share::Opened>,
    ) -> bool {
        let number = self.next_job;
        let Some(cuda) = self.cuda() else { return false };
        cuda.copies.begin(number, transfer, to, from, keep);
        self.next_job += 1;
        self.jobs.insert(number, job);
        true
    }

    /// A message has come.
    pub(super) fn hear(&mut self, from: EndpointId, bytes: &[u8], counters: &Counters) {
        match Message::parse(bytes) {
            Some(Message::Shake(message, offer)) => self.shaken(from, message, offer, counters),
            Some(Message::Ask { ticket, serial, offset, len }) => {
                self.asked(from, ticket, serial, offset, len)
            }
            Some(Message::Filled { ticket, slot, len, at }) => {
                self.filled(from, ticket, slot, (at, len), counters);
            }
            Some(Message::Emptied { slot }) => {
                if !self.slots.emptied(from, slot as usize) {
                    counters.num_ipc_strays.add(1);
                }
            }
            Some(Message::Failed { ticket }) => self.failed(from, ticket),
            Some(Message::Withdrawn { ticket }) => self.slots.withdraw(from, ticket),
            None => counters.num_ipc_strays.add(1),
        }
    }

    /// Does what there is to do.
    pub(super) fn turn(&mut self, counters: &Counters) {
        self.look(counters);
        self.serve(counters);
        self.read_on(counters);
    }

    /// Looks which copies are over.
    pub(super) fn look(&mut self, counters: &Counters) {
        if self.jobs.is_empty() {
            return;
        }
        let mut over = Vec::new();
        if let Some(cuda) = &mut self.cuda {
            cuda.copies.poll(|number, outcome| over.push((number, outcome)));
        }
        for (number, outcome) in over {
            match self.jobs.remove(&number) {
                Some(Job::Whole { ticket }) => self.whole(ticket, outcome, counters),
                Some(Job::Part { ticket, slot, len }) => {
                    self.part(ticket, slot, len, outcome.is_ok(), counters)
                }
                Some(Job::Fill { peer, ticket, serial: _, slot, at, len }) => {
                    self.fill_over(peer, ticket, slot, (at, len), outcome.is_ok(), counters);
                }
                None => {}
            }
        }
    }

    /// A peer has gone, or the host wants nothing of it any more. What is under way with it is waited for: devices
    /// are at work in memory that is going to be the program's again.
    pub(super) fn lose(&mut self, id: EndpointId, counters: &Counters) {
        if !self.peers.contains_key(&id) {
            return;
        }
        let tickets: Vec<u64> =
            self.gets.iter().filter(|(_, get)| get.peer == id).map(|(ticket, _)| *ticket).collect();
        let is_its = |job: &Job| match job {
            Job::Whole { ticket } | Job::Part { ticket, .. } => tickets.contains(ticket),
            Job::Fill { peer, .. } => *peer == id,
        };
        while self.jobs.values().any(is_its) {
            self.look(counters);
        }
        for ticket in tickets {
            self.end(ticket, Err(crate::error::Error::Unreachable));
        }
        // Not before: what was still being filled has just become the peer's to empty.
        self.slots.lose(id);
        self.peers.remove(&id);
        // It hears nothing any more.
        self.outs.retain(|out| out.peer() != id || matches!(out, Out::Done(..)));
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;

//! The side whose memory it is: what is registered, and the slots that are filled for peers which cannot open it.

use super::counters::Counters;
use super::device::{Inner, Job, Out, Registered};
use super::wire::Message;
use crate::btl::{EndpointId, Lent, PIECE, Piece};
use crate::cuda::share::Exported;
use crate::cuda::{Device, Place, Transfer};

/// What a registration's piece says.
pub(super) struct Described {
    /// The number that it is registered under.
    pub(super) serial: u64,
    /// What opens it, if anything does.
    pub(super) exported: Option<Exported>,
}

/// What a piece of device memory begins with.
const MAGIC: u64 = 0x3130_4350_5649_4544;

const _: () = assert!(Described::HEAD + Exported::LENGTH <= PIECE);

impl Described {
    const HEAD: usize = 16;

    fn to_piece(&self) -> Piece {
        let mut piece = [0; PIECE];
        piece[..8].copy_from_slice(&MAGIC.to_le_bytes());
        piece[8..16].copy_from_slice(&self.serial.to_le_bytes());
        if let Some(exported) = &self.exported {
            piece[Self::HEAD..Self::HEAD + Exported::LENGTH].copy_from_slice(&exported.to_bytes());
        }
        piece
    }

    /// `None` where it is not device memory.
    pub(super) fn parse(piece: &Piece) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(piece[at..at + 8].try_into().unwrap_or_default());
        (word(0) == MAGIC).then(|| Self { serial: word(8), exported: Exported::parse(&piece[Self::HEAD..]) })
    }
}

impl Inner {
    /// Registers memory of a device.
    pub(super) fn register(&mut self, memory: Lent, device: Device) -> Piece {
        self.device = Some(device);
        let serial = self.next_serial;
        self.next_serial += 1;
        let use_ipc = self.settings.use_ipc;
        let exported = self.cuda().filter(|_| use_ipc).and_then(|cuda| {
            let exported = cuda.exports.export(memory.as_ptr().addr(), memory.len()).ok().flatten();
            // Where that fails it goes by way of our slots, in streams that wait.
            exported.filter(|_| cuda.exports.settle(device).is_ok())
        });
        self.registered.insert(serial, Registered { memory, device });
        Described { serial, exported }.to_piece()
    }

    /// Ends a registration. Its memory is not looked at any more when this returns.
    pub(super) fn deregister(&mut self, piece: &Piece, counters: &Counters) {
        let Some(Described { serial, .. }) = Described::parse(piece) else { return };
        self.registered.remove(&serial);
        for (peer, ticket) in self.slots.forget(serial) {
            self.outs.push_back(Out::Send(peer, Message::Failed { ticket }));
        }
        let is_of_it = |job: &Job| matches!(job, Job::Fill { serial: of, .. } if *of == serial);
        while self.jobs.values().any(is_of_it) {
            self.look(counters);
        }
    }

    /// A peer wants something by way of our slots.
    pub(super) fn asked(&mut self, from: EndpointId, ticket: u64, serial: u64, offset: u64, len: u64) {
        let is_there = self.registered.get(&serial).is_some_and(|registered| {
            offset.checked_add(len).is_some_and(|end| end <= registered.memory.len() as u64)
        });
        if is_there && len > 0 {
            self.slots.wish(from, ticket, serial, offset, len);
        } else {
            self.outs.push_back(Out::Send(from, Message::Failed { ticket }));
        }
    }

    /// Fills slots for those who want them.
    pub(super) fn serve(&mut self, counters: &Counters) {
        while let Some(fill) = self.slots.next() {
            let registered = self.registered.get(&fill.serial).map(|it| (it.memory, it.device));
            let room = self.staging.slot(fill.slot, fill.len);
            let begun = registered.zip(room).is_some_and(|((memory, device), room)| {
                if let Some(cuda) = &self.cuda {
                    self.pins.pin(cuda, &self.staging, fill.slot, device);
                }
                let transfer = Transfer::of(room, memory.slice(fill.offset as usize, fill.len));
                let job = Job::Fill {
                    peer: fill.peer,
                    ticket: fill.ticket,
                    serial: fill.serial,
                    slot: fill.slot,
                    at: fill.at,
                    len: fill.len as u32,
                };
                self.copy(job, transfer, (Place::Host, Place::Device(device)), None)
            });
            if !begun {
                self.fill_over(
                    fill.peer,
                    fill.ticket,
                    fill.slot,
                    (fill.at, fill.len as u32),
                    false,
                    counters,
                );
            }
        }
    }

    /// A slot has been filled, or not.
    pub(super) fn fill_over(
        &mut self,
        peer: EndpointId,
        ticket: u64,
        slot: usize,
        (at, len): (u64, u32),
        filled: bool,
        counters: &Counters,
    ) {
        if filled && self.peers.contains_key(&peer) {
            counters.num_staged.add(1);
            counters.staged_bytes.add(u64::from(len));
            self.slots.hand_over(slot);
            self.outs.push_back(Out::Send(peer, Message::Filled { ticket, slot: slot as u32, len, at }));
        } else {
            self.slots.give(slot);
            self.slots.withdraw(peer, ticket);
            self.outs.push_back(Out::Send(peer, Message::Failed { ticket }));
        }
    }
}

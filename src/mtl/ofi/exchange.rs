//! Communicators whose short id differs from member to member (`MPI_Comm_create_from_group`).
//!
//! A sender must know what the receiver calls the communicator. The first send to a peer asks for
//! it with an [`Announcement`]; nonblocking sends queue up behind the question in order, blocking
//! ones wait. A question may arrive before this process has made the communicator: it is kept and
//! answered then.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use super::body::{Kept, Kind};
use super::{Body, Ofi, Outgoing};
use crate::error::{Error, Result};
use crate::fabric::{Landing, Lease, Payload, PostError, sys};
use crate::mtl::{Communicator, Outcome, Route, Upcalls};
use crate::sync::EngineCell;
use crate::wire::announcement::{Announcement, LEN};
use crate::wire::tag::Layout;

/// Receives kept posted for announcements.
const LISTENERS: usize = 8;
/// Questions kept for communicators that do not exist yet; more are dropped.
const MOST_EARLY: usize = 65_536;

/// What is known of one member of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Unknown,
    Asked,
    Known(u32),
    Lost,
}

/// A nonblocking send that waits for the receiver's id.
pub(super) struct Waiting<H: Upcalls> {
    pub(super) lease: Lease<Body<H>>,
    pub(super) dest: i32,
    pub(super) tag: i32,
    pub(super) convertor: H::Conv,
    pub(super) route: Route,
    pub(super) synchronous: bool,
}

struct Entry<H: Upcalls> {
    comm: H::Comm,
    members: Vec<Member>,
    waiting: VecDeque<Waiting<H>>,
}

/// All such communicators of this process.
pub(super) struct Exchange<H: Upcalls> {
    state: EngineCell<State<H>>,
    listening: AtomicBool,
}

struct State<H: Upcalls> {
    /// A communicator's note is its place here, plus one.
    entries: Vec<Option<Entry<H>>>,
    early: Vec<Announcement>,
    /// Where announcements are received; a listener's `data` is its place here.
    buffers: Vec<Box<[u8]>>,
}

impl<H: Upcalls> State<H> {
    fn entry(&mut self, comm: H::Comm) -> Option<&mut Entry<H>> {
        self.entries.get_mut(comm.note().checked_sub(1)?)?.as_mut()
    }

    fn member(&mut self, comm: H::Comm, rank: i32) -> Option<&mut Member> {
        self.entry(comm)?.members.get_mut(usize::try_from(rank).ok()?)
    }
}

impl<H: Upcalls> Exchange<H> {
    pub(super) fn new() -> Self {
        let buffers = (0..LISTENERS).map(|_| vec![0; LEN].into_boxed_slice()).collect();
        let state = State { entries: Vec::new(), early: Vec::new(), buffers };
        Self { state: EngineCell::new(state), listening: AtomicBool::new(false) }
    }
}

impl<H: Upcalls> Ofi<H> {
    /// Makes a communicator known before its first message.
    pub fn add_comm<L: Layout>(&self, comm: H::Comm) -> Result<()> {
        if comm.is_global() {
            return Ok(());
        }
        if !self.exchange.listening.swap(true, Ordering::AcqRel) {
            for place in 0..LISTENERS {
                let lease = self.pool.take(Body { data: Cell::new(place as u64), ..Body::new(Kind::Listen) });
                self.listen::<L>(lease)?;
            }
        }
        let early: Vec<_> = self.exchange.state.with(|state| {
            let entry = Entry { comm, members: vec![Member::Unknown; comm.size()], waiting: VecDeque::new() };
            let place = state.entries.iter().position(Option::is_none).unwrap_or_else(|| {
                state.entries.push(None);
                state.entries.len() - 1
            });
            state.entries[place] = Some(entry);
            comm.set_note(place + 1);
            let (ours, others) = state.early.drain(..).partition(|early| early.id == comm.extended_id());
            state.early = others;
            ours
        });
        for announcement in early {
            self.hear::<L>(announcement);
        }
        Ok(())
    }

    /// Forgets a communicator after its last message.
    pub fn remove_comm(&self, comm: H::Comm) {
        if !comm.is_global() {
            self.exchange.state.with(|state| {
                if let Some(entry) = comm.note().checked_sub(1).and_then(|place| state.entries.get_mut(place))
                {
                    *entry = None;
                }
            });
            comm.set_note(0);
        }
    }

    /// Posts a receive for the next announcement.
    fn listen<L: Layout>(&self, lease: Lease<Body<H>>) -> Result<()> {
        let place = lease.data.get() as usize;
        let landing = self.exchange.state.with(|state| Landing::held(&mut state.buffers[place]));
        self.post::<L>(|| self.endpoint.first().recv_untagged(landing, lease))
    }

    /// An announcement came in.
    pub(super) fn heard<L: Layout>(&self, lease: Lease<Body<H>>, len: usize) {
        let place = lease.data.get() as usize;
        let announcement =
            self.exchange.state.with(|state| Announcement::parse(state.buffers[place].get(..len)?));
        if self.listen::<L>(lease).is_err() {
            H::notice(
                "provider failed",
                "the provider takes no more receives for untagged messages; communicators made from groups may hang",
            );
        }
        if let Some(announcement) = announcement {
            self.hear::<L>(announcement);
        }
    }

    fn hear<L: Layout>(&self, announcement: Announcement) {
        let found = self.exchange.state.with(|state| {
            let entry =
                state.entries.iter().flatten().find(|entry| entry.comm.extended_id() == announcement.id);
            let comm = entry.map(|entry| entry.comm);
            if comm.is_none() && state.early.len() < MOST_EARLY {
                state.early.push(announcement);
            }
            comm
        });
        let Some(comm) = found else { return };
        self.learned::<L>(comm, announcement.rank, announcement.index);
        if announcement.asks {
            self.dispatch_out::<L>(Outgoing::Announcement { comm, dest: announcement.rank, asks: false });
        }
    }

    /// The member's id is known: what waits for it goes out, in order.
    fn learned<L: Layout>(&self, comm: H::Comm, rank: i32, index: u32) {
        loop {
            let next = self.exchange.state.with(|state| {
                let entry = state.entry(comm)?;
                if let Some(at) = entry.waiting.iter().position(|waiting| waiting.dest == rank) {
                    return entry.waiting.remove(at);
                }
                // Only now: until here, later sends queue up behind the earlier ones.
                if let Some(member) = usize::try_from(rank).ok().and_then(|rank| entry.members.get_mut(rank))
                {
                    *member = Member::Known(index);
                }
                None
            });
            let Some(waiting) = next else { return };
            let lease = waiting.lease;
            if self.start::<L>(comm, index, &waiting).is_err() {
                lease.outcome.set(Outcome::Failed);
                self.sent(lease);
            }
        }
    }

    /// What the peer calls a communicator; asks for it and waits where it is not yet known.
    #[inline]
    pub(super) fn index_at<L: Layout>(&self, comm: H::Comm, dest: i32) -> Result<u32> {
        if comm.is_global() { Ok(comm.context_id()) } else { self.learn::<L>(comm, dest) }
    }

    #[inline(never)]
    fn learn<L: Layout>(&self, comm: H::Comm, dest: i32) -> Result<u32> {
        let mut spins = 0;
        loop {
            match self.ask::<L>(comm, dest) {
                Some(Member::Known(index)) => return Ok(index),
                Some(Member::Unknown | Member::Asked) => self.turn::<L>(&mut spins),
                Some(Member::Lost) | None => return Err(Error::Unreachable),
            }
        }
    }

    /// What is known of a member; the first time, the question goes out.
    fn ask<L: Layout>(&self, comm: H::Comm, dest: i32) -> Option<Member> {
        let (known, first) = self.exchange.state.with(|state| {
            let member = state.member(comm, dest)?;
            let first = *member == Member::Unknown;
            if first {
                *member = Member::Asked;
            }
            Some((*member, first))
        })?;
        if first {
            self.dispatch_out::<L>(Outgoing::Announcement { comm, dest, asks: true });
        }
        Some(known)
    }

    /// The peer's id for a nonblocking send, or the send is put off until it is known.
    pub(super) fn index_or_wait<L: Layout>(
        &self,
        comm: H::Comm,
        waiting: Waiting<H>,
    ) -> Result<Option<(u32, Waiting<H>)>> {
        if comm.is_global() {
            return Ok(Some((comm.context_id(), waiting)));
        }
        self.ask::<L>(comm, waiting.dest).ok_or(Error::Unreachable)?;
        self.exchange.state.with(|state| match state.member(comm, waiting.dest).copied() {
            Some(Member::Known(index)) => Ok(Some((index, waiting))),
            Some(Member::Unknown | Member::Asked) => {
                if let Some(entry) = state.entry(comm) {
                    entry.waiting.push_back(waiting);
                }
                Ok(None)
            }
            Some(Member::Lost) | None => Err(Error::Unreachable),
        })
    }

    /// Posts our announcement.
    pub(super) fn post_announcement<L: Layout>(
        &self,
        comm: H::Comm,
        dest: i32,
        asks: bool,
    ) -> std::result::Result<(), PostError> {
        let announcement = Announcement {
            id: comm.extended_id(),
            index: comm.context_id(),
            rank: comm.rank(),
            asks,
            directed: L::DIRECTED,
        };
        let to = self.address(comm, dest, 0).map_err(|_| PostError::Refused(sys::FI_EHOSTUNREACH as i32))?;
        let buffer = Box::new(announcement.emit());
        let state =
            Body { comm: Cell::new(Some(comm)), data: Cell::new(dest as u64), ..Body::new(Kind::Announce) };
        let lease = self.pool.take(state);
        let bytes = Payload::held(&*buffer);
        lease.kept.set(Kept::Bounce(buffer));
        self.endpoint.first().send_untagged(bytes, to, lease).inspect_err(|_| self.announced(lease))
    }

    /// An announcement has left.
    pub(super) fn announced(&self, lease: Lease<Body<H>>) {
        drop(lease.kept.take());
        self.pool.put(lease);
    }

    /// An announcement cannot reach its peer: what waits for the answer fails.
    #[cold]
    pub(super) fn announcement_failed(&self, comm: H::Comm, dest: i32) {
        H::notice(
            "peer unreachable",
            &format!("rank {dest} of a communicator made from a group cannot be reached"),
        );
        loop {
            let next = self.exchange.state.with(|state| {
                let entry = state.entry(comm)?;
                let at = entry.waiting.iter().position(|waiting| waiting.dest == dest);
                if let Some(at) = at {
                    return entry.waiting.remove(at);
                }
                if let Some(member) = state.member(comm, dest).filter(|member| **member == Member::Asked) {
                    *member = Member::Lost;
                }
                None
            });
            let Some(Waiting { lease, .. }) = next else { return };
            lease.outcome.set(Outcome::Failed);
            self.sent(lease);
        }
    }
}

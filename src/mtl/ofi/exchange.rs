//! Communicators whose short id differs from member to member (`MPI_Comm_create_from_group`).
//!
//! A sender must know what the receiver calls the communicator. The first send to a peer asks for
//! it with an [`Announcement`]; nonblocking sends queue up behind the question in order, blocking
//! ones wait. A question may arrive before this process has made the communicator: it is kept and
//! answered then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::body::Op;
use super::send::Unsent;
use super::{Body, Ofi, Outgoing};
use crate::error::{Error, Result};
use crate::fabric::{PostError, Unposted, sys};
use crate::mtl::{Communicator, Outcome, Upcalls};
use crate::sync::EngineCell;
use crate::wire::announcement::{Announcement, LEN};
use crate::wire::tag::Layout;

/// Receives kept posted for announcements.
const LISTENERS: usize = 8;
/// Questions kept for communicators that do not exist yet; more are dropped.
const MOST_EARLY: usize = 65_536;

/// A communicator of this endpoint, never the same twice, and never 0: what the host notes of it.
pub type CommKey = usize;

/// What is known of one member of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Unknown,
    Asked,
    Known(u32),
    Lost,
}

/// A nonblocking send, which may have to wait for the receiver's id.
pub(super) struct Waiting<H: Upcalls> {
    pub(super) operation: Op<H>,
    pub(super) dest: i32,
    pub(super) tag: i32,
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
    /// Receives that listen for announcements, posted or about to be.
    listeners: AtomicUsize,
}

struct State<H: Upcalls> {
    last: CommKey,
    entries: BTreeMap<CommKey, Entry<H>>,
    early: Vec<Announcement>,
}

impl<H: Upcalls> State<H> {
    fn entry(&mut self, comm: CommKey) -> Option<&mut Entry<H>> {
        self.entries.get_mut(&comm)
    }

    fn member(&mut self, comm: CommKey, rank: i32) -> Option<&mut Member> {
        self.entry(comm)?.members.get_mut(usize::try_from(rank).ok()?)
    }

    /// What waits for the id of a member, one after the other.
    fn next_waiting(&mut self, comm: CommKey, rank: i32) -> Option<Waiting<H>> {
        let entry = self.entry(comm)?;
        let at = entry.waiting.iter().position(|waiting| waiting.dest == rank)?;
        entry.waiting.remove(at)
    }
}

impl<H: Upcalls> Exchange<H> {
    pub(super) fn new() -> Self {
        let state = State { last: 0, entries: BTreeMap::new(), early: Vec::new() };
        Self { state: EngineCell::new(state), listeners: AtomicUsize::new(0) }
    }

    /// A communicator that the host has not freed yet.
    pub(super) fn comm(&self, comm: CommKey) -> Option<H::Comm> {
        self.state.with(|state| state.entry(comm).map(|entry| entry.comm))
    }
}

impl<H: Upcalls> Ofi<H> {
    /// Makes a communicator known before its first message.
    ///
    /// # Errors
    /// The provider takes no receives outside tag matching.
    pub fn add_comm<L: Layout>(&self, comm: H::Comm) -> Result<()> {
        if comm.is_global() {
            return Ok(());
        }
        let one_more = |posted: usize| (posted < LISTENERS).then_some(posted + 1);
        let listeners = &self.exchange.listeners;
        while listeners.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok() {
            self.listen::<L>(self.pool().take(Body::Listen)).inspect_err(|_| {
                // The next communicator tries again.
                listeners.fetch_sub(1, Ordering::AcqRel);
            })?;
        }
        let early: Vec<_> = self.exchange.state.with(|state| {
            let entry = Entry { comm, members: vec![Member::Unknown; comm.size()], waiting: VecDeque::new() };
            state.last += 1;
            state.entries.insert(state.last, entry);
            comm.set_note(state.last);
            let (ours, others) = state.early.drain(..).partition(|early| early.id == comm.extended_id());
            state.early = others;
            ours
        });
        for announcement in early {
            self.hear::<L>(announcement);
        }
        Ok(())
    }

    /// Forgets a communicator after its last message: the host frees it, and whatever still names it here
    /// finds nothing.
    pub fn remove_comm(&self, comm: H::Comm) {
        if !comm.is_global() {
            let entry = self.exchange.state.with(|state| state.entries.remove(&comm.note()));
            comm.set_note(0);
            for Waiting { operation, .. } in entry.into_iter().flat_map(|entry| entry.waiting) {
                self.sent(operation, Outcome::Failed);
            }
        }
    }

    /// Posts a receive for the next announcement.
    fn listen<L: Layout>(&self, mut listener: Op<H>) -> Result<()> {
        listener.hold_bytes(Box::new([0; LEN]));
        let post = |listener| self.endpoint.first().recv_untagged(listener);
        self.post::<L, _, _>(listener, post).map_err(|(error, _)| error)
    }

    /// An announcement came in, of so many bytes.
    pub(super) fn heard<L: Layout>(&self, listener: Op<H>, len: usize) {
        let announcement = listener.bytes().and_then(|bytes| bytes.get(..len)).and_then(Announcement::parse);
        if self.listen::<L>(listener).is_err() {
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
            let found = state.entries.iter().find(|(_, entry)| entry.comm.extended_id() == announcement.id);
            let comm = found.map(|(comm, _)| *comm);
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
    fn learned<L: Layout>(&self, comm: CommKey, rank: i32, index: u32) {
        while let Some((handle, waiting)) = self.exchange.state.with(|state| {
            let waiting = state.next_waiting(comm, rank);
            if waiting.is_none()
                && let Some(member) = state.member(comm, rank)
            {
                // Only now: until here, later sends queue up behind the earlier ones.
                *member = Member::Known(index);
            }
            state.entry(comm).map(|entry| entry.comm).zip(waiting)
        }) {
            if let Err(Unsent { operation, .. }) = self.start::<L>(handle, index, waiting) {
                self.sent(operation, Outcome::Failed);
            }
        }
    }

    /// What the peer calls a communicator; asks for it and waits where it is not yet known.
    #[inline]
    pub(super) fn index_at<L: Layout>(&self, comm: H::Comm, dest: i32) -> Result<u32> {
        if comm.is_global() { Ok(comm.context_id()) } else { self.learn::<L>(comm.note(), dest) }
    }

    #[inline(never)]
    fn learn<L: Layout>(&self, comm: CommKey, dest: i32) -> Result<u32> {
        let mut spins = 0;
        loop {
            match self.inquire::<L>(comm, dest) {
                Some(Member::Known(index)) => return Ok(index),
                Some(Member::Unknown | Member::Asked) => self.turn::<L>(&mut spins),
                Some(Member::Lost) | None => return Err(Error::Unreachable),
            }
        }
    }

    /// What is known of a member; the first time, the question goes out.
    fn inquire<L: Layout>(&self, comm: CommKey, dest: i32) -> Option<Member> {
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

    /// The peer's id for a nonblocking send, or the send waits until it is known.
    pub(super) fn index_or_wait<L: Layout>(
        &self,
        comm: H::Comm,
        send: Waiting<H>,
    ) -> Result<Option<(u32, Waiting<H>)>> {
        if comm.is_global() {
            return Ok(Some((comm.context_id(), send)));
        }
        let key = comm.note();
        self.inquire::<L>(key, send.dest).ok_or(Error::Unreachable)?;
        self.exchange.state.with(|state| match state.member(key, send.dest).copied() {
            Some(Member::Known(index)) => Ok(Some((index, send))),
            Some(Member::Unknown | Member::Asked) => {
                if let Some(entry) = state.entry(key) {
                    entry.waiting.push_back(send);
                }
                Ok(None)
            }
            Some(Member::Lost) | None => Err(Error::Unreachable),
        })
    }

    /// Posts our announcement, unless the communicator has gone in the meantime.
    pub(super) fn post_announcement<L: Layout>(
        &self,
        comm: CommKey,
        dest: i32,
        asks: bool,
    ) -> std::result::Result<(), PostError> {
        let Some(handle) = self.exchange.comm(comm) else { return Ok(()) };
        let announcement = Announcement {
            id: handle.extended_id(),
            index: handle.context_id(),
            rank: handle.rank(),
            asks,
            directed: L::DIRECTED,
        };
        let to =
            self.address(handle, dest, 0).map_err(|_| PostError::Refused(sys::FI_EHOSTUNREACH as i32))?;
        let mut operation = self.pool().take(Body::Announce { comm, dest });
        operation.hold_bytes(Box::new(announcement.emit()));
        self.endpoint.first().send_untagged(to, operation).map_err(|Unposted { error, .. }| error)
    }

    /// An announcement cannot reach its peer: what waits for the answer fails.
    #[cold]
    pub(super) fn announcement_failed(&self, comm: CommKey, dest: i32) {
        if self.exchange.comm(comm).is_none() {
            return;
        }
        H::notice(
            "peer unreachable",
            &format!("rank {dest} of a communicator made from a group cannot be reached"),
        );
        while let Some(Waiting { operation, .. }) = self.exchange.state.with(|state| {
            let waiting = state.next_waiting(comm, dest);
            if waiting.is_none()
                && let Some(member) = state.member(comm, dest).filter(|member| **member == Member::Asked)
            {
                *member = Member::Lost;
            }
            waiting
        }) {
            self.sent(operation, Outcome::Failed);
        }
    }
}

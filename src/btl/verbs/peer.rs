//! One peer: its connection, if there is one, and what waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::connection::{Broken, Connection, Desk, Entry, Stall};
use super::counters::Counters;
use super::outgoing::Body;
use super::sending::Refused;
use crate::btl::{Atomic, Cookie, EndpointId, Fragment, Lent};
use crate::engine::cm::{self, Attempt, Reason};
use crate::verbs::{Mr, Piece, Remote, Work};
use crate::wire::verbs::Control;

/// What waits to be sent by a queue.
pub(super) enum Item {
    Fragment(Fragment<Lent>),
    Control(Control),
}

/// What is done with a peer's memory.
#[derive(Clone, Copy)]
pub(super) enum What {
    Write,
    Read,
    Change(Atomic),
}

/// An RDMA write or read, or an atomic operation.
pub(super) struct Transfer {
    pub(super) what: What,
    pub(super) local: Lent,
    /// The registration of the local memory; none of a write that is copied when it is posted, or without local memory.
    pub(super) memory: Option<Arc<Mr>>,
    pub(super) remote: Remote,
    pub(super) cookie: Cookie,
    /// Bytes that are posted.
    pub(super) posted: usize,
}

/// A peer.
pub(super) struct Peer {
    pub(super) id: EndpointId,
    pub(super) name: u64,
    pub(super) machine: cm::Endpoint,
    /// The host may send to it.
    pub(super) is_open: bool,
    /// It is the far end of the connection to the process itself, which the host does not have.
    pub(super) is_far: bool,
    pub(super) connection: Option<Connection>,
    /// What waits, by queue.
    pub(super) pending: Vec<VecDeque<Item>>,
    pub(super) transfers: VecDeque<Transfer>,
    /// RDMA reads and atomic operations that it serves at once.
    pub(super) served: usize,
    /// Why there is no connection, and will be none.
    pub(super) failure: Option<Reason>,
    /// The host has been told of that, or is just about to be.
    pub(super) is_lost: bool,
    /// It has said or done what no peer does.
    pub(super) is_corrupt: bool,
    /// There was no memory to be connected with when that was last tried, or none for what is transferred.
    pub(super) is_starved: bool,
    /// Since when there has been none to be connected with.
    pub(super) barren: Option<u64>,
    /// Memory of the program's that could not be registered for a transfer.
    pub(super) refused: Option<Refused>,
    /// What was under way on queue pairs that did not work any more.
    pub(super) dead: Vec<Cookie>,
    /// Queue pairs of it have not gone yet.
    pub(super) departing: usize,
    /// The peer has said that nothing follows, since it was last connected, or we have.
    pub(super) has_said_bye: bool,
    pub(super) says_bye: bool,
    /// That is still to be said, when there is nothing else to say.
    pub(super) owes_bye: bool,
    /// The host has closed it, and that is over: it is nobody's any more.
    pub(super) is_closed: bool,
    /// There was something left to send, or under way, when that was over, or could not be heard of any more.
    pub(super) is_cut: bool,
    /// It is in the list of those to be looked at.
    pub(super) is_touched: bool,
    /// It is in the list of those that wait for a word.
    pub(super) is_stalled: bool,
    /// Only probes are sent, to hear that all has arrived.
    pub(super) is_draining: bool,
}

impl Peer {
    pub(super) fn new(
        id: EndpointId,
        name: u64,
        machine: cm::Endpoint,
        queues: usize,
        served: usize,
    ) -> Self {
        Self {
            id,
            name,
            machine,
            is_open: false,
            is_far: false,
            connection: None,
            pending: (0..queues).map(|_| VecDeque::new()).collect(),
            transfers: VecDeque::new(),
            served,
            failure: None,
            is_lost: false,
            is_corrupt: false,
            is_starved: false,
            barren: None,
            refused: None,
            dead: Vec::new(),
            departing: 0,
            has_said_bye: false,
            says_bye: false,
            owes_bye: false,
            is_closed: false,
            is_cut: false,
            is_touched: false,
            is_stalled: false,
            is_draining: false,
        }
    }

    /// The connection, if data may be sent.
    #[inline]
    pub(super) fn connected(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut().filter(|connection| connection.is_connected && !connection.is_ending)
    }

    /// Whether what waits for a queue could go, had it a buffer.
    pub(super) fn waits_for_buffer(&self, queue: usize) -> bool {
        let could_go = |connection: &Connection| {
            let side = &connection.sides[queue];
            let has_credit = side.credit.left() > 0 || connection.openib.is_some() && side.receives.is_none();
            connection.is_connected && !connection.is_ending && has_credit && side.slots.has_room()
        };
        !self.pending[queue].is_empty()
            && !self.is_parting()
            && self.connection.as_ref().is_some_and(could_go)
    }

    /// Whether the peer has said that nothing follows, and it is wanted: what waits goes by the next connection.
    #[inline]
    pub(super) fn is_parting(&self) -> bool {
        self.has_said_bye && !self.says_bye
    }

    /// The connection that the peer has done with, when nothing of ours is under way there any more.
    pub(super) fn is_left(&self) -> Option<Attempt> {
        let is_over = |connection: &&Connection| {
            connection.openib.is_none()
                && connection.is_connected
                && !connection.is_ending
                && connection.is_all_over()
        };
        let connection = self.connection.as_ref().filter(is_over);
        connection.filter(|_| self.is_parting()).map(|connection| connection.attempt)
    }

    /// Whether there is a connection by which the peer may say something.
    pub(super) fn can_say(&self) -> bool {
        self.connection.as_ref().is_some_and(|it| it.is_connected && !it.is_ending && it.openib.is_none())
    }

    /// Whether nothing is in the way of short messages, to it and from it, which go by the first queue.
    pub(super) fn is_free(&self) -> bool {
        let is_ready = |connection: &Connection| {
            connection.is_connected
                && !connection.is_ending
                && connection.openib.is_none()
                && connection.sides[0].is_short()
        };
        self.failure.is_none()
            && !(self.has_said_bye || self.says_bye || self.is_closed || self.is_far)
            && self.machine.is_settled(0)
            && self.is_idle()
            && self.connection.as_ref().is_some_and(is_ready)
    }

    /// Whether nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.transfers.is_empty() && self.pending.iter().all(VecDeque::is_empty)
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_idle() && self.connection.as_ref().is_none_or(Connection::is_all_over)
    }

    /// Sends a fragment at once, if it can go.
    #[inline]
    pub(super) fn push(
        &mut self,
        queue: usize,
        tag: Option<u8>,
        body: Body<'_>,
        waits: Option<Cookie>,
        desk: &mut Desk,
    ) -> Result<Result<(), Stall>, Broken> {
        if !self.machine.may_send(queue as u8) {
            return Ok(Err(Stall::Connection));
        }
        match self.connected() {
            Some(connection) => connection.push(queue, tag, body, waits, desk),
            None => Ok(Err(Stall::Connection)),
        }
    }

    /// Sends what waits, as far as it can go. `sent` hears of what the host needs no more. Whether something waits for what
    /// no completion tells: a word of the peer's, or a buffer.
    pub(super) fn flush(&mut self, desk: &mut Desk, mut sent: impl FnMut(Cookie)) -> Result<bool, Broken> {
        if self.connected().is_none() {
            return Ok(false);
        }
        let credits = desk.port.queues.credits();
        let mut is_stalled = false;
        for step in 0..self.pending.len() {
            // What is for control goes first.
            let queue = (credits + step) % self.pending.len();
            while let Some(item) = self.pending[queue].pop_front() {
                let outcome = match &item {
                    // What it would do with it is not known before it is connected again.
                    Item::Fragment(_) if self.is_parting() => Ok(Err(Stall::Connection)),
                    Item::Fragment(fragment) => {
                        let pieces = fragment.pieces.map(|piece| piece.unwrap_or(Lent::EMPTY));
                        let waits = fragment.awaited.then_some(fragment.cookie);
                        self.push(queue, Some(fragment.tag), Body::Pieces(pieces), waits, desk)
                    }
                    Item::Control(control) => {
                        let (bytes, len) = control.to_bytes();
                        self.push(queue, None, Body::Bytes(&bytes[..len]), None, desk)
                    }
                };
                match (outcome, item) {
                    (Ok(Ok(())), Item::Fragment(fragment)) if !fragment.awaited => sent(fragment.cookie),
                    (Ok(Ok(())), _) => {}
                    (Err(broken), item) => {
                        // It ends with all that waits: nobody else knows of it.
                        self.pending[queue].push_front(item);
                        return Err(broken);
                    }
                    (Ok(Err(stall)), item) => {
                        self.pending[queue].push_front(item);
                        self.ask(queue, stall, desk);
                        is_stalled |= matches!(stall, Stall::Credit | Stall::Buffer);
                        break;
                    }
                }
            }
        }
        // What has been asked meanwhile goes with the next look.
        if !self.pending[credits].is_empty() {
            is_stalled = true;
        }
        while let Some(mut transfer) = self.transfers.pop_front() {
            let posted = self.transfer(&mut transfer, desk);
            if posted == Ok(true) {
                continue;
            }
            self.transfers.push_front(transfer);
            // It ends with all that waits, as above.
            posted?;
            is_stalled |= self.is_refused();
            break;
        }
        // It goes by a queue of its own: who hears it looks at no other for long.
        if self.owes_bye && self.is_idle() && self.has_arrived(credits) {
            let (bytes, len) = Control::Bye.to_bytes();
            let said = self.push(credits, None, Body::Bytes(&bytes[..len]), None, desk)?;
            self.owes_bye = said.is_err();
            is_stalled |= self.owes_bye;
        }
        let Some(connection) = self.connected() else { return Ok(is_stalled) };
        if !connection.write_words(desk)? {
            is_stalled = true;
        }
        if self.is_draining && (self.is_idle() || self.is_parting()) {
            is_stalled |= !self.drain(desk)?;
        }
        Ok(is_stalled)
    }

    /// Whether a transfer that could not be posted waits for the device alone, of which no completion need tell: there is a place,
    /// and reads are not what it waits for.
    fn is_refused(&mut self) -> bool {
        let served = self.served;
        if self.is_parting() {
            return false;
        }
        self.connected().is_some_and(|connection| {
            connection.reads < served && connection.sides[connection.sides.len() - 1].slots.has_room()
        })
    }

    /// Something waits for a credit of a shared queue, and the peer may not know.
    fn ask(&mut self, queue: usize, stall: Stall, desk: &Desk) {
        let is_shared = !desk.port.queues.all()[queue].is_private();
        let credits = desk.port.queues.credits();
        let Some(connection) = self.connection.as_mut().filter(|it| it.remote.is_some()) else { return };
        let side = &mut connection.sides[queue];
        if stall == Stall::Credit && is_shared && !std::mem::replace(&mut side.has_asked, true) {
            self.pending[credits].push_back(Item::Control(Control::Ask { queue: queue as u8 }));
        }
    }

    /// Whether all that was sent by other queues than one has arrived.
    fn has_arrived(&mut self, but: usize) -> bool {
        self.connected().is_none_or(|it| (0..it.sides.len()).all(|queue| queue == but || it.is_over(queue)))
    }

    /// Has each queue tell that all before has arrived. Whether the device took all the questions that there was a place for.
    fn drain(&mut self, desk: &Desk) -> Result<bool, Broken> {
        let Some(connection) = self.connected().filter(|it| it.remote.is_some()) else { return Ok(true) };
        let mut all = true;
        for queue in 0..connection.sides.len() {
            let slots = &connection.sides[queue].slots;
            let is_asked = matches!(slots.last(), Some(Entry::Probe { .. }));
            if !connection.is_over(queue) && slots.has_room() && !is_asked {
                all &= connection.probe(queue, desk)?;
            }
        }
        Ok(all)
    }

    /// Posts what is left of a transfer; whether that is all.
    pub(super) fn transfer(&mut self, transfer: &mut Transfer, desk: &Desk) -> Result<bool, Broken> {
        let queue = desk.port.queues.len() - 1;
        let (served, is_iwarp) = (self.served, desk.port.is_iwarp());
        if !self.machine.may_send(queue as u8) || self.is_parting() {
            return Ok(false);
        }
        let Some(connection) = self.connected() else { return Ok(false) };
        let length = transfer.local.len();
        // Where a write that has completed may not have arrived, a read behind it has its end.
        let is_fenced = is_iwarp && matches!(transfer.what, What::Write);
        if let What::Change(what) = transfer.what {
            return if connection.reads < served {
                change(transfer, what, connection, queue)
            } else {
                Ok(false)
            };
        }
        while transfer.posted < length {
            if matches!(transfer.what, What::Read) && connection.reads >= served {
                return Ok(false);
            }
            let part = desk.longest.min(length - transfer.posted);
            let local = transfer.local.slice(transfer.posted, part);
            let is_last = transfer.posted + part == length && !is_fenced;
            let key = transfer.memory.as_ref().map_or(0, |memory| memory.local_key());
            let address = transfer.remote.address.wrapping_add(transfer.posted as u64);
            let remote = Remote { address, key: transfer.remote.key };
            let cookie = is_last.then_some(transfer.cookie);
            let work = match transfer.what {
                What::Read => Work::Read(remote),
                _ => Work::Write(remote),
            };
            let work = (work, Piece::new(local, key));
            if !connection.post_part(work, (cookie, transfer.memory.clone()), queue)? {
                return Ok(false);
            }
            transfer.posted += part;
        }
        if is_fenced {
            let Some(fence) = connection.fence().filter(|_| connection.reads < served) else {
                return Ok(false);
            };
            return connection.post_part(fence, (Some(transfer.cookie), None), queue);
        }
        Ok(true)
    }

    /// What waits, all of it, in error or not: cookies.
    pub(super) fn drop_pending(&mut self) -> Vec<Cookie> {
        let items = self.pending.iter_mut().flat_map(|queue| queue.drain(..));
        let fragments = items.filter_map(|item| match item {
            Item::Fragment(fragment) => Some(fragment.cookie),
            Item::Control(_) => None,
        });
        let mut cookies: Vec<Cookie> = fragments.collect();
        cookies.extend(self.transfers.drain(..).map(|transfer| transfer.cookie));
        cookies
    }

    /// Its connection has ended as agreed. What of ours was about that is nothing to the next.
    pub(super) fn part(&mut self) {
        for pending in &mut self.pending {
            pending.retain(|item| matches!(item, Item::Fragment(_)));
        }
        if !self.says_bye && !self.is_idle() {
            self.machine.want();
        }
    }

    /// Whether the peer has parted, and there is no connection to say anything by.
    pub(super) fn has_parted(&self) -> bool {
        self.has_said_bye && self.connection.is_none() && self.departing == 0
    }

    /// How much waits.
    pub(super) fn queued(&self) -> usize {
        self.transfers.len() + self.pending.iter().map(VecDeque::len).sum::<usize>()
    }
}

/// Posts an atomic operation; whether there was a place for it.
fn change(
    transfer: &Transfer,
    what: Atomic,
    connection: &mut Connection,
    queue: usize,
) -> Result<bool, Broken> {
    let at = transfer.remote;
    let work = match what {
        Atomic::Add(add) => Work::FetchAdd { at, add },
        Atomic::CompareSwap { compare, swap } => Work::CompareSwap { at, compare, swap },
    };
    // There is no operation without a result.
    let piece = match &transfer.memory {
        Some(memory) => Piece::new(transfer.local, memory.local_key()),
        None => connection.nowhere(),
    };
    connection.post_part((work, piece), (Some(transfer.cookie), transfer.memory.clone()), queue)
}

/// Counts what something waits for.
pub(super) fn count(stall: Stall, counters: &Counters) {
    counters.num_queued.add(1);
    match stall {
        Stall::Turn => {}
        Stall::Connection => counters.num_stalls_connection.add(1),
        Stall::Credit => counters.num_stalls_credit.add(1),
        Stall::Slot => counters.num_stalls_slot.add(1),
        Stall::Buffer => counters.num_stalls_buffer.add(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cm::{Attempt, Order, Queues, Step, Wire};

    /// One with two queues, to whom nothing has been said.
    fn peer() -> Peer {
        let at = |last: u8| std::net::SocketAddr::from(([10, 0, 0, last], 7));
        let there = cm::Peer { process: 5, nonce: 6, listener: 0, address: at(2) };
        let queues = Queues { count: 2, credits: 0, hash: 1 };
        let machine = cm::Endpoint::new(
            cm::EndpointId(0),
            0,
            (at(1), cm::Dialect::Own),
            there,
            Wire::InfiniBand,
            queues,
        );
        Peer::new(EndpointId::from_raw(1 << 32), 5, machine, 2, 4)
    }

    fn fragment(cookie: Cookie) -> Item {
        Item::Fragment(Fragment { tag: 1, pieces: [None, None], cookie, priority: false, awaited: true })
    }

    fn transfer(cookie: Cookie) -> Transfer {
        let remote = Remote { address: 64, key: 1 };
        Transfer { what: What::Read, local: Lent::EMPTY, memory: None, remote, cookie, posted: 0 }
    }

    #[test]
    fn everything_of_the_host_that_waits_is_dropped_once_and_messages_of_our_own_are_nobodys() {
        let mut peer = peer();
        assert!(peer.is_idle() && peer.is_quiet());
        peer.pending[1].extend([fragment(8), fragment(16)]);
        peer.pending[0].extend([Item::Control(Control::Bye), fragment(24)]);
        peer.transfers.extend([transfer(3), transfer(5)]);
        assert_eq!((peer.queued(), peer.is_idle(), peer.is_quiet()), (6, false, false));
        assert_eq!(peer.drop_pending(), [24, 8, 16, 3, 5]);
        assert_eq!((peer.queued(), peer.is_idle(), peer.drop_pending()), (0, true, Vec::new()));
    }

    #[test]
    fn nothing_is_sent_to_a_peer_that_has_not_said_that_it_is_ready() {
        let mut peer = peer();
        assert!(matches!(peer.machine.poll_step(), Some(Step::Order(Order::Add { .. }))));
        assert_eq!(peer.machine.want(), cm::State::Connecting);
        let ids = Box::from([cm::Id::Own(1), cm::Id::Own(2)]);
        let up = cm::Notice::Up { endpoint: cm::EndpointId(0), attempt: Attempt(1), token: 1, ids };
        peer.machine.handle_notice(up);
        peer.machine.handle_receives_posted(Attempt(1));
        peer.machine.handle_cts_posted(Attempt(1));
        assert!(!peer.machine.may_send(0) && !peer.machine.may_send(1) && peer.connected().is_none());
        peer.machine.handle_cts(Attempt(1));
        assert!(peer.machine.may_send(0) && peer.machine.may_send(1));
        assert!(peer.connected().is_none(), "before its queue pairs are ours");
    }
}

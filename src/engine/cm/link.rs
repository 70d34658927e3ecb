//! One peer, as the connection thread sees it: its ids, and what happens to them.

use super::desk::Desk;
use super::dialect::Dialect;
use super::interface::{Action, Attempt, EndpointId, Event, Id, Notice, Peer, Reason, Role, Settings};
use crate::engine::time::Instant;
use crate::wire::openib;
use crate::wire::verbs::private::{Body, Malformed, Private, Refusal};

/// How far the connection to a peer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Nobody has wanted anything.
    Idle,
    /// Before the next attempt or kick. Has a timer.
    Pausing,
    /// An initiator's attempt. Has a timer.
    Asking,
    /// An acceptor waits for its kick to be rejected. Has a timer.
    Kicking,
    /// An acceptor has accepted some queue of an attempt. Has a timer.
    Answering,
    /// All queues are up, and the main thread's. That of an acceptor has a timer.
    Up,
    /// And it is connected.
    Settled,
    /// All queues have been disconnected, and the main thread is going to release them.
    Down,
    /// There is no connection, and there will be none.
    Failed,
    /// It is to be forgotten.
    Closed,
}

/// How far an id has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Resolving,
    Routing,
    Connecting,
    Accepting,
    Established,
}

/// An id of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leg {
    pub(super) id: Id,
    pub(super) stage: Stage,
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) endpoint: EndpointId,
    pub(super) listener: u8,
    pub(super) peer: Peer,
    pub(super) role: Role,
    pub(super) phase: Phase,
    /// The present attempt, or the last one.
    pub(super) attempt: Attempt,
    /// What the peer calls its endpoint in this attempt.
    pub(super) token: Option<u32>,
    /// The ids of the present attempt, by queue.
    pub(super) legs: Vec<Option<Leg>>,
    /// A kick that has not been rejected yet. The deadline is its.
    pub(super) kick: Option<Leg>,
    /// Kicks whose rejection changes nothing any more, each until then, or until its own deadline: who rejects one that is no
    /// more ends its job, if it is Open MPI's openib.
    pub(super) crossed: Vec<(Leg, Instant)>,
    /// Attempts and kicks so far that were not postponed; of what is up, kicks without an answer.
    pub(super) failures: u32,
    pub(super) postponements: u32,
    /// Why the last attempt or kick came to nothing.
    pub(super) why: Reason,
    /// The peer may have ended, as this side is about to.
    pub(super) hurries: bool,
    /// The main thread is going to be told that this has failed, when it has released the queue pairs.
    pub(super) doom: Option<Reason>,
    /// It ends when the main thread has released the queue pairs.
    pub(super) closing: bool,
    pub(super) deadline: Option<Instant>,
}

impl Link {
    pub(super) const fn new(endpoint: EndpointId, listener: u8, peer: Peer, role: Role) -> Self {
        Self {
            endpoint,
            listener,
            peer,
            role,
            phase: Phase::Idle,
            attempt: Attempt(0),
            token: None,
            legs: Vec::new(),
            kick: None,
            crossed: Vec::new(),
            failures: 0,
            postponements: 0,
            why: Reason::TimedOut,
            hurries: false,
            doom: None,
            closing: false,
            deadline: None,
        }
    }

    pub(super) const fn key(&self) -> (u8, u64, u8) {
        (self.listener, self.peer.process, self.peer.listener)
    }

    /// When it [expires](Self::expire) next.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.crossed.iter().map(|(_, deadline)| *deadline).chain(self.deadline).min()
    }

    /// Whether the queue pairs are the main thread's and not disconnected.
    pub(super) const fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up | Phase::Settled)
    }

    /// Something has happened to an id of this link.
    pub(super) fn handle_event(&mut self, id: Id, event: Event<'_>, desk: &mut Desk, now: Instant) {
        if event == Event::DeviceRemoved {
            self.fail(Reason::DeviceRemoved, desk);
            return;
        }
        if let Some(kick) = self.kick.filter(|kick| kick.id == id) {
            self.handle_kick(kick, event, desk, now);
            return;
        }
        if let Some(at) = self.crossed.iter().position(|(kick, _)| kick.id == id) {
            self.handle_crossed(at, event, desk);
            return;
        }
        let Some(queue) = self.legs.iter().position(|leg| leg.is_some_and(|leg| leg.id == id)) else {
            return;
        };
        match self.phase {
            Phase::Asking => self.handle_asking(queue, event, desk, now),
            Phase::Answering => self.handle_answering(queue, event, desk, now),
            // Of what is connected on both sides that says how the kernel sees the way to the peer, not what has become of
            // what was sent: the queue pairs go on, and the device sends again.
            Phase::Settled if event == Event::Unreachable => {
                desk.notices.push_back(Notice::Doubted { endpoint: self.endpoint, attempt: self.attempt });
            }
            Phase::Up | Phase::Settled => match failure(event) {
                Some(why) => self.down(why, desk),
                None => desk.counters.stray += 1,
            },
            _ => {}
        }
    }

    /// Something has happened to an id with which this side asks.
    fn handle_asking(&mut self, queue: usize, event: Event<'_>, desk: &mut Desk, now: Instant) {
        let Some(Some(leg)) = self.legs.get(queue).copied() else { return };
        let id = leg.id;
        let stage = match (leg.stage, event) {
            (Stage::Resolving, Event::AddressResolved) => {
                desk.actions.push_back(Action::Route { id });
                Stage::Routing
            }
            (Stage::Routing, Event::RouteResolved) => {
                self.prepare(id, queue, desk);
                let private = desk.say(self, Body::Request { queue: queue as u8 }, self.attempt.0);
                desk.actions.push_back(Action::Connect { id, private });
                Stage::Connecting
            }
            (Stage::Connecting, Event::Established { private }) => {
                if !self.is_reply(queue, private, desk) {
                    desk.counters.malformed += 1;
                    self.fail(Reason::Malformed, desk);
                    return;
                }
                Stage::Established
            }
            (_, Event::Rejected { private }) => {
                desk.counters.rejected += 1;
                self.rejected(refusal(private, false, desk), desk, now);
                return;
            }
            _ => match failure(event) {
                Some(why) => {
                    self.again(why, desk, now);
                    return;
                }
                None => {
                    desk.counters.stray += 1;
                    leg.stage
                }
            },
        };
        self.legs[queue] = Some(Leg { id, stage });
        self.rise(desk, now);
    }

    /// Something has happened to an id that this side has accepted.
    fn handle_answering(&mut self, queue: usize, event: Event<'_>, desk: &mut Desk, now: Instant) {
        let Some(Some(leg)) = self.legs.get_mut(queue) else { return };
        match (leg.stage, failure(event)) {
            (_, Some(why)) => self.again(why, desk, now),
            (Stage::Accepting, None) if matches!(event, Event::Established { .. }) => {
                leg.stage = Stage::Established;
                self.rise(desk, now);
            }
            _ => desk.counters.stray += 1,
        }
    }

    /// Something has happened to the id of a kick.
    fn handle_kick(&mut self, kick: Leg, event: Event<'_>, desk: &mut Desk, now: Instant) {
        let id = kick.id;
        let stage = match (kick.stage, event) {
            (Stage::Resolving, Event::AddressResolved) => {
                desk.actions.push_back(Action::Route { id });
                Stage::Routing
            }
            (Stage::Routing, Event::RouteResolved) => {
                desk.actions.push_back(Action::MakeDummy { id });
                let private = desk.say(self, Body::Kick, self.given_up());
                desk.actions.push_back(Action::Connect { id, private });
                Stage::Connecting
            }
            (_, Event::Rejected { private }) => {
                desk.counters.rejected += 1;
                self.end_kick(desk);
                self.kick_rejected(refusal(private, true, desk), desk, now);
                return;
            }
            // Nobody accepts a kick.
            (_, Event::Established { .. }) => {
                desk.counters.malformed += 1;
                self.end_kick(desk);
                self.fail(Reason::Malformed, desk);
                return;
            }
            _ => match failure(event) {
                Some(why) => {
                    self.kick_failed(why, desk, now);
                    return;
                }
                None => {
                    desk.counters.stray += 1;
                    kick.stage
                }
            },
        };
        self.kick = Some(Leg { id, stage });
    }

    /// Something has happened to the id of a kick that has crossed what it asked for: it ends, and that is all.
    fn handle_crossed(&mut self, at: usize, event: Event<'_>, desk: &mut Desk) {
        match event {
            Event::Rejected { .. } => desk.counters.rejected += 1,
            Event::Established { .. } => desk.counters.malformed += 1,
            _ if failure(event).is_some() => {}
            _ => {
                desk.counters.stray += 1;
                return;
            }
        }
        let (kick, _) = self.crossed.swap_remove(at);
        self.end(kick, desk);
    }

    /// A queue pair is made for a queue, and on the credits queue the one receive posted that is not the main thread's.
    pub(super) fn prepare(&self, id: Id, queue: usize, desk: &mut Desk) {
        let (endpoint, attempt, queue) = (self.endpoint, self.attempt, queue as u8);
        desk.actions.push_back(Action::MakeQueuePair { id, endpoint, attempt, queue });
        if queue == desk.settings.queues.credits {
            desk.actions.push_back(Action::PostReceive { id, endpoint, attempt });
        }
    }

    /// If this was the last queue, all are the main thread's.
    fn rise(&mut self, desk: &mut Desk, now: Instant) {
        let is_established = |leg: &Option<Leg>| leg.is_some_and(|leg| leg.stage == Stage::Established);
        if !self.legs.iter().all(is_established) {
            return;
        }
        desk.counters.established += 1;
        self.phase = Phase::Up;
        self.deadline = (self.role == Role::Acceptor).then(|| now + desk.settings.answer);
        desk.notices.push_back(Notice::Up {
            endpoint: self.endpoint,
            attempt: self.attempt,
            token: self.token.unwrap_or(0),
            ids: self.legs.iter().flatten().map(|leg| leg.id).collect(),
        });
    }

    /// Whether this is the peer's answer to the request for this queue; which is also how its endpoint is called.
    fn is_reply(&mut self, queue: usize, private: &[u8], desk: &Desk) -> bool {
        let Settings { dialect, nonce, .. } = desk.settings;
        let token = dialect.reply(private, self, (nonce, queue as u8));
        token.is_some_and(|token| *self.token.get_or_insert(token) == token)
    }
}

/// What the peer says in a rejection; `None` if it is not the peer that says it.
fn refusal(private: &[u8], is_kick: bool, desk: &mut Desk) -> Option<Refusal> {
    if desk.settings.dialect == Dialect::Openib {
        return match openib::Refusal::parse(private)? {
            openib::Refusal::WrongDirection if is_kick => Some(Refusal::WrongDirection),
            // Nobody rejects a request so: these are the zeros of a device.
            openib::Refusal::WrongDirection => None,
            openib::Refusal::Other => Some(Refusal::Later),
        };
    }
    match Private::parse(private) {
        Ok(Private { body: Body::Rejection(why), target, .. })
            if target == desk.settings.nonce || why == Refusal::Malformed =>
        {
            Some(why)
        }
        Err(Malformed::Version) => Some(Refusal::Version),
        Err(Malformed::Foreign) => None,
        _ => {
            desk.counters.malformed += 1;
            None
        }
    }
}

/// What an event says of why an id is of no use any more.
const fn failure(event: Event<'_>) -> Option<Reason> {
    match event {
        Event::AddressError | Event::RouteError => Some(Reason::NoRoute),
        Event::Unreachable | Event::ConnectError => Some(Reason::Unreachable),
        Event::Rejected { .. } => Some(Reason::NotListening),
        Event::Disconnected => Some(Reason::Disconnected),
        Event::Refused => Some(Reason::NoResources),
        Event::DeviceRemoved => Some(Reason::DeviceRemoved),
        Event::AddressResolved | Event::RouteResolved | Event::Established { .. } => None,
    }
}

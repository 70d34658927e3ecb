//! One peer, as the main thread sees it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::dialect::Dialect;
use super::interface::{
    Arrival, Attempt, EndpointId, Id, Notice, Order, Peer, Queues, Reason, Role, State, Step, Verdict, Wire,
};

/// The own CTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cts {
    /// It is not time yet.
    Unsent,
    /// It is being posted.
    Sending,
    /// It is posted.
    Sent,
}

/// What follows when queue pairs have been let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Again,
    /// It has failed, unless the peer has [parted](Endpoint::handle_parted).
    Over(Reason),
    Closing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Nothing has been wanted.
    Idle,
    /// The connection thread connects.
    Wanted,
    /// All queues are up: the real receives are being posted.
    Posting(Attempt),
    /// They are posted: the CTS of both sides are waited for.
    Clearing(Attempt, Cts),
    /// It can be sent to.
    Connected(Attempt),
    /// What is outstanding on the queue pairs is waited for.
    LettingGo(Attempt, Next),
    /// It is for good.
    Failed,
    /// The connection thread is asked to end it.
    Closing,
    /// It has ended.
    Closed,
}

/// A peer. It is connected when its own receives are posted, the peer's CTS is there, and the own one is posted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    id: EndpointId,
    role: Role,
    wire: Wire,
    queues: Queues,
    stage: Stage,
    /// The attempt whose CTS has come last; perhaps before the connection thread's notice.
    heard: Option<Attempt>,
    /// The attempt that the own CTS is of: data on its queue pairs is good.
    spoken: Option<Attempt>,
    /// The attempt in which the peer has said that nothing follows.
    parted: Option<Attempt>,
    /// The queues on which something has been heard, in this attempt.
    open: u32,
    /// It is going to be closed when nothing waits any more.
    hurries: bool,
    steps: VecDeque<Step>,
    pub(super) strays: u32,
}

impl Endpoint {
    /// A peer, as `add_procs` tells of it. `own` is the address and port of this process's listener of that number, which talks
    /// in this dialect.
    pub fn new(
        id: EndpointId,
        listener: u8,
        (own, dialect): (SocketAddr, Dialect),
        peer: Peer,
        wire: Wire,
        queues: Queues,
    ) -> Self {
        // Where both are the same, the manager says that this is no pair.
        let role = Role::of(own, peer.address, dialect).unwrap_or(Role::Acceptor);
        let add = Step::Order(Order::Add { endpoint: id, listener, peer });
        Self {
            id,
            role,
            wire,
            queues,
            stage: Stage::Idle,
            heard: None,
            spoken: None,
            parted: None,
            open: 0,
            hurries: false,
            steps: VecDeque::from([add]),
            strays: 0,
        }
    }

    /// How far it has come.
    pub const fn state(&self) -> State {
        match self.stage {
            Stage::Idle => State::Closed,
            Stage::Wanted | Stage::Posting(_) | Stage::Clearing(..) | Stage::LettingGo(_, Next::Again) => {
                State::Connecting
            }
            Stage::Connected(_) => State::Connected,
            Stage::LettingGo(_, Next::Over(_)) => State::Parting,
            Stage::Failed => State::Failed,
            Stage::LettingGo(_, Next::Closing) | Stage::Closing | Stage::Closed => State::Ending,
        }
    }

    /// Which side of the pair it is.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Whether data may be sent on a queue now.
    #[inline]
    pub const fn may_send(&self, queue: u8) -> bool {
        matches!(self.stage, Stage::Connected(_)) && (self.speaks_first() || self.is_open(queue))
    }

    /// Whether data goes by a queue both ways, and nothing more is learned from what comes by it.
    #[inline]
    pub const fn is_settled(&self, queue: u8) -> bool {
        matches!(self.stage, Stage::Connected(_)) && self.is_open(queue)
    }

    /// Whether the own CTS is on its way and the peer's has not come: the peer may be connected already. Whoever closes
    /// it now waits until it is connected, or is not, because a peer that is connected is owed a last word.
    pub const fn is_half_connected(&self) -> bool {
        matches!(self.stage, Stage::Clearing(_, Cts::Sending | Cts::Sent))
    }

    /// What did not fit: late completions, and a caller's mistakes.
    pub const fn strays(&self) -> u32 {
        self.strays
    }

    /// What is to be done next.
    pub fn poll_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Something is to be sent: what it waits for is [`Step::Connected`] or [`Step::Failed`].
    pub fn want(&mut self) -> State {
        if self.stage == Stage::Idle {
            self.stage = Stage::Wanted;
            self.order(Order::Connect { endpoint: self.id });
            if self.hurries {
                self.order(Order::Hurry { endpoint: self.id });
            }
        }
        self.state()
    }

    /// The endpoint is going to be closed when nothing waits any more: a peer that has ended is not asked for long.
    pub fn hurry(&mut self) {
        if !self.hurries && self.state() == State::Connecting {
            self.order(Order::Hurry { endpoint: self.id });
        }
        self.hurries = true;
    }

    /// The connection thread says something of this endpoint.
    pub fn handle_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Up { attempt, token, ids, .. } => self.handle_up(attempt, token, ids),
            Notice::Down { attempt, reason, .. } => self.handle_down(attempt, reason),
            Notice::Failed { reason, .. } => match self.stage {
                Stage::Idle | Stage::Wanted => {
                    self.stage = Stage::Failed;
                    self.steps.push_back(Step::Failed(reason));
                }
                Stage::Closing => {}
                _ => self.stray(),
            },
            Notice::Doubted { .. } => {}
            Notice::Closed { .. } if self.stage != Stage::Closed => {
                self.stage = Stage::Closed;
                self.steps.push_back(Step::Closed);
            }
            _ => self.stray(),
        }
    }

    /// The peer's CTS has come on a queue pair of this attempt: what the one receive of the connection thread holds.
    pub fn handle_cts(&mut self, attempt: Attempt) {
        if self.heard.is_some_and(|heard| heard >= attempt) {
            self.stray();
            return;
        }
        self.heard = Some(attempt);
        self.clear();
    }

    /// The [receives](Step::PostReceives) are posted.
    pub fn handle_receives_posted(&mut self, attempt: Attempt) {
        if self.stage == Stage::Posting(attempt) {
            self.stage = Stage::Clearing(attempt, Cts::Unsent);
            self.clear();
        }
    }

    /// The [CTS](Step::SendCts) is posted.
    pub fn handle_cts_posted(&mut self, attempt: Attempt) {
        if self.stage == Stage::Clearing(attempt, Cts::Sending) {
            self.stage = Stage::Clearing(attempt, Cts::Sent);
            self.clear();
        }
    }

    /// Something other than a CTS has arrived on this queue, in this attempt.
    #[inline]
    pub fn handle_arrival(&mut self, attempt: Attempt, queue: u8) -> Arrival {
        if self.spoken != Some(attempt) || queue >= self.queues.count {
            self.stray();
            return Arrival::Drop;
        }
        if !self.is_open(queue) {
            self.open(queue);
        }
        Arrival::Deliver
    }

    /// The peer has said that nothing follows in this attempt, and ends the connection. That is no failure: when its
    /// queue pairs have been let go of, it is as before anything was wanted, and can be connected again.
    pub fn handle_parted(&mut self, attempt: Attempt) {
        self.parted = Some(attempt);
    }

    /// A queue pair of this attempt does not work any more: a completion, a call or a probe says so.
    pub fn handle_broken(&mut self, attempt: Attempt, why: Reason) {
        if self.present() == Some(attempt) {
            self.order(Order::Break { endpoint: self.id, attempt });
            self.handle_down(attempt, why);
        }
    }

    /// What its queue pairs need is not there, and is not going to be: another attempt would end the same way. That the peer has
    /// said that nothing follows does not count any more, until it is said again: it is not all that it has said.
    pub fn handle_hopeless(&mut self, attempt: Attempt, why: Reason) {
        if self.present() == Some(attempt) {
            self.order(Order::Break { endpoint: self.id, attempt });
            self.steps.push_back(Step::LetGo { attempt });
        } else if !matches!(self.stage, Stage::LettingGo(going, Next::Over(_)) if going == attempt && self.parted == Some(attempt))
        {
            return;
        }
        self.parted = None;
        self.stage = Stage::LettingGo(attempt, Next::Over(why));
    }

    /// Nothing is outstanding on the queue pairs that were to be [let go of](Step::LetGo).
    pub fn handle_let_go(&mut self, attempt: Attempt) {
        let Stage::LettingGo(present, next) = self.stage else { return };
        if present != attempt {
            return;
        }
        let (verdict, stage) = match next {
            Next::Again => (Verdict::Again, Stage::Wanted),
            Next::Over(_) if self.parted == Some(attempt) => (Verdict::Part, Stage::Idle),
            Next::Over(_) => (Verdict::Fail, Stage::Failed),
            Next::Closing => (Verdict::Fail, Stage::Closing),
        };
        self.order(Order::Release { endpoint: self.id, attempt, verdict });
        self.spoken = None;
        self.stage = stage;
        if let (Next::Over(reason), Stage::Failed) = (next, stage) {
            self.steps.push_back(Step::Failed(reason));
        }
    }

    /// The endpoint ends, in whatever state; [`Step::Closed`] tells when it has.
    pub fn close(&mut self) {
        let next = match self.stage {
            Stage::LettingGo(_, Next::Closing) | Stage::Closing | Stage::Closed => return,
            Stage::LettingGo(attempt, _) => Stage::LettingGo(attempt, Next::Closing),
            _ => self.present().map_or(Stage::Closing, |attempt| {
                self.steps.push_back(Step::LetGo { attempt });
                Stage::LettingGo(attempt, Next::Closing)
            }),
        };
        self.stage = next;
        self.order(Order::Close { endpoint: self.id });
    }

    fn handle_up(&mut self, attempt: Attempt, token: u32, ids: Box<[Id]>) {
        match self.stage {
            Stage::Idle | Stage::Wanted => {
                self.stage = Stage::Posting(attempt);
                self.open = 0;
                self.steps.push_back(Step::PostReceives { attempt, token, ids });
            }
            // They crossed.
            Stage::Closing => {
                let verdict = Verdict::Fail;
                self.order(Order::Release { endpoint: self.id, attempt, verdict });
            }
            _ => self.stray(),
        }
    }

    fn handle_down(&mut self, attempt: Attempt, reason: Reason) {
        if self.present() != Some(attempt) {
            return;
        }
        let next = if matches!(self.stage, Stage::Connected(_)) { Next::Over(reason) } else { Next::Again };
        self.steps.push_back(Step::LetGo { attempt });
        self.stage = Stage::LettingGo(attempt, next);
    }

    /// Goes on if that is possible: sends the own CTS, and is connected when there are both.
    fn clear(&mut self) {
        let Stage::Clearing(attempt, cts) = self.stage else { return };
        let is_heard = self.heard == Some(attempt);
        if is_heard && !self.is_open(self.queues.credits) {
            self.open(self.queues.credits);
        }
        match cts {
            Cts::Unsent if is_heard || self.speaks_first() => {
                self.stage = Stage::Clearing(attempt, Cts::Sending);
                self.spoken = Some(attempt);
                self.steps.push_back(Step::SendCts { attempt });
            }
            Cts::Sent if is_heard => {
                self.stage = Stage::Connected(attempt);
                self.order(Order::Settled { endpoint: self.id, attempt });
                let open = self.wire == Wire::Iwarp && self.role == Role::Initiator;
                self.steps.push_back(Step::Connected { attempt, open });
            }
            _ => {}
        }
    }

    const fn speaks_first(&self) -> bool {
        matches!((self.wire, self.role), (Wire::InfiniBand, _) | (_, Role::Initiator))
    }

    const fn is_open(&self, queue: u8) -> bool {
        self.open & 1_u32.unbounded_shl(queue as u32) != 0
    }

    fn open(&mut self, queue: u8) {
        self.open |= 1_u32.unbounded_shl(u32::from(queue));
        if matches!(self.stage, Stage::Connected(_)) && !self.speaks_first() {
            self.steps.push_back(Step::Opened { queue });
        }
    }

    /// The attempt whose queue pairs are in use.
    pub(super) const fn present(&self) -> Option<Attempt> {
        match self.stage {
            Stage::Posting(attempt) | Stage::Clearing(attempt, _) | Stage::Connected(attempt) => {
                Some(attempt)
            }
            _ => None,
        }
    }

    fn order(&mut self, order: Order) {
        self.steps.push_back(Step::Order(order));
    }

    const fn stray(&mut self) {
        self.strays = self.strays.saturating_add(1);
    }
}

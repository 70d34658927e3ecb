//! Connections over verbs: made on a thread of their own, and safe to use once the peer says so.
//!
//! Two machines that share nothing. The [`Manager`] lives in the connection thread, which has the event channel and
//! the ids of all peers; an [`Endpoint`] lives in the main thread, which has the receives. Neither calls anybody. They
//! are joined by two mailboxes of plain values: an [`Order`] goes to the manager, a [`Notice`] to the endpoint.
//!
//! ```text
//!   connection thread, one turn                     main thread, one turn
//!   each event, acknowledged at once:               each notice: the endpoint's handle_notice
//!     handle_request or handle_event                each completion of its queue pairs:
//!   each order: handle_order                          handle_cts, handle_arrival or handle_broken
//!   handle_timeout                                  until poll_step says None, do the step, and say so
//!   until poll_action says None, do the action
//!   then pass on what poll_notice says,
//!   and sleep until an event, an order, or next_timeout
//! ```
//!
//! Who [initiates](Role::of) is a pure function of both addresses. The other side *kicks*: it asks as well, and the
//! kick is rejected, and makes the initiator connect. So there is one connection at the most, always in one direction.
//!
//! ```text
//!   initiator                                       acceptor
//!   Asking, an id per queue  -- Request ------->    Answering, a queue pair per queue
//!   Up at the last reply     <- Reply ----------    Up at the last ESTABLISHED
//!   real receives; CTS       <- CTS, CTS ------>    real receives; CTS
//!   CONNECTED                                       CONNECTED
//! ```
//!
//! Before it connects or accepts, the manager posts one receive, on the credits queue, and nothing else: it holds
//! the CTS, which costs no credit. All others are the main thread's. It sends its CTS when they are posted, and data
//! when it has the peer's. Data may overtake a CTS, which travels on another queue: it is accepted as soon as there are
//! receives for it.
//!
//! *What fails is tried again as a whole*: each attempt has a number, new ids and new queue pairs, and whatever is
//! said of an earlier one is of the past. That ends where a side was connected, because then something may be lost:
//! it has failed for good, rejects whoever asks, and so the other side comes to fail, too. Nothing is lost where the
//! peer has said before that nothing follows: it has closed its endpoint, perhaps to make another, and then attempts
//! go on where they were. An acceptor that has seen an attempt goes on by itself as if it had something to send, so that nobody is left behind.
//!
//! *Every state has a timer or an owner.* Asking, kicking, answering and pausing have timers. Queue pairs that are up
//! are the main thread's, which may compute for as long as it likes; until they are connected an acceptor, which may
//! have nothing outstanding on them, asks now and then, by a kick, whether its initiator still knows of them. A
//! connection that works no more is told by events, by completions, or by a probe of the transport's.
//!
//! Sides talk in one of two [dialects](Dialect): this BTL's own, or that of Open MPI's openib.
//!
//! Answers to `connect/btl_openib_connect_rdmacm.c` and `btl_openib_endpoint.c` of Open MPI 4.1, `rdma_cm(7)`, and
//! RFC 5044 for who speaks first.

mod desk;
mod dialect;
mod endpoint;
mod interface;
mod link;
mod request;
mod transition;

#[cfg(test)]
mod crossing;
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod devices;
#[cfg(test)]
mod exploration;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod mains;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod several;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::time::Instant;

use desk::Desk;
pub use dialect::{Bytes, Dialect};
pub use endpoint::Endpoint;
pub use interface::{
    Action, Arrival, Attempt, Counters, EndpointId, Event, Id, Notice, Order, Peer, Queues, Reason, Role,
    Settings, State, Step, Verdict, Wire,
};
use link::{Link, Phase};

/// By what a request tells whom it is for: at which listener it came, and the process and listener that it is of.
type Key = (u8, u64, u8);

/// The connections of a process, as its connection thread sees them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Manager {
    links: BTreeMap<EndpointId, Link>,
    keys: BTreeMap<Key, EndpointId>,
    timers: BTreeSet<(Instant, EndpointId)>,
    /// Who has asked and is not known, and in which life: the main thread has been told.
    strangers: BTreeSet<(Key, u64)>,
    /// What processes have asked that are not known yet, with openib's words: they are not asked to ask again.
    unanswered: Vec<(Key, Id, Bytes)>,
    /// The last attempts of links that have been closed, by the life of the peer: they go on where it is met again.
    past: BTreeMap<(Key, u64), Attempt>,
    finishing: bool,
    finished: bool,
    has_given_up: bool,
    desk: Desk,
}

impl Manager {
    /// One without peers.
    pub const fn new(settings: Settings) -> Self {
        Self {
            links: BTreeMap::new(),
            keys: BTreeMap::new(),
            timers: BTreeSet::new(),
            strangers: BTreeSet::new(),
            unanswered: Vec::new(),
            past: BTreeMap::new(),
            finishing: false,
            finished: false,
            has_given_up: false,
            desk: Desk {
                settings,
                ids: BTreeMap::new(),
                last: 0,
                actions: VecDeque::new(),
                notices: VecDeque::new(),
                counters: Counters {
                    attempts: 0,
                    answers: 0,
                    established: 0,
                    abandoned: 0,
                    failed: 0,
                    kicks: 0,
                    kicked: 0,
                    rejections: 0,
                    postponed: 0,
                    rejected: 0,
                    unknown: 0,
                    malformed: 0,
                    late: 0,
                    stray: 0,
                },
            },
        }
    }

    /// Something has happened to an id, and is acknowledged.
    pub fn handle_event(&mut self, id: Id, event: Event<'_>, now: Instant) {
        let Some(endpoint) = self.desk.ids.get(&id).copied() else {
            self.desk.counters.late += 1;
            // Who has asked has gone.
            if self.unanswered.extract_if(.., |(_, asked, _)| *asked == id).count() > 0 {
                self.desk.actions.push_back(Action::Destroy { id });
            }
            return;
        };
        self.change(endpoint, |link, desk| link.handle_event(id, event, desk, now));
    }

    /// The main thread wants something.
    pub fn handle_order(&mut self, order: Order, now: Instant) {
        match order {
            Order::Add { endpoint, listener, peer } => self.add(endpoint, listener, peer, now),
            Order::Connect { endpoint } => {
                let has_given_up = self.has_given_up;
                self.change(endpoint, |link, desk| match link.phase {
                    Phase::Idle if has_given_up => link.fail(Reason::Defect, desk),
                    Phase::Idle => link.begin(desk, now),
                    _ => {}
                });
            }
            Order::Hurry { endpoint } => self.change(endpoint, |link, _| link.hurries = true),
            Order::Settled { endpoint, attempt } => {
                self.change(endpoint, |link, desk| link.settle(attempt, desk));
            }
            Order::Break { endpoint, attempt } => self.change(endpoint, |link, desk| {
                if link.is_up() && link.attempt == attempt {
                    link.down(Reason::Broken, desk);
                }
            }),
            Order::Release { endpoint, attempt, verdict } => {
                self.change(endpoint, |link, desk| link.release(attempt, verdict, desk, now));
            }
            Order::Close { endpoint } => self.change(endpoint, Link::close),
            Order::Finalize => {
                self.finishing = true;
                self.answer_all(None, now);
                let all: Vec<EndpointId> = self.links.keys().copied().collect();
                for endpoint in all {
                    self.change(endpoint, Link::close);
                }
                self.finish();
            }
        }
    }

    /// The device of this listener is gone, and the listener with it.
    pub fn handle_listener_lost(&mut self, listener: u8) {
        let its = self.links.iter().filter(|(_, link)| link.listener == listener);
        let its: Vec<EndpointId> = its.map(|(endpoint, _)| *endpoint).collect();
        for endpoint in its {
            self.change(endpoint, |link, desk| link.fail(Reason::DeviceRemoved, desk));
        }
    }

    /// The thread has come upon a bug, and cannot be trusted to connect anybody: whoever is known is lost, and whoever comes to
    /// be. Something may have been left half done.
    pub fn give_up(&mut self) {
        self.has_given_up = true;
        let timers = self.links.iter().filter_map(|(endpoint, link)| Some((link.next_timeout()?, *endpoint)));
        self.timers = timers.collect();
        let all: Vec<EndpointId> = self.links.keys().copied().collect();
        for endpoint in all {
            self.change(endpoint, |link, desk| link.fail(Reason::Defect, desk));
        }
    }

    /// It is `now`: begins anew what has taken too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        // What is set anew meanwhile waits for the next call.
        let over: Vec<EndpointId> =
            self.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, endpoint)| *endpoint).collect();
        for endpoint in over {
            self.change(endpoint, |link, desk| link.expire(desk, now));
        }
    }

    /// When [`Self::handle_timeout`] is to be called at the latest.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.desk.actions.pop_front()
    }

    /// What the main thread is to be told next. All [actions](Self::poll_action) are to be done first.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.desk.notices.pop_front()
    }

    /// The next one that may be told before the actions are done: why what is posted comes back is to be known by then. Those that
    /// are before it are of other endpoints, or of no more than how the kernel sees the way.
    pub fn poll_early_notice(&mut self) -> Option<Notice> {
        let is_early = |notice: &Notice| matches!(notice, Notice::Up { .. } | Notice::Down { .. });
        let at = self.desk.notices.iter().position(is_early)?;
        self.desk.notices.remove(at)
    }

    /// How it talks with its peers.
    pub const fn dialect(&self) -> Dialect {
        self.desk.settings.dialect
    }

    /// What was counted.
    pub const fn counters(&self) -> &Counters {
        &self.desk.counters
    }

    fn add(&mut self, endpoint: EndpointId, listener: u8, peer: Peer, now: Instant) {
        if self.links.contains_key(&endpoint) || self.finishing {
            self.desk.counters.stray += 1;
            return;
        }
        let own = self.desk.settings.listeners.get(usize::from(listener));
        let dialect = self.desk.settings.dialect;
        let role = own.and_then(|own| Role::of(*own, peer.address, dialect));
        self.links.insert(endpoint, Link::new(endpoint, listener, peer, role.unwrap_or(Role::Acceptor)));
        if role.is_none() {
            self.change(endpoint, |link, desk| link.fail(Reason::NoPair, desk));
            return;
        }
        let key = (listener, peer.process, peer.listener);
        let mut last = self.past.remove(&(key, peer.nonce)).unwrap_or(Attempt(0));
        if let Some(former) = self.keys.insert(key, endpoint) {
            let former_link = self.links.get(&former).filter(|link| link.peer.nonce == peer.nonce);
            last = former_link.map_or(last, |link| link.attempt);
            self.change(former, |link, desk| link.fail(Reason::Replaced, desk));
        }
        self.change(endpoint, |link, _| link.attempt = last);
        if self.has_given_up {
            self.change(endpoint, |link, desk| link.fail(Reason::Defect, desk));
            return;
        }
        // It has been told to ask again, and need not wait for that.
        if self.strangers.remove(&(key, peer.nonce)) && dialect == Dialect::Own {
            self.change(endpoint, |link, desk| link.begin(desk, now));
        }
        self.answer_all(Some(key), now);
    }

    /// Something happens to a link; its timer follows, and so does its end.
    fn change(&mut self, endpoint: EndpointId, change: impl FnOnce(&mut Link, &mut Desk)) {
        let Some(link) = self.links.get_mut(&endpoint) else {
            self.desk.counters.stray += 1;
            return;
        };
        let before = link.next_timeout();
        change(link, &mut self.desk);
        let after = link.next_timeout();
        if after != before {
            if let Some(before) = before {
                self.timers.remove(&(before, endpoint));
            }
            if let Some(after) = after {
                self.timers.insert((after, endpoint));
            }
        }
        if link.phase == Phase::Closed {
            let (key, nonce, last) = (link.key(), link.peer.nonce, link.attempt);
            self.links.remove(&endpoint);
            if self.keys.get(&key) == Some(&endpoint) {
                self.keys.remove(&key);
                self.past.insert((key, nonce), last);
            }
            self.desk.notices.push_back(Notice::Closed { endpoint });
            self.finish();
        }
    }

    fn finish(&mut self) {
        if self.finishing && self.links.is_empty() && !self.finished {
            self.finished = true;
            self.desk.notices.push_back(Notice::Finished);
        }
    }
}

//! The main threads of those processes.

use super::world::{Conn, Held, Message, What, World, address, called, peer};
use super::*;

impl World {
    /// Something happens to an endpoint at its main thread, which then does what follows.
    pub(super) fn with(&mut self, at: usize, endpoint: EndpointId, act: impl FnOnce(&mut Held)) {
        if let Some(held) = self.sides[at].held.get_mut(&endpoint) {
            act(held);
            // How many they are is no part of what may happen.
            held.endpoint.strays = 0;
        }
        self.steps(at, endpoint);
    }

    /// The main thread finds that a queue pair does not work.
    pub(super) fn break_off(&mut self, at: usize, endpoint: EndpointId) {
        self.with(at, endpoint, |held| {
            let attempt = held.endpoint.present().expect("it is up");
            held.endpoint.handle_broken(attempt, Reason::Broken);
        });
    }

    /// The main thread has no memory for what is to be posted, and has had none for long.
    pub(super) fn starve(&mut self, at: usize, endpoint: EndpointId) {
        self.with(at, endpoint, |held| {
            let attempt = held.posting.take().expect("they are to be posted");
            held.endpoint.handle_hopeless(attempt, Reason::NoMemory);
        });
    }

    /// A side cannot read any more what its device has done: what is lost with that nobody knows, nor what comes.
    pub(super) fn fail(&mut self, at: usize) {
        let side = &mut self.sides[at];
        side.is_deaf = true;
        side.completions.clear();
        for endpoint in side.held.keys().copied().collect::<Vec<_>>() {
            self.with(at, endpoint, |held| {
                if let Some(attempt) = held.endpoint.present().or(held.letting) {
                    held.posting = None;
                    held.endpoint.handle_hopeless(attempt, Reason::QueueFailed);
                }
            });
        }
    }

    pub(super) fn add(&mut self, at: usize) {
        let (peer_at, life) = self.sides[at].additions.remove(0);
        let former: Vec<EndpointId> =
            self.sides[at].held.iter().filter(|(_, held)| held.peer == peer_at).map(|(id, _)| *id).collect();
        self.hold(at, called(peer_at, life), (peer_at, life));
        // The former life is only closed when it has been replaced.
        for former in former {
            self.with(at, former, |held| held.endpoint.close());
        }
    }

    /// An endpoint is closed, with a last word, and another is made to the same life of the peer.
    pub(super) fn meet_again(&mut self, at: usize, endpoint: EndpointId) {
        let held = &self.sides[at].held[&endpoint];
        let peer = held.peer;
        if held.endpoint.state() == State::Connected {
            self.send(at, endpoint, self.queues.credits, What::Bye);
        }
        self.close(at, endpoint);
        let life = self.sides[peer].life;
        self.hold(at, EndpointId(endpoint.0 + 1000), (peer, life));
    }

    fn hold(&mut self, at: usize, id: EndpointId, (peer_at, life): (usize, u64)) {
        let mut known = peer(peer_at, life);
        if self.dialect == Dialect::Openib {
            known.nonce = 0;
        }
        let endpoint = Endpoint::new(id, 0, (address(at), self.dialect), known, self.wire, self.queues);
        let held = Held {
            peer: peer_at,
            endpoint,
            ids: Vec::new(),
            posting: None,
            letting: None,
            waits: false,
            is_told: false,
            cleared: None,
        };
        self.sides[at].held.insert(id, held);
        self.steps(at, id);
    }

    pub(super) fn close(&mut self, at: usize, endpoint: EndpointId) {
        self.with(at, endpoint, |held| {
            held.waits = false;
            held.endpoint.close();
        });
    }

    pub(super) fn handle_notice(&mut self, at: usize, notice: Notice) {
        match notice {
            Notice::Finished => {
                let side = &mut self.sides[at];
                assert!(side.listens, "it is told once");
                assert!(side.conns.is_empty() && side.manager.links.is_empty(), "nothing is left");
                side.listens = false;
            }
            Notice::Unknown { .. } | Notice::Doubted { .. } => {}
            Notice::Up { endpoint, .. }
            | Notice::Down { endpoint, .. }
            | Notice::Failed { endpoint, .. }
            | Notice::Closed { endpoint } => {
                assert!(self.sides[at].held.contains_key(&endpoint), "nothing is told after the end");
                self.with(at, endpoint, |held| held.endpoint.handle_notice(notice));
            }
        }
    }

    /// A completion is taken out of the completion queue, perhaps of a queue pair that is no more.
    pub(super) fn poll(&mut self, at: usize, index: usize) {
        let message = self.sides[at].completions.remove(index);
        if let Some(conn) = self.sides[at].conns.get_mut(&message.id) {
            conn.is_heard = true;
        }
        self.with(at, message.endpoint, |held| {
            if message.what == What::Cts {
                held.cleared = held.cleared.max(Some(message.attempt));
                held.endpoint.handle_cts(message.attempt);
            } else {
                let is_present = held.endpoint.present() == Some(message.attempt);
                let is_settled = is_present && held.endpoint.is_settled(message.queue);
                let settled = is_settled.then(|| held.endpoint.clone());
                let arrival = held.endpoint.handle_arrival(message.attempt, message.queue);
                assert_eq!(arrival, Arrival::Deliver, "no data is lost, CTS or not");
                if let Some(before) = settled {
                    // Nobody need ask then.
                    assert!(before.may_send(message.queue) && before == held.endpoint, "{before:?}");
                }
            }
            if message.what == What::Bye {
                held.endpoint.handle_parted(message.attempt);
            }
        });
    }

    pub(super) fn post(&mut self, at: usize, endpoint: EndpointId) {
        let side = &mut self.sides[at];
        let Some(held) = side.held.get_mut(&endpoint) else { return };
        let attempt = held.posting.take().expect("they are to be posted");
        for id in &held.ids {
            let conn = side.conns.get_mut(id).expect("its queue pairs are there until it lets go");
            assert_eq!(conn.made.map(|made| (made.0, made.1)), Some((endpoint, attempt)));
            conn.is_posted = true;
        }
        self.with(at, endpoint, |held| held.endpoint.handle_receives_posted(attempt));
    }

    pub(super) fn may_let_go(&self, at: usize, endpoint: EndpointId) -> bool {
        let side = &self.sides[at];
        let held = &side.held[&endpoint];
        let is_flushed = |id| side.conns.get(id).is_none_or(|conn| conn.is_dead);
        let is_taken = |id: &Id| side.completions.iter().all(|message| message.id != *id);
        held.posting.is_none() && held.ids.iter().all(|id| is_flushed(id) && is_taken(id))
    }

    /// Whether the main thread finds out by itself that a connection does not work.
    pub(super) fn is_broken(&self, at: usize, held: &Held) -> bool {
        held.endpoint.present().is_some()
            && held.ids.iter().any(|id| {
                self.sides[at].conns.get(id).is_none_or(|conn| conn.is_dead || !self.is_whole(conn))
            })
    }

    /// Whether there is somebody at the other end who has not given up.
    pub(super) fn is_whole(&self, conn: &Conn) -> bool {
        let other = conn.other.and_then(|(side, id)| self.sides[side].conns.get(&id));
        other.is_some_and(|other| !other.is_dead)
    }

    pub(super) fn steps(&mut self, at: usize, endpoint: EndpointId) {
        let is_deaf = self.sides[at].is_deaf;
        loop {
            let Some(held) = self.sides[at].held.get_mut(&endpoint) else { return };
            let Some(step) = held.endpoint.poll_step() else { return };
            match step {
                Step::Order(order) => self.sides[at].orders.push_back(order),
                Step::PostReceives { attempt, token, ids } => {
                    assert_eq!(ids.len(), usize::from(self.queues.count));
                    assert_eq!(token % 10, at as u32, "what the peer calls this side");
                    held.ids = ids.into_vec();
                    if is_deaf {
                        held.endpoint.handle_hopeless(attempt, Reason::QueueFailed);
                    } else {
                        held.posting = Some(attempt);
                    }
                }
                Step::SendCts { attempt } => {
                    self.send(at, endpoint, self.queues.credits, What::Cts);
                    let held = self.sides[at].held.get_mut(&endpoint).expect("it is there");
                    held.endpoint.handle_cts_posted(attempt);
                }
                Step::Connected { attempt, open } => {
                    assert_eq!(held.cleared, Some(attempt), "connected by a CTS of this attempt");
                    let is_waiting = held.waits;
                    self.send_waiting(at, endpoint);
                    if open && !is_waiting {
                        let Queues { count, credits, .. } = self.queues;
                        for queue in (0..count).filter(|queue| *queue != credits) {
                            self.send(at, endpoint, queue, What::Data);
                        }
                    }
                }
                Step::Opened { .. } => self.send_waiting(at, endpoint),
                Step::Failed(_) => {
                    assert!(!held.is_told, "it is told once");
                    held.is_told = true;
                    held.waits = false;
                }
                Step::LetGo { attempt } => {
                    held.posting = None;
                    held.letting = Some(attempt);
                }
                Step::Closed => {
                    assert!(held.letting.is_none() && held.posting.is_none());
                    self.sides[at].held.remove(&endpoint);
                }
            }
        }
    }

    /// What waits goes on the last queue.
    pub(super) fn send_waiting(&mut self, at: usize, endpoint: EndpointId) {
        let queue = self.queues.count - 1;
        let Some(held) = self.sides[at].held.get_mut(&endpoint) else { return };
        if held.waits && held.endpoint.may_send(queue) {
            held.waits = false;
            self.send(at, endpoint, queue, What::Data);
        }
    }

    pub(super) fn send(&mut self, at: usize, endpoint: EndpointId, queue: u8, what: What) {
        let side = &mut self.sides[at];
        let id = side.held[&endpoint].ids[usize::from(queue)];
        let is_iwarp = self.wire == Wire::Iwarp;
        let conn = side.conns.get_mut(&id).expect("its queue pairs are there until it lets go");
        assert!(conn.is_posted, "own receives first");
        assert!(!is_iwarp || conn.is_active || conn.is_heard, "who was asked does not speak first");
        if conn.is_dead {
            return;
        }
        let Some((to, other)) = conn.other else { return };
        let receiver = self.sides[to].conns.get_mut(&other).filter(|receiver| !receiver.is_dead);
        let Some(receiver) = receiver else {
            // It comes to be known by a completion.
            self.sides[at].conns.get_mut(&id).expect("it is there").is_dead = true;
            return;
        };
        if what == What::Cts {
            assert_eq!(receiver.receives, 1, "one receive for one CTS");
            receiver.receives = 0;
        } else {
            assert_eq!(receiver.receives, 0, "what comes first on the credits queue is the CTS");
            assert!(receiver.is_posted, "no data before there are receives");
        }
        let (endpoint, attempt, queue) = receiver.made.expect("it has a queue pair");
        let message = Message { id: other, endpoint, attempt, queue, what };
        if self.sides[to].is_deaf {
            return;
        }
        let completions = &mut self.sides[to].completions;
        let place = completions.partition_point(|earlier| earlier.id <= other);
        completions.insert(place, message);
    }
}

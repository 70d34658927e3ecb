//! What comes to a listener: requests of initiators, and kicks.

use super::desk::Desk;
use super::dialect::{Bytes, Dialect};
use super::interface::{Action, Attempt, Id, Notice, Reason, Role, Settings};
use super::link::{Leg, Link, Phase, Stage};
use super::{Key, Manager};
use crate::engine::time::Instant;
use crate::wire::openib;
use crate::wire::verbs::private::{Body, Malformed, Private, Refusal};

/// Listeners of unknown processes that the main thread is told of, at most.
const STRANGERS: usize = 1024;

/// Requests of such that wait, at most.
const UNANSWERED: usize = 8192;

impl Manager {
    /// Somebody asks at a listener, with an id that the caller numbers: `CONNECT_REQUEST`, acknowledged. It is going to be
    /// accepted, or rejected.
    pub fn handle_request(&mut self, listener: u8, id: Id, private: &[u8], now: Instant) {
        let asked = match self.read(listener, private) {
            Ok(asked) if matches!(asked.body, Body::Request { .. } | Body::Kick) => asked,
            other => {
                self.desk.counters.malformed += 1;
                let is_other = other == Err(Malformed::Version);
                let why = if is_other { Refusal::Version } else { Refusal::Malformed };
                self.desk.reject(id, listener, 0, 0, why);
                return;
            }
        };
        if self.finishing {
            self.desk.reject(id, listener, asked.nonce, asked.attempt, Refusal::Closing);
            return;
        }
        let endpoint = self.keys.get(&(listener, asked.process, asked.listener)).copied();
        let known = endpoint
            .filter(|endpoint| self.links.get(endpoint).is_some_and(|link| link.peer.nonce == asked.nonce));
        match known {
            Some(endpoint) => {
                self.change(endpoint, |link, desk| link.handle_request(id, &asked, desk, now));
            }
            None => self.handle_stranger((listener, id), &asked, private),
        }
    }

    /// Somebody asks who is not known here, at least not in this life.
    fn handle_stranger(&mut self, (listener, id): (u8, Id), asked: &Private, private: &[u8]) {
        self.desk.counters.unknown += 1;
        let is_openib = self.desk.settings.dialect == Dialect::Openib;
        let is_meant = is_openib || asked.target == self.desk.settings.nonce;
        let who = ((listener, asked.process, asked.listener), asked.nonce);
        // Who has been closed is not waited for.
        let waits = is_openib && !self.past.contains_key(&who) && self.unanswered.len() < UNANSWERED;
        if waits {
            self.unanswered.push((who.0, id, Bytes::of(private)));
        }
        if is_meant && self.strangers.len() < STRANGERS && self.strangers.insert(who) {
            self.desk.notices.push_back(Notice::Unknown { process: asked.process, listener });
        }
        let why = if is_meant { Refusal::Later } else { Refusal::Incarnation };
        if !waits {
            self.desk.reject(id, listener, asked.nonce, asked.attempt, why);
        }
    }

    /// Reads what is asked at a listener.
    fn read(&self, listener: u8, private: &[u8]) -> Result<Private, Malformed> {
        let Settings { dialect, nonce, queues, .. } = self.desk.settings;
        let asked = dialect.asker(private)?;
        let key = (listener, asked.process, asked.listener);
        let link = self.keys.get(&key).and_then(|endpoint| self.links.get(endpoint));
        match (dialect, link, openib::Private::parse(private)) {
            (Dialect::Openib, Some(link), Some(said)) => {
                let known = (nonce, (queues.hash, queues.count));
                link.complete(&asked, said.port, known).ok_or(Malformed::Kind)
            }
            _ => Ok(asked),
        }
    }

    /// Looks again at what has been asked by processes that were not known: of one, or of all.
    pub(super) fn answer_all(&mut self, of: Option<Key>, now: Instant) {
        let is_its = |(key, ..): &mut (Key, Id, Bytes)| of.is_none_or(|of| *key == of);
        let its: Vec<_> = self.unanswered.extract_if(.., is_its).collect();
        for ((listener, ..), id, private) in its {
            self.handle_request(listener, id, &private, now);
        }
    }
}

impl Link {
    /// The peer asks.
    fn handle_request(&mut self, id: Id, asked: &Private, desk: &mut Desk, now: Instant) {
        let is_kick = asked.body == Body::Kick;
        desk.counters.kicked += u64::from(is_kick);
        let ours = (desk.settings.queues.hash, desk.settings.queues.count);
        let for_good = if asked.target != desk.settings.nonce {
            Some(Refusal::Incarnation)
        } else if (asked.specification, asked.queues) != ours {
            Some(Refusal::Specification)
        } else {
            None
        };
        let why = match (for_good, self.role, asked.body) {
            // Nobody knows the asker, as soon as what it was known by has ended.
            _ if self.closing => Some(Refusal::Later),
            (Some(why), ..) => {
                self.fail(Reason::Refusing(why), desk);
                Some(why)
            }
            _ if self.phase == Phase::Failed => Some(Refusal::Failed),
            (None, Role::Initiator, _) => Some(self.handle_kicked(asked.attempt, desk, now)),
            (None, Role::Acceptor, Body::Request { queue }) => self.answer(id, queue, asked, desk, now),
            (None, Role::Acceptor, _) => Some(Refusal::Malformed),
        };
        if let Some(why) = why {
            desk.reject(id, self.listener, self.peer.nonce, asked.attempt, why);
        }
    }

    /// The acceptor wants to be connected, and has given up all attempts up to this one.
    fn handle_kicked(&mut self, given_up: u32, desk: &mut Desk, now: Instant) -> Refusal {
        match self.phase {
            Phase::Idle | Phase::Pausing => {
                // Whoever asks lives: that nobody listened is of the past.
                if self.hurries && self.why == Reason::NotListening {
                    self.why = Reason::TimedOut;
                }
                self.begin(desk, now);
            }
            Phase::Asking if given_up >= self.attempt.0 => self.again(Reason::Abandoned, desk, now),
            Phase::Up | Phase::Settled if given_up >= self.attempt.0 => self.down(Reason::Abandoned, desk),
            _ => {}
        }
        match self.phase {
            Phase::Down => Refusal::Later,
            Phase::Failed => Refusal::Failed,
            _ => Refusal::WrongDirection,
        }
    }

    /// The initiator asks for a queue. Why not, if it does not get it.
    fn answer(
        &mut self,
        id: Id,
        queue: u8,
        asked: &Private,
        desk: &mut Desk,
        now: Instant,
    ) -> Option<Refusal> {
        let attempt = Attempt(asked.attempt);
        if queue >= desk.settings.queues.count {
            return Some(Refusal::Malformed);
        }
        if attempt > self.attempt {
            match self.phase {
                Phase::Up | Phase::Settled => {
                    self.down(Reason::Abandoned, desk);
                    return Some(Refusal::Later);
                }
                Phase::Down => return Some(Refusal::Later),
                _ => self.begin_answering(attempt, asked.token, desk, now),
            }
        }
        let is_present = self.phase == Phase::Answering && attempt == self.attempt;
        let Some(leg @ None) = self.legs.get_mut(usize::from(queue)).filter(|_| is_present) else {
            return Some(Refusal::Later);
        };
        if self.token != Some(asked.token) {
            return Some(Refusal::Malformed);
        }
        *leg = Some(Leg { id, stage: Stage::Accepting });
        desk.ids.insert(id, self.endpoint);
        self.prepare(id, usize::from(queue), desk);
        let private = desk.say(self, Body::Reply { queue }, asked.attempt);
        desk.actions.push_back(Action::Accept { id, private });
        None
    }
}

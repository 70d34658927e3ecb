//! What all links of a manager share: what is to be done and told, and which id is whose.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::dialect::Bytes;
use super::interface::{Action, Counters, EndpointId, Id, Notice, Settings};
use super::link::{Leg, Link, Stage};
use crate::wire::verbs::private::{Body, Private, Refusal};

/// What goes out, and what is needed for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Desk {
    pub(super) settings: Settings,
    /// Whose each id is. What happens to others is of the past.
    pub(super) ids: BTreeMap<Id, EndpointId>,
    /// The number of an id that was given last.
    pub(super) last: u32,
    pub(super) actions: VecDeque<Action>,
    pub(super) notices: VecDeque<Notice>,
    pub(super) counters: Counters,
}

impl Desk {
    /// A new id, on its way to a peer.
    pub(super) fn resolve(&mut self, endpoint: EndpointId, listener: u8, to: SocketAddr) -> Leg {
        self.last += 1;
        let id = Id::Own(self.last);
        self.ids.insert(id, endpoint);
        self.actions.push_back(Action::Resolve { id, listener, to });
        Leg { id, stage: Stage::Resolving }
    }

    /// What this process says to whoever listens at the other end of a link.
    pub(super) fn say(&self, link: &Link, body: Body, attempt: u32) -> Bytes {
        let (target, token) = (link.peer.nonce, link.endpoint.0);
        self.private(body, target, token, attempt, link.listener)
    }

    /// Rejects what an unknown process has asked, or one that is known and asks in vain.
    pub(super) fn reject(&mut self, id: Id, listener: u8, target: u64, attempt: u32, why: Refusal) {
        self.counters.rejections += 1;
        self.counters.postponed += u64::from(why == Refusal::Later);
        let private = self.private(Body::Rejection(why), target, 0, attempt, listener);
        self.actions.push_back(Action::Reject { id, private });
    }

    /// An id is not needed any more, in whatever state, and what was to be done with it is not done.
    pub(super) fn let_go(&mut self, leg: Leg, link: (u8, u64, u32)) {
        let is_its = |action: &&Action| action.id() == leg.id;
        let unmade = self.actions.iter().filter(is_its).any(|a| matches!(a, Action::Resolve { .. }));
        let unanswered = self.actions.iter().filter(is_its).any(|a| matches!(a, Action::Accept { .. }));
        self.actions.retain(|action| action.id() != leg.id);
        self.ids.remove(&leg.id);
        if unanswered {
            let (listener, target, attempt) = link;
            self.reject(leg.id, listener, target, attempt, Refusal::Later);
        } else if !unmade {
            if matches!(leg.stage, Stage::Accepting | Stage::Established) {
                self.actions.push_back(Action::Disconnect { id: leg.id });
            }
            self.actions.push_back(Action::Destroy { id: leg.id });
        }
    }

    fn private(&self, body: Body, target: u64, token: u32, attempt: u32, listener: u8) -> Bytes {
        let private = Private {
            body,
            nonce: self.settings.nonce,
            target,
            process: self.settings.process,
            token,
            attempt,
            specification: self.settings.queues.hash,
            listener,
            queues: self.settings.queues.count,
        };
        let own = self.settings.listeners.get(usize::from(listener));
        self.settings.dialect.say(&private, own.map_or(0, SocketAddr::port))
    }
}

//! A manager whose devices and peers say whatever they like.

use std::collections::BTreeMap;

use super::world::{NOW, nonce, peer, settings};
use super::*;
use crate::wire::verbs::private::{Body, Private, Refusal};

const QUEUES: Queues = Queues { count: 2, credits: 1, hash: 77 };
const ENDPOINT: EndpointId = EndpointId(1);

/// Numbers of a fixed sequence.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// A manager, and what its thread knows of.
struct Process {
    side: usize,
    manager: Manager,
    /// Every id that there ever was, and whether it is there.
    ids: BTreeMap<Id, bool>,
    /// Attempts whose queue pairs were the main thread's.
    up: Vec<Attempt>,
}

impl Process {
    fn new(side: usize) -> Self {
        let patient = Settings { attempts: 50, postponements: 50, ..settings(side, 1, QUEUES) };
        let mut manager = Manager::new(patient);
        manager.handle_order(Order::Add { endpoint: ENDPOINT, listener: 0, peer: peer(1 - side, 1) }, NOW);
        Self { side, manager, ids: BTreeMap::new(), up: Vec::new() }
    }

    /// Something happens, mostly of what a peer might do that means well.
    fn turn(&mut self, turn: u32, numbers: &mut Numbers) {
        let link = self.manager.links.get(&ENDPOINT);
        let present = link.map_or(0, |link| link.attempt.0);
        let known: Vec<Id> = self.manager.desk.ids.keys().copied().collect();
        let id = known.get(numbers.below(known.len().max(1))).copied().unwrap_or(Id::Own(0));
        let its = link.and_then(|link| link.legs.iter().position(|leg| leg.is_some_and(|leg| leg.id == id)));
        let is_wild = numbers.once_in(100);
        let queue = its.filter(|_| !is_wild).unwrap_or(numbers.below(9) / 4) as u8;
        let attempt = Attempt(present + u32::from(is_wild));
        let event = match numbers.below(200) {
            0 => Event::Unreachable,
            1 => Event::Disconnected,
            2 => Event::Refused,
            3 => Event::Rejected { private: &self.said(Body::Rejection(Refusal::Later), attempt) },
            4..70 => Event::AddressResolved,
            70..130 => Event::RouteResolved,
            _ => Event::Established { private: &self.said(Body::Reply { queue }, attempt) },
        };
        let verdict = if numbers.once_in(20) { Verdict::Fail } else { Verdict::Again };
        match numbers.below(40) {
            0..6 => {
                let (body, attempt) = if self.side == 1 {
                    (Body::Kick, 0)
                } else {
                    let queue = numbers.below(9) as u8 / 4;
                    (Body::Request { queue }, present + u32::from(numbers.once_in(4)))
                };
                let private = self.said(body, Attempt(attempt));
                let asked = Id::Peers(turn);
                self.ids.insert(asked, true);
                self.manager.handle_request(0, asked, &private, NOW);
            }
            6 => self.manager.handle_order(Order::Connect { endpoint: ENDPOINT }, NOW),
            7 => self.manager.handle_order(Order::Break { endpoint: ENDPOINT, attempt }, NOW),
            8 => self.manager.handle_order(Order::Release { endpoint: ENDPOINT, attempt, verdict }, NOW),
            9 => self.manager.handle_order(Order::Settled { endpoint: ENDPOINT, attempt }, NOW),
            10 => self.manager.handle_order(Order::Hurry { endpoint: ENDPOINT }, NOW),
            11 if numbers.once_in(4) => self.manager.handle_timeout(NOW),
            _ => self.manager.handle_event(id, event, NOW),
        }
    }

    fn said(&self, body: Body, attempt: Attempt) -> Bytes {
        let private = Private {
            body,
            nonce: nonce(1 - self.side, 1),
            target: nonce(self.side, 1),
            process: 101 - self.side as u64,
            token: 9,
            attempt: attempt.0,
            specification: QUEUES.hash,
            listener: 0,
            queues: QUEUES.count,
        };
        Dialect::Own.say(&private, 0)
    }

    /// Does what the manager says.
    fn perform(&mut self) {
        while let Some(action) = self.manager.poll_action() {
            let id = action.id();
            match action {
                Action::Resolve { .. } => assert_eq!(self.ids.insert(id, true), None),
                Action::Destroy { .. } | Action::Reject { .. } => {
                    assert_eq!(self.ids.insert(id, false), Some(true), "{action:?}: it ends once");
                }
                _ => assert_eq!(self.ids.get(&id), Some(&true), "{action:?}"),
            }
        }
        while let Some(notice) = self.manager.poll_notice() {
            if let Notice::Up { attempt, .. } = notice {
                self.up.push(attempt);
            }
        }
        let there: Vec<Id> = self.ids.iter().filter(|(_, there)| **there).map(|(id, _)| *id).collect();
        assert!(self.manager.desk.ids.keys().eq(&there), "all that is there is known");
    }
}

#[test]
fn whatever_is_said_each_id_is_destroyed_or_rejected_once() {
    let mut numbers = Numbers(7);
    let mut up = [0; 2];
    for round in 0..400 {
        let mut process = Process::new(round % 2);
        for turn in 0..400 {
            process.turn(turn, &mut numbers);
            process.perform();
        }
        process.manager.handle_order(Order::Finalize, NOW);
        process.perform();
        let attempts = std::mem::take(&mut process.up);
        up[round % 2] += attempts.len();
        for attempt in attempts {
            let verdict = Verdict::Fail;
            process.manager.handle_order(Order::Release { endpoint: ENDPOINT, attempt, verdict }, NOW);
        }
        process.perform();
        assert!(process.manager.links.is_empty() && process.manager.next_timeout().is_none());
        assert!(process.ids.values().all(|there| !there), "nothing is left");
    }
    assert!(up.iter().all(|up| *up > 100), "{up:?} attempts came to be up");
}

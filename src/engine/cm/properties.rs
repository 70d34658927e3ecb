//! What holds at any time, and what holds when nothing happens any more.

use std::collections::{BTreeMap, BTreeSet};

use super::link::Phase;
use super::world::{Side, World};
use super::*;

impl Side {
    fn is_owned(&self, endpoint: EndpointId, link: &Link) -> bool {
        let is_told = self.notices.iter().any(|notice| notice.endpoint() == Some(endpoint));
        let is_ordered = self.orders.iter().any(|order| order.endpoint() == Some(endpoint));
        let held = self.held.get(&endpoint);
        let is_used = held.is_some_and(|held| held.endpoint.present() == Some(link.attempt));
        let is_left = held.is_some_and(|held| held.letting == Some(link.attempt));
        let has_timer = link.deadline.is_some();
        match link.phase {
            Phase::Idle | Phase::Failed => !has_timer,
            Phase::Pausing | Phase::Asking | Phase::Kicking | Phase::Answering => has_timer,
            Phase::Up | Phase::Settled if !(is_told || is_ordered || is_used || is_left) => false,
            Phase::Up => has_timer == (link.role == Role::Acceptor),
            Phase::Settled => !has_timer,
            Phase::Down => !has_timer && (is_told || is_ordered || is_left),
            Phase::Closed => false,
        }
    }

    fn check(&self) {
        let manager = &self.manager;
        let timed =
            manager.links.iter().filter_map(|(endpoint, link)| Some((link.next_timeout()?, *endpoint)));
        assert_eq!(timed.collect::<BTreeSet<_>>(), manager.timers);
        let mut ids = BTreeMap::new();
        for (endpoint, link) in &manager.links {
            assert!(self.is_owned(*endpoint, link), "somebody goes on with it: {link:?}");
            let crossed = link.crossed.iter().map(|(kick, _)| kick);
            let legs = link.legs.iter().flatten().chain(&link.kick).chain(crossed);
            ids.extend(legs.map(|leg| (leg.id, *endpoint)));
            assert!(link.failures <= manager.desk.settings.attempts, "{link:?}");
            assert!(link.postponements <= manager.desk.settings.postponements, "{link:?}");
        }
        assert_eq!(ids, manager.desk.ids, "every id is somebody's");
        ids.extend(manager.unanswered.iter().map(|(_, id, _)| (*id, EndpointId(u32::MAX))));
        assert!(self.conns.keys().eq(ids.keys()), "none is forgotten, and none destroyed that is needed");
        for (endpoint, held) in &self.held {
            let is_told = self.notices.iter().any(|notice| notice.endpoint() == Some(*endpoint));
            let is_ordered = self.orders.iter().any(|order| order.endpoint() == Some(*endpoint));
            let phase = self.link(*endpoint).map(|link| link.phase);
            match held.endpoint.state() {
                State::Connecting if !is_told && !is_ordered => {
                    assert!(!matches!(phase, None | Some(Phase::Idle | Phase::Failed)), "{held:?}");
                }
                State::Connected => {
                    assert_eq!(held.cleared, held.endpoint.present(), "no CTS, not connected");
                    assert!(held.posting.is_none());
                }
                State::Failed => assert!(held.is_told && !held.waits, "who waits is told"),
                _ => {}
            }
        }
    }
}

impl World {
    /// What holds at any time.
    pub(super) fn check(&self) {
        for side in &self.sides {
            side.check();
        }
    }

    /// What holds when nothing happens any more.
    pub(super) fn check_rest(&self) {
        for (at, side) in self.sides.iter().enumerate() {
            assert!(side.is_calm());
            for (peer, other) in self.sides.iter().enumerate().filter(|(peer, _)| *peer > at) {
                let [one, two] = [side.latest(peer), other.latest(at)];
                let states = [one, two].map(|held| held.map_or(State::Ending, |held| held.endpoint.state()));
                let attempts = [one, two].map(|held| held.and_then(|held| held.endpoint.present()));
                match states {
                    [State::Connected, State::Connected] => {
                        // Openib has no word for them: each side counts by itself.
                        let are_told = self.dialect == Dialect::Own;
                        assert!(!are_told || attempts[0] == attempts[1], "one connection: {attempts:?}");
                        let ids = one.into_iter().flat_map(|held| &held.ids);
                        for id in ids {
                            let (_, back) = side.conns[id].other.expect("it is connected");
                            assert!(two.is_some_and(|held| held.ids.contains(&back)), "with each other");
                        }
                    }
                    [State::Connected | State::Connecting, _] | [_, State::Connected | State::Connecting] => {
                        panic!("side {at} and side {peer} are left in {states:?}");
                    }
                    [State::Failed, State::Closed] => self.check_idle(peer, at),
                    [State::Closed, State::Failed] => self.check_idle(at, peer),
                    _ => {}
                }
            }
            for held in side.held.values() {
                assert!(!held.waits && held.letting.is_none(), "nothing waits for ever: {held:?}");
                assert_ne!(held.endpoint.state(), State::Ending, "what ends has ended");
            }
            let used = side.held.values().filter(|held| held.endpoint.state() == State::Connected);
            let used: BTreeSet<_> = used.flat_map(|held| held.ids.iter().copied()).collect();
            assert!(side.conns.keys().eq(&used), "nothing is left behind");
        }
    }

    /// A side that has never heard of a connection that the peer has given up is told when it wants one.
    fn check_idle(&self, at: usize, peer: usize) {
        let link = self.sides[at].held.iter().rfind(|(_, held)| held.peer == peer);
        let (endpoint, _) = link.expect("it is there");
        let link = self.sides[at].link(*endpoint).expect("it is there");
        // Or has ended it as agreed, with a side that could not read that, or could not read itself, and was told so.
        let is_over = [at, peer].iter().any(|side| self.sides[*side].is_deaf);
        assert!(link.phase == Phase::Idle && (is_over || link.attempt == Attempt(0)), "it has seen nothing");
    }
}

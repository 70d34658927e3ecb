//! Processes with one endpoint each, their users, and a network that loses, doubles and delays, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::net::Ipv6Addr;
use std::rc::Rc;
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::pair::{Pair, Place};
use super::table::Row;
use super::*;
use crate::wire::gni::datagram::{Body, Credentials, Segment};

/// No time passes: a timer runs out whenever that is said.
pub(super) const NOW: Instant = Instant::ORIGIN;
pub(super) const ENDPOINT: EndpointId = EndpointId(1);

pub(super) fn settings() -> Settings {
    let credentials = Credentials { cookie: 7, domain: 8 };
    Settings {
        interval: Duration::ZERO,
        longest: Duration::ZERO,
        attempts: 2,
        farewells: 2,
        unmapped: 8,
        ..Settings::new([3; 16], credentials)
    }
}

pub(super) fn name(side: usize, life: u64) -> NameId {
    NameId { device: side as u32, cdm_id: 1, incarnation: life }
}

/// The mailbox that this life of this side makes for this connection: no other has the same.
pub(super) fn mailbox(side: usize, life: u64, vc: Vc) -> Attributes {
    let segment = Segment { pid: side as u32, inode: life, ..Segment::default() };
    Attributes { segment, ring: vc.0, address: Ipv6Addr::LOCALHOST, port: 1, depth: 64, capabilities: 0 }
}

/// What the user of a side knows of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// A mailbox is wanted.
    Wanted,
    /// It has been given.
    Given,
    /// It can be used.
    Up,
    /// It is to be drained.
    Draining,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Side {
    pub(super) engine: Engine,
    pub(super) life: u64,
    pub(super) phases: BTreeMap<Vc, Phase>,
    /// The last connection that the user was told of.
    highest: u32,
    /// Which it asked for, and which it answered.
    asked: BTreeSet<u32>,
    answered: BTreeSet<u32>,
    /// Lives of peers that are going to be told as ended.
    pub(super) rumours: BTreeSet<NameId>,
    pub(super) enabled: bool,
}

impl Side {
    fn new(side: usize, life: u64, enabled: bool) -> Self {
        let mut engine = Engine::new(settings());
        engine.open(name(side, life)).expect("the first");
        if enabled {
            engine.enable(ENDPOINT, NOW).expect("it is there");
        }
        Self {
            engine,
            life,
            phases: BTreeMap::new(),
            highest: 0,
            asked: BTreeSet::new(),
            answered: BTreeSet::new(),
            rumours: BTreeSet::new(),
            enabled,
        }
    }

    pub(super) fn in_phase(&self, phase: Phase) -> impl Iterator<Item = Vc> {
        self.phases.iter().filter(move |(_, now)| **now == phase).map(|(vc, _)| *vc)
    }

    pub(super) fn pair(&self, peer: usize) -> Option<&Pair> {
        self.engine.pairs.get(&Place { endpoint: 1, device: peer as u32, cdm_id: 1 })
    }

    fn has_to_send(&self) -> bool {
        !self.engine.answers.is_empty() || self.engine.pairs.values().any(|pair| pair.due)
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::MailboxWanted { vc, .. } => {
                let is_new = vc.0 > self.highest;
                self.highest = self.highest.max(vc.0);
                let before = self.phases.insert(vc, Phase::Wanted);
                assert!(if is_new { before.is_none() } else { before == Some(Phase::Given) }, "{event:?}");
            }
            Event::Connected { vc, peer, attributes, .. } => {
                assert_eq!(self.phases.insert(vc, Phase::Up), Some(Phase::Given), "{event:?}");
                let of = (attributes.segment.pid, attributes.segment.inode);
                assert_eq!(of, (peer.device, peer.incarnation), "two lives are not mixed");
            }
            Event::Mapped { vc } => assert_eq!(self.phases.get(&vc), Some(&Phase::Up), "{event:?}"),
            Event::Closing { vc, sent } => {
                assert_eq!(self.phases.insert(vc, Phase::Draining), Some(Phase::Up), "{event:?}");
                assert_eq!(sent, 5);
            }
            Event::Ended { vc, end, .. } => {
                let before = self.phases.remove(&vc).expect("it is told once");
                let was_up = matches!(before, Phase::Up | Phase::Draining);
                match end {
                    End::Closed => {}
                    End::Failed(_) => assert!(!was_up, "{event:?}"),
                    End::Lost(_) => assert!(was_up, "{event:?}"),
                }
            }
        }
    }
}

/// A datagram on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Packet {
    from: usize,
    to: usize,
    datagram: Datagram,
}

/// What may still happen that need not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Wishes of each side to be connected.
    pub(super) connects: [u8; 3],
    pub(super) losses: u8,
    pub(super) doubles: u8,
    /// Timers that run out while something is on its way.
    pub(super) hurries: u8,
    /// Mailboxes that are not there at first.
    pub(super) lacks: u8,
    /// Connections that each side closes.
    pub(super) closes: [u8; 3],
    /// Deaths of each side.
    pub(super) deaths: [u8; 3],
    /// Peers that are inserted.
    pub(super) inserts: u8,
}

/// The way on which a world came to be: told when something is wrong with it, and no part of what it is.
#[derive(Clone, Default)]
struct Trail(Option<Rc<(Turn, Trail)>>);

impl Trail {
    fn turns(&self) -> Vec<Turn> {
        let mut turns: Vec<Turn> =
            std::iter::successors(self.0.as_deref(), |(_, before)| before.0.as_deref())
                .map(|(turn, _)| *turn)
                .collect();
        turns.reverse();
        turns
    }
}

impl Hash for Trail {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Drop for Trail {
    fn drop(&mut self) {
        // The first that is dropped is that of the world that is wrong; it lets the others go without a word.
        if std::thread::panicking() && !TOLD.replace(true) {
            eprintln!("{:#?}", self.turns());
        }
    }
}

thread_local! {
    static TOLD: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// All of them.
#[derive(Clone, Hash)]
pub(super) struct World {
    trail: Trail,
    pub(super) sides: Vec<Side>,
    pub(super) network: Vec<Packet>,
    pub(super) budget: Budget,
    /// Datagrams are taken out one by one, when it happens; else at once.
    pub(super) lazy: bool,
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    Connect(usize, usize),
    Enable(usize),
    Insert(usize, usize),
    Ready(usize, Vc),
    Lack(usize, Vc),
    Drained(usize, Vc),
    Close(usize, Vc),
    Send(usize),
    Deliver(usize),
    Double(usize),
    Lose(usize),
    Expire(usize),
    Die(usize),
    Rumour(usize, NameId),
}

impl World {
    pub(super) fn new(enabled: &[bool], budget: Budget) -> Self {
        let sides = enabled.iter().enumerate().map(|(side, enabled)| Side::new(side, 1, *enabled)).collect();
        Self { trail: Trail::default(), sides, network: Vec::new(), budget, lazy: false }
    }

    pub(super) fn fingerprint(&self) -> u128 {
        let mut hasher = SipHasher13::new();
        self.hash(&mut hasher);
        hasher.finish128().as_u128()
    }

    /// Different packets on their way.
    fn packets(&self) -> impl Iterator<Item = usize> {
        (0..self.network.len()).filter(|at| *at == 0 || self.network[at - 1] != self.network[*at])
    }

    /// Whether nothing is on its way.
    fn is_calm(&self) -> bool {
        self.network.is_empty() && !self.sides.iter().any(Side::has_to_send)
    }

    /// What happens without anybody's wish; in this order, whatever is on its way comes to rest.
    pub(super) fn reactions(&self) -> Vec<Turn> {
        let mut turns = Vec::new();
        for (at, side) in self.sides.iter().enumerate() {
            if !side.enabled {
                turns.push(Turn::Enable(at));
            }
            turns.extend(side.in_phase(Phase::Wanted).map(|vc| Turn::Ready(at, vc)));
            turns.extend(side.in_phase(Phase::Draining).map(|vc| Turn::Drained(at, vc)));
            turns.extend(side.rumours.iter().map(|rumour| Turn::Rumour(at, *rumour)));
            if side.has_to_send() {
                turns.push(Turn::Send(at));
            }
        }
        turns.extend(self.packets().map(Turn::Deliver));
        if self.is_calm() || self.budget.hurries > 0 {
            let waits = |(at, side): (usize, &Side)| side.engine.poll_timeout().map(|_| Turn::Expire(at));
            turns.extend(self.sides.iter().enumerate().filter_map(waits));
        }
        turns
    }

    /// What users and the network do of themselves.
    pub(super) fn whims(&self) -> Vec<Turn> {
        let mut turns = Vec::new();
        let budget = &self.budget;
        for (at, side) in self.sides.iter().enumerate() {
            let peers = (0..self.sides.len()).filter(|peer| *peer != at);
            if side.enabled && budget.connects[at] > 0 {
                turns.extend(peers.clone().map(|peer| Turn::Connect(at, peer)));
            }
            if budget.inserts > 0 {
                turns.extend(peers.map(|peer| Turn::Insert(at, peer)));
            }
            if budget.lacks > 0 {
                turns.extend(side.in_phase(Phase::Wanted).map(|vc| Turn::Lack(at, vc)));
            }
            if budget.closes[at] > 0 {
                turns.extend(side.phases.keys().map(|vc| Turn::Close(at, *vc)));
            }
            if budget.deaths[at] > 0 {
                turns.push(Turn::Die(at));
            }
        }
        if budget.losses > 0 {
            turns.extend(self.packets().map(Turn::Lose));
        }
        if budget.doubles > 0 {
            turns.extend(self.packets().map(Turn::Double));
        }
        turns
    }

    pub(super) fn after(&self, turn: Turn) -> Self {
        let mut world = self.clone();
        world.take(turn);
        world
    }

    /// Something happens.
    pub(super) fn take(&mut self, turn: Turn) {
        self.trail = Trail(Some(Rc::new((turn, self.trail.clone()))));
        let _told = self.trail.clone();
        let calm = self.is_calm();
        let budget = &mut self.budget;
        match turn {
            Turn::Connect(at, peer) => {
                budget.connects[at] -= 1;
                self.sides[at].engine.connect(ENDPOINT, name(peer, 0), NOW).expect("it is enabled");
            }
            Turn::Enable(at) => {
                self.sides[at].enabled = true;
                self.sides[at].engine.enable(ENDPOINT, NOW).expect("it is there");
            }
            Turn::Insert(at, peer) => {
                budget.inserts -= 1;
                self.sides[at].engine.insert(ENDPOINT, name(peer, 0)).expect("it is there");
            }
            Turn::Ready(at, vc) => {
                let side = &mut self.sides[at];
                side.phases.insert(vc, Phase::Given);
                side.engine.mailbox_ready(vc, mailbox(at, side.life, vc), NOW).expect("it was wanted");
            }
            Turn::Lack(at, vc) => {
                budget.lacks -= 1;
                self.sides[at].phases.insert(vc, Phase::Given);
                self.sides[at].engine.mailbox_lacking(vc, NOW).expect("it was wanted");
            }
            Turn::Drained(at, vc) => self.sides[at].engine.drained(vc, NOW).expect("it was to be"),
            Turn::Close(at, vc) => {
                budget.closes[at] -= 1;
                self.sides[at].engine.close(vc, 5, NOW).expect("it is there");
            }
            Turn::Send(at) => self.send(at),
            Turn::Deliver(index) => {
                let packet = self.network.remove(index);
                self.deliver(packet);
            }
            Turn::Double(index) => {
                budget.doubles -= 1;
                self.deliver(self.network[index]);
            }
            Turn::Lose(index) => {
                budget.losses -= 1;
                self.network.remove(index);
            }
            Turn::Expire(at) => {
                budget.hurries = budget.hurries.saturating_sub(u8::from(!calm));
                self.sides[at].engine.handle_timeout(NOW);
            }
            Turn::Die(at) => {
                budget.deaths[at] -= 1;
                let life = self.sides[at].life;
                self.sides[at] = Side::new(at, life + 1, true);
                for (peer, side) in self.sides.iter_mut().enumerate() {
                    if peer != at {
                        side.rumours.insert(name(at, life));
                    }
                }
            }
            Turn::Rumour(at, dead) => {
                self.sides[at].rumours.remove(&dead);
                self.sides[at].engine.peer_died(dead, NOW);
            }
        }
        self.notice();
    }

    fn deliver(&mut self, packet: Packet) {
        self.sides[packet.to].engine.hear(&packet.datagram, Route(packet.from as u64), NOW);
    }

    fn send(&mut self, at: usize) {
        let Some((route, datagram)) = self.sides[at].engine.say(NOW) else { return };
        let to = datagram.target.device as usize;
        assert!(route.is_none_or(|route| route == Route(to as u64)), "it goes back as it came");
        let side = &mut self.sides[at];
        let (vc, spoken) = match datagram.body {
            Body::Request(_) => (datagram.source_vc, &mut side.asked),
            Body::Response(_) => (datagram.source_vc, &mut side.answered),
            _ => (0, &mut side.asked),
        };
        if vc != 0 {
            spoken.insert(vc);
            assert!(side.asked.is_disjoint(&side.answered), "no connection has both requested and responded");
        }
        let packet = Packet { from: at, to, datagram };
        let place = self.network.binary_search(&packet).unwrap_or_else(|place| place);
        self.network.insert(place, packet);
    }

    fn notice(&mut self) {
        for at in 0..self.sides.len() {
            let side = &mut self.sides[at];
            while let Some(event) = side.engine.poll_event() {
                side.tell(event);
            }
            let counters = std::mem::take(&mut side.engine.counters);
            assert_eq!(counters.stray, 0, "what no peer that keeps the rules says is not said");
            assert_eq!(counters.unanswered, 0);
            while !self.lazy && self.sides[at].has_to_send() {
                self.send(at);
            }
            // What has been said of connections that are over is of no interest.
            let side = &mut self.sides[at];
            let engine = &mut side.engine;
            engine.due.retain(|place| engine.pairs.get(place).is_some_and(|pair| pair.due));
            side.asked.retain(|vc| engine.places.contains_key(vc));
            side.answered.retain(|vc| engine.places.contains_key(vc));
            engine.counters = Counters::default();
        }
    }

    /// What holds at any time.
    pub(super) fn check(&self) {
        for side in &self.sides {
            let engine = &side.engine;
            let live = engine.pairs.iter().filter(|(_, pair)| pair.vc != 0);
            let places: BTreeMap<u32, Place> = live.map(|(place, pair)| (pair.vc, *place)).collect();
            assert_eq!(places, engine.places, "a pair has one connection at the most");
            let known: Vec<u32> = side.phases.keys().map(|vc| vc.0).collect();
            assert!(places.keys().copied().eq(known), "the user knows them");
            let timed = engine.pairs.iter().filter_map(|(place, pair)| Some((pair.timer?, *place)));
            assert_eq!(timed.collect::<BTreeSet<_>>(), engine.timers);
            for pair in engine.pairs.values() {
                let phase = side.phases.get(&Vc(pair.vc));
                let goes_on = pair.due || pair.timer.is_some();
                let is_owned = match pair.row {
                    Row::None | Row::Terminated | Row::Error => !pair.due && !pair.wanted,
                    Row::Preparing => phase == Some(&Phase::Wanted) || pair.timer.is_some(),
                    Row::Connected if pair.settled => !goes_on,
                    Row::Asking | Row::Connected | Row::Closing => goes_on,
                    Row::Draining => phase == Some(&Phase::Draining),
                };
                assert!(is_owned, "somebody goes on with it: {pair:?}");
                let may_hold = pair.row.is_idle() != side.enabled;
                assert!(pair.held.is_none() || may_hold, "held for a reason: {pair:?}");
            }
        }
    }

    /// What holds when nothing happens any more.
    pub(super) fn check_rest(&self) {
        for (at, side) in self.sides.iter().enumerate() {
            for (peer, other) in self.sides.iter().enumerate().filter(|(peer, _)| *peer != at) {
                let Some(pair) = side.pair(peer) else { continue };
                assert!(pair.row.is_idle() || pair.row == Row::Connected, "{pair:?}");
                let Some(adopted) = pair.adopted else { continue };
                let back = other.pair(at).filter(|back| back.row == Row::Connected);
                let back = back.expect("no side is connected alone");
                let known = back.adopted.expect("with somebody");
                assert_eq!((adopted.incarnation, adopted.vc), (other.life, back.vc));
                assert_eq!((known.incarnation, known.vc), (side.life, pair.vc));
                assert_eq!(adopted.attributes, mailbox(peer, other.life, Vc(back.vc)));
                assert_eq!(Some(adopted.attributes), back.own);
            }
        }
    }

    pub(super) fn row(&self, at: usize, peer: usize) -> Row {
        self.sides[at].pair(peer).map_or(Row::None, |pair| pair.row)
    }
}

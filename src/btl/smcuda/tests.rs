//! Two modules in one process, each with a host that notes what it is told.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use super::component::Smcuda;
use super::parameters::TRANSFERS;
use super::record::{Place, Record};
use crate::btl::{
    Access, Atomics, Cookie, EndpointId, Fragment, Host, Lent, Limits, Pipeline, Sending, Transport, Upcalls,
};
use crate::error::{Error, Result};
use crate::shm::{Door, NONCE};

/// A host of which only what is told matters.
#[derive(Default)]
pub(super) struct Told {
    pub(super) delivered: RefCell<Vec<(u8, Vec<u8>)>>,
    pub(super) done: RefCell<Vec<(Cookie, Result<()>)>>,
    pub(super) lost: Cell<usize>,
    /// What everybody has published.
    pub(super) published: RefCell<Option<Vec<u8>>>,
    /// What these have, and nobody else.
    pub(super) records: RefCell<HashMap<u64, Vec<u8>>>,
    /// How often that was asked for.
    pub(super) asked: Cell<u64>,
    /// What these have published on other nodes, and how often that was waited for.
    pub(super) elsewhere: RefCell<HashMap<u64, Vec<u8>>>,
    pub(super) waited: Cell<u64>,
    pub(super) lines: RefCell<Vec<String>>,
}

pub(super) struct Silent<'a>(pub(super) &'a Told);

impl Host for Silent<'_> {
    fn name(&self) -> u64 {
        0
    }
    fn node(&self) -> String {
        "here".to_owned()
    }
    fn publish(&self, _key: &'static CStr, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
    fn published(&self, key: &'static CStr, name: u64) -> Result<Vec<u8>> {
        self.0.waited.set(self.0.waited.get() + 1);
        let record = self.0.elsewhere.borrow().get(&name).cloned();
        record.map_or_else(|| self.published_by_now(key, name), Ok)
    }
    fn published_by_now(&self, _key: &'static CStr, name: u64) -> Result<Vec<u8>> {
        self.0.asked.set(self.0.asked.get() + 1);
        let record = self.0.records.borrow().get(&name).cloned();
        record.or_else(|| self.0.published.borrow().clone()).ok_or(Error::NotFound)
    }
    fn knows(&self, name: u64) -> bool {
        self.0.elsewhere.borrow().contains_key(&name)
    }
    fn text(&self, _parameter: &CStr) -> Option<String> {
        None
    }
    fn is_asked_for(&self) -> bool {
        true
    }
    fn is_verbose(&self) -> bool {
        true
    }
    fn notice(&self, topic: &str, line: &str) {
        self.0.lines.borrow_mut().push(format!("{topic}: {line}"));
    }
    fn say(&self, line: &str) {
        self.0.lines.borrow_mut().push(line.to_owned());
    }
}

impl Upcalls for Told {
    fn host(&self) -> impl Host {
        Silent(self)
    }
    fn deliver(&self, _endpoint: EndpointId, tag: u8, bytes: &[u8]) {
        self.delivered.borrow_mut().push((tag, bytes.to_vec()));
    }
    fn deliver_shared(&self, endpoint: EndpointId, tag: u8, bytes: Lent) {
        let mut copy = Vec::new();
        bytes.append_to(&mut copy);
        self.deliver(endpoint, tag, &copy);
    }
    fn done(&self, cookie: Cookie, outcome: Result<()>) {
        self.done.borrow_mut().push((cookie, outcome));
    }
    fn doomed(&self, _endpoint: EndpointId, _name: u64, tell: impl FnOnce()) {
        tell();
    }
    fn lost(&self, _endpoint: EndpointId, _name: u64) {
        self.lost.set(self.lost.get() + 1);
    }
}

pub(super) fn door() -> Arc<Door> {
    Arc::new(Door::make([9; NONCE]).expect("memory"))
}

pub(super) fn module(name: u64) -> Smcuda {
    life_of(name, &door())
}

/// A life of a process.
pub(super) fn life_of(name: u64, door: &Arc<Door>) -> Smcuda {
    let limits = Limits {
        eager: 4096,
        rndv_eager: 4096,
        max_send: 32768,
        max_send_device: 0,
        pipeline: Pipeline::WHOLE,
        copy: 0,
        exclusivity: 0,
        latency: 1,
        bandwidth: 1,
        flags: 7,
        atomics: Atomics::None,
    };
    let devices = super::parameters::Devices {
        use_ipc: false,
        same_gpu: false,
        is_verbose: false,
        bounds: Default::default(),
        limits: Default::default(),
    };
    Smcuda::make(name, Arc::clone(door), limits, devices).expect("memory")
}

/// Two that know each other, with their endpoints for each other.
fn pair() -> ([Smcuda; 2], [EndpointId; 2], [Told; 2]) {
    let modules = [module(1), module(2)];
    let told = [Told::default(), Told::default()];
    let meet = |own: usize, other: usize| {
        let bytes = modules[other].record().to_bytes();
        modules[own].meet(other as u64 + 1, &bytes, &Silent(&told[own])).expect("reached")
    };
    let ends = [meet(0, 1), meet(1, 0)];
    (modules, ends, told)
}

/// The first meets the second.
pub(super) fn meet(own: &Smcuda, other: &Smcuda, name: u64, told: &Told) -> EndpointId {
    own.meet(name, &other.record().to_bytes(), &Silent(told)).expect("reached")
}

pub(super) fn sends(own: &Smcuda, to: EndpointId, text: &str) {
    assert!(own.send_now(to, 65, [lend(text.as_bytes()), Lent::EMPTY]), "{text}");
}

/// What has been delivered, with all passes that it takes until somebody's door is looked at again.
pub(super) fn hears(own: &Smcuda, told: &Told) -> Vec<String> {
    for _ in 0..600 {
        own.progress(told);
    }
    told.delivered.take().into_iter().map(|(_, bytes)| String::from_utf8(bytes).expect("text")).collect()
}

/// Of a copy that stays.
pub(super) fn lend(bytes: &[u8]) -> Lent {
    crate::link::conformance::lend(bytes.to_vec().leak())
}

pub(super) fn fragment(bytes: &[u8], cookie: Cookie, awaited: bool) -> Fragment<Lent> {
    Fragment { tag: 65, pieces: [Some(lend(bytes)), None], cookie, priority: false, awaited }
}

/// The place that is looked at first goes around the list, which gets shorter when peers go.
#[test]
fn those_who_are_left_are_heard_when_others_are_closed() {
    let own = module(1);
    let told = Told::default();
    let others: Vec<Smcuda> = (2..=5).map(module).collect();
    let sends = |other: &Smcuda| {
        let to_own = other.meet(1, &own.record().to_bytes(), &Silent(&told)).expect("reached");
        assert!(other.send_now(to_own, 65, [lend(b"here"), Lent::EMPTY]));
    };
    let ends: Vec<EndpointId> = others
        .iter()
        .zip(2..)
        .map(|(other, name)| own.meet(name, &other.record().to_bytes(), &Silent(&told)).expect("reached"))
        .collect();
    others.iter().for_each(sends);
    assert_eq!(own.progress(&told), 4);
    for passes in 0..4 {
        // Whatever is looked at first.
        (0..passes).for_each(|_| assert_eq!(own.progress(&told), 0));
    }
    own.progress(&told);
    own.close(&ends[1..], &told);
    sends(&others[0]);
    assert_eq!(own.progress(&told), 1);
    assert_eq!(told.delivered.borrow().len(), 5);
}

#[test]
fn what_is_sent_arrives_and_ends_once() {
    let ([first, second], [to_second, _], [one, two]) = pair();
    assert_eq!(first.send(to_second, fragment(b"over", 2, false)), Ok(Sending::Over));
    assert_eq!(first.send(to_second, fragment(b"awaited", 4, true)), Ok(Sending::UnderWay));
    assert!(first.send_now(to_second, 66, [lend(b"at "), lend(b"once")]));
    assert!(one.done.borrow().is_empty(), "not before it returns");
    first.progress(&one);
    assert_eq!(*one.done.borrow(), [(4, Ok(()))]);
    assert_eq!(second.progress(&two), 3);
    let expected = [(65, b"over".to_vec()), (65, b"awaited".to_vec()), (66, b"at once".to_vec())];
    assert_eq!(*two.delivered.borrow(), expected);
    assert_eq!(second.progress(&two), 0);
}

/// A sender that is about to write more is not disturbed: what was waited for is delivered, and what is behind it when it
/// is looked for again.
#[test]
fn what_was_waited_for_is_delivered_alone_and_all_arrives() {
    let ([first, second], [to_second, _], [_, two]) = pair();
    let send = |count: usize| {
        (0..count).for_each(|_| assert!(first.send_now(to_second, 66, [lend(b"one"), Lent::EMPTY])));
    };
    let next = || loop {
        let count = second.progress(&two);
        if count != 0 {
            return count;
        }
    };
    // The first rings, which is a pass of its own.
    send(2);
    assert_eq!(next(), 2);
    assert_eq!(second.progress(&two), 0);
    send(4);
    assert_eq!((next(), next()), (1, 3));
    assert_eq!(two.delivered.borrow().len(), 6);
}

/// As the host announces a long message: the handle at its end is mostly zeros.
#[test]
fn an_announcement_that_ends_with_zeros_arrives_whole() {
    let ([first, second], [to_second, _], [one, two]) = pair();
    let mut announcement = vec![8_u8; 240];
    announcement[100..].fill(0);
    announcement[84] = 0;
    assert_eq!(first.send(to_second, fragment(&announcement, 2, false)), Ok(Sending::Over));
    // Also what has waited for room.
    while first.send(to_second, fragment(&[7; 30_000], 2, false)) == Ok(Sending::Over) {}
    assert_eq!(first.send(to_second, fragment(&announcement, 4, true)), Ok(Sending::UnderWay));
    while two.delivered.borrow().last().is_none_or(|(_, last)| last.len() == 30_000)
        || one.done.borrow().len() < 2
    {
        second.progress(&two);
        first.progress(&one);
    }
    second.progress(&two);
    let whole = two.delivered.borrow().iter().filter(|(_, bytes)| *bytes == announcement).count();
    assert_eq!(whole, 2);
}

#[test]
fn what_finds_no_room_waits_in_order() {
    let ([first, second], [to_second, _], [one, two]) = pair();
    let block = vec![7_u8; 30_000];
    let mut cookies = 0;
    while first.send(to_second, fragment(&block, cookies, false)) == Ok(Sending::Over) {
        cookies += 2;
    }
    assert!(cookies >= 14, "{cookies}");
    assert!(!first.send_now(to_second, 66, [lend(b"not before"), Lent::EMPTY]), "nothing overtakes");
    assert_eq!(first.send(to_second, fragment(b"last", 1000, true)), Ok(Sending::UnderWay));
    assert_eq!(first.progress(&one), 0, "there is no room yet");
    while two.delivered.borrow().len() < cookies as usize / 2 + 2 {
        second.progress(&two);
        first.progress(&one);
    }
    assert_eq!(two.delivered.borrow().last(), Some(&(65, b"last".to_vec())));
    assert_eq!(*one.done.borrow(), [(cookies, Ok(())), (1000, Ok(()))]);
}

/// A host that sends without end, to somebody who does not receive, has to keep it itself.
#[test]
fn what_nobody_awaits_waits_within_bounds() {
    let ([first, second], [to_second, _], [one, two]) = pair();
    let mut sent = 0;
    while first.send(to_second, fragment(&[1; 4000], 2, false)).is_ok() {
        sent += 1;
    }
    assert!((256..1000).contains(&sent), "{sent}");
    assert_eq!(first.send(to_second, fragment(b"none", 2, false)), Err(Error::OutOfResource));
    assert_eq!(first.send(to_second, fragment(b"awaited", 4, true)), Ok(Sending::UnderWay));
    while two.delivered.borrow().len() <= sent {
        second.progress(&two);
        first.progress(&one);
    }
    assert_eq!(first.send(to_second, fragment(b"room", 2, false)), Ok(Sending::Over));
}

#[test]
fn memory_is_copied_in_one_step_and_only_where_it_was_registered() {
    let ([first, second], [to_second, _], [one, _]) = pair();
    assert_eq!(first.limits().flags & TRANSFERS, TRANSFERS);
    let (source, mut target) = ([3_u8; 100], [0_u8; 60]);
    let registration = second.register(lend(&source), Access::READ).expect("memory");
    let room = crate::link::conformance::lend(&mut target);
    assert_eq!(first.get(to_second, room, (registration, 40), 1), Ok(Sending::Over));
    assert_eq!(target, [3; 60], "at once");
    assert!(first.get(to_second, room, (registration, 41), 3).is_err(), "beyond the end");
    assert!(first.get(to_second, room, (registration, u64::MAX), 3).is_err());
    assert!(first.put(to_second, room, (registration, 0), 3).is_err(), "to be read only");
    first.progress(&one);
    assert!(one.done.borrow().is_empty(), "nothing more is said of it");
}

#[test]
fn a_peer_that_writes_rubbish_is_lost_and_told_so() {
    let ([first, second], [to_second, to_first], [one, two]) = pair();
    assert!(first.send_now(to_second, 66, [lend(b"right"), Lent::EMPTY]));
    second.progress(&two);
    first.forge(to_second, u64::MAX);
    second.progress(&two);
    assert_eq!((two.lost.get(), two.delivered.borrow().len()), (1, 1));
    assert!(two.lines.borrow()[0].contains("damaged"), "{:?}", two.lines.borrow());
    assert_eq!(second.send(to_first, fragment(b"none", 2, true)), Err(Error::Unreachable));
    assert_eq!(second.progress(&two), 0, "nothing of it is looked at again");
    drop(one);
}

#[test]
fn a_record_of_another_machine_or_process_is_not_reached() {
    let (first, second, told) = (module(1), module(2), Told::default());
    let mut record = second.record().clone();
    record.boot = [1; 36];
    let why = first.meet(2, &record.to_bytes(), &Silent(&told)).expect_err("elsewhere");
    assert!(why.contains("another machine"), "{why}");
    for (apart, why) in [
        (Place { pids: 1, ..first.record().place }, "PID namespace"),
        (Place { users: 1, ..first.record().place }, "user namespace"),
        (Place { user: 4711, ..first.record().place }, "another user"),
    ] {
        // The segment is there, and could be mapped.
        let record = Record { place: apart, ..second.record().clone() };
        let told_why = first.meet(2, &record.to_bytes(), &Silent(&told)).expect_err("apart");
        assert!(told_why.contains(why), "{told_why}");
    }
    let mut record = second.record().clone();
    record.door.nonce[0] ^= 1;
    assert!(first.meet(2, &record.to_bytes(), &Silent(&told)).is_err());
    assert!(first.meet(2, b"", &Silent(&told)).is_err());
    // Memory that cannot be read takes the transfers away, and leaves the rest.
    let own = door();
    let second = life_of(2, &own);
    let mut life = *second.life();
    life.probe.1[0] ^= 1;
    own.show(&life);
    assert!(first.meet(2, &second.record().to_bytes(), &Silent(&told)).is_ok());
    assert_eq!(first.limits().flags & TRANSFERS, 0);
    assert_eq!(told.lines.borrow().len(), 1, "said once");
}

#[test]
fn what_waits_for_a_closed_peer_ends() {
    let ([first, _second], [to_second, _], [one, _]) = pair();
    let block = vec![7_u8; 30_000];
    while first.send(to_second, fragment(&block, 8, false)) == Ok(Sending::Over) {}
    first.close(&[to_second], &one);
    assert_eq!(*one.done.borrow(), [(8, Err(Error::Unreachable))]);
    assert_eq!(first.send(to_second, fragment(b"late", 2, true)), Err(Error::Unreachable));
    assert_eq!(first.peer(to_second), None);
}

/// A process that another one sees, but that does not see it: in a PID namespace of its own, for example.
#[test]
fn who_is_not_reached_by_those_it_sends_to_learns_it() {
    let (seen, blind) = (module(1), module(2));
    let (one, two) = (Told::default(), Told::default());
    let to_blind = seen.meet(2, &blind.record().to_bytes(), &Silent(&one)).expect("reached");
    assert_eq!(seen.send(to_blind, fragment(b"lost", 2, false)), Ok(Sending::Over));
    // Who is not known yet may be later.
    blind.progress(&two);
    let mut record = seen.record().clone();
    record.door.inode ^= 1;
    *two.published.borrow_mut() = Some(record.to_bytes());
    assert!(seen.send_now(to_blind, 65, [lend(b"lost"), Lent::EMPTY]));
    while one.lost.get() == 0 {
        blind.progress(&two);
        seen.progress(&one);
    }
    assert!(
        two.lines.borrow().last().is_some_and(|line| line.contains("is not reached from here")),
        "{:?}",
        two.lines
    );
    assert!(one.lines.borrow()[0].contains("cannot reach this process"), "{:?}", one.lines);
    assert_eq!(seen.send(to_blind, fragment(b"late", 2, true)), Err(Error::Unreachable));
    assert!(two.delivered.borrow().is_empty());
}

/// What a peer says of device memory is believed as little as all else that it writes.
#[test]
fn rubbish_about_device_memory_is_counted_and_nothing_else_comes_of_it() {
    use super::wire::Message;
    let ([first, second], [to_second, to_first], [one, two]) = pair();
    let rubbish: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![1],
        vec![0xFF; 200],
        Message::Emptied { slot: 0 }.to_bytes(),
        Message::Emptied { slot: u32::MAX }.to_bytes(),
        Message::Filled { ticket: 1, slot: u32::MAX, len: 5, at: 0 }.to_bytes(),
        Message::Filled { ticket: 1, slot: 0, len: u32::MAX, at: 0 }.to_bytes(),
        Message::Shake(crate::engine::ipc::Message::Confirm, None).to_bytes(),
    ];
    for bytes in &rubbish {
        assert!(first.claim(to_second, bytes));
        second.progress(&two);
    }
    assert_eq!(second.counters.num_ipc_strays.get(), rubbish.len() as u64);
    // These are answered: there is nothing of the kind.
    let ask = Message::Ask { ticket: 7, serial: 1, offset: u64::MAX, len: 2 };
    let filled = Message::Filled { ticket: 9, slot: 3, len: 5, at: u64::MAX };
    for message in [ask, filled, Message::Failed { ticket: 5 }, Message::Withdrawn { ticket: 5 }] {
        assert!(first.claim(to_second, &message.to_bytes()));
    }
    while second.progress(&two) > 0 {}
    // The answers fit nothing that was asked here either: a slot that was not lent is one more stray.
    while first.progress(&one) > 0 {}
    assert_eq!(first.counters.num_ipc_strays.get(), 1);
    assert!(two.delivered.borrow().is_empty() && one.delivered.borrow().is_empty(), "not for the host");
    assert!(second.send_now(to_first, 65, [lend(b"still"), lend(b" here")]));
    first.progress(&one);
    assert_eq!(*one.delivered.borrow(), [(65, b"still here".to_vec())]);
    assert_eq!((one.lost.get(), two.lost.get()), (0, 0));
}

/// Why device memory is not shared is said to who wants to hear it, and is answered by nothing.
#[test]
fn a_refusal_is_said_with_its_reason() {
    use super::wire::Message;
    let ([first, second], [to_second, _], [one, two]) = pair();
    let refusal =
        Message::Shake(crate::engine::ipc::Message::Refuse(crate::engine::ipc::Refusal::NotOpened), None);
    assert!(first.claim(to_second, &refusal.to_bytes()));
    while second.progress(&two) > 0 {}
    let lines = two.lines.borrow();
    assert!(lines.iter().any(|line| line.contains("is not shared with rank 0 of job 1")), "{lines:?}");
    first.progress(&one);
    assert_eq!(first.counters.num_ipc_strays.get(), 0);
}

#[test]
fn what_is_asked_about_peers_and_the_module_is_said() {
    let ([first, _second], [to_second, _], _) = pair();
    assert!(first.send_now(to_second, 66, [lend(b"one"), Lent::EMPTY]));
    assert_eq!(first.describe(None), ["num_sends 1, num_sends_at_once 1, num_bells 1"]);
    let said = first.describe(Some(to_second));
    assert!(said.len() == 1 && said[0].starts_with("rank 0 of job 2: open; 0 fragments wait"), "{said:?}");
    assert!(first.describe(Some(EndpointId::from_raw(9 << 32 | 9))).is_empty());
}

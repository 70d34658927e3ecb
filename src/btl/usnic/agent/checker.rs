//! The agent's state machine: requests of this process's modules and datagrams of other agents in;
//! datagrams, replies and the time of the next turn out.
//!
//! A question to another agent is an *errand*. It has a number that only the two agents know, is
//! asked again until its answer comes or its tries are used up, and is run once however many modules
//! want to know. What is not an answer to an errand, or not genuine, is dropped and counted.
//!
//! Who answers no datagram may be behind a packet filter, or stopped. So it is called, too, over a connection: where
//! that is taken and nobody says anything, the errand goes on for as long as that stays so.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use super::mail::{Reply, Request};
use crate::engine::Instant;
use crate::wire::probe::{self, Body, Key, Message, Packet, Process};

/// A module's connection.
pub(super) type ClientId = u64;
/// A socket for datagrams.
pub(super) type SocketId = usize;

/// How often another agent is asked whether a process lives, after the first time.
const ASKS: u32 = 4;
/// And how long after each other.
const BETWEEN_ASKS: Duration = Duration::from_millis(150);
/// So many times before the last another agent of which nothing has come is called.
const CALLED: u32 = 20;
/// How often it is asked again whose call has ended, or was answered, or of which the first datagram has come so late.
const AFTER_CALL: u32 = 4;
/// And how much more seldom meanwhile: that it goes on its call says, too.
const SELDOM: u32 = 16;
/// Ways that are known to be good.
const KNOWN: usize = 16_384;

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Send this, filled up with zeros to so many bytes.
    Send { socket: SocketId, to: SocketAddr, head: [u8; probe::LEN], length: usize },
    /// Call, and say this.
    Call { nonce: u64, socket: SocketId, to: SocketAddr, head: [u8; probe::LEN] },
    /// The call is of no use any more.
    HangUp { nonce: u64 },
    /// Tell a module.
    Reply { client: ClientId, reply: Reply },
}

/// What questions are answered with, at a socket that takes any.
#[derive(Clone, Copy)]
pub(super) struct Answers<'a> {
    /// The key that they are asked under.
    pub(super) key: &'a Key,
    /// Whether a module of another process of this node lives; `None` where there never was one.
    pub(super) lives: &'a dyn Fn(Process) -> Option<bool>,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Pings answered.
    pub(super) pings: u64,
    /// Questions about processes, and calls, answered.
    pub(super) asks: u64,
    /// Answers that belonged to an errand.
    pub(super) answers: u64,
    /// Datagrams, or words of calls, that are no message.
    pub(super) malformed: u64,
    /// The same of those whose tag is wrong.
    pub(super) forged: u64,
    /// Genuine questions about processes that never were here, answers that nobody waits for, and
    /// questions where none are taken.
    pub(super) stray: u64,
}

/// A module.
struct Client {
    process: Process,
    socket: SocketId,
}

/// What an errand is about. Two that are about the same are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Way { length: u32 },
    Life(Process),
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It has not been taken.
    Calling,
    /// It has been taken, and nobody has said anything.
    Taken,
    /// Somebody has answered, it has ended, or could not be begun.
    Over,
}

/// By which socket, and from where.
type Asker = (SocketId, SocketAddr);

type Aim = (SocketId, SocketAddr, Subject);

struct Errand {
    aim: Aim,
    /// The other agent's.
    key: Key,
    due: Instant,
    interval: Duration,
    left: u32,
    /// Whether a short and a long one have come back.
    short: bool,
    long: bool,
    /// The network has said that nobody listens there.
    refused: bool,
    /// A call, where there is one.
    line: Option<Line>,
    /// It goes on after its last try, and who asks has been told so.
    waits: bool,
    /// Who wants to know, and what they call it.
    askers: Vec<(ClientId, u64)>,
}

/// The state machine.
pub(super) struct Checker {
    key: Key,
    clients: HashMap<ClientId, Client>,
    /// The modules that have ever joined, and whether they live: of one whose connection has failed, nobody
    /// here knows.
    own: HashMap<Process, Option<bool>>,
    errands: HashMap<u64, Errand>,
    /// The errands by what they are about, and by when they are looked at.
    aims: HashMap<Aim, u64>,
    due: BTreeSet<(Instant, u64)>,
    known: HashSet<Aim>,
    nonces: u64,
    outputs: VecDeque<Output>,
    counts: Counts,
}

impl Checker {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            clients: HashMap::new(),
            own: HashMap::new(),
            errands: HashMap::new(),
            aims: HashMap::new(),
            due: BTreeSet::new(),
            known: HashSet::new(),
            nonces: 0,
            outputs: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A module is there, and is reached and reaches others through this socket.
    pub(super) fn handle_joined(&mut self, client: ClientId, process: Process, socket: SocketId, port: u16) {
        self.clients.insert(client, Client { process, socket });
        self.own.insert(process, Some(true));
        self.outputs.push_back(Output::Reply { client, reply: Reply::Joined { port, key: self.key } });
    }

    /// The connection of a module has ended.
    pub(super) fn handle_left(&mut self, client: ClientId) {
        let Some(Client { process, .. }) = self.clients.remove(&client) else { return };
        if let Some(lives) = self.own.get_mut(&process).filter(|lives| **lives == Some(true)) {
            *lives = None;
        }
        let mut idle = Vec::new();
        for (&nonce, errand) in &mut self.errands {
            errand.askers.retain(|(asker, _)| *asker != client);
            if errand.askers.is_empty() {
                idle.push(nonce);
            }
        }
        for nonce in idle {
            self.end(nonce);
        }
    }

    /// A module wants to know something.
    pub(super) fn handle_request(&mut self, client: ClientId, request: &Request, now: Instant) {
        let Some(&Client { process: own, socket }) = self.clients.get(&client) else { return };
        match *request {
            Request::Join { .. } | Request::Share { .. } => {}
            Request::Leave => _ = self.own.insert(own, Some(false)),
            Request::Check { id, to, key, length, interval_ms, tries } => {
                let length = length.clamp(probe::LEN as u32, probe::LONGEST);
                let aim = (socket, to, Subject::Way { length });
                if self.known.contains(&aim) {
                    let reply = Reply::Checked { id, short: true, long: true };
                    self.outputs.push_back(Output::Reply { client, reply });
                } else {
                    let interval = Duration::from_millis(u64::from(interval_ms.max(1)));
                    self.begin(aim, key, interval, tries, (client, id), now);
                }
            }
            Request::Ask { id, to, key, process } => {
                let aim = (socket, to, Subject::Life(process));
                self.begin(aim, key, BETWEEN_ASKS, ASKS, (client, id), now);
            }
        }
    }

    fn begin(
        &mut self,
        aim: Aim,
        key: Key,
        interval: Duration,
        tries: u32,
        asker: (ClientId, u64),
        now: Instant,
    ) {
        if let Some(errand) = self.aims.get(&aim).and_then(|nonce| self.errands.get_mut(nonce)) {
            errand.askers.push(asker);
            if errand.waits {
                let (client, id) = asker;
                self.outputs.push_back(Output::Reply { client, reply: Reply::Waiting { id } });
            }
            return;
        }
        self.nonces += 1;
        let nonce = probe::nonce(&self.key, self.nonces);
        let errand = Errand {
            aim,
            key,
            due: now,
            interval,
            left: tries,
            short: false,
            long: false,
            refused: false,
            line: None,
            waits: false,
            askers: vec![asker],
        };
        self.ask(nonce, &errand);
        self.aims.insert(aim, nonce);
        self.errands.insert(nonce, errand);
        self.schedule(nonce, now);
    }

    /// Sets the time at which the errand is looked at again.
    fn schedule(&mut self, nonce: u64, now: Instant) {
        let Some(errand) = self.errands.get_mut(&nonce) else { return };
        self.due.remove(&(errand.due, nonce));
        errand.due = now + errand.interval * if errand.waits && errand.left == 0 { SELDOM } else { 1 };
        self.due.insert((errand.due, nonce));
    }

    /// Sends what has not been answered.
    fn ask(&mut self, nonce: u64, errand: &Errand) {
        let (socket, to, subject) = errand.aim;
        let mut send = |body| {
            let message = Message { nonce, body };
            let (head, length) = (message.emit(&errand.key), message.len());
            self.outputs.push_back(Output::Send { socket, to, head, length });
        };
        match subject {
            Subject::Way { length } => {
                if !errand.short {
                    send(Body::Ping { length: probe::LEN as u32 });
                }
                if !errand.long {
                    send(Body::Ping { length });
                }
            }
            Subject::Life(process) => send(Body::Ask(process)),
        }
    }

    fn end(&mut self, nonce: u64) -> Option<Errand> {
        let errand = self.errands.remove(&nonce)?;
        self.aims.remove(&errand.aim);
        self.due.remove(&(errand.due, nonce));
        if matches!(errand.line, Some(Line::Calling | Line::Taken)) {
            self.outputs.push_back(Output::HangUp { nonce });
        }
        Some(errand)
    }

    /// A datagram has come: its first bytes, and its length. `answers`: where questions may come.
    pub(super) fn handle_datagram(
        &mut self,
        (socket, from): Asker,
        head: &[u8],
        length: usize,
        answers: Option<Answers<'_>>,
    ) {
        let Ok(packet) = Packet::parse(head, length) else {
            self.counts.malformed += 1;
            return;
        };
        match packet.message.body {
            Body::Ping { .. } | Body::Ask(_) => match answers {
                Some(answers) => self.handle_question((socket, from), &packet, answers),
                None => self.counts.stray += 1,
            },
            Body::Pong { .. } | Body::Alive(_) | Body::Gone(_) => self.handle_answer(&packet),
            Body::Call | Body::Here => self.counts.stray += 1,
        }
    }

    /// Somebody has called, and said this: what is said to that.
    pub(super) fn handle_call(&mut self, head: &[u8; probe::LEN], key: &Key) -> Option<[u8; probe::LEN]> {
        let nonce = match Packet::parse(head, probe::LEN) {
            Err(_) => {
                self.counts.malformed += 1;
                return None;
            }
            Ok(packet) if !packet.is_genuine(key) => {
                self.counts.forged += 1;
                return None;
            }
            Ok(Packet { message: Message { nonce, body: Body::Call }, .. }) => nonce,
            Ok(_) => {
                self.counts.stray += 1;
                return None;
            }
        };
        self.counts.asks += 1;
        Some(Message { nonce, body: Body::Here }.emit(key))
    }

    /// A call has been taken.
    pub(super) fn handle_taken(&mut self, nonce: u64) {
        if let Some(errand) = self.errands.get_mut(&nonce).filter(|errand| errand.line == Some(Line::Calling))
        {
            errand.line = Some(Line::Taken);
        }
    }

    /// A call has ended, perhaps with these last words: what does not come by datagrams from now on does not come at all.
    pub(super) fn handle_hung_up(&mut self, nonce: u64, said: Option<&[u8; probe::LEN]>, now: Instant) {
        let Some(errand) = self.errands.get_mut(&nonce) else { return };
        if let Some(said) = said {
            let packet = Packet::parse(said, probe::LEN);
            let here = packet.is_ok_and(|packet| {
                packet.message == Message { nonce, body: Body::Here } && packet.is_genuine(&errand.key)
            });
            if here { self.counts.answers += 1 } else { self.counts.forged += 1 }
        }
        errand.line = Some(Line::Over);
        if errand.left == 0 || errand.waits {
            errand.left = AFTER_CALL;
            self.schedule(nonce, now);
        }
    }

    /// Whether a process of this node lives. Of our own, nobody else is asked: by looking at a file of ours we
    /// would give up the lock that says that it lives.
    fn lives(&self, process: Process, answers: Answers<'_>) -> Option<bool> {
        self.own.get(&process).copied().unwrap_or_else(|| (answers.lives)(process))
    }

    fn handle_question(&mut self, (socket, to): Asker, packet: &Packet, answers: Answers<'_>) {
        if !packet.is_genuine(answers.key) {
            self.counts.forged += 1;
            return;
        }
        let known = match packet.message.body {
            Body::Ask(process) => self.lives(process, answers),
            _ => None,
        };
        let body = match (packet.message.body, known) {
            (Body::Ask(process), Some(lives)) => {
                self.counts.asks += 1;
                if lives { Body::Alive(process) } else { Body::Gone(process) }
            }
            (Body::Ping { length }, _) => {
                self.counts.pings += 1;
                Body::Pong { length }
            }
            _ => {
                self.counts.stray += 1;
                return;
            }
        };
        let answer = Message { nonce: packet.message.nonce, body };
        let (head, length) = (answer.emit(answers.key), answer.len());
        self.outputs.push_back(Output::Send { socket, to, head, length });
    }

    fn handle_answer(&mut self, packet: &Packet) {
        let nonce = packet.message.nonce;
        let Some(errand) = self.errands.get_mut(&nonce) else {
            self.counts.stray += 1;
            return;
        };
        if !packet.is_genuine(&errand.key) {
            self.counts.forged += 1;
            return;
        }
        let over = match (packet.message.body, errand.aim.2) {
            (Body::Pong { length: got }, Subject::Way { length }) => {
                errand.short |= got == probe::LEN as u32;
                errand.long |= got == length;
                errand.short && errand.long
            }
            (Body::Alive(about) | Body::Gone(about), Subject::Life(process)) => about == process,
            _ => false,
        };
        if errand.left == 0 && errand.waits {
            // The other one has not had its chance yet.
            errand.left = AFTER_CALL;
        }
        self.counts.answers += 1;
        if over {
            self.finish(nonce, Some(matches!(packet.message.body, Body::Alive(_))));
        }
    }

    /// An errand is over: all who asked are told. About a life without an answer there is nothing to
    /// tell.
    fn finish(&mut self, nonce: u64, alive: Option<bool>) {
        let Some(errand) = self.end(nonce) else { return };
        // Where an agent has ended, nothing is known of the way, and nothing is wrong with it.
        let excused = errand.refused && !errand.short && !errand.long;
        let (short, long) = (errand.short || excused, errand.long || excused);
        if errand.short && errand.long {
            if self.known.len() >= KNOWN {
                self.known.clear();
            }
            self.known.insert(errand.aim);
        }
        for (client, id) in errand.askers {
            let reply = match (errand.aim.2, alive) {
                (Subject::Way { .. }, _) => Reply::Checked { id, short, long },
                (Subject::Life(_), Some(alive)) => Reply::Answered { id, alive },
                (Subject::Life(_), None) => continue,
            };
            self.outputs.push_back(Output::Reply { client, reply });
        }
    }

    /// The network says that nobody listens there: the agent has ended, or a packet filter says so for a
    /// while. It is asked again all the same.
    pub(super) fn handle_refused(&mut self, socket: SocketId, at: SocketAddr) {
        let there = |errand: &&mut Errand| errand.aim.0 == socket && errand.aim.1 == at;
        self.errands.values_mut().filter(there).for_each(|errand| errand.refused = true);
    }

    /// Asks again, or gives up, what has been waited for long enough.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, nonce)) = self.due.first() {
            if at > now {
                break;
            }
            self.due.remove(&(at, nonce));
            let Some(mut errand) = self.errands.remove(&nonce) else { continue };
            let is_unheard = matches!(errand.aim.2, Subject::Way { .. }) && !errand.short && !errand.long;
            // Who has this port of UDP has that of TCP: where nobody has the one, a stranger may have the other.
            let waits = is_unheard && !errand.refused && errand.line == Some(Line::Taken);
            let is_over = errand.left == 0 && !waits;
            if errand.left == 0 && waits && !std::mem::replace(&mut errand.waits, true) {
                let waiting = errand.askers.iter().map(|&(client, id)| (client, Reply::Waiting { id }));
                self.outputs.extend(waiting.map(|(client, reply)| Output::Reply { client, reply }));
            }
            errand.waits &= waits;
            if is_unheard && errand.line.is_none() && (1..=CALLED).contains(&errand.left) {
                errand.line = Some(Line::Calling);
                let (socket, to, _) = errand.aim;
                let head = Message { nonce, body: Body::Call }.emit(&errand.key);
                self.outputs.push_back(Output::Call { nonce, socket, to, head });
            }
            errand.left = errand.left.saturating_sub(1);
            if !is_over {
                self.ask(nonce, &errand);
            }
            self.errands.insert(nonce, errand);
            if is_over {
                self.finish(nonce, None);
            } else {
                self.schedule(nonce, now);
            }
        }
    }

    /// When something has to be done though nothing has come.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.due.first().map(|&(at, _)| at)
    }

    /// Takes what is to be done, one at a time.
    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

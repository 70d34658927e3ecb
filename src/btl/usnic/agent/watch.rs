//! [`Watch`]: a module's end of the connection to the agent's thread in its process.
//!
//! It keeps who can be asked about each peer, has the way to a peer checked once the peer is used,
//! and passes on what the agent says. It is looked at when its time comes, seldom, and never waits
//! but when it is made.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::mail::{REPLY, Reply, Request};
use super::service::Order;
use super::{Agent, Node};
use crate::config;
use crate::engine::{EndpointId, Engine, Instant, Memory, PeerFacts};
use crate::link::{Held, Local};
use crate::wire::modex::AgentAddress;
use crate::wire::probe::{Key, Process};

/// How long a module waits for the thread when it is made; later never.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the agent's mail is looked for while some is expected.
const LOOK: Duration = Duration::from_millis(10);
/// For how long an answer about a life is expected.
const ANSWERS: Duration = Duration::from_secs(1);
/// Checks that are under way at a time, so that no agent is flooded and no answer finds no room.
const CHECKS: usize = 64;
/// Those that wait for who is stopped: each answer needs room, and each other agent a connection.
const WAITING: usize = 256;
/// Peers looked at in one turn.
const PEERS: usize = 64;

/// A peer, as far as its agent is concerned.
struct Contact {
    agent: AgentAddress,
    process: Process,
    /// Longest datagram that goes there.
    length: u32,
}

/// Checks under way with the agent's help.
#[derive(Default)]
struct Checks {
    /// Peers that have not been used yet, so that the way there has not been tried.
    untried: VecDeque<EndpointId>,
    under_way: usize,
    /// Those that wait for who is stopped, perhaps for ever: they keep nobody else waiting.
    waiting: HashSet<u64>,
}

impl Checks {
    fn are_awaited(&self) -> bool {
        self.under_way > 0 || !self.waiting.is_empty()
    }
}

/// A module's end of the connection.
pub struct Watch {
    local: Option<Local>,
    /// The module's own address in its modex record.
    own: Option<AgentAddress>,
    check: Option<config::Check>,
    contacts: HashMap<EndpointId, Contact>,
    checks: Checks,
    /// Somebody has been asked about a life since the mail was last looked at, or answers may still come.
    awaits: bool,
    /// Answers about lives may come until then.
    listens_until: Instant,
    /// When there is something to look at.
    due: Instant,
    /// By it the other processes of the node see that the module lives.
    held: Option<Held>,
    /// Kept alive for as long as modules of this process need it.
    agent: Option<Arc<Agent>>,
}

/// One end of a way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Name of the host.
    pub host: String,
    /// Name of the interface.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
}

/// A way that some datagrams do not go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The peer behind it.
    pub endpoint: EndpointId,
    /// Whether short and long datagrams, of these lengths, have come back.
    pub short: (bool, usize),
    /// The same for long ones.
    pub long: (bool, usize),
    /// How often each was tried, and over how long.
    pub tries: u32,
    /// From the first try to the verdict.
    pub within: Duration,
    /// Here.
    pub from: Site,
    /// There.
    pub to: Site,
    /// Whether the peer cannot be reached. If not, datagrams of it have been heard, or long ones have
    /// been acknowledged by it, since.
    pub is_fatal: bool,
}

const NEVER: Instant = Instant::from_nanos(u64::MAX);

impl Watch {
    /// Watches nothing.
    pub fn blind() -> Self {
        Self {
            local: None,
            own: None,
            check: None,
            contacts: HashMap::new(),
            checks: Checks::default(),
            awaits: false,
            listens_until: Instant::ORIGIN,
            due: NEVER,
            held: None,
            agent: None,
        }
    }

    /// Makes a module known to the agent of its node: who it is, and on which interface.
    pub fn open(
        node: &Node,
        process: Process,
        interface: (&str, IpAddr),
        base_port: u16,
        check: Option<config::Check>,
    ) -> Self {
        let at = SocketAddr::new(interface.1, base_port);
        let (local, port, key) = match join(node, process, at) {
            Ok(joined) => joined,
            Err(why) => {
                node.note(&format!("a module on {} has not joined it", interface.1), &why);
                return Self::blind();
            }
        };
        let own = AgentAddress {
            at: SocketAddr::new(interface.1, port),
            key,
            host: host_name(),
            interface: interface.0.to_owned(),
        };
        let mut watch = Self::blind();
        (watch.local, watch.own, watch.check) = (Some(local), Some(own), check);
        (watch.held, watch.agent) = (node.hold(process), node.agent().cloned());
        watch
    }

    /// A duplicate of the module's end, as a forked child holds one.
    #[cfg(test)]
    pub(super) fn duplicate(&self) -> std::os::fd::OwnedFd {
        use std::os::fd::AsFd;
        self.local.as_ref().expect("open").as_fd().try_clone_to_owned().expect("a duplicate")
    }

    /// What is published of the agent.
    pub fn own(&self) -> Option<&AgentAddress> {
        self.own.as_ref()
    }

    /// What there is to say about the agent, if it is a thread of this process.
    pub fn describe(&self) -> Option<String> {
        self.agent.as_ref().map(|agent| format!("{:?}", agent.counters))
    }

    /// A peer is connected. `is_near`: it is on this node, so that there is no way to be checked.
    pub fn meet(
        &mut self,
        endpoint: EndpointId,
        agent: Option<&AgentAddress>,
        process: Process,
        length: usize,
        is_near: bool,
    ) {
        let (Some(agent), Some(_)) = (agent, &self.local) else { return };
        let contact = Contact { agent: agent.clone(), process, length: length as u32 };
        if self.contacts.insert(endpoint, contact).is_none() && self.check.is_some() && !is_near {
            self.checks.untried.push_back(endpoint);
            self.due = Instant::ORIGIN;
        }
    }

    /// A peer is not connected any more.
    pub fn forget(&mut self, endpoint: EndpointId) {
        self.contacts.remove(&endpoint);
    }

    /// Asks whether the process of a silent peer lives.
    #[cold]
    pub fn ask(&mut self, endpoint: EndpointId, now: Instant) {
        let Some(Contact { agent, process, .. }) = self.contacts.get(&endpoint) else { return };
        let request = Request::Ask { id: endpoint.raw(), to: agent.at, key: agent.key, process: *process };
        if self.send(&request) {
            (self.awaits, self.listens_until) = (true, now + ANSWERS);
            self.due = self.due.min(now + LOOK);
        }
    }

    /// Whether it is time for a [`turn`](Self::turn).
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.due <= now
    }

    /// Has peers checked that are used now, and hears what the agent says. Returns what is wrong.
    #[cold]
    pub fn turn<M: Memory>(&mut self, engine: &mut Engine<M>, now: Instant) -> Vec<Finding> {
        self.try_used(engine);
        let expects = self.checks.are_awaited() || self.awaits;
        let found = if expects { self.listen(engine, now) } else { Vec::new() };
        // What has come has been heard, however late we were called: a process that lives is not called ended
        // because we had no time to be told.
        self.awaits &= now < self.listens_until;
        let expects = self.checks.are_awaited() || self.awaits;
        let is_idle = self.checks.untried.is_empty() && !expects;
        self.due = if self.local.is_none() || is_idle { NEVER } else { now + LOOK };
        found
    }

    fn try_used<M: Memory>(&mut self, engine: &Engine<M>) {
        let Some(check) = self.check.clone() else { return };
        for _ in 0..self.checks.untried.len().min(PEERS) {
            let Some(endpoint) = self.checks.untried.pop_front() else { return };
            // Whoever is forgotten, closed or lost is checked no more.
            let facts = engine.peer(endpoint).filter(|facts| facts.alive);
            let (Some(facts), Some(contact)) = (facts, self.contacts.get(&endpoint)) else { continue };
            let is_full = self.checks.under_way >= CHECKS || self.checks.waiting.len() >= WAITING;
            if !facts.used || is_full {
                self.checks.untried.push_back(endpoint);
                continue;
            }
            let request = Request::Check {
                id: endpoint.raw(),
                to: contact.agent.at,
                key: contact.agent.key,
                length: contact.length,
                interval_ms: u32::try_from(check.interval.as_millis()).unwrap_or(u32::MAX),
                tries: check.tries,
            };
            if self.send(&request) {
                self.checks.under_way += 1;
            }
        }
    }

    /// Sends to the agent; whether that has worked. If the agent is gone, so are all our questions.
    fn send(&mut self, request: &Request) -> bool {
        let Some(local) = &self.local else { return false };
        match local.send(&request.emit(), None) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(_) => {
                self.close();
                false
            }
        }
    }

    fn close(&mut self) {
        (self.local, self.due) = (None, NEVER);
        self.checks = Checks::default();
    }

    fn listen<M: Memory>(&mut self, engine: &mut Engine<M>, now: Instant) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut record = [0; REPLY];
        while let Some(local) = &self.local {
            let reply = match local.receive(&mut record) {
                Ok(Some((len, _))) => record.get(..len).and_then(Reply::parse),
                Ok(None) => break,
                Err(_) => {
                    self.close();
                    break;
                }
            };
            match reply {
                Some(Reply::Answered { id, alive: true }) => {
                    engine.handle_alive(EndpointId::from_raw(id), now)
                }
                Some(Reply::Answered { id, alive: false }) => {
                    engine.handle_ended(EndpointId::from_raw(id), now)
                }
                Some(Reply::Checked { id, short, long }) => {
                    if !self.checks.waiting.remove(&id) {
                        self.checks.under_way = self.checks.under_way.saturating_sub(1);
                    }
                    let endpoint = EndpointId::from_raw(id);
                    let facts = engine.peer(endpoint).filter(|facts| facts.alive);
                    found.extend(facts.and_then(|facts| self.judge(endpoint, &facts, short, long)));
                }
                Some(Reply::Waiting { id }) => {
                    if self.checks.waiting.insert(id) {
                        self.checks.under_way = self.checks.under_way.saturating_sub(1);
                    }
                }
                Some(Reply::Joined { .. }) | None => {}
            }
        }
        found
    }

    /// What a verdict means. The engine knows better where it has heard of the peer itself: then the
    /// agent there is out of order, and not the way.
    fn judge(&self, endpoint: EndpointId, facts: &PeerFacts, short: bool, long: bool) -> Option<Finding> {
        let (contact, check) = (self.contacts.get(&endpoint)?, self.check.as_ref()?);
        if short && long {
            return None;
        }
        let own = self.own.as_ref()?;
        let site = |agent: &AgentAddress| Site {
            host: agent.host.clone(),
            interface: agent.interface.clone(),
            address: agent.at.ip(),
        };
        Some(Finding {
            endpoint,
            short: (short, crate::wire::probe::LEN),
            long: (long, contact.length as usize),
            tries: check.tries + 1,
            within: check.interval * (check.tries + 1),
            from: site(own),
            to: site(&contact.agent),
            is_fatal: if short { !facts.took_longest } else { !facts.heard },
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Children that the program has forked hold the connection open, and may not end it.
        if let (Some(local), Some(agent)) = (&self.local, &self.agent)
            && agent.is_own()
        {
            let _ = local.send(&Request::Leave.emit(), None);
            local.shut_down();
        }
    }
}

/// Tells the agent's thread that a module is there: the connection, and port and key under which the
/// agent is asked about it.
///
/// # Errors
/// Why there is no agent for it.
fn join(node: &Node, process: Process, at: SocketAddr) -> Result<(Local, u16, Key), String> {
    let (port, key) = node.share(at)?;
    let agent = node.agent().ok_or("its thread is not there")?;
    let mut record = [0; REPLY];
    let joined = Local::pair().and_then(|(local, end)| {
        agent.order(Order::Hear(end));
        local.send(&Request::Join { process, at }.emit(), None)?;
        let (len, _) = local.receive_within(&mut record, PATIENCE)?;
        Ok((local, len))
    });
    let (local, len) = joined.map_err(|why| format!("its thread does not answer: {why}"))?;
    match record.get(..len).and_then(Reply::parse) {
        Some(Reply::Joined { port: own, .. }) if own != 0 => Ok((local, port, key)),
        _ => Err("its thread has no socket there".to_owned()),
    }
}

/// What this host calls itself.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

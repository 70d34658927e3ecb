//! [`Traffic`]: all that a domain has under way: its interface, its connections, and what its endpoints send and receive.
//!
//! * `buffer`: the memory of a message. `context`: an endpoint, its operations and peers; `ending`: how those end.
//! * `send`, `receive`, `arrive`: messages on their way out, receives, and what comes; `shared`: receives of several endpoints.
//! * `rma`: what is done to the memory of peers; `target`, `atomic`: what they do here; `fence`: what waits for all before.
//! * `short`: the short way of messages that are taken as they come.
//! * `triggered`: what begins when a counter has come so far, and the work that a domain queues.
//! * `connect`: connections; `forget`: peers that are none any more; `closing`: endpoints that are closed. `rest`: what is slept on.
//! * `far`: the streams of peers on other nodes; `landing`: long messages that come by them. `vain`: who looks for nothing.
//!
//! A short message goes through the mailbox of its connection; a longer one is told of there and read by its receiver
//! where it lies, or comes in pieces through the mailbox where that is forbidden, or the peer is on another node. One thread at a time is in here: the
//! domain lends it. What moves, moves in calls of the program (`FI_PROGRESS_MANUAL`), or of its helper.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::errno::{Errno, Outcome};
use crate::engine::connect::{EndpointId, Engine, Settings, Vc};
use crate::gni::{Nic, Place, Service};
use crate::link::Clock;
use crate::wire::gni::datagram::{Credentials, NameId};

mod arrive;
mod atomic;
pub mod buffer;
mod closing;
mod connect;
mod context;
#[cfg(test)]
mod end_tests;
mod ending;
mod far;
#[cfg(test)]
mod far_tests;
mod fence;
mod forget;
#[cfg(test)]
mod kept_tests;
mod landing;
#[cfg(test)]
mod leaving_tests;
mod receive;
mod rest;
mod rma;
#[cfg(test)]
mod rma_tests;
mod send;
mod shared;
mod short;
#[cfg(test)]
mod sleep_tests;
mod target;
#[cfg(test)]
mod tests;
mod triggered;
mod vain;

use arrive::TURN;
use context::Context;
pub use context::Ends;
pub use ending::Instead;
pub use receive::{Look, Want};
pub use rest::Rests;
pub use rma::{Act, Reach};
pub use send::Order;
pub use shared::{Queue, SharedWant};
pub use short::{Plain, Short, ShortWant};
pub use triggered::{Trigger, Work};
pub use vain::Found;

/// Longest answer that goes through a mailbox at once, bytes.
const EAGER: usize = 4096;
/// Bytes of values of one atomic operation, at most.
pub const MOST_VALUES: usize = EAGER;
/// Calls without anything new between looks for datagrams; while a connection is being made; and calls with something.
const IDLE: u32 = 64 * OFTEN;
const HASTE: u32 = OFTEN;
/// Calls between looks at the clock of a program that calls often, and at what is seldom anything.
const OFTEN: u32 = 16;
/// Nanoseconds between looks for datagrams, however few calls there are; and where there is always something else.
const LATE: u64 = 50_000;
const BUSY: u64 = 1_000_000;

/// Guards datagrams against what is none. That they are of this user's processes the kernel sees to.
const KEY: [u8; 16] = *b"hawser gni nodes";

/// A peer breaks the rules of its ring, or says what may not be said.
#[derive(Clone, Copy, Debug)]
struct Lost;

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    malformed: u64,
}

/// What a domain has under way.
pub struct Traffic {
    nic: Option<Nic>,
    service: Option<Service>,
    engine: Engine,
    clock: Clock,
    contexts: Vec<Option<Box<Context>>>,
    /// Connections, and the peers with which they are.
    vcs: HashMap<Vc, (u32, u32)>,
    /// Peers by the rings by which they write.
    bells: HashMap<([u8; 16], u32), (u32, u32)>,
    /// The same of other nodes, by the numbers of their mailboxes here.
    streams: HashMap<u32, (u32, u32)>,
    /// Those of them whose endpoint is being closed.
    parting: HashMap<u32, (u32, u32)>,
    /// For how long endpoints that were closed have tried to answer in vain, nanoseconds, since one had not.
    answering: u64,
    /// Those of them that are looked at each time.
    hot: Vec<far::Hot>,
    /// What has happened to streams.
    happened: Vec<u32>,
    /// Peers to whom there was no way when they were called, and since when.
    unreached: HashMap<(u32, u32), u64>,
    /// Peers that are looked at each time.
    polled: Vec<(u32, u32)>,
    /// Peers that are to be looked at, or written to, next time.
    again: Vec<(u32, u32)>,
    /// The one of those that is looked at now: whoever sleeps knows of it.
    visited: Option<(u32, u32)>,
    /// Connections that are ended by the peer.
    closing: Vec<Vc>,
    /// Connections for which there is no ring, and since when.
    lacking: HashMap<Vc, u64>,
    /// Endpoints that are closed, and whose connections are not.
    leaving: Vec<(EndpointId, NameId)>,
    /// What begins later.
    deferred: Vec<triggered::Deferred>,
    /// Calls, which others may look at.
    passes: Arc<AtomicU32>,
    /// Calls are rare, so that the clock is looked at in each; when it was; when connections were last seen to.
    is_rare: bool,
    clock_at: u64,
    control_at: u64,
    watch_at: u64,
    /// When streams are looked at whose peers may be silent, and whether there are any.
    silence_at: u64,
    is_waiting: bool,
    /// Since when messages are left where they are, because so many are kept that nobody has asked for, and none of these has been
    /// received; and whether one was looked for since.
    full_since: Option<u64>,
    is_sought: bool,
    vain: vain::Vain,
    /// The last look has found nothing.
    is_vain: bool,
    /// The engine has something to say.
    is_stirred: bool,
    /// What was read, written or said, in number: whether there was anything.
    moved: u64,
    /// Somebody sleeps who is to be roused.
    is_armed: bool,
    rest: Option<rest::Rest>,
    counters: Counters,
}

impl Traffic {
    /// None yet.
    pub fn new() -> Self {
        Self {
            nic: None,
            service: None,
            engine: Engine::new(Settings::new(KEY, Credentials::default())),
            clock: Clock::new(),
            contexts: Vec::new(),
            vcs: HashMap::new(),
            bells: HashMap::new(),
            streams: HashMap::new(),
            parting: HashMap::new(),
            answering: 0,
            hot: Vec::new(),
            happened: Vec::new(),
            unreached: HashMap::new(),
            polled: Vec::new(),
            again: Vec::new(),
            visited: None,
            closing: Vec::new(),
            lacking: HashMap::new(),
            leaving: Vec::new(),
            deferred: Vec::new(),
            passes: Arc::new(AtomicU32::new(0)),
            is_rare: true,
            clock_at: 0,
            control_at: 0,
            watch_at: 0,
            silence_at: 0,
            is_waiting: false,
            full_since: None,
            is_sought: false,
            vain: vain::Vain::default(),
            is_vain: false,
            is_stirred: false,
            moved: 0,
            is_armed: false,
            rest: None,
            counters: Counters::default(),
        }
    }

    /// Where other nodes reach an endpoint, if they do.
    pub fn place(&self, slot: u32) -> Option<Place> {
        self.contexts.get(slot as usize)?.as_ref()?.far
    }

    #[inline(always)]
    fn context(&mut self, slot: u32) -> Outcome<&mut Context> {
        self.contexts.get_mut(slot as usize).and_then(Option::as_deref_mut).ok_or(Errno::OPBADSTATE)
    }

    /// A peer is to be looked at next time.
    fn look_again(&mut self, slot: u32, peer: u32) {
        let Ok(context) = self.context(slot) else { return };
        let Some(there) = context.peers.get_mut(peer as usize) else { return };
        if !std::mem::replace(&mut there.is_ready, true) {
            self.again.push((slot, peer));
            if self.visited != Some((slot, peer)) {
                self.rouse();
            }
        }
    }

    /// Puts entries that are owed into places that have become free; it is tried again where there is none.
    fn settle(&mut self, slot: u32, peer: u32) {
        let Ok(context) = self.context(slot) else { return };
        if context.owes() {
            context.settle();
            if context.owes() {
                self.look_again(slot, peer);
            }
        }
    }

    /// Does what there is to be done.
    #[inline]
    pub fn progress(&mut self) -> Found {
        let Some(nic) = &self.nic else { return self.progress_alone() };
        let is_rung = nic.is_rung();
        let passes = self.count_pass();
        // Who was waiting is told of the first entry at once: to look whether there is another may be to fetch one more line from
        // the peer's processor, and what it does then would wait for that. The next look finds it, and all that follow.
        // Who looks seldom does something else between looks, and does not wait.
        let is_waiting = self.is_vain & !self.is_rare;
        let count = self.read_polled(if is_waiting { 1 } else { TURN });
        let others = self.streams.len() | self.again.len() | self.deferred.len();
        if others != 0 || is_rung | self.is_stirred | self.is_rare || passes.is_multiple_of(OFTEN) {
            return self.progress_besides(passes, count, is_rung);
        }
        let is_vain = count == 0;
        match (std::mem::replace(&mut self.is_vain, is_vain), is_vain) {
            (true, true) => Found::Nothing,
            (false, true) => Found::NothingYet,
            (_, false) => Found::Something,
        }
    }

    /// The same where nothing has been opened that data goes through: counters there may be.
    #[cold]
    #[inline(never)]
    fn progress_alone(&mut self) -> Found {
        self.fire();
        Found::Something
    }

    /// [Progress](Self::progress), of all that has come, also for who was waiting.
    fn progress_through(&mut self) {
        self.is_vain = false;
        self.progress();
    }

    /// Looks once more, no further than at peers that are looked at each time, after a breath that was drawn in vain; whether
    /// something has come meanwhile.
    #[inline]
    pub fn glance(&mut self) -> bool {
        let before = self.moved;
        self.read_polled(1);
        // What has been lost has come to something, too.
        let has_come = self.moved != before;
        self.is_vain &= !has_come;
        has_come
    }

    /// Reads what has come of peers that are looked at each time, so many entries of each at most.
    #[inline(always)]
    fn read_polled(&mut self, most: usize) -> usize {
        let mut count = 0;
        for index in 0..self.polled.len() {
            // Reading may end a connection.
            let Some((slot, peer)) = self.polled.get(index).copied() else { break };
            if self.has_come(slot, peer) {
                count += self.read(slot, peer, most);
            }
        }
        count
    }

    /// Does what there is to be done now and then, and seldom, after so much has been read.
    #[cold]
    #[inline(never)]
    fn progress_besides(&mut self, passes: u32, mut count: usize, is_rung: bool) -> Found {
        if !self.streams.is_empty() {
            count += self.look_far(count != 0);
        }
        let is_called = is_rung || !self.again.is_empty();
        if is_called {
            self.visit();
        }
        if !self.deferred.is_empty() {
            self.fire();
        }
        let is_long = self.is_clock_due() && self.look_at_clock(count != 0);
        let often = if self.engine.poll_timeout().is_some() { HASTE } else { IDLE };
        if passes.is_multiple_of(often) && count == 0 || self.is_stirred || passes.is_multiple_of(16 * IDLE) {
            self.is_stirred = false;
            self.control();
        }
        let is_vain = count == 0 && !is_called;
        match std::mem::replace(&mut self.is_vain, is_vain) && is_vain {
            _ if is_long => Found::NothingForLong,
            true => Found::NothingElse,
            false => Found::Something,
        }
    }

    /// Counts a call. Only who has the domain does.
    #[inline(always)]
    fn count_pass(&self) -> u32 {
        let passes = self.passes.load(Ordering::Relaxed).wrapping_add(1);
        self.passes.store(passes, Ordering::Relaxed);
        passes
    }

    /// Whether the clock is looked at in this call.
    fn is_clock_due(&self) -> bool {
        self.is_rare || self.passes.load(Ordering::Relaxed).is_multiple_of(OFTEN)
    }

    /// Sees to connections when nobody has for long. A program that calls seldom has the clock looked at in each call.
    #[cold]
    #[inline(never)]
    fn look_at_clock(&mut self, is_busy: bool) -> bool {
        let now = self.clock.nanos();
        let is_rare = now - std::mem::replace(&mut self.clock_at, now) >= LATE;
        self.is_rare = is_rare;
        if now - self.control_at >= if is_busy { BUSY } else { LATE } {
            self.control();
        }
        self.vain.is_long(self.moved, now, is_rare)
    }

    /// The same when nobody has called for a while, or is going to sleep.
    pub fn progress_all(&mut self) {
        self.progress_through();
        if self.nic.is_some() {
            self.look_last();
        }
    }

    /// The rest of that. Whoever looks may not look again: what can begin by what has come begins, and who sleeps hears of what
    /// is left of peers that were left before.
    fn look_last(&mut self) {
        self.control();
        let before = self.moved;
        self.hear_far();
        for slot in 0..self.contexts.len() as u32 {
            if let Ok(context) = self.context(slot)
                && context.owes()
            {
                context.settle();
            }
        }
        if std::mem::take(&mut self.is_stirred) {
            self.control();
        }
        if !self.deferred.is_empty() {
            self.fire();
        }
        if self.moved != before && !self.again.is_empty() {
            self.rouse();
        }
    }

    /// Looks at peers that have rung, or with which something is left to be done.
    #[cold]
    #[inline(never)]
    fn visit(&mut self) {
        let mut found = std::mem::take(&mut self.again);
        for (slot, peer) in &found {
            if let Ok(context) = self.context(*slot)
                && let Some(there) = context.peers.get_mut(*peer as usize)
            {
                there.is_ready = false;
            }
        }
        let known = found.len();
        if let Some(nic) = &self.nic {
            let bells = &self.bells;
            nic.rung(|life, ring| found.extend(bells.get(&(*life, ring as u32))));
        }
        for (index, (slot, peer)) in found.into_iter().enumerate() {
            // Whoever sleeps waits for a sign of a peer that was left before, and has none if nothing of it has changed.
            let before = self.moved;
            self.visited = Some((slot, peer)).filter(|_| index < known);
            self.read(slot, peer, TURN);
            self.pump(slot, peer);
            self.settle(slot, peer);
            self.visited = None;
            if self.moved != before && !self.again.is_empty() {
                self.rouse();
            }
        }
    }
}

impl Default for Traffic {
    fn default() -> Self {
        Self::new()
    }
}

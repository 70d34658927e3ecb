//! Connections: what their engine wants done, and what becomes of messages when they are over.

use super::super::errno::{Errno, Outcome};
use super::Traffic;
use super::context::{Context, Item, Note};
use super::ending::Received;
use super::rma::{Step, Waiting};
use super::target::Target;
use crate::engine::connect::{End, Event, Reason, Route, Vc};
use crate::engine::matching::Leftover;
use crate::engine::time::Instant;
use crate::error::Error;
use crate::gni::datagram::Heard;
use crate::gni::{Mailbox, Place, Sent};
use crate::wire::gni::context::is_scalable;
use crate::wire::gni::datagram::NameId;
use crate::wire::gni::mailbox;

/// Datagrams of an endpoint that are read at a time.
const TURN: usize = 64;
/// Between looks for processes that have ended, nanoseconds.
const WATCH: u64 = 10_000_000;
/// How long a connection waits for a ring, nanoseconds.
const PATIENCE: u64 = 1_000_000_000;
/// Connections that are looked at without their bell.
const POLLED: usize = 16;

impl Traffic {
    /// The time.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.nanos())
    }

    /// Wants a connection to a peer.
    pub(super) fn connect(&mut self, slot: u32, peer: u32) {
        let now = self.now();
        let Ok(context) = self.context(slot) else { return };
        let there = &context.peers[peer as usize];
        let (endpoint, name, far) = (context.endpoint, there.name, there.far);
        if let (Some((at, key)), Some(service)) = (far, &mut self.service) {
            service.introduce(name, at, key);
        }
        if self.engine.insert(endpoint, name).is_err() || self.engine.connect(endpoint, name, now).is_err() {
            return self.fail(slot, peer, libc::ECONNRESET, Gone::It);
        }
        self.control();
    }

    /// Does what connections need: datagrams, timers, the deaths of peers.
    #[cold]
    #[inline(never)]
    pub(super) fn control(&mut self) {
        let now = self.now();
        self.control_at = now.nanos();
        let Self { service, engine, moved, .. } = self;
        let mut nobody = Vec::new();
        if let Some(service) = service {
            service.receive(TURN, |heard| match heard {
                Heard::Datagram(bytes, process) => {
                    *moved += 1;
                    engine.handle_datagram_of(process, bytes, Route(0), now);
                }
                Heard::Nobody(names) => nobody.extend_from_slice(names),
            });
        }
        for (device, cdm_id) in nobody {
            self.refused(device, cdm_id, now);
        }
        self.take_streams();
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        if now.nanos() >= self.watch_at {
            self.watch_at = now.nanos() + WATCH;
            self.bury(now);
            self.forget_peers();
            self.give_up_streams(now);
            self.lose_silent(now);
            self.call_again(now);
        }
        loop {
            let mut is_over = true;
            while let Some(event) = self.engine.poll_event() {
                is_over = false;
                self.moved += 1;
                self.handle(event, now);
            }
            while let Some(transmit) = self.engine.poll_transmit(now) {
                is_over = false;
                self.moved += 1;
                let NameId { device, cdm_id, incarnation } = transmit.target;
                let bytes = &transmit.bytes[..transmit.length];
                let sent =
                    self.service.as_ref().map_or(Sent::Lost, |service| service.send(device, cdm_id, bytes));
                if sent == Sent::Nobody && incarnation != 0 {
                    // A name is taken before anybody can know of its incarnation.
                    self.engine.peer_died(transmit.target, now);
                }
            }
            if is_over {
                break;
            }
        }
        for context in self.contexts.iter_mut().flatten().filter(|context| context.owes()) {
            context.settle();
        }
        let engine = &mut self.engine;
        self.leaving.retain(|(endpoint, _)| engine.remove(*endpoint).is_err());
        self.set_timer();
    }

    /// Programs that have ended take their endpoints with them.
    fn bury(&mut self, now: Instant) {
        let Some(nic) = &mut self.nic else { return };
        let ended = nic.ended();
        if ended.is_empty() {
            return;
        }
        for context in self.contexts.iter().flatten() {
            for peer in &context.peers {
                let is_of = |mailbox: &Mailbox| ended.iter().any(|life| mailbox.is_of_life(life));
                if peer.mailbox.as_ref().is_some_and(is_of) {
                    self.engine.peer_died(peer.name, now);
                }
            }
        }
    }

    fn slot_of(&self, of: crate::engine::connect::EndpointId) -> Option<u32> {
        let is_it =
            |context: &Option<Box<Context>>| context.as_ref().is_some_and(|context| context.endpoint == of);
        self.contexts.iter().position(is_it).map(|slot| slot as u32)
    }

    fn handle(&mut self, event: Event, now: Instant) {
        match event {
            Event::MailboxWanted { vc, endpoint, peer } => {
                if let Some(slot) = self.slot_of(endpoint) {
                    self.make_mailbox(slot, vc, peer, now);
                }
            }
            Event::Connected { vc, peer, attributes, .. } => {
                let Some((slot, index)) = self.vcs.get(&vc).copied() else { return };
                let Self { nic: Some(nic), contexts, .. } = self else { return };
                let Some(context) = contexts.get_mut(slot as usize).and_then(Option::as_mut) else { return };
                let there = &mut context.peers[index as usize];
                there.name = peer;
                let Some(mailbox) = &mut there.mailbox else { return };
                let is_far = mailbox.number().is_some();
                let attached = if is_far {
                    nic.attach_far(mailbox, (&attributes, peer.device), now.nanos())
                } else {
                    nic.attach(mailbox, &attributes)
                };
                if let Err(error) = attached {
                    let gone = if error == Error::NotFound { Gone::Whole } else { Gone::It };
                    return self.lose_with(slot, index, unattached(error), gone);
                }
                let is_unreached = mailbox.is_unreached();
                // Another node cannot look there.
                let (address, shown) = if is_far { (0, [0; 16]) } else { nic.probe() };
                there.is_connected = true;
                (there.failed, there.over) = (None, None);
                let whole = there.whole;
                there.queue.push_front(Item::Note(Note::new(&mailbox::Entry::Hello { address, shown })));
                if !is_far {
                    self.bells.insert((attributes.segment.nonce, attributes.ring), (slot, index));
                }
                if !is_far && self.polled.len() < POLLED {
                    mailbox.poll_from_now_on();
                    there.is_polled = true;
                    self.polled.push((slot, index));
                }
                if is_unreached {
                    self.is_unreached(slot, index);
                }
                if let Ok(context) = self.context(slot) {
                    context.peers[whole as usize].over = None;
                }
                self.pump(slot, index);
                self.look_again(slot, index);
            }
            Event::Mapped { .. } => {}
            Event::Closing { vc, sent } => {
                let Some((slot, index)) = self.vcs.get(&vc).copied() else {
                    let _ = self.engine.drained(vc, now);
                    return;
                };
                let Ok(context) = self.context(slot) else { return };
                let there = &mut context.peers[index as usize];
                there.closing = Some(sent);
                // It may have its memory back by now.
                there.memory = None;
                self.closing.push(vc);
                self.drain(slot, index);
            }
            Event::Ended { vc, end, .. } => self.end(vc, end),
        }
    }

    fn make_mailbox(&mut self, slot: u32, vc: Vc, peer: NameId, now: Instant) {
        let Self { nic: Some(nic), contexts, service, .. } = self else { return };
        let is_far = service.as_ref().is_some_and(|service| service.is_far(peer));
        let place = contexts.get(slot as usize).and_then(Option::as_ref).and_then(|context| context.far);
        let made = match place.filter(|_| is_far) {
            Some(place) => nic.far_mailbox(place.address),
            None => nic.mailbox(),
        };
        let Some(mailbox) = made else { return self.lack_mailbox(slot, vc, peer, now) };
        self.lacking.remove(&vc);
        let number = mailbox.number();
        let Some(context) = contexts.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        let index = context.peer_named(peer);
        let attributes = nic.attributes(&mailbox);
        let there = &mut context.peers[index as usize];
        if let Some(before) = there.mailbox.replace(mailbox) {
            nic.release(before, false);
        }
        there.vc = Some(vc);
        self.vcs.insert(vc, (slot, index));
        self.streams.extend(number.map(|number| (number, (slot, index))));
        let _ = self.engine.mailbox_ready(vc, attributes, now);
    }

    /// There is no ring for a connection: none may be given back within [`PATIENCE`], and then the connection fails.
    fn lack_mailbox(&mut self, slot: u32, vc: Vc, peer: NameId, now: Instant) {
        let since = *self.lacking.entry(vc).or_insert(now.nanos());
        let Ok(context) = self.context(slot) else { return };
        if now.nanos() - since < PATIENCE {
            let _ = self.engine.mailbox_lacking(vc, now);
            return;
        }
        let index = context.peer_named(peer);
        let there = &mut context.peers[index as usize];
        if there.vc.is_none() {
            there.vc = Some(vc);
            self.vcs.insert(vc, (slot, index));
        }
        let _ = self.engine.mailbox_denied(vc, now);
    }

    /// The peer ends a connection: says so when all that it has sent is read.
    pub(super) fn drain(&mut self, slot: u32, peer: u32) {
        let now = self.now();
        let Ok(context) = self.context(slot) else { return };
        let there = &context.peers[peer as usize];
        let (Some(vc), Some(sent), Some(mailbox)) = (there.vc, there.closing, &there.mailbox) else { return };
        // Within a node entries are there before the word of their end is: of one that speaks of more there are none.
        let is_empty = mailbox.number().is_none() && !mailbox.has_come();
        if mailbox.received() >= sent || mailbox.is_over() || is_empty {
            self.closing.retain(|closing| *closing != vc);
            let _ = self.engine.drained(vc, now);
            self.stir();
        } else {
            self.look_again(slot, peer);
        }
    }

    /// The peer has put something into the mailbox.
    pub(super) fn hear(&mut self, slot: u32, peer: u32) {
        let now = self.now();
        let Ok(context) = self.context(slot) else { return };
        let there = &mut context.peers[peer as usize];
        there.is_heard = true;
        if let Some(vc) = there.vc {
            let _ = self.engine.heard(vc, now);
            self.stir();
        }
    }

    /// A peer breaks the rules, or cannot be reached as it has said.
    pub(super) fn lose(&mut self, slot: u32, peer: u32, code: i32) {
        self.lose_with(slot, peer, code, Gone::It);
    }

    /// The same, and who is gone by that at least.
    fn lose_with(&mut self, slot: u32, peer: u32, code: i32, gone: Gone) {
        let now = self.now();
        let Ok(context) = self.context(slot) else { return };
        let there = &context.peers[peer as usize];
        let sent = there.mailbox.as_ref().map_or(0, |mailbox| mailbox.sent());
        // Of a process of another node nothing but the end of its streams says that it has died.
        let is_far = there.mailbox.as_ref().is_some_and(|mailbox| mailbox.number().is_some());
        if let Some(vc) = there.vc {
            let _ = self.engine.close(vc, sent, now);
            self.disconnect(slot, peer, gone == Gone::Whole && !is_far);
        }
        self.moved += 1;
        self.fail(slot, peer, code, if is_far { Gone::Whole } else { gone });
        self.stir();
    }

    /// A connection is over.
    fn end(&mut self, vc: Vc, end: End) {
        self.lacking.remove(&vc);
        self.closing.retain(|closing| *closing != vc);
        let Some((slot, peer)) = self.vcs.get(&vc).copied() else { return };
        let code = match end {
            End::Closed => 0,
            End::Failed(Reason::Refused(_)) => libc::ECONNREFUSED,
            End::Failed(Reason::Silent) | End::Lost(Reason::Silent) => libc::ETIMEDOUT,
            End::Failed(Reason::NoResources) => libc::ENOMEM,
            End::Failed(_) | End::Lost(_) => libc::ECONNRESET,
        };
        let is_dead = matches!(end, End::Lost(_) | End::Failed(_));
        if is_dead {
            // A peer that has ended the connection has been read; what this side has ended is read no more.
            if let Ok(context) = self.context(slot) {
                context.peers[peer as usize].memory = None;
            }
            let _ = self.read_all(slot, peer);
        }
        // Of who has died before there was a connection, nothing is left that could read.
        self.disconnect(slot, peer, !is_dead || end == End::Failed(Reason::Died));
        let gone = match end {
            End::Closed => Gone::Nobody,
            End::Lost(Reason::Died | Reason::Silent | Reason::Renewed) | End::Failed(Reason::Died) => {
                Gone::Whole
            }
            End::Lost(_) | End::Failed(_) => Gone::It,
        };
        self.fail(slot, peer, if code == 0 { libc::ECONNRESET } else { code }, gone);
    }

    /// Gives back what a connection had.
    pub(super) fn disconnect(&mut self, slot: u32, peer: u32, is_read_no_more: bool) {
        let Self { nic: Some(nic), contexts, .. } = self else { return };
        let Some(context) = contexts.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        let there = &mut context.peers[peer as usize];
        if let Some(mailbox) = there.mailbox.take() {
            nic.release(mailbox, is_read_no_more);
        }
        there.is_connected = false;
        there.is_heard = false;
        there.is_polled = false;
        there.closing = None;
        there.memory = None;
        there.past = std::mem::replace(&mut there.name.incarnation, there.asked);
        context.departures += 1;
        there.gone_at = context.departures;
        if let Some(vc) = there.vc.take() {
            self.vcs.remove(&vc);
        }
        context.forget_addresses();
        self.polled.retain(|of| *of != (slot, peer));
        self.bells.retain(|_, of| *of != (slot, peer));
        self.streams.retain(|_, of| *of != (slot, peer));
        self.parting.retain(|_, of| *of != (slot, peer));
        self.hot.retain(|hot| hot.of != (slot, peer));
        self.unreached.remove(&(slot, peer));
    }

    /// Messages that a peer was to take, or to bring, end in error. Those that it has not been told of yet stay, where a
    /// new connection is tried for them.
    pub(super) fn fail(&mut self, slot: u32, peer: u32, code: i32, gone: Gone) {
        let Ok(context) = self.context(slot) else { return };
        let (is_dead, ends) = (gone != Gone::Nobody, context.ends_with(peer, gone));
        context.fail(peer, code, is_dead, ends.is_some());
        let there = &mut context.peers[peer as usize];
        if is_dead {
            there.failed = Some(code);
        }
        let is_left = !there.queue.is_empty() || !there.held.is_empty();
        let over = is_end(code).then_some((there.past, code));
        if let Some(endpoint) = ends {
            context.peers[endpoint as usize].over = over;
        }
        if context.owes() {
            self.look_again(slot, peer);
        }
        if is_left {
            self.connect(slot, peer);
        }
        // What has ended with it may have had places.
        self.rouse_for_room();
        self.rouse_deferred();
    }

    /// Opens an endpoint of this name, which other nodes reach there.
    ///
    /// # Errors
    /// `FI_EADDRINUSE`: there is one, or somebody has the port. What the system does not give.
    pub fn open(&mut self, name: NameId, far: Option<Place>) -> Outcome<u32> {
        if self.nic.is_none() {
            let nic = crate::gni::Nic::make()?;
            self.service = Some(crate::gni::Service::new(super::KEY).map_err(|error| system(&error))?);
            self.nic = Some(nic);
            if let Err(error) = self.rest_on_nic() {
                (self.nic, self.service) = (None, None);
                return Err(error);
            }
        }
        self.control();
        let Some(service) = &mut self.service else { return Err(Errno::NOMEM) };
        service.bind(name.device, name.cdm_id).map_err(|error| system(&error))?;
        let far = match self.bind_far(name, far) {
            Ok(far) => far,
            Err(error) => {
                self.service.iter_mut().for_each(|service| service.release(name.device, name.cdm_id));
                return Err(error);
            }
        };
        self.give_up(name);
        let opened = self.engine.open(name).map_err(|_| Errno(libc::EADDRINUSE));
        let outcome = opened.and_then(|endpoint| match self.rest_on_socket(name, true) {
            Ok(()) => Ok(endpoint),
            Err(error) => {
                self.engine.remove(endpoint).map_err(|_| Errno::BUSY)?;
                Err(error)
            }
        });
        if outcome.is_err() {
            self.service.iter_mut().for_each(|service| service.release(name.device, name.cdm_id));
        }
        let endpoint = outcome?;
        let key = [crate::link::random(), crate::link::random()].map(|word| word.unwrap_or_default());
        let key = (u128::from(key[0]) | u128::from(key[1]) << 64).to_le_bytes();
        let context = Some(Box::new(Context::new(endpoint, name, far, key)));
        let free = self.contexts.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.contexts.len());
        match free {
            Some(slot) => self.contexts[slot] = context,
            None => self.contexts.push(context),
        }
        Ok(slot as u32)
    }

    /// The endpoint answers from now on.
    ///
    /// # Errors
    /// There is none.
    pub fn enable(&mut self, slot: u32, ends: super::Ends) -> Outcome<()> {
        let now = self.now();
        if let Some(queue) = &ends.queue {
            self.join(slot, queue);
        }
        let context = self.context(slot)?;
        context.is_sharing = ends.queue.is_some();
        context.takes = ends.takes;
        context.ends = Some(ends);
        let endpoint = context.endpoint;
        self.engine.enable(endpoint, now).map_err(|_| Errno::OPBADSTATE)?;
        self.control();
        Ok(())
    }
}

/// Who is gone with a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// Nobody.
    Nobody,
    /// The peer of the connection; where that is a context, perhaps no other of its endpoint.
    It,
    /// The process that it is of.
    Whole,
}

/// Why a mailbox cannot be connected to what the peer has told of.
fn unattached(error: Error) -> i32 {
    match error {
        Error::NotFound => libc::ECONNRESET,
        Error::System(code @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => code,
        _ => libc::EHOSTUNREACH,
    }
}

/// Whether a connection that has failed so says that the life of the peer is over.
fn is_end(code: i32) -> bool {
    matches!(code, libc::ECONNRESET | libc::ECONNREFUSED)
}

pub(super) fn system(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

impl Context {
    /// The endpoint from which nothing more comes when this peer has gone so, if that is the end of one: of a scalable one
    /// the last context that is connected has the last word.
    fn ends_with(&self, peer: u32, gone: Gone) -> Option<u32> {
        let there = &self.peers[peer as usize];
        let whole = there.whole;
        let is_the_end = match gone {
            Gone::Nobody => false,
            Gone::It => whole == peer && !is_scalable(there.name.cdm_id),
            Gone::Whole => true,
        };
        let is_another = |(at, other): (usize, &super::context::Peer)| {
            at != peer as usize && other.whole == whole && other.vc.is_some()
        };
        (is_the_end && !self.peers.iter().enumerate().any(is_another)).then_some(whole)
    }

    /// `is_end`: nothing more comes from the endpoint whose peer this is.
    fn fail(&mut self, peer: u32, code: i32, is_dead: bool, is_end: bool) {
        let there = &mut self.peers[peer as usize];
        there.held.retain(|_| !is_dead);
        there.target = Target::default();
        for index in self.sends.indices() {
            let Some((key, outgoing)) = self.sends.entry_mut(index) else { continue };
            let waits = outgoing.stage == super::context::Stage::Queued && !is_dead;
            if outgoing.peer == peer && !waits {
                self.sent(key, code);
            }
        }
        for index in self.operations.indices() {
            let Some((key, known)) = self.operations.entry_mut(index) else { continue };
            let waits = known.step == Step::Queued && !is_dead;
            if known.peer == peer && !waits {
                self.reached(key, code);
            }
        }
        // What has ended by this is not what another connection is for.
        let Self { peers, sends, operations, .. } = &mut *self;
        let is_left = |item: &Item| match item {
            Item::Send(key) => sends.get(*key).is_some(),
            Item::Remote(Waiting::Operation(key)) => operations.get(*key).is_some(),
            _ => false,
        };
        peers[peer as usize].queue.retain(|item| !is_dead && is_left(item));
        for index in self.pulls.indices() {
            if self.pulls.at(index).is_some_and(|pull| pull.peer == peer)
                && let Some(pull) = self.pulls.remove(index)
            {
                let (label, length) = (pull.label, pull.length);
                let room = pull.receive.buffer.length();
                self.received(&pull.receive, &Received { peer, label, length, room, code });
            }
        }
        self.end_messages(peer);
        let source = self.peers[peer as usize].whole.into();
        for is_tagged in [true, false] {
            let Self { tagged, untagged, messages, .. } = &mut *self;
            let matching = if is_tagged { tagged } else { untagged };
            // Other contexts of the endpoint may be there still.
            let is_of_it = |token: u32| messages[token as usize].peer == peer;
            let left = if is_end {
                matching.forget(source, is_of_it)
            } else {
                Leftover { receives: Vec::new(), messages: matching.forget_incomplete(source, is_of_it) }
            };
            for message in left.messages {
                self.empty(message.token);
            }
            for key in left.receives {
                self.has_place();
                self.withdrawn(key, code);
            }
        }
    }
}

//! The component as the host knows it, under both of its names.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::connector::Connector;
use super::counters::{COUNTERS, Counters};
use super::line::Port;
use super::meeting::{OPENIB, Published};
use super::memory::Registrations;
use super::open::{self, Opened};
use super::parameters;
use super::short::{self, Buffer, Message, Next};
use super::state::{Delivered, SHORT_OF_BUFFERS, State, Step};
use crate::btl::{
    Access, Atomic, Cookie, Declined, EndpointId, Fragment, Host, Left, Lent, Limits, Parameters, Peer,
    Registration, Seat, Sending, Transport, Upcalls, fail,
};
use crate::engine::cm;
use crate::error::{Error, Result};
use crate::link::Clock;
use crate::sync::EngineCell;

/// Things that one pass does outside.
const MOST: usize = 64;

/// How long closing waits until the others have heard that nothing follows, in nanoseconds: until then they may send.
const HEARING: u64 = 2_000_000_000;

/// How long the end waits for the connection thread, in nanoseconds.
const END: u64 = 5_000_000_000;

/// How long a wait gives its processor away and comes back at once, in nanoseconds; and then sleeps between two looks.
const ALERT: u64 = 10_000_000;
const NAP: Duration = Duration::from_micros(200);

/// Waits, for no longer than `limit` nanoseconds, and makes passes meanwhile, each of which says whether it has done anything.
fn wait(limit: u64, is_over: impl Fn() -> bool, pass: impl Fn() -> bool) {
    let clock = Clock::new();
    let mut busy = 0;
    while !is_over() && clock.nanos() < limit {
        if pass() {
            busy = clock.nanos();
        } else if clock.nanos() - busy < ALERT {
            std::thread::yield_now();
        } else {
            #[expect(
                clippy::disallowed_methods,
                reason = "completion queues are looked at, and tell nobody"
            )]
            std::thread::sleep(NAP);
        }
    }
}

/// How long closing waits for what is still to be sent and to arrive, in nanoseconds.
fn patience(host: &impl Host) -> u64 {
    host.patience().as_nanos() as u64
}

/// A process has the component under one of its names: how often it is open under the first, and under the second.
static OPEN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// It is open, under the second name or the first, until this goes.
struct Taken(bool);

impl Taken {
    /// `None` where the process has it under the other name.
    fn new(second: bool) -> Option<Self> {
        OPEN[usize::from(second)].fetch_add(1, Ordering::AcqRel);
        let taken = Self(second);
        (OPEN[usize::from(!second)].load(Ordering::Acquire) == 0).then_some(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        OPEN[usize::from(self.0)].fetch_sub(1, Ordering::AcqRel);
    }
}

/// One port with its peers.
pub(super) struct Rail {
    pub(super) state: EngineCell<State>,
    pub(super) counters: Arc<Counters>,
    pub(super) limits: Limits,
    pub(super) port: Arc<Port>,
    /// By what this life of the process is told from others.
    pub(super) nonce: u64,
}

/// What the modules of a process share.
struct Common {
    published: Published,
    connector: Arc<Connector>,
    /// Modules that have not ended.
    left: AtomicUsize,
    /// Whether the host has taken devices for Open MPI's own openib as well.
    is_beside: OnceLock<bool>,
    /// A peer was left to it.
    has_stood_back: AtomicBool,
    _taken: Taken,
}

/// A module: one for each port. `SECOND`: under the name of the component that it answers to, openib.
pub struct Module<const SECOND: bool> {
    pub(super) rail: Rail,
    pub(super) registrations: Registrations,
    /// Which of those that were opened together it is.
    place: usize,
    common: Arc<Common>,
}

/// The component.
pub type Verbs = Module<false>;

/// The same under its second name.
pub type Openib = Module<true>;

/// What users call a process: its rank, and the number of its job in the job's family.
pub(super) fn title(name: u64) -> String {
    format!("rank {} of job {}", name >> 32, name & 0xFFFF)
}

impl<const SECOND: bool> Module<SECOND> {
    /// A peer is lost.
    fn tell(name: u64, why: &str, host: &impl Host) {
        let line = format!("{}: {} is lost: {why}", Self::COMPONENT, title(name));
        host.notice("peer lost", &line);
    }

    /// Whether Open MPI's own openib is to have a peer: where it has taken devices on both sides, each of which comes to the same.
    fn stands_back(&self, name: u64, host: &impl Host) -> bool {
        let common = &self.common;
        let has_taken = || !SECOND && host.has_taken_another(c"openib");
        if !*common.is_beside.get_or_init(has_taken) || host.published(OPENIB, name).is_err() {
            return false;
        }
        if name != host.name() && !common.has_stood_back.swap(true, Ordering::Relaxed) {
            let line = "btl_verbs: Open MPI's own openib has taken devices in this process, and has the peers that have it, too: \
                        `--mca btl ^openib` leaves them to verbs";
            if host.is_asked_for() {
                host.notice("verbs not used", line);
            } else if host.is_verbose() {
                host.say(line);
            }
        }
        true
    }

    /// Makes a process known that has published this.
    ///
    /// # Errors
    /// Why it is not reached.
    fn meet(&self, name: u64, bytes: &[u8]) -> std::result::Result<EndpointId, String> {
        let (peer, reads) = self.common.published.meet(self.place, name, bytes)?;
        self.rail.state.with(|state| state.add(name, peer, reads)).map_err(|error| error.to_string())
    }

    /// Does one thing that is due outside.
    #[inline]
    fn run(&self, step: Step, up: &impl Upcalls) -> Option<Delivered> {
        match step {
            Step::Deliver { from, tag, bytes, buffer } => {
                up.deliver_shared(from, tag, bytes);
                return Some(buffer);
            }
            Step::Done(cookie, outcome) => up.done(cookie, outcome),
            Step::Lost { id, name, why, cookies } => {
                up.doomed(id, name, || Self::tell(name, &why.to_string(), &up.host()));
                if up.host().is_here() {
                    fail(cookies, up);
                }
                if up.host().is_here() {
                    up.lost(id, name);
                }
            }
            Step::Stranger(name) => {
                // Whose record is not to be had asks again.
                if let Ok(bytes) = up.host().published(self.common.published.key(), name) {
                    let _ = self.meet(name, &bytes);
                }
            }
            Step::Short(bytes, what) => self.tell_short(bytes, what, up),
            Step::Failed => self.tell_failure(&up.host()),
            // It is asked for again before long.
            Step::Room { wanted, refused } => {
                let has_made_room = self.registrations.make_room(wanted, &self.rail);
                if !has_made_room && refused > 0 {
                    self.rail.port.is_short_of(refused);
                    if let Some(bytes) = self.rail.port.lack() {
                        self.tell_short(bytes, SHORT_OF_BUFFERS, up);
                    }
                }
            }
        }
        None
    }

    #[cold]
    fn tell_short(&self, bytes: usize, what: &str, up: &impl Upcalls) {
        let line = format!("{}: {}: {bytes} {what}", Self::COMPONENT, self.rail.port.name);
        up.host().notice("verbs short of memory", &line);
    }

    #[cold]
    fn tell_failure(&self, host: &impl Host) {
        let (component, name) = (Self::COMPONENT, &self.rail.port.name);
        let line = format!("{component}: {name}: a completion queue or a shared receive queue has failed");
        host.notice("verbs queue failed", &line);
    }

    /// Sends at once, or not at all, on whatever way there is.
    #[inline(never)]
    fn send_at_once(&self, endpoint: EndpointId, tag: u8, head: Lent, data: Lent) -> bool {
        self.rail.state.with(|state| state.send_now(endpoint, tag, [head, data]))
    }

    /// A pass of a thread that may be one of several.
    #[cold]
    fn begin(&self, up: &impl Upcalls) -> usize {
        if self.rail.state.with(State::begin_pass) { self.advance(up) } else { 0 }
    }

    /// Does what there is to do in a pass; how much that was.
    fn advance(&self, up: &impl Upcalls) -> usize {
        let state = &self.rail.state;
        let (mut read, mut count) = (Buffer::NONE, 0);
        loop {
            // Nothing is borrowed while the host runs: it sends from its callbacks, and makes progress in them.
            if let Some(Some(message)) = state.visit(short::Take(&mut read)) {
                read = deliver(message, up);
            } else {
                match state.with(|state| state.advance(read.take())) {
                    Next::Short(message) => read = deliver(message, up),
                    Next::Step(step) => {
                        let delivered = self.run(step, up);
                        if up.host().is_here()
                            && let Some(delivered) = delivered
                        {
                            state.with(|state| state.release(delivered));
                        }
                    }
                    Next::Nothing => return count,
                }
            }
            count += 1;
            if !up.host().is_here() {
                return count;
            }
            if count == MOST {
                if read != Buffer::NONE {
                    state.with(|state| state.release_short(read));
                }
                return count;
            }
        }
    }
}

/// Has the host read a short message; the buffer to give back.
#[inline(always)]
fn deliver(message: Message, up: &impl Upcalls) -> Buffer {
    up.deliver_shared(message.from, message.tag, message.bytes);
    message.buffer
}

impl<const SECOND: bool> Transport for Module<SECOND> {
    const COMPONENT: &'static str = if SECOND { "btl_openib" } else { "btl_verbs" };
    const COUNTERS: &'static [(&'static str, &'static str)] = COUNTERS;
    const PREDECESSOR: Option<&'static CStr> = if SECOND { None } else { Some(c"openib") };
    const HAS_TRANSFERS: bool = true;
    const HAS_ATOMICS: bool = true;
    const HAS_SEND_NOW: bool = true;
    const QUEUES_FOR_CALLS: bool = true;

    fn parameters() -> &'static Parameters {
        parameters::of(SECOND)
    }

    fn verify(host: &impl Host) -> std::result::Result<Vec<Left>, String> {
        parameters::config(SECOND, host).map(|(_, left)| left)
    }

    fn seat() -> &'static Seat {
        static SEATS: [Seat; 2] = [const { Seat::new() }; 2];
        &SEATS[usize::from(SECOND)]
    }

    fn open(host: &impl Host) -> std::result::Result<Vec<Self>, Declined> {
        let asked_for = host.is_asked_for();
        if SECOND && !asked_for {
            return Err(Declined::Silently(
                "it is offered under this name only to who asks for it".to_owned(),
            ));
        }
        let taken = Taken::new(SECOND).ok_or_else(|| {
            let (own, other) = if SECOND { ("openib", "verbs") } else { ("verbs", "openib") };
            let why = format!(
                "btl_{own}: this process has the component as {other}, and cannot have it under both names"
            );
            if !asked_for {
                return Declined::Silently(why);
            }
            host.notice("verbs not used", &format!("{why}: ask for {other}, or have the program leave it"));
            Declined::Told
        })?;
        let (config, left) = parameters::config(SECOND, host).map_err(|why| {
            host.notice("verbs not used", &why);
            Declined::Told
        })?;
        let opened = open::open(&config, asked_for, host);
        // Where there is nothing to use them for, nobody misses them.
        if opened.is_ok() && !left.is_empty() {
            let lines: Vec<_> = left.into_iter().map(|left| left.line).collect();
            host.notice("verbs parameter not taken over", &lines.join(".\n"));
        }
        if opened.is_err() {
            host.tell_no_more();
        }
        let Opened { rails, published, connector, kept } = opened?;
        if host.meets_again() {
            let unheard = |state: &mut State| state.unheard = Err(Error::Unreachable);
            rails.iter().for_each(|rail| rail.state.with(unheard));
        }
        let left = AtomicUsize::new(rails.len());
        let common = Arc::new(Common {
            published,
            connector,
            left,
            is_beside: OnceLock::new(),
            has_stood_back: AtomicBool::new(false),
            _taken: taken,
        });
        let modules = rails.into_iter().enumerate().map(|(place, rail)| Self {
            rail,
            registrations: Registrations::new(kept),
            place,
            common: Arc::clone(&common),
        });
        Ok(modules.collect())
    }

    fn device(&self) -> &str {
        &self.rail.port.name
    }

    fn limits(&self) -> Limits {
        self.rail.limits
    }

    fn reach(all: &[&Self], own: usize, peer: &impl Peer, host: &impl Host) -> Option<EndpointId> {
        let (module, name) = (all.get(own)?, peer.name());
        // Another port reaches it, or another component; where there is none the host gives up at once, and no pass tells why.
        if module.rail.port.has_failed() {
            if module.rail.state.with(State::has_news_of_failure) {
                module.tell_failure(host);
            }
            return None;
        }
        if module.stands_back(name, host) {
            return None;
        }
        if name == host.name() {
            return module.reach_itself(name);
        }
        let published = &module.common.published;
        let met = match host.published(published.key(), name) {
            Ok(bytes) => match module.meet(name, &bytes) {
                // By another port it is, and nobody misses this one.
                Err(_) if all.iter().any(|one| published.meet(one.place, name, &bytes).is_ok()) => {
                    return None;
                }
                met => met,
            },
            // A process that has published nothing does not run this component.
            Err(_) if !host.is_asked_for() => return None,
            Err(_) => Err(published.why_not(name, host)?.to_owned()),
        };
        match met {
            Ok(id) => {
                let is_there = module.rail.state.with(|state| {
                    state.peer(id).is_some_and(|peer| {
                        // Who was met by the other side, and is lost since, was nobody's until now.
                        peer.is_open |= !peer.is_lost;
                        peer.is_open
                    })
                });
                is_there.then_some(id)
            }
            Err(why) => {
                let line = format!("{}: {} is not reached: {why}", Self::COMPONENT, title(name));
                if host.is_verbose() {
                    host.say(&line);
                } else if host.is_asked_for() && module.place == 0 {
                    host.notice("verbs peer not reached", &line);
                }
                None
            }
        }
    }

    fn peer(&self, endpoint: EndpointId) -> Option<u64> {
        self.rail.state.with(|state| state.peer(endpoint).map(|peer| peer.name))
    }

    #[cold]
    fn unheard(&self) {
        self.rail.counters.num_unheard.add(1);
    }

    fn tell_loss(&self, name: u64, host: &impl Host) {
        Self::tell(name, "its process has ended, or its network", host);
    }

    fn close(&self, endpoints: &[EndpointId], up: &impl Upcalls) {
        self.rail.state.with(|state| endpoints.iter().for_each(|id| state.begin_close(*id)));
        let is_drained = || self.rail.state.with(|state| endpoints.iter().all(|id| state.is_drained(*id)));
        let is_over = || !up.host().is_here() || is_drained();
        wait(patience(&up.host()), is_over, || self.progress(up) != 0);
        let has_heard = || self.rail.state.with(|state| endpoints.iter().all(|id| state.has_heard(*id)));
        wait(HEARING, || !up.host().is_here() || has_heard(), || self.progress(up) != 0);
        for id in endpoints.iter().take_while(|_| up.host().is_here()) {
            fail(self.rail.state.with(|state| state.end_close(*id)), up);
        }
    }

    fn end_module(&self, host: &impl Host) {
        let pass = || {
            self.rail.state.with(State::pass_silently);
            false
        };
        let left = self.rail.state.with(|state| {
            let left = state.unclosed();
            left.iter().for_each(|id| state.begin_close(*id));
            left
        });
        let is_drained = || self.rail.state.with(|state| left.iter().all(|id| state.is_drained(*id)));
        wait(patience(host), is_drained, pass);
        left.iter().for_each(|id| drop(self.rail.state.with(|state| state.end_close(*id))));
        let is_last = self.common.left.fetch_sub(1, Ordering::AcqRel) == 1;
        let office = &self.common.connector.office;
        if is_last {
            office.order(cm::Order::Finalize);
        }
        let is_over = || {
            self.rail.state.with(|state| state.is_empty())
                && (!is_last || office.is_over.load(Ordering::Acquire))
        };
        wait(END, is_over, pass);
        if office.is_over.load(Ordering::Acquire) {
            self.common.connector.join();
        }
        if is_last {
            host.tell_no_more();
        }
    }

    #[inline]
    fn send(&self, endpoint: EndpointId, fragment: Fragment<Lent>) -> Result<Sending> {
        self.rail.state.with(|state| state.send(endpoint, fragment))
    }

    #[inline(always)]
    fn send_now(&self, endpoint: EndpointId, tag: u8, pieces: [Lent; 2]) -> bool {
        let sent = self.rail.state.visit(short::Send { to: endpoint, tag, pieces });
        sent == Some(true) || self.send_at_once(endpoint, tag, pieces[0], pieces[1])
    }

    fn put(
        &self,
        endpoint: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<Sending> {
        self.transfer(endpoint, (false, local), remote, cookie)
    }

    fn get(
        &self,
        endpoint: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<Sending> {
        self.transfer(endpoint, (true, local), remote, cookie)
    }

    fn atomic(
        &self,
        endpoint: EndpointId,
        result: Lent,
        remote: (Registration, u64),
        what: Atomic,
        cookie: Cookie,
    ) -> Result<Sending> {
        self.change(endpoint, result, remote, (what, cookie))
    }

    fn register(&self, memory: Lent, access: Access) -> Option<Registration> {
        self.registrations.register(memory, access, &self.rail)
    }

    fn has_bare_keys(&self) -> bool {
        self.rail.port.dialect == cm::Dialect::Openib
    }

    fn deregister(&self, registration: Registration) {
        self.registrations.deregister(registration, &self.rail);
    }

    #[inline]
    fn progress(&self, up: &impl Upcalls) -> usize {
        // Mostly there is nothing.
        match self.rail.state.visit(short::Begin) {
            Some(false) => 0,
            Some(true) => self.advance(up),
            None => self.begin(up),
        }
    }

    fn counter(&self, index: usize) -> u64 {
        self.rail.counters.value(index)
    }

    fn describe(&self, endpoint: Option<EndpointId>) -> Vec<String> {
        match endpoint {
            None => vec![self.rail.counters.describe()],
            Some(id) => self.rail.state.with(|state| state.describe(id)).into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_wait_ends_when_it_is_over_and_at_its_limit() {
        let passes = Cell::new(0);
        let pass = || {
            passes.set(passes.get() + 1);
            false
        };
        wait(u64::MAX, || passes.get() == 3, pass);
        assert_eq!(passes.get(), 3);
        let clock = Clock::new();
        wait(20_000_000, || false, pass);
        assert!(clock.nanos() >= 20_000_000);
        wait(0, || false, || unreachable!("there is no time"));
    }
}

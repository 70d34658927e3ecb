//! The connection thread: one for each process. It owns the event channel, the ids and their queue pairs until those are
//! up, the timers and the events of devices; `engine::cm` says what is to be done. It never calls the host, and registers
//! no memory.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::line::{ATTEMPT, Line, Number, Port, Work};
use super::office::{Letter, Office};
use super::parameters::Config;
use crate::engine::Instant;
use crate::engine::cm::{Action, Dialect, EndpointId, Event, Id, Manager, Notice, Settings};
use crate::error::panic::run;
use crate::error::{Error, Result};
use crate::link::Clock;
use crate::sync;
use crate::verbs::{self, AsyncEvent, AsyncEvents, Connect, Depths, EventChannel, EventKind, Piece};

/// Bytes of the thread's stack.
const STACK: usize = 256 << 10;

/// For how long librdmacm looks for an address or a route by itself; the manager has a timer of its own.
const RESOLVE: Duration = Duration::from_secs(30);

/// Modules of a process, at most: endpoints are numbered with that of their module.
pub(super) const MODULES: usize = 16;

/// The number of an endpoint: which module's, and its place there.
pub(super) const fn number(module: usize, place: u32) -> EndpointId {
    EndpointId(place << 4 | module as u32)
}

/// Which module's an endpoint is, and its place there.
pub(super) const fn place(endpoint: EndpointId) -> (usize, u32) {
    ((endpoint.0 & 15) as usize, endpoint.0 >> 4)
}

/// What events of an id name: whose number it is, and the number.
const fn token(id: Id) -> usize {
    match id {
        Id::Own(number) => (number as usize) << 2 | 1,
        Id::Peers(number) => (number as usize) << 2 | 2,
    }
}

/// The id of a token; `None` of a listener's.
const fn id_of(token: usize) -> Option<Id> {
    match token & 3 {
        1 => Some(Id::Own((token >> 2) as u32)),
        2 => Some(Id::Peers((token >> 2) as u32)),
        _ => None,
    }
}

/// What events of a listener name.
pub(super) const fn listener_token(module: usize) -> usize {
    module << 2
}

/// Of a rejection: the peer's user has said it (`IB_CM_REJ_CONSUMER_DEFINED`; table 108 of the InfiniBand specification). Where
/// nobody listens, a device hands on zeros as private data, which mean something in openib's words.
const BY_ITS_USER: i32 = 28;

/// What has happened to an id where a call about it failed. iWARP says there that nobody listens, and RoCE by an event.
fn outcome(error: Error) -> Event<'static> {
    match error {
        Error::System(code) if code == Errno::CONNREFUSED.raw_os_error() => Event::Rejected { private: &[] },
        _ => Event::Refused,
    }
}

/// After an event could not be read, one is asked for again so many times, so far apart in nanoseconds. Then there are none.
const MOST_REFUSALS: u32 = 200;
const PAUSE: i64 = 10_000_000;

/// An id that the thread has.
struct Held {
    id: verbs::Id,
    module: usize,
    line: Option<Arc<Line>>,
    /// The queue pair of a kick.
    dummy: Option<verbs::Qp>,
    /// Which queue of the specification it is.
    queue: usize,
    /// Reads to serve and to start, as its request has them.
    reads: Option<[u8; 2]>,
}

/// The thread, as the modules see it.
pub(super) struct Connector {
    pub(super) office: Arc<Office>,
    thread: parking_lot::Mutex<Option<JoinHandle<()>>>,
}

impl Connector {
    /// Starts it.
    ///
    /// # Errors
    /// Of `pthread_create(3)`.
    pub(super) fn start(
        office: Arc<Office>,
        channel: Arc<EventChannel>,
        listeners: Vec<verbs::Id>,
        ports: Vec<Arc<Port>>,
        settings: Settings,
        config: &Config,
        clock: Clock,
    ) -> io::Result<Self> {
        let modules = ports.iter().take(office.mails.len());
        let devices = modules.map(|port| AsyncEvents::new(&port.context).ok()).collect();
        let body = Body {
            office: Arc::clone(&office),
            channel,
            listeners,
            devices,
            ports,
            held: BTreeMap::new(),
            manager: Manager::new(settings),
            last: 0,
            refusals: 0,
            retries: config.retries,
            retries_without_receive: config.retries_without_receive,
            acknowledgement: config.acknowledgement,
            clock,
        };
        let thread = sync::spawn("hawser-verbs", STACK, move || body.run())?;
        Ok(Self { office, thread: parking_lot::Mutex::new(Some(thread)) })
    }

    /// Waits until it has ended, which it was [ordered](crate::engine::cm::Order::Finalize) to. That takes as long as its
    /// calls of librdmacm do: none waits for a peer, but that of siw that connects.
    pub(super) fn join(&self) {
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Body {
    office: Arc<Office>,
    // Ids hold their channel; what is here is dropped in this order.
    held: BTreeMap<Id, Held>,
    listeners: Vec<verbs::Id>,
    /// By module.
    devices: Vec<Option<AsyncEvents>>,
    /// By listener.
    ports: Vec<Arc<Port>>,
    channel: Arc<EventChannel>,
    manager: Manager,
    /// The number of the last id that came with a request.
    last: u32,
    /// Times in a row that no event could be read.
    refusals: u32,
    retries: u8,
    retries_without_receive: u8,
    acknowledgement: u8,
    clock: Clock,
}

impl Body {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.nanos())
    }

    fn run(mut self) {
        // A panic is told where it happens. Whoever waits for a connection hears that there is none.
        if !self.turns() {
            self.listeners.clear();
            self.manager.give_up();
            self.turns();
        }
        let office = Arc::clone(&self.office);
        drop(self);
        office.is_over.store(true, Ordering::Release);
    }

    /// Until everything has ended; false where it panics.
    fn turns(&mut self) -> bool {
        // Where the program has closed what is waited with, nothing can be heard any more.
        catch_unwind(AssertUnwindSafe(|| while !self.turn() && self.wait() {})).is_ok()
    }

    /// Sleeps until there is something to do; false when nothing can be waited for.
    fn wait(&mut self) -> bool {
        let timeout = self.manager.next_timeout().map(|at| {
            let left = at - self.now();
            // Rounded up: what is due is due then.
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) + 1 }
        });
        let timeout = timeout.map(|mut time| {
            if time.tv_nsec >= 1_000_000_000 {
                time = Timespec { tv_sec: time.tv_sec + 1, tv_nsec: 0 };
            }
            time
        });
        let mut polled = vec![PollFd::from_borrowed_fd(self.office.bell(), PollFlags::IN)];
        let timeout = match self.refusals {
            0 => {
                polled.push(PollFd::from_borrowed_fd(self.channel.as_fd(), PollFlags::IN));
                timeout
            }
            // What cannot be read is there all the time.
            MOST_REFUSALS => timeout,
            _ => Some(Timespec { tv_sec: 0, tv_nsec: PAUSE }),
        };
        let own = polled.len();
        let devices: Vec<usize> =
            (0..self.devices.len()).filter(|module| self.devices[*module].is_some()).collect();
        let events = devices.iter().filter_map(|module| self.devices[*module].as_ref());
        polled.extend(events.map(|events| PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN)));
        let _ = poll(&mut polled, timeout.as_ref());
        let (own, of_devices) = polled.split_at(own);
        let is_lost = own.iter().any(|it| is_deaf(it.revents()));
        let deaf = devices.into_iter().zip(of_devices).filter(|(_, it)| is_deaf(it.revents()));
        let deaf: Vec<usize> = deaf.map(|(module, _)| module).collect();
        self.office.hush();
        // A device that tells nothing any more says so whenever it is waited for.
        for module in deaf {
            self.devices[module] = None;
        }
        !is_lost
    }

    /// Everything that there is to do; whether that was the last.
    fn turn(&mut self) -> bool {
        while self.refusals < MOST_REFUSALS {
            match self.channel.next() {
                Ok(Some(event)) => {
                    self.refusals = 0;
                    self.hear(event);
                    self.act();
                }
                Ok(None) => {
                    self.refusals = 0;
                    break;
                }
                Err(_) => {
                    self.refusals += 1;
                    if self.refusals == MOST_REFUSALS {
                        self.manager.give_up();
                        self.act();
                    }
                    break;
                }
            }
        }
        for module in 0..self.devices.len() {
            while let Some(event) =
                self.devices[module].as_ref().and_then(|events| events.next().ok().flatten())
            {
                // All of its ports: whoever reads the event has it alone.
                let device = Arc::clone(&self.ports[module].context);
                let of_device = (0..self.ports.len()).filter(|at| self.ports[*at].context.is(&device));
                match event {
                    AsyncEvent::CqFailed(token) | AsyncEvent::SrqFailed(token) => {
                        of_device.for_each(|at| self.ports[at].fail_with(token));
                    }
                    AsyncEvent::DeviceFailed => {
                        self.devices[module] = None;
                        let lost: Vec<usize> = of_device.collect();
                        lost.into_iter().for_each(|at| self.manager.handle_listener_lost(at as u8));
                        self.act();
                        break;
                    }
                    // Of a queue pair that has failed its work tells, which comes back flushed.
                    _ => {}
                }
            }
        }
        while let Some(order) = self.office.take() {
            let now = self.now();
            self.manager.handle_order(order, now);
            self.act();
        }
        let now = self.now();
        self.manager.handle_timeout(now);
        self.act();
        *self.office.counters.lock() = *self.manager.counters();
        self.tell()
    }

    /// Something has happened to an id.
    fn hear(&mut self, event: verbs::Event) {
        let now = self.now();
        if let Some(id) = event.request {
            // Of a listener: of its module.
            let module = event.token >> 2;
            self.last += 1;
            let number = Id::Peers(self.last);
            id.set_token(token(number));
            let reads = [event.served_reads, event.started_reads];
            self.held
                .insert(number, Held { id, module, line: None, dummy: None, queue: 0, reads: Some(reads) });
            self.manager.handle_request(module as u8, number, event.private.as_slice(), now);
            return;
        }
        let Some(id) = id_of(event.token) else {
            if event.kind == EventKind::DeviceRemoval {
                self.manager.handle_listener_lost((event.token >> 2) as u8);
            }
            return;
        };
        let private = event.private.as_slice();
        let event = match event.kind {
            EventKind::AddressResolved => Event::AddressResolved,
            EventKind::AddressError => Event::AddressError,
            EventKind::RouteResolved => Event::RouteResolved,
            EventKind::RouteError => Event::RouteError,
            EventKind::ConnectError => Event::ConnectError,
            EventKind::Unreachable => Event::Unreachable,
            EventKind::Rejected => {
                let is_said = self.manager.dialect() == Dialect::Own || event.status == BY_ITS_USER;
                Event::Rejected { private: if is_said { private } else { &[] } }
            }
            EventKind::Established => Event::Established { private },
            EventKind::Disconnected | EventKind::AddressChange => Event::Disconnected,
            EventKind::DeviceRemoval => Event::DeviceRemoved,
            EventKind::ConnectRequest
            | EventKind::ConnectResponse
            | EventKind::TimewaitExit
            | EventKind::Other(_) => return,
        };
        self.manager.handle_event(id, event, now);
    }

    /// Does what is to be done. What is posted on what is disconnected comes back with that: before it does, it is told why.
    fn act(&mut self) {
        loop {
            while let Some(notice) = self.manager.poll_early_notice() {
                *self.office.counters.lock() = *self.manager.counters();
                self.pass_on(notice);
            }
            let Some(action) = self.manager.poll_action() else { break };
            if let Err(error) = self.carry_out(action) {
                let now = self.now();
                self.manager.handle_event(action.id(), outcome(error), now);
            }
        }
    }

    fn carry_out(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Resolve { id, listener, to } => {
                let module = usize::from(listener);
                let port = self.ports.get(module).ok_or(Error::NotFound)?;
                let made = verbs::Id::new(&self.channel, token(id))?;
                let mut source = port.at;
                source.set_port(0);
                made.resolve_address(Some(source), to, RESOLVE)?;
                self.held
                    .insert(id, Held { id: made, module, line: None, dummy: None, queue: 0, reads: None });
                Ok(())
            }
            Action::Route { id } => self.at(id)?.id.resolve_route(RESOLVE),
            Action::MakeQueuePair { id, queue, .. } => {
                let queue = usize::from(queue);
                let module = self.at(id)?.module;
                let port = Arc::clone(&self.ports[module]);
                let held = self.at(id)?;
                held.queue = queue;
                held.line = Some(Arc::new(port.line(&held.id, queue)?));
                Ok(())
            }
            Action::PostReceive { id, endpoint, attempt } => {
                let (_, peer) = place(endpoint);
                let module = self.at(id)?.module;
                let cts = self.ports[module].cts();
                let held = self.at(id)?;
                let attempt = (attempt.0 & ATTEMPT) as u16;
                let number = Number { peer, attempt, work: Work::Cts, queue: held.queue as u8, at: 0 }.raw();
                let pair = &held.line.as_ref().ok_or(Error::NotFound)?.pair;
                if let Some(cts) = cts {
                    return Ok(pair.post_receive(number, &[cts])?);
                }
                // siw takes no receive without pieces.
                pair.post_receive(number, &[]).or_else(|_| pair.post_receive(number, &[Piece::EMPTY]))?;
                Ok(())
            }
            Action::MakeDummy { id } => {
                let module = self.at(id)?.module;
                let port = Arc::clone(&self.ports[module]);
                let held = self.at(id)?;
                held.dummy = Some(port.dummy(&held.id)?);
                Ok(())
            }
            Action::Connect { id, private } => run("btl_verbs", "connection thread", || {
                self.begin(id, &private, |held, wanted| held.id.connect(wanted))
            }),
            Action::Accept { id, private } => self.begin(id, &private, |held, wanted| held.id.accept(wanted)),
            Action::Reject { id, private } => {
                if let Some(held) = self.held.remove(&id) {
                    drop((held.line, held.dummy));
                    let _ = held.id.reject(&private);
                }
                Ok(())
            }
            Action::Disconnect { id } => {
                if let Some(held) = self.held.get(&id) {
                    let _ = held.id.disconnect();
                }
                Ok(())
            }
            Action::Destroy { id } => {
                self.held.remove(&id);
                Ok(())
            }
        }
    }

    fn at(&mut self, id: Id) -> Result<&mut Held> {
        self.held.get_mut(&id).ok_or(Error::NotFound)
    }

    /// Connects, or accepts.
    fn begin(
        &mut self,
        id: Id,
        private: &[u8],
        call: impl FnOnce(&Held, &Connect<'_>) -> Result<()>,
    ) -> Result<()> {
        let (retries, without) = (self.retries, self.retries_without_receive);
        let module = self.at(id)?.module;
        let [served, started] = self.ports[module].reads;
        let held = self.held.get(&id).ok_or(Error::NotFound)?;
        let least = |own: u8, asked: u8| if asked == 0 { own } else { own.min(asked) };
        let [served_reads, started_reads] = match held.reads {
            Some([asked, offered]) => [least(served, asked), least(started, offered)],
            None => [served, started],
        };
        let is_shared = self.ports[module].shared[held.queue].is_some();
        let retries_without_receive = if is_shared { without } else { 0 };
        // Of either side: the one that accepts sends, too. iWARP has no such time.
        let _ = held.id.set_acknowledgement_timeout(self.acknowledgement);
        call(held, &Connect { private, served_reads, started_reads, retries, retries_without_receive })
    }

    /// Passes on what there is to tell; whether everything has ended.
    fn tell(&mut self) -> bool {
        let mut is_over = false;
        while let Some(notice) = self.manager.poll_notice() {
            is_over |= notice == Notice::Finished;
            self.pass_on(notice);
        }
        is_over
    }

    fn pass_on(&self, notice: Notice) {
        let mut lines = Vec::new();
        let module = match &notice {
            Notice::Up { endpoint, ids, .. } => {
                lines.extend(ids.iter().filter_map(|id| self.held.get(id)?.line.clone()));
                place(*endpoint).0
            }
            Notice::Down { endpoint, .. }
            | Notice::Doubted { endpoint, .. }
            | Notice::Failed { endpoint, .. }
            | Notice::Closed { endpoint } => place(*endpoint).0,
            Notice::Unknown { listener, .. } => usize::from(*listener),
            Notice::Finished => return,
        };
        if let Some(mail) = self.office.mails.get(module) {
            mail.put(Letter { notice, lines, at: self.clock.nanos() });
        }
    }
}

impl Port {
    /// A queue pair that is only there to be refused.
    fn dummy(self: &Arc<Self>, id: &verbs::Id) -> Result<verbs::Qp> {
        // Nothing is posted there: nothing completes.
        let completions = self.any_completions()?;
        let queues = verbs::Queues {
            pd: Arc::clone(&self.pd),
            send: Arc::clone(&completions),
            receive: completions,
            shared: None,
        };
        let depths = Depths { sends: 1, receives: 1, send_pieces: 1, receive_pieces: 1, inline: 0 };
        id.create_qp(&queues, depths)
    }
}

/// Whether nothing can be heard from a descriptor any more: it has been closed, or what is behind it has gone and has said all
/// that it had to say.
fn is_deaf(found: PollFlags) -> bool {
    found.contains(PollFlags::NVAL) || found.contains(PollFlags::ERR) && !found.contains(PollFlags::IN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nobody_listens_is_the_same_whether_a_call_says_it_or_an_event() {
        let failed = [libc::ECONNREFUSED, libc::ENOMEM].map(|code| outcome(Error::System(code)));
        assert_eq!(failed, [Event::Rejected { private: &[] }, Event::Refused]);
        assert_eq!(outcome(Error::OutOfResource), Event::Refused);
    }

    #[test]
    fn what_is_closed_or_has_said_all_is_waited_for_no_more() {
        let (none, word, error) = (PollFlags::NVAL, PollFlags::IN, PollFlags::ERR);
        let found = [none, error, error | PollFlags::HUP, error | word, word, PollFlags::empty()];
        assert_eq!(found.map(is_deaf), [true, true, true, false, false, false]);
    }

    #[test]
    fn numbers_and_tokens_say_whose_they_are() {
        for module in 0..MODULES {
            for at in [0, 1, (1 << 24) - 1] {
                assert_eq!(place(number(module, at)), (module, at));
            }
            assert_eq!((id_of(listener_token(module)), listener_token(module) >> 2), (None, module));
        }
        for id in [Id::Own(1), Id::Peers(1), Id::Own(u32::MAX), Id::Peers(7)] {
            assert_eq!(id_of(token(id)), Some(id));
        }
    }
}

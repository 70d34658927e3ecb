//! The agent's thread: the sockets around the [`Checker`].

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use super::checker::{Answers, Checker, ClientId, Counts, Output, SocketId};
use super::lines::{Lines, News};
use super::mail::{REQUEST, Reply, Request};
use super::node::Place;
use crate::engine::Instant;
use crate::error::room;
use crate::link::{Calls, Clock, Heard, Held, Listener, Local, Prober, Waiter};
use crate::wire::probe::{self, Key, Process};

/// Most that is taken from one source in one turn, so that none keeps the others waiting.
const BATCH: usize = 64;

macro_rules! counters {
    ($($name:ident),*) => {
        /// What the agent has counted, for whoever holds it.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($name: AtomicU64,)*
        }

        impl Counters {
            fn set(&self, counts: &Counts) {
                $(self.$name.store(counts.$name, Ordering::Relaxed);)*
            }
        }
    };
}

counters!(pings, asks, answers, malformed, forged, stray);

/// What the process wants of its thread.
pub(super) enum Order {
    /// Hear a module, at this end of its connection.
    Hear(Local),
    /// Answer questions that come by this socket.
    Answer(Port),
}

/// A socket on an address.
pub(super) struct Port {
    at: IpAddr,
    prober: Prober,
    /// The agent's socket, which all processes of the node share; else this process's own, by which it
    /// asks.
    shared: Option<Shared>,
}

struct Shared {
    key: Key,
    /// Where calls are taken: at the same port.
    calls: Option<Calls>,
    /// By it the others know that they may ask for the socket here.
    _held: Option<Held>,
}

impl Port {
    /// The agent's socket, and the key that it is asked under.
    pub(super) fn shared(
        at: IpAddr,
        (prober, calls): (Prober, Option<Calls>),
        key: Key,
        held: Option<Held>,
    ) -> Self {
        Self { at, prober, shared: Some(Shared { key, calls, _held: held }) }
    }
}

/// A connection: of a module of this process, or of another process that wants to share a socket.
struct Client {
    id: ClientId,
    local: Local,
}

/// Numbers of what is waited for; clients have those between.
const WOKEN: u64 = 0;
const LISTENER: u64 = 1;
const CALLS: u64 = 1 << 61;
const TAKERS: u64 = 1 << 62;
const PORTS: u64 = 1 << 63;

/// Everything that the thread has.
pub(super) struct Service {
    /// `None` where others cannot find this process, or it can take nobody more in.
    listener: Option<Listener>,
    place: Option<Arc<Place>>,
    woken: UnixStream,
    orders: Receiver<Order>,
    clients: Vec<Client>,
    next_client: ClientId,
    ports: Vec<Port>,
    lines: Lines,
    checker: Checker,
    counters: Arc<Counters>,
    clock: Clock,
    waiter: Waiter,
    /// A datagram on its way out; zeros but for its head.
    datagram: Vec<u8>,
}

impl Service {
    pub(super) fn new(
        (listener, place): (Option<Listener>, Option<Arc<Place>>),
        (woken, orders): (UnixStream, Receiver<Order>),
        key: Key,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let datagram =
            room::filled(0, probe::LONGEST as usize).map_err(|_| io::Error::from(ErrorKind::OutOfMemory))?;
        let waiter = Waiter::new()?;
        waiter.add(&woken, WOKEN)?;
        if let Some(listener) = &listener {
            waiter.add(listener, LISTENER)?;
        }
        Ok(Self {
            listener,
            place,
            woken,
            orders,
            clients: Vec::new(),
            next_client: LISTENER + 1,
            ports: Vec::new(),
            lines: Lines::new(CALLS),
            checker: Checker::new(key),
            counters,
            clock: Clock::new(),
            waiter,
            datagram,
        })
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.nanos())
    }

    /// Until the process has shut down the other end of `woken`, or closed what is waited with: a program may
    /// close descriptors that are not its own.
    pub(super) fn run(mut self) {
        loop {
            let now = self.now();
            if self.waiter.wait(self.checker.next_timeout().map(|at| at - now)).is_err() {
                return;
            }
            let ready = self.waiter.ready().to_vec();
            // Orders first: who asks for a socket may do so because one has just been ordered.
            if ready.contains(&WOKEN) && !self.obey() {
                return;
            }
            for number in ready {
                match number {
                    WOKEN => {}
                    LISTENER => self.admit(),
                    PORTS.. => self.hear_network((number - PORTS) as SocketId),
                    TAKERS.. => self.take_calls((number - TAKERS) as SocketId),
                    CALLS.. => {
                        let news = self.lines.hear(number, &self.waiter);
                        self.tell_news(news);
                    }
                    _ => self.hear_client(number),
                }
            }
            let news = self.lines.look(&self.waiter);
            self.tell_news(news);
            let now = self.now();
            self.checker.handle_timeout(now);
            self.send();
            self.counters.set(self.checker.counts());
        }
    }

    /// Does what was ordered; whether to go on.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; 64];
        let goes_on = loop {
            match (&self.woken).read(&mut bytes) {
                Ok(0) => break false,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() != ErrorKind::Interrupted => break false,
                Ok(_) | Err(_) => {}
            }
        };
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Hear(local) => self.take_in(local),
                Order::Answer(port) => _ = self.open(port),
            }
        }
        goes_on
    }

    /// Hears a connection from now on.
    fn take_in(&mut self, local: Local) {
        let id = self.next_client;
        self.next_client += 1;
        if self.waiter.add(&local, id).is_ok() {
            self.clients.push(Client { id, local });
        }
    }

    /// Hears a socket from now on.
    fn open(&mut self, port: Port) -> io::Result<SocketId> {
        let (mut port, socket, number) = (port, self.ports.len(), PORTS + self.ports.len() as u64);
        match port.shared {
            Some(_) => self.waiter.add_shared(&port.prober, number)?,
            None => self.waiter.add(&port.prober, number)?,
        }
        if let Some(shared) = &mut port.shared {
            // Those that are taken by the kernel and heard by nobody would be waited for.
            shared.calls.take_if(|calls| self.waiter.add_shared(calls, TAKERS + socket as u64).is_err());
        }
        self.ports.push(port);
        Ok(socket)
    }

    /// Takes in who has connected.
    fn admit(&mut self) {
        for _ in 0..BATCH {
            match self.listener.as_ref().map(Listener::accept) {
                Some(Ok(Some(local))) => self.take_in(local),
                // Out of descriptors: to be told so again and again would help nobody.
                Some(Err(_)) => {
                    if let Some(listener) = self.listener.take() {
                        self.waiter.remove(&listener);
                    }
                }
                Some(Ok(None)) | None => return,
            }
        }
    }

    fn hear_client(&mut self, id: ClientId) {
        let now = self.now();
        let Some(at) = self.clients.iter().position(|client| client.id == id) else { return };
        if !self.read(at, now) {
            self.checker.handle_left(id);
            // A forked child may hold a duplicate, of which we would be told for ever.
            let client = self.clients.swap_remove(at);
            self.waiter.remove(&client.local);
        }
    }

    /// Reads requests; whether the client is still there.
    fn read(&mut self, at: usize, now: Instant) -> bool {
        let mut record = [0; REQUEST];
        for _ in 0..BATCH {
            let Client { id, local } = &self.clients[at];
            let id = *id;
            let request = match local.receive(&mut record) {
                Ok(Some((len, _))) => record.get(..len).and_then(Request::parse),
                Ok(None) => return true,
                Err(_) => return false,
            };
            match request {
                Some(Request::Join { process, at }) => match self.socket_on(at) {
                    Some(socket) => {
                        let port = self.ports[socket].prober.port();
                        self.checker.handle_joined(id, process, socket, port);
                    }
                    // It could not ask anything.
                    None => self.tell(id, &Reply::Joined { port: 0, key: [0; 16] }),
                },
                Some(Request::Share { at }) => self.share(id, at.ip()),
                Some(request) => self.checker.handle_request(id, &request, now),
                None => {}
            }
        }
        true
    }

    /// This process's own socket on an address, made if there is none yet.
    fn socket_on(&mut self, at: SocketAddr) -> Option<SocketId> {
        let own = |port: &Port| port.at == at.ip() && port.shared.is_none();
        if let Some(socket) = self.ports.iter().position(own) {
            return Some(socket);
        }
        let prober = Prober::open(at.ip(), at.port()).ok()?;
        self.open(Port { at: at.ip(), prober, shared: None }).ok()
    }

    /// Shares the agent's socket on an address with another process.
    fn share(&self, id: ClientId, at: IpAddr) {
        let here = self.ports.iter().filter(|port| port.at == at);
        let found = here.filter_map(|port| Some((&port.prober, port.shared.as_ref()?))).next();
        let Some(client) = self.clients.iter().find(|client| client.id == id) else { return };
        let (port, key) = found.map_or((0, [0; 16]), |(prober, shared)| (prober.port(), shared.key));
        let reply = Reply::Joined { port, key }.emit();
        let _ = client.local.send(&reply, found.map(|(prober, _)| prober.as_fd()));
        // A record takes one of them.
        let calls = found.and_then(|(_, shared)| shared.calls.as_ref());
        let _ = client.local.send(&reply, calls.map(AsFd::as_fd));
    }

    /// Other agents call.
    fn take_calls(&mut self, socket: SocketId) {
        let Some(shared) = self.ports.get_mut(socket).and_then(|port| port.shared.as_mut()) else { return };
        let Some(calls) = &shared.calls else { return };
        let (news, goes_on) = self.lines.take(socket, calls, &self.waiter);
        if !goes_on {
            // Out of descriptors: as with those of this node.
            self.waiter.remove(calls);
            shared.calls = None;
        }
        self.tell_news(news);
    }

    fn tell_news(&mut self, news: Vec<News>) {
        let now = self.now();
        for one in news {
            match one {
                News::Taken(nonce) => self.checker.handle_taken(nonce),
                News::Over(nonce, said) => self.checker.handle_hung_up(nonce, said.as_ref(), now),
                News::Question(number, socket, question) => {
                    let shared = self.ports.get(socket).and_then(|port| port.shared.as_ref());
                    let answer = shared.and_then(|shared| self.checker.handle_call(&question, &shared.key));
                    self.lines.answer(number, answer, &self.waiter);
                }
            }
        }
    }

    fn hear_network(&mut self, socket: SocketId) {
        let mut head = [0; probe::LEN];
        let place = self.place.as_deref();
        let lives = |process: Process| place.and_then(|place| place.lives(process));
        let Some(port) = self.ports.get(socket) else { return };
        let answers = port.shared.as_ref().map(|shared| Answers { key: &shared.key, lives: &lives });
        for _ in 0..BATCH {
            match port.prober.receive(&mut head) {
                Some(Heard::Datagram { length, from }) => {
                    let head = &head[..length.min(probe::LEN)];
                    self.checker.handle_datagram((socket, from), head, length, answers);
                }
                Some(Heard::Refused(at)) => self.checker.handle_refused(socket, at),
                Some(Heard::Noise) => {}
                None => break,
            }
        }
    }

    fn send(&mut self) {
        while let Some(output) = self.checker.poll_output() {
            match output {
                Output::Send { socket, to, head, length } => {
                    self.datagram[..probe::LEN].copy_from_slice(&head);
                    let bytes = &self.datagram[..length.min(self.datagram.len())];
                    self.ports[socket].prober.send(to, bytes);
                }
                Output::Call { nonce, socket, to, head } => {
                    let from = self.ports[socket].at;
                    if !self.lines.call(nonce, (from, to), head, &self.waiter) {
                        let now = self.now();
                        self.checker.handle_hung_up(nonce, None, now);
                    }
                }
                Output::HangUp { nonce } => self.lines.hang_up(nonce, &self.waiter),
                Output::Reply { client, reply } => self.tell(client, &reply),
            }
        }
    }

    /// A module that does not read its mail for long misses some: it takes that for no answer.
    fn tell(&self, client: ClientId, reply: &Reply) {
        if let Some(client) = self.clients.iter().find(|other| other.id == client) {
            let _ = client.local.send(&reply.emit(), None);
        }
    }
}

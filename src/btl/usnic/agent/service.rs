//! The agent's thread: the sockets around the [`Checker`].

use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::checker::{Checker, ClientId, Counts, Output, SocketId};
use super::mail::{REQUEST, Reply, Request};
use crate::engine::Instant;
use crate::link::{Clock, Heard, Life, Listener, Local, Prober, Waiter};
use crate::wire::probe;

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

/// A module's connection.
struct Client {
    id: ClientId,
    local: Local,
    life: Option<Life>,
    /// Its place in the list of what is waited for, and that of its process's life.
    places: (usize, Option<usize>),
}

/// A socket for the modules on one address.
struct Port {
    at: IpAddr,
    prober: Prober,
    place: usize,
}

/// Everything that the thread has.
pub(super) struct Service {
    /// `None` when the process can take nobody more in.
    listener: Option<Listener>,
    woken: UnixStream,
    clients: Vec<Client>,
    next_client: ClientId,
    ports: Vec<Port>,
    checker: Checker,
    counters: Arc<Counters>,
    clock: Clock,
    waiter: Waiter,
    /// A datagram on its way out; zeros but for its head.
    datagram: Vec<u8>,
}

impl Service {
    pub(super) fn new(
        listener: Listener,
        woken: UnixStream,
        key: probe::Key,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            listener: Some(listener),
            woken,
            clients: Vec::new(),
            next_client: 1,
            ports: Vec::new(),
            checker: Checker::new(key),
            counters,
            clock: Clock::new(),
            waiter: Waiter::new(),
            datagram: vec![0; probe::LONGEST as usize],
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.nanos())
    }

    /// Until the process has shut down the other end of `woken`.
    pub(super) fn run(mut self) {
        while !self.sleep() {
            self.hear_clients();
            self.admit();
            self.hear_network();
            let now = self.now();
            self.checker.handle_timeout(now);
            self.send();
            self.counters.set(self.checker.counts());
        }
    }

    /// Waits until there is something to do; whether that is to end.
    fn sleep(&mut self) -> bool {
        self.waiter.clear();
        let woken = self.waiter.add(&self.woken);
        if let Some(listener) = &self.listener {
            self.waiter.add(listener);
        }
        for client in &mut self.clients {
            let local = self.waiter.add(&client.local);
            client.places = (local, client.life.as_ref().map(|life| self.waiter.add(life)));
        }
        for port in &mut self.ports {
            port.place = self.waiter.add(&port.prober);
        }
        let now = self.now();
        let most = self.checker.next_timeout().map(|at| at - now);
        self.waiter.wait(most);
        self.waiter.is_ready(woken)
    }

    /// Takes in who has connected. Looked at every time: its place in the list would be one more thing
    /// to keep.
    fn admit(&mut self) {
        for _ in 0..BATCH {
            match self.listener.as_ref().map(Listener::accept) {
                Some(Ok(Some(local))) => {
                    let life = local.life();
                    self.clients.push(Client {
                        id: self.next_client,
                        local,
                        life,
                        places: (usize::MAX, None),
                    });
                    self.next_client += 1;
                }
                // Out of descriptors: to be told so again and again would help nobody.
                Some(Err(_)) => self.listener = None,
                Some(Ok(None)) | None => return,
            }
        }
    }

    fn hear_clients(&mut self) {
        let now = self.now();
        let mut at = 0;
        while let Some(client) = self.clients.get(at) {
            let has_ended = client.places.1.is_some_and(|place| self.waiter.is_ready(place));
            let has_mail = self.waiter.is_ready(client.places.0);
            let id = client.id;
            if has_ended || has_mail && !self.read(at, now) {
                self.checker.handle_left(id);
                self.clients.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Reads a module's requests; whether it is still there.
    fn read(&mut self, at: usize, now: Instant) -> bool {
        let mut record = [0; REQUEST];
        for _ in 0..BATCH {
            let Client { id, local, .. } = &self.clients[at];
            let id = *id;
            let request = match local.receive(&mut record) {
                Ok(Some(len)) => record.get(..len).and_then(Request::parse),
                Ok(None) => return true,
                Err(_) => return false,
            };
            match request {
                Some(Request::Join { process, at }) => match self.socket_on(at) {
                    Some(socket) => {
                        let port = self.ports[socket].prober.port();
                        self.checker.handle_joined(id, process, socket, port);
                    }
                    // Nobody can ask about it, so it need not be known.
                    None => self.tell(id, &Reply::Joined { port: 0, key: [0; 16] }),
                },
                Some(request) => self.checker.handle_request(id, &request, now),
                None => {}
            }
        }
        true
    }

    /// The socket on an address, made if there is none yet.
    fn socket_on(&mut self, at: SocketAddr) -> Option<SocketId> {
        if let Some(socket) = self.ports.iter().position(|port| port.at == at.ip()) {
            return Some(socket);
        }
        let prober = Prober::open(at.ip(), at.port()).ok()?;
        self.ports.push(Port { at: at.ip(), prober, place: usize::MAX });
        Some(self.ports.len() - 1)
    }

    fn hear_network(&mut self) {
        let mut head = [0; probe::LEN];
        for (socket, port) in self.ports.iter().enumerate() {
            if !self.waiter.is_ready(port.place) {
                continue;
            }
            for _ in 0..BATCH {
                match port.prober.receive(&mut head) {
                    Some(Heard::Datagram { length, from }) => {
                        let head = &head[..length.min(probe::LEN)];
                        self.checker.handle_datagram(socket, from, head, length);
                    }
                    Some(Heard::Refused(at)) => self.checker.handle_refused(socket, at),
                    Some(Heard::Noise) => {}
                    None => break,
                }
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
                Output::Reply { client, reply } => self.tell(client, &reply),
            }
        }
    }

    /// A module that does not read its mail for long misses some: it takes that for no answer.
    fn tell(&self, client: ClientId, reply: &Reply) {
        if let Some(client) = self.clients.iter().find(|other| other.id == client) {
            let _ = client.local.send(&reply.emit());
        }
    }
}

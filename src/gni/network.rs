//! [`Network`]: the streams between this node and others, and who may open one.
//!
//! A mailbox between nodes has a number and a token here, which its peer alone is told. Of the two sides that of the lesser
//! token connects, and greets with number and token of the other; who has connected and does not greet so is dropped.
//! Streams are in a set of descriptors of their own, which tells once of everything that comes.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, sockopt};

use crate::sync::fork::Own;
use crate::wire::gni::stream::{GREETING, Greeting, TOKEN, same_token};

/// Connections that have not greeted yet, at most: the oldest makes room.
const PENDING: usize = 64;
/// Connections that are accepted at a time.
const TURN: usize = 64;
/// Streams that are told of at a time.
pub const MOST: usize = 32;
/// How long a mailbox waits for its stream, nanoseconds.
const PATIENCE: u64 = 60_000_000_000;
/// How often a peer that nothing is heard of is asked in half the time that it may be silent, about.
const QUESTIONS: u32 = 6;
/// For how long none is asked at most, seconds; the kernel takes no more.
const IDLE: u32 = 32_767;
/// By which descriptors that are not streams are told apart from numbers of mailboxes.
const LISTENER: u64 = 1 << 32;

struct Listener {
    address: Ipv4Addr,
    port: u16,
    _own: Own,
    socket: OwnedFd,
}

/// A connection that has not greeted yet.
struct Pending {
    own: Own,
    socket: OwnedFd,
    bytes: [u8; GREETING],
    come: usize,
}

/// A mailbox that has no stream yet.
struct Expected {
    token: [u8; TOKEN],
    /// Since when it is waited for.
    since: Option<u64>,
}

/// The streams of a domain.
pub struct Network {
    listeners: Vec<Listener>,
    /// Where connections begin; and streams.
    begins: OwnedFd,
    streams: OwnedFd,
    pending: Vec<Pending>,
    expected: HashMap<u32, Expected>,
    last: u32,
    strangers: u64,
    /// How long peers may be silent, seconds.
    silence: u32,
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?)
}

/// Nothing waits for more to be sent, and a peer to which nothing is on its way is asked whether it is there, and is gone when
/// it was silent for so many seconds. One to which something is, [`silence`](super::silence) sees to.
fn prepare(socket: &OwnedFd, silence: u32) -> io::Result<()> {
    let idle = (silence / 2).clamp(1, IDLE);
    let interval = ((silence - idle) / QUESTIONS).max(1);
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(idle.into()))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(interval.into()))?;
    Ok(sockopt::set_tcp_keepcnt(socket, ((silence - idle) / interval).max(1))?)
}

impl Network {
    /// One without streams, whose peers are gone when they were silent for so many seconds.
    ///
    /// # Errors
    /// Of `epoll_create1(2)`.
    pub fn new(silence: u32) -> io::Result<Self> {
        let set = || epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(Self {
            listeners: Vec::new(),
            begins: set()?,
            streams: set()?,
            pending: Vec::new(),
            expected: HashMap::new(),
            last: 0,
            strangers: 0,
            silence,
        })
    }

    /// How long peers may be silent, nanoseconds.
    pub fn silence(&self) -> u64 {
        u64::from(self.silence) * 1_000_000_000
    }

    /// What is readable when a connection begins.
    pub fn begins(&self) -> BorrowedFd<'_> {
        self.begins.as_fd()
    }

    /// What is readable when something has happened to a stream.
    pub fn streams(&self) -> BorrowedFd<'_> {
        self.streams.as_fd()
    }

    /// Takes connections at an address of this node from now on; the port there.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn listen(&mut self, address: Ipv4Addr) -> io::Result<u16> {
        if let Some(known) = self.listeners.iter().find(|known| known.address == address) {
            return Ok(known.port);
        }
        let socket = socket()?;
        rustix::net::bind(&socket, &SocketAddrV4::new(address, 0))?;
        rustix::net::listen(&socket, 1024)?;
        let port = SocketAddrV4::try_from(rustix::net::getsockname(&socket)?)?.port();
        epoll::add(&self.begins, &socket, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        self.listeners.push(Listener { address, port, _own: Own::new(&socket), socket });
        Ok(port)
    }

    /// A mailbox for which a stream may come: its number.
    pub fn expect(&mut self, token: [u8; TOKEN]) -> u32 {
        // Four thousand million are more than a domain sees.
        self.last += 1;
        self.expected.insert(self.last, Expected { token, since: None });
        self.last
    }

    /// Its stream is to come from now on.
    pub fn wait_for(&mut self, number: u32, now: u64) {
        if let Some(expected) = self.expected.get_mut(&number) {
            expected.since = Some(now);
        }
    }

    /// No stream is to come any more.
    pub fn forget(&mut self, number: u32) {
        self.expected.remove(&number);
    }

    /// Mailboxes whose stream was waited for in vain.
    pub fn overdue(&self, now: u64) -> Vec<u32> {
        let is_over = |expected: &Expected| expected.since.is_some_and(|since| now - since > PATIENCE);
        self.expected.iter().filter(|(_, expected)| is_over(expected)).map(|(number, _)| *number).collect()
    }

    /// Connects a mailbox of this side, from an address of this node.
    ///
    /// # Errors
    /// What the system does not give. That nobody answers is heard of later.
    pub fn connect(&mut self, number: u32, from: Ipv4Addr, to: SocketAddrV4) -> io::Result<OwnedFd> {
        let socket = socket()?;
        prepare(&socket, self.silence)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(from, 0))?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.expected.remove(&number);
        self.add(number, &socket)?;
        Ok(socket)
    }

    fn add(&self, number: u32, socket: &OwnedFd) -> io::Result<()> {
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        Ok(epoll::add(&self.streams, socket, epoll::EventData::new_u64(number.into()), flags)?)
    }

    /// Takes what connects, and hands the streams of those who have greeted to `hear`, with the number of their mailbox.
    pub fn accept(&mut self, mut hear: impl FnMut(u32, OwnedFd)) {
        let mut taken = 0;
        for listener in &self.listeners {
            while taken < TURN {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket = match rustix::net::accept_with(&listener.socket, flags) {
                    Ok(socket) => socket,
                    Err(Errno::INTR | Errno::CONNABORTED) => continue,
                    Err(_) => break,
                };
                taken += 1;
                let data = epoll::EventData::new_u64(LISTENER);
                let is_fit = epoll::add(&self.begins, &socket, data, epoll::EventFlags::IN).is_ok();
                if !is_fit || prepare(&socket, self.silence).is_err() {
                    continue;
                }
                if self.pending.len() == PENDING {
                    self.pending.remove(0);
                    self.strangers += 1;
                }
                self.pending.push(Pending { own: Own::new(&socket), socket, bytes: [0; GREETING], come: 0 });
            }
        }
        for mut pending in std::mem::take(&mut self.pending) {
            match pending.read() {
                None => self.pending.push(pending),
                Some(greeting) => {
                    let _ = epoll::delete(&self.begins, &pending.socket);
                    let known = greeting.filter(|greeting| self.is_expected(greeting));
                    let known = known.filter(|greeting| self.add(greeting.number, &pending.socket).is_ok());
                    match known {
                        Some(greeting) => {
                            self.expected.remove(&greeting.number);
                            let Pending { own, socket, .. } = pending;
                            hear(greeting.number, socket);
                            drop(own);
                        }
                        None => self.strangers += 1,
                    }
                }
            }
        }
    }

    fn is_expected(&self, greeting: &Greeting) -> bool {
        let expected = self.expected.get(&greeting.number);
        expected.is_some_and(|expected| same_token(&expected.token, &greeting.token))
    }

    /// Hands the numbers of mailboxes to whose streams something has happened to `hear`; whether there may be more.
    pub fn happened(&self, hear: &mut Vec<u32>) -> bool {
        let mut events = [const { MaybeUninit::uninit() }; MOST];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.streams, &mut events, Some(&now)) else { return false };
        hear.extend(events.iter().map(|event| event.data.u64() as u32));
        events.len() == MOST
    }

    /// Connections that were dropped because they did not greet, or not rightly.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }
}

impl Pending {
    /// Reads the greeting: `None` while it is not there, and nothing in it where it is none.
    fn read(&mut self) -> Option<Option<Greeting>> {
        loop {
            match rustix::net::recv(&self.socket, &mut self.bytes[self.come..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Some(None),
                Ok((come, _)) => {
                    self.come += come;
                    if self.come == GREETING {
                        return Some(Greeting::parse(&self.bytes));
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Err(_) => return Some(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::Stream;
    use super::*;
    use crate::link::{Clock, Lent, stream};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::Write;
    use std::net::TcpStream;

    const TOKEN_OF_ONE: [u8; TOKEN] = [1; TOKEN];

    fn network() -> (Network, SocketAddrV4) {
        let mut network = Network::new(9).expect("a set");
        let port = network.listen(Ipv4Addr::LOCALHOST).expect("a port");
        assert_eq!(network.listen(Ipv4Addr::LOCALHOST).expect("the same"), port);
        (network, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
    }

    fn wait(descriptor: BorrowedFd<'_>) {
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).expect("readable");
    }

    /// Who comes within what one side says; as soon as something does.
    fn accepted(network: &mut Network) -> Vec<u32> {
        wait(network.begins());
        let mut all = Vec::new();
        network.accept(|number, _| all.push(number));
        all
    }

    fn greeting(number: u32, token: [u8; TOKEN]) -> [u8; GREETING] {
        Greeting { number, token }.emit()
    }

    #[test]
    fn who_greets_rightly_has_the_stream_and_only_once() {
        let (mut network, at) = network();
        let number = network.expect(TOKEN_OF_ONE);
        let mut peer = TcpStream::connect(at).expect("connected");
        peer.write_all(&greeting(number, TOKEN_OF_ONE)).expect("sent");
        let mut all = Vec::new();
        while all.is_empty() {
            all = accepted(&mut network);
        }
        assert_eq!((all, network.strangers()), (vec![number], 0));
        let mut another = TcpStream::connect(at).expect("connected");
        another.write_all(&greeting(number, TOKEN_OF_ONE)).expect("sent");
        while network.strangers() == 0 {
            assert_eq!(accepted(&mut network), []);
        }
    }

    #[test]
    fn who_does_not_is_dropped_and_counted() {
        let (mut network, at) = network();
        let number = network.expect(TOKEN_OF_ONE);
        let wrong = [
            greeting(number, [2; TOKEN]).to_vec(),
            greeting(number + 1, TOKEN_OF_ONE).to_vec(),
            vec![b'G'; 4096],
            Vec::new(),
        ];
        for (count, bytes) in wrong.iter().enumerate() {
            let mut peer = TcpStream::connect(at).expect("connected");
            peer.write_all(bytes).expect("sent");
            drop(peer);
            while network.strangers() == count as u64 {
                assert_eq!(accepted(&mut network), []);
            }
        }
        assert!(network.pending.is_empty() && network.expected.contains_key(&number));
    }

    #[test]
    fn who_says_nothing_makes_room_for_others() {
        let (mut network, at) = network();
        let number = network.expect(TOKEN_OF_ONE);
        let silent: Vec<TcpStream> =
            (0..PENDING + 3).map(|_| TcpStream::connect(at).expect("connected")).collect();
        while network.strangers() < 3 {
            assert_eq!(accepted(&mut network), []);
        }
        let mut peer = TcpStream::connect(at).expect("connected");
        peer.write_all(&greeting(number, TOKEN_OF_ONE)).expect("sent");
        let mut all = Vec::new();
        while all.is_empty() {
            all = accepted(&mut network);
        }
        assert_eq!(all, [number]);
        drop(silent);
    }

    #[test]
    fn who_does_not_answer_is_silent_and_who_does_not_read_is_not() {
        let mut network = Network::new(86_400).expect("a set");
        let (clock, pause) = (Clock::new(), Timespec { tv_sec: 0, tv_nsec: 50_000_000 });
        let start = clock.nanos();
        let full = socket().expect("a socket");
        rustix::net::bind(&full, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("bound");
        rustix::net::listen(&full, 0).expect("listening");
        let at = SocketAddrV4::try_from(rustix::net::getsockname(&full).expect("a name")).expect("of IPv4");
        let mut called = |at| {
            let number = network.expect(TOKEN_OF_ONE);
            let socket = network.connect(number, Ipv4Addr::LOCALHOST, at).expect("calling");
            Stream::new(socket, &[])
        };
        // Its first one has the only place: nobody takes it, and whoever calls besides is not answered.
        let mut first = called(at);
        let mut others = [(); 3].map(|()| called(at));
        let mut bytes = vec![0; 60_000];
        while first.push(1, [stream::lend(&mut bytes), Lent::EMPTY]) {}
        let (mut waited, mut silent) = (0, 0);
        while silent < 3_000_000_000 {
            let _ = poll(&mut [], Some(&pause));
            let now = clock.nanos();
            waited = waited.max(first.silence(now).expect("something is on its way"));
            silent = others.iter_mut().filter_map(|other| other.silence(now)).max().unwrap_or(0);
            assert!(now - start < 60_000_000_000, "{silent}");
        }
        assert!(waited < 2_000_000_000, "{waited}");
        let standing = stream::standing(first.descriptor()).expect("it waits to be on its way");
        assert!(!standing.is_opening && !standing.is_unacknowledged && standing.heard < 60_000_000_000);
    }

    #[test]
    fn a_stream_tells_once_of_what_comes() {
        let (mut network, at) = network();
        let (one, two) = (network.expect(TOKEN_OF_ONE), network.expect([2; TOKEN]));
        let from = network.connect(one, Ipv4Addr::LOCALHOST, at).expect("connecting");
        assert_eq!(network.overdue(u64::MAX), [], "that was not waited for");
        network.wait_for(two, 5);
        assert_eq!((network.overdue(PATIENCE + 5), network.overdue(PATIENCE + 6)), (vec![], vec![two]));
        wait(network.streams());
        let mut all = Vec::new();
        assert!(!network.happened(&mut all));
        assert_eq!(all, [one], "it is connected");
        all.clear();
        network.happened(&mut all);
        assert_eq!(all, []);
        rustix::io::write(&from, &greeting(two, [2; TOKEN])).expect("sent");
        let mut taken = None;
        while taken.is_none() {
            wait(network.begins());
            network.accept(|number, socket| taken = Some((number, socket)));
        }
        let (number, socket) = taken.expect("taken");
        assert_eq!(number, two);
        while network.happened(&mut all) {}
        all.clear();
        rustix::io::write(&socket, b"x").expect("sent");
        wait(network.streams());
        network.happened(&mut all);
        assert!(all.contains(&one));
    }
}

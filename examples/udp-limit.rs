//! The physical limit: what bare UDP does between two processes, and what the socket link makes of it.
//!
//!     udp-limit ADDRESS                    both processes here, on one address
//!     udp-limit serve ADDRESS:PORT         one process, which waits for the other
//!     udp-limit ADDRESS ADDRESS:PORT       the other, from an address of its own
//!
//! Prints half round trips (least and median, in microseconds) by size, of bare connected sockets that
//! are polled and of the link's priority channel; then megabytes per second of a one-way stream by
//! datagram size, cut and joined by the kernel where it can, bare and by the link's data channel. The
//! orders go over TCP; the stream is kept within a window that the receiver's buffer holds.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hawser::link::{AddressId, Channel, Inbox, Interface, Lent, Link, Options, Socket};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 5000;
const STREAM: Duration = Duration::from_millis(700);
/// Bytes under way; a buffer of 8 MiB in the kernel's accounting holds them in any size from 1400 on.
const WINDOW: u64 = 1 << 20;
/// Bytes over which the best rate of a stream is taken.
const STRETCH: u64 = 8 << 20;
const PINGS: [usize; 8] = [8, 64, 256, 1024, 1472, 4096, 8192, 65507];
const CHUNKS: [usize; 5] = [1472, 4096, 8972, 32768, 65507];

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", at] => serve(&TcpListener::bind(at)?),
        [address] => {
            let address: IpAddr = address.parse()?;
            let at = TcpListener::bind((address, 0))?.local_addr()?;
            let mut server = Command::new(std::env::current_exe()?)
                .args(["serve", &at.to_string()])
                .stdout(Stdio::piped())
                .spawn()?;
            let mut ready = String::new();
            BufReader::new(server.stdout.take().ok_or("no pipe")?).read_line(&mut ready)?;
            let result = measure(address, at);
            server.wait()?;
            result
        }
        [address, peer] => measure(address.parse()?, peer.parse()?),
        _ => Err("usage: udp-limit ADDRESS | serve ADDRESS:PORT | ADDRESS ADDRESS:PORT".into()),
    }
}

/// One end of a measurement: sends and receives datagrams.
trait End {
    fn send(&mut self, bytes: &mut [u8], size: usize) -> Outcome;
    /// Calls with the length and the first bytes of each datagram or joined run; false if none came.
    fn receive(&mut self, take: &mut dyn FnMut(usize, &[u8])) -> Outcome<bool>;
    fn largest(&self) -> usize;
}

/// Bare connected sockets.
struct Bare {
    socket: UdpSocket,
    offload: bool,
    joins: bool,
    buffer: Vec<u8>,
    mtu: usize,
}

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) -> bool {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: an open socket; the value is read during the call.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) == 0 }
}

impl Bare {
    fn open(address: IpAddr) -> Outcome<Self> {
        let mtu = interface(address)?.mtu;
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        if !set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 4 << 20) {
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20);
        }
        let offload = set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
        Ok(Self { socket, offload, joins: false, buffer: vec![0; 65536], mtu })
    }

    /// For the stream: lets the kernel cut what is sent and join what is received.
    fn streaming(&mut self, size: usize) {
        if self.offload {
            let cut = if size * 2 <= 65507 { size as i32 } else { 0 };
            set(&self.socket, libc::SOL_UDP, libc::UDP_SEGMENT, cut);
            self.joins = set(&self.socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
    }
}

impl End for Bare {
    fn send(&mut self, bytes: &mut [u8], size: usize) -> Outcome {
        let at_once = if self.joins && size * 2 <= 65507 { (65507 / size).min(64) * size } else { size };
        for part in bytes.chunks(at_once) {
            while let Err(error) = self.socket.send(part) {
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS) => {}
                    // Of an earlier run, whose receiver is gone.
                    Some(libc::ECONNREFUSED) => {}
                    _ => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, take: &mut dyn FnMut(usize, &[u8])) -> Outcome<bool> {
        match self.socket.recv(&mut self.buffer) {
            Ok(len) => {
                take(len, &self.buffer[..len]);
                Ok(true)
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ECONNREFUSED)) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn largest(&self) -> usize {
        let headers = if self.socket.local_addr().is_ok_and(|own| own.is_ipv4()) { 28 } else { 48 };
        (self.mtu - headers).min(65535 - headers)
    }
}

/// The link under test.
struct Linked {
    link: Socket,
    inbox: Inbox,
    peer: Option<AddressId>,
    channel: Channel,
}

impl End for Linked {
    fn send(&mut self, bytes: &mut [u8], size: usize) -> Outcome {
        let peer = self.peer.ok_or("no peer yet")?;
        if bytes.len() <= size {
            self.link.post(self.channel, peer, bytes, &[]);
        } else {
            // SAFETY: the bytes stay, untouched, until the flush below.
            let all = unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) };
            let mut at = 0;
            while at < bytes.len() {
                let len = size.min(bytes.len() - at);
                if self.link.post(self.channel, peer, &[], &[all.slice(at, len)]) {
                    at += len;
                } else {
                    self.link.flush();
                }
            }
        }
        self.link.flush();
        while self.link.queued() > 0 {
            self.link.flush();
        }
        Ok(())
    }

    fn receive(&mut self, take: &mut dyn FnMut(usize, &[u8])) -> Outcome<bool> {
        let some = self.link.poll(self.channel, &mut self.inbox) > 0;
        while let Some(datagram) = self.inbox.pop() {
            take(datagram.len(), &datagram);
        }
        Ok(some)
    }

    fn largest(&self) -> usize {
        self.link.limits().max_datagram[self.channel as usize]
    }
}

fn interface(address: IpAddr) -> Outcome<Interface> {
    let all = Interface::all()?;
    // Every address of the loopback network is one of this host.
    let is_it = |one: &Interface| {
        one.address == address
            || (one.is_loopback && address.is_loopback() && one.address.is_ipv4() == address.is_ipv4())
    };
    let found = all.into_iter().find(is_it).ok_or("no interface has this address")?;
    Ok(Interface { address, ..found })
}

/// The TCP connection for orders.
struct Orders {
    lines: BufReader<TcpStream>,
}

impl Orders {
    fn new(stream: TcpStream) -> Outcome<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { lines: BufReader::new(stream) })
    }

    fn say(&mut self, line: &str) -> Outcome {
        Ok(self.lines.get_mut().write_all(format!("{line}\n").as_bytes())?)
    }

    fn hear(&mut self) -> Outcome<Vec<String>> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err("the other process is gone".into());
        }
        Ok(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Whether the other side has said something; does not wait.
    fn is_called(&self) -> bool {
        let mut poll =
            libc::pollfd { fd: self.lines.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) != 0 }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Outcome<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().collect();
    digits.chunks(2).map(|two| Ok(u8::from_str_radix(std::str::from_utf8(two)?, 16)?)).collect()
}

/// Opens an end of the kind and exchanges names.
fn open(kind: &str, address: IpAddr, size: usize, orders: &mut Orders) -> Outcome<Box<dyn End>> {
    match kind {
        "bare-ping" | "bare-stream" => {
            let mut bare = Bare::open(address)?;
            orders.say(&bare.socket.local_addr()?.to_string())?;
            let peer: SocketAddr = orders.hear()?.first().ok_or("no address")?.parse()?;
            bare.socket.connect(peer)?;
            if kind == "bare-stream" {
                bare.streaming(size);
            }
            Ok(Box::new(bare))
        }
        _ => {
            let mut link = Socket::open(&interface(address)?, &Options::default())?;
            orders.say(&hex(&link.name()))?;
            let name = unhex(orders.hear()?.first().ok_or("no name")?)?;
            let peer = Some(link.resolve(&name)?);
            let channel = if kind == "link-ping" { Channel::Priority } else { Channel::Data };
            Ok(Box::new(Linked { link, inbox: Inbox::new(), peer, channel }))
        }
    }
}

fn serve(listener: &TcpListener) -> Outcome {
    println!("ready");
    let (stream, _) = listener.accept()?;
    let address = stream.local_addr()?.ip();
    let mut orders = Orders::new(stream)?;
    loop {
        let order = orders.hear()?;
        let (kind, size) = match &order[..] {
            [kind, size] => (kind.as_str(), size.parse()?),
            _ => return Ok(()),
        };
        let mut end = open(kind, address, size, &mut orders)?;
        let mut bytes = vec![7; size];
        let (mut received, mut reported, mut turns) = (0_u64, 0, 0_u32);
        let is_ping = kind.ends_with("ping");
        loop {
            let some = end.receive(&mut |len, _| received += len as u64)?;
            if some && is_ping {
                end.send(&mut bytes, size)?;
            } else if received >= reported + WINDOW / 8 || (!some && received > reported) {
                reported = received;
                end.send(&mut received.to_le_bytes(), size.max(8))?;
            }
            turns = turns.wrapping_add(1);
            if !some && turns.is_multiple_of(64) && orders.is_called() {
                break;
            }
        }
        orders.hear()?;
    }
}

fn ping(end: &mut dyn End, size: usize) -> Outcome<(f64, f64)> {
    let mut bytes = vec![3; size];
    let mut halves = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        end.send(&mut bytes, size)?;
        while !end.receive(&mut |_, _| ())? {
            if start.elapsed() > Duration::from_millis(200) {
                end.send(&mut bytes, size)?;
                break;
            }
        }
        halves.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    halves.sort_by(f64::total_cmp);
    Ok((halves[0], halves[ROUNDS / 2]))
}

fn stream(end: &mut dyn End, size: usize) -> Outcome<(f64, f64)> {
    let batch = (WINDOW as usize / 4 / size).clamp(1, 64) * size;
    let mut bytes = vec![5; batch];
    let (mut sent, mut acked, mut lost) = (0_u64, 0_u64, 0_u64);
    let (start, mut heard) = (Instant::now(), Instant::now());
    // The best stretch counts: in others somebody else had the processor.
    let (mut since, mut from, mut best) = (start, 0, 0.0_f64);
    while start.elapsed() < STREAM {
        if sent - lost - acked + batch as u64 <= WINDOW {
            end.send(&mut bytes, size)?;
            sent += batch as u64;
        }
        let mut newest = acked;
        end.receive(&mut |_, report| {
            newest = newest.max(report.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)))
        })?;
        if newest > acked {
            (acked, heard) = (newest, Instant::now());
            if acked - from >= STRETCH {
                best = best.max((acked - from) as f64 / since.elapsed().as_secs_f64() / 1e6);
                (since, from) = (heard, acked);
            }
        } else if heard.elapsed() > Duration::from_millis(20) && acked < sent - lost {
            (lost, heard) = (sent - acked, Instant::now());
        }
    }
    if lost > 0 {
        eprintln!("# {lost} of {sent} bytes lost at {size}");
    }
    Ok((best, acked as f64 / start.elapsed().as_secs_f64() / 1e6))
}

fn measure(address: IpAddr, peer: SocketAddr) -> Outcome {
    let connect = || {
        (0..1000)
            .find_map(|_| TcpStream::connect(peer).ok())
            .ok_or("nobody serves there; udp-limit serve first")
    };
    let mut orders = Orders::new(connect()?)?;
    let mut run = |kind: &str, size: usize, job: &mut dyn FnMut(&mut dyn End) -> Outcome| -> Outcome {
        orders.say(&format!("{kind} {size}"))?;
        let mut end = open(kind, address, size, &mut orders)?;
        let result = if size <= end.largest() { job(&mut *end) } else { Ok(()) };
        orders.say("enough")?;
        result
    };
    println!("half round trip, us     bare min    p50   link min    p50   ratio of min");
    for size in PINGS {
        let mut found = Vec::new();
        for kind in ["bare-ping", "link-ping"] {
            run(kind, size, &mut |end| {
                found.push(ping(end, size)?);
                Ok(())
            })?;
        }
        if let [bare, link] = found[..] {
            let ratio = link.0 / bare.0;
            println!(
                "{size:>20} {:>11.2} {:>6.2} {:>10.2} {:>6.2} {ratio:>14.2}",
                bare.0, bare.1, link.0, link.1
            );
        }
    }
    println!("stream, MB/s          bare best   mean  link best   mean  ratio of best");
    for size in CHUNKS {
        let mut found = Vec::new();
        for kind in ["bare-stream", "link-stream"] {
            run(kind, size, &mut |end| {
                found.push(stream(end, size)?);
                Ok(())
            })?;
        }
        if let [bare, link] = found[..] {
            let ratio = link.0 / bare.0;
            println!(
                "{size:>20} {:>11.0} {:>6.0} {:>10.0} {:>6.0} {ratio:>14.2}",
                bare.0, bare.1, link.0, link.1
            );
        }
    }
    orders.say("quit")
}

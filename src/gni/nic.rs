//! [`Nic`]: the network interface of a domain.
//!
//! It has a segment of shared memory, and there a ring for each connection by which it writes to the peer. A mailbox is
//! that ring and the one by which the peer writes, in the peer's segment: both sides read what the other has written
//! where it lies. What a peer has told of its segment is believed only when the kernel has opened it as its process's,
//! and only processes of this user can be opened.
//!
//! Rings that are used much are looked at each time; for the others the bell of the segment is rung. Whoever sleeps is
//! woken by the alarm of his segment.
//!
//! A mailbox between nodes is a [stream](super::stream) of the domain's [network](super::network).

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;

use super::mailbox::{Far, Mailbox, Near, Peer, Side};
use super::network::Network;
use super::stream::{Stream, is_no_way};
use crate::error::{Error, Result};
use crate::shm::{
    Alarm, Anchor, Bell, Claim, Identity, Lifeline, NONCE, Probe, SLOTS, Segment, Sender, Shared, Watch,
    allow_peers, has_ended,
};
use crate::wire::gni::datagram::{Attributes, Segment as Place};
use crate::wire::gni::stream::Greeting;

/// The segment of a peer, and how many mailboxes are in it.
struct Known {
    /// By which it is watched.
    number: u32,
    shared: Shared,
    bell: Bell,
    lifeline: Lifeline,
    place: Place,
    pid: u32,
    uses: usize,
    /// Its process has ended, or goes on as another program.
    is_over: bool,
}

/// A ring whose connection is over, and which its reader may still read.
struct Left {
    ring: usize,
    sender: Sender,
    /// The segment of the reader, and the ring by which it has written.
    life: [u8; NONCE],
    back: usize,
}

/// The interface of a domain.
pub struct Nic {
    segment: Segment,
    alarm: Alarm,
    /// Breaks with this, after [its end](Segment::end) was said, or without that with the program.
    _anchor: Anchor,
    probe: Probe,
    shown: [u8; 16],
    free: Vec<(usize, Sender)>,
    left: Vec<Left>,
    peers: HashMap<[u8; NONCE], Known>,
    watch: Watch,
    /// The number that was given last to a segment that is watched.
    watched: u32,
    serial: u64,
    network: Option<Network>,
}

fn random_bytes() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    for word in bytes.as_chunks_mut::<8>().0 {
        let random = crate::link::random()
            .map_err(|error| Error::System(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        *word = random.to_ne_bytes();
    }
    Ok(bytes)
}

impl Nic {
    /// Makes one.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn make() -> Result<Self> {
        let shown = random_bytes()?;
        allow_peers();
        let segment = Segment::make(random_bytes()?)?;
        Ok(Self {
            alarm: Alarm::of(&segment)?,
            _anchor: Anchor::of(&segment)?,
            segment,
            probe: Probe::new(shown),
            shown,
            free: Vec::new(),
            left: Vec::new(),
            peers: HashMap::new(),
            watch: Watch::default(),
            watched: 0,
            serial: 0,
            network: None,
        })
    }

    /// By what peers can see whether they can read the memory of this process: where these bytes are.
    pub fn probe(&self) -> (u64, [u8; 16]) {
        (self.probe.address(), self.shown)
    }

    /// A mailbox for a new connection; `None` where there is none left.
    pub fn mailbox(&mut self) -> Option<Mailbox> {
        if self.free.is_empty() && !self.left.is_empty() {
            self.renew();
        }
        let (ring, sender) = self.free.pop().or_else(|| self.segment.sender())?;
        Some(Mailbox::of(Side::Near(Near { ring, sender, peer: None })))
    }

    /// Other nodes reach mailboxes at an address of this one from now on, and are gone when they were silent for so many
    /// seconds.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn listen(&mut self, address: Ipv4Addr, silence: u32) -> std::io::Result<()> {
        if self.network.is_none() {
            self.network = Some(Network::new(silence)?);
        }
        self.network.as_mut().map_or(Ok(0), |network| network.listen(address)).map(|_| ())
    }

    /// No mailbox is reached from other nodes.
    pub fn close_network(&mut self) {
        self.network = None;
    }

    /// The streams to other nodes, where there may be any.
    pub fn network(&mut self) -> Option<&mut Network> {
        self.network.as_mut()
    }

    /// The same, to look at.
    pub fn streams(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// A mailbox for a connection with another node, which reaches it at this address; `None` where there is none.
    pub fn far_mailbox(&mut self, address: Ipv4Addr) -> Option<Mailbox> {
        let token = random_bytes().ok()?;
        let network = self.network.as_mut()?;
        let port = network.listen(address).ok()?;
        let number = network.expect(token);
        let at = SocketAddrV4::new(address, port);
        Some(Mailbox::of(Side::Far(Far {
            number,
            token,
            at,
            is_attached: false,
            way: None,
            stream: None,
            is_unreached: false,
        })))
    }

    /// Connects a mailbox to one of another node, whose address has been proved: of the two sides one does, and the other
    /// waits.
    ///
    /// # Errors
    /// What the system does not give, or the peer has told of no such mailbox.
    pub fn attach_far(
        &mut self,
        mailbox: &mut Mailbox,
        (attributes, device): (&Attributes, u32),
        now: u64,
    ) -> Result<()> {
        let (Side::Far(far), Some(network)) = (&mut mailbox.side, &mut self.network) else {
            return Err(Error::BadParameter);
        };
        let address = attributes.address.to_ipv4_mapped().filter(|address| address.to_bits() == device);
        let address = address.filter(|_| attributes.port != 0).ok_or(Error::Unreachable)?;
        let greeting = Greeting { number: attributes.ring, token: attributes.segment.nonce };
        far.is_attached = true;
        if far.token >= greeting.token {
            network.wait_for(far.number, now);
            return Ok(());
        }
        far.way = Some((SocketAddrV4::new(address, attributes.port), greeting.emit()));
        self.connect_far(mailbox)
    }

    /// Opens the stream of a mailbox that is [attached](Self::attach_far), or another where there was none. Where the
    /// network has no way to the peer, the mailbox [says so](Mailbox::is_unreached), and it is to be tried again.
    ///
    /// # Errors
    /// What the system does not give, or it is the peer that connects.
    pub fn connect_far(&mut self, mailbox: &mut Mailbox) -> Result<()> {
        let (Side::Far(far), Some(network)) = (&mut mailbox.side, &mut self.network) else {
            return Err(Error::BadParameter);
        };
        let (to, greeting) = far.way.ok_or(Error::BadParameter)?;
        far.stream = None;
        let called = network.connect(far.number, *far.at.ip(), to);
        far.is_unreached = called.as_ref().is_err_and(is_no_way);
        match called {
            Ok(socket) => far.stream = Some(Box::new(Stream::new(socket, &greeting))),
            Err(_) if far.is_unreached => {}
            Err(error) => return Err(Error::System(error.raw_os_error().unwrap_or(libc::EIO))),
        }
        Ok(())
    }

    /// What the peer is to be told of a mailbox.
    pub fn attributes(&self, mailbox: &Mailbox) -> Attributes {
        let ring = match &mailbox.side {
            Side::Near(near) => near.ring as u32,
            Side::Far(far) => {
                return Attributes {
                    segment: Place { nonce: far.token, ..Place::default() },
                    ring: far.number,
                    address: far.at.ip().to_ipv6_mapped(),
                    port: far.at.port(),
                    depth: 0,
                    capabilities: 0,
                };
            }
        };
        let Identity { pid, descriptor, device, inode, nonce } = *self.segment.identity();
        Attributes {
            segment: Place { pid, descriptor, device, inode, nonce },
            ring,
            address: std::net::Ipv6Addr::UNSPECIFIED,
            port: 0,
            depth: 0,
            capabilities: 0,
        }
    }

    /// Connects a mailbox to the one that the peer has told of. It may have been written to already.
    ///
    /// # Errors
    /// Why it is not what was told; [`Error::NotFound`] where the program that has told of it has ended;
    /// [`Error::OutOfResource`] where the peer has no place left.
    pub fn attach(&mut self, mailbox: &mut Mailbox, attributes: &Attributes) -> Result<()> {
        let Side::Near(near) = &mut mailbox.side else { return Err(Error::BadParameter) };
        let Place { pid, descriptor, device, inode, nonce } = attributes.segment;
        if !self.peers.contains_key(&nonce) {
            let identity = Identity { pid, descriptor, device, inode, nonce };
            let shared = Shared::of_peer(&identity).map_err(|refused| seen(refused.why, pid))?;
            let bell = Bell::of_peer(&shared, pid)?;
            let lifeline = Lifeline::of_peer(&shared, pid)?;
            // After four thousand million others, one that was watched then is not any more.
            self.watched = self.watched.wrapping_add(1);
            let (number, place) = (self.watched, attributes.segment);
            self.watch.add_with(number, pid, Some(lifeline.clone()));
            let known = Known { number, shared, bell, lifeline, place, pid, uses: 0, is_over: false };
            self.peers.insert(nonce, known);
        }
        let known = self.peers.get_mut(&nonce).filter(|known| known.place == attributes.segment);
        let Some(known) = known else { return Err(Error::Unreachable) };
        known.uses += 1;
        let (shared, bell, pid) = (known.shared.clone(), known.bell.clone(), known.pid);
        let lifeline = known.lifeline.clone();
        self.serial += 1;
        let claim = Claim {
            name: u64::from(std::process::id()),
            life: self.segment.identity().nonce,
            serial: self.serial,
            pid: std::process::id(),
            ring: near.ring,
        };
        let ring = attributes.ring as usize;
        let found = shared.receiver(ring).ok_or(Error::BadParameter);
        let found =
            found.and_then(|receiver| Ok((receiver, shared.claim(&claim).ok_or(Error::OutOfResource)?)));
        match found {
            Ok((receiver, place)) => {
                receiver.found();
                near.peer = Some(Peer { receiver, shared, bell, lifeline, place, life: nonce, ring, pid });
                Ok(())
            }
            Err(error) => {
                self.forget(&nonce);
                Err(error)
            }
        }
    }

    /// One mailbox less is in the segment of a peer.
    fn forget(&mut self, life: &[u8; NONCE]) {
        let Some(known) = self.peers.get_mut(life) else { return };
        known.uses -= 1;
        if known.uses == 0 {
            self.watch.remove(known.number);
            self.peers.remove(life);
        }
    }

    /// A connection is over. Its ring is used again when nobody reads it any more: at once, or when its reader has given
    /// its claim up here, or has ended.
    pub fn release(&mut self, mailbox: Mailbox, is_read_no_more: bool) {
        let Near { ring, sender, peer } = match mailbox.side {
            Side::Near(near) => near,
            Side::Far(far) => {
                if let Some(network) = &mut self.network {
                    network.forget(far.number);
                }
                return far.stream.into_iter().for_each(|stream| stream.end());
            }
        };
        sender.go();
        let Some(Peer { shared, place, life, ring: back, .. }) = peer else {
            if is_read_no_more {
                self.free(ring, sender);
            }
            return;
        };
        shared.give_up(place, &self.segment.identity().nonce);
        self.left.push(Left { ring, sender, life, back });
        if is_read_no_more || self.peers.get(&life).is_some_and(|known| known.is_over) {
            self.left.pop().into_iter().for_each(|left| self.reuse(left));
        }
    }

    fn reuse(&mut self, left: Left) {
        self.forget(&left.life);
        self.free(left.ring, left.sender);
    }

    fn free(&mut self, ring: usize, mut sender: Sender) {
        if self.segment.renew(ring, &mut sender).is_ok() {
            self.free.push((ring, sender));
        }
    }

    /// Uses rings again whose readers read them no more: who has found a ring has claimed a place here before, and has given
    /// that up if it is not there.
    #[cold]
    fn renew(&mut self) {
        // Before the claims: who finds a ring after this is not asked for.
        let found: Vec<bool> = self.left.iter().map(|left| left.sender.is_found()).collect();
        let claims = (0..SLOTS).filter_map(|place| self.segment.claimant(place).ok());
        let claims: HashSet<([u8; NONCE], usize)> = claims.map(|claim| (claim.life, claim.ring)).collect();
        for (left, is_found) in std::mem::take(&mut self.left).into_iter().zip(found) {
            let is_over = self.peers.get(&left.life).is_none_or(|known| known.is_over);
            if is_over || is_found && !claims.contains(&(left.life, left.back)) {
                self.reuse(left);
            } else {
                self.left.push(left);
            }
        }
    }

    /// Whether the bell was rung.
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.segment.is_rung()
    }

    /// For whom the bell was rung: hands the life of the peer and its ring to `hear`.
    #[cold]
    pub fn rung(&self, mut hear: impl FnMut(&[u8; NONCE], usize)) {
        self.segment.rung(|place| {
            if let Ok(claim) = self.segment.claimant(place) {
                hear(&claim.life, claim.ring);
            }
        });
    }

    /// What is readable when peers have written something for who [sleeps](Self::sleep).
    pub fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.descriptor()
    }

    /// What is readable when the process of a peer has ended.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn deaths(&mut self) -> Result<BorrowedFd<'_>> {
        self.watch.descriptor()
    }

    /// From now on peers who write something set the alarm off, and those who read, if that is wanted. What has come before
    /// is to be looked for after this. False where something may come, or somebody end, without it.
    pub fn sleep(&self, wants_room: bool) -> bool {
        self.alarm.set(wants_room) && !self.watch.is_blind()
    }

    /// Whether a process may end without a sign.
    pub fn is_blind(&self) -> bool {
        self.watch.is_blind()
    }

    /// Wakes whoever of this process sleeps.
    pub fn wake(&self) {
        self.alarm.ring();
    }

    /// The segments whose processes have ended, or go on as other programs; each once.
    pub fn ended(&mut self) -> Vec<[u8; NONCE]> {
        let Self { segment, watch, peers, .. } = self;
        let numbers = watch.ended();
        if numbers.is_empty() {
            return Vec::new();
        }
        let (mut lives, mut processes) = (Vec::new(), Vec::new());
        for (life, known) in peers.iter_mut().filter(|(_, known)| numbers.contains(&known.number)) {
            if has_ended(known.pid) {
                processes.push(known.pid);
            } else if known.shared.has_ended() {
                // It was closed as it should be, and its process goes on.
                watch.add(known.number, known.pid);
                continue;
            }
            known.is_over = true;
            segment.clear(life);
            lives.push(*life);
        }
        segment.sweep(&processes);
        self.renew();
        lives
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        self.segment.end();
    }
}

/// Where no process of this number is to be seen, it may be one of another PID namespace, or hidden, and nothing is known of it.
fn seen(why: Error, pid: u32) -> Error {
    let is_gone = |pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
    let is_seen = || {
        let process = pid.try_into().ok().and_then(rustix::process::Pid::from_raw);
        process.is_some_and(is_gone) || pid != 0 && std::path::Path::new(&format!("/proc/{pid}")).exists()
    };
    if why != Error::NotFound || is_seen() { why } else { Error::Unreachable }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Nic, Mailbox, Nic, Mailbox) {
        let (mut one, mut two) = (Nic::make().expect("memory"), Nic::make().expect("memory"));
        let (mut here, mut there) = (one.mailbox().expect("a ring"), two.mailbox().expect("a ring"));
        one.attach(&mut here, &two.attributes(&there)).expect("found");
        two.attach(&mut there, &one.attributes(&here)).expect("found");
        (one, here, two, there)
    }

    impl Mailbox {
        fn ring(&self) -> usize {
            let Side::Near(near) = &self.side else { panic!("of this node") };
            near.ring
        }
    }

    fn take(mailbox: &mut Mailbox) -> Option<(u8, Vec<u8>)> {
        let arrival = mailbox.take().expect("sound")?;
        let mut bytes = Vec::new();
        arrival.bytes.append_to(&mut bytes);
        mailbox.release();
        Some((arrival.tag, bytes))
    }

    #[test]
    fn entries_go_both_ways_in_order_and_the_bell_says_whose() {
        let (one, mut here, two, mut there) = pair();
        assert!(here.has_next() == Ok(false) && here.is_found());
        assert_eq!(here.push_bytes(1, b"first"), Ok(true));
        assert_eq!(here.push_bytes(2, b"second"), Ok(true));
        assert_eq!(there.push_bytes(3, b"third"), Ok(true));
        for (nic, mailbox) in [(&one, &here), (&two, &there)] {
            let mut heard = 0;
            assert!(nic.is_rung());
            nic.rung(|life, ring| heard += u32::from(mailbox.is_of(life, ring)));
            assert_eq!(heard, 1);
            assert!(!nic.is_rung());
        }
        assert_eq!(take(&mut there), Some((1, b"first".to_vec())));
        assert_eq!(take(&mut there), Some((2, b"second".to_vec())));
        assert_eq!(take(&mut there), None);
        assert_eq!(take(&mut here), Some((3, b"third".to_vec())));
        assert_eq!((here.sent(), here.received(), there.received()), (2, 1, 2));
        there.poll_from_now_on();
        assert_eq!(here.push_bytes(1, b"silent"), Ok(true));
        assert!(!two.is_rung());
        assert_eq!(take(&mut there), Some((1, b"silent".to_vec())));
    }

    #[test]
    fn a_call_that_fails_at_once_is_one_without_a_way() {
        let mut nic = Nic::make().expect("memory");
        nic.listen(Ipv4Addr::LOCALHOST, 9).expect("a port");
        let mut here = nic.far_mailbox(Ipv4Addr::LOCALHOST).expect("a number");
        // Nobody can be connected to a broadcast address, and the kernel says so without asking anybody. Of the two sides
        // that of the lesser token calls.
        let (nowhere, greatest) = (Ipv4Addr::new(127, 255, 255, 255), [0xFF; NONCE]);
        let attributes = Attributes {
            segment: Place { nonce: greatest, ..Place::default() },
            ring: 1,
            address: nowhere.to_ipv6_mapped(),
            port: 9,
            depth: 0,
            capabilities: 0,
        };
        assert_eq!(nic.attach_far(&mut here, (&attributes, nowhere.to_bits()), 0), Ok(()));
        assert!(here.is_unreached() && !here.has_begun());
        assert_eq!(here.push_bytes(1, b"not yet"), Ok(false));
        assert_eq!(nic.connect_far(&mut here), Ok(()));
        assert!(here.is_unreached());
        nic.release(here, true);
    }

    #[test]
    fn what_was_written_outlives_the_writer() {
        let (one, mut here, _two, mut there) = pair();
        assert_eq!(here.push_bytes(1, b"last words"), Ok(true));
        drop((here, one));
        assert_eq!(take(&mut there), Some((1, b"last words".to_vec())));
    }

    #[test]
    fn a_ring_is_empty_when_it_is_used_again() {
        let (mut one, mut here, mut two, there) = pair();
        let ring = here.ring();
        while here.push_bytes(1, &[7; 4000]).expect("sound") {}
        one.release(here, true);
        two.release(there, true);
        assert!(one.peers.is_empty() && two.peers.is_empty());
        let (mut here, mut there) = (one.mailbox().expect("a ring"), two.mailbox().expect("a ring"));
        assert_eq!(here.ring(), ring);
        one.attach(&mut here, &two.attributes(&there)).expect("found");
        two.attach(&mut there, &one.attributes(&here)).expect("found");
        assert_eq!(take(&mut there), None);
        assert_eq!(here.push_bytes(1, b"anew"), Ok(true));
        assert_eq!(take(&mut there), Some((1, b"anew".to_vec())));
    }

    #[test]
    fn a_ring_is_used_again_when_its_reader_has_let_go_of_it_or_has_ended() {
        let (mut one, here, mut two, there) = pair();
        let (ring, taken) = (here.ring(), |nic: &mut Nic| nic.mailbox().expect("a ring").ring());
        one.release(here, false);
        assert!(taken(&mut one) != ring && !one.peers.is_empty(), "it is still read");
        two.release(there, true);
        assert!(taken(&mut one) == ring && one.peers.is_empty());
        let (mut one, here, _two, _there) = pair();
        let ring = here.ring();
        // A death that is heard of before the connection is over, or behind.
        one.peers.values_mut().for_each(|known| known.is_over = true);
        one.release(here, false);
        assert!(taken(&mut one) == ring && one.peers.is_empty());
        let (mut one, here, _two, _there) = pair();
        let ring = here.ring();
        one.release(here, false);
        assert_ne!(taken(&mut one), ring);
        one.peers.values_mut().for_each(|known| known.is_over = true);
        assert!(taken(&mut one) == ring && one.peers.is_empty());
    }

    #[test]
    fn a_peer_is_gone_when_its_program_is_and_not_when_it_has_closed_its_domain() {
        let (mut one, here, two, _there) = pair();
        let life = two.segment.identity().nonce;
        assert!(one.ended().is_empty());
        drop(two);
        // Children of other tests may have the end of the lifeline until they call execve(2).
        while !here.has_ended() {}
        assert!(one.ended().is_empty(), "that was in order");
        let (mut one, here, mut two, _there) = pair();
        // As execve(2) closes it.
        let other = Segment::make([7; NONCE]).expect("memory");
        two._anchor = Anchor::of(&other).expect("a pipe");
        while !here.has_ended() {}
        assert!(here.is_of_life(&two.segment.identity().nonce) && !here.is_of_life(&life));
        assert_eq!(one.ended(), [two.segment.identity().nonce]);
        assert!(one.ended().is_empty(), "each once");
        assert!((0..SLOTS).all(|place| one.segment.claimant(place).is_err()), "its claims are gone");
    }

    #[test]
    fn what_a_peer_tells_is_not_believed() {
        let (mut one, here, two, there) = pair();
        let right = two.attributes(&there);
        drop(here);
        let mut wrong = [right; 4];
        wrong[0].segment.nonce[0] ^= 1;
        wrong[1].segment.pid = 1 << 30;
        wrong[2].segment.inode += 1;
        wrong[2].segment.nonce[1] ^= 1;
        wrong[3].ring = u32::MAX;
        for attributes in wrong {
            let mut mailbox = one.mailbox().expect("a ring");
            let outcome = one.attach(&mut mailbox, &attributes);
            let is_of_nobody = attributes.segment.inode == wrong[2].segment.inode;
            assert!(outcome.is_err() && (outcome == Err(Error::NotFound)) == is_of_nobody, "{outcome:?}");
            assert_eq!(mailbox.push_bytes(1, b"to nobody"), Ok(false));
            assert!(matches!(mailbox.take(), Ok(None)));
        }
    }

    #[test]
    fn a_process_that_is_not_to_be_seen_has_not_ended_for_that() {
        let own = std::process::id();
        assert_eq!([own, 1 << 30].map(|pid| seen(Error::NotFound, pid)), [Error::NotFound; 2]);
        // As the kernel calls one of another PID namespace.
        assert_eq!(seen(Error::NotFound, 0), Error::Unreachable);
        assert_eq!(seen(Error::System(libc::EMFILE), own), Error::System(libc::EMFILE));
    }

    #[test]
    fn the_memory_of_a_peer_shows_what_it_has_told() {
        let (one, _here, _two, there) = pair();
        let (address, shown) = one.probe();
        assert!(there.memory(address, &[0; 16]).is_none());
        assert!(there.memory(8, &shown).is_none());
        assert!(there.memory(address, &shown).is_some(), "its own process");
    }
}

//! What every link must do, written once and instantiated for each. No test waits for luck: it polls
//! until what it waits for is there, or until a number of polls that only a hang can reach.

use std::collections::VecDeque;

use super::{AddressId, Channel, Datagram, Inbox, Lent, Link};
use crate::error::Error;

/// Polls after which a test gives up.
const PATIENCE: usize = 2_000_000;

/// A link with its inbox.
pub(crate) struct Node<L> {
    pub(crate) link: L,
    pub(crate) inbox: Inbox,
}

impl<L: Link> Node<L> {
    pub(crate) fn new(link: L) -> Self {
        Self { link, inbox: Inbox::new() }
    }

    /// Polls the channel until a datagram is there.
    pub(crate) fn next(&mut self, channel: Channel) -> Datagram {
        for _ in 0..PATIENCE {
            if let Some(datagram) = self.inbox.pop() {
                assert_eq!(datagram.channel(), channel);
                return datagram;
            }
            if self.link.poll(channel, &mut self.inbox) == 0 {
                std::thread::yield_now();
            }
        }
        panic!("no datagram came; {:?}", self.link.counters());
    }

    /// Polls once more: there is nothing else.
    pub(crate) fn has_nothing(&mut self) -> bool {
        Channel::BOTH.iter().all(|channel| self.link.poll(*channel, &mut self.inbox) == 0)
            && self.inbox.is_empty()
    }

    /// Posts a datagram, flushing when the queue is full.
    pub(crate) fn post(&mut self, channel: Channel, to: AddressId, header: &[u8], pieces: &[Lent]) {
        for _ in 0..PATIENCE {
            if self.link.post(channel, to, header, pieces) {
                return;
            }
            if self.link.flush() == 0 {
                std::thread::yield_now();
            }
        }
        panic!("the queue stays full; {:?}", self.link.counters());
    }

    /// Flushes until nothing waits.
    pub(crate) fn flush(&mut self) {
        for _ in 0..PATIENCE {
            self.link.flush();
            if self.link.queued() == 0 {
                return;
            }
            std::thread::yield_now();
        }
        panic!("the queue stays full; {:?}", self.link.counters());
    }

    pub(crate) fn resolve<M: Link>(&mut self, peer: &Node<M>) -> AddressId {
        self.link.resolve(&peer.link.name()).expect("a peer of the same kind")
    }
}

/// Memory as links get it. The bytes must stay until the flush.
pub(crate) fn lend(bytes: &mut [u8]) -> Lent {
    // SAFETY: the tests keep the bytes, untouched, until they have flushed.
    unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) }
}

/// `len` bytes that differ with `seed` and position.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(31) ^ at.wrapping_mul(7) ^ (at >> 8)) as u8).collect()
}

fn pair<L: Link>(open: &impl Fn() -> L) -> (Node<L>, Node<L>, AddressId) {
    let (mut one, two) = (Node::new(open()), Node::new(open()));
    let to = one.resolve(&two);
    (one, two, to)
}

pub(crate) fn limits_are_sane<L: Link>(open: &impl Fn() -> L) {
    let (one, _, to) = pair(open);
    let limits = one.link.limits();
    assert!(limits.max_datagram.iter().all(|max| (500..=65_527).contains(max)), "{limits:?}");
    assert!(limits.receive_capacity >= limits.max_datagram[1], "{limits:?}");
    assert!(limits.speed_mbps > 0);
    for channel in Channel::BOTH {
        assert_eq!(one.link.max_datagram(channel, to), limits.max_datagram[channel as usize]);
    }
}

pub(crate) fn every_size_arrives_intact<L: Link>(open: &impl Fn() -> L) {
    let (mut one, mut two, to) = pair(open);
    for channel in Channel::BOTH {
        let max = one.link.limits().max_datagram[channel as usize];
        let mut sizes: Vec<usize> = (1..200).chain((200..max).step_by(max / 60)).collect();
        sizes.extend([1023, 1024, 1025, 1400, max - 1, max].iter().filter(|size| **size <= max));
        for size in sizes {
            let bytes = pattern(size, size);
            one.post(channel, to, &bytes, &[]);
            one.flush();
            assert!(*two.next(channel) == bytes, "{channel:?} {size}");
        }
    }
    assert!(two.has_nothing());
}

pub(crate) fn pieces_are_gathered_in_order<L: Link>(open: &impl Fn() -> L) {
    let (mut one, mut two, to) = pair(open);
    let max = one.link.limits().max_datagram[1];
    for (head, sizes) in [
        (64, vec![100]),
        (64, vec![max - 64]),
        (80, vec![14, max - 200]),
        (112, vec![14, 300, max - 426]),
        (1, vec![0, 5, 0]),
        (64, vec![0, max - 64, 0]),
        (10, vec![100, 200, 300, 400]),
    ] {
        let mut memory: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, len)| pattern(n, *len)).collect();
        let pieces: Vec<Lent> = memory.iter_mut().map(|bytes| lend(bytes)).collect();
        for channel in Channel::BOTH {
            one.post(channel, to, &pattern(9, head), &pieces);
            one.flush();
            assert!(*two.next(channel) == [pattern(9, head), memory.concat()].concat(), "{head} {sizes:?}");
        }
    }
}

/// A run is as many datagrams: short and long, of one memory and across two, with a last one that is shorter, behind
/// another.
pub(crate) fn runs_arrive_as_datagrams<L: Link>(open: &impl Fn() -> L) {
    let (mut one, mut two, to) = pair(open);
    let longest = one.link.limits().max_datagram[1];
    for (payload, sizes) in [
        (100, [1_000, 0]),
        (100, [250, 715]),
        (100, [0, 1]),
        (longest.min(9_000) - 12, [3 * longest.min(9_000), 7]),
        (10, [1_000, 1_500]),
    ] {
        let mut memory = sizes.map(|len| pattern(len, len));
        let all = memory.concat();
        let [first, second] = &mut memory;
        let pieces = [lend(first), lend(second)];
        let count = all.len().div_ceil(payload);
        let headers: Vec<u8> = (0..count).flat_map(|at| pattern(at, 12)).collect();
        one.post(Channel::Data, to, b"before", &[]);
        one.link.post_run(Channel::Data, to, (&headers, 12), payload, pieces);
        one.flush();
        assert_eq!(&*two.next(Channel::Data), b"before");
        for (at, bytes) in all.chunks(payload).enumerate() {
            let datagram = two.next(Channel::Data);
            assert!(*datagram == [&pattern(at, 12), bytes].concat(), "{at} of {count} with {payload}");
        }
        assert!(two.has_nothing());
    }
}

/// Bursts that the receive buffer holds: all arrive, each once, in order.
pub(crate) fn bursts_arrive_in_order<L: Link>(open: &impl Fn() -> L, count: usize, lossless: bool) {
    let (mut one, mut two, to) = pair(open);
    let limits = one.link.limits();
    for channel in Channel::BOTH {
        for size in [8, 64, 1000, 1400] {
            let size = size.min(limits.max_datagram[channel as usize]);
            // A short datagram costs the receive buffer as much as one of a kilobyte or two.
            let window = (limits.receive_capacity / 2304)
                .min(limits.receive_capacity / limits.max_datagram[1] * 8)
                .clamp(4, 256);
            let mut sent = VecDeque::new();
            let mut last = None;
            for n in 0..count {
                let mut bytes = pattern(n, size);
                bytes[..4].copy_from_slice(&(n as u32).to_le_bytes());
                one.post(channel, to, &bytes, &[]);
                sent.push_back(bytes);
                if sent.len() == window || n + 1 == count {
                    one.flush();
                    while let Some(bytes) = sent.front() {
                        let got = two.next(channel);
                        if lossless {
                            assert!(*got == **bytes, "{n}");
                        }
                        let number = u32::from_le_bytes(*got.first_chunk().expect("four bytes"));
                        assert!(last.is_none_or(|last| last < number), "out of order");
                        last = Some(number);
                        sent.pop_front();
                    }
                }
            }
        }
    }
    assert!(two.has_nothing());
}

/// Long pieces, posted until the queue is full, sent in as few calls as there are.
pub(crate) fn long_bursts_arrive_intact<L: Link>(open: &impl Fn() -> L) {
    let (mut one, mut two, to) = pair(open);
    let limits = one.link.limits();
    let max = limits.max_datagram[1];
    let window = (limits.receive_capacity / max).clamp(1, 40);
    for size in [max, max - 1, max / 2, 3000.min(max), 1472.min(max)] {
        let mut memory = pattern(size, (size - 8) * window);
        let lent = lend(&mut memory);
        for round in 0..10_u64 {
            for n in 0..window {
                let last = if n + 1 == window { 5 } else { 0 };
                let piece = lent.slice(n * (size - 8), size - 8 - last);
                one.post(Channel::Data, to, &(round << 32 | n as u64).to_le_bytes(), &[piece]);
            }
            one.flush();
            for n in 0..window {
                let got = two.next(Channel::Data);
                assert_eq!(got[..8], (round << 32 | n as u64).to_le_bytes());
                let from = n * (size - 8);
                assert!(got[8..] == memory[from..from + got.len() - 8], "{n} of {size}");
            }
        }
    }
    assert!(two.has_nothing());
}

pub(crate) fn three_links_talk_crosswise<L: Link>(open: &impl Fn() -> L) {
    let mut nodes: Vec<Node<L>> = (0..3).map(|_| Node::new(open())).collect();
    let names: Vec<Vec<u8>> = nodes.iter().map(|node| node.link.name()).collect();
    let mut memory = pattern(5, 2000);
    for round in 0..50_usize {
        for (from, node) in nodes.iter_mut().enumerate() {
            let ids: Vec<AddressId> =
                names.iter().map(|name| node.link.resolve(name).expect("a peer")).collect();
            // To each in turn, itself too: nothing may get mixed up when they are sent together.
            for n in 0..12 {
                for (to, id) in ids.iter().enumerate() {
                    let header = [from as u8, to as u8, n, round as u8];
                    let long = lend(&mut memory).slice(0, if n % 4 == 3 { 1300 } else { 1380 });
                    let pieces = if round % 2 == 0 { &[long][..] } else { &[] };
                    node.post(Channel::BOTH[round / 2 % 2], *id, &header, pieces);
                }
            }
            node.flush();
        }
        for (to, node) in nodes.iter_mut().enumerate() {
            let mut next = [0; 3];
            for _ in 0..36 {
                let got = node.next(Channel::BOTH[round / 2 % 2]);
                let [from, meant, n, of] = *got.first_chunk().expect("a header");
                assert_eq!((usize::from(meant), usize::from(of)), (to, round));
                assert_eq!(n, next[usize::from(from)]);
                next[usize::from(from)] += 1;
                assert!(got[4..] == memory[..got.len() - 4], "{round} {n}");
            }
            assert!(node.has_nothing());
        }
    }
}

/// The consumer polls again while it holds what an earlier poll brought.
pub(crate) fn held_datagrams_survive_nested_polls<L: Link>(open: &impl Fn() -> L) {
    let (mut one, mut two, to) = pair(open);
    let mut held: Vec<(usize, Datagram)> = Vec::new();
    for n in 0..300 {
        let channel = Channel::BOTH[n % 2];
        one.post(channel, to, &pattern(n, 700), &[]);
        one.flush();
        held.push((n, two.next(channel)));
        if held.len() > 20 {
            held.drain(..10);
        }
        for (n, datagram) in &held {
            assert!(**datagram == pattern(*n, 700), "{n}");
        }
    }
}

pub(crate) fn buffers_return<L: Link>(open: &impl Fn() -> L) {
    let (mut one, mut two, to) = pair(open);
    let mut buffers = 0;
    for round in 0..200 {
        for n in 0..20 {
            one.post(Channel::Data, to, &pattern(n, 900), &[]);
            one.post(Channel::Priority, to, &pattern(n, 100), &[]);
        }
        one.flush();
        for channel in Channel::BOTH {
            for _ in 0..20 {
                two.next(channel);
            }
        }
        if round == 100 {
            buffers = two.inbox.buffers();
        }
    }
    assert!(two.inbox.buffers() <= buffers + 4, "{} after {buffers}", two.inbox.buffers());
}

/// Those that are written where they lie, between others, in order.
pub(crate) fn written_datagrams_arrive<L: Link>(open: &impl Fn() -> L) {
    let (mut one, mut two, to) = pair(open);
    let most = one.link.limits().max_datagram[Channel::Data as usize];
    for n in 0..60 {
        let len = [1, 700, 1400, most][n % 4];
        let mut calls = 0;
        let posted = one.link.post_written(Channel::Data, to, len, &mut |bytes| {
            bytes.extend(pattern(n, len));
            calls += 1;
        });
        assert!(posted && calls == 1);
        one.post(Channel::Data, to, &pattern(n, 90), &[]);
        one.flush();
        assert!(*two.next(Channel::Data) == pattern(n, len), "{n}");
        assert!(*two.next(Channel::Data) == pattern(n, 90), "{n}");
    }
    let too_long = &mut |bytes: &mut Vec<u8>| bytes.extend(pattern(0, most + 1));
    assert!(one.link.post_written(Channel::Data, to, most + 1, too_long));
    one.flush();
    assert!(two.has_nothing() && one.link.counters().too_long == 1);
}

pub(crate) fn names_lead_to_one_id<L: Link>(open: &impl Fn() -> L) {
    let (mut one, two, to) = pair(open);
    let three = Node::new(open());
    assert_eq!(one.resolve(&two), to);
    let other = one.resolve(&three);
    assert_ne!(other, to);
    assert_eq!(one.link.distance(&two.link.name()), Some(0));
    one.link.release(to);
    assert_eq!(one.resolve(&two), to, "it was used twice");
    one.link.release(to);
    one.link.release(to);
    one.link.release(to);
    // Gone by now: what is posted to it is dropped, and the id does not come back.
    assert_ne!(one.resolve(&three), to);
    one.post(Channel::Data, to, b"to nobody", &[]);
    one.post(Channel::Priority, to, b"to nobody", &[]);
    one.flush();
    assert_eq!(one.link.counters().stale, 2);
    assert_ne!(one.resolve(&two), to);
}

pub(crate) fn garbage_is_no_name<L: Link>(open: &impl Fn() -> L) {
    let mut node = Node::new(open());
    let name = node.link.name();
    for len in 0..name.len() {
        assert_eq!(node.link.resolve(&name[..len]), Err(Error::BadParameter), "{len}");
        assert_eq!(node.link.distance(&name[..len]), None);
    }
    for at in 0..4 {
        let mut wrong = name.clone();
        wrong[at] ^= 0x55;
        assert_eq!(node.link.resolve(&wrong), Err(Error::BadParameter), "{at}");
    }
    for seed in 0..2000 {
        let mut wrong = pattern(seed, seed % 80);
        let _ = node.link.resolve(&wrong);
        // The same behind a good beginning.
        wrong.splice(..0, name[..4].iter().copied());
        wrong.truncate(name.len());
        let _ = node.link.resolve(&wrong);
        let _ = node.link.distance(&wrong);
    }
    // The link is as it was.
    let own = node.link.resolve(&name).expect("its own name");
    node.post(Channel::Data, own, b"still here", &[]);
    node.flush();
    assert_eq!(*node.next(Channel::Data), *b"still here");
}

pub(crate) fn too_long_is_dropped_and_counted<L: Link>(open: &impl Fn() -> L) {
    let (mut one, mut two, to) = pair(open);
    let max = one.link.limits().max_datagram;
    let mut memory = vec![1; 70_000];
    for channel in Channel::BOTH {
        one.post(channel, to, b"x", &[lend(&mut memory).slice(0, max[channel as usize])]);
        one.post(channel, to, b"fits", &[]);
        one.flush();
        assert_eq!(*two.next(channel), *b"fits");
    }
    assert_eq!(one.link.counters().too_long, 2);
}

pub(crate) fn counters_count<L: Link>(open: &impl Fn() -> L) {
    let (mut one, mut two, to) = pair(open);
    for n in 0..30 {
        one.post(Channel::BOTH[n % 2], to, &pattern(n, 300), &[]);
    }
    one.flush();
    for n in 0..30 {
        two.next(Channel::BOTH[n / 15]);
    }
    assert_eq!((one.link.counters().sent, two.link.counters().received), (30, 30));
}

/// A port that nobody listens on any more is reported, and the way to others stays open.
pub(crate) fn a_closed_peer_is_reported<L: Link>(open: &impl Fn() -> L) {
    let (mut one, two, gone) = pair(open);
    let mut three = Node::new(open());
    let alive = one.resolve(&three);
    drop(two);
    let mut reported = None;
    for n in 0..200_usize {
        let channel = Channel::BOTH[n % 2];
        one.post(channel, gone, b"anybody there?", &[]);
        one.post(channel, alive, &pattern(n, 50), &[]);
        one.flush();
        assert_eq!(*three.next(channel), pattern(n, 50));
        assert!(one.has_nothing());
        reported = reported.or_else(|| one.link.poll_refused());
    }
    assert_eq!(reported, Some(gone), "{:?}", one.link.counters());
    while let Some(peer) = one.link.poll_refused() {
        assert_eq!(peer, gone);
    }
    assert!(one.link.counters().refused > 0);
    assert_eq!(one.link.counters().send_errors, 0);
}

/// The suite for one link: `conformance!(ipv4, || open());`, with options.
macro_rules! conformance {
    ($name:ident, $open:expr) => {
        mod $name {
            use crate::link::conformance as suite;
            use super::*;

            $crate::link::conformance::conformance!(@tests $open;
                limits_are_sane every_size_arrives_intact pieces_are_gathered_in_order runs_arrive_as_datagrams
                long_bursts_arrive_intact three_links_talk_crosswise held_datagrams_survive_nested_polls
                buffers_return written_datagrams_arrive names_lead_to_one_id garbage_is_no_name too_long_is_dropped_and_counted
                counters_count);

            #[test]
            fn bursts_of_any_length_arrive_in_order() {
                for count in [1, 2, 3, 7, 64, 65, 300, 2000] {
                    suite::bursts_arrive_in_order(&$open, count, true);
                }
            }
        }
    };
    (@tests $open:expr; $($test:ident)*) => {
        $(#[test] fn $test() { suite::$test(&$open); })*
    };
}
pub(crate) use conformance;

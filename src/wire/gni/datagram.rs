//! The datagrams by which connection managers set virtual connections up and end them.
//!
//! Little-endian, 128 bytes at the most:
//!
//! | bytes | |
//! |---|---|
//! | 0 | version |
//! | 1 | kind |
//! | 2 | reason of a refusal; else zero |
//! | 3 | zero |
//! | 4..8 | cookie: which job, or user |
//! | 8..16 | keyed tag |
//! | 16..32 | whom it is for: device, id there, incarnation (0: whichever lives) |
//! | 32..48 | who sends it: the same |
//! | 48..52 | the receiver's connection; 0: not known yet |
//! | 52..56 | the sender's connection; 0: it has none |
//! | 56..60 | key of the protection domain |
//! | 60..64 | capabilities of the sender; zero where there are no attributes |
//! | 64..72 | of a disconnect: entries that the sender has put into the receiver's mailbox, in all |
//! | 64..128 | of a request or response, the rest of the attributes |
//!
//! Attributes: process, descriptor, device, inode and nonce of the segment with the mailbox (40 bytes), number of
//! the ring (4), address and port of the sender's link as IPv6 (18), entries that the mailbox holds (2).
//!
//! The tag is SipHash-2-4 of every byte but its own, under a key that all have who may talk to each other. What
//! stands in the first 64 bytes is the same in every version, so that one version can refuse another.

use std::net::Ipv6Addr;

use crate::wire::siphash::{KEY_LEN, SipHash24};

/// A key that authenticates datagrams.
pub type Key = [u8; KEY_LEN];

/// Longest datagram.
pub const LEN: usize = 128;
/// Bytes of what every datagram has.
const HEADER: usize = 64;
/// Bytes of a disconnect.
const DISCONNECT: usize = HEADER + 8;
/// Which word is the tag.
const TAG: usize = 1;
/// The first byte.
const VERSION: u8 = 1;

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const CONFIRM: u8 = 3;
const LATER: u8 = 4;
const REFUSE: u8 = 5;
const DISCONNECT_KIND: u8 = 6;
const DISCONNECTED: u8 = 7;

/// An endpoint, and which life of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId {
    /// Address of its device.
    pub device: u32,
    /// Its id there.
    pub cdm_id: u32,
    /// Which life of that name: a later one has a greater number. 0 stands for whichever lives.
    pub incarnation: u64,
}

/// Which file a mailbox lies in, for a peer of the same node that is to map it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// The process that has it open.
    pub pid: u32,
    /// Under this descriptor.
    pub descriptor: u32,
    /// Device of the file.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// What the file itself says.
    pub nonce: [u8; 16],
}

/// Where a side of a connection takes its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes {
    /// The file with its mailbox.
    pub segment: Segment,
    /// Which ring of that.
    pub ring: u32,
    /// Where its link is reached, for peers of other nodes; IPv4 as `::ffff:a.b.c.d`.
    pub address: Ipv6Addr,
    /// The port there.
    pub port: u16,
    /// Entries that the mailbox holds.
    pub depth: u16,
    /// What its endpoint can do.
    pub capabilities: u32,
}

/// By what a side may use a device at all. Both sides need the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credentials {
    /// Which job, or user.
    pub cookie: u32,
    /// Key of the protection domain.
    pub domain: u32,
}

/// Why a request is refused, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The sides speak different versions.
    Version,
    /// They belong to different jobs.
    Cookie,
    /// They have different keys of their protection domains.
    Domain,
    /// No such endpoint, or no more.
    NoEndpoint,
    /// The peer has nothing left for a mailbox, and will not have.
    NoResources,
    /// The connection that is meant has ended, or never was.
    Gone,
}

impl Refusal {
    const ALL: [Self; 6] =
        [Self::Version, Self::Cookie, Self::Domain, Self::NoEndpoint, Self::NoResources, Self::Gone];

    fn parse(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// What a datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Body {
    /// Connect with me: here is my mailbox. One that knows the receiver's connection is connected to it, and
    /// wants to hear that the receiver knows it.
    Request(Attributes),
    /// I am connected with you: here is my mailbox.
    Response(Attributes),
    /// I know that you are connected with me.
    Confirm,
    /// Your request cannot be answered yet: go on asking.
    Later,
    /// Your request is refused, or your connection is none.
    Refuse(Refusal),
    /// I end the connection.
    Disconnect {
        /// Entries that I have put into your mailbox, in all.
        sent: u64,
    },
    /// You have ended it, and I have read what you had sent.
    Disconnected,
}

/// A datagram that is genuine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Datagram {
    /// Of the sender.
    pub credentials: Credentials,
    /// Whom it is for.
    pub target: NameId,
    /// Who sends it.
    pub source: NameId,
    /// The receiver's connection.
    pub target_vc: u32,
    /// The sender's connection.
    pub source_vc: u32,
    /// What it says.
    pub body: Body,
}

/// A genuine datagram of another version: what is the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Whom it is for.
    pub target: NameId,
    /// Who sends it.
    pub source: NameId,
    /// The receiver's connection.
    pub target_vc: u32,
    /// The sender's connection.
    pub source_vc: u32,
    /// Whether it asks for a connection.
    pub is_request: bool,
    /// Whether it refuses one.
    pub is_refusal: bool,
}

/// Why bytes are no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Of a length that none has.
    Length,
    /// Whoever wrote it has not the key, or something has altered it.
    Forged,
    /// Of another version.
    Version(Foreign),
    /// Of no known kind, or with bytes set that mean nothing, or without a number that it needs.
    Kind,
}

impl Datagram {
    /// Writes it, and says how long it is.
    pub fn emit(&self, key: &Key, bytes: &mut [u8; LEN]) -> usize {
        *bytes = [0; LEN];
        let (kind, reason, length) = match self.body {
            Body::Request(_) => (REQUEST, 0, LEN),
            Body::Response(_) => (RESPONSE, 0, LEN),
            Body::Confirm => (CONFIRM, 0, HEADER),
            Body::Later => (LATER, 0, HEADER),
            Body::Refuse(why) => (REFUSE, why as u8 + 1, HEADER),
            Body::Disconnect { .. } => (DISCONNECT_KIND, 0, DISCONNECT),
            Body::Disconnected => (DISCONNECTED, 0, HEADER),
        };
        bytes[..3].copy_from_slice(&[VERSION, kind, reason]);
        put(bytes, 4, self.credentials.cookie.to_le_bytes());
        for (at, name) in [(16, self.target), (32, self.source)] {
            put(bytes, at, name.device.to_le_bytes());
            put(bytes, at + 4, name.cdm_id.to_le_bytes());
            put(bytes, at + 8, name.incarnation.to_le_bytes());
        }
        put(bytes, 48, self.target_vc.to_le_bytes());
        put(bytes, 52, self.source_vc.to_le_bytes());
        put(bytes, 56, self.credentials.domain.to_le_bytes());
        match self.body {
            Body::Request(attributes) | Body::Response(attributes) => attributes.emit(bytes),
            Body::Disconnect { sent } => put(bytes, HEADER, sent.to_le_bytes()),
            Body::Confirm | Body::Later | Body::Refuse(_) | Body::Disconnected => {}
        }
        sign(key, &mut bytes[..length]);
        length
    }

    /// Reads what somebody has sent.
    ///
    /// # Errors
    /// Why it is no datagram.
    pub fn parse(datagram: &[u8], key: &Key) -> Result<Self, Malformed> {
        if !(HEADER..=LEN).contains(&datagram.len()) || !datagram.len().is_multiple_of(8) {
            return Err(Malformed::Length);
        }
        let mut bytes = [0; LEN];
        bytes[..datagram.len()].copy_from_slice(datagram);
        let bytes = &bytes;
        if !is_genuine(key, datagram) {
            return Err(Malformed::Forged);
        }
        let name = |at| NameId {
            device: word(bytes, at),
            cdm_id: word(bytes, at + 4),
            incarnation: u64::from_le_bytes(take(bytes, at + 8)),
        };
        let (target, source) = (name(16), name(32));
        let (target_vc, source_vc) = (word(bytes, 48), word(bytes, 52));
        let [version, kind, reason, zero] = take(bytes, 0);
        if version != VERSION {
            let (is_request, is_refusal) = (kind == REQUEST, kind == REFUSE);
            let foreign = Foreign { target, source, target_vc, source_vc, is_request, is_refusal };
            return Err(Malformed::Version(foreign));
        }
        let (body, length) = match kind {
            REQUEST => (Body::Request(Attributes::parse(bytes)), LEN),
            RESPONSE => (Body::Response(Attributes::parse(bytes)), LEN),
            CONFIRM => (Body::Confirm, HEADER),
            LATER => (Body::Later, HEADER),
            REFUSE => (Body::Refuse(Refusal::parse(reason).ok_or(Malformed::Kind)?), HEADER),
            DISCONNECT_KIND => {
                (Body::Disconnect { sent: u64::from_le_bytes(take(bytes, HEADER)) }, DISCONNECT)
            }
            DISCONNECTED => (Body::Disconnected, HEADER),
            _ => return Err(Malformed::Kind),
        };
        if datagram.len() != length {
            return Err(Malformed::Length);
        }
        // Which numbers it cannot do without: the receiver's connection, the sender's.
        let (needs_target, needs_source) = match body {
            Body::Request(_) | Body::Disconnect { .. } => (false, true),
            Body::Response(_) | Body::Confirm => (true, true),
            Body::Later | Body::Refuse(_) | Body::Disconnected => (true, false),
        };
        let bare = !matches!(body, Body::Request(_) | Body::Response(_)) && word(bytes, 60) != 0;
        let nameless = source.incarnation == 0 && !matches!(body, Body::Refuse(_));
        if zero != 0
            || (kind != REFUSE && reason != 0)
            || bare
            || nameless
            || (needs_target && target_vc == 0)
            || (needs_source && source_vc == 0)
        {
            return Err(Malformed::Kind);
        }
        let credentials = Credentials { cookie: word(bytes, 4), domain: word(bytes, 56) };
        Ok(Self { credentials, target, source, target_vc, source_vc, body })
    }
}

impl Attributes {
    fn emit(&self, bytes: &mut [u8; LEN]) {
        put(bytes, 60, self.capabilities.to_le_bytes());
        put(bytes, 64, self.segment.pid.to_le_bytes());
        put(bytes, 68, self.segment.descriptor.to_le_bytes());
        put(bytes, 72, self.segment.device.to_le_bytes());
        put(bytes, 80, self.segment.inode.to_le_bytes());
        put(bytes, 88, self.segment.nonce);
        put(bytes, 104, self.ring.to_le_bytes());
        put(bytes, 108, self.address.octets());
        put(bytes, 124, self.port.to_le_bytes());
        put(bytes, 126, self.depth.to_le_bytes());
    }

    fn parse(bytes: &[u8; LEN]) -> Self {
        let segment = Segment {
            pid: word(bytes, 64),
            descriptor: word(bytes, 68),
            device: u64::from_le_bytes(take(bytes, 72)),
            inode: u64::from_le_bytes(take(bytes, 80)),
            nonce: take(bytes, 88),
        };
        Self {
            segment,
            ring: word(bytes, 104),
            address: Ipv6Addr::from(take(bytes, 108)),
            port: u16::from_le_bytes(take(bytes, 124)),
            depth: u16::from_le_bytes(take(bytes, 126)),
            capabilities: word(bytes, 60),
        }
    }
}

fn put<const N: usize>(bytes: &mut [u8; LEN], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

fn take<const N: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

fn word(bytes: &[u8; LEN], at: usize) -> u32 {
    u32::from_le_bytes(take(bytes, at))
}

/// Whether bytes as long as a datagram have the tag that is right for them.
pub(super) fn is_genuine(key: &Key, bytes: &[u8]) -> bool {
    bytes.as_chunks().0.get(TAG).is_some_and(|word| u64::from_le_bytes(*word) == tag(key, bytes))
}

/// Gives bytes the tag that is right for them; false where they are not as long as a datagram may be.
pub fn sign(key: &Key, bytes: &mut [u8]) -> bool {
    let is_fit = (HEADER..=LEN).contains(&bytes.len()) && bytes.len().is_multiple_of(8);
    if is_fit {
        let tag = tag(key, bytes);
        bytes[8 * TAG..8 * TAG + 8].copy_from_slice(&tag.to_le_bytes());
    }
    is_fit
}

/// The tag of a whole number of words, one of which is the tag itself.
fn tag(key: &Key, bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let others = words.enumerate().filter(|(at, _)| *at != TAG).map(|(_, word)| word);
    others.fold(SipHash24::new(key), SipHash24::absorb).finish(((bytes.len() - 8) as u64) << 56)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = [9; KEY_LEN];

    fn attributes() -> Attributes {
        let segment = Segment {
            pid: 0x0102_0304,
            descriptor: 0x0506_0708,
            device: 0x090A_0B0C_0D0E_0F10,
            inode: 0x1112_1314_1516_1718,
            nonce: std::array::from_fn(|at| 0x20 + at as u8),
        };
        Attributes {
            segment,
            ring: 0x3132_3334,
            address: Ipv6Addr::from([0x41, 0x42, 0x43, 0x44, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
            port: 0x5152,
            depth: 0x6162,
            capabilities: 0x7172_7374,
        }
    }

    fn datagrams() -> Vec<Datagram> {
        let name = |device| NameId { device, cdm_id: device + 1, incarnation: u64::MAX - u64::from(device) };
        let mut bodies = vec![
            Body::Request(attributes()),
            Body::Response(attributes()),
            Body::Confirm,
            Body::Later,
            Body::Disconnect { sent: 0x8182_8384_8586_8788 },
            Body::Disconnected,
        ];
        bodies.extend(Refusal::ALL.map(Body::Refuse));
        let datagram = |body| Datagram {
            credentials: Credentials { cookie: 0x9192_9394, domain: 0xA1A2_A3A4 },
            target: name(7),
            source: name(70),
            target_vc: 0xB1B2_B3B4,
            source_vc: 0xC1C2_C3C4,
            body,
        };
        bodies.into_iter().map(datagram).collect()
    }

    fn emitted(datagram: &Datagram) -> Vec<u8> {
        let mut bytes = [0xFF; LEN];
        let length = datagram.emit(&KEY, &mut bytes);
        bytes[..length].to_vec()
    }

    /// The bytes with a tag that is right for them, if they are as long as a datagram may be.
    fn tagged(mut bytes: Vec<u8>) -> Vec<u8> {
        let is_fit = sign(&KEY, &mut bytes);
        assert_eq!(is_fit, bytes.len().is_multiple_of(8) && (HEADER..=LEN).contains(&bytes.len()));
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Datagram, Malformed> {
        Datagram::parse(bytes, &KEY)
    }

    /// Numbers of a fixed sequence.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(1);
            SipHash24::new(&KEY).finish(self.0)
        }

        fn below(&mut self, bound: usize) -> usize {
            (self.next() % bound as u64) as usize
        }
    }

    #[test]
    fn datagrams_survive_the_journey_and_fit() {
        for datagram in datagrams() {
            let bytes = emitted(&datagram);
            assert!(bytes.len() <= LEN);
            assert_eq!(parse(&bytes), Ok(datagram));
            assert_eq!(Datagram::parse(&bytes, &[8; KEY_LEN]), Err(Malformed::Forged));
        }
    }

    #[test]
    fn the_layout_is_the_one_that_is_described() {
        let bytes = emitted(&datagrams()[0]);
        assert_eq!(bytes[..8], [1, 1, 0, 0, 0x94, 0x93, 0x92, 0x91]);
        assert_eq!(bytes[16..24], [7, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(bytes[48..56], [0xB4, 0xB3, 0xB2, 0xB1, 0xC4, 0xC3, 0xC2, 0xC1]);
        assert_eq!(bytes[56..64], [0xA4, 0xA3, 0xA2, 0xA1, 0x74, 0x73, 0x72, 0x71]);
        assert_eq!(bytes[88..90], [0x20, 0x21]);
        assert_eq!(bytes[104..110], [0x34, 0x33, 0x32, 0x31, 0x41, 0x42]);
        assert_eq!(bytes[124..], [0x52, 0x51, 0x62, 0x61]);
    }

    #[test]
    fn the_tag_is_the_siphash_of_all_other_bytes() {
        use siphasher::sip::SipHasher24;
        use std::hash::Hasher;
        for datagram in datagrams() {
            let bytes = emitted(&datagram);
            let mut hasher = SipHasher24::new_with_key(&KEY);
            hasher.write(&bytes[..8]);
            hasher.write(&bytes[16..]);
            assert_eq!(bytes[8..16], hasher.finish().to_le_bytes());
        }
    }

    #[test]
    fn every_altered_bit_and_every_other_length_is_refused() {
        for datagram in datagrams() {
            let whole = emitted(&datagram);
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(parse(&bytes), Err(Malformed::Forged), "bit {bit}");
            }
            for length in 0..2 * LEN {
                let mut bytes = whole.clone();
                bytes.resize(length, 0);
                assert_eq!(parse(&bytes).is_ok(), length == whole.len(), "{length} bytes");
            }
            for length in (HEADER..=LEN).step_by(8).filter(|length| *length != whole.len()) {
                let mut bytes = whole.clone();
                bytes.resize(length, 0);
                assert_eq!(parse(&tagged(bytes)), Err(Malformed::Length), "{length} bytes of a peer's own");
            }
        }
    }

    /// Also a peer that has the key may be wrong.
    #[test]
    fn what_means_nothing_is_refused() {
        for datagram in datagrams() {
            let whole = emitted(&datagram);
            let altered = |at: usize, field: &[u8]| {
                let mut bytes = whole.clone();
                bytes[at..at + field.len()].copy_from_slice(field);
                parse(&tagged(bytes))
            };
            assert_eq!(altered(3, &[1]), Err(Malformed::Kind));
            for kind in [0, 8, 0xFF] {
                assert_eq!(altered(1, &[kind]), Err(Malformed::Kind));
            }
            let is_refusal = matches!(datagram.body, Body::Refuse(_));
            for reason in [1, 6] {
                assert_eq!(altered(2, &[reason]).is_ok(), is_refusal);
            }
            for reason in [7, 0xFF] {
                assert_eq!(altered(2, &[reason]), Err(Malformed::Kind));
            }
            let has_attributes = matches!(datagram.body, Body::Request(_) | Body::Response(_));
            assert_eq!(altered(60, &[1]).is_ok(), has_attributes);
            let starts = matches!(datagram.body, Body::Request(_) | Body::Disconnect { .. });
            assert_eq!(altered(48, &[0; 4]).is_ok(), starts, "without the receiver's connection");
            let owns = matches!(datagram.body, Body::Later | Body::Disconnected | Body::Refuse(_));
            assert_eq!(altered(52, &[0; 4]).is_ok(), owns, "without the sender's connection");
            assert_eq!(altered(40, &[0; 8]).is_ok(), is_refusal, "from nobody");
        }
    }

    #[test]
    fn another_version_is_told_by_what_is_the_same_in_all() {
        for datagram in datagrams() {
            let mut bytes = emitted(&datagram);
            bytes[0] = VERSION + 1;
            let Err(Malformed::Version(foreign)) = parse(&tagged(bytes)) else { panic!("it is another") };
            assert_eq!((foreign.target, foreign.source), (datagram.target, datagram.source));
            assert_eq!((foreign.target_vc, foreign.source_vc), (datagram.target_vc, datagram.source_vc));
            assert_eq!(foreign.is_request, matches!(datagram.body, Body::Request(_)));
            assert_eq!(foreign.is_refusal, matches!(datagram.body, Body::Refuse(_)));
        }
    }

    /// What is read of any bytes is what those bytes say: written again, they are the same.
    #[test]
    fn random_and_mutated_bytes_are_parsed_or_dropped() {
        let mut numbers = Numbers(0);
        let (mut parsed, mut dropped) = (0, 0);
        for round in 0..60_000 {
            let mut bytes = if round % 3 == 0 {
                (0..numbers.below(LEN + 40)).map(|_| numbers.next() as u8).collect()
            } else {
                emitted(&datagrams()[numbers.below(datagrams().len())])
            };
            for _ in 0..numbers.below(4) {
                if !bytes.is_empty() {
                    let at = numbers.below(bytes.len());
                    bytes[at] = [0, 1, 0xFF, numbers.next() as u8][numbers.below(4)];
                }
            }
            if numbers.below(8) == 0 {
                bytes.truncate(numbers.below(LEN));
            }
            if bytes.len() >= HEADER && bytes.len().is_multiple_of(8) && numbers.below(4) != 0 {
                bytes = tagged(bytes);
            }
            match parse(&bytes) {
                Ok(datagram) => {
                    assert_eq!(emitted(&datagram), bytes);
                    parsed += 1;
                }
                Err(_) => dropped += 1,
            }
        }
        assert!(parsed > 10_000 && dropped > 10_000, "{parsed} parsed, {dropped} dropped");
    }
}

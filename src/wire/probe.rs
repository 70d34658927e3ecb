//! The datagrams between the agents of two nodes: does a datagram of this length arrive, and does
//! that process still live? And what they say to each other over a connection.
//!
//! Little-endian, 32 bytes; a ping is filled up to the length that is tried:
//!
//! | bytes | |
//! |---|---|
//! | 0 | version |
//! | 1 | kind |
//! | 2..4 | zero |
//! | 4..8 | length of the ping in bytes; of a process, the incarnation asked about; zero for calls |
//! | 8..16 | keyed tag |
//! | 16..24 | number of the question |
//! | 24..32 | name of the process; zero for pings and calls |
//!
//! The tag is SipHash-2-4 over every other byte of the 32, under the key that the *asked* agent has
//! published, in both directions: whoever asks has it, and whoever answers. No answer is longer than
//! its question.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// A key of an agent.
pub type Key = [u8; 16];

/// Bytes that mean something; every datagram has them.
pub const LEN: usize = 32;

/// The first byte. That of packets between modules differs.
const VERSION: u8 = 0x51;

/// Longest datagram there is.
pub const LONGEST: u32 = 65_507;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A datagram of this many bytes.
    Ping {
        /// Its length.
        length: u32,
    },
    /// One of this many bytes has arrived.
    Pong {
        /// Its length.
        length: u32,
    },
    /// Does this process live?
    Ask(Process),
    /// It does.
    Alive(Process),
    /// It did, and has ended.
    Gone(Process),
    /// Over a connection: is somebody there who does something?
    Call,
    /// Somebody is.
    Here,
}

/// A process, or one life of a module of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its name.
    pub name: u64,
    /// Which life of it.
    pub incarnation: u32,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number of the question, which its answers repeat. Nobody else can guess it.
    pub nonce: u64,
    /// What it says.
    pub body: Body,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than any.
    Short,
    /// Of another version, or not ours at all.
    Version,
    /// Of no known kind, or with bytes set that mean nothing.
    Kind,
    /// Of another length than it says.
    Length,
}

/// Bytes that have the form of a message; whether it is genuine, [`Packet::is_genuine`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What it says.
    pub message: Message,
    bytes: [u8; LEN],
}

impl Message {
    /// The message as bytes. A ping is to be filled up with zeros.
    pub fn emit(&self, key: &Key) -> [u8; LEN] {
        let (kind, word, name) = match self.body {
            Body::Ping { length } => (1, length, 0),
            Body::Pong { length } => (2, length, 0),
            Body::Ask(process) => (3, process.incarnation, process.name),
            Body::Alive(process) => (4, process.incarnation, process.name),
            Body::Gone(process) => (5, process.incarnation, process.name),
            Body::Call => (6, 0, 0),
            Body::Here => (7, 0, 0),
        };
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&[VERSION, kind]);
        bytes[4..8].copy_from_slice(&word.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[24..].copy_from_slice(&name.to_le_bytes());
        let tag = tag(key, &bytes);
        bytes[8..16].copy_from_slice(&tag.to_le_bytes());
        bytes
    }

    /// Bytes of the datagram that carries it.
    pub fn len(&self) -> usize {
        if let Body::Ping { length } = self.body { length as usize } else { LEN }
    }

    /// Never: there are always [`LEN`] bytes.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Packet {
    /// Reads the first bytes of a datagram that was `length` bytes long.
    ///
    /// # Errors
    /// Why it is no message.
    pub fn parse(bytes: &[u8], length: usize) -> Result<Self, Malformed> {
        let bytes: [u8; LEN] = *bytes.first_chunk().ok_or(Malformed::Short)?;
        if bytes[0] != VERSION {
            return Err(Malformed::Version);
        }
        let subject = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let process = Process { name: word(&bytes, 3), incarnation: subject };
        let body = match bytes[1] {
            1 => Body::Ping { length: subject },
            2 => Body::Pong { length: subject },
            3 => Body::Ask(process),
            4 => Body::Alive(process),
            5 => Body::Gone(process),
            6 if subject == 0 => Body::Call,
            7 if subject == 0 => Body::Here,
            _ => return Err(Malformed::Kind),
        };
        let is_ping = matches!(body, Body::Ping { .. } | Body::Pong { .. });
        let is_nameless = is_ping || matches!(body, Body::Call | Body::Here);
        if bytes[2..4] != [0; 2] || is_nameless && process.name != 0 {
            return Err(Malformed::Kind);
        }
        let message = Message { nonce: word(&bytes, 2), body };
        if message.len() != length || is_ping && !(LEN as u32..=LONGEST).contains(&subject) {
            return Err(Malformed::Length);
        }
        Ok(Self { message, bytes })
    }

    /// Whether only a holder of the key can have written it.
    pub fn is_genuine(&self, key: &Key) -> bool {
        tag(key, &self.bytes) == word(&self.bytes, 1)
    }
}

/// A number that nobody without the key can guess: the tag of a count.
pub fn nonce(key: &Key, count: u64) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write_u64(count);
    hasher.finish()
}

fn word(bytes: &[u8; LEN], index: usize) -> u64 {
    u64::from_le_bytes(bytes.as_chunks().0[index])
}

fn tag(key: &Key, bytes: &[u8; LEN]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    for index in [0, 2, 3] {
        hasher.write(&word(bytes, index).to_le_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = [9; 16];

    fn samples() -> Vec<Message> {
        let process = Process { name: 0x0102_0304_0506_0708, incarnation: 0x0A0B_0C0D };
        [
            Body::Ping { length: LEN as u32 },
            Body::Ping { length: 1472 },
            Body::Pong { length: LONGEST },
            Body::Ask(process),
            Body::Alive(process),
            Body::Gone(process),
            Body::Call,
            Body::Here,
        ]
        .map(|body| Message { nonce: 0x1112_1314_1516_1718, body })
        .to_vec()
    }

    #[test]
    fn messages_survive_the_journey() {
        for message in samples() {
            let packet = Packet::parse(&message.emit(&KEY), message.len()).expect("a message");
            assert_eq!(packet.message, message);
            assert!(packet.is_genuine(&KEY) && !packet.is_genuine(&[8; 16]));
        }
    }

    #[test]
    fn cut_and_lengthened_messages_are_refused() {
        for message in samples() {
            let bytes = message.emit(&KEY);
            for len in 0..LEN {
                assert_eq!(Packet::parse(&bytes[..len], len), Err(Malformed::Short));
            }
            for len in [message.len() - 1, message.len() + 1, usize::MAX] {
                assert_eq!(Packet::parse(&bytes, len), Err(Malformed::Length));
            }
        }
    }

    #[test]
    fn every_altered_bit_is_noticed() {
        for message in samples() {
            for bit in 0..LEN * 8 {
                let mut bytes = message.emit(&KEY);
                bytes[bit / 8] ^= 1 << (bit % 8);
                let parsed = Packet::parse(&bytes, message.len());
                assert!(parsed.is_err() || !parsed.is_ok_and(|packet| packet.is_genuine(&KEY)), "bit {bit}");
            }
        }
    }

    #[test]
    fn lengths_that_no_datagram_has_are_refused() {
        for length in [0, LEN as u32 - 1, LONGEST + 1, u32::MAX] {
            for body in [Body::Ping { length }, Body::Pong { length }] {
                let message = Message { nonce: 1, body };
                assert_eq!(Packet::parse(&message.emit(&KEY), message.len()), Err(Malformed::Length));
            }
        }
    }

    #[test]
    fn no_answer_is_longer_than_a_question() {
        for message in samples() {
            let is_question = matches!(message.body, Body::Ping { .. } | Body::Ask(_));
            assert!(if is_question { message.len() >= LEN } else { message.len() == LEN });
        }
    }

    #[test]
    fn nonces_differ_by_key_and_count() {
        assert_ne!(nonce(&KEY, 1), nonce(&KEY, 2));
        assert_ne!(nonce(&KEY, 1), nonce(&[8; 16], 1));
    }
}

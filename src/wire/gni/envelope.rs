//! The datagrams of connection managers between nodes: the same bytes, under other keys and with other addresses.
//!
//! Within a node, an endpoint is the id that it has there, at whichever address the node has: its device is [`HOME`].
//! Between nodes the device is the address in the endpoint's name. And there the tag is under a key of the receiver's,
//! or of the sender's, which those have who have the name.

use std::net::Ipv4Addr;

use super::datagram::{Key, LEN, NameId, is_genuine, sign};
use crate::wire::siphash::SipHash24;

/// The device of every endpoint of this node, within it.
pub const HOME: u32 = u32::from_be_bytes(Ipv4Addr::LOCALHOST.octets());

/// Where the device and the id of the receiver and of the sender stand.
const TARGET: usize = 16;
const SOURCE: usize = 32;

/// A text that users have agreed on, as a key.
pub fn key_of(text: &[u8]) -> Key {
    let half = |seed: u8| {
        let word =
            |part: &[u8]| u64::from_le_bytes(std::array::from_fn(|at| part.get(at).copied().unwrap_or(0)));
        let words = text.chunks(8).map(word);
        words.fold(SipHash24::new(&[seed; 16]), SipHash24::absorb).finish((text.len() as u64) << 56)
    };
    (u128::from(half(1)) | u128::from(half(2)) << 64).to_le_bytes()
}

/// A datagram that goes between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    bytes: [u8; LEN],
    length: usize,
}

impl Envelope {
    /// Around bytes of a length that a datagram has.
    pub fn new(datagram: &[u8]) -> Option<Self> {
        let is_fit = (64..=LEN).contains(&datagram.len()) && datagram.len().is_multiple_of(8);
        if !is_fit {
            return None;
        }
        let mut bytes = [0; LEN];
        bytes[..datagram.len()].copy_from_slice(datagram);
        Some(Self { bytes, length: datagram.len() })
    }

    /// What is in it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn name(&self, at: usize) -> NameId {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| self.bytes[at + index]));
        let incarnation = u64::from(word(at + 8)) | u64::from(word(at + 12)) << 32;
        NameId { device: word(at), cdm_id: word(at + 4), incarnation }
    }

    /// Whom it is for.
    pub fn target(&self) -> NameId {
        self.name(TARGET)
    }

    /// Who says that he has sent it.
    pub fn source(&self) -> NameId {
        self.name(SOURCE)
    }

    /// Whether its tag is that of this key.
    pub fn is_genuine(&self, key: &Key) -> bool {
        is_genuine(key, self.bytes())
    }

    /// The same from this device, under this key.
    #[must_use]
    pub fn from(mut self, device: u32, key: &Key) -> Self {
        self.readdress(SOURCE, device, key);
        self
    }

    /// The same for this device, under this key.
    #[must_use]
    pub fn to(mut self, device: u32, key: &Key) -> Self {
        self.readdress(TARGET, device, key);
        self
    }

    fn readdress(&mut self, at: usize, device: u32, key: &Key) {
        self.bytes[at..at + 4].copy_from_slice(&device.to_le_bytes());
        let _ = sign(key, &mut self.bytes[..self.length]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::datagram::{Body, Credentials, Datagram};
    use super::*;

    const HERE: Key = [1; 16];
    const BETWEEN: Key = [2; 16];

    #[test]
    fn a_datagram_is_the_same_on_the_other_node() {
        let name = |device, cdm_id| NameId { device, cdm_id, incarnation: 7 << 40 };
        let datagram = Datagram {
            credentials: Credentials::default(),
            target: name(20, 21),
            source: name(HOME, 11),
            target_vc: 1,
            source_vc: 2,
            body: Body::Disconnect { sent: 3 },
        };
        let mut bytes = [0; LEN];
        let length = datagram.emit(&HERE, &mut bytes);
        let sent = Envelope::new(&bytes[..length]).expect("a datagram").from(10, &BETWEEN);
        assert_eq!((sent.target(), sent.source()), (name(20, 21), name(10, 11)));
        assert!(sent.is_genuine(&BETWEEN) && !sent.is_genuine(&HERE));
        let heard = Envelope::new(sent.bytes()).expect("a datagram").to(HOME, &HERE);
        let expected = Datagram { target: name(HOME, 21), source: name(10, 11), ..datagram };
        assert_eq!(Datagram::parse(heard.bytes(), &HERE), Ok(expected));
    }

    #[test]
    fn texts_are_different_keys() {
        let texts =
            ["a", "b", "ab", "a\0", "a longer one with several words", "a longer one with several wordt"];
        for (at, text) in texts.iter().enumerate() {
            assert!(texts[..at].iter().all(|other| key_of(other.as_bytes()) != key_of(text.as_bytes())));
        }
    }

    #[test]
    fn bytes_of_no_length_are_in_none() {
        for length in [0, 63, 65, 129, 136] {
            assert_eq!(Envelope::new(&vec![0; length]), None);
        }
    }
}

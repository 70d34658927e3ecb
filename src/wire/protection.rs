//! Payload protection: encryption and authentication of whole packets with AES-128-GCM (NIST SP 800-38D),
//! in the manner of QUIC (RFC 9001, 5).
//!
//! A protected packet has the header of [`usnic`](super::usnic) with its *packet number* in the place of the
//! keyed tag, then the encrypted payload, then a tag of 16 bytes. Header and extension are associated data:
//! they can be read by anybody and changed by nobody.
//!
//! Keys come from HKDF-SHA-256 (RFC 5869). From the key that the *receiver* has published a [`Secret`] is
//! extracted, with a label of this protocol as the salt; from it key and initialisation vector are expanded, with this as
//! the info:
//!
//! | bytes | |
//! |---|---|
//! | 0..6 | `packet` |
//! | 6..14 | name of the sender's process |
//! | 14..18 | incarnation of the sender's process |
//! | 18..20 | connection |
//! | 20..28 | phase: the packet number without its lowest [`PHASE_BITS`] bits |
//!
//! So each direction of each connection has its own keys, and a new one whenever the phase changes. The nonce
//! is the initialisation vector, its last 8 bytes XORed with the packet number, big-endian (RFC 8446, 5.3).
//!
//! There is one algorithm and no negotiation. AES-128-GCM has hardware support wherever MPI jobs run; without
//! it the library's constant-time code does the same, slower.

use super::usnic::{Key, NUMBER, Packet};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use std::fmt;

/// Bytes of the tag behind the payload.
pub const TAG_LEN: usize = 16;

/// Packets that share a key: 2^22. RFC 9001, 6.6 and B.1.1, allows 2^23 packets of up to 2^16 bytes.
pub const PHASE_BITS: u32 = 22;

/// Packets that may fail to authenticate under the keys of one connection (RFC 9001, 6.6).
pub const INTEGRITY_LIMIT: u64 = 1 << 52;

/// What the keys are for; it names the protocol and its version.
const LABEL: &[u8] = b"hawser usnic 3";

/// Bytes of a key of AES-128.
const AES_KEY_LEN: usize = 16;

/// Who seals packets: one direction of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Name of its process.
    pub name: u64,
    /// Incarnation of its process.
    pub incarnation: u32,
    /// How often it has connected to the receiver.
    pub connection: u16,
}

/// How many bytes are expanded from a secret.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// What all keys of packets to one process are derived from.
pub struct Secret(Prk);

impl Secret {
    /// From the key that the receiver has published.
    pub fn new(key: &Key) -> Self {
        Self(Salt::new(HKDF_SHA256, LABEL).extract(key))
    }

    /// The key under which the process says that it does not know a connection any more.
    pub fn reset_key(&self) -> Option<Key> {
        let mut key = Key::default();
        self.expand(&[b"reset"], &mut key)?;
        Some(key)
    }

    /// The key of a sender's packets in one phase; `None` if the library has no memory for it.
    pub fn packet_key(&self, sender: &Sender, phase: u64) -> Option<PacketKey> {
        let Sender { name, incarnation, connection } = sender;
        let info = [
            b"packet".as_slice(),
            &name.to_le_bytes(),
            &incarnation.to_le_bytes(),
            &connection.to_le_bytes(),
            &phase.to_le_bytes(),
        ];
        let mut bytes = [0; AES_KEY_LEN + NONCE_LEN];
        self.expand(&info, &mut bytes)?;
        let (key, iv) = bytes.split_first_chunk::<AES_KEY_LEN>()?;
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).ok()?);
        let mut wide = [0; 16];
        wide.iter_mut().zip(iv).for_each(|(to, from)| *to = *from);
        Some(PacketKey { key, iv: u128::from_le_bytes(wide) })
    }

    /// A number that follows from the secret and tells nothing about it.
    pub fn number(&self) -> Option<u32> {
        let mut bytes = [0; 4];
        self.expand(&[b"number"], &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    fn expand(&self, info: &[&[u8]], to: &mut [u8]) -> Option<()> {
        self.0.expand(info, Bytes(to.len())).ok()?.fill(to).ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The key of a sender's packets in one phase.
pub struct PacketKey {
    key: LessSafeKey,
    /// Its bytes, of which the last eight are XORed with the number: one value, since bytes that are written one by
    /// one cannot be read together at once.
    iv: u128,
}

impl fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PacketKey")
    }
}

impl PacketKey {
    fn nonce(&self, number: u64) -> Nonce {
        let nonce = self.iv ^ u128::from(number.swap_bytes()) << ((NONCE_LEN - 8) * 8);
        let bytes = nonce.to_le_bytes();
        Nonce::assume_unique_for_key(std::array::from_fn(|at| bytes[at]))
    }

    /// Numbers a packet and encrypts it where it is: a header of `header` bytes, the payload, and room for the
    /// tag. A number must be used for one packet only. If that is not possible, nothing of the payload remains.
    ///
    /// # Errors
    /// `false` if the bytes are no such packet, or too many.
    pub fn seal(&self, number: u64, header: usize, packet: &mut [u8]) -> bool {
        let sealed = self.try_seal(number, header, packet);
        if sealed.is_none() {
            packet.fill(0);
        }
        sealed.is_some()
    }

    fn try_seal(&self, number: u64, header: usize, packet: &mut [u8]) -> Option<()> {
        let (head, rest) = packet.split_at_mut_checked(header)?;
        let (payload, end) = rest.split_last_chunk_mut::<TAG_LEN>()?;
        head.get_mut(NUMBER)?.copy_from_slice(&number.to_le_bytes());
        let tag = self.key.seal_in_place_separate_tag(self.nonce(number), Aad::from(&*head), payload).ok()?;
        end.copy_from_slice(tag.as_ref().first_chunk::<TAG_LEN>()?);
        Some(())
    }

    /// Decrypts the payload of a packet into `to`, which has its length. Where that gives `false`, nobody
    /// with the key has made the packet, and `to` means nothing.
    pub fn open(&self, packet: &Sealed<'_>, to: &mut [u8]) -> bool {
        let Sealed { number, header, payload, tag } = *packet;
        let nonce = self.nonce(number);
        if to.len() != payload.len() {
            return false;
        }
        to.copy_from_slice(payload);
        self.key.open_in_place_separate_tag(nonce, Aad::from(header), (*tag).into(), to, 0..).is_ok()
    }

    /// Decrypts a packet where it is: a header of `header` bytes, with its number, the payload and the tag. As of
    /// [`open`](Self::open), where that gives `false` the payload means nothing.
    pub fn open_in_place(&self, number: u64, header: usize, packet: &mut [u8]) -> bool {
        let Some((header, rest)) = packet.split_at_mut_checked(header) else { return false };
        let Some((payload, tag)) = rest.split_last_chunk_mut::<TAG_LEN>() else { return false };
        self.open_apart(number, header, payload, tag)
    }

    /// The same of a packet whose payload lies elsewhere than what is around it.
    pub fn open_apart(&self, number: u64, header: &[u8], payload: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        let (nonce, aad) = (self.nonce(number), Aad::from(header));
        self.key.open_in_place_separate_tag(nonce, aad, (*tag).into(), payload, 0..).is_ok()
    }
}

/// The number that a packet claims to have; `None` if it is too short for one.
#[inline]
pub fn number(packet: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*packet.get(NUMBER)?.first_chunk()?))
}

/// The parts of a protected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// Its number.
    pub number: u64,
    /// Header and extension.
    pub header: &'a [u8],
    /// The payload, encrypted.
    pub payload: &'a [u8],
    /// What authenticates both.
    pub tag: &'a [u8; TAG_LEN],
}

impl<'a> Sealed<'a> {
    /// The parts of a packet; `None` if it is too short for the tag.
    pub fn of(packet: &Packet<'a>) -> Option<Self> {
        let (bytes, payload) = (packet.bytes(), packet.payload());
        let (header, rest) = bytes.split_at_checked(payload.start)?;
        let (payload, rest) = rest.split_at_checked(payload.len())?;
        Some(Self { number: number(header)?, header, payload, tag: rest.first_chunk()? })
    }
}

/// The phase to which a packet number belongs.
#[inline]
pub const fn phase(number: u64) -> u64 {
    number >> PHASE_BITS
}

#[cfg(test)]
#[path = "protection_tests.rs"]
mod tests;

//! What goes through a stream between nodes, which stands for a mailbox there.
//!
//! Whoever has connected says first to which mailbox the stream leads, by a token that only those know who were told of
//! the mailbox; 32 bytes, little-endian:
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `hwsgni01` |
//! | 8..12 | number of the mailbox |
//! | 12..16 | zero |
//! | 16..32 | token |
//!
//! Then, in both directions, entries, each behind a header of 8 bytes: bytes of the payload (4), kind (1), zero (3).

/// Bytes of a greeting.
pub const GREETING: usize = 32;
/// Bytes of a header.
pub const HEADER: usize = 8;
/// Bytes of a token.
pub const TOKEN: usize = 16;

const MAGIC: [u8; 8] = *b"hwsgni01";

/// To which mailbox a stream leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Number of the mailbox.
    pub number: u32,
    /// What only those know who were told of it.
    pub token: [u8; TOKEN],
}

impl Greeting {
    /// The bytes.
    pub fn emit(&self) -> [u8; GREETING] {
        let mut bytes = [0; GREETING];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.token);
        bytes
    }

    /// The greeting that these bytes are; `None` when they are none.
    pub fn parse(bytes: &[u8; GREETING]) -> Option<Self> {
        let number = u32::from_le_bytes(std::array::from_fn(|at| bytes[8 + at]));
        let greeting = Self { number, token: std::array::from_fn(|at| bytes[16 + at]) };
        (greeting.emit() == *bytes).then_some(greeting)
    }
}

/// Whether two tokens are one, in a time that does not say where they differ.
pub fn same_token(one: &[u8; TOKEN], other: &[u8; TOKEN]) -> bool {
    one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the entry.
    pub kind: u8,
    /// Bytes that follow.
    pub length: u32,
}

impl Header {
    /// The bytes.
    #[inline]
    pub fn emit(self) -> [u8; HEADER] {
        (u64::from(self.kind) << 32 | u64::from(self.length)).to_le_bytes()
    }

    /// The header that these bytes are; `None` when they are none.
    #[inline]
    pub fn parse(bytes: [u8; HEADER]) -> Option<Self> {
        let word = u64::from_le_bytes(bytes);
        (word >> 40 == 0).then_some(Self { kind: (word >> 32) as u8, length: word as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_survive_the_journey_and_nothing_else_is_one() {
        let greeting = Greeting { number: 0x0102_0304, token: std::array::from_fn(|at| at as u8) };
        let bytes = greeting.emit();
        assert_eq!(Greeting::parse(&bytes), Some(greeting));
        for at in (0..8).chain(12..16) {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_eq!(Greeting::parse(&wrong), None, "byte {at}");
        }
    }

    #[test]
    fn tokens_are_one_when_every_byte_is() {
        let token = [9; TOKEN];
        assert!(same_token(&token, &token));
        for at in 0..TOKEN {
            let mut other = token;
            other[at] ^= 0x80;
            assert!(!same_token(&token, &other));
        }
    }

    #[test]
    fn headers_survive_the_journey_and_set_bytes_that_mean_nothing_are_none() {
        let header = Header { kind: 0xFE, length: 0x1234_5678 };
        let bytes = header.emit();
        assert_eq!(Header::parse(bytes), Some(header));
        for at in 5..HEADER {
            let mut wrong = bytes;
            wrong[at] = 1;
            assert_eq!(Header::parse(wrong), None, "byte {at}");
        }
    }
}

//! What connected endpoints (`FI_EP_MSG`) say to each other before they are connected: one message on a socket that keeps
//! their boundaries, and one in answer.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | `hwcm` |
//! | 4 | 1, the version |
//! | 5 | 1: a request; 2: it is accepted; 3: it is not |
//! | 6..8 | bytes of data, little-endian |
//! | 8..56 | the name of who speaks |
//! | 56.. | data, [`DATA`] bytes at most |

use super::name::{self, Name};

/// Bytes of data that go with a message, at most: as of the GNI provider.
pub const DATA: usize = 256;

const MAGIC: [u8; 4] = *b"hwcm";
const VERSION: u8 = 1;
const HEAD: usize = 8 + name::LEN;

/// Bytes of a message, at most.
pub const LEN: usize = HEAD + DATA;

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// An endpoint wants to be connected.
    Request,
    /// It is.
    Accept,
    /// It is not.
    Reject,
}

impl Said {
    fn number(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Accept => 2,
            Self::Reject => 3,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        [Self::Request, Self::Accept, Self::Reject].into_iter().find(|said| said.number() == number)
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What is said.
    pub said: Said,
    /// By whom.
    pub name: Name,
    /// What its user adds; no more than [`DATA`] bytes.
    pub data: &'a [u8],
}

impl<'a> Message<'a> {
    /// The bytes. Data beyond [`DATA`] bytes is left out.
    pub fn emit(&self) -> Vec<u8> {
        let data = &self.data[..self.data.len().min(DATA)];
        let mut bytes = Vec::with_capacity(HEAD + data.len());
        bytes.extend(MAGIC);
        bytes.extend([VERSION, self.said.number()]);
        bytes.extend((data.len() as u16).to_le_bytes());
        bytes.extend(self.name.emit());
        bytes.extend(data);
        bytes
    }

    /// The message that these bytes are; `None` when they are none.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, data) = bytes.split_at_checked(HEAD)?;
        let (start, named) = head.split_at(8);
        let length = usize::from(u16::from_le_bytes([start[6], start[7]]));
        if start[..4] != MAGIC || start[4] != VERSION || length != data.len() || length > DATA {
            return None;
        }
        let said = Said::from_number(start[5])?;
        let name = Name::parse(named.try_into().ok()?)?;
        Some(Self { said, name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn message(data: &[u8]) -> Message<'_> {
        Message { said: Said::Accept, name: Name::bound(Ipv4Addr::LOCALHOST, 7), data }
    }

    #[test]
    fn what_is_said_is_heard() {
        for said in [Said::Request, Said::Accept, Said::Reject] {
            for data in [&b""[..], b"x", &[7; DATA]] {
                let message = Message { said, ..message(data) };
                assert_eq!(Message::parse(&message.emit()), Some(message));
            }
        }
        assert_eq!(message(&[1; DATA + 1]).emit().len(), LEN);
    }

    #[test]
    fn what_is_none_is_refused() {
        let good = message(b"data").emit();
        for length in 0..good.len() {
            assert_eq!(Message::parse(&good[..length]), None, "{length} bytes");
        }
        let mut long = good.clone();
        long.push(0);
        assert_eq!(Message::parse(&long), None);
        for (at, value) in [(0, 0), (4, 2), (5, 0), (5, 4), (6, 5), (16, 0), (25, 1)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(Message::parse(&bad), None, "{value} at {at}");
        }
    }
}

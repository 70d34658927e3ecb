//! The private data of openib's connection requests, replies and rejections.
//!
//! | bytes | of a request and a reply |
//! |---|---|
//! | 0..2 | port at which the sender listens, in network order; of a reply, anything |
//! | 2..6 | the sender's number of the peer |
//! | 6 | which queue |
//! | 7..15 | name of the sender's process: its job, and its rank |
//!
//! A rejection has four bytes: a number. Devices hand private data on with padding behind it. Whoever is the one that is
//! connected to asks with the same bytes, for the first queue, and is rejected.

/// Bytes of a request or a reply.
const LEN: usize = 15;

/// A request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Private {
    /// Where its sender listens.
    pub port: u16,
    /// What its sender calls the peer. Who sends by a shared queue says it with each message.
    pub index: u32,
    /// Which queue of the specification.
    pub queue: u8,
    /// Name of the sender's process, the job in its lower half.
    pub process: u64,
}

impl Private {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&self.port.to_be_bytes());
        bytes[2..6].copy_from_slice(&self.index.to_ne_bytes());
        bytes[6] = self.queue;
        bytes[7..].copy_from_slice(&self.process.to_ne_bytes());
        bytes
    }

    /// From what has come, perhaps padded; `None` when it is too short.
    pub fn parse(padded: &[u8]) -> Option<Self> {
        let (port, rest) = padded.split_first_chunk::<2>()?;
        let (index, rest) = rest.split_first_chunk::<4>()?;
        let (&queue, rest) = rest.split_first()?;
        let process = rest.first_chunk::<8>()?;
        Some(Self {
            port: u16::from_be_bytes(*port),
            index: u32::from_ne_bytes(*index),
            queue,
            process: u64::from_ne_bytes(*process),
        })
    }
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The side that was asked is the one that connects, and does so now.
    WrongDirection,
    /// Any other reason. Open MPI's own never says it, and does nothing when it hears it.
    Other,
}

impl Refusal {
    /// As bytes.
    pub const fn to_bytes(self) -> [u8; 4] {
        match self {
            Self::WrongDirection => 0_u32.to_ne_bytes(),
            Self::Other => 1_u32.to_ne_bytes(),
        }
    }

    /// From what has come; `None` when nobody has said anything. Where nobody listens, a device may hand on zeros.
    pub fn parse(padded: &[u8]) -> Option<Self> {
        let why = padded.first_chunk::<4>()?;
        Some(if *why == [0; 4] { Self::WrongDirection } else { Self::Other })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Private =
        Private { port: 0x0102, index: 0x0304_0506, queue: 7, process: 0x0809_0A0B_0C0D_0E0F };

    #[test]
    fn the_layout_is_the_one_that_is_described() {
        let bytes = ONE.to_bytes();
        assert_eq!((bytes[..2].to_vec(), bytes[6]), (vec![1, 2], 7));
        assert_eq!((bytes[2..6].to_vec(), bytes[7..].to_vec()), (vec![6, 5, 4, 3], (8..16).rev().collect()));
    }

    #[test]
    fn it_survives_padding_and_nothing_shorter_is_read() {
        for padding in [0, 1, 41, 133] {
            let mut padded = ONE.to_bytes().to_vec();
            padded.resize(LEN + padding, 0xFF);
            assert_eq!(Private::parse(&padded), Some(ONE));
        }
        assert!((0..LEN).all(|length| Private::parse(&ONE.to_bytes()[..length]).is_none()));
    }

    #[test]
    fn a_refusal_is_a_number_or_nothing() {
        for why in [Refusal::WrongDirection, Refusal::Other] {
            assert_eq!(Refusal::parse(&why.to_bytes()), Some(why));
            assert_eq!(Refusal::parse(&why.to_bytes()[..3]), None);
        }
        assert_eq!(Refusal::parse(&[0; 148]), Some(Refusal::WrongDirection));
    }
}

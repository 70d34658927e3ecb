//! The private data of connection requests, replies and rejections.
//!
//! Little-endian, 52 bytes; of the 56 that a request may have, librdmacm takes none for a port that is asked for by
//! address. Devices hand private data on with padding behind it (148 bytes for a rejection by rxe), so that only its own
//! length counts.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | magic |
//! | 4 | version |
//! | 5 | length: 52 |
//! | 6 | kind |
//! | 7 | of a request or reply, the queue; of a rejection, why; of a kick, zero |
//! | 8..16 | nonce of the life of the process that sends it |
//! | 16..24 | nonce of the life of the process that it is for |
//! | 24..32 | name of the process that sends it |
//! | 32..36 | the sender's endpoint |
//! | 36..40 | which attempt of the sides to connect |
//! | 40..48 | hash of the queue specification |
//! | 48 | which of its listeners the sender would be asked at |
//! | 49 | number of queues |
//! | 50..52 | zero |
//!
//! What stands in the first seven bytes is the same in every version, so that one version can refuse another.

/// Bytes of private data.
pub const LEN: usize = 52;

const MAGIC: [u8; 4] = *b"hwvb";
const VERSION: u8 = 1;
/// Bytes that are the same in every version.
const HEADER: usize = 7;

const REQUEST: u8 = 1;
const KICK: u8 = 2;
const REPLY: u8 = 3;
const REJECTION: u8 = 4;

/// Why a request or a kick is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The side that was asked is the one that connects, and does so now.
    WrongDirection,
    /// Not now: the asker is not known here yet, or a former attempt is still being let go of. Ask again.
    Later,
    /// Whom it is for is not the process that it reached, or an earlier life of that.
    Incarnation,
    /// The sides have different queues.
    Specification,
    /// The sides speak different versions.
    Version,
    /// It cannot be read, or means nothing.
    Malformed,
    /// The side that was asked has given this peer up for good.
    Failed,
    /// The side that was asked ends.
    Closing,
}

impl Refusal {
    const ALL: [Self; 8] = [
        Self::WrongDirection,
        Self::Later,
        Self::Incarnation,
        Self::Specification,
        Self::Version,
        Self::Malformed,
        Self::Failed,
        Self::Closing,
    ];

    fn parse(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// What private data says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Body {
    /// Connect this queue with me.
    Request {
        /// Which queue of the specification.
        queue: u8,
    },
    /// Connect with me: I may not ask you. Its attempt is the last that its sender has given up.
    Kick,
    /// This queue is connected.
    Reply {
        /// Which queue of the specification.
        queue: u8,
    },
    /// No.
    Rejection(Refusal),
}

/// Private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Private {
    /// What it says.
    pub body: Body,
    /// Which life of a process sends it.
    pub nonce: u64,
    /// Which life it is for.
    pub target: u64,
    /// Name of the process that sends it.
    pub process: u64,
    /// The sender's endpoint; 0 where it has none.
    pub token: u32,
    /// Which attempt of the sides to connect.
    pub attempt: u32,
    /// Hash of the sender's queue specification.
    pub specification: u64,
    /// Which of its listeners the sender would be asked at.
    pub listener: u8,
    /// Queues of the sender's specification.
    pub queues: u8,
}

/// Why bytes are no private data of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They do not begin as ours do: somebody else's, or none.
    Foreign,
    /// Of another version.
    Version,
    /// Of a length that none has.
    Length,
    /// Of no known kind or reason, or with bytes set that mean nothing.
    Kind,
}

impl Private {
    /// Writes it.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let (kind, detail) = match self.body {
            Body::Request { queue } => (REQUEST, queue),
            Body::Kick => (KICK, 0),
            Body::Reply { queue } => (REPLY, queue),
            Body::Rejection(why) => (REJECTION, why as u8 + 1),
        };
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 4, [VERSION, LEN as u8, kind, detail]);
        put(&mut bytes, 8, self.nonce.to_le_bytes());
        put(&mut bytes, 16, self.target.to_le_bytes());
        put(&mut bytes, 24, self.process.to_le_bytes());
        put(&mut bytes, 32, self.token.to_le_bytes());
        put(&mut bytes, 36, self.attempt.to_le_bytes());
        put(&mut bytes, 40, self.specification.to_le_bytes());
        put(&mut bytes, 48, [self.listener, self.queues]);
        bytes
    }

    /// Reads what a peer has sent, and perhaps a device has padded.
    ///
    /// # Errors
    /// Why it is none of ours.
    pub fn parse(padded: &[u8]) -> Result<Self, Malformed> {
        if padded.len() < HEADER || padded[..4] != MAGIC {
            return Err(Malformed::Foreign);
        }
        if padded[4] != VERSION {
            return Err(Malformed::Version);
        }
        if usize::from(padded[5]) != LEN {
            return Err(Malformed::Length);
        }
        let bytes: &[u8; LEN] = padded.first_chunk().ok_or(Malformed::Length)?;
        let [kind, detail] = take(bytes, 6);
        let body = match kind {
            REQUEST => Body::Request { queue: detail },
            KICK if detail == 0 => Body::Kick,
            REPLY => Body::Reply { queue: detail },
            REJECTION => Body::Rejection(Refusal::parse(detail).ok_or(Malformed::Kind)?),
            _ => return Err(Malformed::Kind),
        };
        let [listener, queues, zeroes @ ..]: [u8; 4] = take(bytes, 48);
        if zeroes != [0; 2] {
            return Err(Malformed::Kind);
        }
        Ok(Self {
            body,
            nonce: u64::from_le_bytes(take(bytes, 8)),
            target: u64::from_le_bytes(take(bytes, 16)),
            process: u64::from_le_bytes(take(bytes, 24)),
            token: u32::from_le_bytes(take(bytes, 32)),
            attempt: u32::from_le_bytes(take(bytes, 36)),
            specification: u64::from_le_bytes(take(bytes, 40)),
            listener,
            queues,
        })
    }
}

fn put<const N: usize>(bytes: &mut [u8; LEN], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

fn take<const N: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Private> {
        let mut bodies = vec![
            Body::Request { queue: 0 },
            Body::Request { queue: 0xFF },
            Body::Kick,
            Body::Reply { queue: 31 },
        ];
        bodies.extend(Refusal::ALL.map(Body::Rejection));
        let private = |body| Private {
            body,
            nonce: 0x0102_0304_0506_0708,
            target: 0x1112_1314_1516_1718,
            process: 0x2122_2324_2526_2728,
            token: 0x3132_3334,
            attempt: 0x4142_4344,
            specification: 0x5152_5354_5556_5758,
            listener: 0x61,
            queues: 0x71,
        };
        bodies.into_iter().map(private).collect()
    }

    /// Numbers of a fixed sequence (splitmix64).
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed ^ (mixed >> 27)
        }

        fn below(&mut self, bound: usize) -> usize {
            (self.next() % bound as u64) as usize
        }
    }

    #[test]
    fn private_data_fits_and_survives_the_journey_with_padding_or_without() {
        for private in all() {
            let bytes = private.emit();
            assert!(bytes.len() <= 56, "what a request may have");
            for padding in [0, 1, 56 - LEN, 148 - LEN, 255] {
                for filler in [0, 0xFF] {
                    let mut padded = bytes.to_vec();
                    padded.resize(LEN + padding, filler);
                    assert_eq!(Private::parse(&padded), Ok(private));
                }
            }
        }
    }

    #[test]
    fn the_layout_is_the_one_that_is_described() {
        let bytes = all()[1].emit();
        assert_eq!(bytes[..8], [b'h', b'w', b'v', b'b', 1, 52, 1, 0xFF]);
        assert_eq!((bytes[8], bytes[15]), (8, 1));
        assert_eq!((bytes[16], bytes[24], bytes[32], bytes[36], bytes[40]), (0x18, 0x28, 0x34, 0x44, 0x58));
        assert_eq!(bytes[48..], [0x61, 0x71, 0, 0]);
        assert_eq!(all().last().map(|last| last.emit()[6..8].to_vec()), Some(vec![4, 8]));
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        for private in all() {
            let bytes = private.emit();
            for length in 0..LEN {
                let expected = if length < HEADER { Malformed::Foreign } else { Malformed::Length };
                assert_eq!(Private::parse(&bytes[..length]), Err(expected), "{length} bytes");
            }
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for private in all() {
            let altered = |at: usize, byte: u8| {
                let mut bytes = private.emit();
                bytes[at] = byte;
                Private::parse(&bytes)
            };
            for at in 0..4 {
                assert_eq!(altered(at, 0), Err(Malformed::Foreign));
            }
            assert_eq!(altered(4, 2), Err(Malformed::Version));
            for length in [0, 51, 53, 255] {
                assert_eq!(altered(5, length), Err(Malformed::Length));
            }
            for kind in [0, 5, 0xFF] {
                assert_eq!(altered(6, kind), Err(Malformed::Kind));
            }
            for at in [50, 51] {
                assert_eq!(altered(at, 1), Err(Malformed::Kind));
            }
            let names_queue = matches!(private.body, Body::Request { .. } | Body::Reply { .. });
            assert_eq!(altered(7, 9).is_ok(), names_queue);
            assert_eq!(altered(7, 0).is_ok(), !matches!(private.body, Body::Rejection(_)));
        }
    }

    /// What is read of any bytes is what those bytes say: written again, they are the same.
    #[test]
    fn random_and_mutated_bytes_are_parsed_or_dropped() {
        let mut numbers = Numbers(1);
        let (mut parsed, mut dropped) = (0, 0);
        for round in 0..60_000 {
            let mut bytes: Vec<u8> = if round % 4 == 0 {
                (0..numbers.below(3 * LEN)).map(|_| numbers.next() as u8).collect()
            } else {
                all()[numbers.below(all().len())].emit().to_vec()
            };
            for _ in 0..numbers.below(4) {
                if !bytes.is_empty() {
                    let at = numbers.below(bytes.len());
                    bytes[at] = [0, 1, 0xFF, numbers.next() as u8][numbers.below(4)];
                }
            }
            bytes.resize(bytes.len() + numbers.below(96), 0);
            if numbers.below(8) == 0 {
                bytes.truncate(numbers.below(LEN));
            }
            match Private::parse(&bytes) {
                Ok(private) => {
                    assert_eq!(private.emit(), bytes[..LEN]);
                    parsed += 1;
                }
                Err(_) => dropped += 1,
            }
        }
        assert!(parsed > 10_000 && dropped > 10_000, "{parsed} parsed, {dropped} dropped");
    }
}

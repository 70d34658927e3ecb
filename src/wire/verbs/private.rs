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

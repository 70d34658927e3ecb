//! What two modules say to each other about device memory, through their rings, under a tag of their own. The host
//! never sees it. The bytes are untrusted: what is not one of these is dropped and counted.

use crate::cuda::share::Exported;
use crate::engine::ipc::{self, Refusal};

/// The tag of these messages: that of Open MPI's smcuda for the same purpose, `MCA_BTL_TAG_SMCUDA`
/// (`opal/mca/btl/btl.h`).
pub(super) const TAG: u8 = 0x22;

/// What the sender of a request or an acceptance has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Its PID namespace, as an inode: numbers of processes and files mean nothing in another.
    pub(super) namespace: u64,
    /// A little memory, to be opened on trial; in it, its process and its device.
    pub(super) probe: Exported,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Of the hand-shake; with an offer where it has one.
    Shake(ipc::Message, Option<Offer>),
    /// Let me have so many bytes from here on of what you have registered, by way of your slots.
    Ask { ticket: u64, serial: u64, offset: u64, len: u64 },
    /// A slot of mine holds so many bytes of these, from here on.
    Filled { ticket: u64, slot: u32, len: u32, at: u64 },
    /// The slot is yours again.
    Emptied { slot: u32 },
    /// There is no more to come of this.
    Failed { ticket: u64 },
    /// I want no more of this.
    Withdrawn { ticket: u64 },
}

/// What a message begins with: a version, and what follows.
const MAGIC: u16 = 0x5C01;

const REQUEST: u16 = 1;
const ACCEPT: u16 = 2;
const CONFIRM: u16 = 3;
const NOT_READY: u16 = 4;
const REFUSE: u16 = 5;
const ASK: u16 = 16;
const FILLED: u16 = 17;
const EMPTIED: u16 = 18;
const FAILED: u16 = 19;
const WITHDRAWN: u16 = 20;

const REFUSALS: [Refusal; 5] =
    [Refusal::Disabled, Refusal::NoDevice, Refusal::NoPeerAccess, Refusal::NotOpened, Refusal::NeverReady];

impl Message {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + Exported::LENGTH);
        bytes.extend(MAGIC.to_le_bytes());
        let mut put = |kind: u16, words: &[u64], rest: &[u8]| {
            bytes.extend(kind.to_le_bytes());
            words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes.extend(rest);
        };
        match self {
            Self::Shake(message, offer) => {
                let (kind, why) = match message {
                    ipc::Message::Request => (REQUEST, 0),
                    ipc::Message::Accept => (ACCEPT, 0),
                    ipc::Message::Confirm => (CONFIRM, 0),
                    ipc::Message::NotReady => (NOT_READY, 0),
                    ipc::Message::Refuse(why) => {
                        (REFUSE, REFUSALS.iter().position(|other| *other == why).unwrap_or(0) as u64)
                    }
                };
                match offer {
                    Some(offer) => put(kind, &[why, offer.namespace], &offer.probe.to_bytes()),
                    None => put(kind, &[why], &[]),
                }
            }
            Self::Ask { ticket, serial, offset, len } => put(ASK, &[ticket, serial, offset, len], &[]),
            Self::Filled { ticket, slot, len, at } => {
                put(FILLED, &[ticket, u64::from(slot), u64::from(len), at], &[]);
            }
            Self::Emptied { slot } => put(EMPTIED, &[u64::from(slot)], &[]),
            Self::Failed { ticket } => put(FAILED, &[ticket], &[]),
            Self::Withdrawn { ticket } => put(WITHDRAWN, &[ticket], &[]),
        }
        bytes
    }

    /// `None` when these bytes are no message.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        if u16::from_le_bytes(take(&mut rest)?) != MAGIC {
            return None;
        }
        let kind = u16::from_le_bytes(take(&mut rest)?);
        let first = word(&mut rest)?;
        let message = match kind {
            REQUEST | ACCEPT => {
                let namespace = word(&mut rest)?;
                let (probe, after) = rest.split_at_checked(Exported::LENGTH)?;
                rest = after;
                let offer = Offer { namespace, probe: Exported::parse(probe)? };
                let message = if kind == REQUEST { ipc::Message::Request } else { ipc::Message::Accept };
                Self::Shake(message, Some(offer))
            }
            CONFIRM => Self::Shake(ipc::Message::Confirm, None),
            NOT_READY => Self::Shake(ipc::Message::NotReady, None),
            REFUSE => {
                let why = *REFUSALS.get(usize::try_from(first).ok()?)?;
                Self::Shake(ipc::Message::Refuse(why), None)
            }
            ASK => Self::Ask {
                ticket: first,
                serial: word(&mut rest)?,
                offset: word(&mut rest)?,
                len: word(&mut rest)?,
            },
            FILLED => Self::Filled {
                ticket: first,
                slot: word(&mut rest)?.try_into().ok()?,
                len: word(&mut rest)?.try_into().ok()?,
                at: word(&mut rest)?,
            },
            EMPTIED => Self::Emptied { slot: first.try_into().ok()? },
            FAILED => Self::Failed { ticket: first },
            WITHDRAWN => Self::Withdrawn { ticket: first },
            _ => return None,
        };
        rest.is_empty().then_some(message)
    }
}

/// Takes so many bytes off the front.
fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*first)
}

fn word(from: &mut &[u8]) -> Option<u64> {
    take(from).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_nothing_else_is_one() {
        let mut all: Vec<Message> =
            REFUSALS.iter().map(|why| Message::Shake(ipc::Message::Refuse(*why), None)).collect();
        all.extend([
            Message::Shake(ipc::Message::Confirm, None),
            Message::Shake(ipc::Message::NotReady, None),
            Message::Ask { ticket: 1, serial: 2, offset: 3, len: u64::MAX },
            Message::Filled { ticket: 1, slot: u32::MAX, len: 7, at: 5 },
            Message::Emptied { slot: 3 },
            Message::Failed { ticket: 9 },
            Message::Withdrawn { ticket: 9 },
        ]);
        for message in all {
            let bytes = message.to_bytes();
            assert_eq!(Message::parse(&bytes), Some(message));
            for len in 0..bytes.len() {
                assert_eq!(Message::parse(&bytes[..len]), None, "{message:?}");
            }
            assert_eq!(Message::parse(&[&bytes[..], &[0]].concat()), None, "{message:?}");
            for at in 0..4 {
                let mut changed = bytes.clone();
                changed[at] ^= 0x80;
                assert_eq!(Message::parse(&changed), None, "{message:?}");
            }
        }
        let wrong = |kind: u16, first: u64| {
            [&MAGIC.to_le_bytes()[..], &kind.to_le_bytes(), &first.to_le_bytes()].concat()
        };
        assert_eq!(Message::parse(&wrong(REFUSE, 5)), None, "for no reason that there is");
        assert_eq!(Message::parse(&wrong(REQUEST, 0)), None, "without an offer");
        assert_eq!(Message::parse(&wrong(EMPTIED, 1 << 32)), None);
    }
}

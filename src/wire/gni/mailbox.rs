//! What goes through a mailbox: the headers of its entries (SMSG messages).
//!
//! An entry has a byte, its kind with flags, and behind that a header of little-endian words, then its payload:
//!
//! | kind | words | payload |
//! |---|---|---|
//! | 1 hello | address of the probe, its bytes (two words) | |
//! | 2 eager | tag, data, send: each if its flag is set | the message |
//! | 3 start | tag, data: each if its flag is set; send, length | address and length of each piece |
//! | 4 fin | send, code | |
//! | 5 ack | send | |
//! | 6 pull | send, receive, length | |
//! | 7 piece | receive, offset | a part of the message |
//!
//! `send` and `receive` are numbers that whoever they were told has to repeat; they mean nothing to it. Long messages
//! are read where they lie by who receives them, who then says *fin*; where it cannot read there it says *pull*, and
//! they come in *pieces*. What is done to the memory of a peer has [kinds of its own](super::remote).

/// Pieces of memory of one message, at most.
pub const PIECES: usize = 8;
/// Bytes of the longest header.
pub const HEAD: usize = 8 * (4 + 2 * PIECES);

const HELLO: u8 = 1;
const EAGER: u8 = 2;
const START: u8 = 3;
const FIN: u8 = 4;
const ACK: u8 = 5;
const PULL: u8 = 6;
const PIECE: u8 = 7;
/// The message has a tag.
const TAGGED: u8 = 0x10;
/// It comes with data outside the message.
const DATA: u8 = 0x20;
/// Its sender wants to hear that it has been received.
const ANSWER: u8 = 0x40;

/// Of a message with a tag and nothing besides that nobody is to answer. Its header is one word, the tag.
pub const SHORT: u8 = EAGER | TAGGED;

/// Whether an entry of this kind says how a message has ended that its reader has sent.
pub const fn is_end(kind: u8) -> bool {
    matches!(kind, FIN | ACK)
}

/// What a message is matched by, and what comes with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The tag; `None` of one that is not tagged.
    pub tag: Option<u64>,
    /// Data outside the message.
    pub data: Option<u64>,
}

/// Where a long message lies at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lies {
    pieces: [(u64, u64); PIECES],
    count: usize,
}

impl Lies {
    /// Nowhere yet.
    pub const NOWHERE: Self = Self { pieces: [(0, 0); PIECES], count: 0 };

    /// One more piece, unless there are too many: address and length.
    pub fn push(&mut self, address: u64, length: u64) {
        if let Some(place) = self.pieces.get_mut(self.count) {
            *place = (address, length);
            self.count += 1;
        }
    }

    /// The pieces.
    pub fn pieces(&self) -> &[(u64, u64)] {
        &self.pieces[..self.count]
    }
}

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The first of all: by what the sender's memory is known.
    Hello {
        /// Where these bytes are; 0 where nobody may look.
        address: u64,
        /// What is there.
        shown: [u8; 16],
    },
    /// A message.
    Eager {
        /// What it is matched by.
        label: Label,
        /// Its number, if its sender wants to hear of it.
        send: Option<u64>,
    },
    /// A message that still lies with its sender.
    Start {
        /// What it is matched by.
        label: Label,
        /// Its number.
        send: u64,
        /// Its bytes.
        length: u64,
        /// Where they are.
        lies: Lies,
    },
    /// Such a message has been read.
    Fin {
        /// Its number.
        send: u64,
        /// 0, or why it has not.
        code: u32,
    },
    /// A message that was sent at once has been received.
    Ack {
        /// Its number.
        send: u64,
    },
    /// Such a message is wanted in pieces.
    Pull {
        /// Its number.
        send: u64,
        /// What the pieces are for.
        receive: u64,
        /// So many bytes of it.
        length: u64,
    },
    /// A piece.
    Piece {
        /// What it is for.
        receive: u64,
        /// Where it belongs.
        offset: u64,
    },
}

/// Whether what is received by an entry of this kind takes room: a message, or data beside what is put. Others answer
/// what has begun here, or leave nothing behind.
pub fn takes_room(kind: u8) -> bool {
    matches!(kind & 0xF, EAGER | START) || super::remote::tells_data(kind)
}

/// Words one after the other.
pub(super) struct Words<'a, const N: usize> {
    bytes: &'a mut [u8; N],
    length: usize,
}

impl<'a, const N: usize> Words<'a, N> {
    #[inline(always)]
    pub(super) fn new(bytes: &'a mut [u8; N]) -> Self {
        Self { bytes, length: 0 }
    }

    #[inline(always)]
    pub(super) fn put(&mut self, word: u64) {
        self.bytes[self.length..self.length + 8].copy_from_slice(&word.to_le_bytes());
        self.length += 8;
    }

    /// Bytes of them.
    #[inline(always)]
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn lies(&mut self, lies: &Lies) {
        lies.pieces().iter().for_each(|(address, length)| {
            self.put(*address);
            self.put(*length);
        });
    }

    #[inline(always)]
    fn label(&mut self, label: Label) -> u8 {
        label.tag.into_iter().chain(label.data).for_each(|word| self.put(word));
        label.tag.map_or(0, |_| TAGGED) | label.data.map_or(0, |_| DATA)
    }
}

/// Words that are taken one after the other.
pub(super) struct Taken<R> {
    at: usize,
    length: usize,
    read: R,
}

impl<R: Fn(usize) -> u64> Taken<R> {
    #[inline(always)]
    pub(super) fn new(length: usize, read: R) -> Self {
        Self { at: 0, length, read }
    }

    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<u64> {
        let here = self.at;
        self.at += 8;
        (self.at <= self.length).then(|| (self.read)(here))
    }

    /// Bytes of those that were taken.
    #[inline(always)]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// So many pieces, and their bytes.
    pub(super) fn lies(&mut self, count: usize) -> Option<(Lies, u64)> {
        let mut lies = Lies::NOWHERE;
        let mut sum = 0_u64;
        for _ in 0..count {
            let (address, piece) = (self.next()?, self.next()?);
            lies.push(address, piece);
            sum = sum.checked_add(piece)?;
        }
        Some((lies, sum))
    }

    #[inline(always)]
    fn label(&mut self, flags: u8) -> Option<Label> {
        let tag = if flags & TAGGED != 0 { Some(self.next()?) } else { None };
        let data = if flags & DATA != 0 { Some(self.next()?) } else { None };
        Some(Label { tag, data })
    }
}

/// Writes the header of an [`Entry::Eager`] that nobody is to answer, which is shorter: its kind, and how long it is.
#[inline(always)]
pub fn emit_short(label: Label, words: &mut [[u8; 8]; 2]) -> (u8, usize) {
    let (first, second) = (label.tag.or(label.data).unwrap_or(0), label.data.unwrap_or(0));
    *words = [first.to_le_bytes(), second.to_le_bytes()];
    let flags = label.tag.map_or(0, |_| TAGGED) | label.data.map_or(0, |_| DATA);
    (EAGER | flags, 8 * (usize::from(label.tag.is_some()) + usize::from(label.data.is_some())))
}

impl Entry {
    /// Writes the header: its kind, and how long it is.
    #[inline(always)]
    pub fn emit(&self, bytes: &mut [u8; HEAD]) -> (u8, usize) {
        let mut words = Words::new(bytes);
        let kind = match *self {
            Self::Hello { address, shown } => {
                words.put(address);
                shown.as_chunks().0.iter().for_each(|word| words.put(u64::from_le_bytes(*word)));
                HELLO
            }
            Self::Eager { label, send } => {
                let flags = words.label(label);
                send.into_iter().for_each(|word| words.put(word));
                EAGER | flags | send.map_or(0, |_| ANSWER)
            }
            Self::Start { label, send, length, ref lies } => {
                let flags = words.label(label);
                words.put(send);
                words.put(length);
                words.lies(lies);
                START | flags
            }
            Self::Fin { send, code } => {
                words.put(send);
                words.put(code.into());
                FIN
            }
            Self::Ack { send } => {
                words.put(send);
                ACK
            }
            Self::Pull { send, receive, length } => {
                words.put(send);
                words.put(receive);
                words.put(length);
                PULL
            }
            Self::Piece { receive, offset } => {
                words.put(receive);
                words.put(offset);
                PIECE
            }
        };
        (kind, words.length)
    }

    /// Reads the header of an entry of so many bytes, which `read` gives from an offset on; and says how long the header
    /// is. `None` where it is none.
    #[inline(always)]
    pub fn parse(kind: u8, length: usize, read: impl Fn(usize) -> u64) -> Option<(Self, usize)> {
        let mut words = Taken::new(length, read);
        let flags = kind & !0xF;
        let known = match kind & 0xF {
            EAGER => TAGGED | DATA | ANSWER,
            START => TAGGED | DATA,
            _ => 0,
        };
        if flags & !known != 0 {
            return None;
        }
        let entry = match kind & 0xF {
            EAGER => {
                let label = words.label(flags)?;
                Self::Eager { label, send: if flags & ANSWER != 0 { Some(words.next()?) } else { None } }
            }
            START => {
                let label = words.label(flags)?;
                let (send, whole) = (words.next()?, words.next()?);
                let pieces = length.saturating_sub(words.at()).div_ceil(16).min(PIECES);
                let (lies, sum) = words.lies(pieces)?;
                if sum != whole {
                    return None;
                }
                Self::Start { label, send, length: whole, lies }
            }
            HELLO => {
                let (address, low, high) = (words.next()?, words.next()?, words.next()?);
                let shown = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
                Self::Hello { address, shown }
            }
            FIN => Self::Fin { send: words.next()?, code: u32::try_from(words.next()?).ok()? },
            ACK => Self::Ack { send: words.next()? },
            PULL => Self::Pull { send: words.next()?, receive: words.next()?, length: words.next()? },
            PIECE => Self::Piece { receive: words.next()?, offset: words.next()? },
            _ => return None,
        };
        let has_payload = matches!(entry, Self::Eager { .. } | Self::Piece { .. });
        (has_payload || words.at == length).then_some((entry, words.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lies(count: u64) -> Lies {
        let mut lies = Lies::NOWHERE;
        (0..count).for_each(|piece| lies.push(0x1000 * piece, 10 + piece));
        lies
    }

    fn entries() -> Vec<Entry> {
        let mut entries = vec![
            Entry::Hello { address: 7, shown: std::array::from_fn(|at| at as u8) },
            Entry::Fin { send: u64::MAX, code: u32::MAX },
            Entry::Ack { send: 3 },
            Entry::Pull { send: 4, receive: 5, length: 6 },
            Entry::Piece { receive: 8, offset: 9 },
        ];
        for label in [
            Label::default(),
            Label { tag: Some(1), data: None },
            Label { tag: None, data: Some(2) },
            Label { tag: Some(u64::MAX), data: Some(0) },
        ] {
            entries.push(Entry::Eager { label, send: None });
            entries.push(Entry::Eager { label, send: Some(11) });
            for count in [1, 2, PIECES as u64] {
                let length = lies(count).pieces().iter().map(|piece| piece.1).sum();
                entries.push(Entry::Start { label, send: 12, length, lies: lies(count) });
            }
        }
        entries
    }

    fn parse(kind: u8, bytes: &[u8]) -> Option<(Entry, usize)> {
        Entry::parse(kind, bytes.len(), |at| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        })
    }

    #[test]
    fn headers_survive_the_journey_and_no_other_length_is_one() {
        for entry in entries() {
            let mut bytes = [0xFF; HEAD];
            let (kind, length) = entry.emit(&mut bytes);
            assert_eq!(parse(kind, &bytes[..length]), Some((entry, length)), "{entry:?}");
            for short in 0..length {
                assert_eq!(parse(kind, &bytes[..short]).map(|parsed| parsed.1), None, "{entry:?} {short}");
            }
            let has_payload = matches!(entry, Entry::Eager { .. } | Entry::Piece { .. });
            let mut longer = bytes[..length].to_vec();
            longer.extend([9; 5]);
            assert_eq!(parse(kind, &longer), has_payload.then_some((entry, length)));
        }
    }

    #[test]
    fn a_short_header_is_that_of_a_message_without_an_answer() {
        for (tag, data) in [(None, None), (Some(1), None), (None, Some(2)), (Some(3), Some(4))] {
            let label = Label { tag, data };
            let (mut words, mut bytes) = ([[0xFF; 8]; 2], [0; HEAD]);
            let (kind, length) = emit_short(label, &mut words);
            assert_eq!((kind, length), Entry::Eager { label, send: None }.emit(&mut bytes));
            assert_eq!(words.as_flattened()[..length], bytes[..length]);
        }
    }

    #[test]
    fn flags_and_kinds_that_mean_nothing_are_none() {
        let known: Vec<u8> = entries().iter().map(|entry| entry.emit(&mut [0; HEAD]).0).collect();
        for kind in 0..=u8::MAX {
            let parsed = parse(kind, &[0; HEAD]);
            assert!(parsed.is_none() || known.contains(&kind), "{kind:#x}");
        }
        // Pieces that are not as long as the whole.
        let mut bytes = [0; HEAD];
        let start = Entry::Start { label: Label::default(), send: 1, length: 11, lies: lies(1) };
        let (kind, length) = start.emit(&mut bytes);
        assert_eq!(parse(kind, &bytes[..length]), None);
        // Lengths whose sum is none.
        let mut endless = Lies::NOWHERE;
        endless.push(0, u64::MAX);
        endless.push(0, 12);
        let start = Entry::Start { label: Label::default(), send: 1, length: 11, lies: endless };
        let (kind, length) = start.emit(&mut bytes);
        assert_eq!(parse(kind, &bytes[..length]), None);
    }
}

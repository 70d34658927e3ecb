//! What goes through a mailbox for operations on the memory of a peer: the headers of PUT, GET and AMO, and of what answers
//! them.
//!
//! Kinds go on behind those of [`mailbox`](super::mailbox):
//!
//! | kind | words | payload |
//! |---|---|---|
//! | 8 put | operation, shape, data if its flag is set, places | what is put |
//! | 9 bring | operation, shape, data if its flag is set, places, pieces | |
//! | 10 get | operation, shape, places, pieces | |
//! | 11 atomic | operation, shape, which, places | operands, then those that are compared |
//! | 12 done | operation, code | what was got |
//! | 13 want | operation | |
//! | 14 part | operation, offset | a part of what is put or got |
//!
//! `operation` is a number of who begins it, and means nothing to the other side. The *target* carries an operation out
//! and says *done*. A *place* is key, address and length of memory of the target; a *piece* is address and length of memory
//! of the initiator, where the target reads what it is to *bring*, or writes what it has got. Where it may not, it says that
//! it *wants* what is put, or answers a get, in *parts*. The shape says how many places and pieces there are.

use super::amo::Amo;
use super::mailbox::{Lies, PIECES, Taken, Words};

/// Places of one operation, at most.
pub const PLACES: usize = 4;
/// Bytes of the longest header.
pub const HEAD: usize = 8 * (3 + 3 * PLACES + 2 * PIECES);

const PUT: u8 = 8;
const BRING: u8 = 9;
const GET: u8 = 10;
const ATOMIC: u8 = 11;
const DONE: u8 = 12;
const WANT: u8 = 13;
const PART: u8 = 14;
/// It comes with data that its target is told of.
const DATA: u8 = 0x20;
/// The part is of what is put.
const OF_PUT: u8 = 0x40;

/// Memory of the target, as the initiator names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The key of a registration.
    pub key: u64,
    /// Where in it: an address, or how far from the start.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// All such memory of an operation, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    places: [Place; PLACES],
    count: usize,
}

impl Places {
    /// Nowhere yet.
    pub const NOWHERE: Self = Self { places: [Place { key: 0, address: 0, length: 0 }; PLACES], count: 0 };

    /// One.
    pub fn one(place: Place) -> Self {
        let mut places = Self::NOWHERE;
        places.push(place);
        places
    }

    /// One more; whether there was room for it.
    pub fn push(&mut self, place: Place) -> bool {
        let free = self.places.get_mut(self.count);
        let is_there = free.is_some();
        if let Some(free) = free {
            *free = place;
            self.count += 1;
        }
        is_there
    }

    /// They.
    pub fn all(&self) -> &[Place] {
        &self.places[..self.count]
    }

    /// Bytes of all; `None` where that is no number.
    pub fn total(&self) -> Option<u64> {
        self.all().iter().try_fold(0_u64, |sum, place| sum.checked_add(place.length))
    }
}

/// The header of such an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// What is to be put into the target's memory.
    Put {
        /// Its number.
        operation: u64,
        /// What the target is told.
        data: Option<u64>,
        /// Where to.
        places: Places,
    },
    /// What is to be put there, and lies with the initiator.
    Bring {
        /// Its number.
        operation: u64,
        /// What the target is told.
        data: Option<u64>,
        /// Where to.
        places: Places,
        /// Where it lies.
        lies: Lies,
    },
    /// What is wanted of the target's memory.
    Get {
        /// Its number.
        operation: u64,
        /// Where it lies.
        places: Places,
        /// Where to, if it may be written there.
        lies: Lies,
    },
    /// What is to be done with values there.
    Atomic {
        /// Its number.
        operation: u64,
        /// What.
        amo: Amo,
        /// Where they lie.
        places: Places,
    },
    /// An operation has been carried out.
    Done {
        /// Its number.
        operation: u64,
        /// 0, or why it has not.
        code: u32,
    },
    /// What is to be put is wanted in parts.
    Want {
        /// Its number.
        operation: u64,
    },
    /// A part.
    Part {
        /// The number of the operation.
        operation: u64,
        /// Where it belongs.
        offset: u64,
        /// It is put, not got.
        is_put: bool,
    },
}

/// How many places and pieces there are, in a word.
fn shape(places: &Places, lies: &Lies) -> u64 {
    places.count as u64 | (lies.pieces().len() as u64) << 8
}

/// Whether the target is told of data when such an operation is carried out.
pub(super) fn tells_data(kind: u8) -> bool {
    matches!(kind & 0xF, PUT | BRING) && kind & DATA != 0
}

impl Remote {
    /// Whether an entry of this kind is one of these.
    #[inline(always)]
    pub fn is_one(kind: u8) -> bool {
        kind & 0xF >= PUT
    }

    /// Whether it begins an operation.
    pub fn begins(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Bring { .. } | Self::Get { .. } | Self::Atomic { .. })
    }

    /// Writes the header: its kind, and how long it is.
    pub fn emit(&self, bytes: &mut [u8; HEAD]) -> (u8, usize) {
        let mut words = Words::new(bytes);
        let kind = match *self {
            Self::Put { operation, data, ref places } => {
                words.put(operation);
                words.put(shape(places, &Lies::NOWHERE));
                data.into_iter().for_each(|data| words.put(data));
                put_places(&mut words, places);
                PUT | data.map_or(0, |_| DATA)
            }
            Self::Bring { operation, data, ref places, ref lies } => {
                words.put(operation);
                words.put(shape(places, lies));
                data.into_iter().for_each(|data| words.put(data));
                put_places(&mut words, places);
                words.lies(lies);
                BRING | data.map_or(0, |_| DATA)
            }
            Self::Get { operation, ref places, ref lies } => {
                words.put(operation);
                words.put(shape(places, lies));
                put_places(&mut words, places);
                words.lies(lies);
                GET
            }
            Self::Atomic { operation, amo, ref places } => {
                words.put(operation);
                words.put(shape(places, &Lies::NOWHERE));
                words.put(amo.to_word());
                put_places(&mut words, places);
                ATOMIC
            }
            Self::Done { operation, code } => {
                words.put(operation);
                words.put(code.into());
                DONE
            }
            Self::Want { operation } => {
                words.put(operation);
                WANT
            }
            Self::Part { operation, offset, is_put } => {
                words.put(operation);
                words.put(offset);
                PART | if is_put { OF_PUT } else { 0 }
            }
        };
        (kind, words.length())
    }

    /// Reads the header of an entry of so many bytes, which `read` gives from an offset on; and says how long the header
    /// is. `None` where it is none, or says of lengths what cannot be.
    pub fn parse(kind: u8, length: usize, read: impl Fn(usize) -> u64) -> Option<(Self, usize)> {
        let mut words = Taken::new(length, read);
        let flags = kind & !0xF;
        let known = match kind & 0xF {
            PUT | BRING => DATA,
            PART => OF_PUT,
            _ => 0,
        };
        if flags & !known != 0 {
            return None;
        }
        let operation = words.next()?;
        let entry = match kind & 0xF {
            PUT => {
                let (places, pieces) = counts(words.next()?)?;
                let data = if flags & DATA != 0 { Some(words.next()?) } else { None };
                let places = take_places(&mut words, places)?;
                let total = places.total()?;
                if pieces != 0 || usize::try_from(total).ok()? != length.checked_sub(words.at())? {
                    return None;
                }
                Self::Put { operation, data, places }
            }
            BRING => {
                let (places, pieces) = counts(words.next()?)?;
                let data = if flags & DATA != 0 { Some(words.next()?) } else { None };
                let places = take_places(&mut words, places)?;
                let (lies, total) = words.lies(pieces)?;
                if places.total()? != total {
                    return None;
                }
                Self::Bring { operation, data, places, lies }
            }
            GET => {
                let (places, pieces) = counts(words.next()?)?;
                let places = take_places(&mut words, places)?;
                let (lies, total) = words.lies(pieces)?;
                // Who asks says where to write all of it, or nothing.
                if !matches!(total, 0) && places.total()? != total {
                    return None;
                }
                places.total()?;
                Self::Get { operation, places, lies }
            }
            ATOMIC => {
                let (places, pieces) = counts(words.next()?)?;
                let amo = Amo::from_word(words.next()?)?;
                let places = take_places(&mut words, places)?;
                let size = amo.datatype().size() as u64;
                let total = places.total()?;
                let operands = usize::try_from(total.checked_mul(amo.operands() as u64)?).ok()?;
                let is_whole = places.all().iter().all(|place| place.length.is_multiple_of(size));
                if pieces != 0 || !is_whole || operands != length.checked_sub(words.at())? {
                    return None;
                }
                Self::Atomic { operation, amo, places }
            }
            DONE => Self::Done { operation, code: u32::try_from(words.next()?).ok()? },
            WANT => Self::Want { operation },
            PART => Self::Part { operation, offset: words.next()?, is_put: flags & OF_PUT != 0 },
            _ => return None,
        };
        let has_payload =
            matches!(entry, Self::Put { .. } | Self::Atomic { .. } | Self::Done { .. } | Self::Part { .. });
        (has_payload || words.at() == length).then_some((entry, words.at()))
    }
}

fn put_places(words: &mut Words<'_, HEAD>, places: &Places) {
    for place in places.all() {
        words.put(place.address);
        words.put(place.length);
        words.put(place.key);
    }
}

/// What a shape says.
fn counts(shape: u64) -> Option<(usize, usize)> {
    let (places, pieces) = (shape as usize & 0xFF, shape as usize >> 8 & 0xFF);
    (shape >> 16 == 0 && places <= PLACES && pieces <= PIECES).then_some((places, pieces))
}

fn take_places<R: Fn(usize) -> u64>(words: &mut Taken<R>, count: usize) -> Option<Places> {
    let mut places = Places::NOWHERE;
    for _ in 0..count {
        let (address, length) = (words.next()?, words.next()?);
        places.push(Place { key: words.next()?, address, length });
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::super::amo::Form;
    use super::*;

    fn places(count: u64) -> Places {
        let mut places = Places::NOWHERE;
        (0..count).for_each(|n| assert!(places.push(Place { key: n, address: !n, length: 8 * (n + 1) })));
        places
    }

    fn lies(total: u64) -> Lies {
        let mut lies = Lies::NOWHERE;
        lies.push(0x1000, total - 1);
        lies.push(0x2000, 1);
        lies
    }

    /// Headers with the bytes of payload that each wants; `None` for any.
    fn entries() -> Vec<(Remote, Option<u64>)> {
        let operation = 0x0123_4567_89AB_CDEF;
        let mut entries = vec![
            (Remote::Done { operation, code: u32::MAX }, None),
            (Remote::Want { operation }, Some(0)),
            (Remote::Part { operation, offset: 7, is_put: true }, None),
            (Remote::Part { operation, offset: 7, is_put: false }, None),
            (Remote::Put { operation, data: None, places: Places::NOWHERE }, Some(0)),
        ];
        for count in 1..=PLACES as u64 {
            let places = places(count);
            let total = places.total().expect("a number");
            for data in [None, Some(9)] {
                entries.push((Remote::Put { operation, data, places }, Some(total)));
                entries.push((Remote::Bring { operation, data, places, lies: lies(total) }, Some(0)));
            }
            for lies in [Lies::NOWHERE, lies(total)] {
                entries.push((Remote::Get { operation, places, lies }, Some(0)));
            }
            for (code, form, operands) in [(2, Form::Base, 1), (10, Form::Fetch, 0), (12, Form::Compare, 2)] {
                let amo = Amo::new(code, 5, form).expect("there is one");
                entries.push((Remote::Atomic { operation, amo, places }, Some(operands * total)));
            }
        }
        entries
    }

    fn parse(kind: u8, bytes: &[u8]) -> Option<(Remote, usize)> {
        Remote::parse(kind, bytes.len(), |at| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        })
    }

    #[test]
    fn headers_survive_the_journey_and_no_other_length_is_one() {
        for (entry, payload) in entries() {
            let mut bytes = [0xFF; HEAD];
            let (kind, length) = entry.emit(&mut bytes);
            assert!(Remote::is_one(kind));
            let mut all = bytes[..length].to_vec();
            for short in 0..length {
                assert_eq!(parse(kind, &all[..short]), None, "{entry:?} {short}");
            }
            all.resize(length + payload.unwrap_or(3) as usize, 7);
            assert_eq!(parse(kind, &all), Some((entry, length)), "{entry:?}");
            all.push(7);
            assert_eq!(parse(kind, &all).is_some(), payload.is_none(), "{entry:?}");
        }
    }

    #[test]
    fn flags_and_kinds_that_mean_nothing_are_none() {
        let known: Vec<u8> = entries().iter().map(|(entry, _)| entry.emit(&mut [0; HEAD]).0).collect();
        for kind in 0..=u8::MAX {
            if Remote::is_one(kind) && !known.contains(&kind) {
                (0..=HEAD)
                    .for_each(|length| assert_eq!(parse(kind, &[0; HEAD][..length]), None, "{kind:#x}"));
            }
        }
    }

    /// Changes every word of every header to numbers at the edges: what is read is never more than there is, and says
    /// nothing that does not add up.
    #[test]
    fn whatever_the_words_are_lengths_add_up() {
        let edges = [0, 1, 4, 5, 8, 9, 0xFF, 0x100, 0x108, 1 << 16, 1 << 32, 1 << 63, u64::MAX - 7, u64::MAX];
        let mut parsed = 0;
        for (entry, payload) in entries() {
            let mut bytes = [0; HEAD];
            let (kind, length) = entry.emit(&mut bytes);
            let mut all = bytes[..length].to_vec();
            all.resize(length + payload.unwrap_or(3) as usize, 7);
            for at in (0..length).step_by(8) {
                for edge in edges {
                    let mut changed = all.clone();
                    changed[at..at + 8].copy_from_slice(&edge.to_le_bytes());
                    let Some((entry, head)) = parse(kind, &changed) else { continue };
                    parsed += 1;
                    let payload = (changed.len() - head) as u64;
                    match entry {
                        Remote::Put { places, .. } => assert_eq!(places.total(), Some(payload)),
                        Remote::Bring { places, lies, .. } => {
                            let sum: u64 = lies.pieces().iter().map(|piece| piece.1).sum();
                            assert_eq!(places.total(), Some(sum));
                        }
                        Remote::Get { places, lies, .. } => {
                            let sum: u64 = lies.pieces().iter().map(|piece| piece.1).sum();
                            assert!(places.total().is_some_and(|total| sum == 0 || sum == total));
                        }
                        Remote::Atomic { amo, places, .. } => {
                            let total = places.total().expect("a number");
                            assert_eq!(total * amo.operands() as u64, payload);
                            assert!(total.is_multiple_of(amo.datatype().size() as u64));
                        }
                        Remote::Done { .. } | Remote::Want { .. } | Remote::Part { .. } => {}
                    }
                }
            }
        }
        assert!(parsed > 100, "{parsed} were headers");
    }
}

//! Coalesced packets: short fragments to one peer that share a datagram (RFC 9000, 12.2).
//!
//! They lie one behind the other, each with its own header, number and tag; each but the last is a fragment with
//! a short header, or a protected one with a long header and its authentication tag. The length in the header says
//! where the next one begins. What is no such packet ends the datagram.
//!
//! All of that is of version 3 of packets: before it, protected ones did not share. Of another version nothing is taken.
//!
//! Panic contract: as in [`super::usnic`]; nothing here panics, whatever the bytes.

use super::protection::TAG_LEN;
use super::usnic::{FRAGMENT, Flags, HEADER_LEN, SHORT_HEADER_LEN, VERSION};

/// Bytes of a packet besides its payload, by how its header begins, if others may follow it in its datagram.
#[inline(always)]
fn bare_len(begin: [u8; 3]) -> Option<usize> {
    let [version, form, flags] = begin;
    let is_protected = flags & Flags::PROTECTED.bits() != 0;
    match form {
        _ if version != VERSION => None,
        form if form == FRAGMENT.short && !is_protected => Some(SHORT_HEADER_LEN),
        form if form == FRAGMENT.long && is_protected => Some(HEADER_LEN + TAG_LEN),
        _ => None,
    }
}

/// Whether others may follow a packet with this header in its datagram.
#[inline]
pub fn can_be_followed(header: &[u8]) -> bool {
    header.first_chunk().is_some_and(|begin| bare_len(*begin).is_some())
}

/// Bytes of the first packet in a datagram: all of it, unless others follow. A datagram longer than `longest` is one
/// packet: what it could cost who gets it would be without measure.
#[inline(always)]
pub fn first_len(datagram: &[u8], longest: usize) -> usize {
    if datagram.len() > longest {
        return datagram.len();
    }
    let &[version, form, flags, _, low, high, ..] = datagram else { return datagram.len() };
    match bare_len([version, form, flags]) {
        Some(bare) => datagram.len().min(bare + usize::from(u16::from_le_bytes([low, high]))),
        None => datagram.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::wire::usnic::{Body, Packet, Repr, Sender};

    const LONGEST: usize = 1472;
    const SENDER: Sender = Sender { name: 1, incarnation: 2, slot: 3 };

    fn packet(sender: Option<Sender>, body: Body, payload: &[u8]) -> Vec<u8> {
        flagged(Flags::default(), sender, body, payload)
    }

    fn flagged(flags: Flags, sender: Option<Sender>, body: Body, payload: &[u8]) -> Vec<u8> {
        let repr = Repr {
            flags,
            tag: 1,
            length: payload.len() as u16,
            connection: 2,
            receiver_slot: 3,
            sender,
            stamp: 4,
            echo: 5,
            credit: 6,
            seq: 7,
            ack: 8,
            body,
        };
        [&repr.emit()[..], payload].concat()
    }

    #[test]
    fn packets_are_found_one_behind_the_other() {
        let fragments = [&b"first"[..], b"", b"and the third"].map(|text| packet(None, Body::Fragment, text));
        let last = packet(None, Body::Ack(Default::default()), b"");
        let datagram = [&fragments.concat()[..], &last].concat();
        let mut rest = &datagram[..];
        for fragment in &fragments {
            let (first, others) = rest.split_at(first_len(rest, LONGEST));
            assert_eq!(first, fragment);
            assert!(Packet::parse_fragment(first).is_some());
            rest = others;
        }
        assert_eq!((first_len(rest, LONGEST), rest), (last.len(), &last[..]));
    }

    #[test]
    fn protected_ones_have_long_headers_and_a_tag_behind_each() {
        let fragments = [&b"first"[..], b"", b"and the third"].map(|text| {
            let header = flagged(Flags::PROTECTED, Some(SENDER), Body::Fragment, text);
            assert!(can_be_followed(&header));
            [header, vec![7; TAG_LEN]].concat()
        });
        let datagram = fragments.concat();
        let mut rest = &datagram[..];
        for fragment in &fragments {
            let (first, others) = rest.split_at(first_len(rest, LONGEST));
            assert_eq!(first, fragment);
            assert!(Packet::parse(first).is_ok());
            rest = others;
        }
        assert!(rest.is_empty());
        // One that is protected and short there is not, nor one that is long and carries its tag in the header.
        for (flags, sender) in [(Flags::PROTECTED, None), (Flags::default(), Some(SENDER))] {
            let datagram = [flagged(flags, sender, Body::Fragment, b"x"), datagram.clone()].concat();
            assert!(!can_be_followed(&datagram) && first_len(&datagram, LONGEST) == datagram.len());
        }
    }

    #[test]
    fn what_is_no_fragment_with_a_short_header_is_all_of_its_datagram() {
        let chunk = Body::Chunk { fragment: 1, size: 100, offset: 0 };
        for first in [
            packet(Some(SENDER), Body::Fragment, b"x"),
            packet(None, chunk, b"x"),
            packet(None, Body::Void, b""),
            vec![VERSION; 5],
        ] {
            let datagram = [&first[..], &packet(None, Body::Fragment, b"y")[..]].concat();
            assert_eq!(first_len(&datagram, LONGEST), datagram.len());
        }
    }

    #[test]
    fn a_datagram_that_is_too_long_is_one_packet() {
        let mut datagram = packet(None, Body::Fragment, b"first");
        let first = datagram.len();
        datagram.resize(LONGEST, 1);
        assert_eq!(first_len(&datagram, LONGEST), first);
        datagram.push(1);
        assert_eq!(first_len(&datagram, LONGEST), LONGEST + 1);
    }

    #[test]
    fn a_length_that_lies_ends_with_the_datagram() {
        let mut fragment = packet(None, Body::Fragment, b"abc");
        fragment[4..6].fill(0xFF);
        for len in 0..=fragment.len() {
            assert_eq!(first_len(&fragment[..len], LONGEST), len);
        }
    }
}

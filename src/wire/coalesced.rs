//! Coalesced packets: short fragments to one peer that share a datagram (RFC 9000, 12.2).
//!
//! They lie one behind the other, each with its own header, number and tag; each but the last is a fragment with
//! a short header, whose length says where the next one begins. What is no such packet ends the datagram.
//!
//! Panic contract: as in [`super::usnic`]; nothing here panics, whatever the bytes.

use super::usnic::{Kind, SHORT_HEADER_LEN, VERSION};

/// Bytes of the first packet in a datagram: all of it, unless others follow. A datagram longer than `longest` is one
/// packet: what it could cost who gets it would be without measure.
#[inline(always)]
pub fn first_len(datagram: &[u8], longest: usize) -> usize {
    if datagram.len() > longest {
        return datagram.len();
    }
    let &[version, kind, _, _, low, high, ..] = datagram else { return datagram.len() };
    if [version, kind] != [VERSION, Kind::Fragment as u8] {
        return datagram.len();
    }
    datagram.len().min(SHORT_HEADER_LEN + usize::from(u16::from_le_bytes([low, high])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: usize = 1472;
    use crate::wire::usnic::{Body, Flags, Packet, Repr, Sender};

    fn packet(sender: Option<Sender>, body: Body, payload: &[u8]) -> Vec<u8> {
        let repr = Repr {
            flags: Flags::default(),
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
    fn what_is_no_fragment_with_a_short_header_is_all_of_its_datagram() {
        let sender = Sender { name: 1, incarnation: 2, slot: 3 };
        let chunk = Body::Chunk { fragment: 1, size: 100, offset: 0 };
        for first in [
            packet(Some(sender), Body::Fragment, b"x"),
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

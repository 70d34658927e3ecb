//! The contexts of scalable endpoints: under which cdm ids they are reached.
//!
//! A transmit or receive context has a cdm id of its own on the device of its endpoint. It follows from that of the
//! endpoint, and leads back to it, so that who knows an endpoint's name can reach its receive contexts, and who hears from a
//! transmit context knows whose it is. Device, incarnation, port and key are the endpoint's.
//!
//! | cdm id | whose |
//! |---|---|
//! | bit 31 is set | an endpoint's that the provider has named |
//! | bits 30 and 31 are 01 | a scalable one's: bits 12..30 are the endpoint's, bits 0..12 say which context |
//! | bits 29 to 31 are 001 | of a context of one that is bound to a service: bits 16..28 say which, bits 0..16 are the service |
//! | all others | bound to a service |
//!
//! The first receive context has the cdm id of the endpoint. Transmit contexts are counted as they are opened: one that is opened
//! again is another one to its peers, as they may not have heard yet that it was closed.

use super::name::Name;

/// Contexts that an endpoint has on each side, at most.
pub const MOST: usize = 64;
/// Bits of an address that may say which receive context is meant, at most.
pub const MOST_BITS: u32 = 8;

/// A context of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The receive context of this index.
    Receive(u8),
    /// The transmit context that was opened after so many others.
    Transmit(u16),
}

const KIND: u32 = 0xC000_0000;
const SCALABLE: u32 = 0x4000_0000;
const OF_SERVICE_KIND: u32 = 0xE000_0000;
const OF_SERVICE: u32 = 0x2000_0000;
/// Bits that say which context.
const NUMBER: u32 = 12;
/// The number of the first transmit context.
const TRANSMITS: u32 = MOST as u32;

impl Part {
    fn number(self) -> Option<u32> {
        match self {
            Self::Receive(index) => Some(u32::from(index)).filter(|number| *number < TRANSMITS),
            Self::Transmit(count) => {
                Some(u32::from(count) + TRANSMITS).filter(|number| *number < 1 << NUMBER)
            }
        }
    }
}

/// The cdm id of a scalable endpoint, of a number that others are not likely to have.
pub fn scalable(number: u32) -> u32 {
    SCALABLE | number << NUMBER & !KIND
}

/// Whether that is the cdm id of a scalable endpoint that the provider has named, or of a context of one.
pub fn is_scalable(cdm_id: u32) -> bool {
    cdm_id & KIND == SCALABLE
}

/// The cdm id of the endpoint that an id is of, or of a context of; of any other endpoint its own.
#[inline]
pub fn whole(cdm_id: u32) -> u32 {
    if is_scalable(cdm_id) {
        cdm_id >> NUMBER << NUMBER
    } else if cdm_id & OF_SERVICE_KIND == OF_SERVICE {
        cdm_id & 0xFFFF
    } else {
        cdm_id
    }
}

/// The cdm id of a context of an endpoint; `None`: it has no such.
pub fn part(endpoint: u32, part: Part) -> Option<u32> {
    let number = part.number()?;
    match endpoint {
        _ if number == 0 => Some(endpoint),
        service if service <= 0xFFFF => Some(OF_SERVICE | number << 16 | service),
        made if is_scalable(made) && whole(made) == made => Some(made | number),
        _ => None,
    }
}

/// Whether an endpoint of this id can have contexts.
pub fn has_room(endpoint: u32) -> bool {
    part(endpoint, Part::Transmit(0)).is_some()
}

impl Name {
    /// The name under which a context of the endpoint is reached; `None`: it has no such. Of an endpoint that was named by
    /// node and service nobody knows before how many it has.
    pub fn part(&self, which: Part) -> Option<Self> {
        let most = match self.contexts {
            0 if self.incarnation == 0 => MOST,
            0 => 1,
            count => count.into(),
        };
        if matches!(which, Part::Receive(index) if usize::from(index) >= most) {
            return None;
        }
        part(self.cdm_id, which).map(|cdm_id| Self { cdm_id, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::net::Ipv4Addr;

    #[test]
    fn every_context_has_an_id_of_its_own_that_leads_back() {
        let mut seen = HashSet::new();
        for endpoint in [1, 0xFFFF, scalable(0), scalable(u32::MAX), scalable(77)] {
            for index in 0..MOST as u8 {
                for which in [
                    Part::Receive(index),
                    Part::Transmit(index.into()),
                    Part::Transmit(4000 - u16::from(index)),
                ] {
                    let id = part(endpoint, which).expect("there is one");
                    assert_eq!(whole(id), endpoint, "{which:?}");
                    assert!(seen.insert(id), "{id:#x} of {which:?}");
                }
            }
            assert_eq!(part(endpoint, Part::Receive(0)), Some(endpoint));
            assert_eq!(part(endpoint, Part::Receive(MOST as u8)), None);
            assert!(part(endpoint, Part::Transmit(4031)).is_some());
            assert_eq!(part(endpoint, Part::Transmit(4032)), None, "there were too many");
            assert!(has_room(endpoint) && is_scalable(endpoint) == (endpoint > 0xFFFF));
        }
    }

    #[test]
    fn other_endpoints_have_no_contexts_and_are_whole() {
        for id in [1 << 31, u32::MAX, 1 << 16, 1 << 20] {
            assert_eq!(whole(id), id);
            assert_eq!(part(id, Part::Receive(1)), None);
            assert_eq!(part(id, Part::Transmit(0)), None);
            assert_eq!(part(id, Part::Receive(0)), Some(id));
            assert!(!has_room(id) && !is_scalable(id));
        }
        assert_eq!(part(scalable(1) | 3, Part::Receive(1)), None, "that of a context has none");
    }

    #[test]
    fn a_name_has_as_many_receive_contexts_as_it_says() {
        let bound = Name::bound(Ipv4Addr::LOCALHOST, 9228);
        assert!(bound.part(Part::Receive(MOST as u8 - 1)).is_some(), "nobody knows");
        let ordinary = Name { incarnation: 5, ..bound };
        assert_eq!(ordinary.part(Part::Receive(0)), Some(ordinary));
        assert_eq!(ordinary.part(Part::Receive(1)), None);
        let three = Name { contexts: 3, ..ordinary };
        let last = three.part(Part::Receive(2)).expect("there");
        assert_eq!((last.port, last.incarnation, whole(last.cdm_id)), (three.port, 5, three.cdm_id));
        assert_eq!(three.part(Part::Receive(3)), None);
    }
}

//! How two members of a communicator without a common id tell each other what each calls it.
//!
//! Communicators made by `MPI_Comm_create_from_group` have an extended id of 128 bits at every
//! member, too long for a tag, and a short local id that differs from member to member. A sender
//! must put the *receiver's* short id into the tag, so it announces itself and asks for it. The
//! announcement travels as an untagged message, in the machine's byte order, in the form of
//! `mca_mtl_ofi_cid_hdr_t` of Open MPI 5.0's `mtl_ofi.h`, so that a job may mix hawser with the C
//! component. That one has 16 bits for the short id; hawser adds the whole id behind a mark in
//! bytes that the C component leaves as they are.
//!
//! | bytes | |
//! |---|---|
//! | 0..16 | extended id |
//! | 16..18 | short id, low 16 bits |
//! | 20..24 | rank of the sender in the communicator |
//! | 24 | not 0: the sender waits for the receiver's announcement |
//! | 25 | not 0: ranks travel outside the tag |
//! | 26..28 | the mark `HW`, when 28..32 hold the whole short id |

/// One member's announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The id that is the same at every member.
    pub id: [u64; 2],
    /// What the sender calls the communicator.
    pub index: u32,
    /// Rank of the sender in it.
    pub rank: i32,
    /// Whether the sender waits for an announcement in return.
    pub asks: bool,
    /// Whether ranks travel outside the tag.
    pub directed: bool,
}

/// Bytes of an announcement.
pub const LEN: usize = 32;

const MARK: [u8; 2] = *b"HW";

impl Announcement {
    /// The bytes.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0..8].copy_from_slice(&self.id[0].to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.id[1].to_ne_bytes());
        bytes[16..18].copy_from_slice(&(self.index as u16).to_ne_bytes());
        bytes[20..24].copy_from_slice(&self.rank.to_ne_bytes());
        bytes[24] = u8::from(self.asks);
        bytes[25] = u8::from(self.directed);
        bytes[26..28].copy_from_slice(&MARK);
        bytes[28..32].copy_from_slice(&self.index.to_ne_bytes());
        bytes
    }

    /// The announcement in `bytes`; `None` when it is not one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let short = u32::from(u16::from_ne_bytes([bytes[16], bytes[17]]));
        let whole = word(28);
        let marked = bytes[26..28] == MARK && whole & 0xFFFF == short;
        // The C component's 16 bits are signed: beyond them it cannot say what it means.
        let index = if marked { whole } else { Some(short).filter(|short| *short <= 0x7FFF)? };
        let rank = word(20) as i32;
        (rank >= 0).then_some(Self {
            id: [long(0), long(8)],
            index,
            rank,
            asks: bytes[24] != 0,
            directed: bytes[25] != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Announcement =
        Announcement { id: [7, u64::MAX - 1], index: 0x12_3456, rank: 5, asks: true, directed: false };

    #[test]
    fn what_is_emitted_is_parsed() {
        assert_eq!(Announcement::parse(&SAMPLE.emit()), Some(SAMPLE));
    }

    #[test]
    fn the_c_components_form_is_understood() {
        let mut bytes = SAMPLE.emit();
        bytes[26..].fill(0xAB);
        bytes[16..18].copy_from_slice(&0x0102_u16.to_ne_bytes());
        assert_eq!(Announcement::parse(&bytes), Some(Announcement { index: 0x0102, ..SAMPLE }));
    }

    #[test]
    fn what_is_not_an_announcement_is_refused() {
        let bytes = SAMPLE.emit();
        assert_eq!(Announcement::parse(&bytes[..31]), None);
        assert_eq!(Announcement::parse(&[&bytes[..], &[0]].concat()), None);
        let mut negative = bytes;
        negative[20..24].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert_eq!(Announcement::parse(&negative), None);
        let mut beyond = bytes;
        beyond[16..18].copy_from_slice(&0x8000_u16.to_ne_bytes());
        assert_eq!(
            Announcement::parse(&beyond),
            None,
            "the mark does not agree, and 16 signed bits end before"
        );
    }
}

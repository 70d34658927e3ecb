//! The lists of endpoints with something to be done, by what that is.
//!
//! An endpoint stands on a list by its place in the table, and has a flag for it, so that it stands there once.
//! One that goes is not looked for: whoever comes to a place on a list looks whether there is something to do
//! there, and at the worst there is not. Those that are owed an acknowledgement have [lists of their
//! own](super::ack_queue).

use super::slab::Key;
use std::collections::VecDeque;

/// The lists.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Something to send.
    pub(super) ready: VecDeque<u32>,
    /// Something to send again.
    pub(super) resending: VecDeque<u32>,
    /// A packet without a sequence number to send; one place for each of them.
    pub(super) notices: VecDeque<u32>,
    /// The send credits of this pass are used up.
    pub(super) out_of_send_credits: Vec<u32>,
    /// In turn, the share of the receive buffer is reviewed.
    pub(super) sharers: VecDeque<u32>,
    /// Closed, the longest ago first; the peer may not have noticed.
    pub(super) lingering: VecDeque<Key>,
}

impl Lists {
    /// Whether anything is to be sent that is no acknowledgement.
    #[inline(always)]
    pub(super) fn has_packets(&self) -> bool {
        !(self.ready.is_empty() && self.resending.is_empty() && self.notices.is_empty())
    }
}

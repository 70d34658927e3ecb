//! The receiving half of a connection: what has arrived, what of it is not whole yet, what is to be
//! acknowledged, and the peer's share of the receive buffer.

use super::assembler::Assembler;
use super::flow::Share;
use super::pending_ack::PendingAck;
use super::receive_window::ReceiveWindow;
use super::time::Instant;

/// What one peer sends.
#[derive(Debug)]
pub(super) struct ReceiveHalf {
    pub(super) window: ReceiveWindow,
    /// Whether a hole in it counts among what is expected on the data channel.
    pub(super) has_gap: bool,
    pub(super) assembler: Assembler,
    pub(super) ack: PendingAck,
    /// Newest stamp of the peer's, and when it came.
    pub(super) newest_stamp: Option<(u32, Instant)>,
    pub(super) share: Share,
    /// It stands in the line of those whose share is reviewed.
    pub(super) is_listed: bool,
    pub(super) last_data: Instant,
}

impl ReceiveHalf {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            window: ReceiveWindow::default(),
            has_gap: false,
            assembler: Assembler::default(),
            ack: PendingAck::default(),
            newest_stamp: None,
            share: Share::default(),
            is_listed: false,
            last_data: now,
        }
    }

    /// Bytes of memory that it takes up besides its own.
    pub(super) fn capacity_bytes(&self) -> usize {
        self.window.capacity_bytes() + self.assembler.capacity_bytes()
    }
}

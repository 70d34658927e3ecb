//! What a congestion controller is to the rest: it decides how many bytes may be under way.

use super::send_window::Landed;
use super::time::Instant;

/// What the end of a round meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Steady,
    Shrunk,
}

/// Decides how many bytes may be under way (RFC 9002, section 7).
pub(super) trait Controller {
    /// The congestion window in bytes; less than one segment means one now and then.
    fn window(&self) -> u64;
    /// The window was used up.
    fn note_limited(&mut self);
    /// A round trip was measured, by an acknowledgement that was read so late after it had come; `None`
    /// where that is not known, and part of the sample.
    fn note_round_trip(&mut self, sample: u64, late: Option<u64>);
    /// A segment was declared lost because others had overtaken it.
    fn note_lost(&mut self);
    /// Segments sent at `sent` have arrived; `shortest` is the least round trip of late.
    fn note_arrived(&mut self, arrived: Landed, sent: Instant, now: Instant, shortest: u64) -> Outcome;
    /// The least round trip is about to be forgotten, and should be looked for again.
    fn seek_least_round_trip(&mut self);
    /// Whether it still looks for the window that the path has room for.
    fn is_starting(&self) -> bool;
    /// Rounds since the last loss.
    fn lossless_rounds(&self) -> u32;
}

//! The parameters as the engine uses them: nanoseconds and integers, within their bounds.

use super::receive_window::WINDOW;
use super::rtt::Rtt;
use super::time::{MILLI, nanos};
use crate::config;
use crate::wire::protection::TAG_LEN;
use crate::wire::usnic::{HEADER_LEN, MAX_PAYLOAD};

/// A silence worth telling is a twentieth of the time after which a peer is lost, but not shorter
/// than this, lest everybody asks about everybody.
const LEAST_SILENCE: u64 = 1_000 * MILLI;
/// The same where no peer is ever lost.
const SILENCE: u64 = 3_000 * MILLI;

/// The parameters, in nanoseconds and integers.
pub(super) struct Limits {
    pub(super) window: u64,
    pub(super) send_credits: usize,
    pub(super) max_tiny: usize,
    /// Longest datagram that may leave in the call that asks for it: those that are protected do not.
    pub(super) max_at_once: usize,
    pub(super) max_datagram: usize,
    pub(super) resends: usize,
    pub(super) ack_delay: u64,
    pub(super) retransmit: u64,
    pub(super) retransmit_max: u64,
    /// No peer is asked again before that.
    pub(super) least_probe_timeout: u64,
    pub(super) peer_timeout: u64,
    pub(super) refusal_timeout: u64,
    /// Such a silence is told.
    pub(super) silence: u64,
    pub(super) protect: bool,
    /// Short messages in a row share datagrams.
    pub(super) coalesces: bool,
    /// Who sends to a peer that has ended the connection begins the next one.
    pub(super) meets_again: bool,
    /// Bytes behind the payload of each packet. All other lengths are without them.
    pub(super) trailer: usize,
}

impl Limits {
    pub(super) fn new(config: &config::Usnic) -> Self {
        let retransmit = nanos(config.retransmit).max(1);
        let retransmit_max = nanos(config.retransmit_max.max(config.retransmit)).max(1);
        let trailer = if config.protect_payload { TAG_LEN } else { 0 };
        let max_tiny = config.max_tiny.saturating_sub(trailer);
        Self {
            window: (config.window as u64).clamp(2, WINDOW),
            send_credits: config.send_credits.max(1),
            max_tiny,
            max_at_once: if config.protect_payload { 0 } else { max_tiny },
            max_datagram: config.max_datagram.saturating_sub(trailer).min(HEADER_LEN + MAX_PAYLOAD),
            resends: config.max_resends_per_iteration.max(1),
            ack_delay: nanos(config.ack_delay),
            retransmit,
            retransmit_max,
            least_probe_timeout: Rtt::least_probe_timeout(retransmit).min(retransmit_max),
            peer_timeout: nanos(config.peer_timeout),
            refusal_timeout: nanos(config.refusal_timeout),
            silence: match nanos(config.peer_timeout) {
                0 => SILENCE,
                timeout => (timeout / 20).max(LEAST_SILENCE),
            },
            protect: config.protect_payload,
            coalesces: true,
            meets_again: false,
            trailer,
        }
    }
}

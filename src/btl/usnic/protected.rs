//! The ways out of and into a module whose packets are protected: each is encrypted from the user's memory straight
//! to where the link sends it from, those of a run one behind the other, and what has come together is decrypted
//! where it lies.

use super::module::{AT_ONCE, SHARED};
use super::routes::Routes;
use crate::engine::{Engine, Instant, Received, Transmit};
use crate::link::{Arrivals, COALESCED, Datagram, Inbox, Lent, Link};
use crate::wire::coalesced::{can_be_followed, first_len};

/// The way out, from the engine to the link.
pub(super) struct Way<'a> {
    pub(super) engine: &'a mut Engine<Lent>,
    pub(super) link: &'a mut dyn Link,
    pub(super) routes: &'a Routes,
    pub(super) clock: &'a Arrivals,
    /// Short messages that were sent since the last turn.
    pub(super) row: &'a mut u32,
    /// A packet on its way to others in one datagram.
    pub(super) packet: &'a mut Vec<u8>,
}

impl Way<'_> {
    /// Hands to the link what the engine wants sent, and this datagram before; whether anything is to be flushed.
    #[inline(never)]
    pub(super) fn transmit(self, first: Transmit<Lent>, mut now: Instant) -> bool {
        let Self { engine, link, routes, clock, row, packet } = self;
        let (mut bytes, mut posted) = (0, false);
        let mut first = Some(first);
        while let Some(datagram) = first.take().or_else(|| engine.poll_transmit_run(AT_ONCE - bytes, now)) {
            let Some(route) = routes.find(datagram.endpoint) else { continue };
            let is_short = datagram.len() <= SHARED && can_be_followed(&datagram.header);
            let width = engine.longest_datagram(datagram.endpoint);
            let Some(seals) = engine.protect(&datagram) else { continue };
            if is_short {
                *row += 1;
                // The first leaves at once: mostly there is no other.
                if *row > 1 {
                    packet.clear();
                    seals.for_each(|seal| seal.write(packet));
                    if !link.coalesce(route.to, packet, width, now.nanos()) {
                        link.post(datagram.channel, route.to, packet, &[]);
                        (bytes, posted) = (bytes + packet.len(), true);
                    }
                    continue;
                }
            }
            posted = true;
            let mut longest = 0;
            for seal in seals {
                let len = seal.len();
                let mut seal = Some(seal);
                let mut write = |to: &mut Vec<u8>| {
                    if let Some(seal) = seal.take() {
                        seal.write(to);
                    }
                };
                if !link.post_written(datagram.channel, route.to, len, &mut write) {
                    link.flush();
                    // That took time; what leaves after it says when it left.
                    now = Instant::from_nanos(clock.now());
                    // A datagram that finds no room now is as good as lost, and is sent again as such.
                    link.post_written(datagram.channel, route.to, len, &mut write);
                }
                bytes += len;
                longest = longest.max(len);
            }
            // Another one like this would need a message of its own.
            if bytes + longest > AT_ONCE {
                link.flush();
                (bytes, now) = (0, Instant::from_nanos(clock.now()));
            }
        }
        posted
    }
}

/// Hands the oldest datagram to the engine, or those that came with it too; how many were handled beyond the
/// first, and what is left to be done with that one.
#[inline(never)]
pub(super) fn receive(
    engine: &mut Engine<Lent>,
    inbox: &mut Inbox,
    arrived: Option<Instant>,
    now: Instant,
) -> (u32, Option<(Received, Datagram)>) {
    let Some((joined, size, _)) = inbox.joined() else { return (0, None) };
    if joined.len() > size
        && let Some(joined) = inbox.joined_mut()
    {
        let done = engine.handle_protected_run(joined, size, arrived, now);
        if done > 0 {
            inbox.skip_joined(done);
            return (done as u32 - 1, None);
        }
    }
    let Some((whole, _)) = inbox.front() else { return (0, None) };
    let alone = whole.get(..first_len(whole, COALESCED)).unwrap_or(whole);
    let (len, all) = (alone.len(), whole.len());
    match engine.handle_datagram(alone, arrived, now) {
        Received::Nothing => {
            inbox.skip(if engine.has_refused() { all } else { len });
            (0, None)
        }
        received => (0, inbox.pop_part(len).map(|datagram| (received, datagram))),
    }
}

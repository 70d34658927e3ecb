//! The ways out of and into a module whose packets are protected: each is encrypted from the user's memory straight
//! to where the link sends it from, those of a run one behind the other, and what has come together is decrypted
//! where it lies.

use super::module::{AT_ONCE, may_share};
use super::routes::Routes;
use crate::engine::{Engine, Instant, Received, Transmit};
use crate::link::{Arrivals, COALESCED, Datagram, Inbox, Lent, Link};
use crate::wire::coalesced::first_len;

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
            let (is_short, width) = (may_share(&datagram), engine.longest_datagram(datagram.endpoint));
            let Some(mut seals) = engine.protect(&datagram) else { continue };
            *row += u32::from(is_short);
            packet.clear();
            // The first leaves at once: mostly there is no other.
            if is_short && *row > 1 {
                // INVARIANT: it is encrypted once, wherever it goes then.
                seals.by_ref().for_each(|seal| seal.write(packet));
                if link.coalesce(route.to, packet, width, now.nanos()) {
                    continue;
                }
            }
            posted = true;
            let mut longest = 0;
            let mut post = |len: usize, write: &mut dyn FnMut(&mut Vec<u8>)| {
                if !link.post_written(datagram.channel, route.to, len, write) {
                    link.flush();
                    // That took time; what leaves after it says when it left.
                    now = Instant::from_nanos(clock.now());
                    // A datagram that finds no room now is as good as lost, and is sent again as such.
                    link.post_written(datagram.channel, route.to, len, write);
                }
                bytes += len;
                longest = longest.max(len);
            };
            if !packet.is_empty() {
                post(packet.len(), &mut |to| to.extend_from_slice(packet));
            }
            for seal in seals {
                let (len, mut seal) = (seal.len(), Some(seal));
                post(len, &mut |to| {
                    if let Some(seal) = seal.take() {
                        seal.write(to);
                    }
                });
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
    let Some((joined, size, _)) = inbox.joined() else { return (0, None) };
    let whole = joined.get(..size).unwrap_or(joined);
    // What came together is parted by its one length, and must stay so: only what came alone may be taken in parts.
    let len = if joined.len() > size { size } else { first_len(whole, COALESCED) };
    let alone = whole.get(..len).unwrap_or(whole);
    let (len, all) = (alone.len(), whole.len());
    match engine.handle_datagram(alone, arrived, now) {
        Received::Nothing => {
            inbox.skip(if engine.has_refused() { all } else { len });
            (0, None)
        }
        received => (0, inbox.pop_part(len).map(|datagram| (received, datagram))),
    }
}

#[cfg(test)]
#[path = "protected_tests.rs"]
mod tests;

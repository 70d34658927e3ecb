//! The ways out of and into a module whose packets are protected: each is encrypted from the user's memory straight
//! to where the link sends it from, those of a run one behind the other, and what has come together is decrypted
//! where it lies.

use super::module::AT_ONCE;
use super::routes::Routes;
use crate::engine::{Engine, Instant, Received, Transmit};
use crate::link::{Arrivals, Datagram, Inbox, Lent, Link};

/// Hands to the link what the engine wants sent, and this datagram before.
#[inline(never)]
pub(super) fn transmit(
    first: Transmit<Lent>,
    engine: &mut Engine<Lent>,
    link: &mut dyn Link,
    routes: &Routes,
    clock: &Arrivals,
    mut now: Instant,
) {
    let mut bytes = 0;
    let mut first = Some(first);
    while let Some(datagram) = first.take().or_else(|| engine.poll_transmit_run(AT_ONCE - bytes, now)) {
        let Some(route) = routes.find(datagram.endpoint) else { continue };
        let Some(seals) = engine.protect(&datagram) else { continue };
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
    let Some((alone, _)) = inbox.front() else { return (0, None) };
    let len = alone.len();
    match engine.handle_datagram(alone, arrived, now) {
        Received::Nothing => {
            inbox.skip(len);
            (0, None)
        }
        received => (0, inbox.pop().map(|datagram| (received, datagram))),
    }
}

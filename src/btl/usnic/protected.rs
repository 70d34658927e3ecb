//! The way out of a module whose packets are protected: each is encrypted from the user's memory straight to
//! where the link sends it from.

use super::module::AT_ONCE;
use super::routes::Routes;
use crate::engine::{Engine, Instant, Transmit};
use crate::link::{Arrivals, Lent, Link};

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
    while let Some(datagram) = first.take().or_else(|| engine.poll_transmit(now)) {
        let Some(route) = routes.find(datagram.endpoint) else { continue };
        let Some(seal) = engine.protect(&datagram) else { continue };
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
        // Another one like this would need a message of its own.
        if bytes + len > AT_ONCE {
            link.flush();
            (bytes, now) = (0, Instant::from_nanos(clock.now()));
        }
    }
}

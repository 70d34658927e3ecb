//! What leaves a module: from the engine to the link, as much at once as one offloaded message carries.

use super::super::protected::Way;
use super::{AT_ONCE, BUSY, State, may_share};
use crate::btl::Lent;
use crate::engine::{Channel, EndpointId, Instant, Transmit};
use crate::link::AddressId;

impl State {
    /// Hands to the link what the engine wants sent.
    pub(super) fn transmit(&mut self, mut now: Instant) {
        let (mut posted, mut bytes) = (false, 0);
        while let Some(datagram) = self.engine.poll_transmit_run(AT_ONCE - bytes, now) {
            if self.engine.is_protected() {
                self.note_use(now);
                let Self { engine, link, routes, arrivals, row, packet, .. } = self;
                let link = link.as_mut();
                posted = Way { engine, link, routes, clock: arrivals, row, packet }.transmit(datagram, now);
                break;
            }
            let Some((to, pieces)) = self.aim(&datagram) else { continue };
            posted = true;
            if datagram.following > 0 {
                let headers = self.engine.headers();
                self.link.post_run(datagram.channel, to, headers.bytes(), headers.payload(), pieces);
            } else {
                let pieces = if datagram.pieces[1].is_some() { &pieces[..] } else { &pieces[..1] };
                if !self.link.post(datagram.channel, to, &datagram.header, pieces) {
                    self.link.flush();
                    // That took time; what leaves after it says when it left.
                    now = Instant::from_nanos(self.arrivals.now());
                    // A datagram that finds no room now is as good as lost, and is sent again as such.
                    self.link.post(datagram.channel, to, &datagram.header, pieces);
                }
            }
            let len = datagram.len();
            bytes += len;
            // Another one like this would need a message of its own.
            if bytes + len / (1 + datagram.following) > AT_ONCE {
                self.link.flush();
                (bytes, now) = (0, Instant::from_nanos(self.arrivals.now()));
            }
        }
        if posted {
            self.note_use(now);
            self.link.flush();
        }
    }

    /// Hands one short datagram to the network.
    #[inline]
    pub(super) fn hand_over(&mut self, datagram: &Transmit<Lent>, now: Instant) {
        let Some((to, pieces)) = self.aim(datagram) else { return };
        self.note_use(now);
        self.row += 1;
        // The first leaves at once: mostly there is no other.
        let waits = self.row > 1 && may_share(datagram) && {
            self.packet.clear();
            self.packet.extend_from_slice(&datagram.header);
            pieces.iter().for_each(|piece| piece.append_to(&mut self.packet));
            let longest = self.engine.longest_datagram(datagram.endpoint);
            self.link.coalesce(to, &self.packet, longest, now.nanos())
        };
        if !waits {
            self.link.send(datagram.channel, to, &datagram.header, &pieces);
        }
    }

    /// The same for a fragment that the engine has copied.
    #[inline]
    pub(super) fn hand_over_copy(&mut self, endpoint: EndpointId, now: Instant) {
        let Some(to) = self.routes.find(endpoint).map(|route| route.to) else { return };
        self.note_use(now);
        self.row += 1;
        // As above.
        let waits = self.row > 1 && {
            let longest = self.engine.longest_datagram(endpoint);
            self.link.coalesce(to, &self.short, longest, now.nanos())
        };
        if !waits {
            self.link.send(Channel::Priority, to, &self.short, &[]);
        }
    }

    #[inline]
    fn note_use(&mut self, now: Instant) {
        (self.busy_until, self.is_quiet) = (now.plus(BUSY), false);
    }

    /// Where a datagram goes, and what it carries.
    #[inline]
    fn aim(&self, datagram: &Transmit<Lent>) -> Option<(AddressId, [Lent; 2])> {
        let to = self.routes.find(datagram.endpoint)?.to;
        let mut pieces = [Lent::EMPTY; 2];
        for (slot, piece) in pieces.iter_mut().zip(&datagram.pieces) {
            if let Some(piece) = piece {
                *slot = piece.memory.slice(piece.offset, piece.len);
            }
        }
        Some((to, pieces))
    }
}

//! A peer that connects anew, while we still have the connection before.
//!
//! It has ended that one in good order or forgotten it, and knows nothing of ours any more. Where nothing was under way,
//! the connection that follows takes the place of the old one, and the user need not know. Otherwise the peer is asked,
//! under the old names, how far that had come; its answer is a `reset`. What has not arrived is lost, and the user is told.
//! It may then close the endpoint, and is connected anew; but the peer does not wait for that without end.
//!
//! It is the same the other way round: who has kept a connection that its peer has ended, and sends, may
//! [begin](Engine::meet_again) the next one itself.

use super::core::Engine;
use super::endpoint::{Endpoint, Phase};
use super::interface::Memory;
use super::packet::Notice;
use super::receive::Stranger;
use super::time::MILLI;
use crate::error::Result;
use crate::wire::usnic::{Repr, Sender};

/// How long the user has to close an endpoint that is lost, before the peer that has connected anew is told that it is not
/// heard; on the clock that does not run while nobody calls us.
const GRACE: u64 = 5_000 * MILLI;

impl<M: Memory> Engine<M> {
    /// The peer has connected anew, as its packet shows. Whose packet it is, once that is settled.
    #[cold]
    pub(super) fn reconnected(
        &mut self,
        index: u32,
        repr: &Repr,
        sender: &Sender,
    ) -> std::result::Result<u32, Stranger> {
        let running = self.clock.running();
        let endpoint = self.endpoints.at_mut(index).ok_or(Stranger::Stale)?;
        // It calls us by our slot: it takes our old connection for the other half of its new one.
        let is_crossed = repr.receiver_slot != 0;
        match endpoint.phase {
            // Only we were left of the old one: whoever wants may connect.
            Phase::Lingering => {
                self.remove(index);
                return Err(Stranger::Unknown);
            }
            Phase::Dead if running.since(endpoint.life.lost) >= GRACE => return Err(Stranger::Over(None)),
            Phase::Dead => {}
            // There is nobody left to take leave of.
            Phase::Closing => self.finish_close(index),
            Phase::Open | Phase::Draining if is_crossed => self.lose_peer(index),
            Phase::Parting if is_crossed => self.part(index),
            Phase::Open if endpoint.is_waiting() => self.part(index),
            Phase::Open if endpoint.is_drained() => {
                if self.renew(index).is_ok() {
                    return self.locate(repr, sender);
                }
                self.lose_peer(index);
            }
            Phase::Open | Phase::Draining | Phase::Parting => self.notify(index, Notice::Introduction),
        }
        Err(Stranger::Stale)
    }

    /// Begins the next connection where the last one was, with what was held back for it. What was under way in that has ended.
    pub(super) fn renew(&mut self, index: u32) -> Result<()> {
        self.strip(index);
        let Some((peer, (name, closed))) = self.endpoints.at(index).map(|old| (old.peer, old.closed()))
        else {
            return Ok(());
        };
        self.closed.note(name, closed);
        let mut fresh = self.fresh_endpoint(peer)?;
        let now = self.clock.now();
        let Some(endpoint) = self.endpoints.at_mut(index) else { return Ok(()) };
        // The path is the same, and so are the lists of the engine on which it stands.
        let width = endpoint.send.path.width() - endpoint.saved();
        if width < peer.max_datagram {
            fresh.send.path.handle_too_big(width, now);
        }
        fresh.receive.is_listed = endpoint.receive.is_listed;
        fresh.ids.own_slot = endpoint.ids.own_slot;
        fresh.took_longest = endpoint.took_longest;
        fresh.held = std::mem::take(&mut endpoint.held);
        *endpoint = Endpoint { timers: endpoint.timers.renewed(), ..fresh };
        endpoint.note_names(&self.identity);
        self.release(index);
        Ok(())
    }
}

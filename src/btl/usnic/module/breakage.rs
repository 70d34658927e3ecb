//! What goes wrong with a module, or with some of its peers: the user hears of it first, and then of the losses.

use super::incoming::FULL_TURNS;
use super::{Module, State};
use crate::btl::usnic::Upcalls;
use crate::btl::usnic::agent::Finding;
use crate::engine::Instant;
use crate::link::place;

impl Module {
    /// No datagram comes or goes any more. The user hears it first, and then of all peers that they are lost.
    #[cold]
    pub(super) fn break_off(&self, errno: i32, now: Instant, up: &impl Upcalls) {
        let peers = self.state.with(|state| {
            let name = |endpoint| Some((endpoint, state.engine.peer(endpoint)?.name));
            state.routes.open().into_iter().filter_map(name).collect::<Vec<_>>()
        });
        up.broken(errno, place(&self.address.name), &peers);
        let give_up = |state: &mut State| {
            peers.iter().for_each(|&(endpoint, _)| state.engine.give_up(endpoint, now));
        };
        if up.is_here() {
            self.state.with(give_up);
        }
    }

    /// Hears what the agent has to say.
    #[cold]
    pub(super) fn look_around(&self, now: Instant, up: &impl Upcalls) {
        let found = self.state.try_with(|state| state.watch.turn(&mut state.engine, now));
        for finding in found.unwrap_or_default() {
            self.report(&finding, up);
            if !up.is_here() {
                return;
            }
        }
    }

    /// Some datagrams do not reach a peer. The user hears it first, and then the loss.
    fn report(&self, finding: &Finding, up: &impl Upcalls) {
        let Some(peer) = self.peer(finding.endpoint) else { return };
        up.unreached(peer.name, finding);
        if finding.is_fatal && up.is_here() {
            let now = self.now();
            self.state.with(|state| state.engine.give_up(finding.endpoint, now));
        }
    }
}

impl State {
    /// By what the link is broken, once. To ask in each turn would be for nothing.
    pub(super) fn breakage(&mut self) -> Option<i32> {
        if !self.turns.is_multiple_of(FULL_TURNS) || self.is_broken {
            return None;
        }
        let errno = self.link.broken();
        self.is_broken = errno.is_some();
        errno
    }
}

//! A connection of a process to itself, through its device.
//!
//! What a device does atomically may not be so for the processor (`IBV_ATOMIC_HCA`): where words are changed by peers, by way of
//! their devices, the process itself changes them in the same way. To the connection manager the two ends are two peers of one
//! module. The *near* end is the one that the host has; the *far* end waits at a listener of its own, which nobody else is told of,
//! so that each end knows from where a request comes whose it is. The host knows nothing of the far end, and hears nothing of it.

use std::net::SocketAddr;

use super::component::Module;
use super::state::State;
use crate::btl::EndpointId;
use crate::engine::cm::{self, Dialect};
use crate::error::Result;

/// Where a process listens for itself: the number of the listener, and its address.
pub(super) type Loopback = (u8, SocketAddr);

/// The process as a peer of its own, of whom one end says this to the other.
fn end(process: u64, nonce: u64, dialect: Dialect, (listener, address): Loopback) -> cm::Peer {
    match dialect {
        Dialect::Own => cm::Peer { process, nonce, listener, address },
        Dialect::Openib => cm::Peer { process, nonce: 0, listener: 0, address },
    }
}

impl State {
    /// Makes the process known to itself, both ends; the near one. `None` where it does not listen for itself.
    pub(super) fn add_itself(&mut self, name: u64, nonce: u64) -> Option<Result<EndpointId>> {
        let far = self.loopback?;
        let near = (self.module as u8, self.desk.port.at);
        let (dialect, served) = (self.desk.port.dialect, self.desk.port.reads[0]);
        let is_there = |at: &u32| self.peers.get(*at as usize).is_some_and(|peer| !peer.says_bye);
        if self.far.filter(is_there).is_none() {
            match self.insert(name, far, end(name, nonce, dialect, near), served) {
                Ok(at) => {
                    self.far = Some(at);
                    if let Some(peer) = self.at(at) {
                        peer.is_far = true;
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
        Some(self.add(name, end(name, nonce, dialect, far), served))
    }
}

impl<const SECOND: bool> Module<SECOND> {
    /// The endpoint of the process itself, where it has one.
    pub(super) fn reach_itself(&self, name: u64) -> Option<EndpointId> {
        self.rail.state.with(|state| {
            let id = state.add_itself(name, self.rail.nonce)?.ok()?;
            state.peer(id)?.is_open = true;
            Some(id)
        })
    }
}

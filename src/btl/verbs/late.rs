//! What arrives of a peer that the host has closed: its device had taken it before it knew. It is for who is made known by the same
//! name, now or later.

use std::collections::HashMap;

use super::state::{Delivered, State, Step};
use crate::btl::{EndpointId, Lent};
use crate::link::Copied;

/// Messages by the names of those whom they are from. There are no more of one than buffers that it had been told of.
#[derive(Default)]
pub(super) struct Late(HashMap<u64, Vec<Message>>);

struct Message {
    tag: u8,
    bytes: Copied,
}

impl Message {
    fn deliver(mut self, from: EndpointId) -> Step {
        let bytes = self.bytes.lent();
        Step::Deliver { from, tag: self.tag, bytes, buffer: Delivered::Late { _keep: self.bytes } }
    }
}

impl State {
    /// A message of a closed peer's, which is read before all that follows.
    #[cold]
    pub(super) fn inherit(&mut self, name: u64, tag: u8, bytes: Lent) {
        let message = Message { tag, bytes: Copied::of(bytes) };
        let heir = self.names.get(&name).and_then(|&at| self.peers.get(at as usize));
        match heir.filter(|heir| !heir.is_closed) {
            Some(heir) => self.news.push_back(message.deliver(heir.id)),
            None => self.late.0.entry(name).or_default().push(message),
        }
    }

    /// Someone is made known by this name.
    pub(super) fn hand_over(&mut self, name: u64, to: EndpointId) {
        let messages = self.late.0.remove(&name).unwrap_or_default();
        self.news.extend(messages.into_iter().map(|message| message.deliver(to)));
    }
}

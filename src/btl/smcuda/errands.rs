//! What the devices' part of a module wants done outside: messages to peers, and what the host is to hear.

use super::component::Smcuda;
use super::device::{self, Out};
use crate::btl::{EndpointId, Host, Lent, Upcalls};

impl Smcuda {
    /// A peer says something about it.
    #[cold]
    pub(super) fn heard(&self, from: EndpointId, message: Lent, up: &impl Upcalls) {
        let mut bytes = Vec::new();
        message.append_to(&mut bytes);
        self.devices.with(|devices| {
            if devices.meet(from, || self.state.with(|state| state.facts(from))).is_some() {
                devices.hear(from, &bytes, &self.counters);
            }
        });
        // Before what comes behind it: the host may need to know.
        self.carry_out(up);
    }

    /// Does what there is to do.
    #[cold]
    pub(super) fn turn(&self, up: &impl Upcalls) -> usize {
        self.devices.with(|devices| devices.turn(&self.counters));
        self.carry_out(up)
    }

    /// Does what is to be done outside, as far as there is room for it. What is for one peer stays in order, also
    /// where the host makes progress in what it is told here, and where several threads do.
    pub(super) fn carry_out(&self, up: &impl Upcalls) -> usize {
        let mut count = 0;
        let mut full: Vec<EndpointId> = Vec::new();
        // What is said to peers is said before anybody else can take the next out of the queue.
        let mut next = || {
            self.devices.with(|devices| {
                loop {
                    match devices.next_out(&full)? {
                        Out::Send(to, message) => {
                            let bytes = message.to_bytes();
                            // Who is not reached any more is told of elsewhere.
                            if self.state.with(|state| state.say(to, &bytes, &self.counters)) == Ok(false) {
                                full.push(to);
                                devices.outs.push_front(Out::Send(to, message));
                            } else {
                                count += 1;
                            }
                        }
                        out => return Some(out),
                    }
                }
            })
        };
        let mut told = 0;
        while let Some(out) = next() {
            told += 1;
            match out {
                Out::Send(..) => {}
                Out::Enable(endpoint) => {
                    if !up.devices_reached(endpoint) && up.host().is_here() {
                        self.devices.with(|devices| devices.tell_later(endpoint));
                    }
                }
                Out::Say(_, line) => {
                    let host = up.host();
                    if self.devices.with(|devices| devices.settings.is_verbose) || host.is_verbose() {
                        host.say(&line);
                    }
                }
                Out::Done(_, cookie, outcome) => up.done(cookie, outcome),
            }
            if !up.host().is_here() {
                break;
            }
        }
        count + told
    }

    /// Has the devices' part do something with a peer; `None` when there is no such peer.
    pub(super) fn with_peer<R>(&self, id: EndpointId, f: impl FnOnce(&mut device::Inner) -> R) -> Option<R> {
        self.devices.with(|devices| {
            devices.meet(id, || self.state.with(|state| state.facts(id)))?;
            Some(f(devices))
        })
    }
}

//! The hand-shake with a peer, of which [`engine::ipc`](crate::engine::ipc) is the protocol: here are the offers, and
//! the driver that is asked whether they can be opened.

use super::counters::Counters;
use super::device::{Inner, Out};
use super::wire::{Message, Offer};
use crate::btl::EndpointId;
use crate::cuda::share::{Imports, Refused};
use crate::cuda::{Device, Place};
use crate::engine::ipc::{self, Part, Refusal, Setup, State, Step, Then, Verdict};

/// How far the hand-shake with a peer has come.
pub(super) struct Handshake {
    setup: Setup,
    /// The peer's name.
    name: u64,
}

impl Handshake {
    pub(super) fn new(wins: bool, name: u64) -> Self {
        Self { setup: Setup::new(wins), name }
    }

    /// Whether it is known that this peer's memory cannot be opened.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.setup.state(), State::Bad(_))
    }
}

fn verdict(refused: Refused) -> Verdict {
    match refused {
        Refused::NoDevice => Verdict::Impossible(Refusal::NoDevice),
        Refused::NoPeerAccess => Verdict::Impossible(Refusal::NoPeerAccess),
        Refused::NotOpened => Verdict::Impossible(Refusal::NotOpened),
        Refused::NotReady => Verdict::NotReady,
    }
}

/// What the user is told.
fn reason(why: Refusal) -> &'static str {
    match why {
        Refusal::Disabled => "a parameter says so: btl_smcuda_use_cuda_ipc, btl_smcuda_use_cuda_ipc_same_gpu",
        Refusal::NoDevice => "one of them has no device",
        Refusal::NoPeerAccess => "their devices have no access to each other's memory",
        Refusal::NotOpened => {
            "the driver does not open the other's handle: a part of a device (MIG), another container, another driver"
        }
        Refusal::NeverReady => {
            "one of them has not begun to use CUDA, or its device had no room, however often it was asked"
        }
    }
}

/// The PID namespace that this process is in, as an inode; 0 where the system does not say.
fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |data| data.ino())
}

impl Inner {
    /// A buffer of a device is to be sent to a peer.
    pub(super) fn begin(&mut self, id: EndpointId, device: Device, counters: &Counters) {
        self.device = Some(device);
        if let Some(peer) = self.peers.get_mut(&id)
            && std::mem::take(&mut peer.is_untold)
        {
            self.outs.push_back(Out::Enable(id));
        }
        if self.peers.get(&id).is_none_or(|peer| !peer.handshake.setup.is_idle()) {
            return;
        }
        let (verdict, offer) = match self.offer(device) {
            Ok(offer) => (Verdict::Possible, Some(offer)),
            Err(verdict) => (verdict, None),
        };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let step = peer.handshake.setup.ask(verdict);
        self.follow(id, step, offer, counters);
    }

    /// A peer says something.
    pub(super) fn shaken(
        &mut self,
        id: EndpointId,
        message: ipc::Message,
        offer: Option<Offer>,
        counters: &Counters,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let before = peer.handshake.setup.strays();
        let step = peer.handshake.setup.handle(message);
        counters.num_ipc_strays.add(u64::from(peer.handshake.setup.strays() - before));
        if message == ipc::Message::NotReady {
            counters.num_ipc_retried.add(1);
        }
        let State::Acking(part) = peer.handshake.setup.state() else {
            return self.follow(id, step, None, counters);
        };
        if step.then != Then::Examine {
            return self.follow(id, step, None, counters);
        }
        let (verdict, own) = match self.examine(id, offer, part, counters) {
            Ok(own) => (Verdict::Possible, own),
            Err(verdict) => (verdict, None),
        };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let step = peer.handshake.setup.examined(verdict);
        self.follow(id, step, own, counters);
    }

    /// Does what follows from a step.
    fn follow(&mut self, id: EndpointId, step: Step, offer: Option<Offer>, counters: &Counters) {
        if let Some(message) = step.send {
            let count = match message {
                ipc::Message::Request => &counters.num_ipc_requests,
                ipc::Message::Accept | ipc::Message::Confirm => &counters.num_ipc_accepted,
                ipc::Message::NotReady => &counters.num_ipc_not_ready,
                ipc::Message::Refuse(_) => &counters.num_ipc_refused,
            };
            count.add(1);
            let offer = offer.filter(|_| matches!(message, ipc::Message::Request | ipc::Message::Accept));
            self.outs.push_back(Out::Send(id, Message::Shake(message, offer)));
        }
        match step.then {
            Then::Nothing | Then::Examine => {}
            Then::Enable => self.outs.push_back(Out::Enable(id)),
            Then::Regret(why) => {
                let name = self.peers.get(&id).map_or(0, |peer| peer.handshake.name);
                self.outs.push_back(Out::Say(
                    id,
                    format!(
                        "btl:smcuda: device memory is not shared with {} ({}); it goes by way of host memory",
                        super::component::title(name),
                        reason(why)
                    ),
                ));
                self.outs.push_back(Out::Enable(id));
            }
        }
    }

    /// What this process can offer, of a device.
    fn offer(&mut self, device: Device) -> Result<Offer, Verdict> {
        if !self.settings.use_ipc {
            return Err(Verdict::Impossible(Refusal::Disabled));
        }
        let cuda = self.cuda().ok_or(Verdict::NotReady)?;
        let probe = cuda.exports.probe(Some(device)).map_err(verdict)?;
        Ok(Offer { namespace: namespace(), probe })
    }

    /// The device that this process would use: that in use, or else the one that was seen last.
    fn own_device(&mut self) -> Option<Device> {
        let seen = self.device;
        let driver = self.cuda()?.driver;
        let current = driver.current().ok().flatten();
        let in_use = current.and_then(|context| {
            let ordinal = driver.current_device().ok()?;
            Some(Device { ordinal, context: Some(context), is_managed: false })
        });
        in_use.or(seen)
    }

    /// Whether what a peer offers can be opened, and, in answer to a request, something be offered in return.
    fn examine(
        &mut self,
        id: EndpointId,
        offer: Option<Offer>,
        part: Part,
        counters: &Counters,
    ) -> Result<Option<Offer>, Verdict> {
        if !self.settings.use_ipc {
            return Err(Verdict::Impossible(Refusal::Disabled));
        }
        let device = self.own_device().ok_or(Verdict::NotReady)?;
        let own = self.offer(device)?;
        let Some(offer) = offer.filter(|offer| offer.namespace == own.namespace) else {
            return Err(Verdict::Impossible(Refusal::NotOpened));
        };
        if !self.settings.same_gpu && offer.probe.device() == own.probe.device() {
            return Err(Verdict::Impossible(Refusal::Disabled));
        }
        self.open(id, &offer.probe, Place::Device(device), counters).map_err(verdict)?;
        Ok((part == Part::Answering).then_some(own))
    }

    /// Opens memory of a peer's.
    pub(super) fn open(
        &mut self,
        id: EndpointId,
        exported: &crate::cuda::share::Exported,
        near: Place,
        counters: &Counters,
    ) -> Result<crate::cuda::share::Opened, Refused> {
        let bounds = self.settings.bounds;
        let contexts = std::sync::Arc::clone(&self.cuda().ok_or(Refused::NotReady)?.contexts);
        let peer = self.peers.get_mut(&id).ok_or(Refused::NotOpened)?;
        let imports = peer.imports.get_or_insert_with(|| Imports::new(contexts, bounds));
        let before = imports.counts();
        let opened = imports.open(exported, near);
        let now = imports.counts();
        counters.num_ipc_hits.add(now.hits - before.hits);
        counters.num_ipc_misses.add(now.misses - before.misses);
        counters.num_ipc_evictions.add(now.evictions - before.evictions);
        counters.num_ipc_stale.add(now.stale - before.stale);
        opened
    }
}

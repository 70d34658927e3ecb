//! The usnic component as the host knows it: how its modules are opened, and each of them as a
//! [`Transport`].

use std::ffi::CStr;
use std::sync::Arc;

use super::agent::{Finding, Node, Watch};
use super::mapping::Map;
use super::meeting::{Pairings, Rail, meet};
use super::reports::{tell_broken, tell_loss, tell_unreached, title};
use super::{
    Absent, COUNTERS, Cause, Links, Module, Named, Place, Statistics, Trouble, farther, links, parameters,
    place,
};
use crate::btl::{
    self, Access, Atomics, Cookie, Declined, EndpointId, Fragment, Host, Left, Lent, Limits, Parameters,
    Peer, Pipeline, Registration, Seat, Sending, Transport, Upcalls,
};
use crate::config;
use crate::error::Result;
use crate::wire::modex;
use crate::wire::probe::Process;

/// The key of the modex record. Not the C component's, which publishes another one.
pub(super) const KEY: &CStr = c"hawser.btl.usnic";

/// A module of the usnic component.
pub struct Usnic {
    pub(super) core: Module,
    /// Name of its network interface.
    pub(super) device: String,
    /// Which of those opened together it is.
    pub(super) rail: Rail,
    pub(super) shared: Arc<Shared>,
    limits: Limits,
}

/// What the modules that were opened together share, for as long as any of them lives.
pub(super) struct Shared {
    pub(super) pairings: Pairings,
    pub(super) map: Map,
}

/// The part of the host's callbacks that the protocol needs, made of the general ones.
struct Callbacks<'a, U>(&'a U);

impl<U: Upcalls> super::Upcalls for Callbacks<'_, U> {
    #[inline]
    fn deliver(&self, endpoint: EndpointId, tag: u8, bytes: &[u8]) {
        self.0.deliver(endpoint, tag, bytes);
    }

    #[inline]
    fn done(&self, cookie: Cookie, outcome: Result<()>) {
        self.0.done(cookie, outcome);
    }

    fn lost(&self, endpoint: EndpointId, name: u64) {
        self.0.lost(endpoint, name);
    }

    fn unreached(&self, name: u64, finding: &Finding) {
        tell_unreached(name, finding, self.0);
    }

    fn broken(&self, errno: i32, place: Option<Place>, peers: &[(EndpointId, u64)]) {
        tell_broken(errno, place, peers, self.0);
    }

    fn modex_record(&self, name: u64) -> Result<Vec<u8>> {
        self.0.host().published(KEY, name)
    }

    fn report(&self, line: &str) {
        self.0.host().report(line);
    }

    #[inline]
    fn is_here(&self) -> bool {
        self.0.host().is_here()
    }
}

/// Tells the user why an interface, or all of them, is not used.
fn tell(trouble: &Trouble, host: &impl Host) {
    let line = format!("btl_usnic: {}", trouble.line);
    match trouble.cause {
        Cause::Lists => host.notice("invalid if_inexclude", &line),
        Cause::Idle => host.notice("nothing excluded", &line),
        Cause::Down => host.notice("device present but not up", &line),
        Cause::Resources | Cause::Memory => host.notice("not enough usnic resources", &line),
        Cause::Libfabric => host.notice("libfabric API failed", &line),
    }
}

/// Something went wrong that should not.
fn failed(why: &str, host: &impl Host) -> Declined {
    host.notice("internal error during init", &format!("btl_usnic: {why}"));
    Declined::Told
}

/// A key and an incarnation that nobody can guess.
fn secrets(host: &impl Host) -> std::result::Result<([u8; 16], u32), Declined> {
    let (mut key, mut incarnation) = ([0; 16], [0; 4]);
    getrandom::fill(&mut key)
        .and_then(|()| getrandom::fill(&mut incarnation))
        .map_err(|_| failed("the system gives no random numbers (getrandom)", host))?;
    Ok((key, u32::from_le_bytes(incarnation) | 1))
}

/// What a module's table says: `rails` modules are there beside the loopback interface's, and this
/// one's device may be farther from the processor than others.
fn limits(config: &config::Btl, speed: u32, rails: usize, is_far: bool) -> Limits {
    let usual = if rails > 1 { 25 << 10 } else { 150 << 10 };
    let eager = config.eager_limit.unwrap_or(usual);
    Limits {
        eager,
        rndv_eager: config.rndv_eager_limit,
        max_send: config.table.max_send_size.unwrap_or(eager.max(parameters::LEAST_FRAGMENT)),
        max_send_device: 0,
        pipeline: Pipeline::WHOLE,
        copy: config.copy_limit,
        exclusivity: config.table.exclusivity,
        latency: config.table.latency.saturating_add(u32::from(is_far)),
        bandwidth: config.table.bandwidth.unwrap_or(speed),
        flags: config.table.flags,
        atomics: Atomics::None,
    }
}

impl Usnic {
    /// Interface and address, for people.
    pub(super) fn title(&self) -> String {
        match place(&self.core.address().name) {
            Some(place) => format!("{} {place}", self.device),
            None => self.device.clone(),
        }
    }
}

impl Transport for Usnic {
    const COMPONENT: &'static str = "btl_usnic";
    const COUNTERS: &'static [(&'static str, &'static str)] = COUNTERS;
    const HAS_TRANSFERS: bool = true;

    fn parameters() -> &'static Parameters {
        &parameters::PARAMETERS
    }

    fn verify(host: &impl Host) -> std::result::Result<Vec<Left>, String> {
        links::verify(&parameters::config(host)?).map(|()| Vec::new())
    }

    fn seat() -> &'static Seat {
        static SEAT: Seat = Seat::new();
        &SEAT
    }

    fn open(host: &impl Host) -> std::result::Result<Vec<Self>, Declined> {
        let config = parameters::config(host).map_err(|why| {
            host.notice("btl not used", &format!("btl_usnic: {why}"));
            Declined::Told
        })?;
        let Links { open: links, troubles } =
            links(&config, host.is_asked_for()).map_err(|absent| match absent {
                Absent::NotWanted => Declined::Silently(
                    "there is no usNIC device, and `--mca btl usnic,self` was not asked for".to_owned(),
                ),
                Absent::Because(Trouble { cause: Cause::Memory, line }) => Declined::Memory(line),
                Absent::Because(trouble) => {
                    tell(&trouble, host);
                    Declined::Told
                }
            })?;
        troubles.iter().for_each(|trouble| tell(trouble, host));
        // The loopback interface is no rail beside others.
        let rails = links.iter().filter(|link| !link.is_loopback).count();
        let far = if config.by_distance { farther(&links) } else { vec![false; links.len()] };
        let name = host.name();
        let mut cores = Vec::new();
        let (key, _) = secrets(host)?;
        let node = Node::open(name as u32, key);
        for Named { name: interface, address, link, .. } in links {
            let (key, incarnation) = secrets(host)?;
            let process = Process { name, incarnation };
            let watch = address.map_or_else(Watch::blind, |address| {
                Watch::open(&node, process, (&interface, address), config.base_port, config.check.clone())
            });
            let core = Module::open(link, name, incarnation, key, &config.engine, watch)
                .map_err(|error| Declined::because(error, format!("no module on {interface}: {error}")))?;
            if host.meets_again() {
                core.meet_again();
            }
            cores.push((core, interface));
        }
        if let Some(why) = node.trouble() {
            host.notice("no agent", &format!("btl_usnic: there is no agent here, or not a whole one: {why}"));
        }
        let addresses: Vec<_> = cores.iter().map(|(core, _)| core.address().clone()).collect();
        host.publish(KEY, &modex::write(&addresses)).map_err(|error| {
            failed(&format!("its addresses cannot be published to the job ({error})"), host)
        })?;
        let map = Map::new(config.map.as_deref(), host);
        let shared = Arc::new(Shared { pairings: Pairings::default(), map });
        let modules = cores.into_iter().zip(far).enumerate().map(|(rail, ((core, device), is_far))| {
            if !config.statistics.is_zero() {
                let title = format!("{}, {device}", title(name));
                core.print(Statistics::new(title, config.statistics, config.relative));
            }
            let limits = limits(&config, core.facts().speed, rails, is_far);
            Self { core, device, rail, shared: Arc::clone(&shared), limits }
        });
        Ok(modules.collect())
    }

    fn device(&self) -> &str {
        &self.device
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn reach(all: &[&Self], own: usize, peer: &impl Peer, host: &impl Host) -> Option<EndpointId> {
        meet(all, own, peer, host)
    }

    fn reached(all: &[&Self], host: &impl Host) {
        if let Some(first) = all.first() {
            first.shared.map.note_call(all, host);
        }
    }

    fn peer(&self, endpoint: EndpointId) -> Option<u64> {
        self.core.peer(endpoint).map(|peer| peer.name)
    }

    #[cold]
    fn unheard(&self) {
        self.core.counters().count_unheard();
    }

    fn tell_loss(&self, name: u64, host: &impl Host) {
        tell_loss(name, self.core.end_of(name), host);
    }

    fn close(&self, endpoints: &[EndpointId], up: &impl Upcalls) {
        self.core.close(endpoints, &Callbacks(up));
    }

    fn end(all: &[&Self], host: &impl Host) {
        if let Some(first) = all.first() {
            first.shared.map.end(all, host);
        }
    }

    fn end_module(&self, host: &impl Host) {
        if let Some(line) = self.core.last_line() {
            host.report(&line);
        }
    }

    #[inline]
    fn send(&self, endpoint: EndpointId, fragment: Fragment<Lent>) -> Result<Sending> {
        self.core.send(endpoint, fragment)
    }

    fn put(
        &self,
        endpoint: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<Sending> {
        self.core.put(endpoint, local, remote, cookie).map(|()| Sending::UnderWay)
    }

    fn get(
        &self,
        endpoint: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        cookie: Cookie,
    ) -> Result<Sending> {
        self.core.get(endpoint, local, remote, cookie).map(|()| Sending::UnderWay)
    }

    fn reserve(&self) -> Result<()> {
        self.core.reserve()
    }

    fn register(&self, memory: Lent, access: Access) -> Option<Registration> {
        Some(self.core.register(memory, access))
    }

    fn deregister(&self, registration: Registration) {
        self.core.deregister(registration);
    }

    #[inline]
    fn progress(&self, up: &impl btl::Upcalls) -> usize {
        self.core.progress(&Callbacks(up))
    }

    fn counter(&self, index: usize) -> u64 {
        self.core.counters().value(index).unwrap_or(0)
    }

    fn describe(&self, endpoint: Option<EndpointId>) -> Vec<String> {
        self.core.describe(endpoint)
    }
}

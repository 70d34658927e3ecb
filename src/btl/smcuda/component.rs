//! The component as the host knows it.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::counters::{COUNTERS, Counters};
use super::device::{self, Devices};
use super::device_get::Remote;
use super::device_serve::Described;
use super::loss::Loss;
use super::parameters::{self, TRANSFERS};
use super::peer::Found;
use super::record::{self, Place, Record};
use super::state::{DUE, Look, NOTHING, PATIENCE, State, Step, Turn};
use super::wire::TAG;
use crate::btl::{
    Access, Cookie, Declined, EndpointId, Fragment, Host, Left, Lent, Limits, Parameters, Peer, Piece,
    Registration, Seat, Sending, Transport, Upcalls, fail,
};
use crate::error::{Error, Result};
use crate::link::Clock;
use crate::shm::{self, Arrival, Door, Life, NONCE, Outside, Probe, Segment};
use crate::sync::EngineCell;

/// The key of the modex record.
pub(super) const KEY: &CStr = c"hawser.btl.smcuda";

/// Lives of a peer that are tried where each has ended when it is looked for.
const TRIES: usize = 8;

/// Fragments that one pass delivers.
const MOST: usize = 64;

/// Passes within which closing reads a ring to its end: it holds that many times as many fragments at most.
const MOST_LOOKS: usize = 128;

#[cfg(test)]
impl std::fmt::Debug for Smcuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Smcuda")
    }
}

/// The module of the smcuda component: one reaches all peers of the node.
pub struct Smcuda {
    /// Device memory; before the state, whose segment it copies by way of.
    pub(super) devices: Devices,
    pub(super) state: EngineCell<State>,
    pub(super) counters: Counters,
    limits: Limits,
    /// What can be done now: less where a peer does not let us read its memory.
    flags: AtomicU32,
    record: Record,
    /// Where peers see which life this is.
    door: Arc<Door>,
    life: Life,
    /// What peers try to read.
    _probe: Probe,
    /// It has been said why long messages are not copied in one step.
    has_told: AtomicBool,
}

impl Drop for Smcuda {
    fn drop(&mut self) {
        self.door.leave(&self.life.segment.nonce);
    }
}

/// What users call a process: its rank, and the number of its job in the job's family.
pub(super) fn title(name: u64) -> String {
    format!("rank {} of job {}", name >> 32, name & 0xFFFF)
}

fn random<const N: usize>() -> std::result::Result<[u8; N], Declined> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map(|()| bytes)
        .map_err(|_| Declined::Silently("the system gives no random numbers (getrandom)".to_owned()))
}

impl Smcuda {
    /// A module with memory of its own, which this door shows from now on.
    pub(super) fn make(
        name: u64,
        door: Arc<Door>,
        limits: Limits,
        devices: parameters::Devices,
    ) -> std::result::Result<Self, Declined> {
        let segment = Segment::make(random::<NONCE>()?).map_err(|error| {
            let line = format!(
                "no memory to share with the processes of this node ({error}; memfd_create, `ulimit -f`)"
            );
            Declined::because(error, line)
        })?;
        let shown = random()?;
        let probe = Probe::new(shown);
        let has_transfers = limits.flags & TRANSFERS != 0;
        if has_transfers {
            shm::allow_peers();
        }
        let life = Life {
            segment: *segment.identity(),
            probe: (probe.address(), shown),
            lets_in: has_transfers && shm::forbids().is_none(),
        };
        let record = Record { boot: record::boot(), place: Place::own(), door: *door.identity() };
        door.show(&life);
        Ok(Self {
            devices: Devices::new(name, devices, segment.staging()),
            state: EngineCell::new(State::new(segment, name)),
            counters: Counters::default(),
            limits,
            flags: AtomicU32::new(limits.flags),
            record,
            door,
            life,
            _probe: probe,
            has_told: AtomicBool::new(false),
        })
    }

    /// Writes a word where the next header for a peer goes.
    #[cfg(test)]
    pub(super) fn forge(&self, to: EndpointId, word: u64) {
        self.state.with(|state| state.forge(to, word));
    }

    /// Sends bytes as if they were about device memory.
    #[cfg(test)]
    pub(super) fn claim(&self, to: EndpointId, bytes: &[u8]) -> bool {
        self.state.with(|state| state.say(to, bytes, &self.counters)) == Ok(true)
    }

    /// The record that peers find it by.
    #[cfg(test)]
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// Which life this is.
    #[cfg(test)]
    pub(super) fn life(&self) -> &Life {
        &self.life
    }

    /// Which life of a peer is known.
    #[cfg(test)]
    pub(super) fn kept_of(&self, id: EndpointId) -> Option<crate::shm::Identity> {
        self.state.with(|state| state.life(id))
    }

    /// What is kept for peers, for tests: places, of these those in use, and strangers.
    #[cfg(test)]
    pub(super) fn kept(&self) -> [usize; 3] {
        self.state.with(|state| state.kept())
    }

    /// Makes a peer known, that has published this.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub(super) fn meet(
        &self,
        name: u64,
        bytes: &[u8],
        host: &impl Host,
    ) -> std::result::Result<EndpointId, String> {
        let record = Record::parse(bytes).ok_or("it has published a record of another version")?;
        if record.boot != self.record.boot {
            let unknown = [&record.boot, &self.record.boot].contains(&&record::UNKNOWN);
            let why = if unknown {
                "one of them cannot read /proc/sys/kernel/random/boot_id, so that they may be on different machines"
            } else {
                "it runs on another machine"
            };
            return Err(why.to_owned());
        }
        if let Some(why) = record.place.apart(&self.record.place) {
            return Err(why.to_owned());
        }
        // Who has ended in order is no reason for the host to give up: nobody may want to send there.
        let door = Outside::of_peer(&record.door);
        let door = door.or_else(|why| Outside::of_ended(&record.door).ok_or(why))?;
        let id = self.find(name, door, host)?;
        self.state.with(|state| state.open(id));
        Ok(id)
    }

    /// Makes the life known that a peer's door shows, or the peer alone while it has none: between two lives, the host
    /// waits for nobody.
    ///
    /// # Errors
    /// Why it cannot be reached.
    fn find(&self, name: u64, door: Outside, host: &impl Host) -> std::result::Result<EndpointId, String> {
        let mut tries = 0;
        let found = loop {
            let Some(life) = door.shown()? else { break None };
            if let Some(known) = self.state.with(|state| state.known(name, &life.segment.nonce)) {
                return Ok(known);
            }
            let mapped = self.map(name, &life, host);
            if !host.is_here() {
                return Err("this process is a child of the one that has asked".to_owned());
            }
            match mapped {
                Ok(found) => break Some((life.segment, found)),
                // It may have ended meanwhile.
                Err(why) if door.shown() == Ok(Some(life)) || tries == TRIES => return Err(why),
                Err(_) => tries += 1,
            }
        };
        let met = self.state.with(|state| state.add(name, door, found));
        let met = met.map_err(|_| "there are more than 1024 processes".to_owned())?;
        if met.is_anew {
            self.devices.with(|devices| devices.lose(met.id, &self.counters));
        }
        Ok(met.id)
    }

    /// Maps what a life of a peer has made.
    ///
    /// # Errors
    /// Why it cannot be reached.
    fn map(&self, name: u64, life: &Life, host: &impl Host) -> std::result::Result<Found, String> {
        let found = Found::of(life)?;
        if found.cross.is_none() {
            self.refuse_transfers(name, life, host);
        }
        Ok(found)
    }

    /// A peer has begun a life.
    #[cold]
    fn follow(&self, id: EndpointId, life: &Life, host: &impl Host) {
        let Some(name) = self.state.with(|state| state.looks_at(id)) else { return };
        match self.map(name, life, host) {
            Ok(found) => match self.state.with(|state| state.appeared(id, life.segment, found)) {
                Ok(true) => self.devices.with(|devices| devices.lose(id, &self.counters)),
                Ok(false) => {}
                Err(_) => self.state.with(|state| state.give_up(id, &self.counters)),
            },
            Err(why) => {
                // Where it has ended again, the next one is shown.
                if self.state.with(|state| state.shows(id, life)) {
                    host.say(&format!("btl:smcuda: {} is not reached any more: {why}", title(name)));
                    if host.is_here() {
                        self.state.with(|state| state.give_up(id, &self.counters));
                    }
                }
            }
        }
    }

    /// A peer's memory cannot be read: long messages go through the ring.
    fn refuse_transfers(&self, name: u64, life: &Life, host: &impl Host) {
        let had = self.flags.fetch_and(!TRANSFERS, Ordering::Relaxed) & TRANSFERS != 0;
        if had && host.is_verbose() && !self.has_told.swap(true, Ordering::Relaxed) {
            let why = shm::forbids().unwrap_or_else(|| {
                if life.lets_in {
                    "process_vm_readv(2) is refused: a sandbox, another user namespace, or Yama".to_owned()
                } else {
                    "it does not offer it".to_owned()
                }
            });
            host.say(&format!(
                "btl:smcuda: the memory of {} cannot be read ({why}); long messages are copied twice",
                title(name)
            ));
        }
    }

    /// Something has arrived, for the host or for us.
    #[inline(always)]
    fn deliver(&self, from: EndpointId, arrival: &Arrival, up: &impl Upcalls) {
        if arrival.tag == TAG {
            self.heard(from, arrival.bytes, up);
        } else if arrival.is_cut {
            // The ring has all that was sent of it.
            up.deliver(from, arrival.tag, arrival.whole().bytes());
        } else {
            up.deliver_shared(from, arrival.tag, arrival.bytes);
        }
    }

    /// Does one thing that is due outside.
    fn run(&self, step: Step, up: &impl Upcalls) -> Option<EndpointId> {
        match step {
            Step::Deliver(from, arrival) => {
                self.deliver(from, &arrival, up);
                return Some(from);
            }
            Step::Done(cookie, outcome) => up.done(cookie, outcome),
            Step::Lost(id, name, why, cookies) => {
                self.devices.with(|devices| devices.lose(id, &self.counters));
                up.doomed(id, name, || tell(name, why, &up.host()));
                if up.host().is_here() {
                    self.carry_out(up);
                    fail(cookies, up);
                }
                if up.host().is_here() {
                    up.lost(id, name);
                }
            }
            Step::Stranger(place) => self.look_up(place, &up.host()),
            Step::Appeared(id, life) => self.follow(id, &life, &up.host()),
            Step::TurnedOver(id) => {
                self.devices.with(|devices| devices.lose(id, &self.counters));
                self.carry_out(up);
            }
        }
        None
    }

    /// Does what there is to do.
    #[inline(never)]
    fn pass(&self, up: &impl Upcalls) -> usize {
        let counters = &self.counters;
        let mut next = self.state.with(|state| {
            state.begin(counters);
            state.next(None, counters)
        });
        let mut count = 0;
        while let Some(step) = next {
            count += 1;
            // Nothing is borrowed while the host runs: it sends from its callbacks, and makes progress in them.
            let delivered = self.run(step, up);
            if !up.host().is_here() {
                break;
            }
            if count == MOST {
                self.state.with(|state| state.stop(delivered));
                break;
            }
            next = self.state.with(|state| state.next(delivered, counters));
        }
        count
    }

    /// Delivers what has arrived, from the ring at this place on. Whatever else there is to do is left to a whole
    /// pass.
    #[inline(never)]
    fn receive(&self, place: usize, up: &impl Upcalls) -> usize {
        let (mut turn, mut delivered, mut count) = (Turn::of(place), None, 0);
        loop {
            match self.state.with(|state| state.go_on(&mut turn, delivered, &self.counters)) {
                Look::Arrived(from, arrival) => {
                    // Nothing is borrowed while the host runs: it sends from its callbacks, and makes progress in them.
                    self.deliver(from, &arrival, up);
                    delivered = Some(from);
                    count += 1;
                    if !up.host().is_here() {
                        return count;
                    }
                }
                Look::Nothing => return count,
                Look::Due => return count + self.pass(up),
            }
        }
    }

    /// Copies from or to a peer's memory. When this returns, that is over.
    fn transfer(
        &self,
        to: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        wanted: Access,
    ) -> Result<Sending> {
        let (registration, offset) = remote;
        let address = address_of(&registration, offset, local.len(), wanted)?;
        let memory = self.state.with(|state| state.cross(to))?;
        let counters = &self.counters;
        let (outcome, number, bytes) = if wanted == Access::READ {
            (memory.read(address, local), &counters.num_gets, &counters.get_bytes)
        } else {
            (memory.write(address, local), &counters.num_puts, &counters.put_bytes)
        };
        // Counters are written by who has the state.
        self.state.with(|_| match outcome {
            Ok(()) => {
                number.add(1);
                bytes.add(local.len() as u64);
            }
            Err(_) => counters.num_cross_failed.add(1),
        });
        outcome.map(|()| Sending::Over)
    }
}

/// Where so many bytes from an offset on are, of what a peer has registered.
///
/// # Errors
/// When they are not in it, or it is not registered for this.
fn address_of(registration: &Registration, offset: u64, len: usize, wanted: Access) -> Result<u64> {
    let end = offset.checked_add(len as u64);
    if !registration.access.allows(wanted) || end.is_none_or(|end| end > registration.length) {
        return Err(Error::BadParameter);
    }
    let base = u64::from(registration.id) | u64::from(registration.generation) << 32;
    base.checked_add(offset).ok_or(Error::BadParameter)
}

/// A peer is lost.
fn tell(name: u64, why: Loss, host: &impl Host) {
    let what = match why {
        Loss::Exited => "its process has ended, and has not said that it would".to_owned(),
        Loss::Refuses => {
            "it cannot reach this process, though this one reaches it; a line of its own says why, and \
                          `--mca btl ^smcuda` does without"
                .to_owned()
        }
        Loss::Apart => {
            "it has ended its MPI and begun it again, and is not reached any more; a line of its own says why"
                .to_owned()
        }
        Loss::Corrupt(what) => {
            format!(
                "what it has written to shared memory is damaged ({what:?}), and nothing of it is used any more"
            )
        }
    };
    host.notice("peer lost", &format!("btl_smcuda: {} is lost: {what}", title(name)));
}

impl Transport for Smcuda {
    const COMPONENT: &'static str = "btl_smcuda";
    const COUNTERS: &'static [(&'static str, &'static str)] = COUNTERS;
    const HAS_TRANSFERS: bool = true;
    const HAS_SEND_NOW: bool = true;
    const HAS_DEVICES: bool = true;
    const OWN_TAG: Option<u8> = Some(TAG);

    fn parameters() -> &'static Parameters {
        &parameters::PARAMETERS
    }

    fn verify(host: &impl Host) -> std::result::Result<Vec<Left>, String> {
        parameters::limits(host)?;
        parameters::devices().map(|_| Vec::new())
    }

    fn seat() -> &'static Seat {
        static SEAT: Seat = Seat::new();
        &SEAT
    }

    fn open(host: &impl Host) -> std::result::Result<Vec<Self>, Declined> {
        let refused = |why: String| {
            host.notice("smcuda not used", &format!("btl_smcuda: {why}"));
            Declined::Told
        };
        let limits = parameters::limits(host).map_err(refused)?;
        let devices = parameters::devices().map_err(refused)?;
        let door = random().map(Door::of_process)?.map_err(|error| {
            let line = format!("no memory to share with the processes of this node ({error}; memfd_create)");
            Declined::because(error, line)
        })?;
        let module = Self::make(host.name(), door, limits, devices)?;
        module.state.with(|state| state.meets_again = host.meets_again());
        host.publish(KEY, &module.record.to_bytes()).map_err(|error| {
            Declined::Silently(format!("its address cannot be published to the job ({error})"))
        })?;
        Ok(vec![module])
    }

    fn device(&self) -> &str {
        "memory"
    }

    fn limits(&self) -> Limits {
        Limits { flags: self.flags.load(Ordering::Relaxed), ..self.limits }
    }

    fn reach(all: &[&Self], own: usize, peer: &impl Peer, host: &impl Host) -> Option<EndpointId> {
        let (module, name) = (all.get(own)?, peer.name());
        if name == host.name() {
            return None;
        }
        // A process that has published nothing does not run this component.
        let bytes = host.published(KEY, name).ok()?;
        match module.meet(name, &bytes, host) {
            Ok(id) => Some(id),
            Err(why) => {
                let is_here = Record::parse(&bytes).is_some_and(|record| record.boot == module.record.boot);
                if host.is_verbose() {
                    host.say(&format!("btl:smcuda: {} is not reached: {why}", title(name)));
                } else if is_here && host.is_asked_for() {
                    let line = format!("btl_smcuda: {} is not reached: {why}", title(name));
                    host.notice("smcuda peer not reached", &line);
                }
                None
            }
        }
    }

    fn peer(&self, endpoint: EndpointId) -> Option<u64> {
        self.state.with(|state| state.name(endpoint))
    }

    #[cold]
    fn unheard(&self) {
        self.counters.num_unheard.add(1);
    }

    fn tell_loss(&self, name: u64, host: &impl Host) {
        tell(name, Loss::Exited, host);
    }

    fn close(&self, endpoints: &[EndpointId], up: &impl Upcalls) {
        let waits =
            || self.state.with(|state| endpoints.iter().any(|id| state.waits(*id)) && state.has_patience());
        // What lies there for a life that has begun is given to it at once, as soon as its last one is read to the end.
        for _ in 0..MOST_LOOKS {
            if !self.state.with(|state| endpoints.iter().any(|id| state.waits(*id))) {
                break;
            }
            self.state.with(State::look_for_lives);
            self.pass(up);
            if !up.host().is_here() {
                return;
            }
        }
        while waits() {
            self.progress(up);
            if !up.host().is_here() {
                return;
            }
        }
        for id in endpoints {
            self.devices.with(|devices| devices.lose(*id, &self.counters));
            self.carry_out(up);
            if up.host().is_here() {
                fail(self.state.with(|state| state.close(*id)), up);
            }
            if !up.host().is_here() {
                return;
            }
        }
    }

    fn end_module(&self, _host: &impl Host) {
        let clock = Clock::new();
        while self.state.with(State::is_unheard) && clock.nanos() < PATIENCE {
            std::thread::yield_now();
        }
        self.door.leave(&self.life.segment.nonce);
        self.state.with(|state| state.end());
    }

    #[inline]
    fn send(&self, endpoint: EndpointId, fragment: Fragment<Lent>) -> Result<Sending> {
        self.state.with(|state| state.send(endpoint, fragment, &self.counters))
    }

    #[inline(never)]
    fn send_now(&self, endpoint: EndpointId, tag: u8, pieces: [Lent; 2]) -> bool {
        self.state.with(|state| state.send_now(endpoint, tag, pieces, &self.counters))
    }

    fn put(
        &self,
        endpoint: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        _cookie: Cookie,
    ) -> Result<Sending> {
        self.transfer(endpoint, local, remote, Access::WRITE)
    }

    fn get(
        &self,
        endpoint: EndpointId,
        local: Lent,
        remote: (Registration, u64),
        _cookie: Cookie,
    ) -> Result<Sending> {
        self.transfer(endpoint, local, remote, Access::READ)
    }

    /// Nothing is noted of it: a peer reads where it was told, and the kernel says whether something is there.
    fn register(&self, memory: Lent, access: Access) -> Option<Registration> {
        let address = memory.as_ptr().expose_provenance() as u64;
        Some(Registration {
            id: address as u32,
            generation: (address >> 32) as u32,
            length: memory.len() as u64,
            access,
            key: 0,
        })
    }

    #[inline]
    fn is_on_device(&self, address: *const u8) -> bool {
        device::device_of(address).is_some()
    }

    #[cold]
    fn sends_from_device(&self, endpoint: EndpointId, address: *const u8, up: &impl Upcalls) {
        let Some(device) = device::device_of(address) else { return };
        self.with_peer(endpoint, |devices| devices.begin(endpoint, device, &self.counters));
        self.carry_out(up);
    }

    #[cold]
    fn register_device(
        &self,
        endpoint: EndpointId,
        memory: Lent,
        up: &impl Upcalls,
    ) -> Option<(Registration, Piece)> {
        let device = device::device_of(memory.as_ptr())?;
        self.with_peer(endpoint, |devices| devices.begin(endpoint, device, &self.counters))?;
        let piece = self.devices.with(|devices| devices.register(memory, device));
        self.carry_out(up);
        Some((self.register(memory, Access::READ)?, piece))
    }

    fn deregister_device(&self, piece: &Piece) {
        self.devices.with(|devices| devices.deregister(piece, &self.counters));
    }

    #[cold]
    fn get_device(
        &self,
        endpoint: EndpointId,
        local: Lent,
        remote: (Registration, u64, Piece),
        cookie: Cookie,
    ) -> Result<()> {
        let (registration, offset, piece) = remote;
        let address = address_of(&registration, offset, local.len(), Access::READ)?;
        let remote = match Described::parse(&piece) {
            Some(Described { serial, exported }) => Remote::Device { address, serial, offset, exported },
            None => Remote::Host { address },
        };
        let begun =
            self.with_peer(endpoint, |devices| devices.get(endpoint, local, remote, cookie, &self.counters));
        begun.ok_or(Error::Unreachable)??;
        Ok(())
    }

    #[inline(always)]
    fn progress(&self, up: &impl Upcalls) -> usize {
        let count = match self.state.with(State::look) {
            NOTHING => 0,
            DUE => self.pass(up),
            place => self.receive(place, up),
        };
        if self.devices.is_busy() && up.host().is_here() { count + self.turn(up) } else { count }
    }

    fn counter(&self, index: usize) -> u64 {
        self.counters.value(index)
    }

    fn describe(&self, endpoint: Option<EndpointId>) -> Vec<String> {
        match endpoint {
            None => vec![self.counters.describe()],
            Some(id) => self.state.with(|state| state.describe(id)).into_iter().collect(),
        }
    }
}

//! How the modules of a process are opened: which devices there are, which ports of them are used, and the connection
//! thread.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use super::cache::Bounds;
use super::choice::{Candidate, Lists, Obstacle, prefer};
use super::component::Rail;
use super::connector::{Connector, MODULES, listener_token};
use super::counters::Counters;
use super::line::{Found, Port};
use super::lockable::Lockable;
use super::meeting::Published;
use super::office::Office;
use super::parameters::{Config, capabilities};
use super::state::State;
use crate::btl::{Atomics, Declined, Host, Telling};
use crate::engine::cm;
use crate::error::Error;
use crate::link::{Clock, Interface};
use crate::sync::EngineCell;
use crate::verbs::{Context, Devices, EventChannel, Gid, Id, Library, LinkLayer, Transport};
use crate::wire::verbs::Network;

/// Requests that wait to be read, at a listener.
const BACKLOG: usize = 1024;

/// A port that can be used, with its device.
pub(super) struct Usable {
    pub(super) candidate: Candidate,
    /// Why it is not used.
    pub(super) obstacle: Option<Obstacle>,
    context: Arc<Context>,
}

/// Everything that there is.
pub(super) struct Opened {
    pub(super) rails: Vec<Rail>,
    pub(super) published: Published,
    pub(super) connector: Arc<Connector>,
    /// So much is kept of registered memory that nobody uses; none where nobody tells when it goes.
    pub(super) kept: Option<Bounds>,
}

/// What a device speaks at a port, and whether that carries data; an error where the port does not say.
fn network(context: &Context, port: u8) -> Option<(Network, Result<bool, Error>)> {
    let found = context.port(port);
    let is_infiniband = found.as_ref().is_ok_and(|found| found.link_layer != LinkLayer::Ethernet);
    let network = match context.transport() {
        Transport::Iwarp => Network::Iwarp,
        Transport::Infiniband if is_infiniband => Network::InfiniBand,
        Transport::Infiniband => Network::Roce,
        Transport::Other => return None,
    };
    Some((network, found.map(|found| found.active)))
}

/// What is said where the devices cannot be listed.
pub(super) const UNLISTED: &str = "the RDMA devices of this machine cannot be listed";

/// What the kernel calls the devices of this machine: none where it knows nothing of such.
pub(super) fn devices(library: &'static Library) -> Result<Vec<String>, Error> {
    match Devices::list(library) {
        Ok(list) => Ok(list.iter().map(|device| device.name()).collect()),
        Err(Error::Unsupported) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// All ports of devices that have an address in this process's network, each at one of its addresses, as [`prefer`] has it. Devices
/// whose interfaces lie elsewhere are not met at all.
pub(super) fn look(
    channel: &Arc<EventChannel>,
    lists: &Lists,
    refuse: impl Fn(&Candidate) -> Option<Obstacle>,
) -> Vec<Usable> {
    let interfaces = Interface::all().unwrap_or_default();
    let mut found: Vec<Usable> = Vec::new();
    for interface in interfaces {
        // HOST: librdmacm takes a loopback address for any device there is (`cma_bind_loopback` of the kernel).
        if interface.is_loopback && !lists.names(&interface) {
            continue;
        }
        let at = SocketAddr::new(interface.address, 0);
        let Ok((context, port)) = Context::at(channel, at, 0) else { continue };
        let Some((network, state)) = network(&context, port) else { continue };
        // They are many, and wanted by nobody else.
        let gids = if lists.have_gids() { context.gids(port) } else { Ok(Vec::new()) };
        let silence = state.as_ref().err().or(gids.as_ref().err()).map(ToString::to_string);
        let candidate = Candidate {
            device: context.name(),
            port,
            interface,
            network,
            gids: gids.unwrap_or_default(),
            is_active: state.unwrap_or(false),
        };
        let obstacle = match (refuse(&candidate), silence) {
            (None | Some(Obstacle::Down), Some(error)) => Some(Obstacle::Unanswered(error)),
            (obstacle, _) => obstacle,
        };
        let usable = Usable { candidate, obstacle, context };
        let is_there = |other: &&mut Usable| {
            other.candidate.device == usable.candidate.device && other.candidate.port == port
        };
        match found.iter_mut().find(is_there) {
            None => found.push(usable),
            Some(other) if prefer(usable.obstacle.as_ref(), other.obstacle.as_ref()) => *other = usable,
            Some(_) => {}
        }
    }
    found
}

/// How many ports a device has, if it says that.
fn ports(library: &'static Library, name: &str) -> Option<u8> {
    let list = Devices::list(library).ok()?;
    let device = list.iter().find(|device| device.name() == name)?;
    Some(device.open().ok()?.limits().ok()?.ports)
}

/// The GIDs of all ports of all devices.
fn all_gids(library: &'static Library) -> Vec<Gid> {
    let Ok(list) = Devices::list(library) else { return Vec::new() };
    let of_device = |context: Arc<Context>| {
        let ports = context.limits().map_or(0, |limits| limits.ports);
        (1..=ports).flat_map(move |port| context.gids(port).unwrap_or_default())
    };
    list.iter().filter_map(|device| device.open().ok()).flat_map(of_device).collect()
}

/// What of the lists is not there, in lines.
fn absent(name: &str, lists: &Lists, library: &'static Library, devices: &[String]) -> Vec<String> {
    let gids = if lists.have_gids() { all_gids(library) } else { Vec::new() };
    let has_gid = |gid: Ipv6Addr| gids.iter().any(|one| one.bytes == gid.octets());
    let unknown = lists.unknown(devices, |device| ports(library, device), has_gid).join(", ");
    // Where interfaces cannot be listed, nothing is known of them.
    let elsewhere = Interface::all().map(|all| lists.elsewhere(&all)).unwrap_or_default().join(", ");
    let line = |what: &str, words: String| (!words.is_empty()).then(|| format!("btl_{name}: {what} {words}"));
    let devices = devices.join(", ");
    [
        line("there is no device or port", unknown).map(|line| format!("{line} (devices: {devices})")),
        line("no interface is of", elsewhere)
            .map(|line| format!("{line}, of ipaddr_include or ipaddr_exclude")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Opens what can be used.
pub(super) fn open(config: &Config, asked_for: bool, host: &impl Host) -> Result<Opened, Declined> {
    let silently = |why: String| Declined::Silently(why);
    let told = |why: String| {
        host.notice("verbs not used", &format!("btl_{}: {why}", config.name));
        Declined::Told
    };
    // Who asked for it hears why there is none.
    let missing = |why: String| if asked_for { told(why) } else { silently(why) };
    // Nobody pays for libraries only to learn that there is nothing to use them for.
    if !asked_for && !crate::verbs::is_any() {
        return Err(silently("the kernel has no RDMA device".to_owned()));
    }
    let library = Library::load().map_err(|missing_library| missing(missing_library.to_string()))?;
    let devices = devices(library).map_err(|error| missing(format!("{UNLISTED} ({error})")))?;
    if devices.is_empty() {
        return Err(missing("there is no RDMA device on this machine (`ibv_devices` lists them)".to_owned()));
    }
    let lists = Lists::parse(&config.devices, &config.networks)
        .map_err(|why| told(format!("ipaddr_include or ipaddr_exclude: {why}")))?;
    let absent = if config.warns { absent(config.name, &lists, library, &devices) } else { Vec::new() };
    if !absent.is_empty() {
        host.notice("verbs device not found", &absent.join(".\n"));
    }
    let channel = EventChannel::new(library).map_err(|error| {
        missing(format!("there is no connection manager for RDMA ({error}; the kernel's module rdma_ucm)"))
    })?;
    let (mut wanted, mut unused) = (Vec::new(), Vec::new());
    let refuse =
        |it: &Candidate| lists.refuse(it, config.allow_infiniband).or_else(|| it.refuse(config.dialect));
    for usable in look(&channel, &lists, refuse) {
        match &usable.obstacle {
            None => wanted.push(usable),
            Some(why) => {
                let it = &usable.candidate;
                if config.is_verbose {
                    host.say(&format!("btl:{}: {}:{} is not used: {why}", config.name, it.device, it.port));
                }
                unused.push(format!("{}:{}: {why}", it.device, it.port));
            }
        }
    }
    wanted.truncate(config.most_ports.min(MODULES));
    if wanted.is_empty() {
        let why = match unused.len() {
            0 => "none is up with an address in this process's network".to_owned(),
            _ => unused.join("; "),
        };
        return Err(missing(format!("no port of {} can be used: {why}", devices.join(", "))));
    }
    // What is registered is to stay this process's when it forks.
    if let Err(error) = library.prepare_forks()
        && config.is_verbose
    {
        host.say(&format!(
            "btl:{}: children that the program forks may take registered pages away ({error})",
            config.name
        ));
    }
    let (mut ports, mut listeners) = (Vec::new(), Vec::new());
    let lockable = Lockable(config.lockable / wanted.len());
    for usable in wanted {
        match listen(&channel, usable, listeners.len(), (config, lockable)) {
            Ok((port, id)) => {
                ports.push(Arc::new(port));
                listeners.push(id);
            }
            Err(why) => host.notice("verbs not used", &format!("btl_{}: {why}", config.name)),
        }
    }
    if ports.is_empty() {
        return Err(Declined::Told);
    }
    let nonce = crate::link::random().map_err(|error| silently(format!("no random numbers ({error})")))?;
    let specification = config.queues.to_string();
    let hash = hash(&specification);
    let published = Published::of(config.dialect, ports.iter().map(Arc::as_ref), (nonce, specification));
    let queues =
        cm::Queues { count: config.queues.len() as u8, credits: config.queues.credits() as u8, hash };
    // Before there is a thread of ours.
    let kept = keeps(config, ports.len(), host);
    let office = Arc::new(Office::new(ports.len()).map_err(|error| told(format!("no eventfd ({error})")))?);
    // At some ports, for the process itself too: behind the listeners of all ports.
    let mut listening = ports.clone();
    let mut addresses: Vec<SocketAddr> = ports.iter().map(|port| port.at).collect();
    let mut loopbacks = Vec::new();
    for port in &ports {
        let (_, atomics) = capabilities(config.limits.flags, port.atomics);
        let number = listeners.len();
        let listener = Some(port).filter(|_| atomics != Atomics::None);
        let listener = listener.and_then(|port| listen_for_itself(&channel, port, number).ok());
        loopbacks.push(listener.as_ref().map(|(_, at)| (number as u8, *at)));
        if let Some((id, at)) = listener {
            listeners.push(id);
            listening.push(Arc::clone(port));
            addresses.push(at);
        }
    }
    let mut settings = cm::Settings::new(host.name(), nonce, addresses, queues);
    settings.dialect = config.dialect;
    settings.attempt = config.connect;
    settings.answer = 2 * (config.connect + settings.longest);
    let clock = Clock::new();
    let connector =
        Connector::start(Arc::clone(&office), channel, listeners, listening, settings, config, clock)
            .map_err(|error| {
                told(format!("the thread that makes connections cannot be started ({error})"))
            })?;
    host.publish(published.key(), &published.to_bytes()).map_err(|error| {
        connector.office.order(cm::Order::Finalize);
        connector.join();
        silently(format!("its address cannot be published to the job ({error})"))
    })?;
    let rails = ports.iter().zip(loopbacks).enumerate().map(|(module, (port, loopback))| {
        let counters = Arc::new(Counters::default());
        let wire = if port.is_iwarp() { cm::Wire::Iwarp } else { cm::Wire::InfiniBand };
        let state = State::new(module, port, &office, &counters, (config, clock), (queues, wire), loopback);
        let mut limits = config.limits;
        if limits.bandwidth == 0 {
            limits.bandwidth = port.speed;
        }
        // Windows want all processes reached, this one as well.
        let atomics = loopback.map_or(Atomics::None, |_| port.atomics);
        (limits.flags, limits.atomics) = capabilities(limits.flags, atomics);
        Rail { state: EngineCell::new(state), counters, limits, port: Arc::clone(port), nonce }
    });
    Ok(Opened { rails: rails.collect(), published, connector: Arc::new(connector), kept })
}

/// What each of so many ports keeps of registered memory that nobody uses. Who cannot have what he has asked for is told.
fn keeps(config: &Config, ports: usize, host: &impl Host) -> Option<Bounds> {
    let kept = Bounds { bytes: config.kept.bytes / ports, ..config.kept };
    if kept.count == 0 || kept.bytes == 0 {
        return None;
    }
    let (name, line) = (config.name, "memory is registered anew for each message");
    match host.tell_of_unmapping() {
        Telling::Begun => return Some(kept),
        Telling::Impossible { is_wanted: true } => host.say(&format!(
            "btl_{name}: {line}, though mpi_leave_pinned is 1: Open MPI cannot tell here when memory is unmapped"
        )),
        Telling::Impossible { is_wanted: false } | Telling::Unwanted if !config.is_verbose => {}
        Telling::Impossible { is_wanted: false } => {
            host.say(&format!("btl:{name}: {line}: Open MPI cannot tell here when memory is unmapped"));
        }
        Telling::Unwanted => host.say(&format!("btl:{name}: {line}, because mpi_leave_pinned is 0")),
    }
    None
}

/// Listens at a port.
fn listen(
    channel: &Arc<EventChannel>,
    usable: Usable,
    module: usize,
    (config, lockable): (&Config, Lockable),
) -> Result<(Port, Id), String> {
    let Usable { candidate, context, .. } = usable;
    let it = &candidate.interface;
    let failed = |error: Error| {
        format!("{}:{} cannot be listened at ({it}): {error}", candidate.device, candidate.port)
    };
    let id = Id::new(channel, listener_token(module)).map_err(failed)?;
    id.bind(SocketAddr::new(it.address, 0)).map_err(failed)?;
    let at = id.address().ok_or(Error::NotFound).map_err(failed)?;
    let found = Found {
        context,
        number: candidate.port,
        network: candidate.network,
        at,
        prefix: it.prefix,
        speed: it.speed_mbps,
    };
    let port = Port::open(found, config, lockable)?;
    id.listen(BACKLOG).map_err(failed)?;
    Ok((port, id))
}

/// Listens at a port for the process itself.
fn listen_for_itself(
    channel: &Arc<EventChannel>,
    port: &Port,
    number: usize,
) -> crate::error::Result<(Id, SocketAddr)> {
    let id = Id::new(channel, listener_token(number))?;
    id.bind(SocketAddr::new(port.at.ip(), 0))?;
    let at = id.address().ok_or(Error::NotFound)?;
    id.listen(BACKLOG)?;
    Ok((id, at))
}

/// FNV-1a: the same on every machine.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::hash;

    /// Of the specification of the function, by its authors.
    #[test]
    fn other_queues_have_another_hash() {
        assert_eq!((hash(""), hash("a")), (0xCBF2_9CE4_8422_2325, 0xAF63_DC4C_8601_EC8C));
        assert_ne!(hash("P,128,256"), hash("P,256,128"));
    }
}

//! `hawser-info --doctor`: why a component is used here, or is not, and what to do about it.

use std::fs::{self, File};
use std::net::IpAddr;
use std::process::ExitCode;

use hawser::accelerator;
use hawser::link::Interface;
use hawser::shm::{self, CrossMemory, NONCE, Probe, Segment};
use serde_json::json;

use crate::host::{Host, Refusal};
use crate::{components, find_library, loads, rdma};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    /// As it should be.
    Good,
    /// Good to know: something is slower, or is not used unless it is asked for.
    Note,
    /// Something cannot be used.
    Bad,
}

/// What was found.
struct Finding {
    /// What it is about: a component, or a part of the machine.
    about: &'static str,
    grade: Grade,
    what: String,
    /// What to do.
    remedy: Option<String>,
}

#[derive(Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    pub(crate) fn good(&mut self, about: &'static str, what: impl Into<String>) {
        self.0.push(Finding { about, grade: Grade::Good, what: what.into(), remedy: None });
    }

    pub(crate) fn note(&mut self, about: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Finding { about, grade: Grade::Note, what: what.into(), remedy: Some(remedy.into()) });
    }

    pub(crate) fn bad(&mut self, about: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Finding { about, grade: Grade::Bad, what: what.into(), remedy: Some(remedy.into()) });
    }
}

/// Looks at everything, and says it. Fails if something cannot be used.
pub(crate) fn examine(as_json: bool) -> ExitCode {
    let mut findings = Findings::default();
    let host = look_at_host(&mut findings);
    if let Some(host) = &host {
        components::look(host, &mut findings);
    }
    look_at_shared_memory(&mut findings);
    look_at_networks(&mut findings);
    look_at_libfabric(&mut findings);
    look_at_devices(&mut findings);
    rdma::look(host.as_ref(), &mut findings);
    if as_json {
        let all: Vec<_> = findings.0.iter().map(as_value).collect();
        say!("{:#}", json!({ "version": env!("CARGO_PKG_VERSION"), "findings": all }));
    } else {
        findings.0.iter().for_each(print);
    }
    let is_bad = findings.0.iter().any(|finding| finding.grade == Grade::Bad);
    if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn word(grade: Grade) -> &'static str {
    match grade {
        Grade::Good => "good",
        Grade::Note => "note",
        Grade::Bad => "bad",
    }
}

fn as_value(finding: &Finding) -> serde_json::Value {
    json!({
        "about": finding.about,
        "grade": word(finding.grade),
        "what": finding.what,
        "remedy": finding.remedy,
    })
}

fn print(finding: &Finding) {
    say!("{:<5} {}: {}", word(finding.grade), finding.about, finding.what);
    if let Some(remedy) = &finding.remedy {
        say!("      -> {remedy}");
    }
}

fn look_at_host(findings: &mut Findings) -> Option<Host> {
    let host = match Host::find() {
        Ok(host) => host,
        Err(absent) => {
            findings.bad("Open MPI", absent.to_string(), absent.remedy());
            return None;
        }
    };
    let Some(library) = find_library() else {
        findings.bad(
            "library",
            "libhawser.so is not where this program looks for it",
            "run `make`, or `make install`",
        );
        return None;
    };
    if let Err(refusal) = host.verdict(&library) {
        let (about, what) = match &refusal {
            Refusal::Host(why) => ("Open MPI", format!("{} does not accept hawser: {why}", host.version)),
            Refusal::Own(why) => ("Open MPI", why.clone()),
            Refusal::Library(why) | Refusal::Forbidden(why) => ("library", why.clone()),
        };
        findings.bad(about, what, refusal.remedy());
        return None;
    }
    findings.good("library", library.display().to_string());
    findings.good("Open MPI", format!("{} accepts hawser", host.version));
    Some(host)
}

fn look_at_shared_memory(findings: &mut Findings) {
    const ABOUT: &str = "shared memory";
    match Segment::make([1; NONCE]) {
        Ok(_) => findings.good(ABOUT, "can be made (memfd_create); nothing lies in /dev/shm"),
        Err(error) => findings.bad(
            ABOUT,
            format!("cannot be made ({error}), so that btl smcuda is not used"),
            "allow memfd_create, and files as long as that in `ulimit -f`; a container's seccomp profile may forbid it",
        ),
    }
    let probe = Probe::new([7; 16]);
    match (shm::forbids(), CrossMemory::open(std::process::id(), probe.address(), &[7; 16])) {
        (Some(why), _) => findings.note(
            ABOUT,
            format!("processes cannot read each other's memory ({why}): long messages are copied twice"),
            "sysctl kernel.yama.ptrace_scope=1",
        ),
        (None, Err(error)) => findings.note(
            ABOUT,
            format!("process_vm_readv is refused ({error}): long messages are copied twice"),
            "allow it in the seccomp profile, or give the container CAP_SYS_PTRACE",
        ),
        (None, Ok(_)) => findings.good(ABOUT, "long messages are copied in one step (process_vm_readv)"),
    }
}

fn look_at_networks(findings: &mut Findings) {
    const ABOUT: &str = "networks";
    let interfaces = match Interface::all() {
        Ok(all) => all,
        Err(error) => {
            return findings.bad(
                ABOUT,
                format!("interfaces cannot be listed ({error})"),
                "allow UDP sockets",
            );
        }
    };
    for interface in interfaces.iter().filter(|interface| interface.is_up) {
        // Those that are only valid together with an interface are not used.
        if matches!(interface.address, IpAddr::V6(address) if address.is_unicast_link_local()) {
            continue;
        }
        let headers = if interface.address.is_ipv4() { 28 } else { 48 };
        let most = interface.mtu.saturating_sub(headers).min(LONGEST_DATAGRAM);
        let what = format!(
            "{} {}/{}: datagrams up to {most} bytes",
            interface.name, interface.address, interface.prefix
        );
        if most < 1228 {
            findings.bad(ABOUT, format!("{what}, too few for btl usnic"), "raise its MTU to 1280 or more");
        } else {
            findings.good(ABOUT, what);
        }
    }
    if !interfaces.iter().any(|interface| interface.is_up && !interface.is_loopback) {
        findings.note(
            ABOUT,
            "no interface but the loopback is up: btl usnic reaches this machine alone",
            "bring one up to reach others",
        );
    }
    look_at_launching(&interfaces, findings);
    let limit = fs::read_to_string("/proc/sys/net/core/rmem_max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    if let Some(limit) = limit.filter(|limit| *limit < RECEIVE_BUFFER) {
        findings.note(
            ABOUT,
            format!("sockets may have receive buffers of {limit} bytes alone: btl usnic promises its peers less room"),
            format!("sysctl net.core.rmem_max={RECEIVE_BUFFER}"),
        );
    }
}

/// The transports do without IPv4, but not what launches jobs.
fn look_at_launching(interfaces: &[Interface], findings: &mut Findings) {
    const ABOUT: &str = "launching";
    let mut addresses =
        interfaces.iter().filter(|interface| interface.is_up && interface.address.is_ipv4()).peekable();
    if addresses.peek().is_none() {
        findings.bad(
            ABOUT,
            "no interface has an IPv4 address: PMIx, which every job needs, does not start",
            "ip addr add 127.0.0.1/8 dev lo",
        );
    } else if addresses.all(|interface| interface.is_loopback)
        && interfaces.iter().any(|interface| interface.is_up && !interface.is_loopback)
    {
        findings.note(
            ABOUT,
            "no interface but the loopback has an IPv4 address: mpirun of Open MPI 5.0 crashes when told of other machines",
            "srun --mpi=pmix does not; or let each have one that nobody uses: ip addr add 192.0.2.1/32 dev INTERFACE",
        );
    }
}

/// Longest payload of UDP over IPv4 (RFC 768).
const LONGEST_DATAGRAM: usize = 65_507;

/// What btl usnic asks for.
const RECEIVE_BUFFER: u64 = 4 << 20;

fn look_at_libfabric(findings: &mut Findings) {
    const ABOUT: &str = "libfabric";
    match hawser::fabric::Library::open() {
        Ok(library) => {
            let (major, minor) = library.version();
            findings.good(ABOUT, format!("{major}.{minor}; `hawser-info` lists its providers"));
        }
        Err(missing) => findings.bad(
            ABOUT,
            format!("mtl hawser is not used: {missing}"),
            "install it (Debian: libfabric1); btl usnic and btl smcuda do without",
        ),
    }
    if let Some(value) = std::env::var_os("FI_PROVIDER") {
        findings.note(
            ABOUT,
            format!(
                "the variable FI_PROVIDER says {}: other providers are not there",
                value.to_string_lossy()
            ),
            "unset FI_PROVIDER",
        );
    }
}

fn look_at_devices(findings: &mut Findings) {
    const ABOUT: &str = "CUDA devices";
    match (accelerator::kernel_driver(), loads(c"libcuda.so.1")) {
        (None, _) => findings.good(ABOUT, "none here: there is no kernel driver for them"),
        (Some(node), false) => findings.bad(ABOUT, format!("{node} is there, and libcuda.so.1 is not found"), "install the driver's library (Debian: libcuda1), also in the container"),
        (Some(node), true) => match File::options().read(true).write(true).open(node) {
            Ok(_) => findings.good(ABOUT, "the driver is there; smcuda, op hawser and accelerator cuda use it as soon as the program does"),
            Err(error) => findings.bad(ABOUT, format!("{node} cannot be opened ({error})"), "give the user access to it, and the container the device"),
        },
    }
}

//! `hawser-info --doctor`: why a component is used here, or is not, and what to do about it.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hawser::accelerator;
use hawser::link::Interface;
use hawser::shm::{self, CrossMemory, NONCE, Probe, Segment};
use serde_json::json;

use crate::host::Host;
use crate::rdma;
use crate::settings::{self, Says};
use crate::{find_library, is_ours, loads, staged};

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

/// A component, and what it is for.
struct Component {
    framework: &'static str,
    name: &'static str,
    about: &'static str,
    /// What chooses it on a command line.
    chosen_by: &'static str,
    /// The release of the host that it is for alone.
    only: Option<&'static str>,
}

const COMPONENTS: [Component; 6] = [
    Component {
        framework: "mtl",
        name: "hawser",
        about: "mtl hawser",
        chosen_by: "--mca pml cm --mca mtl hawser",
        only: None,
    },
    Component {
        framework: "btl",
        name: "usnic",
        about: "btl usnic",
        chosen_by: "--mca pml ob1 --mca btl usnic,self",
        only: None,
    },
    Component {
        framework: "btl",
        name: "smcuda",
        about: "btl smcuda",
        chosen_by: "--mca pml ob1 --mca btl smcuda,self",
        only: None,
    },
    Component {
        framework: "btl",
        name: "verbs",
        about: "btl verbs",
        chosen_by: "--mca pml ob1 --mca btl verbs,self",
        only: None,
    },
    Component {
        framework: "op",
        name: "hawser",
        about: "op hawser",
        chosen_by: "--mca op hawser",
        only: None,
    },
    Component {
        framework: "accelerator",
        name: "cuda",
        about: "accelerator cuda",
        chosen_by: "--mca accelerator cuda",
        only: Some("5."),
    },
];

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
        look_at_components(host, &mut findings);
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
    let Some(host) = Host::find() else {
        findings.bad(
            "Open MPI",
            "ompi_info is not on PATH, or does not run",
            "install it (Debian: openmpi-bin), or put its folder on PATH",
        );
        return None;
    };
    let Some(library) = find_library() else {
        findings.bad(
            "library",
            "libhawser.so is not where this program looks for it",
            "run `make`, or `make install`",
        );
        return None;
    };
    findings.good("library", library.display().to_string());
    if let Err(why) = host.verdict(&library) {
        findings.bad(
            "Open MPI",
            format!("{} does not accept hawser: {why}", host.version),
            "use Open MPI 4.1 or 5.0 as distributions build it; the other one, if this is one",
        );
        return None;
    }
    findings.good("Open MPI", format!("{} accepts hawser", host.version));
    Some(host)
}

/// Where each component lies, and whether the host is told to leave it.
fn look_at_components(host: &Host, findings: &mut Findings) {
    let own: Vec<PathBuf> = host.component_path.split(':').map(PathBuf::from).collect();
    let built = find_library().and_then(|library| staged(&library));
    let set_path = settings::of("mca_base_component_path", &host.settings);
    let paths: Vec<PathBuf> = match &set_path {
        Some(setting) => setting.value.split(':').map(PathBuf::from).collect(),
        None => own,
    };
    for component in &COMPONENTS {
        if component.only.is_some_and(|release| !host.version.starts_with(release)) {
            continue;
        }
        let file = format!("mca_{}_{}.so", component.framework, component.name);
        let Some(path) = paths.iter().map(|folder| folder.join(&file)).find(|path| path.exists()) else {
            let remedy = match built.iter().find(|folder| folder.join(&file).exists()) {
                Some(folder) => format!(
                    "run `make install`, or say --mca mca_base_component_path {}:{}",
                    folder.display(),
                    host.component_path.split(':').next().unwrap_or_default()
                ),
                None => "run `make install`".to_owned(),
            };
            findings.bad(
                component.about,
                format!("{file} is in none of the folders that Open MPI looks into ({})", shown(&paths)),
                remedy,
            );
            continue;
        };
        if !is_ours(&path) {
            findings.bad(
                component.about,
                format!("{} is not hawser's", path.display()),
                "put a folder that has hawser's first in mca_base_component_path",
            );
        } else if let Err(error) = File::open(&path) {
            findings.bad(
                component.about,
                format!("{} cannot be read ({error})", path.display()),
                "chmod a+rX the library and the folders above it",
            );
        } else {
            weigh(component, &path, host, findings);
        }
    }
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A component lies where it should: what do the settings say of it?
fn weigh(component: &Component, path: &Path, host: &Host, findings: &mut Findings) {
    let line = || format!("the command line counts more: mpirun {}", component.chosen_by);
    let layer = match component.framework {
        "mtl" => Some("cm"),
        "btl" => Some("ob1"),
        _ => None,
    };
    let upper = settings::of("pml", &host.settings);
    if let Some(setting) = settings::of(component.framework, &host.settings)
        && setting.says(component.name) == Says::Leave
    {
        let what =
            format!("{} says {} = {}, which leaves it out", setting.place, setting.framework, setting.value);
        findings.note(component.about, what, line());
    } else if let (Some(layer), Some(setting)) = (layer, &upper)
        && setting.says(layer) == Says::Leave
    {
        let what = format!("{} says pml = {}, and it is used by {layer} alone", setting.place, setting.value);
        findings.note(component.about, what, line());
    } else {
        findings.good(component.about, format!("{}; {}", path.display(), component.chosen_by));
    }
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
    if let Ok(value) = std::env::var("FI_PROVIDER") {
        findings.note(
            ABOUT,
            format!("the variable FI_PROVIDER says {value}: other providers are not there"),
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

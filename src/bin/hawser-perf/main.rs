//! `hawser-perf`: latency, bandwidth and message rate of a transport between two processes, without MPI. See
//! `docs/hawser-perf.1`.
//!
//! [`options`] is the command line and [`plan`] what both sides measure; [`control`] the connection over which they
//! agree; [`opening`] and [`transport`] the only use of hawser's C functions, with what [`bytes`] and [`matching`]
//! transports have of their own, [`parameters`] for whose those are, [`block`] for memory, and [`caller`] and [`inbox`]
//! behind its callbacks; [`mod@bench`] both sides of a measurement, [`meter`] and [`report`] what a person sees of it, and [`signals`] how it is ended before it is over.

mod bench;
mod block;
mod bytes;
mod caller;
mod control;
mod inbox;
mod matching;
mod meter;
mod opening;
mod options;
mod parameters;
mod plan;
mod report;
mod signals;
mod transport;

use std::env;
use std::ffi::{CString, OsString};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use hawser::link::{Clock, random};

use bench::Side;
use caller::Record;
use control::{Control, Kind, readable};
use meter::Meter;
use options::{Asked, Family, Options, Role};
use plan::Plan;
use report::{Report, line};
use transport::Transport;

const USAGE: &str = "usage: hawser-perf [OPTION ...]              waits for a client
       hawser-perf [OPTION ...] HOST         measures with the server there
       hawser-perf [OPTION ...] --local      measures with a process of its own

Measures a transport of hawser's between two processes, without MPI.

  -t, --transport NAME   usnic, verbs, smcuda (the default with --local), or ofi
  -b, --bench NAME       latency (the default), bandwidth, or rate
  -o, --operation NAME   send (the default), put, or get (not with ofi)
  -s, --size LENGTHS     8, or 1,64K, or 1:4M (powers of two), or 1:4M:4
  -n, --iterations N     messages of each length
  -w, --warm-up N        messages before these
  -W, --window N         messages under way at a time; 64
  -d, --device NAME      the module to use: a network interface
  -p, --port PORT        of the server; 47592
  -a, --bind ADDRESS     where the server listens; everywhere
  -4, -6                 only IPv4, or only IPv6, between the two
      --set NAME=VALUE   a parameter of the transport, on this side
      --timeout SECONDS  how long the other side may be silent; 30
      --json             one object in place of a table
  -v, --verbose          what the transport chooses, and why
      --version, --help";

/// Most records that a side publishes.
const RECORDS: usize = 16;

fn main() -> ExitCode {
    let asked = words().and_then(|words| Options::parse(&words)).and_then(|asked| match asked {
        Asked::Run(options) => prove(&options).map(|()| Asked::Run(options)),
        other => Ok(other),
    });
    let outcome = match asked {
        Ok(Asked::Version) => line(concat!("hawser ", env!("CARGO_PKG_VERSION"))),
        Ok(Asked::Help) => line(USAGE),
        Ok(Asked::Run(options)) => run(&options),
        Err(why) => {
            eprintln!("hawser-perf: {why}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hawser-perf: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The words behind the program's name.
fn words() -> Result<Vec<String>, String> {
    let text = |word: OsString| {
        word.into_string()
            .map_err(|word| format!("{}: that is no text (UTF-8); write it anew", word.to_string_lossy()))
    };
    env::args_os().skip(1).map(text).collect()
}

/// Whether the transport takes what the command line says, as far as it is known which one that is.
fn prove(options: &Options) -> Result<(), String> {
    match options.proposed() {
        Some(plan) => opening::prove(&plan, &options.settings, options.device.as_deref()),
        None => parameters::known(&options.settings),
    }
}

/// The name of this node.
pub(crate) fn node() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "this host".to_owned(), |name| name.trim().to_owned())
}

fn run(options: &Options) -> Result<(), String> {
    let (clock, patience) = (Clock::new(), u64::from(options.timeout) * 1_000_000_000);
    let control = |wire: OwnedFd| Control::new(wire, clock, patience);
    match &options.role {
        Role::Server => serve(options, clock, control),
        Role::Client(host) => {
            let stream = connect(host, options)?;
            let mut control = control(stream.into());
            control.greet().map_err(|why| format!("{host}, port {}: {why}", options.port))?;
            measure(options, clock, &mut control, host)
        }
        Role::Local => {
            let (mut child, wire) = start_other(options)?;
            let mut control = control(wire);
            let outcome = control
                .greet()
                .and_then(|()| measure(options, clock, &mut control, "a process of this node"));
            // At the end of the connection the other side ends, too.
            drop(control);
            let _ = child.wait();
            outcome
        }
        Role::OtherSide => {
            let wire = std::io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| format!("standard input: {error}"))?;
            let mut control = control(wire);
            control.greet()?;
            // What is wrong here is said there.
            answer(options, clock, &mut control).map(drop)
        }
    }
}

/// Another process of this program, and the connection to it.
fn start_other(options: &Options) -> Result<(Child, OwnedFd), String> {
    let cannot = |error: std::io::Error| format!("the other process cannot be started: {error}");
    let (here, there) = UnixStream::pair().map_err(cannot)?;
    let program = env::current_exe().map_err(cannot)?;
    let mut command = Command::new(program);
    command.args(options.handed_on()).stdin(OwnedFd::from(there)).stdout(Stdio::null());
    if !options.is_verbose {
        command.stderr(Stdio::null());
    }
    Ok((command.spawn().map_err(cannot)?, here.into()))
}

fn is_allowed(address: IpAddr, family: Family) -> bool {
    match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    }
}

/// Connects to a server, by the first of its addresses that answers.
fn connect(host: &str, options: &Options) -> Result<TcpStream, String> {
    let port = options.port;
    let addresses = (host, port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    let addresses: Vec<SocketAddr> =
        addresses.filter(|address| is_allowed(address.ip(), options.family)).collect();
    let mut why = "it has no address of that version of IP".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, Duration::from_secs(options.timeout.into())) {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => why = error.to_string(),
        }
    }
    Err(format!("{host}, port {port}: {why}; start hawser-perf there first, and look for a firewall"))
}

/// Where a server listens.
fn listen(options: &Options) -> Result<TcpListener, String> {
    let any: &[IpAddr] = match options.family {
        Family::Any => &[IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        Family::V4 => &[IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        Family::V6 => &[IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
    };
    let addresses = options.bind.map_or_else(|| any.to_vec(), |address| vec![address]);
    let mut why = String::new();
    for address in addresses {
        match TcpListener::bind((address, options.port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                why = format!("{address}, port {}: {error}; -p takes another port, -p 0 any", options.port)
            }
        }
    }
    Err(why)
}

/// Waits for a client, and measures with it. Whoever is none is sent away.
fn serve(options: &Options, clock: Clock, control: impl Fn(OwnedFd) -> Control) -> Result<(), String> {
    let listener = listen(options)?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    line(&if options.as_json {
        format!("{{ \"port\": {port} }}")
    } else {
        format!("hawser-perf: waiting on port {port}; run there: hawser-perf {} -p {port}", node())
    })?;
    loop {
        let (stream, from) = listener.accept().map_err(|error| format!("accept: {error}"))?;
        let _ = stream.set_nodelay(true);
        let mut control = control(stream.into());
        if let Err(why) = control.greet() {
            eprintln!("hawser-perf: {from} was sent away: {why}");
            continue;
        }
        let plan = answer(options, clock, &mut control)?;
        return if options.as_json {
            Ok(())
        } else {
            line(&format!("hawser-perf: {} of {} with {from} is over", plan.bench.name(), plan.transport))
        };
    }
}

/// Two processes, the server first, have these names.
fn names(job: u32) -> [u64; 2] {
    [u64::from(job), 1 << 32 | u64::from(job)]
}

/// The client's part.
fn measure(options: &Options, clock: Clock, control: &mut Control, peer: &str) -> Result<(), String> {
    let job = random().map_err(|error| format!("no random number: {error}"))? as u32;
    let plan = options.plan(job.max(1));
    let outcome = control.send(Kind::Plan, &plan.emit()).and_then(|()| {
        let mut side = meet(options, clock, control, &plan, false)?;
        side.connect().inspect_err(|_| side.transport.conclude())?;
        let mut report = Report::begin(&plan, &side.transport.device(), peer, options.as_json)?;
        side.run(|figures| report.add(figures)).inspect_err(|_| side.transport.conclude())?;
        report.end()
    });
    outcome.inspect_err(|why| control.fail(why))
}

/// The server's part.
fn answer(options: &Options, clock: Clock, control: &mut Control) -> Result<Plan, String> {
    let frame = control.wait([Kind::Plan; 2])?;
    let plan = Plan::parse(&frame.bytes).map_err(|why| format!("the client's plan: {why}"));
    let plan = plan.and_then(|plan| options.admits(&plan).map(|()| plan));
    let outcome = plan.and_then(|plan| {
        let mut side = meet(options, clock, control, &plan, true)?;
        side.connect().inspect_err(|_| side.transport.conclude())?;
        side.run(|_| Ok(())).inspect_err(|_| side.transport.conclude())?;
        Ok(plan)
    });
    outcome.inspect_err(|why| control.fail(why))
}

/// Opens the transport, exchanges what it publishes, and makes the other side known.
fn meet<'a>(
    options: &Options,
    clock: Clock,
    control: &'a mut Control,
    plan: &'a Plan,
    is_server: bool,
) -> Result<Side<'a>, String> {
    let [server, client] = names(plan.job);
    let (own, other) = if is_server { (server, client) } else { (client, server) };
    signals::listen();
    let mut transport = Transport::open(plan, own, &options.settings, options.is_verbose)?;
    // What it has loaded may have functions of its own for them: libpsm2, a provider of libfabric's, ends the process.
    signals::listen();
    for (key, bytes) in transport.published() {
        control.send(Kind::Record, &[key.to_bytes_with_nul(), &bytes].concat())?;
    }
    control.send(Kind::Published, &[])?;
    let mut records = Vec::new();
    loop {
        let frame = control.wait([Kind::Record, Kind::Published])?;
        if frame.kind == Kind::Published {
            break;
        }
        if records.len() == RECORDS {
            return Err("the other side publishes more than any transport does".to_owned());
        }
        records.push(record(&frame.bytes)?);
    }
    transport.join(other, records, options.device.as_deref())?;
    control.send(Kind::Mark, &[])?;
    control.wait([Kind::Mark; 2])?;
    let patience = u64::from(options.timeout) * 1_000_000_000;
    Ok(Side { control, transport, plan, clock, patience, is_server, meter: Meter::new(!is_server) })
}

/// A record of the other side's.
fn record(bytes: &[u8]) -> Result<Record, String> {
    let zero = bytes.iter().position(|byte| *byte == 0);
    let (key, record) =
        bytes.split_at(zero.ok_or_else(|| format!("a record without a key: {}", readable(bytes)))?);
    let key = CString::new(key).map_err(|error| error.to_string())?;
    Ok((key, record[1..].to_vec()))
}

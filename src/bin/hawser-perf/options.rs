//! The command line.

use std::net::IpAddr;

use crate::plan::{Bench, Case, Operation, Plan};

/// The port of both sides, where nothing is said.
const PORT: u16 = 47_592;
/// Bytes that a bandwidth is measured with, more or less.
const VOLUME: usize = 256 << 20;

/// What this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It waits for a client.
    Server,
    /// It measures with the server at this name or address.
    Client(String),
    /// It starts the other side itself.
    Local,
    /// It was started by such a one, which is at the other end of standard input.
    OtherSide,
}

/// IP versions that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Any,
    V4,
    V6,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) role: Role,
    transport: Option<String>,
    bench: Bench,
    operation: Operation,
    sizes: Option<Vec<usize>>,
    iterations: Option<u32>,
    warm_up: Option<u32>,
    window: u32,
    /// The module to use, by its name.
    pub(crate) device: Option<String>,
    pub(crate) port: u16,
    /// The last option that says how two processes connect.
    connects: Option<String>,
    pub(crate) bind: Option<IpAddr>,
    pub(crate) family: Family,
    /// Parameters, by name.
    pub(crate) settings: Vec<(String, String)>,
    /// How long the other side may be silent, seconds.
    pub(crate) timeout: u32,
    pub(crate) as_json: bool,
    pub(crate) is_verbose: bool,
}

/// What else a command line may ask for.
#[derive(Debug)]
pub(crate) enum Asked {
    Run(Options),
    Version,
    Help,
}

/// A number within bounds.
fn number<N: std::str::FromStr + PartialOrd + std::fmt::Display>(
    option: &str,
    text: &str,
    least: N,
    most: N,
) -> Result<N, String> {
    let found = text.parse().ok().filter(|number| (&least..=&most).contains(&number));
    found.ok_or_else(|| format!("{option} {text}: it must be a number from {least} to {most}"))
}

/// A name of a list.
fn one_of<T: Copy>(option: &str, text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        format!("{option} {text}: it must be one of {}", names.join(", "))
    })
}

/// Lengths: `8`, `1,64,4K`, or `1:4M` for powers of two, `1:4M:4` for those of four.
fn sizes(text: &str) -> Result<Vec<usize>, String> {
    let wrong =
        || format!("-s {text}: it must be a length (8, 64K, 4M), several (1,64K), or a range (1:4M, 1:4M:4)");
    let length = |text: &str| {
        let (digits, unit) = match text.strip_suffix(['K', 'k']) {
            Some(digits) => (digits, 1 << 10),
            None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
        };
        digits
            .parse::<u32>()
            .ok()
            .and_then(|number| usize::try_from(number).ok()?.checked_mul(unit))
            .ok_or_else(wrong)
    };
    if !text.contains(':') {
        return text.split(',').map(length).collect();
    }
    let parts: Vec<_> = text.split(':').map(length).collect::<Result<_, _>>()?;
    let (first, last, factor) = match parts[..] {
        [first, last] => (first, last, 2),
        [first, last, factor] => (first, last, factor),
        _ => return Err(wrong()),
    };
    if first == 0 || first > last || factor < 2 {
        return Err(wrong());
    }
    Ok(std::iter::successors(Some(first), |length| length.checked_mul(factor))
        .take_while(|length| *length <= last)
        .collect())
}

impl Options {
    /// Reads the words behind the program's name.
    pub(crate) fn parse(words: &[String]) -> Result<Asked, String> {
        let mut options = Self {
            role: Role::Server,
            transport: None,
            bench: Bench::Latency,
            operation: Operation::Send,
            sizes: None,
            iterations: None,
            warm_up: None,
            window: 64,
            device: None,
            port: PORT,
            connects: None,
            bind: None,
            family: Family::Any,
            settings: Vec::new(),
            timeout: 30,
            as_json: false,
            is_verbose: false,
        };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--version" => return Ok(Asked::Version),
                "-h" | "--help" => return Ok(Asked::Help),
                "--local" => options.take_role(Role::Local)?,
                "--other-side" => options.take_role(Role::OtherSide)?,
                "-4" => options.take_family(Family::V4)?,
                "-6" => options.take_family(Family::V6)?,
                "--json" => options.as_json = true,
                "-v" | "--verbose" => options.is_verbose = true,
                _ if word.starts_with('-') => {
                    // `--bench=rate` is `--bench rate`.
                    let (option, value) = match word.split_once('=') {
                        Some((option, value)) if option.starts_with("--") => (option, Some(value)),
                        _ => (word, None),
                    };
                    if value.is_some() && FLAGS.contains(&option) {
                        return Err(format!("{word}: {option} takes no value"));
                    }
                    if !VALUED.contains(&option) {
                        return Err(format!("{option}: there is no such option; --help lists them"));
                    }
                    let value = value.or_else(|| words.next());
                    let value = value.ok_or_else(|| format!("{option}: a value must follow"))?;
                    options.set(option, value)?;
                }
                host => options.take_role(Role::Client(host.to_owned()))?,
            }
        }
        options.check()?;
        Ok(Asked::Run(options))
    }

    fn take_role(&mut self, role: Role) -> Result<(), String> {
        if self.role != Role::Server {
            let word = match &role {
                Role::Client(host) => host,
                Role::Server | Role::Local => "--local",
                Role::OtherSide => "--other-side",
            };
            return Err(format!("{word}: one HOST, or --local: not both, and not several"));
        }
        self.role = role;
        Ok(())
    }

    fn take_family(&mut self, family: Family) -> Result<(), String> {
        if ![Family::Any, family].contains(&self.family) {
            return Err("-4 and -6 exclude each other; leave both out to use either".to_owned());
        }
        self.family = family;
        self.connects = Some(if family == Family::V4 { "-4" } else { "-6" }.to_owned());
        Ok(())
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        if ["-p", "--port", "-a", "--bind"].contains(&option) {
            self.connects = Some(option.to_owned());
        }
        match option {
            "-t" | "--transport" => self.transport = Some(value.to_owned()),
            "-b" | "--bench" => self.bench = one_of(option, value, &Bench::ALL)?,
            "-o" | "--operation" => self.operation = one_of(option, value, &Operation::ALL)?,
            "-s" | "--size" => self.sizes = Some(sizes(value)?),
            "-n" | "--iterations" => {
                self.iterations = Some(number(option, value, 1, crate::plan::MOST_ITERATIONS)?)
            }
            "-w" | "--warm-up" => {
                self.warm_up = Some(number(option, value, 0, crate::plan::MOST_ITERATIONS)?)
            }
            "-W" | "--window" => self.window = number(option, value, 1, crate::plan::WIDEST)?,
            "-d" | "--device" => self.device = Some(value.to_owned()),
            "-p" | "--port" => self.port = number(option, value, 0, u16::MAX)?,
            "-a" | "--bind" => {
                let address = value.parse();
                self.bind = Some(address.map_err(|_| format!("{option} {value}: it must be an IP address"))?);
            }
            "--set" => {
                let (name, value) = value
                    .split_once('=')
                    .ok_or_else(|| format!("{option} {value}: it must be NAME=VALUE"))?;
                self.settings.push((name.to_owned(), value.to_owned()));
            }
            _ => self.timeout = number(option, value, 1, 86_400)?,
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let is_client = matches!(self.role, Role::Client(_));
        if is_client && self.port == 0 {
            return Err("-p 0: a client needs the port that the server says".to_owned());
        }
        if let (Role::Local, Some(option)) = (&self.role, &self.connects) {
            return Err(format!("{option}: it is for a server and its client, and --local has neither"));
        }
        if let (true, Some(address)) = (is_client, self.bind) {
            return Err(format!(
                "--bind {address}: it is where a server listens, and HOST makes this a client"
            ));
        }
        match (self.bind, self.family) {
            (Some(address), Family::V4) if address.is_ipv6() => {
                return Err(format!("--bind {address} and -4 contradict each other"));
            }
            (Some(address), Family::V6) if address.is_ipv4() => {
                return Err(format!("--bind {address} and -6 contradict each other"));
            }
            _ => {}
        }
        match self.role {
            Role::Client(_) | Role::Local => self.plan(0).check(),
            Role::Server | Role::OtherSide => Ok(()),
        }
    }

    /// What the client proposes.
    pub(crate) fn plan(&self, job: u32) -> Plan {
        let transport = match (&self.transport, &self.role) {
            (Some(name), _) => name.clone(),
            (None, Role::Local) => "smcuda".to_owned(),
            (None, _) => "usnic".to_owned(),
        };
        let range = || (0..=10).map(|power| 1 << (2 * power)).collect();
        let sizes = match (&self.sizes, self.bench) {
            (Some(sizes), _) => sizes.clone(),
            (None, Bench::Rate) => vec![8],
            (None, _) => range(),
        };
        let cases = sizes.into_iter().map(|bytes| {
            let usual = match (self.bench, bytes) {
                (Bench::Latency, 0..=8192) => 10_000,
                (Bench::Latency, 8193..=131_072) => 1000,
                (Bench::Latency, _) => 100,
                _ => (VOLUME / bytes.max(1)).clamp(100, 100_000) as u32,
            };
            let iterations = self.iterations.unwrap_or(usual);
            Case { bytes, iterations, warm_up: self.warm_up.unwrap_or(iterations / 10) }
        });
        Plan {
            job,
            transport,
            bench: self.bench,
            operation: self.operation,
            window: self.window,
            cases: cases.collect(),
        }
    }

    /// What is known of the plan before anybody else is asked: what this side proposes, or, of a server, with which
    /// transport alone it goes.
    pub(crate) fn proposed(&self) -> Option<Plan> {
        match self.role {
            Role::Client(_) | Role::Local => Some(self.plan(0)),
            Role::Server => {
                self.transport.is_some().then(|| Plan { operation: Operation::Send, ..self.plan(0) })
            }
            Role::OtherSide => None,
        }
    }

    /// Whether a server takes a client's plan; an error says why not.
    pub(crate) fn admits(&self, plan: &Plan) -> Result<(), String> {
        match &self.transport {
            Some(transport) if *transport != plan.transport => {
                Err(format!("this server was started for -t {transport}, and not for {}", plan.transport))
            }
            _ => Ok(()),
        }
    }

    /// What the other side of a local measurement is told.
    pub(crate) fn handed_on(&self) -> Vec<String> {
        let mut words = vec!["--other-side".to_owned(), "--timeout".to_owned(), self.timeout.to_string()];
        for (name, value) in &self.settings {
            words.extend(["--set".to_owned(), format!("{name}={value}")]);
        }
        if self.is_verbose {
            words.push("--verbose".to_owned());
        }
        words
    }
}

/// Long options that none follows.
const FLAGS: [&str; 6] = ["--version", "--help", "--local", "--other-side", "--json", "--verbose"];

/// Options that a value follows.
const VALUED: [&str; 22] = [
    "-t",
    "--transport",
    "-b",
    "--bench",
    "-o",
    "--operation",
    "-s",
    "--size",
    "-n",
    "--iterations",
    "-w",
    "--warm-up",
    "-W",
    "--window",
    "-d",
    "--device",
    "-p",
    "--port",
    "-a",
    "--bind",
    "--set",
    "--timeout",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        match Options::parse(&words)? {
            Asked::Run(options) => Ok(options),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn lengths_are_single_listed_or_in_a_range() {
        assert_eq!(sizes("8"), Ok(vec![8]));
        assert_eq!(sizes("0,64K,4M"), Ok(vec![0, 65_536, 4_194_304]));
        assert_eq!(sizes("1:8"), Ok(vec![1, 2, 4, 8]));
        assert_eq!(sizes("3:100:4"), Ok(vec![3, 12, 48]));
        for wrong in ["", "x", "-1", "1:", "8:1", "0:8", "1:8:1", "1:2:3:4", "1,", "4294967296"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_command_line_is_one_role_and_options() {
        assert_eq!(parse("").map(|options| options.role), Ok(Role::Server));
        let options = parse("node7 -t usnic -b rate --size=1:4 -n 50 --set btl_usnic_link=socket -p 99 -6")
            .expect("right");
        assert_eq!(options.role, Role::Client("node7".to_owned()));
        assert_eq!((options.port, options.family), (99, Family::V6));
        assert_eq!(options.settings, [("btl_usnic_link".to_owned(), "socket".to_owned())]);
        let plan = options.plan(5);
        assert_eq!((plan.job, plan.bench, plan.transport.as_str()), (5, Bench::Rate, "usnic"));
        assert_eq!(plan.cases, [1, 2, 4].map(|bytes| Case { bytes, iterations: 50, warm_up: 5 }));
        assert_eq!(parse("--local").expect("right").plan(0).transport, "smcuda");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, why) in [
            ("--local node7", "node7: one HOST, or --local: not both"),
            ("a b", "b: one HOST, or --local: not both, and not several"),
            ("node7 --local", "--local: one HOST"),
            ("--nothing", "--nothing: there is no such option"),
            ("-s", "a value must follow"),
            ("--local -s 999M", "a length of 1047527424 (-s)"),
            ("--local -o put -s 0", "a length of 0 (-s)"),
            ("--local -n 0", "a number from 1"),
            ("--local -p 99", "-p: it is for a server and its client, and --local has neither"),
            ("-6 --local", "-6: it is for a server"),
            ("--bind ::1 --local", "--bind: it is for a server"),
            ("-a 10.0.0.1 node7", "--bind 10.0.0.1: it is where a server listens, and HOST"),
            ("-b speed", "one of latency, bandwidth, rate"),
            ("--set x", "NAME=VALUE"),
            ("a -p 0", "a client needs"),
            ("-6 -a 127.0.0.1", "--bind 127.0.0.1 and -6 contradict"),
            ("-4 -6", "-4 and -6 exclude each other"),
            ("-6 a -4", "-4 and -6 exclude each other"),
            ("--json=yes", "--json takes no value"),
            ("--local -W 0", "-W 0: it must be"),
            ("-a here", "an IP address"),
            ("a -W 5000", "from 1 to 4096"),
        ] {
            assert!(parse(line).is_err_and(|said| said.contains(why)), "{line}");
        }
    }

    #[test]
    fn the_other_side_of_a_local_measurement_is_told_what_holds_for_both() {
        let options = parse("--local -s 8 --timeout 7 --set a=1 --set b=2=3 -v").expect("right");
        let other = parse(&options.handed_on().join(" ")).expect("right");
        assert_eq!((other.role, other.timeout, other.is_verbose), (Role::OtherSide, 7, true));
        assert_eq!(other.settings, options.settings);
    }

    #[test]
    fn a_server_for_one_transport_refuses_another() {
        let plan = parse("a -t smcuda").expect("right").plan(1);
        assert!(parse("").expect("right").admits(&plan).is_ok());
        assert!(parse("-t smcuda").expect("right").admits(&plan).is_ok());
        assert!(parse("-t usnic").expect("right").admits(&plan).is_err());
    }
}

//! Two hosts on one machine for the tests: network namespaces joined by a virtual cable. Each is a
//! thread of its own, made by a test and gone with it.

use std::process::Command;
use std::sync::mpsc;
use std::thread;

use super::{Interface, Options, Socket};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace and the thread that lives in it.
pub(super) struct Host {
    jobs: mpsc::Sender<Job>,
}

impl Host {
    /// A host without a network; `None` where we may not make one, or lack `ip(8)` to do it with.
    pub(super) fn new() -> Option<Self> {
        if Command::new("ip").arg("-V").output().is_err() {
            eprintln!("no ip(8) here: skipped");
            return None;
        }
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            // SAFETY: takes no pointer; changes this thread only.
            let made = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
            let _ = ready.send(made);
            while let (true, Ok(job)) = (made, waiting.recv()) {
                job();
            }
        });
        let host = Self { jobs };
        if is_ready.recv() != Ok(true) {
            eprintln!("no network namespaces here: skipped");
            return None;
        }
        host.ip("link set lo up");
        Some(host)
    }

    /// Does something on the host.
    pub(super) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.jobs
            .send(Box::new(move || {
                let _ = done.send(job());
            }))
            .expect("the host lives");
        result.recv().expect("the job ends")
    }

    /// Runs `ip(8)` on the host.
    pub(super) fn ip(&self, arguments: &str) -> String {
        let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let output = self.run(move || Command::new("ip").args(words).output()).expect("ip runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {arguments}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The interface with this address.
    pub(super) fn interface(&self, address: &str) -> Interface {
        let address: std::net::IpAddr = address.parse().expect("an address");
        let all = self.run(Interface::all).expect("a list");
        all.into_iter().find(|one| one.address == address).expect("an interface of this address")
    }

    /// Looks until the carrier of the interface is there, or gone.
    pub(super) fn await_carrier(&self, address: &str, is_up: bool) {
        let mut looks = (0..100_000).map(|_| self.interface(address).is_up);
        assert!(looks.any(|up| up == is_up), "the kernel never notices the carrier");
    }

    /// A link on this address.
    pub(super) fn socket(&self, address: &str, options: Options) -> Socket {
        let interface = self.interface(address);
        self.run(move || Socket::open(&interface, &options)).expect("sockets")
    }
}

/// Two hosts, `10.9.0.1 fd09::1` on `left` and `10.9.0.2 fd09::2` on `right`.
pub(super) fn cabled(mtu: usize) -> Option<(Host, Host)> {
    let (one, two) = (Host::new()?, Host::new()?);
    // SAFETY: takes nothing, gives a number.
    let thread = two.run(|| unsafe { libc::gettid() });
    one.ip(&format!("link add left mtu {mtu} type veth peer name right mtu {mtu} netns {thread}"));
    for (host, name, number) in [(&one, "left", 1), (&two, "right", 2)] {
        host.ip(&format!("address add 10.9.0.{number}/24 dev {name}"));
        host.ip(&format!("address add fd09::{number}/64 dev {name} nodad"));
        host.ip(&format!("link set {name} up"));
    }
    // Until the kernel has noticed the carrier, it drops what is sent.
    one.await_carrier("10.9.0.1", true);
    two.await_carrier("10.9.0.2", true);
    Some((one, two))
}

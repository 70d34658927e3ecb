//! Two modules hand each other a message so many times over loopback sockets: for `valgrind
//! --tool=callgrind` and the like, which count what is done outside the kernel. The difference
//! between two counts, divided, is what one message costs both sides, the adapter's part included.
//!
//!     module-ping [MESSAGES [BYTES [LONGEST DATAGRAM [PROTECTED]]]]      200000 of 8 bytes
//!
//! With 1 as the last word packets are protected.

use hawser::btl::Lent;
use hawser::btl::usnic::Upcalls;
use hawser::btl::usnic::agent::{Finding, Watch};
use hawser::btl::usnic::{EndpointId, Fragment, Module, Place};
use hawser::config;
use hawser::engine::Cookie;
use hawser::error::{Error, Result};
use hawser::link::{Interface, Options, Socket};
use std::cell::Cell;

/// A host that counts.
#[derive(Default)]
struct Host {
    received: Cell<u64>,
    done: Cell<u64>,
}

impl Upcalls for Host {
    fn deliver(&self, _: EndpointId, _: u8, _: &[u8]) {
        self.received.set(self.received.get() + 1);
    }
    fn done(&self, _: Cookie, _: Result<()>) {
        self.done.set(self.done.get() + 1);
    }
    fn lost(&self, _: EndpointId, _: u64) {}
    fn unreached(&self, _: u64, _: &Finding) {}
    fn broken(&self, _: i32, _: Option<Place>, _: &[(EndpointId, u64)]) {}
    fn modex_record(&self, _: u64) -> Result<Vec<u8>> {
        Err(Error::NotFound)
    }
    fn report(&self, _: &str) {}
    fn is_here(&self) -> bool {
        true
    }
}

fn module(name: u64, config: &config::Usnic) -> Module {
    let all = Interface::all().expect("a list of interfaces");
    let is_lo = |interface: &Interface| interface.is_loopback && interface.address.is_ipv4();
    let lo = all.into_iter().find(is_lo).expect("a loopback interface");
    let link = Socket::open(&lo, &Options::default()).expect("sockets");
    let key = [name as u8; 16];
    Module::open(Box::new(link), name, 1, key, config, Watch::blind()).expect("memory")
}

fn main() {
    let argument = |at| std::env::args().nth(at).and_then(|number| number.parse::<usize>().ok());
    let (count, len) = (argument(1).unwrap_or(200_000) as Cookie, argument(2).unwrap_or(8));
    let usual = config::Usnic::default();
    let config = config::Usnic {
        max_datagram: argument(3).unwrap_or(usual.max_datagram),
        protect_payload: argument(4) == Some(1),
        ..usual
    };
    let (modules, hosts) = ([module(1, &config), module(2, &config)], [Host::default(), Host::default()]);
    let connect = |from: usize| {
        let to = &modules[1 - from];
        modules[from].connect(2 - from as u64, to.address()).expect("reachable")
    };
    let endpoints = [connect(0), connect(1)];
    let mut bytes = vec![1_u8; len];
    // SAFETY: the bytes live until the end of `main`, and are not used otherwise.
    let lent = unsafe { Lent::new(bytes.as_mut_ptr(), bytes.len()) };
    let mut polls = 0_u64;
    for cookie in 0..count {
        let from = (cookie % 2) as usize;
        let fragment =
            Fragment { tag: 1, pieces: [Some(lent), None], cookie, priority: false, awaited: false };
        modules[from].send(endpoints[from], fragment).expect("alive");
        let (module, host) = (&modules[1 - from], &hosts[1 - from]);
        let before = host.received.get();
        while host.received.get() == before {
            // The sender may have to hear something before it can go on.
            if module.progress(host) == 0 {
                modules[from].progress(&hosts[from]);
            }
            polls += 1;
        }
    }
    let done: u64 = hosts.iter().map(|host| host.done.get()).sum();
    println!("{count} messages, {done} acknowledged, {polls} polls");
}

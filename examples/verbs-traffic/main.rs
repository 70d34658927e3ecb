//! Two processes that use every call of `hawser::verbs` over real devices, and say what came of it.
//!
//! ```text
//! verbs-traffic devices                        the devices, their ports and GIDs
//! verbs-traffic server ADDRESS:PORT            answers until a client says that it is done
//! verbs-traffic client ADDRESS ADDRESS:PORT    its own address, and the server's
//! ```
//!
//! Each line is `ok` or `not ok`; the last one is `N passed, N failed`. What iWARP does otherwise than InfiniBand is
//! expected otherwise. `tests/rig/traffic` runs it over Soft-RoCE and siw.

mod client;
mod server;
mod side;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use hawser::verbs::{Context, Devices, EventChannel, Library};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn devices(library: &'static Library) -> Outcome<()> {
    for device in Devices::list(library)?.iter() {
        println!("{} {:02x?} {:?}", device.name(), device.guid(), device.transport());
        let context: Arc<Context> = device.open()?;
        let limits = context.limits()?;
        println!("  {limits:?}");
        for number in 1..=limits.ports {
            println!("  port {number}: {:?}", context.port(number)?);
            for gid in context.gids(number)? {
                println!("    {gid:?}: {:?}", gid.address());
            }
        }
    }
    println!("forks: {:?}", library.prepare_forks());
    println!("events: {:?}", EventChannel::new(library).map(|_| "there").map_err(|error| error.to_string()));
    Ok(())
}

fn run(arguments: &[String]) -> Outcome<bool> {
    let library = Library::load().map_err(|why| why.to_string())?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["devices"] => devices(library).map(|()| true),
        ["server", address] => server::serve(library, address.parse::<SocketAddr>()?),
        ["client", own, peer] => client::ask(library, own.parse::<IpAddr>()?, peer.parse::<SocketAddr>()?),
        _ => Err("usage: verbs-traffic devices | server ADDRESS:PORT | client ADDRESS ADDRESS:PORT".into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("verbs-traffic: {why}");
            ExitCode::from(2)
        }
    }
}

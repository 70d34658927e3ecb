//! Goodput against loss, in virtual time: the table in `docs/loss-table.md` is what the engine does
//! today. A change of it shows as a difference of numbers; `HAWSER_BLESS=1` writes it anew.

use hawser::config;
use hawser::sim::traffic::{Game, Load};
use hawser::sim::{Network, Path, Setup};
use std::fmt::Write;
use std::fs;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/loss-table.md");
/// Lost in a thousand.
const LOSSES: [u32; 7] = [0, 10, 20, 50, 100, 200, 300];

struct Link {
    name: &'static str,
    path: Path,
    max_datagram: usize,
    work: u64,
}

fn links() -> Vec<Link> {
    let path = |delay, rate, queue| Path { delay, rate, queue, ..Path::default() };
    vec![
        Link { name: "loopback, 1472 B", path: path(5_000, 0, 0), max_datagram: 1472, work: 700 },
        Link { name: "loopback, 64 KiB", path: path(5_000, 0, 0), max_datagram: 65_507, work: 5_000 },
        Link {
            name: "10 Gb/s, 20 µs",
            path: path(20_000, 1_250_000_000, 512_000),
            max_datagram: 8_972,
            work: 700,
        },
        Link {
            name: "1 Gb/s, 50 µs",
            path: path(50_000, 125_000_000, 150_000),
            max_datagram: 1_472,
            work: 700,
        },
        Link {
            name: "100 Mb/s, 100 µs",
            path: path(100_000, 12_500_000, 150_000),
            max_datagram: 1_472,
            work: 700,
        },
        Link {
            name: "1 Gb/s, 5 ms",
            path: path(5_000_000, 125_000_000, 1_000_000),
            max_datagram: 1_472,
            work: 700,
        },
    ]
}

/// What one transfer came to.
#[derive(Clone, Copy)]
struct Row {
    /// Bytes a second.
    goodput: u64,
    /// Segments sent again, of a thousand sent.
    resends: u64,
    /// Segments sent again for a thousand datagrams that were lost on the way; 0: none was.
    for_lost: u64,
    overflowed: u64,
}

fn transfer(link: &Link, loss: u32) -> Row {
    transfer_with(link, loss, false)
}

fn transfer_with(link: &Link, loss: u32, protect_payload: bool) -> Row {
    let setup = Setup {
        seed: 1 + u64::from(loss),
        path: Path { loss: loss * 1000, ..link.path.clone() },
        config: config::Usnic {
            max_datagram: link.max_datagram,
            protect_payload,
            ..config::Usnic::default()
        },
        receive_capacity: 4 << 20,
        receive_buffer: 4 << 20,
        work: link.work,
        ..Setup::default()
    };
    let mut network = Network::new(setup);
    let load = Load {
        operations: 400,
        depth: 32,
        shortest: 150_000,
        longest: 150_000,
        to_one: true,
        ..Load::default()
    };
    let start = network.now();
    let mut game = Game::new(&mut network, load);
    game.run(&mut network, 3_600_000_000_000).expect("it ends");
    let took = (network.now() - start).as_nanos() as u64;
    assert_eq!((game.failed, network.wires.fates.overrun), (0, 0), "{} at {loss}", link.name);
    let counters = network.nodes[1].engine.counters();
    let first = counters.num_chunk_sends + counters.num_frag_sends;
    let gone = network.wires.fates.lost + network.wires.fates.overflowed;
    Row {
        goodput: (u128::from(game.bytes) * 1_000_000_000 / u128::from(took)) as u64,
        resends: counters.num_resends * 1000 / (first + counters.num_resends),
        for_lost: (counters.num_resends * 1000).checked_div(gone).unwrap_or(0),
        overflowed: network.wires.fates.overflowed,
    }
}

#[test]
fn goodput_survives_loss() {
    let mut table = String::from(
        "# Goodput against loss\n\n\
         One sender, 400 fragments of 150 000 bytes, 32 at a time, in the simulator. Loss is random,\n\
         and hits acknowledgements too. In each cell: goodput in MB/s, and what part of the segments\n\
         sent was sent again. `tests/loss_table.rs` makes the table, and fails when it differs.\n\n| link |",
    );
    for loss in LOSSES {
        write!(table, " {}.{} % |", loss / 10, loss % 10).expect("written");
    }
    table += "\n|---|";
    table += &"---|".repeat(LOSSES.len());
    table.push('\n');
    let mut failures = Vec::new();
    for link in links() {
        write!(table, "| {} |", link.name).expect("written");
        let mut whole = 0;
        for loss in LOSSES {
            let row = transfer(&link, loss);
            whole = if loss == 0 { row.goodput } else { whole };
            let Row { goodput, resends, .. } = row;
            let (mega, tenth) = (goodput / 1_000_000, goodput / 100_000 % 10);
            write!(table, " {mega}.{tenth}, {}.{} % |", resends / 10, resends % 10).expect("written");
            let share = goodput * 100 / whole;
            let goal = match loss {
                0 | 10 => 80,
                50 => 50,
                _ => 0,
            };
            if share < goal {
                failures.push(format!("{} at {loss}: {share} % of the goodput", link.name));
            }
            if loss == 0 && resends > 100 {
                failures.push(format!("{}: {resends} of 1000 sent again, without loss", link.name));
            }
            if row.for_lost > 1500 {
                failures.push(format!("{} at {loss}: {} resends for 1000 losses", link.name, row.for_lost));
            }
            if link.path.queue == 0 && row.overflowed > 0 {
                failures.push(format!("{} overflows", link.name));
            }
        }
        table.push('\n');
    }
    if std::env::var_os("HAWSER_BLESS").is_some() {
        fs::write(FILE, &table).expect("written");
    }
    println!("{table}");
    assert!(failures.is_empty(), "{failures:#?}");
    let checked_in = fs::read_to_string(FILE).unwrap_or_default();
    assert!(checked_in == table, "docs/loss-table.md differs; HAWSER_BLESS=1 writes it anew");
}

/// In virtual time encryption costs nothing; what is left is sixteen bytes a packet, and another course of luck.
#[test]
fn protected_packets_get_there_as_well() {
    for link in links().iter().filter(|link| link.path.rate > 0) {
        for loss in [0, 10, 50] {
            let [plain, protected] = [false, true].map(|protect| transfer_with(link, loss, protect).goodput);
            let share = protected * 100 / plain;
            println!("{} at {loss}: {share} %", link.name);
            assert!(share >= 85, "{} at {loss}: {share} % of the goodput", link.name);
        }
    }
}

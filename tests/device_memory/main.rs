//! Device memory that one process allocates and another opens, over the stand-in for the driver (`c-tests/cuda`):
//! two real processes for each test, which talk through a socket, and whose ledgers say that nothing is left.

#[expect(non_snake_case, reason = "the driver's functions keep their names")]
mod program;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::{env, fs, thread};

use hawser::cuda::share::{
    Bounce, Bounds, Contexts, Copies, Counts, Exported, Exports, FILES, Imports, Limits, Refused,
};
use hawser::cuda::{Driver, Place, Transfer};
use program::{GRANULARITY, Kind, Memory, Program, pattern};

/// The variable that says which part a process plays.
const PART: &str = "HAWSER_TEST_PART";
/// The variable that says where the stand-in is.
const LIBRARY: &str = "HAWSER_TEST_LIBRARY";

// ----- the test: it has two processes play

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(program::stand_in)
}

/// Has two processes play: the owner, which does as it is told, and the importer, whose part is named. The variables
/// are for both, but those for which the name of one of them comes first, as in `owner=NAME`. Nothing is left.
fn play(part: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let ledgers = play_and_leave(part, variables);
    assert_eq!(ledgers.len(), if part == "killed" { 1 } else { 2 }, "whole ledgers");
    for ledger in &ledgers {
        let left = ledger.lines().find(|line| line.starts_with("thing ") && !line.ends_with(" left 0"));
        assert_eq!(left, None, "{part} {variables:?}");
    }
    ledgers
}

/// The same, with whatever is left; returns the ledgers, the importer's first.
fn play_and_leave(part: &str, variables: &[(&str, &str)]) -> Vec<String> {
    static PLAYED: AtomicUsize = AtomicUsize::new(0);
    let played = format!("ledgers-{}-{}", std::process::id(), PLAYED.fetch_add(1, Ordering::Relaxed));
    let ledgers = Path::new(env!("CARGO_TARGET_TMPDIR")).join(played);
    let _ = fs::remove_dir_all(&ledgers);
    fs::create_dir_all(&ledgers).expect("a folder");
    let (one, other) = UnixStream::pair().expect("a socket");
    let begin = |part: &str, side: &str, socket: UnixStream| {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--exact", "part", "--nocapture", "--test-threads=1"]);
        command.env(PART, part).env(LIBRARY, library()).env("HAWSER_CUDA_LEDGER", ledgers.join(side));
        for (variable, value) in variables {
            match variable.split_once('=') {
                Some((of, variable)) if of == side => drop(command.env(variable, value)),
                Some(_) => {}
                None => drop(command.env(variable, value)),
            }
        }
        command.stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a process")
    };
    let owner = begin("owner", "owner", one);
    let importer = begin(part, "importer", other);
    // Both at once: a pipe holds only so much.
    let [importer, owner] = [importer, owner].map(|child| thread::spawn(move || child.wait_with_output()));
    let [importer, owner] = [importer, owner].map(|child| child.join().expect("no panic").expect("its end"));
    let tell = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for (side, output) in [("importer", &importer), ("owner", &owner)] {
        let told = [&importer.stdout, &importer.stderr, &owner.stdout, &owner.stderr]
            .map(|bytes| tell(bytes))
            .join("\n");
        let as_wanted = output.status.success() != (part == "killed" && side == "owner");
        assert!(as_wanted, "{part} {variables:?}: {side}: {}\n{told}", output.status);
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir(&ledgers).expect("the ledgers").map(|file| file.expect("a file").path()).collect();
    files.sort();
    let texts: Vec<String> = files.iter().map(|path| fs::read_to_string(path).expect("a ledger")).collect();
    assert!(texts.iter().all(|text| text.ends_with("end\n")), "whole ledgers");
    fs::remove_dir_all(&ledgers).expect("a folder");
    texts
}

/// Not a test of its own: what a process of the others' does.
#[test]
fn part() {
    let Ok(part) = env::var(PART) else { return };
    let library = PathBuf::from(env::var(LIBRARY).expect("the stand-in"));
    // SAFETY: the socket that this process was given as its input, which nothing else uses.
    let socket: OwnedFd = unsafe { std::os::fd::FromRawFd::from_raw_fd(0) };
    let socket = BufReader::new(UnixStream::from(socket));
    match part.as_str() {
        "owner" => owner(&library, socket),
        part => {
            let (_, play) = PARTS.iter().find(|(name, _)| *name == part).expect("a part");
            let mut there = There { socket };
            play(&library, &mut there);
            if part != "killed" {
                there.ask("end");
            }
        }
    }
}

// ----- the owner

fn owner(library: &Path, mut socket: BufReader<UnixStream>) {
    let numbers = |name| {
        let list = env::var(name).unwrap_or_else(|_| "0,1".to_owned());
        list.split(',')
            .filter(|number| !number.is_empty())
            .map(|number| number.parse().expect("a number"))
            .collect::<Vec<i32>>()
    };
    let mut program = Program::new(library, &numbers("HAWSER_TEST_DEVICES"));
    let driver = Driver::loaded().expect("the driver");
    let contexts = Arc::new(Contexts::new(driver));
    let mut exports = Exports::new(Arc::clone(&contexts));
    let mut memory: Vec<Option<Memory>> = Vec::new();
    let mut line = String::new();
    while {
        line.clear();
        socket.read_line(&mut line).expect("the importer") > 0
    } {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<usize>().expect("a number");
        let answer = match words[0] {
            "allocate" => {
                let kind = *Kind::ALL.iter().find(|kind| format!("{kind:?}") == words[1]).expect("a kind");
                let made = program.allocate(kind, number(2) as i32, number(3));
                if words[4] != "0" {
                    program.write(&made, &pattern(number(4) as u64, made.len));
                }
                memory.push(Some(made));
                format!("{}", memory.len() - 1)
            }
            "write" => {
                let of = memory[number(1)].as_ref().expect("memory");
                program.write(of, &pattern(number(2) as u64, number(3)));
                String::new()
            }
            "export" => {
                let of = memory[number(1)].as_ref().expect("memory");
                let (address, len) = (of.address + number(2), number(3));
                // What was begun before is waited for, as whoever tells a peer of it does, or it is not shared.
                let settled = |exports: &Exports| match driver.place(address) {
                    Ok(Place::Device(device)) => exports.settle(device).is_ok(),
                    _ => true,
                };
                match exports.export(address, len) {
                    Ok(Some(exported)) if settled(&exports) => {
                        format!("{address} {}", hex(&exported.to_bytes()))
                    }
                    Ok(_) => "none".to_owned(),
                    Err(error) => format!("{error:?}"),
                }
            }
            "probe" => match exports.probe(None) {
                Ok(exported) => format!("0 {}", hex(&exported.to_bytes())),
                Err(refused) => format!("{refused:?}"),
            },
            "free" => {
                program.free(memory[number(1)].take().expect("memory"));
                String::new()
            }
            "begin" => {
                program.begin(number(1) as i32);
                program.choose(number(1) as i32);
                String::new()
            }
            "is" => {
                let of = memory[number(1)].as_ref().expect("memory");
                let is = exports.export(of.address, of.len).is_ok_and(|exported| exported.is_some())
                    && program.read(of, of.len) == pattern(number(2) as u64, of.len);
                is.to_string()
            }
            "files" => format!("{}", fs::read_dir("/proc/self/fd").expect("files").count()),
            "abort" => std::process::abort(),
            "reset" => {
                memory.iter_mut().for_each(|memory| *memory = None);
                program.reset(number(1) as i32);
                String::new()
            }
            "end" => {
                memory.into_iter().flatten().for_each(|memory| program.free(memory));
                drop((exports, contexts, program));
                writeln!(socket.get_mut()).expect("the importer");
                return;
            }
            other => panic!("{other}"),
        };
        writeln!(socket.get_mut(), "{answer}").expect("the importer");
    }
    panic!("the importer has gone");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The owner, for the importer.
struct There {
    socket: BufReader<UnixStream>,
}

/// Memory of the owner's.
#[derive(Clone, Copy)]
struct Remote {
    address: u64,
    exported: Exported,
}

impl There {
    fn ask(&mut self, question: &str) -> String {
        writeln!(self.socket.get_mut(), "{question}").expect("the owner");
        let mut line = String::new();
        self.socket.read_line(&mut line).expect("the owner");
        assert!(line.ends_with('\n'), "the owner has gone");
        line.trim_end().to_owned()
    }

    fn allocate(&mut self, kind: Kind, device: i32, len: usize, seed: u64) -> usize {
        self.ask(&format!("allocate {kind:?} {device} {len} {}", seed + 1)).parse().expect("a number")
    }

    /// As it comes.
    fn allocate_only(&mut self, kind: Kind, device: i32, len: usize) -> usize {
        self.ask(&format!("allocate {kind:?} {device} {len} 0")).parse().expect("a number")
    }

    /// Writes to where it begins.
    fn write(&mut self, memory: usize, seed: u64, len: usize) {
        self.ask(&format!("write {memory} {} {len}", seed + 1));
    }

    fn export(&mut self, memory: usize, offset: usize, len: usize) -> Option<Remote> {
        remote(&self.ask(&format!("export {memory} {offset} {len}")))
    }

    /// Has it killed, and waits for its end.
    fn abort(&mut self) {
        writeln!(self.socket.get_mut(), "abort").expect("the owner");
        let mut line = String::new();
        assert_eq!(self.socket.read_line(&mut line).unwrap_or(0), 0, "{line}");
    }

    fn free(&mut self, memory: usize) {
        self.ask(&format!("free {memory}"));
    }
}

/// What the owner has written into memory.
fn expected(seed: u64, len: usize) -> Vec<u8> {
    pattern(seed + 1, len)
}

fn remote(text: &str) -> Option<Remote> {
    let (address, bytes) = text.split_once(' ')?;
    let digits = bytes.as_bytes().chunks(2);
    let bytes: Vec<u8> = digits
        .map(|digit| u8::from_str_radix(std::str::from_utf8(digit).expect("text"), 16).expect("a digit"))
        .collect();
    Some(Remote { address: address.parse().ok()?, exported: Exported::parse(&bytes)? })
}

// ----- the importer

/// A process that opens what the owner has.
struct Here {
    program: Program,
    contexts: Arc<Contexts>,
    imports: Imports,
    copies: Copies,
}

impl Here {
    fn new(library: &Path, devices: &[i32], bounds: Bounds) -> Self {
        let program = Program::new(library, devices);
        let contexts = Arc::new(Contexts::new(Driver::loaded().expect("the driver")));
        let imports = Imports::new(Arc::clone(&contexts), bounds);
        let copies = Copies::new(Arc::clone(&contexts), Limits { events: 8, piece: 256 << 10 });
        Self { program, contexts, imports, copies }
    }

    /// What an address of this process's is.
    fn place(&self, address: usize) -> Place {
        let driver = self.contexts.driver();
        // A test may have had the first call fail.
        driver.place(address).or_else(|_| driver.place(address)).expect("the driver")
    }

    /// Begins to copy from the owner's memory.
    fn get(&mut self, cookie: u64, from: &Remote, to: usize, len: usize) -> Result<(), Refused> {
        let place = self.place(to);
        let opened = self.imports.open(&from.exported, place)?;
        let source = opened.at(from.address, len).expect("within the allocation");
        let (to, source) =
            (std::ptr::with_exposed_provenance_mut(to), std::ptr::with_exposed_provenance(source));
        // SAFETY: memory of this process's that a test keeps until the copy is over, and what was just opened.
        let transfer = unsafe { Transfer::new(to, source, len) };
        let from = opened.place();
        self.copies.begin(cookie, transfer, place, from, Some(opened));
        Ok(())
    }

    /// Waits for all copies: which were over, in this order.
    fn wait(&mut self) -> Vec<(u64, bool)> {
        let mut over = Vec::new();
        while !self.copies.is_idle() {
            self.copies.poll(|cookie, result| over.push((cookie, result.is_ok())));
            thread::yield_now();
        }
        over
    }
}

type Part = fn(&Path, &mut There);

const PARTS: [(&str, Part); 20] = [
    ("kinds", kinds),
    ("stale", stale),
    ("few", few),
    ("small", small),
    ("refused", refused),
    ("opened", opened),
    ("unready", unready),
    ("unready owner", unready_owner),
    ("late", late),
    ("marks", marks),
    ("reset", reset),
    ("end", end),
    ("rubbish", rubbish),
    ("faults", faults),
    ("instances", instances),
    ("pools", pools),
    ("files", files),
    ("killed", killed),
    ("written", written),
    ("unwritten", unwritten),
];

/// Each kind of memory, from the same device and from another, to a device and to the host.
fn kinds(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0, 1], Bounds::default());
    let len = GRANULARITY;
    let mut host = vec![0_u8; len];
    let mut seed = 0;
    for kind in Kind::ALL {
        for from in [0, 1] {
            seed += 1;
            let memory = there.allocate(kind, from, len, seed);
            let exported = there.export(memory, 5, len - 5);
            let shared = matches!(kind, Kind::Plain | Kind::Virtual | Kind::Pooled);
            assert_eq!(exported.is_some(), shared, "{kind:?}");
            assert!(there.export(memory, 5, len).is_none(), "beyond the allocation");
            if let Some(exported) = exported {
                let expected = &expected(seed, len)[5..];
                for mine in Kind::ALL {
                    for to in [0, 1] {
                        let local = here.program.allocate(mine, to, len);
                        here.get(7, &exported, local.address, len - 5).expect("opened");
                        assert_eq!(here.wait(), [(7, true)]);
                        let got = here.program.read(&local, len - 5);
                        assert!(got == expected, "{kind:?} {from} to {mine:?} {to}");
                        here.program.free(local);
                    }
                }
                host.fill(0);
                here.get(8, &exported, host.as_mut_ptr().expose_provenance(), len - 5).expect("opened");
                assert_eq!(here.wait(), [(8, true)]);
                assert!(&host[..len - 5] == expected, "{kind:?} {from} to the host");
            }
            there.free(memory);
        }
    }
    here.imports.flush();
}

/// Memory that was freed, and allocated anew at the same address, is not taken for what was there.
fn stale(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds::default());
    let len = GRANULARITY;
    let local = here.program.allocate(Kind::Plain, 0, len);
    for kind in [Kind::Plain, Kind::Virtual, Kind::Pooled] {
        let before = here.imports.counts();
        let mut places = Vec::new();
        for round in 0..3_u64 {
            let memory = there.allocate(kind, 0, len, round);
            let exported = there.export(memory, 0, len).expect("shared");
            for cookie in 0..2 {
                here.get(cookie, &exported, local.address, len).expect("opened");
                assert_eq!(here.wait(), [(cookie, true)]);
                assert!(here.program.read(&local, len) == expected(round, len), "{kind:?}, round {round}");
            }
            places.push(exported.address);
            there.free(memory);
        }
        assert!(places.iter().all(|place| *place == places[0]), "the same address: {places:x?}");
        let Counts { hits, misses, stale, evictions } = here.imports.counts();
        // That of the kind before lay at the same address, too.
        let stale = stale - before.stale - u64::from(kind != Kind::Plain);
        assert_eq!((hits - before.hits, misses - before.misses, stale, evictions), (3, 3, 2, 0), "{kind:?}");
    }
    here.imports.flush();
    here.program.free(local);
}

/// Of many allocations no more are open than may be.
fn few(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds { count: 4, bytes: 0 });
    let len = 4096;
    let local = here.program.allocate(Kind::Plain, 0, len);
    let remote: Vec<Remote> = (0..20)
        .map(|seed| {
            let memory = there.allocate(Kind::Plain, 0, len, seed);
            there.export(memory, 0, len).expect("shared")
        })
        .collect();
    let get = |here: &mut Here, index: usize| {
        here.get(1, &remote[index], local.address, len).expect("opened");
        assert_eq!(here.wait(), [(1, true)]);
        assert!(here.program.read(&local, len) == expected(index as u64, len));
    };
    for round in 0..3 {
        for index in 0..20 {
            get(&mut here, index);
            // The first is used all the time, and stays.
            get(&mut here, 0);
        }
        let Counts { hits, misses, .. } = here.imports.counts();
        assert_eq!(misses, 20 + 19 * round, "all but the first");
        assert_eq!(hits, 40 * (round + 1) - misses);
    }
    // What is held stays, even if it is too much; and goes when it is not any more.
    let place = here.place(local.address);
    let held: Vec<_> =
        (0..6).map(|index| here.imports.open(&remote[index].exported, place).expect("opened")).collect();
    let other = here.imports.open(&remote[7].exported, place).expect("opened");
    for (index, held) in held.iter().enumerate() {
        let start = held.at(remote[index].address, len).expect("all of it");
        assert!(matches!(here.place(start), Place::Device(_)), "still open");
        assert!(held.at(remote[index].address, len + 1).is_none() && held.at(0, 1).is_none());
        assert!(held.at(remote[index].address - 1, 1).is_none() && held.at(u64::MAX, usize::MAX).is_none());
    }
    drop((held, other));
    get(&mut here, 8);
    here.imports.flush();
    get(&mut here, 8);
    drop(here.imports);
    here.program.free(local);
}

/// As many bytes are open as may be; and where the driver has no room, others are closed for it.
fn small(library: &Path, there: &mut There) {
    let len = 1 << 20;
    let mut here = Here::new(library, &[0], Bounds { count: 0, bytes: 3 * len as u64 + 1 });
    let local = here.program.allocate(Kind::Plain, 0, len);
    let mut kept = Vec::new();
    for seed in 0..6 {
        let memory = there.allocate(Kind::Plain, 0, len, seed);
        let exported = there.export(memory, 0, len).expect("shared");
        here.get(1, &exported, local.address, len).expect("opened");
        assert_eq!(here.wait(), [(1, true)]);
        assert!(here.program.read(&local, len) == expected(seed, len));
        kept.push(exported);
    }
    assert_eq!(here.imports.counts(), Counts { hits: 0, misses: 6, evictions: 3, stale: 0 });
    // The seventh and the eighth attempt fail.
    here.get(1, &kept[0], local.address, len).expect("opened");
    assert_eq!(here.wait(), [(1, true)]);
    assert_eq!(here.imports.counts(), Counts { hits: 0, misses: 7, evictions: 6, stale: 0 });
    // From the sixteenth on, each says that somebody has it open: closing everything would not help.
    here.imports = Imports::new(Arc::clone(&here.contexts), Bounds::default());
    for kept in &kept {
        here.imports.open(&kept.exported, Place::Host).expect("opened");
    }
    let memory = there.allocate(Kind::Plain, 0, len, 9);
    let other = there.export(memory, 0, len).expect("shared");
    assert_eq!(here.imports.open(&other.exported, Place::Host).err(), Some(Refused::NotOpened));
    assert_eq!(here.imports.counts(), Counts { hits: 0, misses: 6, evictions: 4, stale: 0 });
    here.imports.open(&kept[0].exported, Place::Host).expect("still open");
    here.imports.flush();
    here.program.free(local);
}

/// Memory is refused for the reason that is in a variable; on the owner's second device.
fn refused(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds::default());
    let why = env::var("HAWSER_TEST_WHY").expect("a reason");
    for kind in [Kind::Plain, Kind::Virtual, Kind::Pooled] {
        let memory = there.allocate(kind, 1, GRANULARITY, 1);
        let exported = there.export(memory, 0, GRANULARITY).expect("shared");
        let opened = here.imports.open(&exported.exported, Place::Host);
        assert_eq!(format!("{:?}", opened.err()), format!("Some({why})"), "{kind:?}");
        there.free(memory);
    }
}

/// Memory of the owner's second device is opened; on that of ours which a variable says.
fn opened(library: &Path, there: &mut There) {
    let number = |name: &str| env::var(name).expect("a variable").parse::<i32>().expect("a number");
    let mut here = Here::new(library, &[number("HAWSER_TEST_USES")], Bounds::default());
    let mut host = vec![0_u8; GRANULARITY];
    for (seed, kind) in (1..).zip([Kind::Plain, Kind::Virtual, Kind::Pooled]) {
        let memory = there.allocate(kind, 1, GRANULARITY, seed);
        let exported = there.export(memory, 0, GRANULARITY).expect("shared");
        here.get(1, &exported, host.as_mut_ptr().expose_provenance(), GRANULARITY).expect("opened");
        assert_eq!(here.wait(), [(1, true)]);
        assert!(host == expected(seed, GRANULARITY), "{kind:?}");
        let opened = here.imports.open(&exported.exported, Place::Host).expect("opened");
        let Place::Device(device) = opened.place() else { panic!("on a device") };
        assert_eq!(device.ordinal, number("HAWSER_TEST_OPENS"));
        there.free(memory);
    }
    here.imports.flush();
}

/// Parts of a device: none offers anything. What is offered nevertheless is refused.
fn instances(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds::default());
    assert_eq!(there.ask("probe"), "NotOpened");
    let memory = there.allocate(Kind::Plain, 0, 4096, 1);
    assert!(there.export(memory, 0, 4096).is_none());
    let memory = there.allocate(Kind::Virtual, 0, GRANULARITY, 1);
    let Some(mut remote) = there.export(memory, 0, GRANULARITY) else { return };
    let mut bytes = remote.exported.to_bytes();
    // Another kind: a handle, and no file.
    bytes[2..8].copy_from_slice(&[1, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    remote.exported = Exported::parse(&bytes).expect("a handle");
    assert_eq!(here.imports.open(&remote.exported, Place::Host).err(), Some(Refused::NotOpened));
}

/// A process that has no context opens nothing, and does so when it has one.
fn unready(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[], Bounds::default());
    let exported = remote(&there.ask("probe")).expect("a probe");
    let opened = here.imports.open(&exported.exported, Place::Host);
    assert_eq!(opened.err(), Some(Refused::NotReady));
    here.program.begin(1);
    // Not current on this thread, but there.
    let opened = here.imports.open(&exported.exported, Place::Host).expect("opened");
    assert!(opened.at(exported.exported.base(), 1).is_some());
    assert_eq!(
        remote(&there.ask("probe")).expect("a probe").exported,
        exported.exported,
        "the same each time"
    );
    assert_eq!(there.ask("reset 0"), "");
    // One of these is where that was.
    let others = [1, 2, 3, 4].map(|seed| (there.allocate(Kind::Plain, 0, 4096, seed), seed));
    let again = remote(&there.ask("probe")).expect("a probe");
    assert_ne!(again.exported, exported.exported, "another after its context has gone");
    for (memory, seed) in others {
        assert_eq!(there.ask(&format!("is {memory} {}", seed + 1)), "true", "not freed by mistake");
    }
    drop(opened);
    here.imports.open(&again.exported, Place::Host).expect("opened");
}

/// An owner that has no context offers nothing, and does so when it has one.
fn unready_owner(library: &Path, there: &mut There) {
    let _here = Here::new(library, &[0], Bounds::default());
    assert_eq!(there.ask("probe"), "NotReady");
    assert_eq!(there.ask("begin 1"), "");
    assert!(remote(&there.ask("probe")).is_some());
}

/// Copies take time: a short one is over before a long one that was begun earlier.
fn late(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0, 1], Bounds::default());
    let len = 8 << 20;
    let memory = there.allocate(Kind::Plain, 0, len, 3);
    let long = there.export(memory, 0, len).expect("shared");
    let locals = [0, 1].map(|device| here.program.allocate(Kind::Plain, device, len));
    let short = here.program.allocate(Kind::Plain, 0, 4096);
    for local in &locals {
        // This process may have been kept from running between the two: then it is tried again.
        let was_first = (0..20).any(|_| {
            here.program.write(local, &vec![0; len]);
            here.get(1, &long, local.address, len).expect("opened");
            here.get(2, &long, short.address, 4096).expect("opened");
            let over = here.wait();
            assert!(over.len() == 2 && over.iter().all(|(_, is_right)| *is_right));
            assert!(here.program.read(local, len) == expected(3, len));
            assert!(here.program.read(&short, 4096) == expected(3, len)[..4096]);
            over[0].0 == 2
        });
        assert!(was_first, "the short one was never over first");
    }
    // What is dropped while it is under way is waited for.
    here.get(1, &long, locals[0].address, len).expect("opened");
    drop((here.copies, here.imports));
    for memory in locals.into_iter().chain([short]) {
        here.program.free(memory);
    }
}

/// With few marks, copies wait for their turn, and all are made; of each two, one is wrong.
fn marks(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds::default());
    let len = 1 << 20;
    let memory = there.allocate(Kind::Plain, 0, len, 3);
    let remote = there.export(memory, 0, len).expect("shared");
    let locals: Vec<Memory> = (0..20).map(|_| here.program.allocate(Kind::Plain, 0, len)).collect();
    for events in [1, 2, 3, 0] {
        here.copies = Copies::new(Arc::clone(&here.contexts), Limits { events, piece: 100_000 });
        for (cookie, local) in (0..).zip(&locals) {
            here.program.write(local, &vec![0; len]);
            here.get(2 * cookie, &remote, local.address, len).expect("opened");
            let to = std::ptr::with_exposed_provenance_mut(local.address);
            let from = std::ptr::without_provenance(4096);
            // SAFETY: nothing is there; the driver finds that out, and the processor touches nothing.
            let transfer = unsafe { Transfer::new(to, from, len) };
            let place = here.place(local.address);
            here.copies.begin(2 * cookie + 1, transfer, place, place, None);
        }
        let mut over = here.wait();
        over.sort_unstable();
        let wanted: Vec<(u64, bool)> = (0..40).map(|cookie| (cookie, cookie % 2 == 0)).collect();
        assert_eq!(over, wanted);
        for local in &locals {
            assert!(here.program.read(local, len) == expected(3, len));
        }
    }
    drop((here.copies, here.imports));
    locals.into_iter().for_each(|local| here.program.free(local));
}

/// The program ends its context, with all that is open and under way in it, and goes on with another.
fn reset(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds::default());
    let len = GRANULARITY;
    let mut host = vec![0_u8; len];
    let bounce = vec![0_u8; 1 << 16];
    let (start, _) = (bounce.as_ptr().expose_provenance(), ());
    for round in 0..3 {
        let pinned = here.contexts.on(0).expect("a context");
        let pinned = Bounce::new(&here.contexts, pinned, start, bounce.len());
        assert!(pinned.is_pinned());
        for kind in [Kind::Plain, Kind::Virtual, Kind::Pooled] {
            let memory = there.allocate(kind, 0, len, round);
            let remote = there.export(memory, 0, len).expect("shared");
            let local = here.program.allocate(Kind::Plain, 0, len);
            here.get(1, &remote, local.address, len).expect("opened");
            assert_eq!(here.wait(), [(1, true)]);
            assert!(here.program.read(&local, len) == expected(round, len));
            here.get(2, &remote, local.address, len).expect("opened");
            here.program.reset(0);
            // The addresses are somebody else's now.
            let others: Vec<Memory> = (0..4).map(|_| here.program.allocate(Kind::Plain, 0, len)).collect();
            assert_eq!(here.wait().len(), 1, "over, one way or another");
            host.fill(0);
            here.get(3, &remote, host.as_mut_ptr().expose_provenance(), len).expect("opened again");
            assert_eq!(here.wait(), [(3, true)]);
            assert!(host == expected(round, len));
            others.into_iter().for_each(|memory| here.program.free(memory));
            there.free(memory);
        }
        drop(pinned);
    }
    here.imports.flush();
    // With all that is open, and nothing after it.
    let memory = there.allocate(Kind::Plain, 0, len, 9);
    let remote = there.export(memory, 0, len).expect("shared");
    here.get(1, &remote, host.as_mut_ptr().expose_provenance(), len).expect("opened");
    here.wait();
    let first = here.imports.open(&remote.exported, Place::Host).expect("open").at(remote.address, 1);
    here.program.reset(0);
    let mut later = Imports::new(Arc::clone(&here.contexts), Bounds::default());
    let again = later.open(&remote.exported, Place::Host).expect("opened").at(remote.address, 1);
    assert_eq!(first, again, "at the same address");
    drop((here.copies, here.imports));
    assert!(later.open(&remote.exported, Place::Host).is_ok());
    assert_eq!(later.counts(), Counts { hits: 1, misses: 1, ..Counts::default() }, "not closed by mistake");
    later.flush();
}

/// All is still open when the process ends, and given back when the driver has gone.
fn end(library: &Path, there: &mut There) {
    static KEPT: parking_lot::Mutex<Option<(Imports, Copies, Exports)>> = parking_lot::Mutex::new(None);
    extern "C" fn after() {
        let kept = KEPT.lock().take();
        assert!(kept.is_some());
        drop(kept);
        println!("given back");
    }
    // SAFETY: a function that takes nothing. What is registered first runs last: after the driver has ended.
    assert_eq!(unsafe { libc::atexit(after) }, 0);
    let here = Here::new(library, &[0], Bounds::default());
    let Here { program, contexts, mut imports, mut copies } = here;
    let mut exports = Exports::new(Arc::clone(&contexts));
    exports.probe(None).expect("a probe");
    for kind in [Kind::Plain, Kind::Virtual, Kind::Pooled] {
        let memory = there.allocate(kind, 0, GRANULARITY, 1);
        let remote = there.export(memory, 0, GRANULARITY).expect("shared");
        let own = program.allocate(kind, 0, GRANULARITY);
        exports.export(own.address, 1).expect("the driver").expect("shared");
        let place = contexts.driver().place(own.address).expect("the driver");
        let opened = imports.open(&remote.exported, place).expect("opened");
        let [to, from] = [own.address, opened.at(remote.address, GRANULARITY).expect("all of it")];
        let (to, from) = (std::ptr::with_exposed_provenance_mut(to), std::ptr::with_exposed_provenance(from));
        // SAFETY: memory that stays until the process ends, and what was just opened.
        let transfer = unsafe { Transfer::new(to, from, GRANULARITY) };
        let of = opened.place();
        copies.begin(1, transfer, place, of, Some(opened));
    }
    *KEPT.lock() = Some((imports, copies, exports));
    std::mem::forget(program);
}

/// Of what a peer sends nothing is believed.
fn rubbish(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0, 1], Bounds { count: 3, bytes: 0 });
    let len = GRANULARITY;
    let (mut parsed, mut opened, mut wrong) = (0, 0, 0);
    for kind in [Kind::Plain, Kind::Virtual, Kind::Pooled] {
        let memory = there.allocate(kind, 1, len, 5);
        let remote = there.export(memory, 0, len).expect("shared");
        let bytes = remote.exported.to_bytes();
        for bit in 0..8 * Exported::LENGTH {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Some(exported) = Exported::parse(&bytes) else { continue };
            assert_eq!(exported.to_bytes(), bytes);
            parsed += 1;
            let Ok(found) = here.imports.open(&exported, Place::Host) else {
                wrong += 1;
                continue;
            };
            opened += 1;
            // Whatever it is called, what is copied is there.
            let last = exported.base() + exported.len() - 1;
            let address = found.at(last, 1).expect("the last byte");
            assert!(matches!(here.place(address), Place::Device(_)), "bit {bit} of {kind:?}");
        }
        let good = here.imports.open(&remote.exported, Place::Host).expect("opened");
        assert!(good.at(remote.address, len).is_some());
        there.free(memory);
    }
    assert!(opened > 100 && wrong > 1000 && parsed == opened + wrong, "{parsed}: {opened} and {wrong}");
    here.imports.flush();
}

/// A pool is opened once for all that comes from it, and another when all of that has gone.
fn pools(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds::default());
    let len = 10_000;
    let local = here.program.allocate(Kind::Plain, 0, len);
    for round in 0..3 {
        let memory: Vec<usize> =
            (0..5).map(|index| there.allocate(Kind::Pooled, 1, len, 10 * round + index)).collect();
        for (index, memory) in (0..).zip(&memory) {
            let remote = there.export(*memory, 0, len).expect("shared");
            here.get(1, &remote, local.address, len).expect("opened");
            assert_eq!(here.wait(), [(1, true)]);
            assert!(here.program.read(&local, len) == expected(10 * round + index, len));
        }
        memory.into_iter().for_each(|memory| there.free(memory));
    }
    assert_eq!(here.imports.counts(), Counts { hits: 0, misses: 15, evictions: 0, stale: 10 });
    here.imports.flush();
    here.program.free(local);
}

/// What the owner's program has written before is there, also where its call returns before that is so.
fn written(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds::default());
    let len = 5000;
    let local = here.program.allocate(Kind::Plain, 0, len);
    for kind in [Kind::Plain, Kind::Virtual, Kind::Pooled] {
        let memory = there.allocate_only(kind, 1, GRANULARITY);
        for seed in 0..3 {
            there.write(memory, seed, len);
            let remote = there.export(memory, 0, len).expect("shared");
            here.get(1, &remote, local.address, len).expect("opened");
            assert_eq!(here.wait(), [(1, true)]);
            assert!(here.program.read(&local, len) == expected(seed, len), "{kind:?}: {seed}");
        }
        there.free(memory);
    }
    here.imports.flush();
    here.program.free(local);
}

/// Where it is never known to be, the memory is not shared: another's copy would not wait.
fn unwritten(library: &Path, there: &mut There) {
    let _here = Here::new(library, &[0], Bounds::default());
    for (kind, is_shared) in [(Kind::Plain, true), (Kind::Virtual, false), (Kind::Pooled, false)] {
        let memory = there.allocate_only(kind, 1, GRANULARITY);
        assert_eq!(there.export(memory, 0, 1).is_some(), is_shared, "{kind:?}");
        there.free(memory);
    }
}

/// Only so many files are open for others, and none for what has gone.
fn files(library: &Path, there: &mut There) {
    let _here = Here::new(library, &[0], Bounds::default());
    let before: usize = there.ask("files").parse().expect("a number");
    let mut memory: Vec<usize> =
        (0..FILES + 3).map(|_| there.allocate_only(Kind::Virtual, 0, GRANULARITY)).collect();
    let allocated: usize = there.ask("files").parse().expect("a number");
    let shared = memory.iter().filter(|memory| there.export(**memory, 0, 1).is_some()).count();
    assert_eq!(shared, FILES);
    assert!(there.ask("files").parse::<usize>().expect("a number") <= allocated + FILES);
    let last = memory.pop().expect("the last");
    memory.into_iter().for_each(|memory| there.free(memory));
    assert!(there.export(last, 0, 1).is_some(), "there is room again");
    there.free(last);
    let other = there.allocate_only(Kind::Virtual, 0, GRANULARITY);
    assert!(there.export(other, 0, 1).is_some());
    let after: usize = there.ask("files").parse().expect("a number");
    // The allocation itself, and the file for it.
    assert!(after <= before + 2, "{before} files, then {allocated}, then {after}");
}

/// The owner is killed while its memory is copied.
fn killed(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds::default());
    let len = GRANULARITY;
    let local = here.program.allocate(Kind::Plain, 0, len);
    let remote: Vec<Remote> = [Kind::Plain, Kind::Virtual, Kind::Pooled]
        .into_iter()
        .map(|kind| {
            let memory = there.allocate(kind, 0, len, 1);
            there.export(memory, 0, len).expect("shared")
        })
        .collect();
    for remote in &remote {
        here.get(1, remote, local.address, len).expect("opened");
    }
    here.imports.flush();
    for remote in &remote {
        here.get(2, remote, local.address, len).expect("opened");
    }
    there.abort();
    assert_eq!(here.wait().len(), 6);
    // What is open stays so; and nothing else is opened.
    here.imports.flush();
    for remote in &remote {
        assert_eq!(here.imports.open(&remote.exported, Place::Host).err(), Some(Refused::NotOpened));
    }
    here.program.free(local);
}

/// One of the driver's calls fails: what comes of it is right, or an error.
fn faults(library: &Path, there: &mut There) {
    let mut here = Here::new(library, &[0], Bounds::default());
    let len = GRANULARITY;
    let mut host = vec![0_u8; len];
    let _ = there.ask("probe");
    let bounce = vec![0_u8; 1 << 16];
    let pinned = here.contexts.on(0).ok().map(|context| {
        Bounce::new(&here.contexts, context, bounce.as_ptr().expose_provenance(), bounce.len())
    });
    for round in 0..6 {
        for kind in [Kind::Plain, Kind::Virtual, Kind::Pooled] {
            let memory = there.allocate(kind, (round % 2) as i32, len, round);
            if let Some(remote) = there.export(memory, 0, len) {
                host.fill(0);
                if here.get(1, &remote, host.as_mut_ptr().expose_provenance(), len).is_ok() {
                    let over = here.wait();
                    assert_eq!(over.len(), 1);
                    assert!(!over[0].1 || host == expected(round, len), "{kind:?}");
                }
            }
            there.free(memory);
        }
    }
    drop((pinned, here.copies, here.imports));
}

// ----- the tests

#[test]
fn memory_of_each_kind_is_opened_and_copied() {
    play("kinds", &[]);
}

#[test]
fn memory_that_was_allocated_anew_is_opened_anew() {
    play("stale", &[]);
}

#[test]
fn as_many_allocations_are_open_as_may_be() {
    let [importer, _] = <[String; 2]>::try_from(play_and_leave("few", &[])).expect("two ledgers");
    let line = importer.lines().find(|line| line.starts_with("thing memory-opened")).expect("the thing");
    assert!(line.ends_with(" most 7 left 0"), "{line}");
    play("few", &[("HAWSER_CUDA_ALREADY_MAPPED", "1")]);
}

#[test]
fn as_many_bytes_are_open_as_may_be() {
    play(
        "small",
        &[(
            "importer=HAWSER_CUDA_FAULTS",
            "cuIpcOpenMemHandle:7:2,cuIpcOpenMemHandle:8:208,cuIpcOpenMemHandle:16+:208",
        )],
    );
}

#[test]
fn what_cannot_be_opened_is_refused_for_its_reason() {
    let why = |why| ("HAWSER_TEST_WHY", why);
    play("refused", &[("importer=HAWSER_CUDA_PEERS", "none"), why("NoPeerAccess")]);
    play("refused", &[("importer=HAWSER_CUDA_PEERS", "1>0"), why("NoPeerAccess")]);
    play(
        "refused",
        &[
            ("importer=CUDA_VISIBLE_DEVICES", "0"),
            (
                "importer=HAWSER_CUDA_FAULTS",
                "cuIpcOpenMemHandle:*:801,cuMemImportFromShareableHandle:*:1,cuMemPoolImportFromShareableHandle:*:801",
            ),
            why("NotOpened"),
        ],
    );
}

#[test]
fn devices_are_told_by_their_names() {
    let device = |uses, opens| [("HAWSER_TEST_USES", uses), ("HAWSER_TEST_OPENS", opens)];
    let with = |variables: &[(&'static str, &'static str)], device: [(&'static str, &'static str); 2]| {
        play("opened", &[variables, &device].concat());
    };
    // Called otherwise here.
    with(&[("importer=CUDA_VISIBLE_DEVICES", "1,0"), ("HAWSER_CUDA_PEERS", "none")], device("0", "0"));
    // Not seen here.
    with(&[("importer=CUDA_VISIBLE_DEVICES", "0")], device("0", "0"));
    // Reached from another.
    with(&[("HAWSER_CUDA_PEERS", "0>1")], device("0", "0"));
    with(&[], device("1", "1"));
}

#[test]
fn instances_of_a_device_share_nothing() {
    play("instances", &[("HAWSER_CUDA_MIG", "1")]);
}

#[test]
fn a_process_without_a_context_is_not_ready() {
    play("unready", &[]);
    play("unready owner", &[("owner=HAWSER_TEST_DEVICES", "")]);
}

#[test]
fn copies_are_over_in_any_order() {
    play("late", &[("importer=HAWSER_CUDA_DELAY", "2000"), ("importer=HAWSER_CUDA_BANDWIDTH", "1000")]);
}

#[test]
fn copies_wait_for_their_turn() {
    play("marks", &[("importer=HAWSER_CUDA_DELAY", "100")]);
}

#[test]
fn a_context_may_end() {
    play("reset", &[]);
    play("reset", &[("HAWSER_CUDA_DELAY", "1000")]);
}

#[test]
fn a_process_may_end_with_all_open() {
    assert_eq!(play_and_leave("end", &[]).len(), 2);
}

#[test]
fn a_pool_is_opened_once() {
    let ledgers = play("pools", &[]);
    let line = ledgers[0].lines().find(|line| line.starts_with("thing pools ")).expect("the thing");
    assert_eq!(line, "thing pools made 3 most 2 left 0");
}

/// What has no number may be another allocation each time.
#[test]
fn memory_without_a_number_is_not_taken_for_what_was_there_before() {
    play("pools", &[("HAWSER_CUDA_UNNUMBERED", "1")]);
}

#[test]
fn what_was_written_is_there() {
    play("written", &[("owner=HAWSER_CUDA_DELAY", "20000")]);
}

#[test]
fn what_may_not_be_there_is_not_shared() {
    play("unwritten", &[("owner=HAWSER_CUDA_FAULTS", "cuCtxSetFlags:*:801")]);
}

#[test]
fn files_are_few() {
    play("files", &[]);
}

#[test]
fn an_owner_may_be_killed() {
    play("killed", &[("importer=HAWSER_CUDA_DELAY", "2000")]);
}

#[test]
fn rubbish_is_refused() {
    play("rubbish", &[]);
}

/// Those of the driver's calls that give something back may fail, too; but then it is left.
#[test]
fn each_call_may_fail() {
    const CALLS: [&str; 34] = [
        "cuDeviceGetCount",
        "cuDeviceCanAccessPeer",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxGetState",
        "cuDeviceGetUuid",
        "cuCtxGetDevice",
        "cuCtxGetId",
        "cuCtxGetFlags",
        "cuCtxSetFlags",
        "cuPointerGetAttribute",
        "cuPointerGetAttributes",
        "cuPointerSetAttribute",
        "cuMemGetAddressRange",
        "cuMemAlloc",
        "cuMemHostRegister",
        "cuMemcpyAsync",
        "cuStreamCreate",
        "cuStreamSynchronize",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventQuery",
        "cuIpcGetMemHandle",
        "cuIpcOpenMemHandle",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemRetainAllocationHandle",
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
        "cuMemPoolExportToShareableHandle",
        "cuMemPoolImportFromShareableHandle",
        "cuMemPoolSetAccess",
        "cuMemPoolExportPointer",
        "cuMemPoolImportPointer",
    ];
    let mut made = [0_u64; CALLS.len()];
    for side in ["importer", "owner"] {
        let variable = format!("{side}=HAWSER_CUDA_FAULTS");
        // A few at a time: starting processes takes most of the time.
        for calls in CALLS.chunks(5) {
            let rules =
                calls.iter().flat_map(|call| [1, 3, 6, 10].map(|which| format!("{call}:{which}:999")));
            let ledgers = play("faults", &[(&variable, &rules.collect::<Vec<_>>().join(","))]);
            for (call, made) in CALLS.iter().zip(&mut made) {
                *made += ledgers.iter().map(|ledger| count(ledger, call)).sum::<u64>();
            }
        }
    }
    // To give something back, its context has to be made current.
    for side in ["importer", "owner"] {
        let rules =
            "cuCtxGetCurrent:3:999,cuCtxPushCurrent:4:999,cuCtxGetCurrent:8:999,cuCtxPushCurrent:9:999";
        play_and_leave("faults", &[(&format!("{side}=HAWSER_CUDA_FAULTS"), rules)]);
    }
    for (call, made) in CALLS.iter().zip(made) {
        assert!(made > 0, "{call} was never made");
    }
}

/// How often a call was made.
fn count(ledger: &str, call: &str) -> u64 {
    let of = |line: &str| {
        let (name, count) = line.strip_prefix("call ")?.split_once(' ')?;
        let name = name.split_once("_v").map_or(name, |(name, _)| name);
        (name == call).then(|| count.parse::<u64>().expect("a number"))
    };
    ledger.lines().filter_map(of).sum()
}

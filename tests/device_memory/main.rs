//! Device memory that one process allocates and another opens, over the stand-in for the driver (`c-tests/cuda`):
//! two real processes for each test, which talk through a socket, and whose ledgers say that nothing is left.

mod program;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::{env, fs, thread};

use hawser::cuda::share::{
    Bounce, Bounds, Contexts, Copies, Counts, Exported, Exports, Imports, Limits, Refused,
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
/// are for both, but those for which the name of one of them comes first.
fn play(part: &str, variables: &[(&str, &str)]) {
    let name = thread::current().name().expect("a test").replace(':', "_");
    let ledgers = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
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
    for (side, output) in [("importer", importer), ("owner", owner)] {
        let output = output.join().expect("no panic").expect("its end");
        let (said, cried) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{side}: {}\n{said}\n{cried}", output.status);
    }
    let mut count = 0;
    for file in fs::read_dir(&ledgers).expect("the ledgers") {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("a ledger");
        assert!(text.ends_with("end\n"), "{}: not whole", path.display());
        for line in text.lines().filter(|line| line.starts_with("thing ")) {
            assert!(line.ends_with(" left 0"), "{}: {line}", path.display());
        }
        count += 1;
    }
    assert_eq!(count, 2, "two ledgers");
    fs::remove_dir_all(&ledgers).expect("a folder");
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
            there.ask("end");
        }
    }
}

// ----- the owner

fn owner(library: &Path, mut socket: BufReader<UnixStream>) {
    let numbers = |name| {
        let list = env::var(name).unwrap_or_else(|_| "0,1".to_owned());
        list.split(',').map(|number| number.parse().expect("a number")).collect::<Vec<i32>>()
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
                program.write(&made, &pattern(number(4) as u64, made.len));
                memory.push(Some(made));
                format!("{}", memory.len() - 1)
            }
            "export" => {
                let of = memory[number(1)].as_ref().expect("memory");
                let (address, len) = (of.address + number(2), number(3));
                match exports.export(address, len) {
                    Ok(Some(exported)) => format!("{address} {}", hex(&exported.to_bytes())),
                    Ok(None) => "none".to_owned(),
                    Err(error) => format!("error {error}"),
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
            "sum" => {
                let of = memory[number(1)].as_ref().expect("memory");
                let is = program.read(of, of.len) == pattern(number(2) as u64, of.len);
                format!("{is}")
            }
            "reset" => {
                memory.iter_mut().for_each(|memory| drop(memory.take()));
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
        self.ask(&format!("allocate {kind:?} {device} {len} {seed}")).parse().expect("a number")
    }

    fn export(&mut self, memory: usize, offset: usize, len: usize) -> Option<Remote> {
        remote(&self.ask(&format!("export {memory} {offset} {len}")))
    }

    fn free(&mut self, memory: usize) {
        self.ask(&format!("free {memory}"));
    }
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
        self.contexts.driver().place(address).expect("the driver")
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

const PARTS: [(&str, Part); 1] = [("kinds", kinds)];

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
                let expected = &pattern(seed, len)[5..];
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

#[test]
fn memory_of_each_kind_is_opened_and_copied() {
    play("kinds", &[]);
}

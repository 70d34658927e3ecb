//! `hawser-info`: what is here, what would be chosen, and how to run it. See `docs/hawser-info.1`.

/// Says a line to whoever reads standard output; the program ends where that cannot be written.
macro_rules! say {
    ($($text:tt)*) => { $crate::write(format_args!($($text)*)) };
}

mod components;
mod doctor;
mod fabric;
mod host;
mod parameters;
mod rdma;
mod report;
mod search;
mod settings;
mod values;

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fmt, fs, io, process};

const USAGE: &str = "usage: hawser-info [--component-dir DIR] [--json]
       hawser-info --doctor [--json]
       hawser-info --params [COMPONENT] [--json]

Says which Open MPI is on PATH and whether it accepts hawser, which libfabric
providers are here, and with what mpirun line hawser is used. With --doctor,
says for each component whether it can be used and will be, and if not why,
and what to do. With --params, lists what can be set and read of each
component, or of one (btl_usnic, or usnic). --json: the same for programs.";

/// Whether this program was started without a standard output. Rust's start puts /dev/null there, so that it is looked at
/// before.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look_at_output;

extern "C" fn look_at_output() {
    // SAFETY: a question about a number, whatever it stands for.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    IS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// `--params=usnic` is `--params usnic`.
fn parted(word: OsString) -> Vec<OsString> {
    let bytes = word.as_bytes();
    let option = ["--component-dir=", "--params="].iter().find(|option| bytes.starts_with(option.as_bytes()));
    match option {
        Some(option) => {
            let (name, value) = bytes.split_at(option.len());
            vec![OsStr::from_bytes(&name[..name.len() - 1]).into(), OsStr::from_bytes(value).into()]
        }
        None => vec![word],
    }
}

fn main() -> ExitCode {
    // Who reads no further (`| head`) ends it, as other tools; Rust's start has had the signal ignored.
    #[expect(clippy::disallowed_methods, reason = "a program of its own, not a guest of another's")]
    // SAFETY: no other thread is there yet, and nothing here handles the signal.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL)
    };
    // `--json` may stand anywhere behind what it is about.
    let (json, arguments): (Vec<_>, Vec<_>) =
        env::args_os().skip(1).flat_map(parted).partition(|word| word == "--json");
    let as_json = !json.is_empty();
    let texts: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => report::report(None, as_json),
        ["--component-dir", directory] if !directory.is_empty() => {
            report::report(Some(Path::new(&arguments[1])), as_json)
        }
        ["--doctor"] => doctor::examine(as_json),
        ["--params"] => parameters::list(None, as_json),
        ["--params", component] if !component.starts_with('-') => parameters::list(Some(component), as_json),
        ["--probe", library] => probe(library),
        ["--version"] => {
            say!("hawser {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        ["--help" | "-h"] => {
            say!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("hawser-info: {}\n{USAGE}", wrong(&words));
            ExitCode::from(2)
        }
    }
}

/// What is wrong with a command line that is none of those that there are.
fn wrong(words: &[&str]) -> String {
    let mut before = None;
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        match *word {
            "--component-dir" | "--params" => {
                words.next_if(|next| !next.starts_with('-'));
            }
            "--doctor" | "--version" | "--help" | "-h" => {}
            _ if word.starts_with('-') => return format!("{word}: there is no such option"),
            _ => return format!("{word}: there is nothing that takes this word"),
        }
        if let Some(before) = before.replace(word) {
            return format!("{before} and {word}: one of them, not both");
        }
    }
    "--component-dir: a folder must follow".to_owned()
}

/// A line for standard output.
pub(crate) fn write(line: fmt::Arguments<'_>) {
    let written = match IS_CLOSED.load(Ordering::Relaxed) {
        true => Err(io::Error::from_raw_os_error(libc::EBADF)),
        false => writeln!(io::stdout(), "{line}"),
    };
    if let Err(error) = written {
        eprintln!("hawser-info: standard output: {error}");
        process::exit(1);
    }
}

/// The library: beside this program, or where `make install` and distributions put it.
pub(crate) fn find_library() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folder = program.parent()?;
    let distribution = format!("../lib/{}-linux-gnu", env::consts::ARCH);
    ["", "../lib", &distribution, "../lib64"]
        .into_iter()
        .map(|below| folder.join(below).join("libhawser.so"))
        .find(|path| path.exists())
        .and_then(|path| path.canonicalize().ok())
}

/// Where `make` puts the components when nothing is installed: `target/mca` beside `target/release`.
pub(crate) fn staged(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?.parent()?.join("mca");
    folder.is_dir().then_some(folder)
}

/// Where `make install` has put them, as its hawser.pc says.
pub(crate) fn installed(library: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(library.parent()?.join("pkgconfig/hawser.pc")).ok()?;
    let folder = text.lines().find_map(|line| line.strip_prefix("componentdir="))?;
    Some(PathBuf::from(folder)).filter(|folder| folder.is_dir())
}

pub(crate) fn is_ours(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libhawser.so"))
    })
}

/// Whether a library is there.
pub(crate) fn loads(name: &CStr) -> bool {
    // SAFETY: a zero-ended name; the library's initialisers do no more than in any program that uses it.
    !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) }.is_null()
}

/// Loads libmpi, then hawser, and prints why hawser refused it, if it did, or what the loader says.
fn probe(library: &str) -> ExitCode {
    let load = |name: &str, status: u8| {
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: a zero-ended name; the libraries' initialisers do no more than in any MPI program.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            say!("{name} cannot be loaded ({})", loader_says());
            return Err(ExitCode::from(status));
        }
        Ok(handle)
    };
    let handle = match load("libmpi.so.40", host::NO_HOST).and_then(|_| load(library, host::NO_LIBRARY)) {
        Ok(handle) => handle,
        Err(status) => return status,
    };
    // SAFETY: a live handle and a literal name.
    let refusal = unsafe { libc::dlsym(handle, c"hawser_refusal".as_ptr()) };
    if refusal.is_null() {
        say!("{library} is not hawser");
        return ExitCode::FAILURE;
    }
    // SAFETY: `hawser_refusal` has this signature (include/hawser.h).
    let refusal =
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> *const c_char>(refusal) };
    // SAFETY: it returns a string that lives as long as the process.
    let refusal = unsafe { CStr::from_ptr(refusal()) }.to_string_lossy();
    if refusal.is_empty() {
        ExitCode::SUCCESS
    } else {
        say!("{refusal}");
        ExitCode::FAILURE
    }
}

/// Why the last library could not be loaded.
fn loader_says() -> String {
    // SAFETY: nothing is asked of the caller; there is one thread.
    let why = unsafe { libc::dlerror() };
    if why.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: a text that lives until the loader is called again.
    unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_stand_behind_its_option() {
        let parts = |word: &[u8]| parted(OsStr::from_bytes(word).to_owned());
        assert_eq!(parts(b"--params=usnic"), ["--params", "usnic"]);
        assert_eq!(parts(b"--doctor=x"), ["--doctor=x"]);
        assert_eq!(parts(b"--component-dir=/\xff")[1].as_bytes(), b"/\xff");
    }

    #[test]
    fn the_word_that_is_wrong_is_named() {
        for (line, why) in [
            ("--nothing", "--nothing: there is no such option"),
            ("--doctor btl", "btl: there is nothing that takes this word"),
            ("--params btl_usnic usnic", "usnic: there is nothing"),
            ("--params --doctor", "--params and --doctor: one of them"),
            ("--component-dir /x --doctor", "--component-dir and --doctor: one of them"),
            ("--component-dir", "--component-dir: a folder must follow"),
        ] {
            let words: Vec<_> = line.split(' ').collect();
            assert!(wrong(&words).starts_with(why), "{line}: {}", wrong(&words));
        }
    }
}

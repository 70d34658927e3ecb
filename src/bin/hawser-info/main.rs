//! `hawser-info`: what is here, what would be chosen, and how to run it. See `docs/hawser-info.1`.

mod doctor;
mod host;
mod settings;

use std::env;
use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hawser::config::{self, NameList, ProgressMode, TagMode};
use hawser::fabric::Library;
use hawser::mtl::ofi;

use host::Host;

const USAGE: &str = "usage: hawser-info [--component-dir DIR]
       hawser-info --doctor [--json]

Says which Open MPI is on PATH and whether it accepts hawser, which libfabric
providers are here, and with what mpirun line hawser is used. With --doctor,
says for each component whether it can be used and will be, and if not why,
and what to do.";

fn main() -> ExitCode {
    // Who reads no further (`| head`) ends it, as other tools; Rust's start has had the signal ignored.
    #[expect(clippy::disallowed_methods, reason = "a program of its own, not a guest of another's")]
    // SAFETY: no other thread is there yet, and nothing here handles the signal.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL)
    };
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => report(None),
        ["--component-dir", directory] => report(Some(Path::new(directory))),
        ["--doctor"] => doctor::examine(false),
        ["--doctor", "--json"] => doctor::examine(true),
        ["--probe", library] => probe(library),
        ["--version"] => {
            println!("hawser {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        ["--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn report(directory: Option<&Path>) -> ExitCode {
    println!("hawser {}", env!("CARGO_PKG_VERSION"));
    let library = find_library();
    match &library {
        Some(path) => println!("library: {}", path.display()),
        None => println!("library: libhawser.so is neither beside this program nor in ../lib"),
    }
    let provider = report_providers();
    println!();
    let Some(host) = Host::find() else {
        println!("host: no Open MPI on PATH (ompi_info is missing or does not run)");
        return ExitCode::FAILURE;
    };
    println!("host: Open MPI {}", host.version);
    let Some(library) = library else { return ExitCode::FAILURE };
    match host.verdict(&library) {
        Ok(()) if hawser::host::construct::was_tried(&host.version) == Some(true) => {
            println!("  accepts hawser");
        }
        Ok(()) => println!(
            "  accepts hawser; this release has not been tried: sizes and symbols are those of one that has"
        ),
        Err(why) => {
            println!("  does not accept hawser: {why}");
            return ExitCode::FAILURE;
        }
    }
    let directories = host.component_path.split(':').map(PathBuf::from);
    let directories: Vec<_> =
        directory.map(Path::to_path_buf).into_iter().chain(directories).chain(staged(&library)).collect();
    println!("  component directories:");
    for directory in &directories {
        println!("    {}: {}", directory.display(), components(directory));
    }
    let placed = directories.iter().find(|directory| is_ours(&directory.join("mca_mtl_hawser.so")));
    let Some(placed) = placed else {
        println!(
            "  no directory holds mca_mtl_hawser.so; run `make install`, or name one with --component-dir"
        );
        return ExitCode::FAILURE;
    };
    let Some(provider) = provider else {
        println!("  not to be used here: without such a libfabric provider it carries nothing");
        return ExitCode::FAILURE;
    };
    println!("  run it with:");
    let mut words = "--mca pml cm --mca mtl hawser".to_owned();
    if let Some(provider) = provider {
        words += &format!(" --mca mtl_hawser_provider_include '{provider}'");
    }
    println!("    {}", host.command(placed, &words));
    if is_ours(&placed.join("mca_btl_usnic.so")) {
        println!("  or, over datagrams on any network:");
        println!("    {}", host.command(placed, "--mca pml ob1 --mca btl usnic,self"));
    }
    ExitCode::SUCCESS
}

/// The library: beside this program, or where `make install` and distributions put it.
pub(crate) fn find_library() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folder = program.parent()?;
    let distribution = format!("../lib/{}-linux-gnu", env::consts::ARCH);
    ["", "../lib", &distribution]
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

pub(crate) fn is_ours(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libhawser.so"))
    })
}

fn components(directory: &Path) -> String {
    if !directory.is_dir() {
        return "does not exist".to_owned();
    }
    let state = |name: &str| {
        let path = directory.join(format!("mca_mtl_{name}.so"));
        match (path.exists(), is_ours(&path)) {
            (_, true) => format!("{name} is hawser"),
            (true, false) => format!("{name} is the host's own"),
            (false, false) => format!("no {name}"),
        }
    };
    format!("{}, {}", state("ofi"), state("hawser"))
}

/// Lists what libfabric offers for MPI messages. `None`: nothing; else the provider to be named on the
/// command line, if it is not used by default.
fn report_providers() -> Option<Option<String>> {
    let library = match Library::open() {
        Ok(library) => library,
        Err(missing) => {
            println!("libfabric: {missing}");
            return None;
        }
    };
    let (major, minor) = library.version();
    println!("libfabric: {major}.{minor}");
    let config = config::Ofi {
        include: None,
        exclude: NameList::parse("shm,sockets,tcp,udp,rstream,usnic,net"),
        progress_event_count: 100,
        tag_mode: TagMode::Auto,
        control_progress: ProgressMode::Unspecified,
        data_progress: ProgressMode::Unspecified,
        av_table: false,
        scalable: false,
        grouping: false,
        contexts: 1,
        device: true,
    };
    let list = match ofi::candidates(library, &config, ofi::Needs { threads: false, untagged: true }) {
        Ok(list) => list,
        Err(error) => {
            println!("  no provider can carry MPI messages: {error}");
            return None;
        }
    };
    println!("  providers that can carry MPI messages:");
    let mut seen = Vec::new();
    for info in list.iter() {
        let line = (info.provider().to_owned(), info.domain().to_owned());
        if seen.contains(&line) {
            continue;
        }
        let by_default =
            if ofi::allowed(&config, info.provider()) { "used by default" } else { "only when asked for" };
        println!("    {} on {}: {by_default}; inject up to {} bytes", line.0, line.1, info.inject_size());
        seen.push(line);
    }
    let default = list.iter().find(|info| ofi::allowed(&config, info.provider()));
    if default.is_none() {
        println!(
            "  none is used by default: they only repeat what Open MPI does itself; name one to use it all the same"
        );
    }
    let first = list.iter().next().map(|info| info.provider().to_owned());
    if default.is_some() { Some(None) } else { first.map(Some) }
}

/// Whether a library is there.
pub(crate) fn loads(name: &CStr) -> bool {
    // SAFETY: a zero-ended name; the library's initialisers do no more than in any program that uses it.
    !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) }.is_null()
}

/// Loads libmpi, then hawser, and prints why hawser refused it, if it did.
fn probe(library: &str) -> ExitCode {
    let load = |name: &str| {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: a zero-ended name; the libraries' initialisers do no more than in any MPI program.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) }
    };
    if load("libmpi.so.40").is_null() {
        println!("libmpi.so.40 cannot be loaded");
        return ExitCode::FAILURE;
    }
    let handle = load(library);
    if handle.is_null() {
        println!("{library} cannot be loaded");
        return ExitCode::FAILURE;
    }
    // SAFETY: a live handle and a literal name.
    let refusal = unsafe { libc::dlsym(handle, c"hawser_refusal".as_ptr()) };
    if refusal.is_null() {
        println!("{library} is not hawser");
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
        println!("{refusal}");
        ExitCode::FAILURE
    }
}

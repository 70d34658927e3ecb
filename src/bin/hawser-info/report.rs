//! What is here, what would be chosen, and how to run it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hawser::host::construct;
use serde_json::{Value, json};

use crate::components::{fault, hindrance, link_to_nothing};
use crate::fabric::{self, Fabric};
use crate::host::{Absent, Host, Refusal};
use crate::search::Search;
use crate::{find_library, installed, is_ours, rdma, staged};

/// A line that uses a component of hawser's here.
struct Way {
    component: &'static str,
    /// What its messages go over, for people.
    over: &'static str,
    line: String,
}

/// All that was found.
struct Found {
    library: Option<PathBuf>,
    /// Or why it is not there.
    fabric: Result<Fabric, String>,
    /// Or why nothing is known of it.
    host: Result<Host, Absent>,
    /// Whether the host accepts hawser, and whether that release has been tried; or why not.
    verdict: Option<Result<bool, Refusal>>,
    /// What is wrong with the path of components, in words.
    missing: Option<String>,
    /// Why there are no lines, or not all.
    why_no_line: Vec<String>,
    /// Folders of components, with what they hold.
    folders: Vec<(PathBuf, String)>,
    /// That with hawser's links.
    placed: Option<PathBuf>,
    /// Those that can be used here.
    commands: Vec<Way>,
}

/// Says it, in words or for programs. Fails if hawser cannot be used.
pub(crate) fn report(directory: Option<&Path>, as_json: bool) -> ExitCode {
    let found = look(directory);
    if as_json {
        say!("{:#}", found.as_value());
    } else {
        found.print();
    }
    if found.commands.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn look(directory: Option<&Path>) -> Found {
    let host = Host::find();
    let mut found = Found {
        library: find_library(),
        fabric: fabric::look(host.as_ref().ok()),
        missing: None,
        why_no_line: Vec::new(),
        host,
        verdict: None,
        folders: Vec::new(),
        placed: None,
        commands: Vec::new(),
    };
    let (Some(library), Ok(host)) = (&found.library, &found.host) else { return found };
    let verdict = host.verdict(library).map(|()| construct::was_tried(&host.version) == Some(true));
    let is_accepted = verdict.is_ok();
    found.verdict = Some(verdict);
    if !is_accepted {
        return found;
    }
    let search = Search::of(host);
    found.missing = search.trouble(host).map(|(what, _)| what);
    let around = |folders: &[PathBuf]| {
        let first = directory.map(Path::to_path_buf).into_iter();
        let mut all: Vec<_> = first.chain(folders.iter().cloned()).collect();
        for folder in installed(library).into_iter().chain(staged(library)) {
            if !all.contains(&folder) {
                all.push(folder);
            }
        }
        all
    };
    let folders = around(&search.folders);
    let mut reached = around(search.reached()).into_iter();
    found.placed = reached.find(|folder| is_ours(&folder.join("mca_mtl_hawser.so")));
    found.folders = folders.into_iter().map(|folder| (folder.clone(), components(&folder))).collect();
    let Some(placed) = &found.placed else { return found };
    if search.is_fatal(host) {
        // What is missing says why.
        return found;
    }
    let mut sound = vec![library.clone()];
    let (mut commands, mut why_no_line) = (Vec::new(), Vec::new());
    let mtl = found.fabric.as_ref().ok().and_then(Fabric::words);
    let ways = [("mtl", "hawser", "mtl hawser", "over libfabric")].into_iter().chain([
        ("btl", "usnic", "btl usnic", "over datagrams on any network"),
        ("btl", "smcuda", "btl smcuda", "between the processes of this machine alone"),
        ("btl", "verbs", "btl verbs", "over RDMA devices"),
    ]);
    for (framework, name, component, over) in ways {
        let words = match framework {
            "mtl" => mtl.clone(),
            _ => Some(format!("--mca pml ob1 --mca btl {name},self")),
        };
        let Some(words) = words.filter(|_| name != "verbs" || rdma::is_usable(host)) else { continue };
        let file = placed.join(format!("mca_{framework}_{name}.so"));
        if !is_ours(&file) {
            continue;
        }
        let target = file.canonicalize().unwrap_or_else(|_| file.clone());
        if !sound.contains(&target) {
            if let Err(refusal) = host.verdict(&file) {
                why_no_line.push(format!("{component}: {refusal}"));
                continue;
            }
            sound.push(target);
        }
        let fault = hindrance(framework, host, &search).or_else(|| fault(framework, name, host));
        match fault.map_or_else(|| host.command(placed, &words), Err) {
            Ok(line) => commands.push(Way { component, over, line }),
            Err(why) => why_no_line.push(format!("{component}: {why}")),
        }
    }
    found.why_no_line = why_no_line;
    found.commands = commands;
    found
}

impl Found {
    fn print(&self) {
        say!("hawser {}", env!("CARGO_PKG_VERSION"));
        match &self.library {
            Some(path) => say!("library: {}", path.display()),
            None => say!("library: libhawser.so is neither beside this program nor in ../lib"),
        }
        self.print_fabric();
        say!("");
        let host = match &self.host {
            Ok(host) => host,
            Err(absent) => {
                say!("host: no Open MPI: {absent}");
                say!("  {}", absent.remedy());
                return;
            }
        };
        say!("host: Open MPI {}", host.version);
        match &self.verdict {
            None => return,
            Some(Ok(true)) => say!("  accepts hawser"),
            Some(Ok(false)) => say!(
                "  accepts hawser; this release has not been tried: sizes and symbols are those of one that has"
            ),
            Some(Err(why)) => {
                match why {
                    Refusal::Host(why) => say!("  does not accept hawser: {why}"),
                    Refusal::Own(why) | Refusal::Library(why) | Refusal::Forbidden(why) => say!("  {why}"),
                }
                say!("  {}", why.remedy());
                return;
            }
        }
        say!("  component directories:");
        for (folder, what) in &self.folders {
            say!("    {}: {what}", folder.display());
        }
        if let Some(missing) = &self.missing {
            say!("  {missing}");
        }
        if self.placed.is_none() {
            say!(
                "  no directory that is looked into holds mca_mtl_hawser.so; run `make install`, or name one with --component-dir"
            );
            return;
        }
        for (at, Way { over, line, .. }) in self.commands.iter().enumerate() {
            say!("  {}, {over}:", if at == 0 { "run it with" } else { "or" });
            say!("    {line}");
        }
        for why in &self.why_no_line {
            say!("  no line for {why}");
        }
        if !self.why_no_line.is_empty() {
            say!("  hawser-info --doctor says more");
        }
    }

    fn print_fabric(&self) {
        let fabric = match &self.fabric {
            Ok(fabric) => fabric,
            Err(missing) => return say!("libfabric: {missing}"),
        };
        say!("libfabric: {}.{}", fabric.version.0, fabric.version.1);
        if let Some(why) = &fabric.why {
            return say!("  no provider can carry MPI messages: {why}");
        }
        say!("  providers that can carry MPI messages:");
        for provider in &fabric.providers {
            let by_default = if provider.is_used { "used by default" } else { "only when asked for" };
            say!(
                "    {} on {}: {by_default}; inject up to {} bytes",
                provider.name,
                provider.domain,
                provider.inject
            );
        }
        if fabric.used().is_none() {
            say!("  none is used by default: {}; name one to use it all the same", fabric.why_unused());
        }
    }

    fn as_value(&self) -> Value {
        let fabric = match &self.fabric {
            Ok(fabric) => json!({
                "version": format!("{}.{}", fabric.version.0, fabric.version.1),
                "providers": fabric.providers.iter().map(|provider| json!({
                    "name": provider.name,
                    "domain": provider.domain,
                    "by_default": provider.is_used,
                    "inject": provider.inject,
                })).collect::<Vec<_>>(),
                "why_none": fabric.why,
            }),
            Err(missing) => json!({ "version": null, "providers": [], "why_none": missing }),
        };
        let refusal =
            self.verdict.as_ref().and_then(|verdict| verdict.as_ref().err()).map(ToString::to_string);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "library": self.library.as_ref().map(|path| path.display().to_string()),
            "libfabric": fabric,
            "host": self.host.as_ref().ok().map(|host| json!({
                "version": host.version,
                "accepts": matches!(self.verdict, Some(Ok(_))),
                "tried": matches!(self.verdict, Some(Ok(true))),
                "refusal": refusal,
            })),
            "why_no_host": self.host.as_ref().err().map(ToString::to_string),
            "missing_directory": self.missing,
            "why_no_line": self.why_no_line,
            "directories": self.folders.iter().map(|(folder, what)| json!({ "path": folder.display().to_string(), "holds": what })).collect::<Vec<_>>(),
            "commands": self.commands.iter().map(|way| json!({ "component": way.component, "line": way.line })).collect::<Vec<_>>(),
        })
    }
}

fn components(directory: &Path) -> String {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return "does not exist".to_owned(),
        Err(error) => return format!("cannot be read ({error})"),
    };
    let state = |name: &str| {
        let path = directory.join(format!("mca_mtl_{name}.so"));
        match (path.exists(), is_ours(&path)) {
            (_, true) => format!("{name} is hawser"),
            (true, false) => format!("{name} is the host's own"),
            (false, false) => format!("no {name}"),
        }
    };
    let mut what = format!("{}, {}", state("ofi"), state("hawser"));
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(target) = link_to_nothing(&path).filter(|_| name.starts_with("mca_")) {
            what += &format!("; {name} is a link to {}, which is not there", target.display());
        }
    }
    what
}

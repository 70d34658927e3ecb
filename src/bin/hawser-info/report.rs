//! What is here, what would be chosen, and how to run it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hawser::config::{self, NameList, ProgressMode, TagMode};
use hawser::fabric::Library;
use hawser::host::construct;
use hawser::mtl::ofi;
use serde_json::{Value, json};

use crate::host::Host;
use crate::rdma;
use crate::{find_library, is_ours, staged};

/// What libfabric has.
struct Fabric {
    version: (u32, u32),
    providers: Vec<Provider>,
    /// Why there is no provider.
    why: Option<String>,
}

/// A provider that can carry MPI messages.
struct Provider {
    name: String,
    domain: String,
    is_default: bool,
    inject: usize,
}

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
    host: Option<Host>,
    /// Whether the host accepts hawser, and whether that release has been tried; or why not.
    verdict: Option<Result<bool, String>>,
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
    let mut found = Found {
        library: find_library(),
        fabric: look_at_fabric(),
        host: Host::find(),
        verdict: None,
        folders: Vec::new(),
        placed: None,
        commands: Vec::new(),
    };
    let (Some(library), Some(host)) = (&found.library, &found.host) else { return found };
    let verdict = host.verdict(library).map(|()| construct::was_tried(&host.version) == Some(true));
    let is_accepted = verdict.is_ok();
    found.verdict = Some(verdict);
    if !is_accepted {
        return found;
    }
    let own = host.component_path.split(':').map(PathBuf::from);
    let folders: Vec<_> =
        directory.map(Path::to_path_buf).into_iter().chain(own).chain(staged(library)).collect();
    found.placed = folders.iter().find(|folder| is_ours(&folder.join("mca_mtl_hawser.so"))).cloned();
    found.folders = folders.into_iter().map(|folder| (folder.clone(), components(&folder))).collect();
    let Some(placed) = &found.placed else { return found };
    let mut commands = Vec::new();
    if let Some(provider) = found.provider() {
        let mut words = "--mca pml cm --mca mtl hawser".to_owned();
        if let Some(provider) = provider {
            words += &format!(" --mca mtl_hawser_provider_include '{provider}'");
        }
        let line = host.command(placed, &words);
        commands.push(Way { component: "mtl hawser", over: "over libfabric", line });
    }
    for (name, component, over) in [
        ("usnic", "btl usnic", "over datagrams on any network"),
        ("smcuda", "btl smcuda", "between the processes of this machine alone"),
        ("verbs", "btl verbs", "over RDMA devices"),
    ] {
        if name == "verbs" && !rdma::is_usable(host) {
            continue;
        }
        if is_ours(&placed.join(format!("mca_btl_{name}.so"))) {
            let line = host.command(placed, &format!("--mca pml ob1 --mca btl {name},self"));
            commands.push(Way { component, over, line });
        }
    }
    found.commands = commands;
    found
}

impl Found {
    /// `None`: no provider; else the one to be named on the command line, if none is used by default.
    fn provider(&self) -> Option<Option<&str>> {
        let providers = &self.fabric.as_ref().ok()?.providers;
        let first = providers.first()?;
        let is_any_default = providers.iter().any(|provider| provider.is_default);
        Some((!is_any_default).then_some(first.name.as_str()))
    }

    fn print(&self) {
        say!("hawser {}", env!("CARGO_PKG_VERSION"));
        match &self.library {
            Some(path) => say!("library: {}", path.display()),
            None => say!("library: libhawser.so is neither beside this program nor in ../lib"),
        }
        self.print_fabric();
        say!("");
        let Some(host) = &self.host else {
            say!("host: no Open MPI on PATH (ompi_info is missing or does not run)");
            return;
        };
        say!("host: Open MPI {}", host.version);
        match &self.verdict {
            None => return,
            Some(Ok(true)) => say!("  accepts hawser"),
            Some(Ok(false)) => say!(
                "  accepts hawser; this release has not been tried: sizes and symbols are those of one that has"
            ),
            Some(Err(why)) => {
                say!("  does not accept hawser: {why}");
                return;
            }
        }
        say!("  component directories:");
        for (folder, what) in &self.folders {
            say!("    {}: {what}", folder.display());
        }
        if self.placed.is_none() {
            say!(
                "  no directory holds mca_mtl_hawser.so; run `make install`, or name one with --component-dir"
            );
            return;
        }
        for (at, Way { over, line, .. }) in self.commands.iter().enumerate() {
            say!("  {}, {over}:", if at == 0 { "run it with" } else { "or" });
            say!("    {line}");
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
            let by_default = if provider.is_default { "used by default" } else { "only when asked for" };
            say!(
                "    {} on {}: {by_default}; inject up to {} bytes",
                provider.name,
                provider.domain,
                provider.inject
            );
        }
        if !fabric.providers.iter().any(|provider| provider.is_default) {
            say!(
                "  none is used by default: they only repeat what Open MPI does itself; name one to use it all the same"
            );
        }
    }

    fn as_value(&self) -> Value {
        let fabric = match &self.fabric {
            Ok(fabric) => json!({
                "version": format!("{}.{}", fabric.version.0, fabric.version.1),
                "providers": fabric.providers.iter().map(|provider| json!({
                    "name": provider.name,
                    "domain": provider.domain,
                    "by_default": provider.is_default,
                    "inject": provider.inject,
                })).collect::<Vec<_>>(),
                "why_none": fabric.why,
            }),
            Err(missing) => json!({ "version": null, "providers": [], "why_none": missing }),
        };
        let refusal = self.verdict.as_ref().and_then(|verdict| verdict.as_ref().err());
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "library": self.library,
            "libfabric": fabric,
            "host": self.host.as_ref().map(|host| json!({
                "version": host.version,
                "accepts": matches!(self.verdict, Some(Ok(_))),
                "tried": matches!(self.verdict, Some(Ok(true))),
                "refusal": refusal,
            })),
            "directories": self.folders.iter().map(|(folder, what)| json!({ "path": folder, "holds": what })).collect::<Vec<_>>(),
            "commands": self.commands.iter().map(|way| json!({ "component": way.component, "line": way.line })).collect::<Vec<_>>(),
        })
    }
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

/// What libfabric offers for MPI messages.
fn look_at_fabric() -> Result<Fabric, String> {
    let library = Library::open().map_err(|missing| missing.to_string())?;
    let version = library.version();
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
    let mut fabric = Fabric { version, providers: Vec::new(), why: None };
    match ofi::candidates(library, &config, ofi::Needs { threads: false, untagged: true }) {
        Ok(list) => {
            for info in list.iter() {
                let (name, domain) = (info.provider(), info.domain());
                if fabric
                    .providers
                    .iter()
                    .any(|known| (known.name.as_str(), known.domain.as_str()) == (name, domain))
                {
                    continue;
                }
                fabric.providers.push(Provider {
                    name: name.to_owned(),
                    domain: domain.to_owned(),
                    is_default: ofi::allowed(&config, name),
                    inject: info.inject_size(),
                });
            }
        }
        Err(error) => fabric.why = Some(error.to_string()),
    }
    Ok(fabric)
}

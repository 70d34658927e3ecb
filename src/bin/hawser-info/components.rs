//! Where each component lies, whether it can be used here, and whether the settings leave it out.
//!
//! A line is printed only where it works as it stands: what keeps a component from working is said in its place.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use hawser::accelerator;
use hawser::shm::{NONCE, Segment};

use crate::doctor::Findings;
use crate::fabric;
use crate::host::{Host, Refusal, path_of};
use crate::search::{End, Search};
use crate::settings::{self, Says, Setting};
use crate::{find_library, installed, is_ours, rdma, staged, values};

/// A component, and what it is for.
struct Component {
    framework: &'static str,
    name: &'static str,
    about: &'static str,
    /// The release of the host that it is for alone.
    only: Option<&'static str>,
}

const COMPONENTS: [Component; 6] = [
    Component { framework: "mtl", name: "hawser", about: "mtl hawser", only: None },
    Component { framework: "btl", name: "usnic", about: "btl usnic", only: None },
    Component { framework: "btl", name: "smcuda", about: "btl smcuda", only: None },
    Component { framework: "btl", name: "verbs", about: "btl verbs", only: None },
    Component { framework: "op", name: "hawser", about: "op hawser", only: None },
    Component { framework: "accelerator", name: "cuda", about: "accelerator cuda", only: Some("5.") },
];

/// What a component can do here, if nobody leaves it out.
enum Fit {
    /// These words choose it; what else is good to know.
    Words(String, String),
    /// It is used only with these words, because of that.
    Asked(String, String),
    /// Nothing is wrong, and it has nothing to do.
    Idle(String),
    /// It is not used, which need not be wrong, and what to do.
    Unused(String, String),
    /// It cannot be used, and what to do.
    Broken(String, String),
}

/// What a link leads to, if that is not there.
pub(crate) fn link_to_nothing(path: &Path) -> Option<PathBuf> {
    let target = fs::read_link(path).ok()?;
    // What may not be looked at may be there.
    matches!(path.try_exists(), Ok(false)).then_some(target)
}

/// Says it of the folders, of what chooses components, and of each component.
pub(crate) fn look(host: &Host, findings: &mut Findings) {
    let search = Search::of(host);
    if let Some((what, remedy)) = search.trouble(host) {
        findings.bad("component folders", what, remedy);
    }
    look_at_choices(host, &search, findings);
    values::look(host, findings);
    let mut sound = find_library().into_iter().collect::<Vec<_>>();
    for component in &COMPONENTS {
        if component.only.is_some_and(|release| !host.is(release)) {
            continue;
        }
        let Some(path) = place(component, search.reached(), host, findings) else { continue };
        // Several links lead to one library, which is loaded once.
        let library = path.canonicalize().unwrap_or_else(|_| path.clone());
        if !sound.contains(&library) {
            if let Err(refusal) = host.verdict(&library) {
                let what = format!("{} is not used: {refusal}", path.display());
                findings.bad(component.about, what, refusal.remedy());
                continue;
            }
            sound.push(library);
        }
        let stops = if search.is_fatal(host) {
            Some(("mpirun does not start", "see what is said of component folders"))
        } else {
            hindrance(component.framework, host, &search)
                .map(|_| ("MPI_Init fails", "see what is said of settings"))
        };
        if let Some((what, remedy)) = stops {
            let what = format!("{}: it is not used as long as {what}", path.display());
            findings.bad(component.about, what, remedy);
            continue;
        }
        weigh(component, &path, host, findings);
    }
}

/// The component's file, if it is hawser's and can be read; else it is said why not.
fn place(
    component: &Component,
    folders: &[PathBuf],
    host: &Host,
    findings: &mut Findings,
) -> Option<PathBuf> {
    let about = component.about;
    let file = format!("mca_{}_{}.so", component.framework, component.name);
    let found = folders.iter().map(|folder| folder.join(&file)).find(|path| path.symlink_metadata().is_ok());
    let Some(path) = found else {
        if let Some((end @ End::Forbidden(..), _)) = folders.iter().find_map(|folder| End::of(folder)) {
            findings.bad(about, format!("{file} is not found: {end}"), end.remedy());
            return None;
        }
        let library = find_library();
        let line = |folder: Option<PathBuf>| {
            let folder = folder.filter(|folder| folder.join(&file).exists())?;
            path_of(&folder, &host.own).ok().map(|path| format!("say --mca mca_base_component_path {path}"))
        };
        let remedy = match library.as_deref().map(|library| (line(installed(library)), line(staged(library))))
        {
            Some((Some(line), _)) => line,
            Some((None, Some(line))) => format!("run `make install`, or {line}"),
            _ => "run `make install`".to_owned(),
        };
        let shown = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>();
        findings.bad(
            about,
            format!("{file} is in none of the folders that Open MPI looks into ({})", shown.join(", ")),
            remedy,
        );
        return None;
    };
    let shown = path.display();
    if let Some(target) = link_to_nothing(&path) {
        findings.bad(
            about,
            format!("{shown} is a link to {}, which is not there", target.display()),
            "install hawser anew (`make install`), or remove the link",
        );
    } else if let Err(error) = File::open(&path) {
        let remedy = "chmod a+rX the library and the folders above it, or ask the administrator for that";
        findings.bad(about, format!("{shown} cannot be read ({error})"), remedy);
    } else if !is_ours(&path) {
        match host.verdict(&path) {
            Err(refusal @ Refusal::Library(_)) => {
                findings.bad(about, format!("{shown} is not used: {refusal}"), refusal.remedy());
            }
            _ => findings.bad(
                about,
                format!("{shown} is not hawser's"),
                "put a folder that has hawser's first in mca_base_component_path",
            ),
        }
    } else {
        return Some(path);
    }
    None
}

/// What chooses components: lists that cannot work, whatever they name.
fn look_at_choices(host: &Host, search: &Search, findings: &mut Findings) {
    for framework in ["pml", "mtl", "btl", "op", "accelerator"] {
        let Some(setting) = settings::of(framework, &host.settings) else { continue };
        let told = format!("{} says {framework} = {}", setting.place, setting.value);
        if !setting.is_text() {
            findings.bad(
                "settings",
                format!("{told}, which is not all text (UTF-8): no component has such a name"),
                "write it anew, or leave it out",
            );
        } else if setting.is_mixed() {
            findings.bad(
                "settings",
                format!("{told}: a ^ may stand only before the whole list, and MPI_Init fails otherwise"),
                "name what is used, or, behind one ^, what is not",
            );
        } else if let Some(unknown) = unknown(&setting, host, search) {
            let spoilt = unknown.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            findings.bad(
                "settings",
                format!("{told}, and there is no component `{unknown}`: MPI_Init fails where it is wanted"),
                if spoilt {
                    "write the names with commas between them alone: no blanks, no quotes, and no # behind them"
                } else {
                    "take it out of the list, or install it"
                },
            );
        } else if framework == "btl" && setting.says("self") == Says::Leave {
            findings.bad(
                "settings",
                format!(
                    "{told}, without self: no process reaches itself, and MPI_Init fails where BTLs are used"
                ),
                if setting.value.starts_with('^') {
                    "take self out of the list".to_owned()
                } else {
                    format!("add it: btl = {},self", setting.value)
                },
            );
        }
    }
}

/// The first component that a list names as one to use, and that the host does not find.
fn unknown(setting: &Setting, host: &Host, search: &Search) -> Option<String> {
    // Without its own components nothing is known of them; and 4.1 has no such framework.
    if search.is_fatal(host) || host.components.is_empty() || setting.name == "accelerator" && host.is("4.") {
        return None;
    }
    let is_known = |name: &str| {
        let whole = format!("{}_{name}", setting.name);
        let file = format!("mca_{whole}.so");
        host.components.contains(&whole) || search.reached().iter().any(|folder| folder.join(&file).exists())
    };
    setting.used().into_iter().find(|name| !is_known(name)).map(str::to_owned)
}

/// A list that makes `MPI_Init` fail, and that a line for a component of this framework says nothing of.
pub(crate) fn hindrance(framework: &str, host: &Host, search: &Search) -> Option<String> {
    let lists: &[&str] = match framework {
        // HOST: the BTLs are opened beside an MTL, too.
        "mtl" => &["btl", "op", "accelerator"],
        "btl" => &["op", "accelerator"],
        "op" => &["pml", "btl", "accelerator"],
        _ => &["pml", "btl", "op"],
    };
    lists.iter().filter(|name| **name != "accelerator" || !host.is("4.")).find_map(|name| {
        let setting = settings::of(name, &host.settings)?;
        let is_bad = setting.is_mixed() || unknown(&setting, host, search).is_some();
        is_bad
            .then(|| format!("{} says {name} = {}, with which MPI_Init fails", setting.place, setting.value))
    })
}

/// A component lies where it should: can it be used, and what do the settings say of it?
fn weigh(component: &Component, path: &Path, host: &Host, findings: &mut Findings) {
    let (about, shown) = (component.about, path.display());
    let folder = path.parent().unwrap_or(Path::new("/"));
    let fit = fit(component, host);
    let words = match &fit {
        Fit::Words(words, _) | Fit::Asked(words, _) => Some(words),
        _ => None,
    };
    let line = match words.map(|words| host.command(folder, words)).transpose() {
        Ok(line) => line.unwrap_or_default(),
        Err(why) => {
            let what = format!("{shown}: no line can name its folder: {why}");
            return findings.bad(about, what, "mend the folder, or take another");
        }
    };
    if let (Some((why, is_final)), Some(_)) = (left_out(component, host), words) {
        let remedy = if is_final {
            "change that file: no command line counts more".to_owned()
        } else {
            format!("the command line counts more: {line}")
        };
        return findings.note(about, why, remedy);
    }
    match fit {
        Fit::Words(_, more) => findings.good(about, format!("{shown}{more}; {line}")),
        Fit::Asked(_, why) => findings.note(about, format!("{shown}: {why}"), line),
        Fit::Idle(why) => findings.good(about, format!("{shown}; {why}")),
        Fit::Unused(why, remedy) => findings.note(about, format!("{shown}: {why}"), remedy),
        Fit::Broken(why, remedy) => findings.bad(about, format!("{shown}: {why}"), remedy),
    }
}

/// Which setting leaves the component out, in words, and whether no command line counts more.
fn left_out(component: &Component, host: &Host) -> Option<(String, bool)> {
    let Component { framework, name, .. } = component;
    if let Some(setting) = settings::of(framework, &host.settings).filter(|set| set.says(name) == Says::Leave)
    {
        let why = format!("{} says {framework} = {}, which leaves it out", setting.place, setting.value);
        return Some((why, setting.is_final()));
    }
    let layer = match *framework {
        "mtl" => "cm",
        "btl" => "ob1",
        _ => return None,
    };
    let setting = settings::of("pml", &host.settings).filter(|set| set.says(layer) == Says::Leave)?;
    let why = format!("{} says pml = {}, and it is used by {layer} alone", setting.place, setting.value);
    Some((why, setting.is_final()))
}

/// What the settings have of a component that keeps it from being used, and whether any line.
pub(crate) fn kept_out(framework: &str, name: &str, host: &Host) -> Option<(String, bool)> {
    if let Some(why) = values::wrong(&format!("{framework}_{name}"), host) {
        return Some((why, true));
    }
    let component = COMPONENTS.iter().find(|one| (one.framework, one.name) == (framework, name))?;
    left_out(component, host)
}

/// What the settings have of a component that keeps any line from using it.
pub(crate) fn fault(framework: &str, name: &str, host: &Host) -> Option<String> {
    kept_out(framework, name, host).filter(|(_, is_final)| *is_final).map(|(why, _)| why)
}

/// Whether it can be used here, and how.
fn fit(component: &Component, host: &Host) -> Fit {
    let words = format!("--mca pml ob1 --mca btl {},self", component.name);
    let whole = format!("{}_{}", component.framework, component.name);
    if let Some(why) = values::wrong(&whole, host) {
        return Fit::Broken(
            format!("it is not used as it is set: {why}"),
            format!("mend the parameter, or leave it out; hawser-info --params {whole} says what it may be"),
        );
    }
    match (component.framework, component.name) {
        ("mtl", _) => fit_of_mtl(host),
        (_, "smcuda") => match Segment::make([1; NONCE]) {
            Ok(_) => Fit::Words(words, String::new()),
            Err(error) => Fit::Broken(
                format!("there is no memory to share ({error})"),
                "see what is said of shared memory".to_owned(),
            ),
        },
        (_, "verbs") if !rdma::is_usable(host) => Fit::Unused(
            "there is no RDMA device here that it could use".to_owned(),
            "nothing, unless there should be one: see what is said of RDMA devices".to_owned(),
        ),
        ("btl", _) => Fit::Words(words, String::new()),
        _ if accelerator::kernel_driver().is_none() => {
            Fit::Idle("it has nothing to do here: there is no kernel driver for CUDA devices".to_owned())
        }
        (framework, name) => Fit::Words(format!("--mca {framework} {name}"), String::new()),
    }
}

fn fit_of_mtl(host: &Host) -> Fit {
    let fabric = match fabric::look(Some(host)) {
        Ok(fabric) => fabric,
        Err(_) => {
            return Fit::Broken(
                "it is not used, because libfabric is not".to_owned(),
                "see what is said of libfabric; btl usnic and btl smcuda do without".to_owned(),
            );
        }
    };
    let why = fabric.why_unused();
    match (fabric.words(), fabric.used()) {
        (Some(words), Some(provider)) => Fit::Words(words, format!("; over the provider {}", provider.name)),
        (Some(words), None) => Fit::Asked(words, why),
        (None, _) => Fit::Broken(
            format!("no provider of libfabric's can carry MPI messages here: {}", fabric.why.unwrap_or(why)),
            "`fi_info` lists what there is; btl usnic and btl smcuda do without".to_owned(),
        ),
    }
}

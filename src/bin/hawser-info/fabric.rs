//! What libfabric has for MPI messages, and which of it the settings of this user allow.

use hawser::config;
use hawser::fabric::Library;
use hawser::mtl::ofi;
use hawser::mtl::ofi::parameters::{Given, INTEGERS, read};

use crate::host::{Host, quoted};
use crate::settings::{self, Setting};
use crate::values;

/// What libfabric has.
pub(crate) struct Fabric {
    pub(crate) version: (u32, u32),
    pub(crate) providers: Vec<Provider>,
    /// Why there is no provider.
    pub(crate) why: Option<String>,
    /// The list that says which are used, if somebody has given one.
    pub(crate) include: Option<Setting>,
    /// The list of those that are not: its names, and where it stands if somebody has given it.
    pub(crate) exclude: (String, Option<Setting>),
}

/// A provider that can carry MPI messages.
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) domain: String,
    /// It is used where nobody names one on the command line.
    pub(crate) is_used: bool,
    pub(crate) inject: usize,
}

/// What is set of a parameter of the MTL, under whatever name it is known there.
fn set(name: &str, host: Option<&Host>) -> Option<Setting> {
    let folder = &host?.settings;
    ["mtl_hawser", "mtl_ofi", "opal_common_ofi"]
        .iter()
        .find_map(|owner| settings::of(&format!("{owner}_{name}"), folder))
}

/// The providers that the host leaves to what it does itself.
pub(crate) fn usual_exclude(host: Option<&Host>) -> &'static str {
    // HOST: 4.1.5 added `net` (opal/mca/common/ofi/common_ofi.c).
    let is_older = host.is_some_and(|host| {
        let patch = host.version.strip_prefix("4.1.").map(|rest| rest.split(|c: char| !c.is_ascii_digit()));
        let patch = patch.and_then(|mut digits| digits.next()?.parse::<u32>().ok());
        patch.is_some_and(|patch| patch < 5)
    });
    if is_older { "shm,sockets,tcp,udp,rstream,usnic" } else { "shm,sockets,tcp,udp,rstream,usnic,net" }
}

/// What the settings come to, as the MTL reads them; an error says which makes no sense.
pub(crate) fn config(host: Option<&Host>) -> Result<config::Ofi, String> {
    let mut integers = INTEGERS.each_ref().map(|integer| integer.default);
    for (value, integer) in integers.iter_mut().zip(&INTEGERS) {
        if let Some(setting) = set(&integer.name.to_string_lossy(), host) {
            // What the host cannot read it leaves as it was, and says so.
            let read = match integer.names {
                [] => values::integer(&setting.value),
                names => read(names, &setting.value),
            };
            *value = read.unwrap_or(*value);
        }
    }
    // A text that is set, and empty, is none for the host.
    let include =
        set("provider_include", host).map(|setting| setting.value).filter(|value| !value.is_empty());
    let exclude =
        set("provider_exclude", host).map_or_else(|| usual_exclude(host).to_owned(), |setting| setting.value);
    Given { integers, include, exclude, disable_hmem: false }.config("mtl_hawser_")
}

/// Looks at the providers.
pub(crate) fn look(host: Option<&Host>) -> Result<Fabric, String> {
    let library = Library::open().map_err(|missing| missing.to_string())?;
    let include = set("provider_include", host).filter(|setting| !setting.value.trim().is_empty());
    let exclude = set("provider_exclude", host);
    let names = exclude.as_ref().map_or_else(|| usual_exclude(host).to_owned(), |set| set.value.clone());
    let version = library.version();
    let mut fabric = Fabric { version, providers: Vec::new(), why: None, include, exclude: (names, exclude) };
    let config = match config(host) {
        Ok(config) => config,
        Err(why) => {
            fabric.why = Some(why);
            return Ok(fabric);
        }
    };
    match ofi::candidates(library, &config, ofi::Needs { threads: false, untagged: true }) {
        Ok(list) => {
            for info in list.iter() {
                let (name, domain) = (info.provider(), info.domain());
                let is_known =
                    |known: &Provider| (known.name.as_str(), known.domain.as_str()) == (name, domain);
                if fabric.providers.iter().any(is_known) {
                    continue;
                }
                fabric.providers.push(Provider {
                    name: name.to_owned(),
                    domain: domain.to_owned(),
                    is_used: ofi::allowed(&config, name),
                    inject: info.inject_size(),
                });
            }
        }
        Err(error) => fabric.why = Some(error.to_string()),
    }
    Ok(fabric)
}

impl Fabric {
    /// The provider that is used where nobody names one.
    pub(crate) fn used(&self) -> Option<&Provider> {
        self.providers.iter().find(|provider| provider.is_used)
    }

    /// Their names, once each.
    pub(crate) fn names(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for provider in &self.providers {
            if !names.contains(&provider.name.as_str()) {
                names.push(&provider.name);
            }
        }
        names.join(", ")
    }

    /// The words that choose the MTL here, with a provider where none is used unless it is named. `None`: there is none.
    pub(crate) fn words(&self) -> Option<String> {
        let words = "--mca pml cm --mca mtl hawser";
        if self.used().is_some() {
            return Some(words.to_owned());
        }
        let first = &self.providers.first()?.name;
        // The name that the user has given it: of two names for one parameter either may count.
        let name = self.include.as_ref().map_or("mtl_hawser_provider_include", |set| &set.name);
        Some(format!("{words} --mca {name} {}", quoted(first)))
    }

    /// Why no provider is used unless one is named on the command line.
    pub(crate) fn why_unused(&self) -> String {
        let names = self.names();
        if let Some(Setting { value, place, name }) = &self.include {
            return format!("{place} says {name} = {value}, and the providers here are others ({names})");
        }
        match &self.exclude {
            (list, None) => format!(
                "the providers here ({names}) are used only when they are named, because they repeat what Open MPI does \
                 itself (provider_exclude = {list}, which is the default)"
            ),
            (list, Some(Setting { place, name, .. })) => {
                format!("{place} says {name} = {list}, which leaves out all providers here ({names})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_by_default_depends_on_the_release() {
        for (version, has_net) in [("4.1.4", false), ("4.1.5", true), ("4.1.10rc1", true), ("5.0.7", true)] {
            assert_eq!(
                usual_exclude(Some(&Host::of_release(version))).ends_with(",net"),
                has_net,
                "{version}"
            );
        }
    }

    fn fabric(is_used: bool, include: Option<&str>) -> Fabric {
        let provider =
            |name: &str| Provider { name: name.to_owned(), domain: "lo".to_owned(), is_used, inject: 64 };
        Fabric {
            version: (1, 17),
            providers: ["tcp;ofi_rxm", "udp", "udp"].map(provider).into(),
            why: None,
            include: include.map(|value| Setting {
                name: "mtl_ofi_provider_include".to_owned(),
                value: value.to_owned(),
                place: "a file".to_owned(),
            }),
            exclude: ("tcp,udp".to_owned(), None),
        }
    }

    #[test]
    fn a_line_names_a_provider_where_none_is_used_without() {
        assert_eq!(fabric(true, None).words().as_deref(), Some("--mca pml cm --mca mtl hawser"));
        let named = fabric(false, None).words().expect("a line");
        assert!(named.ends_with(" --mca mtl_hawser_provider_include 'tcp;ofi_rxm'"), "{named}");
        let other = fabric(false, Some("verbs"));
        assert!(
            other
                .words()
                .is_some_and(|words| words.ends_with("--mca mtl_ofi_provider_include 'tcp;ofi_rxm'"))
        );
        assert!(other.why_unused().contains("a file says mtl_ofi_provider_include = verbs"));
        assert!(fabric(false, None).why_unused().contains("tcp;ofi_rxm, udp)"));
    }
}

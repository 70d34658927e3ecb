//! `hawser-info --params`: what can be set and read of each component, and what is set.

use std::process::ExitCode;

use hawser::btl::Left;
use hawser::host::components;
use hawser::host::listing::{Component, Counter, Setting};
use serde_json::{Value, json};

use crate::fabric::usual_exclude;
use crate::host::Host;
use crate::{settings, values};

/// Where the file of settings for all users lies, if no Open MPI says it.
const SETTINGS: &str = "/etc/openmpi";
/// Longest line of a help text.
const WIDTH: usize = 100;

/// What a parameter is set to, and by what; `None`: nobody has set it.
pub(crate) fn set(component: &Component, setting: &Setting, folder: &str) -> Option<settings::Setting> {
    let own = format!("{}_{}", component.whole_name(), setting.name);
    let mut names = std::iter::once(&own).chain(&setting.otherwise);
    names.find_map(|name| settings::of(name, folder))
}

/// Whether what is set is said of the component that this one stands in for.
pub(crate) fn is_inherited(component: &Component, set: &settings::Setting) -> bool {
    let other = component.predecessor.as_ref().and_then(|other| set.name.strip_prefix(other.as_str()));
    other.is_some_and(|rest| rest.starts_with('_'))
}

/// What a parameter is where nobody has set it: as this host has it, where hosts differ.
fn default_of(component: &Component, setting: &Setting, host: Option<&Host>) -> Option<String> {
    match (component.framework, setting.name.as_str()) {
        ("mtl", "provider_exclude") => Some(usual_exclude(host).to_owned()),
        _ => setting.default.clone(),
    }
}

/// Lists all components, or the one of this name.
pub(crate) fn list(name: Option<&str>, as_json: bool) -> ExitCode {
    let all = components::list();
    let is_wanted = |component: &&Component| {
        name.is_none_or(|name| component.name == name || component.whole_name() == name)
    };
    let wanted: Vec<&Component> = all.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let names: Vec<_> = all.iter().map(Component::whole_name).collect();
        eprintln!(
            "hawser-info: {}: there is no such component; take one of {}",
            name.unwrap_or_default(),
            names.join(", ")
        );
        return ExitCode::from(2);
    }
    let host = Host::find().ok();
    let host = host.as_ref();
    if as_json {
        let listed: Vec<_> = wanted.iter().map(|component| as_value(component, host)).collect();
        say!("{:#}", json!({ "version": env!("CARGO_PKG_VERSION"), "components": listed }));
    } else {
        wanted.iter().for_each(|component| print(component, host));
    }
    ExitCode::SUCCESS
}

/// The folder of the file of settings for all users.
fn folder(host: Option<&Host>) -> &str {
    host.map_or(SETTINGS, |host| &host.settings)
}

fn as_value(component: &Component, host: Option<&Host>) -> Value {
    let left = values::left(component, folder(host));
    let setting = |setting: &Setting| {
        let default = default_of(component, setting, host);
        let unfit = line_of(&left, setting);
        let found = set(component, setting, folder(host)).filter(|_| unfit.is_none());
        let (value, place) = found.map(|found| (found.value, found.place)).unzip();
        json!({
            "name": format!("{}_{}", component.whole_name(), setting.name),
            "type": setting.kind,
            "default": default,
            "value": value.or(default.clone()),
            "set_by": place,
            "also_set_by": setting.otherwise,
            "not_taken_over": unfit,
            "values": setting.values,
            "level": setting.level,
            "only": setting.only,
            "help": setting.help,
        })
    };
    let counter = |counter: &Counter| json!({ "name": format!("{}_{}", component.whole_name(), counter.name), "help": counter.help });
    json!({
        "framework": component.framework,
        "name": component.name,
        "parameters": component.settings.iter().map(setting).collect::<Vec<_>>(),
        "counters": component.counters.iter().map(counter).collect::<Vec<_>>(),
    })
}

/// Why what is said of another component is not taken over for a parameter.
fn line_of<'a>(left: &'a [Left], setting: &Setting) -> Option<&'a str> {
    let is_its = |left: &&Left| left.names.iter().any(|name| name.to_bytes() == setting.name.as_bytes());
    left.iter().find(is_its).map(|left| left.line.as_str())
}

fn print(component: &Component, host: Option<&Host>) {
    say!("{} {}", component.framework, component.name);
    let left = values::left(component, folder(host));
    for setting in &component.settings {
        let written = |value: &str| if value.is_empty() { "(empty)".to_owned() } else { value.to_owned() };
        let default = default_of(component, setting, host);
        let default = default.as_deref().map_or_else(|| "(nothing)".to_owned(), written);
        let unfit = line_of(&left, setting);
        let (value, set_by) = match set(component, setting, folder(host)) {
            Some(settings::Setting { place, .. }) if unfit.is_some() => {
                (default, format!("; not by {place}"))
            }
            Some(settings::Setting { value, place, .. }) => {
                (written(&value), format!("; by {place}; default {default}"))
            }
            None => (default, String::new()),
        };
        let only = setting.only.map_or_else(String::new, |release| format!("; Open MPI {release} only"));
        say!("  {}_{} = {value}", component.whole_name(), setting.name);
        say!("      {}, level {}{only}{set_by}", setting.kind, setting.level);
        wrap(&setting.help);
        if let Some(line) = unfit {
            wrap(line);
        }
        if !setting.otherwise.is_empty() {
            say!("      also set by {}", setting.otherwise.join(", "));
        }
        if !setting.values.is_empty() {
            say!("      one of {}", setting.values.join(", "));
        }
    }
    if !component.counters.is_empty() {
        say!("  counters (performance variables):");
    }
    for counter in &component.counters {
        say!("  {}_{}", component.whole_name(), counter.name);
        wrap(&counter.help);
    }
    say!("");
}

/// Prints a text in lines of a bearable length.
fn wrap(text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + word.len() >= WIDTH {
            say!("      {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    say!("      {line}");
}

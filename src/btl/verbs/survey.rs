//! What a person is told of the devices of this machine: which could be used, and why the others are not.

use super::choice::{Candidate, Lists, Obstacle, leave_at};
use super::connector::MODULES;
use super::open::{UNLISTED, devices, look};
use crate::btl::truth;
use crate::engine::cm::Dialect;
use crate::verbs::{EventChannel, Library};
use crate::wire::verbs::Network;

/// A port of a device at an address of this process's network, or a device that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// What the kernel calls the device, as `mlx5_0`; with the number of the port, as `mlx5_0:1`, where that is known.
    pub name: String,
    /// What it speaks, and at which interface and address.
    pub network: Option<String>,
    /// Why it is not used.
    pub obstacle: Option<Obstacle>,
}

/// Why nothing can be said of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsurveyed {
    /// A library is not there.
    Library(String),
    /// The devices cannot be listed.
    Devices(String),
    /// The kernel's connection manager is not there.
    Manager(String),
    /// A parameter makes no sense.
    Parameter(String),
}

/// Looks at all devices, with what `setting` says of a parameter of the component, as `if_include`.
///
/// # Errors
/// What is missing.
pub fn survey(setting: impl Fn(&str) -> Option<String>) -> Result<Vec<Surveyed>, Unsurveyed> {
    let library = Library::load().map_err(|missing| Unsurveyed::Library(missing.to_string()))?;
    let devices = devices(library).map_err(|error| Unsurveyed::Devices(format!("{UNLISTED} ({error})")))?;
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let pair = |include, exclude| [setting(include), setting(exclude)];
    let lists = Lists::parse(&pair("if_include", "if_exclude"), &pair("ipaddr_include", "ipaddr_exclude"))
        .map_err(Unsurveyed::Parameter)?;
    let channel = EventChannel::new(library).map_err(|error| Unsurveyed::Manager(error.to_string()))?;
    let allows_infiniband = setting("allow_ib").as_deref().and_then(truth) == Some(true);
    let dialect = match setting("wire").as_deref().map(str::trim) {
        Some("openib") => Dialect::Openib,
        _ => Dialect::Own,
    };
    let refuse = |it: &Candidate| lists.refuse(it, allows_infiniband).or_else(|| it.refuse(dialect));
    let ports = look(&channel, &lists, refuse).into_iter().map(|usable| {
        let it = usable.candidate;
        Surveyed {
            name: format!("{}:{}", it.device, it.port),
            network: Some(format!("{} at {}", kind(it.network), it.interface)),
            obstacle: usable.obstacle,
        }
    });
    let mut found: Vec<Surveyed> = ports.collect();
    // -1: all.
    let most = setting("max_btls").and_then(|text| text.trim().parse().ok()).filter(|most| *most > 0);
    leave_at(most.unwrap_or(MODULES).min(MODULES), found.iter_mut().map(|port| &mut port.obstacle));
    for device in devices {
        if !found.iter().any(|port| port.name.rsplit_once(':').is_some_and(|(name, _)| name == device)) {
            let obstacle = Some(Obstacle::NoAddress);
            found.push(Surveyed { name: device, network: None, obstacle });
        }
    }
    Ok(found)
}

const fn kind(network: Network) -> &'static str {
    match network {
        Network::InfiniBand => "InfiniBand",
        Network::Roce => "RoCE",
        Network::Iwarp => "iWARP",
    }
}

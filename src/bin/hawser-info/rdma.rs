//! RDMA devices: which of them the verbs BTL uses here, and why it leaves the others.

use hawser::btl::verbs::{Obstacle, Surveyed, Unsurveyed, survey};
use hawser::host::components;
use hawser::verbs::is_any;

use crate::doctor::Findings;
use crate::host::Host;
use crate::{parameters, values};

const ABOUT: &str = "RDMA devices";

/// All devices, with what the user has set of them: of the component itself, or of the one that it stands in for.
fn devices(host: Option<&Host>) -> Result<Vec<Surveyed>, Unsurveyed> {
    let all = components::list();
    let component = all.iter().find(|component| component.whole_name() == "btl_verbs");
    let (Some(host), Some(component)) = (host, component) else { return survey(|_| None) };
    let left = values::left(component, &host.settings);
    let found = |name: &str| {
        let setting = component.settings.iter().find(|setting| setting.name == name)?;
        let found = parameters::set(component, setting, &host.settings)?;
        let is_own = !parameters::is_inherited(component, &found);
        let is_left = left.iter().flat_map(|left| &left.names).any(|left| left.to_bytes() == name.as_bytes());
        (is_own || !is_left).then_some((is_own, found.value))
    };
    survey(|name| {
        let (is_own, value) = found(name)?;
        // Of two lists that exclude each other, its own holds.
        let opposite = name.strip_suffix("_include").map(|list| format!("{list}_exclude"));
        let opposite = opposite.or_else(|| Some(format!("{}_include", name.strip_suffix("_exclude")?)));
        let is_opposed = opposite.and_then(|name| found(&name)).is_some_and(|(is_own, _)| is_own);
        (is_own || !is_opposed).then_some(value)
    })
}

/// Whether there is one that is used.
pub(crate) fn is_usable(host: &Host) -> bool {
    devices(Some(host)).is_ok_and(|all| all.iter().any(|device| device.obstacle.is_none()))
}

/// Says it of each.
pub(crate) fn look(host: Option<&Host>, findings: &mut Findings) {
    let all = match devices(host) {
        Ok(all) if all.is_empty() => {
            return findings.good(ABOUT, "none here: the kernel has none, and btl verbs is not used");
        }
        Ok(all) => all,
        Err(Unsurveyed::Library(missing)) if is_any() => {
            return findings.bad(
                ABOUT,
                format!("the kernel has some, and btl verbs is not used: {missing}"),
                "install them (Debian: libibverbs1 librdmacm1 ibverbs-providers)",
            );
        }
        Err(Unsurveyed::Library(_)) => {
            return findings.good(ABOUT, "none here: the kernel has none, and btl verbs is not used");
        }
        Err(Unsurveyed::Devices(why)) => {
            return findings.bad(
                ABOUT,
                format!("{why}, and btl verbs is not used"),
                "see what `ibv_devices` says, which does the same",
            );
        }
        Err(Unsurveyed::Manager(error)) => {
            return findings.bad(
                ABOUT,
                format!("the kernel has no connection manager for them ({error}), and btl verbs is not used"),
                "modprobe rdma_ucm, and let the user (and the container) read and write /dev/infiniband/rdma_cm",
            );
        }
        Err(Unsurveyed::Parameter(why)) => {
            return findings.bad(ABOUT, why, "mend the parameter; hawser-verbs(7) says what it may be");
        }
    };
    let kept_out = host.and_then(|host| crate::components::kept_out("btl", "verbs", host));
    for Surveyed { name, network, obstacle } in all {
        let what = match network {
            Some(network) => format!("{name} ({network})"),
            None => name,
        };
        match (obstacle, &kept_out) {
            (None, None) => findings.good(ABOUT, format!("{what} is used by btl verbs")),
            (None, Some((why, _))) => {
                let what = format!("{what} is not used, and could be: {why}");
                findings.note(ABOUT, what, "see what is said of btl verbs");
            }
            (Some(why), _) => {
                findings.note(ABOUT, format!("{what} is not used: {why}"), remedy(&why));
            }
        }
    }
}

/// What to do about it.
fn remedy(obstacle: &Obstacle) -> &'static str {
    match obstacle {
        Obstacle::InfiniBand => "--mca btl_verbs_allow_ib 1",
        Obstacle::NotIncluded
        | Obstacle::Excluded
        | Obstacle::NetworkNotIncluded(_)
        | Obstacle::NetworkExcluded(_) => "take it into the list, or leave the parameter out",
        Obstacle::Wire => "leave btl_verbs_wire out, or give its network interface an address of IPv4",
        Obstacle::TooMany(_) => "raise btl_verbs_max_btls, or leave it out; there are 16 at most",
        Obstacle::Unanswered(_) => "see what `ibv_devinfo` and the kernel's log say of it",
        Obstacle::Down => "bring up the device (`rdma link`) and its interface (`ip link`)",
        Obstacle::NoAddress => {
            "give its network interface an address here (`rdma link` names it); a container needs the host's network, or the interface"
        }
    }
}

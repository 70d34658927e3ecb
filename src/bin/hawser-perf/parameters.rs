//! Whose a parameter is.

use hawser::host::components;
use hawser::host::listing::Component;

/// The component that has a parameter of this name.
fn owner(name: &str) -> Option<Component> {
    let is_own = |component: &Component| {
        let own = name.strip_prefix(&component.whole_name()).and_then(|rest| rest.strip_prefix('_'));
        own.is_some_and(|own| component.settings.iter().any(|setting| setting.name == own))
    };
    components::list().into_iter().find(is_own)
}

/// All of them must be some component's; an error names one that is not.
pub(crate) fn known(settings: &[(String, String)]) -> Result<(), String> {
    match settings.iter().find(|(name, _)| owner(name).is_none()) {
        Some((name, _)) => Err(unknown(name)),
        None => Ok(()),
    }
}

fn unknown(name: &str) -> String {
    format!("--set {name}: there is no such parameter; hawser-info --params lists them")
}

/// Why a transport does not take a parameter.
pub(crate) fn stranger(name: &str, transport: &str) -> String {
    match owner(name) {
        None => unknown(name),
        Some(owner) if owner.name == transport => {
            format!("--set {name}: it is for Open MPI alone; leave it out")
        }
        Some(owner) => format!(
            "--set {name}: it belongs to the component {} {}, and -t {transport} does not have it; leave it out",
            owner.framework, owner.name
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_is_not_the_transports_is_somebodys_or_nobodys() {
        for (name, why) in [
            ("btl_smcuda_nothing", "there is no such parameter"),
            ("btl_usnic", "there is no such parameter"),
            ("btl_usnic_link", "belongs to the component btl usnic, and -t smcuda"),
            ("mtl_hawser_tag_mode", "belongs to the component mtl hawser"),
        ] {
            assert!(stranger(name, "smcuda").contains(why), "{name}");
        }
        assert!(stranger("mtl_ofi_priority", "ofi").contains("for Open MPI alone"));
    }

    #[test]
    fn what_nobody_has_is_named() {
        let set = |names: &[&str]| {
            known(&names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect::<Vec<_>>())
        };
        assert_eq!(set(&["btl_usnic_link", "btl_smcuda_flags"]), Ok(()));
        assert!(set(&["btl_usnic_link", "nothing"]).is_err_and(|why| why.contains("--set nothing")));
    }
}

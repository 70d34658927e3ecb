//! Which provider, and which of its devices.

use crate::config::{self, ProgressMode, TagMode};
use crate::error::Error;
use crate::fabric::{Info, InfoList, Library, Locality, Progress, Wishes, sys, take_turn};
use crate::mtl::Refusal;
use crate::wire::tag::{Full, Layout, One, Two, max_context};

/// The endpoint to open, and the tag layout that fits it.
pub struct Offer<'a> {
    /// What libfabric offered.
    pub info: Info<'a>,
    /// The layout: never [`TagMode::Auto`].
    pub layout: TagMode,
    /// Greatest communicator id.
    pub max_context: u32,
    /// Greatest MPI tag.
    pub max_tag: i32,
    /// Whether the endpoint is to reach device memory ([`reaching_devices`]).
    pub reaches_devices: bool,
}

impl Offer<'_> {
    /// The same, as [`reaching_devices`] found it.
    pub fn with_devices<'b>(&self, found: &'b InfoList) -> Option<Offer<'b>> {
        let info = found.iter().next()?;
        let &Self { layout, max_context, max_tag, .. } = self;
        Some(Offer { info, layout, max_context, max_tag, reaches_devices: true })
    }
}

fn progress(mode: ProgressMode) -> Progress {
    match mode {
        ProgressMode::Auto => Progress::Auto,
        ProgressMode::Manual => Progress::Manual,
        ProgressMode::Unspecified => Progress::Unspecified,
    }
}

/// What the host needs of a provider, whatever its users want.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Several threads are expected to call at once. They may in any case.
    pub threads: bool,
    /// Messages outside tag matching, for communicators made from groups.
    pub untagged: bool,
}

/// Everything that libfabric has for the parameters, before the provider lists are applied.
///
/// Directed receives and completion data are asked for first. Where no allowed provider has them, those
/// that do without are listed.
pub fn candidates(library: &'static Library, config: &config::Ofi, needs: Needs) -> Result<InfoList, Error> {
    let wanted = |list: &InfoList| list.iter().any(|info| allowed(config, info.provider()));
    match ask(library, config, needs, true, false) {
        Ok(list) if wanted(&list) => Ok(list),
        first => match ask(library, config, needs, false, false) {
            // With `ofi_tag_full` too: the choice will say what the provider lacks.
            Ok(list) if first.is_err() || wanted(&list) => Ok(list),
            _ => first,
        },
    }
}

fn ask(
    library: &'static Library,
    config: &config::Ofi,
    needs: Needs,
    directed: bool,
    devices: bool,
) -> Result<InfoList, Error> {
    let mut hints = library.hints()?;
    let mut caps = u64::from(sys::FI_TAGGED) | sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;
    caps |= if directed { sys::FI_DIRECTED_RECV } else { 0 };
    caps |= if needs.untagged { u64::from(sys::FI_MSG) } else { 0 };
    caps |= if devices { sys::FI_HMEM } else { 0 };
    hints.reliable_datagram(&Wishes {
        caps,
        mode: sys::FI_CONTEXT | sys::FI_CONTEXT2,
        mr_mode: if devices { (sys::FI_MR_HMEM | sys::FI_MR_ALLOCATED) as i32 } else { 0 },
        cq_data_size: if directed && matches!(config.tag_mode, TagMode::Auto | TagMode::Full) {
            4
        } else {
            0
        },
        threads: needs.threads || config.scalable,
        table: config.av_table,
        control: progress(config.control_progress),
        data: progress(config.data_progress),
        provider: None,
    })?;
    library.info(&hints)
}

/// Whether messages of this endpoint can carry the source outside the tag, and match by it.
fn is_able(info: &Info<'_>) -> bool {
    info.cq_data_size() >= 4 && info.caps() & sys::FI_DIRECTED_RECV != 0
}

/// The endpoint of an offer, asked for with `FI_HMEM`; `None` where its provider cannot reach devices.
///
/// The choice is made without regard to devices, and this only adds to it: a provider that reaches
/// them is not preferred to one that stands before it, so that a process with a device and one
/// without come to the same provider, and a name in a list means what it always means.
pub fn reaching_devices(
    library: &'static Library,
    config: &config::Ofi,
    needs: Needs,
    offer: &Offer<'_>,
) -> Option<InfoList> {
    let directed = offer.info.caps() & sys::FI_DIRECTED_RECV != 0;
    let list = ask(library, config, needs, directed, true).ok()?;
    let found = list.iter().find(|info| {
        info.caps() & sys::FI_HMEM != 0
            && info.is_same_place(&offer.info)
            && is_able(info) == is_able(&offer.info)
    })?;
    found.detach(None).ok()
}

/// Whether the user's lists allow a provider: an include list overrides the exclude list.
///
/// Who excludes `tcp` also excludes `net`: that is what libfabric 1.13 to 1.17 call the connectionless
/// side of the same provider, and the default list of Open MPI 4.1.4 is older than the name.
pub fn allowed(config: &config::Ofi, provider: &str) -> bool {
    match &config.include {
        Some(include) if !include.is_empty() => include.names(provider),
        _ => {
            !config.exclude.names(provider) && (!provider.starts_with("net") || !config.exclude.names("tcp"))
        }
    }
}

/// The list of providers to use, by the names that a user may have given it.
fn include_of(name: &str) -> String {
    match name {
        "ofi" => "mtl_ofi_provider_include".to_owned(),
        _ => format!("mtl_{name}_provider_include (or mtl_ofi_provider_include)"),
    }
}

/// Chooses from `list`. `turn` is the rank of this process on its node: of several devices of one kind
/// the processes of a node take those near their processors in turn, or all where none is near.
///
/// `ranks` is the size of the job: some layouts have room for so many only. `name` is the component's, as the user has it in
/// front of parameters.
pub fn select<'a>(
    list: &'a InfoList,
    config: &config::Ofi,
    name: &str,
    turn: usize,
    ranks: usize,
) -> Result<Offer<'a>, Refusal> {
    let Some(first) = list.iter().find(|info| allowed(config, info.provider())) else {
        let mut names = Vec::new();
        for name in list.iter().map(|info| info.provider()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let names = names.join(", ");
        return Err(match &config.include {
            Some(include) if !include.is_empty() => Refusal::Wish(format!(
                "no libfabric provider that {} names ({include}) can carry MPI messages here; there are: {names}. Name one of these, or leave the parameter out",
                include_of(name)
            )),
            _ => Refusal::NoneSuitable(format!(
                "every libfabric provider here ({names}) is on the exclude list ({})",
                config.exclude
            )),
        });
    };
    let siblings: Vec<_> =
        list.iter().filter(|info| allowed(config, info.provider()) && info.is_sibling(&first)).collect();
    let locality = Locality::of_this_process();
    let near: Vec<_> = siblings.iter().map(|info| locality.is_near(info.pci())).collect();
    let info = &siblings[take_turn(&near, turn)];
    let able = is_able(info);
    let layout = match config.tag_mode {
        TagMode::Auto if able => TagMode::Full,
        TagMode::Auto => TagMode::One,
        TagMode::Full if !able => {
            return Err(Refusal::Wish(format!(
                "mtl_{name}_tag_mode is ofi_tag_full, but the provider {} lacks FI_REMOTE_CQ_DATA of 4 bytes or FI_DIRECTED_RECV; use auto, ofi_tag_1 or ofi_tag_2",
                info.provider()
            )));
        }
        mode => mode,
    };
    let (bits, max_tag, max_source) = match layout {
        TagMode::Two => (Two::CONTEXT_BITS, Two::MAX_TAG, Two::MAX_SOURCE),
        TagMode::One => (One::CONTEXT_BITS, One::MAX_TAG, One::MAX_SOURCE),
        TagMode::Full | TagMode::Auto => (Full::CONTEXT_BITS, Full::MAX_TAG, Full::MAX_SOURCE),
    };
    if ranks as i64 - 1 > max_source {
        return Err(Refusal::Wish(format!(
            "the job has {ranks} processes, but with the provider {} the tag has room for {} ranks; use a provider that can do ofi_tag_full",
            info.provider(),
            max_source + 1
        )));
    }
    let Some(max_context) = max_context(bits, info.mem_tag_format()) else {
        return Err(Refusal::Wish(format!(
            "the provider {} reserves so many tag bits that fewer than 8 are left for communicators; use ofi_tag_2 or another provider",
            info.provider()
        )));
    };
    Ok(Offer { info: *info, layout, max_context, max_tag, reaches_devices: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_names_that_the_user_may_have_given() {
        assert_eq!(include_of("ofi"), "mtl_ofi_provider_include");
        assert_eq!(include_of("hawser"), "mtl_hawser_provider_include (or mtl_ofi_provider_include)");
    }
}

//! Parameters as plain data: what the host's users may set, and why the defaults are what they are.

/// Names separated by commas, as users write them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList(Vec<String>);

impl NameList {
    /// The names in `text`; empty ones do not count.
    pub fn parse(text: &str) -> Self {
        Self(text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Whether there is no name at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a provider is meant: a listed name is the provider's, or the beginning of it, so
    /// that `tcp` also means the layered `tcp;ofi_rxm`. Letter case does not matter.
    pub fn names(&self, provider: &str) -> bool {
        self.0
            .iter()
            .any(|name| provider.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name)))
    }
}

impl std::fmt::Display for NameList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// How communicator, source and tag share the tag bits (`mtl_ofi_tag_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagMode {
    /// `ofi_tag_full` where the provider can, else `ofi_tag_1`.
    Auto,
    /// 12 bits of communicator, whole tags.
    One,
    /// 24 bits of communicator, 19-bit tags.
    Two,
    /// The source travels outside the tag.
    Full,
}

/// Who drives the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressMode {
    /// A thread of the provider.
    Auto,
    /// Our calls.
    Manual,
    /// The provider's choice.
    Unspecified,
}

/// The parameters of the OFI MTL.
#[derive(Clone, Debug)]
pub struct Ofi {
    /// Providers to use; when given, only these (`mtl_ofi_provider_include`).
    pub include: Option<NameList>,
    /// Providers not to use: those that only repeat what Open MPI does better itself (`mtl_ofi_provider_exclude`).
    pub exclude: NameList,
    /// Completions read at once (`mtl_ofi_progress_event_cnt`).
    pub progress_event_count: usize,
    /// How the tag bits are shared out.
    pub tag_mode: TagMode,
    /// Who drives connection handling.
    pub control_progress: ProgressMode,
    /// Who drives transfers.
    pub data_progress: ProgressMode,
    /// Addresses are table indices, not provider values (`mtl_ofi_av`).
    pub av_table: bool,
    /// Use a scalable endpoint (`mtl_ofi_enable_sep`).
    pub scalable: bool,
    /// One context per group of communicators (`mtl_ofi_thread_grouping`).
    pub grouping: bool,
    /// Contexts of a scalable endpoint (`mtl_ofi_num_ctxts`).
    pub contexts: usize,
    /// Let the provider send and receive device memory itself, where it can (`mtl_ofi_disable_hmem`).
    pub device: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_providers_that_begin_with_it() {
        let list = NameList::parse("tcp, shm ,,");
        assert!(list.names("tcp") && list.names("tcp;ofi_rxm") && list.names("TCP") && list.names("shm"));
        assert!(!list.names("net") && !list.names("tc") && !list.names(""));
        assert!(NameList::parse("").is_empty() && NameList::parse(" , ").is_empty());
        assert_eq!(list.to_string(), "tcp,shm");
    }
}

//! The parameters of the OFI MTL, whoever sets them: what they are called, what they mean, and what their values come
//! to.

use std::ffi::{CStr, c_int};

use crate::config::{self, NameList, ProgressMode, TagMode};

/// Values of a parameter by their names.
pub type Values = &'static [(c_int, &'static CStr)];

const TAG_MODES: Values = &[(1, c"auto"), (2, c"ofi_tag_1"), (3, c"ofi_tag_2"), (4, c"ofi_tag_full")];
const PROGRESS_MODES: Values = &[(1, c"auto"), (2, c"manual"), (3, c"unspec")];
const AV_TYPES: Values = &[(1, c"map"), (2, c"table")];

/// One integer parameter.
pub struct Integer {
    /// Without the component's name.
    pub name: &'static CStr,
    /// One line for `ompi_info`.
    pub help: &'static CStr,
    /// Where nothing is said.
    pub default: i32,
    /// `OPAL_INFO_LVL_*`, which begin at 0.
    pub level: i32,
    /// Its values by their names, where it has such.
    pub names: Values,
}

/// The one that only Open MPI has a use for.
pub const PRIORITY: usize = 0;
const EVENTS: usize = 1;
const TAG_MODE: usize = 2;
const CONTROL: usize = 3;
const DATA: usize = 4;
const AV: usize = 5;
const SEP: usize = 6;
const GROUPING: usize = 7;
const CONTEXTS: usize = 8;
/// How many there are.
pub const COUNT: usize = 9;

/// All of them, in the order in which they are listed.
pub static INTEGERS: [Integer; COUNT] = [
    Integer { name: c"priority", help: c"How much this transport is preferred; pml/cm takes the value over and competes with pml/ob1's 20", default: 25, level: 8, names: &[] },
    Integer { name: c"progress_event_cnt", help: c"Completions read from the provider at once, from 1 on; more than 100 count as 100", default: 100, level: 5, names: &[] },
    Integer { name: c"tag_mode", help: c"How communicator, source and tag share the 64 tag bits: auto (ofi_tag_full where the provider can, else ofi_tag_1), ofi_tag_1 (12 bits of communicator, 18 of source, 32 of tag), ofi_tag_2 (24, 18, 20), ofi_tag_full (30 bits of communicator, 32 of tag, the source outside the tag)", default: 1, level: 5, names: TAG_MODES },
    Integer { name: c"control_progress", help: c"Who drives connection handling in the provider: auto (its thread), manual (our calls), unspec (its choice)", default: 3, level: 2, names: PROGRESS_MODES },
    Integer { name: c"data_progress", help: c"Who drives transfers in the provider: auto (its thread), manual (our calls), unspec (its choice)", default: 3, level: 2, names: PROGRESS_MODES },
    Integer { name: c"av", help: c"Kind of address vector: map (the provider's own values) or table (indices)", default: 1, level: 2, names: AV_TYPES },
    Integer { name: c"enable_sep", help: c"Use a scalable endpoint with several contexts, where the provider has them (0 or 1)", default: 0, level: 2, names: &[] },
    Integer { name: c"thread_grouping", help: c"Spread communicators over the contexts of the scalable endpoint (0 or 1; needs enable_sep)", default: 0, level: 2, names: &[] },
    Integer { name: c"num_ctxts", help: c"Contexts of the scalable endpoint (needs enable_sep)", default: 1, level: 3, names: &[] },
];

/// Reads a value as users write it: a number, or one of its names in capitals or small letters, where it has such.
pub fn read(names: Values, text: &str) -> Option<i32> {
    let text = text.trim();
    let named = names.iter().find(|(_, name)| name.to_bytes().eq_ignore_ascii_case(text.as_bytes()));
    let value = named.map_or_else(|| text.parse().ok(), |(value, _)| Some(*value))?;
    (names.is_empty() || names.iter().any(|(known, _)| *known == value)).then_some(value)
}

/// The list of providers to use.
pub const INCLUDE_NAME: &CStr = c"provider_include";
/// Its help.
pub const INCLUDE_HELP: &CStr = c"libfabric providers to use, separated by commas: when given, only these. A name also means the layered providers that begin with it. Overrides provider_exclude";
/// The list of providers not to use.
pub const EXCLUDE_NAME: &CStr = c"provider_exclude";

/// The values that were given, or the defaults.
pub struct Given {
    /// Those of [`INTEGERS`].
    pub integers: [c_int; COUNT],
    /// Providers to use.
    pub include: Option<String>,
    /// Providers not to use.
    pub exclude: String,
    /// Whether the provider is to leave devices alone.
    pub disable_hmem: bool,
}

impl Given {
    /// The parameters as the transport sees them. Their names begin with `prefix`.
    ///
    /// # Errors
    /// A value is out of its range, in words.
    pub fn config(&self, prefix: &str) -> Result<config::Ofi, String> {
        let values = self.integers;
        let progress = |index: usize| match values[index] {
            1 => ProgressMode::Auto,
            2 => ProgressMode::Manual,
            _ => ProgressMode::Unspecified,
        };
        let range = |index: usize, low: c_int, high: c_int| {
            let value = values[index];
            if (low..=high).contains(&value) {
                Ok(value as usize)
            } else {
                Err(format!(
                    "{prefix}{} is {value}; it must be {low} to {high}",
                    INTEGERS[index].name.to_string_lossy()
                ))
            }
        };
        let scalable = range(SEP, 0, 1)? == 1;
        let grouping = range(GROUPING, 0, 1)? == 1;
        if grouping && !scalable {
            return Err(format!("{prefix}thread_grouping needs {prefix}enable_sep; set both or neither"));
        }
        Ok(config::Ofi {
            include: self.include.as_deref().map(NameList::parse),
            exclude: NameList::parse(&self.exclude),
            progress_event_count: range(EVENTS, 1, c_int::MAX)?.min(100),
            tag_mode: match values[TAG_MODE] {
                2 => TagMode::One,
                3 => TagMode::Two,
                4 => TagMode::Full,
                _ => TagMode::Auto,
            },
            control_progress: progress(CONTROL),
            data_progress: progress(DATA),
            av_table: values[AV] == 2,
            scalable,
            grouping,
            contexts: range(CONTEXTS, 1, 65_535)?,
            device: !self.disable_hmem,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_number_or_one_of_its_names() {
        let modes = INTEGERS.iter().find(|one| one.name == c"tag_mode").expect("a parameter").names;
        assert_eq!(
            ["auto", " OFI_tag_full ", "2"].map(|text| read(modes, text)),
            [Some(1), Some(4), Some(2)]
        );
        assert_eq!(["", "full", "0", "5", "2x"].map(|text| read(modes, text)), [None; 5]);
        assert_eq!([read(&[], "7"), read(&[], "-1"), read(&[], "many")], [Some(7), Some(-1), None]);
    }
}

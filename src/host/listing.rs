//! What users may set and read of each component, as plain data for tools and manual pages: the tables that are
//! registered with the host, and nothing beside them.

use std::ffi::{CStr, c_int};

use super::verify::{self, Verify};
use crate::btl::{Kind, Transport};

/// What people read of a parameter.
#[derive(Clone, Copy)]
pub(super) struct Words {
    /// Behind the component's.
    pub(super) name: &'static CStr,
    pub(super) help: &'static CStr,
    /// `OPAL_INFO_LVL_*`, which begin at 0.
    pub(super) level: c_int,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Behind the component's: `eager_limit`.
    pub name: String,
    /// `int`, `unsigned`, `bool` or `text`
    pub kind: &'static str,
    /// As users write it; `None`: nothing.
    pub default: Option<String>,
    /// The words that stand for its values, where only these may be given.
    pub values: Vec<String>,
    /// For whom: 1 for every user to 9 for developers.
    pub level: i32,
    /// One line.
    pub help: String,
    /// Whole names of other parameters that say what it is when nobody has set it, the nearest first.
    pub otherwise: Vec<String>,
    /// The release of the host that has it alone.
    pub only: Option<&'static str>,
}

/// A performance variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Behind the component's.
    pub name: String,
    /// One line.
    pub help: String,
}

/// A component.
#[derive(Clone, Debug)]
pub struct Component {
    /// `btl`
    pub framework: &'static str,
    /// `usnic`
    pub name: String,
    /// What users may set.
    pub settings: Vec<Setting>,
    /// What they may read.
    pub counters: Vec<Counter>,
    /// The whole name of the component that it stands in for: what is said of that one's parameters holds for its own, if it fits.
    pub predecessor: Option<String>,
    /// Says what the component would refuse of the values that it is given.
    pub verify: Option<Verify>,
}

impl Component {
    /// With that of its framework: `btl_usnic`.
    pub fn whole_name(&self) -> String {
        format!("{}_{}", self.framework, self.name)
    }
}

pub(super) fn text(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

impl Words {
    /// A parameter with these.
    pub(super) fn setting(&self, kind: &'static str, default: Option<String>) -> Setting {
        Setting {
            name: text(self.name),
            kind,
            default,
            values: Vec::new(),
            level: self.level + 1,
            help: text(self.help),
            otherwise: Vec::new(),
            only: None,
        }
    }
}

/// A counter.
pub(super) fn counter(name: &CStr, help: &CStr) -> Counter {
    Counter { name: text(name), help: text(help) }
}

/// The tables of a byte transport.
pub(super) fn byte_transport<T: Transport>() -> Component {
    let parameters = T::parameters();
    let numbers = parameters.numbers.iter().map(|number| {
        let words = Words { name: number.name, help: number.help, level: number.level };
        let kind = match number.kind {
            Kind::Signed => "int",
            Kind::Unsigned | Kind::Flags => "unsigned",
            Kind::Bool => "bool",
        };
        words.setting(kind, Some(number.default_text()))
    });
    let texts = parameters.texts.iter().map(|words| {
        let default = words.default.map(text);
        Words { name: words.name, help: words.help, level: words.level }.setting("text", default)
    });
    let predecessor = T::PREDECESSOR.map(|other| format!("btl_{}", text(other)));
    let otherwise = |setting: Setting| {
        let name = predecessor.as_ref().map(|other| format!("{other}_{}", setting.name));
        Setting { otherwise: name.into_iter().collect(), ..setting }
    };
    let settings = numbers.chain(texts).map(otherwise).collect();
    let counters = T::COUNTERS
        .iter()
        .map(|(name, help)| Counter { name: (*name).to_owned(), help: help.trim().to_owned() });
    Component {
        framework: "btl",
        name: T::COMPONENT.strip_prefix("btl_").unwrap_or(T::COMPONENT).to_owned(),
        settings,
        counters: counters.collect(),
        predecessor,
        verify: Some(verify::byte_transport::<T>),
    }
}

//! The parameters of a component, as tables: what they are called, what they mean, and the storage that
//! the host writes their values to.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

/// What kind of number a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `int`
    Signed,
    /// `unsigned int`
    Unsigned,
    /// `unsigned int`, of the host's names for what a byte transport can do.
    Flags,
    /// `bool`: 0 or 1, for which users have [words](truth), too.
    Bool,
}

/// A number that users set.
pub struct Number {
    /// Without the component's name.
    pub name: &'static CStr,
    /// One line for `ompi_info`.
    pub help: &'static CStr,
    /// Before users and files have said anything.
    pub default: c_int,
    /// `OPAL_INFO_LVL_*`, which begin at 0.
    pub level: c_int,
    /// What kind of number.
    pub kind: Kind,
    /// Where the host writes it.
    pub value: AtomicI32,
    /// Where the host writes a `bool`.
    pub flag: AtomicBool,
}

/// A text that users set.
pub struct Text {
    /// Without the component's name.
    pub name: &'static CStr,
    /// One line for `ompi_info`.
    pub help: &'static CStr,
    /// Before users and files have said anything.
    pub default: Option<&'static CStr>,
    /// `OPAL_INFO_LVL_*`, which begin at 0.
    pub level: c_int,
    /// Where the host writes the address of a text that it owns: read through
    /// [`Host::text`](super::Host::text).
    pub value: AtomicPtr<c_char>,
}

/// All of a component, in the order in which they are listed.
pub struct Parameters {
    /// The numbers.
    pub numbers: &'static [Number],
    /// The texts.
    pub texts: &'static [Text],
}

/// What our byte transports may be used for, by the host's names (`mca_btl_base_flag_enum_flags`, 4.1 and 5.0).
pub const FLAGS: [(&str, c_int); 5] =
    [("send", 1), ("put", 1 << 1), ("get", 1 << 2), ("atomics", 1 << 15), ("fetching-atomics", 1 << 16)];

/// These flags by their names; `None` where one has none, or there is none.
fn flag_words(flags: c_int) -> Option<String> {
    let named = FLAGS.iter().filter(|(_, flag)| flags & flag != 0);
    let (names, all): (Vec<&str>, Vec<c_int>) = named.copied().unzip();
    (flags != 0 && all.into_iter().sum::<c_int>() == flags).then(|| names.join(","))
}

impl Number {
    /// What the user has said, or the default.
    fn given(&self) -> i64 {
        self.read(match self.kind {
            Kind::Bool => self.flag.load(Ordering::Relaxed).into(),
            _ => self.value.load(Ordering::Relaxed),
        })
    }

    /// What the bits of an `int` say.
    fn read(&self, bits: c_int) -> i64 {
        match self.kind {
            // Nobody writes more flags than an `int` has: a negative number is what was said.
            Kind::Signed | Kind::Bool | Kind::Flags => bits.into(),
            Kind::Unsigned => bits.cast_unsigned().into(),
        }
    }

    /// Gives it a value, of which the bits are those of an `int`.
    pub fn set(&self, value: c_int) {
        match self.kind {
            Kind::Bool => self.flag.store(value != 0, Ordering::Relaxed),
            _ => self.value.store(value, Ordering::Relaxed),
        }
    }

    /// The default as users write it.
    pub fn default_text(&self) -> String {
        match self.kind {
            Kind::Bool => (self.default != 0).to_string(),
            _ => self.read(self.default).to_string(),
        }
    }

    /// The same as users read it: in words, where there are words for all of it.
    pub fn default_words(&self) -> String {
        let words = match self.kind {
            Kind::Flags => flag_words(self.default),
            _ => None,
        };
        words.unwrap_or_else(|| self.default_text())
    }

    /// A number; levels are 1 to 9 here, as users count them.
    pub const fn new(
        kind: Kind,
        name: &'static CStr,
        default: c_int,
        level: c_int,
        help: &'static CStr,
    ) -> Self {
        let (value, flag) = (AtomicI32::new(0), AtomicBool::new(false));
        Self { name, help, default, level: level - 1, kind, value, flag }
    }
}

impl Text {
    /// A text; levels are 1 to 9 here, as users count them.
    pub const fn new(
        name: &'static CStr,
        default: Option<&'static CStr>,
        level: c_int,
        help: &'static CStr,
    ) -> Self {
        Self { name, help, default, level: level - 1, value: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl Parameters {
    /// The value of a number of the table.
    ///
    /// # Panics
    /// When there is none of this name.
    pub fn number(&self, name: &CStr) -> i64 {
        self.find(name).given()
    }

    /// What a number of the table is before anybody has said anything.
    ///
    /// # Panics
    /// When there is none of this name.
    pub fn default(&self, name: &CStr) -> i64 {
        let number = self.find(name);
        number.read(number.default)
    }

    fn find(&self, name: &CStr) -> &Number {
        let number = self.numbers.iter().find(|number| number.name == name);
        number.expect("a parameter of the table")
    }
}

/// A `bool` as users write it: a decimal number, or one of a few words in small letters. HOST: `mca_base_var_enum_bool`, which
/// takes space before it and none behind, and nothing for 0 (4.1 and 5.0).
pub fn truth(text: &str) -> Option<bool> {
    match text.trim_ascii_start() {
        "true" | "t" | "enabled" | "yes" => Some(true),
        "" | "false" | "f" | "disabled" | "no" => Some(false),
        text => {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            is_number.then(|| digits.bytes().any(|digit| digit != b'0'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_one_that_was_given() {
        for (kind, most) in [(Kind::Signed, -1), (Kind::Unsigned, 4_294_967_295), (Kind::Flags, -1)] {
            let numbers: &'static [Number] =
                Box::leak(Box::new([Number::new(kind, c"it", 0, 1, c"a number")]));
            let parameters = Parameters { numbers, texts: &[] };
            // As the host does.
            numbers[0].value.store(-1, Ordering::Relaxed);
            assert_eq!(parameters.number(c"it"), most);
        }
    }

    #[test]
    fn a_truth_is_one_byte_for_the_host_and_a_number_for_us() {
        let numbers: &'static [Number] =
            Box::leak(Box::new([Number::new(Kind::Bool, c"it", 1, 1, c"a truth")]));
        let parameters = Parameters { numbers, texts: &[] };
        for value in [true, false] {
            // As the host does.
            numbers[0].flag.store(value, Ordering::Relaxed);
            assert_eq!(parameters.number(c"it"), value.into());
        }
        numbers[0].set(1);
        assert_eq!((parameters.number(c"it"), parameters.default(c"it")), (1, 1));
        assert_eq!(numbers[0].default_text(), "true");
    }

    #[test]
    fn flags_are_read_in_words_where_all_have_some() {
        let words = |default| Number::new(Kind::Flags, c"flags", default, 1, c"flags").default_words();
        assert_eq!(words(0x1_8007), "send,put,get,atomics,fetching-atomics");
        assert_eq!([words(1), words(9), words(0), words(-1)], ["send", "9", "0", "-1"]);
        assert_eq!(Number::new(Kind::Signed, c"number", 1, 1, c"a number").default_words(), "1");
    }

    /// As `ompi_info` shows them on both hosts, for parameters of the hosts' own.
    #[test]
    fn truths_are_read_as_the_host_reads_them() {
        for text in ["1", "2", "-1", "+7", "true", " true", "t", "yes", "enabled", "10"] {
            assert_eq!(truth(text), Some(true), "{text}");
        }
        for text in ["0", "00", "-0", "false", "f", "no", "disabled", ""] {
            assert_eq!(truth(text), Some(false), "{text}");
        }
        for text in ["True", "TRUE", "T", "Yes", "true ", "on", "y", "0x1", "1k", "enable", "-", "much"] {
            assert_eq!(truth(text), None, "{text}");
        }
    }
}

//! What the user has said of a component that one of ours stands in for: a value for `btl_openib_*` holds for `btl_verbs_*`, too.
//!
//! It is found where the host finds values, in the environment, which has what `mpirun --mca` was given, and in the parameter
//! files, and counts as the default of ours: what is said of ours itself goes before it, wherever that is said. Nothing is
//! registered under the other's name. HOST: a variable of that name would be the other's as soon as that is there, too, with the type
//! that it has here (`register_variable`, 4.1 and 5.0).

use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::fs;

use super::params;
use crate::btl::{FLAGS, Kind, Number, truth};

/// Values, by the names of parameters without the component's.
pub(super) struct Said {
    /// What the names in the environment begin with.
    prefix: String,
    files: HashMap<String, String>,
}

impl Said {
    /// What is said of a component.
    pub(super) fn of(framework: &CStr, component: &CStr) -> Self {
        let prefix = format!("{}_{}_", framework.to_string_lossy(), component.to_string_lossy());
        let mut files = HashMap::new();
        let list = params::files().unwrap_or_default();
        // HOST: of two files the first one wins, and of two lines of a file the last one (`read_files`, 4.1 and 5.0).
        for name in list.split(',').rev() {
            if let Ok(text) = fs::read_to_string(name.trim()) {
                files.extend(values(&text, &prefix));
            }
        }
        Self { prefix: format!("OMPI_MCA_{prefix}"), files }
    }

    /// What is said of a parameter.
    pub(super) fn text(&self, name: &CStr) -> Option<String> {
        let name = name.to_str().ok()?;
        let told = std::env::var(format!("{}{name}", self.prefix)).ok();
        told.or_else(|| self.files.get(name).cloned())
    }

    /// The same of a number, as the bits of an `int`: an error if what is said is none.
    pub(super) fn number(&self, parameter: &Number) -> Option<Result<c_int, String>> {
        bits(parameter, self.text(parameter.name)?)
    }
}

/// What a text says of a number, as the bits of an `int`: an error if that is none, and nothing if it is empty.
pub(super) fn bits(parameter: &Number, text: String) -> Option<Result<c_int, String>> {
    let found = match parameter.kind {
        _ if text.trim().is_empty() => return None,
        Kind::Signed | Kind::Unsigned => number(text.trim()),
        Kind::Flags => number(text.trim()).or_else(|| flags(&text)),
        Kind::Bool => truth(&text).map(c_int::from),
    };
    Some(found.ok_or(text))
}

/// What a byte transport may be used for (`btl_flags`), by names.
fn flags(text: &str) -> Option<c_int> {
    text.split(',').map(str::trim).try_fold(0, |flags, name| {
        match FLAGS.iter().find(|(known, _)| *known == name) {
            Some((_, flag)) => Some(flags | flag),
            None => OTHER_FLAGS.contains(&name).then_some(flags),
        }
    })
}

/// What else the host's byte transports may be used for, and none of ours is.
const OTHER_FLAGS: [&str; 12] = [
    "inplace",
    "signaled",
    "static",
    "rdma-flush",
    "cuda-put",
    "cuda-get",
    "cuda-async-send",
    "cuda-async-recv",
    "failover",
    "need-ack",
    "need-csum",
    "hetero-rdma",
];

/// What a parameter file says of names that begin like this. HOST: a comment begins where a name might stand, and a value is
/// the rest of its line, whatever is in it (`keyval_lex.l`, 4.1 and 5.0).
fn values<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = behind_comments(rest);
            if rest.is_empty() {
                return None;
            }
            let (line, others) = rest.split_once('\n').unwrap_or((rest, ""));
            rest = others;
            let (name, value) = line.split_once('=').unzip();
            let name = name.and_then(|name| name.trim_end().strip_prefix(prefix));
            if let (Some(name), Some(value)) = (name, value) {
                let value = value.trim();
                let inner = |quote| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
                let value = inner('"').or_else(|| inner('\'')).unwrap_or(value);
                return Some((name.to_owned(), value.to_owned()));
            }
        }
    })
}

/// A text from the first letter on that is neither space nor in a comment.
fn behind_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        let (rest, end) = match text.strip_prefix("/*") {
            Some(rest) => (rest, "*/"),
            None if text.starts_with('#') || text.starts_with("//") => (text, "\n"),
            None => return text,
        };
        text = rest.split_once(end).map_or("", |(_, behind)| behind);
    }
}

/// As the host reads numbers: with the bases of C, and units of 1024 (`int_from_string`, 4.1 and 5.0).
fn number(text: &str) -> Option<c_int> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, shift) = match digits.char_indices().next_back()? {
        (at, 'k' | 'K') => (&digits[..at], 10),
        (at, 'm' | 'M') => (&digits[..at], 20),
        (at, 'g' | 'G') => (&digits[..at], 30),
        _ => (digits, 0),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let value = match (hexadecimal, digits.strip_prefix('0')) {
        (Some(digits), _) => i64::from_str_radix(digits, 16),
        (None, Some(digits)) if !digits.is_empty() => i64::from_str_radix(digits, 8),
        _ if digits.starts_with(['+', '-']) => return None,
        _ => digits.parse(),
    };
    let value = value.ok()?.checked_mul(sign << shift)?;
    // What is unsigned takes the same bits.
    c_int::try_from(value).or_else(|_| u32::try_from(value).map(u32::cast_signed)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_file_are_names_and_values() {
        let text = "# btl_openib_a = 0\nbtl_openib_a = 1\n  btl_openib_b=two words # and more\nbtl_openib_c = \"3,4\"\n\
                    btl_openib_d = '5'\nbtl_openib_e\nbtl_verbs_f = 6\nbtl_openib_a = 7\nbtl_openib_g =\n";
        let all: HashMap<_, _> = values(text, "btl_openib_").collect();
        let expected = [("a", "7"), ("b", "two words # and more"), ("c", "3,4"), ("d", "5"), ("g", "")];
        assert_eq!(all, HashMap::from(expected.map(|(name, value)| (name.to_owned(), value.to_owned()))));
    }

    #[test]
    fn comments_begin_where_no_value_is() {
        let text = "/* o_a = 1 */\n/* several\no_b = 2\n*/ o_c = 3\n  // o_d = 4\n\t# o_e = 5\n/** x **/ o_f = /* 6 */\n\
                    o_g = 7 // 8\no_h = 9 /* 10\no_i = 11\n*/\no_j=12\r\n/* o_k = 13\n";
        let all: Vec<_> = values(text, "o_").collect();
        let expected =
            [("c", "3"), ("f", "/* 6 */"), ("g", "7 // 8"), ("h", "9 /* 10"), ("i", "11"), ("j", "12")];
        assert_eq!(all, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        let read = [
            ("0", 0),
            ("17", 17),
            ("-1", -1),
            ("0x10", 16),
            ("010", 8),
            ("4k", 4096),
            ("1M", 1 << 20),
            ("+5", 5),
        ];
        read.into_iter().for_each(|(text, value)| assert_eq!(number(text), Some(value), "{text}"));
        assert_eq!(number("4294967295"), Some(-1));
        for text in ["", "k", "--1", "1x", "0x", "9g", "send", "1 2", "09"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_said_is_of_the_kind_of_its_parameter() {
        let files = [
            ("a", "send, get"),
            ("b", "7"),
            ("c", "send,atomics,fetching-atomics"),
            ("e", "send,unheard-of"),
            ("f", "need-ack"),
            ("g", "enabled"),
            ("h", " "),
        ];
        let files = files.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let it = Said { prefix: "OMPI_MCA_btl_nobody_".to_owned(), files };
        let said = |kind, name| it.number(&Number::new(kind, name, 0, 1, c"a number"));
        let flags = |name| said(Kind::Flags, name);
        assert_eq!([flags(c"a"), flags(c"b"), flags(c"f")], [5, 7, 0].map(|flags| Some(Ok(flags))));
        assert_eq!(flags(c"c"), Some(Ok(0x1_8001)));
        assert_eq!(
            (flags(c"d"), flags(c"e")),
            (None, Some(Err("send,unheard-of".to_owned()))),
            "nothing, and what nobody knows"
        );
        assert_eq!(said(Kind::Signed, c"b"), Some(Ok(7)));
        assert_eq!(said(Kind::Unsigned, c"a"), Some(Err("send, get".to_owned())));
        assert_eq!([said(Kind::Signed, c"h"), said(Kind::Bool, c"h")], [None, None]);
        assert_eq!([said(Kind::Bool, c"b"), said(Kind::Bool, c"g")], [const { Some(Ok(1)) }; 2]);
        assert_eq!(said(Kind::Bool, c"f"), Some(Err("need-ack".to_owned())));
        assert_eq!(it.text(c"a").as_deref(), Some("send, get"));
    }
}

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

/// Values, by the names of parameters without the component's.
pub(super) struct Inherited {
    /// What the names in the environment begin with.
    prefix: String,
    files: HashMap<String, String>,
}

impl Inherited {
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

    /// The same of a number; what is none says nothing.
    pub(super) fn number(&self, name: &CStr) -> Option<c_int> {
        number(self.text(name)?.trim())
    }

    /// The same of what a byte transport may be used for (`btl_flags`): a number, or names.
    pub(super) fn flags(&self, name: &CStr) -> Option<c_int> {
        let text = self.text(name)?;
        number(text.trim()).or_else(|| {
            text.split(',').map(str::trim).try_fold(0, |flags, name| {
                match ["send", "put", "get"].iter().position(|known| *known == name) {
                    Some(bit) => Some(flags | 1 << bit),
                    None => OTHER_FLAGS.contains(&name).then_some(flags),
                }
            })
        })
    }
}

/// What else the host's byte transports may be used for, and none of ours is (`mca_btl_base_flag_enum_flags`, 4.1 and 5.0).
const OTHER_FLAGS: [&str; 13] = [
    "inplace",
    "signaled",
    "atomics",
    "fetching-atomics",
    "static",
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
    fn flags_have_names() {
        let files = [
            ("a", "send, get"),
            ("b", "7"),
            ("c", "send,atomics"),
            ("e", "send,unheard-of"),
            ("f", "need-ack"),
        ];
        let files = files.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let it = Inherited { prefix: "OMPI_MCA_btl_nobody_".to_owned(), files };
        assert_eq!([c"a", c"b", c"c"].map(|name| it.flags(name)), [Some(5), Some(7), Some(1)]);
        assert_eq!([c"d", c"e"].map(|name| it.flags(name)), [None, None], "nothing, and what nobody knows");
        assert_eq!(it.flags(c"f"), Some(0));
        assert_eq!(
            (it.number(c"b"), it.number(c"a"), it.text(c"c").as_deref()),
            (Some(7), None, Some("send,atomics"))
        );
    }
}

//! What the user, or who looks after the machine, has set of Open MPI's choice of components: by variables of the
//! environment and by files, the nearer before the farther, but for one file that nobody overrules (`mca_base_var`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The file for all users that counts more than variables and command lines.
const FINAL: &str = "openmpi-mca-params-override.conf";

/// A setting of a parameter, or of a framework: which components it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// `btl`
    pub(crate) name: String,
    /// `^ofi,uct`
    pub(crate) value: String,
    /// Where it stands.
    pub(crate) place: String,
}

/// What a setting says of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// Named, and nothing beside what is named.
    Use,
    /// Not named where others are, or named as not to be used.
    Leave,
    /// Nothing.
    Nothing,
}

impl Setting {
    /// Whether no command line counts more.
    pub(crate) fn is_final(&self) -> bool {
        self.place.ends_with(FINAL)
    }

    /// Whether all of it could be read. What is no UTF-8 stands there as the character for that.
    pub(crate) fn is_text(&self) -> bool {
        !self.value.contains(char::REPLACEMENT_CHARACTER)
    }

    /// Whether a ^ stands within a list of components, which no host takes.
    pub(crate) fn is_mixed(&self) -> bool {
        self.value.trim_start().trim_start_matches('^').contains('^')
    }

    /// The components that it names as those to use.
    pub(crate) fn used(&self) -> Vec<&str> {
        let list = if self.value.starts_with('^') { "" } else { &self.value };
        list.split(',').filter(|name| !name.is_empty()).collect()
    }

    /// What it says of a component.
    pub(crate) fn says(&self, component: &str) -> Says {
        let (excludes, list) = match self.value.strip_prefix('^') {
            Some(list) => (true, list),
            None => (false, self.value.as_str()),
        };
        let mut names = list.split(',').filter(|name| !name.is_empty()).peekable();
        if names.peek().is_none() {
            return Says::Nothing;
        }
        match (names.any(|name| name == component), excludes) {
            (true, false) => Says::Use,
            (true, true) | (false, false) => Says::Leave,
            (false, true) => Says::Nothing,
        }
    }
}

/// Lines `name = value` and `-mca name value` of a file of settings.
///
/// HOST: `keyval_lex.l`. A remark is a line of its own, or stands between `/*` and `*/` before a name: behind an = all of the
/// line is the value, quotes and # with it.
fn parse(bytes: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut found = Vec::new();
    let mut rest = bytes.trim_ascii_start();
    while !rest.is_empty() {
        let behind = if let Some(remark) = rest.strip_prefix(b"/*") {
            let end = remark.windows(2).position(|two| two == b"*/");
            end.map_or(&[][..], |end| &remark[end + 2..])
        } else {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let (line, behind) = rest.split_at(end);
            if !line.starts_with(b"#") && !line.starts_with(b"//") {
                found.extend(assignment(line));
            }
            behind
        };
        rest = behind.trim_ascii_start();
    }
    found
}

/// Name and value of a line, if it is one that the host reads.
fn assignment(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_blank = |byte: &u8| b" \t".contains(byte);
    let first_word = |text: &'_ [u8]| text.iter().position(is_blank).unwrap_or(text.len());
    let option = line.strip_prefix(b"--mca").or_else(|| line.strip_prefix(b"-mca"));
    if let Some(words) = option.filter(|words| words.first().is_some_and(is_blank)) {
        let words = words.trim_ascii();
        let (name, value) = words.split_at(first_word(words));
        let value = value.trim_ascii();
        let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        return Some((name, quoted.unwrap_or(&value[..first_word(value)])));
    }
    let (name, value) = line.split_at(line.iter().position(|byte| *byte == b'=')?);
    let (mut name, mut value) = (name, &value[1..]);
    while let [before @ .., last] = name
        && is_blank(last)
    {
        name = before;
    }
    while let [first, behind @ ..] = value
        && is_blank(first)
    {
        value = behind;
    }
    while let [before @ .., last] = value
        && is_blank(last)
    {
        value = before;
    }
    Some((name, value))
}

/// The files that variables and command lines count more than, the nearer first.
fn files(folder: &str) -> Vec<PathBuf> {
    let named = ["mca_base_param_files", "mca_param_files"]
        .iter()
        .find_map(|name| env::var_os(format!("OMPI_MCA_{name}")));
    if let Some(named) = named {
        let names = named.as_bytes().split(|byte| *byte == b',').filter(|name| !name.is_empty());
        return names.filter(|name| *name != b"none").map(|name| OsStr::from_bytes(name).into()).collect();
    }
    let own = env::var_os("HOME").map(|home| PathBuf::from(home).join(".openmpi/mca-params.conf"));
    own.into_iter().chain([Path::new(folder).join("openmpi-mca-params.conf")]).collect()
}

/// What is set of a framework, or of a parameter, where it counts, to the byte, and where that stands.
pub(crate) fn exactly(name: &str, folder: &str) -> Option<(OsString, String)> {
    let in_file = |path: PathBuf| {
        let bytes = fs::read(&path).ok()?;
        // What stands later in a file counts.
        let (_, value) = parse(&bytes).into_iter().rfind(|(known, _)| *known == name.as_bytes())?;
        Some((OsStr::from_bytes(value).to_owned(), path.display().to_string()))
    };
    let variable = format!("OMPI_MCA_{name}");
    in_file(Path::new(folder).join(FINAL))
        .or_else(|| Some((env::var_os(&variable)?, format!("the variable {variable}"))))
        .or_else(|| files(folder).into_iter().find_map(in_file))
}

/// The same as text.
pub(crate) fn of(name: &str, folder: &str) -> Option<Setting> {
    let (value, place) = exactly(name, folder)?;
    Some(Setting { name: name.to_owned(), value: value.to_string_lossy().into_owned(), place })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(value: &str, component: &str) -> Says {
        Setting { name: "btl".to_owned(), value: value.to_owned(), place: String::new() }.says(component)
    }

    #[test]
    fn a_list_names_what_is_used_or_what_is_not() {
        assert_eq!(says("usnic,self", "usnic"), Says::Use);
        // HOST: names are not trimmed.
        assert_eq!(says("tcp, usnic", "usnic"), Says::Leave);
        assert_eq!(says("tcp,self", "usnic"), Says::Leave);
        assert_eq!(says("^usnic,openib", "usnic"), Says::Leave);
        assert_eq!(says("^openib", "usnic"), Says::Nothing);
        assert_eq!(says("", "usnic"), Says::Nothing);
        assert_eq!(says("^", "usnic"), Says::Nothing);
        assert_eq!(says("usnic2", "usnic"), Says::Leave);
    }

    #[test]
    fn what_is_used_is_named_to_the_letter() {
        let used = |value: &str| {
            let setting = Setting { name: "btl".to_owned(), value: value.to_owned(), place: String::new() };
            setting.used().join("|")
        };
        assert_eq!(
            ["smcuda, self", "^tcp", "\"self\",,tcp # x"].map(used),
            ["smcuda| self", "", "\"self\"|tcp # x"]
        );
    }

    #[test]
    fn one_list_either_names_or_leaves_out() {
        let mixed = |value: &str| {
            Setting { name: "btl".to_owned(), value: value.to_owned(), place: String::new() }.is_mixed()
        };
        assert_eq!(
            ["^usnic,tcp", "usnic,self", "usnic,^tcp", "^usnic,^tcp"].map(mixed),
            [false, false, true, true]
        );
    }

    #[test]
    fn one_file_counts_most() {
        let folder = env::temp_dir().join(format!("hawser-info-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let write = |file: &str, text: &str| fs::write(folder.join(file), text).expect("a file");
        write("openmpi-mca-params.conf", "hawser_test_one = far\nhawser_test_two = far\n");
        write(FINAL, "hawser_test_one = final\n");
        let value = |name: &str| {
            let found = of(name, &folder.to_string_lossy()).expect("a setting");
            (found.value.clone(), found.is_final())
        };
        let values = [value("hawser_test_one"), value("hawser_test_two")];
        fs::remove_dir_all(&folder).expect("nothing is left");
        assert_eq!(values, [("final".to_owned(), true), ("far".to_owned(), false)]);
    }

    #[test]
    fn what_is_no_text_is_there_all_the_same() {
        let (name, value) = parse(b"btl = usnic\xff,self\n")[0];
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let setting = Setting { name: text(name), value: text(value), place: String::new() };
        assert!(!setting.is_text() && setting.says("self") == Says::Use);
    }

    #[test]
    fn a_file_has_names_and_values() {
        let read = |text: &'static str| {
            let pairs = parse(text.as_bytes()).into_iter();
            let text = |bytes| str::from_utf8(bytes).expect("text");
            pairs.map(|(name, value)| (text(name), text(value))).collect::<Vec<_>>()
        };
        let remarks = "# btl = none\n  // btl = none\n/* btl = none\nmtl = none */ pml = cm\nodd line\n";
        assert_eq!(read(remarks), [("pml", "cm")]);
        let values =
            "btl = ^uct,openib # not these\n\nmtl=\"^ofi\"\n op =  a b \npml=\naccelerator = cuda\r\n";
        let whole = [
            ("btl", "^uct,openib # not these"),
            ("mtl", "\"^ofi\""),
            ("op", "a b"),
            ("pml", ""),
            ("accelerator", "cuda\r"),
        ];
        assert_eq!(read(values), whole);
        let options = "-mca btl smcuda # words\n--mca mtl \"a b\"\n-mcax y z\n";
        assert_eq!(read(options), [("btl", "smcuda"), ("mtl", "a b")]);
    }
}

//! What the user, or who looks after the machine, has set of Open MPI's choice of components: by variables of the
//! environment and by files, the nearer before the farther, but for one file that nobody overrules (`mca_base_var`).

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

    /// What it says of a component.
    pub(crate) fn says(&self, component: &str) -> Says {
        let (excludes, list) = match self.value.strip_prefix('^') {
            Some(list) => (true, list),
            None => (false, self.value.as_str()),
        };
        let mut names = list.split(',').map(str::trim).filter(|name| !name.is_empty()).peekable();
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

/// Lines `name = value` of a file of settings.
fn parse(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let (name, value) = line.split_once('=')?;
        Some((name.trim(), value.trim().trim_matches('"')))
    })
}

/// What is set of a framework, or of a parameter, where it counts: nothing farther away does.
pub(crate) fn of(name: &str, folder: &str) -> Option<Setting> {
    let setting =
        |value: &str, place: String| Setting { name: name.to_owned(), value: value.to_owned(), place };
    let in_file = |path: PathBuf| {
        let bytes = fs::read(&path).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        // What stands later in a file counts.
        let (_, value) = parse(&text).filter(|(known, _)| *known == name).last()?;
        Some(setting(value, path.display().to_string()))
    };
    if let Some(found) = in_file(Path::new(folder).join(FINAL)) {
        return Some(found);
    }
    let variable = format!("OMPI_MCA_{name}");
    if let Some(value) = env::var_os(&variable) {
        return Some(setting(&value.to_string_lossy(), format!("the variable {variable}")));
    }
    let own = env::var_os("HOME").map(|home| PathBuf::from(home).join(".openmpi/mca-params.conf"));
    let all = Path::new(folder).join("openmpi-mca-params.conf");
    own.into_iter().chain([all]).find_map(in_file)
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
        assert_eq!(says("tcp, usnic", "usnic"), Says::Use);
        assert_eq!(says("tcp,self", "usnic"), Says::Leave);
        assert_eq!(says("^usnic,openib", "usnic"), Says::Leave);
        assert_eq!(says("^openib", "usnic"), Says::Nothing);
        assert_eq!(says("", "usnic"), Says::Nothing);
        assert_eq!(says("^", "usnic"), Says::Nothing);
        assert_eq!(says("usnic2", "usnic"), Says::Leave);
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
        let text = String::from_utf8_lossy(b"btl = usnic\xff,self\n").into_owned();
        let (name, value) = parse(&text).next().expect("a line");
        let setting = Setting { name: name.to_owned(), value: value.to_owned(), place: String::new() };
        assert!(!setting.is_text() && setting.says("self") == Says::Use);
    }

    #[test]
    fn a_file_has_names_and_values() {
        let text = "# btl = none\nbtl = ^uct,openib # not these\n\nmtl=\"^ofi\"\nodd line\n";
        assert!(parse(text).eq([("btl", "^uct,openib"), ("mtl", "^ofi")]));
    }
}

//! Where the host looks for components: the folders of its path, up to where it stops.
//!
//! HOST: 4.1 and 5.0 give up at the first folder that they cannot list, and within a folder at the first name that leads to
//! nothing (`dlopen_foreachfile`); what stands behind it is not there for them. 4.1 without its own components does not start.

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::{env, ffi, fmt, fs, io};

use crate::host::Host;
use crate::settings;

/// What ends a search.
#[derive(Debug)]
pub(crate) enum End {
    /// There is no such folder.
    Missing(PathBuf),
    /// The folder may not be listed, or a name in it not be looked at.
    Forbidden(PathBuf, io::Error),
    /// A link to what is not there.
    Dangling(PathBuf, PathBuf),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(folder) => write!(f, "{} is no folder", folder.display()),
            Self::Forbidden(path, error) => write!(f, "{} cannot be read ({error})", path.display()),
            Self::Dangling(link, target) => {
                write!(f, "{} is a link to {}, which is not there", link.display(), target.display())
            }
        }
    }
}

impl End {
    /// What to do.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Missing(_) => "make the folder, or take it out of the path",
            Self::Forbidden(..) => {
                "chmod a+rX it and the folders above it, or ask the administrator for that"
            }
            Self::Dangling(..) => "remove the link, or install again what it leads to",
        }
    }

    /// What ends a search in this folder, and whether there are components behind it that are not found.
    pub(crate) fn of(folder: &Path) -> Option<(Self, bool)> {
        let because = |path: &Path, error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing(path.to_owned()),
            _ => Self::Forbidden(path.to_owned(), error),
        };
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return Some((because(folder, error), true)),
        };
        let mut end = None;
        for path in entries.flatten().map(|entry| entry.path()) {
            if end.is_some() {
                let name = path.file_name().unwrap_or_default().as_bytes();
                if name.starts_with(b"mca_") && path.exists() {
                    return end.map(|end| (end, true));
                }
            } else if let Err(error) = path.metadata() {
                end = Some(match fs::read_link(&path) {
                    Ok(target) if error.kind() == io::ErrorKind::NotFound => Self::Dangling(path, target),
                    _ => Self::Forbidden(path, error),
                });
            }
        }
        end.map(|end| (end, false))
    }
}

/// A path of components, and how far the host gets.
pub(crate) struct Search {
    /// All folders that the path names.
    pub(crate) folders: Vec<PathBuf>,
    /// How many of them are looked into.
    reach: usize,
    end: Option<End>,
    /// Whether the host finds all components of its own.
    has_own: bool,
    /// Who says the path, if not the host.
    place: Option<String>,
    own: PathBuf,
}

/// The path as somebody has set it.
pub(crate) fn set(folder: &str) -> Option<(ffi::OsString, String)> {
    ["mca_base_component_path", "mca_component_path"].iter().find_map(|name| settings::exactly(name, folder))
}

impl Search {
    /// What the host does here.
    pub(crate) fn of(host: &Host) -> Self {
        let (path, place) = match set(&host.settings) {
            Some((path, place)) => (path.into_vec(), Some(place)),
            None => (host.component_path.clone().into_bytes(), None),
        };
        Self::along(&path, &host.own, place)
    }

    fn along(path: &[u8], own: &Path, place: Option<String>) -> Self {
        let folder = |word: &[u8]| match word {
            b"SYS_DEFAULT" | b"SYSTEM_DEFAULT" => own.to_owned(),
            b"USER_DEFAULT" | b"USR_DEFAULT" => {
                PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".openmpi/components")
            }
            _ => PathBuf::from(ffi::OsStr::from_bytes(word)),
        };
        // HOST: empty words are passed over (strtok).
        let words = path.split(|byte| *byte == b':').filter(|word| !word.is_empty());
        let folders: Vec<_> = words.map(folder).collect();
        let found = folders.iter().enumerate().find_map(|(at, folder)| Some((at, End::of(folder)?)));
        let is_own = |folder: &PathBuf| is_same(folder, own);
        let at_own = folders.iter().position(is_own);
        let (reach, end, has_own) = match found {
            None => (folders.len(), None, at_own.is_some()),
            Some((at, (end, loses))) => {
                let has_own = at_own.is_some_and(|own| own < at || own == at && !loses);
                // What nothing stands behind does no harm.
                let harms = !has_own || loses && matches!(end, End::Dangling(..)) || at + 1 < folders.len();
                (at + 1, harms.then_some(end), has_own)
            }
        };
        Self { folders, reach, end, has_own, place, own: own.to_owned() }
    }

    /// Those that the host looks into.
    pub(crate) fn reached(&self) -> &[PathBuf] {
        &self.folders[..self.reach]
    }

    /// Whether `mpirun` does not even start.
    pub(crate) fn is_fatal(&self, host: &Host) -> bool {
        host.is("4.") && !self.has_own
    }

    /// What is wrong with the path, in words, and what to do.
    pub(crate) fn trouble(&self, host: &Host) -> Option<(String, String)> {
        let told = self.place.as_ref().map_or_else(String::new, |place| format!(" ({place} says it)"));
        let effect = match &self.end {
            _ if self.is_fatal(host) => {
                "Open MPI 4.1 then does not find its own components, or not all of them, and mpirun does not start"
            }
            _ => "Open MPI looks no further, and does not find what stands behind it",
        };
        if let Some(end) = &self.end {
            let what = format!("{end}; it is on mca_base_component_path{told}: {effect}");
            return Some((what, end.remedy().to_owned()));
        }
        let own = self.own.display();
        (!self.has_own).then(|| {
            let effect = if host.is("4.") { effect } else { "Open MPI then does not find what lies there" };
            (
                format!("mca_base_component_path{told} lacks {own}, which is Open MPI's own: {effect}"),
                format!("add it at the end: …:{own}"),
            )
        })
    }
}

/// Whether two paths lead to one folder.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ends_at_what_is_not_there() {
        let root = env::temp_dir().join(format!("hawser-info-search-{}", std::process::id()));
        for folder in ["own", "good", "dangling"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        fs::write(root.join("own/mca_btl_self.so"), "").expect("a file");
        std::os::unix::fs::symlink("/nowhere/x.so", root.join("dangling/mca_mtl_ofi.so")).expect("a link");
        // How many are looked into, whether something is wrong, whether the host's own are found.
        let search = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| root.join(word).display().to_string()).collect();
            let path = words.join(":").replace(&format!("{}:", root.join("").display()), ":");
            let search = Search::along(path.as_bytes(), &root.join("own"), None);
            (search.reach, search.end.is_some(), search.has_own)
        };
        let found = [
            search(&["good", "own"]),
            search(&["", "good", "", "own"]),
            search(&["dangling", "own"]),
            search(&["own", "dangling"]),
            search(&["own", "missing"]),
            search(&["own", "missing", "good"]),
            search(&["good"]),
        ];
        fs::remove_dir_all(&root).expect("nothing is left");
        let expected = [
            (2, false, true),
            (2, false, true),
            (1, true, false),
            (2, false, true),
            (2, false, true),
            (2, true, true),
            (1, false, false),
        ];
        assert_eq!(found, expected);
    }
}

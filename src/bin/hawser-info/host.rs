//! The Open MPI that is used here, as `ompi_info` tells.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fmt, thread};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::search;

/// How long `ompi_info` may take: it opens every component, which takes it a second or two.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much it may say: it says a fifth of that.
const MOST: u64 = 4 << 20;

/// What `--probe` ends with when the host's own library cannot be loaded, or hawser's.
pub(crate) const NO_HOST: u8 = 3;
pub(crate) const NO_LIBRARY: u8 = 4;

/// An Open MPI on PATH.
pub(crate) struct Host {
    pub(crate) version: String,
    /// Where it looks for components when nobody has set that.
    pub(crate) component_path: String,
    /// The folder of its own components.
    pub(crate) own: PathBuf,
    /// The components that it has: `btl_self`.
    pub(crate) components: BTreeSet<String>,
    /// Where its file of settings for all users lies.
    pub(crate) settings: String,
}

/// Why nothing is known of an Open MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// There is no `ompi_info`, or it does not run.
    Missing(String),
    /// It runs, and does not end.
    Silent,
    /// It ends, and does not say what it should.
    Odd,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(why) => f.write_str(why),
            Self::Silent => {
                write!(f, "ompi_info has not ended within {} s, and was killed", PATIENCE.as_secs())
            }
            Self::Odd => {
                f.write_str("ompi_info does not run, or says neither its version nor where components lie")
            }
        }
    }
}

impl Absent {
    /// What to do.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Missing(_) => "install it (Debian: openmpi-bin), or put its folder on PATH",
            Self::Silent => {
                "run `ompi_info --all` to see where it stops: a network file system that does not answer, or a component that waits"
            }
            Self::Odd => "run `ompi_info --parsable --all`: what it says is the reason",
        }
    }
}

/// Why hawser and a host do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// hawser does not know this host.
    Host(String),
    /// The host's own library cannot be loaded.
    Own(String),
    /// hawser's cannot.
    Library(String),
    /// Nor may it be read.
    Forbidden(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Host(why) | Self::Own(why) | Self::Library(why) | Self::Forbidden(why)) = self;
        f.write_str(why)
    }
}

impl Refusal {
    /// What to do.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Host(_) => {
                "use Open MPI 4.1 or 5.0 as distributions build it; the other one, if this is one"
            }
            Self::Own(_) => "install Open MPI's library anew, or put its folder into LD_LIBRARY_PATH",
            Self::Forbidden(_) => {
                "chmod a+rX the library and the folders above it, or ask the administrator for that"
            }
            Self::Library(_) => {
                "the file is damaged, or lacks what the line names: install hawser anew (`make install`)"
            }
        }
    }
}

/// What a program prints, at most [`MOST`] of it. It is killed, with all that it has started, when it has not ended in time.
fn text_of(command: &mut Command, patience: Duration) -> Result<String, Absent> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => Absent::Missing("ompi_info is not on PATH".to_owned()),
            _ => Absent::Missing(format!("ompi_info does not run ({error})")),
        })?;
    let (sender, receiver) = mpsc::channel();
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(pipe), Some(id)) = (child.stdout.take(), id) {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.take(MOST).read_to_end(&mut bytes);
            // Who has closed its output may go on all the same. Its number stays its own until it is waited for below.
            let _ = waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            // Nobody listens once the time is up.
            let _ = sender.send(bytes);
        });
    }
    let bytes = receiver.recv_timeout(patience);
    let _ = id.map(|id| kill_process_group(id, Signal::KILL));
    let _ = child.wait();
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(|_| Absent::Silent)
}

impl Host {
    /// The Open MPI whose `ompi_info` is the first on PATH.
    pub(crate) fn find() -> Result<Self, Absent> {
        let mut command = Command::new("ompi_info");
        command.args(["--parsable", "--all"]);
        command.env_remove("OMPI_MCA_mca_base_component_path").env_remove("OMPI_MCA_mca_component_path");
        let text = text_of(&mut command, PATIENCE)?;
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key))
                .map(|value| value.trim_matches('"').to_owned())
        };
        let version = value("ompi:version:full:");
        let component_path = value("mca:mca:base:param:mca_base_component_path:value:")
            .or_else(|| value("mca:mca:base:param:mca_component_path:value:"));
        let (Some(version), Some(component_path)) = (version, component_path) else {
            return Err(Absent::Odd);
        };
        let settings = value("path:sysconfdir:").unwrap_or_else(|| "/etc/openmpi".to_owned());
        // A path that a file sets says nothing of the host's own.
        let first = component_path.split(':').next().unwrap_or_default();
        let own = match search::set(&settings) {
            Some(_) => value("path:pkglibdir:").unwrap_or_else(|| first.to_owned()),
            None => first.to_owned(),
        };
        let components = text.lines().filter_map(component).collect();
        Ok(Self { version, component_path, own: own.into(), components, settings })
    }

    /// One that is nowhere.
    #[cfg(test)]
    pub(crate) fn of_release(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            component_path: "/own".to_owned(),
            own: "/own".into(),
            components: BTreeSet::new(),
            settings: "/nowhere".to_owned(),
        }
    }

    /// Loads the host's libraries and hawser in a process of their own and asks hawser.
    pub(crate) fn verdict(&self, library: &Path) -> Result<(), Refusal> {
        let program = env::current_exe().map_err(|error| Refusal::Host(error.to_string()))?;
        let output = Command::new(program)
            .arg("--probe")
            .arg(library)
            .output()
            .map_err(|error| Refusal::Host(error.to_string()))?;
        let why = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match (output.status.code(), output.status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) if code == i32::from(NO_HOST) => Err(Refusal::Own(why)),
            (Some(code), _) if code == i32::from(NO_LIBRARY) => {
                let opened = File::open(library);
                let is_forbidden = opened.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
                Err(if is_forbidden { Refusal::Forbidden(why) } else { Refusal::Library(why) })
            }
            (None, Some(signal)) => {
                let library = library.display();
                Err(Refusal::Library(format!("{library}: loading it ends a process with signal {signal}")))
            }
            _ => Err(Refusal::Host(why)),
        }
    }

    /// Whether it is of this release: `4.1`, or `5.`
    pub(crate) fn is(&self, release: &str) -> bool {
        self.version.starts_with(release)
    }

    /// The line that works on this host, with the `words` that choose a component of that folder; or why none does.
    pub(crate) fn command(&self, directory: &Path, words: &str) -> Result<String, String> {
        let mut line = "mpirun -n 2".to_owned();
        let is_told = search::set(&self.settings).is_some();
        if !search::is_same(directory, &self.own) || is_told || !self.is("4.") {
            // 5.0's mpirun overrides the variable for applications: the command line is what counts.
            line += &format!(" --mca mca_base_component_path {}", path_of(directory, &self.own)?);
        }
        if !self.is("4.") {
            line += " --pmixmca mca_base_component_show_load_errors none";
        }
        Ok(format!("{line} {words} PROGRAM"))
    }
}

/// A path of components that begins with that folder, as a shell reads it; or why there is none.
pub(crate) fn path_of(directory: &Path, own: &Path) -> Result<String, String> {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let shown = directory.display();
    if shown.to_string().contains(':') {
        return Err(format!(
            "no path of components can name {shown}, because of the : in it; move it, or link to it"
        ));
    }
    if directory.to_str().is_none() {
        return Err(format!("the name of {shown} is not all text (UTF-8); rename it, or link to it"));
    }
    if search::is_same(&directory, own) {
        return Ok(quoted(&own.display().to_string()));
    }
    if let Some((end, _)) = search::End::of(&directory) {
        return Err(format!("{end}: Open MPI looks no further, and finds none of its own components"));
    }
    Ok(quoted(&format!("{shown}:{}", own.display())))
}

/// A word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    if word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+:,@%=".contains(&byte)) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The component that a line of `ompi_info`'s is about: `mca:btl:self:version:"component:4.1.4"`.
fn component(line: &str) -> Option<String> {
    let mut words = line.strip_prefix("mca:")?.split(':');
    let (framework, name, what) = (words.next()?, words.next()?, words.next()?);
    (what == "version").then(|| format!("{framework}_{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let told = |words: &[&str], patience| text_of(Command::new("sh").args(["-c"]).args(words), patience);
        assert_eq!(told(&["echo it"], PATIENCE), Ok("it\n".to_owned()));
        assert_eq!(told(&["exec sleep 1000"], Duration::from_millis(50)), Err(Absent::Silent));
        let patience = Duration::from_millis(300);
        assert_eq!(
            told(&["exec >&-; exec sleep 1000"], patience),
            Err(Absent::Silent),
            "it says nothing more"
        );
        let most = told(&["exec yes"], PATIENCE).expect("it ends when nobody reads on");
        assert_eq!(most.len() as u64, MOST);
        let grandchild = told(&["sleep 1000 >/dev/null & echo $!"], PATIENCE).expect("its number");
        let stat = format!("/proc/{}/stat", grandchild.trim());
        let is_there = || {
            std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z") && !text.contains(") X"))
        };
        assert!((0..1_000_000).any(|_| !is_there()), "what it has started is killed, too");
        let missing = text_of(&mut Command::new("/nowhere/ompi_info"), PATIENCE);
        assert_eq!(missing, Err(Absent::Missing("ompi_info is not on PATH".to_owned())));
    }

    #[test]
    fn a_line_is_what_a_shell_reads() {
        assert_eq!(quoted("/usr/lib/x86_64-linux-gnu"), "/usr/lib/x86_64-linux-gnu");
        assert_eq!(quoted("/a b/$c"), "'/a b/$c'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert!(path_of(Path::new("/a:b"), Path::new("/own")).is_err_and(|why| why.contains("the : in it")));
        assert_eq!(path_of(Path::new("/own"), Path::new("/own")).as_deref(), Ok("/own"));
    }

    #[test]
    fn what_the_host_has_is_read_from_its_lines() {
        let names = ["mca:btl:self:version:\"component:4.1.4\"", "mca:btl:tcp:param:btl_tcp_links:value:7"];
        assert_eq!(names.map(component), [Some("btl_self".to_owned()), None]);
    }
}

//! The Open MPI that is used here, as `ompi_info` tells.

use std::env;
use std::path::Path;
use std::process::Command;

/// An Open MPI on PATH.
pub(crate) struct Host {
    pub(crate) version: String,
    pub(crate) component_path: String,
    /// Where its file of settings for all users lies.
    pub(crate) settings: String,
}

impl Host {
    pub(crate) fn find() -> Option<Self> {
        let output = Command::new("ompi_info")
            .args(["--parsable", "--all"])
            .env_remove("OMPI_MCA_mca_base_component_path")
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key))
                .map(|value| value.trim_matches('"').to_owned())
        };
        Some(Self {
            version: value("ompi:version:full:")?,
            component_path: value("mca:mca:base:param:mca_base_component_path:value:")
                .or_else(|| value("mca:mca:base:param:mca_component_path:value:"))?,
            settings: value("path:sysconfdir:").unwrap_or_else(|| "/etc/openmpi".to_owned()),
        })
    }

    /// Loads the host's libraries and hawser in a process of their own and asks hawser.
    pub(crate) fn verdict(&self, library: &Path) -> Result<(), String> {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let output =
            Command::new(program).arg("--probe").arg(library).output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
    }

    /// The line that works on this host, with the `words` that choose a component.
    pub(crate) fn command(&self, directory: &Path, words: &str) -> String {
        let own = self.component_path.split(':').next().unwrap_or("");
        let mut line = "mpirun -n 2".to_owned();
        if directory != Path::new(own) || !self.version.starts_with("4.") {
            // 5.0's mpirun overrides the variable for applications: the command line is what counts.
            line += &format!(" --mca mca_base_component_path {}:{own}", directory.display());
        }
        if !self.version.starts_with("4.") {
            line += " --pmixmca mca_base_component_show_load_errors none";
        }
        format!("{line} {words} PROGRAM")
    }
}

//! Finds `pmdscope-pdump`, and the DPDK that it was built with.

use std::env;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::wait_for;

/// Name of the program.
pub(super) const NAME: &str = "pmdscope-pdump";

/// Prefix of the name of a program that was built for another release, which follows.
const RELEASE_PREFIX: &str = "pdump-";

/// Command that builds a helper for another DPDK.
pub const BUILD_COMMAND: &str = "pmdscope-pdump-build DPDK_PREFIX";

/// Environment variable with the path of the program.
const VARIABLE: &str = "PMDSCOPE_PDUMP";

/// Directories of the program, relative to an ancestor of our own directory, by number of levels:
/// next to ours, installed, and in a build tree.
const DIRS: [(usize, &str); 3] = [(0, ""), (1, "libexec/pmdscope"), (2, "build/pdump")];

/// How long it may take to print its version, which needs neither hugepages nor an app.
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);

/// Why no program can be started.
#[derive(Debug, thiserror::Error)]
pub enum PdumpProgramError {
    /// It was not found in these places.
    #[error(
        "{NAME} is not installed; `{BUILD_COMMAND}` builds it with the DPDK of the app; looked for {}",
        list(.0)
    )]
    Missing(Vec<PathBuf>),
    /// It does not run; its path and the reason.
    #[error("{} reports no version{}; reinstall it, or name another by {VARIABLE}",
        .0.display(), reason(.1))]
    Broken(PathBuf, String),
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn reason(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

/// A `pmdscope-pdump` that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdumpProgram {
    /// Its path.
    pub path: PathBuf,
    /// The DPDK that it was built with, as "DPDK 22.11.11"; it can attach only to apps of the same
    /// release.
    pub dpdk: String,
}

/// Returns the year and month of a version such as "DPDK 22.11.11": by DPDK's policy, all its
/// updates have the same ABI.
pub fn release(version: &str) -> Option<&str> {
    let version = version.strip_prefix("DPDK ").unwrap_or(version);
    let mut dots = version.match_indices('.').map(|(at, _)| at);
    let year = dots.next()?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let month = version[year + 1..].find(|letter: char| !letter.is_ascii_digit());
    let end = month.map_or(version.len(), |month| year + 1 + month);
    (digits(&version[..year]) && digits(&version[year + 1..end])).then(|| &version[..end])
}

impl PdumpProgram {
    /// Finds the program for an app with this version of DPDK: the one that `$PMDSCOPE_PDUMP`
    /// names, or else one near our own program. There `pdump-RELEASE` precedes the one that
    /// pmdscope was built with, which may be of another release.
    ///
    /// # Errors
    /// When there is none, or it reports no version.
    pub fn find(dpdk: &str) -> Result<Self, PdumpProgramError> {
        let own = env::current_exe().ok();
        let places = places(env::var_os(VARIABLE), own.as_deref(), release(dpdk));
        match places.iter().find(|path| path.is_file()) {
            Some(path) => Self::at(path),
            None => Err(PdumpProgramError::Missing(places)),
        }
    }

    fn at(path: &Path) -> Result<Self, PdumpProgramError> {
        let broken = |why| PdumpProgramError::Broken(path.to_owned(), why);
        let (said, errors) = ask(path).map_err(|error| broken(error.to_string()))?;
        // The dynamic linker names a missing library in its last line.
        let why = || errors.lines().map(str::trim).rfind(|line| !line.is_empty());
        let dpdk = version(&said).ok_or_else(|| broken(why().unwrap_or_default().to_owned()))?;
        Ok(Self { path: path.to_owned(), dpdk: dpdk.to_owned() })
    }
}

fn places(named: Option<OsString>, own: Option<&Path>, release: Option<&str>) -> Vec<PathBuf> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    let Some(dir) = own.and_then(Path::parent) else { return vec![NAME.into()] };
    let dirs = DIRS.map(|(above, below)| Some(dir.ancestors().nth(above)?.join(below)));
    let own_release = release.map(|release| format!("{RELEASE_PREFIX}{release}"));
    let files = own_release.into_iter().chain([NAME.to_owned()]);
    files.flat_map(|file| dirs.iter().flatten().map(move |dir| dir.join(&file))).collect()
}

/// Runs it with `--version` until the timeout; returns its standard output and its errors.
fn ask(path: &Path) -> std::io::Result<(String, String)> {
    let mut command = Command::new(path);
    // A signal from the terminal must not look like a broken program.
    command.process_group(0);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if wait_for(&mut child, VERSION_TIMEOUT)?.is_none() {
        // It may be killed, since it is not attached to an app.
        child.kill()?;
        child.wait()?;
    }
    let (mut said, mut errors) = (String::new(), Vec::new());
    if let Some(out) = child.stdout.take() {
        out.take(256).read_to_string(&mut said)?;
    }
    if let Some(out) = child.stderr.take() {
        out.take(4096).read_to_end(&mut errors)?;
    }
    Ok((said, String::from_utf8_lossy(&errors).into_owned()))
}

/// Returns the DPDK in `pmdscope-pdump 0.1.0 (DPDK 22.11.11)`.
fn version(said: &str) -> Option<&str> {
    let (_, version) = said.strip_prefix(NAME)?.trim_end().strip_suffix(')')?.split_once('(')?;
    version.starts_with("DPDK ").then_some(version)
}

#[cfg(test)]
mod tests {
    use super::super::script::script;
    use super::*;

    #[test]
    fn the_variable_precedes_the_directory_of_this_program() {
        let own = Path::new("/opt/bin/pmdscope");
        assert_eq!(places(Some("/x/y".into()), Some(own), None), [PathBuf::from("/x/y")]);
        let near = [
            "/opt/bin/pmdscope-pdump",
            "/opt/libexec/pmdscope/pmdscope-pdump",
            "/build/pdump/pmdscope-pdump",
        ];
        assert_eq!(places(Some("".into()), Some(own), None), near.map(PathBuf::from));
        let places = places(None, Some(own), Some("25.11"));
        assert_eq!(places[1], PathBuf::from("/opt/libexec/pmdscope/pdump-25.11"));
        assert_eq!(places[3..], near.map(PathBuf::from));
        let error = PdumpProgramError::Missing(places).to_string();
        assert!(error.contains("/opt/libexec/pmdscope/pdump-25.11, "), "{error}");
        assert!(error.contains("`pmdscope-pdump-build DPDK_PREFIX`"), "{error}");
    }

    #[test]
    fn a_release_is_a_year_and_a_month() {
        for (version, expected) in [
            ("DPDK 22.11.11", Some("22.11")),
            ("DPDK 26.07.0-rc1", Some("26.07")),
            ("25.11", Some("25.11")),
            ("DPDK 24.11-vendor.3", Some("24.11")),
            ("DPDK", None),
            ("DPDK x.11", None),
            ("DPDK 22.", None),
            ("", None),
        ] {
            assert_eq!(release(version), expected, "{version}");
        }
    }

    #[test]
    fn the_version_is_that_of_its_dpdk() {
        let said = "pmdscope-pdump 0.1.0 (DPDK 22.11.11)\n";
        assert_eq!(version(said), Some("DPDK 22.11.11"));
        for bad in ["", "pmdscope-pdump", "pmdscope-pdump 1 ()", "other 1 (DPDK 1)", ")("] {
            assert_eq!(version(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_program_that_hangs_or_cannot_be_run_is_an_error() {
        let (_dir, good) = script("echo 'pmdscope-pdump 1 (DPDK 25.11.0)'");
        assert_eq!(PdumpProgram::at(&good).unwrap().dpdk, "DPDK 25.11.0");
        let (dir, good) =
            script("ps -o pgid= -p $$ >\"$0.group\"; echo 'pmdscope-pdump 1 (DPDK 1)'");
        PdumpProgram::at(&good).unwrap();
        let group = std::fs::read_to_string(dir.path().join("pmdscope-pdump.group")).unwrap();
        let ours = rustix::process::getpgrp().as_raw_nonzero().to_string();
        assert_ne!(group.trim(), ours);
        let (_dir, hangs) = script("exec sleep infinity");
        let error = PdumpProgram::at(&hangs).unwrap_err().to_string();
        assert!(error.contains("reports no version"), "{error}");
        let missing = "librte_eal.so.23: cannot open shared object file: No such file or directory";
        let (_dir, unlinked) = script(&format!(
            "echo warning >&2; echo 'pmdscope-pdump: error while loading shared libraries: {missing}' >&2
             exit 127"
        ));
        let error = PdumpProgram::at(&unlinked).unwrap_err().to_string();
        assert!(
            error.contains(&format!("loading shared libraries: {missing}; reinstall")),
            "{error}"
        );
        let error = PdumpProgram::at(Path::new("/etc/passwd")).unwrap_err().to_string();
        assert!(error.to_lowercase().contains("permission denied"), "{error}");
    }
}

//! Versions of all components: pmdscope, the system, and the apps.

use std::fmt::Write;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pmdscope_render::number::{UNKNOWN, known};
use pmdscope_telemetry::discover::FindError;
use pmdscope_telemetry::fleet::obstacle;
use pmdscope_telemetry::{FleetSettings, parallel};

use crate::attach::running::RunningApp;
use crate::session;

/// An app, and what it runs on.
#[derive(Clone, Debug)]
pub(super) struct VersionedApp {
    pub(super) name: String,
    /// It reports about itself.
    pub(super) answers: bool,
    /// Why it does not, if that is known.
    pub(super) silent: Option<String>,
    pid: Option<u32>,
    dpdk: Option<String>,
    library: Option<String>,
    level: Option<u8>,
}

impl VersionedApp {
    /// It has libpmdscope.
    pub(super) fn is_linked(&self) -> bool {
        self.library.is_some()
    }

    fn of(running: RunningApp) -> Self {
        let RunningApp { app, sample } = running;
        let library = sample.as_ref().and_then(|sample| sample.library.as_ref());
        Self {
            silent: obstacle(&app).map(|(_, why)| why),
            name: app.name,
            answers: sample.is_some(),
            pid: app.pid,
            dpdk: app.dpdk_version,
            library: library.map(|library| library.version.clone()),
            level: sample.as_ref().map(pmdscope_telemetry::sample::Sample::level),
        }
    }
}

/// All apps, or the chosen one.
///
/// # Errors
///
/// When no app, or several, have the name of the chosen one.
pub(super) fn ask(
    settings: &FleetSettings,
    chosen: Option<&str>,
) -> Result<Vec<VersionedApp>, FindError> {
    let found = settings.apps(chosen, &[])?;
    session::tell_left_out(settings);
    let asked = parallel::map(found, |app| {
        let silent = RunningApp { app: app.clone(), sample: None };
        catch_unwind(AssertUnwindSafe(|| RunningApp::ask(app))).unwrap_or(silent)
    });
    Ok(asked.into_iter().map(VersionedApp::of).collect())
}

/// The versions as text.
pub(super) fn text(apps: &[VersionedApp]) -> String {
    let system = rustix::system::uname();
    let mut out = format!("pmdscope      {}\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(
        out,
        "kernel        {} {} {} {}",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.version().to_string_lossy(),
        system.machine().to_string_lossy()
    );
    let _ = writeln!(out, "distribution  {}", distribution());
    for app in apps {
        let library = match (&app.library, app.answers) {
            (Some(version), _) => version.as_str(),
            (None, true) => "none",
            (None, false) => UNKNOWN,
        };
        let dpdk = app.dpdk.as_deref().unwrap_or(UNKNOWN);
        let level = known(app.level, |level| level.to_string());
        let pid = known(app.pid, |pid| pid.to_string());
        let name = &app.name;
        let _ =
            writeln!(out, "app {name}: {dpdk}, libpmdscope {library}, level {level}, pid {pid}");
    }
    out
}

fn distribution() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| UNKNOWN.to_owned(), |name| name.trim_matches('"').to_owned())
}

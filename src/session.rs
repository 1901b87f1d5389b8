//! The apps that a command uses.

use std::sync::Arc;

use anyhow::Result;
use pmdscope_interrupts::{Tracer, TracerOptions};
use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::sample::Sample;
use pmdscope_telemetry::{AppStatus, Fleet, FleetSettings, FleetState};
use pmdscope_xray::XrayReader;

use crate::config::ConfigArg;
use crate::{completions, output};

/// Which apps to look at.
#[derive(clap::Args, Clone)]
pub(crate) struct AppArg {
    /// Only this app [default: all]
    ///
    /// NAME is the name or the DPDK file-prefix of the app, after USER/ for an app of a user other than
    /// root and yourself.
    #[arg(short, long, value_name = "NAME", add = completions::apps())]
    pub(crate) app: Option<String>,

    #[command(flatten)]
    pub(crate) config: ConfigArg,
}

impl AppArg {
    /// The chosen apps, not sampled yet.
    ///
    /// # Errors
    ///
    /// When there is none, when the only one cannot be asked, or the configuration is wrong.
    pub(crate) fn fleet(&self) -> Result<Fleet> {
        start(self, &self.settings()?)
    }

    /// The chosen app in a sentence, or all.
    pub(crate) fn text(&self) -> &str {
        self.app.as_deref().unwrap_or("all apps")
    }

    /// Where apps are looked for, and how they are judged.
    ///
    /// # Errors
    ///
    /// When the configuration is wrong.
    pub(crate) fn settings(&self) -> Result<FleetSettings> {
        Ok(self.config.load()?.settings)
    }

    /// The one app that is meant.
    ///
    /// # Errors
    ///
    /// When there is none, when there are several, when it cannot be asked, or the configuration is
    /// wrong.
    pub(crate) fn the_app(&self) -> Result<DiscoveredApp> {
        Ok(self.settings()?.find(self.app.as_deref())?)
    }
}

/// Reports what the last search left out.
pub(crate) fn tell_left_out(settings: &FleetSettings) {
    if let Some(text) = settings.discover.left_out.text() {
        output::tell(&text);
    }
}

/// Reports the apps that do not answer, and why.
pub(crate) fn tell_silent(fleet: &FleetState) {
    for app in &fleet.apps {
        if let AppStatus::Lost { reason } = &app.status {
            output::tell(&format!("{}: {reason}", app.name));
        }
    }
    for (app, model) in fleet.models() {
        tell_left_out_threads(&app.name, &model.sample);
    }
}

/// Says which threads of an app may poll, and are not looked at.
pub(crate) fn tell_left_out_threads(app: &str, sample: &Sample) {
    for left_out in &sample.threads_left_out {
        output::tell(&format!("{app}: not looked at: {left_out}"));
    }
}

/// The chosen apps, not sampled yet, with these settings.
///
/// # Errors
///
/// As [`AppArg::fleet`].
pub(crate) fn start(app: &AppArg, settings: &FleetSettings) -> Result<Fleet> {
    let fleet = Fleet::start(app.app.as_deref(), settings.clone())?;
    tell_left_out(settings);
    Ok(fleet)
}

/// Whether the memory of apps is read.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct XrayArg {
    /// Do not read the memory of apps
    ///
    /// Without libpmdscope, the objects of mempools and rings are counted in the memory of the app, from
    /// outside. That needs root, CAP_SYS_PTRACE, or the user of the app where the kernel allows it.
    #[arg(long, conflicts_with = "replay")]
    no_xray: bool,
}

impl XrayArg {
    pub(crate) fn is_allowed(self) -> bool {
        !self.no_xray
    }

    /// Counts pools and rings of the apps that are sampled by these settings, where it may.
    pub(crate) fn add_to(self, settings: &mut FleetSettings) {
        xray_unless(self.no_xray, settings);
    }
}

/// Counts pools and rings of the apps that are sampled by these settings, where it may, unless that is unwanted.
pub(crate) fn xray_unless(unwanted: bool, settings: &mut FleetSettings) {
    if !unwanted {
        settings.occupancy = Some(Arc::new(XrayReader::new(false)));
    }
}

/// Counts pools and rings of the apps that are sampled by these settings. Where it may not, a part of their
/// samples has failed.
pub(crate) fn require_xray(settings: &mut FleetSettings) {
    settings.occupancy = Some(Arc::new(XrayReader::new(true)));
}

/// Reports why pools and rings could not be counted.
pub(crate) fn tell_uncounted(fleet: &FleetState) {
    for (app, model) in fleet.models() {
        let xray = model.sample.xray.as_ref();
        if let Some(problem) = xray.and_then(|xray| xray.problem.as_ref()) {
            output::tell(&format!("note: {}: mempools and rings: {problem}", app.name));
        }
    }
}

/// Traces what takes the CPU from the lcores of the apps that are sampled by these settings from now on.
/// Reports it if this machine does not let us trace events: then only the counters of `/proc` are read.
pub(crate) fn trace(settings: &mut FleetSettings) -> Arc<Tracer> {
    let options = TracerOptions::default();
    if let Err(reason) = options.check() {
        output::tell(&format!(
            "note: --interrupts: {reason}; until then, counters of /proc are used"
        ));
    }
    let tracer = Tracer::start(options);
    settings.tracer = Some(tracer.clone());
    tracer
}

/// Reports what of the stolen time could not be traced.
pub(crate) fn tell_untraced(fleet: &FleetState) {
    for (app, model) in fleet.models() {
        let missing = model.sample.tracing.iter().flat_map(|tracing| &tracing.missing);
        for missing in missing {
            output::tell(&format!("note: {}: not traced: {missing}", app.name));
        }
    }
}

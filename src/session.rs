//! Which apps a command looks at.

use anyhow::Result;
use pmdscope_telemetry::discover::App;
use pmdscope_telemetry::{Fleet, Settings};

/// Which apps to look at.
#[derive(clap::Args, Clone)]
pub(crate) struct AppArg {
    /// The app, by its DPDK file-prefix; all running apps without it
    #[arg(short, long, value_name = "PREFIX")]
    pub(crate) app: Option<String>,
}

impl AppArg {
    /// The chosen apps, not sampled yet.
    ///
    /// # Errors
    ///
    /// When there is none, or the only one cannot be asked.
    pub(crate) fn fleet(&self) -> Result<Fleet> {
        Ok(Fleet::start(self.app.as_deref(), Settings::default())?)
    }

    /// The one app that is meant.
    ///
    /// # Errors
    ///
    /// When there is none, when there are several, or when it cannot be asked.
    pub(crate) fn the_app(&self) -> Result<App> {
        Ok(Settings::default().find(self.app.as_deref())?)
    }
}

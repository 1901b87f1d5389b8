//! The apps that a command uses.

use anyhow::Result;
use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::{Fleet, FleetSettings};

use crate::config::ConfigArg;

/// Which apps to look at.
#[derive(clap::Args, Clone)]
pub(crate) struct AppArg {
    /// Only this app [default: all]
    ///
    /// NAME is the name or the DPDK file-prefix of the app, or a unique prefix of one.
    #[arg(short, long, value_name = "NAME")]
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
        Ok(Fleet::start(self.app.as_deref(), self.settings()?)?)
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

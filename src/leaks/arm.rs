//! `--arm`, `--disarm`: switches the stamps of an app.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use pmdscope_telemetry::endpoint::ArmTime;
use pmdscope_telemetry::leak::LedgerMode;
use pmdscope_telemetry::{Collector, Error};

use super::the_app;
use crate::output;
use crate::session::{AppArg, ROUND_TIMEOUT};

/// Arms for so many seconds; 0 disarms.
pub(super) fn run(chosen: &AppArg, seconds: u32) -> Result<ExitCode> {
    let time = ArmTime::seconds(seconds).context("at most a day")?;
    let app = the_app(chosen)?;
    let name = app.name.clone();
    let answer = match Collector::new(app).arm(time, ROUND_TIMEOUT) {
        Err(Error::Null) => bail!(
            "{name} writes no stamps: it runs without libpmdscope, or with one that has no leak ledger"
        ),
        other => other.with_context(|| format!("cannot switch the stamps of {name}"))?,
    };
    match (seconds, answer.armed, answer.mode) {
        (0, 0, _) => output::print(&format!("{name}: no stamps are written\n"))?,
        (0, _, mode) => bail!("{name}: stamps are still written: its mode is {mode}"),
        (_, 0, LedgerMode::Never) => {
            bail!("{name} never writes stamps: it was started with the mode never")
        }
        (_, 0, mode) => bail!("{name}: the stamps were not armed (mode {mode})"),
        (seconds, _, mode) => output::print(&format!(
            "{name}: stamps are written for the next {seconds} s (mode {mode})\n"
        ))?,
    };
    Ok(ExitCode::SUCCESS)
}

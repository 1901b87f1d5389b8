//! `--arm`, `--disarm`: arms and disarms the stamps of an app.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use pmdscope_telemetry::sample::LedgerMode;
use pmdscope_telemetry::{ArmTime, SampleCollector, TelemetryError};

use super::report::why_no_ledger_of;
use crate::output;
use crate::session::AppArg;
use pmdscope_telemetry::fleet::ROUND_TIMEOUT;

/// Arms for so many seconds; 0 disarms.
pub(super) fn run(chosen: &AppArg, seconds: u64) -> Result<ExitCode> {
    let time = u32::try_from(seconds).ok().and_then(ArmTime::seconds).context("at most a day")?;
    let app = chosen.the_app()?;
    let name = app.name.clone();
    let mut collector = SampleCollector::new(app);
    let answer = match collector.arm(time, ROUND_TIMEOUT) {
        Err(TelemetryError::Null) => bail!("{name}: {}", refusal(&mut collector)?),
        other => other.with_context(|| format!("cannot arm or disarm the stamps of {name}"))?,
    };
    match (seconds, answer.armed, answer.mode) {
        (0, 0, _) => output::print_line(&format!("{name}: stamps disarmed"))?,
        (0, _, mode) => bail!("{name}: stamps are still armed: its mode is {mode}"),
        (_, 0, mode) => bail!("{name}: stamps are still disarmed: its mode is {mode}"),
        (seconds, _, mode) => {
            output::print_line(&format!("{name}: stamps armed for {seconds} s (mode {mode})"))?
        }
    };
    Ok(ExitCode::SUCCESS)
}

/// Why an app did not obey.
fn refusal(collector: &mut SampleCollector) -> Result<String> {
    let sample = collector.collect(ROUND_TIMEOUT)?;
    Ok(match sample.ledger.first().map(|ledger| ledger.mode) {
        None => why_no_ledger_of(&sample),
        Some(LedgerMode::Never) => "it never arms stamps (mode never)".to_owned(),
        Some(_) => "it refuses to arm or disarm its stamps; its log says why".to_owned(),
    })
}

//! The flight recorder of `pmdscope capture`: its options and triggers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use pmdscope_packets::recorder::{FlightRecorder, RecorderSettings, RecorderStatus, SinkOpener};

use super::COMMON;
use super::trigger::{self, Trigger};
use crate::attach::target::CaptureTarget;
use crate::exit::Usage;
use crate::number::whole;
use crate::{duration, size};

const DEFAULT_BEFORE: Duration = Duration::from_secs(10);
const DEFAULT_AFTER: Duration = Duration::from_secs(5);
const DEFAULT_MEMORY: usize = 256 << 20;

/// Options of the flight recorder.
#[derive(Debug, Default, clap::Args)]
pub(super) struct RecorderArgs {
    /// Keep the last TIME of packets for a trigger
    ///
    /// Packets stay in memory and are written when a trigger fires. Units are ms, s, m and h; without a
    /// unit, seconds. Default with --trigger: 10s.
    #[arg(long, value_name = "TIME", help_heading = COMMON, value_parser = parse_time)]
    before: Option<Duration>,

    /// Write TIME more after a trigger [default: 5s]
    #[arg(long, value_name = "TIME", hide_short_help = true, value_parser = parse_time)]
    after: Option<Duration>,

    /// Trigger: stall, leak, filter:EXPR, signal, ...
    ///
    /// A finding of `pmdscope check`; `filter:EXPRESSION`, which fires on a matching packet;
    /// `stolen>TIME`, which fires when a poll core was taken for longer (see `pmdscope interrupts`); or
    /// `signal`, which is always on: SIGUSR2 fires it, as does `pmdscope capture trigger`. May be
    /// repeated.
    #[arg(long = "trigger", value_name = "TRIGGER", help_heading = COMMON)]
    triggers: Vec<Trigger>,

    /// Exit after N files
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = whole::<u64>(1..=u64::MAX))]
    max_triggers: Option<u64>,

    /// Memory limit of the recorder [default: 256M]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = parse_memory)]
    memory: Option<usize>,
}

/// A recorder that is ready for packets, and all that may fire it.
pub(super) struct ArmedRecorder {
    /// Where the packets go.
    pub(super) target: FlightRecorder,
    /// What the recorder holds and has done, at any time.
    pub(super) status: Arc<RecorderStatus>,
    /// Fires it as long as this lives.
    pub(super) triggers: trigger::TriggerWatcher,
}

impl RecorderArgs {
    /// A recorder was asked for.
    pub(super) fn wanted(&self) -> bool {
        self.before.is_some() || !self.triggers.is_empty()
    }

    /// Makes the recorder for `-w FILE`, and starts to watch for its triggers in the apps.
    ///
    /// `open` begins the file of an incident; it is called in a thread of the recorder.
    pub(super) fn start(
        &self,
        write: Option<&Path>,
        wanted: &[CaptureTarget],
        open: SinkOpener,
    ) -> anyhow::Result<ArmedRecorder> {
        let path = write
            .filter(|path| *path != Path::new("-"))
            .ok_or(Usage("the flight recorder writes one file per incident: give -w FILE"))?;
        let settings = RecorderSettings {
            path: path.to_owned(),
            before: self.before.unwrap_or(DEFAULT_BEFORE),
            after: self.after.unwrap_or(DEFAULT_AFTER),
            memory: self.memory.unwrap_or(DEFAULT_MEMORY),
            max_incidents: self.max_triggers,
            filters: trigger::filters(&self.triggers),
        };
        let (target, fire) =
            FlightRecorder::start(settings, open).context("cannot start the flight recorder")?;
        let status = target.status();
        let triggers = trigger::TriggerWatcher::start(&self.triggers, wanted, &fire)?;
        Ok(ArmedRecorder { target, status, triggers })
    }

    /// Refuses options that make no sense without a recorder.
    pub(super) fn check(&self) -> Result<(), Usage> {
        let idle = self.after.is_some() || self.max_triggers.is_some() || self.memory.is_some();
        if idle && !self.wanted() {
            return Err(Usage(
                "--after, --max-triggers and --memory are for the flight recorder: add --before or \
                 --trigger",
            ));
        }
        Ok(())
    }
}

/// Longest time to keep or to go on.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

/// A number with ms, s, m or h behind it; seconds without.
fn parse_time(text: &str) -> Result<Duration, String> {
    duration::within(text, Duration::ZERO..=MAX_TIME, "500ms, 10s or 5m")
}

/// A number of bytes with K, M or G behind it.
fn parse_memory(text: &str) -> Result<usize, String> {
    let bytes = size::parse(text, &size::BINARY[..3], 1);
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    bytes
        .filter(|bytes| *bytes >= pmdscope_packets::recorder::MIN_MEMORY)
        .ok_or_else(|| "expected a number of bytes of at least 16M, such as 512M or 2G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("24h"), Ok(Duration::from_secs(86_400)));
        for bad in ["", "s", "-1s", "25h", "nan", "inf", "2d", "1 s"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory_has_units_and_a_least_size() {
        assert_eq!(parse_memory("512M"), Ok(512 << 20));
        assert_eq!(parse_memory("2g"), Ok(2 << 30));
        assert_eq!(parse_memory("16777216"), Ok(16 << 20));
        for bad in ["", "M", "1K", "16777215", "99999999999G", "512MB"] {
            assert!(parse_memory(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn options_of_a_recorder_want_a_recorder() {
        let idle = RecorderArgs { memory: Some(1 << 30), ..RecorderArgs::default() };
        assert!(idle.check().is_err() && !idle.wanted());
        let used = RecorderArgs { before: Some(Duration::ZERO), ..idle };
        assert!(used.check().is_ok() && used.wanted());
    }
}

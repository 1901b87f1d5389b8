//! Sources of the states of a command: running apps, or a recording.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use jiff::tz::{Offset, TimeZone};
use pmdscope_interrupts::Tracer;
use pmdscope_recording::{RecordingPlayer, TimeSpec};
use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::fleet::ROUND_TIMEOUT;
use pmdscope_telemetry::{Fleet, FleetSettings, FleetState, ScanResults};

use crate::file_kind::FileKind;
use crate::session::{self, AppArg, XrayArg};
use crate::{bundle, completions, file_kind, interfaces, output};

/// How long a report waits for the tracer: bpftrace takes seconds to attach, longer where it finds no CPU,
/// and threads that do not poll are not traced.
const TRACER_WAIT: Duration = Duration::from_secs(15);

/// How often apps are sampled meanwhile.
const TRACER_STEP: Duration = Duration::from_millis(200);

/// A recording to look at.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ReplayArg {
    /// Read a recording or bundle, not running apps
    ///
    /// FILE is one of `pmdscope record`, a directory of such files, or one of `pmdscope bundle`.
    #[arg(short = 'r', long = "read", alias = "replay", value_name = "FILE", group = "recorded",
          value_hint = clap::ValueHint::AnyPath, add = completions::recordings())]
    pub(crate) replay: Option<PathBuf>,
}

/// A moment of a recording.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct AtArg {
    /// Time in the recording, such as 08:56:00 or -90s
    ///
    /// TIME is RFC 3339 (2026-11-21T08:56:00Z), HH:MM:SS in the local time of the recorder, or an
    /// offset from the end of the recording: -90s is 90 seconds before the end. Default: the end.
    #[arg(
        long,
        value_name = "TIME",
        requires = "recorded",
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    pub(crate) at: Option<TimeSpec>,
}

impl ReplayArg {
    /// The recording, of the chosen app or of all.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or the configuration is wrong.
    pub(crate) fn player(&self, app: &AppArg) -> Result<Option<RecordingPlayer>> {
        let Some(path) = &self.replay else { return Ok(None) };
        Ok(Some(player(path, app.app.as_deref(), &app.settings()?)?))
    }
}

fn player(path: &Path, app: Option<&str>, settings: &FleetSettings) -> Result<RecordingPlayer> {
    let mut player = if bundle::open::is_bundle(path) {
        RecordingPlayer::open_files(&bundle::open::recordings(path)?, settings)?
    } else {
        let opened = RecordingPlayer::open(path, settings);
        opened.map_err(|error| file_kind::explain(error.into(), path, FileKind::Recording))?
    };
    if let Some(app) = app {
        player.only(app);
    }
    Ok(player)
}

/// Gives one state after the other.
#[derive(Debug)]
pub(crate) enum Source {
    /// Of apps that run.
    Live(Box<Live>),
    /// Of a recording.
    Replay(Box<Replay>),
}

/// Samples at the pace of the clock.
#[derive(Debug)]
pub(crate) struct Live {
    fleet: Fleet,
    interval: Duration,
    /// When to sample.
    next: Instant,
    /// Traces the lcores of these apps.
    tracer: Option<Arc<Tracer>>,
}

/// Plays a recording.
#[derive(Debug)]
pub(crate) struct Replay {
    player: RecordingPlayer,
    app: Option<String>,
    pace: Pace,
}

#[derive(Debug)]
enum Pace {
    /// All that was recorded.
    Whole,
    /// From a moment on, in so many steps.
    Steps { next_ns: u64, step_ns: u64, left: u64 },
}

impl Source {
    /// The chosen apps, sampled in this interval for ever.
    ///
    /// # Errors
    ///
    /// When there is none, when the only one cannot be asked, or the configuration is wrong.
    pub(crate) fn live(app: &AppArg, interval: Duration) -> Result<Self> {
        Ok(Self::of(app.fleet()?, interval))
    }

    /// As [`Source::live`], with counts of pools and rings in apps without libpmdscope.
    ///
    /// # Errors
    ///
    /// As [`Source::live`].
    pub(crate) fn counted(app: &AppArg, xray: XrayArg, interval: Duration) -> Result<Self> {
        let mut settings = app.settings()?;
        xray.add_to(&mut settings);
        Ok(Self::of(session::start(app, &settings)?, interval))
    }

    /// As [`Source::counted`], with the interfaces of the kernel that have a filter or a bypass; if there is
    /// one, an app need not run. Samples have what `scans` has of their apps.
    ///
    /// # Errors
    ///
    /// As [`Source::live`].
    pub(crate) fn host(
        app: &AppArg,
        xray: XrayArg,
        interval: Duration,
        scans: Option<Arc<ScanResults>>,
    ) -> Result<Self> {
        let mut settings = FleetSettings { scans, ..app.settings()? };
        xray.add_to(&mut settings);
        interfaces::read_with(&mut settings);
        Ok(Self::of(session::start(app, &settings)?, interval))
    }

    fn of(fleet: Fleet, interval: Duration) -> Self {
        Self::Live(Box::new(Live { fleet, interval, next: Instant::now(), tracer: None }))
    }

    /// As [`Source::host`], with the time that is stolen from lcores. Returns when they are traced, or it
    /// is known that they are not.
    ///
    /// # Errors
    ///
    /// As [`Source::live`].
    pub(crate) fn traced(
        app: &AppArg,
        xray: XrayArg,
        interval: Duration,
        scans: Option<Arc<ScanResults>>,
    ) -> Result<Self> {
        let mut settings = FleetSettings { scans, ..app.settings()? };
        xray.add_to(&mut settings);
        interfaces::read_with(&mut settings);
        let tracer = session::trace(&mut settings);
        let fleet = session::start(app, &settings)?;
        let mut live = Live { fleet, interval, next: Instant::now(), tracer: Some(tracer) };
        live.wait_for_tracer();
        Ok(Self::Live(Box::new(live)))
    }

    /// A whole recording.
    pub(crate) fn whole(player: RecordingPlayer, app: &AppArg) -> Self {
        Self::Replay(Box::new(Replay { player, app: app.app.clone(), pace: Pace::Whole }))
    }

    /// So many states of a recording from a moment on, or up to its end.
    ///
    /// # Errors
    ///
    /// When there is no such moment in it.
    pub(crate) fn steps(
        player: RecordingPlayer,
        app: &AppArg,
        at: &AtArg,
        interval: Duration,
        left: u64,
    ) -> Result<Self> {
        let span = player.span();
        let step_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        let next_ns = match &at.at {
            Some(at) => at.resolve(span, player.utc_offset_s())?,
            None => span.1.saturating_sub(step_ns.saturating_mul(left.saturating_sub(1))),
        };
        let pace = Pace::Steps { next_ns: next_ns.max(span.0), step_ns, left };
        Ok(Self::Replay(Box::new(Replay { player, app: app.app.clone(), pace })))
    }

    /// Samples apps that run for the first time: rates are those since then.
    pub(crate) fn prepare(&mut self) {
        if let Self::Live(live) = self {
            live.advance();
        }
    }

    /// Goes on to the next state; false when that was the last.
    ///
    /// # Errors
    ///
    /// When the recording cannot be read, or has nothing of the chosen app.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        match self {
            Self::Live(live) => {
                live.advance();
                Ok(true)
            }
            Self::Replay(replay) => replay.advance(),
        }
    }

    /// The state that was reached.
    pub(crate) fn fleet(&self) -> &FleetState {
        match self {
            Self::Live(live) => &live.fleet.state,
            Self::Replay(replay) => replay.player.fleet(),
        }
    }

    /// The app of that name, as it was found; `None` in a recording, and for one that does not answer.
    pub(crate) fn app(&self, name: &str) -> Option<DiscoveredApp> {
        match self {
            Self::Live(live) => live.fleet.connected().into_iter().find(|app| app.name == name),
            Self::Replay(_) => None,
        }
    }

    /// The apps as they were found, also those that do not answer; none in a recording.
    pub(crate) fn apps(&self) -> Vec<DiscoveredApp> {
        match self {
            Self::Live(live) => live.fleet.apps().cloned().collect(),
            Self::Replay(_) => Vec::new(),
        }
    }

    /// Local time where the apps run or ran.
    pub(crate) fn time_zone(&self) -> TimeZone {
        match self {
            Self::Live(_) => TimeZone::system(),
            Self::Replay(replay) => time_zone(&replay.player),
        }
    }

    /// Reports what is damaged or missing in a recording.
    pub(crate) fn tell_notes(&self) {
        let Self::Replay(replay) = self else { return };
        for note in replay.player.notes() {
            output::tell(&format!("note: {note}"));
        }
    }
}

/// Local time where it was recorded.
pub(crate) fn time_zone(player: &RecordingPlayer) -> TimeZone {
    Offset::from_seconds(player.utc_offset_s()).unwrap_or(Offset::UTC).to_time_zone()
}

impl Live {
    /// Samples until all threads that poll are traced; sampling passes threads to the tracer.
    fn wait_for_tracer(&mut self) {
        let Some(tracer) = self.tracer.clone() else { return };
        let begun = Instant::now();
        while !tracer.is_settled() && begun.elapsed() < TRACER_WAIT {
            self.fleet.sample(ROUND_TIMEOUT);
            thread::sleep(TRACER_STEP);
        }
        self.next = Instant::now();
    }

    fn advance(&mut self) {
        thread::sleep(self.next.saturating_duration_since(Instant::now()));
        self.fleet.sample(ROUND_TIMEOUT);
        // Keeps the pace of the clock instead of adding the time of each round.
        self.next += self.interval;
    }
}

impl Replay {
    fn advance(&mut self) -> Result<bool> {
        let there = match &mut self.pace {
            Pace::Whole => self.player.next()?.is_some(),
            Pace::Steps { next_ns, left, .. } if *left == 0 || *next_ns > self.player.span().1 => {
                return Ok(false);
            }
            Pace::Steps { next_ns, step_ns, left } => {
                self.player.seek(*next_ns)?;
                *next_ns = next_ns.saturating_add(*step_ns);
                *left -= 1;
                true
            }
        };
        let steps = matches!(self.pace, Pace::Steps { .. });
        if (steps || !there) && self.player.fleet().is_empty() {
            self.nobody()?;
        }
        Ok(there)
    }

    /// An error where no app was recorded; it lists the apps of other times.
    fn nobody(&self) -> Result<()> {
        let apps = self.player.apps();
        let known = apps.iter().copied().collect::<Vec<_>>().join(", ");
        match (&self.app, known.is_empty()) {
            (_, true) => bail!("no app was recorded"),
            (Some(app), false) if !apps.contains(app.as_str()) => {
                bail!("no app named {app:?} was recorded; there is {known}")
            }
            _ if matches!(self.pace, Pace::Whole) => Ok(()),
            _ => bail!("no app was recorded at that time; at others there was {known}"),
        }
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;

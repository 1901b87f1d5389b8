//! The lines of a recording.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use pmdscope_telemetry::finding::{Finding, FindingSubject, Severity};
use pmdscope_telemetry::interface::InterfaceSample;
use pmdscope_telemetry::sample::{SAMPLE_SCHEMA, Sample};
use pmdscope_telemetry::{ErrorClass, InterfacesState};

/// Version of the lines; incremented when the meaning of one changes. New kinds of lines and new
/// fields do not change it.
pub const RECORD_SCHEMA: u32 = 1;

/// One line of a recording. The entries of a round are followed by its [`RoundEnd`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant)] // nearly all entries are samples
pub enum RecordEntry<'a> {
    /// First line of a file.
    Header(RecordingHeader),
    /// An app answered.
    Sample(Cow<'a, Sample>),
    /// An app did not answer.
    Lost(LostApp),
    /// An app was removed from the fleet state.
    Gone(GoneApp),
    /// The interfaces of the kernel with a filter or a bypass.
    Interfaces(RecordedInterfaces),
    /// Rounds that were sampled, but could not be written.
    Gap(RecordingGap),
    /// The end of a round.
    Round(RoundEnd),
}

/// The recorder, and the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// [`RECORD_SCHEMA`].
    pub schema: u32,
    /// [`SAMPLE_SCHEMA`].
    pub sample_schema: u32,
    /// Version of pmdscope.
    pub tool: String,
    /// Name of the machine.
    pub host: String,
    /// Id of the boot of the machine (`/proc/sys/kernel/random/boot_id`): monotonic times of
    /// different boots are not comparable.
    pub boot_id: String,
    /// Id of the run of the recorder: wall clock at its start, nanoseconds since the epoch. All
    /// files of one run have the same.
    pub run: u64,
    /// Wall clock at the start of the file, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Time between two rounds, milliseconds.
    pub interval_ms: u64,
    /// UTC offset of the local time of the machine, seconds east of UTC.
    pub utc_offset_s: i32,
}

/// An app did not answer. Repeated in every frame while that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostApp {
    /// Wall clock, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// The app.
    pub app: String,
    /// Reason, for programs.
    pub class: ErrorClass,
    /// Reason, as text for the user.
    pub reason: String,
    /// Monotonic clock when it was first seen not to answer, nanoseconds.
    #[serde(default)]
    pub silent_ns: Option<u64>,
    /// Number of failed rounds since it was found, by reason.
    #[serde(default)]
    pub errors: BTreeMap<ErrorClass, u64>,
    /// Findings about the missing answers.
    #[serde(default)]
    pub findings: Vec<AbsenceFinding>,
}

/// A finding about an app that did not answer. It is recorded, because there is no sample from
/// which it could be derived again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsenceFinding {
    /// Stable name of the lint.
    pub lint: String,
    /// `info`, `warning` or `critical`.
    pub severity: String,
    /// What the finding is about.
    pub subject: String,
    /// One sentence with the numbers.
    pub evidence: String,
    /// The threshold that was crossed, in words.
    pub threshold: String,
    /// What to do next.
    pub advice: String,
}

/// An app was removed from the fleet state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneApp {
    /// Wall clock, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// The app.
    pub app: String,
}

/// The interfaces of the kernel with a filter or a bypass, as they were read in a round. Written in
/// every round with such an interface, and once after the last one is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedInterfaces {
    /// Wall clock, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Monotonic clock when they were read, nanoseconds.
    pub monotonic_ns: u64,
    /// Samples of the interfaces.
    #[serde(default)]
    pub interfaces: Vec<InterfaceSample>,
    /// Reason why they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Rounds that were sampled, but could not be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingGap {
    /// Wall clock of the first of these rounds, nanoseconds since the epoch.
    pub from_realtime_ns: u64,
    /// Wall clock when writing resumed, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Number of rounds.
    pub rounds: u64,
    /// Reason why they could not be written.
    pub reason: String,
}

/// The end of a round: the entries since the previous [`RoundEnd`] belong to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundEnd {
    /// Wall clock, nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Monotonic clock, nanoseconds.
    pub monotonic_ns: u64,
    /// Number of rounds before this one that were due, but not sampled.
    #[serde(default, skip_serializing_if = "none")]
    pub missed: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn none(number: &u64) -> bool {
    *number == 0
}

/// A line of any kind; a line of an unknown kind has none of these fields.
#[derive(Deserialize)]
struct Line {
    header: Option<RecordingHeader>,
    sample: Option<Sample>,
    lost: Option<LostApp>,
    gone: Option<GoneApp>,
    interfaces: Option<RecordedInterfaces>,
    gap: Option<RecordingGap>,
    round: Option<RoundEnd>,
}

impl RecordEntry<'static> {
    /// Parses a line; `None` if its kind is not known.
    ///
    /// # Errors
    /// When it is not JSON, or lacks a required field of its kind.
    pub fn parse(line: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        let line: Line = serde_json::from_slice(line)?;
        let entry = line.sample.map(|sample| Self::Sample(Cow::Owned(sample)));
        let entry = entry.or_else(|| line.round.map(Self::Round));
        let entry = entry.or_else(|| line.lost.map(Self::Lost));
        let entry = entry.or_else(|| line.gone.map(Self::Gone));
        let entry = entry.or_else(|| line.interfaces.map(Self::Interfaces));
        let entry = entry.or_else(|| line.gap.map(Self::Gap));
        Ok(entry.or_else(|| line.header.map(Self::Header)))
    }
}

impl RecordEntry<'_> {
    /// Wall clock, nanoseconds since the epoch.
    pub fn realtime_ns(&self) -> u64 {
        match self {
            Self::Header(header) => header.realtime_ns,
            Self::Sample(sample) => sample.realtime_ns,
            Self::Lost(lost) => lost.realtime_ns,
            Self::Gone(gone) => gone.realtime_ns,
            Self::Interfaces(interfaces) => interfaces.realtime_ns,
            Self::Gap(gap) => gap.realtime_ns,
            Self::Round(round) => round.realtime_ns,
        }
    }

    /// Returns the app that the entry is about, if any.
    pub fn app(&self) -> Option<&str> {
        match self {
            Self::Sample(sample) => Some(&sample.app.name),
            Self::Lost(lost) => Some(&lost.app),
            Self::Gone(gone) => Some(&gone.app),
            Self::Header(_) | Self::Interfaces(_) | Self::Gap(_) | Self::Round(_) => None,
        }
    }
}

impl RecordingHeader {
    /// Returns the first schema of the file that is newer than ours, and our version of it.
    pub(super) fn unknown_schema(&self) -> Option<(u32, u32)> {
        let pairs = [(self.schema, RECORD_SCHEMA), (self.sample_schema, SAMPLE_SCHEMA)];
        pairs.into_iter().find(|(theirs, ours)| theirs > ours)
    }
}

impl RecordedInterfaces {
    /// Returns the interfaces of a state, in a round at this wall clock.
    pub(super) fn of(state: &InterfacesState, realtime_ns: u64) -> Self {
        Self {
            realtime_ns,
            monotonic_ns: state.monotonic_ns,
            interfaces: state.interfaces.iter().map(|of| of.sample.clone()).collect(),
            error: state.error.clone(),
        }
    }
}

impl From<&Finding> for AbsenceFinding {
    fn from(finding: &Finding) -> Self {
        Self {
            lint: finding.lint.to_string(),
            severity: finding.severity.word().to_owned(),
            subject: finding.subject.to_string(),
            evidence: finding.evidence.clone(),
            threshold: finding.threshold.clone(),
            advice: finding.advice.clone(),
        }
    }
}

impl AbsenceFinding {
    /// Returns the finding about `app`; `None` if the lint or the severity is not known here.
    pub(super) fn finding(self, app: &str) -> Option<Finding> {
        let lint = self.lint.parse().ok()?;
        let severities = [Severity::Info, Severity::Warning, Severity::Critical];
        let severity = severities.into_iter().find(|known| known.word() == self.severity)?;
        Some(Finding {
            lint,
            severity,
            app: app.to_owned(),
            subject: FindingSubject::recorded(self.subject),
            evidence: self.evidence,
            threshold: self.threshold,
            advice: self.advice,
            causes: Vec::new(),
            weight: 0.0,
        })
    }
}

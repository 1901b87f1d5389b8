//! `--json`: the statistics at the end of a capture.

use pmdscope_capture::{CaptureReport, RingReport};
use serde::Serialize;

/// Version of the JSON; raised when a field changes its meaning.
const STATISTICS_SCHEMA: u32 = 1;

/// What `capture -w FILE --json` prints at the end. Numbers are packets if nothing else is said.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document {
    #[cfg_attr(test, schemars(extend("const" = STATISTICS_SCHEMA)))]
    schema: u32,
    /// Written.
    captured: u64,
    /// That the filter let through, captured or not.
    received_by_filter: u64,
    /// Dropped because a capture ring was full.
    dropped: u64,
    /// The same by interface; only those with drops.
    dropped_by_interface: Vec<InterfaceDrops>,
    /// Left out by `--sample`.
    sampled_out: u64,
    /// One packet in so many was kept at the end; 1 is all.
    sample: u32,
    /// The highest that this was at the end of a second.
    sample_highest: u32,
    /// One packet in so many was kept in the whole capture, with those that were dropped later.
    sample_mean: f64,
    /// Lost because they could not be written.
    unwritten: u64,
    /// Out of order, because their lcore was interrupted.
    out_of_order: u64,
    /// Capture rings: lcores that polled.
    rings: u64,
    /// Files begun.
    files: u64,
    /// Bytes written.
    bytes: u64,
    /// Why the capture ended early; `null` if it did not.
    failure: Option<String>,
    /// With `--parallel`, each file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_file: Vec<FileStatistics>,
}

/// Drops of an interface.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InterfaceDrops {
    interface: String,
    dropped: u64,
}

/// The file of an lcore.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FileStatistics {
    app: String,
    /// `null` where packets do not come from the app itself.
    lcore: Option<u16>,
    /// Number among the files of this lcore: an app that comes back has a new one.
    sequence: u32,
    file: Option<String>,
    captured: u64,
    received_by_filter: u64,
    dropped: u64,
    unwritten: u64,
    /// Bytes written.
    bytes: u64,
}

impl Document {
    pub(super) fn new(report: &CaptureReport) -> Self {
        let drops = |(interface, dropped): &(String, u64)| InterfaceDrops {
            interface: interface.clone(),
            dropped: *dropped,
        };
        Self {
            schema: STATISTICS_SCHEMA,
            captured: report.captured,
            received_by_filter: report.rings.passed_filter(),
            dropped: report.rings.dropped,
            dropped_by_interface: report.dropped.iter().map(drops).collect(),
            sampled_out: report.rings.sampled_out,
            sample: report.sample,
            sample_highest: report.highest_sample,
            sample_mean: report.rings.mean_sample(),
            unwritten: report.unwritten,
            out_of_order: report.late,
            rings: report.nb_rings as u64,
            files: report.progress.files,
            bytes: report.progress.bytes,
            failure: report.failure.as_ref().map(ToString::to_string),
            by_file: report.by_ring.iter().map(FileStatistics::new).collect(),
        }
    }
}

impl FileStatistics {
    fn new(ring: &RingReport) -> Self {
        Self {
            app: ring.name.app.clone(),
            lcore: ring.name.lcore,
            sequence: ring.name.sequence,
            file: ring.file.as_ref().map(|file| file.display().to_string()),
            captured: ring.captured,
            received_by_filter: ring.received,
            dropped: ring.dropped,
            unwritten: ring.unwritten,
            bytes: ring.bytes,
        }
    }
}

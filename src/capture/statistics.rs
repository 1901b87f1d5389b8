//! `--json`: the statistics at the end of a capture.

use pmdscope_capture::{CaptureReport, RingReport};
use serde::Serialize;

/// Version of the JSON; raised when a field changes its meaning.
const STATISTICS_SCHEMA: u32 = 1;

/// Output of `capture -w FILE --json` at the end. Numbers are packets unless stated otherwise.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = STATISTICS_SCHEMA)))]
    schema: u32,
    /// Packets written.
    captured: u64,
    /// Packets that passed the filter, captured or not.
    received_by_filter: u64,
    /// Packets dropped because a capture ring was full.
    dropped: u64,
    /// Packets dropped because a capture ring was full, by interface; only interfaces with drops.
    dropped_by_interface: Vec<InterfaceDrops>,
    /// Packets left out by `--sample`.
    sampled_out: u64,
    /// Sampling interval N at the end: one packet in N was kept; 1 means all.
    sample: u32,
    /// Highest sampling interval at the end of any second.
    sample_highest: u32,
    /// Mean sampling interval N of the whole capture: one packet in N was kept, or dropped later.
    sample_mean: f64,
    /// Packets that could not be written, or that have no time because their app ended too early.
    unwritten: u64,
    /// Packets that `--skip` passed by.
    skipped: u64,
    /// Packets that came after the last one that was asked for, by `-c` or `-W`.
    surplus: u64,
    /// Packets that are out of order, because their lcore was interrupted.
    out_of_order: u64,
    /// Number of capture rings, one per lcore that polled.
    rings: u64,
    /// Number of files that were created.
    files: u64,
    /// Bytes written.
    bytes: u64,
    /// Why the capture ended early; `null` if it did not.
    failure: Option<String>,
    /// Statistics of each file; only with `--parallel`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_file: Vec<FileStatistics>,
}

/// Dropped packets of an interface.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InterfaceDrops {
    /// Name of the interface, `APP:PORT`.
    interface: String,
    /// Packets dropped because a capture ring was full.
    dropped: u64,
}

/// Statistics of the file of an lcore.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FileStatistics {
    /// Name of the app, by default its file-prefix.
    app: String,
    /// lcore id; `null` if the packets do not come from the app itself.
    lcore: Option<u16>,
    /// Number of the file among those of this lcore, from 1; an app that comes back has a new file.
    sequence: u32,
    /// Path of the file; `None` if none was written.
    file: Option<String>,
    /// Packets written.
    captured: u64,
    /// Packets that passed the filter, captured or not.
    received_by_filter: u64,
    /// Packets dropped because the capture ring was full.
    dropped: u64,
    /// Packets that could not be written, or that have no time because their app ended too early.
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
            skipped: report.skipped,
            surplus: report.surplus,
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

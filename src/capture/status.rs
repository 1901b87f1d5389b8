//! The status line of a capture on a terminal.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pmdscope_capture::CaptureReport;
use pmdscope_packets::recorder::RecorderStatus;
use pmdscope_render::number;

/// What is known once a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Status {
    packets: u64,
    dropped: u64,
    /// One packet in so many is kept.
    sample: u32,
    /// Packets per second.
    rate: f64,
    file: Option<PathBuf>,
    files: u64,
    bytes: u64,
    /// Seconds until the disk is full at the present rate; `None` when it is not filling up.
    disk: Option<f64>,
    waiting: Option<String>,
    /// What the flight recorder holds.
    recorder: Option<String>,
}

impl Status {
    /// The status at a moment, after another. `grow` is true where files take ever more of the disk.
    pub(super) fn after(
        &self,
        seconds: f64,
        report: &CaptureReport,
        recorder: Option<String>,
        grow: bool,
    ) -> Self {
        let progress = &report.progress;
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let written = rate(progress.bytes, self.bytes);
        let free = progress.file.as_deref().filter(|_| grow && written > 0.0).and_then(free_bytes);
        Self {
            packets: report.captured,
            dropped: report.rings.dropped.saturating_add(progress.lost),
            sample: report.sample,
            rate: rate(report.captured, self.packets),
            file: progress.file.clone(),
            files: progress.files,
            bytes: progress.bytes,
            disk: free.map(|free| free as f64 / written),
            waiting: progress.waiting.clone(),
            recorder,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (packets, rate) = (number::count(self.packets), number::si(self.rate));
        write!(f, "{packets} packets, {rate}/s, {} dropped", number::count(self.dropped))?;
        if self.sample > 1 {
            write!(f, ", 1 in {} kept", self.sample)?;
        }
        if let Some(recorder) = &self.recorder {
            write!(f, " | {recorder}")?;
        }
        if let Some(name) = self.file.as_deref().and_then(Path::file_name) {
            write!(f, " | {} {}", name.display(), number::bytes(self.bytes))?;
            if self.files > 1 {
                write!(f, " in {} files", self.files)?;
            }
        }
        match (&self.waiting, self.disk) {
            (Some(reason), _) => write!(f, " | {reason}: waiting"),
            (None, Some(seconds)) => write!(f, " | {} of disk left", number::seconds(seconds)),
            (None, None) => Ok(()),
        }
    }
}

/// Seconds since a moment, which then is now.
pub(super) fn lap(since: &mut Instant) -> f64 {
    let before = std::mem::replace(since, Instant::now());
    since.duration_since(before).as_secs_f64().max(0.001)
}

/// What others than root may still write to the file system of a file.
fn free_bytes(file: &Path) -> Option<u64> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let system = rustix::fs::statvfs(folder).ok()?;
    system.f_bavail.checked_mul(system.f_frsize)
}

/// `9.8 of 10.0 s held in 120 of 256 MiB, 2 triggers`, and `, writing` during an incident; where memory
/// is too small, also how many packets were evicted early.
pub(super) fn recorder(status: &RecorderStatus) -> String {
    let (covered, before) = (status.covered().as_secs_f64(), status.before().as_secs_f64());
    let (held, memory) = (status.held().div_ceil(1 << 20), status.memory() >> 20);
    let evicted = match status.evicted() {
        0 => String::new(),
        early => format!(", {} evicted early", number::plural(early, "packet")),
    };
    let triggers = number::plural(status.triggers(), "trigger");
    let writing = if status.recording() { ", writing" } else { "" };
    format!(
        "{covered:.1} of {before:.1} s held in {held} of {memory} MiB{evicted}, {triggers}{writing}"
    )
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use pmdscope_capture::RingCounters;
    use pmdscope_packets::SinkProgress;

    use super::*;

    fn report(captured: u64, bytes: u64) -> CaptureReport {
        let file = Some("/var/tmp/out.pcapng".into());
        let progress = SinkProgress { bytes, file, files: 1, ..SinkProgress::default() };
        let rings = RingCounters { dropped: 3, ..RingCounters::default() };
        CaptureReport { captured, rings, progress, ..CaptureReport::default() }
    }

    #[test]
    fn the_line_tells_what_matters() {
        let first = Status::default().after(1.0, &report(1_000_000, 1 << 20), None, true);
        let mut second = first.after(2.0, &report(3_480_000, 300 << 20), None, true);
        assert!(second.disk.take().is_some());
        assert_snapshot!(second, @"3,480,000 packets, 1.24M/s, 3 dropped | out.pcapng 300 MiB");
        let left = Status { disk: Some(11_520.0), files: 12, ..second.clone() };
        assert_snapshot!(left, @"3,480,000 packets, 1.24M/s, 3 dropped | out.pcapng 300 MiB in 12 files | 3h12m of disk left");
        let full = Status { waiting: Some("disk full".into()), ..left };
        assert_snapshot!(full, @"3,480,000 packets, 1.24M/s, 3 dropped | out.pcapng 300 MiB in 12 files | disk full: waiting");
        let recorder = Some("9.8 of 10.0 s held".into());
        let sampled = Status { sample: 8, ..second.clone() };
        assert_snapshot!(sampled, @"3,480,000 packets, 1.24M/s, 3 dropped, 1 in 8 kept | out.pcapng 300 MiB");
        let idle = Status { recorder, file: None, ..second };
        assert_snapshot!(idle, @"3,480,000 packets, 1.24M/s, 3 dropped | 9.8 of 10.0 s held");
    }

    #[test]
    fn files_that_do_not_grow_leave_the_disk_out() {
        let status = Status::default().after(1.0, &report(1, 1 << 20), None, false);
        assert_eq!(status.disk, None);
    }
}

//! Messages and the status line of a recording.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pmdscope_recording::RecordingTotals;
use pmdscope_render::number;
use pmdscope_telemetry::discover::UnreadableWarning;

use crate::output;
use crate::progress::StatusLine;

/// Time between two lines.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// Writes to standard error.
pub(super) struct RecordingProgress {
    quiet: bool,
    line: StatusLine,
    begun: Instant,
    /// When the line was drawn last.
    shown: Option<Instant>,
    waiting: Option<String>,
    unreadable: UnreadableWarning,
}

impl RecordingProgress {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            quiet,
            line: StatusLine::default(),
            begun: Instant::now(),
            shown: None,
            waiting: None,
            unreadable: UnreadableWarning::default(),
        }
    }

    /// Reports the state of the recording once a second, and immediately when it cannot go on.
    pub(super) fn show(&mut self, totals: &RecordingTotals) {
        if totals.waiting != self.waiting {
            self.waiting.clone_from(&totals.waiting);
            match &self.waiting {
                Some(reason) => {
                    let file = totals.file.display();
                    self.say(&format!("cannot write to {file}: {reason}; retrying"));
                }
                None => self.say("recording resumed"),
            }
        }
        let due = self.shown.is_none_or(|shown| shown.elapsed() >= REDRAW_INTERVAL);
        if !self.quiet && due {
            self.shown = Some(Instant::now());
            self.line.show(&line(self.begun.elapsed(), totals));
        }
    }

    /// Reports which directories cannot be read, whenever they change: apps in them are missing.
    pub(super) fn warn_of_unreadable(&mut self, dirs: &[PathBuf]) {
        if let Some(text) = self.unreadable.update(dirs) {
            output::say(text);
        }
    }

    /// Reports what was recorded.
    pub(super) fn end(&mut self, totals: &RecordingTotals) {
        self.line.clear();
        let text = summary(self.begun.elapsed(), totals);
        self.say(&text);
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            output::say(text);
        }
    }
}

fn line(elapsed: Duration, totals: &RecordingTotals) -> String {
    let mut text = format!(
        "{} | {}, {} samples",
        number::seconds(elapsed.as_secs_f64()),
        number::plural(totals.apps as u64, "app"),
        number::count(totals.samples)
    );
    for (count, what) in troubles(totals) {
        let _ = write!(text, ", {} {what}", number::count(count));
    }
    let name = totals.file.file_name().unwrap_or_default();
    let _ = write!(text, " | {} {}", name.display(), number::bytes(totals.bytes));
    text
}

fn summary(elapsed: Duration, totals: &RecordingTotals) -> String {
    let mut text = format!(
        "{} samples of {} in {}, {} in {}",
        number::count(totals.samples),
        number::plural(totals.apps as u64, "app"),
        number::seconds(elapsed.as_secs_f64()),
        number::bytes(totals.bytes),
        match totals.files {
            1 => totals.file.display().to_string(),
            files => number::plural(files, "file"),
        }
    );
    for (count, what) in troubles(totals) {
        let _ = write!(text, "; {} {what}", number::count(count));
    }
    text
}

/// What is missing in the recording, as far as something is.
fn troubles(totals: &RecordingTotals) -> impl Iterator<Item = (u64, &'static str)> {
    let all = [
        (totals.lost, "unanswered"),
        (totals.missed, "rounds missed"),
        (totals.dropped, "rounds not written"),
    ];
    all.into_iter().filter(|(count, _)| *count > 0)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn what_is_missing_is_told_where_something_is() {
        let file = "/var/lib/pmdscope/pmdscope-20261121T085600Z.jsonl.zst".into();
        let well = RecordingTotals {
            samples: 18_000,
            apps: 1,
            bytes: 3 << 20,
            files: 1,
            file,
            ..RecordingTotals::default()
        };
        let bad =
            RecordingTotals { apps: 2, lost: 7, missed: 3, dropped: 12, files: 4, ..well.clone() };
        let elapsed = Duration::from_secs(1800);
        assert_snapshot!(line(elapsed, &well), @"30m00s | 1 app, 18,000 samples | pmdscope-20261121T085600Z.jsonl.zst 3.0 MiB");
        assert_snapshot!(line(elapsed, &bad), @"30m00s | 2 apps, 18,000 samples, 7 unanswered, 3 rounds missed, 12 rounds not written | pmdscope-20261121T085600Z.jsonl.zst 3.0 MiB");
        assert_snapshot!(summary(elapsed, &well), @"18,000 samples of 1 app in 30m00s, 3.0 MiB in /var/lib/pmdscope/pmdscope-20261121T085600Z.jsonl.zst");
        assert_snapshot!(summary(elapsed, &bad), @"18,000 samples of 2 apps in 30m00s, 3.0 MiB in 4 files; 7 unanswered; 3 rounds missed; 12 rounds not written");
    }
}

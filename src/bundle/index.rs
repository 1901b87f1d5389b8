//! The index of a bundle: what each file is, when and how it was collected, and what failed.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use pmdscope_render::{Theme, cut, number};
use serde::Serialize;

use super::findings::{BundleFinding, BundleFindings};
use super::redaction::{KEPT, REPLACED};
use super::{APP, report};
use crate::output::{one_line, plain};

/// Version of index.json; raised when a field changes its meaning.
pub(super) const INDEX_SCHEMA: u32 = 1;

/// The index for people, first file of the archive.
pub(super) const TEXT: &str = "INDEX.txt";

/// The index for programs.
pub(super) const JSON: &str = "index.json";

/// Longest text of an app in one line, characters.
const LONGEST_TEXT: usize = 1000;

/// How far a part was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PartStatus {
    /// As asked for.
    Complete,
    /// Its files are valid, but something is missing: the reason says what.
    Incomplete,
    /// There is nothing of it.
    Failed,
    /// It was not tried.
    Skipped,
}

impl PartStatus {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// A file of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FileEntry {
    /// Path below the directory of the bundle.
    pub(super) path: String,
    /// Size. Of a directory: that of all files below it.
    pub(super) bytes: u64,
}

/// A part of a bundle.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PartEntry {
    /// What it is, such as `findings`.
    pub(super) part: &'static str,
    /// The app that it is about; `None` for the machine, or all apps.
    pub(super) app: Option<String>,
    pub(super) status: PartStatus,
    /// Why it is not complete.
    pub(super) reason: Option<String>,
    /// The command that gave it; `None` where that was this program itself.
    pub(super) command: Option<String>,
    /// Start, RFC 3339; `None` when it was not tried.
    pub(super) started: Option<String>,
    /// How long that took, seconds.
    pub(super) seconds: f64,
    pub(super) files: Vec<FileEntry>,
    /// Lines that the command printed on standard error.
    pub(super) messages: Vec<String>,
}

impl PartEntry {
    /// A part that was not tried.
    pub(super) fn skipped(part: &'static str, app: Option<String>, reason: &str) -> Self {
        Self {
            part,
            app,
            status: PartStatus::Skipped,
            reason: Some(reason.to_owned()),
            command: None,
            started: None,
            seconds: 0.0,
            files: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// A part that this program makes itself, from now on.
    pub(super) fn begun(part: &'static str) -> Self {
        let (status, reason) = (PartStatus::Complete, None);
        let started = Some(time_text(Timestamp::now()));
        Self { status, reason, started, ..Self::skipped(part, None, "") }
    }

    /// Something of it is there.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Notes that something of it was left out.
    pub(super) fn lose(&mut self, why: &str) {
        self.status = if self.has_files() { PartStatus::Incomplete } else { PartStatus::Failed };
        self.reason = Some(match self.reason.take() {
            Some(reason) => format!("{reason}; {why}"),
            None => why.to_owned(),
        });
    }

    /// Why there is nothing of it.
    pub(super) fn why_missing(&self) -> &str {
        self.reason.as_deref().unwrap_or("there was nothing to collect")
    }

    /// The part and its app.
    pub(super) fn name(&self) -> String {
        match &self.app {
            Some(app) => format!("{} of {app}", self.part),
            None => self.part.to_owned(),
        }
    }
}

/// What was removed and what was not.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Redaction {
    pub(super) replaced: [&'static str; 5],
    pub(super) kept: [&'static str; 4],
}

impl Redaction {
    pub(super) const DONE: Self = Self { replaced: REPLACED, kept: KEPT };
}

/// All that is in a bundle.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BundleIndex {
    pub(super) schema: u32,
    /// Version of pmdscope.
    pub(super) tool: &'static str,
    pub(super) host: String,
    /// When the collection began and ended, RFC 3339.
    pub(super) started: String,
    pub(super) ended: String,
    /// How long that was.
    pub(super) seconds: f64,
    /// It was ended by a signal.
    pub(super) interrupted: bool,
    #[serde(flatten)]
    pub(super) found: BundleFindings,
    /// `None` when the bundle is not redacted.
    pub(super) redaction: Option<Redaction>,
    pub(super) parts: Vec<PartEntry>,
}

impl BundleIndex {
    /// The index as JSON, indented.
    pub(super) fn json(&self) -> Result<String> {
        let json = serde_json::to_string_pretty(self).context("cannot write the index")?;
        Ok(json + "\n")
    }

    /// The index as text: first what matters, then the files.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "pmdscope bundle of {}", line(&self.host));
        let took = number::seconds(self.seconds);
        let _ = writeln!(out, "collected from {} to {} ({took})", self.started, self.ended);
        let _ = writeln!(out, "by pmdscope {}", self.tool);
        if self.interrupted {
            let _ = writeln!(out, "INTERRUPTED: later parts were not collected");
        }
        let _ =
            writeln!(out, "{} shows the same with graphs and tables, in a browser", report::FILE);
        self.add_findings(&mut out);
        self.add_unasked(&mut out);
        self.add_missing(&mut out);
        self.add_files(&mut out);
        self.add_redaction(&mut out);
        out.push_str(OPENING);
        plain(&out)
    }

    fn add_findings(&self, out: &mut String) {
        let counts = self.found.counts().map(|counts| format!(": {counts}"));
        let _ = writeln!(out, "\nFINDINGS{}", counts.unwrap_or_default());
        if self.found.findings.is_empty() {
            let _ = writeln!(out, "{}", self.no_findings());
        }
        for finding in &self.found.findings {
            add_finding(out, finding);
        }
        if self.found.more_findings > 0 {
            let _ = writeln!(out, "and {} more in findings/", self.found.more_findings);
        }
    }

    /// Why no finding is listed.
    pub(super) fn no_findings(&self) -> &'static str {
        if self.found.findings_known { "none" } else { "not known: no report could be read" }
    }

    fn add_unasked(&self, out: &mut String) {
        let _ = writeln!(out, "\nNOT ASKED");
        if self.found.unasked.is_empty() {
            let _ = writeln!(out, "every app that was found has answered");
        }
        for unasked in &self.found.unasked {
            let reason = line(&unasked.reason);
            let _ = match &unasked.app {
                Some(app) => writeln!(out, "{}: {reason}", line(app)),
                None => writeln!(out, "{reason}"),
            };
        }
        if self.found.not_checked.is_empty() {
            return;
        }
        let _ = writeln!(out, "\nNOT CHECKED");
        for what in &self.found.not_checked {
            let _ = writeln!(out, "{}", line(what));
        }
    }

    /// Parts that have nothing, except for apps that were not asked at all.
    pub(super) fn missing(&self) -> impl Iterator<Item = &PartEntry> {
        let is_unasked = |part: &PartEntry| part.part == APP && part.app.is_some();
        self.parts.iter().filter(move |part| !part.has_files() && !is_unasked(part))
    }

    fn add_missing(&self, out: &mut String) {
        let mut missing = self.missing().peekable();
        let _ = writeln!(out, "\nNOT COLLECTED");
        if missing.peek().is_none() {
            let _ = writeln!(out, "nothing is missing");
        }
        for part in missing {
            let (name, status) = (line(&part.name()), part.status.word());
            let _ = writeln!(out, "{name} ({status}): {}", line(part.why_missing()));
        }
    }

    fn add_files(&self, out: &mut String) {
        let _ = writeln!(out, "\nFILES");
        for part in self.parts.iter().filter(|part| part.has_files()) {
            for file in &part.files {
                let _ = writeln!(out, "{}  ({})", one_line(&file.path), number::bytes(file.bytes));
            }
            let _ = writeln!(out, "    {}, {}", line(&part.name()), part.status.word());
            if let Some(command) = &part.command {
                let _ = writeln!(out, "    from: {}", one_line(command));
            }
            if let Some(started) = &part.started {
                let took = number::seconds(part.seconds);
                let _ = writeln!(out, "    started {started}, took {took}");
            }
            if let Some(reason) = &part.reason {
                let _ = writeln!(out, "    {}: {}", part.status.word(), line(reason));
            }
            for message in &part.messages {
                let _ = writeln!(out, "    said: {}", line(message));
            }
        }
    }

    fn add_redaction(&self, out: &mut String) {
        let Some(redaction) = &self.redaction else {
            let _ = writeln!(out, "\nNOT REDACTED: contains addresses, and payloads of packets");
            return;
        };
        let _ = writeln!(out, "\nREDACTED");
        for what in redaction.replaced {
            let _ = writeln!(out, "- {what}");
        }
        let _ = writeln!(out, "NOT REDACTED");
        for what in redaction.kept {
            let _ = writeln!(out, "- {what}");
        }
    }
}

const OPENING: &str = "
TO OPEN
pmdscope top -r FILE.tar.zst             the recording, as it was seen live; also check, leaks, netstat
pmdscope doctor -r FILE.tar.zst          checks of the machine, again
tar --zstd -xf FILE.tar.zst              all files; wireshark opens those below capture/ and leaks/
";

fn add_finding(out: &mut String, finding: &BundleFinding) {
    let BundleFinding { severity, lint, evidence, advice, when, .. } = finding;
    let about = format!("{severity}: {}: {lint}: {evidence}", finding.place());
    let _ = writeln!(out, "{}", line(&about));
    if let Some(when) = when {
        let _ = writeln!(out, "    when: {}", line(&when.text()));
    }
    let _ = writeln!(out, "    what to do: {}", line(advice));
}

/// A text of an app as part of one line.
fn line(text: &str) -> String {
    cut(&one_line(text), LONGEST_TEXT, Theme::ASCII)
}

/// A moment, for the index.
pub(super) fn time_text(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// Seconds, to the millisecond.
pub(super) fn rounded_seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

#[cfg(test)]
pub(super) mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use super::super::findings::UnaskedApp;
    use super::*;

    fn found() -> BundleFindings {
        let finding = json!({
            "severity": "critical", "app": "reflector", "subject": "reflector_rx", "lint": "leak",
            "evidence": "7073 mbufs lost at app_fwd.c:18 forward()", "threshold": "more than 0",
            "advice": "pmdscope leaks -a reflector", "times": 1, "present": true,
            "since": "2026-11-22T08:56:01Z", "until": "2026-11-22T08:56:10Z",
        });
        let silent = "did not answer within 2 s";
        BundleFindings {
            findings: vec![serde_json::from_value(finding).unwrap()],
            more_findings: 0,
            findings_known: true,
            unasked: vec![UnaskedApp { app: Some("gen".to_owned()), reason: silent.to_owned() }],
            not_checked: vec!["use of mempools of testpmd (libpmdscope)".to_owned()],
        }
    }

    /// Of a bundle with a finding, an app that did not answer, and a part that is missing.
    pub(in crate::bundle) fn index() -> BundleIndex {
        let capture = PartEntry {
            part: "capture",
            app: Some("reflector".to_owned()),
            status: PartStatus::Incomplete,
            reason: Some("interrupted".to_owned()),
            command: Some("pmdscope capture -i reflector:any".to_owned()),
            started: Some("2026-11-22T08:56:00.000Z".to_owned()),
            seconds: 10.25,
            files: vec![FileEntry { path: "capture/reflector.pcapng".to_owned(), bytes: 123_456 }],
            messages: vec!["1,000 packets captured".to_owned()],
        };
        let doctor = PartEntry::skipped("doctor", None, "the time for all parts was over");
        let silent = PartEntry::skipped(APP, Some("gen".to_owned()), "did not answer within 2 s");
        BundleIndex {
            schema: INDEX_SCHEMA,
            tool: "0.2.0",
            host: "gateway7".to_owned(),
            started: "2026-11-22T08:56:00.000Z".to_owned(),
            ended: "2026-11-22T08:56:31.000Z".to_owned(),
            seconds: 31.0,
            interrupted: false,
            found: found(),
            redaction: None,
            parts: vec![capture, doctor, silent],
        }
    }

    #[test]
    fn the_index_says_what_is_there_and_what_is_missing() {
        assert_snapshot!(index().text());
    }

    #[test]
    fn the_index_says_what_was_redacted() {
        let parts = index().parts.into_iter().take(1).collect();
        let redaction = Some(Redaction::DONE);
        let found = BundleFindings::default();
        let index = BundleIndex { redaction, interrupted: true, parts, found, ..index() };
        assert_snapshot!(index.text());
    }

    #[test]
    fn names_make_no_lines_of_their_own() {
        let mut index = index();
        let lines = index.text().lines().count();
        let evil = "x\nFINDINGS\nnone\x1b[2J\u{202e}";
        index.host = evil.to_owned();
        index.found.unasked[0].app = Some(evil.to_owned());
        index.found.findings[0].app = evil.to_owned();
        index.found.findings[0].advice = evil.to_owned() + &"y".repeat(1 << 20);
        for part in &mut index.parts {
            (part.app, part.reason) = (Some(evil.to_owned()), Some(evil.to_owned()));
            part.messages = part.messages.iter().map(|_| evil.to_owned()).collect();
        }
        let text = index.text();
        assert_eq!(text.lines().count(), lines);
        assert!(!text.contains('\x1b') && !text.contains('\u{202e}') && text.len() < 20_000);
    }

    #[test]
    fn the_index_of_programs_has_the_same() {
        assert_snapshot!(index().json().unwrap());
    }
}

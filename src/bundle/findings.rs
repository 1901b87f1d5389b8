//! What the reports of a bundle have found and could not look at, for its index and its page.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use pmdscope_render::number;
use serde::{Deserialize, Serialize};

/// Reports of `check`: of the recording, and of the time of the collection.
const REPORTS: [&str; 2] = ["findings/recorded.json", "findings/findings.json"];
/// Largest report that is read, bytes.
const LARGEST_REPORT: u64 = 32 << 20;
/// Most findings that are listed, and most lines of each other list.
const MOST_FINDINGS: usize = 200;
const MOST_LINES: usize = 100;
/// Most places that a line names.
const MOST_PLACES: usize = 3;

/// A finding as the reports have it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct BundleFinding {
    /// `critical`, `warning` or `info`.
    pub(super) severity: String,
    /// The app; empty for an interface of the host.
    #[serde(default)]
    pub(super) app: String,
    /// What of the app has the problem; empty for the app itself.
    pub(super) subject: String,
    pub(super) lint: String,
    pub(super) evidence: String,
    pub(super) threshold: String,
    pub(super) advice: String,
    /// Most likely first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) causes: Vec<BundleCause>,
    /// When the recording had it; `None` if only the collection did.
    #[serde(flatten)]
    pub(super) when: Option<FindingSpan>,
}

/// A possible cause of a finding.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct BundleCause {
    pub(super) cause: String,
    /// Of the missed packets, above 0 to 1.
    pub(super) share: Option<f64>,
    pub(super) evidence: String,
}

/// When a recording had a finding.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct FindingSpan {
    /// RFC 3339.
    since: String,
    until: String,
    /// How often it began.
    times: u64,
    /// The last sample has it.
    present: bool,
}

/// An app that gave nothing, or apps that were left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct UnaskedApp {
    /// `None` for several.
    pub(super) app: Option<String>,
    pub(super) reason: String,
}

/// What the reports of a bundle say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct BundleFindings {
    /// The worst first.
    pub(super) findings: Vec<BundleFinding>,
    /// How many more the reports have.
    pub(super) more_findings: usize,
    /// At least one report could be read: otherwise it is unknown what is wrong.
    pub(super) findings_known: bool,
    /// Apps that did not answer, and apps that were left out.
    pub(super) unasked: Vec<UnaskedApp>,
    /// What could not be checked, with what would make it known in parentheses.
    pub(super) not_checked: Vec<String>,
}

/// Of the document of `check --json`, what is read here.
#[derive(Deserialize)]
struct CheckReport {
    #[serde(default)]
    interfaces: Vec<InterfaceReport>,
    interfaces_error: Option<String>,
    apps: Vec<AppReport>,
}

#[derive(Deserialize)]
struct InterfaceReport {
    findings: Vec<BundleFinding>,
}

#[derive(Deserialize)]
struct AppReport {
    app: String,
    state: String,
    reason: Option<String>,
    findings: Vec<BundleFinding>,
    checked: Option<CheckedReport>,
}

#[derive(Deserialize)]
struct CheckedReport {
    not_checked: Vec<NotChecked>,
}

#[derive(Deserialize)]
struct NotChecked {
    what: String,
    needs: String,
    device: Option<String>,
}

impl BundleFinding {
    /// What has the problem: the app and what of it, or an interface of the host.
    pub(super) fn place(&self) -> String {
        format!("{} {}", self.app, self.subject).trim().to_owned()
    }

    /// 0 for the worst.
    pub(super) fn rank(&self) -> usize {
        SEVERITIES.iter().position(|word| *word == self.severity).unwrap_or(SEVERITIES.len())
    }
}

/// From the worst on.
pub(super) const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];

impl FindingSpan {
    /// From when to when, and how often.
    pub(super) fn text(&self) -> String {
        let times = number::plural(self.times, "time");
        let present = if self.present { ", still there at the end" } else { "" };
        format!("{} to {}, {times}{present}", self.since, self.until)
    }
}

impl BundleCause {
    /// The cause with its share and what indicates it.
    pub(super) fn text(&self) -> String {
        let share = self.share.map(|share| format!(" ({})", number::percent(share)));
        format!("{}{}: {}", self.cause, share.unwrap_or_default(), self.evidence)
    }
}

impl BundleFindings {
    /// Reads the reports of a bundle; `unasked` are the apps that are known to have been left out.
    pub(super) fn read(staging: &Path, unasked: Vec<UnaskedApp>) -> Self {
        let mut found = Self { unasked, ..Self::default() };
        let mut findings = BTreeMap::new();
        let mut not_checked = BTreeMap::new();
        for path in REPORTS.map(|path| staging.join(path)) {
            if !path.exists() {
                // Among the parts that are missing, with the reason.
                continue;
            }
            match read_report(&path) {
                Ok(report) => {
                    found.findings_known = true;
                    found.add_report(report, &mut findings, &mut not_checked);
                }
                Err(error) => found.not_checked.push(format!("{error:#}")),
            }
        }
        found.set_findings(findings);
        found.not_checked.extend(not_checked.into_iter().map(not_checked_text));
        limit_lines(&mut found.not_checked);
        found.limit_unasked();
        found
    }

    fn add_report(
        &mut self,
        report: CheckReport,
        findings: &mut BTreeMap<FindingKey, BundleFinding>,
        not_checked: &mut BTreeMap<(String, String), Vec<String>>,
    ) {
        if let Some(error) = report.interfaces_error {
            let what = ("interfaces of the host".to_owned(), error);
            not_checked.entry(what).or_default();
        }
        for finding in report.interfaces.into_iter().flat_map(|interface| interface.findings) {
            add_finding(findings, finding);
        }
        for app in report.apps {
            let is_known = self.unasked.iter().any(|it| it.app.as_ref() == Some(&app.app));
            if app.state != "live" && !is_known {
                let reason = app.reason.unwrap_or_else(|| "has not answered yet".to_owned());
                self.unasked.push(UnaskedApp { app: Some(app.app.clone()), reason });
            }
            for not in app.checked.into_iter().flat_map(|checked| checked.not_checked) {
                let place =
                    not.device.map_or_else(|| app.app.clone(), |it| format!("{} {it}", app.app));
                let places = not_checked.entry((not.what, not.needs)).or_default();
                if !places.contains(&place) {
                    places.push(place);
                }
            }
            for finding in app.findings {
                add_finding(findings, finding);
            }
        }
    }

    /// The worst first, and not more than the most.
    fn set_findings(&mut self, findings: BTreeMap<FindingKey, BundleFinding>) {
        self.findings = findings.into_values().collect();
        self.findings.sort_by_key(BundleFinding::rank);
        self.more_findings = self.findings.len().saturating_sub(MOST_FINDINGS);
        self.findings.truncate(MOST_FINDINGS);
    }

    fn limit_unasked(&mut self) {
        let more = self.unasked.len().saturating_sub(MOST_LINES);
        if more > 0 {
            self.unasked.truncate(MOST_LINES);
            let reason = format!("and {more} more");
            self.unasked.push(UnaskedApp { app: None, reason });
        }
    }

    /// How many findings of each severity, as text; `None` without any.
    pub(super) fn counts(&self) -> Option<String> {
        let of = |word: &&str| self.findings.iter().filter(|it| it.severity == **word).count();
        let counts = SEVERITIES.iter().map(|word| (of(word), word)).filter(|(count, _)| *count > 0);
        let mut counts: Vec<String> =
            counts.map(|(count, word)| format!("{count} {word}")).collect();
        if self.more_findings > 0 {
            counts.push(format!("{} more", self.more_findings));
        }
        (!counts.is_empty()).then(|| counts.join(", "))
    }
}

/// What two reports of the same finding have in common: app, lint and subject.
type FindingKey = (String, String, String);

/// The same finding of two reports is one: the worse of both, or the later one, with the times of the recording.
fn add_finding(findings: &mut BTreeMap<FindingKey, BundleFinding>, finding: BundleFinding) {
    let key = (finding.app.clone(), finding.lint.clone(), finding.subject.clone());
    match findings.get_mut(&key) {
        Some(known) if known.rank() < finding.rank() => {}
        Some(known) => {
            let when = known.when.take().or_else(|| finding.when.clone());
            *known = BundleFinding { when, ..finding };
        }
        None => {
            findings.insert(key, finding);
        }
    }
}

fn read_report(path: &Path) -> Result<CheckReport> {
    let failed = || format!("cannot read {}", path.file_name().unwrap_or_default().display());
    let file = File::open(path).with_context(failed)?;
    let mut text = Vec::new();
    file.take(LARGEST_REPORT + 1).read_to_end(&mut text).with_context(failed)?;
    let is_small = text.len() as u64 <= LARGEST_REPORT;
    ensure!(is_small, "{}: larger than {}", failed(), number::bytes(LARGEST_REPORT));
    serde_json::from_slice(&text).with_context(failed)
}

fn not_checked_text(((what, needs), places): ((String, String), Vec<String>)) -> String {
    let shown = places.iter().take(MOST_PLACES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match places.len() {
        0 => format!("{what} ({needs})"),
        1..=MOST_PLACES => format!("{what} of {shown} ({needs})"),
        all => format!("{what} of {shown} and {} more ({needs})", all - MOST_PLACES),
    }
}

fn limit_lines(lines: &mut Vec<String>) {
    let more = lines.len().saturating_sub(MOST_LINES);
    if more > 0 {
        lines.truncate(MOST_LINES);
        lines.push(format!("and {more} more"));
    }
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;

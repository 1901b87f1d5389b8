//! Details of findings, and of what they are about.

use pmdscope_render::number::seconds;
use pmdscope_render::{Subject, Tone};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::finding::Finding;
use ratatui::text::Line;

use super::DetailPage;
use crate::findings::ranking::{RankedFinding, ranked};
use crate::findings::rows;
use crate::findings::text::age_text;
use crate::timeline::trends::FindingSpan;

/// Times at which a finding was there that are listed.
const TIMES: usize = 10;

impl DetailPage<'_> {
    /// What is wrong with the row.
    pub(super) fn findings_about(&mut self, subject: &Subject, fleet: &FleetState) {
        let of_any_queue = matches!(subject, Subject::Port { .. });
        for found in ranked(fleet, &self.view.thresholds) {
            let targets = rows::targets(found.finding, &self.view.thresholds, fleet);
            let is_about =
                targets.first() == Some(subject) || (of_any_queue && targets.contains(subject));
            if found.finding.app == subject.app() && is_about {
                self.text(&format!("finding {}", found.finding.lint), Tone::Title);
                self.finding(&found);
                self.lines.push(Line::default());
            }
        }
    }

    pub(super) fn finding_row(&mut self, found: &RankedFinding, now_ns: u64) {
        if let Some(app) = found.app {
            self.staleness(app, now_ns);
        }
        self.finding(found);
    }

    fn finding(&mut self, found: &RankedFinding) {
        let finding = found.finding;
        self.field("severity", finding.severity.word());
        if !finding.app.is_empty() {
            self.field("app", &finding.app);
        }
        if !finding.subject.is_app() {
            self.field("about", &finding.subject);
        }
        if let Some(age) = found.age(self.view.trends.as_ref()) {
            self.field("since", age_text(age));
        }
        self.field("evidence", &finding.evidence);
        for folded in &found.folded {
            self.field("also", &folded.evidence);
        }
        for cause in &finding.causes {
            self.field("cause", format!("{}: {}", cause.title(), cause.evidence));
        }
        self.field("threshold", &finding.threshold);
        self.field("what to do", &finding.advice);
    }

    /// How long it has been there, as far as that is known.
    pub(super) fn since(&mut self, finding: &Finding) {
        if let Some(age) = self.view.trends.as_ref().and_then(|trends| trends.age(finding)) {
            self.field("since", age_text(age));
        }
    }

    /// When a finding was there; `None` if that is not known.
    pub(super) fn history(&mut self, is_it: impl Fn(&FindingSpan) -> bool) -> Option<()> {
        let trends = self.view.trends.as_ref()?;
        let times: Vec<&FindingSpan> = trends.times(is_it).collect();
        let newest = times.last()?;
        if !newest.covers(trends.now) {
            self.field("severity", newest.severity.word());
            self.field("evidence", &newest.evidence);
        }
        self.heading("in the last 10 minutes");
        let ago = |at: u64| seconds(trends.now.saturating_sub(at) as f64 / 1e9);
        for span in times.iter().rev().take(TIMES) {
            let began = age_text(trends.age_of(span));
            let ended = span.ended.filter(|ended| *ended <= trends.now);
            let ended = ended.map_or_else(
                || "still there".to_owned(),
                |ended| format!("ended {} ago", ago(ended)),
            );
            self.text(&format!("began {began} ago, {ended}"), Tone::Plain);
        }
        if times.len() > TIMES {
            self.text(&format!("and {} times before", times.len() - TIMES), Tone::Plain);
        }
        Some(())
    }
}

//! The report of all checks, as data and as text.

use std::collections::BTreeMap;

use pmdscope_render::number::plural_noun;
use pmdscope_render::{TextLine, TextSpan, Tone};
use pmdscope_telemetry::printable::harmless;
use serde::Serialize;

use crate::SCHEMA;
use crate::check::{CheckGroup, CheckStatus, Fix};
use crate::facts::Distribution;

/// What the lines of a result begin with that are commands to be copied.
const NOW: &str = "fix now:";
const FOR_GOOD: &str = "for good:";
/// Where labels and their texts begin.
const LABEL_COLUMN: usize = 8;
const TEXT_COLUMN: usize = 18;

/// Results of all checks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: u32,
    /// Whether no check failed.
    pub ok: bool,
    /// Number of results by status.
    pub counts: BTreeMap<CheckStatus, usize>,
    /// Results, one per check and subject, in the order of the checks.
    pub results: Vec<CheckResult>,
    /// Distribution of the host, which decides how the kernel command line is changed.
    #[serde(skip)]
    pub(crate) distribution: Distribution,
}

/// Result of one check for one subject.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckResult {
    /// Name of the check.
    pub check: &'static str,
    /// Group of the check.
    pub group: CheckGroup,
    /// Condition that should hold.
    pub title: &'static str,
    /// Result of the check.
    pub status: CheckStatus,
    /// Value that was found, or why there is none.
    pub found: String,
    /// Why the condition matters.
    pub matters: &'static str,
    /// How to fix the problem; `None` if there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

impl Report {
    pub(crate) fn of(results: Vec<CheckResult>, distribution: Distribution) -> Self {
        let statuses = [CheckStatus::Pass, CheckStatus::Skip, CheckStatus::Warn, CheckStatus::Fail];
        let number = |status| results.iter().filter(|result| result.status == status).count();
        let counts: BTreeMap<_, _> = statuses.map(|status| (status, number(status))).into();
        let ok = number(CheckStatus::Fail) == 0;
        Self { schema: SCHEMA, ok, counts, results, distribution }
    }

    /// Returns the number of results with a status.
    pub fn count(&self, status: CheckStatus) -> usize {
        self.counts.get(&status).copied().unwrap_or(0)
    }

    /// Returns the report for people: the worst groups first, in each the worst results first. Passes
    /// are only counted unless `verbose`.
    pub fn lines(&self, verbose: bool) -> Vec<TextLine> {
        let mut lines = vec![self.summary()];
        let mut groups: BTreeMap<CheckGroup, Vec<&CheckResult>> = BTreeMap::new();
        let shown = |result: &&CheckResult| verbose || result.status != CheckStatus::Pass;
        for result in self.results.iter().filter(shown) {
            groups.entry(result.group).or_default().push(result);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        let worst = |results: &[&CheckResult]| results.iter().map(|result| result.status).max();
        groups.sort_by_key(|(_, results)| std::cmp::Reverse(worst(results)));
        for (group, mut results) in groups {
            results.sort_by_key(|result| std::cmp::Reverse(result.status));
            lines.push(TextLine::default());
            lines.push(line([(group.title(), Tone::Title)]));
            let (skipped, told): (Vec<_>, Vec<_>) =
                results.into_iter().partition(|result| result.status == CheckStatus::Skip);
            let (bad, good): (Vec<_>, Vec<_>) =
                told.into_iter().partition(|result| result.status > CheckStatus::Skip);
            lines.extend(bad.into_iter().flat_map(CheckResult::lines));
            lines.extend(skipped_lines(&skipped));
            lines.extend(good.into_iter().flat_map(CheckResult::lines));
        }
        lines
    }

    /// The same for so many columns, broken between words; commands stay in one line, as they are to be copied.
    pub fn fitted_lines(&self, verbose: bool, width: Option<usize>) -> Vec<TextLine> {
        let lines = self.lines(verbose);
        let Some(width) = width else { return lines };
        let fitted = |line: &TextLine| {
            let label = line.spans.first().filter(|span| span.tone == Tone::Dim);
            match label.map(|label| label.text.trim()) {
                Some(NOW | FOR_GOOD) => vec![line.clone()],
                Some(_) => line.wrapped(width, TEXT_COLUMN),
                None => line.wrapped(width, LABEL_COLUMN),
            }
        };
        lines.iter().flat_map(fitted).collect()
    }

    fn summary(&self) -> TextLine {
        let warnings = self.count(CheckStatus::Warn);
        let parts = [
            (
                format!("{} failed", self.count(CheckStatus::Fail)),
                Tone::Bad,
                self.count(CheckStatus::Fail),
            ),
            (
                format!("{warnings} {}", plural_noun(warnings as u64, "warning")),
                Tone::Warn,
                warnings,
            ),
            (
                format!("{} not checked", self.count(CheckStatus::Skip)),
                Tone::Dim,
                self.count(CheckStatus::Skip),
            ),
            (
                format!("{} passed", self.count(CheckStatus::Pass)),
                Tone::Good,
                self.count(CheckStatus::Pass),
            ),
        ];
        let mut spans = vec![span("doctor: ", Tone::Plain)];
        for (index, (text, tone, number)) in parts.into_iter().enumerate() {
            if index > 0 {
                spans.push(span(", ", Tone::Plain));
            }
            spans.push(span(&text, if number > 0 { tone } else { Tone::Dim }));
        }
        TextLine { spans }
    }
}

impl CheckResult {
    /// Returns the lines of a result; one that needs no action takes one line.
    fn lines(&self) -> Vec<TextLine> {
        let (word, tone) = match self.status {
            CheckStatus::Pass => ("pass", Tone::Good),
            CheckStatus::Skip => ("skip", Tone::Dim),
            CheckStatus::Warn => ("WARN", Tone::Warn),
            CheckStatus::Fail => ("FAIL", Tone::Bad),
        };
        let title = format!("  {} [{}]: ", self.title, self.check);
        let mut lines = vec![line([
            ("  ", Tone::Plain),
            (word, tone),
            (&title, Tone::Plain),
            (&self.found, Tone::Plain),
        ])];
        if self.status >= CheckStatus::Warn {
            lines.push(indented("why:", self.matters));
            let fix = self.fix.clone().unwrap_or_default();
            lines.extend(fix.now.iter().map(|command| indented(NOW, command)));
            lines.extend(fix.persistent.iter().map(|command| indented(FOR_GOOD, command)));
            if !fix.advice.is_empty() {
                lines.push(indented("advice:", &fix.advice));
            }
        }
        lines
    }
}

/// Returns one line for all checks that were skipped for the same reason.
fn skipped_lines(skipped: &[&CheckResult]) -> Vec<TextLine> {
    let mut reasons: Vec<(&str, Vec<&CheckResult>)> = Vec::new();
    for result in skipped {
        match reasons.iter_mut().find(|(reason, _)| *reason == result.found) {
            Some((_, same)) => same.push(result),
            None => reasons.push((&result.found, vec![result])),
        }
    }
    let of_reason = |(reason, same): (&str, Vec<&CheckResult>)| {
        if let [one] = same[..] {
            return one.lines();
        }
        let checks = same.iter().map(|result| result.check).collect::<Vec<_>>().join(", ");
        let text = format!("  {reason} [{checks}]");
        vec![line([("  ", Tone::Plain), ("skip", Tone::Dim), (&text, Tone::Plain)])]
    };
    reasons.into_iter().flat_map(of_reason).collect()
}

fn indented(label: &str, text: &str) -> TextLine {
    let width = TEXT_COLUMN - LABEL_COLUMN - 1;
    let label = format!("{:LABEL_COLUMN$}{label:<width$} ", "");
    line([(label.as_str(), Tone::Dim), (text, Tone::Plain)])
}

fn line<const N: usize>(parts: [(&str, Tone); N]) -> TextLine {
    TextLine { spans: parts.map(|(text, tone)| span(text, tone)).to_vec() }
}

/// Makes text harmless: values come from the host, and from files that others wrote.
fn span(text: &str, tone: Tone) -> TextSpan {
    TextSpan { text: harmless(text, &[]), tone }
}

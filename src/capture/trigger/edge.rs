//! New findings: a finding fires once, when it begins.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint};

/// How long a finding must be absent before it is new again.
const GONE: Duration = Duration::from_secs(1);

/// The findings of one app, and when each was last there.
#[derive(Debug, Default)]
pub(super) struct FindingEdges {
    /// By lint and subject; `None` before the first check.
    seen: Option<BTreeMap<(Lint, FindingSubject), Instant>>,
}

impl FindingEdges {
    /// Those that were not there a moment ago. Those of the first check were there before.
    pub(super) fn new_findings<'a>(
        &mut self,
        findings: impl Iterator<Item = &'a Finding>,
        now: Instant,
    ) -> Vec<&'a Finding> {
        let first = self.seen.is_none();
        let seen = self.seen.get_or_insert_default();
        let is_new = |finding: &&Finding| {
            let before = seen.insert((finding.lint, finding.subject.clone()), now);
            !first && before.is_none_or(|before| now - before > GONE)
        };
        findings.filter(is_new).collect()
    }
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::finding::Severity;

    use super::*;

    fn stall_of(lcore: u32) -> Finding {
        Finding {
            lint: Lint::Stall,
            severity: Severity::Warning,
            app: "app".into(),
            subject: FindingSubject::Lcore(lcore),
            evidence: String::new(),
            threshold: String::new(),
            advice: String::new(),
            causes: Vec::new(),
            weight: 0.0,
        }
    }

    #[test]
    fn a_finding_is_new_once_until_it_was_gone_for_a_while() {
        let (stall, other) = (stall_of(1), stall_of(2));
        let start = Instant::now();
        let mut edges = FindingEdges::default();
        let mut new_findings = |ms, findings: &[&Finding]| {
            let now = start + Duration::from_millis(ms);
            let new = edges.new_findings(findings.iter().copied(), now);
            new.iter().map(|finding| finding.subject.clone()).collect::<Vec<_>>()
        };
        assert!(new_findings(0, &[&stall]).is_empty(), "it was there before");
        assert!(new_findings(200, &[&stall]).is_empty());
        assert_eq!(new_findings(400, &[&stall, &other]), [FindingSubject::Lcore(2)]);
        assert!(new_findings(1200, &[]).is_empty());
        assert!(new_findings(1400, &[&stall, &other]).is_empty(), "gone for a second only");
        assert_eq!(new_findings(2401, &[&stall]), [FindingSubject::Lcore(1)]);
    }

    #[test]
    fn what_comes_after_a_first_look_at_nothing_is_new() {
        let stall = stall_of(1);
        let mut edges = FindingEdges::default();
        let now = Instant::now();
        assert!(edges.new_findings([].into_iter(), now).is_empty());
        assert_eq!(edges.new_findings([&stall].into_iter(), now).len(), 1);
    }
}

//! Where a finding is, its evidence and its age, as text.

use pmdscope_render::number::seconds;
use pmdscope_telemetry::finding::FindingSubject;

use super::ranking::RankedFinding;
use crate::timeline::trends::FindingAge;

/// A line of code is more precise than the pool that loses its mbufs, and comes first.
pub(crate) fn place(about: &FindingSubject) -> String {
    match about {
        FindingSubject::Site { pool, site } => format!("{site} {pool}"),
        subject => subject.to_string(),
    }
}

/// With what was folded into the finding.
pub(crate) fn evidence(found: &RankedFinding) -> String {
    let folded = found.folded.iter().map(|folded| format!("; {}", folded.evidence));
    std::iter::once(found.finding.evidence.clone()).chain(folded).collect()
}

/// `1m30s`, or `>1m30s` for one that was there before.
pub(crate) fn age_text(age: FindingAge) -> String {
    format!("{}{}", if age.at_least { ">" } else { "" }, seconds(age.seconds))
}

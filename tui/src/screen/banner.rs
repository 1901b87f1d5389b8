//! The line above the tables of a page: the finding to look at first.

use pmdscope_render::number::seconds;
use pmdscope_render::{Tone, cut};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::printable::harmless;
use ratatui::text::Line;

use crate::app_state::lost;
use crate::findings::ranking::{FindingRate, RankedFinding, ranked};
use crate::findings::text::{age_text, evidence, place};
use crate::state::ViewState;
use crate::style::{NAME_MIN, ThemeStyle, severity_look};

/// Columns below which the evidence is left out.
const EVIDENCE_MIN: usize = 12;

/// What, where, how fast and since when; then what else is known, as far as there is room.
pub(super) fn line(view: &ViewState, fleet: &FleetState, width: usize) -> Line<'static> {
    let ranked = ranked(fleet, &view.thresholds);
    let (text, tone) = match ranked.first() {
        Some(found) => {
            let (sign, tone) = severity_look(found.finding.severity, view.theme);
            let stale = found.app.filter(|app| app.stale());
            let stale = stale.map(|app| format!(", {}", lost(app, fleet.now_ns)));
            let text = text(found, view, &stale.unwrap_or_default(), ranked.len() - 1, width);
            (format!("{sign}{text}"), tone)
        }
        None if fleet.is_empty() => (String::new(), Tone::Dim),
        None => ("no findings".to_owned(), Tone::Good),
    };
    Line::styled(harmless(&text, &[]), view.theme.style(tone))
}

fn text(
    found: &RankedFinding,
    view: &ViewState,
    stale: &str,
    others: usize,
    width: usize,
) -> String {
    let finding = found.finding;
    let rate = found.rate.map_or(String::new(), |rate: FindingRate| format!(" {}", rate.text()));
    let age = found.age(view.trends.as_ref());
    let age = age.map_or(String::new(), |age| format!(" for {}", age_text(age)));
    let left = found.left_s.map_or(String::new(), |left| format!(", empty in {}", seconds(left)));
    let more = if others > 0 { format!(" (+{others} more)") } else { String::new() };
    let (what, how) = (finding.lint.name(), format!("{rate}{age}{stale}"));
    let about = format!("{} {}", finding.app, place(&finding.subject));
    // The sign has two columns.
    let room = width.saturating_sub(what.len() + 3 + how.chars().count());
    let about = cut(about.trim(), room.max(NAME_MIN), view.theme);
    let all = format!("{what} {about}{how}{left}{more}");
    match width.saturating_sub(all.chars().count() + 4) {
        room if room < EVIDENCE_MIN => all,
        room => format!("{all}: {}", cut(&evidence(found), room, view.theme)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use pmdscope_telemetry::finding::FindingSubject;

    fn banner(fleet: &FleetState, width: usize) -> String {
        line(&fixture::view(), fleet, width).to_string().chars().take(width).collect()
    }

    #[test]
    fn the_place_is_cut_before_the_rate_and_the_time() {
        let mut findings = fixture::leaking_findings();
        let fleet = fixture::fleet_of(fixture::leaking(), findings.clone());
        let shown = banner(&fleet, 80);
        let expected =
            "✖ leak reflector app_fwd.c:18 reflector_rx 412/s for 18s, empty in 18s (+2 more)";
        assert_eq!(shown, expected);
        assert_eq!(banner(&fleet, 40), "✖ leak reflector app_fwd.… 412/s for 18s");
        findings.retain(|finding| matches!(finding.subject, FindingSubject::Port(_)));
        let fleet = fixture::fleet_of(fixture::leaking(), findings);
        let shown = banner(&fleet, 80);
        assert!(shown.starts_with("▲ rx_missed reflector net_vhost0 412/s for "), "{shown}");
        let healthy = fixture::fleet_of(fixture::leaking(), Vec::new());
        assert_eq!(banner(&healthy, 80), "no findings");
    }
}

//! From a finding to the row that it is about, and back.

use pmdscope_render::Subject;
use pmdscope_telemetry::FleetState;

use crate::findings::rows;
use crate::state::{DrillOrigin, PageTab, ViewFilter, ViewState};
use crate::tables;

/// Goes to the row that the selected finding is about; `false` if there is none.
pub(super) fn follow(view: &mut ViewState, fleet: &FleetState) -> bool {
    let Some(Subject::Finding { app, lint, about }) = view.selected() else { return false };
    let mut findings = fleet.findings().into_iter().map(|(_, finding)| finding);
    let found =
        findings.find(|found| (&found.app, found.lint, &found.subject) == (app, *lint, about));
    let Some(finding) = found else { return false };
    let targets = rows::targets(finding, &view.thresholds, fleet).into_iter();
    let mut targets = targets.filter_map(|target| Some((page(&target)?, target)));
    let shown = |(tab, target): &(PageTab, Subject)| {
        let tables = tables::of(*tab, fleet, view);
        tables.iter().any(|table| table.rows.iter().any(|row| row.subject == *target))
    };
    let Some((tab, target)) = targets.find(shown) else { return false };
    view.origin = Some(DrillOrigin {
        tab: view.tab,
        selected: view.selected().cloned(),
        // It may hide the row.
        filter: std::mem::take(&mut view.filter).text().to_owned(),
    });
    view.tab = tab;
    view.selected.insert(tab, target);
    true
}

/// Shows the page again from which a finding was followed, as it was.
pub(super) fn go_back(view: &mut ViewState, origin: DrillOrigin) {
    view.tab = origin.tab;
    view.filter = ViewFilter::of(origin.filter);
    match origin.selected {
        Some(selected) => view.selected.insert(view.tab, selected),
        None => view.selected.remove(&view.tab),
    };
}

/// The page that has such rows.
fn page(subject: &Subject) -> Option<PageTab> {
    match subject {
        Subject::Port { .. } | Subject::Queue { .. } => Some(PageTab::Ports),
        Subject::Interface { .. } => Some(PageTab::Kernel),
        Subject::Pool { .. } | Subject::Site { .. } => Some(PageTab::Pools),
        Subject::Lcore { .. } => Some(PageTab::Lcores),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint};

    use super::*;
    use crate::action::{Action, SelectionMotion};
    use crate::fixture;
    use crate::state::InputMode;
    use crate::update::update;

    fn selected(finding: usize) -> (ViewState, FleetState) {
        let (mut view, fleet) = (fixture::view(), fixture::fleet());
        let row = rows::subject(&fixture::leaking_findings()[finding]);
        update(&mut view, Action::Select(row), &fleet);
        (view, fleet)
    }

    fn title(view: &ViewState) -> String {
        view.selected().map(Subject::title).unwrap_or_default()
    }

    #[test]
    fn a_finding_leads_to_its_row_and_esc_back() {
        for (finding, tab, row) in [
            (0, PageTab::Ports, "port reflector:0"),
            (1, PageTab::Pools, "leak at app_fwd.c:18 of reflector"),
            (2, PageTab::Pools, "pool reflector_rx of reflector"),
        ] {
            let (mut view, fleet) = selected(finding);
            view.filter = ViewFilter::of("reflector");
            let before = view.clone();
            update(&mut view, Action::Open, &fleet);
            assert_eq!((view.tab, title(&view).as_str(), view.filter.text()), (tab, row, ""));
            update(&mut view, Action::Open, &fleet);
            assert!(matches!(view.mode, InputMode::Detail(_)));
            update(&mut view, Action::Back, &fleet);
            update(&mut view, Action::Back, &fleet);
            assert_eq!(
                (view.tab, title(&view), view.filter.text()),
                (before.tab, title(&before), before.filter.text())
            );
            assert_eq!(view.mode, InputMode::Browse);
        }
    }

    /// Where a finding leads to; `Esc` leads back.
    fn opened(fleet: &FleetState, finding: &Finding) -> (PageTab, String) {
        let mut view = fixture::view();
        let row = rows::subject(finding);
        update(&mut view, Action::Select(row.clone()), fleet);
        update(&mut view, Action::Open, fleet);
        let there = (view.tab, title(&view));
        update(&mut view, Action::Back, fleet);
        assert_eq!((view.tab, view.selected()), (PageTab::Overview, Some(&row)));
        there
    }

    #[test]
    fn a_finding_leads_to_its_lcore_its_queue_and_its_interface() {
        let finding =
            |lint, subject| Finding { lint, subject, ..fixture::leaking_findings().remove(0) };
        let stall = finding(Lint::Stall, FindingSubject::Lcore(2));
        let fleet = fixture::fleet_of(fixture::leaking(), vec![stall.clone()]);
        let lcore = (PageTab::Lcores, "lcore 2 of reflector".to_owned());
        assert_eq!(opened(&fleet, &stall), lcore);

        let missed = fixture::leaking_findings().remove(0);
        let mut model = fixture::leaking();
        model.queues[1].missed_ps = Some(412.0);
        let queue = (PageTab::Ports, "rx queue reflector:0:1".to_owned());
        let fleet = fixture::fleet_of(model, vec![missed.clone()]);
        assert_eq!(opened(&fleet, &missed), queue);

        let fleet = fixture::fleet_with_interfaces();
        let flood = fleet.interfaces.findings().next().unwrap();
        assert_eq!(opened(&fleet, flood), (PageTab::Kernel, "interface eth0".to_owned()));
    }

    #[test]
    fn the_findings_page_leads_there_and_back_as_well() {
        let (mut view, fleet) = (fixture::view(), fixture::fleet());
        update(&mut view, Action::Go(PageTab::Findings), &fleet);
        let row = rows::subject(&fixture::leaking_findings()[2]);
        update(&mut view, Action::Select(row.clone()), &fleet);
        update(&mut view, Action::Open, &fleet);
        assert_eq!(
            (view.tab, title(&view).as_str()),
            (PageTab::Pools, "pool reflector_rx of reflector")
        );
        update(&mut view, Action::Back, &fleet);
        assert_eq!((view.tab, view.selected()), (PageTab::Findings, Some(&row)));
    }

    #[test]
    fn a_finding_that_has_ended_shows_when_it_was_there() {
        let (mut view, fleet) = (fixture::view(), fixture::fleet());
        update(&mut view, Action::Go(PageTab::Findings), &fleet);
        update(&mut view, Action::Move(SelectionMotion::Bottom), &fleet);
        assert_eq!(title(&view), "port_flap: reflector net_vhost0");
        update(&mut view, Action::Open, &fleet);
        assert!(matches!(view.mode, InputMode::Detail(Subject::Finding { .. })));
        let lines = crate::detail::lines(view.selected().unwrap(), &view, &fleet);
        let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        assert!(lines.contains(&"began 1m10s ago, ended 1m00s ago".to_owned()), "{lines:?}");
    }

    #[test]
    fn another_page_forgets_the_way_back() {
        let (mut view, fleet) = selected(1);
        update(&mut view, Action::Open, &fleet);
        update(&mut view, Action::Go(PageTab::Lcores), &fleet);
        update(&mut view, Action::Back, &fleet);
        assert_eq!(view.tab, PageTab::Lcores);
    }

    #[test]
    fn a_finding_about_an_app_shows_its_details() {
        let (mut view, mut fleet) = selected(1);
        let finding = Finding {
            lint: Lint::AppMissing,
            subject: FindingSubject::App,
            ..fixture::leaking_findings().remove(0)
        };
        fleet.apply(fixture::sampled(fixture::leaking(), vec![finding.clone()]));
        update(&mut view, Action::Select(rows::subject(&finding)), &fleet);
        update(&mut view, Action::Open, &fleet);
        assert_eq!(view.tab, PageTab::Overview);
        assert!(matches!(view.mode, InputMode::Detail(Subject::Finding { .. })));
    }

    #[test]
    fn details_of_a_finding_are_one_key_away() {
        let (mut view, fleet) = selected(1);
        update(&mut view, Action::Details, &fleet);
        assert!(matches!(view.mode, InputMode::Detail(Subject::Finding { .. })));
        assert_eq!(view.tab, PageTab::Overview);
    }
}

//! Tests of the pages as users see them, on terminals of several sizes.

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::action::{Action, SelectionMotion};
use crate::findings::rows;
use crate::fixture;
use crate::update::update;
use pmdscope_render::{Palette, Theme};
use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint, Severity};
use pmdscope_telemetry::model::QueueRates;
use pmdscope_telemetry::sample::{
    CountSource, DeviceSample, LcoreRoleSample, LostGroupSample, PoolOccupancy, PoolScanSample,
    QueueDirection, ScanSample, XraySample,
};
use pmdscope_telemetry::{ErrorClass, FleetEvent};

pub(crate) fn draw(width: u16, height: u16, view: &ViewState, fleet: &FleetState) -> Buffer {
    let view = &ViewState { width, height, ..view.clone() };
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| render(frame, view, fleet)).unwrap();
    terminal.backend().buffer().clone()
}

pub(crate) fn text(width: u16, height: u16, view: &ViewState, fleet: &FleetState) -> String {
    let buffer = draw(width, height, view, fleet);
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned() + "\n").collect()
}

pub(crate) fn on(tab: PageTab) -> ViewState {
    ViewState { tab, ..fixture::view() }
}

#[test]
fn the_overview_without_findings() {
    let healthy = fixture::fleet_of(fixture::leaking(), Vec::new());
    assert_snapshot!("overview_80x24_healthy", text(80, 24, &on(PageTab::Overview), &healthy));
}

#[test]
fn the_overview_says_what_where_how_fast_and_since_when_at_80_columns() {
    let screen = text(80, 24, &on(PageTab::Overview), &fixture::fleet());
    let leak = screen.lines().find(|line| line.contains("✖ leak ")).unwrap();
    for part in ["✖", "reflector", "app_fwd.c:18", "412/s", "18s"] {
        assert!(leak.contains(part), "{part}: {leak}");
    }
    assert!(screen.contains("-2m") && screen.contains("20M") && screen.contains("500"), "{screen}");
}

#[test]
fn mono_uses_no_colour_and_still_shows_the_selection() {
    let fleet = fixture::fleet_with_interfaces();
    for tab in PageTab::ALL {
        let mut view = on(tab);
        view.theme.palette = Palette::Mono;
        update(&mut view, Action::Move(SelectionMotion::Top), &fleet);
        let buffer = draw(120, 40, &view, &fleet);
        let plain = |c: &Color| *c == Color::Reset;
        assert!(buffer.content().iter().all(|cell| plain(&cell.fg) && plain(&cell.bg)));
        let selected = buffer.content().iter().filter(|c| c.modifier.contains(Modifier::REVERSED));
        assert_eq!(selected.count(), 120);
    }
}

/// So many findings about one app.
fn many(findings: u32) -> FleetState {
    let finding = |lcore| Finding {
        lint: Lint::Stall,
        subject: FindingSubject::Lcore(lcore),
        ..fixture::leaking_findings().remove(0)
    };
    let mut fleet = fixture::fleet_of(fixture::leaking(), (0..findings).map(finding).collect());
    for app in ["a", "b", "c"] {
        let mut model = fixture::stock();
        app.clone_into(&mut model.sample.app.name);
        fleet.apply(fixture::sampled(model, Vec::new()));
    }
    fleet
}

#[test]
fn many_findings_leave_room_for_apps() {
    let fleet = many(60);
    for (width, height) in [(40, 12), (80, 18), (80, 24), (120, 40), (200, 60)] {
        let mut view = ViewState { width, height, ..on(PageTab::Overview) };
        let screen = text(width, height, &view, &fleet);
        let more = screen.lines().position(|line| line.ends_with(" more, 8: all"));
        let shown = screen.lines().filter(|line| line.contains("stall")).count();
        assert!(screen.contains(&format!("+{} more", 60 - shown)), "{screen}");
        let below: Vec<&str> =
            screen.lines().skip(more.unwrap() + 1).filter(|line| !line.is_empty()).collect();
        assert!(below[0].starts_with("App ") && below[3].starts_with("c "), "{screen}");
        // What is selected stays in sight, and the apps are as near as before.
        let last = rows::subject(&fleet.apps[3].findings[59]);
        update(&mut view, Action::Select(last.clone()), &fleet);
        let rows = tables::shown(&view, &fleet).remove(0).rows;
        assert!(rows.len() == shown && rows[shown - 1].subject == last);
    }
    let few = text(80, 24, &on(PageTab::Overview), &many(11));
    assert!(!few.contains(" more, 8"), "{few}");
}

#[test]
fn nothing_essential_is_cut_on_a_small_screen() {
    let mut fleet = fixture::fleet();
    for (width, height) in [(80, 24), (40, 12)] {
        let screen = text(width, height, &on(PageTab::Overview), &fleet);
        let leak = screen.lines().find(|line| line.contains("✖ leak ")).unwrap();
        assert!(leak.contains("412/s") && leak.ends_with(" 18s"), "{screen}");
        assert!(screen.lines().any(|line| line.ends_with("State")), "{screen}");
        assert!(screen.lines().any(|line| line.ends_with(" live")), "{screen}");
    }
    fleet.apply(FleetEvent::Lost {
        class: ErrorClass::Timeout,
        app: "reflector".to_owned(),
        reason: "connection refused".to_owned(),
        finding: None,
    });
    fleet.now_ns += 12_000_000_000;
    let screen = text(40, 12, &on(PageTab::Overview), &fleet);
    assert!(screen.contains("lost 12s ago"), "{screen}");
}

#[test]
fn a_leak_has_its_evidence_and_advice_on_a_small_screen() {
    let fleet = fixture::fleet_of(fixture::leaking(), fixture::leaking_findings());
    let mut view = on(PageTab::Pools);
    let rows = tables::shown(&view, &fleet).into_iter().flat_map(|table| table.rows);
    let site = rows.map(|row| row.subject).find(|row| matches!(row, Subject::Site { .. })).unwrap();
    update(&mut view, Action::Select(site), &fleet);
    update(&mut view, Action::Open, &fleet);
    let screen = text(80, 24, &view, &fleet);
    assert!(screen.contains("frees nothing"), "{screen}");
    assert_snapshot!("leak_80x24", screen);
    view.theme = Theme::ASCII;
    update(&mut view, Action::Back, &fleet);
    assert_snapshot!("leaks_ascii_80x24", text(80, 24, &view, &fleet));
}

#[test]
fn no_app() {
    let mut fleet = FleetState::default();
    assert_snapshot!("looking", text(80, 10, &fixture::view(), &fleet));
    fleet.apply(FleetEvent::NoApps {
        advice: "no DPDK app found in /run/dpdk\nstart one".to_owned(),
    });
    assert_snapshot!("no_app", text(80, 10, &fixture::view(), &fleet));
}

#[test]
fn stock_app_says_what_it_cannot_show() {
    let fleet = fixture::fleet_of(fixture::stock(), Vec::new());
    let pages = [PageTab::Ports, PageTab::Pools, PageTab::Lcores]
        .map(|tab| text(100, 14, &on(tab), &fleet));
    assert_snapshot!(pages.join("----\n"));
}

#[test]
fn lost_app_is_dimmed_with_its_age() {
    let mut fleet = fixture::fleet();
    fleet.apply(FleetEvent::Lost {
        class: ErrorClass::Timeout,
        app: "reflector".to_owned(),
        reason: "connection refused".to_owned(),
        finding: fixture::leaking_findings().pop(),
    });
    fleet.now_ns += 12_000_000_000;
    assert_snapshot!(text(100, 24, &fixture::view(), &fleet));
    let buffer = draw(100, 24, &on(PageTab::Ports), &fleet);
    let row = (0..24).find(|&y| buffer[(0, y)].symbol() == "r" && y > 3).unwrap();
    assert!((0..9).all(|x| buffer[(x, row)].modifier.contains(Modifier::DIM)));
    for tab in [PageTab::Ports, PageTab::Pools, PageTab::Lcores, PageTab::Rings, PageTab::Findings]
    {
        let screen = text(100, 24, &on(tab), &fleet);
        assert!(screen.contains("reflector: lost 12s ago, values are old"), "{screen}");
    }
}

#[test]
fn many_lost_apps_leave_room_for_rows() {
    let mut fleet = fixture::fleet_of(fixture::leaking(), Vec::new());
    for number in 0..33 {
        let app = format!("app-{number:02}");
        let mut model = fixture::stock();
        model.sample.app.name.clone_from(&app);
        fleet.apply(fixture::sampled(model, Vec::new()));
        let reason = "connection refused".to_owned();
        fleet.apply(FleetEvent::Lost { class: ErrorClass::Timeout, app, reason, finding: None });
    }
    let screen = text(100, 24, &on(PageTab::Ports), &fleet);
    let named = screen.lines().filter(|line| line.ends_with("values are old"));
    assert_eq!(named.count(), 3, "{screen}");
    assert!(screen.contains("\n+30 more apps without answer, 1: all\n"), "{screen}");
    assert!(screen.contains("\nPorts"), "{screen}");
}

#[test]
fn the_share_of_a_hot_queue_is_marked() {
    let mut model = fixture::leaking();
    let shares = [(0, 0.9, 9_000_000.0), (1, 0.1, 1_000_000.0)];
    for (number, share, pps) in shares {
        let is_it = |queue: &&mut QueueRates| {
            (queue.queue, queue.direction) == (number, QueueDirection::Rx)
        };
        let queue = model.queues.iter_mut().find(is_it).unwrap();
        (queue.share, queue.pps) = (Some(share), Some(pps));
    }
    let fleet = fixture::fleet_of(model, Vec::new());
    let page = text(160, 30, &on(PageTab::Ports), &fleet);
    assert!(page.contains("!90%") && !page.contains("!10%"), "{page}");
    let mut tolerant = on(PageTab::Ports);
    tolerant.thresholds.queue_ratio = 9.0;
    let page = text(160, 30, &tolerant, &fleet);
    assert!(page.contains("90%") && !page.contains("!90%"), "{page}");
}

#[test]
fn apps_and_ports_that_are_missing() {
    let mut missing = Finding {
        lint: Lint::PortMissing,
        severity: Severity::Critical,
        app: "testpmd".to_owned(),
        subject: FindingSubject::Port("0000:03:00.0".to_owned()),
        evidence: "0000:03:00.0 is expected and not among its ports".to_owned(),
        threshold: "every expected port exists".to_owned(),
        advice: "bind it to a DPDK driver".to_owned(),
        causes: Vec::new(),
        weight: 0.0,
    };
    let mut model = fixture::stock();
    let device = DeviceSample {
        address: "0000:03:00.0".to_owned(),
        present: true,
        network: true,
        driver: Some("ixgbe".to_owned()),
    };
    model.sample.devices = vec![device];
    let mut fleet = fixture::fleet_of(model, vec![missing.clone()]);
    (missing.lint, missing.app, missing.subject) =
        (Lint::AppMissing, "fwd".into(), FindingSubject::App);
    fleet.apply(FleetEvent::Lost {
        class: ErrorClass::Missing,
        app: "fwd".to_owned(),
        reason: "is expected, and does not run".to_owned(),
        finding: Some(missing),
    });
    fleet.now_ns += 133_000_000_000;
    let mut view = fixture::view();
    let pages = [80, 120].map(|width| text(width, 14, &view, &fleet));
    assert_snapshot!(pages.join("----\n"));
    update(&mut view, Action::Move(SelectionMotion::Bottom), &fleet);
    update(&mut view, Action::Select(Subject::App { app: "testpmd".to_owned() }), &fleet);
    update(&mut view, Action::Open, &fleet);
    assert_snapshot!("app_with_a_missing_port", text(80, 24, &view, &fleet));
}

#[test]
fn threads_of_a_stock_app_are_known_to_the_kernel() {
    let mut model = fixture::stock();
    let leaking = fixture::leaking();
    (model.sample.threads, model.threads) = (leaking.sample.threads, leaking.threads);
    let fleet = fixture::fleet_of(model, Vec::new());
    let mut view = on(PageTab::Lcores);
    let page = text(80, 12, &view, &fleet);
    update(&mut view, Action::Open, &fleet);
    assert_snapshot!([page, text(80, 14, &view, &fleet)].join("----\n"));
}

#[test]
fn the_eal_tells_the_roles_of_lcores_of_a_stock_app() {
    let role =
        |lcore, role: &str| LcoreRoleSample { lcore, role: role.to_owned(), cpus: Vec::new() };
    let mut model = fixture::stock();
    let leaking = fixture::leaking();
    (model.sample.threads, model.threads) = (leaking.sample.threads, leaking.threads);
    model.sample.roles = vec![role(1, "RTE"), role(2, "RTE"), role(7, "SERVICE")];
    let fleet = fixture::fleet_of(model, Vec::new());
    let mut view = on(PageTab::Lcores);
    let page = text(110, 12, &view, &fleet);
    for _ in 0..2 {
        update(&mut view, Action::Move(SelectionMotion::Down), &fleet);
    }
    update(&mut view, Action::Open, &fleet);
    assert_snapshot!([page, text(80, 14, &view, &fleet)].join("----\n"));
}

#[test]
fn stolen_time_stands_beside_gaps_only_where_it_is_traced() {
    let fleet = fixture::fleet_of(fixture::stolen(), Vec::new());
    let view = on(PageTab::Lcores);
    let pages = [80, 120, 200].map(|width| text(width, 12, &view, &fleet));
    for page in &pages {
        assert!(page.contains("!2.1%") && page.contains("eth0-TxR"), "{page}");
    }
    let untraced = text(200, 12, &view, &fixture::fleet());
    assert!(!untraced.contains("Stolen"), "{untraced}");
    assert_snapshot!("stolen", pages.join("----\n"));
}

#[test]
fn details_of_an_lcore_name_all_thieves() {
    let fleet = fixture::fleet_of(fixture::stolen(), Vec::new());
    let mut view = on(PageTab::Lcores);
    update(&mut view, Action::Move(SelectionMotion::Top), &fleet);
    update(&mut view, Action::Open, &fleet);
    let page = text(80, 24, &view, &fleet);
    assert!(page.contains("eth0-TxRx-3 24: 4,000 times, 20.0ms"), "{page}");
    assert_snapshot!("detail_stolen", page);
}

#[test]
fn without_bpf_stolen_time_says_what_it_lacks() {
    let fleet = fixture::fleet_of(fixture::stolen_by_proc(), Vec::new());
    let page = text(120, 14, &on(PageTab::Lcores), &fleet);
    assert!(page.contains("page faults: not in /proc") && !page.contains("0%"), "{page}");
    assert_snapshot!("stolen_by_proc", page);
}

#[test]
fn lost_packets_that_a_scan_found_are_decoded() {
    let mut model = fixture::stock();
    let group = LostGroupSample {
        mbufs: 412,
        port: Some(0),
        protocol: Some("udp".to_owned()),
        destination: Some("198.18.1.1:53".to_owned()),
        conversations: 17,
        least_bytes: 60,
        most_bytes: 60,
        oldest_at_least_ms: 12_000,
        ..LostGroupSample::default()
    };
    let name = model.sample.pools[0].name.clone();
    let pool = PoolScanSample { name, groups: vec![group], ..PoolScanSample::default() };
    model.sample.scan = Some(ScanSample { pools: vec![pool], ..ScanSample::default() });
    let fleet = fixture::fleet_of(model, Vec::new());
    let mut view = on(PageTab::Pools);
    let page = text(80, 24, &view, &fleet);
    let row = page.lines().find(|line| line.contains("!412")).unwrap();
    assert!(row.ends_with(" >12s port 0, udp, * > 198.18.1.1:53, 60 bytes"), "{page}");
    update(&mut view, Action::Move(SelectionMotion::Bottom), &fleet);
    update(&mut view, Action::Open, &fleet);
    let details = text(80, 24, &view, &fleet);
    assert!(details.contains("conversation    * > 198.18.1.1:53"), "{details}");
}

#[test]
fn exhausted_pool() {
    let fleet = fixture::fleet_of(fixture::exhausted(), fixture::leaking_findings());
    assert_snapshot!(text(80, 12, &on(PageTab::Pools), &fleet));
}

#[test]
fn totals_are_counted_from_the_mark() {
    let mut view = on(PageTab::Ports);
    let mut fleet = fixture::fleet_of(fixture::leaking(), Vec::new());
    update(&mut view, Action::Mark, &fleet);
    let mut later = fixture::leaking();
    later.sample.ports[0].stats.rx_packets += 1_500;
    later.sample.ports[0].stats.rx_missed += 3;
    fleet.apply(fixture::sampled(later, Vec::new()));
    assert_snapshot!(text(140, 12, &view, &fleet));
}

#[test]
fn every_size_is_drawn() {
    let fleet = fixture::fleet();
    for width in [1, 2, 7, 20, 33] {
        for height in 1..14 {
            for tab in PageTab::ALL {
                let mut view = on(tab);
                update(&mut view, Action::Move(SelectionMotion::Bottom), &fleet);
                let drawn = text(width, height, &view, &fleet);
                assert!(!drawn.trim().is_empty(), "{width}x{height} {tab:?}");
                update(&mut view, Action::Open, &fleet);
                draw(width, height, &view, &fleet);
            }
        }
    }
}

#[test]
fn clicks_hit_what_is_drawn() {
    let (view, fleet) = (fixture::view(), fixture::fleet());
    let area = Rect::new(0, 0, 80, 24);
    let at = |x, y| hit(area, Position { x, y }, &view, &fleet);
    let screen = text(80, 24, &view, &fleet);
    let line =
        |word: &str| u16::try_from(screen.lines().position(|l| l.starts_with(word)).unwrap());
    let row = line("testpmd").unwrap();
    assert!(matches!(at(3, row), Some(ClickTarget::Row(Subject::App { app })) if app == "testpmd"));
    assert!(matches!(at(14, 1), Some(ClickTarget::Tab(PageTab::Ports))));
    assert!(at(3, 23).is_none());
    assert!(matches!(at(79, 1), Some(ClickTarget::Tab(PageTab::Raw))));
}

/// A name from outside with control characters: of an app, a device, a site or a stage.
fn evil(name: &mut String) {
    name.push_str("\u{1b}]0;t\u{7}\u{9b}2J\u{202e}\u{200b}\u{7f}\r\n");
}

#[test]
fn names_cannot_control_the_terminal() {
    let mut model = fixture::stolen();
    for rates in &mut model.stolen {
        rates.worst.iter_mut().for_each(|worst| evil(&mut worst.thief));
    }
    let sample = &mut model.sample;
    if let Some(tracing) = &mut sample.tracing {
        tracing.missing.push(String::new());
        let thieves = tracing.stolen.iter_mut().map(|row| &mut row.thief);
        thieves.chain(&mut tracing.missing).for_each(evil);
    }
    [&mut sample.app.name, &mut sample.app.dpdk_version].into_iter().for_each(evil);
    sample.app.exe.iter_mut().chain(&mut sample.app.eal_args).for_each(evil);
    sample.ports.iter_mut().for_each(|port| evil(&mut port.device));
    sample.pools.iter_mut().for_each(|pool| evil(&mut pool.name));
    sample.rings.iter_mut().for_each(|ring| evil(&mut ring.name));
    sample.ledger.iter_mut().for_each(|ledger| evil(&mut ledger.name));
    sample.stages.iter_mut().for_each(|stage| evil(&mut stage.stage));
    for site in &mut sample.sites {
        [&mut site.pool, &mut site.site, &mut site.function, &mut site.operation]
            .into_iter()
            .for_each(evil);
    }
    sample.partial.push(String::new());
    sample.partial.iter_mut().for_each(evil);
    let mut findings = fixture::leaking_findings();
    for finding in &mut findings {
        [&mut finding.app, &mut finding.evidence, &mut finding.advice].into_iter().for_each(evil);
        let mut subject = finding.subject.to_string();
        evil(&mut subject);
        finding.subject = FindingSubject::Port(subject);
    }
    let mut fleet = fixture::fleet_of(model, findings);
    let [app, reason] = ["other", "why"].map(|text| {
        let mut text = text.to_owned();
        evil(&mut text);
        text
    });
    fleet.apply(FleetEvent::Lost { app, class: ErrorClass::Refused, reason, finding: None });
    for tab in PageTab::ALL {
        let mut view = on(tab);
        update(&mut view, Action::Move(SelectionMotion::Top), &fleet);
        for _ in tables::shown(&view, &fleet).iter().flat_map(|table| &table.rows) {
            for action in [Action::Open, Action::Back, Action::Move(SelectionMotion::Down)] {
                update(&mut view, action, &fleet);
                for cell in draw(100, 44, &view, &fleet).content() {
                    let shown = cell.symbol();
                    assert!(shown.chars().all(is_printable), "{tab:?}: {shown:?}");
                }
            }
        }
    }
    let mut nobody = FleetState::default();
    let mut advice = "no app".to_owned();
    evil(&mut advice);
    nobody.apply(FleetEvent::NoApps { advice });
    let drawn = draw(80, 10, &fixture::view(), &nobody);
    assert!(drawn.content().iter().all(|cell| cell.symbol().chars().all(is_printable)));
}

#[test]
fn pools_that_were_counted_from_outside_say_so_and_why_others_were_not() {
    let mut model = fixture::stock();
    let problem = Some("no right to read it".to_owned());
    model.sample.xray = Some(XraySample { problem, ..XraySample::default() });
    let refused = text(160, 30, &on(PageTab::Pools), &fixture::fleet_of(model.clone(), Vec::new()));
    assert!(refused.contains("testpmd: xray: no right to read it"), "{refused}");
    model.sample.xray = Some(XraySample::default());
    let pool = &mut model.sample.pools[0];
    pool.occupancy = Some(PoolOccupancy { common: 1, cached: 2, in_use: 3 });
    pool.source = Some(CountSource::Xray);
    let counted = text(160, 30, &on(PageTab::Pools), &fixture::fleet_of(model, Vec::new()));
    assert!(counted.contains("testpmd: counted via xray"), "{counted}");
    assert!(!counted.contains("pool occupancy:"), "{counted}");
}

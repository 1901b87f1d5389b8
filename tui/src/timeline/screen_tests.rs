//! Tests of the past and of recordings as users see them.

use insta::assert_snapshot;
use pmdscope_render::Theme;
use pmdscope_telemetry::finding::{Lint, Severity};
use ratatui::layout::{Position, Rect};

use super::live::LiveTimeline;
use super::marks::{FindingMark, NewFindings};
use super::time_bar::{PlaybackState, TimeBar, TimeBarKind};
use super::{SeekTarget, TimeSpan, Timeline};
use crate::action::Action;
use crate::clock::NS_PER_SECOND;
use crate::fixture;
use crate::screen::page_tests::squeezed;
use crate::screen::tests::text;
use crate::screen::{ClickTarget, hit, time_bar};
use crate::state::{PageTab, ViewState};
use crate::update::perform;

const ASCII: Theme = Theme::ASCII;

/// 2026-01-02 03:04:05 UTC.
const REALTIME_NS: u64 = 1_767_323_045 * NS_PER_SECOND;

/// Nine minutes of an app that leaks from the sixth on.
fn live() -> LiveTimeline {
    let mut live = LiveTimeline::default();
    for step in 0..540 {
        let mut model = fixture::leaking();
        model.sample.monotonic_ns += step * NS_PER_SECOND;
        model.sample.realtime_ns += step * NS_PER_SECOND;
        model.pools[0].history = (0..20).map(|at| 800 + (step + at) * 20).collect();
        let findings = if step >= 300 { fixture::leaking_findings() } else { Vec::new() };
        let mut fleet = fixture::fleet_of(model, findings);
        fleet.now_ns += step * NS_PER_SECOND;
        fleet.realtime_ns = REALTIME_NS + step * NS_PER_SECOND;
        let now = (fleet.now_ns, fleet.realtime_ns);
        live.take(fleet.into());
        live.tick(now.0, now.1);
    }
    live
}

fn screen(width: u16, height: u16, view: &ViewState, live: &LiveTimeline) -> String {
    let (time_bar, trends) = (live.time_bar(), Some(live.trends()));
    text(width, height, &ViewState { time_bar, trends, ..view.clone() }, live.fleet())
}

#[test]
fn the_past_says_so_on_every_page_and_size() {
    let mut live = live();
    live.seek(SeekTarget::By(-133 * 1_000_000_000));
    for tab in PageTab::ALL {
        let view = ViewState { tab, ..fixture::view() };
        let ascii = ViewState { theme: ASCII, ..view.clone() };
        let screens = [(80, 24, &view), (120, 40, &view), (80, 24, &ascii)]
            .map(|(width, height, view)| squeezed(&screen(width, height, view, &live)));
        assert_snapshot!(format!("past_{tab:?}").to_lowercase(), screens.join("----\n"));
    }
}

#[test]
fn details_go_back_as_well() {
    let (mut live, mut view) = (live(), ViewState { tab: PageTab::Pools, ..fixture::view() });
    perform(&mut view, Action::Open, &mut live);
    perform(&mut view, Action::Seek(SeekTarget::By(-60 * 1_000_000_000)), &mut live);
    assert_snapshot!(screen(80, 24, &view, &live));
}

#[test]
fn totals_are_not_counted_from_a_mark_that_was_set_later() {
    let (mut live, mut view) = (live(), ViewState { tab: PageTab::Ports, ..fixture::view() });
    perform(&mut view, Action::Mark, &mut live);
    perform(&mut view, Action::Seek(SeekTarget::Step(-5)), &mut live);
    assert_snapshot!(screen(130, 12, &view, &live));
}

#[test]
fn however_small_the_screen_the_past_says_so() {
    let mut live = live();
    live.seek(SeekTarget::Step(-20));
    for height in 2..14 {
        let screen = screen(40, height, &fixture::view(), &live);
        assert!(screen.contains("20s ago 03:12:44.0"), "{height}: {screen}");
    }
    assert!(screen(13, 6, &fixture::view(), &live).contains("20s ago"));
}

fn replay(motion: PlaybackState, remark: Option<&str>) -> TimeBar {
    let oldest = REALTIME_NS - 600 * NS_PER_SECOND;
    let at = if motion == PlaybackState::Ended {
        REALTIME_NS + 1_200 * NS_PER_SECOND
    } else {
        REALTIME_NS
    };
    let mark = |minute: u64, severity, lint| FindingMark {
        at: oldest + minute * 60 * NS_PER_SECOND,
        began: NewFindings { severity, lint, others: 0 },
    };
    TimeBar {
        at,
        realtime_ns: at,
        span: TimeSpan { oldest, newest: REALTIME_NS + 1_200 * NS_PER_SECOND },
        marks: vec![
            mark(2, Severity::Info, Lint::Stall),
            mark(9, Severity::Warning, Lint::RxMissed),
            mark(20, Severity::Critical, Lint::Leak),
            mark(20, Severity::Warning, Lint::RxMissed),
        ],
        place: TimeBarKind::Replay {
            motion,
            speed: if motion == PlaybackState::Playing { 10 } else { 1 },
        },
        remark: remark.map(str::to_owned),
    }
}

#[test]
fn a_replay_says_how_it_goes_on_and_what_is_damaged() {
    let damage = "incident.jsonl.zst: 3 lines at offset 4711 are damaged";
    let time_bars = [
        replay(PlaybackState::Playing, None),
        replay(PlaybackState::Held, Some(damage)),
        replay(PlaybackState::Ended, None),
    ];
    for (width, height) in [(80, 24), (120, 40)] {
        for theme in [Theme::default(), ASCII] {
            let screens = time_bars.clone().map(|time_bar| {
                let view = ViewState { time_bar: Some(time_bar), theme, ..fixture::view() };
                squeezed(&text(width, height, &view, &fixture::fleet()))
            });
            let kind = if theme.ascii { "_ascii" } else { "" };
            assert_snapshot!(format!("replay_{width}x{height}{kind}"), screens.join("----\n"));
        }
    }
}

#[test]
fn a_click_on_the_bar_leads_to_what_is_drawn_there() {
    let time_bar = replay(PlaybackState::Held, None);
    let view = ViewState { time_bar: Some(time_bar.clone()), theme: ASCII, ..fixture::view() };
    let screen = text(80, 24, &view, &fixture::fleet());
    let line = screen.lines().nth(1).unwrap();
    let at = |column: usize| {
        let position = Position { x: u16::try_from(column).unwrap(), y: 1 };
        match hit(Rect::new(0, 0, 80, 24), position, &view, &fixture::fleet()) {
            Some(ClickTarget::Moment(at)) => Some(at),
            _ => None,
        }
    };
    let (open, close) = (line.find('[').unwrap(), line.find(']').unwrap());
    assert_eq!((at(open), at(close)), (None, None));
    assert_eq!(at(open + 1), Some(time_bar.span.oldest));
    assert_eq!(at(close - 1), Some(time_bar.span.newest));
    let cursor = at(line.find('|').unwrap()).unwrap();
    let cell = time_bar.span.length() / (close - open - 2) as u64;
    assert!(cursor.abs_diff(time_bar.at) <= cell, "{cursor} {}", time_bar.at);
    let moved = TimeBar { at: cursor, ..time_bar };
    let drawn =
        time_bar::line(&moved, 80, &ViewState { theme: ASCII, ..fixture::view() }).to_string();
    assert_eq!(drawn.find('|'), line.find('|'));
}

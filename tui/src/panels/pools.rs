//! The graph of the Pools page: the use of one pool on a scale of its own, and where its mbufs are.

use pmdscope_render::number::{known, percent, seconds, si, signed};
use pmdscope_render::{AreaGraph, Graph, Subject, Tone, cut};
use pmdscope_telemetry::model::PoolTrend;
use pmdscope_telemetry::sample::PoolSample;
use pmdscope_telemetry::{AppState, FleetState};
use ratatui::text::{Line, Span};

use super::trends::{MARGIN, area, part_of_page, stretched, time_axis, trends};
use crate::state::ViewState;
use crate::style::{NAME_MIN, ThemeStyle};
use crate::timeline::trends::{ColumnValue, Trends};

/// A pool of an app.
pub(crate) type FleetPool<'a> = (&'a AppState, &'a PoolSample, &'a PoolTrend);

/// The lines of the graph, where there is room for so many; none on a small screen, or where no use is
/// known.
pub(crate) fn lines(
    view: &ViewState,
    fleet: &FleetState,
    width: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let Some((trends, pool)) = trends(view, width).zip(shown(view, fleet)) else {
        return Vec::new();
    };
    let (app, sample, _) = pool;
    let length_ns = trends.length_ns();
    let inner = width - MARGIN;
    let columns = AreaGraph::columns(inner, view.theme);
    let values = trends.columns(length_ns, columns, ColumnValue::Mean, |point| {
        point.app(&app.name)?.in_use(&sample.name)
    });
    let places = places(pool, view, inner);
    // The title and the axis of time.
    let others = 2 + usize::from(places.is_some());
    let least = part_of_page(view, 6).clamp(2, 8);
    let height = stretched(least, room.saturating_sub(others), view);
    let tone = if pool.2.exhausted_in_s.is_some() { Tone::Warn } else { Tone::Good };
    let mut lines = vec![title(pool, view, trends, width)];
    lines.extend(on_own_scale(&values, height, view, tone));
    lines.push(Line::from(time_axis(trends, view, inner, length_ns)));
    lines.extend(places);
    lines
}

/// That of the selected row, else the one that is empty soonest, else the fullest.
pub(crate) fn shown<'a>(view: &ViewState, fleet: &'a FleetState) -> Option<FleetPool<'a>> {
    let all = fleet.models().flat_map(|(app, model)| {
        let pools = model.sample.pools.iter().zip(&model.pools);
        pools.map(move |(pool, trend)| (app, pool, trend))
    });
    let counted = all.filter(|(_, _, trend)| trend.used_ratio.is_some()).collect::<Vec<_>>();
    let selected = view.selected().and_then(|subject| match subject {
        Subject::Pool { app, pool }
        | Subject::Ledger { app, pool }
        | Subject::Site { app, pool, .. }
        | Subject::Lost { app, pool, .. } => Some((app, pool)),
        _ => None,
    });
    let selected = selected.and_then(|(app, pool)| {
        counted.iter().find(|(of, sample, _)| of.name == *app && sample.name == *pool).copied()
    });
    let urgency = |trend: &PoolTrend| {
        let left = trend.exhausted_in_s.unwrap_or(f64::INFINITY);
        (-left, trend.used_ratio.unwrap_or(0.0))
    };
    let most = counted.iter().max_by(|(.., a), (.., b)| {
        let (a, b) = (urgency(a), urgency(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    selected.or(most.copied())
}

/// Which pool, how much of it is in use, how fast that grows, and when it is empty.
/// On a narrow screen the names are cut.
fn title(
    (app, pool, trend): FleetPool,
    view: &ViewState,
    trends: &Trends,
    width: usize,
) -> Line<'static> {
    let theme = view.theme;
    let in_use = pool
        .occupancy
        .map(|parts| format!("{} of {}", si(parts.in_use as f64), si(pool.size as f64)));
    let used =
        format!("  {} in use ({})", known(in_use, |text| text), known(trend.used_ratio, percent));
    let growth = format!("  {}/s", known(trend.slope_ps, signed));
    let left = trend.exhausted_in_s.map(|left| format!("  empty in {}", seconds(left)));
    let left = left.unwrap_or_default();
    let room = width.saturating_sub(used.len() + growth.len() + left.len()).max(NAME_MIN);
    let name = cut(&format!("{} {}", app.name, pool.name), room, theme);
    let gone = trends.points.last().is_none_or(|point| point.app(&app.name).is_none());
    let tone = if gone { Tone::Dim } else { Tone::Plain };
    Line::from(vec![
        Span::styled(pmdscope_telemetry::printable::harmless(&name, &[]), theme.style(Tone::Title)),
        Span::styled(used + &growth, theme.style(tone)),
        Span::styled(left, theme.style(Tone::Bad)),
    ])
}

/// From the lowest to the highest value: a large pool that drains slowly would look flat.
fn on_own_scale(
    values: &[Option<f64>],
    height: usize,
    view: &ViewState,
    tone: Tone,
) -> impl Iterator<Item = Line<'static>> {
    let known = || values.iter().flatten().copied();
    let highest = known().reduce(f64::max).filter(|highest| *highest > 0.0).unwrap_or(1.0);
    let lowest = known().reduce(f64::min).filter(|lowest| *lowest < highest).unwrap_or(0.0);
    let above = values.iter().map(|value| Some((*value)? - lowest)).collect();
    let graph = &AreaGraph { values: above, top: highest - lowest };
    area(graph, [si(highest), si(lowest)], height, view.theme, tone).into_iter().map(Line::from)
}

/// The mbufs by where they are, as far as libpmdscope reports it.
fn places((app, pool, _): FleetPool, view: &ViewState, width: usize) -> Option<Line<'static>> {
    let ledgers = &app.model.as_ref()?.sample.ledger;
    let ledger = ledgers.iter().find(|ledger| ledger.name == pool.name)?;
    let bar = Graph::Ledger { parts: ledger.parts().to_vec() }.draw(width, view.theme);
    let label = Span::styled(format!("{:<MARGIN$}", "where"), view.theme.style(Tone::Dim));
    Some(Line::from(vec![label, Span::styled(bar, view.theme.style(Tone::Graph))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::state::PageTab;
    use pmdscope_render::Theme;

    fn text(view: &ViewState, fleet: &FleetState, width: usize) -> Vec<String> {
        lines(view, fleet, width, 0).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_pool_that_is_empty_soonest_is_shown_or_the_selected_one() {
        let mut model = fixture::leaking();
        let (mut calm, mut trend) = (model.sample.pools[0].clone(), model.pools[0].clone());
        calm.name = "calm".to_owned();
        (trend.exhausted_in_s, trend.used_ratio) = (None, Some(0.9));
        model.sample.pools.push(calm);
        model.pools.push(trend);
        let fleet = fixture::fleet_of(model, Vec::new());
        let mut view = ViewState { tab: PageTab::Pools, ..fixture::view() };
        let title = &text(&view, &fleet, 80)[0];
        assert_eq!(
            title,
            "reflector reflector_rx  9.00k of 16.4k in use (55%)  +412/s  empty in 18s"
        );
        let calm = Subject::Pool { app: "reflector".to_owned(), pool: "calm".to_owned() };
        view.selected.insert(PageTab::Pools, calm);
        assert!(text(&view, &fleet, 80)[0].starts_with("reflector calm  "));
    }

    #[test]
    fn growth_and_time_left_are_not_cut() {
        let view = ViewState { tab: PageTab::Pools, ..fixture::view() };
        let title = &text(&view, &fixture::fleet(), 64)[0];
        assert_eq!(title, "reflector re…  9.00k of 16.4k in use (55%)  +412/s  empty in 18s");
    }

    #[test]
    fn a_pool_that_nobody_uses_has_a_scale() {
        let view = fixture::view();
        let lines = on_own_scale(&[Some(0.0)], 2, &view, Tone::Good);
        let lines: Vec<_> = lines.map(|line| line.to_string()).collect();
        assert!(lines[0].starts_with("    1") && lines[1].starts_with("    0"), "{lines:?}");
    }

    #[test]
    fn the_scale_is_its_own_and_lines_fit() {
        let fleet = fixture::fleet();
        for theme in [Theme::default(), Theme::ASCII] {
            for width in 0..200 {
                let view = ViewState { theme, tab: PageTab::Pools, ..fixture::view() };
                for line in text(&view, &fleet, width).iter().skip(1) {
                    assert!(line.chars().count() <= width, "{width}: {line}");
                }
            }
        }
        let view = ViewState { tab: PageTab::Pools, ..fixture::view() };
        let lines = text(&view, &fleet, 80);
        assert!(lines[1].starts_with("9.0") && lines[2].starts_with("  80"), "{lines:?}");
    }

    #[test]
    fn what_is_not_known_is_not_drawn() {
        let view = ViewState { tab: PageTab::Pools, ..fixture::view() };
        assert!(lines(&view, &fixture::fleet_of(fixture::stock(), Vec::new()), 80, 0).is_empty());
        assert!(lines(&ViewState { trends: None, ..view }, &fixture::fleet(), 80, 0).is_empty());
    }
}

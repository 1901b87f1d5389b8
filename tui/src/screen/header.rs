//! The first line of the screen: the host, sums over all apps, and the time of the newest sample.

use pmdscope_render::number::{known, nanos, plural, si};
use pmdscope_render::{Tone, cut};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::model::PortRates;
use pmdscope_telemetry::printable::harmless;
use ratatui::text::{Line, Span};

use crate::clock::time_of_day;
use crate::state::ViewState;
use crate::style::{NAME_MIN, ThemeStyle};
use crate::timeline::time_bar::TimeBarKind;

const PROGRAM: &str = "pmdscope";

/// Columns from which on there are bits per second.
const WITH_BITS: usize = 110;

/// Columns between two parts of the line.
const GAP: usize = 2;

/// The line in `width` columns. Where there is no room, the domain of the host goes first, then the
/// name of the program, then what a round costs, and the name of the host is cut last.
pub(super) fn line(view: &ViewState, fleet: &FleetState, width: usize) -> Line<'static> {
    let totals = totals(fleet, width >= WITH_BITS, view.counters.bytes);
    let (cost, time) = clock(view, fleet);
    let host = harmless(&view.host, &[]);
    let short = host.split('.').next().unwrap_or_default();
    let all = format!("{cost} {time}");
    let room = |clock: &str| width.saturating_sub(columns(&totals) + columns(clock) + 2 * GAP);
    let attempts = [
        (format!("{PROGRAM} {host}"), &all),
        (format!("{PROGRAM} {short}"), &all),
        (short.to_owned(), &all),
        (short.to_owned(), &time),
    ];
    let named = attempts.into_iter().find(|(name, clock)| columns(name) <= room(clock));
    let (name, clock) = match named {
        _ if host.is_empty() && columns(PROGRAM) <= room(&all) => (PROGRAM.to_owned(), &all),
        _ if host.is_empty() => (PROGRAM.to_owned(), &time),
        Some(fitting) => fitting,
        None => (cut(short, room(&time).max(NAME_MIN), view.theme), &time),
    };
    let left = format!("{name}  {totals}");
    let gap = width.saturating_sub(columns(&left) + columns(clock)).max(1);
    Line::from(vec![
        Span::styled(left, view.theme.style(Tone::Title)),
        Span::raw(" ".repeat(gap)),
        Span::raw(clock.clone()),
    ])
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Sums over the apps that answer.
fn totals(fleet: &FleetState, with_bits: bool, as_bytes: bool) -> String {
    let live = || fleet.live_models().map(|(_, model)| model);
    let ports: usize = live().map(|model| model.sample.ports.len()).sum();
    let total = |of: fn(&PortRates) -> Option<f64>| {
        live().filter_map(|model| model.sum_of_ports(of)).reduce(|a, b| a + b)
    };
    let (unit, bits) = if as_bytes { ("B/s", 8.0) } else { ("bit/s", 1.0) };
    let direction = |name: &str, pps: String, bps: Option<f64>| {
        let bps = known(bps.map(|bps| bps / bits), si);
        let bits = if with_bits { format!(" {bps} {unit}") } else { String::new() };
        format!("{name} {pps} pps{bits}")
    };
    let received =
        direction("rx", known(total(|rates| rates.rx_pps), si), total(|rates| rates.rx_bps));
    let sent = direction("tx", known(total(|rates| rates.tx_pps), si), total(|rates| rates.tx_bps));
    let apps = plural(fleet.apps.len() as u64, "app");
    format!("{apps}, {}  {received}  {sent}", plural(ports as u64, "port"))
}

/// What the newest round of samples took, with the interval, and its time.
fn clock(view: &ViewState, fleet: &FleetState) -> (String, String) {
    let replayed = view
        .time_bar
        .as_ref()
        .is_some_and(|time_bar| matches!(time_bar.place, TimeBarKind::Replay { .. }));
    let every = if replayed { String::new() } else { format!("/{}", interval(view.interval_ms)) };
    let newest = fleet.models().map(|(_, model)| model.sample.realtime_ns).max();
    let cost = fleet.live_models().map(|(_, model)| model.sample.duration_ns).reduce(|a, b| a + b);
    let time = time_of_day(newest.unwrap_or(0), &view.zone);
    (format!("scrape {}{every}", known(cost, nanos)), time)
}

fn interval(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn shown(host: &str, width: usize) -> String {
        let view = ViewState { host: host.to_owned(), ..fixture::view() };
        line(&view, &fixture::fleet(), width).to_string()
    }

    #[test]
    fn the_host_is_named_before_anything_else_is() {
        let wide = shown("gw7.example.net", 160);
        assert!(
            wide.starts_with("pmdscope gw7.example.net  2 apps, 2 ports  rx 14.2M pps"),
            "{wide}"
        );
        assert!(wide.ends_with("  scrape 2.48ms/1s 03:04:05"), "{wide}");
        assert!(shown("gw7.example.net", 92).starts_with("pmdscope gw7  2 apps, 2 ports  rx "));
        let ssh = shown("gw7.example.net", 80);
        assert!(
            ssh.starts_with("gw7  2 apps") && ssh.ends_with("scrape 2.48ms/1s 03:04:05"),
            "{ssh}"
        );
        let long = shown("packet-gateway-17", 80);
        assert!(
            long.starts_with("packet-gateway-17  2 apps, ")
                && long.ends_with("  03:04:05")
                && !long.contains("scrape"),
            "{long}"
        );
        let longest = shown(&"h".repeat(64), 80);
        assert!(
            longest.contains("h…  2 apps, ") && longest.ends_with("pps  03:04:05"),
            "{longest}"
        );
        for width in [80, 92, 160] {
            for host in ["", "g", "packet-gateway-17.example.net", &"h".repeat(64)] {
                assert_eq!(columns(&shown(host, width)), width, "{host}");
            }
        }
    }

    #[test]
    fn a_recording_without_a_host_and_one_with_a_hostile_one_are_shown() {
        assert!(shown("", 80).starts_with("pmdscope  2 apps, 2 ports  rx "));
        assert!(shown("a\u{1b}[2J", 120).starts_with("pmdscope a?[2J  2 apps"));
    }
}

//! The HTML page: running apps and their findings.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use pmdscope_telemetry::discover::unreadable_text;
use pmdscope_telemetry::model::PortRates;
use pmdscope_telemetry::{AppState, FleetState};

use crate::health::AppHealth;
use crate::snapshot::ScrapeSnapshot;

/// A rate of a port.
type PortRate = fn(&PortRates) -> Option<f64>;

/// The paths of all pages.
pub(crate) const PATHS: &str =
    "/metrics, /metrics?app=NAME, /metrics/exporter, /ready, /ready?app=NAME, /healthz, /sd, /";

/// The message if there are no apps.
pub(super) const NO_APPS: &str = "no DPDK app was found on this machine; start one, or list the \
    directories that hold its runtime files in the configuration";

/// On a telephone, the cells of a row stand below each other.
const STYLE: &str = "body{font:15px sans-serif;margin:1em auto;max-width:60em;padding:0 1em}\
    td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}\
    td.number{text-align:right;white-space:nowrap}.bad{color:#b00}p.advice{margin:.2em 0 .8em}\
    @media(max-width:40em){th{display:none}td,td.number{display:block;text-align:left}\
    td[title]::before{content:attr(title)\": \"}}";

/// How often a browser asks again, seconds.
const REFRESH_S: u32 = 15;

/// Returns the page; `broken` is the reason why a changed web configuration is not used.
///
/// Names come from directories, which anybody may create in `/tmp`: `html!` escapes them.
pub(super) fn page(snapshot: &ScrapeSnapshot, broken: Option<&str>) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                meta http-equiv="refresh" content=(REFRESH_S);
                title { (host) " · pmdscope" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (host) }
                (links(snapshot.render_options.dashboards.as_deref()))
                @if let Some(broken) = broken {
                    p.bad { (broken) "; the last good one stays in use" }
                }
                (of_host(&snapshot.fleet))
                (apps(snapshot))
            }
        }
    };
    page.into_string() + "\n"
}

fn links(dashboards: Option<&str>) -> Markup {
    html! {
        p {
            @if let Some(url) = dashboards { a href=(url) { "dashboards" } " · " }
            a href="/metrics" { "metrics" } " · "
            a href="/ready" { "ready" } " · "
            a href="/healthz" { "healthz" } " · "
            a href="/sd" { "service discovery" } " · pmdscope " (env!("CARGO_PKG_VERSION"))
        }
    }
}

/// What is wrong with the interfaces of the kernel, and with directories.
fn of_host(fleet: &FleetState) -> Markup {
    html! {
        @if let Some(unreadable) = unreadable_text(&fleet.unreadable) { p.bad { (unreadable) } }
        @for finding in fleet.interfaces.findings() {
            p {
                span.bad {
                    b { (finding.lint.to_string()) } " of " (finding.subject.to_string())
                    ", " (finding.severity.word()) ": " (finding.evidence)
                }
                br;
                (finding.advice)
            }
        }
        @if let Some(error) = &fleet.interfaces.error { p.bad { "interfaces: " (error) } }
    }
}

fn apps(snapshot: &ScrapeSnapshot) -> Markup {
    let tolerate = &snapshot.render_options.tolerate;
    let apps = &snapshot.fleet.apps;
    html! {
        @if apps.is_empty() {
            p.bad { (NO_APPS) }
        } @else {
            table {
                tr {
                    th { "App" } th { "Now" } th { "RX pps" } th { "TX pps" } th { "Missed/s" }
                    th { "Findings" }
                }
                @for app in apps { (row(app, &AppHealth::of(app, tolerate))) }
            }
        }
    }
}

fn row(app: &AppState, health: &AppHealth<'_>) -> Markup {
    let query: String = form_urlencoded::byte_serialize(health.app.as_bytes()).collect();
    let model = app.model.as_deref().filter(|_| !app.stale());
    let rates: [(&str, PortRate); 3] = [
        ("RX pps", |rates| rates.rx_pps),
        ("TX pps", |rates| rates.tx_pps),
        ("Missed/s", |rates| rates.rx_missed_ps),
    ];
    let text = |of: PortRate| {
        let rate = model.and_then(|model| model.sum_of_ports(of));
        rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"))
    };
    html! {
        tr {
            td {
                (health.app) br;
                a href={ "/metrics?app=" (query) } { "metrics" } " "
                a href={ "/ready?app=" (query) } { "ready" }
            }
            td.bad[!health.ready] { @if health.ready { "ready" } @else { "not ready" } }
            @for (title, of) in rates { td.number title=(title) { (text(of)) } }
            td {
                @if health.reasons.is_empty() { "none" }
                @for reason in &health.reasons {
                    b { (reason.reason.to_string()) }
                    @if !reason.subject.is_app() { " of " (reason.subject.to_string()) }
                    ", " (reason.severity.word())
                    @if reason.tolerated { " (tolerated)" }
                    ": " (reason.evidence)
                    p.advice { (reason.advice) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmdscope_telemetry::AppInventory;

    use super::*;
    use crate::metrics::ExporterCounters;
    use crate::options::ExportOptions;
    use crate::snapshot::RenderOptions;

    #[test]
    fn floods_are_shown() {
        let options = RenderOptions::default().into();
        let counters = ExporterCounters::default();
        let snapshot = ScrapeSnapshot::new(crate::fixture::fleet(), counters, options);
        let html = page(&snapshot, None);
        assert!(html.contains("<b>flood</b> of eth0, warning: 9000 of 10000 packets/s"), "{html}");
    }

    #[test]
    fn host_rates_and_dashboards_are_shown() {
        let options = ExportOptions {
            dashboards: Some("https://grafana.example.com/?a=1&b=2".to_owned()),
            ..ExportOptions::default()
        };
        let options = RenderOptions::new(&options, &AppInventory::default()).into();
        let mut fleet = crate::fixture::fleet();
        let app = fleet.apps.iter_mut().find(|app| app.name == "fwd").unwrap();
        Arc::make_mut(app.model.as_mut().unwrap()).ports[0].rx_pps = Some(1234.4);
        let html = page(&ScrapeSnapshot::new(fleet, ExporterCounters::default(), options), None);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(html.contains(&format!("<h1>{host}</h1>")), "{html}");
        assert!(
            html.contains("<a href=\"https://grafana.example.com/?a=1&amp;b=2\">dashboards</a>")
        );
        assert!(html.contains("<td class=\"number\" title=\"RX pps\">1234</td>"), "{html}");
    }

    #[test]
    fn names_cannot_add_markup() {
        let mut fleet = crate::fixture::fleet();
        let evil = "<a href='x\">&";
        fleet.apps[0].name = evil.to_owned();
        let options = RenderOptions::default().into();
        let snapshot = ScrapeSnapshot::new(fleet, ExporterCounters::default(), options);
        let html = page(&snapshot, Some(evil));
        assert_eq!(html.matches("&lt;a href='x&quot;&gt;&amp;").count(), 2, "{html}");
        assert!(!html.contains(evil), "{html}");
    }
}

//! What a check has looked at, and what it could not look at.

use std::collections::BTreeMap;
use std::fmt::Write;

use pmdscope_render::number::plural;
use pmdscope_telemetry::model::{Model, PortRates};
use pmdscope_telemetry::sample::PortSample;
use pmdscope_telemetry::{FleetState, PortAccount, PortBalance};
use serde::Serialize;

/// What was looked at of one app, and what was not.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct CheckedApp<'a> {
    /// Time between the first and the last sample, seconds.
    pub(super) seconds: f64,
    /// Number of counters of losses that were compared.
    pub(super) counters: usize,
    /// The ports, and where their packets went between the last two samples.
    ports: Vec<CheckedPort<'a>>,
    /// What could not be looked at.
    not_checked: Vec<NotChecked<'a>>,
}

/// Where the packets of one port went.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CheckedPort<'a> {
    /// DPDK port id.
    port: u16,
    /// Device name.
    device: &'a str,
    /// DPDK's name of the driver, with "probably" before one that only some counters suggest; `None` if it is
    /// unknown.
    driver: Option<&'a str>,
    /// Bonding, failsafe or netvsc port that counts the packets of this port as well, by id.
    member_of: Option<u16>,
    /// Packets per second, by what became of them.
    balance: PortBalance,
}

/// Something that a check could not look at.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NotChecked<'a> {
    /// What is unknown.
    what: String,
    /// What would make it known.
    needs: String,
    /// Device of the port that it is about; `None` for the app as a whole.
    device: Option<&'a str>,
}

/// First and last sample of each app, by the monotonic clock, nanoseconds.
#[derive(Default)]
pub(super) struct WatchedTimes(BTreeMap<String, (u64, u64)>);

impl WatchedTimes {
    /// Takes in the samples of a moment.
    pub(super) fn note(&mut self, fleet: &FleetState) {
        for (app, model) in fleet.models() {
            let now_ns = model.sample.monotonic_ns;
            let times = self.0.entry(app.name.clone()).or_insert((now_ns, now_ns));
            times.1 = now_ns;
        }
    }

    fn seconds(&self, app: &str) -> f64 {
        self.0.get(app).map_or(0.0, |(first, last)| last.saturating_sub(*first) as f64 / 1e9)
    }
}

impl<'a> CheckedApp<'a> {
    /// Of the last sample of an app.
    pub(super) fn of(app: &str, model: &'a Model, watched: &WatchedTimes) -> Self {
        let ports = || model.sample.ports.iter().zip(&model.ports);
        let mut not_checked: Vec<_> =
            ports().flat_map(|(port, rates)| of_port(port, rates)).collect();
        not_checked.extend(of_app(model));
        let counters = |(_, rates): (_, &PortRates)| rates.counters.watched;
        let checked = |(port, rates): (&'a PortSample, &'a PortRates)| CheckedPort {
            port: port.id,
            device: &port.device,
            driver: rates.counters.driver.as_deref(),
            member_of: rates.member_of,
            balance: PortAccount::of(rates).balance(),
        };
        Self {
            seconds: watched.seconds(app),
            counters: ports().map(counters).sum(),
            ports: ports().map(checked).collect(),
            not_checked,
        }
    }
}

fn of_port<'a>(port: &'a PortSample, rates: &PortRates) -> Vec<NotChecked<'a>> {
    let device = Some(port.device.as_str());
    let mut unknown = Vec::new();
    let mut add = |what: &str, needs: &str| {
        unknown.push(NotChecked { what: what.to_owned(), needs: needs.to_owned(), device });
    };
    match rates.counters.table {
        None if port.xstats.is_empty() => {
            add("discards of the NIC", "the driver reports no extended counters");
        }
        None => add(
            "discards of the NIC",
            "its driver is unknown; pmdscope netstat -s has all counters",
        ),
        Some(table) => {
            for counter in table.never() {
                let needs = format!("{} does not count them", table.driver);
                add(counter.name(), &needs);
            }
        }
    }
    if port.xstats_truncated {
        add("extended counters that DPDK cut off", "fewer queues, or libpmdscope");
    }
    unknown
}

fn of_app<'a>(model: &Model) -> Vec<NotChecked<'a>> {
    let sample = &model.sample;
    let mut unknown = Vec::new();
    let mut add = |what: &str, needs: &str| {
        unknown.push(NotChecked { what: what.to_owned(), needs: needs.to_owned(), device: None });
    };
    if sample.library.is_none() && !sample.ports.is_empty() {
        add("packets that apps drop, or that drivers refuse", "libpmdscope counts them");
    }
    if sample.pools.iter().any(|pool| pool.occupancy.is_none()) {
        add("use of mempools", "X-ray as root, DPDK 23.03, or libpmdscope");
    }
    unknown
}

/// Returns what was looked at of all apps, as text for people.
pub(super) fn text<'a, 'b: 'a>(apps: impl Iterator<Item = &'a CheckedApp<'b>>) -> String {
    let (mut counters, mut seconds, mut ports) = (0, f64::INFINITY, 0);
    let mut unknown: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for app in apps {
        counters += app.counters;
        seconds = app.seconds.min(seconds);
        ports += app.ports.len();
        for NotChecked { what, needs, device } in &app.not_checked {
            unknown.entry((what.as_str(), needs.as_str())).or_default().extend(device);
        }
    }
    let mut text = match counters {
        _ if ports == 0 => "no findings".to_owned(),
        0 => "no findings; no counter was compared, because there was only one sample".to_owned(),
        _ => {
            let counters = plural(counters as u64, "counter");
            format!("no loss in {seconds:.1} s on any of {counters}")
        }
    };
    let unknown: Vec<_> = unknown.into_iter().map(not_checked_text).collect();
    if !unknown.is_empty() {
        let _ = write!(text, "; not checked: {}", unknown.join(", "));
    }
    text
}

fn not_checked_text(((what, needs), devices): ((&str, &str), Vec<&str>)) -> String {
    match &devices[..] {
        [] => format!("{what} ({needs})"),
        [one] => format!("{what} of {one} ({needs})"),
        many => format!("{what} of {} ({needs})", devices_text(many)),
    }
}

fn devices_text(devices: &[&str]) -> String {
    match devices.len() {
        ..=3 => devices.join(" and "),
        more => format!("{more} ports"),
    }
}

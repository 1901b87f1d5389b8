//! `--csv`: one table of a report for spreadsheets, a row per line, quoted as in RFC 4180.

use anyhow::{Context, Result};
use clap::ValueEnum;
use jiff::Timestamp;
use pmdscope_telemetry::finding::Finding;
use pmdscope_telemetry::model::{Model, PoolTrend, PortRates, QueueRates};
use pmdscope_telemetry::sample::{PoolSample, PortSample, QueueDirection, QueueSample};
use pmdscope_telemetry::{AppState, AppStatus, FleetState};

use crate::lcores::table::{LcoreRow, rows as lcore_rows};
use crate::output::one_line;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CsvTable {
    /// Apps, also those that do not answer
    Apps,
    /// Ports
    Ports,
    /// Queues, of apps with libpmdscope
    Queues,
    /// Mempools
    Pools,
    /// Lcores that poll, and those whose threads the kernel knows
    Lcores,
    /// Findings, of interfaces too
    Findings,
}

impl CsvTable {
    /// The rows of a moment, below the names of the columns if they are wanted. An app that does not answer
    /// has rows among apps and findings only.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn text(self, fleet: &FleetState, header: bool) -> Result<String> {
        let time = Timestamp::from_nanosecond(fleet.realtime_ns.into());
        let time = cell(time.ok().map(|time| format!("{time:.3}")));
        let mut writer = TableWriter { rows: csv::Writer::from_writer(Vec::new()), time, header };
        match self {
            Self::Apps => apps(fleet, &mut writer),
            Self::Ports => ports(fleet, &mut writer),
            Self::Queues => queues(fleet, &mut writer),
            Self::Pools => pools(fleet, &mut writer),
            Self::Lcores => lcores(fleet, &mut writer),
            Self::Findings => findings(fleet, &mut writer),
        }?;
        let written = writer.rows.into_inner().map_err(csv::IntoInnerError::into_error)?;
        String::from_utf8(written).context("cannot write CSV")
    }
}

/// Name and value of each column.
type Columns<'a, R> = &'a [(&'a str, fn(&R) -> String)];

/// Writes one table; its first column is the time.
struct TableWriter {
    rows: csv::Writer<Vec<u8>>,
    time: String,
    header: bool,
}

impl TableWriter {
    fn write<R>(
        &mut self,
        columns: Columns<'_, R>,
        rows: impl Iterator<Item = R>,
    ) -> csv::Result<()> {
        if self.header {
            let names = columns.iter().map(|(name, _)| *name);
            self.rows.write_record(["time"].into_iter().chain(names))?;
        }
        for row in rows {
            // Names come from outside: a line break in one of them must not begin a row.
            let cells = columns.iter().map(|(_, value)| one_line(&value(&row)));
            self.rows.write_record([self.time.clone()].into_iter().chain(cells))?;
        }
        Ok(())
    }
}

/// Empty for an unknown value.
fn cell(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The apps that answer, by name.
fn answering(fleet: &FleetState) -> impl Iterator<Item = (&str, &Model)> {
    fleet.live_models().map(|(app, model)| (app.name.as_str(), model))
}

struct AppRow<'a> {
    app: &'a AppState,
    /// Of an app that answers.
    model: Option<&'a Model>,
}

impl AppRow<'_> {
    fn told<T: ToString>(&self, tell: impl FnOnce(&Model) -> T) -> String {
        cell(self.model.map(tell))
    }

    /// The sum over all ports that report the value.
    fn sum(&self, of: impl Fn(&PortRates) -> Option<f64>) -> String {
        cell(self.model.and_then(|model| model.sum_of_ports(of)))
    }
}

fn started(model: &Model) -> usize {
    model.sample.ports.iter().filter(|port| port.started).count()
}

fn apps(fleet: &FleetState, writer: &mut TableWriter) -> csv::Result<()> {
    let columns: Columns<'_, AppRow<'_>> = &[
        ("app", |row| row.app.name.clone()),
        ("state", |row| match row.app.status {
            AppStatus::Waiting => "waiting".to_owned(),
            AppStatus::Live => "live".to_owned(),
            AppStatus::Lost { .. } => "lost".to_owned(),
        }),
        ("reason", |row| match &row.app.status {
            AppStatus::Lost { reason } => reason.clone(),
            AppStatus::Waiting | AppStatus::Live => String::new(),
        }),
        ("pid", |row| row.told(|model| model.sample.app.pid)),
        ("dpdk_version", |row| row.told(|model| model.sample.app.dpdk_version.clone())),
        ("level", |row| row.told(|model| model.sample.level())),
        ("ports", |row| row.told(|model| model.sample.ports.len())),
        ("ports_started", |row| row.told(started)),
        ("rx_pps", |row| row.sum(|port| port.rx_pps)),
        ("tx_pps", |row| row.sum(|port| port.tx_pps)),
        ("rx_bps", |row| row.sum(|port| port.rx_bps)),
        ("tx_bps", |row| row.sum(|port| port.tx_bps)),
        ("rx_missed_ps", |row| row.sum(|port| port.rx_missed_ps)),
        ("fullest_pool_used_ratio", |row| cell(row.model.and_then(Model::fullest_pool_ratio))),
        ("longest_gap_us", |row| cell(row.model.and_then(Model::longest_gap_us))),
        ("findings", |row| row.app.findings.len().to_string()),
    ];
    let row = |app| AppRow { app, model: app.model.as_deref().filter(|_| !app.stale()) };
    writer.write(columns, fleet.apps.iter().map(row))
}

fn ports(fleet: &FleetState, writer: &mut TableWriter) -> csv::Result<()> {
    let columns: Columns<'_, (&str, &PortSample, &PortRates)> = &[
        ("app", |(app, ..)| (*app).to_owned()),
        ("port", |(_, port, _)| port.id.to_string()),
        ("device", |(_, port, _)| port.device.clone()),
        ("started", |(_, port, _)| port.started.to_string()),
        ("link_up", |(_, port, _)| cell(port.link_up)),
        ("link_mbps", |(_, port, _)| cell(port.link_mbps)),
        ("mtu", |(_, port, _)| port.mtu.to_string()),
        ("rx_packets", |(_, port, _)| port.stats.rx_packets.to_string()),
        ("tx_packets", |(_, port, _)| port.stats.tx_packets.to_string()),
        ("rx_bytes", |(_, port, _)| port.stats.rx_bytes.to_string()),
        ("tx_bytes", |(_, port, _)| port.stats.tx_bytes.to_string()),
        ("rx_missed", |(_, port, _)| port.stats.rx_missed.to_string()),
        ("rx_errors", |(_, port, _)| port.stats.rx_errors.to_string()),
        ("tx_errors", |(_, port, _)| port.stats.tx_errors.to_string()),
        ("rx_nombuf", |(_, port, _)| port.stats.rx_nombuf.to_string()),
        ("rx_pps", |(.., rates)| cell(rates.rx_pps)),
        ("tx_pps", |(.., rates)| cell(rates.tx_pps)),
        ("rx_bps", |(.., rates)| cell(rates.rx_bps)),
        ("tx_bps", |(.., rates)| cell(rates.tx_bps)),
        ("rx_missed_ps", |(.., rates)| cell(rates.rx_missed_ps)),
        ("rx_errors_ps", |(.., rates)| cell(rates.rx_errors_ps)),
        ("tx_errors_ps", |(.., rates)| cell(rates.tx_errors_ps)),
        ("rx_nombuf_ps", |(.., rates)| cell(rates.rx_nombuf_ps)),
    ];
    let rows = answering(fleet).flat_map(|(app, model)| {
        model.sample.ports.iter().zip(&model.ports).map(move |(port, rates)| (app, port, rates))
    });
    writer.write(columns, rows)
}

fn queues(fleet: &FleetState, writer: &mut TableWriter) -> csv::Result<()> {
    let columns: Columns<'_, (&str, &QueueSample, &QueueRates)> = &[
        ("app", |(app, ..)| (*app).to_owned()),
        ("port", |(_, queue, _)| queue.port.to_string()),
        ("direction", |(_, queue, _)| match queue.direction {
            QueueDirection::Rx => "rx".to_owned(),
            QueueDirection::Tx => "tx".to_owned(),
        }),
        ("queue", |(_, queue, _)| queue.queue.to_string()),
        ("packets", |(_, queue, _)| queue.packets.to_string()),
        ("bytes", |(_, queue, _)| queue.bytes.to_string()),
        ("pps", |(.., rates)| cell(rates.pps)),
        ("bps", |(.., rates)| cell(rates.bps)),
        ("share", |(.., rates)| cell(rates.share)),
        ("missed_ps", |(.., rates)| cell(rates.missed_ps)),
        ("refused_ps", |(.., rates)| cell(rates.refused_ps)),
        ("depth", |(_, queue, _)| cell(queue.depth)),
        ("depth_window_max", |(_, queue, _)| cell(queue.depth_high_water.map(|most| most.window))),
        ("descriptors", |(_, queue, _)| cell(queue.descriptors)),
        ("busy_ratio", |(.., rates)| cell(rates.busy_ratio)),
        ("mean_burst", |(.., rates)| cell(rates.mean_burst)),
    ];
    let rows = answering(fleet).flat_map(|(app, model)| {
        model.sample.queues.iter().zip(&model.queues).map(move |(queue, rates)| (app, queue, rates))
    });
    writer.write(columns, rows)
}

fn pools(fleet: &FleetState, writer: &mut TableWriter) -> csv::Result<()> {
    let columns: Columns<'_, (&str, &PoolSample, &PoolTrend)> = &[
        ("app", |(app, ..)| (*app).to_owned()),
        ("pool", |(_, pool, _)| pool.name.clone()),
        ("size", |(_, pool, _)| pool.size.to_string()),
        ("in_use", |(_, pool, _)| cell(pool.occupancy.map(|objects| objects.in_use))),
        ("cached", |(_, pool, _)| cell(pool.occupancy.map(|objects| objects.cached))),
        ("common", |(_, pool, _)| cell(pool.occupancy.map(|objects| objects.common))),
        ("used_ratio", |(.., trend)| cell(trend.used_ratio)),
        ("in_use_window_max", |(_, pool, _)| cell(pool.high_water.map(|most| most.window))),
        ("slope_ps", |(.., trend)| cell(trend.slope_ps)),
        ("exhausted_in_s", |(.., trend)| cell(trend.exhausted_in_s)),
        ("element_bytes", |(_, pool, _)| pool.element_bytes.to_string()),
    ];
    let rows = answering(fleet).flat_map(|(app, model)| {
        model.sample.pools.iter().zip(&model.pools).map(move |(pool, trend)| (app, pool, trend))
    });
    writer.write(columns, rows)
}

fn lcores(fleet: &FleetState, writer: &mut TableWriter) -> csv::Result<()> {
    let columns: Columns<'_, LcoreRow<'_>> = &[
        ("app", |row| row.app.to_owned()),
        ("lcore", |row| row.lcore.to_string()),
        ("role", |row| cell(row.role)),
        ("tid", |row| cell(row.tid)),
        ("cpus", |row| cell(row.cpus)),
        ("cpu", |row| cell(row.cpu)),
        ("run_ratio", |row| cell(row.run_ratio)),
        ("run_delay_ratio", |row| cell(row.run_delay_ratio)),
        ("involuntary_ps", |row| cell(row.involuntary_ps)),
        ("voluntary_ps", |row| cell(row.voluntary_ps)),
        ("polls_ps", |row| cell(row.polls_ps)),
        ("empty_ratio", |row| cell(row.empty_ratio)),
        ("gap_us", |row| cell(row.gap_us)),
        ("stalls", |row| cell(row.stalls)),
    ];
    writer.write(columns, lcore_rows(fleet).filter(|row| !row.stale))
}

fn findings(fleet: &FleetState, writer: &mut TableWriter) -> csv::Result<()> {
    let columns: Columns<'_, &Finding> = &[
        ("app", |finding| finding.app.clone()),
        ("severity", |finding| finding.severity.word().to_owned()),
        ("finding", |finding| finding.lint.name().to_owned()),
        ("subject", |finding| finding.subject.to_string()),
        ("evidence", |finding| finding.evidence.clone()),
        ("threshold", |finding| finding.threshold.clone()),
        ("advice", |finding| finding.advice.clone()),
    ];
    let of_apps = fleet.apps.iter().flat_map(|app| &app.findings);
    writer.write(columns, fleet.interfaces.findings().chain(of_apps))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insta::assert_snapshot;
    use pmdscope_telemetry::finding::{FindingSubject, Lint, Severity};
    use pmdscope_telemetry::fixture::{pool, port, queue};
    use pmdscope_telemetry::sample::{LcoreSample, Sample};
    use pmdscope_telemetry::{ErrorClass, FleetEvent, ModelTracker};

    use super::*;

    /// One app that answers, and one that no longer does.
    fn fleet() -> FleetState {
        let finding = Finding {
            lint: Lint::RxMissed,
            severity: Severity::Critical,
            app: "fwd".to_owned(),
            subject: FindingSubject::Port("0000:03:00.0".to_owned()),
            evidence: "900 packets/s, \"missed\"".to_owned(),
            threshold: "0".to_owned(),
            advice: "more\r\nqueues".to_owned(),
            causes: Vec::new(),
            weight: 0.0,
        };
        let lcore = LcoreSample { lcore: 2, role: "worker".to_owned(), ..LcoreSample::default() };
        let mut sample = Sample {
            monotonic_ns: 1_000_000_000,
            ports: vec![port(0, 1_000)],
            pools: vec![pool("=mb,1", 4096, 1024)],
            queues: vec![queue(0, [100, 50, 1_000])],
            lcores: vec![lcore],
            ..Sample::default()
        };
        let mut tracker = ModelTracker::default();
        tracker.update(sample.clone());
        sample.monotonic_ns += 1_000_000_000;
        sample.ports[0].stats.rx_packets += 500;
        let model = Arc::new(tracker.update(sample));
        let realtime_ns = 1_767_323_045_678_000_000;
        let mut fleet = FleetState { realtime_ns, ..FleetState::default() };
        for app in ["fwd", "gone"] {
            let findings = if app == "fwd" { vec![finding.clone()] } else { Vec::new() };
            let model = model.clone();
            fleet.apply(FleetEvent::Sampled { app: app.to_owned(), model, findings });
        }
        fleet.apply(FleetEvent::Lost {
            app: "gone".to_owned(),
            class: ErrorClass::Timeout,
            reason: "timed out".to_owned(),
            finding: None,
        });
        fleet
    }

    #[test]
    fn every_table_has_names_and_rows() {
        let text = |table: &CsvTable| table.text(&fleet(), true).unwrap();
        let all: Vec<_> = CsvTable::value_variants().iter().map(text).collect();
        assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn the_names_are_written_once() {
        let (first, later) =
            (CsvTable::Apps.text(&fleet(), true), CsvTable::Apps.text(&fleet(), false));
        let first = first.unwrap();
        assert_eq!(first.split_once('\n').unwrap().1, later.unwrap());
    }

    #[test]
    fn nothing_is_a_line_of_names() {
        for table in CsvTable::value_variants() {
            let text = table.text(&FleetState::default(), true).unwrap();
            assert!(text.starts_with("time,app,") && text.lines().count() == 1, "{text}");
        }
    }
}

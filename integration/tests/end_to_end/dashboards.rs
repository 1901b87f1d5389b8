//! Every expression of every panel, rule and alert, asked of a real Prometheus while apps are in
//! trouble of all kinds.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use pmdscope_integration::exporter::Exporter;
use pmdscope_integration::pair::{Pair, PairOptions, eal};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::prometheus::Prometheus;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::testpmd;
use serde_json::Value;

use crate::flood::Flood;
use crate::support::{LIMIT, number};

/// Scrapes that rates need, and a first sample of a target takes seconds.
const WATCHED: u64 = 20;

/// Values of Grafana's own variables at a scrape per second.
const GRAFANA: [(&str, &str); 3] =
    [("__rate_interval", "5s"), ("__interval", "5s"), ("__range", "20s")];

/// Metrics that no app of this test has: its devices are virtual, and DPDK 22.11 counts no cycles.
const NOT_HERE: [&str; 12] = [
    // No port of this test loses packets on its way; drivers.rs has ports that do.
    "dpdk_port_discards_total",
    // No interface of this machine has a bypass here; bypass.rs has values of these.
    "dpdk_interface_bypass_info",
    "dpdk_interface_queue_redirected_packets_total",
    "dpdk_lcore_busy_cycles_total",
    "dpdk_lcore_cycles_total",
    // bpftrace needs seconds to attach, and more where all CPUs poll; stolen.rs has values of these.
    "dpdk_lcore_stolen_",
    "dpdk_mbuf_lost_at_least",
    "dpdk_pci_device_driver_mismatch",
    "dpdk_pci_device_info",
    "dpdk_port_link_speed_bytes_per_second",
    // The devices of this test count nothing that they miss; those of missed.rs do.
    "dpdk_port_missed_cause",
    "dpdk_queue_receive_descriptors",
];

pub(crate) fn proof(scratch: &Scratch) -> Result<()> {
    let scene = Scene::set(scratch)?;
    scene.alerts_fire()?;
    scene.rules_are_sound()?;
    let (mut open, mut complaints) = (expressions(scratch)?, Vec::new());
    // Some metrics appear some time after the first scrape.
    let answered = wait_until("all expressions to have data", LIMIT, || {
        complaints.clear();
        open.retain(|expression| match scene.answers(expression) {
            Ok(()) => false,
            Err(error) => {
                complaints.push(format!("{error:#}"));
                true
            }
        });
        Ok(open.is_empty())
    });
    answered
        .with_context(|| format!("{} of them:\n{}", complaints.len(), complaints.join("\n")))?;
    scene.agrees_with_generator()
}

/// Apps in trouble, an exporter, and a Prometheus that scrapes it.
struct Scene {
    prometheus: Prometheus,
    _exporter: Exporter,
    _others: [Process; 3],
    _flood: Flood,
    generator: pmdscope_integration::pair::Generator,
    pair: Pair,
    /// App and alert.
    expected: Vec<(String, String)>,
}

impl Scene {
    fn set(scratch: &Scratch) -> Result<Self> {
        let options = PairOptions {
            queues: 2,
            leak: Some("1/256".to_owned()),
            stall: Some("3000/200".to_owned()),
            ..PairOptions::default()
        };
        let pair = Pair::start(scratch, options)?;
        let generator = pair.generate(scratch, &["--rate", "20000"])?;
        let (blind, idle) = testpmd::without_ports(scratch)?;
        let pipeline = pipeline(scratch)?;
        let mut command = Command::new(programs::pmdscope()?);
        command.args(["capture", "-i", &format!("{}:0", pair.app()), "-w", "/dev/null"]);
        let capture = Process::spawn("capture", &mut command, scratch.dir())?;

        let flood = Flood::start(scratch)?;
        let config = scratch.path("pmdscope.toml");
        fs::write(&config, configuration(pair.app()))?;
        let exporter = Exporter::start(scratch, &["--config", &config.to_string_lossy()])?;
        let address: SocketAddr = exporter.address();
        let prometheus = Prometheus::start(scratch, &[address])?;
        let expected = vec![
            (pair.app().to_owned(), "DpdkMbufLeak".to_owned()),
            (blind, "DpdkAppNoPorts".to_owned()),
        ];
        let others = [capture, idle, pipeline];
        Ok(Self {
            prometheus,
            generator,
            pair,
            expected,
            _exporter: exporter,
            _others: others,
            _flood: flood,
        })
    }

    /// Waits for the expected alerts.
    fn alerts_fire(&self) -> Result<()> {
        let mut firing = Vec::new();
        let waited = wait_until("the alerts", LIMIT * 2, || {
            firing = self.firing()?;
            Ok(self.expected.iter().all(|alert| firing.contains(alert)))
        });
        let expected = &self.expected;
        waited.with_context(|| format!("these fire: {firing:?}; expected: {expected:?}")).map(drop)
    }

    /// App and name of the alerts that fire.
    fn firing(&self) -> Result<Vec<(String, String)>> {
        let text = |alert: &Value, label: &str| {
            alert["labels"][label].as_str().unwrap_or_default().to_owned()
        };
        let alerts = self.prometheus.alerts()?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Ok(firing.map(|alert| (text(alert, "app"), text(alert, "alertname"))).collect())
    }

    fn rules_are_sound(&self) -> Result<()> {
        for group in self.prometheus.rule_groups()? {
            for rule in group["rules"].as_array().context("rules")? {
                ensure!(rule["health"] == "ok", "rule {}: {}", rule["name"], rule["lastError"]);
            }
        }
        Ok(())
    }

    /// One expression has an answer, with the labels that its legend names.
    fn answers(&self, expression: &Value) -> Result<()> {
        let raw = expression["expr"].as_str().context("expr")?;
        let about = format!("{}/{}: {raw}", expression["source"], expression["panel"]);
        let filled = self.fill(raw, &expression["variables"]).with_context(|| about.clone())?;
        let series = match expression["instant"].as_bool() {
            Some(true) => self.prometheus.query(&filled),
            _ => self.prometheus.query_range(&filled, WATCHED),
        };
        let series = series.with_context(|| about.clone())?;
        if !series.iter().any(is_finite) {
            let quiet = matches!(expression["kind"].as_str(), Some("alert" | "annotation"));
            // Without the part that only chooses the series to draw.
            let drawn = raw.split(" and ").next().unwrap_or(raw);
            let unknown = NOT_HERE.iter().any(|metric| drawn.contains(metric));
            ensure!(quiet || unknown, "{about}: no data for {filled}");
        }
        for label in legend_labels(expression["legend"].as_str().unwrap_or_default()) {
            let named = series.iter().all(|one| one["metric"].get(label).is_some());
            ensure!(named, "{about}: a series has no label {label} for its legend");
        }
        Ok(())
    }

    /// Puts in the values of all variables, as Grafana does for "All".
    fn fill(&self, raw: &str, variables: &Value) -> Result<String> {
        let mut filled = raw.to_owned();
        let variables: BTreeMap<String, String> = serde_json::from_value(variables.clone())?;
        for (name, definition) in &variables {
            let (selector, label) = definition
                .strip_prefix("label_values(")
                .and_then(|rest| rest.strip_suffix(')')?.rsplit_once(", "))
                .with_context(|| format!("variable {name}: {definition}"))?;
            let selector = all(selector, &variables);
            if raw.contains(&format!("${name}")) {
                let values = self.prometheus.label_values(&selector, label)?;
                ensure!(!values.is_empty(), "variable {name} has no value: {selector}");
            }
        }
        filled = all(&filled, &variables);
        for (name, value) in GRAFANA {
            filled = filled.replace(&format!("${name}"), value);
        }
        ensure!(!filled.contains('$'), "a variable that nobody fills in: {filled}");
        Ok(filled)
    }

    /// A value that is there may still be wrong: the generator knows what it sent.
    fn agrees_with_generator(self) -> Result<()> {
        let Self { prometheus, generator, pair, .. } = self;
        let summary = generator.stop()?;
        let expression = format!("max(dpdk_port_receive_packets_total{{app=\"{}\"}})", pair.app());
        let sent = number(&summary, "sent")?;
        wait_until("the last packets to be counted", LIMIT, || {
            let samples = prometheus.query(&expression)?;
            let counted = samples.first().and_then(|one| one["value"][1].as_str());
            let counted: f64 = counted.context("no received packets")?.parse()?;
            if counted > sent as f64 {
                bail!("{counted} packets counted, {sent} were sent");
            }
            // Packets that were in flight when the generator stopped are lost.
            Ok(counted >= sent as f64 * 0.999)
        })?;
        Ok(())
    }
}

/// An app with software rings and stages.
fn pipeline(scratch: &Scratch) -> Result<Process> {
    let prefix = scratch.prefix("pipeline");
    let mut command = Command::new(programs::pipeline()?);
    eal(&mut command, "0@0", &prefix, Memory::available());
    command.args(["--vdev", "net_null0", "--"]);
    command.args(["--rate", "1000", "--hold", "100", "--stamp-packets", "--quiet"]);
    Process::spawn("pipeline", &mut command, scratch.dir())
}

/// No receiver listens where metrics are pushed to; the dashboards must show that as well.
fn configuration(app: &str) -> String {
    format!(
        "[export]\ninterrupts = true\nqueue_histograms = true\notlp = \"http://127.0.0.1:9\"\notlp_interval = \"2s\"\nxstats = [\"good_packets\"]\n\
         [[expected]]\napp = \"{app}\"\nmin_ports = 1\n\
         [[expected]]\napp = \"never-started\"\n"
    )
}

fn expressions(scratch: &Scratch) -> Result<Vec<Value>> {
    let mut command = Command::new("python3");
    command.arg(programs::root().join("dashboards/tests/expressions.py"));
    let (code, out, err) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "expressions.py ended with {code}: {err}");
    let expressions =
        out.lines().map(|line| Ok(serde_json::from_str(line)?)).collect::<Result<Vec<Value>>>()?;
    ensure!(!expressions.is_empty(), "expressions.py lists none");
    Ok(expressions)
}

/// `text` with every variable set to All. Longest names first: one may begin with another.
fn all(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut names: Vec<&String> = variables.keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.iter().fold(text.to_owned(), |text, name| text.replace(&format!("${name}"), ".+"))
}

/// `{{label}}` of a legend.
fn legend_labels(legend: &str) -> impl Iterator<Item = &str> {
    legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next())
}

/// An instant vector's value, or any of a range's, is a finite number.
fn is_finite(series: &Value) -> bool {
    let finite = |point: &Value| {
        point[1].as_str().and_then(|text| text.parse::<f64>().ok()).is_some_and(f64::is_finite)
    };
    finite(&series["value"]) || series["values"].as_array().is_some_and(|v| v.iter().any(finite))
}

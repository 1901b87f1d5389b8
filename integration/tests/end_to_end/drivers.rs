//! What `pmdscope check` says of ports of real NICs, by the telemetry that their drivers give.

use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::fake::FakeApp;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::{programs, telemetry};
use serde_json::{Map, Value, json};

use crate::support::{Needs, pmdscope_json, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("counters_of_drivers_become_findings", Needs::Apps, findings),
        trial("a_check_without_findings_says_what_it_checked", Needs::Apps, checked),
        trial("zeros_in_place_of_counters_are_no_traffic", Needs::Apps, zeros),
    ]
}

/// Names of the basic counters, and of the extended ones that repeat them.
const BASIC: [(&str, &str); 8] = [
    ("ipackets", "rx_good_packets"),
    ("opackets", "tx_good_packets"),
    ("ibytes", "rx_good_bytes"),
    ("obytes", "tx_good_bytes"),
    ("imissed", "rx_missed_errors"),
    ("ierrors", "rx_errors"),
    ("oerrors", "tx_errors"),
    ("rx_nombuf", "rx_mbuf_allocation_errors"),
];

/// A counter falls below 0 this long after the start of an app.
const FALL: Duration = Duration::from_millis(1200);

/// How long each app is watched.
const WATCHED: &str = "3";

/// An app with ports of real NICs.
struct DriverApp {
    ports: Vec<Value>,
    start: Instant,
    /// Requests for counters so far.
    requests: AtomicU64,
    /// Numbers of such requests that are answered with zeros.
    zeros: Range<u64>,
}

impl DriverApp {
    fn new(ports: Vec<Value>) -> Self {
        Self { ports, start: Instant::now(), requests: AtomicU64::new(0), zeros: 0..0 }
    }

    /// Returns the extended counters of a port at this time.
    fn xstats(&self, port: &Value) -> Map<String, Value> {
        let age = self.start.elapsed();
        let zero = self.zeros.contains(&self.requests.fetch_add(1, Ordering::Relaxed));
        let seconds = if zero { 0.0 } else { age.as_secs_f64() };
        let mut counters: Map<_, _> =
            BASIC.iter().map(|(_, name)| ((*name).to_owned(), 0.into())).collect();
        let start = |name: &str| if zero { 0 } else { port["start"][name].as_u64().unwrap_or(0) };
        for name in port["start"].as_object().into_iter().flat_map(Map::keys) {
            counters.insert(name.clone(), start(name).into());
        }
        for (name, rate) in port["per_second"].as_object().into_iter().flatten() {
            let counted = start(name) + whole(rate.as_f64().unwrap_or(0.0) * seconds);
            counters.insert(name.clone(), counted.into());
        }
        if let Some(name) = port["below_zero"].as_str().filter(|_| age > FALL) {
            counters.insert(name.to_owned(), (u64::MAX - 9).into());
        }
        counters
    }

    fn stats(&self, port: &Value) -> Value {
        let xstats = self.xstats(port);
        let basic = BASIC.iter().map(|(basic, name)| ((*basic).to_owned(), xstats[*name].clone()));
        let mut stats: Map<_, _> = basic.collect();
        let seconds = self.start.elapsed().as_secs_f64();
        let queues = port["queues_per_second"].as_array().map_or(&[][..], Vec::as_slice);
        let queues = queues.iter().map(|rate| whole(rate.as_f64().unwrap_or(0.0) * seconds));
        let mut queues: Vec<_> = queues.collect();
        queues.resize(16, 0);
        stats.insert("q_ipackets".to_owned(), json!(queues));
        Value::Object(stats)
    }

    fn info(port: &Value, id: usize) -> Value {
        json!({
            "name": port["device"], "port_id": id, "mtu": 1500, "dev_started": 1, "promiscuous": 1,
            "nb_rx_queues": port["rx_queues"].as_u64().unwrap_or(1), "nb_tx_queues": 1,
            "mac_addr": format!("02:00:00:00:00:{id:02X}"), "numa_node": 0
        })
    }

    /// Returns the reply to a request; `None` for one that it does not know.
    fn answer(&self, request: &str) -> Option<String> {
        let (command, id) = request.split_once(',').unwrap_or((request, ""));
        let port = id.parse::<usize>().ok().and_then(|id| Some((id, self.ports.get(id)?)));
        let commands = [
            "/",
            "/info",
            "/eal/params",
            "/ethdev/list",
            "/ethdev/info",
            "/ethdev/link_status",
            "/ethdev/stats",
            "/ethdev/xstats",
            "/mempool/list",
        ];
        let reply = match (command, port) {
            ("/", _) => json!(commands),
            ("/info", _) => json!({"version": "DPDK 22.11.11", "pid": 1, "max_output_len": 16384}),
            ("/eal/params", _) => json!(["app", "-l", "0"]),
            ("/ethdev/list", _) => json!((0..self.ports.len()).collect::<Vec<_>>()),
            ("/mempool/list", _) => json!([]),
            ("/ethdev/info", Some((id, port))) => Self::info(port, id),
            ("/ethdev/link_status", Some(_)) => {
                json!({"status": "UP", "speed": 100_000, "duplex": "full-duplex"})
            }
            ("/ethdev/stats", Some((_, port))) => self.stats(port),
            ("/ethdev/xstats", Some((_, port))) => Value::Object(self.xstats(port)),
            _ => return None,
        };
        Some(json!({command: reply}).to_string())
    }

    /// Starts an app that answers so; returns its name.
    fn listen(self, scratch: &Scratch) -> Result<(String, FakeApp)> {
        let name = scratch.prefix("driver");
        let socket = telemetry::socket(&name);
        let app = FakeApp::answering(&socket, move |request| self.answer(request));
        Ok((name, app.with_context(|| socket.display().to_string())?))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
fn whole(count: f64) -> u64 {
    count as u64
}

/// Returns the recorded ports, and further expectations of them.
fn recorded() -> Result<(Vec<Value>, Vec<Value>)> {
    let path = programs::root().join("telemetry/tests/data/drivers/ports.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let ports: Vec<Value> = serde_json::from_str(&text)?;
    Ok(ports.into_iter().partition(|port| port["is_of"].is_null()))
}

/// Watches an app.
fn check(scratch: &Scratch, app: &str) -> Result<Value> {
    let report =
        pmdscope_json(scratch, &["check", "-a", app, "--for", WATCHED, "--json"], &[0, 1])?;
    Ok(report["apps"][0].clone())
}

fn of_port<'a>(report: &'a Value, device: &Value) -> Vec<&'a Value> {
    let findings = report["findings"].as_array().into_iter().flatten();
    findings.filter(|finding| finding["subject"] == *device).collect()
}

/// Each port has the finding that its driver's counters show, and no other about packets.
fn findings(scratch: &Scratch) -> Result<()> {
    let (ports, more) = recorded()?;
    let (app, _listening) = DriverApp::new(ports.clone()).listen(scratch)?;
    let report = check(scratch, &app)?;
    for expected in ports.iter().chain(&more) {
        let what = format!("{} ({})", expected["device"], expected["is"]);
        let found = of_port(&report, &expected["device"]);
        let lints: Vec<_> = found.iter().map(|finding| &finding["lint"]).collect();
        let Some(lint) = expected["finding"].as_str() else {
            ensure!(found.is_empty(), "{what} has {lints:?}");
            continue;
        };
        let finding = found.iter().find(|finding| finding["lint"] == lint);
        let finding = finding.with_context(|| format!("{what} has {lints:?}"))?;
        ensure!(finding["severity"] == expected["severity"], "{what}: {finding}");
        for word in expected["words"].as_array().into_iter().flatten() {
            let word = word.as_str().context("words")?;
            let text = finding["evidence"].as_str().context("evidence")?;
            ensure!(text.contains(word), "{what} lacks {word}: {text}");
        }
    }
    let ports = report["checked"]["ports"].as_array().context("checked ports")?;
    let members: Vec<_> = ports.iter().filter(|port| port["member_of"].is_number()).collect();
    ensure!(members.len() == 1 && members[0]["device"] == "8a2a:00:02.0", "{members:?}");
    Ok(())
}

/// A healthy port.
fn healthy() -> Value {
    json!({
        "device": "0000:d8:00.0",
        "per_second": {"rx_good_packets": 1_000_000, "tx_good_packets": 1_000_000, "rx_crc_errors": 0}
    })
}

fn checked(scratch: &Scratch) -> Result<()> {
    let (app, _listening) = DriverApp::new(vec![healthy()]).listen(scratch)?;
    let report = check(scratch, &app)?;
    ensure!(report["findings"] == json!([]), "{report}");
    let checked = &report["checked"];
    ensure!(checked["counters"].as_u64() == Some(5), "four basic counters and one more: {checked}");
    ensure!(checked["seconds"].as_f64().is_some_and(|seconds| seconds > 1.0), "{checked}");
    let balance = &checked["ports"][0]["balance"];
    ensure!(balance["received_pps"].as_f64().is_some_and(|pps| pps > 0.0), "{checked}");
    ensure!(balance["discarded_pps"].is_null(), "the driver is unknown: {checked}");
    let unknown = checked["not_checked"].as_array().context("not_checked")?;
    ensure!(unknown.iter().any(|of| of["device"] == "0000:d8:00.0"), "{checked}");
    Ok(())
}

fn zeros(scratch: &Scratch) -> Result<()> {
    let mut port = healthy();
    port["start"] = json!({"rx_good_packets": 7_000_000_000_u64});
    let mut app = DriverApp::new(vec![port]);
    // Once the port is known, a sample takes one request; counters that went back are read again, both kinds.
    app.zeros = 5..8;
    let (app, _listening) = app.listen(scratch)?;
    let report = check(scratch, &app)?;
    let findings = report["findings"].as_array().context("findings")?;
    let lints: Vec<_> = findings.iter().map(|finding| &finding["lint"]).collect();
    // The app has just started, and its counters are those of a long time.
    let others: Vec<_> = lints.into_iter().filter(|lint| **lint != "rx_flat").collect();
    ensure!(others == ["counter_implausible"], "{findings:?}");
    let pps = report["checked"]["ports"][0]["balance"]["received_pps"].as_f64();
    ensure!(pps.is_some_and(|pps| pps < 3e6), "{report}");
    Ok(())
}

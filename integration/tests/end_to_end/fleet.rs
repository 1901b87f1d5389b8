//! Two hosts that run an app of the same name, as docs/fleet.md describes: one agent scrapes both and
//! sends to a Prometheus that evaluates the rules, and one collector has the flows of both.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::exporter::Exporter;
use pmdscope_integration::frames::{Feed, UDP, Way, frame};
use pmdscope_integration::host::Host;
use pmdscope_integration::pair::eal;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::prometheus::Prometheus;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::telemetry;
use serde_json::Value;

use crate::ipfix::{Collected, Collector};
use crate::support::{LIMIT, Needs, missing_program, number, trial_unless};

pub(crate) fn trials() -> Vec<Trial> {
    let missing = Needs::Prometheus.missing();
    let missing = missing.or_else(|| missing_program(&["nfcapd", "nfdump", "nsenter", "unshare"]));
    vec![trial_unless("two_hosts_are_a_fleet", missing, fleet)]
}

/// The app of each host.
const APP: &str = "fwd";
/// Where exporters listen by default.
const PORT: u16 = 9177;
/// Packets that each app receives while they are counted.
const PACKETS: u64 = 320;
/// Packets until the app polls.
const FIRST: u64 = 32;
const PER_SECOND: u64 = 1000;

/// A host with its app and the exporter.
struct Node {
    exporter: Exporter,
    netstat: Option<Process>,
    // The app waits for packets in its poll loop, and ends after these have.
    feed: Option<Feed>,
    app: Option<Process>,
    host: Host,
}

impl Node {
    fn start(scratch: &Scratch, name: &str, number: u8, config: &str) -> Result<Self> {
        let host = Host::start(scratch, name, number)?;
        let feed = Feed::new(scratch.path(&format!("{name}.pcap")))?;
        let mut command = host.command(programs::reflector()?);
        eal(&mut command, "1@1", APP, Memory::Ordinary);
        let device = format!("net_pcap0,rx_pcap={},tx_pcap=/dev/null", feed.path().display());
        command.args(["--vdev", &device, "--"]);
        let app = Process::spawn(&format!("{name}-app"), &mut command, scratch.dir())?;
        let mut command = host.command(programs::pmdscope()?);
        command.args(["export", "--config", config]);
        let log = format!("{name}-exporter");
        let exporter = Exporter::listening(scratch, &log, &mut command, host.socket(PORT))?;
        Ok(Self { exporter, netstat: None, feed: Some(feed), app: Some(app), host })
    }

    /// Frames from an address that only this host has.
    fn frames(&self, packets: u64) -> Vec<Vec<u8>> {
        let [_, _, number, _] = self.host.address().octets();
        let way = |port: u16| Way {
            proto: UDP,
            from: ([10, 0, number, 7], port).into(),
            to: ([192, 0, 2, 1], 53).into(),
            vlan: None,
        };
        let ports = (5000..5004).cycle();
        (0..packets).zip(ports).map(|(at, port)| frame(way(port), at, 0, 100)).collect()
    }

    fn play(&mut self, packets: u64) -> Result<()> {
        let frames = self.frames(packets);
        self.feed.as_mut().context("the app has ended")?.play(&frames, PER_SECOND)
    }

    fn ask(&self, request: &str, field: &str) -> Result<u64> {
        number(&telemetry::ask_at(&self.host.telemetry_socket(APP), request)?, field)
    }

    /// Counts conversations, and sends them to a collector under an observation domain.
    fn export_flows(&mut self, scratch: &Scratch, config: &str, port: u16) -> Result<()> {
        wait_until("the app to answer", LIMIT, || {
            Ok(self.ask("/pmdscope", "tee_sessions").is_ok())
        })?;
        // Until it has polled, the library does not know of the lcore, and has no ring for it.
        self.play(FIRST)?;
        wait_until("the first packets", LIMIT, || {
            Ok(self.ask("/ethdev/stats,0", "ipackets")? >= FIRST)
        })?;
        let [_, _, domain, _] = self.host.address().octets();
        let collector = format!("{}:{port}", self.host.peer());
        let mut command = self.host.command(programs::pmdscope()?);
        command.args(["netstat", "--config", config, "-a", APP, "--sample", "1", "--json"]);
        command.args(["--ipfix", &collector, "--ipfix-domain", &domain.to_string()]);
        let name = format!("{}-netstat", self.host.name());
        let mut netstat = Process::spawn(&name, &mut command, scratch.dir())?;
        wait_until("netstat to count", LIMIT, || {
            ensure!(netstat.exited()?.is_none(), "netstat ended: {}", netstat.output());
            Ok(self.ask("/pmdscope", "tee_sessions")? == 1)
        })?;
        self.netstat = Some(netstat);
        self.play(PACKETS)
    }

    fn end_app(&mut self) -> Result<()> {
        let mut app = self.app.take().context("the app has ended")?;
        self.feed = None;
        app.interrupt().map(drop)
    }

    fn instance(&self) -> String {
        self.host.socket(PORT).to_string()
    }
}

fn configuration(scratch: &Scratch) -> Result<PathBuf> {
    let path = scratch.path("pmdscope.toml");
    let text = format!(
        "[discovery]\nroots = [\"/run\"]\ncontainers = false\n[[expected]]\napp = \"{APP}\"\n"
    );
    fs::write(&path, text)?;
    Ok(path)
}

fn fleet(scratch: &Scratch) -> Result<()> {
    let config = configuration(scratch)?;
    let config = config.to_str().context("path")?;
    let collector = Collector::listening(scratch, "0.0.0.0")?;
    let receiver = Prometheus::receiver(scratch)?;
    let mut first = Node::start(scratch, "host1", 101, config)?;
    let mut second = Node::start(scratch, "host2", 102, config)?;
    let targets = [&first, &second].map(|node| node.host.socket(PORT));
    let _agent = Prometheus::agent(scratch, targets, &receiver)?;
    for node in [&mut first, &mut second] {
        node.export_flows(scratch, config, collector.port())?;
    }
    both_arrive(&receiver, [&first, &second])?;
    expensive_series_are_dropped(&receiver, &first)?;
    for node in [&mut first, &mut second] {
        node.netstat.take().context("netstat")?.interrupt()?;
    }
    let stored = collector.stop()?;
    flows_tell_their_host(&stored, [&first, &second])?;
    an_ended_app_is_missed(&receiver, &first, &mut second)?;
    a_host_that_is_gone_is_down(&receiver, second)
}

/// Values of labels of the series of an expression.
fn found(receiver: &Prometheus, expression: &str, labels: &[&str]) -> Result<BTreeSet<String>> {
    let values = |series: &Value| {
        let value = |label: &&str| series["metric"][*label].as_str().unwrap_or_default().to_owned();
        labels.iter().map(value).collect::<Vec<_>>().join(" ")
    };
    Ok(receiver.query(expression)?.iter().map(values).collect())
}

fn both_arrive(receiver: &Prometheus, nodes: [&Node; 2]) -> Result<()> {
    let told = |node: &Node| format!("{} {} site1 pmdscope", node.instance(), node.host.address());
    let expected = BTreeSet::from(nodes.map(told));
    let mut arrived = BTreeSet::new();
    let expression = format!("dpdk_up{{app=\"{APP}\"}} == 1");
    let waited = wait_until("series of both hosts", LIMIT, || {
        arrived = found(receiver, &expression, &["instance", "host", "site", "job"])?;
        Ok(arrived == expected)
    });
    waited.with_context(|| format!("{arrived:?} arrived, not {expected:?}"))?;
    Ok(())
}

fn expensive_series_are_dropped(receiver: &Prometheus, node: &Node) -> Result<()> {
    let scrape = node.exporter.scrape()?;
    for (metric, is_kept) in [
        ("dpdk_port_receive_packets_total", true),
        ("dpdk_lcore_polls_total", true),
        ("dpdk_queue_stats_truncated", true),
        ("dpdk_queue_receive_packets_total", false),
        ("dpdk_lcore_poll_gap_seconds_bucket", false),
    ] {
        ensure!(scrape.all(metric, &[]).next().is_some(), "the exporter has no {metric}");
        let arrived = !receiver.query(metric)?.is_empty();
        ensure!(arrived == is_kept, "{metric}: arrived {arrived}");
    }
    Ok(())
}

/// Each flow has the address of the host that sent it, and each host an exporter of its own.
fn flows_tell_their_host(stored: &Collected, nodes: [&Node; 2]) -> Result<()> {
    let mut exporters = BTreeSet::new();
    for node in nodes {
        let router = node.host.address().to_string();
        let [_, _, domain, _] = node.host.address().octets();
        let sender = format!("10.0.{domain}.7");
        let flows: Vec<_> = stored.flows.iter().filter(|f| f["ip4_router"] == *router).collect();
        ensure!(!flows.is_empty(), "no flow of {router}: {:?}", stored.flows);
        let mut packets = 0;
        for flow in flows {
            let ends = [&flow["src4_addr"], &flow["dst4_addr"]];
            ensure!(ends.iter().any(|end| **end == *sender), "{router} sent {flow}");
            packets += if *ends[0] == *sender { number(flow, "in_packets")? } else { 0 };
            exporters.insert((router.clone(), number(flow, "export_sysid")?));
        }
        ensure!(packets == PACKETS, "{packets} packets of {router}");
        let line = |line: &str| {
            line.contains(&format!("{router},")) && line.contains(&format!("ID: {domain},"))
        };
        let known = &stored.exporters;
        ensure!(known.lines().any(line), "no {router} with domain {domain} in {known}");
    }
    ensure!(exporters.len() == 2, "not two exporters: {exporters:?}");
    Ok(())
}

/// Instances for which an alert fires.
fn firing(receiver: &Prometheus, alert: &str) -> Result<BTreeSet<String>> {
    let expression = format!("ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}}");
    found(receiver, &expression, &["instance"])
}

fn an_ended_app_is_missed(receiver: &Prometheus, first: &Node, second: &mut Node) -> Result<()> {
    ensure!(firing(receiver, "DpdkAppsMissing")?.is_empty(), "an app is missed too early");
    second.end_app()?;
    let expected = BTreeSet::from([second.instance()]);
    let waited = wait_until("the alert DpdkAppsMissing", LIMIT, || {
        Ok(firing(receiver, "DpdkAppsMissing")? == expected)
    });
    waited.with_context(|| format!("these alerts are there: {:?}", receiver.alerts()))?;
    let up = found(receiver, &format!("dpdk_up{{app=\"{APP}\"}} == 1"), &["instance"])?;
    ensure!(up == BTreeSet::from([first.instance()]), "up are {up:?}");
    Ok(())
}

/// Its series and those of its app end immediately: only the alert remains that it cannot be scraped.
fn a_host_that_is_gone_is_down(receiver: &Prometheus, gone: Node) -> Result<()> {
    let expected = BTreeSet::from([gone.instance()]);
    drop(gone);
    let waited = wait_until("the alert DpdkExporterDown alone", LIMIT, || {
        let is_down = firing(receiver, "DpdkExporterDown")? == expected;
        Ok(is_down && firing(receiver, "DpdkAppsMissing")?.is_empty())
    });
    waited.with_context(|| format!("these alerts are there: {:?}", receiver.alerts()))?;
    Ok(())
}

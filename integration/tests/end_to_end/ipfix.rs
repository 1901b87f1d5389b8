//! Conversations as a third-party collector stores them: nfdump's `nfcapd`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::frames::{self, ICMP, SCTP, TCP, UDP, Way, frame};
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    LIMIT, Missing, Needs, document, is_captured, missing_program, number, pmdscope_json,
    trial_unless,
};

type EndToEnd = fn(&Scratch) -> Result<()>;

/// The tests, or why none can run.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, EndToEnd); 2] = [
        ("nfdump_has_the_conversations_of_a_file", file),
        ("nfdump_scales_samples_to_our_estimate", sampled),
    ];
    let missing = || Needs::Apps.missing().or_else(|| missing_program(&["nfcapd", "nfdump"]));
    let no_store = || duckdb().is_none().then(|| Missing::Program("duckdb".to_owned()));
    let stored = trial_unless(
        "a_column_store_has_the_conversations_of_a_file",
        missing().or_else(no_store),
        column_store,
    );
    let tests = tests.map(|(name, test)| trial_unless(name, missing(), test));
    tests.into_iter().chain([stored]).collect()
}

/// The command `duckdb`, where `make setup` put it.
fn duckdb() -> Option<PathBuf> {
    let command = programs::root().join("build/tools/duckdb/bin/duckdb");
    command.exists().then_some(command)
}

/// nfcapd on a port of its own.
pub(crate) struct Collector<'a> {
    scratch: &'a Scratch,
    process: Process,
    address: SocketAddr,
}

/// What nfdump has stored.
pub(crate) struct Collected {
    pub(crate) flows: Vec<Value>,
    /// Exporters and their sampling.
    pub(crate) exporters: String,
    /// Names of interfaces that packets came in by.
    names: String,
}

impl<'a> Collector<'a> {
    fn start(scratch: &'a Scratch) -> Result<Self> {
        Self::listening(scratch, "127.0.0.1")
    }

    /// Starts it on an address.
    pub(crate) fn listening(scratch: &'a Scratch, address: &str) -> Result<Self> {
        let address = UdpSocket::bind((address, 0))?.local_addr()?;
        let port = address.port();
        let flows = scratch.path("flows");
        fs::create_dir(&flows)?;
        let mut command = Command::new("nfcapd");
        command.args([
            "-b",
            &address.ip().to_string(),
            "-t",
            "3600",
            "-p",
            &port.to_string(),
            "-w",
        ]);
        command.arg(flows);
        let mut process = Process::spawn("nfcapd", &mut command, scratch.dir())?;
        let bound = format!(":{port:04X} ");
        wait_until("nfcapd to listen", LIMIT, || {
            ensure!(process.exited()?.is_none(), "nfcapd ended: {}", process.output());
            Ok(fs::read_to_string("/proc/net/udp")?.contains(&bound))
        })?;
        Ok(Self { scratch, process, address })
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Ends it, and reads what it has stored.
    pub(crate) fn stop(mut self) -> Result<Collected> {
        // Datagrams that were sent are at least in its socket.
        let bound = format!(":{:04X} ", self.port());
        wait_until("nfcapd to read what was sent", LIMIT, || {
            let sockets = fs::read_to_string("/proc/net/udp")?;
            let mut sockets = sockets.lines().filter(|line| line.contains(&bound));
            // Number, local and remote address, state, bytes to send and to read.
            let is_read = |line: &str| {
                line.split_whitespace().nth(4).is_some_and(|queues| queues.ends_with(":00000000"))
            };
            Ok(sockets.all(is_read))
        })?;
        // It may still work on the last datagram.
        std::thread::sleep(Duration::from_millis(500));
        self.process.signal(Signal::TERM)?;
        self.process.wait(LIMIT)?;
        let nfdump = |args: &[&str]| -> Result<String> {
            let mut command = Command::new("nfdump");
            let (code, out, err) = run(command.args(args), self.scratch.dir(), LIMIT)?;
            ensure!(code == 0, "nfdump ended with {code}: {err}");
            Ok(out)
        };
        let mut all = Collected { flows: vec![], exporters: String::new(), names: String::new() };
        // At the full hour it begins another file.
        for file in fs::read_dir(self.scratch.path("flows"))? {
            let path = file?.path();
            let file = path.to_str().context("path")?;
            let flows = nfdump(&["-r", file, "-o", "json"])?;
            // Its output for an empty file is not JSON.
            if flows.contains("No matching flows") {
                continue;
            }
            let flows: Vec<Value> =
                serde_json::from_str(&flows).with_context(|| format!("nfdump: {flows}"))?;
            all.flows.extend(flows);
            all.names += &nfdump(&["-r", file, "-q", "-o", "fmt:%inam"])?;
            all.exporters += &nfdump(&["-E", file])?;
        }
        Ok(all)
    }
}

/// Sender, receiver, protocol and VLAN of packets.
type Key = (String, String, u64, u64);
/// Packets and bytes, by who sent them to whom.
type Totals = BTreeMap<Key, (u64, u64)>;

fn add(totals: &mut Totals, key: Key, packets: u64, bytes: u64) {
    let total = totals.entry(key).or_default();
    *total = (total.0 + packets, total.1 + bytes);
}

fn collected(flows: &[Value]) -> Result<Totals> {
    let mut totals = Totals::new();
    for flow in flows {
        let end = |side: &str| {
            let addr = [format!("{side}4_addr"), format!("{side}6_addr")];
            let addr = addr.iter().find_map(|name| flow[name].as_str()).unwrap_or_default();
            let port = flow[format!("{side}_port")].as_u64().unwrap_or(0);
            format!("{addr} {port}")
        };
        let key = (end("src"), end("dst"), number(flow, "proto")?, number(flow, "src_vlan")?);
        add(&mut totals, key, number(flow, "in_packets")?, number(flow, "in_bytes")?);
    }
    Ok(totals)
}

/// The same, as `pmdscope netstat --json` has it.
fn shown(document: &Value) -> Result<Totals> {
    let mut totals = Totals::new();
    for flow in document["flows"].as_array().context("flows")? {
        let end = |side: &str| {
            let addr = flow[side]["addr"].as_str().unwrap_or_default();
            format!("{addr} {}", flow[side]["port"].as_u64().unwrap_or(0))
        };
        let (local, remote) = (end("local"), end("remote"));
        let proto = number(flow, "proto_number")?;
        let vlan = flow["vlans"][0].as_u64().unwrap_or(0);
        for way in ["rx", "tx", "unknown"] {
            let senders = [("from_local", &local, &remote), ("from_remote", &remote, &local)];
            for (sender, from, to) in senders {
                let counts = &flow[way][sender];
                let (packets, bytes) = (number(counts, "packets")?, number(counts, "bytes")?);
                if packets > 0 {
                    let key = (from.clone(), to.clone(), proto, vlan);
                    add(&mut totals, key, packets, bytes);
                }
            }
        }
    }
    Ok(totals)
}

fn way(proto: u8, from: &str, to: &str, vlan: Option<u16>) -> Result<Way> {
    Ok(Way { proto, from: from.parse()?, to: to.parse()?, vlan })
}

/// Conversations of every kind, of different weights.
fn known_frames() -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for index in 0..50_u16 {
        let port = 1024 + index;
        let client = format!("10.1.{index}.7:{port}");
        let ways = [
            way(TCP, &client, "192.0.2.1:443", None)?,
            way(UDP, &client, "192.0.2.1:53", Some(100 + index))?,
            way(SCTP, &client, "192.0.2.1:3868", None)?,
            way(ICMP, &format!("10.1.{index}.7:0"), "192.0.2.1:0", None)?,
            way(UDP, &format!("[2001:db8::{port:x}]:{port}"), "[2001:db8::1]:4433", None)?,
        ];
        for (kind, way) in ways.into_iter().enumerate() {
            for number in 0..=u64::from(index % 7) + kind as u64 {
                all.push(frame(way, number, 0x18, 64 + 20 * usize::from(index)));
                if number % 3 == 0 && way.proto != ICMP {
                    all.push(frame(way.back(), number, 0x10, 90));
                }
            }
        }
    }
    Ok(all)
}

/// The conversations of these frames by nfdump and by netstat.
fn exported(scratch: &Scratch, frames: &[Vec<u8>]) -> Result<(Collected, Value)> {
    let path = scratch.path("known.pcap");
    frames::write_pcap(&path, frames)?;
    let collector = Collector::start(scratch)?;
    let path = path.to_str().context("path")?;
    let address = collector.address.to_string();
    let args = ["netstat", "-r", path, "--json", "--all", "--ipfix", &address];
    let document = pmdscope_json(scratch, &args, &[0])?;
    Ok((collector.stop()?, document))
}

fn file(scratch: &Scratch) -> Result<()> {
    let frames = known_frames()?;
    let packets = frames.len() as u64;
    let bytes = frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    let (stored, document) = exported(scratch, &frames)?;
    let (theirs, ours) = (collected(&stored.flows)?, shown(&document)?);
    ensure!(theirs == ours, "nfdump has {theirs:?}, netstat {ours:?}");
    ensure!(stored.flows.len() == ours.len(), "{} flows, not {}", stored.flows.len(), ours.len());
    let sums = ours.values().fold((0, 0), |sum, total| (sum.0 + total.0, sum.1 + total.1));
    ensure!(sums == (packets, bytes), "{sums:?} counted of {packets} packets, {bytes} bytes");
    let exporters = &stored.exporters;
    let exact = exporters.contains("packet interval: 1, packet space: 0");
    ensure!(exact && exporters.contains("Sequence failures: 0,"), "{exporters}");
    Ok(())
}

/// By the commands of docs/fleet.md.
fn column_store(scratch: &Scratch) -> Result<()> {
    let (stored, _) = exported(scratch, &known_frames()?)?;
    let sql = programs::root().join("dashboards/flows.sql");
    let load = r#"for file in flows/nfcapd.2*; do
        nfdump -r "$file" -o json | "$0" flows.duckdb -f "$1"
    done"#;
    let mut command = Command::new("sh");
    command.args(["-c", load]).arg(duckdb().context("no DuckDB")?).arg(sql);
    command.current_dir(scratch.dir());
    let (_, _, refused) = run(&mut command, scratch.dir(), LIMIT)?;
    // Named as nfdump does, without VLANs. DuckDB prints larger integers as text.
    let query = "SELECT router, source AS src4_addr, source_port AS src_port, destination AS dst4_addr, \
        destination_port AS dst_port, protocol AS proto, 0 AS src_vlan, \
        packets::INTEGER AS in_packets, bytes::INTEGER AS in_bytes FROM flows WHERE began <= ended";
    let mut command = Command::new(duckdb().context("no DuckDB")?);
    command.args(["flows.duckdb", "-json", "-c", query]).current_dir(scratch.dir());
    let (code, rows, errors) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "DuckDB ended with {code}: {errors}{refused}");
    let rows: Vec<Value> = serde_json::from_str(&rows).with_context(|| rows.clone())?;
    ensure!(rows.iter().all(|row| row["router"] == "127.0.0.1"), "{:?}", rows.first());
    let mut sent = Totals::new();
    for ((from, to, proto, _), (packets, bytes)) in collected(&stored.flows)? {
        add(&mut sent, (from, to, proto, 0), packets, bytes);
    }
    let theirs = collected(&rows)?;
    ensure!(theirs == sent, "DuckDB has {theirs:?}, nfdump {sent:?}; {refused}");
    Ok(())
}

/// From one packet in 64, nfdump and netstat estimate the same counts.
fn sampled(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let collector = Collector::start(scratch)?;
    let address = collector.address.to_string();
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["netstat", "-a", pair.app(), "--sample", "64", "--json", "--all"]);
    command.args(["--ipfix", &address, "--ipfix-active", "1s"]);
    let mut netstat = Process::spawn("netstat", &mut command, scratch.dir())?;
    wait_until("netstat to count", LIMIT, || {
        ensure!(netstat.exited()?.is_none(), "netstat ended: {}", netstat.output());
        Ok(is_captured(pair.app()))
    })?;
    pair.generate(scratch, &["--rate", "20000", "--count", "60000"])?.finish(LIMIT)?;
    let output = netstat.interrupt()?;
    let printed = output.lines().find(|line| line.starts_with('{')).context(output.clone())?;
    let report = document(&["netstat"], printed)?;
    let stored = collector.stop()?;
    let (theirs, ours) = (collected(&stored.flows)?, shown(&report)?);
    ensure!(!ours.is_empty() && theirs == ours, "nfdump has {theirs:?}, netstat {ours:?}");
    // Exported more than once, and multiplied by nfdump each time.
    ensure!(stored.flows.len() > ours.len(), "{} flows of {}", stored.flows.len(), ours.len());
    ensure!(ours.values().all(|(packets, _)| packets.is_multiple_of(64)), "{ours:?}");
    let exporters = stored.exporters;
    ensure!(exporters.contains("packet interval: 1, packet space: 63"), "{exporters}");
    let name = format!("{}:0", pair.app());
    ensure!(stored.names.lines().any(|line| line.trim() == name), "no {name} in {}", stored.names);
    Ok(())
}

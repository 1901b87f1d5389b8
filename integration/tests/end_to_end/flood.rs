//! A flood on an interface with an XDP filter: the exporter, `top`, `check` and a recording report the same
//! as the sender. No DPDK app is needed.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::exporter::{Exporter, Scrape};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::veth::Veth;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, Missing, missing_program, pmdscope, pmdscope_json, trial_unless};

/// Sends frames of three kinds until it is interrupted, and prints how many of each it has sent.
const SENDER: &str = r#"
import json, signal, socket, struct, sys, time

def frame(source, ihl=5):
    udp = struct.pack("!HHHH", 4000, 53, 8 + 64, 0) + bytes(64)
    def header(checksum):
        return struct.pack("!BBHHHBBH4s4s", 0x40 | ihl, 0, 20 + len(udp), 1, 0, 64, 17, checksum,
                           socket.inet_aton(source), socket.inet_aton("192.0.2.1"))
    total = sum(struct.unpack("!10H", header(0)))
    total = (total & 0xffff) + (total >> 16)
    ip = header(~(total + (total >> 16)) & 0xffff)
    return bytes.fromhex("ffffffffffff") + bytes.fromhex("020000000001") + b"\x08\x00" + ip + udp

kinds = [("denied", frame("198.51.100.7"), 90), ("malformed", frame("203.0.113.9", ihl=3), 30),
         ("passed", frame("192.0.2.77"), 30)]
sent = {name: 0 for name, _, _ in kinds}
going = True

def stop(*_):
    global going
    going = False

signal.signal(signal.SIGTERM, stop)
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((sys.argv[1], 0))
while going:
    for name, data, times in kinds:
        for _ in range(times):
            link.send(data)
            sent[name] += 1
    time.sleep(0.005)
print(json.dumps(sent), flush=True)
"#;

pub(crate) fn trials() -> Vec<Trial> {
    let missing = missing_program(&["python3", "ip"]).or_else(without_filter);
    vec![trial_unless("a_flood_is_told_by_all_tools_as_it_was_sent", missing, flood)]
}

/// Why no filter can be attached here.
fn without_filter() -> Option<Missing> {
    let tried = || -> Result<()> {
        let scratch = Scratch::new()?;
        let wire = Veth::new()?;
        pmdscope(&scratch, &["xdp", "attach", wire.near()], &[0]).map(drop)
    };
    let error = tried().err()?;
    Some(Missing::Machine(format!("cannot attach an XDP filter to a veth: {error:#}")))
}

/// An interface with a filter, and the sender that floods it.
pub(crate) struct Flood {
    wire: Veth,
    sender: Process,
}

impl Flood {
    pub(crate) fn start(scratch: &Scratch) -> Result<Self> {
        let wire = Veth::new()?;
        let attach = ["xdp", "attach", wire.near(), "--deny", "198.51.100.0/24"];
        pmdscope(scratch, &attach, &[0])?;
        let mut command = Command::new("python3");
        command.args(["-c", SENDER, wire.far()]);
        let sender = Process::spawn("sender", &mut command, scratch.dir())?;
        Ok(Self { wire, sender })
    }
}

/// A flood, and the programs that watch it.
struct Flooded {
    flood: Flood,
    exporter: Exporter,
    recorder: Process,
    recording: PathBuf,
}

impl Flooded {
    fn start(scratch: &Scratch) -> Result<Self> {
        let flood = Flood::start(scratch)?;
        let exporter = Exporter::start(scratch, &[])?;
        let recording = scratch.path("flood.jsonl.zst");
        let mut command = Command::new(programs::pmdscope()?);
        command.args(["record", "-q", "-i", "0.5", "-w"]).arg(&recording);
        let recorder = Process::spawn("recorder", &mut command, scratch.dir())?;
        Ok(Self { flood, exporter, recorder, recording })
    }

    /// The interface with the filter.
    fn near(&self) -> &str {
        self.flood.wire.near()
    }

    /// Ends the sender: how many frames of each kind it has sent.
    fn sent(&mut self) -> Result<BTreeMap<String, u64>> {
        self.flood.sender.signal(Signal::TERM)?;
        let status = self.flood.sender.wait(LIMIT)?;
        let told = self.flood.sender.output();
        ensure!(status.success(), "the sender ended with {status}: {told}");
        let line = told.lines().last().context("the sender said nothing")?;
        serde_json::from_str(line).with_context(|| told.clone())
    }

    /// Frames that found no room on the wire, as the kernel counts them.
    fn lost(&self) -> Result<u64> {
        let path = format!("/sys/class/net/{}/statistics/tx_dropped", self.flood.wire.far());
        Ok(fs::read_to_string(&path).context(path)?.trim().parse()?)
    }

    fn interface<'a>(&self, document: &'a Value) -> Result<&'a Value> {
        let interfaces = document["interfaces"].as_array();
        let interfaces = interfaces.with_context(|| format!("no interfaces: {document:#}"))?;
        let ours = |of: &&Value| of["name"] == self.near() || of["interface"] == self.near();
        interfaces.iter().find(ours).with_context(|| format!("not among them: {document:#}"))
    }

    /// The finding about the interface, in the JSON of `top` or `check`.
    fn finding<'a>(&self, document: &'a Value) -> Result<Option<&'a Value>> {
        let Ok(interface) = self.interface(document) else { return Ok(None) };
        let findings = interface["findings"].as_array().context("no findings")?;
        Ok(findings.iter().find(|finding| finding["lint"] == "flood"))
    }

    /// The finding names reasons and the source that sends most.
    fn is_told(&self, finding: &Value) -> Result<()> {
        let evidence = finding["evidence"].as_str().context("no evidence")?;
        for word in ["denied", "malformed", "198.51.100.7 ("] {
            ensure!(evidence.contains(word), "no {word:?} in {evidence}");
        }
        ensure!(finding["severity"] == "warning", "{finding}");
        ensure!(finding["subject"] == self.near(), "{finding}");
        ensure!(finding.get("app").is_none(), "{finding}");
        Ok(())
    }

    fn packets(&self, scrape: &Scrape, reason: &str) -> Result<u64> {
        let labels = [("interface", self.near()), ("reason", reason)];
        let value = scrape.value("dpdk_xdp_filter_packets_total", &labels);
        // Counters of a test are small.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        value.map(|value| value as u64).with_context(|| format!("no packets {reason}"))
    }

    /// All that was sent and found room arrived at the filter, and each frame has the verdict it deserves.
    fn agrees_with_sender(&mut self) -> Result<()> {
        let sent = self.sent()?;
        let total: u64 = sent.values().sum();
        let reasons =
            ["passed", "malformed", "not_ip", "fragment", "denied", "rate_limit", "syn_flood"];
        let mut counted_so_far = String::new();
        wait_until("all frames to be counted", LIMIT, || {
            let scrape = self.exporter.get("/metrics", &[])?.scrape()?;
            let of = |reason: &str| self.packets(&scrape, reason);
            let arrived = reasons.iter().map(|reason| of(reason)).sum::<Result<u64>>()?;
            let lost = self.lost()?;
            counted_so_far = format!("sent {sent:?}, arrived {arrived}, lost {lost}");
            let labels = [("interface", self.near())];
            let received = scrape.value("dpdk_interface_receive_packets_total", &labels);
            for (kind, sent) in &sent {
                let counted = of(kind)?;
                ensure!(counted <= *sent, "{kind}: counted {counted}, {counted_so_far}");
                ensure!(
                    counted + lost >= *sent || arrived + lost < total,
                    "{kind}: {counted_so_far}"
                );
            }
            // A filter in the driver judges what the kernel counts as received.
            Ok(arrived + lost == total && received == Some(arrived as f64))
        })
        .with_context(|| counted_so_far)
        .map(drop)
    }
}

fn flood(scratch: &Scratch) -> Result<()> {
    let mut flooded = Flooded::start(scratch)?;
    let flood = &flooded;
    let mut last = Value::Null;
    wait_until("check to find the flood", LIMIT, || {
        last = pmdscope_json(scratch, &["check", "--json", "--for", "1"], &[0, 1])?;
        Ok(flood.finding(&last)?.is_some())
    })
    .with_context(|| format!("{last:#}"))?;
    ensure!(last["ok"] == false, "{last:#}");
    flood.is_told(flood.finding(&last)?.context("no finding")?)?;
    pmdscope(scratch, &["check", "-q", "--for", "1"], &[1])?;

    // Four of five frames are to be dropped. The counters are read one after the other, and in between this
    // process may wait for a CPU.
    wait_until("top to show the flood", LIMIT, || {
        last = pmdscope_json(scratch, &["top", "--once", "--json"], &[0])?;
        let rates = &flood.interface(&last)?["rates"];
        let rate = |name: &str| rates[name].as_f64();
        let parts = (rate("rx_pps"), rate("kernel_pps"), rate("filtered_pps"));
        let (Some(rx), Some(kernel), Some(dropped)) = parts else { return Ok(false) };
        let adds_up = (kernel + dropped - rx).abs() < 0.001 * rx;
        Ok(flood.finding(&last)?.is_some() && (dropped / rx - 0.8).abs() < 0.1 && adds_up)
    })
    .with_context(|| format!("{last:#}"))?;
    let text = pmdscope(scratch, &["top", "--once"], &[0])?;
    ensure!(text.contains("Interfaces\n") && text.contains(flood.near()), "{text}");

    let labels = [("interface", flood.near()), ("reason", "flood")];
    wait_until("the exporter to find the flood", LIMIT, || {
        sleep(Duration::from_millis(100));
        let scrape = flood.exporter.get("/metrics", &[])?.scrape()?;
        Ok(scrape.value("dpdk_interface_unhealthy_reason", &labels) == Some(1.0))
    })?;

    flooded.agrees_with_sender()?;
    flooded.recorder.signal(Signal::INT)?;
    let status = flooded.recorder.wait(LIMIT)?;
    ensure!(status.success(), "record ended with {status}: {}", flooded.recorder.output());
    let recording = flooded.recording.to_string_lossy().into_owned();
    let replayed = pmdscope_json(scratch, &["check", "--json", "--replay", &recording], &[1])?;
    let found = flooded.finding(&replayed)?.with_context(|| format!("{replayed:#}"))?;
    flooded.is_told(found)?;
    ensure!(found["since"].is_string(), "{found:#}");
    let end = pmdscope_json(scratch, &["top", "--once", "--json", "--replay", &recording], &[0])?;
    ensure!(flooded.interface(&end)?["filter"]["verdicts"].is_array(), "{end:#}");

    pmdscope(scratch, &["xdp", "detach", flooded.near()], &[0])?;
    let scrape = flooded.exporter.get("/metrics", &[])?.scrape()?;
    let labels = [("interface", flooded.near())];
    ensure!(scrape.all("dpdk_xdp_filter_packets_total", &labels).next().is_none());
    Ok(())
}

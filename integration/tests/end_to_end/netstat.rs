//! Conversations that `pmdscope netstat` reports, compared with those that tshark finds in the same
//! packets.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::frames::{
    Feed, ICMP, SCTP, TCP, UDP, Way, frame, in_vxlan, pcap_header, record_header, write_pcap,
};
use pmdscope_integration::machine::peak_bytes;
use pmdscope_integration::pair::{Pair, PairOptions, reflector};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use rustix::process::Signal;
use serde_json::Value;

use crate::pdump::{Fed, await_received};
use crate::support::{
    LIMIT, Needs, await_packets, document, is_captured, number, packets_received, pmdscope_json,
    tee_sessions, trial,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("conversations_of_an_app_are_those_of_tshark", Needs::Wireshark, linked),
        trial("conversations_of_a_stock_app_are_those_of_tshark", Needs::Pdump, stock),
        trial("conversations_of_a_file_are_those_of_tshark", Needs::Wireshark, file),
        trial("sampled_conversations_are_within_their_error", Needs::Wireshark, sampled),
        trial("ten_million_conversations_take_bounded_memory", Needs::Apps, flood),
        trial("a_killed_netstat_leaves_the_app_alone", Needs::Apps, killed),
    ]
}

/// A conversation as both sides name it: protocol and ends, the smaller one first.
type Key = (u8, SocketAddr, SocketAddr);
/// Packets and bytes from the smaller end, and from the other.
type Ways = [(u64, u64); 2];
type Table = BTreeMap<Key, Ways>;

fn key(proto: u8, from: SocketAddr, to: SocketAddr) -> (Key, usize) {
    if from <= to { ((proto, from, to), 0) } else { ((proto, to, from), 1) }
}

/// The conversations of the packets below.
fn ways() -> Vec<Way> {
    let v4 = |host: u8, port: u16| SocketAddr::from(([198, 18, 1, host], port));
    let v6 = |host: u16, port| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, host], port));
    let mut ways = Vec::new();
    for number in 0..40 {
        let host = 10 + u8::try_from(number % 5).unwrap_or(0);
        for (proto, port) in [(TCP, 443), (UDP, 53), (SCTP, 3868)] {
            let vlan = (number % 4 == 1).then_some(100 + number);
            let (from, to) = if number % 3 == 0 {
                (v6(number, 20_000 + number), v6(1, port))
            } else {
                (v4(host, 20_000 + number), v4(1, port))
            };
            ways.push(Way { proto, from, to, vlan });
        }
    }
    for host in 0..4 {
        let (from, to) = ([198, 18, 9, 10 + host], [198, 18, 9, 1]);
        ways.push(Way { proto: ICMP, from: (from, 0).into(), to: (to, 0).into(), vlan: None });
    }
    ways
}

/// Every conversation `per_way` times there and half as often back, all mixed up. Below ten thousand
/// bytes each, as tshark rounds what is more.
fn known(per_way: usize) -> Vec<Vec<u8>> {
    let (mut frames, ways) = (Vec::new(), ways());
    for round in 0..per_way {
        for (at, way) in ways.iter().enumerate() {
            let size = 64 + (at * 37 + round * 101) % 400;
            // SYN, SYN ACK, then ACKs.
            let flags = if round == 0 { 0x02 } else { 0x10 };
            frames.push(frame(*way, round as u64, flags, size));
            if round % 2 == 0 {
                let flags = if round == 0 { 0x12 } else { 0x10 };
                frames.push(frame(way.back(), round as u64, flags, size + 8));
            }
        }
        let (host, peer) = ([198, 18, 7, 1], [198, 18, 7, 2]);
        let inner =
            Way { proto: TCP, from: (host, 7000).into(), to: (peer, 80).into(), vlan: None };
        let outer = Way {
            proto: UDP,
            from: ([198, 18, 8, 1], 49_000).into(),
            to: ([198, 18, 8, 2], 4789).into(),
            vlan: None,
        };
        frames.push(in_vxlan(&frame(inner, round as u64, 0x10, 100), 42, outer));
    }
    frames
}

/// The conversations of a file by tshark; those of tunnels' hosts left out, as they are by default.
fn by_tshark(file: &Path) -> Result<Table> {
    let mut table = Table::new();
    let dir = tempfile::tempdir()?;
    for (proto, name) in [(TCP, "tcp"), (UDP, "udp"), (SCTP, "sctp"), (ICMP, "ip")] {
        let mut command = Command::new("tshark");
        command.args(["-n", "-q", "-z", &format!("conv,{name}"), "-r"]).arg(file);
        let (code, out, err) = run(&mut command, dir.path(), LIMIT)?;
        ensure!(code == 0, "tshark ended with {code}: {err}");
        for line in out.lines().filter(|line| line.contains("<->")) {
            let [from, to] = ends(line, proto != ICMP).with_context(|| line.to_owned())?;
            // Lines of `ip` have no ports: between other addresses there is more than one protocol.
            let is_counted = proto != ICMP || from.ip().to_string().starts_with("198.18.9.");
            if !is_counted || [from, to].iter().any(|end| end.port() == VXLAN) {
                continue;
            }
            let ways = counts(line).with_context(|| format!("tshark said {line:?}"))?;
            let (key, first) = key(proto, from, to);
            let known = table.insert(key, if first == 0 { ways } else { [ways[1], ways[0]] });
            ensure!(known.is_none(), "tshark has {key:?} twice");
        }
    }
    Ok(table)
}

fn ends(line: &str, with_port: bool) -> Option<[SocketAddr; 2]> {
    let mut words = line.split_whitespace();
    let end = |text: &str| {
        let (ip, port) = if with_port { text.rsplit_once(':')? } else { (text, "0") };
        Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
    };
    Some([end(words.next()?)?, end(words.nth(1)?)?])
}

/// Packets and bytes from the first end and from the second; `None` where tshark has rounded.
fn counts(line: &str) -> Option<Ways> {
    let words: Vec<_> = line.split_whitespace().collect();
    let count = |at: usize| {
        let bytes = (*words.get(at + 2)? == "bytes").then_some(words.get(at + 1)?)?;
        Some((words.get(at)?.parse().ok()?, bytes.parse().ok()?))
    };
    // Those from the second end come first.
    Some([count(6)?, count(3)?])
}

/// The conversations of netstat's report.
fn by_netstat(report: &Value) -> Result<Table> {
    let mut table = Table::new();
    for flow in report["flows"].as_array().context("flows")? {
        let end = |name: &str| {
            let ip = flow[name]["addr"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok());
            let port = flow[name]["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            ip.zip(port).map(SocketAddr::from).with_context(|| format!("{name} of {flow}"))
        };
        let proto = u8::try_from(number(flow, "proto_number")?)?;
        let (key, first) = key(proto, end("local")?, end("remote")?);
        let mut ways = [(0, 0); 2];
        for direction in ["rx", "tx", "unknown"] {
            for (way, sender) in ["from_local", "from_remote"].iter().enumerate() {
                let counts = &flow[direction][sender];
                let sum = &mut ways[way ^ first];
                sum.0 += number(counts, "packets")?;
                sum.1 += number(counts, "bytes")?;
            }
        }
        let known = table.insert(key, ways);
        ensure!(known.is_none(), "netstat has {key:?} twice");
    }
    Ok(table)
}

fn same(tshark: &Table, netstat: &Table) -> Result<()> {
    for (key, ways) in tshark {
        let found = netstat.get(key);
        ensure!(found == Some(ways), "{key:?}: tshark has {ways:?}, netstat {found:?}");
    }
    let more = netstat.keys().find(|key| !tshark.contains_key(key));
    ensure!(more.is_none(), "only netstat has {more:?}");
    ensure!(tshark.len() > 100, "only {} conversations", tshark.len());
    Ok(())
}

/// No packet was lost or left out.
fn complete(report: &Value, frames: usize) -> Result<()> {
    ensure!(number(report, "lost")? == 0, "packets were lost: {}", report["losses"]);
    ensure!(number(&report["total"], "packets")? == frames as u64, "{}", report["total"]);
    ensure!(number(report, "looked_at")? == frames as u64, "{}", report["looked_at"]);
    Ok(())
}

/// An app with libpmdscope that receives what it is fed.
struct Reflecting {
    // The app waits for packets in its poll loop, and ends after these have.
    feed: Feed,
    reflector: Process,
    app: String,
}

impl Reflecting {
    fn start(scratch: &Scratch) -> Result<Self> {
        let feed = Feed::new(scratch.path("feed.pcap"))?;
        let device = format!("net_pcap0,rx_pcap={},tx_pcap=/dev/null", feed.path().display());
        let (app, reflector) = reflector(scratch, &device)?;
        let mut reflecting = Self { feed, reflector, app };
        // Until it has polled, the library does not know of the lcore, and has no ring for it.
        reflecting.feed.play(&known(2)[..FIRST], GENTLY)?;
        await_packets(&reflecting.app, 0)?;
        Ok(reflecting)
    }

    /// Packets received.
    fn received(&self) -> Result<u64> {
        packets_received(&self.app)
    }

    /// Hands out frames, and waits until all are received.
    fn play_to_end(&mut self, frames: &[Vec<u8>], per_second: u64) -> Result<()> {
        self.feed.play(frames, per_second)?;
        self.feed.end();
        let all = (FIRST + frames.len()) as u64;
        wait_until("the app to receive all", LIMIT, || Ok(self.received()? == all))?;
        Ok(())
    }
}

/// Packets before netstat starts.
const FIRST: usize = 256;

fn linked(scratch: &Scratch) -> Result<()> {
    let frames = known(12);
    let mut app = Reflecting::start(scratch)?;
    let mut netstat = netstat(scratch, &app.app, &["--sample", "1"])?;
    netstat.await_armed(|| Ok(is_captured(&app.app)))?;
    app.play_to_end(&frames, GENTLY)?;
    let report = netstat.stop()?;
    app.reflector.interrupt()?;
    compare(scratch, &frames, &report)
}

fn stock(scratch: &Scratch) -> Result<()> {
    let frames = known(12);
    let mut fed = Fed::start(scratch)?;
    let mut netstat = netstat(scratch, fed.testpmd.app(), &["--sample", "1"])?;
    netstat.await_armed(|| Ok(fed.testpmd.hooks()? > 0))?;
    // The helper reports that it is ready a moment after the hooks are in place, and loses nothing
    // between.
    fed.feed.play(&frames, GENTLY)?;
    fed.feed.end();
    await_received(&fed.testpmd, frames.len() as u64)?;
    let report = netstat.stop()?;
    compare(scratch, &frames, &report)
}

fn compare(scratch: &Scratch, frames: &[Vec<u8>], report: &Value) -> Result<()> {
    complete(report, frames.len())?;
    let file = scratch.path("known.pcap");
    write_pcap(&file, frames)?;
    same(&by_tshark(&file)?, &by_netstat(report)?)
}

fn file(scratch: &Scratch) -> Result<()> {
    let frames = known(12);
    let file = scratch.path("known.pcap");
    write_pcap(&file, &frames)?;
    let path = file.to_str().context("path")?;
    let report = pmdscope_json(scratch, &["netstat", "-r", path, "--json", "--all"], &[0])?;
    compare(scratch, &frames, &report)
}

/// A running netstat that prints one document at its end.
struct Netstat {
    process: Process,
    out: std::path::PathBuf,
}

impl Netstat {
    fn await_armed(&mut self, is_armed: impl Fn() -> Result<bool>) -> Result<()> {
        wait_until("netstat to be armed", LIMIT, || {
            if let Some(status) = self.process.exited()? {
                bail!("netstat ended with {status}: {}", self.process.output());
            }
            is_armed()
        })?;
        Ok(())
    }

    fn stop(&mut self) -> Result<Value> {
        self.process.interrupt()?;
        let text = std::fs::read_to_string(&self.out)?;
        let log = self.process.output();
        document(&["netstat"], &text).context(log)
    }
}

fn netstat(scratch: &Scratch, app: &str, args: &[&str]) -> Result<Netstat> {
    let out = scratch.path("netstat.json");
    let mut command = Command::new("sh");
    command.args(["-c", "out=$1; shift; exec \"$@\" >\"$out\"", "sh"]).arg(&out);
    command.arg(programs::pmdscope()?);
    command.args(["netstat", "-a", app, "--json", "--all", "--for", "60s", "-Q", "in"]).args(args);
    Ok(Netstat { process: Process::spawn("netstat", &mut command, scratch.dir())?, out })
}

/// The port of VXLAN: tunnels count for what is in them.
const VXLAN: u16 = 4789;
/// Packets per second that netstat does not lose even on a busy machine.
const GENTLY: u64 = 5_000;
const SAMPLE: u64 = 16;

/// One in sixteen: sums and nearly all big conversations are off by at most their reported error.
fn sampled(scratch: &Scratch) -> Result<()> {
    let ways = ways();
    let big = &ways[..40];
    let mut frames = Vec::new();
    let mut truth = BTreeMap::<Key, u64>::new();
    for number in 0..160_000_usize {
        // Not in a regular order, which a sampler could follow.
        let pick = number.wrapping_mul(2_654_435_761) >> 7;
        let way = big[pick % big.len()];
        frames.push(frame(way, number as u64, 0x10, 64));
        *truth.entry(key(way.proto, way.from, way.to).0).or_default() += 1;
    }
    let mut app = Reflecting::start(scratch)?;
    let mut netstat = netstat(scratch, &app.app, &["--sample", &SAMPLE.to_string()])?;
    netstat.await_armed(|| Ok(is_captured(&app.app)))?;
    app.play_to_end(&frames, GENTLY * 8)?;
    let report = netstat.stop()?;
    app.reflector.interrupt()?;

    ensure!(number(&report, "lost")? == 0, "packets were lost: {}", report["losses"]);
    ensure!(number(&report, "sample")? == SAMPLE, "{}", report["sample"]);
    let looked_at = number(&report, "looked_at")?;
    ensure!(looked_at < frames.len() as u64 / SAMPLE * 2, "{looked_at} packets were looked at");
    within(&report["total"], frames.len() as u64, 4.0)?;
    let flows = report["flows"].as_array().context("flows")?;
    let mut right = 0;
    for ((proto, from, to), packets) in &truth {
        let is_it = |flow: &&Value| {
            let end = |name: &str| endpoint_of(&flow[name]);
            let ends = [end("local"), end("remote")];
            flow["proto_number"] == *proto
                && ends.contains(&Some(*from))
                && ends.contains(&Some(*to))
        };
        let flow = flows.iter().find(is_it).with_context(|| format!("no {from} {to}"))?;
        within(flow, *packets, 6.0)?;
        right += usize::from(within(flow, *packets, 2.0).is_ok());
    }
    // Of normal errors, 95 % are within two standard ones: 32 of 40 or fewer come once in 50,000 runs.
    ensure!(right > 32, "only {right} of {} within two standard errors", truth.len());
    Ok(())
}

fn endpoint_of(end: &Value) -> Option<SocketAddr> {
    let port = u16::try_from(end["port"].as_u64()?).ok()?;
    Some((end["addr"].as_str()?.parse::<IpAddr>().ok()?, port).into())
}

fn within(counted: &Value, truth: u64, errors: f64) -> Result<()> {
    let packets = number(counted, "packets")?;
    let error = counted["standard_error"].as_f64().context("standard_error")?;
    ensure!(error > 0.0, "a sampled count without error: {counted}");
    let off = packets.abs_diff(truth) as f64 / error;
    ensure!(off < errors, "{packets} of {truth} is {off:.1} standard errors off: {counted}");
    Ok(())
}

const FLOOD: u64 = 10_000_000;
const HEAVY: u64 = 20;
/// A packet of these in so many.
const HEAVY_EVERY: u64 = 50;
/// Memory that netstat may take for 65,536 conversations, and for itself, bytes.
const MOST_MEMORY: u64 = 64 << 20;
const SLOW: Duration = Duration::from_secs(300);

/// Ten million forged senders, and twenty that matter.
fn flood(scratch: &Scratch) -> Result<()> {
    let out = std::fs::File::create(scratch.path("flood.json"))?;
    let mut netstat = Command::new(programs::pmdscope()?)
        .args(["netstat", "-r", "-", "--json", "--sort", "packets", "-N", "20"])
        .stdin(Stdio::piped())
        .stdout(out)
        .stderr(Stdio::inherit())
        .spawn()?;
    let peak = write_flood(&mut netstat);
    drop(netstat.stdin.take());
    let fed = std::time::Instant::now();
    let status = loop {
        if let Some(status) = netstat.try_wait()? {
            break status;
        }
        if fed.elapsed() > SLOW || peak.is_err() {
            netstat.kill()?;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let peak = peak?;
    ensure!(status.success(), "netstat ended with {status}");
    ensure!(peak < MOST_MEMORY, "netstat took {peak} bytes");

    let report = document(&["netstat"], &std::fs::read_to_string(scratch.path("flood.json"))?)?;
    ensure!(number(&report["total"], "packets")? == FLOOD, "{}", report["total"]);
    ensure!(number(&report, "conversations")? <= number(&report, "capacity")?, "too many kept");
    let flows = report["flows"].as_array().context("flows")?;
    ensure!(flows.len() as u64 == HEAVY, "{} flows", flows.len());
    for flow in flows {
        ensure!(
            flow["remote"]["port"] == 4000 || flow["local"]["port"] == 4000,
            "not a heavy one: {flow}"
        );
        let truth = FLOOD / HEAVY_EVERY / HEAVY;
        let packets = number(flow, "packets")?;
        // Packets before it was noticed are not counted for it.
        ensure!(packets <= truth && packets > truth * 99 / 100, "{packets} of {truth}: {flow}");
    }
    let other = &report["other"];
    ensure!(number(other, "evictions")? > FLOOD * 9 / 10, "{other}");
    eprintln!("{FLOOD} conversations: {} MiB", peak >> 20);
    Ok(())
}

/// Returns the most memory that netstat has taken.
fn write_flood(netstat: &mut std::process::Child) -> Result<u64> {
    let pid = netstat.id();
    let mut pipe =
        std::io::BufWriter::with_capacity(1 << 16, netstat.stdin.as_mut().context("stdin")?);
    pipe.write_all(&pcap_header())?;
    let way = Way {
        proto: UDP,
        from: ([0, 0, 0, 0], 0).into(),
        to: ([198, 18, 0, 1], 4000).into(),
        vlan: None,
    };
    let heavy = frame(way, 0, 0, 60);
    let forged = frame(Way { to: ([198, 18, 0, 1], 53).into(), ..way }, 0, 0, 60);
    for number in 0..FLOOD {
        let is_heavy = number % HEAVY_EVERY == 0;
        let mut bytes = if is_heavy { heavy.clone() } else { forged.clone() };
        let sender = if is_heavy { number / HEAVY_EVERY % HEAVY } else { 0x0b00_0000 + number };
        bytes[26..30].copy_from_slice(&u32::try_from(sender)?.to_be_bytes());
        bytes[34..36].copy_from_slice(&1024_u16.to_be_bytes());
        pipe.write_all(&record_header(number, bytes.len()))?;
        pipe.write_all(&bytes)?;
    }
    pipe.flush()?;
    // Only what is in the pipe is left.
    peak_bytes(pid)
}

/// The app is not affected when netstat is killed or stopped.
fn killed(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "50000"])?;
    await_packets(pair.app(), 0)?;
    for signal in [Signal::KILL, Signal::STOP, Signal::KILL] {
        let mut netstat = netstat(scratch, pair.app(), &[])?;
        netstat.await_armed(|| Ok(is_captured(pair.app())))?;
        netstat.process.signal(signal)?;
        if signal == Signal::STOP {
            std::thread::sleep(Duration::from_millis(500));
            netstat.process.signal(Signal::KILL)?;
        }
        netstat.process.wait(LIMIT)?;
        wait_until("the session to end", LIMIT, || Ok(tee_sessions(pair.app())? == 0))?;
    }
    let sent = generator.stop()?;
    // On this link, only packets that the app did not take are lost.
    ensure!(
        number(&sent, "sent")? == number(&sent, "received")? + number(&sent, "lost")?,
        "{sent}"
    );
    ensure!(number(&sent, "lost")? * 100 < number(&sent, "sent")?, "{sent}");
    pair.reflector.interrupt()?;
    Ok(())
}

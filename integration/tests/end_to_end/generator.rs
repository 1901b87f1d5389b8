//! What the generator puts into packets: tshark reads what it wrote, the kernel answers it, a file is
//! replayed.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::frames::{UDP, Way, frame, write_pcap};
use pmdscope_integration::pair::{Pair, PairOptions, eal};
use pmdscope_integration::process::run;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::wire::{Captured, captured};
use serde_json::Value;

use crate::reflector::{Host, needs_host};
use crate::support::{
    LIMIT, Missing, Needs, missing_ipv6, number, start_capture, trial, trial_unless,
};

/// Packets of a run; a multiple of the round of IMIX and of the flows of the tests.
const PACKETS: usize = 1200;
/// Packets with something wrong, as Wireshark sees it.
const WRONG: &str = "ip.checksum.status == 0 || udp.checksum.status != 1 || _ws.malformed";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("packets_have_the_sizes_and_addresses_asked_for", Needs::Wireshark, imix),
        trial("packets_of_ipv6_have_their_addresses", Needs::Wireshark, ipv6),
        trial("a_file_is_replayed_as_it_is", Needs::Wireshark, replay),
        trial("options_come_from_a_file_too", Needs::Wireshark, config),
        trial("tx_and_rx_queues_are_set_apart", Needs::Wireshark, queues),
        trial("corrupted_packets_are_counted", Needs::Apps, corruption),
        trial("bytes_of_foreign_packets_are_not_sent", Needs::Wireshark, foreign),
        trial("packets_that_never_left_do_not_return", Needs::Apps, unwritten),
        trial("packets_sent_again_are_as_new", Needs::Wireshark, again),
        trial_unless("the_kernel_tells_its_mac_address", needs_host(), resolution),
        trial_unless("the_kernel_tells_its_mac_address_by_ipv6", without_ipv6(), discovery),
    ]
}

/// Runs the generator on a device: exit status, what it printed, and its summary.
fn generate(scratch: &Scratch, device: &str, args: &[&str]) -> Result<(i32, String, Value)> {
    generate_on(scratch, "0@0", device, args)
}

/// The same with these lcores.
fn generate_on(
    scratch: &Scratch,
    lcores: &str,
    device: &str,
    args: &[&str],
) -> Result<(i32, String, Value)> {
    let json = scratch.path("generator.json");
    let mut command = Command::new(programs::generator()?);
    eal(&mut command, lcores, &scratch.prefix("generator"), Memory::Ordinary);
    command.args(["--vdev", device, "--", "--json"]).arg(&json).args(args);
    let (code, out, err) = run(&mut command, scratch.dir(), LIMIT)?;
    let summary = fs::read_to_string(&json).unwrap_or_default();
    let _ = fs::remove_file(&json);
    Ok((code, out + &err, serde_json::from_str(&summary).unwrap_or_default()))
}

/// What it sends, as a capture file. Nothing comes back, which is an error of its own.
fn written(scratch: &Scratch, name: &str, args: &[&str]) -> Result<(PathBuf, Value)> {
    let file = scratch.path(name);
    let device = format!("net_pcap0,tx_pcap={}", file.display());
    let (code, said, summary) = generate(scratch, &device, args)?;
    let wanted = i32::from(!args.contains(&"--replay"));
    ensure!(code == wanted, "exit status {code}:\n{said}");
    Ok((file, summary))
}

/// What tshark prints of a file, with all its checks of checksums. Payloads are data: by chance they look
/// like some protocol.
fn tshark(file: &Path, args: &[&str], scratch: &Scratch) -> Result<String> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    tshark.args(["-d", "udp.port==1-65535,data"]).args(args).arg("-r").arg(file);
    let (code, out, err) = run(&mut tshark, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "tshark failed ({code}): {err}");
    Ok(out)
}

/// Packets of a file that match.
fn matching(file: &Path, filter: &str, scratch: &Scratch) -> Result<usize> {
    Ok(tshark(file, &["-Y", filter], scratch)?.lines().count())
}

/// How often each combination of these fields occurs.
fn counts(file: &Path, fields: &[&str], scratch: &Scratch) -> Result<BTreeMap<Vec<String>, usize>> {
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let args: Vec<_> = ["-T", "fields"].into_iter().chain(fields).collect();
    let mut counts = BTreeMap::new();
    for row in tshark(file, &args, scratch)?.lines() {
        *counts.entry(row.split('\t').map(str::to_owned).collect()).or_default() += 1;
    }
    Ok(counts)
}

fn check_counts(
    file: &Path,
    fields: &[&str],
    wanted: &[(&[&str], usize)],
    scratch: &Scratch,
) -> Result<()> {
    let seen = counts(file, fields, scratch)?;
    let wanted: BTreeMap<_, _> = wanted
        .iter()
        .map(|(row, count)| (row.iter().map(|&text| text.to_owned()).collect(), *count))
        .collect();
    ensure!(seen == wanted, "{fields:?}: {seen:?}, not {wanted:?}");
    Ok(())
}

/// IPv4: IMIX, ranges, a VLAN. Every combination of the ranges has its share.
fn imix(scratch: &Scratch) -> Result<()> {
    let count = PACKETS.to_string();
    let ranges = [
        "--src-ip",
        "10.1.2.0/30",
        "--dst-ip",
        "10.9.9.254-10.9.10.1",
        "--dst-port",
        "40053-40055",
    ];
    let mut args = vec!["--count", &count, "--size", "imix", "--fill", "--vlan", "42:5"];
    args.extend(ranges);
    let (file, summary) = written(scratch, "imix.pcap", &args)?;

    ensure!(number(&summary, "sent")? == PACKETS as u64, "{summary:#}");
    ensure!(summary["corrupted"].is_null(), "nothing was verified: {summary:#}");
    let wrong = matching(&file, WRONG, scratch)?;
    ensure!(wrong == 0, "tshark finds {wrong} bad checksums and malformed packets");
    // With a tag, the probe header needs 64 bytes.
    let sizes: [(&[&str], usize); 3] = [(&["64"], 700), (&["590"], 400), (&["1514"], 100)];
    check_counts(&file, &["frame.len"], &sizes, scratch)?;
    check_counts(&file, &["vlan.id", "vlan.priority"], &[(&["42", "5"], PACKETS)], scratch)?;
    let flows = counts(&file, &["ip.src", "ip.dst", "udp.srcport", "udp.dstport"], scratch)?;
    ensure!(flows.len() == 4 * 4 * 3, "{flows:?}");
    ensure!(flows.values().all(|&packets| packets == PACKETS / 48), "{flows:?}");
    let last = ["10.1.2.3", "10.9.10.1", "49152", "40055"].map(str::to_owned).to_vec();
    ensure!(flows.contains_key(&last), "{flows:?}");
    Ok(())
}

fn ipv6(scratch: &Scratch) -> Result<()> {
    let count = PACKETS.to_string();
    let args = [
        "--ipv6",
        "--count",
        &count,
        "--size",
        "80:2,1000:1",
        "--src-ip",
        "fd00::fffe-fd00::1:1",
        "--dst-ip",
        "fd00:1::/127",
        "--src-port",
        "1000-1002",
        "--dst-port",
        "9",
    ];
    let (file, summary) = written(scratch, "ipv6.pcap", &args)?;

    ensure!(number(&summary, "sent")? == PACKETS as u64, "{summary:#}");
    let wrong = matching(&file, "udp.checksum.status != 1 || _ws.malformed", scratch)?;
    ensure!(wrong == 0, "tshark finds {wrong} bad checksums and malformed packets");
    check_counts(&file, &["frame.len"], &[(&["80"], 800), (&["1000"], 400)], scratch)?;
    let flows = counts(&file, &["ipv6.src", "ipv6.dst", "udp.srcport", "udp.dstport"], scratch)?;
    ensure!(flows.len() == 4 * 2 * 3, "{flows:?}");
    ensure!(flows.values().all(|&packets| packets == PACKETS / 24), "{flows:?}");
    let carried = ["fd00::1:1", "fd00:1::1", "1002", "9"].map(str::to_owned).to_vec();
    ensure!(flows.contains_key(&carried), "{flows:?}");
    Ok(())
}

/// Byte for byte, in order, as often as asked, no earlier than in the file.
fn replay(scratch: &Scratch) -> Result<()> {
    let args = ["--count", "300", "--rate", "1000", "--size", "60-1514", "--fill", "--flows", "7"];
    let (source, _) = written(scratch, "source.pcap", &args)?;
    let file = source.to_str().context("a path that is no text")?;
    let whole = captured(&source)?;

    let (copy, summary) = written(scratch, "copy.pcap", &["--replay", file])?;
    ensure!(number(&summary, "sent")? == 300 && summary["replay"] == file, "{summary:#}");
    for unknown in ["lost", "duplicates", "reordered", "foreign", "latency_ns"] {
        ensure!(summary[unknown].is_null(), "{unknown} cannot be known: {summary:#}");
    }
    let copied = captured(&copy)?;
    let same = copied.iter().map(|packet| &packet.data).eq(whole.iter().map(|packet| &packet.data));
    ensure!(same, "the replayed packets differ from the file");
    let span = |packets: &[_]| -> Result<u64> {
        let ends: (&pmdscope_integration::wire::Captured, _) =
            (packets.first().context("no packets")?, packets.last().context("no packets")?);
        Ok(ends.1.ns - ends.0.ns)
    };
    // A stall after the first packet makes the rest come closer together.
    let (then, now) = (span(&whole)?, span(&copied)?);
    ensure!(now > then / 100, "{now} ns in place of {then}: sent without regard to time");

    let args = ["--replay", file, "--rate", "20000", "--loop", "3"];
    let (copy, summary) = written(scratch, "copies.pcap", &args)?;
    ensure!(number(&summary, "sent")? == 900, "{summary:#}");
    let copied = captured(&copy)?;
    let all = std::iter::repeat_n(&whole, 3).flatten().map(|packet| &packet.data);
    ensure!(copied.iter().map(|packet| &packet.data).eq(all), "the loops differ from the file");

    let (code, said, _) = generate(scratch, "net_null0", &["--replay", file, "--vlan", "5"])?;
    ensure!(code == 2 && said.contains("leave out --vlan"), "exit status {code}: {said}");
    Ok(())
}

/// A file sets options, the command line overrides them, and mistakes are named by line.
fn config(scratch: &Scratch) -> Result<()> {
    let file = scratch.path("generator.conf");
    fs::write(&file, "# small\ncount = 400\nsize = 100   # bytes\nflows = 4\nfill = yes\n")?;
    let path = file.to_str().context("a path that is no text")?;
    let (out, summary) = written(scratch, "config.pcap", &["--size", "200", "--config", path])?;
    ensure!(number(&summary, "sent")? == 400, "{summary:#}");
    let ports: Vec<_> = (49152..49156).map(|port: u32| port.to_string()).collect();
    let wanted: Vec<[&str; 2]> = ports.iter().map(|port| ["200", port.as_str()]).collect();
    let wanted: Vec<(&[&str], usize)> = wanted.iter().map(|row| (&row[..], 100)).collect();
    check_counts(&out, &["frame.len", "udp.srcport"], &wanted, scratch)?;

    fs::write(&file, "count = 400\n\nsizes = 100\n")?;
    let (code, said, _) = generate(scratch, "net_null0", &["--config", path])?;
    ensure!(code == 2 && said.contains(&format!("{path}:3: unknown option 'sizes'")), "{said}");
    Ok(())
}

/// The reflector damages packets and counts them; the generator finds as many, and no others.
fn corruption(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { corruption: Some("1/10".to_owned()), ..PairOptions::default() };
    let mut pair = Pair::start(scratch, options)?;
    let args = ["--rate", "20000", "--count", "5000", "--size", "90-1200", "--verify"];
    let sent = pair.generate(scratch, &args)?.finish(LIMIT)?;
    pair.reflector.interrupt()?;
    let text = fs::read_to_string(scratch.path("reflector.json"))?;
    let reflected: Value = serde_json::from_str(&text)?;

    let corrupted = number(&reflected, "corrupted")?;
    let dropped = number(&reflected, "dropped")?;
    ensure!(corrupted > 0, "the reflector damaged nothing: {reflected:#}");
    // A damaged packet may be among those that the reflector could not send.
    let found = number(&sent, "corrupted")?;
    ensure!(found <= corrupted && found + dropped >= corrupted, "{sent:#} {reflected:#}");
    ensure!(number(&sent, "foreign")? == 0, "{sent:#}");
    ensure!(number(&sent, "lost")? == found + dropped, "{sent:#} {reflected:#}");
    Ok(())
}

/// Of a packet that is sent only the headers are written: a byte left of another packet would make the
/// checksum wrong.
fn foreign(scratch: &Scratch) -> Result<()> {
    let way = Way {
        proto: UDP,
        from: SocketAddr::from(([192, 0, 2, 1], 1)),
        to: SocketAddr::from(([192, 0, 2, 2], 2)),
        vlan: None,
    };
    let mut other = frame(way, 0, 0, 1400);
    other[42..].fill(0xa5);
    let received = scratch.path("foreign.pcap");
    write_pcap(&received, &[other])?;
    let file = scratch.path("sent.pcap");
    let (from, to) = (received.display(), file.display());
    let device = format!("net_pcap0,rx_pcap={from},infinite_rx=1,tx_pcap={to}");
    // Each mbuf is used several times.
    let args = ["--count", "20000", "--size", "1000", "--mbufs", "4096"];
    let (code, said, summary) = generate(scratch, &device, &args)?;

    ensure!(code == 1, "nothing came back, but the exit status is {code}: {said}");
    ensure!(number(&summary, "foreign")? > 0, "{summary:#}");
    ensure!(number(&summary, "sent")? == 20000, "{summary:#}");
    let wrong = matching(&file, WRONG, scratch)?;
    ensure!(wrong == 0, "tshark finds {wrong} bad checksums and malformed packets");
    Ok(())
}

/// `net_null` drops what is sent, and receives mbufs that it does not write. A packet that was sent before in
/// the same mbuf would be counted as returned.
fn unwritten(scratch: &Scratch) -> Result<()> {
    // Of the smallest size, mbufs that come back are sent again.
    for size in ["60", "128"] {
        let args = ["--count", "20000", "--size", size];
        let (code, said, summary) = generate(scratch, "net_null0", &args)?;
        ensure!(code == 1, "nothing came back, but the exit status is {code}: {said}");
        ensure!(number(&summary, "sent")? == 20000, "{summary:#}");
        ensure!(number(&summary, "received")? == 0, "{summary:#}");
        ensure!(number(&summary, "foreign")? > 0, "{summary:#}");
    }
    Ok(())
}

/// Packets without payload are sent in the mbufs of those that came back: each has its own number and right
/// checksums, and no mbuf is lost.
fn again(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let file = scratch.path("again.pcapng");
    let args = ["-Q", "in", "--ring-size", "64M"];
    let mut capture = start_capture(scratch, pair.app(), &file, &args)?;
    let args = ["--rate", "100k", "--count", "50000", "--size", "60", "--flows", "3"];
    let sent = pair.generate(scratch, &args)?.finish(LIMIT)?;
    let report = capture.interrupt()?;
    pair.reflector.interrupt()?;

    ensure!(number(&sent, "received")? > 25000, "most did not come back: {sent:#}");
    ensure!(number(&sent, "foreign")? == 0 && number(&sent, "duplicates")? == 0, "{sent:#}");
    ensure!(number(&sent["pool"], "in_use_end")? == 0, "{sent:#}");
    ensure!(report.contains("50000 packets captured"), "{report}");
    let numbers: Vec<_> = captured(&file)?.iter().map(Captured::sequence).collect::<Result<_>>()?;
    ensure!(numbers.into_iter().eq(0..50000), "numbers are missing or out of order");
    let wrong = matching(&file, WRONG, scratch)?;
    ensure!(wrong == 0, "tshark finds {wrong} bad checksums and malformed packets");
    Ok(())
}

/// ARP is answered by the kernel, whose counters show what arrived under its MAC address.
fn resolution(scratch: &Scratch) -> Result<()> {
    let host = Host::new(scratch)?;
    host.ip(scratch, &["addr", "add", "198.19.0.1/15", "dev", host.far()])?;
    let file = scratch.path("kernel.pcap");
    let mut capture = host.capture(scratch, &file)?;
    let device = format!("net_af_packet0,iface={}", host.near());
    let args = ["--dst-mac", "auto", "--count", "100", "--rate", "1000"];
    let (_, said, summary) = generate(scratch, &device, &args)?;
    ensure!(number(&summary, "sent")? == 100, "{said}");
    let args = ["--dst-mac", "auto", "--gateway", "198.19.0.77", "--resolve-timeout", "0.5"];
    let (code, refused, _) = generate(scratch, &device, &args)?;
    capture.interrupt()?;

    let mac = host.mac(scratch)?;
    let to_kernel = format!("eth.dst == {mac} && udp.dstport == 7");
    let arrived = matching(&file, &to_kernel, scratch)?;
    ensure!(arrived == 100, "{arrived} of 100 packets went to {mac}: {said}");
    ensure!(code == 1 && refused.contains("198.19.0.77 does not answer"), "{code}: {refused}");
    Ok(())
}

fn without_ipv6() -> Option<Missing> {
    needs_host().or_else(missing_ipv6)
}

/// The same by neighbour discovery, which the kernel answers for an address of its own only.
fn discovery(scratch: &Scratch) -> Result<()> {
    let host = Host::new(scratch)?;
    host.ip(scratch, &["addr", "add", "2001:2::2/64", "dev", host.far(), "nodad"])?;
    let file = scratch.path("kernel.pcap");
    let mut capture = host.capture(scratch, &file)?;
    let device = format!("net_af_packet0,iface={}", host.near());
    let args = ["--ipv6", "--dst-mac", "auto"];
    let (_, said, summary) =
        generate(scratch, &device, &[&args[..], &["--count", "100", "--rate", "1000"]].concat())?;
    ensure!(number(&summary, "sent")? == 100, "{said}");
    let gateway = ["--gateway", "2001:2::77", "--resolve-timeout", "0.5"];
    let (code, refused, _) = generate(scratch, &device, &[&args[..], &gateway].concat())?;
    capture.interrupt()?;

    let mac = host.mac(scratch)?;
    let asked = "icmpv6.type == 135 && icmpv6.nd.ns.target_address == 2001:2::2";
    ensure!(matching(&file, asked, scratch)? > 0, "no solicitation: {said}");
    let to_kernel = format!("eth.dst == {mac} && ipv6.dst == 2001:2::2 && udp.dstport == 7");
    let arrived = matching(&file, &to_kernel, scratch)?;
    ensure!(arrived == 100, "{arrived} of 100 packets went to {mac}: {said}");
    ensure!(code == 1 && refused.contains("2001:2::77 does not answer"), "{code}: {refused}");
    Ok(())
}

/// Three TX queues and one RX queue on one lcore, then the reverse on two, of which one only receives.
/// What is received is a file of other packets.
fn queues(scratch: &Scratch) -> Result<()> {
    const FOREIGN: u64 = 40;
    let (others, _) = written(scratch, "others.pcap", &["--count", "40"])?;
    let count = PACKETS.to_string();
    for (lcores, tx, rx) in [("0@0", 3, 1), ("0@0,1@1", 1, 3)] {
        let sent: Vec<_> = (0..tx).map(|queue| scratch.path(&format!("{queue}.pcap"))).collect();
        let files = sent.iter().map(|file| format!(",tx_pcap={}", file.display()));
        let received = (0..rx).map(|_| format!(",rx_pcap={}", others.display()));
        let device = files.chain(received).fold("net_pcap0".to_owned(), |all, one| all + &one);
        let (tx_text, rx_text) = (tx.to_string(), rx.to_string());
        let args = ["--tx-queues", &tx_text, "--rx-queues", &rx_text, "--count", &count];
        let (code, said, summary) = generate_on(scratch, lcores, &device, &args)?;
        ensure!(code == 1 && said.contains("came back"), "exit status {code}:\n{said}");
        for file in &sent {
            ensure!(captured(file)?.len() == PACKETS / tx, "{}: {summary}", file.display());
        }
        ensure!(number(&summary, "foreign")? == FOREIGN * rx, "{rx} RX queues: {summary}");
        ensure!(number(&summary, "tx_queues")? == tx as u64, "{summary}");
        ensure!(number(&summary, "rx_queues")? == rx, "{summary}");
    }
    Ok(())
}

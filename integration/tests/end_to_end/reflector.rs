//! The reflector as a host: the kernel pings it, and tshark checks its answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::frames::write_pcap;
use pmdscope_integration::oracle::tshark_fields;
use pmdscope_integration::pair::{Link, Pair, PairOptions, eal, generate};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::telemetry;
use pmdscope_integration::veth::Veth;
use serde_json::Value;

use crate::support::{
    LIMIT, Missing, Needs, missing_ipv6, missing_program, pmdscope_json, trial, trial_unless,
};

const HOST: &str = "10.77.0.2";
const HOST6: &str = "fd77::2";
const REFLECTOR: &str = "10.77.0.1";
const REFLECTOR6: &str = "fd77::1";
/// Packets with something wrong, as Wireshark sees it.
const WRONG: &str = "ip.checksum.status == 0 || icmp.checksum.status == 0 \
                     || icmpv6.checksum.status == 0 || _ws.malformed";

pub(crate) fn trials() -> Vec<Trial> {
    let pings = || needs_host().or_else(|| missing_program(&["ping"]));
    vec![
        trial_unless("the_kernel_pings_the_reflector", pings(), ping),
        trial_unless(
            "the_kernel_pings_the_reflector_by_ipv6",
            pings().or_else(missing_ipv6),
            ping6,
        ),
        trial("the_reflector_answers_what_a_host_answers", Needs::Wireshark, answers),
        trial("without_addresses_everything_is_reflected", Needs::Wireshark, everything),
        trial("work_on_packets_is_a_bottleneck", Needs::Apps, work),
        trial("refused_packets_are_offered_again", Needs::Apps, retry),
        trial("packets_of_each_queue_of_the_reflector_add_up", Needs::Apps, queues),
    ]
}

/// Why there cannot be a [`Host`] here.
pub(crate) fn needs_host() -> Option<Missing> {
    let tools = ["nsenter", "unshare", "tcpdump", "tshark"];
    Needs::Wireshark.missing().or_else(|| missing_program(&tools)).or_else(without_namespaces)
}

fn without_namespaces() -> Option<Missing> {
    let scratch = Scratch::new().ok()?;
    let error = Host::new(&scratch).err()?;
    Some(Missing::Machine(format!("cannot put a veth into a namespace: {error:#}")))
}

/// The kernel in a network namespace of its own, behind a wire.
pub(crate) struct Host {
    wire: Veth,
    /// Keeps the namespace.
    holder: Process,
}

impl Host {
    pub(crate) fn new(scratch: &Scratch) -> Result<Self> {
        let wire = Veth::new()?;
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]);
        let holder = Process::spawn("namespace", &mut command, scratch.dir())?;
        let own = fs::read_link("/proc/self/ns/net")?;
        let theirs = format!("/proc/{}/ns/net", holder.pid());
        wait_until("a network namespace", LIMIT, || {
            Ok(fs::read_link(&theirs).is_ok_and(|theirs| theirs != own))
        })?;
        let host = Self { wire, holder };
        let (far, pid) = (host.wire.far(), host.holder.pid().to_string());
        let mut moving = Command::new("ip");
        demand(moving.args(["link", "set", far, "netns", &pid]), scratch)?;
        host.ip(scratch, &["link", "set", far, "up"])?;
        Ok(host)
    }

    /// The end of the wire for an app.
    pub(crate) fn near(&self) -> &str {
        self.wire.near()
    }

    /// The kernel's own end.
    pub(crate) fn far(&self) -> &str {
        self.wire.far()
    }

    /// The MAC address of the kernel's end.
    pub(crate) fn mac(&self, scratch: &Scratch) -> Result<String> {
        let told = demand(self.command("ip").args(["-j", "link", "show", self.far()]), scratch)?;
        let links: Value = serde_json::from_str(&told)?;
        Ok(links[0]["address"].as_str().context("a link without an address")?.to_owned())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.pid())).arg(program);
        command
    }

    pub(crate) fn ip(&self, scratch: &Scratch, args: &[&str]) -> Result<()> {
        demand(self.command("ip").args(args), scratch).map(drop)
    }

    /// Captures on the kernel's side into a file.
    pub(crate) fn capture(&self, scratch: &Scratch, file: &Path) -> Result<Process> {
        let mut command = self.command("tcpdump");
        command.args(["-i", self.wire.far(), "--immediate-mode", "-U", "-Z", "root", "-w"]);
        let capture = Process::spawn("tcpdump", command.arg(file), scratch.dir())?;
        wait_until("tcpdump", LIMIT, || Ok(capture.output().contains("listening on")))?;
        Ok(capture)
    }

    /// Pings until so many replies are there. A late reply is not lost, so ping has a deadline: without
    /// one it would wait for the last reply for no longer than the others took.
    fn ping(&self, scratch: &Scratch, count: u32, args: &[&str]) -> Result<()> {
        let mut command = self.command("ping");
        command.args(["-i", "0.2", "-w", "40", "-c", &count.to_string()]).args(args);
        let out = demand(&mut command, scratch)?;
        let received = out.split(" received, ").next().and_then(|text| text.rsplit(' ').next());
        let received: u32 = received.context("ping")?.parse().context(out.clone())?;
        // A stalled ping may have asked once more before it saw them all.
        ensure!(received >= count, "{out}");
        Ok(())
    }
}

fn demand(command: &mut Command, scratch: &Scratch) -> Result<String> {
    let (code, out, err) = run(command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "{command:?} ended with {code}:\n{out}{err}");
    Ok(out)
}

/// A reflector with a summary.
struct Reflector {
    process: Process,
    app: String,
    json: PathBuf,
}

impl Reflector {
    fn start(scratch: &Scratch, device: &str, args: &[&str]) -> Result<Self> {
        let app = scratch.prefix("reflector");
        let json = scratch.path("reflector.json");
        let mut command = Command::new(programs::reflector()?);
        eal(&mut command, "1@1", &app, Memory::Ordinary);
        command.args(["--vdev", device, "--", "--mbufs", "8191", "--json"]).arg(&json).args(args);
        let mut process = Process::spawn("reflector", &mut command, scratch.dir())?;
        let ready = format!("/var/run/dpdk/{app}/pmdscope.sock");
        wait_until("the reflector", LIMIT, || {
            let ended = process.exited()?;
            ensure!(ended.is_none(), "it ended ({ended:?}):\n{}", process.output());
            Ok(fs::exists(&ready)?)
        })?;
        Ok(Self { process, app, json })
    }

    fn received(&self) -> Result<u64> {
        telemetry::number(&self.app, "/ethdev/stats,0", "ipackets")
    }

    /// Ends it and returns its summary.
    fn finish(mut self) -> Result<Value> {
        self.process.interrupt()?;
        Ok(serde_json::from_str(&fs::read_to_string(&self.json)?)?)
    }
}

fn ping(scratch: &Scratch) -> Result<()> {
    let host = Host::new(scratch)?;
    host.ip(scratch, &["addr", "add", &format!("{HOST}/24"), "dev", host.wire.far()])?;
    let device = format!("net_af_packet0,iface={}", host.wire.near());
    let reflector = Reflector::start(scratch, &device, &["--ip", REFLECTOR])?;
    let file = scratch.path("kernel.pcap");
    let mut capture = host.capture(scratch, &file)?;
    host.ping(scratch, 5, &[REFLECTOR])?;
    host.ping(scratch, 2, &["-s", "1400", "-t", "1", REFLECTOR])?;
    let summary = finish_capture(&mut capture, reflector)?;

    ensure!(summary["answered"]["echo"].as_u64() >= Some(7), "{summary:#}");
    ensure!(summary["answered"]["arp"].as_u64() >= Some(1), "{summary:#}");
    ensure!(summary["pool"]["in_use_end"] == 0, "{summary:#}");
    is_right(&file, scratch)?;
    let replies = count(&file, "icmp.type == 0 && icmp.resp_to", scratch)?;
    ensure!(summary["answered"]["echo"] == replies, "{replies} replies: {summary:#}");
    Ok(())
}

fn ping6(scratch: &Scratch) -> Result<()> {
    let host = Host::new(scratch)?;
    let address = format!("{HOST6}/64");
    host.ip(scratch, &["addr", "add", &address, "dev", host.wire.far(), "nodad"])?;
    let device = format!("net_af_packet0,iface={}", host.wire.near());
    let reflector = Reflector::start(scratch, &device, &["--ip", REFLECTOR6])?;
    let file = scratch.path("kernel.pcap");
    let mut capture = host.capture(scratch, &file)?;
    host.ping(scratch, 5, &["-6", REFLECTOR6])?;
    // In three fragments each.
    host.ping(scratch, 2, &["-6", "-s", "4000", REFLECTOR6])?;
    let summary = finish_capture(&mut capture, reflector)?;

    ensure!(summary["answered"]["neighbour"].as_u64() >= Some(1), "{summary:#}");
    is_right(&file, scratch)?;
    let replies = count(&file, "icmpv6.type == 129 && icmpv6.resp_to", scratch)?;
    let later = count(&file, &format!("ipv6.src == {REFLECTOR6} && !icmpv6"), scratch)?;
    ensure!(replies >= 7 && later >= 2 * 2, "{replies} replies, {later} fragments");
    ensure!(summary["answered"]["echo"] == replies + later, "{replies}, {later}: {summary:#}");
    Ok(())
}

fn finish_capture(capture: &mut Process, reflector: Reflector) -> Result<Value> {
    let summary = reflector.finish()?;
    capture.interrupt()?;
    Ok(summary)
}

/// Packets of a file that match, by tshark with all its checks of checksums.
fn count(file: &Path, filter: &str, scratch: &Scratch) -> Result<usize> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-o", "ip.check_checksum:TRUE", "-Y", filter, "-r"]).arg(file);
    Ok(demand(&mut tshark, scratch)?.lines().count())
}

fn is_right(file: &Path, scratch: &Scratch) -> Result<()> {
    let wrong = count(file, WRONG, scratch)?;
    ensure!(wrong == 0, "tshark finds {wrong} bad checksums and malformed packets");
    Ok(())
}

/// An ICMP echo request to the reflector, behind VLAN tags. `fragment` is that field of the IP header.
fn echo_request(tags: &[[u8; 4]], payload: &[u8], fragment: u16) -> Vec<u8> {
    let mut icmp = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    icmp.extend(payload);
    let checksum = internet_checksum(&icmp);
    icmp[2..4].copy_from_slice(&checksum);
    ip_packet(tags, &icmp, fragment)
}

fn ip_packet(tags: &[[u8; 4]], payload: &[u8], fragment: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(tags.concat());
    let mut ip = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 9, 1, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1];
    ip[2..4].copy_from_slice(&u16::try_from(20 + payload.len()).unwrap_or(0).to_be_bytes());
    ip[6..8].copy_from_slice(&fragment.to_be_bytes());
    let checksum = internet_checksum(&ip);
    ip[10..12].copy_from_slice(&checksum);
    frame.extend([0x08, 0x00]);
    frame.extend(ip);
    frame.extend(payload);
    frame
}

fn internet_checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [_, _, high, low] = (!sum).to_be_bytes();
    [high, low]
}

/// What a reflector with these arguments sends back for these frames, and its summary.
fn reflected(scratch: &Scratch, frames: &[Vec<u8>], args: &[&str]) -> Result<(PathBuf, Value)> {
    let (requests, answers) = (scratch.path("requests.pcap"), scratch.path("answers.pcap"));
    write_pcap(&requests, frames)?;
    let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", requests.display(), answers.display());
    let reflector = Reflector::start(scratch, &device, args)?;
    let wanted = u64::try_from(frames.len())?;
    wait_until("all packets of the file", LIMIT, || Ok(reflector.received()? == wanted))?;
    let summary = reflector.finish()?;
    Ok((answers, summary))
}

/// VLAN tags, fragments, packets cut short, and packets for others.
fn answers(scratch: &Scratch) -> Result<()> {
    const VLAN: [u8; 4] = [0x81, 0, 0, 5];
    const SERVICE: [u8; 4] = [0x88, 0xa8, 0, 9];
    let payload: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let whole = echo_request(&[], &payload, 0);
    let ip = &whole[14 + 20..];
    let mut frames = vec![
        echo_request(&[], &payload[..56], 0),
        echo_request(&[VLAN], &payload[..57], 0),
        echo_request(&[SERVICE, VLAN], &payload[..58], 0),
        // One request of 3000 bytes.
        ip_packet(&[], &ip[..1480], 0x2000),
        ip_packet(&[], &ip[1480..2960], 0x2000 + 185),
        ip_packet(&[], &ip[2960..], 370),
    ];
    let answered = frames.len();
    let mut for_another = echo_request(&[], &[], 0);
    for_another[14 + 19] = 3;
    for_another[14 + 10..14 + 12].fill(0);
    let checksum = internet_checksum(&for_another[14..34]);
    for_another[14 + 10..14 + 12].copy_from_slice(&checksum);
    frames.push(for_another);
    let (file, summary) = reflected(scratch, &frames, &["--ip", REFLECTOR])?;

    is_right(&scratch.path("requests.pcap"), scratch).context("the requests themselves")?;
    ensure!(summary["answered"]["echo"] == answered, "{summary:#}");
    ensure!(summary["ignored"] == 1, "{summary:#}");
    is_right(&file, scratch)?;
    let fields =
        ["ieee8021ad.id", "vlan.id", "ip.ttl", "icmp.type", "icmp.checksum.status", "ip.src"];
    let told = tshark_fields(&file, &fields)?;
    ensure!(told.len() == answered, "{told:?}");
    for (row, [outer, inner]) in told.iter().zip([["", ""], ["", "5"], ["9", "5"]]) {
        ensure!(row == &[outer, inner, "64", "0", "1", REFLECTOR], "{row:?}");
    }
    // The reply is put together again, and its checksum holds over all of it.
    ensure!(told[5][3..5] == ["0", "1"], "{told:?}");

    let cut: Vec<_> = (14..98).map(|bytes| frames[0][..bytes].to_vec()).collect();
    let (_, summary) = reflected(scratch, &cut, &["--ip", REFLECTOR])?;
    ensure!(summary["answered"]["echo"] == 0 && summary["pool"]["in_use_end"] == 0, "{summary:#}");
    Ok(())
}

/// Without `--ip` an echo request comes back as it is, except for its addresses.
fn everything(scratch: &Scratch) -> Result<()> {
    let frames = vec![echo_request(&[], b"abc", 0), echo_request(&[[0x81, 0, 0, 5]], b"abcd", 0)];
    let (file, summary) = reflected(scratch, &frames, &[])?;
    ensure!(summary["sent"] == 2 && summary["ignored"] == 0, "{summary:#}");
    is_right(&file, scratch)?;
    let told = tshark_fields(&file, &["ip.ttl", "icmp.type", "ip.src"])?;
    ensure!(told.len() == 2 && told.iter().all(|row| row == &["9", "8", REFLECTOR]), "{told:?}");
    Ok(())
}

/// One queue of four gets half of the packets: reflector, driver and netstat agree on it.
fn queues(scratch: &Scratch) -> Result<()> {
    const QUEUES: u16 = 4;
    const HOT: u64 = 1;
    let options = PairOptions { link: Link::Virtio, queues: QUEUES, ..PairOptions::default() };
    let mut pair = Pair::start(scratch, options)?;
    let args = ["--rate", "40k", "--hot-queue", "1:3", "--quiet"];
    let generator = pair.generate(scratch, &args)?;
    wait_until("traffic", LIMIT, || {
        Ok(telemetry::number(pair.app(), "/ethdev/stats,0", "ipackets")? > 10_000)
    })?;
    let args = ["netstat", "--queues", "--json", "-a", pair.app(), "--for", "1"];
    let netstat = pmdscope_json(scratch, &args, &[0])?;
    let sent = generator.stop()?["sent"].as_u64().context("sent")?;
    let driver = telemetry::ask(pair.app(), "/ethdev/stats,0")?;
    let printed = pair.reflector.interrupt()?;
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(scratch.path("reflector.json"))?)?;

    let rows = summary["rx_queues"].as_array().context("rx_queues")?;
    let rx: Vec<_> = rows.iter().filter_map(|row| row["rx"].as_u64()).collect();
    let by_driver: Vec<_> =
        driver["q_ipackets"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    ensure!(by_driver.starts_with(&rx) && rx.len() == usize::from(QUEUES), "{rx:?}: {driver}");
    let sum = rx.iter().sum::<u64>();
    ensure!(summary["received"] == sum && (10_000..=sent).contains(&sum), "{sent}: {summary:#}");
    ensure!(summary["rx_balance"][0]["rx"] == sum, "{summary:#}");
    let most = *rx.iter().max().context("queues")?;
    ensure!(rx[usize::try_from(HOT)?] == most, "{rx:?}");
    let balance = summary["rx_balance"][0]["max_over_mean"].as_f64().context("balance")?;
    let expected = (most * u64::from(QUEUES)) as f64 / sum as f64;
    ensure!((balance - expected).abs() < 0.01 && balance > 1.2, "{balance}, not {expected}");
    // That of the JSON is rounded already: rounded again, 1.9947 would become 2.00.
    ensure!(printed.contains(&format!("max/mean {expected:.2} over 4 queues")), "{printed}");
    let loads = netstat["queues"].as_array().context("queues of netstat")?;
    let share = |load: &&Value| load["share"].as_f64().unwrap_or_default();
    let hottest = loads.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
    ensure!(hottest.is_some_and(|load| load["queue"] == HOT), "{netstat:#}");
    Ok(())
}

/// Cycles for each packet limit the rate, on the lcore that is named and on no other.
fn work(scratch: &Scratch) -> Result<()> {
    let free = summary_of(scratch, "free", &["--work", "100000@7"], &[])?;
    let busy = summary_of(scratch, "busy", &["--work", "100000@1"], &[])?;
    let rate = |summary: &Value| {
        let number = |key: &str| summary[key].as_f64().context("summary");
        Ok::<_, anyhow::Error>(number("received")? / number("duration_s")?)
    };
    let (free, busy) = (rate(&free)?, rate(&busy)?);
    // 100,000 cycles are more than 10 us on any CPU.
    ensure!(busy > 0.0 && busy < 100_000.0 && free > 2.0 * busy, "{busy} and {free} pps");
    Ok(())
}

/// TX that takes nothing for 5 ms is no loss if the packets are offered for longer than that.
fn retry(scratch: &Scratch) -> Result<()> {
    let dropped = |name: &str, retry: &[&str]| {
        let args = [&["--inject-refusal", "5000/50"][..], retry].concat();
        let summary = summary_of(scratch, name, &args, &["--rate", "20k"])?;
        let received = summary["received"].as_u64().context("summary")?;
        ensure!(received > 1000, "{summary}");
        summary["dropped"].as_u64().context("summary")
    };
    ensure!(dropped("long", &["--retry", "1000000"])? == 0);
    ensure!(dropped("unlimited", &[])? == 0);
    let few = dropped("short", &["--retry", "100"])?;
    ensure!(few > 0, "nothing was dropped after 100 us");
    Ok(())
}

/// Summary of a reflector that gets all that a generator can send, or what the arguments of the
/// generator set.
fn summary_of(
    scratch: &Scratch,
    name: &str,
    args: &[&str],
    generator_args: &[&str],
) -> Result<Value> {
    let socket = scratch.path(&format!("{name}.sock"));
    let server = format!("net_memif0,role=server,socket={},socket-abstract=no", socket.display());
    let reflector = Reflector::start(scratch, &server, args)?;
    let own = ["--duration", "1.5", "--quiet", "--keep-link", "60"];
    let own: Vec<_> = own.iter().chain(generator_args).map(|&arg| arg.to_owned()).collect();
    let (prefix, memory) = (scratch.prefix("generator"), Memory::Ordinary);
    let mut generator = generate(scratch, Link::Memif, &socket, &prefix, memory, &own)?;
    generator.wait_sent(LIMIT)?;
    // The driver of memif crashes a reflector that polls while its peer leaves.
    let summary = reflector.finish()?;
    generator.stop()?;
    Ok(summary)
}

//! Captures from stock apps by `pmdscope-pdump`: their reports are correct, and apps that cannot be
//! captured from are refused with a reason.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::baseline::Baseline;
use pmdscope_integration::frames::{Feed, UDP, Way, frame};
use pmdscope_integration::openvswitch::Switch;
use pmdscope_integration::oracle::{capinfos, tshark_fields};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::site::started;
use pmdscope_integration::testpmd::{Setup, Testpmd};
use pmdscope_integration::wire::captured;
use rustix::process::Signal;

use crate::support::{LIMIT, Needs, document, pmdscope, pmdscope_json, told, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_stock_app_is_captured_from", Needs::Pdump, captured_as_received),
        trial("a_stock_app_takes_filter_count_snaplen", Needs::Pdump, options),
        trial("a_stock_app_is_sampled_when_the_capture_falls_behind", Needs::Pdump, sampled),
        trial("a_stock_app_is_as_it_was_after_a_capture", Needs::Pdump, as_it_was),
        trial("a_stock_app_without_free_memory_is_captured_from", Needs::Pdump, without_memory),
        trial("two_captures_of_a_stock_app_do_not_mix", Needs::Pdump, two_at_once),
        trial("apps_that_cannot_be_attached_to_are_refused", Needs::Pdump, refusals),
        trial("an_app_without_rte_pdump_is_refused", Needs::Pdump, without_pdump),
        trial("what_a_killed_dumpcap_left_is_cleared", Needs::Pdump, killed_dumpcap),
        trial("open_vswitch_is_seen_and_refused", Needs::OpenVswitch, open_vswitch),
    ]
}

/// A stock app that receives what it is fed, and nothing before.
pub(crate) struct Fed {
    // The app waits for packets in its poll loop, and ends after these have.
    pub(crate) feed: Feed,
    pub(crate) testpmd: Testpmd,
}

impl Fed {
    pub(crate) fn start(scratch: &Scratch) -> Result<Self> {
        let feed = Feed::new(scratch.path("feed.pcap"))?;
        let device = format!("net_pcap0,rx_pcap={},tx_pcap=/dev/null", feed.path().display());
        let setup = Setup { devices: &[&device], ..Setup::RECEIVING };
        Ok(Self { testpmd: Testpmd::start(scratch, setup)?, feed })
    }
}

/// Starts a capture from a stock app and waits until its callbacks are in place.
pub(crate) fn attach(
    scratch: &Scratch,
    testpmd: &Testpmd,
    file: &Path,
    args: &[&str],
) -> Result<Process> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-i", &format!("{}:any", testpmd.app()), "-w"]).arg(file).args(args);
    let name = file.file_name().context("capture file without a name")?.to_string_lossy();
    let mut process = Process::spawn(&name, &mut command, scratch.dir())?;
    await_hooks(&mut process, testpmd)?;
    Ok(process)
}

/// Waits until what was started has hooked itself into an app.
pub(crate) fn await_hooks(process: &mut Process, testpmd: &Testpmd) -> Result<()> {
    wait_until("the capture to be attached", LIMIT, || {
        if let Some(status) = process.exited()? {
            anyhow::bail!("it ended with {status}: {}", process.output());
        }
        Ok(testpmd.hooks()? > 0 && process.output().contains("listening on"))
    })?;
    Ok(())
}

/// Packets per second that are fed: mbufs for copies last for 0.15 s, in which the helper gets a CPU anywhere.
const FAST: u64 = 10_000;

/// Numbered frames of several lengths and flows.
pub(crate) fn numbered(count: u64) -> Vec<Vec<u8>> {
    let numbered = |number: u64| {
        let way = Way {
            proto: UDP,
            from: ([198, 18, 0, 1], 1000 + (number % 10) as u16).into(),
            to: ([198, 18, 0, 2], 53).into(),
            vlan: None,
        };
        frame(way, number, 0, 60 + (number * 7 % 1400) as usize)
    };
    (0..count).map(numbered).collect()
}

fn captured_as_received(scratch: &Scratch) -> Result<()> {
    let mut fed = Fed::start(scratch)?;
    let file = scratch.path("stock.pcapng");
    let mut capture = attach(scratch, &fed.testpmd, &file, &["-Q", "in", "--ring-size", "16M"])?;
    let frames = numbered(20_000);
    let begin = now_ns()?;
    fed.feed.play(&frames, FAST)?;
    fed.feed.end();
    await_captured(&capture, frames.len() as u64)?;
    let end = now_ns()?;
    let report = capture.interrupt()?;

    ensure!(report.contains("via pdump"), "{report}");
    ensure!(told(&report, "packets captured")? == frames.len() as u64, "{report}");
    ensure!(told(&report, "packets dropped")? == 0, "{report}");
    let packets = captured(&file)?;
    ensure!(packets.len() == frames.len(), "{} packets in the file; {report}", packets.len());
    for (number, (packet, frame)) in packets.iter().zip(&frames).enumerate() {
        ensure!(packet.data == *frame, "packet {number} is {:02x?}, not {frame:02x?}", packet.data);
        let ns = packet.ns;
        ensure!((begin..=end).contains(&ns), "packet {number} at {ns}, not in {begin}..={end}");
    }
    ensure!(packets.is_sorted_by_key(|packet| packet.ns), "times go back");
    let apart = packets.chunk_by(|a, b| a.ns == b.ns).count();
    ensure!(apart > frames.len() / 100, "only {apart} different times");
    let report = capinfos(&file)?;
    ensure!(report.contains("nanoseconds (9)"), "{report}");
    Ok(())
}

/// A capture that does not read its ring for a while has fewer packets kept from then on, at random, and
/// the numbers of all of them add up.
fn sampled(scratch: &Scratch) -> Result<()> {
    const PER_SECOND: u64 = 4000;
    let mut fed = Fed::start(scratch)?;
    let file = scratch.path("sampled.pcapng");
    let args = ["-Q", "in", "--ring-size", "64K", "--sample", "auto", "--json"];
    let mut capture = attach(scratch, &fed.testpmd, &file, &args)?;
    let frames = numbered(5 * PER_SECOND);
    let (begin, rest) = frames.split_at(frames.len() / 5 * 2);
    std::thread::scope(|scope| {
        let pause = scope.spawn(|| -> Result<()> {
            std::thread::sleep(Duration::from_millis(1300));
            capture.signal(Signal::STOP)?;
            std::thread::sleep(Duration::from_millis(400));
            capture.signal(Signal::CONT)
        });
        fed.feed.play(begin, PER_SECOND)?;
        pause.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))?
    })?;
    fed.feed.play(rest, PER_SECOND)?;
    fed.feed.end();
    await_received(&fed.testpmd, frames.len() as u64)?;
    let report = capture.interrupt()?;

    let printed = report.lines().find(|line| line.starts_with('{')).context("no JSON")?;
    let counts = document(&["capture", "-w", "FILE", "--json"], printed)?;
    let count = |name: &str| counts[name].as_u64().context("no count").context(name.to_owned());
    let (captured, lost) = (count("captured")?, count("dropped")? + count("unwritten")?);
    let left_out = count("sampled_out")?;
    ensure!(captured + lost + left_out == frames.len() as u64, "{counts:#}");
    ensure!(count("sample_highest")? >= 2 && left_out > 0 && lost > 0, "{counts:#}");
    let packets = tshark_fields(&file, &["frame.comment"])?;
    ensure!(packets.len() as u64 == captured, "{} packets; {counts:#}", packets.len());
    let changes = packets.iter().filter(|row| row[0].starts_with("Sampled: from here on"));
    ensure!(changes.count() > 0, "no packet says that it is sampled");
    let bytes = std::fs::read(&file)?;
    let told = b"Sampled: a packet stands for ";
    ensure!(bytes.windows(told.len()).any(|part| part == told), "no statistics of sampling");
    Ok(())
}

fn now_ns() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())?)
}

/// The helper sees received packets a moment later.
pub(crate) fn await_received(testpmd: &Testpmd, packets: u64) -> Result<()> {
    wait_until("the app to receive all", LIMIT, || Ok(testpmd.forwarded()?.0 >= packets))?;
    std::thread::sleep(Duration::from_millis(300));
    Ok(())
}

/// Waits until a capture has so many packets.
pub(crate) fn await_captured(capture: &Process, packets: u64) -> Result<()> {
    wait_until("the capture to have all packets", LIMIT, || {
        capture.signal(Signal::USR1)?;
        // One reply for each signal is enough.
        std::thread::sleep(Duration::from_millis(100));
        let output = capture.output();
        let mut lines = output.lines().rev().filter_map(|line| line.strip_prefix("pmdscope: "));
        let told = lines.find_map(|line| line.split_once(" packets captured, "));
        Ok(told.is_some_and(|(count, _)| count.parse::<u64>().is_ok_and(|count| count >= packets)))
    })?;
    Ok(())
}

fn options(scratch: &Scratch) -> Result<()> {
    let mut fed = Fed::start(scratch)?;
    let file = scratch.path("some.pcapng");
    let arguments = ["-c", "500", "-s", "64", "-Q", "in", "udp and src port 1003"];
    let mut capture = attach(scratch, &fed.testpmd, &file, &arguments)?;
    fed.feed.play(&numbered(10_000), FAST)?;
    capture.finish(LIMIT)?;
    let packets = tshark_fields(&file, &["udp.srcport", "frame.cap_len", "frame.len"])?;
    ensure!(packets.len() == 500, "{} packets", packets.len());
    for (number, packet) in (0..).zip(&packets) {
        let whole = (60 + (number * 10 + 3) * 7 % 1400).max(60);
        let kept = whole.min(64);
        let expected = ["1003".to_owned(), kept.to_string(), whole.to_string()];
        ensure!(packet == &expected, "packet {number} is {packet:?}, not {expected:?}");
    }
    Ok(())
}

/// Nothing is changed in the app, and nothing is left behind.
fn as_it_was(scratch: &Scratch) -> Result<()> {
    // Of the virtual devices that need no other end, this one has a promiscuous mode to switch.
    let tap = format!("net_tap0,iface=pmd{}", std::process::id());
    let setup = Setup { devices: &["net_null0", &tap], ..Setup::RECEIVING };
    let mut testpmd = Testpmd::start(scratch, setup)?;
    for mode in ["off", "on"] {
        testpmd.set_promiscuous(1, mode)?;
        let before = Baseline::take(&mut testpmd)?;
        let file = scratch.path(&format!("promiscuous-{mode}.pcapng"));
        let mut capture = attach(scratch, &testpmd, &file, &["--ring-size", "1M"])?;
        let meanwhile = Baseline::take(&mut testpmd)?.exact.promiscuous;
        ensure!(meanwhile == before.exact.promiscuous, "promiscuous mode became {meanwhile:?}");
        capture.interrupt()?;
        before.await_again(&mut testpmd)?;
    }
    Ok(())
}

/// A capture takes no memory from the app, which therefore needs no more hugepages.
fn without_memory(scratch: &Scratch) -> Result<()> {
    let setup = Setup { eal: &["-m", "16"], ..Setup::FLAT_OUT };
    let mut testpmd = Testpmd::start(scratch, setup)?;
    let before = Baseline::take(&mut testpmd)?;
    for file in ["first.pcapng", "second.pcapng"] {
        let (code, said) = capture_once(scratch, testpmd.app(), &scratch.path(file))?;
        ensure!(code == 0, "{code}: {said}");
        before.await_again(&mut testpmd)?;
    }
    Ok(())
}

/// A second capture fails with the reason, and the first goes on undisturbed.
fn two_at_once(scratch: &Scratch) -> Result<()> {
    let mut fed = Fed::start(scratch)?;
    let file = scratch.path("first.pcapng");
    let mut first = attach(scratch, &fed.testpmd, &file, &["-Q", "in"])?;
    let second = scratch.path("second.pcapng");
    let refused = capture_once(scratch, fed.testpmd.app(), &second)?;
    ensure!(refused.0 == 1, "the second ended with {}: {}", refused.0, refused.1);
    let pids = pmdscope_integration::pdump::helpers(fed.testpmd.app())?;
    let named = pids.iter().any(|helper| refused.1.contains(&helper.pid.to_string()));
    ensure!(named, "it does not name one of {pids:?}: {}", refused.1);
    let frames = numbered(5_000);
    fed.feed.play(&frames, FAST)?;
    fed.feed.end();
    await_captured(&first, frames.len() as u64)?;
    let report = first.interrupt()?;
    ensure!(told(&report, "packets captured")? == frames.len() as u64, "{report}");
    Ok(())
}

/// A capture of few packets: its exit code and its output.
pub(crate) fn capture_once(scratch: &Scratch, app: &str, file: &Path) -> Result<(i32, String)> {
    capture_few(scratch, &format!("{app}:0"), file)
}

/// The same from an interface.
pub(crate) fn capture_few(
    scratch: &Scratch,
    interface: &str,
    file: &Path,
) -> Result<(i32, String)> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-i", interface, "-c", "100", "--ring-size", "1M", "-w"]).arg(file);
    let (code, _, err) = run(&mut command, scratch.dir(), LIMIT)?;
    Ok((code, err))
}

/// Each with its own cause, and what to do about it.
fn refusals(scratch: &Scratch) -> Result<()> {
    for (eal, cause) in [
        ("--no-huge", "--no-huge"),
        ("--in-memory", "--in-memory"),
        ("--no-shconf", "--no-shconf"),
        ("--huge-unlink=always", "--huge-unlink"),
    ] {
        let setup = Setup { eal: &[eal], ..Setup::FLAT_OUT };
        let testpmd = Testpmd::start(scratch, setup)?;
        let (code, said) = capture_once(scratch, testpmd.app(), &scratch.path("refused.pcapng"))?;
        ensure!(code == 1, "{eal}: exit code {code}: {said}");
        ensure!(said.contains(testpmd.app()) && said.contains(cause), "{eal}: {said}");
        ensure!(testpmd.hooks()? == 0, "{eal}: callbacks in the app");
        // Commands that need no packets work nevertheless.
        interfaces_agree(scratch, testpmd.app(), "net_null0")?;
    }
    Ok(())
}

/// Attaching is possible, but no thread of the app answers.
fn without_pdump(scratch: &Scratch) -> Result<()> {
    let app = scratch.prefix("idle");
    let mut command = Command::new(programs::idle_app()?);
    command.args(["--lcores", "0@0", "--no-pci", "-m", "64", "--file-prefix", &app]);
    command.args(["--vdev", "net_null0", "--", "--queues", "1"]);
    let mut process = Process::spawn("idle", &mut command, scratch.dir())?;
    started(&mut process)?;
    let (code, said) = capture_once(scratch, &app, &scratch.path("refused.pcapng"))?;
    ensure!(code == 1, "exit code {code}: {said}");
    ensure!(said.contains(&app) && said.contains("rte_pdump_init"), "{said}");
    Ok(())
}

/// Debian's own, as it is and with memory that can be shared: it never offers its packets.
fn open_vswitch(scratch: &Scratch) -> Result<()> {
    // It does not offer its packets, even if its memory can be shared.
    let shared = ("--legacy-mem --iova-mode=va", "rte_pdump_init()");
    for (eal, cause) in [("", "--in-memory"), shared] {
        let scratch = &Scratch::new()?;
        let switch = Switch::start(scratch, &["net_null0", "net_null1"], eal)?;
        let (code, said) = capture_once(scratch, switch.app(), &scratch.path("refused.pcapng"))?;
        ensure!(code == 1, "exit code {code}: {said}");
        ensure!(said.contains(switch.app()) && said.contains(cause), "{said}");
        let once = ["top", "-a", switch.app(), "--once", "--json", "-i", "1"];
        let top = pmdscope_json(scratch, &once, &[0])?;
        let model = &top["apps"][0]["model"];
        ensure!(model["ports"][0]["rx_pps"].as_f64().is_some_and(|pps| pps > 1000.0), "{top:#}");
        interfaces_agree(scratch, switch.app(), "net_null0")?;
    }
    let list = pmdscope(scratch, &["ls"], &[0, 1])?;
    ensure!(!list.contains("switch-"), "{list}");
    Ok(())
}

/// `netstat -i` reports for a port.
fn interfaces_agree(scratch: &Scratch, app: &str, device: &str) -> Result<()> {
    let text = pmdscope(scratch, &["netstat", "-i", "-a", app], &[0])?;
    ensure!(text.contains(device) || text.contains(&format!("{app}:0")), "{text}");
    Ok(())
}

/// DPDK's own tool, killed, leaves the app slow and takes captures from it for ever.
fn killed_dumpcap(scratch: &Scratch) -> Result<()> {
    let mut testpmd = Testpmd::start(scratch, Setup::FLAT_OUT)?;
    let before = Baseline::take(&mut testpmd)?;
    let mut command = Command::new("dpdk-dumpcap");
    // Only so do its mempools have the numbers that testpmd gives them.
    command.env("LD_PRELOAD", "librte_mempool_dpaa.so.23");
    command.args(["--file-prefix", testpmd.app(), "-i", "0", "-q", "-w", "/dev/null"]);
    let mut dumpcap = Process::spawn("dumpcap", &mut command, scratch.dir())?;
    wait_until("dpdk-dumpcap to be attached", LIMIT, || {
        if let Some(status) = dumpcap.exited()? {
            anyhow::bail!("it ended with {status}: {}", dumpcap.output());
        }
        Ok(testpmd.hooks()? > 0)
    })?;
    let running = pmdscope(scratch, &["check", "-a", testpmd.app()], &[0, 1])?;
    let capturing = format!("dpdk-dumpcap (process {}) captures", dumpcap.pid());
    ensure!(running.contains(&capturing), "{running}");
    // While it lives, the packets are its own.
    let (code, said) = capture_once(scratch, testpmd.app(), &scratch.path("refused.pcapng"))?;
    ensure!(code == 1 && said.contains(&dumpcap.pid().to_string()), "{code}: {said}");
    dumpcap.signal(Signal::KILL)?;
    dumpcap.wait(LIMIT)?;
    ensure!(testpmd.hooks()? > 0, "nothing was left to be cleared");
    let killed = pmdscope(scratch, &["check", "-a", testpmd.app()], &[1])?;
    let left = format!("process {} captured, and has ended without ending", dumpcap.pid());
    ensure!(killed.contains(&left) && killed.contains("pmdscope capture -i APP:PORT"), "{killed}");

    let file = scratch.path("after.pcapng");
    let (code, said) = capture_once(scratch, testpmd.app(), &file)?;
    ensure!(code == 0, "{code}: {said}");
    ensure!(captured(&file)?.len() == 100, "{said}");
    before.await_usable(&mut testpmd)?;
    Ok(())
}

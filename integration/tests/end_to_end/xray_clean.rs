//! X-ray reports no mbuf as lost that is not: stock apps without faults, on every virtual driver.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::frames::write_pcap;
use pmdscope_integration::openvswitch::Switch;
use pmdscope_integration::process::wait_until;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;
use pmdscope_integration::testpmd::{Setup, Testpmd};
use pmdscope_integration::veth::Veth;
use serde_json::Value;

use crate::support::{LIMIT, Missing, Needs, number, pmdscope_json, trial, trial_unless};
use crate::xray::{adds_up, brief, pools, scan_args};
use crate::xray_holders::held;
use crate::xray_hostile::rounds;

/// Packets that prove that traffic flows.
pub(crate) const FLOWS: u64 = 1000;
pub(crate) const ORDINARY: &[&str] = &["--no-huge", "-m", "256"];

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("xray_finds_no_loss_in_any_mode_of_testpmd", Needs::Testpmd, modes),
        trial("xray_finds_no_loss_while_ports_restart", Needs::Testpmd, restarts),
        trial("xray_finds_no_loss_in_chains", Needs::Testpmd, chains),
        trial("xray_finds_no_loss_over_vhost_and_virtio", Needs::Testpmd, virtio),
        trial("xray_finds_no_loss_over_memif", Needs::Testpmd, memif),
        trial("xray_finds_no_loss_over_af_packet", Needs::Testpmd, af_packet),
        trial("xray_finds_no_loss_over_af_xdp_or_does_not_judge", Needs::Testpmd, af_xdp),
        trial("xray_finds_no_loss_over_rings", Needs::Testpmd, rings),
        trial("xray_finds_no_loss_over_pcap", Needs::Testpmd, pcap),
        trial("xray_finds_no_loss_in_stack_pools_of_testpmd", Needs::Testpmd, anonymous),
        trial("xray_finds_no_loss_in_open_vswitch", Needs::OpenVswitch, open_vswitch),
        trial_unless("xray_finds_no_loss_in_a_million_mbufs", missing_soak(), million),
    ]
}

/// It needs 5 GB of memory: without hugepages each mbuf has a page of its own.
fn missing_soak() -> Option<Missing> {
    let unset = std::env::var_os("PMDSCOPE_XRAY_ROUNDS").is_none();
    let missing = || Missing::Machine("a million mbufs: `make soak-xray` runs it".to_owned());
    Needs::Testpmd.missing().or_else(|| unset.then(missing))
}

/// Scans an app that loses nothing. The exit code agrees.
fn scan_clean(scratch: &Scratch, app: &str) -> Result<Value> {
    let mut leaks = pmdscope_json(scratch, &scan_args(app), &[0])?;
    let scan = leaks["apps"][0]["scan"].take();
    ensure!(scan.is_object(), "no scan in {leaks:#}");
    adds_up(&scan)?;
    ensure!(!pools(&scan)?.is_empty(), "no pools in {leaks:#}");
    for pool in pools(&scan)? {
        ensure!(number(pool, "lost")? == 0, "{}", brief(pool));
    }
    Ok(scan)
}

/// The same, and each mbuf is judged.
pub(crate) fn judged_clean(scratch: &Scratch, app: &str) -> Result<Value> {
    let scan = scan_clean(scratch, app)?;
    for pool in pools(&scan)? {
        ensure!(number(pool, "not_judged")? == 0, "{}", brief(pool));
    }
    ensure!(scan["problems"].as_array().is_none_or(Vec::is_empty), "{}", brief(&scan));
    Ok(scan)
}

/// Waits until a port has received more.
pub(crate) fn await_traffic(app: &str, port: u16) -> Result<()> {
    let received = || telemetry::number(app, &format!("/ethdev/stats,{port}"), "ipackets");
    let before = received()?;
    wait_until("traffic", LIMIT, || Ok(received()? > before + FLOWS))?;
    Ok(())
}

/// Packets that a port has sent.
pub(crate) fn await_sent(app: &str, port: u16) -> Result<()> {
    let sent = || telemetry::number(app, &format!("/ethdev/stats,{port}"), "opackets");
    let before = sent()?;
    wait_until("traffic", LIMIT, || Ok(sent()? > before + FLOWS))?;
    Ok(())
}

pub(crate) fn stop(testpmd: &mut Testpmd) -> Result<()> {
    testpmd.console("stop", "Done.").map(drop)
}

/// Steady, idle, sending in bursts and answering, one after the other.
fn modes(scratch: &Scratch) -> Result<()> {
    let devices = ["net_null0", "net_null1"];
    let mut testpmd = Testpmd::start(
        scratch,
        Setup { devices: &devices, eal: ORDINARY, args: &["--forward-mode=macswap"] },
    )?;
    judged_clean(scratch, testpmd.app()).context("before the first packet")?;
    for _ in 0..rounds(1)? {
        each_mode(scratch, &mut testpmd)?;
    }
    Ok(())
}

fn each_mode(scratch: &Scratch, testpmd: &mut Testpmd) -> Result<()> {
    for mode in ["macswap", "txonly", "flowgen", "rxonly", "csum"] {
        testpmd.process.type_line(&format!("set fwd {mode}"))?;
        testpmd.process.type_line("start")?;
        await_traffic(testpmd.app(), 0).or_else(|_| await_sent(testpmd.app(), 0))?;
        judged_clean(scratch, testpmd.app()).context(mode)?;
        stop(testpmd)?;
    }
    let idle = judged_clean(scratch, testpmd.app()).context("idle")?;
    for pool in pools(&idle)? {
        ensure!(number(pool, "moving")? == 0, "nothing moves: {}", brief(pool));
    }
    Ok(())
}

/// Ports go down and up under the scans, each time with another number of queues.
fn restarts(scratch: &Scratch) -> Result<()> {
    let setup = Setup { eal: ORDINARY, ..Setup::FLAT_OUT };
    let mut testpmd = Testpmd::start(scratch, setup)?;
    await_traffic(testpmd.app(), 0)?;
    let app = testpmd.app().to_owned();
    let scans = rounds(3)?;
    thread::scope(|scope| {
        let scans =
            scope.spawn(|| (0..scans).try_for_each(|_| scan_clean(scratch, &app).map(drop)));
        for queues in [2_u64, 1].iter().cycle().take_while(|_| !scans.is_finished()) {
            stop(&mut testpmd)?;
            testpmd.console("port stop all", "Done")?;
            testpmd.process.type_line(&format!("port config all rxq {queues}"))?;
            testpmd.process.type_line(&format!("port config all txq {queues}"))?;
            testpmd.console("port start all", "Done")?;
            let now = telemetry::number(&app, "/ethdev/info,0", "nb_rx_queues")?;
            ensure!(now == *queues, "{now} RX queues, not {queues}");
            testpmd.process.type_line("start")?;
            thread::sleep(Duration::from_millis(50));
        }
        scans.join().map_err(|_| anyhow::anyhow!("the scans panicked"))?
    })?;
    judged_clean(scratch, &app)?;
    Ok(())
}

/// Packets of several segments, from pools of small mbufs.
fn chains(scratch: &Scratch) -> Result<()> {
    let args = ["--forward-mode=txonly", "--auto-start", "--txpkts=200,200,200"];
    let setup = Setup { eal: ORDINARY, args: &args, ..Setup::FLAT_OUT };
    let testpmd = Testpmd::start(scratch, setup)?;
    await_sent(testpmd.app(), 0)?;
    judged_clean(scratch, testpmd.app())?;
    Ok(())
}

/// Pools that are made of anonymous memory instead of that of the EAL.
fn anonymous(scratch: &Scratch) -> Result<()> {
    let eal = [ORDINARY, &["--mbuf-pool-ops-name=stack"]].concat();
    let args = ["--forward-mode=macswap", "--auto-start", "--mp-alloc=anon"];
    let testpmd = Testpmd::start(scratch, Setup { eal: &eal, args: &args, ..Setup::FLAT_OUT })?;
    await_traffic(testpmd.app(), 0)?;
    judged_clean(scratch, testpmd.app())?;
    Ok(())
}

/// Two that are joined by a socket, both scanned while packets go round.
fn pair(scratch: &Scratch, server: &str, client: &str, eal: &[&str]) -> Result<()> {
    let other = Scratch::new()?;
    let setup = |device, eal, args| Setup { devices: device, eal, args };
    let devices = [[server], [client]];
    let reflects = ["--forward-mode=macswap", "--auto-start"];
    let reflector = Testpmd::start(scratch, setup(&devices[0], &[], &reflects))?;
    let generates = ["--forward-mode=flowgen", "--auto-start"];
    let generator = Testpmd::start(&other, setup(&devices[1], eal, &generates))?;
    await_traffic(reflector.app(), 0).context("to the server")?;
    await_traffic(generator.app(), 0).context("to the client")?;
    for app in [reflector.app(), generator.app()] {
        judged_clean(scratch, app).with_context(|| app.to_owned())?;
    }
    // One whose peer has ended.
    drop(generator);
    judged_clean(scratch, reflector.app()).context("without the client")?;
    Ok(())
}

fn virtio(scratch: &Scratch) -> Result<()> {
    let socket = scratch.path("vhost.sock");
    let server = format!("net_vhost0,iface={},queues=1", socket.display());
    let client = format!("net_virtio_user0,path={},queues=1,queue_size=1024", socket.display());
    pair(scratch, &server, &client, &["--single-file-segments"])
}

fn memif(scratch: &Scratch) -> Result<()> {
    let socket = scratch.path("memif.sock");
    let device =
        |role| format!("net_memif0,role={role},socket={},socket-abstract=no", socket.display());
    pair(scratch, &device("server"), &device("client"), &[])
}

/// Both ends of a wire in one app: what is sent comes in again, for ever.
fn loop_over(scratch: &Scratch, devices: &[&str]) -> Result<Testpmd> {
    let args = ["--forward-mode=io"];
    let mut testpmd = Testpmd::start(scratch, Setup { devices, eal: ORDINARY, args: &args })?;
    testpmd.process.type_line("start tx_first")?;
    await_traffic(testpmd.app(), 0)?;
    Ok(testpmd)
}

fn rings(scratch: &Scratch) -> Result<()> {
    let testpmd = loop_over(scratch, &["net_ring0", "net_ring1"])?;
    judged_clean(scratch, testpmd.app())?;
    Ok(())
}

fn af_packet(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let device = |number, end| format!("net_af_packet{number},iface={end}");
    let devices = [device(0, wire.near()), device(1, wire.far())];
    let testpmd = loop_over(scratch, &devices.each_ref().map(String::as_str))?;
    judged_clean(scratch, testpmd.app())?;
    Ok(())
}

/// The rings that are shared with the kernel have offsets in place of addresses.
fn af_xdp(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let device = |number, end| format!("net_af_xdp{number},iface={end}");
    let devices = [device(0, wire.near()), device(1, wire.far())];
    let testpmd = loop_over(scratch, &devices.each_ref().map(String::as_str))?;
    let scan = scan_clean(scratch, testpmd.app())?;
    for pool in pools(&scan)? {
        let why = pool["not_judged_why"].as_array().context("not_judged_why")?;
        ensure!((number(pool, "not_judged")? == 0) == why.is_empty(), "{}", brief(pool));
    }
    // Where the kernel gets little CPU, most of those of a port are on their way.
    let is_queue = |holder: &Value| holder["kind"] == "rx_queue";
    let posted = held(&scan, is_queue)?;
    // Older kernels do not let others read the rings.
    ensure!(posted > 1000 || kernel_before(6, 4)?, "{posted}: {}", brief(&scan));
    Ok(())
}

/// Whether this is a Linux before a release.
fn kernel_before(major: u32, minor: u32) -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    let (known, of_it) = (numbers.next(), numbers.next());
    Ok((known, of_it.or(Some(0))) < (Some(major), Some(minor)))
}

/// A file that is read again and again: its packets stay in a ring of the driver.
fn pcap(scratch: &Scratch) -> Result<()> {
    let file = scratch.path("in.pcap");
    let frames: Vec<_> = (0..PCAP_PACKETS).map(|number| vec![number; 60]).collect();
    write_pcap(&file, &frames)?;
    let device = format!("net_pcap0,rx_pcap={},infinite_rx=1", file.display());
    let args = ["--forward-mode=macswap", "--auto-start"];
    let setup = Setup { devices: &[&device], eal: ORDINARY, args: &args };
    let testpmd = Testpmd::start(scratch, setup)?;
    await_traffic(testpmd.app(), 0)?;
    let scan = judged_clean(scratch, testpmd.app())?;
    let is_ring = |holder: &Value| {
        holder["kind"] == "ring"
            && holder["name"].as_str().is_some_and(|name| name.starts_with("PCAP_RING"))
    };
    let kept = held(&scan, is_ring)?;
    let all = u64::from(PCAP_PACKETS);
    ensure!((all / 2..=all).contains(&kept), "{kept}: {}", brief(&scan));
    Ok(())
}

/// Packets of the file.
const PCAP_PACKETS: u8 = 100;

fn million(scratch: &Scratch) -> Result<()> {
    let eal = ["--no-huge", "-m", "4608"];
    let args = ["--forward-mode=macswap", "--auto-start", "--total-num-mbufs=1048575"];
    let testpmd = Testpmd::start(scratch, Setup { eal: &eal, args: &args, ..Setup::FLAT_OUT })?;
    for _ in 0..rounds(1)? {
        let scan = judged_clean(scratch, testpmd.app())?;
        ensure!(number(&pools(&scan)?[0], "size")? == 1_048_575, "{}", brief(&scan));
    }
    Ok(())
}

fn open_vswitch(scratch: &Scratch) -> Result<()> {
    let switch = Switch::start(scratch, &["net_null0", "net_null1"], "")?;
    await_traffic(switch.app(), 0)?;
    let scan = scan_clean(scratch, switch.app())?;
    let mbufs: u64 = pools(&scan)?.iter().map(|it| number(it, "size")).sum::<Result<u64>>()?;
    ensure!(mbufs > 10_000, "{}", brief(&scan));
    Ok(())
}

//! X-ray names the queues of virtual drivers that hold mbufs.

use std::fs::OpenOptions;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::wait_until;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd::{Setup, Testpmd};
use serde_json::Value;

use crate::support::{LIMIT, Missing, Needs, number, trial, trial_unless};
use crate::xray::{brief, pools, scan};
use crate::xray_clean::{ORDINARY, await_sent, await_traffic, judged_clean, stop};
use crate::xray_hostile::start;

/// Descriptors of a queue, which a driver keeps filled with mbufs.
const DESCRIPTORS: u64 = 256;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("xray_names_the_rx_queue_of_virtio", Needs::Testpmd, virtio),
        trial("xray_names_the_rx_queue_of_memif", Needs::Testpmd, memif),
        trial("xray_names_the_ring_of_a_ring_port", Needs::Testpmd, rings),
        trial("xray_names_a_queue_in_malloc_memory", Needs::Apps, malloc),
        trial_unless("xray_names_the_rx_queue_of_tap", missing_tun(), tap),
    ]
}

/// Mbufs of all pools whose holder is one of these.
pub(crate) fn held(scan: &Value, is_one: impl Fn(&Value) -> bool) -> Result<u64> {
    let mut mbufs = 0;
    for pool in pools(scan)? {
        for held in pool["holders"].as_array().context("holders")? {
            if is_one(&held["holder"]) {
                mbufs += number(held, "mbufs")?;
            }
        }
    }
    Ok(mbufs)
}

/// Mbufs that an RX queue of this port holds, all by the same queue.
fn posted(scan: &Value, port: u64) -> Result<u64> {
    let others = held(scan, |it| it["kind"] == "rx_queue" && it["port"] != port)?;
    ensure!(others == 0, "another port: {}", brief(scan));
    held(scan, |it| it["kind"] == "rx_queue" && it["queue"] == 0)
}

/// Port 1 of an app receives what the server sends, port 0 nothing: mbufs that its queue holds, and the scan.
fn client(scratch: &Scratch, server: &str, device: &str, eal: &[&str]) -> Result<(u64, Value)> {
    let other = Scratch::new()?;
    let sends = ["--forward-mode=txonly", "--auto-start"];
    let setup = Setup { devices: &[server], eal: &[], args: &sends };
    let sender = Testpmd::start(scratch, setup)?;
    let receives = ["--forward-mode=rxonly", "--auto-start", "--rxd=256", "--txd=256"];
    let devices = ["net_null0,no-rx=1", device];
    let client = Testpmd::start(&other, Setup { devices: &devices, eal, args: &receives })?;
    await_traffic(client.app(), 1)?;
    await_sent(sender.app(), 0)?;
    let scan = scan(scratch, client.app())?;
    Ok((posted(&scan, 1)?, scan))
}

fn virtio(scratch: &Scratch) -> Result<()> {
    let socket = scratch.path("vhost.sock");
    let server = format!("net_vhost0,iface={},queues=1", socket.display());
    let virtio = format!("net_virtio_user0,path={},queues=1,queue_size=256", socket.display());
    let (posted, scan) = client(scratch, &server, &virtio, &["--single-file-segments"])?;
    // Some are on their way through the app, and back.
    ensure!((DESCRIPTORS / 2..=DESCRIPTORS).contains(&posted), "{posted}: {}", brief(&scan));
    Ok(())
}

/// Without copies the client hands its mbufs to the server.
fn memif(scratch: &Scratch) -> Result<()> {
    let socket = scratch.path("memif.sock");
    let device = |role, more| {
        let socket = socket.display();
        format!("net_memif0,role={role},socket={socket},socket-abstract=no{more}")
    };
    let (server, memif) = (device("server", ""), device("client", ",zero-copy=yes"));
    let (posted, scan) = client(scratch, &server, &memif, &["--single-file-segments"])?;
    ensure!(posted >= DESCRIPTORS / 2, "{posted}: {}", brief(&scan));
    Ok(())
}

fn missing_tun() -> Option<Missing> {
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let missing = |error| Missing::Machine(format!("/dev/net/tun: {error}"));
    Needs::Testpmd.missing().or_else(|| tun.err().map(missing))
}

/// Each descriptor has an mbuf, into which the kernel is to copy the next packet.
fn tap(scratch: &Scratch) -> Result<()> {
    let device = format!("net_tap0,iface=pt{}", std::process::id());
    let args = ["--forward-mode=rxonly", "--auto-start", "--rxd=256"];
    let testpmd =
        Testpmd::start(scratch, Setup { devices: &[&device], eal: ORDINARY, args: &args })?;
    let scan = judged_clean(scratch, testpmd.app())?;
    let posted = posted(&scan, 0)?;
    ensure!((DESCRIPTORS / 2..=DESCRIPTORS).contains(&posted), "{posted}: {}", brief(&scan));
    Ok(())
}

/// The mbufs of the last burst sent stay in the ring.
fn rings(scratch: &Scratch) -> Result<()> {
    let devices = ["net_ring0", "net_ring1"];
    let args = ["--forward-mode=io"];
    let mut testpmd =
        Testpmd::start(scratch, Setup { devices: &devices, eal: ORDINARY, args: &args })?;
    testpmd.process.type_line("start tx_first")?;
    await_traffic(testpmd.app(), 0)?;
    stop(&mut testpmd)?;
    let scan = scan(scratch, testpmd.app())?;
    let is_ring = |holder: &Value| {
        let name = holder["name"].as_str().unwrap_or_default();
        holder["kind"] == "ring" && name.starts_with("ETH_RXTX") && name.contains("net_ring")
    };
    let of_rings = held(&scan, is_ring)?;
    ensure!(of_rings > 0, "{}", brief(&scan));
    let used =
        pools(&scan)?.iter().flat_map(|pool| pool["holders"].as_array().into_iter().flatten());
    for ring in used.map(|it| &it["holder"]).filter(|it| is_ring(it)) {
        ensure!(number(ring, "used")? <= number(ring, "capacity")?, "{ring}");
    }
    Ok(())
}

/// No driver of DPDK keeps its queues there, but others may: the app puts one in place of that of `net_null`.
fn malloc(scratch: &Scratch) -> Result<()> {
    const HELD: u64 = 200;
    let (app, mut process) = start(scratch, &["queue"])?;
    wait_until("the queue to be named", LIMIT, || {
        ensure!(process.exited()?.is_none(), "it ended: {}", process.output());
        let scan = scan(scratch, &app)?;
        let of_app = held(&scan, |it| it["kind"] == "global" && it["symbol"] == "held")?;
        ensure!(of_app == HELD, "{of_app}: {}", brief(&scan));
        Ok(posted(&scan, 0)? == HELD)
    })
    .map(drop)
}

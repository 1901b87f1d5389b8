//! Faults of stock apps that concern pools, rings, heaps and the interfaces below ports, as `check` names them.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::namespaces::{INTERFACE, NamespacePair, Side};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::scratch::Scratch;
use serde_json::Value;

use crate::support::{LIMIT, Needs, pmdscope, pmdscope_json, trial};
use crate::xray_faults::{finding, start, start_with};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("check_names_the_ring_of_a_blocked_consumer", Needs::Apps, blocked),
        trial("check_names_a_full_ring", Needs::Apps, slow),
        trial("check_names_the_empty_pool_that_feeds_the_port", Needs::Apps, feeding),
        trial("check_names_a_heap_that_grows", Needs::Apps, heap),
        trial("check_names_an_interface_that_is_down_or_gone", Needs::Testpmd, netdev),
        trial("check_names_a_tap_that_the_kernel_has_named", Needs::Testpmd, tap),
        trial("a_named_app_that_does_not_run_is_a_finding", Needs::Apps, missing),
    ]
}

fn evidence(found: &Value) -> Result<&str> {
    found["evidence"].as_str().with_context(|| format!("evidence of {found:#}"))
}

/// A larger pool would be empty as well: nobody advises one.
fn blocked(scratch: &Scratch) -> Result<()> {
    let (app, _process) = start(scratch, "ring-blocked")?;
    let found = finding(scratch, &app, "ring_full")?;
    ensure!(found["severity"] == "critical" && found["subject"] == "to_worker", "{found:#}");
    let text = evidence(&found)?;
    ensure!(
        text.contains("pool packets is empty, and ")
            && text.contains("of its 2047 mbufs wait here"),
        "{text}"
    );
    ensure!(text.contains("nothing was taken out for "), "{text}");
    ensure!(text.contains("made for one producer and one consumer"), "{text}");
    let said = pmdscope(scratch, &["check", "-a", &app], &[1])?;
    ensure!(said.contains("its consumer is blocked"), "{said}");
    ensure!(!said.contains("enlarge the pool"), "{said}");
    Ok(())
}

fn slow(scratch: &Scratch) -> Result<()> {
    let (app, _process) = start(scratch, "ring-slow")?;
    let found = finding(scratch, &app, "ring_full")?;
    ensure!(found["severity"] == "critical" && found["subject"] == "to_worker", "{found:#}");
    let text = evidence(&found)?;
    ensure!(
        text.contains(" of 511 entries in use (") && text.contains("full for at least "),
        "{text}"
    );
    ensure!(text.contains("/s taken out"), "{text}");
    let advice = found["advice"].as_str().context("advice")?;
    ensure!(advice.starts_with("its consumer is slower"), "{advice}");
    Ok(())
}

fn feeding(scratch: &Scratch) -> Result<()> {
    let packets = scratch.path("packets.pcap");
    fs::write(&packets, pcap(50_000))?;
    let vdev = format!("net_pcap0,rx_pcap={},tx_pcap=/dev/null", packets.display());
    let (app, _process) = start_with(scratch, "pools", &vdev)?;
    let found = finding(scratch, &app, "rx_nombuf")?;
    let text = evidence(&found)?;
    ensure!(text.contains("pool feed is "), "{text}");
    ensure!(!text.contains("packets is"), "the pool with free mbufs is blamed: {text}");
    let unknown = pmdscope_json(scratch, &["check", "-a", &app, "--json", "--no-xray"], &[1])?;
    let unknown = unknown.to_string();
    ensure!(
        unknown.contains("feeds the port is unknown") || unknown.contains("is unknown before"),
        "{unknown}"
    );
    Ok(())
}

/// A file of so many Ethernet frames.
fn pcap(frames: usize) -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let header: Vec<u8> = [0_u32, 0, 60, 60].iter().flat_map(|word| word.to_le_bytes()).collect();
    for _ in 0..frames {
        file.extend(&header);
        file.extend([0xff; 60]);
    }
    file
}

/// Without hugepages the heap cannot grow.
fn heap(scratch: &Scratch) -> Result<()> {
    let (app, _process) = start(scratch, "heap")?;
    let check = ["check", "-a", &app, "--json", "--for", "12"];
    let check = pmdscope_json(scratch, &check, &[1])?;
    let findings = check["apps"][0]["findings"].as_array().context("findings")?;
    let found = findings.iter().find(|finding| finding["lint"] == "heap_exhausting");
    let text = evidence(found.with_context(|| format!("no heap_exhausting in {check:#}"))?)?;
    ensure!(
        text.contains(", growing by ") && text.contains("and it cannot grow: full in "),
        "{text}"
    );
    ensure!(text.contains("more blocks of 2 KiB"), "{text}");
    Ok(())
}

/// A stock app in a network namespace of its own, with this device.
fn start_below(scratch: &Scratch, pair: &NamespacePair, vdev: &str) -> Result<(String, Process)> {
    let app = scratch.prefix("below");
    let mut command = pair.command(Side::Near, "dpdk-testpmd");
    command.args(["-l", "0-1", "--no-pci", "--no-huge", "-m", "128", "--file-prefix", &app]);
    command.args(["--vdev", vdev, "--", "--total-num-mbufs=2048", "--forward-mode=rxonly"]);
    command.args(["--stats-period", "60", "--no-mlockall"]);
    let testpmd = Process::spawn("testpmd", &mut command, scratch.dir())?;
    wait_until("the app to answer", LIMIT, || {
        let said = pmdscope(scratch, &["ls"], &[0]);
        Ok(said.is_ok_and(|said| {
            said.lines().any(|line| line.contains(&app) && line.contains("live"))
        }))
    })?;
    let fine = pmdscope_json(scratch, &["check", "-a", &app, "--json"], &[0, 1])?;
    ensure!(!fine.to_string().contains("netdev_down"), "{fine:#}");
    Ok((app, testpmd))
}

fn ip(pair: &NamespacePair, args: &[&str]) -> Result<()> {
    let mut ip = Command::new("ip");
    ip.args(["-n", pair.name(Side::Near), "link"]).args(args);
    pmdscope_integration::process::run_to_success(&mut ip).map(drop)
}

/// Without `iface=`, its arguments do not tell the name.
fn tap(scratch: &Scratch) -> Result<()> {
    let pair = NamespacePair::new(&[])?;
    let (app, _testpmd) = start_below(scratch, &pair, "net_tap7")?;
    for (change, interface, what) in [
        (&["set", "dtap0", "down"][..], "dtap0", "is down"),
        (&["delete", "dtap0"], "dtap%d", "does not exist"),
    ] {
        ip(&pair, change)?;
        finds_netdev_down(scratch, &app, "net_tap7", interface, what)?;
    }
    Ok(())
}

/// `check` says what is wrong with the interface below a port.
fn finds_netdev_down(
    scratch: &Scratch,
    app: &str,
    device: &str,
    interface: &str,
    what: &str,
) -> Result<()> {
    let found = finding(scratch, app, "netdev_down")?;
    let text = evidence(&found)?;
    ensure!(found["subject"] == device, "{found:#}");
    ensure!(
        text.starts_with(&format!("the interface {interface} below the port {what}")),
        "{text}"
    );
    Ok(())
}

fn netdev(scratch: &Scratch) -> Result<()> {
    let pair = NamespacePair::new(&[])?;
    let vdev = format!("net_af_packet0,iface={INTERFACE}");
    let (app, _testpmd) = start_below(scratch, &pair, &vdev)?;
    let ip = |args: &[&str]| ip(&pair, args);
    let told = |what| finds_netdev_down(scratch, &app, "net_af_packet0", INTERFACE, what);
    ip(&["set", INTERFACE, "down"])?;
    told("is down")?;
    ip(&["set", INTERFACE, "name", "other0"])?;
    told("is called other0 now")?;
    ip(&["delete", "other0"])?;
    told("does not exist")
}

fn missing(scratch: &Scratch) -> Result<()> {
    let name = scratch.prefix("nobody");
    let check = pmdscope_json(scratch, &["check", "-a", &name, "--json"], &[1])?;
    let found = &check["apps"][0]["findings"][0];
    ensure!(check["ok"] == false && found["lint"] == "app_missing", "{check:#}");
    ensure!(evidence(found)?.contains("no "), "{found:#}");
    Ok(())
}

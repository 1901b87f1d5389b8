//! Apps in other mount, PID and network namespaces: they are found, named, observed and captured from as
//! those of the host are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::container::{Container, only_child};
use pmdscope_integration::exporter::{Exporter, free_address};
use pmdscope_integration::frames::{Feed, write_pcap};
use pmdscope_integration::pdump::helpers;
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd::{Setup, Testpmd};
use pmdscope_integration::wire::captured;
use serde_json::Value;

use crate::pdump::{attach, await_captured, capture_once, numbered};
use crate::support::{LIMIT, Needs, pmdscope, pmdscope_json, told, trial};

const DAEMONSET: &str = include_str!("../../kubernetes/daemonset.yaml");
/// A pod has a file system of its own.
const EMPTY_RUN: &str = r#"mount -t tmpfs tmpfs /run && exec "$@""#;
/// Packets per second that are fed, so that a sample has the time to find some.
const STEADY: u64 = 5_000;
/// File-prefix of apps with libpmdscope; in its container, no other app has it.
const PREFIX: &str = "rte";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_stock_app_in_a_container_is_captured_from", Needs::Pdump, stock),
        trial("apps_of_one_prefix_in_two_containers_are_told_apart", Needs::Pdump, linked),
        trial("a_sidecar_sees_what_is_shared_with_it", Needs::Pdump, sidecar),
        trial("a_daemonset_sees_the_apps_of_all_pods", Needs::Pdump, daemonset),
    ]
}

/// The entry in `ls` for the app with this process id.
fn listed(scratch: &Scratch, pid: u32) -> Result<Value> {
    let list = pmdscope_json(scratch, &["ls", "--json"], &[0])?;
    let mut apps = list["apps"].as_array().into_iter().flatten();
    let app = apps.find(|app| app["pid"].as_u64() == Some(pid.into()));
    app.cloned().with_context(|| format!("no process {pid} in {list:#}"))
}

/// All of its packets reach the host, and nothing stays in the app or in its directory.
fn stock(scratch: &Scratch) -> Result<()> {
    let container = Container::start(scratch, 1)?;
    let mut feed = Feed::new(scratch.path("feed.pcap"))?;
    let device = format!("net_pcap0,rx_pcap={},tx_pcap=/dev/null", feed.path().display());
    let setup = Setup { devices: &[&device], ..Setup::RECEIVING };
    let testpmd = Testpmd::start_in(scratch, &container, setup)?;
    let app = listed(scratch, testpmd.pid())?;
    ensure!(app["app"] == testpmd.app() && app["container"]["id"] == container.id(), "{app:#}");

    let before = files(&testpmd)?;
    let file = scratch.path("stock.pcapng");
    let args = ["-Q", "in", "--ring-size", "16M", "udp and dst port 53"];
    let mut capture = attach(scratch, &testpmd, &file, &args)?;
    let second = capture_once(scratch, testpmd.app(), &scratch.path("refused.pcapng"))?;
    ensure!(second.0 == 1 && second.1.contains("already"), "{}: {}", second.0, second.1);
    let helpers = helpers(testpmd.app())?;
    let is_named = helpers.iter().any(|helper| second.1.contains(&helper.pid.to_string()));
    ensure!(is_named, "it does not name one of {helpers:?}: {}", second.1);
    for helper in &helpers {
        is_kept_from_the_host(helper.pid)?;
    }
    let frames = numbered(5_000);
    let sample = scratch.path("sample.pcapng");
    let mut sampling = start_sampling(scratch, testpmd.app(), &sample)?;
    feed.play(&frames, STEADY)?;
    feed.end();
    await_captured(&capture, frames.len() as u64)?;
    let report = capture.interrupt()?;
    ensure!(told(&report, "packets captured")? == frames.len() as u64, "{report}");
    let packets = captured(&file)?;
    let same = packets.iter().zip(&frames).all(|(packet, frame)| packet.data == *frame);
    ensure!(packets.len() == frames.len() && same, "other packets; {report}");
    let after = files(&testpmd)?;
    ensure!(before == after && testpmd.hooks()? == 0, "{before:?} before, {after:?} after");
    sampling.finish(LIMIT)?;
    let sampled = captured(&sample)?;
    let are_ours = sampled.iter().all(|packet| frames.contains(&packet.data));
    ensure!(sampled.len() == 1 && are_ours, "{}", sampling.output());

    // An app that is the first process of its container takes the helper with it.
    let last = scratch.path("last.pcapng");
    let mut capture = attach(scratch, &testpmd, &last, &["--exit-with-app"])?;
    drop(container);
    capture.finish(LIMIT)?;
    Ok(())
}

/// The files in its runtime directory.
fn files(testpmd: &Testpmd) -> Result<BTreeSet<String>> {
    let names = fs::read_dir(testpmd.runtime_dir())?.flatten().map(|entry| entry.file_name());
    Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
}

/// Checks that a helper has brought nothing from the host that an app could use: neither rights nor
/// files.
fn is_kept_from_the_host(pid: u32) -> Result<()> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    for line in ["CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
        ensure!(status.contains(line), "not {line} in {status}");
    }
    let exe = fs::read_link(format!("/proc/{pid}/exe"))?;
    ensure!(exe.starts_with("/memfd:pmdscope-pdump (deleted)"), "runs {}", exe.display());
    let environment = fs::read(format!("/proc/{pid}/environ"))?;
    ensure!(environment.iter().all(|byte| *byte == 0), "{environment:?}");
    let mut root: Vec<_> = fs::read_dir(format!("/proc/{pid}/root"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    root.sort_unstable();
    // `/var/run/dpdk` of the app, and its `/dev/hugepages`.
    ensure!(root == ["dev", "proc", "sys", "var"], "{root:?}");
    Ok(())
}

/// Starts to read packets from the memory of an app, until the first one is found.
fn start_sampling(scratch: &Scratch, app: &str, file: &Path) -> Result<Process> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-i", &format!("{app}:0"), "--peek", "-c", "1", "--duration", "5"]);
    let mut sampling = Process::spawn("sampling", command.arg("-w").arg(file), scratch.dir())?;
    wait_until("the sample to begin", LIMIT, || {
        if let Some(status) = sampling.exited()? {
            anyhow::bail!("it ended with {status}: {}", sampling.output());
        }
        Ok(sampling.output().contains("listening on"))
    })?;
    Ok(sampling)
}

/// An app with libpmdscope in a container, and its process id on the host.
fn reflector(scratch: &Scratch, container: &Container, bytes: usize) -> Result<(Process, u32)> {
    let mut command = container.command(programs::reflector()?);
    command.args(["--lcores", "1@1", "--no-pci", "-m", "64", "--file-prefix", PREFIX]);
    command.args(["--vdev", &format!("net_null0,size={bytes}"), "--", "--mbufs", "4095"]);
    let mut process = Process::spawn(&format!("reflector-{bytes}"), &mut command, scratch.dir())?;
    let socket = container.runtime_dir(PREFIX).join("pmdscope.sock");
    wait_until("an app in a container", LIMIT, || {
        if let Some(status) = process.exited()? {
            anyhow::bail!("it ended with {status}: {}", process.output());
        }
        Ok(socket.exists())
    })?;
    let pid = only_child(process.pid()).context("it has ended")?;
    Ok((process, pid))
}

/// Each has its own name, and everything is about the one that is meant.
fn linked(scratch: &Scratch) -> Result<()> {
    let containers = [Container::start(scratch, 1)?, Container::start(scratch, 2)?];
    let sizes = [64, 128];
    let start = |(container, bytes)| reflector(scratch, container, bytes);
    let apps = containers.iter().zip(sizes).map(start).collect::<Result<Vec<_>>>()?;
    for ((container, bytes), (_, pid)) in containers.iter().zip(sizes).zip(&apps) {
        let name = format!("{PREFIX}@{}", &container.id()[..12]);
        let app = listed(scratch, *pid)?;
        ensure!(app["app"] == name && app["container"]["id"] == container.id(), "{app:#}");

        let file = scratch.path(&format!("{bytes}.pcapng"));
        let (code, said) = capture_once(scratch, &name, &file)?;
        ensure!(code == 0 && !said.contains("via"), "{code}: {said}");
        let packets = captured(&file)?;
        let are_its = packets.iter().all(|packet| packet.data.len() == bytes);
        ensure!(packets.len() == 100 && are_its, "packets of another app: {said}");

        let leaks = ["leaks", "-a", &name, "-i", "0.1", "--scan-interval", "0.2"];
        let text = pmdscope(scratch, &leaks, &[0, 1])?;
        ensure!(text.starts_with(&name) && text.contains("1 pool of 4,095 mbufs"), "{text}");
    }
    Ok(())
}

/// As a sidecar, with the runtime directories of the other containers of its pod and not their processes: it
/// sees what `docs/containers.md` lists.
fn sidecar(scratch: &Scratch) -> Result<()> {
    let pod = Container::start(scratch, 1)?;
    let (_process, _) = reflector(scratch, &pod, 64)?;
    let testpmd = Testpmd::start_in(scratch, &pod, Setup::FLAT_OUT)?;
    let inside = |args: &[&str]| {
        let mut command = pod.command("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
        let (code, out, err) =
            run(command.arg(programs::pmdscope()?).args(args), scratch.dir(), LIMIT)?;
        Ok::<_, anyhow::Error>((code, out + &err))
    };
    let (code, list) = inside(&["ls"])?;
    let row = list.lines().find(|line| line.starts_with(PREFIX)).unwrap_or_default();
    let pid = row.split_whitespace().nth(1);
    ensure!(code == 0 && pid == Some("-") && row.ends_with("library"), "{code}: {list}");

    let file = scratch.path("sidecar.pcapng");
    let name = file.display().to_string();
    let port = format!("{PREFIX}:0");
    let (code, said) = inside(&["capture", "-i", &port, "-c", "20", "-w", &name])?;
    ensure!(code == 0 && captured(&file)?.len() == 20, "{code}: {said}");
    let (code, said) = inside(&["leaks", "-a", testpmd.app(), "-i", "0.1"])?;
    ensure!(code == 1 && said.contains("it runs in another PID namespace"), "{code}: {said}");
    let port = format!("{}:0", testpmd.app());
    let (code, said) = inside(&["capture", "-i", &port, "-c", "20", "-w", &name])?;
    ensure!(code == 1 && said.contains("cannot be seen from here"), "{code}: {said}");
    Ok(())
}

/// With the processes of the node, and the capabilities of the manifest: it sees the apps of all pods, and
/// reports which capability is missing for the rest.
fn daemonset(scratch: &Scratch) -> Result<()> {
    let pods = [Container::start(scratch, 1)?, Container::start(scratch, 2)?];
    let (_process, linked) = reflector(scratch, &pods[0], 64)?;
    // Packets that differ: those of net_null are all the same, and are not seen.
    let packets = scratch.path("in.pcap");
    write_pcap(&packets, &numbered(500))?;
    let device = format!("net_pcap0,rx_pcap={},infinite_rx=1", packets.display());
    let setup = Setup { devices: &[&device], ..Setup::FLAT_OUT };
    let testpmd = Testpmd::start_in(scratch, &pods[1], setup)?;
    let rights = rights_of_the_daemonset();
    let limited = || -> Result<Command> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--ipc", "--uts", "sh", "-c", EMPTY_RUN, "sh", "setpriv"]);
        command.args(&rights).arg(programs::pmdscope()?);
        Ok(command)
    };
    let inside = |args: &[&str]| {
        let (code, out, err) = run(limited()?.args(args), scratch.dir(), LIMIT)?;
        Ok::<_, anyhow::Error>((code, out + &err))
    };
    let (code, list) = inside(&["ls", "--json"])?;
    let list: Value = serde_json::from_str(&list).with_context(|| list.clone())?;
    let name = |pod: &Container, pid: u32| {
        let mut apps = list["apps"].as_array().into_iter().flatten();
        let app = apps.find(|app| app["pid"] == pid && app["container"]["id"] == pod.id());
        let name = app.and_then(|app| app["app"].as_str());
        name.map(str::to_owned).with_context(|| format!("{code}: no process {pid} in {list:#}"))
    };
    let linked = name(&pods[0], linked)?;
    let stock = name(&pods[1], testpmd.pid())?;

    let mut command = limited()?;
    let exporter = Exporter::listening(
        scratch,
        "daemonset",
        command.args(["export", "--xray"]),
        free_address()?,
    )?;
    let is_counted_by = |app: &str, source: &str| {
        let scrape = exporter.scrape()?;
        let info = scrape.value("dpdk_mempool_info", &[("app", app), ("source", source)]);
        Ok::<_, anyhow::Error>(info == Some(1.0))
    };
    ensure!(is_counted_by(&linked, "library")?, "{linked}");
    wait_until("X-ray to count the pools", LIMIT, || is_counted_by(&stock, "xray"))?;

    let file = scratch.path("daemonset.pcapng");
    let to = file.display().to_string();
    let capture = |app: &str, more: &[&str]| {
        inside(&[&["capture", "-i", &format!("{app}:0"), "-w", &to], more].concat())
    };
    let (code, said) = capture(&linked, &["-c", "20"])?;
    ensure!(code == 0 && captured(&file)?.len() == 20, "{code}: {said}");
    let (code, said) = capture(&stock, &["--peek", "-c", "1", "--duration", "20"])?;
    ensure!(code == 0 && captured(&file)?.len() == 1, "{code}: {said}");
    let (code, said) = capture(&stock, &["-c", "20"])?;
    ensure!(code == 1 && said.matches("run as root with CAP_SYS_ADMIN").count() == 1, "{said}");
    Ok(())
}

/// Options of `setpriv` for the rights that `daemonset.yaml` gives.
fn rights_of_the_daemonset() -> Vec<String> {
    let added = DAEMONSET.lines().skip_while(|line| line.trim() != "add:").skip(1);
    let added = added.map(str::trim).take_while(|line| line.starts_with(['-', '#']));
    let added = added.filter_map(|line| line.strip_prefix("- "));
    let added = added.map(|name| format!("+{}", name.to_lowercase()));
    let bounds: Vec<_> = std::iter::once("-all".to_owned()).chain(added).collect();
    let bounds = format!("--bounding-set={}", bounds.join(","));
    let mut rights = vec![bounds, "--inh-caps=-all".to_owned()];
    if DAEMONSET.contains("allowPrivilegeEscalation: false") {
        rights.push("--no-new-privs".to_owned());
    }
    rights
}

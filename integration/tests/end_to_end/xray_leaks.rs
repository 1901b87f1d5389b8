//! `pmdscope leaks` on an app without libpmdscope: its text, the packets that it writes, a stopped app, and a
//! core file.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::oracle::tshark_fields;
use pmdscope_integration::process::{LIMIT, Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::stock_pipeline::{StockPipeline, StockSetup, Truth};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;

use crate::support::{
    Missing, Needs, document, missing_program, number, pmdscope, pmdscope_json, trial, trial_unless,
};
use crate::xray::pools;

const FAULT: &str = "early-return:1/16384";
const ENOUGH: u64 = 20;
const POOL: &str = "pipeline_packets";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("xray_writes_the_lost_packets", Needs::Wireshark, lost_packets),
        trial("xray_reads_a_stopped_app", Needs::Apps, stopped),
        trial("xray_is_a_finding_of_check", Needs::Apps, finding),
        trial("an_interrupt_ends_a_scan", Needs::Apps, interrupted),
        trial_unless("xray_reads_a_core_file", no_core_files(), core_file),
        trial_unless(
            "xray_says_that_a_core_file_lacks_hugepages",
            no_core_files().or_else(no_hugepages),
            core_without_hugepages,
        ),
        trial_unless(
            "leaks_says_what_it_may_not_read",
            Needs::Apps.missing().or_else(|| missing_program(&["setpriv"])),
            without_rights,
        ),
    ]
}

/// The kernel writes core files where this test finds them only if it puts them beside the app.
fn no_core_files() -> Option<Missing> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let reason = format!("kernel.core_pattern is {:?}, not core", pattern.trim());
    Needs::Apps.missing().or_else(|| (pattern.trim() != "core").then_some(Missing::Machine(reason)))
}

fn no_hugepages() -> Option<Missing> {
    let missing = || Missing::Machine("too few hugepages are free".to_owned());
    (Memory::available() == Memory::Ordinary).then(missing)
}

fn start(scratch: &Scratch) -> Result<(StockPipeline, Truth, PathBuf)> {
    start_on(scratch, Memory::Ordinary)
}

fn start_on(scratch: &Scratch, memory: Memory) -> Result<(StockPipeline, Truth, PathBuf)> {
    let summary = scratch.path("summary.json");
    let name = summary.display().to_string();
    let args = ["--fault", FAULT, "--json", &name];
    let mut app =
        StockPipeline::start(scratch, StockSetup { memory, args: &args, ..StockSetup::PLAIN })?;
    let truth = app.rest_with_lost(ENOUGH)?;
    Ok((app, truth, summary))
}

/// All lost packets of an app that cannot name them itself, and no others.
fn lost_packets(scratch: &Scratch) -> Result<()> {
    let (app, truth, summary) = start(scratch)?;
    let leaks = ["leaks", "-a", app.app(), "-i", "0.1", "--scan-interval", "0.2"];
    let text = pmdscope(scratch, &leaks, &[1])?;
    let row = text.lines().find(|line| line.starts_with(POOL)).context("no row of the pool")?;
    let lost = format!("!{}", truth.lost());
    ensure!(row.contains(&lost) && row.contains("198.18.0.1"), "not {lost} in {text}");

    let file = scratch.path("lost.pcapng");
    let name = file.display().to_string();
    let write = ["--write", &name, "-N", "4096"];
    pmdscope(scratch, &[&leaks[..], &write].concat(), &[1])?;
    let packets = tshark_fields(&file, &["frame.comment", "ip.dst"])?;
    ensure!(packets.len() as u64 == truth.lost(), "{} of {}", packets.len(), truth.lost());
    let right = |packet: &Vec<String>| {
        packet[0].starts_with("lost for at least")
            && packet[0].contains(POOL)
            && packet[1] == "198.18.0.1"
    };
    ensure!(packets.iter().all(right), "{packets:?}");
    saved(scratch, app.app(), &leaks, &truth)?;

    app.go_on()?;
    let mut app = app;
    app.process.interrupt()?;
    let summary: Value = serde_json::from_str(&fs::read_to_string(summary)?)?;
    let known = summary["faults"]["early-return"]["packets"].as_array().context("packets")?;
    ensure!(!known.is_empty(), "the app kept no packet: {summary}");
    let written = fs::read(&file)?;
    for packet in known.iter().filter_map(Value::as_str) {
        let packet = unhex(packet).context("not hexadecimal")?;
        ensure!(written.windows(packet.len()).any(|bytes| bytes == packet), "{packet:02x?}");
    }
    Ok(())
}

/// A bundle has all reports from one round of scans.
fn saved(scratch: &Scratch, app: &str, leaks: &[&str], truth: &Truth) -> Result<()> {
    let (dir, file) = (scratch.path("reports"), scratch.path("reports/lost.pcapng"));
    let (to, packets) = (dir.display().to_string(), file.display().to_string());
    let save = ["--save", &to, "--save-packets", app, &packets, "-N", "4096"];
    let printed = pmdscope(scratch, &[leaks, &save].concat(), &[1])?;
    ensure!(printed.is_empty(), "{printed}");
    let json = document(&["leaks"], &fs::read_to_string(dir.join("leaks.json"))?)?;
    ensure!(lost(&json)? == truth.lost(), "not {} in {json:#}", truth.lost());
    let text = fs::read_to_string(dir.join("leaks.txt"))?;
    ensure!(text.contains(&format!("!{} ", truth.lost())), "not {} in {text}", truth.lost());
    let explained = fs::read_to_string(dir.join("explain.txt"))?;
    ensure!(explained.contains(&format!(" {}  lost ", truth.lost())), "{explained}");
    let packets = tshark_fields(&file, &["frame.comment"])?;
    ensure!(packets.len() as u64 == truth.lost(), "{} of {}", packets.len(), truth.lost());
    Ok(())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

/// A stopped app does not answer; its memory can be read.
fn stopped(scratch: &Scratch) -> Result<()> {
    let (app, truth, _) = start(scratch)?;
    app.process.signal(Signal::STOP)?;
    let leaks = pmdscope_json(scratch, &["leaks", "-a", app.app(), "--json"], &[1]);
    app.process.signal(Signal::CONT)?;
    let leaks = leaks?;
    ensure!(leaks["apps"][0]["state"] == "lost", "{leaks:#}");
    ensure!(lost(&leaks)? == truth.lost(), "not {} in {leaks:#}", truth.lost());
    Ok(())
}

fn lost(leaks: &Value) -> Result<u64> {
    pools(&leaks["apps"][0]["scan"])?.iter().map(|pool| number(pool, "lost")).sum()
}

/// Only where it is asked for.
fn finding(scratch: &Scratch) -> Result<()> {
    let (app, truth, _) = start(scratch)?;
    let plain = pmdscope(scratch, &["check", "-a", app.app()], &[0, 1])?;
    ensure!(!plain.contains("critical: leak"), "{plain}");
    let scanned = pmdscope(scratch, &["check", "-a", app.app(), "--scan"], &[1])?;
    let words = format!("{POOL}: critical: leak: {} mbufs are lost", truth.lost());
    ensure!(scanned.contains(&words), "not {words} in {scanned}");
    Ok(())
}

/// What the kernel writes when the app is aborted, complete and without the files with the places of pools.
fn core_file(scratch: &Scratch) -> Result<()> {
    let (_app, truth, core) = aborted(scratch, Memory::Ordinary, "0x7f")?;
    let name = core.display().to_string();
    let leaks = pmdscope_json(scratch, &["leaks", "--core", &name, "--json"], &[1])?;
    ensure!(lost(&leaks)? == truth.lost(), "not {} in {leaks:#}", truth.lost());
    let explained = pmdscope(scratch, &["leaks", "--core", &name, "--explain", POOL], &[1])?;
    ensure!(explained.contains("all mbufs of the pool"), "{explained}");
    move_to_the_end_of_addresses(&core)?;
    let leaks = pmdscope_json(scratch, &["leaks", "--core", &name, "--json"], &[1])?;
    ensure!(lost(&leaks)? == truth.lost(), "not {} in {leaks:#}", truth.lost());
    fs::remove_file(core)?;

    let (_app, _, core) = aborted(scratch, Memory::Ordinary, "0x33")?;
    let name = core.display().to_string();
    let refused = pmdscope_failure(scratch, &["leaks", "--core", &name])?;
    ensure!(refused.contains("shared files (bit 3)"), "{refused}");
    Ok(())
}

/// Moves a page that the app only reads to where sums of addresses wrap, and makes it writable: a loop over it
/// would begin anew.
fn move_to_the_end_of_addresses(core: &Path) -> Result<()> {
    const HEADER_BYTES: u64 = 56;
    const LOAD_READABLE: [u8; 8] = [1, 0, 0, 0, 4, 0, 0, 0];
    let file = OpenOptions::new().read(true).write(true).open(core)?;
    let mut elf = [0; 64];
    file.read_exact_at(&mut elf, 0)?;
    let first = u64::from_le_bytes(elf[32..40].try_into()?);
    let count = u64::from(u16::from_le_bytes(elf[56..58].try_into()?));
    // The last: that of the executable tells the machine.
    for at in (0..count).rev().map(|number| first + number * HEADER_BYTES) {
        let mut header = [0; 40];
        file.read_exact_at(&mut header, at)?;
        let in_file = u64::from_le_bytes(header[32..40].try_into()?);
        if header[..8] == LOAD_READABLE && in_file > 0 && in_file <= 0x4000 {
            file.write_all_at(&6_u32.to_le_bytes(), at + 4)?;
            file.write_all_at(&(u64::MAX - 0x4fff).to_le_bytes(), at + 16)?;
            return Ok(());
        }
    }
    bail!("no page that is only read")
}

/// `^C` ends a scan at once, however long it would take.
fn interrupted(scratch: &Scratch) -> Result<()> {
    let (app, ..) = start(scratch)?;
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["leaks", "-a", app.app(), "--scan-rate", "1"]);
    let mut leaks = Process::spawn("leaks", &mut command, scratch.dir())?;
    // A thread of its own scans.
    let tasks = format!("/proc/{}/task", leaks.pid());
    wait_until("the scan", LIMIT, || Ok(fs::read_dir(&tasks)?.count() > 1))?;
    leaks.signal(Signal::INT)?;
    let begun = Instant::now();
    leaks.wait(LIMIT)?;
    ensure!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    Ok(())
}

/// Everything else is there; the sentence names the missing part, and what to do.
fn core_without_hugepages(scratch: &Scratch) -> Result<()> {
    let (_app, _, core) = aborted(scratch, Memory::Huge, "0x3b")?;
    let name = core.display().to_string();
    for more in [&[][..], &["--explain"], &["--json"], &["--write", "-"]] {
        let refused = pmdscope_failure(scratch, &[&["leaks", "--core", &name][..], more].concat())?;
        ensure!(refused.contains(" of hugepages (bit 6): before the app starts, set"), "{refused}");
        ensure!(refused.trim().lines().count() == 1 && !refused.contains("bit 3"), "{refused}");
    }
    Ok(())
}

/// The app is named, its pools are shown, and why they are not scanned; each once.
fn without_rights(scratch: &Scratch) -> Result<()> {
    let (app, ..) = start(scratch)?;
    let file = scratch.path("lost.pcapng").display().to_string();
    let leaks = |more: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]);
        command.arg(programs::pmdscope()?).args(["leaks", "-a", app.app(), "-i", "0.1"]);
        let (code, out, err) = run(command.args(more), scratch.dir(), LIMIT)?;
        ensure!(code == 1, "exit code {code}: {out}{err}");
        Ok((out, err))
    };
    let told_once = |text: &str| text.matches("CAP_SYS_PTRACE").count() == 1;
    let (out, err) = leaks(&[])?;
    ensure!(out.contains(": not scanned: may not read the memory of process"), "{out}{err}");
    let (json, _) = leaks(&["--json"])?;
    let json = document(&["leaks"], &json)?;
    let shown = &json["apps"][0];
    ensure!(shown["scan_error"].as_str().is_some_and(told_once), "{shown:#}");
    let pools = shown["pools"].as_array().context("pools")?;
    ensure!(pools.iter().any(|pool| pool["name"] == POOL), "{shown:#}");
    for more in [&["--explain"][..], &["--write", &file]] {
        let (out, err) = leaks(more)?;
        ensure!(out.is_empty() && told_once(&err) && err.trim().lines().count() == 1, "{out}{err}");
    }
    let wrong = pmdscope_failure(scratch, &["leaks", "-a", "4194305"])?;
    ensure!(wrong.contains("no DPDK app is named \"4194305\""), "{wrong}");
    Ok(())
}

fn pmdscope_failure(scratch: &Scratch, args: &[&str]) -> Result<String> {
    let mut command = Command::new(programs::pmdscope()?);
    let (code, out, err) = run(command.args(args), scratch.dir(), LIMIT)?;
    ensure!(code == 1, "{code}: {out}{err}");
    Ok(err)
}

fn aborted(
    scratch: &Scratch,
    memory: Memory,
    filter: &str,
) -> Result<(StockPipeline, Truth, PathBuf)> {
    let (mut app, truth, _) = start_on(scratch, memory)?;
    let pid = app.process.pid();
    fs::write(format!("/proc/{pid}/coredump_filter"), filter)?;
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).context("pid")?;
    let unlimited = Rlimit { current: None, maximum: None };
    prlimit(Some(process), Resource::Core, unlimited)?;
    app.process.signal(Signal::ABORT)?;
    app.process.wait(LIMIT)?;
    let mut found = None;
    wait_until("the core file", LIMIT, || {
        let files = fs::read_dir(scratch.dir())?.flatten().map(|entry| entry.path());
        let is_core = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core"))
        };
        found = files.filter(is_core).last();
        Ok(found.is_some())
    })?;
    Ok((app, truth, found.context("core file")?))
}

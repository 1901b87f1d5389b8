//! Bundles of real apps: what is in them, what they replay, and what redaction leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::disk::Disk;
use pmdscope_integration::oracle::tshark_fields;
use pmdscope_integration::pair::{Generator, Pair, PairOptions};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, Needs, await_packets, pmdscope, pmdscope_json, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_bundle_has_the_leak_and_replays_it", Needs::Wireshark, leak),
        trial("a_redacted_bundle_has_no_address_and_no_payload", Needs::Wireshark, redacted),
        trial("a_bundle_copies_a_running_recording", Needs::Apps, running_recording),
        trial("a_stopped_app_does_not_stop_a_bundle", Needs::Apps, stopped_app),
        trial("an_app_killed_during_a_bundle_is_in_it", Needs::Apps, killed_app),
        trial("an_interrupted_bundle_is_valid", Needs::Apps, interrupted),
        trial("a_killed_bundle_leaves_no_capture", Needs::Apps, killed),
        trial("a_bundle_that_cannot_be_written_leaves_nothing", Needs::Disk, unwritable),
    ]
}

/// Addresses that the generator uses.
const ADDRESSES: [[u8; 4]; 2] = [[198, 18, 0, 1], [198, 19, 0, 1]];
/// A burst of the reflector in which it loses an mbuf.
const LEAK: &str = "1/64";

/// A reflector that receives packets, and loses mbufs if `leak` is given.
fn start(scratch: &Scratch, leak: Option<&str>) -> Result<(Pair, Generator)> {
    let options = PairOptions { leak: leak.map(str::to_owned), ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    let generator = pair.generate(scratch, &["--rate", "5000", "--flows", "4", "--fill"])?;
    await_packets(pair.app(), 1000)?;
    Ok((pair, generator))
}

/// The files of a bundle, by their paths below its directory; recordings decompressed.
struct Unpacked(BTreeMap<String, Vec<u8>>);

impl Unpacked {
    fn read(bundle: &Path) -> Result<Self> {
        let file = fs::File::open(bundle)?;
        let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(file)?);
        let mut files = BTreeMap::new();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = entry.path()?.components().skip(1).collect::<PathBuf>();
            let path = path.to_str().context("a path that is not text")?.to_owned();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content)?;
            if path.starts_with("recording/") && !content.is_empty() {
                content = zstd::decode_all(&content[..])?;
            }
            files.insert(path, content);
        }
        Ok(Self(files))
    }

    fn file(&self, path: &str) -> Result<&[u8]> {
        let files = || self.0.keys().cloned().collect::<Vec<_>>().join(", ");
        let file = self.0.get(path);
        Ok(file.with_context(|| format!("no {path} in {}", files()))?)
    }

    fn index(&self) -> Result<Value> {
        Ok(serde_json::from_slice(self.file("index.json")?)?)
    }

    /// A file on disk, for other programs.
    fn save(&self, scratch: &Scratch, path: &str) -> Result<PathBuf> {
        let target = scratch.path(&path.replace('/', "-"));
        fs::write(&target, self.file(path)?)?;
        Ok(target)
    }
}

/// Collects a bundle of the app, and opens it.
fn bundle(scratch: &Scratch, app: &str, args: &[&str]) -> Result<(PathBuf, Unpacked)> {
    let path = scratch.path("incident.tar.zst");
    let target = path.to_str().context("path")?;
    let args = [&["bundle", "-a", app, "-o", target, "--for", "2s"], args].concat();
    pmdscope(scratch, &args, &[0])?;
    let unpacked = Unpacked::read(&path)?;
    nothing_beside(scratch.dir())?;
    Ok((path, unpacked))
}

/// Checks that no parts of a bundle were left in a directory.
fn nothing_beside(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        ensure!(!name.starts_with(".pmdscope-bundle-"), "{name} was left behind");
    }
    Ok(())
}

/// The app has lost mbufs, and knows where.
fn await_leak(scratch: &Scratch, app: &str) -> Result<()> {
    wait_until("lost mbufs to be named", LIMIT, || {
        Ok(pmdscope(scratch, &["leaks", "-a", app], &[0, 1])?.contains("leak.c:"))
    })?;
    Ok(())
}

fn leak(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, Some(LEAK))?;
    await_leak(scratch, pair.app())?;
    let (path, unpacked) = bundle(scratch, pair.app(), &[])?;
    let index = String::from_utf8(unpacked.file("INDEX.txt")?.to_vec())?;
    for file in unpacked.0.keys().filter(|path| !["INDEX.txt", "index.json"].contains(&&***path)) {
        // Directories are entries as well.
        let is_within_tree = file.starts_with("doctor/tree/");
        ensure!(
            file.split('/').count() == 1 || is_within_tree || index.contains(file),
            "{file} is not in {index}"
        );
    }
    ensure!(unpacked.index()?["redaction"].is_null() && index.contains("NOT REDACTED"), "{index}");
    let app = &pair.app().to_owned();
    for path in [format!("capture/{app}.pcapng"), format!("leaks/{app}.pcapng")] {
        let packets = tshark_fields(&unpacked.save(scratch, &path)?, &["ip.src", "frame.comment"])?;
        ensure!(packets.len() > 3, "{path} has {} packets", packets.len());
        let is_named = packets.iter().any(|packet| packet[1].starts_with("leak "));
        ensure!(is_named == path.starts_with("leaks/"), "{path}: {:?}", packets[0]);
    }
    for file in ["leaks.txt", "explain.txt", "leaks.json"] {
        let report = unpacked.file(&format!("leaks/{file}"))?;
        ensure!(contains(report, b"leak"), "{file}: {}", String::from_utf8_lossy(report));
    }
    let findings = String::from_utf8_lossy(unpacked.file("findings/recorded.txt")?).into_owned();
    ensure!(findings.contains(app), "{findings}");
    begins_with_the_leak(&index, app)?;
    page_has_the_leak(&unpacked, app)?;

    for (part, file) in
        [("interrupts", "interrupts/interrupts.json"), ("profile", "lcores/profile.json")]
    {
        complete_or_noted(&unpacked, part, file)?;
    }
    let live: Value = serde_json::from_slice(unpacked.file("doctor/doctor.json")?)?;

    // The app has ended by then: what is shown is what was recorded.
    drop(generator);
    drop(pair);
    let moved = scratch.path("sent-to-somebody");
    fs::rename(path, &moved)?;
    let moved = moved.to_str().context("path")?;
    let top = pmdscope(scratch, &["top", "--replay", moved, "--once"], &[0])?;
    ensure!(top.contains(app) && top.contains("leak.c:"), "{top}");
    let leaks = pmdscope(scratch, &["leaks", "--replay", moved], &[1])?;
    ensure!(leaks.contains("leak.c:"), "{leaks}");
    pmdscope_json(scratch, &["check", "--replay", moved, "--json"], &[0, 1])?;
    packets_of(scratch, moved, &unpacked, app)?;
    same_host(scratch, moved, &live)
}

/// `capture -r` and `netstat -r` read the packets of a bundle as those of the files in it.
fn packets_of(scratch: &Scratch, bundle: &str, unpacked: &Unpacked, app: &str) -> Result<()> {
    for (inside, file) in [("", "capture"), ("/capture", "capture"), ("/leaks", "leaks")] {
        let whole = format!("{bundle}{inside}");
        let counted = pmdscope(scratch, &["capture", "-r", &whole, "--count"], &[0])?;
        let file = unpacked.save(scratch, &format!("{file}/{app}.pcapng"))?;
        let packets = tshark_fields(&file, &["frame.number"])?.len();
        ensure!(counted.starts_with(&format!("{packets} packet")), "{whole}: {counted}");
    }
    let flows = pmdscope_json(scratch, &["netstat", "-r", bundle, "--json"], &[0])?;
    ensure!(flows.to_string().contains("198.18.0.1"), "{flows:#}");
    let bundled = format!("{bundle}/capture/{app}.pcapng");
    pmdscope(scratch, &["capture", "-r", &bundled, "-w", bundle], &[1])?;
    Ok(())
}

/// A file of a part is JSON, one document per line, or the index says why it is missing.
fn complete_or_noted(unpacked: &Unpacked, part: &str, file: &str) -> Result<()> {
    let index = unpacked.index()?;
    let parts = index["parts"].as_array().context("no parts")?;
    let entry = parts.iter().find(|entry| entry["part"] == part);
    let entry = entry.with_context(|| format!("no {part} in {index:#}"))?;
    if entry["status"] == "complete" {
        let documents = serde_json::Deserializer::from_slice(unpacked.file(file)?).into_iter();
        let documents = documents.collect::<Result<Vec<Value>, _>>()?;
        ensure!(documents.iter().any(Value::is_object), "{file} has no document");
        return Ok(());
    }
    let reason = entry["reason"].as_str().unwrap_or_default();
    ensure!(!reason.is_empty() && !reason.contains("Usage"), "{entry:#}");
    Ok(())
}

/// The index has the finding about an app before the files.
fn begins_with_the_leak(index: &str, app: &str) -> Result<()> {
    let (begin, _) = index.split_once("\nFILES\n").context("no files in the index")?;
    let about = format!(": {app} ");
    let is_leak = |line: &&str| line.contains(&about) && line.contains(": leak: ");
    let mut lines = begin.lines().skip_while(|line| !is_leak(line));
    ensure!(lines.next().is_some(), "the leak is not in {begin}");
    ensure!(lines.any(|line| line.starts_with("    what to do: ")), "no advice in {begin}");
    let sections = ["\nFINDINGS: ", "\nNOT ASKED\n", "\nNOT COLLECTED\n"];
    let places = sections.map(|section| begin.find(section));
    ensure!(places.iter().all(Option::is_some) && places.is_sorted(), "{begin}");
    Ok(())
}

/// The page shows an app that loses mbufs, its rates and its pools; it runs and loads nothing.
fn page_has_the_leak(unpacked: &Unpacked, app: &str) -> Result<()> {
    let page = String::from_utf8(unpacked.file("report.html")?.to_vec())?;
    let parts = [
        "default-src 'none'; style-src 'unsafe-inline'",
        "<article class=\"",
        "leak.c:",
        "<figcaption>RX packets/s</figcaption>",
        "<figcaption>Mempools, in use</figcaption>",
        &format!("<h3>{app}</h3>"),
        "Leak sites",
    ];
    for part in parts {
        ensure!(page.contains(part), "no {part} in {page}");
    }
    // Nobody draws a line of a rate that was not measured.
    let lines = page.split("class=\"line s0\" d=\"M").skip(1);
    let points = lines.map(|line| line.split('"').next().unwrap_or_default().matches('L').count());
    ensure!(points.max() >= Some(3), "no line has several points: {page}");
    for way in ["<script", "src=", "href", "http:", "https:", "://"] {
        ensure!(!page.contains(way), "{way} in {page}");
    }
    Ok(())
}

/// Checks whose result does not change while a test runs.
const LASTING_CHECKS: [&str; 5] =
    ["app_running", "telemetry", "transparent_hugepages", "hugetlbfs", "isolcpus"];

/// `doctor` reports the same about the host of a bundle as when the bundle was collected.
fn same_host(scratch: &Scratch, bundle: &str, live: &Value) -> Result<()> {
    let report = pmdscope_json(scratch, &["doctor", "--root", bundle, "--json"], &[0, 1])?;
    let statuses = |report: &Value, check: &str| {
        let results = report["results"].as_array().context("no results")?;
        let of_check = results.iter().filter(|result| result["check"] == check);
        Ok::<_, anyhow::Error>(of_check.map(|r| r["status"].clone()).collect::<Vec<_>>())
    };
    for check in LASTING_CHECKS {
        let (of_bundle, here) = (statuses(&report, check)?, statuses(live, check)?);
        ensure!(!here.is_empty() && of_bundle == here, "{check}: {report:#}, live {live:#}");
    }
    let telemetry = statuses(&report, "telemetry")?;
    ensure!(telemetry == ["pass"], "the app is not in {report:#}");
    Ok(())
}

fn redacted(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, Some(LEAK))?;
    await_leak(scratch, pair.app())?;
    let app = pair.app();
    let (_, plain) = bundle(scratch, app, &[])?;
    let (path, masked) = bundle(scratch, app, &["--redact"])?;
    drop(generator);
    let capture = format!("capture/{app}.pcapng");
    let secrets = secrets(scratch, &plain, &capture)?;
    // Otherwise the test would prove nothing.
    for secret in &secrets {
        let is_there = plain.0.values().any(|file| contains(file, secret));
        ensure!(is_there, "{secret:x?} is not in the bundle without --redact");
    }
    for (path, file) in &masked.0 {
        for secret in &secrets {
            ensure!(!contains(file, secret), "{path} has {:?}", String::from_utf8_lossy(secret));
        }
        for text in ADDRESSES.map(|octets| std::net::Ipv4Addr::from(octets).to_string()) {
            ensure!(!contains(file, text.as_bytes()), "{path} has {text}");
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        let host = host.trim();
        let is_word = host.len() > 5;
        ensure!(!is_word || !contains(file, host.as_bytes()), "{path} has {host}");
    }
    ensure!(masked.index()?["redaction"]["replaced"].is_array());
    for path in [capture, format!("leaks/{app}.pcapng")] {
        let fields = ["ip.src", "ip.dst", "frame.cap_len", "ip.checksum.status"];
        let packets = tshark_fields(&masked.save(scratch, &path)?, &fields)?;
        ensure!(packets.len() > 3, "{path} has {} packets", packets.len());
        for packet in packets {
            let length = packet[2].parse::<u32>()?;
            // Headers of Ethernet, IPv4 and UDP.
            ensure!(length == 42 && packet[0] != packet[1], "{path}: {packet:?}");
        }
    }
    let path = path.to_str().context("path")?;
    let top = pmdscope(scratch, &["top", "--replay", path, "--once"], &[0])?;
    ensure!(top.contains(app) && top.contains("leak.c:"), "{top}");
    let live: Value = serde_json::from_slice(masked.file("doctor/doctor.json")?)?;
    same_host(scratch, path, &live)
}

/// Addresses in the packets of a capture, and payloads.
fn secrets(scratch: &Scratch, plain: &Unpacked, capture: &str) -> Result<Vec<Vec<u8>>> {
    let file = plain.save(scratch, capture)?;
    let packets = tshark_fields(&file, &["eth.src", "eth.dst", "udp.payload"])?;
    let first = packets.first().context("no packets")?;
    let mut secrets: Vec<Vec<u8>> = ADDRESSES.map(|octets| octets.to_vec()).into();
    for text in &first[..2] {
        let octets = text.split(':').map(|octet| u8::from_str_radix(octet, 16));
        secrets.push(octets.collect::<Result<_, _>>()?);
    }
    let hex = first[2].replace(':', "");
    // The first bytes of all payloads of the generator.
    let octets = (0..4).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16));
    secrets.push(octets.collect::<Result<_, _>>()?);
    Ok(secrets)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn running_recording(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, None)?;
    let dir = scratch.path("recordings");
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["record", "--always", "-a", pair.app(), "-w"]).arg(&dir);
    let mut recorder = Process::spawn("recorder", &mut command, scratch.dir())?;
    let written = || {
        fs::read_dir(&dir)
            .into_iter()
            .flatten()
            .flatten()
            .find_map(|entry| (entry.metadata().ok()?.len() > 0).then(|| entry.file_name()))
    };
    wait_until("the recorder to write", LIMIT, || Ok(written().is_some()))?;
    let name = written().context("no file")?.to_string_lossy().into_owned();
    let (_, unpacked) = bundle(scratch, pair.app(), &["--packets", "0"])?;
    let name = name.trim_end_matches(".part").to_owned();
    let lines = String::from_utf8(unpacked.file(&format!("recording/{name}"))?.to_vec())?;
    let rounds = lines.lines().filter(|line| line.starts_with("{\"round\"")).count();
    // Ten a second, as the recorder makes them; five if the bundle had made them.
    ensure!(rounds > 3 && !unpacked.0.contains_key("recording/bundle.jsonl.zst"), "{rounds}");
    recorder.interrupt()?;
    drop(generator);
    Ok(())
}

/// The parts of an index that are not complete, with their reasons.
fn incomplete(index: &Value) -> Result<Vec<(String, String)>> {
    let parts = index["parts"].as_array().context("no parts")?;
    let missing = parts.iter().filter(|part| part["status"] != "complete");
    let text = |part: &Value, key: &str| part[key].as_str().unwrap_or_default().to_owned();
    Ok(missing.map(|part| (text(part, "part"), text(part, "reason"))).collect())
}

fn stopped_app(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, None)?;
    pair.reflector.signal(Signal::STOP)?;
    let bundled = bundle(scratch, pair.app(), &[]);
    pair.reflector.signal(Signal::CONT)?;
    let (_, unpacked) = bundled?;
    let missing = incomplete(&unpacked.index()?)?;
    let has_reason =
        |(part, reason): &(String, String)| part == "capture" || reason.contains("answer");
    ensure!(missing.iter().any(has_reason), "{missing:?}");
    let index = String::from_utf8_lossy(unpacked.file("INDEX.txt")?).into_owned();
    let silent = format!("\nNOT ASKED\n{}: ", pair.app());
    ensure!(index.contains(&silent) && !index.contains("has answered"), "{index}");
    let page = String::from_utf8_lossy(unpacked.file("report.html")?).into_owned();
    ensure!(page.contains(&format!("<li><b>{}</b>: ", pair.app())), "{page}");
    // Files and directories of the kernel may be empty.
    let is_ours = |path: &str| path.contains('.') && !path.starts_with("doctor/tree/");
    for (path, file) in unpacked.0.iter().filter(|(path, _)| is_ours(path)) {
        ensure!(!file.is_empty(), "{path} is empty");
    }
    // The app receives packets as before.
    let packets = telemetry::number(pair.app(), "/ethdev/stats,0", "ipackets")?;
    await_packets(pair.app(), packets)?;
    drop(generator);
    Ok(())
}

/// Starts a bundle that observes for long, and waits until it captures.
fn start_bundle(scratch: &Scratch, pair: &Pair, seconds: &str) -> Result<(PathBuf, Process)> {
    let path = scratch.path("incident.tar.zst");
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["bundle", "-a", pair.app(), "--for", seconds, "-o"]).arg(&path);
    let mut process = Process::spawn("bundle", &mut command, scratch.dir())?;
    wait_until("the bundle to capture", LIMIT, || {
        ensure!(process.exited()?.is_none(), "it ended: {}", process.output());
        Ok(captures(pair)? > 0)
    })?;
    Ok((path, process))
}

/// Captures that run in the app.
fn captures(pair: &Pair) -> Result<u64> {
    telemetry::number(pair.app(), "/pmdscope", "tee_sessions")
}

fn killed_app(scratch: &Scratch) -> Result<()> {
    let (mut pair, generator) = start(scratch, None)?;
    let (path, mut process) = start_bundle(scratch, &pair, "3s")?;
    pair.reflector.signal(Signal::KILL)?;
    pair.reflector.wait(LIMIT)?;
    process.finish(LIMIT)?;
    let unpacked = Unpacked::read(&path)?;
    let findings = String::from_utf8_lossy(unpacked.file("findings/findings.txt")?).into_owned();
    ensure!(findings.contains(pair.app()), "{findings}");
    unpacked.file("recording/bundle.jsonl.zst")?;
    ensure!(!incomplete(&unpacked.index()?)?.is_empty(), "nothing is missing of a dead app");
    drop(generator);
    Ok(())
}

fn interrupted(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, None)?;
    let (path, mut process) = start_bundle(scratch, &pair, "300s")?;
    wait_until("the first sample to be recorded", LIMIT, || has_recorded(scratch))?;
    process.signal(Signal::INT)?;
    process.finish(LIMIT)?;
    let unpacked = Unpacked::read(&path)?;
    let index = unpacked.index()?;
    ensure!(index["interrupted"] == true, "{index:#}");
    let missing = incomplete(&index)?;
    ensure!(missing.iter().any(|(_, reason)| reason == "interrupted"), "{missing:?}");
    unpacked.file(&format!("capture/{}.pcapng", pair.app()))?;
    let path = path.to_str().context("path")?;
    let top = pmdscope(scratch, &["top", "--replay", path, "--once"], &[0])?;
    ensure!(top.contains(pair.app()), "{top}");
    ensure!(captures(&pair)? == 0, "a capture was left behind");
    nothing_beside(scratch.dir())?;
    drop(generator);
    Ok(())
}

/// Whether the recording of an unfinished bundle has a round: the first is written out at once.
fn has_recorded(scratch: &Scratch) -> Result<bool> {
    for entry in fs::read_dir(scratch.dir())? {
        let part = entry?.path().join("recording/bundle.jsonl.zst.part");
        if fs::metadata(part).is_ok_and(|file| file.len() > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn killed(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, None)?;
    let (path, mut process) = start_bundle(scratch, &pair, "300s")?;
    process.signal(Signal::KILL)?;
    process.wait(LIMIT)?;
    wait_until("the captures of the bundle to end", LIMIT, || Ok(captures(&pair)? == 0))?;
    ensure!(!path.exists(), "half a bundle has a name");
    ensure!(nothing_beside(scratch.dir()).is_err(), "a killed bundle leaves its parts");
    for entry in fs::read_dir(scratch.dir())? {
        let path = entry?.path();
        if path.to_string_lossy().contains(".pmdscope-bundle-") {
            fs::File::open(path)?.set_modified(SystemTime::UNIX_EPOCH)?;
        }
    }
    // The next one removes them, even if there is nothing to collect.
    let target = path.to_str().context("path")?;
    pmdscope(scratch, &["bundle", "-a", "nobody", "-o", target, "--for", "1s"], &[0, 1])?;
    nothing_beside(scratch.dir())?;
    drop(generator);
    Ok(())
}

fn unwritable(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = start(scratch, None)?;
    let disk = Disk::mount(&scratch.path("disk"), "64k")?;
    for target in [disk.path().join("x.tar.zst"), PathBuf::from("/nonexistent/x.tar.zst")] {
        let mut command = Command::new(programs::pmdscope()?);
        command.args(["bundle", "-a", pair.app(), "--for", "1s", "-o"]).arg(&target);
        let (code, _, err) =
            pmdscope_integration::process::run(&mut command, scratch.dir(), LIMIT)?;
        ensure!(code == 1, "ended with {code}: {err}");
        let expected = format!("error: cannot write {}", target.display());
        ensure!(err.contains(&expected), "{err}");
        ensure!(!target.exists(), "{} was written", target.display());
    }
    nothing_beside(disk.path())?;
    ensure!(fs::read_dir(disk.path())?.next().is_none(), "something is left on the full disk");
    drop(generator);
    Ok(())
}

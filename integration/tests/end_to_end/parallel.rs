//! Captures with a file per lcore, merged and compared with what the generator reports as sent.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use pmdscope_integration::oracle::tshark_fields;
use pmdscope_integration::pair::{Link, Pair, PairOptions};
use pmdscope_integration::process::run;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_testing::output;
use rustix::process::Signal;

use crate::capture::{nanoseconds, sequence};
use crate::support::{LIMIT, document, number, start_capture};

pub(crate) fn files(scratch: &Scratch) -> Result<()> {
    let (whole, killed) = (scratch.path("whole"), scratch.path("killed"));
    let lcores = "1@1,2@1".to_owned();
    let options = PairOptions { link: Link::Virtio, queues: 2, lcores, ..PairOptions::default() };
    let mut pair = Pair::start(scratch, options)?;
    let arguments = ["-Q", "in", "--ring-size", "16M", "--parallel", "2", "--json"];
    let mut capture = start_capture(scratch, pair.app(), &whole, &arguments)?;
    let mut victim = start_capture(scratch, pair.app(), &killed, &arguments)?;
    let arguments = ["--rate", "20000", "--count", "20000", "--size", "80-1500"];
    let mut generator = pair.generate_and_keep_link(scratch, &arguments)?;
    generator.wait_sent(LIMIT)?;
    let report = capture.interrupt()?;
    // Packets that arrived more than some 10 ms ago are written.
    std::thread::sleep(std::time::Duration::from_millis(300));
    victim.signal(Signal::KILL)?;
    victim.wait(LIMIT)?;
    let sent = number(&pair.finish(generator, LIMIT)?, "sent")?;

    counts_are_exact(&report, sent)?;
    let app = pair.app();
    let named = |ending: &str| [1, 2].map(|lcore| format!("{app}-lcore{lcore}-1.pcapng{ending}"));
    ensure!(names(&whole)? == named(""), "{:?}", names(&whole)?);
    ensure!(names(&killed)? == named(".part"), "{:?}", names(&killed)?);
    for directory in [&whole, &killed] {
        merged_is_what_was_sent(scratch, directory, sent)?;
    }
    Ok(())
}

/// The document of `--json` is that of the schema, and its numbers add up.
fn counts_are_exact(report: &str, sent: u64) -> Result<()> {
    let line = report.lines().find(|line| line.starts_with('{')).context("no document")?;
    let document = document(&["capture", "-w"], line)?;
    ensure!(document["captured"] == sent && document["dropped"] == 0, "{sent}: {document:#}");
    let files = document["by_file"].as_array().context("by_file")?;
    let captured = files.iter().map(|file| file["captured"].as_u64().unwrap_or_default());
    let captured = captured.collect::<Vec<_>>();
    ensure!(captured.len() == 2 && captured.iter().all(|count| *count > 0), "{document:#}");
    ensure!(captured.iter().sum::<u64>() == sent, "{document:#}");
    Ok(())
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names =
        fs::read_dir(directory)?.map(|entry| Ok(name(entry?))).collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// `-r DIRECTORY` gives all packets in order of time, as many as mergecap finds.
fn merged_is_what_was_sent(scratch: &Scratch, directory: &Path, sent: u64) -> Result<()> {
    let file = scratch.path("merged.pcapng");
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-r"]).arg(directory).arg("-w").arg(&file);
    let (code, _, errors) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "{code}: {errors}");
    let fields = ["frame.time_epoch", "frame.interface_queue", "udp.payload", "frame.interface_id"];
    let packets = tshark_fields(&file, &fields)?;
    ensure!(packets.len() as u64 == sent, "{} of {sent} packets", packets.len());
    let mut last_time = 0;
    // Each queue has numbers of its own.
    let mut next_of_queue = BTreeMap::<_, u64>::new();
    for packet in &packets {
        let time = nanoseconds(&packet[0])?;
        ensure!(time >= last_time, "{time} after {last_time}");
        last_time = time;
        let (next, sequence) =
            (next_of_queue.entry(&packet[1]).or_default(), sequence(&packet[2])?);
        ensure!(sequence == *next, "{sequence} instead of {next}: {packet:?}");
        *next += 1;
        ensure!(packet[3] == "0", "a second interface: {packet:?}");
    }
    ensure!(next_of_queue.len() == 2, "{next_of_queue:?}");

    let other = scratch.path("mergecap.pcapng");
    let mut mergecap = Command::new("mergecap");
    mergecap.arg("-w").arg(&other);
    mergecap.args(names(directory)?.iter().map(|name| directory.join(name)));
    let told = output(&mut mergecap).context("no mergecap")?;
    ensure!(told.status.success(), "{told:?}");
    let count = tshark_fields(&other, &["frame.number"])?.len();
    ensure!(count as u64 == sent, "mergecap finds {count} of {sent}");
    Ok(())
}

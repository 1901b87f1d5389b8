//! The pair itself: what is sent comes back, and silence is an error.

use std::process::Command;

use anyhow::{Result, ensure};
use pmdscope_integration::pair::{Link, Pair, PairOptions, eal};
use pmdscope_integration::process::run;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};

use crate::support::{LIMIT, number};

const PACKETS: u64 = 200_000;

pub(crate) fn virtio(scratch: &Scratch) -> Result<()> {
    round_trip(scratch, Link::Virtio)
}

pub(crate) fn memif(scratch: &Scratch) -> Result<()> {
    round_trip(scratch, Link::Memif)
}

fn round_trip(scratch: &Scratch, link: Link) -> Result<()> {
    let options = PairOptions { link, queues: 2, ..PairOptions::default() };
    let mut pair = Pair::start(scratch, options)?;
    let count = PACKETS.to_string();
    let arguments = ["--rate", "100000", "--count", &count];
    let generator = pair.generate_and_keep_link(scratch, &arguments)?;
    let sent = pair.finish(generator, LIMIT)?;
    let text = std::fs::read_to_string(scratch.path("reflector.json"))?;
    let reflected: serde_json::Value = serde_json::from_str(&text)?;

    ensure!(number(&sent, "sent")? == PACKETS, "{sent}");
    ensure!(number(&sent, "received")? + number(&sent, "lost")? == PACKETS, "{sent}");
    ensure!(number(&sent, "duplicates")? == 0 && number(&sent, "reordered")? == 0, "{sent}");
    ensure!(number(&sent["pool"], "in_use_end")? == 0, "the generator kept mbufs: {sent}");
    // A packet that the generator lost must be one that the reflector could not send.
    ensure!(number(&reflected, "received")? == PACKETS, "{reflected}");
    ensure!(number(&reflected, "dropped")? == number(&sent, "lost")?, "{reflected} {sent}");
    Ok(())
}

pub(crate) fn no_ports(scratch: &Scratch) -> Result<()> {
    for program in [programs::reflector()?, programs::generator()?] {
        let mut command = Command::new(program);
        eal(&mut command, "1@1", &scratch.prefix("portless"), Memory::available());
        let (code, _, err) = run(&mut command, scratch.dir(), LIMIT)?;
        ensure!(code == 1, "exit status {code}: {err}");
        ensure!(err.contains("--vdev"), "the error does not say what to do: {err}");
    }
    Ok(())
}

//! Programs that find conversations in files, and their costs.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pmdscope_integration::machine::process_cpu_ns;
use pmdscope_integration::oracle::installed;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;

use crate::files::Traffic;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reader {
    Pmdscope,
    Tshark,
    Softflowd,
    Nfpcapd,
}

impl Reader {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pmdscope => "pmdscope netstat",
            Self::Tshark => "tshark",
            Self::Softflowd => "softflowd",
            Self::Nfpcapd => "nfpcapd",
        }
    }

    /// The programs that are installed; reports the others.
    pub(crate) fn installed() -> Vec<Self> {
        let mut all = vec![Self::Pmdscope];
        for peer in [Self::Tshark, Self::Softflowd, Self::Nfpcapd] {
            if installed(peer.name()) {
                all.push(peer);
            } else {
                println!("SKIP: {} is not installed", peer.name());
            }
        }
        all
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReaderRun {
    /// CPU time per packet, nanoseconds.
    pub(crate) cpu_ns: f64,
    /// Time by the clock per packet, nanoseconds.
    pub(crate) wall_ns: f64,
}

pub(crate) struct ReaderBench<'a> {
    pub(crate) pmdscope: &'a Path,
    pub(crate) dir: &'a Path,
}

impl ReaderBench<'_> {
    /// Runs a program on a file, and makes sure that it has seen all packets.
    pub(crate) fn read(&self, reader: Reader, traffic: &Traffic, file: &Path) -> Result<ReaderRun> {
        let flows = self.dir.join("nfpcapd");
        fs::create_dir_all(&flows)?;
        let mut command = self.command(reader, traffic, file, &flows);
        let output = self.dir.join("reader.log");
        let log = File::create(&output)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let begin = Instant::now();
        let mut child = command.spawn().with_context(|| format!("start {}", reader.name()))?;
        let pid = Pid::from_child(&child);
        // Its CPU time can be read until it is waited for.
        let waited = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let (wall, cpu) = (begin.elapsed(), process_cpu_ns(child.id()));
        let status = child.wait()?;
        waited?;
        fs::remove_dir_all(&flows)?;
        let text = fs::read_to_string(&output)?;
        ensure!(status.success(), "{} ended with {status}:\n{text}", reader.name());
        check(reader, traffic, &text)?;
        let packets = f64::from(traffic.packets);
        Ok(ReaderRun { cpu_ns: cpu? as f64 / packets, wall_ns: wall.as_nanos() as f64 / packets })
    }

    fn command(&self, reader: Reader, traffic: &Traffic, file: &Path, flows: &Path) -> Command {
        let room = (traffic.flows * 2).to_string();
        let program = match reader {
            Reader::Pmdscope => self.pmdscope.as_os_str(),
            other => other.name().as_ref(),
        };
        let mut command = Command::new(program);
        match reader {
            Reader::Pmdscope => {
                command.args(["netstat", "--json", "-N", "10", "--flows", &room, "-r"]);
                command.arg(file);
            }
            Reader::Tshark => {
                command.arg("-r").arg(file);
                command.args(["-n", "-q", "-z", "conv,tcp", "-z", "conv,udp"]);
            }
            Reader::Softflowd => {
                command.args(["-d", "-m", &room, "-n", "127.0.0.1:9", "-v", "10", "-r"]);
                command.arg(file);
                // With its control socket it may wait for ever at the end of the file.
                command.args(["-c", "none", "-p"]).arg(self.dir.join("softflowd.pid"));
            }
            Reader::Nfpcapd => {
                command.arg("-r").arg(file).arg("-l").arg(flows);
            }
        }
        command
    }
}

/// Checks the packets that a program reports.
fn check(reader: Reader, traffic: &Traffic, text: &str) -> Result<()> {
    let after = |before: &str| {
        let rest = text.lines().find_map(|line| line.split_once(before))?.1.trim_start();
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let (seen, there) = match reader {
        Reader::Pmdscope => {
            let document = serde_json::from_str::<Value>(text).context("netstat --json")?;
            (document["total"]["packets"].as_u64(), traffic.packets)
        }
        Reader::Tshark => (Some(text.matches("<->").count() as u64), traffic.flows),
        Reader::Softflowd => (after("Packets processed:"), traffic.packets),
        Reader::Nfpcapd => (after("Processed:"), traffic.packets),
    };
    ensure!(seen == Some(there.into()), "{} saw {seen:?} of {there}:\n{text}", reader.name());
    Ok(())
}

//! `pmdscope capture -r` against tcpdump: the text of packets, and their number.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use pmdscope_integration::spread::Spread;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::{Value, json};

/// What is printed of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Printed {
    Text,
    Count,
}

impl Printed {
    pub(crate) const ALL: [Self; 2] = [Self::Text, Self::Count];

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Text => &["-n"],
            Self::Count => &["-n", "--count"],
        }
    }
}

/// CPU time per packet of pmdscope and of tcpdump, nanoseconds, round by round.
pub(crate) type TextRuns = BTreeMap<Printed, Vec<[f64; 2]>>;

/// Runs both, in an order that changes with each round.
pub(crate) fn round(
    pmdscope: &Path,
    (file, packets): (&Path, u32),
    number: usize,
    runs: &mut TextRuns,
) -> Result<()> {
    for printed in Printed::ALL {
        let mut cpu = [0.0; 2];
        for at in 0..2 {
            let which = (at + number) % 2;
            let mut command = Command::new([pmdscope, Path::new("tcpdump")][which]);
            if which == 0 {
                command.arg("capture");
            }
            command.arg("-r").arg(file).args(printed.arguments());
            cpu[which] = cpu_seconds(&mut command)? * 1e9 / f64::from(packets);
        }
        runs.entry(printed).or_default().push(cpu);
    }
    Ok(())
}

/// CPU time of a program and of those that it has started, to a hundredth of a second.
fn cpu_seconds(command: &mut Command) -> Result<f64> {
    command.env("PMDSCOPE_CONFIG", "none");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
    // Its times can be read until it is waited for.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let waited = waitid(WaitId::Pid(Pid::from_child(&child)), options);
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()));
    let status = child.wait()?;
    waited?;
    ensure!(status.success(), "{command:?} ended with {status}");
    // Behind the name: state, ten numbers, times of the process and of its children.
    let stat = stat?;
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let times = fields.split_whitespace().skip(11).take(4);
    let ticks = times.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

pub(crate) fn table(runs: &TextRuns) -> String {
    let mut out = String::from(
        "\nCPU time of whole runs with their children, output to /dev/null; median (quartiles) of the \
         rounds.\n\n| | pmdscope ns/packet | tcpdump ns/packet | ratio |\n|---|---|---|---|\n",
    );
    for (printed, samples) in runs {
        let [ours, theirs] = [0, 1].map(|at| Spread::of(samples.iter().map(|cpu| cpu[at])));
        let words = printed.arguments().join(" ");
        let _ = writeln!(
            out,
            "| `capture -r FILE {words}` | {ours:.0} | {theirs:.0} | {:.2} |",
            ratio(samples)
        );
    }
    out
}

fn ratio(samples: &[[f64; 2]]) -> Spread {
    Spread::of(samples.iter().map(|[ours, theirs]| ours / theirs))
}

pub(crate) fn json(runs: &TextRuns) -> Value {
    let of = |(printed, samples): (&Printed, &Vec<[f64; 2]>)| {
        let Spread { low, median, high } = ratio(samples);
        json!({ "arguments": printed.arguments(), "cpu_ratio": [low, median, high] })
    };
    runs.iter().map(of).collect()
}

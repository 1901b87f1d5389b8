//! Tables of medians and quartiles.

use std::collections::BTreeMap;
use std::fmt::Write;

use pmdscope_integration::spread::Spread;
use serde_json::{Value, json};

use crate::cost::Load;
use crate::readers::{Reader, ReaderRun};
use crate::text::{self, TextRuns};

/// All measurements.
#[derive(Debug, Default)]
pub(crate) struct FlowResults {
    /// By file and program.
    pub(crate) files: BTreeMap<(String, Reader), Vec<ReaderRun>>,
    /// Cycles per packet without a load, and those that the others add.
    pub(crate) costs: BTreeMap<Load, Vec<f64>>,
    /// Text and counts, with those of tcpdump.
    pub(crate) texts: TextRuns,
}

impl FlowResults {
    fn cpu(&self, file: &str, reader: Reader) -> Vec<f64> {
        let samples = self.files.get(&(file.to_owned(), reader));
        samples.into_iter().flatten().map(|sample| sample.cpu_ns).collect()
    }

    /// Ratio to the CPU time of pmdscope, round by round.
    fn ratio(&self, file: &str, reader: Reader) -> Spread {
        let (theirs, ours) = (self.cpu(file, reader), self.cpu(file, Reader::Pmdscope));
        Spread::of(theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours))
    }
}

fn wall(samples: &[ReaderRun]) -> Spread {
    Spread::of(samples.iter().map(|sample| sample.wall_ns))
}

pub(crate) fn files(results: &FlowResults) -> String {
    let mut out = String::from(
        "\nWhole runs, start and output included; median (quartiles) of the rounds.\n\n\
         | file | program | CPU ns/packet | wall ns/packet | packets/s per core | CPU of pmdscope |\n\
         |---|---|---|---|---|---|\n",
    );
    for ((file, reader), samples) in &results.files {
        let cpu = Spread::of(results.cpu(file, *reader));
        let rate = 1e9 / cpu.median;
        let _ = writeln!(
            out,
            "| {file} | {} | {cpu:.0} | {:.0} | {rate:.0} | {:.1} times |",
            reader.name(),
            wall(samples),
            results.ratio(file, *reader),
        );
    }
    out
}

pub(crate) fn costs(results: &FlowResults) -> String {
    let mut out = String::from(
        "\nCycles of the app per packet of 64 bytes at 1 Mpps: those of nothing attached, and what others \
         add.\n\n| attached | cycles/packet |\n|---|---|\n",
    );
    for (load, cycles) in &results.costs {
        let _ = writeln!(out, "| {} | {} |", load.label(), Spread::of(cycles.iter().copied()));
    }
    out
}

pub(crate) fn json(results: &FlowResults) -> Value {
    let spread = |spread: Spread| json!([spread.low, spread.median, spread.high]);
    let files = results.files.iter().map(|((file, reader), samples)| {
        json!({
            "file": file,
            "program": reader.name(),
            "cpu_ns_per_packet": spread(Spread::of(results.cpu(file, *reader))),
            "wall_ns_per_packet": spread(wall(samples)),
            "cpu_ratio": spread(results.ratio(file, *reader)),
        })
    });
    let costs = results.costs.iter().map(|(load, cycles)| {
        json!({
            "attached": load.label(),
            "cycles_per_packet": spread(Spread::of(cycles.iter().copied())),
        })
    });
    let texts = text::json(&results.texts);
    json!({ "files": files.collect::<Vec<_>>(), "costs": costs.collect::<Vec<_>>(), "texts": texts })
}

//! The numbers, and their presentation.

use std::fmt::Write;

use pmdscope_integration::spread::Spread;
use serde_json::{Value, json};

use crate::rounds::Window;

/// One pass over the whole memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanCost {
    /// Passes over the memory; the other values are per pass, including its share of the list of
    /// objects.
    pub(crate) passes: f64,
    pub(crate) ms: f64,
    pub(crate) cpu_ms: f64,
    /// Memory that was searched.
    pub(crate) bytes: f64,
}

/// Results for one pool.
#[derive(Debug, Default)]
pub(crate) struct CaseResults {
    /// Pages that contain the app's mbufs.
    pub(crate) memory: &'static str,
    pub(crate) count_ms: Vec<f64>,
    pub(crate) count_cpu_ms: Vec<f64>,
    /// At full speed.
    pub(crate) scans: Vec<ScanCost>,
    /// The reads of a pass only.
    pub(crate) reads_ms: Vec<f64>,
    /// CPU time of the forwarding lcore, by window.
    pub(crate) ns_per_packet: Vec<[f64; Window::ALL.len()]>,
}

impl CaseResults {
    fn scans(&self, of: impl Fn(&ScanCost) -> f64) -> Spread {
        Spread::of(self.scans.iter().map(of))
    }

    /// Time per packet in these windows, divided by that of quiet ones of the same round.
    fn ratio(&self, window: Window) -> Spread {
        Spread::of(self.ns_per_packet.iter().map(|ns| ns[window as usize] / ns[0]))
    }

    /// GB/s of the reads of a scan without the scan: the searched memory, and the headers of mbufs.
    fn ceiling(&self) -> Spread {
        let bytes = self.scans(|scan| scan.bytes).median;
        Spread::of(self.reads_ms.iter().map(|ms| bytes / 1e6 / ms))
    }

    fn rows(&self) -> [(&'static str, Spread); 13] {
        [
            ("count of all pools and rings, ms", Spread::of(self.count_ms.iter().copied())),
            ("CPU of a count, ms", Spread::of(self.count_cpu_ms.iter().copied())),
            ("memory searched, MB", self.scans(|scan| scan.bytes / 1e6)),
            ("scan at full speed, ms", self.scans(|scan| scan.ms)),
            ("rate of a scan, GB/s", self.scans(|scan| scan.bytes / 1e6 / scan.ms)),
            ("its reads alone, ms", Spread::of(self.reads_ms.iter().copied())),
            ("rate of its reads alone, GB/s", self.ceiling()),
            ("CPU of a scan, s per GB", self.scans(|scan| scan.cpu_ms * 1e6 / scan.bytes)),
            ("app: ns per packet", Spread::of(self.ns_per_packet.iter().map(|ns| ns[0]))),
            ("app: the same again, ratio", self.ratio(Window::QuietAgain)),
            ("app: scans at 500 MB/s, ratio", self.ratio(Window::Paced)),
            ("app: scans at full speed, ratio", self.ratio(Window::FullSpeed)),
            ("app: capture --peek, ratio", self.ratio(Window::Peek)),
        ]
    }
}

/// By pool, in the order of measurement.
#[derive(Debug, Default)]
pub(crate) struct ScanResults {
    cases: Vec<(&'static str, CaseResults)>,
}

impl ScanResults {
    pub(crate) fn of(&mut self, name: &'static str) -> &mut CaseResults {
        let known = self.cases.iter().position(|(case, _)| *case == name);
        let index = known.unwrap_or_else(|| {
            self.cases.push((name, CaseResults::default()));
            self.cases.len() - 1
        });
        &mut self.cases[index].1
    }

    /// Empty for a pool that was not measured.
    pub(crate) fn text(&self, name: &str) -> String {
        let Some((_, case)) = self.cases.iter().find(|(case, _)| *case == name) else {
            return String::new();
        };
        let mut text = format!("\n{name} mbufs, {}:\n", case.memory);
        for (label, spread) in case.rows() {
            let _ = writeln!(text, "  {label:<34} {spread:.3}");
        }
        text
    }

    /// A row for each pool, in the format of docs/benchmarks.md.
    pub(crate) fn table(&self) -> String {
        let mut text = String::from(
            "\n| mbufs | count, ms | searched, MB | scan, ms | GB/s | reads alone, GB/s | CPU, ms | \
             app: no scan again | scans at 500 MB/s | at full speed | `--peek` |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for (name, case) in &self.cases {
            let count = Spread::of(case.count_ms.iter().copied()).median;
            let searched = case.scans(|scan| scan.bytes / 1e6).median;
            let rate = case.scans(|scan| scan.bytes / 1e6 / scan.ms).median;
            let _ = writeln!(
                text,
                "| {name}, {} | {count:.3} | {searched:.0} | {:.0} | {rate:.1} | {:.1} | {:.0} | {:.3} | \
                 {:.3} | {:.3} | {:.3} |",
                case.memory,
                case.scans(|scan| scan.ms),
                case.ceiling().median,
                case.scans(|scan| scan.cpu_ms).median,
                case.ratio(Window::QuietAgain),
                case.ratio(Window::Paced),
                case.ratio(Window::FullSpeed),
                case.ratio(Window::Peek),
            );
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let cases = self.cases.iter().map(|(name, case)| {
            let scans = case.scans.iter().map(|scan| json!([scan.ms, scan.cpu_ms, scan.bytes]));
            json!({
                "pool": name,
                "memory": case.memory,
                "count_ms": case.count_ms,
                "count_cpu_ms": case.count_cpu_ms,
                "scans_ms_cpu_ms_bytes": scans.collect::<Vec<_>>(),
                "reads_ms": case.reads_ms,
                "ns_per_packet": case.ns_per_packet,
            })
        });
        cases.collect()
    }
}

//! Tables of medians with extremes, and all rounds as CSV and JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use pmdscope_integration::spread::Spread;
use serde_json::{Value, json};

use crate::pair::Run;
use crate::plan::{BASELINE, Load, System};
use crate::sample::{Drops, Window};

/// Results of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunResult {
    pub(crate) round: usize,
    pub(crate) window: Window,
    pub(crate) drops: Drops,
    pub(crate) sent: f64,
    pub(crate) received: f64,
    /// Seconds of sending.
    pub(crate) duration: f64,
    /// Nanoseconds: p50, p99, p99.9 and maximum.
    pub(crate) latency: [f64; 4],
}

pub(crate) const LATENCIES: [&str; 4] = ["p50", "p99", "p99_9", "max"];

impl RunResult {
    pub(crate) fn new(round: usize, run: &Run) -> Result<Self> {
        let number = |value: &Value, name: &str| {
            value[name].as_f64().with_context(|| format!("no number {name} in {}", run.summary))
        };
        let latency = &run.summary["latency_ns"];
        Ok(Self {
            round,
            window: run.window,
            drops: run.drops,
            sent: number(&run.summary, "sent")?,
            received: number(&run.summary, "received")?,
            duration: number(&run.summary, "duration_s")?,
            latency: [
                number(latency, LATENCIES[0])?,
                number(latency, LATENCIES[1])?,
                number(latency, LATENCIES[2])?,
                number(latency, LATENCIES[3])?,
            ],
        })
    }

    /// Packets per second that came back.
    pub(crate) fn rate(&self) -> f64 {
        self.received / self.duration
    }

    /// Share of the packets that did not come back.
    pub(crate) fn loss(&self) -> f64 {
        1.0 - self.received / self.sent
    }

    /// CPU time of both sides and of softirq threads per packet that came back, nanoseconds.
    pub(crate) fn cpu_ns(&self) -> f64 {
        let window = &self.window;
        (window.generator + window.reflector + window.softirq.unwrap_or(0.0)) * 1e9 / self.rate()
    }

    /// The same for the reflector alone.
    pub(crate) fn reflector_ns(&self) -> f64 {
        self.window.reflector * 1e9 / self.rate()
    }
}

/// All measurements.
#[derive(Debug, Default)]
pub(crate) struct CompareResults {
    pub(crate) samples: BTreeMap<(Load, System), Vec<RunResult>>,
    /// CPU of the reflector without traffic.
    pub(crate) idle: BTreeMap<System, Vec<f64>>,
    /// Systems that cannot run here, with the reason.
    pub(crate) missing: BTreeMap<System, String>,
}

impl CompareResults {
    pub(crate) fn of(&self, load: Load, system: System) -> &[RunResult] {
        self.samples.get(&(load, system)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn spread(
        &self,
        load: Load,
        system: System,
        of: impl Fn(&RunResult) -> f64,
    ) -> Spread {
        range(self.of(load, system).iter().map(of))
    }

    /// Ratio to the baseline, round by round.
    fn ratio(&self, load: Load, system: System, of: impl Fn(&RunResult) -> f64) -> Spread {
        let by_round = |system| {
            let samples = self.of(load, system).iter();
            samples.map(|sample| (sample.round, of(sample))).collect::<BTreeMap<_, _>>()
        };
        let (base, ours) = (by_round(BASELINE), by_round(system));
        range(ours.iter().filter_map(|(round, ours)| Some(ours / base.get(round)?)))
    }
}

/// Median and extremes, as quartiles of few rounds mean little.
fn range(values: impl Iterator<Item = f64>) -> Spread {
    let values = values.collect::<Vec<_>>();
    let low = values.iter().copied().fold(f64::NAN, f64::min);
    let high = values.iter().copied().fold(f64::NAN, f64::max);
    Spread { low, high, ..Spread::of(values) }
}

/// One table for each load.
pub(crate) fn tables(results: &CompareResults, systems: &[System]) -> String {
    let mut out = format!(
        "\nMedian (lowest to highest) of the rounds. Ratios are to \"{}\", round by round. CPU: 100 % is a core, \
         gen + refl + threads of softirqs.\n",
        BASELINE.label()
    );
    for load in Load::ALL {
        let _ = write!(
            out,
            "\n{}\n\n\
             | system | kpps back | ratio | lost % | CPU % | CPU ns/packet | ratio | p50 us | p99 us | p99.9 us | max us |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
            load.label()
        );
        for &system in systems {
            row(&mut out, results, load, system);
        }
    }
    out
}

/// CPU time of a reflector without traffic.
pub(crate) fn idle(results: &CompareResults, systems: &[System]) -> String {
    let mut out = String::from("\nNo traffic\n\n| system | CPU % of the reflector |\n|---|---|\n");
    for system in systems {
        if let Some(shares) = results.idle.get(system) {
            let spread = range(shares.iter().map(|share| share * 100.0));
            let _ = writeln!(out, "| {} | {spread:.0} |", system.label());
        }
    }
    out
}

fn row(out: &mut String, results: &CompareResults, load: Load, system: System) {
    if results.of(load, system).is_empty() {
        let _ = writeln!(out, "| {} | not available here |||||||||", system.label());
        return;
    }
    let spread = |of: fn(&RunResult) -> f64| results.spread(load, system, of);
    let median = |of: fn(&RunResult) -> f64| spread(of).median;
    let softirq = match median(|sample| sample.window.softirq.unwrap_or(f64::NAN)) {
        share if share.is_nan() => "unknown".to_owned(),
        share => format!("{:.0}", share * 100.0),
    };
    let _ = writeln!(
        out,
        "| {} | {:.0} | {:.2} | {} | {:.0} + {:.0} + {softirq} | {:.0} | {:.2} | {:.1} | {:.1} | {:.1} | {:.0} |",
        system.label(),
        spread(|sample| sample.rate() / 1e3),
        results.ratio(load, system, RunResult::rate).median,
        lost(results, load, system),
        median(|sample| sample.window.generator * 100.0),
        median(|sample| sample.window.reflector * 100.0),
        spread(RunResult::cpu_ns),
        results.ratio(load, system, RunResult::cpu_ns).median,
        spread(|sample| sample.latency[0] / 1e3),
        median(|sample| sample.latency[1] / 1e3),
        median(|sample| sample.latency[2] / 1e3),
        median(|sample| sample.latency[3] / 1e3),
    );
}

/// The share that was lost, and where the kernel reports drops.
fn lost(results: &CompareResults, load: Load, system: System) -> String {
    let share = results.spread(load, system, |sample| sample.loss() * 100.0);
    let sum = |of: fn(&RunResult) -> u64| results.of(load, system).iter().map(of).sum::<u64>();
    let mut places = Vec::new();
    if sum(|sample| sample.drops.sockets) > 0 {
        places.push("receive buffer");
    }
    if sum(|sample| sample.drops.backlog) > 0 {
        places.push("backlog");
    }
    let places = if places.is_empty() { String::new() } else { format!(": {}", places.join(", ")) };
    format!("{share:.2}{places}")
}

/// Every run, one line each.
pub(crate) fn csv(results: &CompareResults) -> String {
    let mut out = String::from(
        "round,system,size,rate_asked,duration_s,sent,received,pps_back,loss,generator_cpu,reflector_cpu,\
         softirq_cpu,cpu_ns_per_packet,reflector_ns_per_packet,p50_ns,p99_ns,p99_9_ns,max_ns,\
         receive_buffer_drops,backlog_drops\n",
    );
    for ((load, system), samples) in &results.samples {
        for sample in samples {
            let softirq =
                sample.window.softirq.map_or(String::new(), |share| format!("{share:.4}"));
            let [p50, p99, p99_9, max] = sample.latency;
            let _ = writeln!(
                out,
                "{},\"{}\",{},{},{:.3},{},{},{:.0},{:.6},{:.4},{:.4},{softirq},{:.1},{:.1},{p50},{p99},{p99_9},{max},{},{}",
                sample.round,
                system.label(),
                load.size,
                load.rate,
                sample.duration,
                sample.sent,
                sample.received,
                sample.rate(),
                sample.loss(),
                sample.window.generator,
                sample.window.reflector,
                sample.cpu_ns(),
                sample.reflector_ns(),
                sample.drops.sockets,
                sample.drops.backlog,
            );
        }
    }
    out
}

pub(crate) fn json(results: &CompareResults, machine: &str) -> Value {
    let spread = |spread: Spread| json!([spread.low, spread.median, spread.high]);
    let rows = results.samples.keys().map(|&(load, system)| {
        let of = |of: fn(&RunResult) -> f64| spread(results.spread(load, system, of));
        json!({
            "system": system.label(),
            "size": load.size,
            "rate_asked": load.rate,
            "rounds": results.of(load, system).len(),
            "pps_back": of(RunResult::rate),
            "pps_ratio": spread(results.ratio(load, system, RunResult::rate)),
            "loss": of(RunResult::loss),
            "generator_cpu": of(|sample| sample.window.generator),
            "reflector_cpu": of(|sample| sample.window.reflector),
            "softirq_cpu": of(|sample| sample.window.softirq.unwrap_or(f64::NAN)),
            "cpu_ns_per_packet": of(RunResult::cpu_ns),
            "cpu_ratio": spread(results.ratio(load, system, RunResult::cpu_ns)),
            "p50_ns": of(|sample| sample.latency[0]),
            "p99_ns": of(|sample| sample.latency[1]),
            "p99_9_ns": of(|sample| sample.latency[2]),
            "max_ns": of(|sample| sample.latency[3]),
        })
    });
    let idle = results.idle.iter().map(|(system, shares)| {
        let shares = spread(range(shares.iter().copied()));
        json!({ "system": system.label(), "reflector_cpu": shares })
    });
    let missing =
        results.missing.iter().map(|(system, why)| json!({ "system": system.label(), "why": why }));
    json!({
        "machine": machine,
        "baseline": BASELINE.label(),
        "results": rows.collect::<Vec<_>>(),
        "idle": idle.collect::<Vec<_>>(),
        "missing": missing.collect::<Vec<_>>(),
    })
}

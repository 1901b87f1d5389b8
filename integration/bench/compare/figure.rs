//! The figure: rates at the highest load, CPU per packet, and latencies at the same rate.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::plan::{FIXED_RATE, Load, System};
use crate::report::CompareResults;

const SIZES: [u32; 2] = [64, 1500];

/// Writes `compare.svg` and `compare.png`. Returns the reason if gnuplot is missing.
pub(crate) fn draw(
    results: &CompareResults,
    systems: &[System],
    about: &str,
    dir: &Path,
) -> Result<Option<&'static str>> {
    if Command::new("gnuplot").arg("--version").output().is_err() {
        return Ok(Some("gnuplot is not installed: `make setup` installs it"));
    }
    let data = dir.join("compare.dat");
    std::fs::write(&data, table(results, systems)).with_context(|| data.display().to_string())?;
    for (terminal, name) in [
        ("svg size 1000,1150 font 'sans,12' background 'white'", "compare.svg"),
        ("pngcairo size 1000,1150 font 'sans,10'", "compare.png"),
    ] {
        let script = script(terminal, &dir.join(name), &data, systems.len(), about);
        let out = Command::new("gnuplot").arg("-e").arg(script).output().context("gnuplot")?;
        let told = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "gnuplot {name}: {}", told.trim());
    }
    Ok(None)
}

/// A line for each system: label, then for each size rate (with extremes), CPU (the same) and latencies.
fn table(results: &CompareResults, systems: &[System]) -> String {
    let mut out = String::new();
    for &system in systems {
        let _ = write!(out, "\"{}\"", system.label());
        for size in SIZES {
            let (most, fixed) = (Load { size, rate: 0 }, Load { size, rate: FIXED_RATE });
            let rate = results.spread(most, system, |sample| sample.rate() / 1e6);
            let cpu = results.spread(most, system, crate::report::RunResult::cpu_ns);
            for spread in [rate, cpu] {
                let _ = write!(out, " {:e} {:e} {:e}", spread.median, spread.low, spread.high);
            }
            for index in 0..4 {
                let latency = results.spread(fixed, system, |sample| sample.latency[index] / 1e3);
                let _ = write!(out, " {:e}", latency.median);
            }
        }
        out.push('\n');
    }
    out
}

fn script(terminal: &str, file: &Path, data: &Path, rows: usize, about: &str) -> String {
    let (file, data) = (file.display(), data.display());
    // Columns of a size begin at 2 and 12: rate 3, CPU 3, latencies 4.
    let bars = |column: u32, label: &str| {
        format!(
            "plot '{data}' using ($0-0.17):{}:{}:{}:(0.32) with boxerrorbars lc rgb '#4477aa' title '64 B{label}', \
             '' using ($0+0.17):{}:{}:{}:(0.32):xtic(1) with boxerrorbars lc rgb '#ee6677' title '1500 B{label}';",
            column,
            column + 1,
            column + 2,
            column + 10,
            column + 11,
            column + 12
        )
    };
    let marks = [
        ("p50", "#4477aa", 7),
        ("p99", "#228833", 9),
        ("p99.9", "#ccbb44", 5),
        ("max", "#ee6677", 13),
    ];
    let points = marks.iter().zip(8..).map(|((name, color, shape), column)| {
        format!("'{data}' using 0:{column}:xtic(1) with points pt {shape} ps 1.3 lc rgb '{color}' title '{name}'")
    });
    let points = points.collect::<Vec<_>>().join(", ");
    format!(
        "set terminal {terminal}; set output '{file}'; \
         set multiplot layout 3,1 title 'Kernel against bypass: {about}' noenhanced; \
         set grid y; set logscale y; set lmargin 10; set rmargin 14; set style fill solid 0.8; \
         set xrange [-0.6:{rows}-0.4]; set xtics rotate by -20 noenhanced font ',9'; set key outside right top; \
         set ylabel 'Mpps back'; set title 'highest rate'; {rates} \
         set ylabel 'CPU ns per packet'; set title 'highest rate, both sides and softirqs'; {cpu} \
         set ylabel 'round trip, us'; set title '64 B at {rate} kpps'; set yrange [0.5:*]; plot {points}; \
         unset multiplot",
        rates = bars(2, ""),
        cpu = bars(5, ""),
        rate = FIXED_RATE / 1000,
    )
}

//! `make bench-pair` and `make plots` run to their end, and print or draw what they promise.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::run;
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};

use crate::support::{LIMIT, Missing, Needs, missing_program, trial_unless};

pub(crate) fn trials() -> Vec<Trial> {
    let plotter = || Needs::Apps.missing().or_else(|| missing_program(&["gnuplot", "python3"]));
    vec![
        trial_unless("the_pair_benchmark_prints_its_tables", without_benchmark(), benchmark),
        trial_unless("a_run_of_the_generator_is_drawn", plotter(), plots),
    ]
}

fn without_benchmark() -> Option<Missing> {
    let few = "fewer than 256 free hugepages".to_owned();
    let hugepages = || (Memory::available() == Memory::Ordinary).then_some(Missing::Machine(few));
    let programs = || missing_program(&["dpdk-testpmd", "setsid"]);
    Needs::Apps.missing().or_else(programs).or_else(hugepages)
}

/// One size, one round: each link has a line for both reflectors of testpmd in the first and the second
/// table and one in the third, with packets in it.
fn benchmark(scratch: &Scratch) -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope-bench-pair"));
    command.args(["--rounds", "1", "--hold", "1", "--attempts", "1", "--only", "64"]);
    let (code, out, err) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "exit status {code}: {out}{err}");
    for link in ["memif", "vhost"] {
        let begin = format!("| {link} | 64 B | ");
        let lines: Vec<Vec<&str>> = out
            .lines()
            .filter_map(|line| line.strip_prefix(&begin))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        let [macswap, five_tuple, steady @ .., held] = &lines[..] else { anyhow::bail!("{out}") };
        let modes = [macswap, five_tuple].into_iter().chain(steady).map(|line| line[0]);
        ensure!(modes.eq(["macswap", "5tswap", "macswap", "5tswap"]), "{link}: {out}");
        for rate in [&macswap[1..3], &five_tuple[1..3]].concat() {
            let median = rate.split(' ').next().and_then(|text| text.parse().ok());
            ensure!(median > Some(0.0), "{rate}: {out}");
        }
        let sent = held.get(3).context("no packets sent")?.replace(',', "");
        ensure!(sent.parse::<u64>()? > 0, "{out}");
    }
    Ok(())
}

/// The CSV and the histograms of a short run become pictures in both formats.
fn plots(scratch: &Scratch) -> Result<()> {
    let dir = scratch.path("plots");
    let mut command = Command::new(programs::root().join("integration/plots/plots.sh"));
    let generator = programs::generator()?;
    let build = generator.ancestors().nth(2).context("no build directory")?;
    command.arg("-o").arg(&dir).env("BUILD", build);
    command.env("PLOT_SECONDS", "1").env("PLOT_RATE", "20k");
    let (code, out, err) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "exit status {code}: {out}{err}");
    for file in ["run.csv", "run.hlog", "run.json"] {
        ensure!(fs::metadata(dir.join(file))?.len() > 0, "{file} is empty: {err}");
    }
    for name in ["rate", "loss", "latency", "latency_distribution", "inter_departure"] {
        for (format, begin) in [("svg", &b"<?xml"[..]), ("png", &b"\x89PNG"[..])] {
            let file = dir.join(format!("{name}.{format}"));
            let picture = fs::read(&file).with_context(|| format!("{}: {out}", file.display()))?;
            ensure!(picture.starts_with(begin), "{}: {err}", file.display());
        }
    }
    Ok(())
}

//! The command line of a benchmark: options, help, wrong usage, failure.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

/// The options of a benchmark. Each benchmark accepts some of them.
#[derive(Debug, Default)]
pub struct BenchOptions {
    /// `--quick`: fewer packets and rounds.
    pub quick: bool,
    /// `--rounds`: how often everything is measured.
    pub rounds: Option<usize>,
    /// `--hold`: seconds at a set rate.
    pub hold: Option<u64>,
    /// `--attempts`: how often a set rate is tried that is not reached.
    pub attempts: Option<usize>,
    /// `--descriptors`: packets that a queue holds.
    pub descriptors: Option<u32>,
    /// `--only`: one part of the benchmark.
    pub only: Option<String>,
    /// `--fifo`: real-time priority.
    pub fifo: bool,
    /// `--json`: a file for the results.
    pub json: Option<PathBuf>,
    /// `--output`: a directory for the results.
    pub output: Option<PathBuf>,
    /// `--pmdscope`: the program to measure.
    pub pmdscope: Option<PathBuf>,
    /// `--app`: the DPDK app.
    pub app: Option<PathBuf>,
    /// Arguments after `--`.
    pub args: Vec<String>,
}

impl BenchOptions {
    /// Reads the options `accepted` of a benchmark whose parts are `parts`; `None` for `--help`.
    fn parse(
        accepted: &[&str],
        parts: &[&str],
        mut words: impl Iterator<Item = String>,
    ) -> Result<Option<Self>> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} without a value"));
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                unknown if !accepted.contains(&unknown) => bail!("unknown option {word}"),
                "--quick" => options.quick = true,
                "--rounds" => options.rounds = Some(value()?.parse().context("--rounds")?),
                "--hold" => options.hold = Some(value()?.parse().context("--hold")?),
                "--attempts" => options.attempts = Some(value()?.parse().context("--attempts")?),
                "--descriptors" => {
                    options.descriptors = Some(value()?.parse().context("--descriptors")?);
                }
                "--only" => options.only = Some(value()?),
                "--fifo" => options.fifo = true,
                "--json" => options.json = Some(value()?.into()),
                "--output" => options.output = Some(value()?.into()),
                "--pmdscope" => options.pmdscope = Some(value()?.into()),
                "--app" => options.app = Some(value()?.into()),
                "--" => options.args = words.by_ref().collect(),
                _ => bail!("unknown option {word}"),
            }
        }
        let only = options.only.as_deref();
        let known = only.is_none_or(|only| parts.contains(&only));
        ensure!(known, "--only is {}", parts.join(" or "));
        ensure!(options.rounds != Some(0), "--rounds is at least 1");
        ensure!(options.attempts != Some(0), "--attempts is at least 1");
        Ok(Some(options))
    }
}

/// Runs a benchmark with its options, or prints `help`. Exit code 2 is wrong usage, 1 failure.
pub fn main(
    name: &str,
    help: &str,
    accepted: &[&str],
    parts: &[&str],
    run: impl FnOnce(&BenchOptions) -> Result<()>,
) -> ExitCode {
    let options = match BenchOptions::parse(accepted, parts, std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{help}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{name}: {error:#}; see --help");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

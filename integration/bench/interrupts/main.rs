//! `make bench-interrupts`: the time that `pmdscope interrupts` takes from the poll loop that it
//! traces.
//!
//! One app polls; another process interrupts its CPU at a steady rate. Iterations of the poll loop
//! are counted alternately with and without the tracer. The numbers are informative: a slow machine
//! does not count as a failure.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pmdscope_integration::command::{self, BenchOptions};
use pmdscope_integration::machine::{Machine, Priority};
use pmdscope_integration::pair::reflector;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::spread::Spread;
use pmdscope_integration::telemetry;
use pmdscope_integration::tracefs::{try_bpftrace, with_tracefs};
use rustix::process::Signal;
use serde_json::Value;

const HELP: &str = "\
Usage: pmdscope-bench-interrupts [options]

Measures what `pmdscope interrupts` takes from the poll loop that it watches, per event, on CPUs 0 and
1. Needs root, two CPUs and bpftrace; without them it says so and ends with status 0. Ten minutes.

  --quick           four minutes
  --rounds N        so many rounds (11; with --quick 5)
  --only LOAD       ticks, timer or ipi: with the ticks of the kernel alone, with 1,000 interrupts of
                    the timer per second in addition, or with 10,000 from the other CPU
  --pmdscope FILE   the pmdscope to measure (target/release/pmdscope)
";

/// Interrupts of the poll core in addition to its kernel's ticks: the mode of the thief that raises
/// them, and the time between two, microseconds.
const LOADS: [(&str, &str, Option<u64>); 3] = [
    ("ticks", "ticks alone", None),
    ("timer", "1,000 timer interrupts/s in addition, as of 1000 Hz ticks", Some(1000)),
    ("ipi", "10,000 IPIs/s in addition", Some(50)),
];

/// Duration of a count of iterations.
const WINDOW: Duration = Duration::from_secs(4);

const START: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let options = ["--quick", "--rounds", "--only", "--pmdscope"];
    let loads = LOADS.map(|(mode, ..)| mode);
    command::main("pmdscope-bench-interrupts", HELP, &options, &loads, run)
}

fn run(options: &BenchOptions) -> Result<()> {
    let Some(machine) = Machine::new()?.filter(|_| rustix::process::geteuid().is_root()) else {
        println!("SKIP: bench-interrupts: needs root and two CPUs");
        return Ok(());
    };
    if let Err(error) = try_bpftrace() {
        println!("SKIP: bench-interrupts: {error:#}");
        return Ok(());
    }
    println!("pmdscope interrupts, on {}. Median and quartiles.", machine.describe());
    let _priority = Priority::raise()?;
    let pmdscope = options.pmdscope.clone().map_or_else(programs::pmdscope, Ok)?;
    let rounds = options.rounds.unwrap_or(if options.quick { 5 } else { 11 });
    let scratch = Scratch::new()?;
    let (app, _reflector) = reflector(&scratch, "net_null0")?;
    let mut tsc_hz = 0;
    wait_until("the rate of the TSC", START, || {
        // There is no answer before the first sample, and no lcore before it polls.
        tsc_hz = telemetry::number(&app, "/pmdscope", "tsc_hz").unwrap_or(0);
        Ok(tsc_hz > 0 && polls(&app).is_ok())
    })?;
    let only = options.only.as_deref();
    for (mode, name, gap_us) in LOADS.iter().filter(|(mode, ..)| only.is_none_or(|it| it == *mode))
    {
        let load = gap_us.map(|gap_us| start_load(&scratch, mode, gap_us)).transpose()?;
        let mut results = Vec::new();
        let mut before = polls_per_second(&app)?;
        for _ in 0..rounds {
            let (result, after) = round(&scratch, &app, &pmdscope, before)?;
            results.push(result);
            before = after;
        }
        drop(load);
        print(name, &results, tsc_hz);
    }
    Ok(())
}

/// Results of one round.
struct RoundResult {
    /// Iterations per second without the tracer, and with it.
    polls: [f64; 2],
    /// Traced events per second.
    events: f64,
    /// Timer interrupts among these: counted by the kernel, and by the tracer.
    timer: [f64; 2],
    /// Time of the programs in the kernel, per run of one, nanoseconds.
    program_ns: Option<f64>,
    /// Runs of programs per second.
    program_runs: Option<f64>,
}

impl RoundResult {
    /// Share of the iterations that is lost.
    fn loss(&self) -> f64 {
        1.0 - self.polls[1] / self.polls[0]
    }
}

fn print(load: &str, results: &[RoundResult], tsc_hz: u64) {
    let spread = |of: &dyn Fn(&RoundResult) -> f64| Spread::of(results.iter().map(of));
    println!("\n{load}:");
    println!("  iterations/s without         {:.0}", spread(&|result| result.polls[0]));
    println!("  iterations/s with            {:.0}", spread(&|result| result.polls[1]));
    println!("  ratio                        {:.4}", spread(&|r| r.polls[1] / r.polls[0]));
    println!("  events/s                     {:.0}", spread(&|result| result.events));
    println!("  timer interrupts/s           {:.0}", spread(&|result| result.timer[0]));
    println!("  as the tracer counts them    {:.0}", spread(&|result| result.timer[1]));
    let event_ns = |result: &RoundResult| result.loss() * 1e9 / result.events;
    println!("  ns per event, by iterations  {:.0}", spread(&event_ns));
    let cycles = |result: &RoundResult| event_ns(result) * tsc_hz as f64 / 1e9;
    println!("  cycles per event             {:.0}", spread(&cycles));
    if results.iter().all(|result| result.program_ns.is_some()) {
        let ns = |result: &RoundResult| result.program_ns.unwrap_or(f64::NAN);
        println!("  ns per program, by the kernel {:.0}", spread(&ns));
        let runs = |result: &RoundResult| result.program_runs.unwrap_or(f64::NAN);
        println!("  programs/s, of all CPUs      {:.0}", spread(&runs));
    }
}

/// One round; `before` are the iterations per second without the tracer just before it. Also
/// returns those after it: using both cancels slow changes.
fn round(scratch: &Scratch, app: &str, pmdscope: &Path, before: f64) -> Result<(RoundResult, f64)> {
    let out = scratch.path("interrupts.json");
    let tracer = Tracer::start(pmdscope, app, &out)?;
    let documents = || documents(&out);
    wait_until("the tracer", START, || Ok(documents().len() >= 2))?;
    let bpftrace = child_of(tracer.0.id())?;
    let printed = documents().len();
    let timer = timer_interrupts()?;
    let begin = Instant::now();
    let with = polls_per_second(app)?;
    let timer = (timer_interrupts()? - timer) as f64 / begin.elapsed().as_secs_f64();
    let windows = documents().split_off(printed);
    // The statistics have a cost as well.
    let statistics = BpfStatistics::begin(bpftrace);
    sleep(Duration::from_secs(1));
    let (program_ns, program_runs) = statistics.end();
    drop(tracer);
    wait_until("the end of the tracer", START, || Ok(bpftrace.is_none_or(has_ended)))?;
    let after = polls_per_second(app)?;

    let seconds: f64 = windows.iter().filter_map(|doc| doc["interval_s"].as_f64()).sum();
    if seconds <= 0.0 {
        bail!("the tracer printed nothing within {WINDOW:?}");
    }
    let rate = |cause| windows.iter().map(|doc| count(doc, cause)).sum::<u64>() as f64 / seconds;
    let result = RoundResult {
        polls: [f64::midpoint(before, after), with],
        events: rate(None),
        timer: [timer, rate(Some("timer"))],
        program_ns,
        program_runs,
    };
    Ok((result, after))
}

/// `pmdscope interrupts`, which ends with its owner.
struct Tracer(std::process::Child);

impl Tracer {
    fn start(pmdscope: &Path, app: &str, out: &Path) -> Result<Self> {
        let program = pmdscope.to_string_lossy();
        let words = [&*program, "interrupts", "-a", app, "--json", "-i", "1", "--for", "1h"];
        let mut command = with_tracefs(&words);
        Ok(Self(command.stdout(File::create(out)?).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // bpftrace ends with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process has closed its files, which detaches what bpftrace attached.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Interrupts of the timer of CPU 1 since boot.
fn timer_interrupts() -> Result<u64> {
    let text = fs::read_to_string("/proc/interrupts")?;
    let timers = ["LOC:", "arch_timer"];
    let line = text.lines().find(|line| timers.iter().any(|timer| line.contains(timer)));
    let field = line.and_then(|line| line.split_whitespace().nth(2));
    Ok(field.context("no timer of CPU 1 in /proc/interrupts")?.parse()?)
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Events of a cause, or of all.
fn count(document: &Value, cause: Option<&str>) -> u64 {
    let rows = document["apps"][0]["stolen"].as_array().into_iter().flatten();
    let rows = rows.filter(|row| match cause {
        Some(cause) => row["cause"] == cause,
        None => row["cause"] != "unexplained",
    });
    rows.filter_map(|row| row["count"].as_u64()).sum()
}

fn polls_per_second(app: &str) -> Result<f64> {
    let (begin, before) = (Instant::now(), polls(app)?);
    sleep(WINDOW);
    Ok((polls(app)? - before) as f64 / begin.elapsed().as_secs_f64())
}

fn polls(app: &str) -> Result<u64> {
    let table = telemetry::ask(app, "/pmdscope/lcores")?;
    table["polls"][0].as_u64().with_context(|| format!("no polls in {table}"))
}

/// Interrupts CPU 1 while the result exists.
fn start_load(scratch: &Scratch, mode: &str, gap_us: u64) -> Result<Process> {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(programs::thief()?);
    command.args([mode, "1", "1000000000", &gap_us.to_string()]);
    let process = Process::spawn("load", &mut command, scratch.dir())?;
    sleep(Duration::from_secs(1));
    process.signal(Signal::CONT).context("the load has ended")?;
    Ok(process)
}

/// Statistics of the kernel about BPF programs, enabled while this exists.
struct BpfStatistics {
    bpftrace: Option<u32>,
    before: (u64, u64),
    begin: Instant,
}

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl BpfStatistics {
    fn begin(bpftrace: Option<u32>) -> Self {
        let _ = fs::write(SWITCH, "1");
        let before = bpftrace.map_or((0, 0), program_times);
        Self { bpftrace, before, begin: Instant::now() }
    }

    /// Nanoseconds per run, and runs per second.
    fn end(self) -> (Option<f64>, Option<f64>) {
        let (ns, runs) = self.bpftrace.map_or((0, 0), program_times);
        let (ns, runs) = (ns.saturating_sub(self.before.0), runs.saturating_sub(self.before.1));
        let seconds = self.begin.elapsed().as_secs_f64();
        if runs == 0 {
            return (None, None);
        }
        (Some(ns as f64 / runs as f64), Some(runs as f64 / seconds))
    }
}

impl Drop for BpfStatistics {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, "0");
    }
}

fn child_of(pid: u32) -> Result<Option<u32>> {
    for process in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        if parent == Some(&pid.to_string()) {
            return Ok(process.file_name().to_string_lossy().parse().ok());
        }
    }
    Ok(None)
}

/// Time and runs of all programs of a process, each counted once.
fn program_times(pid: u32) -> (u64, u64) {
    let mut programs = std::collections::BTreeMap::new();
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten();
    for descriptor in descriptors.filter_map(Result::ok) {
        let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok()
        };
        if let (Some(id), Some(ns), Some(runs)) =
            (field("prog_id:"), field("run_time_ns:"), field("run_cnt:"))
        {
            programs.insert(id, (ns, runs));
        }
    }
    programs.values().fold((0, 0), |sum, program| (sum.0 + program.0, sum.1 + program.1))
}

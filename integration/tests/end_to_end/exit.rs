//! However an app ends, it keeps its exit status and its last output: with libpmdscope or without,
//! watched or not. Without it, DPDK's own telemetry threads crash a watched app; these crashes are
//! counted, and do not fail the test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::fake::connect;
use pmdscope_integration::process::{Process, describe};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry::socket;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::support::{LIMIT, Needs, no_core_files, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("an_app_ends_as_it_means_to", Needs::Apps, ends)]
}

/// Runs of each combination, so that each way has more than 30 with the library; `PMDSCOPE_EXIT_ROUNDS` sets
/// another number.
const ROUNDS: usize = 8;
/// DPDK alone has one run where the library has so many, unless a number is set: it is there to compare with.
const OF_LEVEL_0: usize = 8;
/// Apps that run at the same time: most of the time they wait.
const AT_ONCE: usize = 6;
const MESSAGE: &str = "the end of the app";
const FAILURES_SHOWN: usize = 5;

/// The ways of `integration/apps/exit/main.c`, and the status that the app then has.
const WAYS: [(&str, End); 11] = [
    ("rte_exit", End::Code),
    ("exit", End::Code),
    ("_exit", End::Killed(None)),
    ("return", End::Code),
    ("cleanup", End::Code),
    ("fini", End::Code),
    ("fini_rte_exit", End::Code),
    ("abort", End::Killed(Some(6))),
    ("sigterm", End::Killed(Some(15))),
    ("sigint_rte_exit", End::Code),
    ("sigint_exit", End::Code),
];

/// Requests that are sent while it ends: stock commands, and the library's.
const REQUESTS: [&str; 12] = [
    "/ethdev/list",
    "/ethdev/stats,0",
    "/ethdev/xstats,0",
    "/mempool/list",
    "/mempool/info,exit_app",
    "/eal/memzone_list",
    "/eal/heap_info,0",
    "/pmdscope",
    "/pmdscope/pools",
    "/pmdscope/queues",
    "/pmdscope/leaks",
    "/pmdscope/lcores",
];

#[derive(Clone, Copy)]
enum End {
    /// Exit status 3, after the library had its turn.
    Code,
    /// Ended without a last turn: exit status 3, or a signal.
    Killed(Option<i32>),
}

/// One combination; ports alternate with the rounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    level: u8,
    watched: bool,
    way: usize,
}

/// The results of the runs of a combination.
#[derive(Default)]
struct Outcome {
    runs: usize,
    failures: Vec<String>,
}

type Outcomes = Mutex<BTreeMap<Case, Outcome>>;

fn ends(scratch: &Scratch) -> Result<()> {
    let (rounds, of_level_0) = match std::env::var("PMDSCOPE_EXIT_ROUNDS") {
        Ok(text) => (text.parse().context("PMDSCOPE_EXIT_ROUNDS")?, 1),
        Err(_) => (ROUNDS, OF_LEVEL_0),
    };
    no_core_files()?;
    let cases: Vec<Case> = (0..WAYS.len())
        .flat_map(|way| [(0, way), (1, way), (2, way)])
        .flat_map(|(level, way)| [false, true].map(|watched| Case { level, watched, way }))
        .collect();

    let (next, outcomes) = (AtomicUsize::new(0), Outcomes::default());
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(&case) = cases.get(number % cases.len()) else { return Ok(()) };
                        let round = number / cases.len();
                        if round >= rounds {
                            return Ok(());
                        }
                        if case.level == 0 && !round.is_multiple_of(of_level_0) {
                            continue;
                        }
                        let failure = run(scratch, case, number, round)?;
                        let mut all = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                        let outcome = all.entry(case).or_default();
                        outcome.runs += 1;
                        outcome.failures.extend(failure);
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        Ok(())
    })?;
    ensure!(scratch.hugepage_files().is_empty(), "{:?} left", scratch.hugepage_files());
    judge(&outcomes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Prints the results of every combination; an error for those with libpmdscope that failed.
fn judge(outcomes: &BTreeMap<Case, Outcome>) -> Result<()> {
    let (mut failures, mut shown) = (0, String::new());
    for (case, outcome) in outcomes {
        let (runs, failed) = (outcome.runs, outcome.failures.len());
        let watched = if case.watched { "watched" } else { "unwatched" };
        let line = format!("level {} {watched:9} {:15}", case.level, WAYS[case.way].0);
        eprintln!("{line} {runs} runs, {failed} did not end as they should");
        if case.level > 0 {
            failures += failed;
            for failure in outcome.failures.iter().take(FAILURES_SHOWN) {
                shown.extend(["\n", &line, ": ", failure]);
            }
        }
    }
    ensure!(failures == 0, "{failures} runs with libpmdscope failed:{shown}");
    Ok(())
}

/// One run; why it failed, if it did.
fn run(scratch: &Scratch, case: Case, number: usize, round: usize) -> Result<Option<String>> {
    let (way, end) = WAYS[case.way];
    let prefix = scratch.prefix(&format!("exit{number}"));
    let mut command = Command::new(programs::exit_app(case.level)?);
    command.args(["--lcores", "0@(0-1)", "--no-huge", "-m", "64", "--no-pci"]);
    command.args(["--file-prefix", &prefix, "--log-level", "lib.eal:error"]);
    if (round / OF_LEVEL_0 + round % OF_LEVEL_0) % 2 == 1 {
        command.args(["--vdev", "net_null0"]);
    }
    // Any moment of the control thread's work.
    let ms = 20 + number * 37 % 100;
    command.args(["--", way, &ms.to_string()]).current_dir(scratch.dir());
    let mut app = Process::spawn(&prefix, &mut command, scratch.dir())?;

    let over = AtomicBool::new(false);
    let status = thread::scope(|scope| {
        if case.watched {
            scope.spawn(|| watch(&socket(&prefix), &over));
        }
        let status = app.wait(LIMIT);
        over.store(true, Ordering::Relaxed);
        status
    });
    let output = app.output();
    drop(app);
    let dir = Path::new("/var/run/dpdk").join(&prefix);
    let left: Vec<String> = fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let _ = fs::remove_dir_all(&dir);
    let _ = fs::remove_file(scratch.path(&format!("{prefix}.log")));
    Ok(match status {
        Ok(status) => failure(status, end, &output, &left),
        Err(error) => Some(format!("{error:#}")),
    })
}

fn failure(status: ExitStatus, end: End, output: &str, left: &[String]) -> Option<String> {
    let expected = match end {
        End::Killed(Some(signal)) => status.signal() == Some(signal),
        End::Code | End::Killed(None) => status.code() == Some(3),
    };
    if !expected {
        return Some(format!("{}; it printed:\n{output}", describe(status)));
    }
    let says = output.matches(MESSAGE).count();
    let silent = matches!(end, End::Killed(Some(15)));
    if says != usize::from(!silent) || output.contains("PMDSCOPE") || output.contains("accept") {
        return Some(format!("unexpected output:\n{output}"));
    }
    // What the EAL never removes is not counted.
    let ours = left.iter().find(|name| name.contains(".sock") || name.contains("telemetry"));
    match (end, ours) {
        (End::Code, Some(name)) => Some(format!("{name} is left")),
        _ => None,
    }
}

/// Sends one request after the other, also when the app may no longer reply.
fn watch(socket: &Path, over: &AtomicBool) {
    let mut buffer = vec![0; 1 << 15];
    while !over.load(Ordering::Relaxed) {
        let Ok(peer) = connect(socket) else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let mut requests = REQUESTS.iter().cycle();
        // The first message is the banner.
        while recv(&peer, &mut *buffer, RecvFlags::empty()).is_ok_and(|(bytes, _)| bytes > 0) {
            let Some(request) = requests.next() else { break };
            if send(&peer, request.as_bytes(), SendFlags::NOSIGNAL).is_err() {
                break;
            }
        }
    }
}

//! Events that take a poll core have the length that their causes measured by their own clocks.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Pair, PairOptions, reflector};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::spin::{Spin, Spinner};
use pmdscope_integration::veth::Veth;
use pmdscope_testing::skip;
use rustix::process::Signal;
use serde_json::Value;

use crate::interrupts::{TOLERANCE, Tracing, missing_to_trace, rows, stolen};
use crate::support::{LIMIT, missing_program, trial_unless};

/// Each is long against what the kernel does before and after it, which its own clock does not see.
const SPIN: Duration = Duration::from_micros(500);

/// How often the CPU is taken at least.
const TIMES: u64 = 100;

/// Time between two.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn trials() -> Vec<Trial> {
    let traced = |name: &str, test| trial_unless(name, missing_to_trace(), test);
    let spun = || missing_to_trace().or_else(|| missing_program(&["clang"]));
    vec![
        trial_unless(IPIS, spun(), ipis),
        trial_unless(SOFTIRQS, spun(), softirqs),
        traced(FAULTS, page_faults),
        traced("stalls_of_own_code_are_unexplained", stalls),
    ]
}

const IPIS: &str = "interrupts_from_other_cpus_are_timed";
const SOFTIRQS: &str = "softirqs_are_timed";
const FAULTS: &str = "page_faults_are_timed";

/// Takes the CPU of the app again and again, until its program has run often enough.
fn spin(spinner: &Spinner, mut take: impl FnMut() -> Result<()>) -> Result<(u64, u64)> {
    let begun = Instant::now();
    // While another thread has the CPU, it takes nothing.
    while spinner.took()?.0 < TIMES && begun.elapsed() < LIMIT {
        take()?;
        sleep(PAUSE);
    }
    let (count, ns) = spinner.took()?;
    ensure!(count >= TIMES, "the thread lost its CPU {count} times");
    Ok((count, ns))
}

fn load(test: &str, scratch: &Scratch, spin: Spin, tid: u32) -> Result<Option<Spinner>> {
    match Spinner::load(spin, tid, SPIN, scratch.dir()) {
        Err(error) if error.is::<libbpf_rs::Error>() => {
            skip(test, format!("the kernel does not take the program: {error:#}"));
            Ok(None)
        }
        loaded => loaded.map(Some),
    }
}

/// What was traced is what was measured, and a little more for the kernel's own part of it.
fn ensure_timed(traced: (u64, u64), measured: (u64, u64)) -> Result<()> {
    let range = 1.0 - TOLERANCE..=1.0 + TOLERANCE;
    let ratio = traced.1 as f64 / measured.1 as f64;
    ensure!(
        traced.0 >= measured.0 && range.contains(&ratio),
        "(count, ns): traced {traced:?}, measured {measured:?}, ratio {ratio:.3}"
    );
    Ok(())
}

fn ipis(scratch: &Scratch) -> Result<()> {
    let (app, reflector) = reflector(scratch, "net_null0")?;
    let Some(spinner) = load(IPIS, scratch, Spin::Ipi, reflector.pid())? else { return Ok(()) };
    let mut tracing = Tracing::start(scratch, &app, &["--json", "-i", "0.5"])?;
    let measured = spin(&spinner, || spinner.interrupt(1))?;
    tracing.wait_for_lines(3)?;
    let documents = tracing.finish()?;
    ensure_timed(stolen(&documents, "ipi", "function call"), measured)
}

fn softirqs(scratch: &Scratch) -> Result<()> {
    let wire = Veth::new()?;
    let [from, to] = wire.address(1500)?;
    // Another CPU sends; what arrives is handled on CPU 1.
    let rps = Path::new("/sys/class/net").join(wire.near()).join("queues/rx-0/rps_cpus");
    fs::write(&rps, "2").with_context(|| format!("{}", rps.display()))?;
    let (app, reflector) = reflector(scratch, "net_null0")?;
    let loaded = load(SOFTIRQS, scratch, Spin::NetRx, reflector.pid())?;
    let Some(spinner) = loaded else { return Ok(()) };
    let mut tracing = Tracing::start(scratch, &app, &["--json", "-i", "0.5"])?;
    spinner.attach(wire.near())?;
    let socket = UdpSocket::bind((from, 0))?;
    let measured = spin(&spinner, || {
        socket.send_to(&[0; 64], (to, 9))?;
        Ok(())
    })?;
    tracing.wait_for_lines(3)?;
    let documents = tracing.finish()?;
    ensure_timed(stolen(&documents, "softirq", "NET_RX"), measured)
}

/// A fault of an ordinary page takes less.
const HUGE_FAULT_NS: u64 = 20_000;

/// Largest difference of the two clocks, nanoseconds.
const CLOCKS_NS: u64 = 1_000_000;

/// Faults of 2 MiB where the kernel has such pages: each is long against the way into the kernel and back,
/// which the app's clock sees and the kernel's does not.
fn page_faults(scratch: &Scratch) -> Result<()> {
    let mut pair = Pair::start(scratch, PairOptions { faults: true, ..PairOptions::default() })?;
    let fault = |app: &Process| -> Result<()> {
        for _ in 0..TIMES {
            app.signal(Signal::USR2)?;
            sleep(4 * PAUSE);
        }
        Ok(())
    };
    let min = format!("{}us", HUGE_FAULT_NS / 1000);
    let mut tracing = Tracing::start(scratch, pair.app(), &["--events", "--min", &min])?;
    fault(&pair.reflector)?;
    // Events of other causes happen all the time.
    tracing.wait_for_lines(1)?;
    let events = tracing.finish()?;
    let is_fault = |event: &&Value| event["cause"] == "page_fault";
    let traced = events.iter().filter(is_fault);
    let traced = times(traced, "start_realtime_ns", "duration_ns");
    pair.reflector.interrupt()?;
    let text = fs::read_to_string(scratch.path("reflector.json"))?;
    let json: Value = serde_json::from_str(&text)?;
    let faults = times(json["faults"].as_array().context("no faults")?, "begin_ns", "ns");
    // Signals that arrive at the same time count as one.
    let half = usize::try_from(TIMES / 2)?;
    ensure!(faults.len() >= half, "{} faults", faults.len());
    let huge = faults.iter().filter(|(_, ns)| *ns >= HUGE_FAULT_NS);
    if huge.clone().count() < half {
        skip(FAULTS, "no transparent hugepages to be had here");
        return Ok(());
    }
    let pairs: Vec<(u64, u64)> = huge
        .filter_map(|&(begin, measured)| {
            let near = |(traced, _): &&(u64, u64)| traced.abs_diff(begin) < CLOCKS_NS;
            traced.iter().find(near).map(|&(_, traced)| (traced, measured))
        })
        .collect();
    ensure!(pairs.len() >= half, "{} of {} faults traced", pairs.len(), faults.len());
    // The kernel's time is within that of the app, and the larger part of it.
    let fits = |(traced, measured): &&(u64, u64)| traced <= measured && traced * 2 > *measured;
    let fitting = pairs.iter().filter(fits).count();
    ensure!(fitting * 10 >= pairs.len() * 9, "{fitting} (ns traced, ns measured) fit: {pairs:?}");
    Ok(())
}

/// Beginning and length, nanoseconds.
fn times<'a>(
    values: impl IntoIterator<Item = &'a Value>,
    begin: &str,
    length: &str,
) -> Vec<(u64, u64)> {
    let time = |value: &Value| Some((value[begin].as_u64()?, value[length].as_u64()?));
    values.into_iter().filter_map(time).collect()
}

/// Length of the app's own stalls, milliseconds.
const STALL_MS: u64 = 20;

/// No event takes the CPU meanwhile, or only short ones.
fn stalls(scratch: &Scratch) -> Result<()> {
    let stall = Some(format!("{}/500", STALL_MS * 1000));
    let pair = Pair::start(scratch, PairOptions { stall, ..PairOptions::default() })?;
    let mut tracing = Tracing::start(scratch, pair.app(), &["--json", "-i", "0.5"])?;
    let own = |documents: &[Value]| stolen(documents, "unexplained", "own code");
    // Others may have had the CPU for the larger part of some, not of all.
    let least = STALL_MS * 500_000;
    wait_until("unexplained stalls", 2 * LIMIT, || {
        tracing.wait_for_lines(1)?;
        let documents = tracing.lines();
        Ok(own(&documents).0 >= 4 && longest_unexplained(&documents) >= Some(least))
    })?;
    let documents = tracing.finish()?;
    let (count, ns) = own(&documents);
    let mean_ms = ns as f64 / count as f64 / 1e6;
    let most = STALL_MS as f64 * (1.0 + TOLERANCE);
    ensure!(mean_ms <= most, "{mean_ms} ms of {STALL_MS} ms");
    ensure!(longest_unexplained(&documents) >= Some(least), "{documents:?}");
    Ok(())
}

/// Nanoseconds.
fn longest_unexplained(documents: &[Value]) -> Option<u64> {
    let rows = documents.iter().flat_map(rows).filter(|row| row["cause"] == "unexplained");
    rows.filter_map(|row| row["longest_ns"].as_u64()).max()
}

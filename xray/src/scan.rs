//! Finds lost mbufs: those in use that nothing in the app's memory refers to, in several scans.
//!
//! A scan reads the free objects of each pool, then all memory in which the app may keep
//! references, then the free objects again. The app runs meanwhile, so one scan does not prove a
//! loss: an mbuf may have moved from memory that was not yet searched to memory that already was.
//! Unreachable mbufs are watched: those that turn up free, referred to, or changed are not lost.

#[cfg(test)]
mod af_xdp_tests;
mod blocks;
mod candidates;
mod corrupt;
mod free;
#[cfg(test)]
mod made_up;
mod objects;
mod packet;
mod pass;
mod pools;
mod process;
mod references;
mod result;
mod searched;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use pmdscope_telemetry::host::ReadyThreads;

use crate::error::XrayError;
use crate::report::ScanReport;
use crate::target::XrayTarget;

use candidates::Candidates;
pub use corrupt::{CorruptObject, CorruptPool, corrupt_pools};
pub use free::{FreeObjects, PoolHandler};
pub use packet::{MOST_PACKET_BYTES, packet};
use pass::{Pass, Scanner};
use pools::MbufPools;
use process::NotJudged;

/// Settings of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanSettings {
    /// Scans in which an mbuf must be unreachable to be lost, at least 2.
    pub scans: u32,
    /// Maximum number of scans: more are made as long as each one shows that some mbufs are not
    /// lost after all.
    pub most_scans: u32,
    /// Time from one scan to the next.
    pub interval: Duration,
}

impl Default for ScanSettings {
    fn default() -> Self {
        Self { scans: 2, most_scans: 6, interval: Duration::from_secs(1) }
    }
}

/// Progress of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of this scan, from 1 on.
    pub scan: u32,
    /// Bytes searched in it so far.
    pub done_bytes: u64,
    /// Bytes to search in it; memory that the app never touched is not read.
    pub total_bytes: u64,
}

/// How often scans begin again because the app created or destroyed a pool meanwhile.
const ATTEMPTS: u32 = 3;

/// Minimum time between two checks of unreachable mbufs.
const LEAST_PAUSE: Duration = Duration::from_millis(30);

/// Maximum time that all scans together wait for threads of the app that get no CPU, in addition to
/// the intervals: an mbuf in a register of such a thread cannot turn up.
const MOST_WAIT: Duration = Duration::from_secs(10);

/// Maximum share of the time for these checks: one part in this many.
const PAUSE_FACTOR: u32 = 4;

/// Searches the memory of an app for its mbufs: which are lost, and the holders of the others.
///
/// Takes `settings.interval` and the time of at least two scans, or of one if nothing is
/// unreachable. The report lists what could not be read.
///
/// # Errors
/// If the app ends or may not be read.
pub fn scan(
    target: &XrayTarget,
    settings: &ScanSettings,
    progress: &mut dyn FnMut(Progress),
) -> Result<ScanReport, XrayError> {
    let begun = Instant::now();
    let (mut attempt, mut patience) = (1_u32, MOST_WAIT);
    loop {
        let pools = MbufPools::read(target)?;
        let scanner = Scanner { target, pools: &pools };
        let (scans, mut pass, candidates) = scans(&scanner, settings, &mut patience, progress)?;
        for place in pools.changed(target) {
            let name = &pools.judged[place].pool.name;
            let why = format!("mempool {name} was destroyed or recreated during the scan");
            pass.free_after.torn.insert(place, why);
        }
        if !pass.is_torn() || attempt == ATTEMPTS {
            let mut report = result::report(&scanner, &pass, &candidates)?;
            report.scans = scans;
            report.duration_ms = milliseconds(begun.elapsed());
            return Ok(report);
        }
        attempt = attempt.saturating_add(1);
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Scans until enough of them agree; returns their number and the last one.
fn scans(
    scanner: &Scanner<'_>,
    settings: &ScanSettings,
    patience: &mut Duration,
    progress: &mut dyn FnMut(Progress),
) -> Result<(u32, Pass, Candidates), XrayError> {
    let mut scan = 1_u32;
    let mut pass = scanner.pass(&mut |done, total| {
        progress(Progress { scan, done_bytes: done, total_bytes: total });
    })?;
    let mut candidates = Candidates::new(scanner, &pass)?;
    loop {
        let not_run = watch(scanner, &mut candidates, settings.interval, patience)?;
        if candidates.is_empty() || pass.is_torn() {
            return Ok((scan, pass, candidates));
        }
        scan = scan.saturating_add(1);
        let before = candidates.len();
        pass = scanner.pass(&mut |done, total| {
            progress(Progress { scan, done_bytes: done, total_bytes: total });
        })?;
        candidates.confirm(scanner, &pass)?;
        pass.not_judged.extend(not_run.map(NotJudged::all));
        let agreed = scan >= settings.scans.max(2) && candidates.len() == before;
        if agreed || scan >= settings.most_scans.max(settings.scans) {
            return Ok((scan, pass, candidates));
        }
    }
}

/// Checks the candidates repeatedly until the next scan: a busy app moves mbufs within
/// milliseconds. Waits longer for threads that could not run, which uses up `patience`; returns the
/// reason if they still have not run.
fn watch(
    scanner: &Scanner<'_>,
    candidates: &mut Candidates,
    interval: Duration,
    patience: &mut Duration,
) -> Result<Option<String>, XrayError> {
    if candidates.is_empty() {
        return Ok(None);
    }
    let ready = scanner.target.memory.process().and_then(ReadyThreads::of);
    let begun = Instant::now();
    let quick = scanner.quick_parts()?;
    while !candidates.is_empty() {
        let look = Instant::now();
        candidates.look(scanner, &quick)?;
        let pause = LEAST_PAUSE.max(look.elapsed().saturating_mul(PAUSE_FACTOR));
        let left = interval.saturating_sub(begun.elapsed());
        if !left.is_zero() {
            std::thread::sleep(pause.min(left));
            continue;
        }
        let not_run = ready.as_ref().map(ReadyThreads::not_run).unwrap_or_default();
        if not_run.is_empty() {
            break;
        }
        if patience.is_zero() {
            return Ok(Some(got_no_cpu(&not_run, begun.elapsed())));
        }
        let pause = pause.min(*patience);
        std::thread::sleep(pause);
        *patience = patience.saturating_sub(pause);
    }
    Ok(None)
}

/// Why mbufs without references are not judged.
fn got_no_cpu(threads: &[&str], time: Duration) -> String {
    format!(
        "between two scans, these threads were ready to run and got no CPU for {:.1} s: {}",
        time.as_secs_f64(),
        threads.join(", ")
    )
}

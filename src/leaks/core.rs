//! `--core`: lost mbufs of an app after its death, from its core file.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use pmdscope_render::number::{bytes, count};
use pmdscope_telemetry::{ErrorClass, FleetEvent, FleetState};
use pmdscope_xray::{
    CoreMemory, Holder, HolderCount, LostMbuf, Memory, MissingMemory, PoolScan, ScanReport,
    XrayTarget,
};

use super::scan::{AppScan, AppScans, Scanner};
use super::{Args, lost_packets, report, scans_fail, verdict_of_scan};

/// Reports what a core file tells.
pub(super) fn run(args: &Args, path: &Path) -> Result<ExitCode> {
    let core = Arc::new(CoreMemory::open(path)?);
    let name = name(&core, path);
    let scan = scan(args, &name, &core)?;
    if let Some(file) = &args.write {
        return lost_packets::write(&name, &scan, file, args.per_site());
    }
    let mut fleet = FleetState::default();
    let reason = match core.pid() {
        Some(pid) => format!("core file of process {pid}"),
        None => "core file".to_owned(),
    };
    let class = ErrorClass::Missing;
    fleet.apply(FleetEvent::Lost { app: name.clone(), class, reason, finding: None });
    let code = verdict_of_scan(&scan.sample);
    let scans = AppScans::from([(name, Ok(scan))]);
    report(args, &fleet, &scans)?;
    debug_assert_eq!(code == ExitCode::SUCCESS, !scans_fail(&scans));
    Ok(code)
}

/// The name of the process, or else of the file.
fn name(core: &CoreMemory, path: &Path) -> String {
    match core.command() {
        "" => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        command => command.to_owned(),
    }
}

fn scan(args: &Args, name: &str, core: &Arc<CoreMemory>) -> Result<AppScan> {
    let missing = missing(core);
    let failed = || {
        let why = missing.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        format!("cannot find the mempools of {name} in the core file{why}")
    };
    let memory: Arc<dyn Memory> = core.clone();
    let target = XrayTarget::open_memory(memory).with_context(failed)?;
    let judge = |report: &mut ScanReport| {
        for pool in &mut report.pools {
            hold_in_registers(pool, core);
            if let Some(why) = &missing {
                doubt(pool, why);
            }
        }
        report.problems.extend(missing.clone());
    };
    // What does not change need not be looked at again later.
    let mut scanner = Scanner::new(args.scan.of_core());
    scanner.scan_judged(name, target, judge).with_context(failed)
}

/// What the core file lacks, in one sentence.
fn missing(core: &CoreMemory) -> Option<String> {
    let parts: Vec<_> = core.missing().iter().map(missing_part).collect();
    if core.truncated_bytes() > 0 {
        return Some(format!(
            "the core file was cut: its last {} are missing; see ulimit -c and the space on the disk",
            bytes(core.truncated_bytes())
        ));
    }
    (!parts.is_empty()).then(|| {
        format!(
            "the core file lacks {}: before the app starts, set these bits of \
             /proc/self/coredump_filter (0x7f sets all)",
            parts.join(" and ")
        )
    })
}

fn missing_part(part: &MissingMemory) -> String {
    format!("{} of {} (bit {})", bytes(part.bytes), part.kind, part.filter_bit)
}

/// Counts those as held that a register of a thread points to or into: nothing in memory need refer to them.
fn hold_in_registers(pool: &mut PoolScan, core: &CoreMemory) {
    for thread in core.threads() {
        let points_to = |mbuf: &LostMbuf| {
            // An mbuf is followed by its data, which pointers into it belong to as well.
            let behind = mbuf.address + 128 + u64::from(mbuf.packet_bytes) + 256;
            thread.registers.iter().any(|word| (mbuf.address..behind).contains(word))
        };
        let before = pool.lost_mbufs.len();
        pool.lost_mbufs.retain(|mbuf| !points_to(mbuf));
        let mbufs = (before - pool.lost_mbufs.len()) as u64;
        if mbufs > 0 {
            pool.lost -= mbufs.min(pool.lost);
            pool.held += mbufs;
            let holder = Holder::Stack { thread: format!("{} (registers)", thread.id) };
            pool.holders.push(HolderCount { holder, mbufs });
        }
    }
}

/// Takes back what is not proven, because references may be in the memory that is missing.
fn doubt(pool: &mut PoolScan, why: &str) {
    if pool.lost > 0 {
        pool.not_judged_why
            .push(format!("nothing refers to {} of them as far as {why}", count(pool.lost)));
        pool.not_judged += pool.lost;
        pool.lost = 0;
        pool.lost_mbufs.clear();
    }
}

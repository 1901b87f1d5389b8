//! `--core`: lost mbufs of an app after its death, from its core file.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use pmdscope_render::number::{bytes, count};
use pmdscope_telemetry::{ErrorClass, FleetEvent, FleetState};
use pmdscope_xray::{
    CoreMemory, CoreThread, Holder, HolderCount, LostMbuf, Memory, MissingMemory, PoolScan,
    ScanReport, XrayError, XrayTarget,
};

use super::scan::{AppScan, AppScans, ScanArgs, Scanner};
use super::{Args, lost_packets, print, verdict_of_scan};
use crate::progress::Progress;

/// Reports what a core file contains.
pub(super) fn run(args: &Args, path: &Path) -> Result<ExitCode> {
    let core = Arc::new(CoreMemory::open(path)?);
    let name = name(&core, path);
    let scan = scan(&name, &core)?;
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
    let verdict = verdict_of_scan(&scan.sample);
    let scans = AppScans::from([(name, Ok(scan))]);
    print(args, &fleet, &scans)?;
    Ok(verdict)
}

/// The name of the process, or else of the file.
fn name(core: &CoreMemory, path: &Path) -> String {
    match core.command() {
        "" => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        command => command.to_owned(),
    }
}

fn scan(name: &str, core: &Arc<CoreMemory>) -> Result<AppScan> {
    let missing = missing(core);
    // The reason is what the core file lacks, not the error that this led to.
    let failed = |error: XrayError| match &missing {
        Some(why) => anyhow!("cannot find the mempools of {name}: {why}"),
        None => anyhow!(error).context(format!("cannot find the mempools of {name}")),
    };
    let memory: Arc<dyn Memory> = core.clone();
    let progress = Progress::begin(&format!("looking for the mempools of {name}"), false);
    let target = XrayTarget::open_memory(memory).map_err(failed)?;
    drop(progress);
    let judge = |report: &mut ScanReport| {
        for pool in &mut report.pools {
            hold_in_registers(pool, core.threads());
            if missing.is_some() {
                doubt(pool);
            }
        }
        report.problems.extend(missing.clone());
    };
    // Memory that does not change need not be read again later.
    let mut scanner = Scanner::new(ScanArgs::of_core());
    scanner.scan_judged(name, target, judge).map_err(failed)
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
fn hold_in_registers(pool: &mut PoolScan, threads: &[CoreThread]) {
    for thread in threads {
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
fn doubt(pool: &mut PoolScan) {
    if pool.lost > 0 {
        let lost = count(pool.lost);
        pool.not_judged_why.push(format!(
            "nothing in the core file refers to {lost} of them, but it does not have all memory"
        ));
        pool.not_judged += pool.lost;
        pool.lost = 0;
        pool.lost_mbufs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> PoolScan {
        let mbuf = |address| LostMbuf { address, packet_bytes: 60, ..LostMbuf::default() };
        let lost_mbufs = vec![mbuf(0x10_0000), mbuf(0x20_0000), mbuf(0x30_0000)];
        PoolScan { size: 100, held: 5, lost: 3, lost_mbufs, ..PoolScan::default() }
    }

    #[test]
    fn what_a_register_points_to_is_held() {
        let thread = |id, registers: &[u64]| CoreThread {
            id,
            stack_pointer: None,
            registers: registers.to_vec(),
        };
        let mut pool = pool();
        // Into the packet of the second, and far behind the third.
        hold_in_registers(&mut pool, &[thread(7, &[1, 0x20_0100]), thread(8, &[0x30_4000])]);
        assert_eq!((pool.held, pool.lost, pool.lost_mbufs.len()), (6, 2, 2));
        let [holder] = &pool.holders[..] else { panic!("one holder") };
        assert_eq!(holder.holder, Holder::Stack { thread: "7 (registers)".into() });
    }

    #[test]
    fn nothing_is_called_lost_while_memory_is_missing() {
        let mut pool = pool();
        doubt(&mut pool);
        assert_eq!((pool.lost, pool.not_judged, pool.lost_mbufs.len()), (0, 3, 0));
        assert_eq!(
            pool.not_judged_why,
            ["nothing in the core file refers to 3 of them, but it does not have all memory"]
        );
    }
}

//! Finds captures of other tools: by their processes, and by the mempools that they make.

use std::path::Path;

use crate::host::process::{PROC, ProcessTasks};
use crate::host::process_here;
use crate::sample::{ForeignCaptureSample, PoolSample};

/// The capture tools of DPDK.
const TOOLS: [&str; 2] = ["dpdk-dumpcap", "dpdk-pdump"];

/// Returns the captures of an app with this process id. `secondaries` are its running secondary processes,
/// by their ids in its PID namespace.
pub(super) fn foreign_captures(
    pools: &[PoolSample],
    secondaries: &[u32],
    app: u32,
) -> Vec<ForeignCaptureSample> {
    let of_tool = |pid: &u32| {
        let program = name(*pid, app).filter(|name| TOOLS.contains(&name.as_str()))?;
        let (pid, program) = (Some(*pid), Some(program));
        Some(ForeignCaptureSample { pid, program, pool: None, runs: true })
    };
    let mut captures: Vec<_> = secondaries.iter().filter_map(of_tool).collect();
    for pool in pools {
        let pid = ForeignCaptureSample::pid_of_pool(&pool.name);
        if pid.is_none() && !ForeignCaptureSample::is_of_pdump(&pool.name) {
            continue;
        }
        let is_pdump = |program: &Option<String>| program.as_deref() == Some("dpdk-pdump");
        let running = captures.iter_mut().find(|capture| match pid {
            Some(pid) => capture.pid == Some(pid),
            None => is_pdump(&capture.program),
        });
        match running {
            Some(capture) => capture.pool = Some(pool.name.clone()),
            None => captures.push(ForeignCaptureSample {
                pid,
                program: pid.and_then(|pid| name(pid, app)),
                pool: Some(pool.name.clone()),
                runs: pid.is_some_and(|pid| secondaries.contains(&pid)),
            }),
        }
    }
    captures
}

/// Returns the name of a process, by its id in the PID namespace of the app.
fn name(own_pid: u32, app: u32) -> Option<String> {
    let pid = process_here(own_pid, app)?;
    ProcessTasks::of(Path::new(PROC), pid)?.name(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::pool;

    #[test]
    fn pools_of_processes_that_run_and_that_were_killed_are_told_apart() {
        let me = std::process::id();
        let pools = [
            pool("capture_4000001", 4096, 2047),
            pool(&format!("capture_{me}"), 4096, 0),
            pool("pdump_pool_0", 8192, 1),
            pool("mb_pool", 8192, 1),
            pool("capture_x", 1, 0),
        ];
        let found = foreign_captures(&pools, &[me], me);
        let told: Vec<_> =
            found.iter().map(|it| (it.pool.as_deref().unwrap(), it.pid, it.runs)).collect();
        let (mine, killed) = (format!("capture_{me}"), Some(4_000_001));
        assert_eq!(
            told,
            [
                ("capture_4000001", killed, false),
                (mine.as_str(), Some(me), true),
                ("pdump_pool_0", None, false)
            ]
        );
        assert_eq!(found[0].program, None);
        assert!(found[1].program.is_some());
        assert_eq!(foreign_captures(&[], &[me], me), [], "no capture tool");
    }
}

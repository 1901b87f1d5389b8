//! Keeps readers off the CPUs of an app's poll loops.

use pmdscope_telemetry::host::polled_cpus;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Permanently moves the calling thread off the CPUs on which threads of process `pid` run all the
/// time, as poll loops do. If they keep all CPUs of the thread busy, its CPUs do not change. Takes
/// about 30 ms.
pub fn leave_polled_cpus(pid: u32) {
    let Ok(mut cpus) = sched_getaffinity(None) else { return };
    for cpu in polled_cpus(pid) {
        if let Some(cpu) = usize::try_from(cpu).ok().filter(|cpu| *cpu < CpuSet::MAX_CPU) {
            cpus.unset(cpu);
        }
    }
    if cpus.count() > 0 {
        // A failure of this is not an error.
        let _ = sched_setaffinity(None, &cpus);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    /// The CPUs of a thread that has left those on which `pid` polls.
    fn left(pid: u32) -> CpuSet {
        let reader = thread::spawn(move || {
            leave_polled_cpus(pid);
            sched_getaffinity(None).unwrap()
        });
        reader.join().unwrap()
    }

    #[test]
    fn a_reader_leaves_the_cpu_of_a_poll_loop() {
        let all = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        let spin = thread::spawn(move || {
            sched_setaffinity(None, &one).unwrap();
            Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap()
        });
        let mut poller = spin.join().unwrap();
        // The shell may need some time to start.
        let mut cpus = left(poller.id());
        for _ in 0..100 {
            if all.count() == 1 || !cpus.is_set(first) {
                break;
            }
            cpus = left(poller.id());
        }
        poller.kill().unwrap();
        poller.wait().unwrap();
        if all.count() == 1 {
            assert_eq!(cpus, all, "there is no other CPU");
        } else {
            assert!(!cpus.is_set(first) && cpus.count() == all.count() - 1, "{cpus:?}");
        }
    }

    #[test]
    fn a_process_that_has_ended_takes_no_cpu() {
        assert_eq!(left(u32::MAX), sched_getaffinity(None).unwrap());
    }
}

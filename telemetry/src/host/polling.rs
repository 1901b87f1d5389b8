//! CPUs that an app keeps busy, whether or not its threads are lcores.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::host::process::{PROC, ProcessTasks};

/// Number of checks; a thread that is ready to run in all of them polls: others sleep now and then.
const LOOKS: u32 = 8;

/// Time between two checks.
const PAUSE: Duration = Duration::from_millis(4);

/// Returns the CPUs on which threads of a process run all the time; empty if `/proc` does not report
/// them. Takes some 30 ms.
pub fn polled_cpus(pid: u32) -> BTreeSet<u32> {
    let Some(tasks) = ProcessTasks::of(Path::new(PROC), pid) else { return BTreeSet::new() };
    let mut busy: Vec<u32> = tasks.list().into_iter().map(|(tid, _)| tid).collect();
    for look in 0..LOOKS {
        if look > 0 {
            thread::sleep(PAUSE);
        }
        busy.retain(|tid| tasks.is_ready(*tid));
    }
    let cpu = |tid: &u32| {
        let last = || tasks.cpu_and_age(*tid).map(|(cpu, _)| cpu);
        tasks.status(*tid)?.only_cpu().or_else(last)
    };
    busy.iter().filter_map(cpu).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn threads_that_sleep_keep_no_cpu_busy() {
        let stop = AtomicBool::new(false);
        let polled = thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let polled = polled_cpus(std::process::id());
            stop.store(true, Ordering::Relaxed);
            polled
        });
        assert!(!polled.is_empty());
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(polled_cpus(sleeper.id()), BTreeSet::new());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(polled_cpus(u32::MAX), BTreeSet::new());
    }
}

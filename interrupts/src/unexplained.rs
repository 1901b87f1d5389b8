//! Time that no event explains: stalls that the app measured, and time that a hypervisor took.

use pmdscope_telemetry::sample::{LcoreSample, ThreadSample};

use crate::account::StolenAccount;

/// Thief if the cause is not known.
const UNKNOWN_THIEF: &str = "own code, SMI or hypervisor";

/// Thief of the steal time of the CPU.
const HYPERVISOR: &str = "hypervisor";

/// Most steal time that is kept to explain later stalls, nanoseconds: it is counted in ticks, and
/// late.
const MOST_KEPT_NS: u64 = 1_000_000_000;

/// The stalls and steal time of one lcore that were processed already.
#[derive(Debug, Default)]
pub(crate) struct UnexplainedTime {
    /// Wall clock at the end of the last stall that was processed, nanoseconds.
    looked_at_ns: Option<u64>,
    /// CPU, and its last steal time, milliseconds.
    steal: Option<(u32, u64)>,
    /// Steal time that has not explained a stall yet, nanoseconds.
    unused_steal_ns: u64,
}

/// The time during which tracepoints were traced, nanoseconds of the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracedTime {
    pub(crate) from_realtime: u64,
    pub(crate) to_realtime: u64,
    /// The wall clock minus the monotonic clock, nanoseconds.
    pub(crate) realtime_offset: i128,
}

impl UnexplainedTime {
    /// Adds the time that the hypervisor took from the CPU since the last call.
    pub(crate) fn add_steal(&mut self, thread: &ThreadSample, account: &mut StolenAccount) {
        let Some(now) = thread.cpu_stolen_ms else { return };
        let before = self.steal.replace((thread.cpu, now));
        let Some((_, before)) = before.filter(|(cpu, _)| *cpu == thread.cpu) else { return };
        let stolen_ns = now.saturating_sub(before).saturating_mul(1_000_000);
        if stolen_ns > 0 {
            account.add_unexplained(thread.tid, HYPERVISOR, stolen_ns, None);
            self.unused_steal_ns = (self.unused_steal_ns + stolen_ns).min(MOST_KEPT_NS);
        }
    }

    /// Adds the part of new stalls that neither events nor steal time explain, if it is more than
    /// half of the stall.
    pub(crate) fn add_stalls(
        &mut self,
        tid: u32,
        lcore: &LcoreSample,
        traced: TracedTime,
        account: &mut StolenAccount,
    ) {
        let newest = lcore.stall_last_realtime_ns.iter().copied().max().unwrap_or(0);
        let Some(mut looked_at_ns) = self.looked_at_ns else {
            self.looked_at_ns = Some(newest);
            return;
        };
        let stalls = lcore.stall_last_us.iter().zip(&lcore.stall_last_realtime_ns).rev();
        for (us, end_ns) in stalls.filter(|(us, _)| **us > 0) {
            let length_ns = us.saturating_mul(1000);
            let begin_ns = end_ns.saturating_sub(length_ns);
            // Its events may not have been read yet.
            if *end_ns <= looked_at_ns || *end_ns > traced.to_realtime {
                continue;
            }
            looked_at_ns = *end_ns;
            if begin_ns < traced.from_realtime {
                continue;
            }
            let to_monotonic = |ns| crate::account::realtime(ns, -traced.realtime_offset);
            let covered = account.covered_ns(tid, to_monotonic(begin_ns), to_monotonic(*end_ns));
            let open_ns = length_ns.saturating_sub(covered);
            let steal_ns = open_ns.min(self.unused_steal_ns);
            self.unused_steal_ns -= steal_ns;
            let rest_ns = open_ns - steal_ns;
            if rest_ns > length_ns / 2 {
                account.add_unexplained(tid, UNKNOWN_THIEF, rest_ns, Some(begin_ns));
            }
        }
        self.looked_at_ns = Some(looked_at_ns);
    }
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::sample::{StolenCause, StolenSample};

    use super::*;
    use crate::record::{EventKind, EventRecord};

    const MS: u64 = 1_000_000;
    const TRACED: TracedTime = TracedTime {
        from_realtime: 1000 * MS,
        to_realtime: 9000 * MS,
        realtime_offset: 500 * MS as i128,
    };

    fn account(start_ms: u64, length_ms: u64) -> StolenAccount {
        let mut account = StolenAccount::default();
        account.open(7, 1, 3);
        let event = EventRecord {
            kind: EventKind::Run,
            start_ns: start_ms * MS - 500 * MS,
            duration_ns: length_ms * MS,
            cpu: 1,
            tid: 7,
            id: 0,
            who: "hog".to_owned(),
        };
        account.event(&event, TRACED.realtime_offset);
        account
    }

    fn lcore(stalls: &[(u64, u64)]) -> LcoreSample {
        LcoreSample {
            stall_last_us: stalls.iter().map(|(ms, _)| ms * 1000).collect(),
            stall_last_realtime_ns: stalls.iter().map(|(_, end)| end * MS).collect(),
            ..LcoreSample::default()
        }
    }

    fn unexplained(account: &StolenAccount) -> Vec<StolenSample> {
        let stolen = account.stolen(7).into_iter();
        stolen.filter(|stolen| stolen.cause == StolenCause::Unexplained).collect()
    }

    fn look(account: &mut StolenAccount, stalls: &[(u64, u64)]) -> UnexplainedTime {
        let mut time = UnexplainedTime::default();
        time.add_stalls(7, &lcore(&[]), TRACED, account);
        time.add_stalls(7, &lcore(stalls), TRACED, account);
        time
    }

    #[test]
    fn a_stall_with_an_event_inside_is_explained() {
        let mut account = account(2000, 9);
        look(&mut account, &[(10, 2010)]);
        assert_eq!(unexplained(&account), []);
    }

    #[test]
    fn a_stall_without_an_event_is_told_once() {
        let mut account = account(3000, 9);
        let mut time = look(&mut account, &[(10, 2010)]);
        time.add_stalls(7, &lcore(&[(10, 2010)]), TRACED, &mut account);
        let [stolen] = &unexplained(&account)[..] else { panic!("{account:?}") };
        assert_eq!(
            (stolen.count, stolen.stolen_ns, stolen.thief.as_str()),
            (1, Some(10 * MS), UNKNOWN_THIEF)
        );
        assert_eq!(stolen.longest_realtime_ns, Some(2000 * MS));
    }

    #[test]
    fn stalls_that_were_not_traced_are_not_judged() {
        let mut account = account(3000, 9);
        let mut time = look(&mut account, &[(10, 9005), (10, 1005)]);
        assert_eq!(unexplained(&account), []);
        let later = TracedTime { to_realtime: 9100 * MS, ..TRACED };
        time.add_stalls(7, &lcore(&[(10, 9005)]), later, &mut account);
        assert_eq!(unexplained(&account).len(), 1, "once its events would have been read");
    }

    #[test]
    fn steal_time_explains_stalls() {
        let mut account = account(3000, 1);
        let mut time = look(&mut account, &[]);
        let thread = |cpu, ms| ThreadSample {
            tid: 7,
            cpu,
            cpu_stolen_ms: Some(ms),
            ..ThreadSample::default()
        };
        time.add_steal(&thread(1, 500), &mut account);
        time.add_steal(&thread(1, 520), &mut account);
        time.add_steal(&thread(2, 900), &mut account);
        time.add_stalls(7, &lcore(&[(18, 2018)]), TRACED, &mut account);
        let [stolen] = &unexplained(&account)[..] else { panic!("{account:?}") };
        assert_eq!((stolen.thief.as_str(), stolen.stolen_ns), (HYPERVISOR, Some(20 * MS)));
        assert_eq!(stolen.longest_ns, None);
    }
}

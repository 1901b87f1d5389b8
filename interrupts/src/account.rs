//! Sums the stolen time of threads by cause and thief.

use std::collections::{BTreeMap, VecDeque};

use pmdscope_telemetry::sample::{StolenCause, StolenSample};
use serde::Serialize;

use crate::irq_names::IrqNames;
pub use crate::record::HISTOGRAM_BUCKETS;
use crate::record::{EventKind, EventRecord, Histograms, TotalRecord};
use crate::thief;

/// Most thieves per thread and cause; further ones are counted together.
const MOST_THIEVES: usize = 256;

/// Name of the further thieves.
const OTHERS: &str = "others";

/// Most recent events of a thread that are kept with their times.
const RECENT_EVENTS: usize = 512;

/// Most events of all threads that are kept for [`StolenAccount::events_after`].
const KEPT_EVENTS: usize = 16_384;

/// One event that took a CPU from a polling thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StolenEvent {
    /// Sequence number among all events of a tracer, from 1.
    pub sequence: u64,
    /// Process id of the app.
    pub pid: u32,
    /// lcore id.
    pub lcore: u32,
    /// Number of the CPU.
    pub cpu: u32,
    /// Kind of event.
    pub cause: StolenCause,
    /// What took the CPU, as in [`StolenSample::thief`].
    pub thief: String,
    /// Wall clock at the start of the event, nanoseconds since 1970.
    pub start_realtime_ns: u64,
    /// Length of the event, without events inside it that are counted separately, nanoseconds.
    pub duration_ns: u64,
}

type ThiefKey = (StolenCause, String);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    /// `None` if only the number is known.
    total_ns: Option<u64>,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total_ns = match (self.total_ns, other.total_ns) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
    }
}

/// The longest event of a thief.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Longest {
    duration_ns: u64,
    realtime_ns: u64,
}

/// The stolen time of one thread.
#[derive(Debug, Default)]
struct ThreadAccount {
    pid: u32,
    lcore: u32,
    /// Sums of runs of bpftrace that have ended, and of unexplained time.
    finished: BTreeMap<ThiefKey, Sum>,
    /// Sums of the current run.
    current: BTreeMap<ThiefKey, Sum>,
    longest: BTreeMap<ThiefKey, Longest>,
    finished_histograms: BTreeMap<StolenCause, [u64; HISTOGRAM_BUCKETS]>,
    current_histograms: BTreeMap<StolenCause, [u64; HISTOGRAM_BUCKETS]>,
    /// Start and length of recent events, monotonic clock, nanoseconds.
    recent: VecDeque<(u64, u64)>,
}

/// The stolen time of all threads.
#[derive(Debug, Default)]
pub(crate) struct StolenAccount {
    threads: BTreeMap<u32, ThreadAccount>,
    irqs: IrqNames,
    events: VecDeque<StolenEvent>,
    sequence: u64,
    /// Lost lines, and switches of ended runs without an end.
    lost: u64,
    unended: u64,
}

impl StolenAccount {
    /// Adds the account of a thread, or resets it if the id belongs to another lcore or process
    /// now.
    pub(crate) fn open(&mut self, tid: u32, pid: u32, lcore: u32) {
        let account = self.threads.entry(tid).or_default();
        if (account.pid, account.lcore) != (pid, lcore) {
            *account = ThreadAccount { pid, lcore, ..ThreadAccount::default() };
        }
    }

    /// Removes the accounts of threads for which `is_kept` is false.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.threads.retain(|tid, _| is_kept(*tid));
    }

    /// Adds an event; `realtime_offset_ns` is the wall clock minus the monotonic clock.
    pub(crate) fn event(&mut self, event: &EventRecord, realtime_offset_ns: i128) {
        let Some(account) = self.threads.get_mut(&event.tid) else { return };
        let cause = thief::cause(event.kind);
        let thief = thief::name(event.kind, event.id, &event.who, &mut self.irqs);
        let realtime_ns = realtime(event.start_ns, realtime_offset_ns);
        account.note_longest((cause, thief.clone()), event.duration_ns, realtime_ns);
        push(&mut account.recent, (event.start_ns, event.duration_ns), RECENT_EVENTS);
        self.sequence += 1;
        let event = StolenEvent {
            sequence: self.sequence,
            pid: account.pid,
            lcore: account.lcore,
            cpu: event.cpu,
            cause,
            thief,
            start_realtime_ns: realtime_ns,
            duration_ns: event.duration_ns,
        };
        push(&mut self.events, event, KEPT_EVENTS);
    }

    /// Replaces all totals of a kind in the current run.
    pub(crate) fn totals(&mut self, kind: EventKind, totals: &[TotalRecord]) {
        let cause = thief::cause(kind);
        for account in self.threads.values_mut() {
            // bpftrace prints all totals of a kind each time.
            account.current.retain(|(known, _), _| *known != cause);
        }
        for total in totals {
            let thief = thief::name(kind, total.id, &total.who, &mut self.irqs);
            let Some(account) = self.threads.get_mut(&total.tid) else { continue };
            let sum = Sum { count: total.count, total_ns: Some(total.total_ns) };
            account.add_current((cause, thief), sum);
        }
    }

    /// Replaces the histograms of a kind in the current run.
    pub(crate) fn histograms(&mut self, kind: EventKind, histograms: &Histograms) {
        let cause = thief::cause(kind);
        for (tid, histogram) in histograms {
            if let Some(account) = self.threads.get_mut(tid) {
                account.current_histograms.insert(cause, *histogram);
            }
        }
    }

    /// Counts lines that were lost.
    pub(crate) fn lost(&mut self, lines: u64) {
        self.lost += lines;
    }

    /// Sets the number of switches in the current run without an end.
    pub(crate) fn unended(&mut self, switches: u64) {
        self.unended = switches;
    }

    /// Returns the number of all lost events.
    pub(crate) fn lost_events(&self) -> u64 {
        self.lost + self.unended
    }

    /// Adds the current run to the finished ones: bpftrace has ended, and the next one counts from
    /// 0 again.
    pub(crate) fn finish_run(&mut self) {
        for account in self.threads.values_mut() {
            for (key, sum) in std::mem::take(&mut account.current) {
                account.finished.entry(key).or_default().add(sum);
            }
            for (cause, histogram) in std::mem::take(&mut account.current_histograms) {
                add_histogram(&mut account.finished_histograms, cause, &histogram);
            }
        }
        self.lost += std::mem::take(&mut self.unended);
    }

    /// Adds time that no event explains.
    pub(crate) fn add_unexplained(
        &mut self,
        tid: u32,
        thief: &str,
        ns: u64,
        realtime_ns: Option<u64>,
    ) {
        let Some(account) = self.threads.get_mut(&tid) else { return };
        let key = (StolenCause::Unexplained, thief.to_owned());
        if let Some(realtime_ns) = realtime_ns {
            account.note_longest(key.clone(), ns, realtime_ns);
            let mut histogram = [0; HISTOGRAM_BUCKETS];
            histogram[crate::record::bucket_of(ns)] = 1;
            add_histogram(&mut account.finished_histograms, StolenCause::Unexplained, &histogram);
        }
        account.finished.entry(key).or_default().add(Sum { count: 1, total_ns: Some(ns) });
    }

    /// Returns how much of a time range the recent events of a thread cover; all in nanoseconds,
    /// monotonic clock.
    pub(crate) fn covered_ns(&self, tid: u32, from_ns: u64, to_ns: u64) -> u64 {
        let Some(account) = self.threads.get(&tid) else { return 0 };
        let overlap = |(start, duration): &(u64, u64)| {
            start.saturating_add(*duration).min(to_ns).saturating_sub((*start).max(from_ns))
        };
        account.recent.iter().map(overlap).sum::<u64>().min(to_ns.saturating_sub(from_ns))
    }

    /// Returns the stolen time of a thread, by cause and thief.
    pub(crate) fn stolen(&self, tid: u32) -> Vec<StolenSample> {
        let Some(account) = self.threads.get(&tid) else { return Vec::new() };
        let mut sums = account.finished.clone();
        for (key, sum) in &account.current {
            sums.entry(key.clone()).or_default().add(*sum);
        }
        let sample = |(key, sum): (ThiefKey, Sum)| {
            let longest = account.longest.get(&key);
            StolenSample {
                lcore: account.lcore,
                cause: key.0,
                count: sum.count,
                stolen_ns: sum.total_ns,
                longest_ns: longest.map(|longest| longest.duration_ns),
                longest_realtime_ns: longest.map(|longest| longest.realtime_ns),
                thief: key.1,
            }
        };
        sums.into_iter().map(sample).collect()
    }

    /// Returns the number of all events of a thread.
    pub(crate) fn count(&self, tid: u32) -> u64 {
        let Some(account) = self.threads.get(&tid) else { return 0 };
        account.finished.values().chain(account.current.values()).map(|sum| sum.count).sum()
    }

    /// Returns the histograms of the lcores of a process.
    pub(crate) fn histograms_of(
        &self,
        pid: u32,
    ) -> BTreeMap<(u32, StolenCause), [u64; HISTOGRAM_BUCKETS]> {
        let mut all = BTreeMap::new();
        for account in self.threads.values().filter(|account| account.pid == pid) {
            let histograms = account.finished_histograms.iter().chain(&account.current_histograms);
            for (cause, histogram) in histograms {
                add_histogram(&mut all, (account.lcore, *cause), histogram);
            }
        }
        all
    }

    /// Returns the events after the one with this number, oldest first, as far as they are kept.
    pub(crate) fn events_after(&self, sequence: u64) -> Vec<StolenEvent> {
        self.events.iter().filter(|event| event.sequence > sequence).cloned().collect()
    }
}

impl ThreadAccount {
    fn note_longest(&mut self, key: ThiefKey, duration_ns: u64, realtime_ns: u64) {
        let full = self.longest.len() >= MOST_THIEVES * StolenCause::ALL.len();
        if full && !self.longest.contains_key(&key) {
            return;
        }
        let longest = self.longest.entry(key).or_insert(Longest { duration_ns, realtime_ns });
        if duration_ns > longest.duration_ns {
            *longest = Longest { duration_ns, realtime_ns };
        }
    }

    fn add_current(&mut self, key: ThiefKey, sum: Sum) {
        let (cause, _) = key;
        let known = self.current.contains_key(&key) || self.finished.contains_key(&key);
        let of_cause = self.current.keys().filter(|(known, _)| *known == cause).count();
        let key = if known || of_cause < MOST_THIEVES { key } else { (cause, OTHERS.to_owned()) };
        self.current.entry(key).or_default().add(sum);
    }
}

fn add_histogram<K: Ord>(
    to: &mut BTreeMap<K, [u64; HISTOGRAM_BUCKETS]>,
    key: K,
    histogram: &[u64; HISTOGRAM_BUCKETS],
) {
    let sums = to.entry(key).or_insert([0; HISTOGRAM_BUCKETS]);
    for (sum, count) in sums.iter_mut().zip(histogram) {
        *sum += count;
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
}

/// Returns the wall clock at a time of the monotonic clock, nanoseconds.
pub(crate) fn realtime(monotonic_ns: u64, offset_ns: i128) -> u64 {
    u64::try_from(i128::from(monotonic_ns) + offset_ns).unwrap_or(0)
}

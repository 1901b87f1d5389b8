//! Counters in `/proc` of the CPUs and threads of lcores: they have numbers of events, and hardly
//! any times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pmdscope_telemetry::realtime_ns;
use pmdscope_telemetry::sample::{StolenCause, StolenSample, ThreadSample};

use crate::irq_names::IrqNames;

/// Longest age of counters before they are read again: each app asks for them in each of its
/// rounds.
const AGE: Duration = Duration::from_millis(90);

type CounterKey = (StolenCause, String);
type Counters = BTreeMap<CounterKey, u64>;

/// Counters of all CPUs at one time.
#[derive(Debug, Default)]
struct CpuCounters(BTreeMap<u32, Counters>);

/// Counters of threads since they were first seen.
#[derive(Debug, Default)]
pub(crate) struct KernelCounters {
    threads: BTreeMap<u32, ThreadCounters>,
    cpus: CpuCounters,
    read: Option<Instant>,
    irqs: IrqNames,
}

#[derive(Debug)]
struct ThreadCounters {
    since_realtime_ns: u64,
    lcore: u32,
    /// CPU on which it was last seen.
    cpu: u32,
    on_cpu: Counters,
    thread: ThreadSample,
    /// Count, and time in nanoseconds.
    sums: BTreeMap<CounterKey, (u64, Option<u64>)>,
}

impl KernelCounters {
    /// Adds the events of a thread since it was last seen.
    pub(crate) fn update(&mut self, thread: &ThreadSample) {
        if self.read.is_none_or(|read| read.elapsed() >= AGE) {
            self.read = Some(Instant::now());
            let file = |name| std::fs::read_to_string(name).unwrap_or_default();
            self.cpus = CpuCounters::default();
            self.cpus.add_interrupts(&file("/proc/interrupts"), &mut self.irqs);
            self.cpus.add_softirqs(&file("/proc/softirqs"));
        }
        let on_cpu = self.cpus.0.get(&thread.cpu).cloned().unwrap_or_default();
        match self.threads.get_mut(&thread.tid).filter(|known| known.lcore == thread.lcore) {
            Some(known) => known.update(thread, on_cpu),
            None => {
                self.threads.insert(thread.tid, ThreadCounters::new(thread, on_cpu));
            }
        }
    }

    /// Removes threads for which `is_kept` is false.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.threads.retain(|tid, _| is_kept(*tid));
    }

    /// Returns the sums of a thread.
    pub(crate) fn stolen(&self, tid: u32) -> Vec<StolenSample> {
        let Some(thread) = self.threads.get(&tid) else { return Vec::new() };
        let sample = |((cause, thief), (count, ns)): (&CounterKey, &(u64, Option<u64>))| {
            let (lcore, cause, thief) = (thread.lcore, *cause, thief.clone());
            let (count, stolen_ns) = (*count, *ns);
            let (longest_ns, longest_realtime_ns) = (None, None);
            StolenSample { lcore, cause, thief, count, stolen_ns, longest_ns, longest_realtime_ns }
        };
        thread.sums.iter().map(sample).collect()
    }

    /// Returns the wall clock when the first of these threads was first seen.
    pub(crate) fn since_realtime_ns(&self, tids: impl Iterator<Item = u32>) -> Option<u64> {
        tids.filter_map(|tid| Some(self.threads.get(&tid)?.since_realtime_ns)).min()
    }
}

impl ThreadCounters {
    fn new(thread: &ThreadSample, on_cpu: Counters) -> Self {
        Self {
            since_realtime_ns: realtime_ns(),
            lcore: thread.lcore,
            cpu: thread.cpu,
            on_cpu,
            thread: thread.clone(),
            sums: BTreeMap::new(),
        }
    }

    fn update(&mut self, thread: &ThreadSample, on_cpu: Counters) {
        if self.cpu == thread.cpu {
            for (key, count) in &on_cpu {
                let before = self.on_cpu.get(key).copied().unwrap_or(0);
                add(&mut self.sums, key.clone(), count.saturating_sub(before), None);
            }
        }
        let before = std::mem::replace(&mut self.thread, thread.clone());
        let slept = thread.voluntary_switches.saturating_sub(before.voluntary_switches);
        add(&mut self.sums, (StolenCause::Sleep, "own system call".to_owned()), slept, None);
        let lost = thread.involuntary_switches.saturating_sub(before.involuntary_switches);
        let waited = thread.run_delay_ns.zip(before.run_delay_ns);
        let waited = waited.map(|(now, before)| now.saturating_sub(before));
        add(&mut self.sums, (StolenCause::Scheduler, "other threads".to_owned()), lost, waited);
        (self.cpu, self.on_cpu) = (thread.cpu, on_cpu);
    }
}

fn add(
    sums: &mut BTreeMap<CounterKey, (u64, Option<u64>)>,
    key: CounterKey,
    count: u64,
    ns: Option<u64>,
) {
    if count == 0 && ns.unwrap_or(0) == 0 {
        return;
    }
    let sum = sums.entry(key).or_default();
    sum.0 += count;
    sum.1 = if ns.is_none() { sum.1 } else { Some(sum.1.unwrap_or(0) + ns.unwrap_or(0)) };
}

impl CpuCounters {
    /// Parses `/proc/interrupts`: a line per interrupt, a column per CPU, then chip and action.
    fn add_interrupts(&mut self, text: &str, irqs: &mut IrqNames) {
        let cpus = cpus(text);
        for CounterLine { name, counts, words } in lines(text, cpus.len()) {
            if counts.iter().any(|count| *count > 0) {
                self.add(&cpus, &counts, &interrupt(name, &words, irqs));
            }
        }
    }

    /// Parses `/proc/softirqs`: a line per softirq, a column per CPU.
    fn add_softirqs(&mut self, text: &str) {
        let cpus = cpus(text);
        for CounterLine { name, counts, .. } in lines(text, cpus.len()) {
            self.add(&cpus, &counts, &(StolenCause::Softirq, name.to_owned()));
        }
    }

    fn add(&mut self, cpus: &[u32], counts: &[u64], key: &CounterKey) {
        for (cpu, count) in cpus.iter().zip(counts).filter(|(_, count)| **count > 0) {
            *self.0.entry(*cpu).or_default().entry(key.clone()).or_default() += count;
        }
    }
}

/// Returns the CPUs in the header, such as `CPU0 CPU1`.
fn cpus(text: &str) -> Vec<u32> {
    let cpu = |word: &str| word.strip_prefix("CPU")?.parse().ok();
    let header = text.lines().next().unwrap_or_default();
    header.split_ascii_whitespace().filter_map(cpu).collect()
}

/// A line such as `NET_RX: 4 2`: a count per CPU.
struct CounterLine<'a> {
    name: &'a str,
    counts: Vec<u64>,
    /// Words after the counts.
    words: Vec<&'a str>,
}

/// Returns the lines with a count for each CPU; others have one for the whole machine.
fn lines(text: &str, cpus: usize) -> impl Iterator<Item = CounterLine<'_>> {
    text.lines().skip(1).filter_map(move |line| {
        let (name, rest) = line.split_once(':')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let (counts, words) = fields.split_at_checked(cpus)?;
        let counts = counts.iter().map(|field| field.parse().ok()).collect::<Option<_>>()?;
        Some(CounterLine { name: name.trim(), counts, words: words.to_vec() })
    })
}

fn interrupt(name: &str, words: &[&str], irqs: &mut IrqNames) -> CounterKey {
    if let Ok(irq) = name.parse() {
        let action = words.last().copied().unwrap_or_default();
        return (StolenCause::Irq, irqs.name(irq, action));
    }
    let described = if words.is_empty() { name.to_owned() } else { words.join(" ") };
    match name {
        "LOC" => (StolenCause::Timer, "local timer".to_owned()),
        "RES" => (StolenCause::Ipi, "reschedule".to_owned()),
        "CAL" => (StolenCause::Ipi, "function call".to_owned()),
        "TLB" => (StolenCause::Ipi, "TLB shootdown".to_owned()),
        ipi if ipi.starts_with("IPI") => (StolenCause::Ipi, described),
        _ => (StolenCause::Irq, described),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU2\n\
        \x2041:          1         15  PCI-MSIX-0000:00:03.0   1-edge      no-such-queue\n\
        NMI:          0          2   Non-maskable interrupts\n\
        LOC:         10         20   Local timer interrupts\n\
        IPI0:         3          0   Rescheduling interrupts\n\
        ERR:          7\n";
    const SOFTIRQS: &str =
        "        CPU0       CPU2\n  NET_RX:     5     6\n   TIMER:     0     0\n";

    fn counters() -> CpuCounters {
        let mut counters = CpuCounters::default();
        counters.add_interrupts(INTERRUPTS, &mut IrqNames::default());
        counters.add_softirqs(SOFTIRQS);
        counters
    }

    #[test]
    fn columns_are_those_of_their_cpus() {
        let counters = counters();
        let of = |cpu: u32, cause| {
            let all = counters.0[&cpu].iter().filter(|((known, _), _)| *known == cause);
            all.map(|((_, name), count)| (name.as_str(), *count)).collect::<Vec<_>>()
        };
        assert_eq!(of(2, StolenCause::Timer), [("local timer", 20)]);
        assert_eq!(of(0, StolenCause::Ipi), [("Rescheduling interrupts", 3)]);
        assert_eq!(of(0, StolenCause::Softirq), [("NET_RX", 5)]);
        let irqs = of(2, StolenCause::Irq);
        assert!(irqs.contains(&("Non-maskable interrupts", 2)), "{irqs:?}");
        assert!(irqs.iter().any(|(name, count)| name.contains("IRQ 41") && *count == 15));
        assert!(!counters.0.contains_key(&1));
    }

    #[test]
    fn a_thread_counts_what_came_since_it_was_seen_first() {
        let thread = |cpu, switches, run_delay_ns| ThreadSample {
            lcore: 1,
            tid: 7,
            cpu,
            involuntary_switches: switches,
            run_delay_ns,
            ..ThreadSample::default()
        };
        let key = || (StolenCause::Timer, "local timer".to_owned());
        let on_cpu = |count| Counters::from([(key(), count)]);
        let mut counters = ThreadCounters::new(&thread(1, 10, Some(1000)), on_cpu(100));
        counters.update(&thread(1, 13, Some(1500)), on_cpu(140));
        assert_eq!(counters.sums[&key()], (40, None));
        assert_eq!(
            counters.sums[&(StolenCause::Scheduler, "other threads".to_owned())],
            (3, Some(500))
        );
        // On another CPU only events from now on are known.
        counters.update(&thread(2, 13, Some(1500)), on_cpu(900));
        assert_eq!(counters.sums[&key()], (40, None));
        counters.update(&thread(2, 13, None), on_cpu(901));
        assert_eq!(counters.sums[&key()], (41, None));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text: String) {
            let mut counters = CpuCounters::default();
            counters.add_interrupts(&text, &mut IrqNames::default());
            counters.add_interrupts(&format!("CPU0 CPU1\n{text}"), &mut IrqNames::default());
            counters.add_softirqs(&format!("CPU0\n{text}"));
        }
    }
}

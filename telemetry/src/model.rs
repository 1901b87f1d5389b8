//! Derives rates, resets, gaps and ages from two samples. No other module does.

pub(crate) mod driver_counters;
mod heaps;
mod interface_totals;
pub(crate) mod interfaces;
mod members;
mod plausibility;
mod ports;
mod queue_growth;
mod queues;
mod rings;
mod still;
pub(crate) mod stolen;

use std::collections::BTreeMap;

use serde::Serialize;

use self::driver_counters::{CheckedCounters, DriverCounters};
pub use self::driver_counters::{CounterRates, PortCounters, UNEXPLAINED};
use self::heaps::HeapHistory;
pub use self::heaps::HeapTrend;
pub use self::interfaces::{
    FilterRates, InterfaceQueueRates, InterfaceRates, InterfaceTracker, SourceRates, VerdictRates,
};
use self::members::PortMembers;
pub use self::plausibility::{Implausibility, ImplausibleCounter};
pub use self::ports::{PortRates, RxQueueRates};
use self::ports::{port_rates, rx_queues};
pub use self::queue_growth::{QueueGrowth, queue_packets};
pub use self::queues::QueueRates;
use self::queues::{SentPackets, queue_rates};
use self::rings::RingHistory;
pub use self::rings::RingRates;
pub use self::still::StillThread;
use self::still::StillThreads;
use self::stolen::StolenHistory;
pub use self::stolen::{StolenCauseRates, StolenRates, ThiefRates};
use crate::counter_updates::CounterUpdates;
use crate::flaps::FlapCounters;
use crate::lcore_gaps::LcoreGaps;
use crate::loss::LossTrends;
pub use crate::loss::{LedgerRates, SiteRates};
use crate::rate::rate;
use crate::rx_flat::RxBaseline;
use crate::sample::{
    AppIdentity, LcoreSample, LedgerSample, PoolSample, PortSample, QueueSample, Sample,
    SentByPort, ThreadSample,
};
use crate::sending::{Sending, SendingHistory, SilentApp};
use crate::stall::LcoreStalls;
use crate::starts::{AppRestarts, StartCounter};
pub use crate::trend::TrendOptions;
use crate::trend::ValueTrend;

/// State of one app: the newest sample, and rates and trends derived from it and earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Model {
    /// The newest sample.
    pub sample: Sample,
    /// Time between the previous sample and the newest one, seconds; `None` for a first sample or after a
    /// restart.
    pub interval_s: Option<f64>,
    /// Whether the app was restarted between these two samples.
    pub restarted: bool,
    /// Rates of ports, in the order of `sample.ports`.
    pub ports: Vec<PortRates>,
    /// Rates of queues, in the order of `sample.queues`.
    pub queues: Vec<QueueRates>,
    /// Trends of pools, in the order of `sample.pools`.
    pub pools: Vec<PoolTrend>,
    /// Trends of heaps, in the order of `sample.heaps`.
    pub heaps: Vec<HeapTrend>,
    /// Rates of software rings, in the order of `sample.rings`.
    pub rings: Vec<RingRates>,
    /// Rates of lcores, in the order of `sample.lcores`.
    pub lcores: Vec<LcoreRates>,
    /// Rates of threads of lcores, in the order of `sample.threads`.
    pub threads: Vec<ThreadRates>,
    /// Time taken from traced lcores, in the order of `sample.tracing.lcores`; empty without tracing.
    pub stolen: Vec<StolenRates>,
    /// Gaps between polls since the previous sample, and what used the CPU in them, by lcore; empty for a
    /// first sample.
    #[serde(skip)]
    pub gaps: Vec<LcoreGaps>,
    /// Loss rates of pools, in the order of `sample.ledger`.
    pub ledger: Vec<LedgerRates>,
    /// Rates of sites, in the order of `sample.sites`.
    pub sites: Vec<SiteRates>,
    /// Time and packets since the app stopped sending although it still receives; `None` otherwise.
    pub silent: Option<SilentApp>,
    /// Starts of the app in the last minute; `None` if there were none, or if no process has replaced
    /// another.
    pub restarts: Option<AppRestarts>,
}

/// Trend of one pool. Slope and time left are those of libpmdscope if it has a ledger of the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolTrend {
    /// Name of the pool.
    pub name: String,
    /// Share of the objects that are in use, 0 to 1; `None` if the occupancy is unknown.
    pub used_ratio: Option<f64>,
    /// Growth of the in-use count over the trend window, objects per second; `None` until there are enough
    /// samples. The median of pairwise slopes, so short bursts hardly affect it.
    pub slope_ps: Option<f64>,
    /// Time until the pool is empty at that slope, seconds; `None` if the growth is not significant.
    pub exhausted_in_s: Option<f64>,
    /// In-use counts of the trend window, oldest first, for sparklines.
    pub history: Vec<u64>,
}

/// Per-second rates of one lcore. A rate is `None` without an earlier sample or after a counter reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LcoreRates {
    /// lcore id.
    pub lcore: u32,
    /// Iterations of the poll loop per second.
    pub polls_ps: Option<f64>,
    /// Packets received per second.
    pub pps: Option<f64>,
    /// Share of iterations that received packets, 0 to 1.
    pub busy_ratio: Option<f64>,
    /// Stalls per second.
    pub stalls_ps: Option<f64>,
    /// Stalls since the previous sample, and what used the CPU; `None` without stalls.
    pub stalls: Option<LcoreStalls>,
}

/// Per-second rates of the thread of one lcore, as reported by the kernel. A rate is `None` without an
/// earlier sample or after a counter reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadRates {
    /// lcore id.
    pub lcore: u32,
    /// Voluntary context switches per second.
    pub voluntary_ps: Option<f64>,
    /// Involuntary context switches per second.
    pub involuntary_ps: Option<f64>,
    /// Share of the time in which the thread ran, 0 to 1; `None` if the kernel does not count it.
    pub run_ratio: Option<f64>,
    /// Share of the time in which the thread was ready to run but had no CPU, 0 to 1; `None` if the kernel
    /// does not count it.
    pub run_delay_ratio: Option<f64>,
    /// Time for which the thread has not run; `None` if it ran since the previous sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub still: Option<StillThread>,
}

/// Converts the successive samples of one app into models.
#[derive(Debug, Default)]
pub struct ModelTracker {
    options: TrendOptions,
    last: Option<Sample>,
    trends: BTreeMap<String, ValueTrend>,
    losses: LossTrends,
    rx_baseline: RxBaseline,
    sending: SendingHistory,
    /// Sent packets at the last sample.
    sent: SentByPort,
    flaps: FlapCounters,
    counter_updates: CounterUpdates,
    driver_counters: DriverCounters,
    members: PortMembers,
    starts: StartCounter,
    heaps: HeapHistory,
    rings: RingHistory,
    stolen: StolenHistory,
    still: StillThreads,
}

impl Model {
    /// Returns the sum over all ports with a known value; `None` if there are none. Ports that consist
    /// of others count the packets of these, so their members are left out.
    pub fn sum_of_ports(&self, of: impl Fn(&PortRates) -> Option<f64>) -> Option<f64> {
        let ports = self.ports.iter().filter(|rates| rates.member_of.is_none());
        ports.filter_map(of).reduce(|a, b| a + b)
    }

    /// Returns the used share of the fullest pool, 0 to 1; `None` if it is unknown for all pools.
    pub fn fullest_pool_ratio(&self) -> Option<f64> {
        self.pools.iter().filter_map(|pool| pool.used_ratio).reduce(f64::max)
    }

    /// Returns the seconds until a pool is empty; `None` if it does not drain.
    pub fn pool_left_s(&self, pool: &str) -> Option<f64> {
        self.pools.iter().find(|trend| trend.name == pool)?.exhausted_in_s
    }

    /// Returns the longest time between two polls of an lcore in the last window, microseconds.
    pub fn longest_gap_us(&self) -> Option<u64> {
        self.sample.lcores.iter().map(|lcore| lcore.gap_window_max_us).max()
    }
}

impl ModelTracker {
    /// Returns a tracker without earlier samples.
    pub fn new(options: TrendOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Returns the model of `sample`, given the previous samples.
    ///
    /// A sample that is not newer than the last one (the same again, or a recording that combines two
    /// boots) has no rates.
    pub fn update(&mut self, sample: Sample) -> Model {
        let last = self.last.take();
        let restarted = last.as_ref().is_some_and(|last| !last.app.same_process(&sample.app));
        let elapsed_ns = last
            .as_ref()
            .and_then(|last| sample.monotonic_ns.checked_sub(last.monotonic_ns))
            .filter(|ns| *ns > 0);
        let backwards = last.is_some() && elapsed_ns.is_none();
        if restarted || backwards {
            self.trends.clear();
            self.losses.clear();
            self.sending.clear();
            self.flaps.clear();
            self.counter_updates.clear();
            self.driver_counters.clear();
            self.members.clear();
            self.heaps.clear();
            self.rings.clear();
            self.stolen.clear();
            self.still.clear();
        }
        // A restart does not change the fact that a port is silent.
        if backwards {
            self.rx_baseline.clear();
            self.starts.clear();
        }
        self.starts.update(&sample);
        let last = last.filter(|_| !restarted);
        let interval = elapsed_ns
            .and_then(|ns| last.as_ref().map(|last| Interval { last, seconds: ns as f64 / 1e9 }));
        let checked = self.driver_counters.update(&sample, interval.as_ref());
        self.forget_implausible(&sample, &checked);
        let (ledger, sites) = self.losses.update(&sample, self.options);
        let now = sample.sent_by_port();
        let Sending { ports: unsent, queues: refused, silent } = self.sending.update(&sample, &now);
        let before = std::mem::replace(&mut self.sent, now);
        let sent = SentPackets { unsent: &unsent, now: &self.sent, before: &before };
        let queues = queue_rates(&sample, interval.as_ref(), &sent, &refused);
        let mut model = Model {
            interval_s: interval.as_ref().map(|interval| interval.seconds),
            restarted,
            ports: self.port_rates(&sample, interval.as_ref(), checked),
            queues,
            pools: self.pool_trends(&sample),
            heaps: self.heaps.update(&sample, self.options),
            rings: self.rings.update(&sample),
            lcores: lcores_rates(&sample, interval.as_ref()),
            threads: self.thread_rates(&sample, interval.as_ref()),
            stolen: self.stolen.update(&sample),
            gaps: interval
                .as_ref()
                .map_or_else(Vec::new, |interval| LcoreGaps::between(interval.last, &sample)),
            ledger,
            sites,
            silent,
            restarts: self.starts.within(self.options.restarts, sample.realtime_ns),
            sample,
        };
        for (((port, unsent), flaps), member_of) in model
            .ports
            .iter_mut()
            .zip(unsent)
            .zip(self.flaps.update(&model.sample))
            .zip(self.members.update(&model.sample))
        {
            (port.unsent, port.flaps, port.member_of) = (unsent, flaps, member_of);
        }
        self.last = Some(counters(&model.sample));
        model
    }

    /// Begins the histories of ports anew that have counters that cannot be right.
    fn forget_implausible(&mut self, sample: &Sample, checked: &[CheckedCounters]) {
        let ports = sample.ports.iter().zip(checked);
        for (port, _) in ports.filter(|(_, checked)| !checked.implausible.is_empty()) {
            self.rx_baseline.skip(port, sample.monotonic_ns);
            self.sending.forget(port.id);
            self.counter_updates.forget(port.id);
        }
    }

    fn port_rates(
        &mut self,
        sample: &Sample,
        interval: Option<&Interval<'_>>,
        checked: Vec<CheckedCounters>,
    ) -> Vec<PortRates> {
        let ports = sample.ports.iter().zip(self.rx_baseline.update(sample)).zip(checked);
        let rates = ports.map(|((port, rx_flat), checked)| PortRates {
            rx_flat,
            rx_queues: rx_queues(sample, port, interval),
            ..port_rates(port, interval, checked)
        });
        let updated = rates.zip(self.counter_updates.update(sample));
        let rates = |(rates, update): (PortRates, Option<_>)| match update {
            Some(update) => rates.of_update(update),
            None => rates,
        };
        updated.map(rates).collect()
    }

    fn thread_rates(
        &mut self,
        sample: &Sample,
        interval: Option<&Interval<'_>>,
    ) -> Vec<ThreadRates> {
        let threads = sample.threads.iter().zip(self.still.update(sample));
        threads
            .map(|(thread, still)| ThreadRates { still, ..thread_rates(thread, interval) })
            .collect()
    }

    fn pool_trends(&mut self, sample: &Sample) -> Vec<PoolTrend> {
        // A pool that could not be read this time keeps its history.
        if !sample.failed("/mempool/") && !sample.failed("/pmdscope") {
            self.trends.retain(|name, _| sample.pools.iter().any(|pool| pool.name == *name));
        }
        let trends = sample.pools.iter().map(|pool| {
            let ledger = sample.ledger.iter().find(|ledger| ledger.name == pool.name);
            self.pool_trend(pool, ledger, sample.monotonic_ns)
        });
        trends.collect()
    }

    fn pool_trend(
        &mut self,
        pool: &PoolSample,
        ledger: Option<&LedgerSample>,
        now_ns: u64,
    ) -> PoolTrend {
        let Some(occupancy) = pool.occupancy else {
            return PoolTrend { name: pool.name.clone(), ..PoolTrend::default() };
        };
        let trend = self.trends.entry(pool.name.clone()).or_default();
        trend.push(now_ns, occupancy.in_use, self.options.window, self.options.points);
        let slope = trend.slope();
        let rising = slope.filter(|slope| trend.rises(*slope, pool.size));
        let left = pool.size.saturating_sub(occupancy.in_use);
        PoolTrend {
            name: pool.name.clone(),
            used_ratio: ratio(occupancy.in_use, pool.size),
            slope_ps: ledger.map(LedgerSample::slope_ps).or(slope),
            exhausted_in_s: match ledger {
                // A burst has a slope as well: only for a proven loss no rising trend is needed.
                Some(ledger) => ledger
                    .exhausted_in_ms
                    .filter(|_| ledger.loses() || rising.is_some())
                    .map(|ms| ms as f64 / 1000.0),
                None => rising.map(|slope| left as f64 / slope),
            },
            history: trend.values().collect(),
        }
    }
}

/// Copies the part of a sample that rates are computed from. Copying the rest would take longer than
/// the computation.
fn counters(sample: &Sample) -> Sample {
    let port = |port: &PortSample| PortSample {
        id: port.id,
        device: port.device.clone(),
        stats: port.stats,
        xstats: port.xstats.clone(),
        ..PortSample::default()
    };
    let queue =
        |queue: &QueueSample| QueueSample { bursts: Vec::new(), depths: Vec::new(), ..*queue };
    let lcore = |lcore: &LcoreSample| LcoreSample {
        lcore: lcore.lcore,
        polls: lcore.polls,
        busy_polls: lcore.busy_polls,
        packets: lcore.packets,
        idle_us: lcore.idle_us,
        stalls: lcore.stalls,
        gap_max_us: lcore.gap_max_us,
        stall_last_realtime_ns: lcore.stall_last_realtime_ns.clone(),
        gaps: lcore.gaps.clone(),
        ..LcoreSample::default()
    };
    let AppIdentity { pid, start_ticks, .. } = sample.app;
    Sample {
        monotonic_ns: sample.monotonic_ns,
        app: AppIdentity { pid, start_ticks, ..AppIdentity::default() },
        ports: sample.ports.iter().map(port).collect(),
        queues: sample.queues.iter().map(queue).collect(),
        lcores: sample.lcores.iter().map(lcore).collect(),
        threads: sample.threads.clone(),
        tracing: sample.tracing.clone(),
        usage: sample.usage.clone(),
        ..Sample::default()
    }
}

/// The previous sample, and the time since.
struct Interval<'a> {
    last: &'a Sample,
    seconds: f64,
}

impl Interval<'_> {
    /// Returns the growth per second; `None` when the counter went backwards.
    fn rate(&self, now: u64, before: u64) -> Option<f64> {
        rate(now, before, self.seconds)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn bits(bytes: f64) -> f64 {
    bytes * 8.0
}

fn lcores_rates(sample: &Sample, interval: Option<&Interval<'_>>) -> Vec<LcoreRates> {
    sample.lcores.iter().map(|lcore| lcore_rates(sample, lcore, interval)).collect()
}

fn lcore_rates(
    sample: &Sample,
    lcore: &LcoreSample,
    interval: Option<&Interval<'_>>,
) -> LcoreRates {
    let same = |before: &&LcoreSample| before.lcore == lcore.lcore;
    let before = interval.and_then(|i| Some((i, i.last.lcores.iter().find(same)?)));
    let Some((interval, before)) = before else {
        return LcoreRates { lcore: lcore.lcore, ..LcoreRates::default() };
    };
    let polls = lcore.polls.checked_sub(before.polls);
    let busy = lcore.busy_polls.checked_sub(before.busy_polls);
    LcoreRates {
        lcore: lcore.lcore,
        polls_ps: interval.rate(lcore.polls, before.polls),
        pps: interval.rate(lcore.packets, before.packets),
        // The app counts while it is read, so the ratio could slightly exceed 1.
        busy_ratio: busy.zip(polls).and_then(|(busy, polls)| ratio(busy.min(polls), polls)),
        stalls_ps: interval.rate(lcore.stalls, before.stalls),
        stalls: LcoreStalls::between((interval.last, before), (sample, lcore)),
    }
}

fn thread_rates(thread: &ThreadSample, interval: Option<&Interval<'_>>) -> ThreadRates {
    let same = |before: &&ThreadSample| (before.lcore, before.tid) == (thread.lcore, thread.tid);
    let before = interval.and_then(|i| Some((i, i.last.threads.iter().find(same)?)));
    let rate = |of: fn(&ThreadSample) -> u64| {
        before.and_then(|(interval, before)| interval.rate(of(thread), of(before)))
    };
    // Threads are read at another time than the rest of the sample.
    let share = |of: fn(&ThreadSample) -> Option<u64>| {
        let (_, before) = before?;
        let read_ns = thread.read_ns.checked_sub(before.read_ns)?;
        Some(ratio(of(thread)?.checked_sub(of(before)?)?, read_ns)?.min(1.0))
    };
    ThreadRates {
        lcore: thread.lcore,
        voluntary_ps: rate(|thread| thread.voluntary_switches),
        involuntary_ps: rate(|thread| thread.involuntary_switches),
        run_ratio: share(|thread| thread.run_ns),
        run_delay_ratio: share(|thread| thread.run_delay_ns),
        still: None,
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;

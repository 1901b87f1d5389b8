//! Causes of packets that a NIC missed: those that two samples show, each with its share.
//!
//! A gap between two polls loses the packets that arrive in it beyond the descriptors of the queue.
//! libpmdscope reports the gaps of an interval, so the packets that they lost can be estimated, and
//! attributed to what used the CPU. The others are attributed to causes with an unknown share: these
//! were present at the same time, and are reported without a share. A packet is never counted for two
//! causes.

mod budget;
mod queues;
mod unpolled;

use serde::Serialize;

pub use self::budget::StallBudget;
pub(crate) use self::queues::NicFacts;
use self::queues::{busy_ratio, is_overrun, nic_limit};
pub(crate) use self::unpolled::{UnpolledQueues, still_threads, unpolled};
use crate::account::{CounterClass, PortAccount};
use crate::drivers::CounterPlace;
use crate::finding::Thresholds;
use crate::finding::balance::{self, HotQueue};
pub use crate::lcore_gaps::{CpuFrequency, CpuTime, LcoreGaps, PollGap};
use crate::model::{CounterRates, Model, PortRates};
use crate::sample::{PoolSample, PortSample, QueueDirection, QueueSample};
use crate::stall::GapUse;
use crate::suspected_pool::SuspectedPool;

/// Smaller shares are not reported: the estimate is not precise enough.
const LEAST_SHARE: f64 = 0.01;

/// If less is unexplained, no causes without a share are searched for.
const UNEXPLAINED_MIN: f64 = 0.1;

/// The NIC is suspected only if gaps and pools leave at least this unexplained: they may lose more
/// than the mean rate suggests.
const NIC_UNEXPLAINED_MIN: f64 = 0.5;

/// Used share from which a pool counts as empty: the rest may be in caches of other lcores.
pub(crate) const EMPTY_POOL: f64 = 0.98;

/// An lcore or queue is saturated if at least this share of its polls returns packets.
const SATURATED: f64 = 0.9;

/// A CPU is slow below this share of its sustainable frequency.
const SLOW_CLOCK: f64 = 0.8;

/// If all received packets but this share are sent, the loop does not free what a driver refuses.
const FREED: f64 = 0.05;

/// Largest relative difference of the polls of a queue and of the lcore that polls it: they are read
/// one after the other.
const READ_SKEW: f64 = 0.005;

/// Cause of packets that a NIC missed. Causes of equal weight are listed in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissedCause {
    /// No mbuf was free to refill the receive descriptors.
    PoolEmpty,
    /// No lcore polled the port, or one of its queues.
    NotPolled,
    /// Something else ran on the CPU of an lcore.
    StolenCore,
    /// The poll loop retried packets that a driver did not accept.
    TxBackpressure,
    /// One iteration of the app's own code took too long.
    StalledLcore,
    /// The app's own code slept or waited.
    SleepingLcore,
    /// Gaps below the stall threshold were too long for the number of receive descriptors.
    RingTooSmall,
    /// RSS gave most packets to one queue.
    HotQueue,
    // Before `BusyLcore`, which it may have caused.
    /// The CPU of an lcore ran below the frequency that it can sustain.
    SlowClock,
    /// The lcore was busy almost all of the time.
    BusyLcore,
    /// The NIC or its PCIe link is the limit: the queues had room, and the lcores had time.
    NicLimit,
    /// No cause was found.
    Unknown,
}

impl MissedCause {
    /// All causes, in their order.
    pub const ALL: [Self; 12] = [
        Self::PoolEmpty,
        Self::NotPolled,
        Self::StolenCore,
        Self::TxBackpressure,
        Self::StalledLcore,
        Self::SleepingLcore,
        Self::RingTooSmall,
        Self::HotQueue,
        Self::SlowClock,
        Self::BusyLcore,
        Self::NicLimit,
        Self::Unknown,
    ];

    /// Returns its name in JSON and in labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::PoolEmpty => "pool_empty",
            Self::NotPolled => "not_polled",
            Self::StolenCore => "stolen_core",
            Self::TxBackpressure => "tx_backpressure",
            Self::StalledLcore => "stalled_lcore",
            Self::SleepingLcore => "sleeping_lcore",
            Self::RingTooSmall => "ring_too_small",
            Self::HotQueue => "hot_queue",
            Self::BusyLcore => "busy_lcore",
            Self::SlowClock => "slow_clock",
            Self::NicLimit => "nic_limit",
            Self::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for MissedCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One cause, and the facts that show it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExplainedCause<'a> {
    pub(crate) cause: MissedCause,
    /// Share of the missed packets, above 0 to 1; `None` if it is unknown.
    pub(crate) share: Option<f64>,
    pub(crate) facts: CauseFacts<'a>,
}

/// The facts that show a cause.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CauseFacts<'a> {
    /// The pool that had no mbufs, if it is known.
    Pool(Option<&'a PoolSample>),
    /// Queues that nobody polls.
    Unpolled(UnpolledQueues<'a>),
    /// Gaps of an lcore, and the time of this cause in them, milliseconds.
    Lcore(&'a LcoreGaps, f64),
    /// A port that refused packets.
    Port(&'a PortSample, &'a PortRates),
    Queue(HotQueue),
    /// Share of the polls that returned packets.
    Polls(f64),
    Clock(CpuFrequency),
    Nic(NicFacts<'a>),
    /// A counter of packets that the NIC discarded before its queues.
    Discards(&'a CounterRates),
    /// Nothing was found.
    Nothing,
}

/// Packets lost in the gaps of one lcore.
struct LcoreLoss<'a> {
    gaps: &'a LcoreGaps,
    /// Packets lost in gaps of at least the stall threshold, and in shorter ones.
    long: f64,
    short: f64,
    /// Time of such gaps, milliseconds.
    long_ms: f64,
    short_ms: f64,
    /// Number of these gaps.
    count: u64,
}

/// Returns the causes of the packets that the port with this index missed, most likely first; at
/// least one. The sum of their shares is at most 1.
pub(crate) fn explain<'a>(
    model: &'a Model,
    at: usize,
    thresholds: &Thresholds,
) -> Vec<ExplainedCause<'a>> {
    let Some((port, rates)) = model.sample.ports.get(at).zip(model.ports.get(at)) else {
        return Vec::new();
    };
    let missed = rates.rx_missed_ps.unwrap_or(0.0) * model.interval_s.unwrap_or(0.0);
    let mut causes = Vec::new();
    let empty = empty_pool(model, (port, rates));
    if let Some((pool, share)) = empty {
        add(&mut causes, MissedCause::PoolEmpty, share, CauseFacts::Pool(pool));
    }
    let left = 1.0 - empty.and_then(|(_, share)| share).unwrap_or(0.0);
    let discards = discards(rates).map(|(counter, share)| (counter, share * left));
    if let Some((counter, share)) = discards {
        let facts = CauseFacts::Discards(counter);
        add(&mut causes, MissedCause::NicLimit, Some(share), facts);
    }
    let left = left - discards.map_or(0.0, |(_, share)| share);
    let backpressure = backpressure(model, thresholds);
    let unpolled = unpolled(model, port, rates).filter(|found| {
        // A loop that retries packets does not poll either. Gaps tell why a loop of a linked app does not.
        !found.queues.is_empty() || !found.is_counted && backpressure.is_none()
    });
    let unpolled_share =
        unpolled.as_ref().and_then(|found| found.missed_share).map(|share| share * left);
    if let Some(found) = unpolled {
        add(&mut causes, MissedCause::NotPolled, unpolled_share, CauseFacts::Unpolled(found));
    }
    let left = left - unpolled_share.unwrap_or(0.0);
    let losses: Vec<_> =
        model.gaps.iter().map(|gaps| loss(model, (port, rates), gaps, thresholds)).collect();
    let lost: f64 = losses.iter().map(|loss| loss.long + loss.short).sum();
    let scale = if lost > 0.0 { left / lost.max(missed) } else { 0.0 };
    for loss in &losses {
        share_out(&mut causes, loss, scale, backpressure);
    }
    let told: f64 = causes.iter().filter_map(|cause| cause.share).sum();
    let rest = (1.0 - told).max(0.0);
    if rest >= UNEXPLAINED_MIN {
        causes.extend(without_gaps(model, (port, rates), rest, thresholds, backpressure));
    }
    let failed = rates.rx_nombuf_ps.unwrap_or(0.0) / rates.rx_missed_ps.unwrap_or(0.0).max(1.0);
    rank(merged(causes), rest, failed.min(1.0))
}

fn add<'a>(
    causes: &mut Vec<ExplainedCause<'a>>,
    cause: MissedCause,
    share: Option<f64>,
    facts: CauseFacts<'a>,
) {
    if share.is_none_or(|share| share >= LEAST_SHARE) {
        causes.push(ExplainedCause { cause, share, facts });
    }
}

/// Keeps the same cause of several lcores separate, but only the worst three of them.
fn merged(mut causes: Vec<ExplainedCause<'_>>) -> Vec<ExplainedCause<'_>> {
    causes.sort_by(|a, b| b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)));
    let mut told = std::collections::BTreeMap::<MissedCause, usize>::new();
    causes.retain(|cause| {
        let count = told.entry(cause.cause).or_default();
        *count += 1;
        *count <= 3
    });
    causes
}

/// Sorts causes. One without a share ranks as if it had caused all that is unexplained; an empty pool
/// ranks at least by the failed allocations per missed packet.
fn rank(mut causes: Vec<ExplainedCause<'_>>, rest: f64, failed: f64) -> Vec<ExplainedCause<'_>> {
    if causes.is_empty() {
        add(&mut causes, MissedCause::Unknown, None, CauseFacts::Nothing);
    }
    let weight = |cause: &ExplainedCause<'_>| match cause.cause {
        MissedCause::PoolEmpty => cause.share.unwrap_or(failed).max(rest),
        _ => cause.share.unwrap_or(rest),
    };
    causes.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.cause.cmp(&b.cause)));
    causes
}

/// Returns the empty pool of a port, if it is known, and the share that it explains.
fn empty_pool<'a>(
    model: &'a Model,
    (port, rates): (&PortSample, &PortRates),
) -> Option<(Option<&'a PoolSample>, Option<f64>)> {
    let suspect = SuspectedPool::of(model, port);
    if let SuspectedPool::Feeds(pool) = suspect
        && suspect.is_empty()
    {
        let trend = model.pools.iter().find(|trend| trend.name == pool.name);
        let before = trend.and_then(|trend| trend.history.iter().rev().nth(1));
        let was = before.is_some_and(|before| *before as f64 >= EMPTY_POOL * pool.size as f64);
        // While a pool is empty, no faster loop could receive more.
        return Some((Some(pool), was.then_some(1.0)));
    }
    let failed = rates.rx_nombuf_ps.is_some_and(|rate| rate > 0.0);
    (failed || suspect.is_empty()).then(|| (suspect.pool(), None))
}

/// Returns the largest counter of packets that the NIC discarded before its queues, and the share of
/// the missed packets that it has.
fn discards(rates: &PortRates) -> Option<(&CounterRates, f64)> {
    let missed = rates.rx_missed_ps.filter(|missed| *missed > 0.0)?;
    let account = PortAccount::of(rates);
    let before_queues = |counter: &&&CounterRates| {
        use CounterPlace::{Mac, Nic, Wire};
        matches!(counter.place, Some(Wire | Mac | Nic))
    };
    let largest = *account.counters(CounterClass::Missed).iter().find(before_queues)?;
    Some((largest, (largest.rate_ps.unwrap_or(0.0) / missed).min(1.0)))
}

/// Returns a port with a driver that refuses packets of a loop that retries them.
fn backpressure<'a>(
    model: &'a Model,
    thresholds: &Thresholds,
) -> Option<(&'a PortSample, &'a PortRates)> {
    let sum = |of: fn(&PortRates) -> Option<f64>| model.sum_of_ports(of).unwrap_or_default();
    let (received, sent) = (sum(|rates| rates.rx_pps), sum(|rates| rates.tx_pps));
    // A loop that frees refused packets has time to receive.
    if received - sent > FREED * received {
        return None;
    }
    let mut ports = model.sample.ports.iter().zip(&model.ports);
    ports.find(|(_, rates)| {
        rates.unsent.is_some_and(|unsent| {
            let refused = unsent.refused_pps > thresholds.tx_refused * unsent.offered_pps;
            unsent.stuck_s.is_some() || (unsent.refused_pps > 0.0 && refused)
        })
    })
}

/// Returns the packets of a port that the gaps of an lcore lost, from packet rates and sizes of the queues.
fn loss<'a>(
    model: &Model,
    (port, rates): (&PortSample, &PortRates),
    gaps: &'a LcoreGaps,
    thresholds: &Thresholds,
) -> LcoreLoss<'a> {
    let stall_us = model.sample.library.as_ref().map_or(0, |library| library.stall_us);
    let mut loss = LcoreLoss { gaps, long: 0.0, short: 0.0, long_ms: 0.0, short_ms: 0.0, count: 0 };
    let queues = StallBudget::of_queues(model, port, rates, thresholds);
    let weights: Vec<_> =
        queues.iter().map(|queue| polled_share(model, gaps.lcore, port.id, queue.queue)).collect();
    let lost_in = |gap: &PollGap| -> f64 {
        let queues = queues.iter().zip(&weights);
        queues.map(|(queue, weight)| weight * gap.lost(queue.pps, queue.descriptors)).sum()
    };
    let off_cpu = off_cpu_gaps(model, gaps);
    for gap in gaps.gaps.iter().chain(&off_cpu) {
        let packets = lost_in(gap);
        if packets <= 0.0 {
            continue;
        }
        let (sum, ms) = if gap.us >= stall_us {
            (&mut loss.long, &mut loss.long_ms)
        } else {
            (&mut loss.short, &mut loss.short_ms)
        };
        *sum += packets;
        *ms += gap.ms();
        loss.count += gap.count;
    }
    let served = served_part(model, (port, rates), loss.long_ms + loss.short_ms);
    LcoreLoss { long: loss.long * served, short: loss.short * served, ..loss }
}

/// Returns the share of the arriving packets, 0 to 1, that a saturated loop would have received
/// instead of a gap: at the rate at which it receives otherwise. 1 for other loops.
fn served_part(model: &Model, (port, rates): (&PortSample, &PortRates), gap_ms: f64) -> f64 {
    let saturated = busy_ratio(model, port.id).is_some_and(|busy| busy >= SATURATED);
    let (received, missed) = (rates.rx_pps.unwrap_or(0.0), rates.rx_missed_ps.unwrap_or(0.0));
    let interval_ms = model.interval_s.unwrap_or(0.0) * 1000.0;
    let polling_ms = interval_ms - gap_ms;
    if !saturated || polling_ms <= 0.0 || received <= 0.0 {
        return 1.0;
    }
    (received * interval_ms / polling_ms / (received + missed)).min(1.0)
}

/// Returns, for a stock app, the times in which its thread was without a CPU or slept, in place of its
/// gaps.
fn off_cpu_gaps(model: &Model, gaps: &LcoreGaps) -> Vec<PollGap> {
    if model.sample.lcores.iter().any(|lcore| lcore.lcore == gaps.lcore) {
        return Vec::new();
    }
    let gap = |(ms, count): (f64, u64)| {
        let (us, count) = (micros(ms) / count.max(1), count.max(1));
        (us > 0).then_some(PollGap { us, earlier_us: 0, count })
    };
    [gaps.taken(), gaps.asleep()].into_iter().filter_map(gap).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of at most an interval, not negative"
)]
fn micros(ms: f64) -> u64 {
    (ms.max(0.0) * 1000.0) as u64
}

/// Returns which part of a receive queue an lcore polls, 0 to 1. This is an estimate: a queue has as
/// many polls as its lcore. If that does not identify the lcore, the packets of the lcores decide.
/// Without a queue, the part of the port as a whole.
pub fn polled_share(model: &Model, lcore: u32, port: u16, queue: Option<u16>) -> f64 {
    let lcores = &model.sample.lcores;
    if lcores.is_empty() {
        return 1.0 / model.gaps.len().max(1) as f64;
    }
    if lcores.len() == 1 {
        return if lcores[0].lcore == lcore { 1.0 } else { 0.0 };
    }
    let same = |row: &&QueueSample| {
        (row.port, Some(row.queue), row.direction) == (port, queue, QueueDirection::Rx)
    };
    let polls = model.sample.queues.iter().find(same).map(|queue| queue.polls as f64);
    if let Some(polls) = polls.filter(|polls| *polls > 0.0) {
        let off = |polled: u64| (polled as f64 - polls).abs() / polls;
        let mut by_skew: Vec<_> = lcores.iter().map(|row| (off(row.polls), row.lcore)).collect();
        by_skew.sort_by(|a, b| a.0.total_cmp(&b.0));
        if by_skew[0].0 <= READ_SKEW && by_skew[1].0 > 4.0 * by_skew[0].0.max(READ_SKEW / 50.0) {
            return if by_skew[0].1 == lcore { 1.0 } else { 0.0 };
        }
    }
    let all: f64 = lcores.iter().map(|row| row.packets as f64).sum();
    let own = lcores.iter().find(|row| row.lcore == lcore).map_or(0.0, |row| row.packets as f64);
    if all > 0.0 { own / all } else { 1.0 / lcores.len() as f64 }
}

/// Adds the causes of the gaps of one lcore, according to the use of its CPU.
fn share_out<'a>(
    causes: &mut Vec<ExplainedCause<'a>>,
    loss: &LcoreLoss<'a>,
    scale: f64,
    backpressure: Option<(&'a PortSample, &'a PortRates)>,
) {
    let gap_ms = loss.long_ms + loss.short_ms;
    let packets = loss.long + loss.short;
    if packets <= 0.0 || gap_ms <= 0.0 {
        return;
    }
    let gaps = loss.gaps;
    let (taken, asleep) = (gaps.taken(), gaps.asleep());
    // Time of one kind that fits the length of the gaps was spent in them; the rest may be of the other.
    let length_ms = gap_ms / loss.count.max(1) as f64;
    let (taken_ms, asleep_ms) = if GapUse::of(length_ms, taken, asleep) == Some(GapUse::Asleep) {
        let asleep_ms = asleep.0.min(gap_ms);
        (taken.0.min(gap_ms - asleep_ms), asleep_ms)
    } else {
        let taken_ms = taken.0.min(gap_ms);
        (taken_ms, asleep.0.min(gap_ms - taken_ms))
    };
    let facts = |ms: f64| CauseFacts::Lcore(gaps, ms);
    let own_ms = gap_ms - taken_ms - asleep_ms;
    let part = |ms: f64| Some((packets * scale * ms / gap_ms).min(1.0));
    if taken_ms > 0.0 {
        add(causes, MissedCause::StolenCore, part(taken_ms), facts(taken_ms));
    }
    if asleep_ms > 0.0 {
        add(causes, MissedCause::SleepingLcore, part(asleep_ms), facts(asleep_ms));
    }
    if own_ms <= 0.0 {
        return;
    }
    if let Some((port, rates)) = backpressure {
        let facts = CauseFacts::Port(port, rates);
        add(causes, MissedCause::TxBackpressure, part(own_ms), facts);
        return;
    }
    let long = loss.long / packets;
    let own = part(own_ms).unwrap_or(0.0);
    if long > 0.0 {
        add(causes, MissedCause::StalledLcore, Some(own * long), facts(own_ms));
    }
    if long < 1.0 {
        add(causes, MissedCause::RingTooSmall, Some(own * (1.0 - long)), facts(own_ms));
    }
}

/// Returns causes for what gaps do not explain: those that were present at the same time.
fn without_gaps<'a>(
    model: &'a Model,
    (port, rates): (&'a PortSample, &'a PortRates),
    rest: f64,
    thresholds: &Thresholds,
    backpressure: Option<(&'a PortSample, &'a PortRates)>,
) -> Vec<ExplainedCause<'a>> {
    let mut causes = Vec::new();
    if let Some((stuck, unsent)) = backpressure {
        let facts = CauseFacts::Port(stuck, unsent);
        add(&mut causes, MissedCause::TxBackpressure, None, facts);
    }
    let whole = unpolled(model, port, rates).filter(|found| found.queues.is_empty());
    if let Some(found) = whole.filter(|found| found.is_counted) {
        add(&mut causes, MissedCause::NotPolled, Some(rest), CauseFacts::Unpolled(found));
    }
    let busy = busy_ratio(model, port.id);
    let hot = balance::hottest(model, thresholds).into_iter().find(|hot| hot.port == port.id);
    let hot = hot.filter(|hot| is_overrun(model, hot));
    if let Some(hot) = hot {
        let missed = rates.rx_missed_ps.filter(|missed| *missed > 0.0);
        let share = hot.missed_ps.zip(missed).map(|(own, all)| (own / all).min(1.0) * rest);
        add(&mut causes, MissedCause::HotQueue, share, CauseFacts::Queue(hot));
    } else if let Some(busy) = busy.filter(|busy| *busy >= SATURATED) {
        add(&mut causes, MissedCause::BusyLcore, None, CauseFacts::Polls(busy));
    }
    let clocks = model.gaps.iter().filter_map(|gaps| gaps.frequency);
    let slowest = clocks.min_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    if let Some(clock) = slowest.filter(|clock| clock.ratio() < SLOW_CLOCK) {
        add(&mut causes, MissedCause::SlowClock, None, CauseFacts::Clock(clock));
    }
    let nic = nic_limit(model, port, busy).filter(|_| rest >= NIC_UNEXPLAINED_MIN);
    if let Some(nic) = nic {
        add(&mut causes, MissedCause::NicLimit, None, CauseFacts::Nic(nic));
    }
    causes
}

//! Lint for packets that the NIC missed, with their causes as text.

use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;

use super::blocked::{unpolled_advice, unpolled_text};
use super::time::duration;
use super::{Finding, FindingSubject, Lint, Severity, Thresholds, buffers, finding, loss};
use crate::missed::{
    CauseFacts, CpuFrequency, ExplainedCause, LcoreGaps, MissedCause, NicFacts, StallBudget,
    explain,
};
use crate::model::{CounterRates, Model, PortRates, ThiefRates};
use crate::sample::{PoolSample, PortSample, StolenCause};

/// Number of thieves of the CPU of one lcore that are named.
const THIEVES: usize = 3;

/// A possible cause of the problem that a finding reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindingCause {
    /// Name of the cause.
    pub cause: MissedCause,
    /// Estimated share of the missed packets, above 0 to 1; `None` if it is unknown: the cause was present
    /// at the same time.
    pub share: Option<f64>,
    /// Numbers that indicate the cause, as one sentence.
    pub evidence: String,
}

impl FindingCause {
    /// Returns cause and share, for instance `stalled_lcore (about 92 %)`.
    pub fn title(&self) -> String {
        match self.share {
            Some(share) => format!("{} (about {:.0} %)", self.cause, share * 100.0),
            None => self.cause.to_string(),
        }
    }
}

impl Finding {
    /// Whether it has a known cause.
    pub fn is_explained(&self) -> bool {
        self.causes.iter().any(|cause| cause.cause != MissedCause::Unknown)
    }
}

/// Returns the ports with packets that the NIC missed since the last sample.
pub(super) fn rx_missed<'a>(
    model: &'a Model,
    thresholds: &'a Thresholds,
) -> impl Iterator<Item = Finding> + 'a {
    let ports = model.sample.ports.iter().zip(&model.ports).enumerate();
    ports.filter_map(|(at, (port, rates))| missed(model, at, port, rates, thresholds))
}

fn missed(
    model: &Model,
    at: usize,
    port: &PortSample,
    rates: &PortRates,
    thresholds: &Thresholds,
) -> Option<Finding> {
    let missed = rates.rx_missed_ps.filter(|rate| *rate > thresholds.rx_missed_ps)?;
    let mut evidence = format!("{missed:.1} packets/s missed by the NIC");
    if let Some(pps) = rates.rx_pps {
        let _ = write!(evidence, ", {pps:.1}/s received");
    }
    if let Some(nombuf) = rates.rx_nombuf_ps.filter(|rate| *rate > 0.0) {
        let _ = write!(evidence, ", {nombuf:.1}/s buffer allocations failed");
    }
    let budget = StallBudget::of_port(model, port.id, thresholds);
    if let Some(budget) = &budget {
        let _ = write!(evidence, "; {}", budget_text(model, budget));
    }
    let words = |cause: &ExplainedCause<'_>| FindingCause {
        cause: cause.cause,
        share: cause.share,
        evidence: cause_text(model, port, cause, budget.as_ref()),
    };
    let explained = explain(model, at, thresholds);
    let causes: Vec<_> = explained.iter().map(words).collect();
    let titles: Vec<_> = causes.iter().map(FindingCause::title).collect();
    let _ = write!(evidence, "; cause: {}", titles.join(", "));
    let threshold = format!("more than {} missed packets/s", thresholds.rx_missed_ps);
    let advice = explained.first().map_or("", |first| advice(model, first));
    let subject = FindingSubject::Port(port.device.clone());
    let found =
        finding(model, Lint::RxMissed, Severity::Critical, subject, evidence, &threshold, advice);
    let weight = missed * model.interval_s.unwrap_or(0.0);
    Some(Finding { causes, weight, ..found })
}

/// Returns how long the queue lasts, and the worst gap.
fn budget_text(model: &Model, budget: &StallBudget) -> String {
    let mut text = format!("{} descriptors", budget.descriptors);
    if budget.assumed {
        text += " (assumed)";
    }
    let lasts = duration(budget.seconds() * 1e6);
    let _ = write!(text, " last {lasts} at {}", rate(budget.pps));
    if let Some(queue) = budget.queue {
        let _ = write!(text, " on queue {queue}");
    }
    match worst_us(model) {
        Some(us) => text + "; the worst gap was " + &duration(us as f64),
        None => text,
    }
}

/// Returns the longest gap of all lcores; `None` for a stock app.
fn worst_us(model: &Model) -> Option<u64> {
    let known = !model.sample.lcores.is_empty();
    model.gaps.iter().map(|gaps| gaps.longest_us).max().filter(|us| known && *us > 0)
}

fn rate(pps: f64) -> String {
    match pps {
        pps if pps < 1e4 => format!("{pps:.0} packets/s"),
        pps if pps < 1e6 => format!("{:.1} kpps", pps / 1e3),
        pps => format!("{:.1} Mpps", pps / 1e6),
    }
}

fn cause_text(
    model: &Model,
    port: &PortSample,
    cause: &ExplainedCause<'_>,
    budget: Option<&StallBudget>,
) -> String {
    match &cause.facts {
        CauseFacts::Pool(pool) => pool_text(model, port, *pool),
        CauseFacts::Unpolled(found) => unpolled_text(model, port, found),
        CauseFacts::Lcore(gaps, ms) => lcore_text(model, cause.cause, gaps, *ms, budget),
        CauseFacts::Port(stuck, rates) => port_text(stuck, rates),
        CauseFacts::Queue(hot) => format!(
            "while queue {} gets {}, {:.0} % of the packets of {} queues; the others get {} on \
             average{}",
            hot.queue,
            rate(hot.pps),
            hot.share * 100.0,
            hot.queues,
            rate(hot.others_pps),
            busy_text(hot.busy_ratio)
        ),

        CauseFacts::Polls(busy) => format!(
            "while {:.0} % of the polls brought packets: the lcore has no time left for more",
            busy * 100.0
        ),
        CauseFacts::Clock(clock) => clock_text(clock),
        CauseFacts::Nic(nic) => nic_text(nic),
        CauseFacts::Discards(counter) => discards_text(counter),
        CauseFacts::Nothing => unknown_text(model, port),
    }
}

fn discards_text(counter: &CounterRates) -> String {
    let name = &counter.name;
    let mut text = format!("the NIC counts {} as {name}", rate(counter.rate_ps.unwrap_or(0.0)));
    if let Some(known) = counter.known {
        let _ = write!(text, ": {}; usual cause: {}", known.counts, known.cause);
    }
    text
}

fn busy_text(busy: Option<f64>) -> String {
    busy.map_or(String::new(), |busy| {
        format!("; {:.0} % of its polls brought packets", busy * 100.0)
    })
}

fn pool_text(model: &Model, port: &PortSample, pool: Option<&PoolSample>) -> String {
    let Some(pool) = pool else {
        return "buffers could not be allocated; which pool is empty is unknown without X-ray or libpmdscope"
            .to_owned();
    };
    let probably = if model.sample.feeding_pools(port).is_none() { "probably " } else { "" };
    let mut text = format!("{probably}pool {}", pool.name);
    if let Some(occupancy) = pool.occupancy {
        let _ = write!(text, " has {} of {} mbufs in use", occupancy.in_use, pool.size);
    }
    let site = loss::top_site(model, &pool.name);
    let queued = loss::queued_up(model, &pool.name);
    let known = site.is_some() || queued.is_some();
    for what in site.into_iter().chain(queued) {
        let _ = write!(text, "; {what}");
    }
    let demand = buffers::MbufDemand::of(&model.sample, pool);
    if !known && demand.cannot_fit(pool) {
        let _ = write!(text, "; too small for {}", demand.arithmetic());
    }
    text
}

fn lcore_text(
    model: &Model,
    cause: MissedCause,
    gaps: &LcoreGaps,
    ms: f64,
    budget: Option<&StallBudget>,
) -> String {
    let mut text = format!("lcore {}", gaps.lcore);
    let tid = model.sample.threads.iter().find(|thread| thread.lcore == gaps.lcore);
    if let Some(thread) = tid {
        let _ = write!(text, " (thread {}, CPU {})", thread.tid, thread.cpu);
    }
    let lasted = duration(ms * 1e3);
    let _ = match cause {
        MissedCause::StolenCore => write!(text, ": {}", stolen_text(gaps, &lasted)),
        MissedCause::SleepingLcore => {
            write!(text, ": the app's own code slept or waited for {lasted}{}", sleeps_text(gaps))
        }
        _ if gaps.cpu.is_none() => write!(
            text,
            ": no polls for {lasted}; whether the kernel or the app's own code had the CPU is unknown"
        ),
        MissedCause::RingTooSmall => {
            write!(text, ": gaps of {lasted} in all, each shorter than a stall")
        }
        _ => write!(text, ": the app's own code kept the CPU for {lasted} without a poll"),
    };
    if gaps.longest_us > 0 {
        let _ = write!(text, "; longest gap {}", duration(gaps.longest_us as f64));
        if let Some(stall) = gaps.recorded.filter(|stall| stall.us == gaps.longest_us) {
            let end = Timestamp::from_nanosecond(stall.end_realtime_ns.into());
            let _ = write!(text, ", until {:.3}", end.unwrap_or(Timestamp::MAX));
        } else if gaps.unfinished_us == Some(gaps.longest_us) {
            text += ", and not over yet";
        }
    }
    if let Some(budget) = budget.filter(|_| cause == MissedCause::RingTooSmall) {
        let needed = (budget.pps * gaps.longest_us as f64 / 1e6).ceil();
        let _ = write!(text, ": {needed} descriptors would have held it");
    }
    text
}

fn stolen_text(gaps: &LcoreGaps, lasted: &str) -> String {
    let thieves = gaps.thieves.iter().filter(|thief| thief.cause != StolenCause::Sleep);
    let named: Vec<_> = thieves.take(THIEVES).map(thief_text).collect();
    let preempted =
        gaps.cpu.map_or(String::new(), |cpu| format!(" (preempted {} times)", cpu.preemptions));
    let by_hypervisor = gaps.cpu.is_some_and(|cpu| {
        cpu.hypervisor_ms * 2.0 > cpu.taken_ms.unwrap_or(0.0) && cpu.hypervisor_ms > 0.0
    });
    match (by_hypervisor, named.is_empty()) {
        (true, _) => format!("the hypervisor took its CPU away, for about {lasted}"),
        (false, false) => format!("its CPU was taken for {lasted}: {}", named.join(", ")),
        (false, true) => format!(
            "the kernel ran something else on its CPU for {lasted}{preempted}; pmdscope interrupts \
             names it"
        ),
    }
}

fn thief_text(thief: &ThiefRates) -> String {
    let mut text = format!("{} ({}) {} times", thief.thief, thief.cause, thief.events);
    if let Some(ns) = thief.stolen_ns {
        let _ = write!(text, " for {}", duration(ns as f64 / 1e3));
    }
    if let Some(ns) = thief.new_longest_ns {
        let _ = write!(text, ", the longest {}", duration(ns as f64 / 1e3));
    }
    text
}

fn sleeps_text(gaps: &LcoreGaps) -> String {
    gaps.cpu.map_or(String::new(), |cpu| format!(" ({} times)", cpu.sleeps))
}

fn port_text(stuck: &PortSample, rates: &PortRates) -> String {
    let unsent = rates.unsent.unwrap_or_default();
    let mut text = format!("while port {} ({})", stuck.id, stuck.device);
    let _ = match unsent.stuck_s {
        Some(seconds) => write!(text, " has sent nothing for {seconds:.1} s"),
        None => write!(
            text,
            " refused {} of {} offered",
            rate(unsent.refused_pps),
            rate(unsent.offered_pps)
        ),
    };
    text + ": a loop that retries receives nothing meanwhile"
}

fn clock_text(clock: &CpuFrequency) -> String {
    let mhz = |khz: u64| khz / 1000;
    let mut text = format!("while CPU {} runs at {} MHz", clock.cpu, mhz(clock.khz));
    if let Some(before) = clock.before_khz.filter(|before| *before > clock.khz) {
        let _ = write!(text, ", {} MHz before", mhz(before));
    }
    let _ = write!(text, "; it can sustain {} MHz", mhz(clock.max_khz));
    text
}

fn nic_text(nic: &NicFacts<'_>) -> String {
    let mut seen = Vec::new();
    if let Some(busy) = nic.busy_ratio {
        seen.push(format!("only {:.0} % of the polls brought packets", busy * 100.0));
    }
    match nic.depth {
        Some((depth, descriptors)) => {
            seen.push(format!("at most {depth} of {descriptors} descriptors were filled"));
        }
        None => seen.push("the driver does not report queue depth".to_owned()),
    }
    if let Some(link) = nic.link {
        seen.push(format!(
            "its PCIe link runs at {} GT/s x{}, the device can {} GT/s x{}",
            f64::from(link.speed_mts) / 1e3,
            link.width,
            f64::from(link.max_speed_mts) / 1e3,
            link.max_width
        ));
    }
    format!("while {}", seen.join("; "))
}

fn unknown_text(model: &Model, port: &PortSample) -> String {
    let mut text = "checked pools".to_owned();
    if model.sample.lcores.is_empty() {
        text += ", CPU time of the lcores";
        if model.gaps.is_empty() {
            text += " (unknown)";
        }
        text += "; gaps between polls and use of the queues are known if the app is linked with \
                 libpmdscope";
    } else {
        text += ", gaps between polls, CPU time of the lcores, queues, and refused packets; none of \
                 them fits port ";
        let _ = write!(text, "{}", port.id);
    }
    if model.sample.tracing.is_none() {
        text += "; pmdscope interrupts shows short interrupts";
    }
    text
}

fn advice(model: &Model, first: &ExplainedCause<'_>) -> &'static str {
    match (first.cause, &first.facts) {
        (MissedCause::PoolEmpty, CauseFacts::Pool(Some(pool)))
            if loss::has_proven_site(model, &pool.name) =>
        {
            "stop the leak: see its finding, and pmdscope leaks"
        }
        (_, CauseFacts::Unpolled(found)) => unpolled_advice(found),
        (MissedCause::PoolEmpty, CauseFacts::Pool(Some(pool)))
            if loss::queued_up(model, &pool.name).is_some() =>
        {
            "check the consumer of the ring that holds the mbufs: it is too slow or has stopped (ring_full)"
        }
        (MissedCause::PoolEmpty, _) => {
            "look for mbufs that are not freed (pmdscope leaks --explain), or enlarge the pool"
        }
        (MissedCause::StolenCore, _) => {
            "reserve the CPU of the lcore: isolcpus= or a cpuset, IRQ affinity, and no second busy \
             thread on it; in a virtual machine, pin its CPUs"
        }
        (MissedCause::TxBackpressure, _) => {
            "do not retry without a limit: free what is not accepted, or poll in between; check the \
             peer or link of the port that refuses packets"
        }
        (MissedCause::StalledLcore, _) => {
            "the loop takes too long between two polls: pmdscope lcores --profile names the function; \
             move slow work to another lcore, or capture the packets before it with pmdscope capture \
             --trigger rx_missed"
        }
        (MissedCause::SleepingLcore, _) => {
            "remove system calls, locks and page faults from the poll loop: pmdscope interrupts \
             names them"
        }
        (MissedCause::RingTooSmall, _) => {
            "enlarge the receive rings, or poll more often: smaller bursts, fewer queues per lcore"
        }
        (MissedCause::HotQueue, _) => {
            "list the flows of this queue (pmdscope netstat --queues --on PREFIX:PORT:QUEUE); hash \
             more fields by RSS, change its key, or distribute by rte_flow"
        }
        (MissedCause::BusyLcore, _) => {
            "add queues and lcores, or make the work per packet cheaper: see pmdscope lcores"
        }
        (MissedCause::SlowClock, _) => {
            "select the governor performance (cpupower frequency-set -g performance), and check \
             temperature and power limits"
        }
        (MissedCause::NicLimit, CauseFacts::Discards(CounterRates { known: Some(known), .. })) => {
            known.advice.as_str()
        }
        (MissedCause::NicLimit, _) => {
            "check PCIe link (lspci -vv), packet rate against what the card can, and its firmware \
             counters (pmdscope netstat -s)"
        }
        (MissedCause::NotPolled | MissedCause::Unknown, _) => {
            "look for stalls and busy lcores, add queues, or enlarge the receive ring; link the app \
             with libpmdscope to see more"
        }
    }
}

#[cfg(test)]
#[path = "missed_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "missed_property_tests.rs"]
mod property_tests;

//! Time stolen from lcores between two samples, as counted by a tracer.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sample::{CauseTotals, Sample, StolenCause, StolenSample, TracingMethod, TracingSample};

/// Time taken from one lcore since the previous sample. Rates are `None` without an earlier sample of the
/// same tracing and after a counter reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StolenRates {
    /// lcore id.
    pub lcore: u32,
    /// Time between the two counts, seconds: the interval of the samples, or that of a tracer that counts
    /// less often.
    pub interval_s: Option<f64>,
    /// Share of the time that was taken, 0 to 1, by all causes except `sleep` with known times; `None` if
    /// no times are known.
    pub ratio: Option<f64>,
    /// Events per second of all causes except `sleep`.
    pub events_ps: Option<f64>,
    /// Time taken by each cause that was counted, in the order of causes.
    pub causes: Vec<StolenCauseRates>,
    /// Thief that took the most time; if no times are known, the one with the most events.
    pub worst: Option<ThiefRates>,
    /// Thief with the longest single event, as far as times are known.
    pub longest: Option<ThiefRates>,
}

/// Time taken from one lcore by one cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StolenCauseRates {
    /// The cause.
    pub cause: StolenCause,
    /// Share of the time that the cause took, 0 to 1; `None` if its times are unknown.
    pub ratio: Option<f64>,
    /// Events per second.
    pub events_ps: f64,
}

/// Time that one thief took from one lcore since the previous sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThiefRates {
    /// Kind of event.
    pub cause: StolenCause,
    /// Name of the thief: action and number of an IRQ, name of a softirq or vector, or command of a thread.
    pub thief: String,
    /// Number of events.
    pub events: u64,
    /// Total time of these events, nanoseconds; `None` if it is unknown.
    pub stolen_ns: Option<u64>,
    /// Lower bound of the longest event, nanoseconds: the longest since tracing began if it is new,
    /// otherwise the mean. `None` if times are unknown.
    pub longest_ns: Option<u64>,
    /// Longest event since tracing began, nanoseconds; `None` if it is not new.
    #[serde(skip)]
    pub new_longest_ns: Option<u64>,
}

impl StolenCause {
    /// Whether the CPU was taken from the thread; a thread may sleep or wait on purpose.
    pub fn is_theft(self) -> bool {
        self != Self::Sleep
    }
}

/// The last counts of one app, and the rates up to them.
#[derive(Debug, Default)]
pub(super) struct StolenHistory {
    /// The last counts, with the monotonic time until which they count.
    last: Option<(u64, TracingSample)>,
    rates: Vec<StolenRates>,
}

impl StolenHistory {
    /// Returns the rates of each traced lcore, in the order of [`TracingSample::lcores`]. Until a
    /// tracer has counted again, the rates do not change.
    pub(super) fn update(&mut self, sample: &Sample) -> Vec<StolenRates> {
        let Some(now) = &sample.tracing else {
            self.clear();
            return Vec::new();
        };
        let until_ns = now.until_monotonic_ns.unwrap_or(sample.monotonic_ns);
        let last = self.last.as_ref().filter(|(_, last)| same(last, now));
        if last.is_some_and(|(at, last)| *at == until_ns && last.lcores == now.lcores) {
            return self.rates.clone();
        }
        let interval = last.and_then(|(at, last)| Some((last, until_ns.checked_sub(*at)?)));
        let interval = interval.filter(|(_, ns)| *ns > 0);
        let rates = now.lcores.iter().map(|lcore| {
            let rates = interval
                .filter(|(last, _)| last.lcores.contains(lcore))
                .and_then(|(last, ns)| lcore_rates(*lcore, last, now, ns as f64 / 1e9));
            rates.unwrap_or(StolenRates { lcore: *lcore, ..StolenRates::default() })
        });
        self.rates = rates.collect();
        self.last = Some((until_ns, now.clone()));
        self.rates.clone()
    }

    /// Discards everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether the counters of both have the same start.
pub(crate) fn same(before: &TracingSample, now: &TracingSample) -> bool {
    (before.method, before.since_realtime_ns) == (now.method, now.since_realtime_ns)
}

/// Returns the rates of an lcore; `None` if a counter went back.
fn lcore_rates(
    lcore: u32,
    before: &TracingSample,
    now: &TracingSample,
    seconds: f64,
) -> Option<StolenRates> {
    let share = |ns: u64| (ns as f64 / 1e9 / seconds).min(1.0);
    let grown = growth(&totals(before, lcore), &totals(now, lcore))?;
    let thefts = || grown.iter().filter(|(cause, _)| cause.is_theft()).map(|(_, of)| of);
    let timed = now.method == TracingMethod::Bpf || thefts().any(|of| of.stolen_ns.is_some());
    let stolen_ns = thefts().filter_map(|of| of.stolen_ns).fold(0_u64, u64::saturating_add);
    let events = thefts().fold(0_u64, |sum, of| sum.saturating_add(of.events));
    let causes = grown.iter().map(|(cause, of)| StolenCauseRates {
        cause: *cause,
        ratio: of.stolen_ns.map(share),
        events_ps: of.events as f64 / seconds,
    });
    let mut thieves = thieves(lcore, before, now);
    thieves.retain(|thief| thief.cause.is_theft());
    Some(StolenRates {
        lcore,
        interval_s: Some(seconds),
        ratio: timed.then(|| share(stolen_ns)),
        events_ps: Some(events as f64 / seconds),
        causes: causes.collect(),
        worst: thieves.iter().max_by_key(|thief| (thief.stolen_ns, thief.events)).cloned(),
        longest: thieves
            .into_iter()
            .filter(|t| t.longest_ns.is_some())
            .max_by_key(|t| t.longest_ns),
    })
}

/// Sums up by cause. A tracer may merge a thief with others that it no longer distinguishes; the
/// totals of a cause are not affected.
fn totals(tracing: &TracingSample, lcore: u32) -> BTreeMap<StolenCause, CauseTotals> {
    let mut totals = BTreeMap::<_, CauseTotals>::new();
    for row in tracing.stolen.iter().filter(|row| row.lcore == lcore) {
        totals.entry(row.cause).or_default().add(row);
    }
    totals
}

fn growth(
    before: &BTreeMap<StolenCause, CauseTotals>,
    now: &BTreeMap<StolenCause, CauseTotals>,
) -> Option<Vec<(StolenCause, CauseTotals)>> {
    if before.keys().any(|cause| !now.contains_key(cause)) {
        return None;
    }
    let grown = now.iter().map(|(cause, of)| {
        let zero = CauseTotals { stolen_ns: Some(0), ..CauseTotals::default() };
        let before = before.get(cause).copied().unwrap_or(zero);
        let stolen_ns = match of.stolen_ns.zip(before.stolen_ns) {
            Some((now, before)) => Some(now.checked_sub(before)?),
            None => None,
        };
        let events = of.events.checked_sub(before.events)?;
        Some((*cause, CauseTotals { events, stolen_ns, longest_ns: None }))
    });
    grown.collect()
}

/// Returns the thieves of an lcore, and its sleeps, between two counts with the same start.
pub(crate) fn thieves(lcore: u32, before: &TracingSample, now: &TracingSample) -> Vec<ThiefRates> {
    let of_lcore = |row: &&StolenSample| row.lcore == lcore;
    let key = |row: &StolenSample| (row.cause, row.thief.clone());
    let before: BTreeMap<_, _> =
        before.stolen.iter().filter(of_lcore).map(|row| (key(row), row)).collect();
    let rows = now.stolen.iter().filter(of_lcore);
    rows.filter_map(|row| thief(before.get(&key(row)).copied(), row)).collect()
}

/// Returns the rates of a thief; `None` if it took nothing, or a counter went back.
fn thief(before: Option<&StolenSample>, now: &StolenSample) -> Option<ThiefRates> {
    let events = now.count.checked_sub(before.map_or(0, |before| before.count))?;
    let old_ns = before.map_or(Some(0), |before| before.stolen_ns);
    let stolen_ns = now.stolen_ns.zip(old_ns).and_then(|(now, old)| now.checked_sub(old));
    if events == 0 && stolen_ns.unwrap_or(0) == 0 {
        return None;
    }
    let mean_ns = stolen_ns.map(|ns| ns / events.max(1));
    let new_longest_ns = now.longest_ns.filter(|ns| before.and_then(|b| b.longest_ns) < Some(*ns));
    Some(ThiefRates {
        cause: now.cause,
        thief: now.thief.clone(),
        events,
        stolen_ns,
        longest_ns: new_longest_ns.max(mean_ns),
        new_longest_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{stolen, tracing};
    use crate::model::{Model, ModelTracker};
    use crate::sample::tests::empty_sample;

    fn at(seconds: u64, tracing: TracingSample) -> Sample {
        let mut sample = empty_sample();
        sample.monotonic_ns = seconds * 1_000_000_000;
        sample.tracing = Some(tracing);
        sample
    }

    /// Returns the last of two models, two seconds apart.
    fn between(before: TracingSample, now: TracingSample) -> Model {
        let mut tracker = ModelTracker::default();
        assert_eq!(tracker.update(at(10, before)).stolen[0].ratio, None);
        tracker.update(at(12, now))
    }

    fn irq(count: u64, us: u64) -> StolenSample {
        stolen(1, StolenCause::Irq, "24 eth0", count, Some(us * 1000))
    }

    fn scheduler(count: u64, us: u64) -> StolenSample {
        stolen(1, StolenCause::Scheduler, "kworker/1:1", count, Some(us * 1000))
    }

    #[test]
    fn shares_are_of_the_time_between_two_samples() {
        let before = tracing(&[1, 2], vec![irq(10, 100)]);
        let now = tracing(&[1, 2], vec![irq(14, 20_100), scheduler(1, 180_000)]);
        let model = between(before, now);
        let [of_1, of_2] = &model.stolen[..] else { panic!("{:?}", model.stolen) };
        assert_eq!((of_1.lcore, of_1.ratio, of_1.events_ps), (1, Some(0.1), Some(2.5)));
        let causes = of_1.causes.iter().map(|c| (c.cause, c.ratio, c.events_ps));
        assert_eq!(
            causes.collect::<Vec<_>>(),
            [(StolenCause::Irq, Some(0.01), 2.0), (StolenCause::Scheduler, Some(0.09), 0.5)]
        );
        let worst = of_1.worst.as_ref().unwrap();
        assert_eq!((worst.thief.as_str(), worst.stolen_ns), ("kworker/1:1", Some(180_000_000)));
        assert_eq!(of_1.longest, of_1.worst);
        assert_eq!((of_2.lcore, of_2.ratio, of_2.events_ps), (2, Some(0.0), Some(0.0)), "traced");
        assert_eq!((&of_2.worst, &of_2.longest), (&None, &None));
    }

    #[test]
    fn what_has_no_time_is_counted_and_takes_no_share() {
        let counted = |count| stolen(1, StolenCause::Ipi, "reschedule", count, None);
        let proc = |rows| TracingSample { method: TracingMethod::Proc, ..tracing(&[1], rows) };
        let model = between(proc(vec![counted(5)]), proc(vec![counted(25)]));
        let rates = &model.stolen[0];
        assert_eq!((rates.ratio, rates.events_ps), (None, Some(10.0)));
        assert_eq!(rates.causes[0].ratio, None);
        let worst = rates.worst.as_ref().unwrap();
        assert_eq!((worst.events, worst.stolen_ns, worst.longest_ns), (20, None, None));
        assert_eq!(rates.longest, None);
        let [before, now] = [1000, 201_000].map(|us| proc(vec![counted(5), scheduler(1, us)]));
        assert_eq!(between(before, now).stolen[0].ratio, Some(0.1), "of the scheduler");
    }

    #[test]
    fn sleep_is_shown_and_is_no_theft() {
        let sleep = |ms| stolen(1, StolenCause::Sleep, "nanosleep", ms, Some(ms * 1_000_000));
        let model = between(tracing(&[1], vec![sleep(0)]), tracing(&[1], vec![sleep(1000)]));
        let rates = &model.stolen[0];
        assert_eq!((rates.ratio, rates.events_ps, &rates.worst), (Some(0.0), Some(0.0), &None));
        assert_eq!(rates.causes[0].ratio, Some(0.5));
    }

    #[test]
    fn restarts_and_counters_that_go_back_give_no_rates() {
        let begin = || tracing(&[1], vec![irq(10, 100), scheduler(1, 5)]);
        let unknown = StolenRates { lcore: 1, ..StolenRates::default() };
        let another = TracingSample { since_realtime_ns: 9, ..tracing(&[1], vec![irq(20, 900)]) };
        let other_method = TracingSample { method: TracingMethod::Proc, ..begin() };
        for (what, now) in [
            ("another tracer", another),
            ("another method", other_method),
            ("fewer events", tracing(&[1], vec![irq(9, 100), scheduler(1, 5)])),
            ("less time", tracing(&[1], vec![irq(10, 99), scheduler(1, 5)])),
            ("a cause is gone", tracing(&[1], vec![irq(10, 100)])),
        ] {
            assert_eq!(between(begin(), now).stolen, std::slice::from_ref(&unknown), "{what}");
        }
        let late = between(tracing(&[2], Vec::new()), tracing(&[1], vec![irq(1, 5)]));
        assert_eq!(
            late.stolen,
            std::slice::from_ref(&unknown),
            "an lcore that was not traced before"
        );
        let mut tracker = ModelTracker::default();
        tracker.update(at(10, begin()));
        let mut restarted = at(12, tracing(&[1], vec![irq(20, 200), scheduler(1, 5)]));
        restarted.app.start_ticks += 1;
        assert_eq!(tracker.update(restarted).stolen, [unknown], "another process");
    }

    #[test]
    fn a_thief_that_joins_others_is_not_counted_twice() {
        let [a, b] = ["a", "b"].map(|who| stolen(1, StolenCause::Irq, who, 10, Some(1000)));
        let other = stolen(1, StolenCause::Irq, "other", 22, Some(2_002_000));
        let model = between(tracing(&[1], vec![a, b]), tracing(&[1], vec![other]));
        assert_eq!((model.stolen[0].ratio, model.stolen[0].events_ps), (Some(0.001), Some(1.0)));
    }

    #[test]
    fn late_news_of_a_tracer_never_exceed_the_whole_time() {
        let model = between(tracing(&[1], vec![]), tracing(&[1], vec![scheduler(1, 9_000_000)]));
        assert_eq!(model.stolen[0].ratio, Some(1.0));
    }

    #[test]
    fn a_tracer_that_counts_less_often_has_rates_of_its_own_time() {
        let until = |ms: u64, rows| TracingSample {
            until_monotonic_ns: Some(ms * 1_000_000),
            ..tracing(&[1], rows)
        };
        let mut tracker = ModelTracker::default();
        tracker.update(at(10, until(9_800, vec![irq(0, 0)])));
        let rates = |model: Model| (model.stolen[0].interval_s, model.stolen[0].ratio);
        let model = tracker.update(at(11, until(10_300, vec![irq(5, 50_000)])));
        assert_eq!(rates(model), (Some(0.5), Some(0.1)));
        let model = tracker.update(at(12, until(10_300, vec![irq(5, 50_000)])));
        assert_eq!(rates(model), (Some(0.5), Some(0.1)), "nothing new is not nothing");
        let model = tracker.update(at(13, until(12_300, vec![irq(6, 90_000)])));
        assert_eq!(rates(model), (Some(2.0), Some(0.02)));
    }

    #[test]
    fn the_longest_is_a_new_record_or_the_mean() {
        let of = |count, us, longest_us: u64| {
            let longest_ns = Some(longest_us * 1000);
            tracing(&[1], vec![StolenSample { longest_ns, ..irq(count, us) }])
        };
        let longest = |before, now| between(before, now).stolen[0].longest.as_ref()?.longest_ns;
        assert_eq!(longest(of(10, 100, 30), of(14, 200, 60)), Some(60_000));
        assert_eq!(longest(of(10, 100, 90), of(14, 200, 90)), Some(25_000));
        assert_eq!(longest(of(10, 100, 90), of(10, 100, 90)), None);
    }
}

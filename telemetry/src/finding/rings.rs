//! Lint for software rings that are full: what their producers put in is refused, and their mbufs are missing
//! in the pool.

use std::fmt::Write;

use super::{Finding, FindingSubject, Lint, Severity, finding};
use crate::inventory::PortExpectation;
use crate::missed::EMPTY_POOL;
use crate::model::{Model, RingRates, ThreadRates};
use crate::sample::{PoolSample, RingSample, RingUserSample, ThreadSample};

/// Beginning of the names of rings that `rte_hash` fills with its free slots.
const FREE_SLOTS: &str = "HT_";

/// Threads of one ring that are named.
const MOST_USERS: usize = 4;

/// Share of its time that a thread runs at most if it is blocked or asleep most of the time, 0 to 1.
const IDLE: f64 = 0.05;

/// Time without a dequeue from which the consumer seems to be blocked, seconds: a slow one takes something.
const BLOCKED_S: f64 = 0.9;

/// Returns the rings that are full, or hold most mbufs of an empty pool.
pub(super) fn full_rings<'a>(
    model: &'a Model,
    expected: &'a PortExpectation,
) -> impl Iterator<Item = Finding> + 'a {
    let rings = model.sample.rings.iter().zip(&model.rings);
    rings.filter_map(|(ring, rates)| full(model, ring, rates, expected))
}

/// Returns the rings in which most mbufs of an empty pool wait: with more, a larger pool would only take longer
/// to be empty.
pub(super) fn queued_up<'a>(
    model: &'a Model,
    pool: &'a PoolSample,
) -> impl Iterator<Item = &'a RingSample> {
    let rings = if is_empty(pool) { &model.sample.rings[..] } else { &[] };
    rings.iter().filter(|ring| {
        let is_of_pool = match (&ring.pool, ring.holds_mbufs) {
            (Some(name), _) => *name == pool.name,
            (None, Some(is_of_mbufs)) => is_of_mbufs,
            // Without X-ray the contents are unknown.
            (None, None) => !ring.name.starts_with(FREE_SLOTS) && ring.used <= pool.size,
        };
        is_of_pool && ring.used.saturating_mul(2) > pool.size
    })
}

fn is_empty(pool: &PoolSample) -> bool {
    let used = pool.occupancy.map(|occupancy| occupancy.in_use as f64);
    used.is_some_and(|used| used >= EMPTY_POOL * pool.size as f64)
}

fn full(
    model: &Model,
    ring: &RingSample,
    rates: &RingRates,
    expected: &PortExpectation,
) -> Option<Finding> {
    let emptied = model
        .sample
        .pools
        .iter()
        .find(|pool| queued_up(model, pool).any(|waiting| std::ptr::eq(waiting, ring)));
    let full_s = rates.full_s.filter(|_| ring.is_full());
    if full_s.is_none() && (emptied.is_none() || model.interval_s.is_none()) {
        return None;
    }
    // As a list of free objects, which is full while none is in use.
    let is_free_list = ring.holds_mbufs == Some(false) || ring.name.starts_with(FREE_SLOTS);
    if !rates.moves && emptied.is_none() && (is_free_list || expected.may_be_full(&ring.name)) {
        return None;
    }
    let severity = match ring.holds_mbufs {
        _ if emptied.is_some() => Severity::Critical,
        Some(true) if rates.moves || !rates.full_from_start => Severity::Critical,
        None if !rates.moves && rates.full_from_start => Severity::Info,
        _ => Severity::Warning,
    };
    Some(finding(
        model,
        Lint::RingFull,
        severity,
        FindingSubject::Ring(ring.name.clone()),
        evidence(model, ring, rates, emptied),
        "less than 90 % of the entries of a ring in use, or no more than half of the mbufs of an empty pool",
        advice(ring, rates, severity),
    ))
}

fn evidence(
    model: &Model,
    ring: &RingSample,
    rates: &RingRates,
    emptied: Option<&PoolSample>,
) -> String {
    let share = ring.used as f64 / ring.capacity.max(1) as f64 * 100.0;
    let mut text = format!("{} of {} entries in use ({share:.0} %)", ring.used, ring.capacity);
    if let Some(full_s) = rates.full_s.filter(|_| ring.is_full()) {
        let least = if rates.full_from_start { "at least " } else { "" };
        let _ = write!(text, ", full for {least}{full_s:.1} s");
    }
    if let Some(pool) = emptied {
        let _ = write!(
            text,
            "; pool {} is empty, and {} of its {} mbufs wait here",
            pool.name, ring.used, pool.size
        );
    }
    match (rates.untouched_s, rates.enqueued_ps, rates.dequeued_ps) {
        (Some(seconds), ..) if seconds >= BLOCKED_S => {
            let _ = write!(text, "; nothing was taken out for {seconds:.1} s");
        }
        (_, Some(put), Some(taken)) => {
            let _ = write!(text, "; {put:.0}/s put in, {taken:.0}/s taken out");
        }
        _ => {}
    }
    if let Some(kinds) = kinds(ring) {
        let _ = write!(text, "; {kinds}");
    }
    text + &users_text(model, ring, rates)
}

fn kinds(ring: &RingSample) -> Option<String> {
    let number = |single: bool| if single { "one" } else { "several" };
    let (producers, consumers) = (ring.single_producer?, ring.single_consumer?);
    let plural =
        |word: &str, single: bool| if single { word.to_owned() } else { format!("{word}s") };
    Some(format!(
        "made for {} {} and {} {}",
        number(producers),
        plural("producer", producers),
        number(consumers),
        plural("consumer", consumers)
    ))
}

/// Returns who uses the ring, with the side as far as it is known: a thread that sleeps while nothing is taken out is
/// on the side that should do that. If no thread is known, the lcores that sleep most of the time are named.
fn users_text(model: &Model, ring: &RingSample, rates: &RingRates) -> String {
    if ring.users.is_empty() {
        let reason = match ring.enqueued {
            Some(_) => "no thread has its address on the stack",
            None => "X-ray does not read the memory of the app",
        };
        return format!(
            "; who puts in and who takes out is not known: {reason}{}",
            idle_lcores(model)
        );
    }
    let is_blocked = rates.untouched_s.is_some_and(|seconds| seconds >= BLOCKED_S);
    let is_idle = |user: &&RingUserSample| {
        let ran = known_thread(model, user).and_then(|(_, rates)| rates.run_ratio);
        is_blocked && ran.is_some_and(|ran| ran <= IDLE)
    };
    let (idle, others): (Vec<_>, Vec<_>) = ring.users.iter().partition(is_idle);
    if idle.is_empty() {
        return format!(
            "; on the stacks of {}; which of them put in and which take out is not known: a stack does not tell",
            names(model, &others)
        );
    }
    let mut text = format!("; probably its consumer: {}", names(model, &idle));
    if !others.is_empty() {
        let _ = write!(text, "; probably its producer: {}", names(model, &others));
    }
    text
}

fn names(model: &Model, users: &[&RingUserSample]) -> String {
    let named: Vec<_> = users.iter().take(MOST_USERS).map(|user| user_text(model, user)).collect();
    let more = users.len().saturating_sub(named.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}

fn idle_lcores(model: &Model) -> String {
    let threads = model.sample.threads.iter().zip(&model.threads);
    let idle = threads.filter_map(|(thread, rates)| {
        let ran = rates.run_ratio.filter(|ran| *ran <= IDLE)?;
        Some(format!("{} ({})", thread.lcore, ran_text(thread.asleep, ran)))
    });
    let idle: Vec<_> = idle.take(MOST_USERS).collect();
    if idle.is_empty() { String::new() } else { format!("; idle lcores: {}", idle.join(", ")) }
}

/// Returns the thread of an lcore. In a container, threads have other ids on the host.
fn known_thread<'a>(
    model: &'a Model,
    user: &RingUserSample,
) -> Option<(&'a ThreadSample, &'a ThreadRates)> {
    let mut threads = model.sample.threads.iter().zip(&model.threads);
    threads.find(|(thread, _)| thread.tid == user.tid && model.sample.app.container.is_none())
}

fn user_text(model: &Model, user: &RingUserSample) -> String {
    match known_thread(model, user) {
        Some((thread, rates)) => {
            let ran = rates.run_ratio.map(|ran| format!(": {}", ran_text(thread.asleep, ran)));
            format!("lcore {} ({}{})", thread.lcore, user.name, ran.unwrap_or_default())
        }
        None => format!("thread {} ({})", user.tid, user.name),
    }
}

fn ran_text(asleep: bool, ran: f64) -> String {
    let asleep = if asleep { "asleep, " } else { "" };
    format!("{asleep}ran {:.1} % of the time", ran * 100.0)
}

fn advice(ring: &RingSample, rates: &RingRates, severity: Severity) -> &'static str {
    if !rates.moves && rates.full_from_start && severity != Severity::Critical {
        return "check that its consumer runs: pmdscope lcores, and the stack of its thread (gdb, \
                /proc/PID/task/TID/stack). If the app keeps spare objects in it by design, add the ring to \
                may_be_full in the configuration";
    }
    if rates.untouched_s.is_some_and(|seconds| seconds >= BLOCKED_S) {
        return "its consumer is blocked, has ended, or does not read it any more: see the state of its thread \
                (pmdscope lcores) and its stack (gdb, /proc/PID/task/TID/stack); a larger ring or pool only \
                takes longer to fill";
    }
    if ring.single_consumer == Some(true) {
        return "its consumer is slower than its producers: make its work per packet cheaper \
                (pmdscope lcores --profile), or divide it among several rings and lcores; a larger ring or pool \
                helps with bursts only. What rte_ring_enqueue_burst() refuses must be freed";
    }
    "its consumers are slower than its producers: make their work per packet cheaper (pmdscope lcores \
     --profile), or add lcores; a larger ring or pool helps with bursts only. What rte_ring_enqueue_burst() \
     refuses must be freed"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::inventory::{AppInventory, ExpectedApp};
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, pool, port};
    use crate::sample::{Sample, ThreadSample};

    /// Evaluates three samples, a second apart, with a ring of these numbers of entries, of which `taken` are
    /// taken out in each second.
    fn judged(used: [u64; 3], taken: u32, change: impl Fn(&mut Sample)) -> Vec<Finding> {
        let expected = ExpectedApp {
            name: "app".into(),
            may_be_full: vec!["spare".into()],
            ..ExpectedApp::default()
        };
        let rules =
            LintRules { expected: AppInventory { apps: vec![expected] }, ..LintRules::default() };
        let mut tracker = ModelTracker::default();
        let mut findings = Vec::new();
        for (second, used) in (0_u32..).zip(used) {
            let mut sample = empty_sample();
            sample.monotonic_ns += u64::from(second) * 1_000_000_000;
            sample.ports = vec![port(0, u64::from(second) * 1000)];
            let dequeued = second * taken;
            sample.rings = vec![RingSample {
                name: "to_worker".into(),
                capacity: 4095,
                used,
                dequeued: Some(dequeued),
                enqueued: Some(dequeued + u32::try_from(used).unwrap()),
                single_producer: Some(true),
                single_consumer: Some(true),
                holds_mbufs: Some(true),
                ..RingSample::default()
            }];
            change(&mut sample);
            findings = evaluate(&tracker.update(sample), &rules);
        }
        findings
    }

    fn about_ring(findings: Vec<Finding>) -> Option<Finding> {
        findings.into_iter().find(|finding| finding.lint == Lint::RingFull)
    }

    #[test]
    fn a_full_ring_is_named_with_its_rates_since_when_and_who_uses_it() {
        let thread = |lcore, tid, run_ns| ThreadSample {
            lcore,
            tid,
            run_ns: Some(run_ns),
            ..Default::default()
        };
        let found = judged([4095, 4095, 4095], 5, |sample| {
            let second = sample.monotonic_ns / 1_000_000_000;
            sample.threads =
                vec![thread(2, 72, second * 1_000_000_000), thread(3, 73, second * 2_000_000)];
            for thread in &mut sample.threads {
                thread.read_ns = sample.monotonic_ns;
            }
            sample.threads[1].asleep = true;
            let user = |tid, name: &str| RingUserSample { tid, name: name.into() };
            sample.rings[0].users = vec![user(73, "rte-worker-3"), user(99, "helper")];
        });
        let found = about_ring(found).unwrap();
        assert_eq!(
            (found.severity, found.subject.to_string().as_str()),
            (Severity::Critical, "to_worker")
        );
        assert_eq!(
            found.evidence,
            "4095 of 4095 entries in use (100 %), full for at least 2.0 s; 5/s put in, 5/s taken out; made for one \
             producer and one consumer; on the stacks of lcore 3 (rte-worker-3: asleep, ran 0.2 % of the time), \
             thread 99 (helper); which of them put in and which take out is not known: a stack does not tell"
        );
        assert!(found.advice.starts_with("its consumer is slower"), "{found:?}");
    }

    #[test]
    fn a_blocked_consumer_is_told_from_a_slow_one() {
        let blocked = about_ring(judged([100, 4000, 4095], 0, |_| ())).unwrap();
        assert_eq!(blocked.severity, Severity::Critical);
        assert!(
            blocked.evidence.contains("full for 1.0 s; nothing was taken out for 2.0 s"),
            "{blocked:?}"
        );
        assert!(blocked.advice.starts_with("its consumer is blocked"), "{blocked:?}");
        assert!(
            blocked.evidence.ends_with("is not known: no thread has its address on the stack"),
            "{blocked:?}"
        );
        let users = |sample: &mut Sample| {
            let thread = |lcore, tid, run_ns| ThreadSample {
                lcore,
                tid,
                run_ns: Some(run_ns),
                read_ns: sample.monotonic_ns,
                ..Default::default()
            };
            sample.threads = vec![thread(2, 72, sample.monotonic_ns), thread(3, 73, 0)];
            let user = |tid, name: &str| RingUserSample { tid, name: name.into() };
            sample.rings[0].users = vec![user(72, "rx"), user(73, "tx")];
        };
        let blocked = about_ring(judged([100, 4000, 4095], 0, users)).unwrap();
        assert!(
            blocked.evidence.ends_with(
                "; probably its consumer: lcore 3 (tx: ran 0.0 % of the time); probably its producer: lcore 2 \
                 (rx: ran 100.0 % of the time)"
            ),
            "{blocked:?}"
        );
        assert_eq!(about_ring(judged([100, 3000, 3685], 0, |_| ())), None, "not full");
        assert_eq!(about_ring(judged([0, 0, 4095], 0, |_| ())), None, "in one sample only");
    }

    #[test]
    fn a_ring_in_which_an_empty_pool_waits_is_named_before_it_is_full() {
        let empty = |used: u64| {
            move |sample: &mut Sample| {
                sample.pools = vec![pool("rx", 2047, used), pool("other", 100, 0)];
                sample.ports[0].stats.rx_nombuf = sample.monotonic_ns / 1_000_000;
                sample.rings[0].pool = Some("rx".into());
            }
        };
        let findings = judged([1700, 1700, 1700], 160, empty(2047));
        let starved = findings.iter().find(|finding| finding.lint == Lint::RxNombuf).unwrap();
        assert!(
            starved.evidence.contains("1700 of its mbufs wait in ring to_worker"),
            "{starved:?}"
        );
        assert!(starved.advice.contains("consumer"), "{starved:?}");
        let exhausting = findings.iter().find(|finding| finding.lint == Lint::PoolExhausting);
        assert!(exhausting.unwrap().advice.contains("consumer"), "{exhausting:?}");
        let ring = about_ring(findings).unwrap();
        assert!(
            ring.evidence.contains("pool rx is empty, and 1700 of its 2047 mbufs wait here"),
            "{ring:?}"
        );
        assert_eq!(about_ring(judged([1700, 1700, 1700], 160, empty(1900))), None);
        assert_eq!(about_ring(judged([1000, 1000, 1000], 160, empty(2047))), None);
    }

    #[test]
    fn lists_of_free_objects_are_full_by_design() {
        let of = |change: fn(&mut Sample)| {
            about_ring(judged([4095, 4095, 4095], 0, change)).map(|found| found.severity)
        };
        assert_eq!(of(|sample| sample.rings[0].holds_mbufs = Some(false)), None);
        assert_eq!(of(|sample| sample.rings[0].name = "spare".into()), None, "configured");
        assert_eq!(of(|sample| sample.rings[0].holds_mbufs = None), Some(Severity::Info));
        assert_eq!(of(|sample| sample.rings[0].name = "HT_flows".into()), None);
        assert_eq!(
            of(|_| ()),
            Some(Severity::Warning),
            "mbufs, but nothing shows that more are offered"
        );
        let moves =
            judged([4095, 4095, 4095], 9, |sample| sample.rings[0].holds_mbufs = Some(false));
        assert_eq!(about_ring(moves).map(|found| found.severity), Some(Severity::Warning));
    }
}

//! Lints for the leak ledger: lost and misused mbufs, and their sites.

use std::fmt::Write;

use super::{Finding, FindingSubject, Lint, Severity, finding, rings};
use crate::loss::SiteRates;
use crate::model::Model;
use crate::sample::{BEFORE_ARMING, LedgerSample, SiteKind, SiteSample, UNTRACED_CODE};

/// Returns the findings about all losses and misuse that the ledger proves.
pub(super) fn losses(model: &Model) -> Vec<Finding> {
    let sites = model.sample.sites.iter().zip(&model.sites);
    let mut findings: Vec<_> =
        sites.filter_map(|(site, rates)| site_finding(model, site, rates)).collect();
    for row in &model.sample.ledger {
        findings.extend(unplaced_losses(model, row));
        findings.extend(uncounted(model, row, SiteKind::DoubleFree, row.double_frees));
        findings.extend(uncounted(model, row, SiteKind::UseAfterFree, row.use_after_frees));
    }
    findings
}

/// Returns the site that has lost most mbufs of a pool, as text.
pub(super) fn top_site(model: &Model, pool: &str) -> Option<String> {
    let top = sites_of(model, pool).next()?;
    if !top.proven() || top.site == UNTRACED_CODE {
        return Some(format!("most lost: {} ({} mbufs)", top.site, top.count));
    }
    Some(format!("most lost at {} ({} mbufs)", top.brief_place(), top.count))
}

/// Whether a site of the pool is proven. An unproven one may be a driver that keeps the mbufs of a
/// pool that is too small for it.
pub(super) fn has_proven_site(model: &Model, pool: &str) -> bool {
    sites_of(model, pool).any(SiteSample::proven)
}

/// Returns the sites that lost mbufs of a pool and still lack them, most mbufs first.
fn sites_of<'a>(model: &'a Model, pool: &str) -> impl Iterator<Item = &'a SiteSample> {
    let sites = model.sample.sites.iter();
    sites.filter(move |site| site.pool == pool && site.kind.is_loss() && site.count > 0)
}

/// Returns a text if most mbufs of an empty pool wait in software rings.
pub(super) fn queued_up(model: &Model, pool: &str) -> Option<String> {
    let counted = model.sample.pools.iter().find(|counted| counted.name == pool);
    let fullest =
        counted.and_then(|counted| rings::queued_up(model, counted).max_by_key(|ring| ring.used));
    if let Some(ring) = fullest {
        return Some(format!("{} of its mbufs wait in ring {}", ring.used, ring.name));
    }
    let ledger = model.sample.ledger.iter().find(|ledger| ledger.name == pool)?;
    ledger.queued_up().then(|| format!("{} of its mbufs wait in software rings", ledger.rings))
}

fn site_finding(model: &Model, site: &SiteSample, rates: &SiteRates) -> Option<Finding> {
    let found = if site.kind.is_loss() { site.count } else { site.events };
    if found == 0 {
        return None;
    }
    let mut evidence = what_happened(site, found);
    if let Some(rate) = rates.rate_ps.filter(|rate| *rate > 0.0) {
        let _ = write!(evidence, ", {rate:.1}/s");
    }
    let _ = write!(evidence, ", the oldest {:.1} s ago", site.oldest_ms as f64 / 1000.0);
    if let Some(left) = model.pool_left_s(&site.pool).filter(|_| site.kind.is_loss()) {
        let _ = write!(evidence, "; the pool is empty in {left:.0} s");
    }
    let (pool, site_name) = (site.pool.clone(), site.brief_site().to_owned());
    let subject = FindingSubject::Site { pool, site: site_name };
    Some(mbuf_finding(model, site.kind, subject, evidence, advice(site)))
}

fn what_happened(site: &SiteSample, found: u64) -> String {
    let place = site.place();
    let (mbufs, are) =
        if found == 1 { ("1 mbuf".into(), "is") } else { (format!("{found} mbufs"), "are") };
    match site.kind {
        SiteKind::Leak if site.site == BEFORE_ARMING => {
            format!("{mbufs} lost before stamps were written")
        }
        SiteKind::Leak if site.site == UNTRACED_CODE => {
            format!("{mbufs} lost that code without call sites allocated")
        }
        SiteKind::Leak if !site.proven() => format!("{mbufs} lost; the place is {place}"),
        SiteKind::Leak if site.operation.is_empty() => format!("{mbufs} lost at {place}"),
        SiteKind::Leak => format!("{mbufs} lost at {place}, after {}", site.operation),
        SiteKind::TxLost => format!("{mbufs} given to TX at {place} and never returned"),
        SiteKind::Pinned => format!("{mbufs} last seen at {place} {are} kept by leaked clones"),
        SiteKind::DoubleFree => format!("{mbufs} freed again at {place}"),
        SiteKind::UseAfterFree => format!("{mbufs} used after free at {place}"),
    }
}

fn advice(site: &SiteSample) -> &'static str {
    match site.kind {
        SiteKind::Leak if site.site == BEFORE_ARMING => {
            "mbufs that are lost from now on have a site; run the command again in a few seconds"
        }
        SiteKind::Leak if site.site == UNTRACED_CODE => {
            "a library, a driver, or a part of the app built without pmdscope_trace.h allocates these \
             mbufs: build it with -include pmdscope_trace.h, or check the code after the calls that \
             return new mbufs; pmdscope leaks --write FILE.pcapng writes the packets"
        }
        SiteKind::Leak if !site.proven() => {
            "this is the last known place, but it is not proven: code without call sites (a library, a \
             driver) may have freed and allocated the mbufs since; build all code with -include \
             pmdscope_trace.h; pmdscope leaks --write FILE.pcapng writes the packets"
        }
        SiteKind::Leak if site.function.is_empty() => {
            "look for a code path after this queue or stage that does not send, queue or free the mbuf; \
             build with -include pmdscope_trace.h to get file and line; pmdscope leaks --write \
             FILE.pcapng writes the packets"
        }
        SiteKind::Leak => {
            "look for a code path after this line that does not send, queue or free the mbuf; pmdscope \
             leaks --write FILE.pcapng writes the packets"
        }
        SiteKind::TxLost => {
            "free or resend the packets that rte_eth_tx_burst() did not accept (pkts[sent..n]); if the app \
             does so, the driver keeps them"
        }
        SiteKind::Pinned => "free the clones: the site that leaks them has the operation \"clone\"",
        SiteKind::DoubleFree => {
            "an mbuf that was freed or sent must not be freed again: look for an error path after a \
             successful send or free"
        }
        SiteKind::UseAfterFree => {
            "a freed or sent mbuf belongs to its pool: do not keep a pointer to it, or take a reference \
             first"
        }
    }
}

/// Returns the finding about losses without a site: the pool is too empty for proof, or the sites
/// could not be read.
fn unplaced_losses(model: &Model, row: &LedgerSample) -> Option<Finding> {
    let sited = sites_of(model, &row.name).next().is_some();
    let evidence = match (row.leaked, row.lost_at_least) {
        _ if sited => return None,
        (0, 0) => return None,
        (0, least) => {
            format!(
                "at least {least} of {} mbufs lost; too few are free to find out which",
                row.size
            )
        }
        (leaked, _) => {
            format!("{leaked} of {} mbufs lost; their sites could not be read", row.size)
        }
    };
    let advice = "pmdscope leaks --explain shows where the pool's mbufs are; a restart of the app frees them, \
                  and with stamps always armed (mode always) the next loss has a site";
    Some(mbuf_finding(
        model,
        SiteKind::Leak,
        FindingSubject::Pool(row.name.clone()),
        evidence,
        advice,
    ))
}

/// Returns the finding about misuse that the ledger counts but that has no site.
fn uncounted(model: &Model, row: &LedgerSample, kind: SiteKind, events: u64) -> Option<Finding> {
    let sited = |site: &SiteSample| site.pool == row.name && site.kind == kind;
    if events == 0 || model.sample.sites.iter().any(sited) {
        return None;
    }
    let what = if kind == SiteKind::DoubleFree { "freed again" } else { "used after free" };
    let evidence = format!("{what}: {events} times; the site is unknown");
    let advice = "build with -include pmdscope_trace.h (level 2) to get file and line";
    Some(mbuf_finding(model, kind, FindingSubject::Pool(row.name.clone()), evidence, advice))
}

fn mbuf_finding(
    model: &Model,
    kind: SiteKind,
    subject: FindingSubject,
    evidence: String,
    advice: &str,
) -> Finding {
    let threshold = match kind {
        SiteKind::DoubleFree => "every mbuf is freed once",
        SiteKind::UseAfterFree => "no mbuf is used after it was freed",
        _ => "every mbuf returns to its pool",
    };
    finding(model, Lint::of_site(kind), Severity::Critical, subject, evidence, threshold, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{LintRules, evaluate};
    use crate::model::ModelTracker;
    use crate::sample::ledger::tests::{ledger, site};
    use crate::sample::tests::{empty_sample, pool, port};
    use crate::sample::{LibrarySample, NOT_PROVEN, Sample};

    fn linked() -> Sample {
        let mut sample = empty_sample();
        sample.monotonic_ns = 1_000_000_000;
        sample.ports = vec![port(0, 0)];
        sample.library = Some(LibrarySample {
            start_realtime_ns: sample.realtime_ns,
            ..LibrarySample::default()
        });
        sample
    }

    fn judged(sample: Sample) -> Vec<Finding> {
        evaluate(&ModelTracker::default().update(sample), &LintRules::default())
    }

    fn sited(site: SiteSample) -> Finding {
        let mut findings = judged(Sample { sites: vec![site], ..linked() });
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    #[test]
    fn a_leak_has_its_line_rate_age_and_time_left() {
        let mut tracker = ModelTracker::default();
        let at = |seconds: u64, lost: u64| {
            let mut sample = linked();
            sample.monotonic_ns = seconds * 1_000_000_000;
            sample.pools = vec![pool("mb", 1000, 500)];
            sample.ledger = vec![ledger("mb", lost)];
            sample.ledger[0].exhausted_in_ms = Some(3_600_000);
            sample.sites = vec![site("mb", 18, SiteKind::Leak, lost)];
            sample
        };
        tracker.update(at(1, 10));
        let findings = evaluate(&tracker.update(at(2, 22)), &LintRules::default());
        let [leak] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((leak.lint, leak.severity), (Lint::Leak, Severity::Critical));
        assert_eq!(leak.subject.to_string(), "mb app.c:18");
        assert_eq!(
            leak.evidence,
            "22 mbufs lost at app.c:18 forward(), after rx, 12.0/s, the oldest 2.0 s ago; \
             the pool is empty in 3600 s"
        );
        assert!(leak.advice.contains("pmdscope leaks --write"));
    }

    #[test]
    fn each_kind_of_site_has_its_lint_and_words() {
        let cases = [
            (SiteKind::TxLost, Lint::Leak, "5 mbufs given to TX at"),
            (SiteKind::Pinned, Lint::Leak, "are kept by leaked clones"),
            (SiteKind::DoubleFree, Lint::DoubleFree, "5 mbufs freed again at app.c:7 forward()"),
            (SiteKind::UseAfterFree, Lint::UseAfterFree, "5 mbufs used after free at"),
        ];
        for (kind, lint, words) in cases {
            let finding = sited(site("mb", 7, kind, 5));
            assert_eq!((finding.lint, finding.severity), (lint, Severity::Critical));
            assert!(finding.evidence.contains(words), "{finding:?}");
        }
    }

    #[test]
    fn a_site_without_a_line_says_how_to_get_one() {
        let level_1 = SiteSample {
            site: "rx port 0 queue 1".into(),
            function: String::new(),
            ..site("mb", 1, SiteKind::Leak, 1)
        };
        let finding = sited(level_1.clone());
        assert!(finding.evidence.starts_with("1 mbuf lost at rx port 0 queue 1, after rx,"));
        assert!(finding.advice.contains("pmdscope_trace.h"));
        let early = sited(SiteSample { site: BEFORE_ARMING.into(), ..level_1 });
        assert!(early.evidence.starts_with("1 mbuf lost before stamps were written"), "{early:?}");
    }

    #[test]
    fn no_line_is_named_for_mbufs_of_untraced_code() {
        let untraced = SiteSample {
            site: UNTRACED_CODE.into(),
            function: String::new(),
            operation: "take".into(),
            ..site("mb", 1, SiteKind::Leak, 3)
        };
        let finding = sited(untraced.clone());
        assert!(
            finding.evidence.starts_with("3 mbufs lost that code without call sites allocated")
        );
        let unproven = SiteSample { site: format!("{NOT_PROVEN}src/app.c:7"), ..untraced };
        let finding = sited(unproven);
        assert!(
            finding
                .evidence
                .starts_with("3 mbufs lost; the place is not proven, after src/app.c:7,"),
            "{finding:?}"
        );
        assert!(finding.advice.contains("it is not proven"));
    }

    #[test]
    fn full_rings_of_a_pool_are_named() {
        let mut sample = linked();
        sample.pools = vec![pool("mb", 1000, 990)];
        sample.ledger = vec![LedgerSample { common: 10, cached: 0, rings: 900, ..ledger("mb", 0) }];
        let findings = judged(sample);
        let pool = findings.iter().find(|f| f.lint == Lint::PoolExhausting).unwrap();
        assert!(pool.evidence.ends_with("; 900 of its mbufs wait in software rings"), "{pool:?}");
        assert!(pool.advice.contains("consumers"), "{pool:?}");
    }

    #[test]
    fn a_site_that_recovered_is_no_finding() {
        let site = SiteSample { count: 0, events: 9, ..site("mb", 1, SiteKind::Leak, 0) };
        assert_eq!(judged(Sample { sites: vec![site], ..linked() }), []);
    }

    #[test]
    fn losses_without_a_site_are_reported_by_pool() {
        let mut sample = linked();
        sample.ledger = vec![ledger("mb", 0)];
        assert_eq!(judged(sample.clone()), []);
        sample.ledger[0].lost_at_least = 300;
        sample.ledger[0].use_after_frees = 2;
        let findings = judged(sample.clone());
        assert_eq!(
            findings.iter().map(|f| f.lint).collect::<Vec<_>>(),
            [Lint::Leak, Lint::UseAfterFree]
        );
        assert!(findings[0].evidence.starts_with("at least 300 of 1000 mbufs lost"));
        sample.ledger[0].leaked = 7;
        assert!(judged(sample.clone())[0].evidence.starts_with("7 of 1000 mbufs lost"));
        sample.sites = vec![site("mb", 1, SiteKind::Leak, 7)];
        assert_eq!(judged(sample)[0].subject.to_string(), "mb app.c:1");
    }

    #[test]
    fn an_exhausting_pool_names_its_worst_site() {
        let mut sample = linked();
        sample.pools = vec![pool("mb", 1000, 950)];
        sample.sites =
            vec![site("other", 1, SiteKind::Leak, 900), site("mb", 2, SiteKind::Leak, 800)];
        let findings = judged(sample);
        let pool = findings.iter().find(|f| f.lint == Lint::PoolExhausting).unwrap();
        assert!(
            pool.evidence.ends_with("; most lost at app.c:2 forward() (800 mbufs)"),
            "{pool:?}"
        );
        assert!(pool.advice.starts_with("stop the leak"), "{pool:?}");
    }

    #[test]
    fn a_site_that_is_not_proven_does_not_hide_a_small_pool() {
        let mut sample = linked();
        sample.pools = vec![pool("mb", 1000, 990)];
        let unproven = format!("{NOT_PROVEN}src/app.c:7");
        sample.sites = vec![SiteSample { site: unproven, ..site("mb", 1, SiteKind::Leak, 5) }];
        let findings = judged(sample);
        let pool = findings.iter().find(|f| f.lint == Lint::PoolExhausting).unwrap();
        assert!(pool.evidence.ends_with("not proven, after src/app.c:7 (5 mbufs)"), "{pool:?}");
        assert!(pool.advice.contains("enlarge the pool"), "{pool:?}");
    }
}

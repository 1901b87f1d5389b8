//! `pmdscope doctor`: checks a host and its DPDK apps for deployment mistakes.
//!
//! A [`HostTree`] is this machine or a collected copy of its `/proc`, `/sys` and `/etc`. [`examine`]
//! reads facts from it, runs all checks on them and on the facts about the apps ([`AppFacts`]), and
//! returns a [`Report`]. Checks are pure functions of facts: they read no files. A check that lacks a
//! fact is skipped, with the reason. [`collect`] copies the files that the checks read.

// Only the binary prints text, where it is made harmless.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod app;
mod baseline;
mod check;
mod checks;
mod collect;
mod cpu_set;
mod eal;
mod error;
mod facts;
mod fix_script;
#[cfg(test)]
mod fixture;
mod manifest;
mod mirror;
mod report;
#[cfg(test)]
mod tests;
mod tree;

pub use app::{AppFacts, CaptureFact, PollThread};
pub use baseline::Baseline;
pub use check::{CheckGroup, CheckStatus, Fix};
pub use collect::collect;
pub use cpu_set::CpuSet;
pub use error::DoctorError;
pub use report::{CheckResult, Report};
pub use tree::HostTree;

use crate::check::{Check, Evidence, skip};
use crate::facts::HostFacts;

/// Version of the files and of the JSON; raised when a field changes its meaning.
const SCHEMA: u32 = 1;

/// The input of the checks besides the files of the host.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// The apps; `None` for those that are stored with a collected tree.
    pub apps: Option<Vec<AppFacts>>,
    /// CPUs on which apps will poll, in addition to those on which they do.
    pub cpus: Option<CpuSet>,
    /// A good run to compare this one with.
    pub baseline: Option<Baseline>,
}

/// Reads the facts of a host and runs all checks; also returns the baseline to save. Takes some
/// milliseconds, on large hosts some hundred.
pub fn examine(tree: &HostTree, of: &Examination) -> (Report, Baseline) {
    let apps = of.apps.as_ref().or(tree.manifest().apps.as_ref());
    let known = apps.map(Vec::as_slice).unwrap_or_default();
    let host = HostFacts::read(tree, known, of.cpus.as_ref());
    let evidence =
        Evidence { host: &host, apps: apps.map(Vec::as_slice), baseline: of.baseline.as_ref() };
    let wanted = |check: &&Check| check.group != CheckGroup::Changes || of.baseline.is_some();
    let results = checks::all().filter(wanted).flat_map(|check| results(check, &evidence));
    let report = Report::of(results.collect(), host.kernel.distribution);
    (report, Baseline::of(&host, known))
}

/// Returns the name, group, title and reason of every check, in the order of the report.
pub fn catalogue() -> impl Iterator<Item = (&'static str, CheckGroup, &'static str, &'static str)> {
    checks::all().map(|check| (check.id, check.group, check.title, check.matters))
}

fn results(check: &Check, evidence: &Evidence) -> Vec<CheckResult> {
    let verdicts = (check.run)(evidence).unwrap_or_else(|why| vec![skip(why.to_string())]);
    let result = |verdict: check::Verdict| CheckResult {
        check: check.id,
        group: check.group,
        title: check.title,
        status: verdict.status,
        found: verdict.found,
        matters: check.matters,
        fix: Some(verdict.fix).filter(|fix| *fix != Fix::default()),
    };
    verdicts.into_iter().map(result).collect()
}

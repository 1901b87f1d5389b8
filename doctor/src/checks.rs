//! All checks.

mod apps;
mod changes;
mod cpus;
mod groups;
mod interrupts;
mod iommu;
mod isolation;
mod memory;
mod nics;
mod numa;
mod queues;

use crate::check::Check;

/// Returns all checks, in the order of the report.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    let lists: [&[Check]; 11] = [
        &changes::CHECKS,
        &apps::CHECKS,
        &queues::CHECKS,
        &groups::CHECKS,
        &nics::CHECKS,
        &iommu::CHECKS,
        &numa::CHECKS,
        &memory::CHECKS,
        &interrupts::CHECKS,
        &isolation::CHECKS,
        &cpus::CHECKS,
    ];
    lists.into_iter().flatten()
}

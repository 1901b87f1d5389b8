//! The table of layouts by release, machine and build: `layouts/table.txt`.

use std::collections::HashMap;

use super::version;

/// Written by `layouts/generate.sh`.
const TABLE: &str = include_str!("../../layouts/table.txt");

/// Year and month.
pub(super) type Release = (u16, u16);

/// The CPU of an app, and its `RTE_CACHE_LINE_SIZE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    X86,
    /// Built for a CPU with such cache lines.
    Arm64Line64,
    /// Built for all CPUs.
    Arm64Line128,
}

impl Machine {
    fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm64Line64 => "arm64-64",
            Self::Arm64Line128 => "arm64-128",
        }
    }
}

/// Options of a build of DPDK that change structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Build {
    /// `RTE_LIBRTE_MEMPOOL_STATS`.
    pub(super) stats: bool,
    /// `RTE_LIBRTE_MEMPOOL_DEBUG`.
    pub(super) debug: bool,
    /// Mbufs without `buf_iova`: `-Denable_iova_as_pa=false`.
    pub(super) no_iova: bool,
}

impl Build {
    /// The builds in which mempools differ, the usual one first.
    pub(super) const OF_POOLS: [Self; 4] = [
        Self { stats: false, debug: false, no_iova: false },
        Self { stats: true, debug: false, no_iova: false },
        Self { stats: false, debug: true, no_iova: false },
        Self { stats: true, debug: true, no_iova: false },
    ];

    /// The name of the build in which this structure has the same layout as in this one.
    fn name(self, structure: &str) -> &'static str {
        match (structure, self.stats, self.debug, self.no_iova) {
            ("rte_mbuf", _, _, true) => "no_iova",
            ("rte_mbuf", _, _, false) | (_, false, false, _) => "default",
            (_, true, false, _) => "stats",
            (_, false, true, _) => "debug",
            (_, true, true, _) => "stats_debug",
        }
    }
}

/// Offsets of one build by structure and member.
pub(crate) type Offsets = HashMap<(&'static str, &'static str), u64>;

/// The offsets of one build, by structure and member; empty if the release is not known.
pub(super) fn offsets(release: Release, machine: Machine, build: Build) -> Offsets {
    let mut offsets = HashMap::new();
    if version::known(release).is_err() {
        return offsets;
    }
    let mut structure = None;
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        if let Some(members) = line.strip_prefix('\t') {
            let Some(structure) = structure else { continue };
            let members = members.split(' ').filter_map(|member| member.split_once('='));
            let members = members.filter_map(|(name, offset)| Some((name, offset.parse().ok()?)));
            offsets.extend(members.map(|(name, offset)| ((structure, name), offset)));
        } else {
            let entry = Entry::parse(line);
            structure = entry
                .filter(|entry| entry.has(release, machine, build))
                .map(|entry| entry.structure);
        }
    }
    offsets
}

/// The first and the last known release.
pub(super) fn releases() -> Option<(Release, Release)> {
    let entries = || TABLE.lines().filter_map(Entry::parse);
    let first = entries().map(|entry| entry.first).min()?;
    Some((first, entries().map(|entry| entry.last).max()?))
}

/// The line above the members of a structure: `STRUCTURE FIRST-LAST MACHINES BUILDS`.
struct Entry {
    structure: &'static str,
    first: Release,
    last: Release,
    machines: &'static str,
    builds: &'static str,
}

impl Entry {
    fn parse(line: &'static str) -> Option<Self> {
        let mut words = line.split(' ');
        let structure = words.next()?;
        let (first, last) = words.next()?.split_once('-')?;
        Some(Self {
            structure,
            first: release(first)?,
            last: release(last)?,
            machines: words.next()?,
            builds: words.next()?,
        })
    }

    fn has(&self, release: Release, machine: Machine, build: Build) -> bool {
        let listed =
            |list: &str, name: &str| list == "*" || list.split(',').any(|listed| listed == name);
        (self.first..=self.last).contains(&release)
            && listed(self.machines, machine.name())
            && listed(self.builds, build.name(self.structure))
    }
}

/// `YEAR.MONTH`
fn release(text: &str) -> Option<Release> {
    let (year, month) = text.split_once('.')?;
    Some((year.parse().ok()?, month.parse().ok()?))
}

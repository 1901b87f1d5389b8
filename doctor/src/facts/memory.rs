//! Hugepages, and transparent hugepages.

use std::path::Path;

use super::hugepage_files::{self, LeftFiles};
use crate::tree::{Fact, HostTree, Unknown};

/// Where a collected tree has what ended apps have left.
pub(crate) const LEFT_FILES: &str = "/pmdscope-hugepage-files.json";

/// The memory of a host.
#[derive(Clone, Debug)]
pub(crate) struct MemoryFacts {
    /// Hugepages of each NUMA node and size.
    pub(crate) hugepages: Fact<Vec<HugepagePool>>,
    /// Mount points of hugetlbfs.
    pub(crate) hugetlbfs: Fact<Vec<String>>,
    /// Hugepage files of apps that have ended.
    pub(crate) left_files: Fact<Vec<LeftFiles>>,
    /// Transparent hugepages: the mode in force; `None` for a kernel without them.
    pub(crate) transparent: Fact<Option<String>>,
}

/// The hugepages of one size on one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HugepagePool {
    /// Its directory in sysfs.
    pub(crate) dir: String,
    pub(crate) node: u32,
    pub(crate) kib: u64,
    pub(crate) total: u64,
    pub(crate) free: u64,
}

impl MemoryFacts {
    pub(crate) fn read(tree: &HostTree) -> Self {
        let transparent = tree.optional_text("/sys/kernel/mm/transparent_hugepage/enabled");
        let mounts = tree.text("/proc/mounts").map(|text| hugetlbfs(&text));
        Self {
            hugepages: hugepages(tree),
            left_files: left_files(tree, &mounts),
            hugetlbfs: mounts,
            transparent: transparent.map(|text| text.map(|text| chosen(&text))),
        }
    }
}

impl HugepagePool {
    /// Returns the bytes of one page, never 0.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.kib.saturating_mul(1024).max(1)
    }

    /// Returns the bytes of all of its pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.total.saturating_mul(self.kib).saturating_mul(1024)
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.saturating_mul(self.kib).saturating_mul(1024)
    }
}

/// Returns the files that ended apps have left. A copy has neither these files nor the memory of processes, only
/// what was found.
fn left_files(tree: &HostTree, mounts: &Fact<Vec<String>>) -> Fact<Vec<LeftFiles>> {
    if tree.is_this_machine() {
        let left =
            hugepage_files::left(mounts.as_ref().map_err(Clone::clone)?, Path::new("/proc"))?;
        // Plain values always serialize.
        let text = serde_json::to_string(&left).unwrap_or_default();
        tree.copy(|mirror| mirror.file(LEFT_FILES, &text));
        return Ok(left);
    }
    let text = tree.optional_text(LEFT_FILES)?;
    let text = text.ok_or_else(|| Unknown("the copy of the host does not have them".to_owned()))?;
    serde_json::from_str(&text).map_err(|error| Unknown(format!("{LEFT_FILES}: {error}")))
}

fn hugetlbfs(mounts: &str) -> Vec<String> {
    let place = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "hugetlbfs").then(|| place.to_owned())
    };
    mounts.lines().filter_map(place).collect()
}

/// Returns the word in brackets of `always [madvise] never`.
fn chosen(text: &str) -> String {
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or(text, |(word, _)| word).to_owned()
}

/// Kernels without NUMA list hugepages in one directory, not by node.
fn hugepages(tree: &HostTree) -> Fact<Vec<HugepagePool>> {
    const NODES: &str = "/sys/devices/system/node";
    let number = |name: &str| name.strip_prefix("node")?.parse::<u32>().ok();
    let nodes = tree.optional_names(NODES, |name| number(name).is_some())?;
    let mut pools = Vec::new();
    for node in nodes.unwrap_or_default() {
        pools.extend(of_dir(
            tree,
            &format!("{NODES}/{node}/hugepages"),
            number(&node).unwrap_or(0),
        )?);
    }
    if pools.is_empty() {
        pools = of_dir(tree, "/sys/kernel/mm/hugepages", 0)?;
    }
    Ok(pools)
}

fn of_dir(tree: &HostTree, dir: &str, node: u32) -> Fact<Vec<HugepagePool>> {
    let kib = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
    let sizes = tree.optional_names(dir, |name| kib(name).is_some())?.unwrap_or_default();
    let pool = |name: &String| {
        let pages =
            |file: &str| Ok(tree.text(&format!("{dir}/{name}/{file}"))?.parse().unwrap_or(0));
        let (total, free) = (pages("nr_hugepages")?, pages("free_hugepages")?);
        Ok(HugepagePool {
            dir: format!("{dir}/{name}"),
            node,
            kib: kib(name).unwrap_or(0),
            total,
            free,
        })
    };
    sizes.iter().map(pool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_kernel_are_read() {
        assert_eq!((chosen("always [madvise] never"), chosen("x")), ("madvise".into(), "x".into()));
        let mounts =
            "proc /proc proc rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\nx";
        assert_eq!(hugetlbfs(mounts), ["/dev/hugepages"]);
    }
}

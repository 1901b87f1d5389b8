//! The process of an app: its limits, capabilities and control groups.

use crate::cpu_set::CpuSet;
use crate::tree::{Fact, HostTree, Unknown};

/// `CAP_IPC_LOCK`: a process that has it may lock any amount of memory.
const CAP_IPC_LOCK: u64 = 1 << 14;

/// The process of an app.
#[derive(Clone, Debug)]
pub(crate) struct ProcessFacts {
    /// Memory that it may lock, bytes; `None` for no limit.
    pub(crate) locked_bytes: Fact<Option<u64>>,
    /// The limit of its control groups; `None` if there is none.
    pub(crate) quota: Fact<Option<CpuQuota>>,
    /// CPUs of its control group.
    pub(crate) cpuset: Fact<CpuSet>,
}

/// A limit of CPU time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CpuQuota {
    /// The limit, in CPUs.
    pub(crate) cpus: f64,
    /// The control group that sets the limit.
    pub(crate) group: String,
    /// Whether it is a group of cgroup v1.
    pub(crate) v1: bool,
    /// Periods in which the group was stopped; `None` where the kernel does not report it.
    pub(crate) throttled: Option<u64>,
}

impl ProcessFacts {
    pub(crate) fn read(tree: &HostTree, pid: u32) -> Self {
        let groups =
            tree.text(&format!("/proc/{pid}/cgroup")).map(|text| ControlGroups::parse(&text));
        Self {
            locked_bytes: locked_bytes(tree, pid),
            quota: groups.clone().and_then(|groups| groups.quota(tree)),
            cpuset: groups.and_then(|groups| groups.cpuset(tree)),
        }
    }
}

fn locked_bytes(tree: &HostTree, pid: u32) -> Fact<Option<u64>> {
    let status = tree.text(&format!("/proc/{pid}/status"))?;
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let limits = tree.text(&format!("/proc/{pid}/limits"))?;
    if capabilities.is_some_and(|capabilities| capabilities & CAP_IPC_LOCK != 0) {
        return Ok(None);
    }
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    match line.and_then(|line| line.split_ascii_whitespace().next()) {
        Some("unlimited") => Ok(None),
        Some(bytes) => bytes.parse().map(Some).map_err(|_| unclear(pid)),
        None => Err(unclear(pid)),
    }
}

fn unclear(pid: u32) -> Unknown {
    Unknown(format!("/proc/{pid}/limits does not list the limit of locked memory"))
}

/// The control groups of a process, by hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ControlGroups {
    /// Path in the unified hierarchy (v2).
    unified: Option<String>,
    /// Paths of the v1 controllers `cpu` and `cpuset`.
    cpu: Option<String>,
    cpuset: Option<String>,
}

impl ControlGroups {
    fn parse(text: &str) -> Self {
        let mut groups = Self::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let path = Some(path.to_owned());
            if controllers.is_empty() {
                groups.unified = path;
                continue;
            }
            for controller in controllers.split(',') {
                match controller {
                    "cpu" => groups.cpu.clone_from(&path),
                    "cpuset" => groups.cpuset.clone_from(&path),
                    _ => {}
                }
            }
        }
        groups
    }

    /// Returns the lowest limit of a group and its ancestors.
    fn quota(&self, tree: &HostTree) -> Fact<Option<CpuQuota>> {
        let (path, v1) = match (&self.cpu, &self.unified) {
            (Some(path), _) => (path, true),
            (None, Some(path)) => (path, false),
            (None, None) => {
                return Err(Unknown("the control group of the process is unknown".into()));
            }
        };
        let mount = mount(
            tree,
            if v1 { &["cpu", "cpu,cpuacct"] } else { &["", "unified"] },
            if v1 { "cpu.shares" } else { "cgroup.procs" },
        )?;
        let read = if v1 { quota_v1 } else { quota_v2 };
        let quotas = with_parents(path)?.into_iter().filter_map(|group| {
            let cpus = read(tree, &format!("{mount}{group}"))?;
            let stat = tree.text(&format!("{mount}{group}/cpu.stat")).unwrap_or_default();
            let throttled =
                stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok());
            Some(CpuQuota { cpus, group: format!("{mount}{group}"), v1, throttled })
        });
        Ok(quotas.min_by(|a, b| a.cpus.total_cmp(&b.cpus)))
    }

    fn cpuset(&self, tree: &HostTree) -> Fact<CpuSet> {
        let (path, mounts, files): (_, &[&str], &[&str]) = match (&self.cpuset, &self.unified) {
            (Some(path), _) => (path, &["cpuset"], &["cpuset.effective_cpus", "cpuset.cpus"]),
            (None, Some(path)) => (path, &["", "unified"], &["cpuset.cpus.effective"]),
            (None, None) => {
                return Err(Unknown("the control group of the process is unknown".into()));
            }
        };
        for mount in mounts {
            // Groups without the controller have the CPUs of the nearest ancestor with it.
            for group in with_parents(path)? {
                let place =
                    if mount.is_empty() { group.clone() } else { format!("/{mount}{group}") };
                let text = files
                    .iter()
                    .find_map(|file| tree.text(&format!("/sys/fs/cgroup{place}/{file}")).ok());
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    return Ok(CpuSet::of_list(&text));
                }
            }
        }
        Err(Unknown("no cpuset controller is mounted at /sys/fs/cgroup".into()))
    }
}

/// Returns the mount of a hierarchy: the first one below /sys/fs/cgroup with `file` in its root.
fn mount(tree: &HostTree, names: &[&str], file: &str) -> Fact<String> {
    let path = |name: &&str| {
        if name.is_empty() { "/sys/fs/cgroup".into() } else { format!("/sys/fs/cgroup/{name}") }
    };
    let found = names
        .iter()
        .map(path)
        .find(|mount| tree.exists(&format!("{mount}/{file}")).unwrap_or(false));
    found.ok_or_else(|| {
        Unknown("no control group with a cpu controller is mounted at /sys/fs/cgroup".into())
    })
}

/// Returns a group and its ancestors up to the root, which is the empty path.
fn with_parents(path: &str) -> Fact<Vec<String>> {
    if path.split('/').any(|part| part == "..") {
        return Err(Unknown(format!(
            "the control group {path} is not visible from here; run doctor on the host"
        )));
    }
    let mut groups = Vec::new();
    let mut rest = path.trim_end_matches('/');
    while !rest.is_empty() {
        groups.push(rest.to_owned());
        rest = rest.rsplit_once('/').map_or("", |(above, _)| above);
    }
    groups.push(String::new());
    Ok(groups)
}

/// Parses `max 100000`, which means no quota, or `200000 100000`.
fn quota_v2(tree: &HostTree, group: &str) -> Option<f64> {
    let text = tree.text(&format!("{group}/cpu.max")).ok()?;
    let mut words = text.split_ascii_whitespace().map(|word| word.parse::<f64>().ok());
    let (quota, period) = (words.next()??, words.next()??);
    (period > 0.0).then(|| quota / period)
}

/// A quota of -1 means none.
fn quota_v1(tree: &HostTree, group: &str) -> Option<f64> {
    let number = |file: &str| tree.text(&format!("{group}/{file}")).ok()?.parse::<f64>().ok();
    let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_are_read_in_both_versions() {
        let v1 = ControlGroups::parse("4:cpu,cpuacct:/a\n3:cpuset:/b\n1:name=systemd:/c\n0::/d\n");
        assert_eq!(
            (v1.cpu.as_deref(), v1.cpuset.as_deref(), v1.unified.as_deref()),
            (Some("/a"), Some("/b"), Some("/d"))
        );
        assert_eq!(ControlGroups::parse("0::/x:y\n").unified.as_deref(), Some("/x:y"));
        assert_eq!(with_parents("/a/b").unwrap(), ["/a/b", "/a", ""]);
        assert!(with_parents("/../x").is_err());
    }
}

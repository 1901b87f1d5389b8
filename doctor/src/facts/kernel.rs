//! The kernel: its release, command line, modules, and the distribution around it.

use crate::tree::{Fact, HostTree};

/// How the kernel command line is changed permanently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Distribution {
    /// Debian, Ubuntu and derivatives: `/etc/default/grub.d` and `update-grub`.
    Debian,
    /// Fedora, RHEL and derivatives: `grubby`.
    RedHat,
    /// SUSE: `/etc/default/grub` and `grub2-mkconfig`.
    Suse,
    /// Any other.
    #[default]
    Other,
}

/// The kernel.
#[derive(Clone, Debug)]
pub(crate) struct KernelFacts {
    pub(crate) release: Fact<String>,
    pub(crate) arguments: Fact<KernelArguments>,
    pub(crate) distribution: Distribution,
    /// Whether irqbalance runs, which spreads interrupts over CPUs.
    pub(crate) irqbalance: Fact<bool>,
    /// The settings of irqbalance.
    pub(crate) irqbalance_settings: Option<String>,
}

/// The kernel command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelArguments(pub(crate) String);

impl KernelArguments {
    /// Returns the last value of an argument; an empty one for an argument without a value.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let value = |word: &'_ str| -> Option<usize> {
            let rest = word.strip_prefix(name)?;
            if rest.is_empty() {
                Some(word.len())
            } else {
                rest.starts_with('=').then_some(name.len() + 1)
            }
        };
        let mut words = self.0.split_ascii_whitespace().rev();
        words.find_map(|word| value(word).and_then(|at| word.get(at..)))
    }
}

impl KernelFacts {
    pub(crate) fn read(tree: &HostTree) -> Self {
        Self {
            release: tree.text("/proc/sys/kernel/osrelease"),
            arguments: tree.text("/proc/cmdline").map(KernelArguments),
            distribution: tree
                .text("/etc/os-release")
                .map(|text| distribution(&text))
                .unwrap_or_default(),
            irqbalance: is_irqbalance_running(tree),
            irqbalance_settings: ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"]
                .iter()
                .find_map(|path| tree.text(path).ok()),
        }
    }
}

fn distribution(os_release: &str) -> Distribution {
    let ids = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")));
    let ids = ids.collect::<Vec<_>>().join(" ").replace(['"', '\''], "");
    let is = |names: &[&str]| ids.split_whitespace().any(|id| names.contains(&id));
    match () {
        () if is(&["debian", "ubuntu"]) => Distribution::Debian,
        () if is(&["fedora", "rhel", "centos"]) => Distribution::RedHat,
        () if is(&["suse", "opensuse", "sles"]) => Distribution::Suse,
        () => Distribution::Other,
    }
}

/// Finds irqbalance by its socket, PID file or unit, which is cheaper than reading the names of all
/// processes.
fn is_irqbalance_running(tree: &HostTree) -> Fact<bool> {
    let runs = |pid: &str| {
        pid.parse::<u32>().is_ok_and(|pid| {
            tree.text(&format!("/proc/{pid}/comm")).is_ok_and(|name| name == "irqbalance")
        })
    };
    let socket =
        |name: &str| Some(name.strip_prefix("irqbalance")?.strip_suffix(".sock")?.to_owned());
    let sockets = tree.optional_names("/run/irqbalance", |name| socket(name).is_some())?;
    if sockets.unwrap_or_default().iter().filter_map(|name| socket(name)).any(|pid| runs(&pid)) {
        return Ok(true);
    }
    if tree.optional_text("/run/irqbalance.pid")?.is_some_and(|pid| runs(&pid)) {
        return Ok(true);
    }
    let unit = "system.slice/irqbalance.service/cgroup.procs";
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"];
    let of_unit = |mount: &&str| tree.text(&format!("{mount}/{unit}")).unwrap_or_default();
    Ok(mounts.iter().any(|mount| of_unit(mount).lines().any(runs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_kernel_arguments_counts() {
        let line =
            KernelArguments("quiet isolcpus=1 nohz_full isolcpus=domain,2-3 nohz_fullx=1".into());
        assert_eq!(line.value("isolcpus"), Some("domain,2-3"));
        assert_eq!((line.value("nohz_full"), line.value("nohz")), (Some(""), None));
    }

    #[test]
    fn distributions_are_told_by_their_kin() {
        assert_eq!(distribution("NAME=x\nID=ubuntu\nID_LIKE=debian\n"), Distribution::Debian);
        assert_eq!(
            distribution("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\""),
            Distribution::RedHat
        );
        assert_eq!(
            distribution("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\""),
            Distribution::Suse
        );
        assert_eq!(distribution("ID=arch"), Distribution::Other);
    }
}

//! Mistakes, each as a change of the good host.

use crate::app::{AppFacts, CaptureFact};
use crate::check::CheckStatus::{self, Fail, Warn};
use crate::cpu_set::CpuSet;
use crate::fixture::{HostFixture, NIC};

/// A mistake, and the check that finds it.
pub(super) struct Mistake {
    pub(super) name: &'static str,
    pub(super) check: &'static str,
    pub(super) status: CheckStatus,
    pub(super) make: fn(&mut HostFixture),
}

const fn mistake(
    name: &'static str,
    check: &'static str,
    status: CheckStatus,
    make: fn(&mut HostFixture),
) -> Mistake {
    Mistake { name, check, status, make }
}

pub(super) fn mistakes() -> Vec<Mistake> {
    [changes(), apps(), nics(), memory(), isolation(), cpus()].into_iter().flatten().collect()
}

const NODE: &str = "sys/devices/system/node/node0";

fn changes() -> Vec<Mistake> {
    vec![
        mistake("kernel update", "changed_kernel", Fail, |host| {
            host.write("proc/sys/kernel/osrelease", "6.1.0-57-amd64");
        }),
        mistake("driver of an idle NIC changed", "changed_driver", Fail, |host| {
            host.driver("0000:01:00.0", None);
        }),
        mistake("kernel argument gone", "changed_kernel_arguments", Warn, |host| {
            host.write(
                "proc/cmdline",
                "BOOT_IMAGE=/vmlinuz-2 root=/dev/sda1 \
                                        isolcpus=managed_irq,domain,2-3 nohz_full=2-3 \
                                        rcu_nocbs=2-3 irqaffinity=0-1,4-15",
            );
        }),
        mistake("fewer hugepages", "changed_hugepages", Fail, |host| {
            host.hugepages(1, 1_048_576, 3, 2);
        }),
        mistake("other DPDK", "changed_dpdk", Warn, |host| {
            host.sample().app.dpdk_version = "DPDK 23.11.2".into();
        }),
        mistake("interrupt moved", "changed_irq_affinity", Warn, |host| {
            host.irq(24, "nvme0q0", "9");
        }),
        mistake("other microcode", "changed_microcode", Warn, |host| {
            host.write("sys/devices/system/cpu/cpu0/microcode/version", "0xd0003b9");
        }),
    ]
}

fn apps() -> Vec<Mistake> {
    vec![
        mistake("expected app does not run", "app_running", Fail, |host| {
            let absent = AppFacts { name: "edge".into(), absent: true, ..AppFacts::default() };
            host.of.apps.as_mut().unwrap().push(absent);
        }),
        mistake("telemetry off", "telemetry", Fail, |host| {
            let app = AppFacts::unreachable("blind", "runs without telemetry");
            host.of.apps.as_mut().unwrap().push(app);
        }),
        mistake("no port", "app_ports", Fail, |host| host.sample().ports.clear()),
        mistake("two lcores on one CPU", "lcore_cpus", Fail, |host| {
            host.app().poll_threads[1].allowed = CpuSet::of_list("2");
        }),
        mistake("lcore without a CPU of its own", "lcore_cpus", Warn, |host| {
            host.app().poll_threads[1].allowed = CpuSet::of_list("2-3");
        }),
        mistake("control threads on a poll CPU", "control_threads", Warn, |host| {
            host.sample().control_shares_poll_cpu = Some(true);
        }),
        mistake("no capture", "capture", Warn, |host| {
            let reason = "fwd was started with --in-memory".into();
            host.app().capture = Some(CaptureFact::Impossible { reason });
        }),
        mistake("poll gap longer than the budget", "descriptors", Fail, |host| {
            host.sample().lcores[0].gap_window_max_us = 5_000;
        }),
        mistake("poll gap in the past", "descriptors", Warn, |host| {
            host.sample().lcores[0].gap_max_us = 5_000;
        }),
        mistake("small rings on a fast link", "descriptors", Warn, |host| {
            host.app().rx_pps.clear();
            host.sample().queues.iter_mut().for_each(|queue| queue.descriptors = Some(64));
        }),
        mistake("pool smaller than the rings", "pool_size", Fail, |host| {
            host.sample().pools[0].size = 4_095;
        }),
        mistake("pool without room for caches", "pool_size", Warn, |host| {
            host.sample().pools[0].size = 8_191;
        }),
        mistake("CPU quota in cgroup v2", "cpu_quota", Fail, |host| {
            host.write("sys/fs/cgroup/system.slice/fwd.service/cpu.max", "150000 100000");
        }),
        mistake("CPU quota in cgroup v1", "cpu_quota", Fail, |host| {
            host.cgroup_v1("150000", "0-15");
        }),
        mistake("CPU quota of the pod", "cpu_quota", Fail, |host| host.container("200000 100000")),
        mistake("cpuset without a poll CPU", "cpuset", Fail, |host| {
            host.write("sys/fs/cgroup/cpuset.cpus.effective", "0-2");
        }),
        mistake("cpuset of cgroup v1 without a poll CPU", "cpuset", Fail, |host| {
            host.cgroup_v1("-1", "0-1");
        }),
    ]
}

fn nics() -> Vec<Mistake> {
    vec![
        mistake("NIC left on its kernel driver", "nic_driver", Fail, |host| {
            host.driver(NIC, Some("ice"));
            host.make(&format!("sys/bus/pci/devices/{NIC}/net/ens1f0"));
            host.sample().ports.clear();
        }),
        mistake("NIC without a driver", "nic_driver", Fail, |host| host.driver(NIC, None)),
        mistake("NIC gone", "nic_driver", Fail, |host| {
            host.remove(&format!("sys/bus/pci/devices/{NIC}"));
        }),
        mistake("slot with half of the lanes", "pcie_link", Warn, |host| {
            host.link_speed(NIC, "16.0 GT/s PCIe", 8);
        }),
        mistake("link slower than the port", "pcie_link", Fail, |host| {
            host.link_speed(NIC, "8.0 GT/s PCIe", 8);
        }),
        mistake("no IOMMU", "iommu", Fail, |host| host.remove("sys/kernel/iommu_groups")),
        mistake("no-IOMMU mode", "iommu", Warn, |host| {
            host.remove("sys/kernel/iommu_groups");
            host.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
        }),
        mistake("group not viable", "iommu_group", Fail, |host| {
            host.make("sys/kernel/iommu_groups/17/devices/0000:03:00.1");
            host.nic("0000:03:00.1", "ens1f1", "ice", 17);
        }),
        mistake("vfio-pci not loaded", "vfio_module", Fail, |host| {
            host.remove("sys/module/vfio_pci");
            host.driver(NIC, Some("ice"));
        }),
        mistake("NIC on uio_pci_generic", "uio_driver", Warn, |host| {
            host.driver(NIC, Some("uio_pci_generic"));
        }),
        mistake("lcores on the other node", "numa_lcores", Warn, |host| {
            host.write(&format!("sys/bus/pci/devices/{NIC}/numa_node"), "1");
            host.sample().pools[0].socket = 1;
        }),
        mistake("pool on the other node", "numa_pools", Warn, |host| {
            host.sample().pools[0].socket = 1;
        }),
    ]
}

fn memory() -> Vec<Mistake> {
    vec![
        mistake("no hugepages", "hugepages_reserved", Fail, |host| {
            host.hugepages(0, 1_048_576, 0, 0);
            host.hugepages(1, 1_048_576, 0, 0);
        }),
        mistake("hugepages on the other node only", "hugepages_per_node", Fail, |host| {
            host.hugepages(0, 1_048_576, 0, 0);
        }),
        mistake("no free hugepages for an app to start", "hugepages_free", Fail, |host| {
            host.hugepages(0, 1_048_576, 4, 0);
            host.hugepages(1, 1_048_576, 4, 0);
            host.no_apps();
        }),
        mistake("less hugepages than asked for", "hugepages_free", Fail, |host| {
            host.sample().app.eal_args =
                ["fwd", "--socket-mem=16384,0"].map(str::to_owned).to_vec();
        }),
        mistake("hugepage files of a killed app", "hugepage_files", Warn, |host| {
            let left =
                r#"[{"dir":"/dev/hugepages","prefix":"old","files":512,"bytes":1073741824}]"#;
            host.write("pmdscope-hugepage-files.json", left);
        }),
        mistake("hugetlbfs not mounted", "hugetlbfs", Fail, |host| {
            host.write("proc/mounts", "proc /proc proc rw 0 0");
        }),
        mistake("THP forced", "transparent_hugepages", Warn, |host| {
            host.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
        }),
        mistake("memory lock limit", "memory_lock_limit", Fail, |host| {
            host.limits("0000000000000000");
        }),
    ]
}

fn isolation() -> Vec<Mistake> {
    vec![
        mistake("interrupt on a poll CPU", "irq_affinity", Fail, |host| {
            host.irq(26, "eth0-rx-0", "3");
            host.write("proc/interrupts", "  CPU0 CPU3\n 26: 0 1234567 PCI eth0-rx-0");
        }),
        mistake("interrupt that may come to a poll CPU", "irq_affinity", Warn, |host| {
            host.irq(26, "eth0-rx-0", "0-15");
            host.write("proc/irq/26/effective_affinity_list", "5");
        }),
        mistake("irqaffinity not set", "irq_default_affinity", Warn, |host| {
            host.write("proc/irq/default_smp_affinity", "ffff");
        }),
        mistake("irqbalance", "irqbalance", Warn, |host| {
            host.write("etc/default/irqbalance", "IRQBALANCE_BANNED_CPULIST=2");
            host.write("run/irqbalance/irqbalance77.sock", "");
            host.write("proc/77/comm", "irqbalance");
        }),
        mistake("isolcpus not set", "isolcpus", Warn, |host| {
            host.write("sys/devices/system/cpu/isolated", "");
        }),
        mistake("nohz_full not set", "nohz_full", Warn, |host| {
            host.write("sys/devices/system/cpu/nohz_full", "(null)");
        }),
        mistake("rcu_nocbs not set", "rcu_nocbs", Warn, |host| {
            host.write("proc/cmdline", "quiet");
            host.write("sys/devices/system/cpu/nohz_full", "2");
        }),
        mistake("workqueues on poll CPUs", "workqueue_mask", Warn, |host| {
            host.write("sys/devices/virtual/workqueue/cpumask", "ffff");
        }),
    ]
}

fn cpus() -> Vec<Mistake> {
    vec![
        mistake("deep C-states", "c_states", Warn, |host| {
            host.write("sys/devices/system/cpu/cpu2/cpuidle/state2/disable", "0");
        }),
        mistake("governor powersave", "governor", Warn, |host| {
            host.write("sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "powersave");
        }),
        mistake("both hyper-threads poll", "smt_siblings", Warn, |host| {
            for cpu in [2, 3] {
                let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
                host.write(&file, "2-3");
            }
        }),
        mistake("efficiency core of a hybrid CPU", "hybrid_cpus", Warn, |host| {
            host.write("sys/devices/cpu_core/cpus", "0-2");
            host.write("sys/devices/cpu_atom/cpus", "3-15");
        }),
        mistake("little core of arm64", "hybrid_cpus", Warn, |host| {
            host.write("sys/devices/system/cpu/cpu2/cpu_capacity", "1024");
            host.write("sys/devices/system/cpu/cpu3/cpu_capacity", "446");
        }),
        mistake("node of the NIC has other sizes only", "hugepages_per_node", Fail, |host| {
            host.remove(&format!("{NODE}/hugepages/hugepages-1048576kB"));
        }),
    ]
}

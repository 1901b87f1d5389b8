//! Trees of hosts for tests: a good one, and changes to it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pmdscope_telemetry::fixture::{pool, port, queue};
use pmdscope_telemetry::sample::{
    AppIdentity, LcoreSample, LibrarySample, QueueDirection, QueueSample, Sample,
};
use tempfile::TempDir;

use crate::app::{AppFacts, CaptureFact, PollThread};
use crate::check::CheckStatus;
use crate::report::{CheckResult, Report};
use crate::{Baseline, CpuSet, Examination, HostTree, examine};

/// The NIC of the app, on node 0.
pub(crate) const NIC: &str = "0000:03:00.0";
const PID: u32 = 4242;
const GROUP: &str = "/system.slice/fwd.service";

/// A host with two Intel processors of eight CPUs, on which `fwd` polls on CPUs 2 and 3.
pub(crate) struct HostFixture {
    dir: TempDir,
    pub(crate) of: Examination,
}

impl HostFixture {
    /// Returns a host on which every check passes.
    pub(crate) fn good() -> Self {
        let host = Self::empty();
        host.kernel();
        host.cpus();
        host.memory();
        host.nic(NIC, "ice", "vfio-pci", 17);
        host.nic("0000:01:00.0", "igb", "igb", 11);
        host.interrupts();
        host.process();
        let apps = Some(vec![fwd()]);
        Self { of: Examination { apps, ..Examination::default() }, ..host }
    }

    /// Returns an empty directory.
    pub(crate) fn empty() -> Self {
        // The tree has hundreds of small files: in memory if possible.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { dir, of: Examination::default() }
    }

    fn kernel(&self) {
        self.write("proc/sys/kernel/osrelease", "6.1.0-56-amd64");
        let isolation =
            "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 irqaffinity=0-1,4-15";
        self.write(
            "proc/cmdline",
            &format!("BOOT_IMAGE=/vmlinuz root=/dev/sda1 {isolation} intel_iommu=on"),
        );
        self.write("etc/os-release", "ID=debian\n");
        self.make("run");
        self.make("proc/irq");
        self.make("sys/module/vfio_pci");
        self.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N");
    }

    fn cpus(&self) {
        let cpus = "sys/devices/system/cpu";
        self.write(&format!("{cpus}/online"), "0-15");
        self.write(&format!("{cpus}/isolated"), "2-3");
        self.write(&format!("{cpus}/nohz_full"), "2-3");
        self.write(&format!("{cpus}/modalias"), "cpu:type:x86,ven0000fam0006mod006A:feature:,0000");
        self.write(&format!("{cpus}/cpu0/microcode/version"), "0xd0003a5");
        self.write("sys/devices/virtual/workqueue/cpumask", "fff3");
        // The files of other CPUs are not read.
        for cpu in 2..5 {
            let dir = format!("{cpus}/cpu{cpu}");
            self.write(&format!("{dir}/topology/thread_siblings_list"), &format!("{cpu}"));
            self.write(&format!("{dir}/cpufreq/scaling_governor"), "performance");
            for (state, name, latency, disable) in
                [(0, "POLL", 0, 0), (1, "C1", 2, 0), (2, "C6", 133, 1)]
            {
                let state = format!("{dir}/cpuidle/state{state}");
                self.write(&format!("{state}/name"), name);
                self.write(&format!("{state}/latency"), &format!("{latency}"));
                self.write(&format!("{state}/disable"), &format!("{disable}"));
            }
        }
        self.write("sys/devices/system/node/node0/cpulist", "0-7");
        self.write("sys/devices/system/node/node1/cpulist", "8-15");
    }

    fn memory(&self) {
        for node in 0..2 {
            self.hugepages(node, 1_048_576, 4, 2);
            self.hugepages(node, 2048, 0, 0);
        }
        self.write("proc/mounts", "hugetlbfs /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0");
        self.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
        self.write("pmdscope-hugepage-files.json", "[]");
    }

    pub(crate) fn hugepages(&self, node: u32, kib: u64, total: u64, free: u64) {
        let dir = format!("sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB");
        self.write(&format!("{dir}/nr_hugepages"), &total.to_string());
        self.write(&format!("{dir}/free_hugepages"), &free.to_string());
    }

    /// Adds a NIC on node 0, in an IOMMU group of its own.
    pub(crate) fn nic(&self, address: &str, interface: &str, driver: &str, group: u32) {
        let dir = format!("sys/bus/pci/devices/{address}");
        self.write(&format!("{dir}/class"), "0x020000");
        self.write(&format!("{dir}/vendor"), "0x8086");
        self.write(&format!("{dir}/device"), "0x1592");
        self.write(&format!("{dir}/numa_node"), "0");
        self.link_speed(address, "16.0 GT/s PCIe", 16);
        self.write(&format!("{dir}/max_link_speed"), "16.0 GT/s PCIe");
        self.write(&format!("{dir}/max_link_width"), "16");
        self.link(&format!("{dir}/iommu_group"), &format!("../../../kernel/iommu_groups/{group}"));
        self.make(&format!("sys/kernel/iommu_groups/{group}/devices/{address}"));
        self.driver(address, Some(driver));
        if !driver.contains("vfio") {
            self.make(&format!("{dir}/net/{interface}0"));
        }
    }

    pub(crate) fn link_speed(&self, address: &str, speed: &str, lanes: u32) {
        let dir = format!("sys/bus/pci/devices/{address}");
        self.write(&format!("{dir}/current_link_speed"), speed);
        self.write(&format!("{dir}/current_link_width"), &lanes.to_string());
    }

    pub(crate) fn driver(&self, address: &str, driver: Option<&str>) {
        let path = format!("sys/bus/pci/devices/{address}/driver");
        self.remove(&path);
        if let Some(driver) = driver {
            self.link(&path, &format!("../../../bus/pci/drivers/{driver}"));
        }
    }

    fn interrupts(&self) {
        self.write("proc/irq/default_smp_affinity", "fff3");
        self.irq(24, "nvme0q0", "0-1,4-15");
        self.irq(25, "igb0-rx-0", "0-1,4-15");
        let cpus: Vec<String> = (0..16).map(|cpu| format!("CPU{cpu}")).collect();
        let (cpus, counts) = (cpus.join(" "), format!(" 900{}", " 0".repeat(15)));
        self.write(
            "proc/interrupts",
            &format!("{cpus}\n 24:{counts} PCI nvme0q0\n 25:{counts} PCI igb0\n"),
        );
    }

    pub(crate) fn irq(&self, number: u32, name: &str, cpus: &str) {
        let dir = format!("proc/irq/{number}");
        self.make(&format!("{dir}/{name}"));
        self.write(&format!("{dir}/smp_affinity_list"), cpus);
        self.write(&format!("{dir}/effective_affinity_list"), cpus);
        self.write(&format!("{dir}/spurious"), "count 0");
    }

    fn process(&self) {
        self.write(&format!("proc/{PID}/status"), "Name:\tfwd\nCapEff:\t000001ffffffffff\n");
        let limits =
            "Limit  Soft  Hard  Units\nMax locked memory         8388608   8388608   bytes\n";
        self.write(&format!("proc/{PID}/limits"), limits);
        self.write(&format!("proc/{PID}/cgroup"), &format!("0::{GROUP}\n"));
        self.write("sys/fs/cgroup/cgroup.procs", "1");
        self.write("sys/fs/cgroup/cpuset.cpus.effective", "0-15");
        self.write(&format!("sys/fs/cgroup{GROUP}/cpu.max"), "max 100000");
        self.write(&format!("sys/fs/cgroup{GROUP}/cpu.stat"), "usage_usec 1\nnr_throttled 0\n");
    }

    /// Puts the process into a container, with cgroup v2; `cpu_max` is the limit of its pod.
    pub(crate) fn container(&self, cpu_max: &str) {
        let group = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope";
        self.write(&format!("proc/{PID}/cgroup"), &format!("0::{group}\n"));
        self.write(&format!("sys/fs/cgroup{group}/cpu.max"), "max 100000");
        self.write("sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cpu.max", cpu_max);
        self.write(
            "sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cpu.stat",
            "nr_throttled 17\n",
        );
        self.write(&format!("sys/fs/cgroup{group}/cpuset.cpus.effective"), "2-3");
    }

    /// Replaces cgroup v2 by v1, with this quota in microseconds.
    pub(crate) fn cgroup_v1(&self, quota: &str, cpus: &str) {
        self.remove("sys/fs/cgroup");
        self.write(
            &format!("proc/{PID}/cgroup"),
            "4:cpu,cpuacct:/fwd\n3:cpuset:/fwd\n1:name=systemd:/\n",
        );
        self.write("sys/fs/cgroup/cpu,cpuacct/cpu.shares", "1024");
        self.write("sys/fs/cgroup/cpu,cpuacct/fwd/cpu.cfs_quota_us", quota);
        self.write("sys/fs/cgroup/cpu,cpuacct/fwd/cpu.cfs_period_us", "100000");
        self.write("sys/fs/cgroup/cpuset/fwd/cpuset.cpus", cpus);
    }

    pub(crate) fn limits(&self, capabilities: &str) {
        self.write(&format!("proc/{PID}/status"), &format!("CapEff:\t{capabilities}\n"));
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub(crate) fn make(&self, path: &str) {
        fs::create_dir_all(self.dir.path().join(path)).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Removes a file or directory, if it exists.
    pub(crate) fn remove(&self, path: &str) {
        let path = self.dir.path().join(path);
        let Ok(metadata) = fs::symlink_metadata(&path) else { return };
        if metadata.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    /// Returns all files and links of the tree, below its root.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut dirs) = (Vec::new(), vec![self.dir.path().to_path_buf()]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let is_dir = entry.file_type().unwrap().is_dir();
                if is_dir { &mut dirs } else { &mut files }.push(entry.path());
            }
        }
        files.sort_unstable();
        files
    }

    pub(crate) fn app(&mut self) -> &mut AppFacts {
        &mut self.of.apps.as_mut().unwrap()[0]
    }

    pub(crate) fn sample(&mut self) -> &mut Sample {
        self.app().sample.as_mut().unwrap()
    }

    pub(crate) fn no_apps(&mut self) {
        self.of.apps = Some(Vec::new());
    }

    pub(crate) fn examine(&self) -> (Report, Baseline) {
        examine(&HostTree::open(self.path()).unwrap(), &self.of)
    }

    pub(crate) fn report(&self) -> Report {
        self.examine().0
    }
}

/// Returns an app with one port and two queues, linked with libpmdscope.
fn fwd() -> AppFacts {
    let queues = |direction| (0..2).map(move |number| descriptors(number, direction));
    let library = LibrarySample { version: "0.2.0".into(), ..LibrarySample::default() };
    let lcore = |lcore| LcoreSample {
        lcore,
        gap_window_max_us: 12,
        gap_max_us: 40,
        ..LcoreSample::default()
    };
    let mut nic = port(0, 0);
    (nic.device, nic.link_mbps, nic.rx_queues) = (NIC.into(), Some(100_000), 2);
    let mut mbufs = pool("mbufs", 16_383, 5_000);
    (mbufs.element_bytes, mbufs.cache_size, mbufs.socket) = (2304, 256, 0);
    let sample = Sample {
        app: AppIdentity {
            name: "fwd".into(),
            pid: PID,
            dpdk_version: "DPDK 22.11.11".into(),
            eal_args: ["fwd", "-l", "2-3", "-a", NIC, "-m", "2048"].map(str::to_owned).to_vec(),
            ..AppIdentity::default()
        },
        ports: vec![nic],
        pools: vec![mbufs],
        queues: queues(QueueDirection::Rx).chain(queues(QueueDirection::Tx)).collect(),
        lcores: vec![lcore(2), lcore(3)],
        library: Some(library),
        control_shares_poll_cpu: Some(false),
        ..Sample::default()
    };
    let thread = |lcore: u32| PollThread {
        lcore,
        tid: PID + lcore,
        allowed: CpuSet::of_list(&lcore.to_string()),
        cpu: lcore,
    };
    AppFacts {
        name: "fwd".into(),
        sample: Some(sample),
        rx_pps: [(0, 20e6)].into(),
        poll_threads: vec![thread(2), thread(3)],
        expected_devices: vec![NIC.into()],
        min_ports: 1,
        capture: Some(CaptureFact::Possible { via: "library".into() }),
        ..AppFacts::default()
    }
}

fn descriptors(number: u16, direction: QueueDirection) -> QueueSample {
    QueueSample { direction, descriptors: Some(2048), ..queue(number, [0; 3]) }
}

/// Returns the worst status of a check.
pub(crate) fn status_of(report: &Report, check: &str) -> Option<CheckStatus> {
    results_of(report, check).map(|result| result.status).max()
}

pub(crate) fn results_of<'a>(
    report: &'a Report,
    check: &str,
) -> impl Iterator<Item = &'a CheckResult> {
    report.results.iter().filter(move |result| result.check == check)
}

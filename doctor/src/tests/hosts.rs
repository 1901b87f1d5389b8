//! Hosts of other kinds: AMD, arm64, containers, virtual machines, no app, an unreadable tree.

use pmdscope_telemetry::sample::Sample;

use crate::check::CheckStatus;
use crate::check::CheckStatus::{Fail, Pass, Skip, Warn};
use crate::cpu_set::CpuSet;
use crate::fixture::{HostFixture, NIC, results_of, status_of};
use crate::{CheckResult, Report};

fn only<'a>(report: &'a Report, check: &str) -> &'a CheckResult {
    let results: Vec<_> = results_of(report, check).collect();
    assert_eq!(results.len(), 1, "{results:#?}");
    results[0]
}

fn kernel_arguments(report: &Report, check: &str) -> Vec<String> {
    only(report, check).fix.clone().unwrap_or_default().kernel_arguments
}

fn no_iommu(modalias: &str) -> Report {
    let host = HostFixture::good();
    host.write("sys/devices/system/cpu/modalias", modalias);
    host.remove("sys/kernel/iommu_groups");
    host.write("sys/devices/system/cpu/cpu2/cpuidle/state2/disable", "0");
    host.report()
}

#[test]
fn the_iommu_and_c_states_have_other_arguments_on_each_processor() {
    let intel = no_iommu("cpu:type:x86,ven0000fam0006mod006A:feature:");
    assert_eq!(kernel_arguments(&intel, "iommu"), ["intel_iommu=on", "iommu=pt"]);
    assert_eq!(kernel_arguments(&intel, "c_states")[0], "intel_idle.max_cstate=1");
    let amd = no_iommu("cpu:type:x86,ven0002fam0019mod0001:feature:");
    assert_eq!(kernel_arguments(&amd, "iommu"), ["amd_iommu=on", "iommu=pt"]);
    assert_eq!(kernel_arguments(&amd, "c_states"), ["processor.max_cstate=1"]);
    let arm = no_iommu("cpu:type:aarch64:feature:,0000,0001");
    assert_eq!(kernel_arguments(&arm, "iommu")[0], "iommu.passthrough=1");
    assert_eq!(kernel_arguments(&arm, "c_states"), ["cpuidle.off=1"]);
}

#[test]
fn arm64_without_microcode_idle_states_and_frequency_control() {
    let host = HostFixture::good();
    host.write("sys/devices/system/cpu/modalias", "cpu:type:aarch64:feature:,0000");
    host.remove("sys/devices/system/cpu/cpu0/microcode");
    for cpu in 2..5 {
        host.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle"));
        host.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq"));
    }
    let report = host.report();
    assert_eq!(status_of(&report, "c_states"), Some(Pass));
    assert_eq!(status_of(&report, "governor"), Some(Skip));
    assert!(report.ok);
}

#[test]
fn the_command_line_is_changed_as_the_distribution_does() {
    let command = |os_release: &str| {
        let host = HostFixture::good();
        host.write("etc/os-release", os_release);
        host.write("sys/devices/system/cpu/isolated", "");
        only(&host.report(), "isolcpus").fix.clone().unwrap().persistent[0].clone()
    };
    let debian = "mkdir -p /etc/default/grub.d && echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX isolcpus=managed_irq,domain,2-3\"' \
                  >> /etc/default/grub.d/pmdscope.cfg && update-grub";
    assert_eq!(command("ID=debian"), debian);
    assert_eq!(
        command("ID=rocky\nID_LIKE=\"rhel\""),
        "grubby --update-kernel=ALL --args='isolcpus=managed_irq,domain,2-3'"
    );
    assert!(command("ID=sles").contains("grub2-mkconfig"));
    assert!(command("ID=arch").contains("isolcpus=managed_irq,domain,2-3"));
}

#[test]
fn before_the_first_start_the_isolated_cpus_are_checked() {
    let mut host = HostFixture::good();
    host.no_apps();
    let report = host.report();
    assert_eq!(status_of(&report, "isolcpus"), Some(Pass));
    assert_eq!(status_of(&report, "nic_driver"), Some(Pass), "{:?}", only(&report, "nic_driver"));
    assert_eq!(status_of(&report, "pool_size"), Some(Skip));
    assert!(report.ok);
    host.write("sys/devices/system/cpu/isolated", "");
    let report = host.report();
    assert_eq!(status_of(&report, "irq_affinity"), Some(Skip));
    assert!(only(&report, "irq_affinity").found.contains("--cpus"));
    host.of.cpus = Some(CpuSet::of_list("2-4"));
    let report = host.report();
    assert_eq!(kernel_arguments(&report, "isolcpus"), ["isolcpus=managed_irq,domain,2-4"]);
    host.driver(NIC, Some("ice"));
    assert_eq!(status_of(&host.report(), "nic_driver"), Some(Warn), "no NIC is ready");
}

#[test]
fn an_expected_app_that_does_not_run_has_its_nic_checked() {
    let mut host = HostFixture::good();
    let expected = pmdscope_telemetry::ExpectedApp {
        name: "fwd".into(),
        ports: vec![NIC.into()],
        ..Default::default()
    };
    host.of.apps = Some(vec![crate::AppFacts::absent(&expected)]);
    host.driver(NIC, Some("ice"));
    let report = host.report();
    assert_eq!(status_of(&report, "app_running"), Some(Fail));
    assert_eq!(only(&report, "nic_driver").status, Fail);
}

#[test]
fn a_container_with_whole_cpus_is_good() {
    let host = HostFixture::good();
    host.container("max 100000");
    let report = host.report();
    assert_eq!(
        (status_of(&report, "cpu_quota"), status_of(&report, "cpuset")),
        (Some(Pass), Some(Pass))
    );
    host.container("200000 100000");
    assert!(only(&host.report(), "cpu_quota").found.contains("stopped in 17 periods"));
    host.write("proc/4242/cgroup", "0::/../../elsewhere");
    assert_eq!(
        status_of(&host.report(), "cpu_quota"),
        Some(Skip),
        "not seen from within a container"
    );
}

#[test]
fn apps_in_containers_are_named_with_them() {
    let mut host = HostFixture::good();
    host.container("200000 100000");
    let container = pmdscope_telemetry::host::Container {
        id: "4f1c9a2b3c4d5e6f".into(),
        pod: Some("0f1b6c52".into()),
    };
    host.app().sample.as_mut().unwrap().app.container = Some(container);
    let found = only(&host.report(), "cpu_quota").found.clone();
    assert!(found.starts_with("fwd (container 4f1c9a2b3c4d, pod 0f1b6c52): "), "{found}");
}

#[test]
fn cgroup_v1_without_a_quota_is_good() {
    let host = HostFixture::good();
    host.cgroup_v1("-1", "2-3");
    let report = host.report();
    assert_eq!(
        (status_of(&report, "cpu_quota"), status_of(&report, "cpuset")),
        (Some(Pass), Some(Pass))
    );
}

#[test]
fn a_bifurcated_driver_needs_no_vfio() {
    let host = HostFixture::good();
    host.driver(NIC, Some("mlx5_core"));
    host.remove("sys/module/vfio_pci");
    host.remove("sys/kernel/iommu_groups");
    let report = host.report();
    assert_eq!(status_of(&report, "nic_driver"), Some(Pass));
    for check in ["iommu", "vfio_module", "uio_driver"] {
        assert_eq!(status_of(&report, check), Some(Skip), "{check}");
    }
}

#[test]
fn a_stock_app_on_ordinary_pages_is_checked_as_far_as_it_tells() {
    let mut host = HostFixture::good();
    let sample = host.sample();
    (sample.library, sample.lcores, sample.queues) = (None, Vec::new(), Vec::new());
    sample.app.eal_args.push("--no-huge".into());
    host.hugepages(0, 1_048_576, 0, 0);
    host.hugepages(1, 1_048_576, 0, 0);
    let report = host.report();
    assert_eq!(status_of(&report, "hugepages_reserved"), Some(Warn));
    for check in ["descriptors", "hugepages_free", "hugepages_per_node"] {
        assert_eq!(status_of(&report, check), Some(Skip), "{check}");
    }
    assert!(report.ok);
}

#[test]
fn pools_of_a_stock_app_are_judged_by_what_is_known() {
    let mut host = HostFixture::good();
    let sample = host.sample();
    (sample.library, sample.lcores, sample.queues) = (None, Vec::new(), Vec::new());
    let mut found = |change: fn(&mut Sample)| {
        change(host.sample());
        let report = host.report();
        let found = results_of(&report, "pool_size").map(|result| result.found.clone());
        (status_of(&report, "pool_size"), found.collect::<String>())
    };
    let (status, text) = found(|_| ());
    assert_eq!(status, Some(Pass), "{text}");
    assert!(text.contains("5,000 in use now (its descriptors are not known), 768 in"), "{text}");
    let (status, text) =
        found(|sample| sample.pools[0].occupancy.as_mut().unwrap().in_use = 16_000);
    assert_eq!(status, Some(Warn), "{text}");
    assert_eq!(found(|sample| sample.pools[0].occupancy = None).0, Some(Skip));
    let (status, text) = found(|sample| sample.ports[0].rx_descriptors = vec![Some(4096); 2]);
    assert_eq!(status, Some(Pass), "{text}");
    assert!(text.contains("8,192 receive and an unknown number of transmit descriptors"), "{text}");
    assert_eq!(found(|sample| sample.pools[0].size = 8_000).0, Some(Fail));
    assert_eq!(status_of(&host.report(), "descriptors"), Some(Pass));
}

#[test]
fn a_host_with_one_node_and_no_pci_is_checked() {
    let mut host = HostFixture::good();
    host.remove("sys/devices/system/node");
    host.remove("sys/bus");
    host.make("sys/devices/system");
    for (file, pages) in [("nr_hugepages", "8"), ("free_hugepages", "4")] {
        host.write(&format!("sys/kernel/mm/hugepages/hugepages-1048576kB/{file}"), pages);
    }
    host.sample().ports[0].device = "net_vhost0".into();
    host.app().expected_devices = vec!["net_vhost0".into()];
    let report = host.report();
    assert_eq!(status_of(&report, "hugepages_reserved"), Some(Pass));
    assert_eq!(status_of(&report, "numa_lcores"), Some(Skip));
    assert_eq!(status_of(&report, "nic_driver"), Some(Skip));
    assert!(
        report.ok,
        "{:?}",
        report.results.iter().filter(|r| r.status == Fail).collect::<Vec<_>>()
    );
}

#[test]
fn what_cannot_be_read_is_unknown_and_never_good() {
    let report = HostFixture::empty().report();
    let statuses: Vec<CheckStatus> = report.results.iter().map(|result| result.status).collect();
    assert!(statuses.iter().all(|status| *status == Skip), "{report:#?}");
    assert!(report.ok, "nothing was found");
    assert!(report.results.iter().all(|result| !result.found.is_empty()));
}

#[test]
fn poll_loops_on_all_cpus_are_told_apart_from_missing_isolation() {
    let mut host = HostFixture::good();
    host.of.cpus = Some(CpuSet::of_list("0-15"));
    host.irq(26, "eth0-rx-0", "3");
    let report = host.report();
    let fix = only(&report, "isolcpus").fix.clone().unwrap();
    assert!(fix.persistent.is_empty() && fix.advice.contains("leave at least one"), "{fix:?}");
    let irq = results_of(&report, "irq_affinity").find(|result| result.status == Fail).unwrap();
    assert!(irq.fix.clone().unwrap().now.is_empty());
}

#[test]
fn proposed_hugepages_are_of_a_size_that_the_host_uses() {
    let proposed = |host: &HostFixture| {
        let fix = only(&host.report(), "hugepages_per_node").fix.clone().unwrap_or_default();
        fix.now.concat()
    };
    let host = HostFixture::good();
    host.hugepages(0, 1_048_576, 0, 0);
    let of_node = "/sys/devices/system/node/node0/hugepages";
    assert_eq!(proposed(&host), format!("echo 2 > {of_node}/hugepages-1048576kB/nr_hugepages"));
    host.hugepages(1, 1_048_576, 0, 0);
    assert_eq!(proposed(&host), format!("echo 1024 > {of_node}/hugepages-2048kB/nr_hugepages"));
}

#[test]
fn checks_that_were_skipped_for_one_reason_share_a_line() {
    let mut host = HostFixture::good();
    host.no_apps();
    let lines = host.report().lines(false);
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let no_app = lines.iter().filter(|line| line.starts_with("  skip  no app runs ["));
    assert!(no_app.clone().any(|line| line.contains("descriptors, pool_size")), "{lines:#?}");
    assert!(lines.iter().filter(|line| line.contains("[pool_size]")).count() == 0, "{lines:#?}");
}

#[test]
fn an_app_that_names_no_nic_and_has_no_port_is_told_the_drivers() {
    let mut host = HostFixture::good();
    host.driver(NIC, Some("ice"));
    host.app().expected_devices.clear();
    assert_eq!(status_of(&host.report(), "nic_driver"), Some(Fail), "its port is on that NIC");
    host.sample().ports.clear();
    let report = host.report();
    let result = only(&report, "nic_driver");
    assert_eq!(result.status, Fail);
    assert!(result.found.starts_with("fwd lacks ports, and no NIC is bound"), "{}", result.found);
    host.app().min_ports = 0;
    assert_eq!(status_of(&host.report(), "nic_driver"), Some(Skip));
}

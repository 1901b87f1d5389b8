//! Hugepages, transparent hugepages, and the limit of locked memory.

use std::collections::BTreeMap;

use pmdscope_render::number::bytes;

use crate::app::AppFacts;
use crate::check::{Check, CheckGroup, Evidence, Fix, Verdict, fail, pass, quoted, warn};
use crate::facts::{HugepagePool, LeftFiles};
use crate::tree::{Fact, Unknown};

const MIB: u64 = 1 << 20;

pub(super) const CHECKS: [Check; 7] = [
    Check {
        id: "hugepages_reserved",
        group: CheckGroup::Memory,
        title: "Hugepages are reserved",
        matters: "Without hugepages the EAL does not start, and with --no-huge every packet costs \
                  TLB misses.",
        run: reserved,
    },
    Check {
        id: "hugepages_per_node",
        group: CheckGroup::Memory,
        title: "Each NUMA node in use has hugepages",
        matters: "An mbuf pool on another node than its NIC sends every packet over the link \
                  between the processors.",
        run: per_node,
    },
    Check {
        id: "hugepages_free",
        group: CheckGroup::Memory,
        title: "Free hugepages suffice",
        matters: "An app that finds too few free hugepages at its start ends with \"Cannot init \
                  memory\".",
        run: free,
    },
    Check {
        id: "hugepage_files",
        group: CheckGroup::Memory,
        title: "No ended app holds hugepages",
        matters: "An app that was killed leaves its hugepage files behind. Their hugepages stay in use until an \
                  app with the same file-prefix starts, or the files are removed.",
        run: left_files,
    },
    Check {
        id: "hugetlbfs",
        group: CheckGroup::Memory,
        title: "hugetlbfs is mounted",
        matters: "Without hugetlbfs the EAL finds no hugepages unless it runs with --in-memory.",
        run: hugetlbfs,
    },
    Check {
        id: "transparent_hugepages",
        group: CheckGroup::Memory,
        title: "Transparent hugepages are not forced",
        matters: "khugepaged moves the memory of running threads, and stalls a poll loop while it \
                  does.",
        run: transparent,
    },
    Check {
        id: "memory_lock_limit",
        group: CheckGroup::Memory,
        title: "The app may lock its memory",
        matters: "vfio locks all memory that a NIC may reach, and fails at the limit with \
                  \"Cannot allocate memory\".",
        run: locked,
    },
];

/// Returns the apps that use hugepages.
fn users<'a>(evidence: &Evidence<'a>) -> Vec<&'a AppFacts> {
    let running = evidence.running().unwrap_or_default();
    running.into_iter().filter(|app| !app.memory().no_huge).collect()
}

fn every_app_does_without(evidence: &Evidence) -> bool {
    evidence.running().is_ok() && users(evidence).is_empty()
}

/// Memory that is proposed where the need of the app is unknown.
const PROPOSED_BYTES: u64 = 2 << 30;

/// Proposes hugepages of the size that is already reserved, or else of the smallest size.
fn propose(pools: &[HugepagePool], node: u32) -> Fix {
    let in_use = |kib: u64| pools.iter().any(|pool| pool.kib == kib && pool.total > 0);
    let of_node = pools.iter().filter(|pool| pool.node == node);
    let Some(pool) = of_node.min_by_key(|pool| (!in_use(pool.kib), pool.kib)) else {
        return Fix::advice("the kernel has no hugepages here: CONFIG_HUGETLBFS");
    };
    reserve(pool, PROPOSED_BYTES.div_ceil(pool.page_bytes()))
}

fn reserve(pool: &HugepagePool, pages: u64) -> Fix {
    let (dir, node, kib) = (&pool.dir, pool.node, pool.kib);
    let line = format!("w {dir}/nr_hugepages - - - - {pages}");
    let file = format!("/etc/tmpfiles.d/pmdscope-hugepages-node{node}-{kib}kB.conf");
    Fix::now(format!("echo {pages} > {dir}/nr_hugepages"))
        .and_persistent(format!("echo '{line}' > {file}"))
}

fn text(pool: &HugepagePool) -> String {
    let HugepagePool { node, total, free, .. } = pool;
    format!("node {node}: {total} of {}, {free} free", bytes(pool.page_bytes()))
}

fn reserved(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let pools = evidence.host.memory.hugepages.clone()?;
    let some: Vec<String> = pools.iter().filter(|pool| pool.total > 0).map(text).collect();
    if !some.is_empty() {
        return Ok(vec![pass(some.join("; "))]);
    }
    let none = "no hugepages of any size are reserved";
    if every_app_does_without(evidence) {
        let fix = propose(&pools, 0).and_advice("then start the app without --no-huge");
        return Ok(vec![warn(format!("{none}; the running apps use --no-huge"), fix)]);
    }
    Ok(vec![fail(none, propose(&pools, 0))])
}

/// Checks the nodes with poll CPUs, or with NICs that user space drives.
fn per_node(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let pools = evidence.host.memory.hugepages.clone()?;
    if every_app_does_without(evidence) {
        return Err(Unknown("the running apps use --no-huge".into()));
    }
    let cpus = evidence.host.poll_cpus.clone().unwrap_or_default();
    let mut used: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for cpu in &cpus.0 {
        if let Some(node) = evidence.host.cpus.node_of(*cpu) {
            used.entry(node).or_default().push(format!("CPU {cpu}"));
        }
    }
    for device in super::nics::in_use(evidence)? {
        if let Some(node) = device.node {
            used.entry(node).or_default().push(device.sample.address.clone());
        }
    }
    if used.is_empty() {
        return Err(Unknown("no poll CPU and no NIC for user space is known".into()));
    }
    let verdict = |(node, users): (u32, Vec<String>)| {
        let of_node = pools.iter().filter(|pool| pool.node == node);
        let total: u64 = of_node.map(HugepagePool::bytes).fold(0, u64::saturating_add);
        if total > 0 {
            return pass(format!("node {node} has {}", bytes(total)));
        }
        let users = users.first().cloned().unwrap_or_default();
        let found = format!("node {node} has no hugepages, and {users} is on it");
        fail(found, propose(&pools, node))
    };
    Ok(used.into_iter().map(verdict).collect())
}

/// An app frees its hugepages when it ends, so only what it needs beyond them must be free.
fn free(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let pools = evidence.host.memory.hugepages.clone()?;
    if every_app_does_without(evidence) {
        return Err(Unknown("the running apps use --no-huge".into()));
    }
    let total: u64 = pools.iter().map(HugepagePool::bytes).fold(0, u64::saturating_add);
    if total == 0 {
        return Err(Unknown("no hugepages are reserved".into()));
    }
    let free: u64 = pools.iter().map(HugepagePool::free_bytes).fold(0, u64::saturating_add);
    let users = users(evidence);
    let mut verdicts: Vec<Verdict> = users.iter().filter_map(|app| of_app(app, &pools)).collect();
    let waiting: Vec<&str> =
        evidence.apps()?.iter().filter(|app| app.absent).map(|app| app.name.as_str()).collect();
    let found = format!("{} of {} are free", bytes(free), bytes(total));
    let left = evidence.host.memory.left_files.as_deref().unwrap_or_default();
    if free == 0 && !left.is_empty() {
        let held = left.iter().map(|left| left.bytes).fold(0, u64::saturating_add);
        let found = format!("{found}; files of ended apps hold {}", bytes(held));
        verdicts.push(fail(found, removal(left)));
        return Ok(verdicts);
    }
    let fullest = pools.iter().filter(|pool| pool.total > 0).max_by_key(|pool| pool.bytes());
    let fix = || {
        let more = fullest.map(|pool| reserve(pool, pool.total.saturating_mul(2)));
        more.unwrap_or_default().and_advice("or end the app that holds them: ls -l /dev/hugepages")
    };
    verdicts.push(match (free, users.is_empty()) {
        (0, _) if !waiting.is_empty() => {
            fail(format!("{found}, and {} has to start", waiting.join(", ")), fix())
        }
        (0, true) => fail(format!("{found}, though no DPDK app answers"), fix()),
        (0, false) => pass(format!("{found}: the running apps hold them")),
        _ => pass(found),
    });
    Ok(verdicts)
}

fn left_files(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let left = evidence.host.memory.left_files.clone()?;
    if left.is_empty() {
        return Ok(vec![pass("no hugepage file is without a process")]);
    }
    let pools = evidence.host.memory.hugepages.clone().unwrap_or_default();
    let is_empty = pools.iter().all(|pool| pool.free == 0);
    let verdict = |left: LeftFiles| {
        let noun = if left.files == 1 { "file" } else { "files" };
        let found = format!(
            "{} {noun} of {} in {} hold {}, and no process has them open",
            left.files,
            left.prefix,
            left.dir,
            bytes(left.bytes)
        );
        let fix = removal(std::slice::from_ref(&left));
        if is_empty { fail(found, fix) } else { warn(found, fix) }
    };
    Ok(left.into_iter().map(verdict).collect())
}

/// Proposes to remove the files of ended apps.
fn removal(left: &[LeftFiles]) -> Fix {
    let command = |left: &LeftFiles| {
        let path = format!("{}/{}map_", left.dir, left.prefix);
        format!("rm -f -- {}[0-9]*", quoted(&path))
    };
    let commands = left.iter().map(command);
    commands.fold(Fix::default(), Fix::and_now).and_advice(
        "an app that starts again with the same file-prefix removes them as well, unless it runs with \
         --huge-unlink=never; start apps with --huge-unlink or --in-memory to leave none",
    )
}

/// Compares the memory that the arguments ask for with what is reserved.
fn of_app(app: &AppFacts, pools: &[HugepagePool]) -> Option<Verdict> {
    let wanted = app.memory().wanted_mib()?.saturating_mul(MIB);
    let total: u64 = pools.iter().map(HugepagePool::bytes).fold(0, u64::saturating_add);
    if total >= wanted {
        return Some(pass(format!(
            "{} asks for {}, and {} are reserved",
            app.label(),
            bytes(wanted),
            bytes(total)
        )));
    }
    // If nothing is reserved yet, the size that most hosts use.
    let largest = pools.iter().max_by_key(|pool| (pool.bytes(), pool.kib == 2048));
    let fix = largest.map(|pool| reserve(pool, wanted.div_ceil(pool.page_bytes())));
    let found =
        format!("{} asks for {}, and {} are reserved", app.label(), bytes(wanted), bytes(total));
    Some(fail(found, fix.unwrap_or_default()))
}

fn hugetlbfs(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let mounts = evidence.host.memory.hugetlbfs.clone()?;
    if !mounts.is_empty() {
        return Ok(vec![pass(mounts.join(", "))]);
    }
    let users = users(evidence);
    let without = evidence.running().is_ok() && users.iter().all(|app| app.memory().in_memory);
    if without {
        return Ok(vec![pass("not mounted; the running apps need none")]);
    }
    let fix = Fix::now("mkdir -p /dev/hugepages && mount -t hugetlbfs nodev /dev/hugepages")
        .and_persistent("systemctl enable --now dev-hugepages.mount");
    Ok(vec![fail("no hugetlbfs is mounted", fix)])
}

fn transparent(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let Some(mode) = evidence.host.memory.transparent.clone()? else {
        return Ok(vec![pass("the kernel has none")]);
    };
    if mode != "always" {
        return Ok(vec![pass(mode)]);
    }
    let fix = evidence.kernel_arguments(&["transparent_hugepage=madvise".into()]);
    let fix = fix.and_now("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    Ok(vec![warn(mode, fix)])
}

/// An error only for an app that uses vfio: only vfio locks memory.
fn locked(evidence: &Evidence) -> Fact<Vec<Verdict>> {
    let apps = evidence.running()?;
    let verdict = |app: &&AppFacts| {
        let Some(process) = evidence.host.processes.get(&app.name) else {
            return Err(Unknown(format!("the process of {} is not seen from here", app.label())));
        };
        let Some(limit) = process.locked_bytes.clone()? else {
            return Ok(pass(format!("{}: any amount", app.label())));
        };
        let vfio = super::nics::of_app(evidence, app)?.into_iter().any(|device| {
            device.sample.driver.as_deref().is_some_and(|driver| driver.contains("vfio"))
        });
        let found = format!("{} may lock {}", app.label(), bytes(limit));
        let fix = Fix::persistent("systemctl edit UNIT  # [Service] LimitMEMLOCK=infinity")
            .and_advice("UNIT is the systemd unit of the app; in a shell: ulimit -l unlimited");
        Ok(if vfio { fail(format!("{found}, and uses vfio"), fix) } else { warn(found, fix) })
    };
    apps.iter().map(verdict).collect()
}

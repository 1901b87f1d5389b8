//! Other holders of mbufs of a running process: secondary processes, and arguments of system calls.

use std::fs;
use std::sync::Arc;

use pmdscope_telemetry::host::maps;

use crate::error::XrayError;
use crate::holders::{AfXdpSockets, KernelPool};
use crate::memory::{Memory, ProcessMemory};
use crate::{Mapping, XrayTarget};

/// End of the path of an app's shared configuration, after the directory of its prefix.
const CONFIG_FILE: &str = "/config";

/// Another process that works with the same pools.
#[derive(Debug)]
pub(super) struct Secondary {
    pub(super) memory: Arc<dyn Memory>,
    /// Such as "process 4711 (dpdk-pdump)".
    pub(super) name: String,
    /// Its own writable mappings.
    pub(super) maps: Vec<Mapping>,
}

/// The other processes of an app: they map the same shared configuration. Processes that cannot be
/// read are returned as an error.
pub(super) fn secondaries(
    target: &XrayTarget,
    own: &[Mapping],
) -> Vec<Result<Secondary, (u32, XrayError)>> {
    let (Some(pid), Some(config)) = (target.memory.process(), own.iter().find(|m| is_config(m)))
    else {
        return Vec::new();
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // Secondary processes map it at the same address. Checking only that address takes a tenth of
    // the time.
    let is_there = |pid: u32| maps_file_at(pid, config);
    let is_told = is_there(pid);
    pids.filter(|other| *other != pid && (!is_told || is_there(*other)))
        .filter_map(|other| secondary(other, config, own))
        .collect()
}

/// Whether a process has a mapping of a file at exactly these addresses; false if the kernel does
/// not report it.
fn maps_file_at(pid: u32, mapping: &Mapping) -> bool {
    let (start, end) = (mapping.start, mapping.end);
    fs::symlink_metadata(format!("/proc/{pid}/map_files/{start:x}-{end:x}")).is_ok()
}

fn is_config(mapping: &Mapping) -> bool {
    let path = mapping.path.strip_suffix(" (deleted)").unwrap_or(&mapping.path);
    mapping.shared && path.ends_with(CONFIG_FILE) && path.contains("/dpdk/")
}

fn secondary(
    pid: u32,
    config: &Mapping,
    own: &[Mapping],
) -> Option<Result<Secondary, (u32, XrayError)>> {
    let same = |a: &Mapping, b: &Mapping| a.inode == b.inode && a.device == b.device;
    let all = maps::read(pid).ok()?;
    all.iter().find(|mapping| is_config(mapping) && same(mapping, config))?;
    let memory = match ProcessMemory::open(pid) {
        Ok(memory) => Arc::new(memory),
        Err(error) => return Some(Err((pid, error))),
    };
    let of_both = |mapping: &Mapping| {
        mapping.shared && mapping.inode != 0 && own.iter().any(|own| same(own, mapping))
    };
    let mut maps = all;
    maps.retain(|mapping| mapping.writable && mapping.readable && !of_both(mapping));
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = format!("process {pid} ({})", name.trim_end());
    Some(Ok(Secondary { memory, name, maps }))
}

/// Arguments of the system calls in which threads of the app wait, and for each the thread's stack
/// pointer: only the kernel may have the address of a buffer that is being written or sent.
pub(super) fn system_call_arguments(pid: u32) -> Vec<(u64, u64)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let calls = tasks.filter_map(|task| fs::read_to_string(task.path().join("syscall")).ok());
    calls.flat_map(|call| arguments(&call)).collect()
}

/// `NUMBER ARGUMENT... SP PC`, the arguments in hexadecimal; `running`, or `-1 SP PC`.
fn arguments(call: &str) -> Vec<(u64, u64)> {
    let words: Vec<u64> = call
        .split_whitespace()
        .filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
        .collect();
    match words.as_slice() {
        [arguments @ .., stack, _] if arguments.len() == 6 => {
            arguments.iter().map(|argument| (*stack, *argument)).collect()
        }
        _ => Vec::new(),
    }
}

/// Why mbufs without references may be in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotJudged {
    /// Address of the mempool that it concerns; `None` for all.
    pub(super) pool: Option<u64>,
    /// A sentence.
    pub(super) why: String,
}

impl NotJudged {
    /// It concerns all mempools.
    pub(super) fn all(why: impl Into<String>) -> Self {
        Self { pool: None, why: why.into() }
    }
}

/// References may be in pages of shared files that the page tables of the process do not have.
pub(super) fn unknown_pages(bytes: u64) -> Option<NotJudged> {
    (bytes > 0).then(|| {
        NotJudged::all(format!(
            "{bytes} bytes of files that the app shares are not in its page tables, and the files cannot be \
             opened: run pmdscope as root"
        ))
    })
}

/// Why an mbuf that nothing refers to may still be in use in this app: its drivers keep it in
/// another way.
pub(super) fn kept_otherwise(target: &XrayTarget, af_xdp: &AfXdpSockets) -> Vec<NotJudged> {
    let of_pool = |pool: KernelPool| {
        let ports: Vec<String> = pool.ports.iter().map(u16::to_string).collect();
        let why = format!(
            "AF_XDP ports ({}) give its mbufs to the kernel, which does not report all that it holds",
            ports.join(", ")
        );
        NotJudged { pool: Some(pool.address), why }
    };
    let mut reasons: Vec<NotJudged> = af_xdp.pools().map(of_pool).collect();
    if af_xdp.has_others() {
        reasons.push(NotJudged::all(
            "AF_XDP sockets (net_af_xdp) hold mbufs as offsets, part of them inside the kernel",
        ));
    }
    if target.memzones.iter().any(|zone| zone.name.starts_with("kni_alloc_")) {
        reasons.push(NotJudged::all("KNI hands mbufs to the kernel by their physical addresses"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_looked_for_at_their_addresses() {
        let pid = std::process::id();
        let maps = maps::read(pid).unwrap();
        let code = maps.iter().find(|map| map.executable && map.path.starts_with('/')).unwrap();
        assert!(maps_file_at(pid, code));
        assert!(!maps_file_at(pid, &Mapping { start: code.start + 4096, ..code.clone() }));
        assert!(!maps_file_at(u32::MAX, code));
    }

    #[test]
    fn arguments_of_a_call_are_read_and_those_of_running_threads_are_not() {
        let call = "1 0x5 0x7f10 0x40 0x0 0x0 0x0 0x7ffe10 0x7f4410\n";
        assert!(arguments(call).contains(&(0x007f_fe10, 0x7f10)));
        assert_eq!(arguments("running\n"), []);
        assert_eq!(arguments("-1 0x7ffe10 0x7f4410\n"), []);
    }
}

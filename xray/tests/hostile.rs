//! Processes that change, end and begin again while they are read.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pmdscope_testing::{limited, skip};
use pmdscope_xray::{AccessDenial, Memory, ProcessMemory, ReadBudget, XrayError};

/// How long memory is waited for that is gone before it is read.
const LONG: Duration = Duration::from_secs(60);

/// Set where this program runs in a PID namespace of its own.
const NAMESPACE: &str = "PMDSCOPE_TEST_NAMESPACE";

/// The process that this program, run by another user, may not read.
const DENIED: &str = "PMDSCOPE_TEST_DENIED";

/// Runs `attempt` while other threads map and unmap memory, until it is true.
fn while_maps_change(mut attempt: impl FnMut() -> bool) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for bytes in [300_000, 5_000_000] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    // Of this length the C library maps them one by one.
                    let pieces: Vec<_> = (0..4).map(|at| vec![1_u8; bytes + at * 4096]).collect();
                    std::hint::black_box(&pieces);
                }
            });
        }
        let began = Instant::now();
        while !attempt() && began.elapsed() < LONG {}
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn memory_that_is_unmapped_meanwhile_is_an_error() {
    let memory = ProcessMemory::open(std::process::id()).unwrap();
    let (mut read, mut gone, mut failed) = (0_u32, 0_u32, None);
    while_maps_change(|| {
        let mut buffer = vec![0; 1 << 16];
        let maps = memory.maps().unwrap_or_default();
        for mapping in maps.iter().filter(|mapping| mapping.readable) {
            match memory.read(mapping.start, &mut buffer) {
                Ok(()) => read += 1,
                Err(XrayError::NotMapped { .. }) => gone += 1,
                // Not here: the other threads would never end.
                Err(error) => failed = Some(error),
            }
        }
        failed.is_some() || read > 0 && gone > 0
    });
    assert!(failed.is_none(), "{failed:?}");
    assert!(read > 0 && gone > 0, "{read} read, {gone} gone");
}

fn child() -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "echo; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = limited(command.spawn().unwrap());
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

/// All that a process has, until it has ended.
#[test]
fn a_process_that_ends_meanwhile_is_an_error() {
    for pause_ms in [0, 1, 3, 10] {
        let mut child = child();
        let memory = ProcessMemory::open(child.id()).unwrap().with_budget(ReadBudget::BACKGROUND);
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            loop {
                for mapping in memory.maps()? {
                    let bytes = usize::try_from(mapping.end - mapping.start).unwrap();
                    let Some(buffer) = buffer.get_mut(..bytes) else { continue };
                    match memory.read(mapping.start, buffer) {
                        Ok(()) | Err(XrayError::NotMapped { .. }) => {}
                        Err(error) => return Err::<(), _>(error),
                    }
                }
            }
        });
        thread::sleep(Duration::from_millis(pause_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        let error = reader.join().unwrap().unwrap_err();
        assert!(matches!(error, XrayError::Ended { .. }), "{error}");
    }
}

/// Runs in a PID namespace of its own, in which the ids are ours to give.
#[test]
fn a_process_id_that_is_used_again_is_noticed() {
    const TEST: &str = "a_process_id_that_is_used_again_is_noticed";
    if std::env::var_os(NAMESPACE).is_some() {
        return pid_reuse();
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]);
    let works = unshare.arg("true").stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        return skip(TEST, "unshare may not make a PID namespace here");
    }
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--mount", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(NAMESPACE, "1");
    let child = limited(unshare.stdout(Stdio::piped()).spawn().unwrap());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn pid_reuse() {
    let mut first = child();
    let memory = ProcessMemory::open(first.id()).unwrap();
    let stack = memory.maps().unwrap().iter().find(|m| m.path == "[stack]").unwrap().end - 8;
    memory.read(stack, &mut [0; 8]).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let last = first.id() - 1;
    fs::File::options()
        .write(true)
        .open("/proc/sys/kernel/ns_last_pid")
        .and_then(|mut file| file.write_all(last.to_string().as_bytes()))
        .unwrap();
    let mut second = child();
    assert_eq!(second.id(), first.id());
    assert!(matches!(memory.read(stack, &mut [0; 8]), Err(XrayError::Ended { .. })));
    assert!(matches!(memory.maps(), Err(XrayError::Ended { .. })));
    second.kill().unwrap();
    second.wait().unwrap();
}

/// Runs again as another user, who may not read a process of root.
#[test]
fn a_process_of_another_user_is_denied_with_the_cause() {
    const TEST: &str = "a_process_of_another_user_is_denied_with_the_cause";
    const NOBODY: u32 = 65534;
    if let Ok(pid) = std::env::var(DENIED) {
        let error = ProcessMemory::open(pid.parse().unwrap()).unwrap_err();
        let denial = AccessDenial::OtherUser { uid: 0 };
        let is_denied =
            matches!(&error, XrayError::NotAllowed { denial: cause, .. } if *cause == denial);
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        assert!(is_denied || scope.trim() == "3", "{error}");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip(TEST, "only root may become another user");
    }
    let mut target = child();
    let mut probe = Command::new("/proc/self/exe");
    probe
        .args(["--exact", TEST, "--nocapture"])
        .env(DENIED, target.id().to_string())
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY);
    let probe = limited(probe.stdout(Stdio::piped()).spawn().unwrap());
    let output = probe.wait_with_output().unwrap();
    target.kill().unwrap();
    target.wait().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

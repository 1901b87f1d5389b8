//! Processes that change, end and start again while they are read.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pmdscope_testing::{limited, skip};
use pmdscope_xray::{Memory, ProcessMemory, ReadBudget, XrayError};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// How long to wait for memory that was unmapped before the read.
const LONG: Duration = Duration::from_secs(60);

/// Set if this program runs in its own PID namespace.
const NAMESPACE: &str = "PMDSCOPE_TEST_NAMESPACE";

/// The process that this program, running with fewer rights, may not read.
const DENIED: &str = "PMDSCOPE_TEST_DENIED";
/// Set if this program is an app that its own user may not read.
const PROTECTED: &str = "PMDSCOPE_TEST_PROTECTED";
const DENIALS: &str = "each_denial_names_its_cause_and_its_cure";
const READY: &str = "it is ready";
const NOBODY: u32 = 65534;

/// Runs `attempt` while other threads map and unmap memory, until it is true.
fn while_maps_change(mut attempt: impl FnMut() -> bool) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for bytes in [300_000, 5_000_000] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    // The C library uses one mapping for each block of this length.
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
                // Not returned here: the other threads would never end.
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

/// Reads all memory of a process until it ends.
#[test]
fn a_process_that_ends_meanwhile_is_an_error() {
    for pause_ms in [0, 1, 3, 10] {
        let mut child = child();
        let budget = ReadBudget { bytes_per_second: Some(500_000_000), cpu_percent: Some(25) };
        let memory = ProcessMemory::open(child.id()).unwrap().with_budget(budget);
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

/// Runs in its own PID namespace, in which it can choose the ids.
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

/// A process that waits until it is killed. Its first line says that it is ready.
fn waiting(command: &mut Command) -> Child {
    let mut child = limited(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let is_ready = |line: Result<String, _>| line.unwrap().contains(READY);
    assert!(lines.any(is_ready), "{command:?} ended");
    child
}

/// A shell that waits, started by a program that changes its rights.
fn waiting_shell(by: &[&str]) -> Child {
    let shell = format!("echo {READY}; read line");
    let mut command = Command::new(by[0]);
    waiting(command.args(&by[1..]).args(["sh", "-c", &shell]))
}

/// Runs this test again in another role; through another program, which finds it by its path.
fn again(by: &[&str], role: &str, value: &str) -> Command {
    let own = std::env::current_exe().unwrap();
    let mut command = match by {
        // For a user who may not read the directory.
        [] => Command::new("/proc/self/exe"),
        [program, args @ ..] => {
            let mut command = Command::new(program);
            command.args(args).arg(own);
            command
        }
    };
    command.args(["--exact", DENIALS, "--nocapture"]).env(role, value).current_dir("/");
    command
}

/// The error of a process that may not read `target`; ends `target`.
fn told(mut probe: Command, target: &mut Child) -> String {
    let probe = limited(probe.stdout(Stdio::piped()).spawn().unwrap());
    let output = probe.wait_with_output().unwrap();
    target.kill().unwrap();
    target.wait().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
    told
}

/// Runs again in two roles: as an app that is not dumpable, and as pmdscope without a right.
#[test]
fn each_denial_names_its_cause_and_its_cure() {
    if std::env::var_os(PROTECTED).is_some() {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
        println!("{READY}");
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    if let Ok(pid) = std::env::var(DENIED) {
        match ProcessMemory::open(pid.parse().unwrap()) {
            Err(XrayError::NotAllowed { denial, .. }) => println!("denied: {denial:?}: {denial}"),
            other => println!("not denied: {other:?}"),
        }
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip(DENIALS, "only root may become another user");
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let expect = |told: String, denial: &str, cure: &str| {
        // The first check of the kernel.
        let (denial, cure) =
            if scope.trim() == "3" { ("YamaForbidsAll", "reboot") } else { (denial, cure) };
        let wanted = format!("denied: {denial}");
        let line = told.lines().find(|line| line.contains(&wanted));
        assert!(line.is_some_and(|line| line.contains(cure)), "no {wanted}, {cure} in {told}");
    };
    let user = |mut command: Command| {
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    let probe = |target: &Child| user(again(&[], DENIED, &target.id().to_string()));

    let mut root = waiting_shell(&["env"]);
    expect(told(probe(&root), &mut root), "OtherUser { uid: 0 }", "as root or with CAP_SYS_PTRACE");

    let mut protected = waiting(&mut user(again(&[], PROTECTED, "1")));
    let denied = told(probe(&protected), &mut protected);
    expect(denied, "NotDumpable", "as root or with CAP_SYS_PTRACE");

    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let more = [&nobody[..], &["--inh-caps=+net_raw", "--ambient-caps=+net_raw"]].concat();
    let mut more = waiting_shell(&more);
    expect(told(probe(&more), &mut more), "MoreCapabilities", "as root or with CAP_SYS_PTRACE");

    let mut root = waiting_shell(&["env"]);
    let pid = root.id().to_string();
    let without = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
    let denied = told(again(&without, DENIED, &pid), &mut root);
    expect(denied, "RootWithoutCapability", "docker run --cap-add SYS_PTRACE");

    // Its own user may read it, unless Yama forbids it.
    let mut own = waiting_shell(&nobody);
    let answer = told(probe(&own), &mut own);
    match scope.trim() {
        "" | "0" => assert!(answer.contains("not denied: Ok"), "{answer}"),
        scope => {
            expect(answer, &format!("YamaNeedsCapability {{ scope: {scope} }}"), "set it to 0");
        }
    }

    let namespace = ["unshare", "--user", "--map-root-user"];
    let mut works = Command::new(namespace[0]);
    let works = works.args(&namespace[1..]).arg("true").stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        return skip(
            DENIALS,
            "unshare may not make a user namespace here: all other causes passed",
        );
    }
    let mut root = waiting_shell(&["env"]);
    let pid = root.id().to_string();
    let denied = told(again(&namespace, DENIED, &pid), &mut root);
    expect(denied, "OtherUserNamespace", "as root of the host");
}

//! With any limit of the address space, commands end in order: with a result, or with an error.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pmdscope_testing::output;

/// Threads that run commands.
const AT_ONCE: usize = 4;

/// Runs a command with so many KiB of address space.
fn limited(kib: u64, directory: &Path, line: &str) -> Output {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {kib}; exec \"$0\" {line}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_pmdscope")]).current_dir(directory);
    command.env("RUNTIME_DIRECTORY", directory).env("PMDSCOPE_CONFIG", "none");
    output(command.stdin(Stdio::null())).unwrap()
}

/// The smallest limit, KiB, with which the kernel and the loader start a program of this size.
fn least(directory: &Path) -> u64 {
    let starts = |kib: u64| {
        let ended = limited(kib, directory, "--version");
        // The shell and the loader have errors of their own.
        ended.status.success() || ended.stderr.starts_with(b"pmdscope: error")
    };
    (0..64).map(|step| step << 12).find(|kib| starts(*kib)).unwrap()
}

fn packets(path: &Path) {
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1, 1_700_000_000, 0, 14, 14];
    let mut file = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    file.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    fs::write(path, file).unwrap();
}

#[test]
fn a_small_address_space_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    packets(&directory.path().join("in.pcap"));
    let least = least(directory.path());
    let lines = [
        "ls",
        "check",
        "top --once",
        "capture -r in.pcap -w out.pcapng",
        "capture -r in.pcap -w out.pcap.zst",
        "netstat -r in.pcap",
        "export --once",
    ];
    // From where it starts at all to where it works, ever further apart.
    let limits = (0..24).map(|step: u64| least + 512 * step * step);
    let cases: Vec<_> = limits.flat_map(|kib| lines.map(|line| (kib, line))).collect();
    let (next, codes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((kib, line)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ended = limited(*kib, directory.path(), line);
                    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
                    let case = format!("{line} with {kib} KiB: {}: {said}", ended.status);
                    assert_eq!(ended.status.signal(), None, "{case}");
                    assert!(matches!(ended.status.code(), Some(0..=2)), "{case}");
                    assert!(!said.contains("panicked"), "{case}");
                    codes.lock().unwrap().push((*line, ended.status.code(), said));
                }
            });
        }
    });
    let codes = codes.into_inner().unwrap();
    // Both ends of the range were reached.
    let refused = |(_, _, said): &&(_, _, String)| said.contains("ulimit -v");
    assert!(codes.iter().any(|code| refused(&code)), "no limit was too small");
    let reads = |(line, code, _): &(&str, _, _)| line.starts_with("netstat") && *code == Some(0);
    assert!(codes.iter().any(reads), "no limit was large enough");
}

//! Runs bpftrace, reads its output, and never leaves it running.
//!
//! The kernel kills it when the thread that started it ends for any reason. Signals from the
//! terminal do not reach it.

// For a callback between fork and exec.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};
use rustix::process::{Pid, kill_process, set_parent_process_death_signal, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::tracefs::{list_only, mount_private, separate_mounts};

/// Longest line that is read, bytes; bpftrace prints a map of 4096 keys in less.
const LINE_BYTES: u64 = 1 << 20;

/// Most bytes of its standard error that are kept.
const ERROR_BYTES: usize = 4096;

/// Nice value of bpftrace: it needs a second of CPU time until it traces, and then next to none.
const NICE: i32 = -5;

/// How long it may take to print its last numbers after an interrupt.
const GRACE: Duration = Duration::from_secs(3);

/// How to call bpftrace.
pub(crate) struct BpftraceCall<'a> {
    pub(crate) program: &'a Path,
    pub(crate) script: &'a str,
    pub(crate) min_event: Duration,
    pub(crate) polled_cpus: &'a BTreeSet<u32>,
    /// Whether tracefs is mounted for it, as nobody else has.
    pub(crate) mounts_tracefs: bool,
    /// The tracepoints of the script, one a line.
    pub(crate) tracepoints: &'a str,
}

/// A running bpftrace. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct BpftraceRun {
    child: Child,
    errors: Arc<Mutex<String>>,
}

impl BpftraceRun {
    /// Starts bpftrace on other CPUs than those that are polled; returns also its standard output,
    /// and `false` when no other CPU is left.
    pub(crate) fn start(call: &BpftraceCall<'_>) -> io::Result<(Self, ChildStdout, bool)> {
        let others = other_cpus(call.polled_cpus);
        let mounts_tracefs = call.mounts_tracefs;
        let tracepoints = call.tracepoints.as_bytes().to_owned();
        let mut command = Command::new(call.program);
        command.args(["-q", "-f", "json", "-e", call.script]);
        command.arg(call.min_event.as_nanos().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let parent = rustix::process::getpid();
        // SAFETY: between fork and exec there are only system calls, which are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                prepare(parent, others.as_ref())?;
                prepare_tracefs(mounts_tracefs, &tracepoints)
            });
        }
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
        let errors = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let errors = Arc::clone(&errors);
            thread::Builder::new()
                .name("bpftrace-errors".to_owned())
                .spawn(move || keep_errors(stderr, &errors))?;
        }
        Ok((Self { child, errors }, stdout, others.is_some()))
    }

    /// Makes it print its last numbers and end; the reader of its output sees the end of file.
    pub(crate) fn interrupt(&mut self) {
        self.send(rustix::process::Signal::INT);
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && !self.has_ended() {
            thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and does not wait until the kernel has detached its probes, which takes a second.
    pub(crate) fn begin_end(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits in a thread of its own for the end of one that was killed.
    pub(crate) fn leave(self) {
        // Without a thread it is dropped here, which waits.
        let _ = thread::Builder::new().name("bpftrace-end".to_owned()).spawn(move || drop(self));
    }

    /// Returns whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the reason why it ended, from its standard error.
    pub(crate) fn errors(&self) -> String {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        reason(&errors)
    }

    /// Sends a signal. As long as it was not waited for, its process id cannot be reused.
    fn send(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended.
            let _ = kill_process(pid, signal);
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for BpftraceRun {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Prepares the child process before it executes bpftrace.
fn prepare(parent: Pid, cpus: Option<&CpuSet>) -> io::Result<()> {
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if rustix::process::getppid() != Some(parent) {
        return Err(io::Error::other("the parent has ended"));
    }
    // A daemon may be started with SIGINT ignored, which is the only signal that ends bpftrace with
    // its last numbers.
    // SAFETY: the action becomes the default, so no handler of Rust can run.
    unsafe { signal(Signal::SIGINT, SigHandler::SigDfl)? };
    if let Some(cpus) = cpus {
        sched_setaffinity(None, cpus)?;
    }
    // Without the right to do so, it takes longer.
    let _ = setpriority_process(None, NICE);
    Ok(())
}

/// Gives the child process a tracefs where there is none, with a list of only these tracepoints.
fn prepare_tracefs(mounts: bool, tracepoints: &[u8]) -> io::Result<()> {
    if mounts {
        mount_private()?;
    } else if separate_mounts().is_err() {
        return Ok(());
    }
    list_only(tracepoints);
    Ok(())
}

/// Returns the CPUs that this process may use, without those that threads poll on; `None` if there
/// are no others.
fn other_cpus(polled: &BTreeSet<u32>) -> Option<CpuSet> {
    let mut cpus = sched_getaffinity(None).ok()?;
    for cpu in polled {
        let cpu = usize::try_from(*cpu).ok()?;
        if cpu < CpuSet::MAX_CPU {
            cpus.unset(cpu);
        }
    }
    (cpus.count() > 0).then_some(cpus)
}

/// Reads lines until the end of file; lines that are too long are passed as `None`.
pub(crate) fn read_lines(source: impl Read, mut take: impl FnMut(Option<&str>)) {
    let mut reader = BufReader::new(source);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let whole = line.ends_with(b"\n") || (line.len() as u64) < LINE_BYTES;
        if !whole {
            skip_line(&mut reader);
            take(None);
        } else if !line.trim_ascii().is_empty() {
            take(Some(&String::from_utf8_lossy(&line)));
        }
    }
}

fn skip_line(reader: &mut impl BufRead) {
    while let Ok(bytes) = reader.fill_buf() {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let skipped = end.map_or(bytes.len(), |end| end + 1);
        let over = end.is_some() || bytes.is_empty();
        reader.consume(skipped);
        if over {
            return;
        }
    }
}

fn keep_errors(stderr: ChildStderr, errors: &Mutex<String>) {
    read_lines(stderr, |line| {
        let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
        let line = line.unwrap_or_default();
        if errors.len() + line.len() <= ERROR_BYTES {
            errors.push_str(line);
        }
    });
}

/// Returns the first error among the lines. The error about `RLIMIT_MEMLOCK` is harmless: kernels
/// since 5.11 do not count BPF memory there.
fn reason(errors: &str) -> String {
    let lines = errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let told = |line: &&str| !line.contains("RLIMIT_MEMLOCK") && !line.contains("WARNING");
    let lines: Vec<&str> = lines.filter(told).collect();
    let error = lines.iter().find(|line| line.contains("ERROR") || line.contains("error"));
    let error = error.or(lines.first());
    error.map_or_else(|| "no message".to_owned(), |line| (*line).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Option<String>> {
        let mut lines = Vec::new();
        read_lines(bytes, |line| lines.push(line.map(str::to_owned)));
        lines
    }

    #[test]
    fn long_lines_are_not_kept() {
        let mut text = b"{}\n\n".to_vec();
        text.extend(vec![b'x'; 3 << 20]);
        text.extend(b"\nlast");
        assert_eq!(lines(&text), [Some("{}\n".to_owned()), None, Some("last".to_owned())]);
    }

    #[test]
    fn the_reason_is_the_first_error() {
        let text = "ERROR: Unknown error -1: couldn't set RLIMIT_MEMLOCK for bpftrace. If your\n\
            stdin:1:1-2: WARNING: x\nstdin:4:1-9: ERROR: tracepoint not found: a:b\n~~~\n";
        assert_eq!(reason(text), "stdin:4:1-9: ERROR: tracepoint not found: a:b");
        assert_eq!(reason("Killed\n"), "Killed");
        assert_eq!(reason(""), "no message");
    }

    #[test]
    fn a_cpu_that_is_polled_is_left_alone() {
        let mine = sched_getaffinity(None).unwrap();
        let all: BTreeSet<u32> = (0..1024_u32).filter(|cpu| mine.is_set(*cpu as usize)).collect();
        assert!(other_cpus(&all).is_none());
        let first = *all.first().unwrap();
        let others = other_cpus(&[first, 1_000_000].into());
        assert!(others.is_none_or(|others| !others.is_set(first as usize) && others.count() > 0));
        assert_eq!(other_cpus(&BTreeSet::new()).unwrap().count(), mine.count());
    }

    /// Starts a script instead of bpftrace.
    fn start(script: &str) -> (BpftraceRun, ChildStdout, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fake");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let (run, out, _) = loop {
            let call = BpftraceCall {
                program: &path,
                script: "",
                min_event: Duration::ZERO,
                polled_cpus: &BTreeSet::new(),
                mounts_tracefs: false,
                tracepoints: "",
            };
            match BpftraceRun::start(&call) {
                // Another test has forked while the file was open for writing.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                started => break started.unwrap(),
            }
        };
        (run, out, dir)
    }

    #[test]
    fn an_interrupt_is_its_end_also_where_it_was_ignored() {
        let (mut run, out, _dir) =
            start("trap 'echo last; exit' INT; echo first; while :; do sleep 0.01; done");
        let mut seen = Vec::new();
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut lines = Vec::new();
                read_lines(out, |line| lines.push(line.unwrap().to_owned()));
                lines
            });
            thread::sleep(Duration::from_millis(300));
            run.interrupt();
            seen = reader.join().unwrap();
        });
        assert_eq!(seen, ["first\n", "last\n"]);
        assert!(run.has_ended());
    }

    #[test]
    fn one_that_is_deaf_is_killed() {
        let (run, out, _dir) = start("trap '' INT TERM; echo $$; exec sleep 1000");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).unwrap();
        drop(run);
        assert!(!Path::new("/proc").join(line.trim()).exists());
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text(texts in proptest::collection::vec("[a-z]{1,9}", 0..20)) {
            let text = texts.iter().map(|text| text.clone() + "\n").collect::<String>();
            let read: Vec<String> =
                lines(text.as_bytes()).into_iter().map(|line| line.unwrap().trim().to_owned()).collect();
            prop_assert_eq!(read, texts);
        }
    }
}

//! Tests of the tracer with a script instead of bpftrace that prints what the test needs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use pmdscope_interrupts::{Tracer, TracerOptions, TracingUnavailable};
use pmdscope_telemetry::LcoreTracer;
use pmdscope_telemetry::sample::{
    Sample, StolenCause, StolenSample, ThreadSample, TracingMethod, TracingSample,
};
use pmdscope_testing::skip;

/// A thread that exists until it is dropped.
struct LiveThread {
    tid: u32,
    _ends: Sender<()>,
}

impl LiveThread {
    fn start() -> Self {
        let (ends, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            let tid = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            tell.send(tid).unwrap();
            let _ = wait.recv();
        });
        Self { tid: told.recv().unwrap(), _ends: ends }
    }
}

/// Creates a program to run instead of bpftrace; the body gets the bpftrace script as `$script`.
fn program(dir: &Path, body: &str) -> TracerOptions {
    let bpftrace = dir.join("bpftrace");
    let text =
        format!("#!/bin/sh\nfor script; do case $script in *@poll*) break;; esac; done\n{body}\n");
    fs::write(&bpftrace, text).unwrap();
    fs::set_permissions(&bpftrace, PermissionsExt::from_mode(0o755)).unwrap();
    // Only the existence of tracefs is checked.
    fs::create_dir_all(dir.join("events/sched/sched_switch")).unwrap();
    TracerOptions { bpftrace, tracefs: Some(dir.to_owned()), ..TracerOptions::default() }
}

/// Returns whether the tracer can trace; otherwise reports the test as skipped.
fn can_trace(options: &TracerOptions) -> bool {
    let test = pmdscope_testing::current_test();
    match options.check() {
        Ok(()) => true,
        // The tracer requires these even if the program that replaces bpftrace does not.
        Err(reason @ (TracingUnavailable::NotRoot | TracingUnavailable::PidNamespace)) => {
            skip(&test, reason);
            false
        }
        Err(reason) => panic!("{reason}"),
    }
}

fn sample(threads: &[(u32, u32)]) -> Sample {
    let thread = |(lcore, tid): &(u32, u32)| ThreadSample {
        lcore: *lcore,
        tid: *tid,
        ..ThreadSample::default()
    };
    let mut sample = Sample { threads: threads.iter().map(thread).collect(), ..Sample::default() };
    sample.app.pid = std::process::id();
    sample
}

/// Completes samples until `wanted` holds.
fn until(
    tracer: &Arc<Tracer>,
    threads: &[(u32, u32)],
    wanted: impl Fn(&TracingSample) -> bool,
) -> TracingSample {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut sample = sample(threads);
        tracer.complete(&mut sample);
        let tracing = sample.tracing.unwrap();
        if wanted(&tracing) {
            return tracing;
        }
        assert!(Instant::now() < deadline, "{tracing:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn hog(tracing: &TracingSample) -> Option<&StolenSample> {
    tracing.stolen.iter().find(|stolen| stolen.cause == StolenCause::Scheduler)
}

/// Prints that each thread in the script lost its CPU 3 times, 9 milliseconds in total, until
/// SIGINT.
const PRINTS: &str = r#"
tids=$(printf '%s' "$script" | sed -n 's/^ *@poll\[\([0-9]*\)\] = 1;$/\1/p')
now=$(awk '{printf "%.0f", $1 * 1000000000}' /proc/uptime)
trap 'exit 0' INT
stats=$(for tid in $tids; do
	printf '%s' ', "'$tid',hog": {"count": 3, "average": 3000000, "total": 9000000}'
done)
hist=$(for tid in $tids; do
	printf '%s' ', "'$tid'": [{"min": 2097152, "max": 4194303, "count": 3}]'
done)
while :; do
	echo '{"type": "stats", "data": {"@run": {'"${stats#, }"'}}}'
	echo '{"type": "hist", "data": {"@run_hist": {'"${hist#, }"'}}}'
	echo '{"type": "value", "data": ["live",'$now']}'
	sleep 0.1
done"#;

#[test]
fn counters_go_on_when_another_app_starts() {
    let dir = tempfile::tempdir().unwrap();
    let options = program(dir.path(), PRINTS);
    if !can_trace(&options) {
        return;
    }
    let tracer = Tracer::start(options);
    let (first, second) = (LiveThread::start(), LiveThread::start());
    let one = [(1, first.tid)];
    let tracing = until(&tracer, &one, |tracing| hog(tracing).is_some());
    assert_eq!((tracing.method, &tracing.lcores[..]), (TracingMethod::Bpf, &[1][..]));
    let stolen = hog(&tracing).unwrap();
    assert_eq!((stolen.thief.as_str(), stolen.count), ("hog", 3));
    assert_eq!(stolen.stolen_ns, Some(9_000_000));
    assert!(tracing.missing.iter().all(|missing| missing.contains("no tracepoint")));
    // With another lcore, bpftrace starts again, and counts from 0.
    let both = [(1, first.tid), (2, second.tid)];
    let tracing = until(&tracer, &both, |tracing| {
        tracing.lcores == [1, 2]
            && !tracing.missing.iter().any(|missing| missing.starts_with("lcores"))
    });
    let of = |lcore| tracing.stolen.iter().find(|stolen| stolen.lcore == lcore).unwrap();
    assert_eq!((of(1).count, of(2).count), (6, 3));
    assert!(tracer.is_settled());
    let histograms = tracer.histograms(std::process::id());
    assert_eq!(histograms[0].buckets[21], 6, "{histograms:?}");
    // A thread that has ended is removed, also if another takes its place.
    drop(first);
    let tracing = until(&tracer, &both[1..], |tracing| tracing.lcores == [2]);
    assert!(tracing.stolen.iter().all(|stolen| stolen.lcore == 2));
}

#[test]
fn a_bpftrace_that_fails_is_a_reason_to_count() {
    let dir = tempfile::tempdir().unwrap();
    let options = program(dir.path(), "echo 'ERROR: tracepoint not found: a:b' >&2; exit 1");
    if !can_trace(&options) {
        return;
    }
    let tracer = Tracer::start(options);
    let thread = LiveThread::start();
    let told = |tracing: &TracingSample| tracing.method == TracingMethod::Proc;
    let tracing = until(&tracer, &[(1, thread.tid)], told);
    let reason = "times and thieves: bpftrace has ended: ERROR: tracepoint not found: a:b";
    assert_eq!((tracing.missing, tracing.lcores), (vec![reason.to_owned()], vec![1]));
    assert!(tracer.is_settled());
}

#[test]
fn without_bpf_the_kernel_still_counts() {
    let tracer = Tracer::start(TracerOptions { bpf: false, ..TracerOptions::default() });
    let thread = LiveThread::start();
    let timer = |tracing: &TracingSample| {
        tracing.stolen.iter().any(|stolen| stolen.cause == StolenCause::Timer)
    };
    let tracing = until(&tracer, &[(1, thread.tid)], timer);
    assert_eq!(tracing.method, TracingMethod::Proc);
    assert!(tracing.since_realtime_ns > 0 && tracing.missing[0].contains("switched off"));
    let timer = tracing.stolen.iter().find(|stolen| stolen.cause == StolenCause::Timer).unwrap();
    assert!(timer.count > 0 && timer.stolen_ns.is_none() && timer.longest_ns.is_none());
}

#[test]
fn what_is_printed_too_fast_is_counted_as_lost_and_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let flood = r#"
echo '{"type": "lost_events", "data": {"events": 12}}'
echo '{"type": "value", "data": ["live",1]}'
trap 'exit 0' INT
exec yes '{"type": "value", "data": ["run",1,2,1,'$PPID',99,"hog"]}'"#;
    let options = program(dir.path(), flood);
    if !can_trace(&options) {
        return;
    }
    let tracer = Tracer::start(options);
    let me = std::process::id();
    until(&tracer, &[(1, me)], |tracing| tracing.lost_events >= 12);
    let deadline = Instant::now() + Duration::from_secs(60);
    while tracer.events_after(0).len() < 16_384 {
        assert!(Instant::now() < deadline, "{} events", tracer.events_after(0).len());
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(200));
    let events = tracer.events_after(0);
    assert_eq!(events.len(), 16_384);
    assert!(events.last().unwrap().sequence > 16_384);
    let last = events.last().unwrap().sequence;
    assert!(tracer.events_after(last).iter().all(|event| event.sequence > last));
}

/// Asked to end, bpftrace would detach its probes one after the other before it prints its last numbers.
#[test]
fn the_last_numbers_are_those_that_are_printed_anyway() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    let counts = format!(
        r#"
trap 'echo >{}' INT
tid=$(printf '%s' "$script" | sed -n 's/^ *@poll\[\([0-9]*\)\] = 1;$/\1/p')
while :; do
	count=$((count + 1))
	echo '{{"type": "stats", "data": {{"@run": {{"'$tid',hog": {{"count": '$count', "average": 1, "total": '$count'}}}}}}}}'
	awk '{{printf "{{\"type\": \"value\", \"data\": [\"live\",%.0f]}}\n", $1 * 1000000000}}' /proc/uptime
	sleep 0.05
done"#,
        asked.display()
    );
    let options = program(dir.path(), &counts);
    if !can_trace(&options) {
        return;
    }
    let tracer = Tracer::start(options);
    let thread = LiveThread::start();
    let threads = [(1, thread.tid)];
    let before = hog(&until(&tracer, &threads, |tracing| hog(tracing).is_some())).unwrap().count;
    tracer.stop();
    let after = hog(&until(&tracer, &threads, |_| true)).unwrap().count;
    assert!(after > before, "{after} events at the end, {before} before");
    assert!(!asked.exists());
    thread::sleep(Duration::from_millis(200));
    assert_eq!(hog(&until(&tracer, &threads, |_| true)).unwrap().count, after);
}

#[test]
fn bpftrace_ends_with_the_tracer() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let body = format!("echo $$ > {}; trap '' INT TERM; exec sleep 1000", pid_file.display());
    let options = program(dir.path(), &body);
    if !can_trace(&options) {
        return;
    }
    let tracer = Tracer::start(options);
    let thread = LiveThread::start();
    until(&tracer, &[(1, thread.tid)], |_| {
        fs::read_to_string(&pid_file).is_ok_and(|pid| pid.ends_with('\n'))
    });
    let pid = fs::read_to_string(&pid_file).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists());
    drop(tracer);
    let deadline = Instant::now() + Duration::from_secs(60);
    while process.exists() {
        assert!(Instant::now() < deadline, "bpftrace runs on");
        thread::sleep(Duration::from_millis(20));
    }
}

//! What the tests share: prerequisites, the `pmdscope` command, and JSON look-ups.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::disk::Disk;
pub(crate) use pmdscope_integration::process::LIMIT;
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::{openvswitch, oracle, programs, prometheus, telemetry};
use pmdscope_testing::{programs_are_required, schema, skip, skip_without};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

/// What a test needs beyond the programs of this repository.
#[derive(Clone, Copy)]
pub(crate) enum Needs {
    /// Two CPUs and root.
    Apps,
    /// Also tshark, capinfos, editcap, mergecap and tcpdump.
    Wireshark,
    /// Also the right to mount a small disk.
    Disk,
    /// Also DPDK's `dpdk-telemetry.py`.
    DpdkTools,
    /// Also `dpdk-testpmd`.
    Testpmd,
    /// Also Prometheus and `dpdk-testpmd`.
    Prometheus,
    /// Also `dpdk-testpmd` and hugepages, so that others can attach to it, `pmdscope-pdump`, and
    /// Wireshark's programs.
    Pdump,
    /// The same, and Open vSwitch.
    OpenVswitch,
}

/// Why a test cannot run here.
pub(crate) enum Missing {
    /// A program that `make setup` installs.
    Program(String),
    /// Hardware, or what the kernel allows.
    Machine(String),
}

impl Needs {
    /// Why a test with this need cannot run here.
    pub(crate) fn missing(self) -> Option<Missing> {
        let programs: &[&str] = match self {
            Self::Apps => &[],
            Self::Wireshark | Self::Disk => {
                &["tshark", "capinfos", "editcap", "mergecap", "tcpdump"]
            }
            Self::DpdkTools => &["dpdk-telemetry.py"],
            Self::Testpmd | Self::Prometheus => &["dpdk-testpmd"],
            Self::Pdump | Self::OpenVswitch => &["dpdk-testpmd", "dpdk-dumpcap", "tshark", "nm"],
        };
        self.missing_of_the_machine()
            .map(|reason| Missing::Machine(reason.to_owned()))
            .or_else(|| missing_program(programs))
            .or_else(|| self.missing_tool().map(|tool| Missing::Program(tool.to_owned())))
    }

    fn missing_of_the_machine(self) -> Option<&'static str> {
        if !rustix::process::geteuid().is_root() {
            return Some("needs root for /var/run/dpdk");
        }
        if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
            return Some("needs two CPUs");
        }
        if matches!(self, Self::Disk) && !can_mount() {
            return Some("cannot mount a tmpfs");
        }
        let is_shared = matches!(self, Self::Pdump | Self::OpenVswitch);
        (is_shared && Memory::available() != Memory::Huge)
            .then_some("needs hugepages to share with others")
    }

    /// One that `make setup` unpacks.
    fn missing_tool(self) -> Option<&'static str> {
        match self {
            Self::Prometheus if prometheus::binary().is_none() => Some("prometheus"),
            Self::OpenVswitch if openvswitch::unpacked().is_none() => Some("Open vSwitch"),
            _ => None,
        }
    }
}

/// The first of these that is not installed.
pub(crate) fn missing_program(programs: &[&str]) -> Option<Missing> {
    let missing = programs.iter().find(|program| !oracle::installed(program));
    missing.map(|program| Missing::Program((*program).to_owned()))
}

/// For tests of IPv6.
pub(crate) fn missing_ipv6() -> Option<Missing> {
    let missing = !Path::new("/proc/sys/net/ipv6").exists();
    missing.then(|| Missing::Machine("the kernel has no IPv6".to_owned()))
}

/// Apps that crash from now on leave no core files.
pub(crate) fn no_core_files() -> Result<()> {
    let maximum = getrlimit(Resource::Core).maximum;
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum })?)
}

fn can_mount() -> bool {
    tempfile::tempdir().is_ok_and(|dir| Disk::mount(&dir.path().join("disk"), "1m").is_ok())
}

/// A test that is reported as ignored where its needs are not met.
pub(crate) fn trial(name: &str, needs: Needs, test: fn(&Scratch) -> Result<()>) -> Trial {
    trial_unless(name, needs.missing(), test)
}

/// A test that is reported as ignored where something is missing; it fails instead where that is a
/// program and programs are required.
pub(crate) fn trial_unless(
    name: &str,
    missing: Option<Missing>,
    test: fn(&Scratch) -> Result<()>,
) -> Trial {
    trial_of(name, missing, test)
}

/// As [`trial_unless`], for a test that is one of several of its kind.
pub(crate) fn trial_of(
    name: &str,
    missing: Option<Missing>,
    test: impl FnOnce(&Scratch) -> Result<()> + Send + 'static,
) -> Trial {
    match missing {
        None => {
            let named = name.to_owned();
            Trial::test(name, move || {
                let begun = Instant::now();
                let scratch = Scratch::new()?;
                let result = test(&scratch).map_err(|error| format!("{error:#}").into());
                note_duration(&named, begun.elapsed());
                result
            })
        }
        Some(Missing::Program(program)) if programs_are_required() => {
            Trial::test(name, move || {
                Err(format!("{program} is not installed: `make setup` installs it").into())
            })
        }
        Some(missing) => {
            match missing {
                Missing::Program(program) => skip_without(name, program),
                Missing::Machine(reason) => skip(name, reason),
            }
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    }
}

/// Appends a line with seconds and name to the file that `PMDSCOPE_DURATIONS` names, if any.
pub(crate) fn note_duration(name: &str, duration: Duration) {
    let Some(path) = std::env::var_os("PMDSCOPE_DURATIONS") else { return };
    let line = format!("{:.1} {name}\n", duration.as_secs_f64());
    let file = File::options().append(true).create(true).open(path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("cannot note how long {name} took: {error}");
    }
}

/// Runs `pmdscope` and returns its standard output; the exit code must be one of `accepted`.
pub(crate) fn pmdscope(scratch: &Scratch, args: &[&str], accepted: &[i32]) -> Result<String> {
    let mut command = Command::new(programs::pmdscope()?);
    let (code, out, err) = run(command.args(args), scratch.dir(), LIMIT)?;
    ensure!(accepted.contains(&code), "pmdscope {} ended with {code}:\n{out}{err}", args.join(" "));
    Ok(out)
}

/// As [`pmdscope`], for a single JSON document, which must be as `docs/schema` says.
pub(crate) fn pmdscope_json(scratch: &Scratch, args: &[&str], accepted: &[i32]) -> Result<Value> {
    document(args, &pmdscope(scratch, args, accepted)?)
}

/// The only JSON document that `pmdscope` printed for a command line, if it is as `docs/schema` says.
pub(crate) fn document(args: &[&str], printed: &str) -> Result<Value> {
    let mut documents = documents(args, printed)?;
    ensure!(documents.len() == 1, "pmdscope {} printed {printed:?}", args.join(" "));
    documents.pop().context("no document")
}

/// The same for several, one a line.
pub(crate) fn documents(args: &[&str], printed: &str) -> Result<Vec<Value>> {
    schema::documents(args, printed).map_err(Error::msg)
}

/// Starts a capture into `file` and waits until the app has armed it.
pub(crate) fn start_capture(
    scratch: &Scratch,
    app: &str,
    file: &Path,
    args: &[&str],
) -> Result<Process> {
    wait_until("the app to answer", LIMIT, || Ok(tee_sessions(app).is_ok()))?;
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-i", &format!("{app}:0"), "-w"]).arg(file).args(args);
    let name = file.file_name().context("capture file without a name")?.to_string_lossy();
    let mut process = Process::spawn(&name, &mut command, scratch.dir())?;
    let pid = process.pid().into();
    wait_until("the capture to be armed", LIMIT, || {
        if let Some(status) = process.exited()? {
            anyhow::bail!("capture ended with {status}: {}", process.output());
        }
        is_armed_by(app, pid)
    })?;
    Ok(process)
}

/// Whether a process has armed a capture in an app. Their number would not tell: the session of a
/// process that has ended may still be there, and end later.
fn is_armed_by(app: &str, pid: u64) -> Result<bool> {
    let tee = telemetry::ask(app, "/pmdscope/tee")?;
    let (pids, armed) = (column(&tee, "pid")?, column(&tee, "armed")?);
    Ok(pids.into_iter().zip(armed).any(|session| session == (pid, 1)))
}

/// Packets that port 0 of an app has received.
pub(crate) fn packets_received(app: &str) -> Result<u64> {
    telemetry::number(app, "/ethdev/stats,0", "ipackets")
}

/// Waits until port 0 of an app has received more packets than that.
pub(crate) fn await_packets(app: &str, packets: u64) -> Result<()> {
    wait_until("packets to arrive", LIMIT, || Ok(packets_received(app)? > packets))?;
    Ok(())
}

/// Captures that are armed in an app.
pub(crate) fn tee_sessions(app: &str) -> Result<u64> {
    telemetry::number(app, "/pmdscope", "tee_sessions")
}

/// 1 if an app counts its queues now, 0 if not.
pub(crate) fn queues_counted(app: &str) -> Result<u64> {
    telemetry::number(app, "/pmdscope", "queues_counted")
}

/// Whether one capture is armed in an app; none is while it does not answer.
pub(crate) fn is_captured(app: &str) -> bool {
    tee_sessions(app).is_ok_and(|sessions| sessions == 1)
}

/// An unsigned number in a JSON object.
pub(crate) fn number(object: &Value, field: &str) -> Result<u64> {
    object[field].as_u64().with_context(|| format!("no number {field} in {object}"))
}

/// A column of unsigned numbers in a /pmdscope table.
pub(crate) fn column(table: &Value, name: &str) -> Result<Vec<u64>> {
    let values = table[name].as_array().with_context(|| format!("no column {name} in {table}"))?;
    values.iter().map(|value| value.as_u64().context("not a number")).collect()
}

/// A column of strings in a /pmdscope table.
pub(crate) fn text_column<'a>(table: &'a Value, name: &str) -> Result<Vec<&'a str>> {
    let values = table[name].as_array().with_context(|| format!("no column {name} in {table}"))?;
    values.iter().map(|value| value.as_str().context("not a string")).collect()
}

/// The number at the start of a line of a capture's statistics.
pub(crate) fn told(report: &str, what: &str) -> Result<u64> {
    // Messages of a running capture begin with the name of the program.
    let mut lines = report.lines().filter(|line| line.contains(what));
    let number = lines.find_map(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no line of {what:?} in {report}"))
}

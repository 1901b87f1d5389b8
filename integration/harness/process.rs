//! One child process that never outlives its owner.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pmdscope_testing::all_stopped;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

const POLL: Duration = Duration::from_millis(10);
/// Time until a dropped process is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait for what takes seconds on an idle machine. A test that waits longer has failed.
pub const LIMIT: Duration = Duration::from_secs(180);

/// A running child with its output in a log file. Dropping it ends it, gently first.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; standard output and error go to `<dir>/<name>.log` unless redirected.
    pub fn spawn(name: &str, command: &mut Command, dir: &Path) -> Result<Self> {
        Self::start(name, command.stdin(Stdio::null()), dir)
    }

    /// The same for one that takes commands; see [`Self::type_line`].
    pub fn spawn_with_console(name: &str, command: &mut Command, dir: &Path) -> Result<Self> {
        Self::start(name, command.stdin(Stdio::piped()), dir)
    }

    fn start(name: &str, command: &mut Command, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let out = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        command.stdout(out.try_clone()?).stderr(out);
        let child = end_with_parent(command)
            .spawn()
            .with_context(|| format!("start {name}: {}", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Types a line into its console.
    pub fn type_line(&mut self, line: &str) -> Result<()> {
        let stdin =
            self.child.stdin.as_mut().with_context(|| format!("{} has no console", self.name))?;
        writeln!(stdin, "{line}").with_context(|| format!("type {line:?} into {}", self.name))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything the process has printed so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The exit status, if the process has ended.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends a signal. After SIGSTOP it waits until all threads have stopped: for that, each needs a CPU.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("pid")?;
        kill_process(pid, signal).with_context(|| format!("signal {}", self.name))?;
        if signal == Signal::STOP {
            let what = format!("all threads of {} to stop", self.name);
            wait_until(&what, LIMIT, || Ok(all_stopped(self.pid())?))?;
        }
        Ok(())
    }

    /// Waits for the end; an error when it takes longer than `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("{} did not end within {limit:?}; it printed:\n{}", self.name, self.output());
            }
            sleep(POLL);
        }
    }

    /// Waits for the end and demands exit status 0.
    pub fn finish(&mut self, limit: Duration) -> Result<String> {
        let status = self.wait(limit)?;
        let output = self.output();
        if !status.success() {
            bail!("{} ended with {}; it printed:\n{output}", self.name, describe(status));
        }
        Ok(output)
    }

    /// Interrupts it as ^C does and demands a clean end.
    pub fn interrupt(&mut self) -> Result<String> {
        self.signal(Signal::INT)?;
        self.finish(LIMIT)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // A stopped process takes no SIGTERM before it continues.
        let _ = self.signal(Signal::TERM);
        let _ = self.signal(Signal::CONT);
        if self.wait(EXIT_TIMEOUT).is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs a command to its end, killing it at `limit`; returns exit code and standard output.
pub fn run(command: &mut Command, dir: &Path, limit: Duration) -> Result<(i32, String, String)> {
    let out = tempfile::NamedTempFile::new_in(dir)?;
    let err = tempfile::NamedTempFile::new_in(dir)?;
    command.stdin(Stdio::null()).stdout(out.reopen()?).stderr(err.reopen()?);
    let name = command.get_program().display().to_string();
    let child = end_with_parent(command).spawn().with_context(|| format!("start {name}"))?;
    let mut process = Process { name, child, log: err.path().to_owned() };
    let status = process.wait(limit)?;
    let text = fs::read_to_string(out.path())?;
    Ok((status.code().unwrap_or(-1), text, process.output()))
}

/// Runs a command to its end; returns what it printed.
///
/// # Errors
/// When it cannot be started, fails, or does not end in time.
pub fn run_to_success(command: &mut Command) -> Result<String> {
    let out = pmdscope_testing::output(command.stdin(Stdio::null()));
    let out = out.with_context(|| format!("start {command:?}"))?;
    let errors = String::from_utf8_lossy(&out.stderr);
    ensure!(
        out.status.success(),
        "{command:?} ended with {}: {}",
        describe(out.status),
        errors.trim()
    );
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Exit code or signal, for people.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}

/// Polls `ready` until it is true; an error names what was waited for.
pub fn wait_until(
    what: &str,
    limit: Duration,
    mut ready: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let start = Instant::now();
    while !ready()? {
        if start.elapsed() > limit {
            bail!("waited {limit:?} in vain for {what}");
        }
        sleep(POLL);
    }
    Ok(start.elapsed())
}

/// Makes the kernel end the child when its owner dies, even by SIGKILL.
#[allow(unsafe_code)]
fn end_with_parent(command: &mut Command) -> &mut Command {
    // SAFETY: the closure runs between fork and exec and makes one async-signal-safe prctl call.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
    command
}

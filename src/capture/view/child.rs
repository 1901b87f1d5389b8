//! A child process that decodes packets to text.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::Context;
use pmdscope_packets::SinkError;

use super::lines::{append, bring_out};
use crate::output::say;

/// Bytes of complaints to remember.
const COMPLAINTS: usize = 4096;
/// Longest line; a longer one is cut in pieces.
const LINE: usize = 1 << 20;
/// A home that is not there, so that no settings are looked for.
const NO_HOME: &str = "/usr/nonexistent";

/// Where a program is; root's directories count for everybody.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places =
        std::env::split_paths(&path).chain(["/usr/bin", "/usr/sbin", "/sbin"].map(Into::into));
    places.map(|place| place.join(program)).find(|file| file.is_absolute() && file.is_file())
}

/// The program behind `pmdscope sandbox`: without a network if `offline`. `tell` reports what the
/// system cannot take away from it.
pub(super) fn sandboxed(program: &Path, offline: bool, tell: bool) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("sandbox");
    let switches = [("--offline", offline), ("--tell", tell)];
    command.args(switches.iter().filter(|(_, on)| *on).map(|(name, _)| name));
    command.env("HOME", NO_HOME).arg("--").arg(program);
    command
}

/// Handles the lines of a program.
pub(super) trait LineHandler: Send {
    /// Appends to `out` what is shown of a line, which is without its line break.
    fn line(&mut self, out: &mut String, line: &[u8]);

    /// What is shown of the lines so far was written to the output.
    fn written(&mut self) {}
}

/// A program that was started. Its lines go to standard output.
pub(super) struct Running {
    name: &'static str,
    input: Option<ChildStdin>,
    reader: Option<JoinHandle<Result<(), SinkError>>>,
}

impl Running {
    pub(super) fn start(
        name: &'static str,
        mut command: Command,
        lines: Box<dyn LineHandler>,
        out: Box<dyn Write + Send>,
    ) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // ^C ends the capture, and the end of the capture ends the program.
        command.process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let input = child.stdin.take();
        let (output, complaints) = (child.stdout.take(), child.stderr.take());
        let complaints = std::thread::spawn(move || complaints.map(collect).unwrap_or_default());
        let reader = std::thread::spawn(move || {
            let shown = output.map_or(Ok(()), |output| show(output, lines, out));
            if shown.is_err() {
                // Its output is no longer read; it may have been killed already.
                let _ = child.kill();
            }
            let ended = wait(name, child, complaints);
            shown.and(ended)
        });
        Ok(Self { name, input, reader: Some(reader) })
    }

    /// Gives it bytes; waits while it is busy.
    pub(super) fn feed(&mut self, name: &str, bytes: &[u8]) -> Result<(), SinkError> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let failed = |source| SinkError::Write { name: name.to_owned(), source };
        input.write_all(bytes).map_err(failed)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its last output.
    pub(super) fn end(&mut self) -> Result<(), SinkError> {
        self.input = None;
        let Some(reader) = self.reader.take() else { return Ok(()) };
        reader.join().unwrap_or_else(|_| {
            let source = io::Error::other("the thread that reads its output has panicked");
            Err(SinkError::Write { name: self.name.to_owned(), source })
        })
    }
}

fn show(
    mut output: ChildStdout,
    mut lines: Box<dyn LineHandler>,
    mut out: Box<dyn Write + Send>,
) -> Result<(), SinkError> {
    let (mut chunk, mut rest, mut text) = (vec![0; 64 << 10], Vec::new(), String::new());
    loop {
        let count = match output.read(&mut chunk) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        rest.extend_from_slice(&chunk[..count]);
        let mut done = 0;
        while let Some(end) = rest[done..].iter().position(|byte| *byte == b'\n') {
            lines.line(&mut text, &rest[done..done + end]);
            done += end + 1;
        }
        rest.drain(..done);
        if !rest.is_empty() && (count == 0 || rest.len() >= LINE) {
            lines.line(&mut text, &rest);
            rest.clear();
        }
        bring_out(&mut *out, &mut text)?;
        lines.written();
        if count == 0 {
            return Ok(());
        }
    }
}

/// Reads its complaints. Messages of pmdscope itself in the child are shown immediately.
fn collect(complaints: ChildStderr) -> String {
    let mut kept = String::new();
    let mut lines = BufReader::new(complaints);
    let mut line = Vec::new();
    while let Ok(1..) = lines.by_ref().take(COMPLAINTS as u64).read_until(b'\n', &mut line) {
        let mut text = String::new();
        append(&mut text, line.trim_ascii_end());
        line.clear();
        if text.starts_with("pmdscope: ") && !text.contains(" error: ") {
            say(text);
        } else if !is_usual(&text) && kept.len() < COMPLAINTS {
            kept.push_str(if kept.is_empty() { "" } else { "; " });
            kept.push_str(&text);
        }
    }
    kept
}

/// A message that is not a complaint.
fn is_usual(line: &str) -> bool {
    line.is_empty() || line.starts_with("reading from file -") || line.starts_with("Running as ")
}

fn wait(name: &str, mut child: Child, complaints: JoinHandle<String>) -> Result<(), SinkError> {
    let failed = |source| SinkError::Write { name: name.to_owned(), source };
    let status = child.wait().map_err(failed)?;
    let unread = |_| "the thread that reads what it says has panicked".to_owned();
    let complaints = complaints.join().unwrap_or_else(unread);
    match (status.success(), complaints.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => {
            say(format_args!("pmdscope: {name}: {complaints}"));
            Ok(())
        }
        (false, true) => Err(failed(io::Error::other(format!("exited with {status}")))),
        (false, false) => {
            Err(failed(io::Error::other(format!("exited with {status}: {complaints}"))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lines(fn());

    impl LineHandler for Lines {
        fn line(&mut self, _: &mut String, _: &[u8]) {
            self.0();
        }
    }

    fn end(command: &str, each: fn()) -> Result<(), SinkError> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]);
        Running::start("sh", shell, Box::new(Lines(each)), Box::new(io::sink())).unwrap().end()
    }

    #[test]
    fn a_panic_of_the_reader_is_no_success() {
        let error = end("echo line", || panic!("a bug")).unwrap_err();
        let error = format!("{:#}", anyhow::Error::from(error));
        assert!(error.contains("sh") && error.contains("has panicked"), "{error}");
        end("echo line", || {}).unwrap();
    }
}

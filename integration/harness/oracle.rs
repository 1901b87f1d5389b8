//! Independent tools to compare with: tshark, capinfos and DPDK's own telemetry client.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use pmdscope_testing::{output, spawn};
use serde_json::Value;

use crate::process::{LIMIT, run};

/// Is this program installed?
pub fn installed(program: &str) -> bool {
    let mut find = Command::new("sh");
    output(find.args(["-c", "command -v \"$0\" >/dev/null", program]))
        .is_some_and(|out| out.status.success())
}

/// The asked fields of every packet of a capture file, as tshark reads them.
pub fn tshark_fields(file: &Path, fields: &[&str]) -> Result<Vec<Vec<String>>> {
    // Its output is not written next to the file: that disk may be full.
    let dir = tempfile::tempdir()?;
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-n", "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let (code, out, err) = run(&mut command, dir.path(), LIMIT)?;
    ensure!(code == 0, "tshark -r {} failed ({code}): {err}", file.display());
    Ok(out.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// The report of capinfos.
pub fn capinfos(file: &Path) -> Result<String> {
    let dir = file.parent().context("capture file without a directory")?;
    let (code, out, err) = run(Command::new("capinfos").arg("-M").arg(file), dir, LIMIT)?;
    ensure!(code == 0, "capinfos {} failed ({code}): {err}", file.display());
    Ok(out)
}

/// DPDK's own `dpdk-telemetry.py`, connected to an app. It starts once: that takes longer than a request.
pub struct DpdkTelemetry {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl DpdkTelemetry {
    /// Connects.
    pub fn connect(app: &str) -> Result<Self> {
        let mut client = Command::new("dpdk-telemetry.py");
        client.args(["-f", app]).stdin(Stdio::piped()).stdout(Stdio::piped());
        client.env("PYTHONUNBUFFERED", "1");
        let mut child = spawn(&mut client).context("start dpdk-telemetry.py")?;
        let requests = child.stdin.take().context("stdin of dpdk-telemetry.py")?;
        let replies = child.stdout.take().context("stdout of dpdk-telemetry.py")?;
        Ok(Self { child, requests, replies: BufReader::new(replies) })
    }

    /// Asks for one reply.
    pub fn ask(&mut self, command: &str) -> Result<Value> {
        writeln!(self.requests, "{command}")?;
        let mut line = String::new();
        self.replies.read_line(&mut line).context("dpdk-telemetry.py printed no text")?;
        let mut reply: Value =
            serde_json::from_str(&line).with_context(|| format!("reply to {command}: {line}"))?;
        let name = command.split(',').next().unwrap_or(command);
        let value = reply.get_mut(name).with_context(|| format!("no {name} in: {line}"))?;
        Ok(value.take())
    }
}

impl Drop for DpdkTelemetry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

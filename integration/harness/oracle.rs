//! Independent witnesses: tshark, capinfos and DPDK's own telemetry client.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pmdscope_testing::spawn;
use serde_json::Value;

use crate::process::run;

const LIMIT: Duration = Duration::from_secs(60);

/// Is this program installed?
pub fn installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$0\" >/dev/null", program])
        .status()
        .is_ok_and(|status| status.success())
}

/// The asked fields of every packet of a capture file, as tshark reads them.
pub fn tshark_fields(file: &Path, fields: &[&str]) -> Result<Vec<Vec<String>>> {
    // What it prints does not go beside the file: that disk may be full.
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

/// Asks an app by DPDK's own `dpdk-telemetry.py`.
pub fn dpdk_telemetry(app: &str, command: &str) -> Result<Value> {
    let mut client = Command::new("dpdk-telemetry.py");
    client.args(["-f", app]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = spawn(&mut client).context("start dpdk-telemetry.py")?;
    writeln!(child.stdin.take().context("stdin of dpdk-telemetry.py")?, "{command}")?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout).context("dpdk-telemetry.py printed no text")?;
    let line = text.lines().last().unwrap_or_default();
    let mut reply: Value =
        serde_json::from_str(line).with_context(|| format!("reply to {command}: {text}"))?;
    let name = command.split(',').next().unwrap_or(command);
    let value = reply.get_mut(name).with_context(|| format!("no {name} in: {text}"))?;
    Ok(value.take())
}

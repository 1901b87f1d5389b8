//! The app that is captured from, and the windows it runs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::machine::{Machine, own_group};
use crate::process::{Process, wait_until};
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

const START: Duration = Duration::from_secs(20);
/// Longer than the time between two clock anchors of libpmdscope, which a capture needs two of.
const ANCHORS: Duration = Duration::from_millis(1300);

/// One window of the app.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Packets received.
    pub packets: u64,
    /// Packets per second.
    pub rate: f64,
    /// TSC cycles per packet, from before to after its burst.
    pub cycles: f64,
    /// The app kept up: it missed almost none of the packets that a NIC would have delivered.
    pub kept_up: bool,
}

/// A running app. Dropping it ends it.
pub struct App {
    control: BufReader<UnixStream>,
    process: Process,
    prefix: String,
    linked: bool,
}

impl App {
    /// Starts the app on its devices and waits until it accepts commands.
    pub fn start(
        program: &Path,
        machine: &Machine,
        scratch: &Scratch,
        devices: &[String],
    ) -> Result<Self> {
        let prefix = scratch.prefix("bench");
        let socket = scratch.path(&format!("{prefix}.sock"));
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        let mut command = Command::new("setsid");
        command.arg(program).args(["--lcores", &machine.lcores(), "--no-pci", "-m", "192"]);
        command.args(["--file-prefix", &prefix, "--log-level", "lib.*:error"]);
        for device in devices {
            command.args(["--vdev", device]);
        }
        command.arg("--").arg(&socket);
        let mut process = Process::spawn("app", &mut command, scratch.dir())?;
        let mut accepted = None;
        wait_until("the app", START, || {
            if let Some(status) = process.exited()? {
                bail!("the app ended at once ({status}):\n{}", process.output());
            }
            accepted = listener.accept().ok();
            Ok(accepted.is_some())
        })?;
        let (stream, _) = accepted.context("the app did not connect")?;
        stream.set_nonblocking(false)?;
        let mut app = Self { control: BufReader::new(stream), process, prefix, linked: false };
        app.answer().context("the app's first word")?;
        own_group(app.process.pid())?;
        Ok(app)
    }

    /// DPDK file-prefix.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Starts or stops libpmdscope in the app, and waits until it can serve captures.
    pub fn link(&mut self, on: bool) -> Result<()> {
        if self.linked != on {
            self.ask(&format!("pmdscope {}", if on { "on" } else { "off" }))?;
            self.linked = on;
            sleep(if on { ANCHORS } else { Duration::ZERO });
        }
        Ok(())
    }

    /// Receives from a device for this time; a rate of 0 means full speed. `None` when it never got
    /// a CPU or a packet.
    pub fn run(
        &mut self,
        device: &str,
        rate: u64,
        size: u16,
        length: Duration,
    ) -> Result<Option<Window>> {
        let answer = self.ask(&format!("run {device} {rate} {size} {}", length.as_millis()))?;
        let number =
            |key: &str| answer[key].as_u64().with_context(|| format!("no {key} in {answer}"));
        let (packets, missed, timed) = (number("packets")?, number("missed")?, number("timed")?);
        let wall_ns = number("wall_ns")?;
        let window = Window {
            packets,
            rate: packets as f64 * 1e9 / wall_ns as f64,
            cycles: number("cycles")? as f64 / timed as f64,
            kept_up: missed < packets / 20,
        };
        Ok((timed > 0).then_some(window))
    }

    /// False when the app has died.
    pub fn alive(&mut self) -> Result<bool> {
        Ok(self.process.exited()?.is_none())
    }

    fn ask(&mut self, command: &str) -> Result<Value> {
        writeln!(self.control.get_mut(), "{command}").context("the app has died")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        let read = self.control.read_line(&mut line).context("the app has died")?;
        ensure!(read > 0, "the app has died:\n{}", self.process.output());
        let answer: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        match answer.get("error") {
            None => Ok(answer),
            Some(error) => bail!("the app: {error}"),
        }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // It ends when its socket closes; dropping the process would only terminate it.
        let _ = self.control.get_ref().shutdown(std::net::Shutdown::Both);
        let _ = self.process.wait(Duration::from_secs(5));
    }
}

//! A separate runtime directory with apps: only processes that are configured with it see them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::{Process, wait_until};
use crate::programs;
use crate::scratch::Scratch;

const START: Duration = Duration::from_secs(20);

/// A place for apps, and a configuration of `pmdscope` that searches no other directory.
#[derive(Debug)]
pub struct Site {
    root: PathBuf,
    config: PathBuf,
}

/// What an idle app brings up; see `integration/bench/idle_app.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Idle {
    /// Ports, named `net_null0` and so on.
    pub ports: u16,
    /// Queue pairs of each.
    pub queues: u16,
    /// With libpmdscope.
    pub linked: bool,
}

impl Site {
    /// An empty place below `scratch`; `settings` are further lines of the configuration.
    pub fn new(scratch: &Scratch, name: &str, settings: &str) -> Result<Self> {
        let root = scratch.path(name);
        fs::create_dir(&root)?;
        let config = scratch.path(&format!("{name}.toml"));
        let discovery = format!("[discovery]\nroots = [{:?}]\ncontainers = false", root.display());
        fs::write(&config, format!("{discovery}\n{settings}"))?;
        Ok(Self { root, config })
    }

    /// The configuration, as arguments of `pmdscope`.
    pub fn config(&self) -> [&str; 2] {
        ["--config", self.config.to_str().unwrap_or_default()]
    }

    /// Runtime directory of an app.
    pub fn dir(&self, app: &str) -> PathBuf {
        self.root.join("dpdk").join(app)
    }

    /// Telemetry socket of an app.
    pub fn socket(&self, app: &str) -> PathBuf {
        self.dir(app).join("dpdk_telemetry.v2")
    }

    /// Starts an idle app; [`started`] waits for it.
    pub fn launch(&self, scratch: &Scratch, app: &str, idle: Idle) -> Result<Process> {
        self.spawn(scratch, app, idle, &[])
    }

    /// Starts an idle app to which one more port is added and taken away, ten times a second.
    pub fn changing(&self, scratch: &Scratch, app: &str, idle: Idle) -> Result<Process> {
        let mut process = self.spawn(scratch, app, idle, &["--hotplug"])?;
        started(&mut process)?;
        Ok(process)
    }

    fn spawn(&self, scratch: &Scratch, app: &str, idle: Idle, args: &[&str]) -> Result<Process> {
        let mut command = Command::new(programs::idle_app()?);
        command.env("RUNTIME_DIRECTORY", &self.root);
        command.args(["--lcores", "0@0", "--no-pci", "--no-huge", "-m", "64"]);
        command.args(["--file-prefix", app, "--log-level", "lib.*:error"]);
        for port in 0..idle.ports {
            command.args(["--vdev", &format!("net_null{port}")]);
        }
        command.args(["--", "--queues", &idle.queues.to_string()]);
        if idle.linked {
            command.arg("--pmdscope");
        }
        command.args(args);
        Process::spawn(app, &mut command, scratch.dir())
    }

    /// Starts an idle app, and waits until it can be asked.
    pub fn idle(&self, scratch: &Scratch, app: &str, idle: Idle) -> Result<Process> {
        let mut process = self.launch(scratch, app, idle)?;
        started(&mut process)?;
        Ok(process)
    }

    /// The files that an app or its clients have left in its runtime directory.
    pub fn files(&self, app: &str) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.dir(app))?;
        let mut names: Vec<_> =
            entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }
}

/// Waits until an idle app has everything in place.
pub fn started(process: &mut Process) -> Result<()> {
    wait_until("the idle app", START, || {
        if let Some(status) = process.exited()? {
            bail!("the idle app ended at once ({status}):\n{}", process.output());
        }
        Ok(process.output().contains("ready"))
    })?;
    Ok(())
}

impl Idle {
    /// Packets that a port has received.
    pub fn packets(&self, port: u16) -> f64 {
        32.0 * f64::from(port + 1) * f64::from(self.queues)
    }

    /// MTU of a port.
    pub fn mtu(port: u16) -> f64 {
        f64::from(1500 - port)
    }

    /// Device name of a port.
    pub fn device(port: u16) -> String {
        format!("net_null{port}")
    }
}

/// Open files of a process: each telemetry client of an app is one.
pub fn open_files(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"))?.count())
}

//! The cost that `pmdscope netstat` adds to the packets of an app.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pmdscope_integration::machine::{Machine, own_group};
use pmdscope_integration::process::Process;
use pmdscope_integration::scratch::Scratch;
use rustix::process::Signal;

use crate::report::FlowResults;
use pmdscope_integration::capture_app::App;

const DEVICE: &str = "net_null0";
const SIZE: u16 = 64;
/// Packets per second.
const RATE: u64 = 1_000_000;
const LENGTH: Duration = Duration::from_millis(400);
/// Time until it has its rings and their clocks.
const SETTLE: Duration = Duration::from_millis(1500);
/// Number of windows until one is usable.
const TRIES: u32 = 3;
const STOP: Duration = Duration::from_secs(10);

/// The program attached to the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Load {
    /// None, and no libpmdscope.
    Nothing,
    /// libpmdscope only.
    Library,
    /// `pmdscope netstat` of one packet in this many.
    Sampled(u32),
    /// `pmdscope capture` of whole packets to `/dev/null`.
    Capture,
}

const LOADS: [Load; 4] = [Load::Library, Load::Sampled(64), Load::Sampled(1), Load::Capture];

impl Load {
    pub(crate) fn label(self) -> String {
        match self {
            Self::Nothing => "nothing attached".to_owned(),
            Self::Library => "libpmdscope linked, nothing attached".to_owned(),
            Self::Sampled(1) => "netstat of all packets".to_owned(),
            Self::Sampled(one_in) => format!("netstat of 1 in {one_in}"),
            Self::Capture => "capture to /dev/null".to_owned(),
        }
    }
}

/// Requirements that this machine lacks.
pub(crate) fn missing() -> Option<&'static str> {
    let root = rustix::process::geteuid().is_root();
    (!root).then_some("not root, which attaching to an app may need")
}

/// The app, and the program that observes it.
pub(crate) struct CostBench<'a> {
    machine: &'a Machine,
    scratch: &'a Scratch,
    pmdscope: &'a Path,
    app: App,
}

impl<'a> CostBench<'a> {
    pub(crate) fn new(
        machine: &'a Machine,
        scratch: &'a Scratch,
        program: &Path,
        pmdscope: &'a Path,
    ) -> Result<Self> {
        let device = format!("{DEVICE},size={SIZE},copy=1");
        let app = App::start(program, machine, scratch, &[device])?;
        Ok(Self { machine, scratch, pmdscope, app })
    }

    /// Every load once, each minus a window without a load just before.
    pub(crate) fn round(&mut self, stop: &AtomicBool, results: &mut FlowResults) -> Result<()> {
        for load in LOADS {
            ensure!(!stop.load(Ordering::Relaxed), "stopped");
            self.app.link(false)?;
            let base = self.cycles()?;
            results.costs.entry(Load::Nothing).or_default().push(base);
            self.app.link(true)?;
            let observer = self.attach(load)?;
            let cycles = self.cycles();
            if let Some(mut observer) = observer {
                observer.signal(Signal::INT)?;
                observer.wait(STOP)?;
            }
            results.costs.entry(load).or_default().push(cycles? - base);
        }
        ensure!(self.app.alive()?, "the app has died");
        Ok(())
    }

    /// Cycles in a window in which the app had its CPU, if one of a few is such.
    fn cycles(&mut self) -> Result<f64> {
        let mut best = None;
        for _ in 0..TRIES {
            best = self.app.run(DEVICE, RATE, SIZE, LENGTH)?.or(best);
            if best.is_some_and(|window| window.kept_up) {
                break;
            }
        }
        let window = best.filter(|window| window.packets > 0 && window.rate > 0.0);
        Ok(window.context("the app received nothing")?.cycles)
    }

    fn attach(&self, load: Load) -> Result<Option<Process>> {
        let mut command = Command::new("setsid");
        command.args(["taskset", "-c", &self.machine.others()]).arg(self.pmdscope);
        let prefix = self.app.prefix();
        match load {
            Load::Nothing | Load::Library => return Ok(None),
            Load::Sampled(one_in) => {
                command.args(["netstat", "-a", prefix, "-c", "--json", "-Q", "in"]);
                command.args(["--sample", &one_in.to_string()]);
            }
            Load::Capture => {
                let interface = format!("{prefix}:{DEVICE}");
                command.args(["capture", "-i", &interface, "-Q", "in", "-w", "/dev/null"]);
            }
        }
        let mut process = Process::spawn("observer", &mut command, self.scratch.dir())?;
        sleep(SETTLE);
        let exited = process.exited()?;
        ensure!(exited.is_none(), "{} ended at once:\n{}", load.label(), process.output());
        own_group(process.pid())?;
        Ok(Some(process))
    }
}

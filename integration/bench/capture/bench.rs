//! Runs the rounds, with every variant in each, so that disturbances of the machine affect all of
//! them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pmdscope_integration::machine::process_cpu_ns;
use pmdscope_integration::scratch::Scratch;

use crate::capture::{Captures, Ended, Order, Who, check_count};
use crate::plan::{Case, Device, Group, Ladder, Rate};
use crate::traffic::{FILTER, PATTERN, write_pattern};
use pmdscope_integration::capture_app::{App, Window};

/// No higher rate is tried after a loss above this, twice in a row.
const HOPELESS: f64 = 0.2;

/// Number of windows without a packet before giving up.
const TRIES: u32 = 3;
/// Maximum number of bytes around a packet in a file.
const BLOCK_MOST: u64 = 80;
/// Bytes written to measure a plain write.
const PLAIN_WRITE: u64 = 256 << 20;
/// Maximum number of bytes that the faster of the captures writes in a window.
const WARM_MOST: u64 = 1 << 30;

/// One capture of one window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureRun {
    /// The app's window.
    pub(crate) window: Window,
    /// Cycles per packet, minus those of the window of this round without anything attached.
    pub(crate) added: f64,
    /// Packets that passed the filter.
    pub(crate) offered: u64,
    /// Result of the capture.
    pub(crate) ended: Ended,
}

impl CaptureRun {
    /// Share of the offered packets that was not written.
    pub(crate) fn loss(&self) -> f64 {
        1.0 - (self.ended.written as f64 / self.offered as f64).min(1.0)
    }

    /// CPU time of the capturing process per written packet.
    pub(crate) fn ns_per_packet(&self) -> f64 {
        self.ended.cpu_ns as f64 / self.ended.written.max(1) as f64
    }
}

/// Cycles per packet without a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    /// Nothing attached, and no libpmdscope.
    pub(crate) base: f64,
    /// The same once more, minus the base: the noise.
    pub(crate) again: f64,
    /// libpmdscope linked and running, minus the base.
    pub(crate) disarmed: f64,
}

/// All measurements.
#[derive(Debug, Default)]
pub(crate) struct CaptureResults {
    pub(crate) plain: BTreeMap<(Device, Rate), Vec<Plain>>,
    pub(crate) costs: BTreeMap<(Case, Who), Vec<CaptureRun>>,
    pub(crate) ladders: BTreeMap<(Case, Who), Vec<CaptureRun>>,
    /// How often the app died during a capture.
    pub(crate) deaths: BTreeMap<Who, u32>,
    /// Captures during which the app received no packets.
    pub(crate) empty: u32,
    /// CPU time of plain writes to memory, ns per byte: the cost of the kernel's page cache.
    pub(crate) plain_writes: Vec<f64>,
    /// Captures whose file capinfos counted with the same result, by program.
    pub(crate) checked: BTreeMap<Who, u32>,
}

/// The app, and the tools to measure it.
pub(crate) struct CaptureBench<'a> {
    captures: Captures<'a>,
    program: PathBuf,
    devices: Vec<String>,
    app: App,
    /// In tmpfs.
    file: PathBuf,
    length: Duration,
    stop: &'a AtomicBool,
    pub(crate) results: CaptureResults,
}

impl<'a> CaptureBench<'a> {
    /// Starts the app. `dir` is a directory in tmpfs.
    pub(crate) fn new(
        captures: Captures<'a>,
        program: PathBuf,
        dir: &std::path::Path,
        length: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Self> {
        let devices = devices(captures.scratch)?;
        let app = App::start(&program, captures.machine, captures.scratch, &devices)?;
        let file = dir.join("capture.pcapng");
        let results = CaptureResults::default();
        Ok(Self { captures, program, devices, app, file, length, stop, results })
    }

    /// One round of costs. The order of the two changes from round to round.
    pub(crate) fn costs(&mut self, groups: &[Group], round: usize) -> Result<()> {
        for group in groups {
            self.app.link(false)?;
            let base = self.cycles(group)?;
            let again = self.cycles(group)? - base;
            for who in order(round) {
                self.app.link(who == Who::Pmdscope)?;
                if who == Who::Pmdscope {
                    let disarmed = self.cycles(group)? - base;
                    let plain = Plain { base, again, disarmed };
                    self.results.plain.entry((group.device, group.rate)).or_default().push(plain);
                }
                for case in &group.cases {
                    if let Some(sample) = self.sample(who, case, base)? {
                        self.results.costs.entry((*case, who)).or_default().push(sample);
                    }
                }
            }
        }
        Ok(())
    }

    /// Time of the kernel to write as many bytes from one buffer, to memory that was just freed.
    pub(crate) fn plain_write(&mut self) -> Result<()> {
        self.fill(PLAIN_WRITE)?;
        let begin = process_cpu_ns(std::process::id())?;
        self.fill(PLAIN_WRITE)?;
        let spent = process_cpu_ns(std::process::id())? - begin;
        self.results.plain_writes.push(spent as f64 / PLAIN_WRITE as f64);
        Ok(())
    }

    /// One round of rates, each ladder as far up as it is useful.
    pub(crate) fn climb(&mut self, ladders: &[Ladder], round: usize) -> Result<()> {
        for ladder in ladders {
            for who in order(round) {
                self.app.link(who == Who::Pmdscope)?;
                let mut hopeless = 0;
                for &rate in ladder.rates {
                    let case = Case { rate, ..ladder.case };
                    let Some(sample) = self.sample(who, &case, 0.0)? else { break };
                    let bad = sample.loss() > HOPELESS || !sample.window.kept_up;
                    hopeless = if bad { hopeless + 1 } else { 0 };
                    self.results.ladders.entry((case, who)).or_default().push(sample);
                    if hopeless == 2 {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn cycles(&mut self, group: &Group) -> Result<f64> {
        let (device, size) = (group.device.name(), group.device.size());
        for _ in 0..TRIES {
            if let Some(window) = self.app.run(device, group.rate, size, self.length)? {
                return Ok(window.cycles);
            }
        }
        bail!("the app receives nothing from {device}")
    }

    /// One capture; `None` if the app ended during it, or received no packets.
    fn sample(&mut self, who: Who, case: &Case, base: f64) -> Result<Option<CaptureRun>> {
        ensure!(!self.stop.load(Ordering::Relaxed), "stopped");
        let sample = self.capture(who, case, base);
        let _ = fs::remove_file(&self.file);
        if sample.is_ok() || self.app.alive()? {
            return sample.with_context(|| format!("{}: {}", who.name(), case.label()));
        }
        *self.results.deaths.entry(who).or_default() += 1;
        let Captures { machine, scratch, .. } = self.captures;
        self.app = App::start(&self.program, machine, scratch, &self.devices)?;
        self.app.link(who == Who::Pmdscope)?;
        Ok(None)
    }

    fn capture(&mut self, who: Who, case: &Case, base: f64) -> Result<Option<CaptureRun>> {
        let device = case.device;
        let order = Order {
            who,
            prefix: self.app.prefix(),
            device: device.name(),
            snaplen: case.snaplen,
            filter: device.filtered().then_some(FILTER),
            file: case.file.then_some(&*self.file),
        };
        if case.file {
            self.warm(case)?;
        }
        let capture = self.captures.start(&order)?;
        let window = self.app.run(device.name(), case.rate, device.size(), self.length)?;
        let Some(window) = window else {
            self.results.empty += 1;
            return Ok(None);
        };
        let offered = if device.filtered() { window.packets / PATTERN } else { window.packets };
        let ended = capture.stop(offered, case.file.then_some(&*self.file))?;
        let checked = self.results.checked.contains_key(&who);
        if case.file && !checked && check_count(&self.file, ended.written)? {
            *self.results.checked.entry(who).or_default() += 1;
        }
        Ok(Some(CaptureRun { window, added: window.cycles - base, offered, ended }))
    }

    /// Makes the host of a virtual machine provide the memory that the file is about to take.
    /// Memory that was returned to the host takes five times as long to write to, and it is random
    /// which capture gets it.
    fn warm(&self, case: &Case) -> Result<()> {
        let kept = u64::from(case.snaplen.unwrap_or(u32::MAX)).min(case.device.size().into());
        let packets = match case.rate {
            0 => u64::MAX,
            rate => rate * u64::from(self.length.subsec_millis()) / 1000,
        };
        let bytes = packets.saturating_mul(kept + BLOCK_MOST).min(WARM_MOST);
        self.fill(bytes)
    }

    fn fill(&self, bytes: u64) -> Result<()> {
        let chunk = vec![0x5a; 1 << 20];
        let mut file = File::create(&self.file)?;
        for _ in 0..bytes.div_ceil(chunk.len() as u64) {
            file.write_all(&chunk).context("fill the memory of the file")?;
        }
        Ok(fs::remove_file(&self.file)?)
    }
}

fn order(round: usize) -> [Who; 2] {
    if round.is_multiple_of(2) {
        [Who::Dumpcap, Who::Pmdscope]
    } else {
        [Who::Pmdscope, Who::Dumpcap]
    }
}

fn devices(scratch: &Scratch) -> Result<Vec<String>> {
    let mut devices = Vec::new();
    for device in Device::ALL {
        let (name, size) = (device.name(), device.size());
        match device {
            Device::Null(_) => devices.push(format!("{name},size={size},copy=1")),
            Device::Pattern(_) => {
                let file = scratch.path(&format!("pattern-{size}.pcap"));
                write_pattern(&file, size)?;
                devices.push(format!("{name},rx_pcap={},infinite_rx=1", file.display()));
            }
            Device::Memif(1500) => {
                let socket = scratch.path("memif.sock");
                for role in ["server", "client"] {
                    let number = u8::from(role == "client");
                    let socket = socket.display();
                    devices.push(format!(
                        "net_memif{number},role={role},socket={socket},socket-abstract=no"
                    ));
                }
            }
            Device::Memif(_) => {}
        }
    }
    Ok(devices)
}

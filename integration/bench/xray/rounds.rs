//! The windows of a round, and the counts of pools.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd::Testpmd;
use pmdscope_telemetry::discover::{DiscoverOptions, discover};
use pmdscope_xray::{ReadBudget, ScanSettings, XrayTarget, counts, scan};
use rustix::time::{ClockId, clock_gettime};

use crate::ceiling::RecordedMemory;
use crate::report::{CaseResults, ScanCost};

/// Minimum duration of a count of packets.
const WINDOW: Duration = Duration::from_secs(1);
/// Number of counts of the pools.
const COUNTS: usize = 200;
/// Number of repetitions of a scan's reads.
const REPEATED_READS: usize = 9;
/// Timeout for the start of `capture --peek`: it reads all mbufs once.
const PEEK_START: Duration = Duration::from_secs(60);
const PACED: ReadBudget = ReadBudget { bytes_per_second: Some(500_000_000), cpu_percent: None };

/// The load in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// No load.
    Quiet,
    /// No load either: the noise.
    QuietAgain,
    /// Scans at 500 MB/s.
    Paced,
    /// Scans at full speed.
    FullSpeed,
    /// `capture --peek`.
    Peek,
}

impl Window {
    pub(crate) const ALL: [Self; 5] =
        [Self::Quiet, Self::QuietAgain, Self::Paced, Self::FullSpeed, Self::Peek];
}

/// One app and the ways to read it.
pub(crate) struct ScanBench<'a> {
    testpmd: &'a Testpmd,
    scratch: &'a Scratch,
    pmdscope: PathBuf,
    paced: XrayTarget,
    full_speed: XrayTarget,
}

impl<'a> ScanBench<'a> {
    pub(crate) fn open(
        testpmd: &'a Testpmd,
        scratch: &'a Scratch,
        pmdscope: PathBuf,
    ) -> Result<Self> {
        let apps = discover(&DiscoverOptions::default());
        let app = apps.iter().find(|app| app.name == testpmd.app()).context("testpmd is gone")?;
        let paced = XrayTarget::open(app, PACED)?;
        let full_speed = XrayTarget::open(app, ReadBudget::UNLIMITED)?;
        Ok(Self { testpmd, scratch, pmdscope, paced, full_speed })
    }

    /// Counts the pools repeatedly.
    pub(crate) fn counts(&self, results: &mut CaseResults) -> Result<()> {
        for _ in 0..COUNTS {
            let (began, cpu) = (Instant::now(), cpu());
            let counts = counts(&self.full_speed)?;
            results.count_ms.push(milliseconds(began.elapsed()));
            results.count_cpu_ms.push(milliseconds(self::cpu().saturating_sub(cpu)));
            ensure!(counts.pools.iter().any(|pool| pool.size > 1000), "no pool was counted");
        }
        Ok(())
    }

    /// Repeats the reads of one scan, without using their data.
    pub(crate) fn ceiling(&self, results: &mut CaseResults) -> Result<()> {
        let (recorded, target) = RecordedMemory::of(&self.full_speed);
        // As many passes as the scan made.
        let passes = scan_once(&target)?.passes;
        for _ in 0..REPEATED_READS {
            results.reads_ms.push(recorded.repeat()? / passes);
        }
        Ok(())
    }

    /// Each kind of window once, in a changing order.
    pub(crate) fn round(&self, round: usize, results: &mut CaseResults) -> Result<()> {
        let mut ns_per_packet = [f64::NAN; Window::ALL.len()];
        for at in 0..Window::ALL.len() {
            let index = (at + round) % Window::ALL.len();
            let peek = (Window::ALL[index] == Window::Peek).then(|| self.peek()).transpose()?;
            let (packets, spent) = self.testpmd.forwarded()?;
            self.window(Window::ALL[index], results)?;
            let (packets_after, spent_after) = self.testpmd.forwarded()?;
            if let Some(mut peek) = peek {
                peek.interrupt()?;
            }
            let (packets, spent) = (packets_after - packets, spent_after - spent);
            ensure!(packets > 0, "testpmd does not forward");
            ns_per_packet[index] = spent as f64 / packets as f64;
        }
        results.ns_per_packet.push(ns_per_packet);
        Ok(())
    }

    /// Starts a capture, and waits until it runs.
    fn peek(&self) -> Result<Process> {
        let mut command = Command::new(&self.pmdscope);
        command.args(["capture", "--peek", "-i", &format!("{}:0", self.testpmd.app()), "-w"]);
        command.arg(self.scratch.path("peek.pcapng"));
        let mut peek = Process::spawn("peek", &mut command, self.scratch.dir())?;
        wait_until("capture --peek to begin", PEEK_START, || {
            let ended = peek.exited()?;
            ensure!(ended.is_none(), "capture --peek ended at once:\n{}", peek.output());
            Ok(peek.output().contains("via peek"))
        })?;
        Ok(peek)
    }

    fn window(&self, window: Window, results: &mut CaseResults) -> Result<()> {
        let target = match window {
            Window::Quiet | Window::QuietAgain | Window::Peek => {
                std::thread::sleep(WINDOW);
                return Ok(());
            }
            Window::Paced => &self.paced,
            Window::FullSpeed => &self.full_speed,
        };
        let began = Instant::now();
        while began.elapsed() < WINDOW {
            let cost = scan_once(target)?;
            if window == Window::FullSpeed {
                results.scans.push(cost);
            }
        }
        Ok(())
    }
}

/// Time and CPU of a scan. Without time between its passes an mbuf that moves during both may look
/// lost, so the findings are not checked here.
fn scan_once(target: &XrayTarget) -> Result<ScanCost> {
    let settings = ScanSettings { interval: Duration::ZERO, ..ScanSettings::default() };
    let (began, cpu) = (Instant::now(), cpu());
    let report = scan(target, &settings, &mut |_| ())?;
    let (spent, cpu) = (began.elapsed(), self::cpu().saturating_sub(cpu));
    let scans = f64::from(report.scans.max(1));
    Ok(ScanCost {
        passes: scans,
        ms: milliseconds(spent) / scans,
        cpu_ms: milliseconds(cpu) / scans,
        bytes: report.scanned_bytes as f64,
    })
}

/// CPU time of this process.
fn cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

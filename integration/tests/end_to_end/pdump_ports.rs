//! Ports that a stock app removes while they are captured, and adds again.

use std::process::Command;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd::{Setup, Testpmd};
use rustix::process::Signal;

use crate::pdump::{await_hooks, capture_few};
use crate::support::{LIMIT, Needs, told, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_capture_goes_on_without_a_removed_port", Needs::Pdump, goes_on),
        trial("other_ports_can_be_captured_after_a_removal", Needs::Pdump, others),
    ]
}

/// The beginning of the message about a removal.
const REMOVED: &str = "port 1 (net_null1) was removed by the app";

/// A stock app with two ports, of which it removes the second.
struct TwoPorts(Testpmd);

impl TwoPorts {
    fn start(scratch: &Scratch) -> Result<Self> {
        let setup = Setup { devices: &["net_null0", "net_null1"], ..Setup::RECEIVING };
        Testpmd::start(scratch, setup).map(Self)
    }

    fn interface(&self, port: &str) -> String {
        format!("{}:{port}", self.0.app())
    }

    /// As on the removal of a VF.
    fn remove(&mut self) -> Result<()> {
        self.0.console("stop", "Done.")?;
        self.0.console("port stop 1", "Done")?;
        self.0.console("port detach 1", "Now total ports is 1")?;
        self.0.console("start", "packet forwarding")?;
        Ok(())
    }

    /// As by an app that closes the port itself.
    fn close(&mut self) -> Result<()> {
        self.0.console("stop", "Done.")?;
        self.0.console("port stop 1", "Done")?;
        self.0.console("port close 1", "Done")?;
        self.0.console("start", "packet forwarding")?;
        self.0.console("device detach net_null1", "Done")?;
        Ok(())
    }

    fn add(&mut self) -> Result<()> {
        self.0.console("port attach net_null1", "Now total ports is 2")?;
        self.0.console("port start 1", "Done")?;
        self.0.console("stop", "Done.")?;
        self.0.console("start", "packet forwarding")?;
        Ok(())
    }

    /// A capture of some packets; the app runs on.
    fn capture(&mut self, scratch: &Scratch, port: &str) -> Result<()> {
        let file = scratch.path("few.pcapng");
        let (code, said) = capture_few(scratch, &self.interface(port), &file)?;
        ensure!(code == 0 && said.contains("100 packets captured"), "port {port}: {code}: {said}");
        ensure!(self.0.process.exited()?.is_none(), "testpmd ended:\n{}", self.0.process.output());
        Ok(())
    }

    /// What captures have left in the app, by the names of the files.
    fn parked(&self) -> Result<usize> {
        let files = self.0.runtime_dir().read_dir()?.flatten();
        let names = files.map(|file| file.file_name());
        Ok(names.filter(|name| name.to_string_lossy().starts_with("pmdscope-pdump")).count())
    }

    /// A capture that runs.
    fn begin(&self, scratch: &Scratch, port: &str) -> Result<Process> {
        let mut command = Command::new(programs::pmdscope()?);
        command.args(["capture", "-i", &self.interface(port), "--sample", "1000", "-w"]);
        command.arg(scratch.path("long.pcapng"));
        let mut process = Process::spawn("capture", &mut command, scratch.dir())?;
        await_hooks(&mut process, &self.0)?;
        Ok(process)
    }
}

fn await_words(capture: &Process, words: &str) -> Result<()> {
    wait_until(words, LIMIT, || Ok(capture.output().contains(words)))?;
    Ok(())
}

/// Waits for more packets than there are.
fn await_more(capture: &Process) -> Result<()> {
    let count = || -> Result<u64> {
        capture.signal(Signal::USR1)?;
        std::thread::sleep(std::time::Duration::from_millis(50));
        let output = capture.output();
        let lines = output.lines().rev().filter_map(|line| line.strip_prefix("pmdscope: "));
        let mut counts = lines.filter_map(|line| line.split_once(" packets captured, "));
        Ok(counts.find_map(|(count, _)| count.parse().ok()).unwrap_or_default())
    };
    let before = count()?;
    wait_until("more packets", LIMIT, || Ok(count()? > before))?;
    Ok(())
}

/// A capture of all ports reports the loss, goes on with the other one, and with the lost one when that
/// is back.
fn goes_on(scratch: &Scratch) -> Result<()> {
    let mut app = TwoPorts::start(scratch)?;
    let mut capture = app.begin(scratch, "any")?;
    await_more(&capture)?;
    app.remove()?;
    await_words(&capture, REMOVED)?;
    await_more(&capture)?;
    app.add()?;
    await_words(&capture, "port 1 (net_null1) is back in the capture")?;
    await_more(&capture)?;
    let report = capture.interrupt()?;
    ensure!(told(&report, "packets captured")? > 0, "{report}");
    ensure!(app.0.hooks()? == 0 && app.parked()? == 0, "something was left: {report}");
    Ok(())
}

/// A capture of the removed port ends with the reason. Others can be captured at once, and again; the port
/// can be when it is back, and be removed again.
fn others(scratch: &Scratch) -> Result<()> {
    let mut app = TwoPorts::start(scratch)?;
    for remove in [TwoPorts::remove, TwoPorts::close, TwoPorts::remove] {
        let mut lost = app.begin(scratch, "1")?;
        remove(&mut app)?;
        let status = lost.wait(LIMIT)?;
        let said = lost.output();
        ensure!(status.code() == Some(1) && said.contains(REMOVED), "{status}: {said}");
        for _ in 0..2 {
            app.capture(scratch, "0")?;
            app.capture(scratch, "any")?;
        }
        ensure!(app.parked()? == 1, "nothing is recorded about the callback in the app");
        app.add()?;
        app.capture(scratch, "1")?;
        ensure!(app.0.hooks()? == 0 && app.parked()? == 0, "something was left");
    }
    Ok(())
}

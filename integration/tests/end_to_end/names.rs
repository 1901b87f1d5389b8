//! A real app whose file-prefix contains control sequences for terminals.

use std::process::Command;

use anyhow::{Result, ensure};
use pmdscope_integration::pair;
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_telemetry::printable::is_printable;

use crate::support::LIMIT;

/// Sets the title, clears the screen, turns text round, hides, and begins a line of its own; the EAL
/// takes it.
const EVIL: &str = "\u{1b}]0;t\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{200b}\u{7f}\r\nFORGED";

pub(crate) fn hostile(scratch: &Scratch) -> Result<()> {
    let (app, reflector) = pair::reflector_named(scratch, EVIL, "net_null0,size=60")?;
    let file = scratch.path("out.pcapng").display().to_string();
    let commands: [&[&str]; 10] = [
        &["ls"],
        &["top", "--once", "-a", &app],
        &["check", "--json", "--for", "1", "-a", &app],
        &["leaks", "-a", &app],
        &["netstat", "--queues", "--for", "1", "-a", &app],
        &["capture", "-D"],
        &["--extcap-interfaces", "--extcap-version=4.0"],
        &["capture", "-a", &app, "-c", "3", "-n", "-v"],
        &["capture", "-a", &app, "-c", "3", "-w", &file, "-v"],
        &["capture", "-a", &app, "-i", "7", "-c", "3"],
    ];
    for arguments in commands {
        let mut command = Command::new(programs::pmdscope()?);
        let (_, out, err) = run(command.args(arguments), scratch.dir(), LIMIT)?;
        judge(&arguments.join(" "), &(out + &err))?;
    }
    let recorders = ["one", "two"].map(|name| record(scratch, &app, name));
    let [one, two] = recorders;
    let (mut one, mut two) = (one?, two?);
    let mut trigger = Command::new(programs::pmdscope()?);
    let (code, _, err) = run(trigger.args(["capture", "trigger"]), scratch.dir(), LIMIT)?;
    ensure!(code == 2, "capture trigger ended with {code}: {err}");
    judge("capture trigger", &err)?;
    drop(reflector);
    for recorder in [&mut one, &mut two] {
        let ended = || Ok(recorder.output().contains("has ended"));
        wait_until("the end of the app to be told", LIMIT, ended)?;
        judge("capture", &recorder.interrupt()?)?;
    }
    Ok(())
}

/// A flight recorder that runs.
fn record(scratch: &Scratch, app: &str, name: &str) -> Result<Process> {
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-a", app, "-v", "--before", "1s", "-w"]).arg(scratch.path(name));
    let recorder = Process::spawn(name, &mut command, scratch.dir())?;
    let armed = || Ok(recorder.output().contains("listening on"));
    wait_until("the recorder to be armed", LIMIT, armed)?;
    Ok(recorder)
}

/// It names the app, and does no more.
fn judge(what: &str, said: &str) -> Result<()> {
    ensure!(said.contains("FORGED"), "{what:?} does not name the app: {said:?}");
    let bad = said.chars().find(|letter| !is_printable(*letter) && !"\n\t".contains(*letter));
    ensure!(bad.is_none(), "{what:?} says {bad:?}: {said:?}");
    let forged = said.lines().find(|line| line.starts_with("FORGED"));
    ensure!(forged.is_none(), "{what:?} says {forged:?}");
    Ok(())
}

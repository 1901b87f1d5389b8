//! The incidents of docs/top.md, each found on the screen of `top` with at most three keys.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Pair, PairOptions, eal};
use pmdscope_integration::process::{Process, wait_until};
use pmdscope_integration::pty::TerminalProcess;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::{programs, telemetry};

use crate::support::{LIMIT, Needs, await_packets, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("five_incidents_are_found_with_three_keys_each", Needs::Apps, incidents)]
}

/// The keys that an operator presses, and what the screen must show.
struct Incident {
    name: &'static str,
    /// After these keys, pressed on the Overview.
    keys: &'static str,
    /// One line has all of these.
    line: &'static [&'static str],
    /// The screen has these too.
    screen: &'static [&'static str],
}

/// One app loses mbufs, stalls and has a hot queue; the finding of the leak is the first.
const OF_THE_APP: [Incident; 4] = [
    Incident {
        name: "hot queue",
        keys: "2",
        line: &["rx", " 0 ", "%", "!"],
        screen: &["[2 Ports]", "Queues"],
    },
    Incident {
        name: "stalled lcore",
        keys: "4\r",
        line: &["own code"],
        screen: &["finding stall", "gap"],
    },
    Incident {
        name: "leaking line",
        keys: "\r",
        line: &["leak", "leak.c:"],
        screen: &["[3 Pools]", "Leak sites"],
    },
    Incident {
        name: "draining pool",
        keys: "3g\r",
        line: &["reflector_pool"],
        screen: &["finding pool_exhausting"],
    },
];

const WITHOUT_PORTS: Incident = Incident {
    name: "app without ports",
    keys: "\r",
    line: &["no_ports"],
    screen: &["has no ports", "Esc closes"],
};

fn incidents(scratch: &Scratch) -> Result<()> {
    let blind = scratch.prefix("blind");
    let mut command = Command::new(programs::idle_app()?);
    eal(&mut command, "1@1", &blind, Memory::Ordinary);
    let _blind = Process::spawn("blind", &mut command, scratch.dir())?;
    let options = PairOptions {
        queues: 2,
        leak: Some("1/8".to_owned()),
        stall: Some("5000/100".to_owned()),
        ..PairOptions::default()
    };
    let pair = Pair::start(scratch, options)?;
    let generator = pair.generate(scratch, &["--rate", "8000", "--hot-queue", "0:4"])?;
    await_packets(pair.app(), 0)?;
    let mut screen = top(pair.app())?;
    for incident in &OF_THE_APP {
        found(&mut screen, incident)?;
    }
    let socket = telemetry::socket(&blind);
    wait_until("the app without ports", LIMIT, || Ok(socket.exists()))?;
    found(&mut top(&blind)?, &WITHOUT_PORTS)?;
    generator.stop()?;
    Ok(())
}

fn top(app: &str) -> Result<TerminalProcess> {
    let mut command = Command::new(programs::pmdscope()?);
    let mut top = TerminalProcess::spawn(command.args(["top", "-a", app, "-i", "0.2"]), 40, 120)?;
    top.await_shown(&[app, "live"], LIMIT)?;
    Ok(top)
}

/// Keys may be pressed before the app has shown what is wrong: then they are pressed again.
fn found(top: &mut TerminalProcess, incident: &Incident) -> Result<()> {
    ensure!(incident.keys.len() <= 3, "{}", incident.name);
    let is_shown = |screen: &str| {
        let has_all = |line: &str| incident.line.iter().all(|word| line.contains(word));
        screen.lines().any(has_all) && incident.screen.iter().all(|text| screen.contains(text))
    };
    let mut tries = 0;
    wait_until(incident.name, LIMIT, || {
        if tries % 100 == 0 {
            // Back to the Overview, where the first finding is selected.
            top.press("\x1b")?;
            top.await_shown(&["? help"], LIMIT)?;
            top.press("1\x1b\x1b")?;
            top.press(incident.keys)?;
        }
        tries += 1;
        Ok(is_shown(&top.screen()))
    })
    .map(|took| eprintln!("{}: {took:.1?}", incident.name))
    .with_context(|| format!("{}:\n{}", incident.name, top.screen()))
}

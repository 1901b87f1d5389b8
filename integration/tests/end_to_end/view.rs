//! Packets shown on standard output while they are captured.

use std::process::Command;

use anyhow::{Result, ensure};
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;

use crate::support::LIMIT;

const PACKETS: usize = 50;

/// A capture shows the wanted number of packets and ends; what tcpdump shows of the file that
/// was written meanwhile is what was shown live.
pub(crate) fn live(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "500", "--count", "1000000"])?;
    let (file, app) = (scratch.path("live.pcapng"), format!("{}:0", pair.app()));
    let count = PACKETS.to_string();
    let common = ["capture", "-i", &app, "-c", &count, "-n", "--quiet"];
    let shown = show(scratch, &common)?;
    let lines = shown.lines().filter(|line| line.contains("198.18.0.1")).count();
    ensure!(lines == PACKETS, "{lines} packets are shown:\n{shown}");
    let mut command = Command::new(programs::pmdscope()?);
    command.args(common).args(["--print", "-tttt", "--nano", "-v", "-w"]).arg(&file);
    let (code, live, err) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(code == 0, "--print ended with {code}: {err}");
    let mut command = Command::new("tcpdump");
    command.args(["-n", "-tttt", "--nano", "-v", "-r"]).arg(&file);
    let (_, later, _) = run(&mut command, scratch.dir(), LIMIT)?;
    ensure!(live == later, "live:\n{live}\nlater:\n{later}");
    generator.stop()?;
    Ok(())
}

/// With several interfaces every packet shows its own.
pub(crate) fn any(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", "500", "--count", "1000000"])?;
    let socket = format!("/var/run/dpdk/{}/pmdscope.sock", pair.generator_app());
    wait_until("the generator's capture socket", LIMIT, || Ok(std::fs::exists(&socket)?))?;
    let apps = [format!("{}:0", pair.app()), format!("{}:0", pair.generator_app())];
    let args = ["capture", "-i", &apps[0], "-i", &apps[1], "-c", "100", "-ntvX", "--quiet"];
    let shown = show(scratch, &args)?;
    let begins = |line: &&str| {
        apps.iter().any(|app| {
            let rest = line.strip_prefix(app.as_str()).unwrap_or_default();
            rest.starts_with(" In  IP (tos") || rest.starts_with(" Out IP (tos")
        })
    };
    let packets = shown.lines().filter(begins).count();
    ensure!(packets == 100, "{packets} packets are shown:\n{shown}");
    let stray = |line: &&str| !begins(line) && !line.starts_with(char::is_whitespace);
    ensure!(shown.lines().find(stray).is_none(), "shown:\n{shown}");
    generator.stop()?;
    Ok(())
}

fn show(scratch: &Scratch, args: &[&str]) -> Result<String> {
    let (code, out, err) =
        run(Command::new(programs::pmdscope()?).args(args), scratch.dir(), LIMIT)?;
    ensure!(code == 0, "pmdscope {} ended with {code}:\n{out}{err}", args.join(" "));
    Ok(out)
}

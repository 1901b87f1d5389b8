//! The demo, and the names of its apps.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::pty::TerminalProcess;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::{programs, telemetry};
use pmdscope_tui::state::PageTab;
use rustix::process::{Pid, Signal, kill_process};

use crate::interrupts::missing_to_trace;
use crate::lcores::missing_to_profile;
use crate::support::{LIMIT, Needs, packets_received, pmdscope, trial};
use crate::top_keys::{ESC, digit, tab};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("the_demo_explains_itself", Needs::Apps, help),
        trial("apps_of_the_demo_have_the_names_of_the_readme", Needs::Apps, names),
        trial("commands_of_the_readme_run_on_the_demo", Needs::Apps, readme),
        trial("keys_of_top_work_on_the_demo", Needs::Apps, keys),
        trial("the_demo_runs_in_the_background_of_a_terminal", Needs::Apps, background),
    ]
}

fn help(scratch: &Scratch) -> Result<()> {
    let evidence = programs::root().join("demo-out");
    let before = fs::metadata(&evidence).and_then(|it| it.modified()).ok();
    let (code, out, err) = demo(scratch, &["--help"])?;
    ensure!(code == 0 && out.starts_with("Usage: pmdscope-demo"), "{code}: {out}{err}");
    let (code, out, err) = demo(scratch, &["--seconds", "3"])?;
    ensure!(code == 2 && err.contains("--help"), "{code}: {out}{err}");
    let after = fs::metadata(&evidence).and_then(|it| it.modified()).ok();
    ensure!(before == after, "demo-out was touched");
    Ok(())
}

fn demo(scratch: &Scratch, args: &[&str]) -> Result<(i32, String, String)> {
    run(Command::new(programs::demo()?).args(args), scratch.dir(), LIMIT)
}

/// A demo without a terminal.
fn start(scratch: &Scratch, name: &str) -> Result<Process> {
    let mut demo = Process::spawn(name, &mut Command::new(programs::demo()?), scratch.dir())?;
    await_start(&mut demo)?;
    Ok(demo)
}

fn await_start(demo: &mut Process) -> Result<()> {
    wait_until("the demo to run", LIMIT, || {
        if let Some(status) = demo.exited()? {
            bail!("it ended with {status}: {}", demo.output());
        }
        Ok(demo.output().contains(" exchange packets"))
    })?;
    Ok(())
}

fn names(scratch: &Scratch) -> Result<()> {
    let mut first = start(scratch, "first")?;
    let told = first.output();
    ensure!(told.contains("demo: generator and reflector exchange packets"), "{told}");
    // The generator may not answer yet.
    let received = || packets_received("generator").unwrap_or(0);
    wait_until("packets to come back", LIMIT, || Ok(received() > 1000))?;

    // As in the README.
    let packets = pmdscope(scratch, &words("capture -i generator:0 -nn -Q in -c 2 udp"), &[0])?;
    ensure!(packets.lines().count() == 2, "{packets}");
    pmdscope(scratch, &words("capture -i reflector:0:0 -nn -c 2 udp"), &[0])?;
    let table = pmdscope(scratch, &words("netstat -a reflector --for 1s"), &[0])?;
    ensure!(table.contains("198.19.0.1:7"), "{table}");
    let found = pmdscope(scratch, &words("top -a generator --once"), &[0])?;
    ensure!(found.contains("generator") && !found.contains("reflector"), "{found}");
    let leaks = pmdscope(scratch, &words("leaks -a reflector"), &[0, 1])?;
    ensure!(leaks.contains("reflector:"), "{leaks}");

    // A second demo leaves the first alone.
    let mut second = start(scratch, "second")?;
    let told = second.output();
    ensure!(told.contains("another app has one of the names generator and reflector"), "{told}");
    pmdscope(scratch, &words("netstat -a reflector -i"), &[0])?;
    let (code, _, err) = pmdscope_run(scratch, "netstat -a refl -i")?;
    // A name is the whole name: the start of one is no app.
    ensure!(code != 0 && err.contains("reflector, reflector-"), "{code}: {err}");
    second.interrupt()?;
    ensure!(telemetry::ask("reflector", "/").is_ok(), "the first demo has ended as well");
    first.interrupt()?;
    ensure!(!Path::new("/var/run/dpdk/reflector").exists(), "a runtime directory is left");
    Ok(())
}

/// All pages, a filter, an order, help and a pause, as a user tries them; then the terminal is as before.
fn keys(scratch: &Scratch) -> Result<()> {
    let mut demo = start(scratch, "demo")?;
    let received = || packets_received("generator").unwrap_or(0);
    wait_until("packets to come back", LIMIT, || Ok(received() > 1000))?;
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["top", "-a", "reflector"]);
    let mut top = TerminalProcess::spawn(&mut command, 50, 160)?;
    top.await_shown(&["1 app,", "live"], LIMIT)?;
    for (page, shown) in PageTab::ALL.into_iter().zip(SHOWN) {
        top.press(&digit(page).to_string())?;
        top.await_shown(&[&[tab(page).as_str()], shown].concat(), LIMIT)?;
    }
    top.press("1/nobody\r")?;
    top.await_shown(&["No row matches the filter."], LIMIT)?;
    top.press(ESC)?;
    top.await_shown(&["live"], LIMIT)?;
    top.press("2s")?;
    top.await_shown(&["▼Port"], LIMIT)?;
    top.press("I")?;
    top.await_shown(&["▲Port"], LIMIT)?;
    top.press("?")?;
    top.await_shown(&["[Keys]"], LIMIT)?;
    top.press("? ")?;
    top.await_shown(&[" ago ", "End: live"], LIMIT)?;
    top.press(" ")?;
    wait_until("the present", LIMIT, || Ok(!top.screen().contains(" ago ")))?;
    top.press("q")?;
    ensure!(top.wait(LIMIT)?.success(), "{}", top.screen());
    top.await_restored(LIMIT)?;
    demo.interrupt()?;
    Ok(())
}

/// What each page shows of the demo.
const SHOWN: [&[&str]; 10] = [
    &["RX pps", "live"],
    &["Queue heat", "Queues"],
    &["reflector_pool", "Ledger"],
    &["Worst gap", "Stalls"],
    &["198.19.0.1"],
    &["No app reports software rings"],
    // The capture of the page of conversations may last for a while.
    &[],
    &["Findings"],
    &["No interface of the kernel has"],
    &["/pmdscope/pools"],
];

/// All commands of the README's code blocks, at the same time. Those about a production app are run on
/// the demo's.
fn readme(scratch: &Scratch) -> Result<()> {
    let mut demo = start(scratch, "demo")?;
    let received = || packets_received("generator").unwrap_or(0);
    wait_until("packets to come back", LIMIT, || Ok(received() > 1000))?;
    let commands = commands_of_the_readme()?;
    ensure!(commands.len() >= 9, "only {commands:?}");
    thread::scope(|scope| {
        let run = |command: &String| {
            let command = command.clone();
            scope.spawn(move || run_on_the_demo(scratch, &command))
        };
        let running: Vec<_> = commands.iter().map(run).collect();
        running.into_iter().try_for_each(|command| {
            command.join().unwrap_or_else(|_| Err(anyhow!("a thread has panicked")))
        })
    })?;
    demo.interrupt()?;
    Ok(())
}

/// Lines that call pmdscope, without prompts and comments.
fn commands_of_the_readme() -> Result<Vec<String>> {
    let text = fs::read_to_string(programs::root().join("README.md"))?;
    let commands = text.lines().filter_map(|line| {
        let command = line.strip_prefix("# ").unwrap_or(line).strip_prefix("pmdscope ")?;
        let command = command.split("  #").next().unwrap_or_default().trim_end();
        Some(command.replace("edge-router", "reflector"))
    });
    Ok(commands.collect())
}

fn run_on_the_demo(scratch: &Scratch, command: &str) -> Result<()> {
    let mut args = words(command);
    let accepted: &[i32] = match args[0] {
        // The port may be in use.
        "export" => {
            args.push("--once");
            &[0]
        }
        "interrupts" if missing_to_trace().is_some() => {
            args.push("--no-bpf");
            &[0]
        }
        "lcores" if missing_to_profile().is_some() => return Ok(()),
        // With a finding, a leak or a mistake of this machine.
        "check" | "leaks" | "doctor" => &[0, 1],
        _ => &[0],
    };
    let out = pmdscope(scratch, &args, accepted)?;
    ensure!(!out.is_empty(), "pmdscope {command} printed nothing");
    Ok(())
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn pmdscope_run(scratch: &Scratch, line: &str) -> Result<(i32, String, String)> {
    run(Command::new(programs::pmdscope()?).args(words(line)), scratch.dir(), LIMIT)
}

/// As `make demo &` at a prompt: a job of its own that must not touch the terminal.
fn background(scratch: &Scratch) -> Result<()> {
    let job = format!("bash -mc '{} & wait'", programs::demo()?.display());
    let mut command = Command::new("script");
    command.args(["-qfec", &job, "/dev/null"]);
    let mut terminal = Process::spawn("terminal", &mut command, scratch.dir())?;
    await_start(&mut terminal)?;
    let told = terminal.output();
    let (_, pid) = told.split_once("kill ").with_context(|| told.clone())?;
    let pid = pid.split(' ').next().unwrap_or_default().parse::<i32>()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let state = stat.rsplit(") ").next().unwrap_or_default();
    ensure!(!state.starts_with('T'), "it is stopped: {stat}");
    let pid = Pid::from_raw(pid).context("pid")?;
    kill_process(pid, Signal::TERM)?;
    terminal.finish(LIMIT)?;
    Ok(())
}

//! ^C at any moment: what has not begun ends at once, and no signal is lost.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use rustix::process::Signal;

use crate::output_files::packet_file;
use crate::support::{LIMIT, Needs, missing_program, tee_sessions, trial, trial_unless};

/// How long the end may take on a busy machine: far longer than what ends at once, and shorter than anything
/// that ignores the signal.
const END: Duration = Duration::from_secs(20);
/// Commands that are interrupted at random moments.
const RANDOM: u64 = 40;

pub(crate) fn trials() -> Vec<Trial> {
    let strace = Needs::Apps.missing().or_else(|| missing_program(&["strace"]));
    vec![
        trial_unless("a_signal_at_any_change_of_handlers_ends_a_command", strace, at_handlers),
        trial("a_signal_at_a_random_moment_ends_a_command", Needs::Apps, at_random),
        trial("one_signal_ends_the_wait_for_a_pipe", Needs::Apps, pipes),
        trial("a_pipe_without_a_reader_holds_no_capture", Needs::Apps, no_session),
    ]
}

/// Commands that run until they are told to end, below a directory.
fn endless(dir: &Path) -> [Vec<String>; 4] {
    let path = |name: &str| dir.join(name).display().to_string();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let with = |line: &str, name: &str| [words(line), vec![path(name)]].concat();
    [
        with("record --always -q -w", "recording"),
        with("capture -q --count -r", "silent"),
        with("netstat -c -r", "silent"),
        words("export --listen 127.0.0.1:0"),
    ]
}

/// A named pipe that nobody opens.
fn make_pipe(path: &Path) -> Result<()> {
    let made = Command::new("mkfifo").arg(path).status().context("mkfifo")?;
    ensure!(made.success(), "mkfifo {} failed", path.display());
    Ok(())
}

fn command(scratch: &Scratch, program: &Path, args: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("RUNTIME_DIRECTORY", scratch.path("none"));
    command.env("PMDSCOPE_CONFIG", "none");
    command
}

/// strace sends the signal at the Nth call that changes a handler, for all N. An earlier one ends the command
/// as well.
fn at_handlers(scratch: &Scratch) -> Result<()> {
    let program = programs::pmdscope()?;
    make_pipe(&scratch.path("silent"))?;
    for args in &endless(scratch.dir())[..2] {
        let calls = count_calls(scratch, args)?;
        ensure!(calls > 2, "{args:?} has changed {calls} handlers");
        for call in 1..=calls {
            let inject = format!("inject=rt_sigaction:signal=SIGINT:when={call}");
            let mut traced = command(scratch, Path::new("strace"), &[]);
            traced.args(["-qq", "-o", "/dev/null", "-e", "trace=rt_sigaction", "-e", &inject]);
            traced.arg(&program).args(args);
            let mut process = Process::spawn("traced", &mut traced, scratch.dir())?;
            process.wait(END).with_context(|| format!("{args:?} at call {call} of {calls}"))?;
        }
    }
    Ok(())
}

/// How often the main thread of a command changes a handler until it waits.
fn count_calls(scratch: &Scratch, args: &[String]) -> Result<usize> {
    let log = scratch.path("calls");
    let mut traced = Command::new("timeout");
    traced.args([
        "--foreground",
        "-s",
        "INT",
        "0.7",
        "strace",
        "-D",
        "-qq",
        "-e",
        "trace=rt_sigaction",
    ]);
    traced.arg("-o").arg(&log).arg(programs::pmdscope()?).args(args);
    traced.env("RUNTIME_DIRECTORY", scratch.path("none")).env("PMDSCOPE_CONFIG", "none");
    run(&mut traced, scratch.dir(), LIMIT)?;
    let log = fs::read_to_string(&log).context("strace has written no log")?;
    let before = log.lines().take_while(|line| !line.starts_with("--- SIGINT"));
    Ok(before.filter(|line| line.starts_with("rt_sigaction")).count())
}

fn at_random(scratch: &Scratch) -> Result<()> {
    let program = programs::pmdscope()?;
    make_pipe(&scratch.path("silent"))?;
    let commands = endless(scratch.dir());
    let mut running = Vec::new();
    for turn in 0..RANDOM {
        let args = &commands[usize::try_from(turn)? % commands.len()];
        let name = format!("random-{turn}");
        let mut args = args.clone();
        if args[0] == "record" {
            args.pop();
            args.push(scratch.path(&name).display().to_string());
        }
        let process = Process::spawn(&name, &mut command(scratch, &program, &args), scratch.dir())?;
        // As long as some others take to start, and a bit that is different each time.
        std::thread::sleep(Duration::from_micros(turn.wrapping_mul(7919) % 20 * 1000));
        running.push((args, process));
        if running.len() > 5 {
            let (args, mut process) = running.remove(0);
            process.signal(Signal::INT)?;
            process.wait(END).with_context(|| format!("{args:?}"))?;
        }
    }
    for (args, mut process) in running {
        process.signal(Signal::INT)?;
        process.wait(END).with_context(|| format!("{args:?}"))?;
    }
    Ok(())
}

/// Waits until the process sleeps in a call for the pipe, or polls for its other end.
fn awaits_pipe(process: &Process) -> Result<()> {
    let status = format!("/proc/{}/status", process.pid());
    let sleeps = || -> Result<bool> { Ok(fs::read_to_string(&status)?.contains("State:\tS")) };
    wait_until("the command to sleep", LIMIT, || {
        for _ in 0..10 {
            if !sleeps()? {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(true)
    })?;
    Ok(())
}

fn pipes(scratch: &Scratch) -> Result<()> {
    let input = packet_file(scratch)?;
    make_pipe(&scratch.path("silent"))?;
    let silent = scratch.path("silent").display().to_string();
    let program = programs::pmdscope()?;
    let out = scratch.path("out.pcap").display().to_string();
    for args in [["-r", &input, "-w", &silent], ["-r", &silent, "-w", &out]] {
        for signal in [Signal::INT, Signal::TERM] {
            let args: Vec<_> = ["capture"].into_iter().chain(args).map(str::to_owned).collect();
            let mut command = command(scratch, &program, &args);
            let mut process = Process::spawn("piped", &mut command, scratch.dir())?;
            awaits_pipe(&process)?;
            process.signal(signal)?;
            process.wait(END).with_context(|| format!("{args:?} after {signal:?}"))?;
        }
    }
    Ok(())
}

fn no_session(scratch: &Scratch) -> Result<()> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let app = pair.app();
    let silent = scratch.path("silent");
    make_pipe(&silent)?;
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-i", &format!("{app}:0"), "-c", "5", "-w"]).arg(&silent);
    let mut process = Process::spawn("unread", &mut command, scratch.dir())?;
    awaits_pipe(&process)?;
    let sessions = tee_sessions(app)?;
    ensure!(sessions == 0, "{sessions} captures wait for a reader in the app");
    process.signal(Signal::INT)?;
    process.wait(END)?;
    // With a reader, the packets come.
    let _generator = pair.generate(scratch, &["--rate", "1000"])?;
    let mut again = Process::spawn("read", &mut command, scratch.dir())?;
    let read = fs::read(&silent)?;
    again.finish(LIMIT)?;
    ensure!(read.len() > 5 * 16, "{} bytes came through the pipe", read.len());
    Ok(())
}

//! Apps that are not what they seem: of another user who wants to hide or delay those of root, and of
//! root, but stopped. They cost other apps neither their names nor time, and are listed with a reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::eal;
use pmdscope_integration::process::{Process, run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::site::{Idle, Site};
use rustix::process::Signal;

use crate::support::{LIMIT, Needs, missing_program, trial_unless};

pub(crate) fn trials() -> Vec<Trial> {
    let missing = || Needs::Apps.missing().or_else(|| missing_program(&["python3"]));
    vec![
        trial_unless("silent_sockets_of_a_user_delay_nobody", missing(), silent),
        trial_unless("another_user_takes_no_name_away", missing(), thief),
        trial_unless("a_stopped_app_fails_no_other", missing(), stopped),
    ]
}

/// A user who is no one here.
const EVE: &str = "51234";

/// Sockets that never answer: one timeout each, in 32 threads, would take a minute.
const SILENT: &str = "2000";

/// What commands may take longer than without these: a few timeouts, on a busy machine.
const DELAY: Duration = Duration::from_secs(15);

const LINKED: Idle = Idle { ports: 1, queues: 1, linked: true };

/// Apps of root in one place, and another place for those of another user.
struct Host<'a> {
    scratch: &'a Scratch,
    site: Site,
    eve: PathBuf,
    config: String,
}

impl<'a> Host<'a> {
    fn new(scratch: &'a Scratch) -> Result<Self> {
        let (site, eve) = (Site::new(scratch, "root", "")?, scratch.path("eve"));
        std::fs::create_dir(&eve)?;
        let config = scratch.path("both.toml");
        let roots = [scratch.path("root"), eve.clone()];
        let settings = format!("roots = {roots:?}\ncontainers = false\ntimeout = \"3s\"\n");
        std::fs::write(&config, format!("[discovery]\n{settings}"))?;
        let config = config.to_str().context("path")?.to_owned();
        Ok(Self { scratch, site, eve, config })
    }

    /// Starts fake apps; see `fake_apps.py`.
    fn attack(&self, root: &Path, what: &str, which: &str) -> Result<Process> {
        let mut command = Command::new("python3");
        command.arg(programs::root().join("integration/tests/end_to_end/fake_apps.py"));
        command.arg(root).args([EVE, what, which]);
        let mut process = Process::spawn(what, &mut command, self.scratch.dir())?;
        wait_until("the fake apps to listen", LIMIT, || {
            ensure!(process.exited()?.is_none(), "{}", process.output());
            Ok(process.output().contains("ready"))
        })?;
        Ok(process)
    }

    fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(programs::pmdscope()?);
        command.args(args).args(["--config", &self.config]);
        Ok(command)
    }

    /// Exit code of a command, and what it prints, both outputs together.
    fn outcome(&self, args: &[&str]) -> Result<(i32, String)> {
        let (code, out, err) = run(&mut self.command(args)?, self.scratch.dir(), LIMIT)?;
        Ok((code, out + &err))
    }

    /// What a command prints; its exit code must be that.
    fn says(&self, args: &[&str], expected: i32) -> Result<String> {
        let (code, text) = self.outcome(args)?;
        ensure!(code == expected, "{args:?} ended with {code}, not {expected}: {text}");
        Ok(text)
    }

    /// The same for texts that must be in there.
    fn tells(&self, args: &[&str], expected: i32, texts: &[&str]) -> Result<String> {
        let said = self.says(args, expected)?;
        for text in texts {
            ensure!(said.contains(text), "{args:?} does not say {text:?}: {said}");
        }
        Ok(said)
    }

    /// Names and labels of the metrics of an app.
    fn series(&self, app: &str) -> Result<BTreeSet<String>> {
        let text = self.says(&["export", "--once"], 0)?;
        let label = format!("app=\"{app}\"");
        let series = text.lines().filter(|line| line.contains(&label));
        // A thread is known once it was seen to poll.
        let series = series.filter(|line| !line.starts_with("dpdk_lcore_info"));
        let series = series.filter_map(|line| line.rsplit_once(' '));
        Ok(series.map(|(series, _)| series.to_owned()).collect())
    }
}

/// How long something takes.
fn time<T>(what: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let begun = Instant::now();
    let result = what()?;
    Ok((begun.elapsed(), result))
}

fn silent(scratch: &Scratch) -> Result<()> {
    let host = Host::new(scratch)?;
    let _app = host.site.idle(scratch, "edge", LINKED)?;
    let commands: [&[&str]; 3] =
        [&["ls"], &["check", "--for", "1", "-a", "edge"], &["netstat", "-i", "-a", "edge"]];
    let before = commands.map(|args| time(|| host.outcome(args)));
    let _silent = host.attack(&host.eve, "silent", SILENT)?;
    for (args, before) in commands.into_iter().zip(before) {
        let (before, (code, _)) = before?;
        let (now, said) = time(|| host.says(args, code))?;
        ensure!(now < before + DELAY, "{args:?} takes {now:?}, before {before:?}: {said}");
        // Only those who look at all apps hear of the others.
        ensure!(args == ["ls"] || !said.contains("fake0"), "{said}");
    }
    let listed = host.says(&["ls"], 0)?;
    let fakes = listed.lines().filter(|line| line.starts_with(&format!("{EVE}/fake"))).count();
    ensure!((1..=32).contains(&fakes), "{fakes} are listed: {listed}");
    ensure!(listed.contains(&format!(" of user {EVE}")), "{listed}");
    let own = host.says(&["ls", "--no-other-users"], 0)?;
    ensure!(own.contains("edge") && !own.contains("fake0"), "{own}");
    interrupted(&host)
}

/// ^C ends a search.
fn interrupted(host: &Host) -> Result<()> {
    let config = host.scratch.path("slow.toml");
    let slow = std::fs::read_to_string(&host.config)?.replace("\"3s\"", "\"10s\"");
    std::fs::write(&config, slow)?;
    let mut command = Command::new(programs::pmdscope()?);
    command.args(["capture", "-i", "any", "--config"]).arg(&config);
    let mut capture = Process::spawn("capture", &mut command, host.scratch.dir())?;
    // It has found nothing to capture before the timeout, and ignores no signal that comes early.
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    capture.signal(Signal::INT)?;
    capture.wait(LIMIT)?;
    ensure!(begun.elapsed() < Duration::from_secs(6), "^C took {:?}", begun.elapsed());
    Ok(())
}

fn thief(scratch: &Scratch) -> Result<()> {
    let host = Host::new(scratch)?;
    let app = host.site.idle(scratch, "edge", LINKED)?;
    let before = host.series("edge")?;
    ensure!(before.contains("dpdk_up{app=\"edge\"}"), "{before:?}");
    let (code, _) = host.outcome(&["check", "--for", "1", "-a", "edge"])?;
    let _thief = host.attack(&host.eve, "live", "edge")?;
    // An app that has run for longer may have more.
    let mut missing = Vec::new();
    let found = wait_until("the series of the app", DELAY, || {
        missing = before.difference(&host.series("edge")?).cloned().collect();
        Ok(missing.is_empty())
    });
    found.with_context(|| format!("without {missing:?}"))?;
    let theirs = format!("{EVE}/edge");
    ensure!(!host.series(&theirs)?.is_empty(), "the app of the other user is not there");
    host.says(&["check", "--for", "1", "-a", "edge"], code)?;
    host.tells(&["check", "--for", "1", "-a", &theirs], 1, &[&theirs])?;
    // The directory belongs to root, what listens there does not run as root.
    let _impostor = host.attack(&scratch.path("root"), "impostor", "trap")?;
    host.tells(&["ls"], 0, &["may pretend to be an app"])?;
    host.tells(&["check", "--for", "1", "-a", "trap"], 1, &["nothing of its owner listens in"])?;
    drop(app);
    let gone = ["no DPDK app is named \"edge\"", &format!("{theirs} belongs to another user")];
    host.tells(&["check", "--for", "1", "-a", "edge"], 1, &gone)?;
    host.tells(&["check", "--for", "1", "-a", "edg"], 1, &["no DPDK app is named \"edg\""])?;
    // It may be the name of a device as well, which the app of the other user does not tell.
    host.tells(&["capture", "-i", "edge:0"], 1, &[&theirs])?;
    host.tells(&["bundle", "-a", "edge", "--for", "1s"], 1, &gone)?;
    Ok(())
}

fn stopped(scratch: &Scratch) -> Result<()> {
    let host = Host::new(scratch)?;
    let mut command = Command::new(programs::reflector()?);
    command.env("RUNTIME_DIRECTORY", scratch.path("root"));
    eal(&mut command, "1@1", "edge", Memory::Ordinary);
    command.args(["--vdev", "net_null0", "--"]);
    let _edge = Process::spawn("edge", &mut command, scratch.dir())?;
    wait_until("the app to answer", LIMIT, || {
        Ok(host.says(&["ls"], 0).is_ok_and(|listed| listed.contains("live")))
    })?;
    let stopped = host.site.idle(scratch, "gen", LINKED)?;
    stopped.signal(Signal::STOP)?;
    let why = "is stopped by a signal";
    let all: [(&[&str], i32); 9] = [
        (&["ls"], 0),
        (&["check", "--for", "1"], 1),
        (&["doctor"], 1),
        (&["lcores"], 0),
        (&["interrupts", "--no-bpf", "-n", "1"], 0),
        (&["netstat", "-i"], 0),
        (&["netstat", "--for", "1"], 0),
        (&["netstat", "--queues", "--for", "1"], 0),
        (&["capture", "-i", "any", "-c", "1"], 0),
    ];
    for (args, code) in all {
        host.tells(args, code, &["gen", why])?;
    }
    for args in [&["capture", "-i", "gen"][..], &["netstat", "--for", "1", "-a", "gen"]] {
        host.tells(args, 1, &["cannot ask gen", why])?;
    }
    host.says(&["netstat", "--for", "1", "-a", "edge"], 0)?;
    let file = scratch.path("x.tar.zst");
    let bundle = file.to_str().context("path")?;
    let short = ["--packets", "0", "--no-xray", "-q"];
    host.says(&[&["bundle", "--for", "1s", "-o", bundle][..], &short].concat(), 0)?;
    let mut index = Command::new("tar");
    index.args(["--zstd", "-xOf", bundle, "--wildcards", "*/INDEX.txt"]);
    let (_, index, _) = run(&mut index, scratch.dir(), LIMIT)?;
    let silent = index.split("\nNOT ASKED\n").nth(1).unwrap_or_default();
    ensure!(silent.starts_with("gen: ") && silent.contains(why), "{index}");
    host.tells(&["bundle", "-a", "nope", "-o", bundle], 1, &["no DPDK app is named \"nope\""])?;
    Ok(())
}

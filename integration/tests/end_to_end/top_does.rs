//! What the keys of `pmdscope top` do, and how it leaves the terminal, on a terminal of its own.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::tz::TimeZone;
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Generator, Pair, PairOptions};
use pmdscope_integration::process::wait_until;
use pmdscope_integration::programs;
use pmdscope_integration::pty::TerminalProcess;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd;
use pmdscope_render::Theme;
use pmdscope_telemetry::{FleetState, Thresholds};
use pmdscope_testing::output;
use pmdscope_tui::keys::KeyMap;
use pmdscope_tui::run::DisplayOptions;
use pmdscope_tui::state::{ColumnChoices, PageTab};
use pmdscope_tui::task::TaskContext;
use pmdscope_tui::timeline::live::{LiveTimeline, LiveUpdate};
use pmdscope_tui::timeline::time_bar::TimeBar;
use pmdscope_tui::timeline::trends::Trends;
use pmdscope_tui::timeline::{SeekTarget, Timeline};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, Needs, await_packets, tee_sessions, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("keys_of_top_do_what_their_commands_do", Needs::Wireshark, keys),
        trial("lost_packets_are_written_and_shown_by_top", Needs::Wireshark, lost_packets),
        trial("holders_of_mbufs_of_a_stock_app_are_shown_by_top", Needs::Testpmd, holders),
        trial("a_capture_of_top_ends_with_it", Needs::Wireshark, killed),
        trial("top_obeys_the_keys_that_are_configured", Needs::Apps, configured),
        trial("top_gives_the_terminal_back", Needs::Apps, terminal),
        trial("a_panic_gives_the_terminal_back", Needs::Apps, panic),
        trial("an_error_gives_the_terminal_back", Needs::Apps, error),
    ]
}

/// Packets per second that a capture does not lose even on a busy machine.
const RATE: &str = "800";

fn working(scratch: &Scratch) -> Result<(Pair, Generator)> {
    let pair = Pair::start(scratch, PairOptions::default())?;
    let generator = pair.generate(scratch, &["--rate", RATE])?;
    await_packets(pair.app(), 1000)?;
    Ok((pair, generator))
}

/// `top` on a terminal, in the directory of the test.
fn top(scratch: &Scratch, args: &[&str]) -> Result<TerminalProcess> {
    let mut command = Command::new(programs::pmdscope()?);
    command.arg("top").args(args).current_dir(scratch.dir());
    TerminalProcess::spawn(&mut command, 30, 120)
}

/// The only file in the directory of the test with such a name.
fn file(scratch: &Scratch, begin: &str, end: &str) -> Result<Option<PathBuf>> {
    let files = fs::read_dir(scratch.dir())?.collect::<Result<Vec<_>, _>>()?;
    let mut files = files.into_iter().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(begin) && name.ends_with(end)
    });
    Ok(files.next())
}

fn keys(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = working(scratch)?;
    let app = pair.app();
    let mut top = top(scratch, &["-a", app, "-i", "0.5"])?;
    top.await_shown(&[app, "live"], LIMIT)?;
    filters(&mut top)?;
    capture_of_a_queue(scratch, &mut top, app)?;
    capture_on_the_screen(&mut top, app)?;
    snapshot(scratch, &mut top, app)?;
    top.press("a")?;
    top.await_shown(&["stamps armed for 60 s", ", until "], LIMIT)?;
    top.press("3y")?;
    let command = format!("pmdscope leaks -a {app}");
    top.await_shown(&[&command, "OSC 52"], LIMIT)?;
    ensure!(top.clipboard() == base64(&command), "{}", top.clipboard());
    top.press("\x1bq")?;
    ensure!(top.wait(LIMIT)?.success());
    top.await_restored(LIMIT)?;
    generator.stop()?;
    Ok(())
}

/// The app has a receive and a transmit queue, each also in the table of queues side by side, which
/// has no rates.
fn filters(top: &mut TerminalProcess) -> Result<()> {
    let await_rows = |top: &TerminalProcess, expected: [usize; 2]| {
        let rows = |direction: &str| {
            let screen = top.screen();
            let tables = screen.lines().skip_while(|line| !line.contains("[2 Ports]")).skip(2);
            tables.filter(|line| line.split_whitespace().any(|word| word == direction)).count()
        };
        wait_until("rows", LIMIT, || Ok(["rx", "tx"].map(rows) == expected))
            .with_context(|| format!("{expected:?}: {}", top.screen()))
    };
    top.press("2")?;
    await_rows(top, [2, 2])?;
    top.press("/dir:/^RX|^rx$/\r")?;
    await_rows(top, [2, 0])?;
    top.press("/ pps>1\r")?;
    await_rows(top, [1, 0])?;
    // A key right after Esc would be one with Alt.
    top.press("\x1b")?;
    await_rows(top, [2, 2])?;
    top.press("/pps>1G\r")?;
    await_rows(top, [0, 0])?;
    top.press("\x1b")?;
    await_rows(top, [2, 2])?;
    top.press("/pps>1x")?;
    top.await_shown(&["/pps>1x", "no number: '1x'"], LIMIT)?;
    top.press("\x1b")?;
    top.await_shown(&["? help"], LIMIT)?;
    Ok(())
}

/// Page 2, first queue: after the only port, and its queues side by side.
fn capture_of_a_queue(scratch: &Scratch, top: &mut TerminalProcess, app: &str) -> Result<()> {
    top.press("2jjjjc")?;
    top.await_shown(&[&format!("capture -i {app}:0:0 -Q in -c 10000")], LIMIT)?;
    ensure!(tee_sessions(app)? == 0, "captured before it was confirmed");
    top.press("\r")?;
    wait_until("the capture", LIMIT, || Ok(tee_sessions(app)? == 1))?;
    top.await_shown(&["packets captured", "c ends it"], LIMIT)?;
    top.press("c")?;
    top.await_shown(&["done: "], LIMIT)?;
    ensure!(tee_sessions(app)? == 0, "the capture goes on");
    let file = file(scratch, app, ".pcapng")?.context("no capture file")?;
    let mut counted = Command::new(programs::pmdscope()?);
    counted.args(["capture", "--count", "-Q", "in", "-r"]).arg(&file);
    let counted = output(&mut counted).context("no pmdscope")?;
    let counted = String::from_utf8_lossy(&counted.stdout).into_owned();
    ensure!(!counted.starts_with("0 "), "no packets in {}: {counted}", file.display());
    Ok(())
}

fn capture_on_the_screen(top: &mut TerminalProcess, app: &str) -> Result<()> {
    top.press("c\t\r")?;
    top.await_shown(&[" Tasks ", "198.18.0.1"], LIMIT)?;
    top.await_shown(&["done: 500 packets captured"], LIMIT)?;
    ensure!(tee_sessions(app)? == 0, "the capture goes on");
    top.press("\x1b")?;
    Ok(())
}

fn snapshot(scratch: &Scratch, top: &mut TerminalProcess, app: &str) -> Result<()> {
    top.press("w")?;
    top.await_shown(&["done: wrote pmdscope-"], LIMIT)?;
    let json = file(scratch, "pmdscope-", ".json")?.context("no JSON")?;
    let json: Value = serde_json::from_str(&fs::read_to_string(json)?)?;
    ensure!(json["schema"] == 1 && json["apps"][0]["app"] == app, "{json}");
    let text = file(scratch, "pmdscope-", ".txt")?.context("no text")?;
    ensure!(fs::read_to_string(text)?.contains(app));
    Ok(())
}

/// The finding of the leak is the first.
fn lost_packets(scratch: &Scratch) -> Result<()> {
    let options = PairOptions { leak: Some("1/8".to_owned()), ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    let generator = pair.generate(scratch, &["--rate", RATE])?;
    let mut top = top(scratch, &["-a", pair.app(), "-i", "0.5"])?;
    top.await_shown(&["leak.c:"], LIMIT)?;
    top.press("1gw")?;
    top.await_shown(&[" Tasks ", "pmdscope capture -nn -r", "198.18.0.1", "done: "], LIMIT)?;
    let file = file(scratch, pair.app(), ".pcapng")?;
    ensure!(file.is_some(), "no file: {}", top.screen());
    top.press("q")?;
    ensure!(top.wait(LIMIT)?.success(), "{}", top.screen());
    generator.stop()?;
    Ok(())
}

/// The memory of the app is scanned for them, also where top must not change anything.
fn holders(scratch: &Scratch) -> Result<()> {
    let (app, _testpmd) = testpmd::forwarding(scratch)?;
    let mut top = top(scratch, &["-a", &app, "-i", "0.5", "--read-only"])?;
    top.await_shown(&[&app, "live"], LIMIT)?;
    top.press("3gm")?;
    let command = format!("pmdscope leaks --explain mb_pool_0 -a {app}");
    let sum = ["free, in the common part of the pool", "all mbufs of the pool"];
    top.await_shown(&[" Tasks ", &command, sum[0], sum[1], "done: who holds"], LIMIT)?;
    top.press("\x1b")?;
    top.await_shown(&["? help"], LIMIT)?;
    top.press("y")?;
    top.await_shown(&["OSC 52"], LIMIT)?;
    ensure!(top.clipboard() == base64(&command), "{}", top.clipboard());
    top.press("q")?;
    ensure!(top.wait(LIMIT)?.success(), "{}", top.screen());
    Ok(())
}

/// However top ends.
fn killed(scratch: &Scratch) -> Result<()> {
    let (pair, generator) = working(scratch)?;
    let app = pair.app();
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        let mut top = top(scratch, &["-a", app])?;
        top.await_shown(&[app, "live"], LIMIT)?;
        top.press("c\r")?;
        wait_until("the capture", LIMIT, || Ok(tee_sessions(app)? == 1))
            .with_context(|| top.screen())?;
        // Before it listens, it has no file.
        top.await_shown(&["packets captured"], LIMIT)?;
        match signal {
            None => top.press("q")?,
            Some(signal) => top.signal(signal)?,
        }
        top.wait(LIMIT)?;
        wait_until("its end", LIMIT, || Ok(tee_sessions(app)? == 0))?;
        wait_until("the file", LIMIT, || Ok(file(scratch, app, ".pcapng")?.is_some()))
            .with_context(|| format!("ended by {signal:?}: {}", top.screen()))?;
        // The next one may begin in the same second.
        file(scratch, app, ".pcapng")?.map_or(Ok(()), fs::remove_file)?;
    }
    generator.stop()?;
    Ok(())
}

/// Other keys, another first page, and a last screen that stays.
fn configured(scratch: &Scratch) -> Result<()> {
    let (app, file) = (scratch.prefix("nobody"), scratch.path("top.toml"));
    let config = file.to_str().context("no UTF-8")?;
    let args = ["-a", &app, "--config", config];
    let keys = "[top]\npage = 'ports'\n[top.keys]\npage-pools = ['3', 'f6']\nhelp = 'H'\n\
                quit = 'x'\nquit-keep-screen = 'ctrl-x'\n";
    fs::write(&file, keys)?;
    let mut top = top(scratch, &args)?;
    top.await_shown(&["[2 Ports]", "H help  x quit"], LIMIT)?;
    // Only the new keys do something, not the old ones.
    top.press("q?H")?;
    top.await_shown(&["Page Ports"], LIMIT)?;
    top.press("\x1b")?;
    wait_until("the page", LIMIT, || Ok(!top.screen().contains("Page Ports")))?;
    top.press("\x1b[17~")?;
    top.await_shown(&["[3 Pools]"], LIMIT)?;
    top.press("\x18")?;
    ensure!(top.wait(LIMIT)?.success());
    top.await_restored(LIMIT)?;
    top.await_said("[3 Pools]")?;

    fs::write(&file, "[top.keys]\nfilter = 'q'\n")?;
    let mut wrong = self::top(scratch, &args)?;
    ensure!(wrong.wait(LIMIT)?.code() == Some(2), "{}", wrong.screen());
    wrong.await_said("top.toml:2: top.keys.filter cannot be \"q\": it is a key of quit")
}

/// Signals, ^Z and fg, a start in the background, and a terminal that is closed.
fn terminal(scratch: &Scratch) -> Result<()> {
    let app = scratch.prefix("nobody");
    let searching = "  0 apps, 0 ports";
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let mut top = top(scratch, &["-a", &app])?;
        top.await_shown(&[searching], LIMIT)?;
        ensure!(top.is_restored().is_err(), "it did not take the terminal");
        top.signal(signal)?;
        top.wait(LIMIT)?;
        top.await_restored(LIMIT).with_context(|| format!("{signal:?}"))?;
    }
    job_control(scratch, &app, searching)
}

/// A shell stops it, lets it go on, and starts it in the background.
fn job_control(scratch: &Scratch, app: &str, searching: &str) -> Result<()> {
    let pmdscope = programs::pmdscope()?;
    let script = format!(
        "set -m; PS1=; '{0}' top -a {app}; echo stopped=$?; read; fg; echo ended=$?; \
         '{0}' top -a {app} & sleep 0.5; jobs; read; fg; echo over",
        pmdscope.display()
    );
    let mut shell = Command::new("bash");
    shell.args(["--norc", "-c", &script]).current_dir(scratch.dir());
    let mut shell = TerminalProcess::spawn(&mut shell, 30, 120)?;
    shell.await_shown(&[searching], LIMIT)?;
    shell.press("\x1a")?;
    shell.await_shown(&["stopped=148"], LIMIT)?;
    shell.is_restored().map_err(anyhow::Error::msg).context("^Z")?;
    shell.press("\n")?;
    shell.await_shown(&[searching, "? help"], LIMIT)?;
    shell.press("?")?;
    shell.await_shown(&["[Keys]"], LIMIT)?;
    shell.press("q")?;
    shell.await_shown(&["ended=0", "Stopped"], LIMIT)?;
    shell.is_restored().map_err(anyhow::Error::msg).context("background")?;
    shell.press("\n")?;
    shell.await_shown(&[searching, "? help"], LIMIT)?;
    shell.press("q")?;
    shell.await_restored(Duration::from_secs(10))?;
    shell.wait(LIMIT)?;
    ensure!(shell.screen().contains("over"), "{}", shell.screen());
    Ok(())
}

/// Set where this program is to fail while it has the terminal, in which of the ways of [`fail_on_terminal`].
pub(crate) const FAILURE_VARIABLE: &str = "PMDSCOPE_TEST_FAILURE";

/// A display that panics in the thread that draws (`own`) or in another one (`other`), or that cannot
/// write any more once it is held (`write`).
#[allow(clippy::panic)] // On purpose.
pub(crate) fn fail_on_terminal() -> ExitCode {
    let failure = std::env::var(FAILURE_VARIABLE).unwrap_or_default();
    let options = DisplayOptions {
        host: String::new(),
        theme: Theme::default(),
        notice: None,
        interval_ms: 1000,
        mouse: true,
        zone: TimeZone::UTC,
        thresholds: Thresholds::default(),
        page: PageTab::default(),
        filter: String::new(),
        columns: ColumnChoices::default(),
        names: None,
        keys: KeyMap::default(),
        replies: None,
        histograms: Arc::default(),
        tasks: TaskContext::default(),
    };
    let result = pmdscope_tui::run::run(options, |_| {
        match failure.as_str() {
            "own" => panic!("in the drawing thread"),
            "other" => drop(std::thread::spawn(|| panic!("in another thread"))),
            _ => {}
        }
        FullTerminal::default()
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A timeline that, once it is held, keeps the terminal from taking output until it is dropped.
#[derive(Default)]
struct FullTerminal {
    shown: LiveTimeline,
    terminal: Option<OwnedFd>,
}

impl Timeline for FullTerminal {
    type Update = LiveUpdate;

    fn take(&mut self, update: LiveUpdate) {
        self.shown.take(update);
    }

    fn tick(&mut self, monotonic_ns: u64, realtime_ns: u64) {
        self.shown.tick(monotonic_ns, realtime_ns);
    }

    fn fleet(&self) -> &FleetState {
        self.shown.fleet()
    }

    fn time_bar(&self) -> Option<TimeBar> {
        self.shown.time_bar()
    }

    fn trends(&self) -> Trends {
        self.shown.trends()
    }

    fn seek(&mut self, to: SeekTarget) {
        self.shown.seek(to);
    }

    fn hold(&mut self) {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        self.terminal = rustix::io::dup(rustix::stdio::stdout()).ok();
        let _ = full.map(rustix::stdio::dup2_stdout);
    }

    fn hasten(&mut self, faster: bool) -> bool {
        self.shown.hasten(faster)
    }
}

impl Drop for FullTerminal {
    fn drop(&mut self) {
        let _ = self.terminal.take().map(rustix::stdio::dup2_stdout);
    }
}

fn failing(failure: &str) -> Result<TerminalProcess> {
    let mut command = Command::new(std::env::current_exe()?);
    TerminalProcess::spawn(command.env(FAILURE_VARIABLE, failure), 30, 120)
}

fn panic(_: &Scratch) -> Result<()> {
    let mut own = failing("own")?;
    ensure!(own.wait(LIMIT)?.code() == Some(101), "{}", own.screen());
    own.await_restored(LIMIT)?;
    own.await_said("in the drawing thread")?;
    let mut other = failing("other")?;
    other.await_shown(&["? help"], LIMIT)?;
    ensure!(!other.screen().contains("another thread"), "{}", other.screen());
    other.press("q")?;
    ensure!(other.wait(LIMIT)?.success(), "{}", other.screen());
    other.await_restored(LIMIT)?;
    other.await_said("in another thread")
}

/// A frame that cannot be written ends it, and the error is printed where it can be read.
fn error(_: &Scratch) -> Result<()> {
    let mut top = failing("write")?;
    top.await_shown(&["? help"], LIMIT)?;
    ensure!(top.is_restored().is_err(), "it did not take the terminal");
    top.press(" ")?;
    ensure!(top.wait(LIMIT)?.code() == Some(1), "{}", top.screen());
    top.await_restored(LIMIT)?;
    top.await_said("failed: No space left on device")
}

/// As the clipboard gets it.
fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

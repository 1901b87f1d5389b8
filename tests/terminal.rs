//! `pmdscope top` on a pseudo-terminal: it takes the screen, and gives it back however it ends.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test fails by panicking

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pmdscope_recording::{RecordingOptions, TelemetryRecorder};
use pmdscope_telemetry::FleetState;
use pmdscope_testing::spawn;

const ENTER_SCREEN: &str = "\x1b[?1049h";
const LEAVE_SCREEN: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// `top` under script(1), which records what it writes to its terminal.
struct Recorded {
    script: Child,
    directory: PathBuf,
}

impl Recorded {
    fn start(test: &str, environment: &str) -> Self {
        let recorded = Self::run(test, environment, "");
        recorded.wait_for("help  q quit");
        recorded
    }

    fn run(test: &str, environment: &str, arguments: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("pmdscope_{test}_{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let command = format!(
            "stty rows 24 cols 80; echo $$ >{0}/pid; unset COLORTERM NO_COLOR; \
             TERM=xterm-256color {environment} exec {1} top {arguments}",
            directory.display(),
            env!("CARGO_BIN_EXE_pmdscope")
        );
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--flush", "--return", "--command", &command])
            .arg(directory.join("out"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let script = spawn(&mut script).expect("script(1) of the package bsdutils");
        Self { script, directory }
    }

    fn output(&self) -> String {
        let bytes = fs::read(self.directory.join("out")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn wait_for(&self, text: &str) {
        let start = Instant::now();
        while !self.output().contains(text) {
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(20), "no {text:?} in {:?}", self.output());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        let input = self.script.stdin.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn signal(&self, name: &str) {
        let pid = read(&self.directory.join("pid"));
        assert!(Command::new("kill").args(["-s", name, pid.trim()]).status().unwrap().success());
    }

    /// Waits for the end, and returns what was written.
    fn finish(self) -> String {
        self.finish_with(0)
    }

    /// The same, with this exit code.
    fn finish_with(mut self, code: i32) -> String {
        assert_eq!(self.script.wait().unwrap().code(), Some(code), "{}", self.output());
        self.output()
    }
}

impl Drop for Recorded {
    /// Ends what a failed test leaves running: script(1) takes its program along.
    fn drop(&mut self) {
        if self.script.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("kill").arg(self.script.id().to_string()).status();
            let _ = self.script.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn assert_given_back(output: &str) {
    let entered = output.find(ENTER_SCREEN).expect("takes the alternate screen");
    let rest = &output[entered..];
    let left = rest.find(LEAVE_SCREEN).expect("leaves the alternate screen");
    assert!(rest[left..].contains(SHOW_CURSOR), "shows the cursor: {:?}", &rest[left..]);
    assert!(!rest[left..].contains(ENTER_SCREEN));
}

#[test]
fn q_gives_the_terminal_back() {
    let mut top = Recorded::start("quit", "");
    top.press("q");
    assert_given_back(&top.finish());
}

#[test]
fn a_recording_is_played_to_its_end_and_gone_through() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("incident.jsonl.zst");
    let begin_ns = 1_800_000_000_000_000_000;
    let recording = RecordingOptions { path: path.clone(), ..RecordingOptions::default() };
    let mut recorder = TelemetryRecorder::create(recording, begin_ns).unwrap();
    for round in 0..3 {
        let (now_ns, realtime_ns) = (1 + round * 100_000_000, begin_ns + round * 100_000_000);
        recorder.record(&FleetState { now_ns, realtime_ns, ..FleetState::default() }, 0).unwrap();
    }
    recorder.finish().unwrap();
    let mut top = Recorded::run("replay", "TZ=UTC", &format!("--replay {}", path.display()));
    top.wait_for("end of");
    top.press(",");
    top.wait_for("paused");
    top.press("q");
    assert_given_back(&top.finish());
}

#[test]
fn signals_give_the_terminal_back() {
    for name in ["TERM", "INT", "HUP"] {
        let top = Recorded::start(&format!("signal_{name}"), "");
        top.signal(name);
        assert_given_back(&top.finish());
    }
}

#[test]
fn ignored_hangups_leave_the_other_signals() {
    let ignoring = "true; trap '' HUP; export TERM=xterm-256color; ";
    let top = Recorded::start("nohup", ignoring);
    top.signal("TERM");
    assert_given_back(&top.finish());
}

#[test]
fn without_colours_the_overlay_still_works_and_nothing_resets_attributes_alone() {
    let mut top = Recorded::start("mono", "NO_COLOR=1");
    top.press("?");
    top.wait_for("column:word");
    top.press("q");
    let output = top.finish();
    assert_given_back(&output);
    assert!(!output.contains("\x1b[;m"), "the trap of crossterm with NO_COLOR");
    let colours = (30..38).chain(90..98).map(|code| format!("\x1b[{code}m"));
    assert!(colours.into_iter().all(|code| !output.contains(&code)));
    assert!(!output.contains("\x1b[38;5;"));
}

#[test]
fn a_dumb_terminal_is_refused_with_what_works_instead() {
    for environment in ["TERM=dumb", "TERM="] {
        let output = Recorded::run("dumb", environment, "").finish_with(2);
        assert!(
            output.contains("TERM is dumb or not set; use --once, --json or --csv"),
            "{output}"
        );
        assert!(!output.contains(ENTER_SCREEN));
    }
}

#[test]
fn a_locale_without_utf8_gets_ascii() {
    for (locale, ascii) in [("LANG=C.UTF-8 LC_ALL=C", true), ("LANG=C LC_ALL=C.UTF-8", false)] {
        let mut top = Recorded::start(&format!("locale_{ascii}"), locale);
        top.press("?");
        top.wait_for("[Keys]");
        top.press("q");
        let output = top.finish();
        let drawn = output.split_once(ENTER_SCREEN).unwrap().1;
        assert_eq!(drawn.is_ascii(), ascii, "{drawn}");
    }
}

#[test]
fn a_theme_uses_its_colours_where_the_terminal_has_them() {
    let cases = [
        ("NO_COLOR=1 COLORTERM=truecolor", "truecolor", "\x1b[38;2;", "help  q quit"),
        ("", "colorblind", "\x1b[38;5;175;", "help  q quit"),
        ("", "truecolor", "\x1b[38;5;6;", "COLORTERM is not truecolor"),
    ];
    for (environment, theme, colour, shown) in cases {
        let arguments = format!("--theme {theme}");
        let mut top = Recorded::run(&format!("theme_{theme}"), environment, &arguments);
        top.wait_for(shown);
        top.press("q");
        let output = top.finish();
        assert_given_back(&output);
        assert!(output.contains(colour), "{theme}: {output:?}");
    }
}

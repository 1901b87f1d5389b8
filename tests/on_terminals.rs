//! Progress and colours of commands on a terminal, and that pipes get neither.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test fails by panicking

#[path = "../telemetry/tests/support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pmdscope_testing::{output, spawn};
use support::{FakeApp, Recording};
use tempfile::TempDir;

/// What testpmd with two ports has answered.
const TESTPMD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/telemetry/tests/data/dpdk-22.11/testpmd-null.jsonl");

const PROGRAM: &str = env!("CARGO_BIN_EXE_pmdscope");

fn app() -> FakeApp {
    FakeApp::replay(&Recording::read(TESTPMD))
}

/// The command line of a check of a fake app, in a shell.
fn check(app: &FakeApp, options: &str) -> String {
    let root = app.discovery().roots.remove(0);
    let root = root.display();
    format!("RUNTIME_DIRECTORY={root} PMDSCOPE_CONFIG=none {PROGRAM} check -a fake {options}")
}

/// A command on a terminal of 24 lines of 80 columns, by script(1).
struct OnTerminal {
    script: Child,
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    directory: TempDir,
}

impl OnTerminal {
    fn start(environment: &str, line: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let command = format!(
            "stty rows 24 cols 80; echo $$ >{}/pid; unset NO_COLOR COLORTERM; export TERM=xterm-256color \
             {environment}; {line}",
            directory.path().display()
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"]);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = spawn(&mut script).expect("script(1) of the package bsdutils");
        let (mut out, written) = (script.stdout.take().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let shared = Arc::clone(&written);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                shared.lock().unwrap().extend(&bytes[..count]);
            }
        });
        Self { script, written, reader: Some(reader), directory }
    }

    fn written(&self) -> String {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
    }

    fn wait_for(&self, text: &str) {
        let start = Instant::now();
        while !self.written().contains(text) {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "no {text:?} in {:?}",
                self.written()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Signals the shell, which the last command has replaced.
    fn signal(&self, name: &str) {
        let pid = fs::read_to_string(self.directory.path().join("pid")).unwrap();
        assert!(Command::new("kill").args(["-s", name, pid.trim()]).status().unwrap().success());
    }

    /// Waits for the end; returns the exit code, all that was written, and what the screen shows then.
    fn finish(mut self) -> (Option<i32>, String, String) {
        let code = self.script.wait().unwrap().code();
        self.reader.take().unwrap().join().unwrap();
        let written = self.written();
        let mut screen = vt100::Parser::default();
        screen.process(written.as_bytes());
        (code, written, screen.screen().contents())
    }
}

impl Drop for OnTerminal {
    /// Ends what a failed test leaves running: script(1) takes its program along.
    fn drop(&mut self) {
        if self.script.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("kill").arg(self.script.id().to_string()).status();
            let _ = self.script.wait();
        }
    }
}

/// Standard output and standard error of a shell's command in pipes, together.
fn in_pipes(line: &str) -> String {
    let output = output(Command::new("sh").args(["-c", line]).env("TERM", "xterm")).unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn a_check_shows_its_progress_from_the_third_second_on_and_clears_it() {
    let app = app();
    let (code, written, screen) = OnTerminal::start("", &check(&app, "--for 3")).finish();
    assert_eq!(code, Some(0), "{screen}");
    let times: Vec<_> = written.split(" of 3.0s  watching fake").collect();
    assert!(times.len() > 2, "it goes on: {written:?}");
    assert!(
        times[0].contains("[=") && times[0].rsplit(' ').next().unwrap().starts_with("2."),
        "{times:?}"
    );
    assert!(screen.contains("ok: 1 app, 2 ports") && !screen.contains("watching"), "{screen}");
}

#[test]
fn only_standard_error_has_progress_and_only_where_it_is_a_terminal() {
    let apps = [app(), app(), app()];
    let [piped, to_file, quiet] = ["", "", "-q"].map(|options| format!("--for 3 {options}"));
    let file = tempfile::NamedTempFile::new().unwrap();
    let to_file = format!("{} >{}", check(&apps[1], &to_file), file.path().display());
    let to_file = OnTerminal::start("NO_COLOR=1", &to_file);
    let quiet = OnTerminal::start("", &check(&apps[2], &quiet));
    let piped = in_pipes(&check(&apps[0], &piped));
    assert!(piped.starts_with("ok: 1 app") && !piped.contains(['\x1b', '\r']), "{piped:?}");
    assert!(!piped.contains("watching"), "{piped}");
    assert_eq!(quiet.finish().1, "");
    let (_, written, screen) = to_file.finish();
    let result = fs::read_to_string(file.path()).unwrap();
    assert!(result.starts_with("ok: 1 app") && !result.contains('\x1b'), "{result:?}");
    assert!(written.contains("] 2.") && !screen.contains("watching"), "{written:?} {screen}");
    assert_eq!(written.matches("\x1b[").count(), written.matches("\x1b[K").count(), "{written:?}");
}

#[test]
fn a_signal_leaves_a_clean_terminal() {
    let apps = [app(), app()];
    let checks = apps
        .each_ref()
        .map(|app| OnTerminal::start("", &format!("exec env {}", check(app, "--for 60"))));
    for (check, name) in checks.into_iter().zip(["INT", "TERM"]) {
        check.wait_for(" of 1m00s  watching fake");
        check.signal(name);
        let (code, written, screen) = check.finish();
        assert!(code.is_some_and(|code| code > 128), "{name}: {code:?}");
        assert!(!screen.contains("watching"), "{name}: {written:?} {screen}");
    }
}

#[test]
fn reading_a_slow_pipe_shows_how_much_was_read() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let made = output(Command::new("mkfifo").arg(&pipe)).unwrap();
    assert!(made.status.success());
    let reading =
        OnTerminal::start("", &format!("{PROGRAM} capture --count -r {}", pipe.display()));
    let mut pipe = File::options().write(true).open(&pipe).unwrap();
    pipe.write_all(&packets(3)).unwrap();
    reading.wait_for(" B  reading ");
    drop(pipe);
    let (code, written, screen) = reading.finish();
    assert!(code == Some(0) && screen.contains("3 packets"), "{written:?}");
    let lines: Vec<_> = screen.lines().filter(|line| line.contains("B  reading")).collect();
    assert!(lines.is_empty(), "{screen}");
}

/// A pcap file of empty packets.
fn packets(count: u32) -> Vec<u8> {
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1];
    let packet = |second| [1_700_000_000 + second, 0, 0, 60];
    let words = words.into_iter().chain((0..count).flat_map(packet));
    words.flat_map(u32::to_le_bytes).collect()
}

/// What a check of an app that does not answer writes: to a terminal with this environment, or into pipes.
fn stuck(environment: Option<&'static str>, options: &str) -> JoinHandle<String> {
    let options = format!("--for 1 {options}");
    thread::spawn(move || {
        let app = FakeApp::start(|connection| {
            connection.send(support::BANNER);
            while connection.receive().is_some() {}
        });
        match environment {
            Some(environment) => OnTerminal::start(environment, &check(&app, &options)).finish().1,
            None => in_pipes(&check(&app, &options)),
        }
    })
}

#[test]
fn colours_are_those_of_a_terminal_unless_the_option_or_the_environment_decides() {
    let mono = tempfile::NamedTempFile::new().unwrap();
    fs::write(mono.path(), "[top]\ntheme = \"mono\"\n").unwrap();
    let mono = stuck(Some(""), &format!("--config {}", mono.path().display()));
    let yellow = [
        stuck(Some(""), ""),
        stuck(Some("NO_COLOR=1"), "--color always"),
        stuck(None, "--color always"),
    ];
    let plain = [
        stuck(Some("NO_COLOR=1"), ""),
        stuck(Some("TERM=dumb"), ""),
        stuck(Some(""), "--color never"),
        stuck(None, ""),
        stuck(None, "--color auto"),
    ];
    for text in yellow {
        let text = text.join().unwrap();
        assert!(text.contains("\x1b[33mwarning\x1b[0m: unreachable"), "{text:?}");
    }
    for text in plain {
        let text = text.join().unwrap();
        assert!(text.contains(": warning: unreachable") && !text.contains('\x1b'), "{text:?}");
    }
    let text = mono.join().unwrap();
    assert!(text.contains("\x1b[1mwarning\x1b[0m: unreachable"), "{text:?}");
}

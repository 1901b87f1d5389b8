//! Completion, as shells ask for it: commands, running apps, their ports, and files.

#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../telemetry/tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pmdscope_testing::output;
use support::{Machine, Running};

/// Apps, which count how often they are asked.
struct Apps {
    machine: Machine,
    asked: Arc<AtomicUsize>,
    running: Vec<Running>,
}

impl Apps {
    fn start(names: &[&str]) -> Self {
        let (machine, asked) = (Machine::new(), Arc::<AtomicUsize>::default());
        let answer = |name: &&str| {
            let asked = Arc::clone(&asked);
            machine.serve(name, move |request| {
                asked.fetch_add(1, Ordering::SeqCst);
                Some(match request {
                    "/ethdev/list" => r#"{"/ethdev/list":[0,3]}"#.to_owned(),
                    request => format!("{{\"{request}\":null}}"),
                })
            })
        };
        let running = names.iter().map(answer).collect();
        Self { machine, asked, running }
    }

    fn root(&self) -> PathBuf {
        self.machine.settings().discover.roots.remove(0)
    }

    fn command(&self, program: &str) -> Command {
        let root = self.root();
        let config = root.join("pmdscope.toml");
        let roots = format!("[discovery]\nroots = [\"{}\"]\ncontainers = false\n", root.display());
        fs::write(&config, roots).unwrap();
        let mut command = Command::new(program);
        command.env("PMDSCOPE_CONFIG", config).current_dir(root).stdin(Stdio::null());
        command
    }

    /// What may stand for the last of these words, which blanks separate.
    fn complete(&self, line: &str) -> Vec<String> {
        let words = line.split(' ').collect::<Vec<_>>();
        let mut command = self.command(env!("CARGO_BIN_EXE_pmdscope"));
        command.env("COMPLETE", "bash").env("_CLAP_IFS", "\n");
        command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        let output = output(command.arg("--").args(words)).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// What bash completes the line to, by the printed script; candidates that remain, in the order of bash.
    fn complete_in_bash(&self, line: &str) -> Vec<String> {
        let mut script = self.command(env!("CARGO_BIN_EXE_pmdscope"));
        let script = output(script.args(["completions", "bash"])).unwrap();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_pmdscope"));
        // As readline calls the function: words are split at the characters of COMP_WORDBREAKS.
        let call = r#"
            COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=() rest=$1
            while [[ -n $rest ]]; do
                if [[ $rest == [[:space:]]* ]]; then rest=${rest#?}; last=blank; continue; fi
                if [[ $rest == [:=]* ]]; then word=${rest:0:1}; else word=${rest%%[[:space:]:=]*}; fi
                COMP_WORDS+=("$word"); rest=${rest#"$word"}; last=word
            done
            [[ $last == blank ]] && COMP_WORDS+=("")
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            compopt() { :; }
            _pmdscope pmdscope "${COMP_WORDS[COMP_CWORD]}" ""
            printf '%s\n' "${COMPREPLY[@]}""#;
        let script = String::from_utf8(script.stdout).unwrap();
        let mut bash = self.command("bash");
        let path = std::env::var("PATH").unwrap();
        bash.env("PATH", format!("{}:{path}", program.parent().unwrap().display()));
        let output = output(bash.args(["-c", &(script + call), "bash", line])).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

#[test]
fn running_apps_are_offered_and_not_asked() {
    let mut apps = Apps::start(&["fwd", "gen", "gone"]);
    // Its socket remains.
    apps.running.pop();
    let gone = apps.root().join("dpdk/gone/config");
    fs::write(gone, "").unwrap();
    assert_eq!(apps.complete("pmdscope top -a "), ["fwd", "gen"]);
    assert_eq!(apps.complete("pmdscope check --app=f"), ["--app=fwd"]);
    assert_eq!(apps.complete("pmdscope capture -i "), ["fwd:", "gen:", "any"]);
    assert_eq!(apps.asked.load(Ordering::SeqCst), 0);
}

#[test]
fn ports_are_those_of_the_app_that_is_written_out() {
    let apps = Apps::start(&["fwd", "gen"]);
    assert_eq!(apps.complete("pmdscope capture -i fwd:"), ["fwd:any", "fwd:0", "fwd:3"]);
    assert_eq!(apps.complete("pmdscope netstat --port gen:3"), ["gen:3"]);
    assert_eq!(apps.asked.load(Ordering::SeqCst), 2);
}

#[test]
fn an_app_that_does_not_answer_is_offered_at_once() {
    let apps = Apps::start(&[]);
    let _stuck = apps.machine.run_stuck("stuck");
    let _silent = apps.machine.run_silent("silent");
    assert_eq!(apps.complete("pmdscope leaks -a "), ["silent", "stuck"]);
    let begun = std::time::Instant::now();
    assert_eq!(apps.complete("pmdscope capture -i stuck:"), ["stuck:any"]);
    assert_eq!(apps.complete("pmdscope capture -i silent:"), ["silent:any"]);
    // Each waits for 300 ms; without a limit, this would never end.
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[test]
fn names_that_are_commands_of_a_shell_are_not_offered() {
    let apps = Apps::start(&["$(reboot)", "a;b", "fwd"]);
    assert_eq!(apps.complete("pmdscope top -a "), ["fwd"]);
}

#[test]
fn files_are_offered_by_what_the_command_reads() {
    let apps = Apps::start(&[]);
    for file in ["in.pcapng.gz", "in.jsonl.zst", "in.tar.zst"] {
        fs::write(apps.root().join(file), "").unwrap();
    }
    assert_eq!(apps.complete("pmdscope capture -r in"), ["in.pcapng.gz", "in.tar.zst"]);
    assert_eq!(apps.complete("pmdscope top -r in"), ["in.jsonl.zst", "in.tar.zst"]);
    assert_eq!(apps.complete("pmdscope in").len(), 4, "interrupts, and the files");
    let wrong = apps.complete("pmdscope wrong -r ");
    assert!(!wrong.iter().any(|word| word.starts_with("in.")), "{wrong:?}");
}

#[test]
fn bash_completes_words_with_colons() {
    let apps = Apps::start(&["fwd", "gen"]);
    fs::write(apps.root().join("a b.pcap"), "").unwrap();
    for (line, rest) in [
        ("pmdscope capture -nn -i fw", &["fwd:"][..]),
        ("pmdscope capture -i fwd:", &["any", "0", "3"]),
        ("pmdscope capture -i fwd:3", &["3"]),
        ("pmdscope top --app=g", &["gen"]),
        ("pmdscope top -a fwd --on", &["--once"]),
        ("pmdscope capture -r a", &["a b.pcap"]),
        ("pmdscope bun", &["bundle"]),
    ] {
        assert_eq!(apps.complete_in_bash(line), rest, "{line}");
    }
}

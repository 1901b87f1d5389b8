//! A skipped test is reported, listed, and a failure where its program must be there. The tests below
//! run this program again, in another environment.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::process::{Command, Output};

use pmdscope_testing::{current_test, output, skip};

/// Runs a test of this program alone.
fn run(test: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command.env_remove("PMDSCOPE_NO_SKIP").env_remove("PMDSCOPE_SKIPS");
    output(command.envs(environment.iter().copied())).unwrap()
}

#[test]
#[ignore = "part of others"]
fn needs_a_program() {
    assert!(output(&mut Command::new("pmdscope-no-such-program")).is_none());
}

#[test]
#[ignore = "part of others"]
fn needs_a_machine() {
    skip(&current_test(), "no such hardware");
}

#[test]
fn a_missing_program_is_a_skip_that_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    for test in ["needs_a_program", "needs_a_machine"] {
        let run = run(test, &[("PMDSCOPE_SKIPS", list.to_str().unwrap())]);
        assert!(run.status.success(), "{run:?}");
    }
    assert_eq!(
        std::fs::read_to_string(list).unwrap(),
        "SKIP needs_a_program: pmdscope-no-such-program is not installed\n\
         SKIP needs_a_machine: no such hardware\n"
    );
}

#[test]
fn a_missing_program_is_a_failure_where_programs_are_required() {
    let run_with = |test| run(test, &[("PMDSCOPE_NO_SKIP", "programs")]).status.code();
    assert_eq!(run_with("needs_a_program"), Some(101));
    assert_eq!(run_with("needs_a_machine"), Some(0));
}

//! `--json` and `--csv` print a document also where there is nothing.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::process::Command;

use pmdscope_testing::{output, schema};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A machine on which no app runs.
struct Idle(TempDir);

impl Idle {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let config =
            format!("[discovery]\nroots = [\"{}\"]\ncontainers = false\n", root.path().display());
        fs::write(root.path().join("config.toml"), config).unwrap();
        Self(root)
    }

    /// What a command prints; it must tell why, and fail.
    fn printed(&self, words: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
        command.env("PMDSCOPE_CONFIG", self.0.path().join("config.toml")).args(words.split(' '));
        let output = output(&mut command).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words}: {error}");
        assert!(error.starts_with("pmdscope: "), "{words}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn document(&self, words: &str) -> Value {
        let arguments = words.split(' ').collect::<Vec<_>>();
        let documents = schema::documents(&arguments, &self.printed(words)).unwrap();
        assert_eq!(documents.len(), 1, "{words}: {documents:?}");
        let document = &documents[0];
        document.clone()
    }
}

#[test]
fn nothing_is_a_document_too() {
    let idle = Idle::new();
    let none = json!({"schema": 1, "apps": []});
    let netstat = |view: &str, rows: &str| json!({"schema": 1, "view": view, rows: []});
    for (words, expected) in [
        ("ls --json", none.clone()),
        ("top --json", none.clone()),
        ("top --json -n 2 -a absent", none),
        ("check --json", json!({"schema": 1, "ok": false, "apps": []})),
        ("leaks --json", json!({"schema": 1, "leaks": false, "apps": []})),
        ("lcores --json", json!({"schema": 1, "lcores": []})),
        (
            "lcores --profile=1000 --json",
            json!({"schema": 1, "hz": 1000, "cost_ratio": 0.021, "apps": []}),
        ),
        ("netstat --json", netstat("conversations", "flows")),
        ("netstat -i --json", netstat("interfaces", "interfaces")),
        ("netstat --queues --json", netstat("queues", "queues")),
        ("capture -D --json", json!({"schema": 1, "interfaces": []})),
    ] {
        assert_eq!(idle.document(words), expected, "{words}");
    }
    // With all their counters.
    assert_eq!(idle.document("netstat -s --json")["interfaces"], json!([]));
    assert_eq!(idle.document("netstat -l --json")["listeners"], json!([]));
}

#[test]
fn a_table_of_nothing_has_names_of_columns() {
    let idle = Idle::new();
    for table in ["apps", "ports", "queues", "pools", "lcores", "findings"] {
        let printed = idle.printed(&format!("top --csv {table}"));
        assert!(printed.starts_with("time,app,") && printed.lines().count() == 1, "{printed}");
    }
}

#[test]
fn text_of_nothing_is_empty() {
    let idle = Idle::new();
    for words in ["ls", "top --once", "check", "leaks", "lcores", "netstat", "netstat -i"] {
        assert_eq!(idle.printed(words), "", "{words}");
    }
}

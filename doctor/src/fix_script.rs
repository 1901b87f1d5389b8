//! A shell script with all fixes of a report. It is printed, and never run.

use std::collections::BTreeSet;

use pmdscope_telemetry::printable::harmless;

use crate::check::{CheckStatus, Fix};
use crate::report::{CheckResult, Report};

/// Begins every script. An error of one command does not keep the others from running.
const HEAD: &str = "#!/bin/sh
# Fixes for what `pmdscope doctor` found. Read it, delete what you do not want, and run it as root.
# Commands below \"now\" take effect at once; those below \"for good\" keep it after a reboot.
set -u
";

impl Report {
    /// The script: a comment and the commands for each result that is no pass.
    pub fn fix_script(&self) -> String {
        let mut out = HEAD.to_owned();
        let mut seen = BTreeSet::new();
        let bad = self.results.iter().filter(|result| result.status >= CheckStatus::Warn);
        for result in bad {
            out.push_str(&section(result, &mut seen));
        }
        if !self.results.iter().any(|result| result.status >= CheckStatus::Warn) {
            out.push_str("\n# Nothing to fix.\n");
        }
        out
    }
}

fn section(result: &CheckResult, seen: &mut BTreeSet<String>) -> String {
    let mut out = format!("\n# {}\n", comment(&format!("{}: {}", result.check, result.found)));
    out.push_str(&format!("# {}\n", comment(result.matters)));
    let Fix { now, persistent, advice, .. } = result.fix.clone().unwrap_or_default();
    for (label, commands) in [("now", now), ("for good", persistent)] {
        if !commands.is_empty() {
            out.push_str(&format!("# {label}:\n"));
        }
        for command in commands {
            // The same command may put several things right.
            let prefix = match () {
                () if has_placeholder(&command) => "# fill in: ",
                () if !seen.insert(command.clone()) => "# as above: ",
                () => "",
            };
            out.push_str(&format!("{prefix}{}\n", harmless(&command, &[])));
        }
    }
    if !advice.is_empty() {
        out.push_str(&format!("# {}\n", comment(&advice)));
    }
    out
}

/// Commands with a name that only the operator knows are not for running as they are.
fn has_placeholder(command: &str) -> bool {
    command.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "UNIT")
}

/// What others say stays within its line.
fn comment(text: &str) -> String {
    harmless(text, &[])
}

//! A shell script with all fixes of a report. It is printed, and never executed.

use std::collections::BTreeSet;
use std::fmt::Write;

use pmdscope_telemetry::printable::harmless;

use crate::check::{CheckStatus, Fix, kernel_arguments_command};
use crate::report::{CheckResult, Report};

/// The head of every script. If one command fails, the next ones still run.
const HEAD: &str = "#!/bin/sh
# Fixes for what `pmdscope doctor` found. Read it, delete what you do not want, and run it as root.
# Commands below \"now\" take effect at once; those below \"for good\" keep it after a reboot.
set -u
";

impl Report {
    /// Returns the script: a comment and the commands for each result with status warn or fail. The
    /// kernel command line is changed once, at the end.
    pub fn fix_script(&self) -> String {
        let bad = self.results.iter().filter(|result| result.status >= CheckStatus::Warn);
        let bad: Vec<&CheckResult> = bad.collect();
        if bad.is_empty() {
            return format!("{HEAD}\n# Nothing to fix.\n");
        }
        let mut script = FixScript {
            report: self,
            text: HEAD.into(),
            commands: BTreeSet::new(),
            arguments: Vec::new(),
        };
        for result in bad {
            script.add(result);
        }
        script.finish()
    }
}

/// A script that is being written.
struct FixScript<'a> {
    report: &'a Report,
    text: String,
    /// Commands that were already written.
    commands: BTreeSet<String>,
    /// Arguments for the kernel command line.
    arguments: Vec<String>,
}

impl FixScript<'_> {
    fn add(&mut self, result: &CheckResult) {
        self.text.push('\n');
        self.comment(&format!("{}: {}", result.check, result.found));
        self.comment(result.matters);
        let Fix { now, mut persistent, advice, kernel_arguments } =
            result.fix.clone().unwrap_or_default();
        self.commands("now", now);
        if !kernel_arguments.is_empty() {
            let own = kernel_arguments_command(self.report.distribution, &kernel_arguments);
            persistent.retain(|command| *command != own);
            self.comment(&format!(
                "for good: kernel arguments at the end: {}",
                kernel_arguments.join(" ")
            ));
            let new =
                kernel_arguments.into_iter().filter(|argument| !self.arguments.contains(argument));
            let new: Vec<String> = new.collect();
            self.arguments.extend(new);
        }
        self.commands("for good", persistent);
        if !advice.is_empty() {
            self.comment(&advice);
        }
    }

    fn commands(&mut self, label: &str, commands: Vec<String>) {
        if !commands.is_empty() {
            self.comment(&format!("{label}:"));
        }
        for command in commands {
            // One command may fix several problems.
            let prefix = match () {
                () if has_placeholder(&command) => "# fill in: ",
                () if !self.commands.insert(command.clone()) => "# as above: ",
                () => "",
            };
            self.line(&format!("{prefix}{command}"));
        }
    }

    fn finish(mut self) -> String {
        if !self.arguments.is_empty() {
            self.text.push('\n');
            self.comment(
                "The kernel command line, for all of the above; takes effect at the next boot:",
            );
            self.line(&kernel_arguments_command(self.report.distribution, &self.arguments));
        }
        self.text
    }

    fn comment(&mut self, text: &str) {
        self.line(&format!("# {text}"));
    }

    /// Writes text from elsewhere harmlessly, so that it stays within its line.
    fn line(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{}", harmless(text, &[]));
    }
}

/// Whether a command has a name to fill in, so that it cannot run as it is.
fn has_placeholder(command: &str) -> bool {
    command.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "UNIT")
}

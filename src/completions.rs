//! `pmdscope completions`: scripts that complete command lines in shells, and the answers to them.
//!
//! The scripts of bash, zsh and fish run `COMPLETE=SHELL pmdscope -- WORDS`, which prints what may follow,
//! also running apps, their ports, and files with captures and recordings.

mod bash;
mod candidates;

use std::ffi::OsStr;
use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Arg, Command, CommandFactory};
use clap_complete::env::{CompleteEnv, EnvCompleter, Fish, Shells, Zsh};
use clap_complete::{ArgValueCompleter, Shell};

use self::bash::Bash;
use self::candidates::{CAPTURES, RECORDINGS};
use crate::output;

/// The variable by which a script asks for an answer.
const VARIABLE: &str = "COMPLETE";
/// The command that is completed, and that answers.
const COMMAND: &str = "pmdscope";

/// The shells whose scripts ask. The one of clap for `PowerShell` evaluates the half-typed command line, so
/// that and Elvish have scripts without values of running apps.
const SHELLS: Shells<'_> = Shells(&[&Bash, &Fish, &Zsh]);

/// Print a shell completion script
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope completions bash > /etc/bash_completion.d/pmdscope
  pmdscope completions zsh > ~/.zfunc/_pmdscope
  pmdscope completions fish > ~/.config/fish/completions/pmdscope.fish

Exit status: 0 printed, 1 failed, 2 wrong usage.")]
#[command(after_long_help = "\
In bash, zsh and fish, commands and options are completed, as well as running apps behind -a,
their ports behind -i, and captures, recordings and bundles behind -r. Only the app whose ports are
wanted is asked, for its list of ports. In other shells, commands and options are completed.

Examples:
  pmdscope completions bash > /etc/bash_completion.d/pmdscope
  pmdscope completions zsh > ~/.zfunc/_pmdscope
  pmdscope completions fish > ~/.config/fish/completions/pmdscope.fish
  source <(pmdscope completions bash)      for this shell alone

Exit status: 0 printed, 1 failed, 2 wrong usage.")]
pub(crate) struct Args {
    /// Shell to complete for
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let script = script(args.shell).context("cannot make the script")?;
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    match SHELLS.completer(&shell.to_string()) {
        Some(asking) => {
            asking.write_registration(VARIABLE, COMMAND, COMMAND, COMMAND, &mut script)?;
            if asking.name() == Zsh.name() {
                // zsh runs the file when it completes for the first time, which only defines the function.
                let first =
                    r#"[[ $funcstack[1] == _pmdscope ]] && _clap_dynamic_completer_pmdscope "$@""#;
                script.extend(format!("{first}\n").into_bytes());
            }
        }
        None => clap_complete::generate(shell, &mut crate::Cli::command(), COMMAND, &mut script),
    }
    Ok(script)
}

/// Answers the script of a shell, and ends; returns where none asks.
pub(crate) fn answer() {
    CompleteEnv::with_factory(command).var(VARIABLE).shells(SHELLS).complete();
}

/// The command line, with the file that may stand in place of a command.
fn command() -> Command {
    crate::Cli::command().arg(Arg::new("FILE").hide(true).add(files()))
}

/// Completes names of running apps.
pub(crate) fn apps() -> ArgValueCompleter {
    ArgValueCompleter::new(candidates::apps)
}

/// Completes ports of running apps, as `APP:PORT`.
pub(crate) fn interfaces() -> ArgValueCompleter {
    ArgValueCompleter::new(candidates::interfaces)
}

/// Completes captures, and bundles, which have some.
pub(crate) fn captures() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| candidates::files(word, &CAPTURES))
}

/// Completes recordings, and bundles, which have one.
pub(crate) fn recordings() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| candidates::files(word, &RECORDINGS))
}

/// Completes all files that can be opened.
pub(crate) fn files() -> ArgValueCompleter {
    let endings = [&CAPTURES[..], &RECORDINGS].concat();
    ArgValueCompleter::new(move |word: &OsStr| candidates::files(word, &endings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_knows_every_command() {
        for shell in [Shell::Elvish, Shell::PowerShell] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            for command in crate::Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(
                script.contains(&format!("{VARIABLE}={shell}")) || shell == Shell::Zsh,
                "{script}"
            );
            assert!(script.contains("pmdscope"), "{shell}: {script}");
        }
    }

    #[test]
    fn the_completed_command_line_is_consistent() {
        command().debug_assert();
    }
}

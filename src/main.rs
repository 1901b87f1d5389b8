//! pmdscope: tcpdump, netstat and top for NICs that the kernel can no longer see.

// All text leaves by `output`, where it is made harmless.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod attach;
mod bundle;
mod bypass;
mod capture;
mod check;
mod child;
mod color;
mod completions;
mod config;
mod doctor;
mod duration;
mod empty;
mod exit;
mod export;
mod extcap;
mod file_kind;
#[cfg(test)]
mod fixture;
mod flows;
mod interfaces;
mod interrupts;
mod lcores;
mod leaks;
mod ls;
mod man;
mod memory;
mod netstat;
mod number;
mod opened_file;
#[cfg(test)]
mod option_tests;
mod output;
mod progress;
mod record;
mod sampling;
mod sandbox;
#[cfg(test)]
mod schemas;
mod session;
mod size;
mod source;
mod tasks;
mod terminal;
mod top;
mod watch;
mod xdp;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "pmdscope", version, about, arg_required_else_help = true)]
// Without a list of options, so that it fits a screen of 24 lines.
#[command(help_template = "\
{about-with-newline}{usage-heading} {usage}\n\nCommands:\n{subcommands}{after-help}")]
#[command(override_usage = "pmdscope <COMMAND>\n       pmdscope FILE")]
#[command(after_help = "\
'pmdscope COMMAND -h' lists common options, --help all; -V prints the version.
'pmdscope FILE' opens a capture, a recording or a bundle.")]
#[command(after_long_help = "\
'pmdscope COMMAND -h' lists common options, --help all; -V prints the version.
'pmdscope FILE' opens a capture as 'capture -r', a recording or bundle as 'top -r', or as 'check -r'
where standard input or output is not a terminal. Options of these commands may follow.

Exit status: 0 ok, 1 finding or failure, 2 wrong usage or configuration.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Ls(ls::Args),
    Top(top::Args),
    Check(check::Args),
    Capture(Box<capture::Args>),
    Netstat(Box<netstat::Args>),
    Leaks(leaks::Args),
    Lcores(lcores::Args),
    Interrupts(interrupts::Args),
    Doctor(doctor::Args),
    Export(export::Args),
    Record(record::Args),
    Bundle(bundle::Args),
    Bypass(bypass::Args),
    Xdp(xdp::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
    #[command(hide = true)]
    Sandbox(sandbox::Args),
}

fn main() -> ExitCode {
    completions::answer();
    child::die_with_parent();
    let signals = pmdscope_signals::prepare().context("cannot handle signals");
    if let Err(error) = memory::prepare().and(signals) {
        output::fail(&error);
        return ExitCode::FAILURE;
    }
    let arguments = std::env::args_os().skip(1).collect::<Vec<_>>();
    let result = extcap::answer(&arguments).unwrap_or_else(|| run(&parse().command));
    attach::leave();
    result.unwrap_or_else(|error| {
        output::fail(&error);
        exit::code(&error)
    })
}

fn parse() -> Cli {
    let arguments = adapt(std::env::args_os().collect()).unwrap_or_else(|error| {
        output::fail(&error);
        std::process::exit(exit::USAGE.into())
    });
    let called = called(&arguments);
    try_parse(arguments).unwrap_or_else(|error| {
        let mut cli = Cli::command();
        cli.build();
        let error = match cli.find_subcommand_mut(&called) {
            Some(command) if called == "netstat" => netstat::explain(error, command),
            Some(command) => capture::explain(error, command),
            None => error,
        };
        let error = without_value_tip(error);
        if !is_refusal(&error) {
            error.exit();
        }
        output::refuse(&error);
        std::process::exit(error.exit_code())
    })
}

/// The word of a command line that names the command.
fn called(arguments: &[OsString]) -> String {
    arguments.get(1).map_or_else(String::new, |word| word.to_string_lossy().into_owned())
}

/// A command line as clap reads it: with the command that opens a file, and without what has another meaning
/// in netstat(8).
fn adapt(mut arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let called = called(&arguments);
    if called == "netstat" {
        let adapted = netstat::adapt(&arguments[2..])?;
        arguments.truncate(2);
        arguments.extend(adapted);
    } else if called != "help"
        && Cli::command().find_subcommand(&called).is_none()
        && let Some(word) = arguments.get(1)
        && let Some(command) = opened_file::command(word, arguments.len() == 2)?
    {
        arguments.splice(1..2, command);
    }
    Ok(arguments)
}

/// Parses a command line. A negative number behind an option is its value, and wrong, not another option.
fn try_parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let takes_value = |arg: &clap::Arg| !arg.is_positional() && arg.get_action().takes_values();
    let negative = |arg: clap::Arg| {
        let takes_value = takes_value(&arg);
        arg.allow_negative_numbers(takes_value)
    };
    let command = Cli::command().mut_subcommands(|command| command.mut_args(negative));
    let mut cli = Cli::from_arg_matches(&command.try_get_matches_from(arguments)?)?;
    if let Command::Netstat(args) = &mut cli.command {
        args.find_recording();
    }
    Ok(cli)
}

/// Without the advice to put `--` before an unknown option, so that it is read as a filter expression.
fn without_value_tip(mut error: clap::Error) -> clap::Error {
    let tip = match error.get(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => {
            tips.iter().any(|tip| tip.to_string().contains(" as a value"))
        }
        _ => false,
    };
    if tip {
        error.remove(ContextKind::Suggested);
    }
    error
}

/// The command line is wrong, and help was not asked for.
fn is_refusal(error: &clap::Error) -> bool {
    let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    error.use_stderr() && error.kind() != help
}

fn run(command: &Command) -> Result<ExitCode> {
    let result = execute(command);
    if let Err(error) = &result {
        empty::print_if(error, command)?;
    }
    result
}

fn execute(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Ls(args) => ls::run(args),
        Command::Top(args) => top::run(args),
        Command::Check(args) => check::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Lcores(args) => lcores::run(args),
        Command::Leaks(args) => leaks::run(args),
        Command::Interrupts(args) => interrupts::run(args),
        Command::Export(args) => export::run(args),
        Command::Record(args) => record::run(args),
        Command::Bundle(args) => bundle::run(args),
        Command::Bypass(args) => bypass::run(args),
        Command::Xdp(args) => xdp::run(args),
        Command::Capture(args) => capture::run(args),
        Command::Netstat(args) => netstat::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
        Command::Sandbox(args) => sandbox::run(args),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_of_every_command() {
        let mut cli = Cli::command().term_width(100);
        assert_snapshot!("help", cli.render_long_help());
        cli.build();
        for command in visible(&mut cli) {
            let name = format!("help_{}", command.get_name());
            assert_snapshot!(name, command.render_long_help());
        }
    }

    #[test]
    fn short_help_fits_a_screen() {
        let mut cli = Cli::command().term_width(80);
        cli.build();
        let longer = longer_than_a_screen(&mut cli);
        assert!(longer.is_empty(), "{}", longer.join("\n"));
    }

    /// `-h` of this command and of its subcommands that does not fit a terminal of 24 lines of 80 columns.
    fn longer_than_a_screen(command: &mut clap::Command) -> Vec<String> {
        let help = command.render_help().to_string();
        let fits = help.lines().count() <= 24
            && help.lines().all(|line| line.chars().count() <= 80 || line.starts_with("Usage:"));
        let mut longer = Vec::new();
        if !fits {
            longer.push(format!("{}: {} lines:\n{help}", command.get_name(), help.lines().count()));
        }
        longer.extend(visible(command).flat_map(longer_than_a_screen));
        longer
    }

    /// Lines that are broken by hand are not broken again, which would leave a word alone on a line: `-h` is
    /// for 80 columns, `--help` for the 100 that clap wraps at.
    #[test]
    fn help_is_not_wrapped_twice() {
        let longer = long_lines(&Cli::command());
        assert!(longer.is_empty(), "{}", longer.join("\n"));
    }

    fn long_lines(command: &clap::Command) -> Vec<String> {
        let texts = [(command.get_after_help(), 80), (command.get_after_long_help(), 100)];
        let texts = texts.into_iter().filter_map(|(text, most)| Some((text?.to_string(), most)));
        let mut longer = Vec::new();
        for (text, most) in texts {
            let lines = text.lines().filter(|line| line.chars().count() > most);
            longer.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
        }
        longer.extend(command.get_subcommands().flat_map(long_lines));
        longer
    }

    /// Commands of the README, in code blocks and between backquotes.
    #[test]
    fn commands_of_the_readme_parse() {
        let mut commands = 0;
        for line in include_str!("../README.md").lines() {
            let whole = line.strip_prefix("# ").unwrap_or(line);
            for command in line.split('`').skip(1).step_by(2).chain([whole]) {
                if !command.starts_with("pmdscope ") {
                    continue;
                }
                let command = command.split("  #").next().unwrap_or_default();
                let parsed = try_parse(command.split_whitespace().map(OsString::from).collect());
                assert!(parsed.is_ok(), "{command}: {}", parsed.err().unwrap());
                commands += 1;
            }
        }
        assert!(commands > 15, "only {commands} commands were found");
    }

    fn visible(cli: &mut clap::Command) -> impl Iterator<Item = &mut clap::Command> {
        cli.get_subcommands_mut().filter(|c| c.get_name() != "help" && !c.is_hide_set())
    }

    #[test]
    fn usage_errors_have_their_own_exit_code() {
        for wrong in [&["top", "-n", "0"][..], &["top", "-i", "0.01"], &["check", "--for", "x"]] {
            let error = Cli::try_parse_from(["pmdscope"].iter().chain(wrong)).err().unwrap();
            assert_eq!(error.exit_code(), i32::from(exit::USAGE), "{wrong:?}");
        }
    }
}

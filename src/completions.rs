//! `pmdscope completions`: shell completion scripts.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::output;

/// Print a shell completion script
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope completions bash > /etc/bash_completion.d/pmdscope
  pmdscope completions zsh > ~/.zfunc/_pmdscope
  pmdscope completions fish > ~/.config/fish/completions/pmdscope.fish")]
pub(crate) struct Args {
    /// Shell to complete for
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "pmdscope", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_knows_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            let mut cli = crate::Cli::command();
            clap_complete::generate(shell, &mut cli, "pmdscope", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in crate::Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}

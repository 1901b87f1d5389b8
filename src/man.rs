//! `pmdscope man`: man pages of all commands, for `make install`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

/// Write man pages of all commands
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory, which must exist
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let written = clap_mangen::generate_to(crate::Cli::command(), &args.directory);
    written.with_context(|| format!("cannot write to {}", args.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let directory = tempfile::tempdir().unwrap();
        run(&Args { directory: directory.path().to_owned() }).unwrap();
        for command in crate::Cli::command().get_subcommands() {
            let page = directory.path().join(format!("pmdscope-{}.1", command.get_name()));
            assert_eq!(page.exists(), !command.is_hide_set(), "{}", page.display());
        }
        let capture = std::fs::read_to_string(directory.path().join("pmdscope-capture.1")).unwrap();
        assert!(capture.contains(r"\-\-trigger") && capture.contains("Exit status"), "{capture}");
    }
}

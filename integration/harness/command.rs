//! The frame of a benchmark's command line: help, wrong usage, failure.

use std::process::ExitCode;

use anyhow::Result;

/// Runs with the options that were read; `None` asks for `help`. Exit code 2 is wrong usage, 1 failure.
pub fn main<T>(
    name: &str,
    help: &str,
    options: Result<Option<T>>,
    run: impl FnOnce(&T) -> Result<()>,
) -> ExitCode {
    let options = match options {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{help}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{name}: {error:#}; see --help");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

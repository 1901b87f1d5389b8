//! Empty documents: with `--json` a command prints a document also where no such app runs, or no such
//! interface has a filter or a bypass. The error is reported nevertheless, and determines the exit
//! code.

use anyhow::{Error, Result};
use pmdscope_bypass::BypassError;
use pmdscope_telemetry::discover::FindError;
use pmdscope_xdp::XdpError;

use crate::{Command, bypass, check, interrupts, lcores, leaks, ls, netstat, top, xdp};

/// Prints the document of a command that failed because there is nothing to report.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn print_if(error: &Error, command: &Command) -> Result<()> {
    if !is_about_nothing(error) {
        return Ok(());
    }
    match command {
        Command::Ls(args) => ls::print_empty(args),
        Command::Top(args) => top::print_empty(args),
        Command::Check(args) => check::print_empty(args),
        Command::Lcores(args) => lcores::print_empty(args),
        Command::Leaks(args) => leaks::print_empty(args),
        Command::Interrupts(args) => interrupts::print_empty(args),
        Command::Netstat(args) => netstat::print_empty(args),
        Command::Bypass(args) => bypass::print_empty(args),
        Command::Xdp(args) => xdp::print_empty(args),
        _ => Ok(()),
    }
}

fn is_about_nothing(error: &Error) -> bool {
    let app =
        |error: &FindError| matches!(error, FindError::NoApp { .. } | FindError::Unknown { .. });
    let bypass = |error: &BypassError| matches!(error, BypassError::NoBypass(_));
    let filter = |error: &XdpError| matches!(error, XdpError::NotAttached(_));
    error.downcast_ref().is_some_and(app)
        || error.downcast_ref().is_some_and(bypass)
        || error.downcast_ref().is_some_and(filter)
}

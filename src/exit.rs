//! Exit codes, and which errors are wrong usage.

use std::fmt;
use std::process::ExitCode;

use pmdscope_bypass::BypassError;
use pmdscope_export::ServeError;
use pmdscope_flows::filter::FilterSyntaxError;
use pmdscope_packets::SinkError;
use pmdscope_packets::filter::PacketFilterError;

use crate::config::ConfigError;

/// Exit code of a command that failed or found something.
pub(crate) const FAILED: u8 = 1;

/// Exit code of a command that was used incorrectly.
pub(crate) const USAGE: u8 = 2;

/// The arguments make sense one by one, but not here.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) &'static str);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Usage {}

/// Exit code of a command that ends with this error.
pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(if is_misuse(error) { USAGE } else { FAILED })
}

fn is_misuse(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<SinkError>();
    let refused = refused.is_some_and(|error| matches!(error, SinkError::Refused { .. }));
    let served = error.downcast_ref::<ServeError>().is_some_and(ServeError::is_misuse);
    let bypass = error.downcast_ref::<BypassError>().is_some_and(BypassError::is_misuse);
    refused
        || served
        || bypass
        || error.is::<Usage>()
        || error.is::<PacketFilterError>()
        || error.is::<FilterSyntaxError>()
        || error.is::<ConfigError>()
}

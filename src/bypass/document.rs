//! Bypasses as JSON.

use pmdscope_bypass::BypassStatus;
use serde::Serialize;

/// Version of the JSON; raised when a field changes its meaning.
const BYPASS_SCHEMA: u32 = 1;

/// Output of `bypass up --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Prepared<'a> {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = BYPASS_SCHEMA)))]
    schema: u32,
    #[serde(flatten)]
    bypass: &'a BypassStatus,
}

/// Output of `bypass status --json` and `bypass down --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Bypasses<'a, T> {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = BYPASS_SCHEMA)))]
    schema: u32,
    /// Bypasses, sorted by interface; `down` leaves out bypasses that it failed to remove.
    bypasses: &'a [T],
}

impl<'a> Prepared<'a> {
    pub(super) fn of(bypass: &'a BypassStatus) -> Self {
        Self { schema: BYPASS_SCHEMA, bypass }
    }
}

impl<'a, T> Bypasses<'a, T> {
    pub(super) fn of(bypasses: &'a [T]) -> Self {
        Self { schema: BYPASS_SCHEMA, bypasses }
    }
}

//! Network interfaces of the kernel below ports.

use serde::{Deserialize, Serialize};

/// An interface of the kernel that a virtual device of the app uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NetdevSample {
    /// Device name of the port.
    pub port: String,
    /// Name of the interface in the arguments of the app.
    pub interface: String,
    /// Whether it passes packets.
    pub state: NetdevState,
    /// Its name now, if it was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<String>,
}

/// Whether an interface passes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NetdevState {
    /// It is up.
    Up,
    /// It is up, but has no carrier.
    NoCarrier,
    /// It was set down.
    Down,
    /// The network namespace of the app has no interface of that name.
    Missing,
    /// It exists; more may not be read.
    Exists,
}

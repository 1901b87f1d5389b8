//! The lints, by their stable names.

use std::fmt;
use std::str::FromStr;

use crate::sample::SiteKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines [`Lint`] together with its names, so that none is missing.
macro_rules! lints {
    ($($(#[$doc:meta])+ $lint:ident = $name:literal,)+) => {
        /// The stable name of a kind of finding, in text, JSON, metrics and the configuration. Sorted
        /// by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Lint {
            $($(#[$doc])+ $lint,)+
        }

        impl Lint {
            /// All lints, sorted by name.
            pub const ALL: &[Self] = &[$(Self::$lint,)+];

            /// Returns its name, for instance `no_ports`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$lint => $name,)+
                }
            }
        }
    };
}

lints! {
    /// A cloud or hypervisor queues or drops packets above what it allows.
    AllowanceExceeded = "allowance_exceeded",
    /// An expected app does not run.
    AppMissing = "app_missing",
    /// A counter has a value that cannot be right.
    CounterImplausible = "counter_implausible",
    /// A device had faults or resets.
    DeviceEvents = "device_events",
    /// Mbufs were freed twice.
    DoubleFree = "double_free",
    /// The filter of an interface drops many packets. It concerns the host, not an app.
    Flood = "flood",
    /// Another tool captures from the app, or was killed while it did.
    ForeignCapture = "foreign_capture",
    /// A heap of the EAL grows, or is full.
    HeapExhausting = "heap_exhausting",
    /// Interrupts or other threads take the CPU of an lcore.
    LcoreStolen = "lcore_stolen",
    /// Mbufs are lost.
    Leak = "leak",
    /// A started port has no link.
    LinkDown = "link_down",
    /// The free mbufs of a pool are in the caches of lcores that do not allocate.
    MbufsCached = "mbufs_cached",
    /// The interface of the kernel below a port is missing, down, or without a carrier.
    NetdevDown = "netdev_down",
    /// An lcore does not poll any more, or none ever did.
    NoPolling = "no_polling",
    /// The app has no started port.
    NoPorts = "no_ports",
    /// Part of the app could not be read, so that its problems may be undetected.
    PartlySeen = "partly_seen",
    /// Pause frames slow a port or its link partner.
    PauseFrames = "pause_frames",
    /// Objects of a mempool are free more than once, or were changed after they were freed.
    PoolCorrupt = "pool_corrupt",
    /// A mempool is nearly empty, or will be.
    PoolExhausting = "pool_exhausting",
    /// A port is started and stopped, or its link changes, repeatedly.
    PortFlap = "port_flap",
    /// An expected device is not a port of the app.
    PortMissing = "port_missing",
    /// A port is stopped while others are started.
    PortStopped = "port_stopped",
    /// A receive queue gets many more packets than the others of its port.
    QueueImbalance = "queue_imbalance",
    /// The app restarts repeatedly.
    RestartLoop = "restart_loop",
    /// A software ring is full, or holds most mbufs of an empty pool.
    RingFull = "ring_full",
    /// The NIC or its driver discarded received packets.
    RxDiscards = "rx_discards",
    /// Packets were received with errors.
    RxErrors = "rx_errors",
    /// The NIC did not deliver packets that it was told to filter.
    RxFiltered = "rx_filtered",
    /// A port receives almost nothing, though it did before.
    RxFlat = "rx_flat",
    /// The NIC missed packets.
    RxMissed = "rx_missed",
    /// No mbuf could be allocated for received packets.
    RxNombuf = "rx_nombuf",
    /// A poll loop stalled.
    Stall = "stall",
    /// The app runs without telemetry.
    TelemetryOff = "telemetry_off",
    /// Packets could not be sent, or were dropped on their way out.
    TxErrors = "tx_errors",
    /// The driver refuses to send packets.
    TxRefused = "tx_refused",
    /// Nothing is sent, although packets are offered.
    TxStuck = "tx_stuck",
    /// A counter rises that seems to count losses, and that nothing explains.
    UnexplainedCounter = "unexplained_counter",
    /// The app does not answer.
    Unreachable = "unreachable",
    /// Mbufs were used after they were freed.
    UseAfterFree = "use_after_free",
    /// A device of the app is bound to a driver that DPDK cannot use.
    WrongDriver = "wrong_driver",
}

impl Lint {
    /// Whether it is about the host, and never about an app.
    pub fn is_about_host(self) -> bool {
        self == Self::Flood
    }

    /// Returns the lint for an event of mbufs at a site.
    pub fn of_site(kind: SiteKind) -> Self {
        match kind {
            SiteKind::DoubleFree => Self::DoubleFree,
            SiteKind::UseAfterFree => Self::UseAfterFree,
            SiteKind::Leak | SiteKind::TxLost | SiteKind::Pinned => Self::Leak,
        }
    }
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no lint has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no finding {0:?}")]
pub struct UnknownLint(pub String);

impl FromStr for Lint {
    type Err = UnknownLint;

    fn from_str(name: &str) -> Result<Self, UnknownLint> {
        let known = Self::ALL.iter().find(|lint| lint.name() == name);
        known.copied().ok_or_else(|| UnknownLint(name.to_owned()))
    }
}

impl Serialize for Lint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Lint {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Lint".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names = Self::ALL.iter().map(|lint| lint.name()).collect::<Vec<_>>();
        schemars::json_schema!({"type": "string", "enum": names})
    }
}

impl<'de> Deserialize<'de> for Lint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_read_back() {
        assert_eq!(Lint::ALL.len(), 40);
        assert!(Lint::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(Lint::ALL.windows(2).all(|pair| pair[0].name() < pair[1].name()));
        for lint in Lint::ALL {
            let json = serde_json::to_string(lint).unwrap();
            assert_eq!(json, format!("\"{lint}\""));
            assert_eq!(lint.name().parse().as_ref(), Ok(lint));
            assert_eq!(serde_json::from_str::<Lint>(&json).unwrap(), *lint);
        }
        assert_eq!("rx_mised".parse::<Lint>(), Err(UnknownLint("rx_mised".to_owned())));
        assert!(serde_json::from_str::<Lint>("\"Leak\"").is_err());
    }
}

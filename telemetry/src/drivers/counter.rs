//! The meaning of one extended counter of a driver.

use serde::{Deserialize, Serialize};

/// A part of the name of a counter that stands for a decimal number: of a queue, priority or traffic class.
const NUMBER: &str = "{n}";

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CounterKind {
    /// Packets that were lost for lack of something, such as buffers.
    Loss,
    /// Packets with errors, or that could not be sent.
    Error,
    /// Packets that the NIC was told not to deliver.
    Filtered,
    /// Pause frames of the link partner, which slow sending.
    PauseReceived,
    /// Pause frames to the link partner, which slow what it sends.
    PauseSent,
    /// Packets above what a cloud or hypervisor allows, which were queued or dropped.
    Limit,
    /// Faults and resets of a device, not packets.
    Event,
    /// Nothing that is lost, although the name seems to say so.
    Harmless,
}

/// Where on the way of a packet it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CounterPlace {
    /// On the cable, or in the network before it.
    Wire,
    /// In the MAC of the NIC.
    Mac,
    /// In the NIC, before its queues.
    Nic,
    /// At a receive queue.
    Queue,
    /// In the driver, after a queue.
    Driver,
    /// On the way out.
    Tx,
}

impl CounterPlace {
    /// Returns its name in JSON and in labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Mac => "mac",
            Self::Nic => "nic",
            Self::Queue => "queue",
            Self::Driver => "driver",
            Self::Tx => "tx",
        }
    }
}

/// Unit of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterUnit {
    /// Packets or frames.
    #[default]
    Packets,
    /// Bytes.
    Bytes,
    /// Events.
    Events,
    /// Nanoseconds.
    Ns,
    /// Something else, such as retries or segments.
    Other,
}

/// A basic counter of DPDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BasicCounter {
    /// Packets missed for lack of receive descriptors.
    Imissed,
    /// Received packets with errors.
    Ierrors,
    /// Packets that could not be sent.
    Oerrors,
    /// Failed allocations of receive buffers.
    RxNombuf,
}

impl BasicCounter {
    /// Returns its name in DPDK.
    pub fn name(self) -> &'static str {
        match self {
            Self::Imissed => "imissed",
            Self::Ierrors => "ierrors",
            Self::Oerrors => "oerrors",
            Self::RxNombuf => "rx_nombuf",
        }
    }
}

/// What a driver adds up in a basic counter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicMeaning {
    /// The counter.
    pub counter: BasicCounter,
    /// What it counts, as text.
    pub counts: String,
    /// The usual cause.
    #[serde(default)]
    pub cause: String,
    /// What to do.
    #[serde(default)]
    pub advice: String,
    /// Where its meaning is documented.
    #[serde(default)]
    pub source: String,
    /// Whether the driver never counts it.
    #[serde(default)]
    pub never: bool,
}

/// The meaning of a counter, and what to do when it rises.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverCounter {
    /// Its names in different releases; `{n}` stands for a decimal number.
    pub names: Vec<String>,
    /// What it counts.
    pub kind: CounterKind,
    /// Where it counts.
    pub place: CounterPlace,
    /// Why packets are counted, one word of a bounded set.
    pub reason: String,
    /// Unit of its value.
    #[serde(default)]
    pub unit: CounterUnit,
    /// Basic counters that include it.
    #[serde(default)]
    pub contained_in: Vec<BasicCounter>,
    /// What it counts, as text.
    pub counts: String,
    /// The usual cause.
    #[serde(default)]
    pub cause: String,
    /// What to do.
    #[serde(default)]
    pub advice: String,
    /// Releases of DPDK that have the name, for instance `21.11-`.
    #[serde(default)]
    pub releases: String,
    /// Where its meaning is documented.
    #[serde(default)]
    pub source: String,
}

impl DriverCounter {
    /// Whether it has that name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| matches(pattern, name))
    }

    /// Whether it counts packets on their way out.
    pub fn is_sending(&self) -> bool {
        self.place == CounterPlace::Tx
    }
}

/// Whether a name fits a pattern, in which `{n}` stands for decimal digits.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    strip(pattern, name).is_some_and(str::is_empty)
}

/// Returns the rest of a name that begins with a pattern.
pub(super) fn strip<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    let mut rest = name;
    for (at, literal) in pattern.split(NUMBER).enumerate() {
        if at > 0 {
            let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            rest = (after.len() < rest.len()).then_some(after)?;
        }
        rest = rest.strip_prefix(literal)?;
    }
    Some(rest)
}

/// Words in the name of a counter that seems to count losses.
const WORDS: [&str; 8] =
    ["discard", "drop", "error", "miss", "overrun", "exceed", "no_buf", "nombuf"];

/// Words that count only as a whole part of a name between underscores.
const PARTS: [&str; 7] = ["err", "errs", "fail", "fails", "failed", "overflow", "lost"];

/// Whether the name of a counter that no table has seems to count losses.
pub(super) fn seems_loss(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
        || name.split('_').any(|part| PARTS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_decimal_digits() {
        let pattern = "rx_prio{n}_buf_discard";
        assert!(
            matches(pattern, "rx_prio0_buf_discard") && matches(pattern, "rx_prio15_buf_discard")
        );
        for other in
            ["rx_prio_buf_discard", "rx_priox_buf_discard", "rx_prio0_buf_discards", "0", ""]
        {
            assert!(!matches(pattern, other), "{other}");
        }
        assert!(matches("a{n}b{n}", "a1b22") && !matches("a{n}b{n}", "a1b"));
        assert!(matches("rx_crc_errors", "rx_crc_errors"));
    }

    #[test]
    fn losses_are_known_by_their_words() {
        for name in ["rx_q3_Dropped", "vf_rx_missed", "no_buffer_count", "tx_q0_prepare_ctx_err"] {
            assert!(seems_loss(name), "{name}");
        }
        for name in ["rx_good_packets", "tx_q0_packets", "rx_interrupts", "errata_bytes"] {
            assert!(!seems_loss(name), "{name}");
        }
    }
}

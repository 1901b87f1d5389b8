//! The measurements to make.

/// A device of the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Device {
    /// `net_null`, which copies a packet of zeros for each received one.
    Null(u16),
    /// `net_pcap` that repeats a file, in which 1 % of the packets match the filter.
    Pattern(u16),
    /// `net_memif`, fed by a thread on the CPU of the capture.
    Memif(u16),
}

impl Device {
    /// All of them, in the order of their creation.
    pub(crate) const ALL: [Self; 6] = [
        Self::Null(64),
        Self::Null(1500),
        Self::Pattern(64),
        Self::Pattern(1500),
        Self::Memif(64),
        Self::Memif(1500),
    ];

    /// Packet size, bytes.
    pub(crate) fn size(self) -> u16 {
        match self {
            Self::Null(size) | Self::Pattern(size) | Self::Memif(size) => size,
        }
    }

    /// Device name in DPDK. Both sizes of memif are one device.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null(64) => "net_null0",
            Self::Null(_) => "net_null1",
            Self::Pattern(64) => "net_pcap0",
            Self::Pattern(_) => "net_pcap1",
            Self::Memif(_) => "net_memif0",
        }
    }

    /// Name in tables.
    pub(crate) fn label(self) -> String {
        let kind = match self {
            Self::Null(_) => "null",
            Self::Pattern(_) => "pcap",
            Self::Memif(_) => "memif",
        };
        format!("{kind} {} B", self.size())
    }

    /// Whether the device has a pattern in which only some packets match the filter.
    pub(crate) fn filtered(self) -> bool {
        matches!(self, Self::Pattern(_))
    }
}

/// Packets per second; 0 is as fast as possible.
pub(crate) type Rate = u64;

/// Device and settings of a measured capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) device: Device,
    pub(crate) snaplen: Option<u32>,
    /// To a file in tmpfs instead of `/dev/null`.
    pub(crate) file: bool,
    pub(crate) rate: Rate,
}

impl Case {
    /// Name in tables, without its rate.
    pub(crate) fn label(&self) -> String {
        let snaplen = self.snaplen.map_or(String::new(), |bytes| format!(" -s {bytes}"));
        let filter = if self.device.filtered() { ", 1 % filter" } else { "" };
        let sink = if self.file { "tmpfs" } else { "/dev/null" };
        format!("{}{snaplen}{filter}, {sink}", self.device.label())
    }
}

/// Cases measured at one device and rate, compared with windows of the same.
pub(crate) struct Group {
    pub(crate) device: Device,
    pub(crate) rate: Rate,
    pub(crate) cases: Vec<Case>,
}

/// A case at increasing rates.
pub(crate) struct Ladder {
    pub(crate) case: Case,
    pub(crate) rates: &'static [Rate],
}

const MODERATE: Rate = 1_000_000;
/// The feeding thread shares its CPU with the capture.
const FED: Rate = 500_000;

const SMALL: &[Rate] = &[
    500_000, 1_000_000, 2_000_000, 4_000_000, 6_000_000, 8_000_000, 10_000_000, 12_000_000,
    16_000_000, 20_000_000, 24_000_000, 28_000_000,
];
const LARGE: &[Rate] = &[
    100_000, 250_000, 500_000, 800_000, 1_000_000, 1_200_000, 1_400_000, 1_600_000, 2_000_000,
    3_000_000, 4_000_000, 6_000_000, 8_000_000,
];
const QUICK_SMALL: &[Rate] = &[1_000_000, 4_000_000, 8_000_000, 20_000_000];
const QUICK_LARGE: &[Rate] = &[250_000, 1_200_000];

fn group(device: Device, rate: Rate, snaplens: &[Option<u32>], files: &[bool]) -> Group {
    let case = |&snaplen| files.iter().map(move |&file| Case { device, snaplen, file, rate });
    Group { device, rate, cases: snaplens.iter().flat_map(case).collect() }
}

/// Cases for the cost per packet. A snap length of 64 contains a whole 64-byte packet, and the
/// output makes no difference for 1 % of the packets, so these are not measured twice.
pub(crate) fn groups(quick: bool) -> Vec<Group> {
    const FULL: &[Option<u32>] = &[None];
    const BOTH: &[Option<u32>] = &[Some(64), None];
    let rates: &[Rate] = if quick { &[MODERATE] } else { &[MODERATE, 0] };
    let mut groups = Vec::new();
    for &rate in rates {
        groups.push(group(Device::Null(64), rate, FULL, &[false, true]));
        groups.push(group(Device::Null(1500), rate, BOTH, &[false, true]));
        groups.push(group(Device::Pattern(64), rate, FULL, &[true]));
        groups.push(group(Device::Pattern(1500), rate, FULL, &[true]));
    }
    groups.push(group(Device::Memif(64), FED, FULL, &[true]));
    groups.push(group(Device::Memif(1500), FED, FULL, &[true]));
    groups
}

/// Cases for the highest rate without loss.
pub(crate) fn ladders(quick: bool) -> Vec<Ladder> {
    let ladder = |device: Device, snaplen: Option<u32>, file| {
        let rates = match (device.size() > 64 && snaplen.is_none(), quick) {
            (true, false) => LARGE,
            (false, false) => SMALL,
            (true, true) => QUICK_LARGE,
            (false, true) => QUICK_SMALL,
        };
        Ladder { case: Case { device, snaplen, file, rate: 0 }, rates }
    };
    let mut ladders = vec![
        ladder(Device::Null(64), None, false),
        ladder(Device::Null(64), None, true),
        ladder(Device::Null(1500), None, true),
    ];
    if !quick {
        ladders.push(ladder(Device::Null(1500), None, false));
        ladders.push(ladder(Device::Null(1500), Some(64), true));
    }
    ladders
}

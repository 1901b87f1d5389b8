//! The compared systems, and their loads.

/// How the kernel's side makes its system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Calls {
    /// One packet per call, as with `sendto` and `recvfrom`.
    Single,
    /// 32 packets per call: `sendmmsg` and `recvmmsg`.
    Batch,
    /// The same with messages of several packets: `UDP_SEGMENT` and `UDP_GRO`.
    Segments,
    /// 32 packets per call by `io_uring`.
    Uring,
}

impl Calls {
    /// Options of both programs.
    pub(crate) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Single => &["--batch", "1"],
            Self::Batch => &["--batch", "32"],
            Self::Segments => &["--batch", "64", "--gso", "--gro"],
            Self::Uring => &["--batch", "32", "--io", "uring"],
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Single => "1 packet per call",
            Self::Batch => "sendmmsg, recvmmsg",
            Self::Segments => "GSO, GRO",
            Self::Uring => "io_uring",
        }
    }
}

/// Two processes and the link between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum System {
    /// Sockets over `lo`.
    Loopback(Calls),
    /// Sockets over a veth between two namespaces.
    Veth(Calls),
    /// DPDK over the same kind of veth, by `AF_PACKET` sockets.
    AfPacket,
    /// DPDK over the same kind of veth, by `AF_XDP` sockets.
    AfXdp,
    /// DPDK over shared memory: virtio.
    Vhost,
    /// DPDK over shared memory: memif.
    Memif,
}

/// Baseline of all others: the result of a carefully written socket application.
pub(crate) const BASELINE: System = System::Veth(Calls::Batch);

const ALL: &[System] = &[
    System::Loopback(Calls::Batch),
    System::Loopback(Calls::Segments),
    System::Veth(Calls::Single),
    BASELINE,
    System::Veth(Calls::Segments),
    System::Veth(Calls::Uring),
    System::AfPacket,
    System::AfXdp,
    System::Vhost,
    System::Memif,
];

const QUICK: &[System] = &[
    System::Loopback(Calls::Batch),
    BASELINE,
    System::Veth(Calls::Segments),
    System::AfPacket,
    System::AfXdp,
    System::Memif,
];

/// Values of `--only`.
pub(crate) const BYPASSES: &[&str] = &["af_packet", "af_xdp", "virtio", "memif"];

/// Systems in the order of the tables: those of [`ALL`], or the baseline and one other.
pub(crate) fn systems(quick: bool, only: Option<&str>) -> Vec<System> {
    let systems = if quick { QUICK } else { ALL };
    let other = match only {
        None => return systems.to_vec(),
        Some("af_packet") => System::AfPacket,
        Some("af_xdp") => System::AfXdp,
        Some("virtio") => System::Vhost,
        Some(_) => System::Memif,
    };
    vec![BASELINE, other]
}

impl System {
    pub(crate) fn label(self) -> String {
        match self {
            Self::Loopback(calls) => format!("kernel, lo, {}", calls.label()),
            Self::Veth(calls) => format!("kernel, veth, {}", calls.label()),
            Self::AfPacket => "DPDK, veth, AF_PACKET".to_owned(),
            Self::AfXdp => "DPDK, veth, AF_XDP".to_owned(),
            Self::Vhost => "DPDK, virtio".to_owned(),
            Self::Memif => "DPDK, memif".to_owned(),
        }
    }
}

/// Load of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Load {
    /// Bytes of a frame on the wire, with its checksum (FCS).
    pub(crate) size: u32,
    /// Packets per second; 0: as many as possible.
    pub(crate) rate: u64,
}

/// The same for all systems, so that latencies can be compared.
pub(crate) const FIXED_RATE: u64 = 200_000;

const FCS: u32 = 4;

impl Load {
    pub(crate) const ALL: [Self; 4] = [
        Self { size: 64, rate: 0 },
        Self { size: 1500, rate: 0 },
        Self { size: 64, rate: FIXED_RATE },
        Self { size: 1500, rate: FIXED_RATE },
    ];

    /// The size as counted by the generators.
    pub(crate) fn frame(self) -> u32 {
        self.size - FCS
    }

    pub(crate) fn label(self) -> String {
        match self.rate {
            0 => format!("{} B, highest rate", self.size),
            rate => format!("{} B, {} kpps", self.size, rate / 1000),
        }
    }
}

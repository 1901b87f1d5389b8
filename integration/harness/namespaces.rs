//! Two network namespaces, joined by a virtual wire: traffic between them does not affect the rest
//! of the machine.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::process::run_to_success;

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Name of the interface at either end.
pub const INTERFACE: &str = "wire";

/// One of the two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where generators run.
    Near,
    /// Where reflectors run.
    Far,
}

impl Side {
    fn index(self) -> usize {
        match self {
            Self::Near => 0,
            Self::Far => 1,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    /// Its IPv4 address, of those that are reserved for benchmarks.
    pub fn address(self) -> &'static str {
        match self {
            Self::Near => "198.18.0.1",
            Self::Far => "198.18.0.2",
        }
    }

    /// Its MAC address.
    pub fn mac(self) -> &'static str {
        match self {
            Self::Near => "02:00:00:00:00:01",
            Self::Far => "02:00:00:00:00:02",
        }
    }
}

/// Two namespaces and the veth between them. Dropping it removes all three.
pub struct NamespacePair {
    names: [String; 2],
}

impl NamespacePair {
    /// Makes a pair in which the kernel has an address on these sides, and on which it sends nothing by
    /// itself: no ARP, no IPv6. A side that DPDK polls must have no address, or the kernel answers too.
    ///
    /// # Errors
    /// When the kernel has no such interfaces, or does not let us make them.
    pub fn new(kernel_sides: &[Side]) -> Result<Self> {
        Self::with_queues(kernel_sides, 1)
    }

    /// As [`NamespacePair::new`], with so many RX and TX queues at either end.
    ///
    /// # Errors
    /// As [`NamespacePair::new`].
    pub fn with_queues(kernel_sides: &[Side], queues: u32) -> Result<Self> {
        let (pid, serial) = (std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let pair =
            Self { names: ["near", "far"].map(|end| format!("pmdscope-{pid}.{serial}-{end}")) };
        for name in &pair.names {
            ip(&["netns", "add", name])?;
        }
        let [near, far] = &pair.names;
        let queues = queues.to_string();
        let queues = ["numtxqueues", &queues, "numrxqueues", &queues];
        let end = |side: Side, namespace| {
            let end = [INTERFACE, "address", side.mac(), "netns", namespace];
            [&end[..], &queues].concat()
        };
        let (near, far) = (end(Side::Near, near), end(Side::Far, far));
        ip(&[&["link", "add"], &near[..], &["type", "veth", "peer", "name"], &far].concat())?;
        for side in [Side::Near, Side::Far] {
            let name = pair.name(side);
            ip(&["-n", name, "link", "set", INTERFACE, "addrgenmode", "none"])?;
            ip(&["-n", name, "link", "set", INTERFACE, "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            if kernel_sides.contains(&side) {
                pair.assign(side)?;
            }
        }
        Ok(pair)
    }

    fn assign(&self, side: Side) -> Result<()> {
        let name = self.name(side);
        let (own, other) = (format!("{}/24", side.address()), side.other());
        ip(&["-n", name, "address", "add", &own, "dev", INTERFACE])?;
        ip(&[
            "-n",
            name,
            "neighbour",
            "replace",
            other.address(),
            "lladdr",
            other.mac(),
            "nud",
            "permanent",
            "dev",
            INTERFACE,
        ])
    }

    /// Makes the kernel write whole checksums into what it sends there, as DPDK's `net_af_packet` needs.
    ///
    /// # Errors
    /// When `ethtool` is missing or fails.
    pub fn write_checksums(&self, side: Side) -> Result<()> {
        run_to_success(self.command(side, "ethtool").args(["-K", INTERFACE, "tx", "off"])).map(drop)
    }

    /// The name of a side's namespace.
    pub fn name(&self, side: Side) -> &str {
        &self.names[side.index()]
    }

    /// A command that runs in the namespace of a side.
    pub fn command(&self, side: Side, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name(side))).arg(program.as_ref());
        command
    }

    /// The same on one CPU.
    pub fn pinned(&self, side: Side, cpu: usize, program: impl AsRef<Path>) -> Command {
        let mut command = self.command(side, "taskset");
        command.args(["-c", &cpu.to_string()]).arg(program.as_ref());
        command
    }

    /// A counter of the kernel for a side, such as `Udp` and `InDatagrams`, from `/proc/net/snmp`.
    ///
    /// # Errors
    /// When the kernel has no such counter.
    pub fn counter(&self, side: Side, protocol: &str, name: &str) -> Result<u64> {
        let text = run_to_success(self.command(side, "cat").arg("/proc/net/snmp"))?;
        let prefix = format!("{protocol}:");
        let mut rows = text.lines().filter(|line| line.starts_with(&prefix));
        let (names, values) = (rows.next().unwrap_or_default(), rows.next().unwrap_or_default());
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        let value = pairs.find_map(|(known, value)| (known == name).then_some(value));
        Ok(value.with_context(|| format!("no counter {protocol} {name}"))?.parse()?)
    }
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<()> {
    run_to_success(Command::new("ip").args(args)).map(drop)
}

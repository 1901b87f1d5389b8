//! The only requests that pmdscope makes of an app.
//!
//! DPDK has telemetry commands that crash the app on an unknown id, change its state, or touch the
//! hardware. So there is no way to send arbitrary text: a request is a [`TelemetryCommand`], and the
//! ids in it can only come from the app's own lists.

use std::fmt;

use crate::error::TelemetryError;

/// Longest request that DPDK reads completely, bytes.
const MAX_REQUEST: usize = 1023;

/// A port id from `/ethdev/list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortId(pub(crate) u16);

impl PortId {
    /// Returns the number of the port in DPDK.
    pub fn number(self) -> u16 {
        self.0
    }
}

/// A pool name from `/mempool/list`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolName(pub(crate) String);

/// A ring name from `/ring/list`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingName(pub(crate) String);

/// A heap id from `/eal/heap_list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeapId(pub(crate) u16);

/// An lcore id from `/eal/lcore/list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LcoreId(pub(crate) u32);

/// A memzone id from `/eal/memzone_list`. Any other id crashes the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemzoneId(pub(crate) u32);

/// Time for which the stamps of the leak ledger are armed, seconds; 0 disarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmTime(u32);

impl ArmTime {
    /// Longest time, seconds.
    pub const MAX: u32 = 86_400;

    /// Disarms.
    pub const NONE: Self = Self(0);

    /// Returns this number of seconds; `None` beyond [`ArmTime::MAX`].
    pub fn seconds(seconds: u32) -> Option<Self> {
        (seconds <= Self::MAX).then_some(Self(seconds))
    }
}

/// A table of libpmdscope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibraryTable {
    /// Mempools.
    Pools,
    /// Queues of ports, with histograms.
    Queues,
    /// Queues without histograms and names of devices, so that a page has several times as many rows.
    /// Older libraries do not have it.
    QueueCounters,
    /// Software rings.
    Rings,
    /// Polling lcores.
    Lcores,
    /// Rings of capture sessions.
    Tee,
    /// Ledgers of mbuf pools.
    Leaks,
    /// Sites that lost mbufs.
    Sites,
    /// Places that hold mbufs.
    Stages,
    /// Events of ports.
    Ports,
}

impl LibraryTable {
    /// Returns its name in the `tables` list of `/pmdscope`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pools => "pools",
            Self::Queues => "queues",
            Self::QueueCounters => "queue_counters",
            Self::Rings => "rings",
            Self::Lcores => "lcores",
            Self::Tee => "tee",
            Self::Leaks => "leaks",
            Self::Sites => "sites",
            Self::Stages => "stages",
            Self::Ports => "ports",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Pools => "/pmdscope/pools",
            Self::Queues => "/pmdscope/queues",
            Self::QueueCounters => "/pmdscope/queue_counters",
            Self::Rings => "/pmdscope/rings",
            Self::Lcores => "/pmdscope/lcores",
            Self::Tee => "/pmdscope/tee",
            Self::Leaks => "/pmdscope/leaks",
            Self::Sites => "/pmdscope/sites",
            Self::Stages => "/pmdscope/stages",
            Self::Ports => "/pmdscope/ports",
        }
    }
}

/// A request that is safe for any DPDK app since 21.11, unless its description names a later release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TelemetryCommand {
    /// The commands that the app supports.
    Commands,
    /// Arguments of the EAL.
    EalParams,
    /// Port ids.
    EthdevList,
    /// Configuration of a port.
    EthdevInfo(PortId),
    /// Basic counters of a port.
    EthdevStats(PortId),
    /// Extended counters of a port.
    EthdevXstats(PortId),
    /// Link of a port.
    EthdevLinkStatus(PortId),
    /// A receive queue of a port, by its number, since DPDK 23.07. It crashes an app with a driver
    /// that names no pool: only [`DescriptorReader`](crate::collect::descriptors) makes it, for
    /// reviewed drivers.
    EthdevRxQueue(PortId, u16),
    /// Pool names.
    MempoolList,
    /// One pool.
    MempoolInfo(PoolName),
    /// Ring names, since DPDK 24.03.
    RingList,
    /// One ring, since DPDK 24.03.
    RingInfo(RingName),
    /// Ids of the heaps.
    HeapList,
    /// One heap.
    HeapInfo(HeapId),
    /// Ids of the memzones.
    MemzoneList,
    /// One memzone.
    MemzoneInfo(MemzoneId),
    /// Cycles of all lcores, since DPDK 23.03.
    LcoreUsage,
    /// Ids of the lcores, since DPDK 23.03.
    LcoreList,
    /// Role and CPUs of one lcore, since DPDK 23.03.
    LcoreInfo(LcoreId),
    /// libpmdscope itself.
    Library,
    /// The page of a libpmdscope table that starts at this row.
    Page(LibraryTable, u64),
    /// Arms or disarms the stamps of the leak ledger: the only request that changes anything, and it
    /// changes only how fast leaks are found.
    Arm(ArmTime),
}

impl TelemetryCommand {
    /// Returns the command, which is also the only key of its reply.
    pub fn command(&self) -> &'static str {
        match self {
            Self::Commands => "/",
            Self::EalParams => "/eal/params",
            Self::EthdevList => "/ethdev/list",
            Self::EthdevInfo(_) => "/ethdev/info",
            Self::EthdevStats(_) => "/ethdev/stats",
            Self::EthdevXstats(_) => "/ethdev/xstats",
            Self::EthdevLinkStatus(_) => "/ethdev/link_status",
            Self::EthdevRxQueue(..) => "/ethdev/rx_queue",
            Self::MempoolList => "/mempool/list",
            Self::MempoolInfo(_) => "/mempool/info",
            Self::RingList => "/ring/list",
            Self::RingInfo(_) => "/ring/info",
            Self::HeapList => "/eal/heap_list",
            Self::HeapInfo(_) => "/eal/heap_info",
            Self::MemzoneList => "/eal/memzone_list",
            Self::MemzoneInfo(_) => "/eal/memzone_info",
            Self::LcoreUsage => "/eal/lcore/usage",
            Self::LcoreList => "/eal/lcore/list",
            Self::LcoreInfo(_) => "/eal/lcore/info",
            Self::Library => "/pmdscope",
            Self::Page(table, _) => table.command(),
            Self::Arm(_) => "/pmdscope/arm",
        }
    }

    /// Returns the bytes to send.
    pub(crate) fn request(&self) -> Result<String, TelemetryError> {
        let request = self.to_string();
        if request.len() > MAX_REQUEST {
            return Err(TelemetryError::Oversized { bytes: request.len() });
        }
        Ok(request)
    }
}

impl fmt::Display for TelemetryCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.command();
        match self {
            Self::EthdevInfo(port)
            | Self::EthdevStats(port)
            | Self::EthdevXstats(port)
            | Self::EthdevLinkStatus(port) => write!(f, "{command},{}", port.0),
            Self::EthdevRxQueue(port, queue) => write!(f, "{command},{},{queue}", port.0),
            Self::MempoolInfo(pool) => write!(f, "{command},{}", pool.0),
            Self::RingInfo(ring) => write!(f, "{command},{}", ring.0),
            Self::HeapInfo(heap) => write!(f, "{command},{}", heap.0),
            Self::MemzoneInfo(memzone) => write!(f, "{command},{}", memzone.0),
            Self::LcoreInfo(lcore) => write!(f, "{command},{}", lcore.0),
            Self::Arm(time) => write!(f, "{command},{}", time.0),
            Self::Page(_, offset) if *offset > 0 => write!(f, "{command},{offset}"),
            _ => f.write_str(command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spelled_as_dpdk_reads_them() {
        let pool = TelemetryCommand::MempoolInfo(PoolName("mb_pool_0".into()));
        assert_eq!(pool.request().unwrap(), "/mempool/info,mb_pool_0");
        assert_eq!(TelemetryCommand::EthdevStats(PortId(3)).request().unwrap(), "/ethdev/stats,3");
        let queue = TelemetryCommand::EthdevRxQueue(PortId(3), 12);
        assert_eq!(queue.to_string(), "/ethdev/rx_queue,3,12");
        assert_eq!(TelemetryCommand::HeapInfo(HeapId(2)).to_string(), "/eal/heap_info,2");
        let memzone = TelemetryCommand::MemzoneInfo(MemzoneId(7));
        assert_eq!(memzone.to_string(), "/eal/memzone_info,7");
        assert_eq!(
            TelemetryCommand::Page(LibraryTable::Pools, 0).request().unwrap(),
            "/pmdscope/pools"
        );
        assert_eq!(
            TelemetryCommand::Page(LibraryTable::Tee, 40).request().unwrap(),
            "/pmdscope/tee,40"
        );
        let arm = |seconds| ArmTime::seconds(seconds).map(|t| TelemetryCommand::Arm(t).to_string());
        assert_eq!(arm(60).as_deref(), Some("/pmdscope/arm,60"));
        assert_eq!(TelemetryCommand::Arm(ArmTime::NONE).to_string(), "/pmdscope/arm,0");
        assert_eq!(arm(86_401), None);
    }

    #[test]
    fn a_request_that_dpdk_would_cut_is_refused() {
        let fits = "x".repeat(MAX_REQUEST - "/ring/info,".len());
        assert!(TelemetryCommand::RingInfo(RingName(fits.clone())).request().is_ok());
        let error = TelemetryCommand::RingInfo(RingName(fits + "x")).request().unwrap_err();
        assert!(matches!(error, TelemetryError::Oversized { bytes: 1024 }));
    }
}

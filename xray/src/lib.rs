//! Reads the mempools, rings and mbufs of a running DPDK app from outside: the app needs no change, is
//! never stopped and never written to.
//!
//! Data flow: [`Memory`] reads the process; [`Layout`] has the offsets of the fields of DPDK's
//! structures; [`XrayTarget`] has the memzones of the app and finds its pools in them. Arithmetic with
//! numbers of the app is that of [`Address`] and [`AddressRange`].

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod access;
mod address;
mod budget;
mod core_file;
mod counts;
mod cpus;
mod debug_info;
mod error;
mod field;
mod holder_text;
mod holders;
mod layout;
mod memory;
mod memory_config;
mod memzone;
mod open;
mod pagemap;
mod peek;
mod presence;
mod reader;
mod report;
mod scan;
mod search;
mod shared_files;
mod target;
#[cfg(test)]
mod test_memory;
mod thread;

pub use access::AccessDenial;
pub use address::{Address, AddressRange};
pub use budget::ReadBudget;
pub use core_file::{CoreMemory, CoreThread, MissingMemory};
pub use counts::{Counts, PoolCount, RingCount, counts};
pub use cpus::leave_polled_cpus;
pub use error::XrayError;
pub use holders::{HolderId, HolderMap, HolderSources};
pub use layout::{
    CacheLayout, EthDevDataLayout, EthDevLayout, EthDevSharedLayout, EthFpOpsLayout, FbarrayLayout,
    Layout, LcoreConfigLayout, MallocElemLayout, MallocHeapLayout, MbufLayout, MemConfigLayout,
    MemhdrLayout, MempoolLayout, MempoolOpsLayout, MempoolOpsTableLayout, MemsegListLayout,
    MemzoneLayout, ObjhdrLayout, PktmbufPoolLayout, RingLayout, SharedInfoLayout,
    StackElementLayout, StackLayout, TailqEntryLayout, TailqHeadLayout,
};
pub use memory::{Memory, ProcessMemory, read_array, read_u16, read_u32, read_u64};
pub use memory_config::MemoryConfig;
pub use memzone::Memzone;
pub use peek::{PacketSampler, SampledPacket, SamplerCounts};
pub use pmdscope_telemetry::host::maps::Mapping;
pub use presence::Presence;
pub use reader::XrayReader;
pub use report::{Holder, HolderCount, LostMbuf, MOST_LISTED, PoolScan, ScanReport};
pub use scan::{
    CorruptObject, CorruptPool, FreeObjects, MOST_PACKET_BYTES, PoolHandler, Progress,
    ScanSettings, corrupt_pools, packet, scan,
};
pub use target::{Pool, XrayTarget};
pub use thread::AppThread;

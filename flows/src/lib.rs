//! Conversations: the packets between two endpoints on captured ports, counted in bounded memory.
//!
//! [`FlowTable`] is a packet sink. It counts each packet for its [`Flow`], and once a second publishes
//! a [`FlowSnapshot`], which is all that views, reports and exporters show. It reports ended, evicted
//! and long conversations to a [`FlowListener`], such as [`ipfix::IpfixExporter`].

// Only the binary prints text, after it has replaced control characters.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
// Tests truncate numbers to bytes.
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod content;
mod counters;
mod dissect;
mod entry;
mod ether_types;
pub mod filter;
mod flow;
mod index;
pub mod ipfix;
mod key;
mod latest_snapshot;
mod listener;
mod ports;
mod protocols;
mod rate_windows;
mod snapshot_builder;
mod store;
mod table;
mod tcp;

pub use self::content::PacketContent;
pub use self::flow::{
    Flow, FlowEnd, FlowEndpoint, FlowPlace, FlowSnapshot, IcmpKind, OtherEtherType, PacketCounts,
    ProtocolCounts, QueueCounts, SNAPLEN, SenderCounts, TcpState, Tunnel, UnknownLink,
    UnlistedPackets, standard_error,
};
pub use self::latest_snapshot::LatestSnapshot;
pub use self::listener::{FlowEndReason, FlowListener};
pub use self::protocols::protocol_name;
pub use self::rate_windows::RATE_WINDOWS;
pub use self::table::{CAPACITY, FlowTable, FlowTableSettings};

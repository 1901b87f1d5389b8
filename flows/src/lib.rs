//! Conversations: who talks to whom through the ports that are captured, in bounded memory.
//!
//! Packets come to [`FlowTable`] as to any other sink. It counts each for its [`Flow`], and once a
//! second gives out a [`FlowSnapshot`], which is all that views, reports and exporters show. What became of
//! conversations it tells a [`FlowListener`], such as [`ipfix::IpfixExporter`].

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
// Tests cut numbers into bytes.
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod content;
mod counters;
mod dissect;
mod entry;
mod flow;
mod index;
pub mod ipfix;
mod key;
mod latest_snapshot;
mod listener;
mod ports;
mod rate_windows;
mod snapshot_builder;
mod store;
mod table;
mod tcp;

pub use self::content::PacketContent;
pub use self::flow::{
    Flow, FlowEnd, FlowEndpoint, FlowPlace, FlowSnapshot, PacketCounts, ProtocolCounts,
    QueueCounts, SNAPLEN, SenderCounts, TcpState, Tunnel, UnknownLink, UnlistedPackets,
    standard_error,
};
pub use self::latest_snapshot::LatestSnapshot;
pub use self::listener::{FlowEndReason, FlowListener};
pub use self::rate_windows::RATE_WINDOWS;
pub use self::table::{CAPACITY, FlowTable, FlowTableSettings};

//! Packets, wherever they come from, and where they go: files, memory, or whatever takes them.
//!
//! A source, which is a live capture or [`read::FileReplay`], hands each [`Packet`] to one [`PacketSink`]:
//! [`file::CaptureFiles`] writes them at once, [`recorder::FlightRecorder`] keeps the last seconds until a trigger
//! fires. [`filter`] says which packets are meant, [`pcapng`]
//! is the format that files and pipes share, [`RunControl`] ends a source from outside.

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
// Tests cut numbers into bytes.
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod byte_order;
mod clock;
mod control;
pub mod file;
pub mod filter;
mod link_type;
mod open_files;
mod packet;
pub mod pcapng;
pub mod read;
pub mod recorder;
mod shared;
mod sink;

pub use self::control::RunControl;
pub use self::link_type::link_type_name;
pub use self::open_files::allow_many_files;
pub use self::packet::{
    CaptureInterface, DIR_RX, DIR_TX, ETHERNET, InterfaceStatistics, MAX_SNAPLEN, Packet,
    PacketWith, SectionOrigin,
};
pub use self::shared::{PacketData, SharedBytes, SharedRegion};
pub use self::sink::{CallbackSink, NullSink, PacketSink, SinkError, SinkEvent, SinkProgress};

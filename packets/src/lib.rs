//! Packets from captures and files, and sinks that take them: files, memory or others.
//!
//! A source is a live capture or a [`read::FileReplay`]. It passes each [`Packet`] to one
//! [`PacketSink`]: [`file::CaptureFiles`] writes packets at once, [`recorder::FlightRecorder`] keeps
//! the last seconds until a trigger fires. [`filter`] selects packets, [`pcapng`] is the format of
//! files and pipes, and [`RunControl`] stops a source.

// Only the binary prints text, after it has replaced control characters.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
// Tests truncate numbers to bytes.
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod byte_order;
mod clock;
mod control;
pub mod file;
pub mod filter;
mod link_type;
mod open_files;
mod options;
mod packet;
pub mod pcapng;
pub mod read;
pub mod recorder;
mod shared;
mod sink;

pub use self::control::RunControl;
pub use self::link_type::{link_type_description, link_type_name};
pub use self::open_files::allow_many_files;
pub use self::packet::{
    CaptureInterface, DIR_RX, DIR_TX, ETHERNET, InterfaceStatistics, MAX_SNAPLEN, Packet,
    PacketWith, SectionOrigin,
};
pub use self::shared::{PacketData, SharedBytes, SharedRegion};
pub use self::sink::{CallbackSink, NullSink, PacketSink, SinkError, SinkEvent, SinkProgress};

//! Packets, wherever they come from, and where they go: files, memory, or whatever takes them.
//!
//! A source, which is a live capture or [`read::Replay`], hands each [`Packet`] to one [`Target`]:
//! [`file::Files`] writes them at once, [`recorder::Recorder`] keeps the last seconds until a trigger
//! fires, [`Several`] hands them to more than one. [`filter`] says which packets are meant, [`pcapng`]
//! is the format that files and pipes share, [`Control`] ends a source from outside.

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
// Tests cut numbers into bytes.
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod clock;
mod control;
pub mod file;
pub mod filter;
mod packet;
pub mod pcapng;
pub mod read;
pub mod recorder;
mod target;

pub use self::clock::wall_clock_ns;
pub use self::control::Control;
pub use self::packet::{
    DIR_RX, DIR_TX, ETHERNET, Interface, MAX_SNAPLEN, Origin, Packet, Statistics,
};
pub use self::target::{Discard, Progress, Several, Target, TargetError};

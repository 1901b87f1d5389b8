//! Reads capture rings of DPDK apps.
//!
//! [`Transport`] reaches an app directly, through the helper of [`pdump`], or as a sample by
//! [`peek`]; [`CaptureSession`] requests its rings, [`Ring`] copies records out of them, `merge`
//! sorts them by time, `clock` converts their time stamps, and a [`pmdscope_packets::PacketSink`]
//! receives them. [`leak`] requests packets that an app has lost instead. [`CaptureLoop`] runs all
//! this until it is stopped. `docs/ring.md` describes the protocol.

// Only the binary prints text, because it replaces control characters.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
// Tests truncate numbers to bytes.
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

pub mod budget;
mod capture_loop;
mod clock;
pub mod layout;
pub mod leak;
mod merge;
mod output;
pub mod pdump;
pub mod peek;
#[cfg(test)]
mod producer;
mod protocol;
mod records;
mod ring;
mod ring_writer;
mod session;
mod source;
mod transport;

pub use self::capture_loop::{
    CaptureError, CaptureLoop, CaptureObserver, CaptureReport, CaptureRingName, REORDER_WINDOW,
    RingReport, RingSinkOpener,
};
pub use self::records::RingRecordError;
pub use self::ring::{Ring, RingCounters, RingError};
pub use self::session::{CaptureSession, SessionError, SessionEvent};
pub use self::source::{CapturePort, CaptureSettings, CaptureSource, ReopenApp};
pub use self::transport::{Transport, TransportError};

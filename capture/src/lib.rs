//! Reads capture rings of DPDK apps.
//!
//! [`Transport`] reaches an app, by itself, through the helper of [`pdump`], or as a sample by [`peek`]; [`CaptureSession`] asks for its
//! rings, [`Ring`] copies records out of them, `merge` puts them in order, `clock` gives them a
//! time, a [`pmdscope_packets::PacketSink`] takes them.
//! [`leak`] asks for packets that an app has lost instead. [`CaptureLoop`] runs all this until it is told
//! to stop. `docs/ring.md` has the rules.

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
// Tests cut numbers into bytes.
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

//! Conversations: who talks to whom through the ports that are captured, in bounded memory.
//!
//! Packets come to [`table::Table`] as to any other sink. It counts each for its [`Flow`], and once a
//! second gives out a [`Snapshot`], which is all that views, reports and exporters show. What became of
//! conversations it tells a [`table::Listener`], such as [`ipfix::Exporter`].

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
// Tests cut numbers into bytes.
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod dissect;
mod draft;
mod entry;
mod flow;
mod index;
pub mod ipfix;
mod key;
mod ports;
mod store;
pub mod table;
mod tally;
mod tcp;

pub use self::flow::{
    Counts, End, Endpoint, Flow, Other, Place, Protocols, Queue, SNAPLEN, Snapshot, TcpState,
    Tunnel, Ways, standard_error,
};

//! Reads capture rings of DPDK apps.
//!
//! [`transport`] reaches an app, by itself or through the helper of [`pdump`]; [`session`] asks for its
//! rings, [`ring`] copies records out of them, [`merge`] puts them in order, [`clock`] gives them a
//! time, a [`pmdscope_packets::Target`] takes them.
//! [`leak`] asks for packets that an app has lost instead. [`pump`] runs all this until it is told
//! to stop. `docs/ring.md` has the rules.

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
// Tests cut numbers into bytes.
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

pub mod budget;
pub mod clock;
pub mod layout;
pub mod leak;
pub mod merge;
mod output;
pub mod pdump;
#[cfg(test)]
mod producer;
mod protocol;
pub mod pump;
pub mod records;
pub mod ring;
pub mod session;
pub mod source;
pub mod transport;

//! What all commands print, as text: tables that fit any width, numbers with units, bars, and the
//! words for apps, conversations and ledgers.
//!
//! Nothing here knows a terminal: a piece of text has a [`Tone`], and what a tone looks like is decided
//! by those who draw. Text of apps is made harmless by [`pmdscope_telemetry::printable`] on its way
//! into a table.

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod cells;
pub mod conversation;
mod graph;
mod leak_sites;
pub mod ledger;
pub mod number;
mod subject;
mod table;
mod text_table;
mod theme;

pub use graph::{Graph, burst_labels, doubling_labels, histogram};
pub use leak_sites::{Paths, pool_left_s, sites};
pub use subject::{Key, Subject, direction_word, way};
pub use table::{Align, Cell, Column, Lines, Row, Sort, Table, TextLine, TextSpan};
pub use text_table::table_text;
pub use theme::{Theme, Tone};

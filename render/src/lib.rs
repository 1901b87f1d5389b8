//! What all commands print, as text: tables that fit any width, numbers with units, bars, and the
//! words for apps, conversations and ledgers.
//!
//! Nothing here depends on a terminal: a piece of text has a [`Tone`], and the code that draws it
//! decides what a tone looks like. Text of apps is made harmless by [`pmdscope_telemetry::printable`]
//! on its way into a table.

// Only the binary prints text, where it is made harmless.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod area;
pub mod cells;
pub mod conversation;
mod filter;
mod graph;
mod leak_sites;
pub mod ledger;
pub mod number;
pub mod pool_scan;
mod subject;
mod table;
mod text_line;
mod theme;

pub use area::{AreaGraph, axis_top};
pub use filter::{FilterError, RowFilter, TableFilter};
pub use graph::{Graph, HeatCell, burst_labels, doubling_labels, histogram};
pub use leak_sites::{PathStyle, leak_sites};
pub use subject::{ConversationKey, Subject, direction_name, direction_word};
pub use table::{
    Cell, Column, ColumnUnit, CounterMode, SortOrder, TableLayout, TableRow, TextAlign, TextTable,
    cut, table_lines, table_text,
};
pub use text_line::{TextLine, TextSpan, fitted, plain_text};
pub use theme::{Palette, TextColor, Theme, Tone};

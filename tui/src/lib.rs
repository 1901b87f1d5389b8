//! Terminal views over the telemetry model.
//!
//! [`pmdscope_telemetry::FleetState`] applies events from the sampling side; `tables` turns it into tables
//! of [`pmdscope_render`]; `screen::render` draws them on a terminal, [`report`] prints them without
//! one. `input` makes a key an [`action::Action`], which `update` carries out on the
//! [`state::ViewState`]. Only [`run`] and `terminal` touch a terminal.
//!
//! Below, modules import those of their own group and of groups above it, never in a circle.

// Only the binary prints text, where it is made harmless.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

// Styles, clocks, and words for all that is shown.
mod app_state;
mod clock;
mod style;

// Data: what there is to show, what a key asks for, what the user has chosen.
pub mod action;
pub mod flows;
pub mod keys;
mod page;
pub mod state;
pub mod task;
pub mod timeline;

// State and model become graphs, tables and lines of text.
mod findings;
mod layout;
mod panels;
mod tables;

// What is made of tables: details of a row, a report, command lines that do the same, commands that are
// typed, windows.
pub mod columns;
mod commands;
mod detail;
mod overlay;
mod prompt;
pub mod report;

// A key becomes an action, and an action changes the state.
mod input;
mod update;

// The screen, and the loop that shows it.
pub mod run;
mod sampling_interval;
mod screen;
mod terminal;

#[cfg(test)]
mod fixture;

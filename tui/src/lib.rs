//! Terminal views over the telemetry model.
//!
//! [`pmdscope_telemetry::FleetState`] applies events from the sampling side; `tables` turns it into tables
//! of [`pmdscope_render`]; `screen::render` draws them on a terminal, [`report`] prints them without
//! one. [`keys`] become [`action::Action`]s that change the [`state::ViewState`]. Only [`run`] and
//! `terminal` touch a terminal.

// Text leaves where it is made harmless: in the binary.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

pub mod action;
mod app_state;
mod clock;
pub mod columns;
mod commands;
mod detail;
mod findings;
#[cfg(test)]
mod fixture;
pub mod flows;
mod input;
pub mod keys;
mod layout;
mod overlay;
mod page;
mod panels;
pub mod report;
pub mod run;
mod sampling_interval;
mod screen;
pub mod state;
mod style;
mod tables;
pub mod task;
mod terminal;
pub mod timeline;
mod update;

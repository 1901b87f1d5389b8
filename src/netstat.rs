//! `pmdscope netstat`: the reports of netstat and ss, for ports that the kernel does not see.

mod args;
mod conversations;
mod counters;
pub(crate) mod document;
#[cfg(test)]
pub(crate) mod fixture;
mod follow;
mod format;
mod interfaces;
mod ipfix;
mod legacy_options;
mod listen;
mod live;
mod offline;
mod queues;
mod report_data;
mod report_layout;
pub(crate) mod resolver;
mod row_filter;
mod statistics;

use std::process::ExitCode;

use anyhow::{Context, Result};

pub(crate) use self::args::Args;
use self::args::ReportView;
pub(crate) use self::legacy_options::{adapt, explain};
use self::report_data::{AppCounters, ReportData};
pub(crate) use self::report_data::{directions, name};
use self::report_layout::ReportLayout;
use crate::{capture, output};

/// Shows what the command line asks for.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.check()?;
    // Refused before anything is captured.
    args.asked().context("the filter of conversations is wrong")?;
    let control = capture::control(false)?;
    if args.reads_files() && args.continuous {
        follow::run(args, &control)
    } else if args.reads_files() {
        offline::run(args, &control)
    } else if args.view() == ReportView::Interfaces || args.replays() {
        counters::run(args, &control)
    } else {
        live::run(args, &control)
    }
}

/// Prints a report; false when the output is closed.
fn show(args: &Args, data: &ReportData, layout: &ReportLayout) -> Result<bool> {
    if args.json {
        return document::print(args, data);
    }
    let text = match args.view() {
        ReportView::Conversations => conversations::text(args, data, layout),
        ReportView::Listen => listen::text(args, data, layout),
        ReportView::Statistics => statistics::text(data),
        ReportView::Queues => queues::text(args, data, layout),
        ReportView::Interfaces => interfaces::text(data, layout),
    };
    if layout.is_redrawn() && !output::clear_terminal()? {
        return Ok(false);
    }
    output::print(&text)
}

/// Prints the document of no app, where one was asked for.
pub(crate) fn print_empty(args: &Args) -> Result<()> {
    if args.json {
        let counters = Some(AppCounters::default());
        document::print(args, &ReportData { counters, ..ReportData::default() })?;
    }
    Ok(())
}

//! `pmdscope netstat`: what netstat and ss said, for ports that the kernel does not see.

mod args;
mod conversations;
mod counters;
mod document;
#[cfg(test)]
pub(crate) mod fixture;
mod interfaces;
mod ipfix;
mod listen;
mod live;
mod moment;
mod offline;
mod paper;
mod picked;
mod queues;
mod statistics;
mod words;

use std::process::ExitCode;

use anyhow::Result;

pub(crate) use self::args::Args;
use self::args::View;
use self::moment::Moment;
pub(crate) use self::moment::{directions, name};
use self::paper::Paper;
use crate::{capture, output};

/// Shows what the command line asks for.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.check()?;
    let control = capture::control(false)?;
    if args.reads_files() {
        offline::run(args, &control)
    } else if args.view() == View::Interfaces || args.replays() {
        counters::run(args, &control)
    } else {
        live::run(args, &control)
    }
}

/// Prints a moment; false when nobody reads any more.
fn show(args: &Args, moment: &Moment, paper: &Paper) -> Result<bool> {
    if args.json {
        return document::print(args, moment);
    }
    let text = match args.view() {
        View::Conversations => conversations::text(args, moment, paper),
        View::Listen => listen::text(args, moment, paper),
        View::Statistics => statistics::text(moment),
        View::Queues => queues::text(args, moment, paper),
        View::Interfaces => interfaces::text(moment, paper),
    };
    if paper.is_redrawn() && !output::clear_terminal()? {
        return Ok(false);
    }
    output::print(&text)
}

//! `pmdscope capture`: tcpdump for ports that the kernel does not see.

mod args;
mod destination;
mod events;
pub(crate) mod list;
mod live;
mod offline;
mod privileges;
mod recorder;
mod report;
mod signals;
pub(crate) mod statistics;
mod status;
mod trigger;
mod view;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;

use pmdscope_packets::{RunControl, filter};

use self::args::Command;
pub(crate) use self::args::{Args, Direction, explain};
pub(crate) use self::offline::{plain, reading};
pub(crate) use self::signals::{control, end_in_order};
use crate::output::{self, say};

/// Heading of the options that `-h` lists: none, which leaves room for more options.
const COMMON: Option<&str> = None;

/// Does what the command line asks for.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(Command::Trigger(args)) = &args.command {
        return trigger::run(args);
    }
    args.check()?;
    if let Some(code) = list::answer(args)? {
        return Ok(code);
    }
    let expression = args.expression()?;
    if let Some(listing) = args.listing() {
        let program = args.compiler().compile(&expression)?;
        output::print(&filter::list(&program, listing))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.prints_packets() {
        // Before apps are asked for packets.
        view::find_tcpdump()?;
    }
    let control =
        RunControl { abandon: Some(Arc::default()), ..signals::control(!args.recorder.wanted())? };
    if args.reads_files() {
        offline::run(args, &expression, &control)
    } else {
        live::run(args, &expression, &control)
    }
}

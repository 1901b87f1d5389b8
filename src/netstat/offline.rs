//! Conversations of capture files.

use std::process::ExitCode;

use anyhow::Result;
use pmdscope_flows::FlowTable;
use pmdscope_packets::read::{FileReplay, ReplayError, ReplaySettings};
use pmdscope_packets::{MAX_SNAPLEN, RunControl};
use pmdscope_render::number::plural;

use super::args::Args;
use super::ipfix::{self, IpfixExport};
use super::report_data::{PacketLosses, ReportData};
use super::report_layout::ReportLayout;
use super::show;
use crate::bundle::open::capture_files;
use crate::{capture, output};

/// Counts what is in the files; what could be read of a broken one is shown before its error.
pub(super) fn run(args: &Args, control: &RunControl) -> Result<ExitCode> {
    capture::end_in_order(control)?;
    let export = ipfix::listener(&args.ipfix, 1, true)?;
    let status = export.as_ref().map(|export| export.status.clone());
    let (data, failure) = count(args, control, export)?;
    show(args, &data, &ReportLayout::new(args))?;
    let complete = status.is_none_or(|status| {
        status.notices().iter().for_each(|line| output::tell(line));
        output::tell(&ipfix::line(&status));
        ipfix::is_complete(&status)
    });
    match failure {
        Some(failure) => Err(capture::plain(failure)),
        None if complete => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::FAILURE),
    }
}

/// Which packets to read.
pub(super) fn settings(args: &Args) -> ReplaySettings {
    ReplaySettings {
        filter: args.expression(),
        optimize: true,
        dirs: args.direction().bits(),
        snaplen: MAX_SNAPLEN,
        skip: 0,
        count: None,
    }
}

fn count(
    args: &Args,
    control: &RunControl,
    export: Option<IpfixExport>,
) -> Result<(ReportData, Option<ReplayError>)> {
    let files = capture_files(&args.read)?;
    let progress = capture::reading(&files, control, false);
    let replay = FileReplay::open_named(files, settings(args), control).map_err(capture::plain)?;
    let (mut table, latest) = FlowTable::new(args.table(export));
    let report = replay.run(&mut table, &mut |report| {
        output::tell(&format!("{} read", plural(report.read, "packet")));
    });
    drop(progress);
    let data = ReportData {
        snapshot: Some(latest.get()),
        losses: PacketLosses { undirected: report.undirected, ..PacketLosses::default() },
        filtered: !args.expression().is_empty(),
        asked: args.asked()?,
        thresholds: args.thresholds()?,
        names: args.resolver()?,
        ..ReportData::default()
    };
    Ok((data, report.failure))
}

#[cfg(test)]
mod tests;

//! Reads packets from capture files.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::bail;
use pmdscope_packets::read::{
    CaptureFile, FileReplay, ReplayError, ReplaySettings, have_several_interfaces,
};
use pmdscope_packets::{CaptureInterface, RunControl, link_type_description};
use pmdscope_render::number::plural_noun;

use super::args::Args;
use super::destination::{self, Destination};
use super::events::EventPrinter;
use super::{privileges, report, say};
use crate::bundle::open::{bundle_of, capture_files};
use crate::file_kind::{self, FileKind};
use crate::output::{self, StandardOutput};
use crate::progress::Progress;

/// Moves the packets of files to where they are wanted.
pub(super) fn run(args: &Args, expression: &str, control: &RunControl) -> anyhow::Result<ExitCode> {
    privileges::relinquish(args.relinquish_privileges.as_deref())?;
    super::end_in_order(control)?;
    let given = args.inputs()?;
    let on_disk = given.iter().map(|input| bundle_of(input).map_or(&**input, |(bundle, _)| bundle));
    let on_disk = on_disk.map(Path::to_owned).collect::<Vec<_>>();
    if let Some(input) = destination::overwritten(&on_disk, args.files.write.as_deref()) {
        let input_is =
            if input.is_dir() { "read, and has the output" } else { "both input and output" };
        bail!("{} is {input_is}: give -w another file", input.display());
    }
    let inputs = capture_files(&given)?;
    let name =
        |file: &CaptureFile| if file.path == Path::new("-") { "-" } else { &file.name }.to_owned();
    let files = inputs.iter().flat_map(|file| std::iter::once(file).chain(&file.merged));
    let files = files.map(name).collect::<Vec<_>>();
    let settings = ReplaySettings {
        filter: expression.to_owned(),
        optimize: args.compiler().optimize,
        dirs: args.direction.bits(),
        snaplen: args.snaplen(),
        skip: args.skip,
        count: args.count,
    };
    let shown = !args.count_only && (args.files.write.is_none() || args.files.print);
    let several = shown && have_several_interfaces(&inputs, &control.stop);
    // Packets on the terminal show themselves how far it is.
    let progress =
        reading(&inputs, control, args.quiet || (shown && StandardOutput::is_terminal()));
    let replay = FileReplay::open_named(inputs, settings, control);
    let replay = replay.map_err(|failure| match given.as_slice() {
        [only] => file_kind::explain(plain(failure), only, FileKind::Capture),
        _ => plain(failure),
    })?;
    if !args.quiet {
        started(&files, &replay.interfaces().collect::<Vec<_>>());
    }
    report::writing(args);
    let several = several || replay.interfaces().filter(|i| !i.name.is_empty()).count() > 1;
    let Destination { mut target, events, .. } =
        Destination::of_files(args, replay.begin_ns(), several, control)?;
    let events = EventPrinter::start(events, args.event_filter());
    let report = replay.run(&mut *target, &mut |report| say(report::replayed(report)));
    drop(progress);
    drop(target);
    drop(events);
    if args.count_only {
        output::print(&(report::packets(report.captured) + "\n"))?;
    }
    if !args.quiet {
        report::undirected(report.undirected);
    }
    report::unwritten(&report.progress);
    match report.failure {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => Err(plain(failure)),
    }
}

/// The progress of a replay of files.
pub(crate) fn reading(files: &[CaptureFile], control: &RunControl, quiet: bool) -> Progress {
    let what = match files {
        [file] if file.merged.is_empty() => {
            let name = Path::new(&file.name);
            format!("reading {}", name.file_name().unwrap_or(name.as_os_str()).display())
        }
        _ => "reading capture files".to_owned(),
    };
    let total = files.iter().map(CaptureFile::disk_bytes).sum();
    let read = Arc::clone(&control.bytes_read);
    Progress::read(&what, total, move || read.load(Ordering::Relaxed), quiet)
}

fn started(names: &[String], interfaces: &[&CaptureInterface]) {
    let files = plural_noun(names.len() as u64, "file");
    let about = interfaces.first().map_or(String::new(), |first| {
        let mut linktypes =
            interfaces.iter().map(|interface| interface.linktype).collect::<Vec<_>>();
        let mut seen = BTreeSet::new();
        linktypes.retain(|linktype| seen.insert(*linktype));
        let types = if linktypes.len() == 1 { "link-type" } else { "link-types" };
        let linktypes = linktypes.into_iter().map(link_type_description).collect::<Vec<_>>();
        let linktypes = linktypes.join(", ");
        format!(", {types} {linktypes}, snapshot length {}", first.snaplen)
    });
    say(format_args!("reading from {files} {}{about}", names.join(", ")));
}

/// The error within, by whose kind the exit code goes.
pub(crate) fn plain(failure: ReplayError) -> anyhow::Error {
    match failure {
        ReplayError::Read(error) => error.into(),
        ReplayError::Filter(error) => error.into(),
        ReplayError::Sink(error) => error.into(),
    }
}

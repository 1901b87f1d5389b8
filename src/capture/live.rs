//! A capture from running apps.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use pmdscope_capture::budget::CpuBudget;
use pmdscope_capture::{CaptureLoop, CaptureSettings, Transport};
use pmdscope_packets::RunControl;
use pmdscope_packets::filter::BpfInsn;

use super::args::{Args, Direction};
use super::destination::{self, Destination};
use super::statistics::Document;
use super::watch::CaptureProgress;
use super::{privileges, report, say};
use crate::attach::peek::PeekedPorts;
use crate::attach::{CaptureOptions, resolve};
use crate::{attach, output};

/// Captures until told to stop.
pub(super) fn run(args: &Args, expression: &str, control: &RunControl) -> anyhow::Result<ExitCode> {
    let program = args.compiler().compile_for_app(expression)?;
    let source = &args.source;
    let mut found = source.config.load()?.settings;
    found.discover.stop = Arc::clone(&control.stop).into();
    let app = source.app.as_deref();
    let wanted = resolve::resolve(&source.interfaces, app, found, source.attach.attach())?;
    let ask = ask(args, program);
    // No app is asked for packets that nobody reads.
    let stream = destination::await_reader(args, control)?;
    let opened = attach::open_all(wanted, &ask, !source.exit_with_app, control)?;
    let (wanted, sources): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
    let peeked = PeekedPorts::begin(wanted.iter());
    privileges::relinquish(args.relinquish_privileges.as_deref())?;
    let destination = Destination::of_apps(args, &wanted, stream, control)?;
    let settings = CaptureSettings {
        snaplen: args.snaplen(),
        skip: args.skip,
        count: args.count,
        duration: args.source.duration,
        filter: expression.to_owned(),
        outgoing: args.direction != Direction::In,
    };
    if !args.quiet {
        report::started(&wanted, args.snaplen(), args.view().verbose > 0);
        if let Some(status) = &destination.recorder {
            say(report::recording(status));
        }
    }
    report::writing(args);
    let recorder = destination.recorder.clone();
    let helped = wanted.iter().any(|wanted| matches!(wanted.transport, Transport::Pdump(_)));
    let budget = (source.samples_by_losses() && peeked.is_none())
        .then(|| CpuBudget::unlimited(control, helped));
    let mut watch =
        CaptureProgress::new(args, control, destination.events, destination.recorder, budget);
    let capture = match destination.rings {
        Some((threads, open)) => CaptureLoop::parallel(sources, settings, threads, open)
            .context("cannot start the threads of --parallel")?,
        None => CaptureLoop::new(sources, settings, destination.target),
    };
    let report = capture.run(control, &mut watch);
    let idle = watch.close();
    if args.count_only {
        output::print(&(report::packets(report.captured) + "\n"))?;
    }
    if args.json {
        output::print_json(&Document::new(&report))?;
    }
    if !args.quiet {
        report::ended(&wanted, &report, recorder.as_deref(), idle);
        if let Some(peeked) = peeked {
            say(peeked.coverage(report.rings.seen()).line());
        }
    }
    match report.failure {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => Err(failure.into()),
    }
}

/// What the command line asks of every app.
fn ask(args: &Args, program: Vec<BpfInsn>) -> CaptureOptions {
    CaptureOptions {
        snaplen: args.snaplen(),
        sample: args.source.sample(),
        ring_size: args.source.ring_size(),
        fixed_ring_size: args.source.has_ring_size(),
        flags: args.source.flags(),
        dirs: args.direction.bits().into(),
        program,
    }
}

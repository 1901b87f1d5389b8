//! A capture from running apps.

use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use pmdscope_capture::layout::{ANY, Insn, Request, Select};
use pmdscope_capture::pump::{Control, Port, Pump, Reopen, Settings, Source};
use pmdscope_capture::session::Session;

use super::args::{Args, Direction};
use super::destination::Destination;
use super::interface::{self, Target, Wanted};
use super::watch::Watch;
use super::{privileges, report};
use crate::output;

/// How long an app may take to answer a request.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Captures until told to stop.
pub(super) fn run(args: &Args, expression: &str, control: &Control) -> anyhow::Result<ExitCode> {
    let program = args.compiler().compile_for_app(expression)?;
    let source = &args.source;
    let found = source.config.load()?.settings;
    let wanted = interface::resolve(&source.interfaces, source.app.as_deref(), found)?;
    let sources = wanted
        .iter()
        .map(|wanted| open(args, wanted, &program))
        .collect::<anyhow::Result<Vec<_>>>()?;
    privileges::relinquish(args.relinquish_privileges.as_deref())?;
    let destination = Destination::of_apps(args, &wanted)?;
    let settings = Settings {
        snaplen: args.snaplen(),
        skip: args.skip,
        count: args.count,
        duration: args.source.duration,
        filter: expression.to_owned(),
        outgoing: args.direction != Direction::In,
    };
    if !args.quiet {
        report::started(&wanted, args.snaplen());
    }
    let mut watch = Watch::new(args, destination.events, destination.recorder);
    let report = Pump::new(sources, settings, destination.target).run(control, &mut watch);
    let idle = watch.close();
    if args.count_only {
        output::print(&(report::packets(report.captured) + "\n"))?;
    }
    if !args.quiet {
        report::ended(&report, idle);
    }
    match report.failure {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => Err(failure.into()),
    }
}

/// Arms the capture in one app.
fn open(args: &Args, wanted: &Wanted, program: &[Insn]) -> anyhow::Result<Source> {
    let options = Options {
        snaplen: args.snaplen(),
        sample: args.source.sample(),
        ring_size: args.source.ring_size(),
        flags: args.source.flags(),
        dirs: args.direction.bits().into(),
        program: program.to_vec(),
    };
    let session = Session::open(&wanted.socket, &options.request(wanted), TIMEOUT)
        .with_context(|| format!("cannot capture from {}", wanted.app))?;
    let (app, ports) = (wanted.app.clone(), wanted.ports());
    let reopen = (!args.source.exit_with_app).then(|| reopen(wanted.clone(), options));
    Ok(Source { app, ports, session, sample: args.source.sample(), reopen })
}

/// What every session with an app asks for.
#[derive(Clone)]
struct Options {
    snaplen: u32,
    sample: u32,
    ring_size: u32,
    flags: u32,
    dirs: u16,
    program: Vec<Insn>,
}

impl Options {
    fn request(&self, wanted: &Wanted) -> Request {
        let select = |target: &Target| Select {
            port: target.port.unwrap_or(ANY),
            queue: target.queue.unwrap_or(ANY),
            dirs: self.dirs,
        };
        Request {
            snaplen: self.snaplen,
            sample: self.sample,
            ring_size: self.ring_size,
            lease_ms: 0,
            selects: wanted.targets.iter().map(select).collect(),
            program: self.program.clone(),
            flags: self.flags,
        }
    }
}

/// Ports and session of an app that was found.
type Found = Option<(Vec<Port>, Session)>;

/// Looks for an app that has ended. It may take its time to answer, and the rings of other apps
/// cannot wait for that: each look is a thread.
fn reopen(wanted: Wanted, options: Options) -> Reopen {
    let mut look: Option<JoinHandle<Found>> = None;
    Box::new(move || match look.take() {
        Some(running) if !running.is_finished() => {
            look = Some(running);
            None
        }
        Some(over) => over.join().ok().flatten(),
        None => {
            let (wanted, options) = (wanted.clone(), options.clone());
            look = std::thread::Builder::new().spawn(move || again(&wanted, &options)).ok();
            None
        }
    })
}

fn again(wanted: &Wanted, options: &Options) -> Found {
    let now = wanted.again()?;
    let session = Session::open(&now.socket, &options.request(&now), TIMEOUT).ok()?;
    Some((now.ports(), session))
}

//! Taps: captures in apps that run, found by the names that people use, for whatever looks at packets.

pub(crate) mod attach;
pub(crate) mod door;
pub(crate) mod interface;
mod preflight;

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use pmdscope_capture::door::settle;
use pmdscope_capture::layout::{ANY, Insn, Request, Select};
use pmdscope_capture::pump::{Port, Reopen, Source};
use pmdscope_capture::session::Session;

use self::interface::{Target, Wanted};
use crate::output;

/// How long an app may take to answer a request.
const TIMEOUT: Duration = Duration::from_secs(3);

/// How long helpers may take to leave their apps before people are told, and at all.
const LEAVE: Duration = Duration::from_secs(1);
const LEAVE_AT_ALL: Duration = Duration::from_secs(10);

/// What every session with an app asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    /// Most bytes of a packet.
    pub(crate) snaplen: u32,
    /// One packet in so many; 0 and 1 are all.
    pub(crate) sample: u32,
    /// Bytes of a ring; 0 leaves it to the app.
    pub(crate) ring_size: u32,
    /// `TEE_*` flags of a request.
    pub(crate) flags: u32,
    /// `DIR_*` bits.
    pub(crate) dirs: u16,
    /// Filter.
    pub(crate) program: Vec<Insn>,
}

impl Ask {
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

/// Arms a capture in an app. One that is awaited is reached again when it comes back.
///
/// # Errors
///
/// When the app does not hand out its packets.
pub(crate) fn open(wanted: &Wanted, ask: &Ask, awaited: bool) -> anyhow::Result<Source> {
    let session = wanted
        .door
        .open(&ask.request(wanted), TIMEOUT)
        .with_context(|| format!("cannot capture from {}", wanted.app))?;
    let (app, ports) = (wanted.app.clone(), wanted.ports());
    let reopen = awaited.then(|| reopen(wanted.clone(), ask.clone()));
    Ok(Source { app, via: wanted.door.via(), ports, session, sample: ask.sample, reopen })
}

/// Arms a capture in each of the apps. Of those that nobody named, because they are part of `any`, some
/// may be left out, which people are told; what comes back are the others.
///
/// # Errors
///
/// When an app does not hand out its packets though it was named, or none does.
pub(crate) fn open_all(
    wanted: Vec<Wanted>,
    ask: &Ask,
    awaited: bool,
) -> anyhow::Result<Vec<(Wanted, Source)>> {
    let mut opened = Vec::new();
    let mut failed = None;
    for wanted in wanted {
        match open(&wanted, ask, awaited) {
            Ok(source) => opened.push((wanted, source)),
            Err(error) if wanted.is_named() => return Err(error),
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    leave_out(&earlier);
                }
            }
        }
    }
    match failed {
        Some(error) if opened.is_empty() => Err(error),
        failed => {
            failed.iter().for_each(leave_out);
            Ok(opened)
        }
    }
}

/// Tells people about an app that is not part of `any`.
fn leave_out(error: &anyhow::Error) {
    output::tell(&output::one_line(&format!("left out: {error:#}")));
}

/// Waits until no helper of ours is in an app any more, which it is no longer than this process needs to
/// be sure that the app has let go of it.
pub(crate) fn leave() {
    let there = settle(LEAVE);
    if there.is_empty() {
        return;
    }
    output::tell(&format!("waiting for {} to leave the app", helpers(&there)));
    let there = settle(LEAVE_AT_ALL);
    if !there.is_empty() {
        output::tell(&format!(
            "{} still has to leave the app, and will by itself: do not kill it",
            helpers(&there)
        ));
    }
}

fn helpers(pids: &[u32]) -> String {
    let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    format!("pmdscope-pdump (process {pids})")
}

/// Ports and session of an app that was found.
type Found = Option<(Vec<Port>, Session)>;

/// Looks for an app that has ended. It may take its time to answer, and the rings of other apps
/// cannot wait for that: each look is a thread.
fn reopen(wanted: Wanted, ask: Ask) -> Reopen {
    let mut look: Option<JoinHandle<Found>> = None;
    Box::new(move || match look.take() {
        Some(running) if !running.is_finished() => {
            look = Some(running);
            None
        }
        Some(over) => over.join().ok().flatten(),
        None => {
            let (wanted, ask) = (wanted.clone(), ask.clone());
            look = std::thread::Builder::new().spawn(move || again(&wanted, &ask)).ok();
            None
        }
    })
}

fn again(wanted: &Wanted, ask: &Ask) -> Found {
    let now = wanted.again()?;
    let session = now.door.open(&ask.request(&now), TIMEOUT).ok()?;
    Some((now.ports(), session))
}

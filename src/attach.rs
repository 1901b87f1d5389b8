//! Captures in apps that run, found by the names that people use, for all commands that read
//! packets.

pub(crate) mod flow_capture;
pub(crate) mod interface;
pub(crate) mod peek;
pub(crate) mod policy;
mod preflight;
pub(crate) mod resolve;
pub(crate) mod running;
pub(crate) mod target;
pub(crate) mod transport;
pub(crate) mod unavailable;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use pmdscope_capture::layout::{ANY, CaptureRequest, QueueSelect};
use pmdscope_capture::pdump::{remaining_state_files, wait_for_exits};
use pmdscope_capture::{CapturePort, CaptureSession, CaptureSource, ReopenApp, Transport};
use pmdscope_packets::RunControl;
use pmdscope_packets::filter::BpfInsn;

use self::interface::PortSelector;
use self::target::CaptureTarget;
use crate::{capture, output};

/// How long an app may take to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for helpers to leave their apps before that is reported, and the limit.
const DETACH_NOTICE_TIMEOUT: Duration = Duration::from_secs(1);
const DETACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Pauses between tries to get into an app that is there and refuses.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// What every session with an app asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaptureOptions {
    /// Most bytes of a packet.
    pub(crate) snaplen: u32,
    /// One packet in so many; 0 and 1 are all.
    pub(crate) sample: u32,
    /// Bytes of a ring; 0 leaves it to the app.
    pub(crate) ring_size: u32,
    /// Smaller rings will not do if an app has no memory for these.
    pub(crate) fixed_ring_size: bool,
    /// `TEE_*` flags of a request.
    pub(crate) flags: u32,
    /// `DIR_*` bits.
    pub(crate) dirs: u16,
    /// Filter.
    pub(crate) program: Vec<BpfInsn>,
}

impl CaptureOptions {
    fn request(&self, wanted: &CaptureTarget) -> CaptureRequest {
        let select = |target: &PortSelector| QueueSelect {
            port: target.port.unwrap_or(ANY),
            queue: target.queue.unwrap_or(ANY),
            dirs: self.dirs,
        };
        CaptureRequest {
            snaplen: self.snaplen,
            sample: self.sample,
            ring_size: self.ring_size,
            shrinks: !self.fixed_ring_size,
            lease_ms: 0,
            selects: wanted.targets.iter().map(select).collect(),
            program: self.program.clone(),
            flags: self.flags,
        }
    }
}

/// Arms a capture in an app, unless told to stop. One that is awaited is reached again when it comes
/// back.
///
/// # Errors
///
/// When the app does not hand out its packets, or had not done so when told to stop.
pub(crate) fn open(
    wanted: &CaptureTarget,
    options: &CaptureOptions,
    awaited: bool,
    stop: &AtomicBool,
) -> anyhow::Result<CaptureSource> {
    let session = wanted
        .transport
        .open(&options.request(wanted), ANSWER_TIMEOUT, stop)
        .with_context(|| failure(wanted))?;
    let (app, ports) = (wanted.app.clone(), wanted.ports());
    let reopen = awaited.then(|| reopen(wanted.clone(), options.clone()));
    Ok(CaptureSource {
        app,
        via: wanted.transport.via(),
        ports,
        session: Some(session),
        sample: options.sample,
        reopen,
    })
}

/// What has failed, and what may help.
fn failure(wanted: &CaptureTarget) -> String {
    let help = match wanted.transport {
        Transport::Pdump(_) => " (--peek samples its packets without attaching)",
        Transport::Library(_) | Transport::Peek(_) => "",
    };
    format!("cannot capture from {}{help}", wanted.app)
}

/// Arms a capture in each of the apps. Of those that were not named, because they are part of `any`,
/// some may be left out, which is reported; the others are returned. From now on, a signal ends the command
/// in order: it has something to give back.
///
/// # Errors
///
/// When an app does not hand out its packets though it was named, or none does, or when told to stop.
pub(crate) fn open_all(
    wanted: Vec<CaptureTarget>,
    options: &CaptureOptions,
    awaited: bool,
    control: &RunControl,
) -> anyhow::Result<Vec<(CaptureTarget, CaptureSource)>> {
    capture::end_in_order(control)?;
    let stop = &*control.stop;
    let mut opened = Vec::new();
    let mut failed = None;
    for wanted in wanted {
        match open(&wanted, options, awaited, stop) {
            Ok(source) => {
                if let Some(remark) = source.session.as_ref().and_then(CaptureSession::remark) {
                    output::tell(&format!("{}: {remark}", wanted.app));
                }
                opened.push((wanted, source));
            }
            Err(error) if wanted.is_named() || stop.load(Ordering::Relaxed) => return Err(error),
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    leave_out(&earlier);
                }
            }
        }
    }
    match failed {
        Some(error) if opened.is_empty() => Err(error),
        None if opened.is_empty() => bail!("cannot capture from any app, for the reasons above"),
        failed => {
            failed.iter().for_each(leave_out);
            Ok(opened)
        }
    }
}

/// Reports an app that is not part of `any`.
fn leave_out(error: &anyhow::Error) {
    output::tell(&format!("left out: {error:#}"));
}

/// Waits until all helpers have detached from their apps and exited, and reports those that have not, and
/// what they had to leave in an app.
pub(crate) fn leave() {
    wait_for_helpers();
    for state in remaining_state_files() {
        output::tell(&format!(
            "the app could not be waited for: memory of this capture stays in it, and the next capture \
             frees that ({})",
            state.display()
        ));
    }
}

fn wait_for_helpers() {
    let there = wait_for_exits(DETACH_NOTICE_TIMEOUT);
    if there.is_empty() {
        return;
    }
    output::tell(&format!("waiting for {} to leave the app", helpers(&there)));
    let there = wait_for_exits(DETACH_TIMEOUT);
    if !there.is_empty() {
        output::tell(&format!(
            "{} is still detaching from the app: do not kill it",
            helpers(&there)
        ));
    }
}

fn helpers(pids: &[u32]) -> String {
    let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    format!("pmdscope-pdump (process {pids})")
}

/// The result of an attempt to reach an app.
enum ConnectResult {
    Connected(Vec<CapturePort>, CaptureSession),
    Absent,
    /// It is there, and refuses.
    Refused,
}

/// Reconnects to an app that has ended. It may take its time to answer, and the rings of other apps
/// cannot wait for that: each attempt is a thread.
struct Reconnector {
    wanted: CaptureTarget,
    options: CaptureOptions,
    attempt: Option<JoinHandle<ConnectResult>>,
    backoff: Backoff,
    /// The app is no longer awaited.
    stop: Arc<AtomicBool>,
}

fn reopen(wanted: CaptureTarget, options: CaptureOptions) -> ReopenApp {
    let (attempt, backoff, stop) = (None, Backoff::default(), Arc::default());
    let mut reconnector = Reconnector { wanted, options, attempt, backoff, stop };
    Box::new(move || reconnector.poll())
}

impl Reconnector {
    fn poll(&mut self) -> Option<(Vec<CapturePort>, CaptureSession)> {
        match self.attempt.take() {
            Some(running) if !running.is_finished() => self.attempt = Some(running),
            Some(over) => match over.join().unwrap_or(ConnectResult::Refused) {
                ConnectResult::Connected(ports, session) => return Some((ports, session)),
                seen => self.backoff.note(matches!(seen, ConnectResult::Refused), Instant::now()),
            },
            None if self.backoff.is_pause(Instant::now()) => {}
            None => {
                let (wanted, options) = (self.wanted.clone(), self.options.clone());
                let stop = Arc::clone(&self.stop);
                let attempt = move || reconnect(&wanted, &options, &stop);
                self.attempt = std::thread::Builder::new().spawn(attempt).ok();
            }
        }
        None
    }
}

impl Drop for Reconnector {
    /// A helper that is on its way into the app is released before this process ends.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.attempt.take().map(JoinHandle::join);
    }
}

fn reconnect(wanted: &CaptureTarget, options: &CaptureOptions, stop: &AtomicBool) -> ConnectResult {
    let Some(now) = resolve::again(wanted) else { return ConnectResult::Absent };
    match now.transport.open(&options.request(&now), ANSWER_TIMEOUT, stop) {
        Ok(session) => ConnectResult::Connected(now.ports(), session),
        Err(_) => ConnectResult::Refused,
    }
}

/// Exponential backoff: each time that the app refuses, there is a longer pause, because a helper that
/// becomes a secondary process is work for the app.
#[derive(Debug, Default)]
struct Backoff {
    pause: Duration,
    until: Option<Instant>,
}

impl Backoff {
    fn note(&mut self, refused: bool, now: Instant) {
        self.pause =
            if refused { (self.pause * 2).clamp(BACKOFF_MIN, BACKOFF_MAX) } else { Duration::ZERO };
        self.until = Some(now + self.pause);
    }

    fn is_pause(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apps_that_refuse_are_left_alone_for_longer_each_time() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        assert!(!backoff.is_pause(now));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            backoff.note(true, now);
            let before = now;
            while backoff.is_pause(now) {
                now += BACKOFF_MIN / 2;
            }
            pauses.push((now - before).as_millis());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        backoff.note(false, now);
        assert!(!backoff.is_pause(now));
        backoff.note(true, now);
        assert!(backoff.is_pause(now) && !backoff.is_pause(now + BACKOFF_MIN));
    }
}

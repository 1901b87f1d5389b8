//! Taps: captures in apps that run, found by the names that people use, for whatever looks at packets.

pub(crate) mod attach;
pub(crate) mod door;
pub(crate) mod flows;
pub(crate) mod interface;
mod preflight;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use pmdscope_capture::layout::{ANY, CaptureRequest, QueueSelect};
use pmdscope_capture::pdump::{left_behind, settle};
use pmdscope_capture::{CapturePort, CaptureSession, CaptureSource, ReopenApp};
use pmdscope_packets::filter::BpfInsn;

use self::interface::{Target, Wanted};
use crate::output;

/// How long an app may take to answer a request.
const TIMEOUT: Duration = Duration::from_secs(3);

/// How long helpers may take to leave their apps before people are told, and at all.
const LEAVE: Duration = Duration::from_secs(1);
const LEAVE_AT_ALL: Duration = Duration::from_secs(10);

/// Pauses between tries to get into an app that is there and refuses.
const KNOCK_MIN: Duration = Duration::from_millis(500);
const KNOCK_MAX: Duration = Duration::from_secs(30);

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
    pub(crate) program: Vec<BpfInsn>,
}

impl Ask {
    fn request(&self, wanted: &Wanted) -> CaptureRequest {
        let select = |target: &Target| QueueSelect {
            port: target.port.unwrap_or(ANY),
            queue: target.queue.unwrap_or(ANY),
            dirs: self.dirs,
        };
        CaptureRequest {
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

/// Arms a capture in an app, unless told to stop. One that is awaited is reached again when it comes
/// back.
///
/// # Errors
///
/// When the app does not hand out its packets, or had not done so when told to stop.
pub(crate) fn open(
    wanted: &Wanted,
    ask: &Ask,
    awaited: bool,
    stop: &AtomicBool,
) -> anyhow::Result<CaptureSource> {
    let session = wanted
        .door
        .open(&ask.request(wanted), TIMEOUT, stop)
        .with_context(|| format!("cannot capture from {}", wanted.app))?;
    let (app, ports) = (wanted.app.clone(), wanted.ports());
    let reopen = awaited.then(|| reopen(wanted.clone(), ask.clone()));
    Ok(CaptureSource { app, via: wanted.door.via(), ports, session, sample: ask.sample, reopen })
}

/// Arms a capture in each of the apps. Of those that nobody named, because they are part of `any`, some
/// may be left out, which people are told; what comes back are the others.
///
/// # Errors
///
/// When an app does not hand out its packets though it was named, or none does, or when told to stop.
pub(crate) fn open_all(
    wanted: Vec<Wanted>,
    ask: &Ask,
    awaited: bool,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<(Wanted, CaptureSource)>> {
    let mut opened = Vec::new();
    let mut failed = None;
    for wanted in wanted {
        match open(&wanted, ask, awaited, stop) {
            Ok(source) => opened.push((wanted, source)),
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
        failed => {
            failed.iter().for_each(leave_out);
            Ok(opened)
        }
    }
}

/// Tells people about an app that is not part of `any`.
pub(crate) fn leave_out(error: &anyhow::Error) {
    output::tell(&format!("left out: {error:#}"));
}

/// Waits until no helper of ours is in an app any more, which it is no longer than this process needs to
/// be sure that the app has let go of it.
pub(crate) fn leave() {
    wait_for_helpers();
    for state in left_behind() {
        output::tell(&format!(
            "the app could not be waited for: memory of this capture stays in it, and the next capture \
             frees that ({})",
            state.display()
        ));
    }
}

fn wait_for_helpers() {
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

/// What a look for an app has found.
enum Look {
    Found(Vec<CapturePort>, CaptureSession),
    Absent,
    /// It is there, and its door does not open.
    Closed,
}

/// Looks for an app that has ended. It may take its time to answer, and the rings of other apps
/// cannot wait for that: each look is a thread.
struct Lookout {
    wanted: Wanted,
    ask: Ask,
    look: Option<JoinHandle<Look>>,
    knocks: Knocks,
    /// Nobody waits for the app any more.
    stop: Arc<AtomicBool>,
}

fn reopen(wanted: Wanted, ask: Ask) -> ReopenApp {
    let (look, knocks, stop) = (None, Knocks::default(), Arc::default());
    let mut lookout = Lookout { wanted, ask, look, knocks, stop };
    Box::new(move || lookout.found())
}

impl Lookout {
    fn found(&mut self) -> Option<(Vec<CapturePort>, CaptureSession)> {
        match self.look.take() {
            Some(running) if !running.is_finished() => self.look = Some(running),
            Some(over) => match over.join().unwrap_or(Look::Closed) {
                Look::Found(ports, session) => return Some((ports, session)),
                seen => self.knocks.note(matches!(seen, Look::Closed), Instant::now()),
            },
            None if self.knocks.is_pause(Instant::now()) => {}
            None => {
                let (wanted, ask) = (self.wanted.clone(), self.ask.clone());
                let stop = Arc::clone(&self.stop);
                let look = move || again(&wanted, &ask, &stop);
                self.look = std::thread::Builder::new().spawn(look).ok();
            }
        }
        None
    }
}

impl Drop for Lookout {
    /// A helper that is on its way into the app is let go before this process ends.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.look.take().map(JoinHandle::join);
    }
}

fn again(wanted: &Wanted, ask: &Ask, stop: &AtomicBool) -> Look {
    let Some(now) = wanted.again() else { return Look::Absent };
    match now.door.open(&ask.request(&now), TIMEOUT, stop) {
        Ok(session) => Look::Found(now.ports(), session),
        Err(_) => Look::Closed,
    }
}

/// When to knock at a door again: each time that it stays closed, there is a longer pause, because a
/// helper that becomes a secondary process is work for the app.
#[derive(Debug, Default)]
struct Knocks {
    pause: Duration,
    until: Option<Instant>,
}

impl Knocks {
    fn note(&mut self, closed: bool, now: Instant) {
        self.pause =
            if closed { (self.pause * 2).clamp(KNOCK_MIN, KNOCK_MAX) } else { Duration::ZERO };
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
    fn doors_that_stay_closed_are_left_alone_for_longer_each_time() {
        let (mut knocks, mut now) = (Knocks::default(), Instant::now());
        assert!(!knocks.is_pause(now));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            knocks.note(true, now);
            let before = now;
            while knocks.is_pause(now) {
                now += KNOCK_MIN / 2;
            }
            pauses.push((now - before).as_millis());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        knocks.note(false, now);
        assert!(!knocks.is_pause(now));
        knocks.note(true, now);
        assert!(knocks.is_pause(now) && !knocks.is_pause(now + KNOCK_MIN));
    }
}

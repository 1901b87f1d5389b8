//! Handlers that take effect at one moment, for all signals and with all that they do.
#![allow(unsafe_code)] // Dispositions of signals.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use signal_hook::{flag, low_level};

use crate::is_ignored;

const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The handlers of signal-hook that are ready and not in effect.
static READY: Mutex<Vec<(Signal, SigAction)>> = Mutex::new(Vec::new());

/// Makes handlers for SIGINT, SIGTERM and SIGHUP ready, which have no effect until [`take_over`]. A handler
/// of signal-hook that is in effect before it knows what to do would lose a signal. To be called before
/// there are other threads.
///
/// # Errors
/// When the system refuses.
pub fn prepare() -> io::Result<()> {
    let held: SigSet = ENDING.into_iter().collect();
    let before = held.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let ready: io::Result<Vec<_>> = ENDING.into_iter().map(ready).collect();
    // A signal that came meanwhile is delivered now, to the earlier disposition.
    before.thread_set_mask()?;
    *READY.lock().unwrap_or_else(PoisonError::into_inner) = ready?;
    Ok(())
}

/// Returns the handler of signal-hook for a signal, and restores the disposition.
fn ready(signal: Signal) -> io::Result<(Signal, SigAction)> {
    let handler = if is_ignored(signal as i32) { SigHandler::SigIgn } else { SigHandler::SigDfl };
    // From now on, signal-hook adds actions without any change of the disposition.
    flag::register(signal as i32, Arc::new(AtomicBool::new(false)))?;
    let disposition = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: neither of these dispositions runs code.
    let installed = unsafe { sigaction(signal, &disposition) }?;
    Ok((signal, installed))
}

/// Has a signal set `then` if `first` is set.
pub(crate) fn set_if(signal: i32, first: Arc<AtomicBool>, then: Arc<AtomicBool>) -> io::Result<()> {
    let set = move || {
        if first.load(Ordering::Relaxed) {
            then.store(true, Ordering::Relaxed);
        }
    };
    // SAFETY: loads and stores of atomics are safe in a signal handler.
    unsafe { low_level::register(signal, set) }.map(drop)
}

/// From now on, the signals that end a command do what was registered for them. SIGHUP has no effect on a
/// command under nohup(1).
///
/// # Errors
/// When the system refuses.
pub fn take_over() -> io::Result<()> {
    let ready = std::mem::take(&mut *READY.lock().unwrap_or_else(PoisonError::into_inner));
    for (signal, action) in ready {
        if signal == Signal::SIGHUP && is_ignored(signal as i32) {
            continue;
        }
        // SAFETY: signal-hook installed this handler before, and its state lives as long as the process.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

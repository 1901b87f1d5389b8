//! Handlers that take effect at one moment, for all signals and with all that they do.
#![allow(unsafe_code)] // Dispositions of signals.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::{flag, low_level};

use crate::is_ignored;

const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The handlers of signal-hook that are ready and not in effect.
static READY: Mutex<Vec<(Signal, SigAction)>> = Mutex::new(Vec::new());

/// There is a line on the terminal of standard error that must not remain.
static LINE_IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// The command has nothing that must end in order: a signal that reaches a handler has its default action.
static HAS_DEFAULT_ACTION: AtomicBool = AtomicBool::new(true);

/// Clears the line that the cursor is in.
const CLEAR_LINE: &[u8] = b"\r\x1b[K";

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
    // From now on, signal-hook adds actions without any change of the disposition. They run in this order, and
    // those of the command come later: one that exits leaves no line behind.
    // SAFETY: the function makes system calls only, which may be made in a signal handler.
    unsafe { low_level::register(signal as i32, clear_line) }?;
    flag::register_conditional_default(signal as i32, &HAS_DEFAULT_ACTION)?;
    let disposition = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: neither of these dispositions runs code.
    let installed = unsafe { sigaction(signal, &disposition) }?;
    Ok((signal, installed))
}

/// Clears the line that is drawn, unless the terminal takes no text: a signal must end a command on one that hangs.
fn clear_line() {
    #[allow(clippy::disallowed_methods)] // No text: it removes some.
    let terminal = rustix::stdio::stderr();
    let now = Timespec::default();
    if LINE_IS_DRAWN.swap(false, Ordering::Relaxed)
        && matches!(poll(&mut [PollFd::new(&terminal, PollFlags::OUT)], Some(&now)), Ok(1))
    {
        let _ = rustix::io::write(terminal, CLEAR_LINE);
    }
}

/// Whether there is a line on the terminal of standard error that is drawn over itself. A signal that ends the
/// command clears it first.
///
/// # Errors
/// When the system refuses.
pub fn line_is_drawn(is_drawn: bool) -> io::Result<()> {
    LINE_IS_DRAWN.store(is_drawn, Ordering::Relaxed);
    if is_drawn { install() } else { Ok(()) }
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
    HAS_DEFAULT_ACTION.store(false, Ordering::Relaxed);
    install()
}

/// Has the handlers take effect that are ready.
fn install() -> io::Result<()> {
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

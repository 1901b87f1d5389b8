//! Signals during a capture.

use std::sync::Arc;
use std::thread;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use pmdscope_packets::RunControl;
use signal_hook::consts::{SIGPIPE, SIGUSR1, SIGUSR2};
use signal_hook::flag;

use crate::child;

/// USR1 asks for the counters and, where `to_flush` is true, USR2 writes what was collected. What ends a
/// command does so at once, until [`end_in_order`].
pub(crate) fn control(to_flush: bool) -> anyhow::Result<RunControl> {
    let control = RunControl::default();
    register(&control, to_flush).context("cannot handle signals")?;
    Ok(control)
}

fn register(control: &RunControl, to_flush: bool) -> std::io::Result<()> {
    flag::register(SIGPIPE, Arc::clone(&control.stop))?;
    take_pipes_as_errors()?;
    flag::register(SIGUSR1, Arc::clone(&control.report))?;
    if to_flush {
        flag::register(SIGUSR2, Arc::clone(&control.flush))?;
    }
    Ok(())
}

/// From now on, the first signal ends the capture in order, and the second immediately. Where there is something to
/// abandon, the second gives up packets that a disk or reader does not take, and the third ends. To be called when
/// something begins that must be ended: before, whatever a command waits for, the first one ends it.
pub(crate) fn end_in_order(control: &RunControl) -> anyhow::Result<()> {
    let (stop, may_repeat) = (&control.stop, child::may_repeat);
    match &control.abandon {
        Some(abandon) => pmdscope_signals::end_in_steps(stop, abandon, may_repeat),
        None => pmdscope_signals::end_in_order(stop, may_repeat),
    }
    .context("cannot handle signals")
}

/// Makes a write to a closed pipe an error of the writing thread, which does not concern other
/// threads. SIGPIPE is a signal only when it comes from outside, for the one thread that does not
/// block it. To be called before there are other threads, which inherit the mask.
fn take_pipes_as_errors() -> std::io::Result<()> {
    thread::Builder::new().name("signals".to_owned()).spawn(|| {
        loop {
            thread::park();
        }
    })?;
    let pipe = [Signal::SIGPIPE].into_iter().collect::<SigSet>();
    Ok(pipe.thread_block()?)
}

//! Signals during a capture.

use std::fs;
use std::sync::Arc;
use std::thread;

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use pmdscope_packets::RunControl;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;

use crate::child;

/// The first signal ends the capture in order, the second immediately; USR1 asks for the counters
/// and, where `to_flush` is true, USR2 writes what was collected.
pub(crate) fn control(to_flush: bool) -> anyhow::Result<RunControl> {
    let control = RunControl::default();
    register(&control, to_flush).context("cannot handle signals")?;
    Ok(control)
}

fn register(control: &RunControl, to_flush: bool) -> std::io::Result<()> {
    let stop = || Arc::clone(&control.stop);
    // A capture under nohup(1) must survive its terminal.
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
        if !child::may_repeat(signal) {
            flag::register_conditional_shutdown(signal, 1, stop())?;
        }
        flag::register(signal, stop())?;
    }
    flag::register(SIGPIPE, stop())?;
    take_pipes_as_errors()?;
    flag::register(SIGUSR1, Arc::clone(&control.report))?;
    if to_flush {
        flag::register(SIGUSR2, Arc::clone(&control.flush))?;
    }
    Ok(())
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

/// The parent had the signal ignored.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status, signal)
}

fn ignored_in(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_seen_in_the_status_of_a_process() {
        let status = "Name:\tpmdscope\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(ignored_in(status, SIGHUP) && ignored_in(status, SIGPIPE));
        assert!(!ignored_in(status, SIGINT) && !ignored_in("", SIGHUP));
    }
}

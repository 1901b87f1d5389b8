//! Signals that end a command, for all commands.
//!
//! Until a command has begun something that must end in order, SIGINT, SIGTERM and SIGHUP have their default
//! action: they end the process at once, whatever it waits for. Then it registers what they are to do, and
//! calls [`take_over`], with which all of it takes effect at one moment. So no signal is lost in between. In both
//! cases a line of progress that is on the terminal is cleared first: [`line_is_drawn`].

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod handlers;
mod stop;

use std::fs;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub use self::handlers::{line_is_drawn, prepare, take_over};
pub use self::stop::{StopSignal, end_in_order, end_in_steps};

/// Returns the signals that end a command. SIGHUP is none for a command under nohup(1), which must survive
/// its terminal.
pub fn ending() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP))
}

/// Returns whether the parent had the signal ignored.
pub fn is_ignored(signal: i32) -> bool {
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
    use signal_hook::consts::SIGPIPE;

    use super::*;

    #[test]
    fn ignored_signals_are_seen_in_the_status_of_a_process() {
        let status = "Name:\tpmdscope\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(ignored_in(status, SIGHUP) && ignored_in(status, SIGPIPE));
        assert!(!ignored_in(status, SIGINT) && !ignored_in("", SIGHUP));
    }
}

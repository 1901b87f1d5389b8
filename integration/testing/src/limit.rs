//! Programs that tests run, none of which can make a test wait for ever.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{current_test, skip_without};

/// How long a program may run before it is killed: far more than any needs on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Kills `child` when it still runs after [`LIMIT`]. It may be waited for meanwhile.
///
/// # Panics
/// When the kernel does not let us watch it.
pub fn limited(child: Child) -> Child {
    kill_after(&child, LIMIT);
    child
}

fn kill_after(child: &Child, limit: Duration) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let opened = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let Some(Ok(watched)) = opened else { panic!("cannot watch process {}", child.id()) };
    let test = current_test();
    thread::spawn(move || watch(&watched, limit, &test));
}

/// A process descriptor refers to that process only, even after it was waited for.
fn watch(watched: &OwnedFd, limit: Duration, test: &str) {
    let time = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let mut ends = [PollFd::new(watched, PollFlags::IN)];
    if matches!(poll(&mut ends, Some(&time)), Ok(0)) {
        eprintln!("{test}: a program ran for more than {limit:?}; it is killed");
        // It may have ended just now.
        let _ = pidfd_send_signal(watched, Signal::KILL);
    }
}

/// Starts a program that is killed when it runs for longer than [`LIMIT`].
///
/// # Errors
/// When it cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    command.spawn().map(limited)
}

/// What a program prints, within [`LIMIT`]. `None`, reported as a skip, where it is not installed.
/// It inherits standard input, unless redirected.
///
/// # Panics
/// When it is there and cannot be run, or is missing where programs are required.
pub fn output(command: &mut Command) -> Option<Output> {
    let program = command.get_program().display().to_string();
    let ended = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
        .and_then(Child::wait_with_output);
    match ended {
        Ok(output) => Some(output),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip_without(&current_test(), program);
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_program_beyond_its_limit_is_killed() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        kill_after(&child, Duration::from_millis(20));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn a_program_within_its_limit_is_not() {
        let output = output(Command::new("sh").args(["-c", "echo out; echo err >&2"])).unwrap();
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert!(output.status.success());
    }
}

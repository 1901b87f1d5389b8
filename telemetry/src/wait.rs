//! What a thread that does not run waits for, from its state and the function of the kernel it sleeps in.

use crate::host::process::is_eal_worker;
use crate::sample::ThreadSample;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A lock, or another thread: a mutex, a condition, a join.
    Lock,
    /// The EAL waits for a function to run on the lcore: its last one has returned.
    Command,
    /// A time that it chose itself.
    Time,
    /// Descriptors: a file, socket, pipe or interrupt.
    Descriptor,
    /// A signal, or its parent or debugger lets it go on.
    Signal,
    /// The kernel: a disk, a page, a device.
    Kernel,
    /// Unknown.
    Unknown,
}

impl Wait {
    /// Returns what a thread that sleeps waits for.
    pub(crate) fn of(thread: &ThreadSample) -> Self {
        match thread.state {
            Some('T' | 't') => return Self::Signal,
            Some('D') => return Self::Kernel,
            _ => {}
        }
        let Some(channel) = &thread.wait_channel else { return Self::Unknown };
        let has = |parts: &[&str]| parts.iter().any(|part| channel.contains(part));
        if has(&["futex"]) {
            Self::Lock
        } else if has(&["pipe_read", "eventfd_read"]) && is_eal_worker(&thread.name) {
            Self::Command
        } else if has(&["nanosleep"]) {
            Self::Time
        } else if has(&["poll", "select", "pipe", "eventfd", "skb", "accept", "tty", "sock"]) {
            Self::Descriptor
        } else if has(&["pause", "sigsuspend", "sigtimedwait", "signal", "ptrace"]) {
            Self::Signal
        } else {
            Self::Unknown
        }
    }

    /// Whether no poll loop waits like this on purpose.
    pub(crate) fn is_odd(self) -> bool {
        matches!(self, Self::Lock | Self::Signal | Self::Kernel)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Lock => "waits for a lock or another thread",
            Self::Command => "waits for a command of the EAL, since its function has returned",
            Self::Time => "sleeps",
            Self::Descriptor => "waits for a file, socket or pipe",
            Self::Signal => "is stopped, or waits for a signal",
            Self::Kernel => "waits in the kernel",
            Self::Unknown => "sleeps or waits",
        }
    }
}

impl ThreadSample {
    /// Returns what the thread waits for, if it did not run when it was read.
    pub fn wait(&self) -> Option<String> {
        self.asleep.then(|| wait_text(self))
    }
}

/// Returns what a thread waits for: "waits for a lock or another thread (state S, `futex_wait_queue`)".
pub(crate) fn wait_text(thread: &ThreadSample) -> String {
    let state = thread.state.map(|state| format!("state {state}"));
    let seen: Vec<_> = state.into_iter().chain(thread.wait_channel.clone()).collect();
    let words = Wait::of(thread).words();
    if seen.is_empty() { words.to_owned() } else { format!("{words} ({})", seen.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(name: &str, state: char, channel: &str) -> ThreadSample {
        ThreadSample {
            name: name.to_owned(),
            state: Some(state),
            wait_channel: Some(channel.to_owned()).filter(|channel| !channel.is_empty()),
            ..ThreadSample::default()
        }
    }

    #[test]
    fn the_reason_is_known_by_state_and_channel() {
        for (name, state, channel, wait) in [
            ("rte-worker-1", 'S', "futex_wait_queue", Wait::Lock),
            ("rte-worker-1", 'S', "futex_wait_queue_me", Wait::Lock),
            ("rte-worker-1", 'S', "pipe_read", Wait::Command),
            ("dpdk-worker1", 'S', "eventfd_read", Wait::Command),
            ("reactor_1", 'S', "anon_pipe_read", Wait::Descriptor),
            ("app", 'S', "hrtimer_nanosleep", Wait::Time),
            ("app", 'S', "do_epoll_wait", Wait::Descriptor),
            ("app", 'S', "__x64_sys_pause", Wait::Signal),
            ("app", 'T', "do_signal_stop", Wait::Signal),
            ("app", 'D', "folio_wait_bit_common", Wait::Kernel),
            ("app", 'S', "", Wait::Unknown),
        ] {
            assert_eq!(Wait::of(&thread(name, state, channel)), wait, "{channel}");
        }
        assert!(Wait::Lock.is_odd() && !Wait::Time.is_odd() && !Wait::Command.is_odd());
    }

    #[test]
    fn the_text_has_what_the_kernel_shows() {
        assert_eq!(
            wait_text(&thread("rte-worker-1", 'S', "futex_wait_queue")),
            "waits for a lock or another thread (state S, futex_wait_queue)"
        );
        assert_eq!(wait_text(&thread("x", 'D', "")), "waits in the kernel (state D)");
        assert_eq!(wait_text(&ThreadSample::default()), "sleeps or waits");
        assert_eq!(ThreadSample::default().wait(), None);
    }
}

//! Names of events: the cause, and who or what took the CPU.

use pmdscope_telemetry::sample::StolenCause;

use crate::irq_names::IrqNames;
use crate::record::EventKind;

/// The vector of the local timer on x86.
pub(crate) const LOCAL_TIMER: u64 = 0xec;

/// Vectors of x86, named as in `/proc/interrupts`.
const VECTORS: [(u64, &str); 7] = [
    (LOCAL_TIMER, "local timer"),
    (0xfd, "reschedule"),
    (0xfc, "function call"),
    (0xfb, "function call"),
    (0xfa, "thermal event"),
    (0xff, "spurious interrupt"),
    (0xfe, "APIC error"),
];

/// Softirqs by number.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// Added to the number of a softirq that a thread ran in its own system call.
const IN_OWN_SYSTEM_CALL: u64 = 256;

/// Factor of the thread state in the id of a sleep; the rest is the number of the system call plus
/// 1, or 0.
const STATE_STEP: u64 = 4096;

/// Prefix of the names of the idle threads of CPUs.
const IDLE: &str = "swapper/";

/// Returns the cause of events of a kind. All vectors except the local timer count as IPIs, also
/// those that report errors.
pub(crate) fn cause(kind: EventKind) -> StolenCause {
    match kind {
        EventKind::Irq => StolenCause::Irq,
        EventKind::Timer => StolenCause::Timer,
        EventKind::Vector => StolenCause::Ipi,
        EventKind::Softirq => StolenCause::Softirq,
        EventKind::Run => StolenCause::Scheduler,
        EventKind::Sleep => StolenCause::Sleep,
        EventKind::Signal => StolenCause::Signal,
        EventKind::PageFault => StolenCause::PageFault,
    }
}

/// Returns who took the CPU: the action, number and device of an IRQ, the name of a softirq or
/// vector, the command of a thread, the system call that slept.
pub(crate) fn name(kind: EventKind, id: u64, who: &str, irqs: &mut IrqNames) -> String {
    match kind {
        EventKind::Irq => irqs.name(id, who),
        EventKind::Timer | EventKind::Vector => vector(id, who),
        EventKind::Softirq => softirq(id),
        EventKind::Run => thread(who),
        EventKind::Sleep => sleep(id),
        EventKind::Signal => format!("handler of {}", signal(id)),
        EventKind::PageFault => "page fault".to_owned(),
    }
}

fn vector(id: u64, sender: &str) -> String {
    let known = VECTORS.iter().find(|(vector, _)| *vector == id);
    let name = known.map_or_else(|| format!("vector {id}"), |(_, name)| (*name).to_owned());
    match sender {
        "" => name,
        idle if idle.starts_with(IDLE) => format!("{name} by an idle CPU"),
        sender => format!("{name} by {}", thread(sender)),
    }
}

fn softirq(id: u64) -> String {
    let (number, own) = (id % IN_OWN_SYSTEM_CALL, id >= IN_OWN_SYSTEM_CALL);
    let known = usize::try_from(number).ok().and_then(|number| SOFTIRQS.get(number));
    let name = known.map_or_else(|| format!("softirq {number}"), |name| (*name).to_owned());
    if own { format!("{name} (own system call)") } else { name }
}

/// Returns the name of a thread. The kernel has many worker threads, which come and go: those of a
/// CPU, and those of no CPU, are each counted as one.
fn thread(comm: &str) -> String {
    if comm.starts_with(IDLE) {
        // The thread was ready to run, but its quota was used up.
        return "idle CPU (quota)".to_owned();
    }
    let worker = comm.strip_prefix("kworker/").and_then(|rest| rest.split_once(':'));
    worker.map_or_else(|| comm.to_owned(), |(cpu, _)| format!("kworker/{cpu}"))
}

fn sleep(id: u64) -> String {
    let (state, call) = (id / STATE_STEP, id % STATE_STEP);
    match (state, call.checked_sub(1)) {
        (4, _) => "stopped by a signal".to_owned(),
        (8, _) => "stopped by a debugger".to_owned(),
        (2, None) => "waits in the kernel".to_owned(),
        (_, None) => "own system call".to_owned(),
        (_, Some(call)) => system_call(call),
    }
}

fn system_call(number: u64) -> String {
    let known = SYSTEM_CALLS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned())
}

/// System calls in which poll loops may sleep.
#[cfg(target_arch = "x86_64")]
const SYSTEM_CALLS: [(u64, &str); 30] = [
    (0, "read"),
    (1, "write"),
    (7, "poll"),
    (9, "mmap"),
    (10, "mprotect"),
    (11, "munmap"),
    (16, "ioctl"),
    (23, "select"),
    (24, "sched_yield"),
    (28, "madvise"),
    (34, "pause"),
    (35, "nanosleep"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (74, "fsync"),
    (128, "rt_sigtimedwait"),
    (202, "futex"),
    (203, "sched_setaffinity"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (257, "openat"),
    (270, "pselect6"),
    (271, "ppoll"),
    (281, "epoll_pwait"),
    (299, "recvmmsg"),
    (307, "sendmmsg"),
    (324, "membarrier"),
    (426, "io_uring_enter"),
];

/// Other architectures show the numbers.
#[cfg(not(target_arch = "x86_64"))]
const SYSTEM_CALLS: [(u64, &str); 0] = [];

fn signal(number: u64) -> String {
    let known = i32::try_from(number).ok().and_then(|n| nix::sys::signal::Signal::try_from(n).ok());
    known.map_or_else(|| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: EventKind, id: u64, who: &str) -> String {
        name(kind, id, who, &mut IrqNames::default())
    }

    #[test]
    fn events_have_the_names_that_the_field_knows() {
        for (kind, id, who, expected) in [
            (EventKind::Timer, 236, "", "local timer"),
            (EventKind::Vector, 253, "swapper/0", "reschedule by an idle CPU"),
            (EventKind::Vector, 251, "stress", "function call by stress"),
            (EventKind::Vector, 200, "", "vector 200"),
            (EventKind::Softirq, 3, "", "NET_RX"),
            (EventKind::Softirq, 259, "", "NET_RX (own system call)"),
            (EventKind::Softirq, 77, "", "softirq 77"),
            (EventKind::Run, 0, "hog", "hog"),
            (EventKind::Run, 0, "kworker/1:2H", "kworker/1"),
            (EventKind::Run, 0, "swapper/1", "idle CPU (quota)"),
            (EventKind::Sleep, 4096 + 36, "", "nanosleep"),
            (EventKind::Sleep, 4096 + 4000, "", "system call 3999"),
            (EventKind::Sleep, 4096, "", "own system call"),
            (EventKind::Sleep, 4 * 4096, "", "stopped by a signal"),
            (EventKind::Sleep, 2 * 4096, "", "waits in the kernel"),
            (EventKind::Signal, 14, "", "handler of SIGALRM"),
            (EventKind::Signal, 40, "", "handler of signal 40"),
            (EventKind::PageFault, 0, "", "page fault"),
        ] {
            if cfg!(target_arch = "x86_64") || kind != EventKind::Sleep {
                assert_eq!(named(kind, id, who), expected);
            }
        }
    }
}

//! Time stolen from the threads of lcores, as a tracer of the kernel measured it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Time taken from the threads of one app, as traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TracingSample {
    /// Source of the numbers.
    pub method: TracingMethod,
    /// Wall clock when tracing started, and the counters with it, nanoseconds since 1970.
    pub since_realtime_ns: u64,
    /// Monotonic clock up to which all events are counted, nanoseconds; a tracer may lag behind the sample.
    /// `None` if the counters are as of the sample.
    #[serde(default)]
    pub until_monotonic_ns: Option<u64>,
    /// Lcores with traced threads.
    pub lcores: Vec<u32>,
    /// Number of events that the tracer lost, of all traced apps together: those that bpftrace could not print,
    /// which the totals include, and switches without an end, which they do not.
    pub lost_events: u64,
    /// Estimated time that tracing itself took from these lcores, nanoseconds.
    pub overhead_ns: u64,
    /// Parts that are not traced, each with the reason; empty if everything is traced.
    pub missing: Vec<String>,
    /// Time taken, by lcore, cause and thief.
    pub stolen: Vec<StolenSample>,
}

/// Source of the times taken from lcores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TracingMethod {
    /// Tracepoints of the kernel: each event with its time.
    Bpf,
    /// Counters in `/proc`: the number of events, and times only of the scheduler.
    #[default]
    Proc,
}

impl TracingMethod {
    /// Returns its name in JSON and in labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Proc => "proc",
        }
    }
}

/// Time that one thief took from one lcore since tracing began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StolenSample {
    /// lcore id.
    pub lcore: u32,
    /// Kind of event.
    pub cause: StolenCause,
    /// Name of the thief: action and number of an IRQ, name of a softirq or vector, or command of a thread.
    pub thief: String,
    /// Number of events.
    pub count: u64,
    /// Total time of these events, nanoseconds; `None` if only the number of events is known.
    pub stolen_ns: Option<u64>,
    /// Longest event, nanoseconds; `None` if it is unknown.
    pub longest_ns: Option<u64>,
    /// Wall clock at the start of the longest event, nanoseconds since 1970; `None` if it is unknown.
    pub longest_realtime_ns: Option<u64>,
}

/// Totals of all thieves of one cause on one lcore since tracing began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseTotals {
    /// Number of events.
    pub events: u64,
    /// Total time, nanoseconds; `None` if it is unknown.
    pub stolen_ns: Option<u64>,
    /// Longest event, nanoseconds; `None` if it is unknown.
    pub longest_ns: Option<u64>,
}

impl CauseTotals {
    /// Adds the counts of one thief.
    pub fn add(&mut self, thief: &StolenSample) {
        let sum = |one: u64, other: Option<u64>| one.saturating_add(other.unwrap_or(0));
        self.events = self.events.saturating_add(thief.count);
        self.stolen_ns = self.stolen_ns.map(|ns| sum(ns, thief.stolen_ns)).or(thief.stolen_ns);
        self.longest_ns = self.longest_ns.max(thief.longest_ns);
    }
}

/// Kind of event that took the CPU from a polling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StolenCause {
    /// Interrupt of a device.
    Irq,
    /// Interrupt from another CPU: reschedule, function call, TLB shootdown.
    Ipi,
    /// Tick or other timer of this CPU.
    Timer,
    /// Softirq that ran on this CPU.
    Softirq,
    /// Another thread ran while the polling thread was ready to run.
    Scheduler,
    /// The thread slept or waited in a system call of its own.
    Sleep,
    /// Page fault of the thread.
    PageFault,
    /// Signal handler, which ran in the thread.
    Signal,
    /// Lost time without an event: firmware (SMI), a hypervisor, or something that cannot be traced.
    Unexplained,
}

impl StolenCause {
    /// All causes, in their order.
    pub const ALL: [Self; 9] = [
        Self::Irq,
        Self::Ipi,
        Self::Timer,
        Self::Softirq,
        Self::Scheduler,
        Self::Sleep,
        Self::PageFault,
        Self::Signal,
        Self::Unexplained,
    ];

    /// Returns its name in JSON and in labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Irq => "irq",
            Self::Ipi => "ipi",
            Self::Timer => "timer",
            Self::Softirq => "softirq",
            Self::Scheduler => "scheduler",
            Self::Sleep => "sleep",
            Self::PageFault => "page_fault",
            Self::Signal => "signal",
            Self::Unexplained => "unexplained",
        }
    }
}

impl fmt::Display for StolenCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_and_methods_have_the_same_names_everywhere() {
        for cause in StolenCause::ALL {
            assert_eq!(serde_json::to_string(&cause).unwrap(), format!("\"{cause}\""));
        }
        for method in [TracingMethod::Bpf, TracingMethod::Proc] {
            assert_eq!(serde_json::to_value(method).unwrap(), method.name());
        }
    }
}

//! Profiles of apps: shares of activities and functions, stacks, and the longest stay.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

use crate::function::{Activity, Owner};
use crate::profiler::{AppProfiler, Stack, ThreadRecord};
use crate::stay::{StackFunctions, longest_stay};
use crate::symbols::{Frame, FunctionResolver, PortList};

/// Least share of the time in which a thread that does not sleep runs or waits for a CPU.
const AWAKE: f64 = 0.95;

/// Profile of one app.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppProfile {
    /// Samples per second of CPU time.
    pub hz: u32,
    /// Profiles of lcores, in the requested order.
    pub lcores: Vec<LcoreProfile>,
    /// Data that is missing, and why.
    pub notes: Vec<String>,
}

/// Profile of the thread of one lcore.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LcoreProfile {
    /// lcore id.
    pub lcore: u32,
    /// Thread id on this host.
    pub tid: u32,
    /// Time in which the thread was sampled, seconds.
    pub duration_s: f64,
    /// Whether the thread ended in this time.
    pub ended: bool,
    /// Number of samples; 0 if the thread did not run.
    pub samples: u64,
    /// Number of lost samples.
    pub lost: u64,
    /// Number of samples with a stack of one frame, the function itself.
    pub one_frame: u64,
    /// Share of the time in which the thread was on a CPU, 0 to 1; `None` if the kernel does not count it.
    pub on_cpu: Option<f64>,
    /// Share of the time in which the thread was ready to run but had no CPU, 0 to 1; `None` if the kernel
    /// does not count it.
    pub waiting: Option<f64>,
    /// Activities that cannot be distinguished from others, or that are not sampled; [`AppProfile::notes`]
    /// state why.
    pub unknown: Vec<Activity>,
    /// Samples by activity; activities without a sample are left out.
    pub activities: Vec<ActivityShare>,
    /// Samples by function, most samples first.
    pub functions: Vec<FunctionShare>,
    /// The longest stay outside the receive function; `None` if none stands out.
    pub longest_stay: Option<LongestStay>,
    /// Stacks, most samples first.
    #[serde(skip)]
    pub stacks: Vec<StackSamples>,
}

/// Samples in one activity.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActivityShare {
    /// Activity.
    pub activity: Activity,
    /// Number of samples.
    pub samples: u64,
    /// Share of all samples of the lcore, 0 to 1.
    pub share: f64,
}

/// Samples in one function, including the functions of the C library that it calls, and the functions of DPDK
/// that are inlined in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FunctionShare {
    /// Name of the function; without a symbol, the file and the offset in it.
    pub function: String,
    /// File that contains the function.
    pub module: String,
    /// Activity of the function.
    pub activity: Activity,
    /// Ports for which the function receives or sends.
    pub ports: Vec<u16>,
    /// Number of samples.
    pub samples: u64,
    /// Share of all samples of the lcore, 0 to 1.
    pub share: f64,
}

/// The longest stay outside the receive function.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LongestStay {
    /// Function of the app in which the thread stayed.
    pub function: String,
    /// Length of the stay, plus or minus [`LongestStay::resolution_ns`], nanoseconds.
    pub length_ns: u64,
    /// Time between two samples, nanoseconds.
    pub resolution_ns: u64,
    /// Number of stays in the function that stand out.
    pub times: usize,
}

/// Samples of one stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSamples {
    /// Functions, outermost first.
    pub frames: Vec<String>,
    /// Samples.
    pub samples: u64,
}

impl LcoreProfile {
    /// Returns the share of the samples in an activity, 0 to 1; `None` without samples, and if it
    /// is unknown.
    pub fn share(&self, activity: Activity) -> Option<f64> {
        let found = self.activities.iter().find(|share| share.activity == activity);
        let known = self.samples > 0 && !self.unknown.contains(&activity);
        known.then(|| found.map_or(0.0, |share| share.share))
    }
}

/// The resolved stacks of a profile.
pub(crate) struct Resolution {
    stacks: Vec<ResolvedStack>,
    /// Functions of the app, by their index in [`StackFunctions`].
    functions: Vec<String>,
}

/// Name, file and ports of a function.
type FunctionKey = (String, String, Vec<u16>);

struct ResolvedStack {
    /// Names, outermost first.
    names: Vec<String>,
    activity: Activity,
    function: FunctionKey,
    /// Number of frames that were unwound.
    depth: usize,
    stay: StackFunctions,
}

impl Resolution {
    pub(crate) fn of(profiler: &AppProfiler) -> Self {
        let ports = profiler.ports.as_deref().unwrap_or_default();
        let resolver = FunctionResolver::new(&profiler.modules, ports);
        let mut known: HashMap<u64, Vec<Frame>> = HashMap::new();
        let mut functions: HashMap<Frame, usize> = HashMap::new();
        let mut stacks = Vec::new();
        for stack in profiler.stacks.list() {
            let frames: Vec<Frame> = stack
                .frames
                .iter()
                .flat_map(|address| {
                    known.entry(*address).or_insert_with(|| resolver.frames(*address)).clone()
                })
                .collect();
            stacks.push(resolve(stack, &frames, &mut functions));
        }
        let mut names: Vec<(Frame, usize)> = functions.into_iter().collect();
        names.sort_unstable_by_key(|(_, index)| *index);
        Self { stacks, functions: names.into_iter().map(|(frame, _)| frame.name).collect() }
    }

    pub(crate) fn profile(&self, profiler: &AppProfiler) -> AppProfile {
        let mut notes = Vec::new();
        if let Err(reason) = &profiler.ports {
            notes.push(format!("cannot distinguish driver RX and TX: {reason}"));
        }
        if profiler.threads.iter().any(|thread| !thread.sampler.sees_kernel) {
            let what = "time in the kernel is not sampled: that needs CAP_PERFMON or root";
            notes.push(what.to_owned());
        }
        if profiler.unread_files > 0 {
            let count = profiler.unread_files;
            notes.push(format!(
                "{count} files with code cannot be read: their functions are unknown"
            ));
        }
        let lcores = profiler.threads.iter().map(|thread| LcoreProfile {
            unknown: unknown(profiler, thread),
            ..self.lcore(thread, profiler.hz)
        });
        let lcores = lcores.collect();
        AppProfile { hz: profiler.hz, lcores, notes }
    }

    fn lcore(&self, thread: &ThreadRecord, hz: u32) -> LcoreProfile {
        let samples = thread.points.len() as u64;
        let share = |count: u64| count as f64 / samples.max(1) as f64;
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        for point in &thread.points {
            *counts.entry(point.stack).or_default() += 1;
        }
        let (mut activities, mut functions) = (BTreeMap::new(), BTreeMap::new());
        let (mut stacks, mut one_frame) = (BTreeMap::new(), 0);
        for (stack, count) in counts.iter().filter_map(|(at, n)| Some((self.stacks.get(*at)?, n))) {
            *activities.entry(stack.activity).or_default() += count;
            *functions.entry((&stack.function, stack.activity)).or_default() += count;
            *stacks.entry(&stack.names).or_default() += count;
            one_frame += if stack.depth <= 1 { *count } else { 0 };
        }
        let activity = |(activity, samples): (Activity, u64)| ActivityShare {
            activity,
            samples,
            share: share(samples),
        };
        let function = |((function, activity), samples): ((&FunctionKey, Activity), u64)| {
            let (name, module, ports) = function.clone();
            FunctionShare {
                function: name,
                module,
                activity,
                ports,
                samples,
                share: share(samples),
            }
        };
        let stack =
            |(names, samples): (&Vec<String>, u64)| StackSamples { frames: names.clone(), samples };
        let shares = thread.shares();
        let mut profile = LcoreProfile {
            lcore: thread.lcore,
            tid: thread.tid,
            duration_s: thread.duration().as_secs_f64(),
            ended: thread.ended,
            samples,
            lost: thread.sampler.lost,
            one_frame,
            on_cpu: shares.map(|(run, _)| run),
            waiting: shares.map(|(_, waiting)| waiting),
            activities: activities.into_iter().map(activity).collect(),
            functions: functions.into_iter().map(function).collect(),
            unknown: Vec::new(),
            longest_stay: self.longest_stay(thread, hz),
            stacks: stacks.into_iter().map(stack).collect(),
        };
        profile.functions.sort_by_key(|function| std::cmp::Reverse(function.samples));
        profile.stacks.sort_by_key(|stack| std::cmp::Reverse(stack.samples));
        profile
    }

    fn longest_stay(&self, thread: &ThreadRecord, hz: u32) -> Option<LongestStay> {
        let period = Duration::from_secs(1) / hz.max(1);
        let resolution_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let stacks: Vec<StackFunctions> = self.stacks.iter().map(|s| s.stay.clone()).collect();
        // What it neither ran nor waited for a CPU, it slept.
        let sleeps = thread.shares().is_none_or(|(run, waiting)| run + waiting < AWAKE);
        let stay = longest_stay(&thread.points, &stacks, resolution_ns, sleeps)?;
        Some(LongestStay {
            function: self.functions.get(stay.function)?.clone(),
            length_ns: stay.length_ns,
            resolution_ns,
            times: stay.times,
        })
    }
}

fn unknown(profiler: &AppProfiler, thread: &ThreadRecord) -> Vec<Activity> {
    let drivers = profiler.ports.is_err().then_some([Activity::DriverRx, Activity::DriverTx]);
    let kernel = (!thread.sampler.sees_kernel).then_some(Activity::Kernel);
    drivers.into_iter().flatten().chain(kernel).collect()
}

/// Determines activity and function of a stack. A function that receives or sends counts with all
/// that it calls; otherwise the innermost function that does not work for its caller counts.
fn resolve(
    stack: &Stack,
    frames: &[Frame],
    functions: &mut HashMap<Frame, usize>,
) -> ResolvedStack {
    let port = frames.iter().find_map(|frame| {
        let (receives, ports) = frame.ports.as_ref()?;
        Some((frame, if *receives { Activity::DriverRx } else { Activity::DriverTx }, ports))
    });
    let working = frames.iter().find_map(|frame| match frame.owner {
        Owner::Activity(activity) => Some((frame, activity)),
        Owner::Caller => None,
    });
    let function_of =
        |frame: &Frame, ports: &[u16]| (frame.name.clone(), frame.module.clone(), ports.to_vec());
    let (activity, function) = match (port, working, frames.first()) {
        _ if stack.in_kernel => {
            let name = working.map_or("[kernel]", |(frame, _)| &frame.name);
            let function = (format!("{name} [kernel]"), "kernel".to_owned(), Vec::new());
            (Activity::Kernel, function)
        }
        (Some((frame, activity, ports)), _, _) => (activity, function_of(frame, ports)),
        (None, Some((frame, activity)), _) => (activity, function_of(frame, &[])),
        (None, None, Some(frame)) => (Activity::App, function_of(frame, &[])),
        (None, None, None) => {
            (Activity::Unknown, ("[unknown]".to_owned(), "-".to_owned(), Vec::new()))
        }
    };
    let receives =
        activity == Activity::DriverRx || port.is_some_and(|(_, way, _)| way == Activity::DriverRx);
    let own = frames.iter().filter(|frame| frame.owner == Owner::Activity(Activity::App));
    let mut index = |frame: &Frame| {
        let next = functions.len();
        // Frames of one function are equal, whatever address was sampled.
        *functions.entry(frame.clone()).or_insert(next)
    };
    let stay = StackFunctions { receives, functions: own.map(&mut index).collect() };
    let mut names: Vec<String> = frames.iter().rev().map(frame_name).collect();
    if stack.in_kernel {
        names.push("[kernel]".to_owned());
    }
    if names.is_empty() {
        names.push("[unknown]".to_owned());
    }
    ResolvedStack { names, activity, function, depth: stack.frames.len(), stay }
}

fn frame_name(frame: &Frame) -> String {
    match &frame.ports {
        Some((_, ports)) if !frame.name.contains("pkt_burst of") => {
            format!("{} ({})", frame.name, PortList(ports))
        }
        _ => frame.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str, owner: Owner) -> Frame {
        Frame { name: name.to_owned(), module: "app".to_owned(), owner, ports: None }
    }

    fn app(name: &str) -> Frame {
        frame(name, Owner::Activity(Activity::App))
    }

    fn resolved(frames: &[Frame], in_kernel: bool) -> ResolvedStack {
        let addresses = (1..=frames.len() as u64).collect();
        resolve(&Stack { in_kernel, frames: addresses }, frames, &mut HashMap::new())
    }

    #[test]
    fn what_a_receiving_function_calls_is_receiving() {
        let alloc = frame("rte_mempool_get", Owner::Activity(Activity::Mempool));
        let rx = Frame { ports: Some((true, vec![1])), ..app("eth_null_rx") };
        let stack = resolved(&[alloc.clone(), rx, app("lcore_main")], false);
        assert_eq!(stack.activity, Activity::DriverRx);
        assert_eq!(stack.function, ("eth_null_rx".to_owned(), "app".to_owned(), vec![1]));
        assert!(stack.stay.receives);
        assert_eq!(stack.names, ["lcore_main", "eth_null_rx (port 1)", "rte_mempool_get"]);
        assert_eq!(resolved(&[alloc, app("lcore_main")], false).activity, Activity::Mempool);
    }

    #[test]
    fn the_c_library_works_for_its_caller() {
        let stack = resolved(&[frame("memcpy", Owner::Caller), app("parse_http")], false);
        assert_eq!((stack.activity, stack.function.0.as_str()), (Activity::App, "parse_http"));
        assert_eq!(resolved(&[frame("memcpy", Owner::Caller)], false).activity, Activity::App);
        assert_eq!(resolved(&[], false).activity, Activity::Unknown);
    }

    #[test]
    fn time_in_the_kernel_is_of_the_kernel_and_of_its_caller() {
        let stack = resolved(&[frame("write", Owner::Caller), app("log_line")], true);
        assert_eq!(
            (stack.activity, stack.function.0.as_str()),
            (Activity::Kernel, "log_line [kernel]")
        );
        assert_eq!(stack.names, ["log_line", "write", "[kernel]"]);
        assert_eq!(stack.stay.functions.len(), 1, "a stay of the function that called it");
    }
}

//! `pmdscope lcores --profile`: samples the threads of lcores.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pmdscope_packets::allow_many_files;
use pmdscope_profile::{
    Activity, AppProfile, AppProfiler, LcoreProfile, ProfiledApp, READ_INTERVAL,
};
use pmdscope_telemetry::fleet::ROUND_TIMEOUT;
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::Sample;
use pmdscope_telemetry::{Fleet, FleetState};
use serde::Serialize;

use super::{Args, profile_text};
use crate::exit::FAILED;
use crate::progress::Progress;
use crate::record::stop_signal;
use crate::{output, session};

/// Version of the JSON; raised when a field changes its meaning.
const PROFILE_SCHEMA: u32 = 1;

/// What a sample takes from the thread, microseconds, as measured in a virtual machine: docs/lcores.md.
const SAMPLE_COST_US: f64 = 21.0;

/// Time between the samples that show which threads poll.
const THREADS_INTERVAL: Duration = Duration::from_millis(250);

/// Output of `lcores --profile --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ProfileDocument {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = PROFILE_SCHEMA)))]
    pub(super) schema: u32,
    /// Samples per second of CPU time.
    pub(super) hz: u32,
    /// Estimated share of the time of an lcore that sampling takes at most, 0 to 1.
    pub(super) cost_ratio: f64,
    /// Profiles of the apps that could be sampled.
    pub(super) apps: Vec<AppDocument>,
}

/// Profile of one app.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct AppDocument {
    /// Name of the app, by default its file-prefix.
    pub(super) app: String,
    /// Process id on this host: of the app, or of one of its secondary processes.
    pub(super) pid: u32,
    /// Profiles of lcores.
    pub(super) lcores: Vec<LcoreDocument>,
    /// Data that is missing, and why.
    pub(super) notes: Vec<String>,
}

/// Profile of one lcore.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LcoreDocument {
    #[serde(flatten)]
    pub(super) profile: LcoreProfile,
    /// Polls that received no packet, and the time spent on them.
    pub(super) empty_polls: EmptyPolls,
}

/// Polls that received no packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EmptyPolls {
    /// Share of the iterations of the poll loop that received no packet, 0 to 1; `None` if not counted.
    pub(super) of_polls: Option<f64>,
    /// Estimated share of the time that empty polls spend in the receive function, 0 to 1; `None` if unknown.
    pub(super) of_time: Option<f64>,
    /// How `of_time` was estimated; `None` if it is unknown.
    pub(super) estimate: Option<EmptyPollsEstimate>,
}

/// How the time of empty polls was estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum EmptyPollsEstimate {
    /// Time in driver RX multiplied by the share of empty polls. This is too high, since an empty poll takes
    /// less time than others.
    CountedPolls,
    /// No port received a packet, so all time in driver RX was spent on empty polls.
    NoPackets,
}

/// One app while it is sampled.
struct Running {
    name: String,
    /// Process id of the app, and that of the process that is sampled: the same, or a secondary process.
    app: u32,
    pid: u32,
    profiler: AppProfiler,
}

pub(super) fn run(args: &Args, hz: u32, length: Duration) -> Result<ExitCode> {
    // The files of an app with code are kept open, some 200 of one that loads all drivers.
    allow_many_files();
    let mut fleet = args.app.fleet()?;
    fleet.sample(ROUND_TIMEOUT);
    let stop = stop_signal()?;
    // Which threads poll that have no names of lcores, two samples show.
    stop.wait(Instant::now() + THREADS_INTERVAL).context("cannot wait")?;
    fleet.sample(ROUND_TIMEOUT);
    session::tell_silent(&fleet.state);
    let mut running = start(&fleet.state, hz)?;
    let until = Instant::now() + length;
    let progress = Progress::watch(&format!("profiling {}", args.app.text()), length, false);
    while Instant::now() < until && !running.iter().all(|app| app.profiler.has_ended()) {
        let next = until.min(Instant::now() + READ_INTERVAL);
        let stopped = stop.wait(next).context("cannot wait")?;
        for app in &mut running {
            app.profiler.read();
        }
        if stopped {
            break;
        }
    }
    drop(progress);
    let progress = Progress::begin("looking up functions", false);
    let document = finish(running, &mut fleet, hz);
    drop(progress);
    let sampled = document.lcores().any(|(_, lcore)| lcore.profile.samples > 0);
    if args.json {
        output::print_json(&document)?;
    } else if args.folded {
        output::print(&profile_text::folded(&document))?;
    } else {
        let color = args.color.color(&args.app.config)?;
        output::print_fitted(&profile_text::text(&document), color)?;
    }
    Ok(if sampled { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Begins to sample the apps that can be sampled.
fn start(fleet: &FleetState, hz: u32) -> Result<Vec<Running>> {
    let (mut running, mut failed) = (Vec::new(), None);
    for (app, model) in fleet.models() {
        let sample = &model.sample;
        if sample.threads.is_empty() {
            let why = "its threads are not known: a profile needs the PID namespace of the app";
            output::tell(&format!("{}: {why}", app.name));
            continue;
        }
        for target in processes(sample) {
            let (name, app, pid) = (app.name.clone(), sample.app.pid, target.pid);
            match AppProfiler::start(target, hz) {
                Ok(profiler) => running.push(Running { name, app, pid, profiler }),
                Err(error) => {
                    output::tell(&format!("{name}: {error}"));
                    failed = Some(error);
                }
            }
        }
    }
    match (running.is_empty(), failed) {
        (true, Some(error)) => bail!("no app could be profiled: {error}"),
        (true, None) => bail!("no app could be profiled"),
        _ => Ok(running),
    }
}

/// The processes of an app with threads that poll, the app itself first.
fn processes(sample: &Sample) -> Vec<ProfiledApp> {
    let mut threads = BTreeMap::<Option<u32>, Vec<(u32, u32)>>::new();
    for thread in &sample.threads {
        threads.entry(thread.secondary).or_default().push((thread.lcore, thread.tid));
    }
    let ports: Vec<u16> = sample.ports.iter().map(|port| port.id).collect();
    let process = |(secondary, threads): (Option<u32>, Vec<_>)| ProfiledApp {
        pid: secondary.unwrap_or(sample.app.pid),
        threads,
        ports: ports.clone(),
    };
    threads.into_iter().map(process).collect()
}

/// The second sample gives the rates of the time of the profile.
fn finish(running: Vec<Running>, fleet: &mut Fleet, hz: u32) -> ProfileDocument {
    let done: Vec<(String, [u32; 2], AppProfile)> = running
        .into_iter()
        .map(|app| (app.name, [app.app, app.pid], app.profiler.finish()))
        .collect();
    fleet.sample(ROUND_TIMEOUT);
    let apps = done.into_iter().map(|(app, [app_pid, pid], profile)| {
        let found = fleet.state.find(&app).and_then(|state| state.model.as_deref());
        let is_same = |model: &&Model| model.sample.app.pid == app_pid;
        let model = found.filter(is_same).filter(|model| model.interval_s.is_some());
        let lcore = |profile: LcoreProfile| LcoreDocument {
            empty_polls: EmptyPolls::of(&profile, model),
            profile,
        };
        let lcores = profile.lcores.into_iter().map(lcore).collect();
        AppDocument { app, pid, lcores, notes: profile.notes }
    });
    ProfileDocument::of(hz, apps.collect())
}

impl ProfileDocument {
    pub(super) fn of(hz: u32, apps: Vec<AppDocument>) -> Self {
        let cost_ratio = f64::from(hz) * SAMPLE_COST_US / 1e6;
        Self { schema: PROFILE_SCHEMA, hz, cost_ratio, apps }
    }

    /// All lcores.
    pub(super) fn lcores(&self) -> impl Iterator<Item = (&AppDocument, &LcoreDocument)> {
        self.apps.iter().flat_map(|app| app.lcores.iter().map(move |lcore| (app, lcore)))
    }
}

impl EmptyPolls {
    /// `model` has the rates of the time of the profile; without it nothing is known.
    fn of(profile: &LcoreProfile, model: Option<&Model>) -> Self {
        let Some(model) = model else { return Self::default() };
        let rates = model.lcores.iter().find(|rates| rates.lcore == profile.lcore);
        let of_polls = rates.and_then(|rates| Some(1.0 - rates.busy_ratio?));
        let receiving = profile.share(Activity::DriverRx);
        let silent = !model.ports.is_empty() && model.ports.iter().all(|p| p.rx_pps == Some(0.0));
        let (of_time, estimate) = match (of_polls, receiving) {
            (Some(empty), Some(receiving)) => {
                (Some(empty * receiving), Some(EmptyPollsEstimate::CountedPolls))
            }
            (None, Some(receiving)) if silent && receiving > 0.0 => {
                (Some(receiving), Some(EmptyPollsEstimate::NoPackets))
            }
            _ => (None, None),
        };
        Self { of_polls, of_time, estimate }
    }
}

#[cfg(test)]
mod tests {
    use pmdscope_profile::ActivityShare;
    use pmdscope_telemetry::model::{LcoreRates, PortRates};
    use pmdscope_telemetry::sample::ThreadSample;

    use super::*;

    fn receiving(share: f64) -> LcoreProfile {
        let activity = ActivityShare { activity: Activity::DriverRx, samples: 10, share };
        LcoreProfile { lcore: 1, samples: 100, activities: vec![activity], ..Default::default() }
    }

    fn model(rx_pps: Option<f64>, busy_ratio: Option<f64>) -> Model {
        let lcore = LcoreRates { lcore: 1, busy_ratio, ..LcoreRates::default() };
        let port = PortRates { rx_pps, ..PortRates::default() };
        Model { lcores: vec![lcore], ports: vec![port], ..Model::default() }
    }

    #[test]
    fn each_process_of_an_app_is_sampled_for_itself() {
        let thread = |lcore, secondary| ThreadSample {
            lcore,
            tid: 40 + lcore,
            secondary,
            ..ThreadSample::default()
        };
        let mut sample = Sample::default();
        sample.app.pid = 7;
        sample.threads = vec![thread(1, None), thread(2, Some(9)), thread(3, None)];
        let found = processes(&sample);
        let found: Vec<_> = found.into_iter().map(|it| (it.pid, it.threads)).collect();
        assert_eq!(found, [(7, vec![(1, 41), (3, 43)]), (9, vec![(2, 42)])]);
    }

    #[test]
    fn the_time_of_empty_polls_is_estimated_or_unknown() {
        let of = |model: &Model| EmptyPolls::of(&receiving(0.5), Some(model));
        let counted = of(&model(Some(9.0), Some(0.75)));
        assert_eq!((counted.of_polls, counted.of_time), (Some(0.25), Some(0.125)));
        assert_eq!(counted.estimate, Some(EmptyPollsEstimate::CountedPolls));
        let silent = of(&model(Some(0.0), None));
        assert_eq!((silent.of_polls, silent.of_time), (None, Some(0.5)));
        assert_eq!(silent.estimate, Some(EmptyPollsEstimate::NoPackets));
        assert_eq!(of(&model(Some(9.0), None)), EmptyPolls::default(), "a stock app with packets");
        assert_eq!(of(&model(None, None)), EmptyPolls::default(), "rates are unknown");
        assert_eq!(EmptyPolls::of(&receiving(0.5), None), EmptyPolls::default());
    }
}

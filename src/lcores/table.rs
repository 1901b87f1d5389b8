//! The table of lcores.

use std::collections::BTreeSet;

use pmdscope_render::cells::{alarm, bad_count, rate, share};
use pmdscope_render::number::{UNKNOWN, known, micros, seconds as duration, si};
use pmdscope_render::{Cell, Column, Subject, TextTable, Tone};
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::sample::ThreadSample;
use pmdscope_telemetry::{AppState, FleetState};
use serde::Serialize;

/// Version of the JSON; raised when a field changes its meaning.
const LCORES_SCHEMA: u32 = 1;

/// Share of waiting time above which a poll loop does not have a CPU to itself.
const WAITS_TOO_LONG: f64 = 0.001;

/// Time without running from which a thread is explained, seconds.
const STILL_S: f64 = 0.9;

/// Output of `lcores --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document<'a> {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = LCORES_SCHEMA)))]
    schema: u32,
    /// Lcores that poll through libpmdscope, and lcores with a thread that the kernel reports.
    lcores: Vec<LcoreRow<'a>>,
}

/// An lcore; values that are unknown are `None`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LcoreRow<'a> {
    /// Name of the app, by default its file-prefix.
    pub(crate) app: &'a str,
    /// Level: 0 for a stock app, 1 with libpmdscope, 2 if it was also compiled with `pmdscope_trace.h`; 1 if
    /// the library is too old to distinguish 1 from 2.
    pub(crate) level: u8,
    /// lcore id.
    pub(crate) lcore: u32,
    /// Role: `main`, `worker` or `other`; `None` if it does not poll through libpmdscope.
    pub(crate) role: Option<&'a str>,
    /// Kernel thread id on this host; `None` if `/proc` does not report it.
    pub(crate) tid: Option<u32>,
    /// Name of the thread; `None` if `/proc` does not report it.
    pub(crate) thread: Option<&'a str>,
    /// Process id of the secondary process that the thread belongs to; `None` for the app itself.
    pub(crate) secondary: Option<u32>,
    /// What the thread waits for, with its state and the function of the kernel it sleeps in; `None` if it
    /// ran or waited for a CPU, or if unknown.
    pub(crate) wait: Option<String>,
    /// Time for which the thread has not run, seconds; `None` if it ran since the previous sample.
    pub(crate) still_s: Option<f64>,
    /// CPUs on which the thread may run, such as `2-3`.
    pub(crate) cpus: Option<&'a str>,
    /// CPU on which the thread ran last.
    pub(crate) cpu: Option<u32>,
    /// Share of the time since the previous sample in which the thread ran, 0 to 1; `None` if unknown.
    pub(crate) run_ratio: Option<f64>,
    /// Share of the time since the previous sample in which the thread was ready to run but had no CPU, 0 to
    /// 1; `None` if unknown.
    pub(crate) run_delay_ratio: Option<f64>,
    /// Involuntary context switches per second since the previous sample; `None` if unknown.
    pub(crate) involuntary_ps: Option<f64>,
    /// Voluntary context switches per second since the previous sample; `None` if unknown.
    pub(crate) voluntary_ps: Option<f64>,
    /// Iterations of the poll loop per second since the previous sample; `None` if unknown.
    pub(crate) polls_ps: Option<f64>,
    /// Share of iterations since the previous sample that received no packet, 0 to 1; `None` if unknown.
    pub(crate) empty_ratio: Option<f64>,
    /// Longest gap between two iterations in the last complete window, microseconds; `None` if unknown.
    pub(crate) gap_us: Option<u64>,
    /// Number of stalls since libpmdscope started: gaps of at least the stall threshold; `None` if unknown.
    pub(crate) stalls: Option<u64>,
    #[serde(skip)]
    pub(crate) stale: bool,
}

impl<'a> Document<'a> {
    pub(super) fn of(fleet: &'a FleetState) -> Self {
        Self { schema: LCORES_SCHEMA, lcores: rows(fleet).collect() }
    }
}

/// The lcores that poll through the library, and those whose threads the kernel knows.
pub(crate) fn rows(fleet: &FleetState) -> impl Iterator<Item = LcoreRow<'_>> {
    fleet.models().flat_map(|(app, model)| {
        let polling = model.sample.lcores.iter().map(|lcore| lcore.lcore);
        let threads = model.sample.threads.iter().map(|thread| thread.lcore);
        let ids: BTreeSet<u32> = polling.chain(threads).collect();
        ids.into_iter().map(move |lcore| row(app, model, lcore))
    })
}

fn row<'a>(app: &'a AppState, model: &'a Model, id: u32) -> LcoreRow<'a> {
    let mut threads = model.sample.threads.iter().zip(&model.threads);
    let thread = threads.find(|(thread, _)| thread.lcore == id);
    let mut lcores = model.sample.lcores.iter().zip(&model.lcores);
    let polling = lcores.find(|(lcore, _)| lcore.lcore == id);
    let (kernel, rates) = thread.unzip();
    let (lcore, polls) = polling.unzip();
    LcoreRow {
        app: &app.name,
        level: model.sample.level(),
        lcore: id,
        role: lcore.map(|lcore| lcore.role.as_str()),
        tid: kernel.map(|thread| thread.tid),
        thread: kernel.map(|thread| thread.name.as_str()),
        secondary: kernel.and_then(|thread| thread.secondary),
        wait: kernel.and_then(ThreadSample::wait),
        still_s: rates.and_then(|rates| Some(rates.still?.seconds)),
        cpus: kernel.map(|thread| thread.cpus.as_str()),
        cpu: kernel.map(|thread| thread.cpu),
        run_ratio: rates.and_then(|rates| rates.run_ratio),
        run_delay_ratio: rates.and_then(|rates| rates.run_delay_ratio),
        involuntary_ps: rates.and_then(|rates| rates.involuntary_ps),
        voluntary_ps: rates.and_then(|rates| rates.voluntary_ps),
        polls_ps: polls.and_then(|rates| rates.polls_ps),
        empty_ratio: polls.and_then(|rates| Some(1.0 - rates.busy_ratio?)),
        gap_us: lcore.map(|lcore| lcore.gap_window_max_us),
        stalls: lcore.map(|lcore| lcore.stalls),
        stale: app.stale(),
    }
}

pub(super) fn table(fleet: &FleetState) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Lcore"),
        Column::text("Role").drop_at(3),
        Column::number("TID").drop_at(5),
        Column::text("Thread").drop_at(6),
        Column::text("CPUs"),
        Column::number("CPU use"),
        Column::number("Waiting"),
        Column::number("Preempt/s").drop_at(1),
        Column::number("Sleeps/s").drop_at(4),
        Column::number("Polls/s").drop_at(2),
        Column::number("Empty polls"),
        Column::number("Gap"),
        Column::number("Stalls"),
    ];
    let mut table = TextTable::new("Lcores", columns);
    for row in rows(fleet) {
        let subject = Subject::Lcore { app: row.app.to_owned(), lcore: row.lcore };
        table.push(subject, row.stale, cells(&row));
        table.notes.extend(still_note(&row));
    }
    if table.rows.is_empty() {
        table.notes.push(nothing(fleet));
    } else if fleet.models().any(|(_, model)| model.sample.level() == 0) {
        let what = "polls, gaps and stalls need libpmdscope; --profile shows where the time of any \
                    app goes";
        table.notes.push(what.to_owned());
    }
    table
}

/// What a thread waits for that has not run for a while.
fn still_note(row: &LcoreRow<'_>) -> Option<String> {
    let seconds = row.still_s.filter(|seconds| *seconds >= STILL_S)?;
    let wait = row.wait.as_deref()?;
    Some(format!("{} lcore {}: {wait}, for {}", row.app, row.lcore, duration(seconds)))
}

/// Why there is no lcore.
fn nothing(fleet: &FleetState) -> String {
    match fleet.apps.first() {
        Some(app) if app.model.is_none() => format!("{} has not answered", app.name),
        _ => {
            "no lcore is known: threads of an app are seen where it shares the PID namespace with \
              pmdscope"
                .to_owned()
        }
    }
}

fn cells(row: &LcoreRow<'_>) -> Vec<Cell> {
    let waiting = row.run_delay_ratio.is_some_and(|ratio| ratio > WAITS_TOO_LONG);
    let some = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
    let gap = Cell::number(row.gap_us.map(|us| us as f64), known(row.gap_us, micros));
    let stalls = row
        .stalls
        .map_or_else(|| Cell::text(UNKNOWN), |stalls| bad_count(stalls, si(stalls as f64)));
    vec![
        Cell::text(row.app),
        Cell::number(Some(f64::from(row.lcore)), row.lcore.to_string()),
        Cell::text(row.role.unwrap_or(UNKNOWN)),
        Cell::number(row.tid.map(f64::from), known(row.tid, |tid| tid.to_string())),
        Cell::text(row.thread.filter(|name| !name.is_empty()).unwrap_or(UNKNOWN)),
        Cell::text(row.cpus.unwrap_or(UNKNOWN)),
        share(row.run_ratio),
        alarm(share(row.run_delay_ratio), waiting, Tone::Warn),
        alarm(rate(row.involuntary_ps), some(row.involuntary_ps), Tone::Warn),
        alarm(rate(row.voluntary_ps), some(row.voluntary_ps), Tone::Warn),
        rate(row.polls_ps),
        share(row.empty_ratio),
        gap,
        stalls,
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insta::assert_snapshot;
    use pmdscope_render::{Theme, table_lines, table_text};
    use pmdscope_telemetry::FleetEvent;
    use pmdscope_telemetry::model::{LcoreRates, StillThread, ThreadRates};
    use pmdscope_telemetry::sample::{LcoreSample, LibrarySample, Sample, ThreadSample};

    use super::*;

    fn text(fleet: &FleetState, width: Option<usize>) -> String {
        table_text(&table(fleet), width, Theme::default())
    }

    fn fleet_of(models: Vec<(&str, Model)>) -> FleetState {
        let mut fleet = FleetState::default();
        for (app, model) in models {
            let (app, model) = (app.to_owned(), Arc::new(model));
            fleet.apply(FleetEvent::Sampled { app, model, findings: Vec::new() });
        }
        fleet
    }

    fn thread(lcore: u32) -> (ThreadSample, ThreadRates) {
        let sample = ThreadSample {
            lcore,
            tid: 4240 + lcore,
            name: format!("rte-worker-{lcore}"),
            cpus: lcore.to_string(),
            cpu: lcore,
            ..ThreadSample::default()
        };
        let rates = ThreadRates {
            lcore,
            voluntary_ps: Some(0.0),
            involuntary_ps: Some(3.5),
            run_ratio: Some(0.982),
            run_delay_ratio: Some(0.018),
            still: None,
        };
        (sample, rates)
    }

    fn fleet() -> FleetState {
        let (sample, rates) = thread(1);
        let stock = Model {
            sample: Sample { threads: vec![sample.clone()], ..Sample::default() },
            threads: vec![rates.clone()],
            ..Model::default()
        };
        let polling = LcoreSample {
            lcore: 1,
            role: "worker".to_owned(),
            gap_window_max_us: 4_100,
            stalls: 3,
            ..LcoreSample::default()
        };
        let linked = Model {
            sample: Sample {
                threads: vec![sample],
                lcores: vec![polling],
                library: Some(LibrarySample::default()),
                ..Sample::default()
            },
            threads: vec![rates],
            lcores: vec![LcoreRates {
                lcore: 1,
                polls_ps: Some(12_300_000.0),
                busy_ratio: Some(0.25),
                ..LcoreRates::default()
            }],
            ..Model::default()
        };
        fleet_of(vec![("stock", stock), ("linked", linked)])
    }

    #[test]
    fn what_is_unknown_of_a_stock_app_is_a_dash() {
        assert_snapshot!(text(&fleet(), None));
        let narrow = text(&fleet(), Some(80));
        assert!(narrow.lines().all(|line| line.len() <= 80), "{narrow}");
        assert!(narrow.contains("Waiting") && narrow.contains("Stalls"), "{narrow}");
    }

    #[test]
    fn values_beyond_their_limits_are_warnings() {
        let lines = table_lines(&table(&fleet()), None, Theme::default());
        let spans = lines.iter().flat_map(|line| &line.spans);
        let warned = spans.filter(|span| span.tone == Tone::Warn);
        let warned: Vec<_> = warned.map(|span| span.text.trim()).collect();
        assert_eq!(warned, ["!1.8%", "!3.5", "!3", "!1.8%", "!3.5"]);
    }

    #[test]
    fn json_has_null_for_what_is_unknown() {
        let fleet = fleet();
        let json = serde_json::to_value(Document::of(&fleet)).unwrap();
        assert_eq!(json["lcores"][1]["polls_ps"], serde_json::Value::Null);
        assert_eq!(json["lcores"][0]["empty_ratio"], 0.75);
        assert_eq!(json["lcores"][0]["tid"], 4241);
    }

    #[test]
    fn a_thread_that_does_not_run_is_explained() {
        let (mut sample, mut rates) = thread(1);
        (sample.asleep, sample.state) = (true, Some('S'));
        sample.wait_channel = Some("futex_wait_queue".to_owned());
        rates.still = Some(StillThread { seconds: 2.0, is_estimate: false, polled: true });
        let model = Model {
            sample: Sample { threads: vec![sample], ..Sample::default() },
            threads: vec![rates],
            ..Model::default()
        };
        let text = text(&fleet_of(vec![("stock", model)]), None);
        let note = "stock lcore 1: waits for a lock or another thread (state S, futex_wait_queue), for 2.0s";
        assert!(text.contains(note), "{text}");
    }

    #[test]
    fn no_lcore_is_told() {
        let fleet = fleet_of(vec![("x", Model::default())]);
        assert!(text(&fleet, None).starts_with("no lcore is known"));
    }
}

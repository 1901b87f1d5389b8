//! The report of one round: a table for people, a document for programs.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pmdscope_interrupts::StolenHistogram;
use pmdscope_render::number::{UNKNOWN, count, known, micros, nanos, percent, plural, si};
use pmdscope_render::{Cell, Column, Subject, TextLine, TextTable, Theme, table_lines};
use pmdscope_telemetry::sample::TracingMethod;
use pmdscope_telemetry::{realtime_ns, sample::StolenCause};
use serde::Serialize;

use super::rounds::{AppEvent, AppRound, LongestTheft, Rounds, StolenRow};
use crate::output::StandardOutput;

/// Version of the JSON; raised when a field changes its meaning.
const INTERRUPTS_SCHEMA: u32 = 1;

/// The same of an event.
const EVENTS_SCHEMA: u32 = 1;

/// Rows where the height of the terminal is not known.
const ROWS: usize = 20;

/// Lines of a screen that are not rows of the table.
const OTHER_LINES: usize = 8;

/// Output of `interrupts --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document<'a> {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = INTERRUPTS_SCHEMA)))]
    schema: u32,
    /// Wall clock of this report, nanoseconds since 1970.
    realtime_ns: u64,
    /// Time since the previous report, or since the start, seconds; 0 if no app runs.
    interval_s: f64,
    /// Apps with traced lcores.
    apps: Vec<AppDocument<'a>>,
}

/// Time taken from the lcores of an app.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AppDocument<'a> {
    /// Name of the app, by default its file-prefix.
    app: &'a str,
    /// Process id of the app on this host.
    pid: u32,
    /// Source of the numbers.
    method: TracingMethod,
    /// Wall clock when tracing started, and the counters with it, nanoseconds since 1970.
    since_realtime_ns: u64,
    /// Lcores with traced threads.
    lcores: &'a [u32],
    /// Number of events that the tracer lost since it started, of all apps together.
    lost_events: u64,
    /// Estimated time that tracing itself took from these lcores since tracing started, nanoseconds.
    overhead_ns: u64,
    /// Estimated share of the time of these lcores that tracing itself took in the interval, 0 to 1;
    /// `None` if unknown.
    overhead_ratio: Option<f64>,
    /// Parts that are not traced, each with the reason; empty if everything is traced.
    missing: &'a [String],
    /// Time taken in the interval, by lcore, cause and thief; most time first.
    stolen: &'a [StolenRow],
    /// Histograms of the lengths of events since tracing started, by lcore and cause.
    histograms: &'a [StolenHistogram],
    /// Longest event of each lcore since the start, except sleep; only lcores that libpmdscope reports.
    longest: &'a [LongestTheft],
}

impl<'a> Document<'a> {
    /// Of no app.
    pub(super) fn empty() -> Self {
        let realtime_ns = realtime_ns();
        Self { schema: INTERRUPTS_SCHEMA, realtime_ns, interval_s: 0.0, apps: Vec::new() }
    }

    pub(super) fn of(rounds: &'a Rounds) -> Self {
        let app = |app: &'a AppRound| AppDocument {
            app: &app.app,
            pid: app.pid,
            method: app.tracing.method,
            since_realtime_ns: app.tracing.since_realtime_ns,
            lcores: &app.tracing.lcores,
            lost_events: app.tracing.lost_events,
            overhead_ns: app.tracing.overhead_ns,
            overhead_ratio: app.overhead_ratio,
            missing: &app.tracing.missing,
            stolen: &app.rows,
            histograms: &app.histograms,
            longest: &app.around,
        };
        Self {
            schema: INTERRUPTS_SCHEMA,
            realtime_ns: realtime_ns(),
            interval_s: rounds.seconds(),
            apps: rounds.apps().iter().map(app).collect(),
        }
    }
}

/// A line of the output of `interrupts --events`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EventDocument {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = EVENTS_SCHEMA)))]
    schema: u32,
    #[serde(flatten)]
    event: AppEvent,
}

impl EventDocument {
    pub(super) fn of(event: AppEvent) -> Self {
        Self { schema: EVENTS_SCHEMA, event }
    }
}

/// The report as text.
pub(super) fn lines(rounds: &Rounds) -> Vec<TextLine> {
    let height = StandardOutput::size().map(|size| usize::from(size.ws_row));
    let most = height.map_or(ROWS, |height| height.saturating_sub(OTHER_LINES).max(5));
    table_lines(
        &table(rounds.apps(), most, &TimeZone::system()),
        StandardOutput::width(),
        Theme::default(),
    )
}

/// Thieves of all apps, worst first.
pub(super) fn table(apps: &[AppRound], most: usize, zone: &TimeZone) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Lcore"),
        Column::text("Cause"),
        Column::text("Thief"),
        Column::number("Events/s"),
        Column::number("Stolen/s"),
        Column::number("Share"),
        Column::number("Longest"),
        Column::text("Last"),
    ];
    let mut table = TextTable::new("Interrupts", columns);
    let mut rows: Vec<&StolenRow> = apps.iter().flat_map(|app| &app.rows).collect();
    rows.sort_by_key(|row| Reverse((row.stolen_ns, row.count)));
    for row in rows.iter().take(most) {
        table.push(Subject::App { app: row.app.clone() }, false, cells(row, zone));
    }
    if rows.len() > most {
        table.notes.push(format!("and {} more", rows.len() - most));
    }
    if rows.is_empty() {
        table.notes.push("nothing was taken from any poll thread".to_owned());
    }
    for app in apps {
        table.notes.extend(notes(app, zone));
    }
    table
}

fn cells(row: &StolenRow, zone: &TimeZone) -> Vec<Cell> {
    let per_second = row.stolen_ratio.map(|ratio| ratio * 1e9);
    vec![
        Cell::text(&row.app),
        Cell::text(row.lcore.to_string()),
        Cell::text(cause(row.cause)),
        Cell::text(&row.thief),
        Cell::text(known(row.count_ps, si)),
        Cell::text(known(per_second, time)),
        Cell::text(known(row.stolen_ratio, percent)),
        Cell::text(known(row.longest_ns, |ns| time(ns as f64))),
        Cell::text(known(row.last_realtime_ns, |ns| clock(ns, zone))),
    ]
}

fn cause(cause: StolenCause) -> String {
    cause.name().replace('_', " ")
}

/// How the numbers of an app were measured, and what else was seen around its longest thefts.
fn notes(app: &AppRound, zone: &TimeZone) -> Vec<String> {
    let (name, tracing) = (&app.app, &app.tracing);
    let mut notes: Vec<String> =
        tracing.missing.iter().map(|missing| format!("{name}: not seen: {missing}")).collect();
    if tracing.method == TracingMethod::Bpf {
        let share = known(app.overhead_ratio, percent);
        let mut note = format!("{name}: tracing takes about {share} of its poll cores");
        if tracing.lost_events > 0 {
            note.push_str("; ");
            note.push_str(&plural(tracing.lost_events, "event"));
            note.push_str(" lost");
        }
        notes.push(note);
    }
    notes.extend(app.around.iter().map(|around| longest(name, around, zone)));
    notes
}

/// What libpmdscope saw around the longest theft of an lcore.
fn longest(app: &str, around: &LongestTheft, zone: &TimeZone) -> String {
    let state = &around.state;
    let gap = known(state.poll_gap_us, micros);
    let depth = state.deepest_queue.as_ref().map_or_else(
        || UNKNOWN.to_owned(),
        |queue| {
            let all =
                queue.descriptors.map_or_else(String::new, |all| format!(" of {}", count(all)));
            format!("{}{all} (queue {}:{})", count(queue.packets), queue.port, queue.queue)
        },
    );
    format!(
        "{app}: lcore {}: longest {} at {} by {}; around it: poll gap {gap}, queue depth {depth}, \
         missed {}/s",
        around.lcore,
        time(around.duration_ns as f64),
        clock(around.realtime_ns, zone),
        around.thief,
        known(state.rx_missed_ps, si),
    )
}

/// Nanoseconds, of short ones a tenth of a microsecond.
pub(super) fn time(ns: f64) -> String {
    if ns < 99_950.0 {
        return format!("{:.1}us", ns / 1e3);
    }
    let time = Duration::try_from_secs_f64(ns / 1e9).unwrap_or(Duration::MAX);
    nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// A time of day.
fn clock(realtime_ns: u64, zone: &TimeZone) -> String {
    let time = Timestamp::from_nanosecond(realtime_ns.into());
    let text = |time: Timestamp| time.to_zoned(zone.clone()).strftime("%H:%M:%S%.3f").to_string();
    time.map_or_else(|_| UNKNOWN.to_owned(), text)
}

#[cfg(test)]
pub(super) mod tests {
    use insta::assert_snapshot;
    use pmdscope_render::table_text;
    use pmdscope_telemetry::sample::TracingSample;

    use super::super::rounds::{LcoreState, QueueDepth};
    use super::*;

    fn row(lcore: u32, cause: StolenCause, thief: &str, numbers: [u64; 3]) -> StolenRow {
        let [count, stolen_us, longest_us] = numbers;
        let is_timed = stolen_us > 0;
        StolenRow {
            app: "reflector".to_owned(),
            lcore,
            cause,
            thief: thief.to_owned(),
            count,
            count_ps: Some(count as f64 / 2.0),
            stolen_ns: is_timed.then_some(stolen_us * 1000),
            stolen_ratio: is_timed.then_some(stolen_us as f64 / 2e6),
            longest_ns: is_timed.then_some(longest_us * 1000),
            longest_realtime_ns: is_timed.then_some(1_700_000_000_123_000_000),
            last_realtime_ns: is_timed.then_some(1_700_000_001_456_000_000),
        }
    }

    pub(in super::super) fn app() -> AppRound {
        let mut buckets = vec![0; 40];
        (buckets[12], buckets[13], buckets[15]) = (300, 180, 20);
        AppRound {
            app: "reflector".to_owned(),
            pid: 4242,
            tracing: TracingSample {
                method: TracingMethod::Bpf,
                lcores: vec![1],
                lost_events: 3,
                missing: vec!["page faults: no tracepoint".to_owned()],
                ..TracingSample::default()
            },
            histograms: vec![StolenHistogram { lcore: 1, cause: StolenCause::Timer, buckets }],
            rows: vec![
                row(1, StolenCause::Scheduler, "stress", [20, 100_300, 5_070]),
                row(1, StolenCause::Timer, "local timer", [500, 6_200, 41]),
                row(1, StolenCause::Irq, "eth0-TxRx-3 (IRQ 41, 0000:03:00.0)", [7, 12, 3]),
                row(1, StolenCause::PageFault, "page fault", [2, 0, 0]),
            ],
            around: vec![LongestTheft {
                lcore: 1,
                cause: StolenCause::Scheduler,
                thief: "stress".to_owned(),
                duration_ns: 5_070_000,
                realtime_ns: 1_700_000_000_123_000_000,
                state: LcoreState {
                    poll_gap_us: Some(5_102),
                    deepest_queue: Some(QueueDepth {
                        port: 0,
                        queue: 1,
                        packets: 512,
                        descriptors: Some(512),
                    }),
                    rx_missed_ps: Some(1_234.0),
                },
            }],
            overhead_ratio: Some(0.0008),
        }
    }

    #[test]
    fn the_worst_thief_comes_first() {
        let table = table(&[app()], 3, &TimeZone::UTC);
        assert_snapshot!(table_text(&table, None, Theme::default()));
    }

    #[test]
    fn short_times_keep_a_digit() {
        assert_eq!([714.0, 41_000.0, 99_960.0].map(time), ["0.7us", "41.0us", "99us"]);
    }
}

//! Profiles as text: tables, and stacks in the folded form of flame graphs.

use std::fmt::Write;

use pmdscope_profile::{Activity, FunctionShare, LcoreProfile};
use pmdscope_render::cells::share;
use pmdscope_render::number::{count, nanos, percent, plural, seconds};
use pmdscope_render::{Cell, Column, Subject, TextLine, TextTable, Theme, table_lines};

use super::profile::{EmptyPollsEstimate, LcoreDocument, ProfileDocument};
use crate::output::one_line;

/// Functions that are listed of each lcore.
const MOST_FUNCTIONS: usize = 10;

/// Least share of an lcore of a function that is listed.
const LEAST_SHARE: f64 = 0.005;

/// Least share of stacks without a caller that a note reports.
const MANY_SHORT: f64 = 0.2;

pub(super) fn text(document: &ProfileDocument) -> Vec<TextLine> {
    let mut lines = table_lines(&activities(document), None, Theme::default());
    lines.push(TextLine::default());
    lines.extend(table_lines(&functions(document), None, Theme::default()));
    lines
}

/// A line for each stack: `app;lcore 1;main;loop;parse_http 42`.
pub(super) fn folded(document: &ProfileDocument) -> String {
    let mut out = String::new();
    for (app, lcore) in document.lcores() {
        for stack in &lcore.profile.stacks {
            let _ = write!(out, "{};lcore {}", folded_name(&app.app), lcore.profile.lcore);
            for frame in &stack.frames {
                let _ = write!(out, ";{}", folded_name(frame));
            }
            let _ = writeln!(out, " {}", stack.samples);
        }
    }
    out
}

/// A semicolon separates frames.
fn folded_name(name: &str) -> String {
    one_line(&name.replace(';', ":"))
}

fn activities(document: &ProfileDocument) -> TextTable {
    let used: Vec<Activity> = Activity::ALL
        .into_iter()
        .filter(|activity| {
            let always = [Activity::DriverRx, Activity::DriverTx, Activity::Kernel, Activity::App];
            let has = |l: &LcoreDocument| l.profile.share(*activity).is_some_and(|s| s > 0.0);
            always.contains(activity) || document.lcores().any(|(_, lcore)| has(lcore))
        })
        .collect();
    let mut columns = vec![
        Column::text("App"),
        Column::number("Lcore"),
        Column::number("Samples"),
        Column::number("CPU use"),
        Column::number("Waiting"),
        Column::number("Empty polls"),
    ];
    columns.extend(used.iter().map(|activity| Column::number(title(*activity))));
    let mut table = TextTable::new("Profile", columns);
    for (app, lcore) in document.lcores() {
        let profile = &lcore.profile;
        let mut cells = vec![
            Cell::text(&app.app),
            Cell::number(Some(f64::from(profile.lcore)), profile.lcore.to_string()),
            Cell::number(Some(profile.samples as f64), count(profile.samples)),
            share(profile.on_cpu),
            share(profile.waiting),
            share(lcore.empty_polls.of_polls),
        ];
        cells.extend(used.iter().map(|activity| share(profile.share(*activity))));
        let subject = Subject::Lcore { app: app.app.clone(), lcore: profile.lcore };
        table.push(subject, profile.ended, cells);
    }
    table.notes.extend(notes(document));
    table
}

fn title(activity: Activity) -> &'static str {
    match activity {
        Activity::DriverRx => "Driver RX",
        Activity::DriverTx => "Driver TX",
        Activity::Driver => "Driver, other",
        Activity::Mempool => "Mempool",
        Activity::Dpdk => "DPDK",
        Activity::Pmdscope => "libpmdscope",
        Activity::Kernel => "Kernel",
        Activity::App => "App",
        Activity::Unknown => "Unknown",
    }
}

fn functions(document: &ProfileDocument) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::number("Lcore"),
        Column::number("Share"),
        Column::text("Function"),
        Column::text("Work"),
        Column::text("File"),
    ];
    let mut table = TextTable::new("Functions", columns);
    for (app, lcore) in document.lcores() {
        let listed = lcore.profile.functions.iter().take(MOST_FUNCTIONS);
        for function in listed.filter(|function| function.share >= LEAST_SHARE) {
            let cells = vec![
                Cell::text(&app.app),
                Cell::number(Some(f64::from(lcore.profile.lcore)), lcore.profile.lcore.to_string()),
                share(Some(function.share)),
                Cell::text(&function.function),
                Cell::text(work(function)),
                Cell::text(&function.module),
            ];
            let subject = Subject::Lcore { app: app.app.clone(), lcore: lcore.profile.lcore };
            table.push(subject, false, cells);
        }
    }
    table
}

fn work(function: &FunctionShare) -> String {
    let ports: Vec<String> = function.ports.iter().map(ToString::to_string).collect();
    match ports.len() {
        0 => function.activity.to_string(),
        1 => format!("{} of port {}", function.activity, ports.join(", ")),
        _ => format!("{} of ports {}", function.activity, ports.join(", ")),
    }
}

fn notes(document: &ProfileDocument) -> Vec<String> {
    let mut notes = Vec::new();
    for (app, lcore) in document.lcores() {
        let name = format!("{} lcore {}", app.app, lcore.profile.lcore);
        let told =
            [stay(&lcore.profile), empty(lcore), ended(&lcore.profile), lost(&lcore.profile)];
        notes.extend(told.into_iter().flatten().map(|note| format!("{name}: {note}")));
    }
    for app in &document.apps {
        notes.extend(app.notes.iter().map(|note| format!("{}: {note}", app.app)));
    }
    notes.extend(short_stacks(document));
    notes.push(format!(
        "sampled at {} Hz: took an estimated {} of the time of each lcore, less outside of virtual \
         machines",
        document.hz,
        percent(document.cost_ratio)
    ));
    notes
}

fn stay(profile: &LcoreProfile) -> Option<String> {
    let stay = profile.longest_stay.as_ref()?;
    let times = if stay.times > 1 {
        format!(", {} times", count(stay.times as u64))
    } else {
        String::new()
    };
    Some(format!(
        "own code too long: `{}` {} (+-{}){times}",
        called(&stay.function),
        nanos(stay.length_ns),
        nanos(stay.resolution_ns),
    ))
}

/// As people write functions; one without a symbol is a file and an offset.
fn called(function: &str) -> String {
    if function.contains(['+', '(', '[']) { function.to_owned() } else { format!("{function}()") }
}

fn empty(lcore: &LcoreDocument) -> Option<String> {
    let (time, estimate) = lcore.empty_polls.of_time.zip(lcore.empty_polls.estimate)?;
    let how = match estimate {
        EmptyPollsEstimate::CountedPolls => "driver RX by the share of polls that were empty",
        EmptyPollsEstimate::NoPackets => "all of driver RX, since no port received a packet",
    };
    Some(format!("about {} of the time in empty polls ({how})", percent(time)))
}

fn ended(profile: &LcoreProfile) -> Option<String> {
    let after = || format!("the thread ended after {}", seconds(profile.duration_s));
    match (profile.ended, profile.samples) {
        (true, _) => Some(after()),
        (false, 0) => Some("no samples: the thread did not run".to_owned()),
        _ => None,
    }
}

fn lost(profile: &LcoreProfile) -> Option<String> {
    let lost = (profile.lost > 0).then(|| plural(profile.lost, "sample"))?;
    Some(format!("{lost} lost: ask for fewer per second"))
}

fn short_stacks(document: &ProfileDocument) -> Option<String> {
    let sum = |of: fn(&LcoreProfile) -> u64| -> u64 {
        document.lcores().map(|(_, lcore)| of(&lcore.profile)).sum()
    };
    let (short, all) = (sum(|profile| profile.one_frame), sum(|profile| profile.samples));
    let share = short as f64 / all.max(1) as f64;
    (share > MANY_SHORT).then(|| {
        let hint = "without .eh_frame, build with -fno-omit-frame-pointer for deeper ones";
        format!("{} of the stacks have only one function: {hint}", percent(share))
    })
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use pmdscope_profile::{ActivityShare, LongestStay, StackSamples};
    use pmdscope_render::plain_text;

    use super::*;
    use crate::lcores::profile::{AppDocument, EmptyPolls};

    fn function(name: &str, activity: Activity, ports: &[u16], samples: u64) -> FunctionShare {
        FunctionShare {
            function: name.to_owned(),
            module: "app".to_owned(),
            activity,
            ports: ports.to_vec(),
            samples,
            share: samples as f64 / 1000.0,
        }
    }

    fn profile() -> LcoreProfile {
        let share = |activity, samples: u64| ActivityShare {
            activity,
            samples,
            share: samples as f64 / 1000.0,
        };
        let stack = |frames: &[&str], samples| StackSamples {
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            samples,
        };
        LcoreProfile {
            lcore: 1,
            tid: 4242,
            duration_s: 1.0,
            samples: 1000,
            on_cpu: Some(1.0),
            waiting: Some(0.0),
            activities: vec![
                share(Activity::DriverRx, 600),
                share(Activity::DriverTx, 100),
                share(Activity::App, 300),
            ],
            functions: vec![
                function("eth_null_rx", Activity::DriverRx, &[0, 1], 600),
                function("parse_http", Activity::App, &[], 300),
                function("eth_null_tx", Activity::DriverTx, &[0], 100),
                function("rare", Activity::App, &[], 1),
            ],
            longest_stay: Some(LongestStay {
                function: "parse_http".to_owned(),
                length_ns: 4_100_000,
                resolution_ns: 1_003_009,
                times: 12,
            }),
            stacks: vec![
                stack(&["main", "loop", "eth_null_rx (port 0)"], 700),
                stack(&["main", "loop", "std::f;\u{1b}[2J"], 300),
            ],
            ..LcoreProfile::default()
        }
    }

    fn document(lcores: Vec<LcoreDocument>) -> ProfileDocument {
        let notes = vec!["time in the kernel is not sampled".to_owned()];
        let app = AppDocument { app: "fwd".to_owned(), pid: 4242, lcores, notes };
        ProfileDocument { schema: 1, hz: 997, cost_ratio: 0.005, apps: vec![app] }
    }

    fn estimated() -> EmptyPolls {
        let estimate = Some(EmptyPollsEstimate::CountedPolls);
        EmptyPolls { of_polls: Some(0.5), of_time: Some(0.3), estimate }
    }

    #[test]
    fn a_profile_is_shares_functions_and_what_stands_out() {
        let busy = LcoreDocument { profile: profile(), empty_polls: estimated() };
        let silent = LcoreProfile { lcore: 2, ..LcoreProfile::default() };
        let silent = LcoreDocument { profile: silent, empty_polls: EmptyPolls::default() };
        let ended = LcoreProfile {
            lcore: 3,
            ended: true,
            lost: 7,
            samples: 10,
            one_frame: 1000,
            unknown: vec![Activity::Kernel],
            ..LcoreProfile::default()
        };
        let ended = LcoreDocument { profile: ended, empty_polls: EmptyPolls::default() };
        assert_snapshot!(plain_text(&text(&document(vec![busy, silent, ended]))));
    }

    #[test]
    fn stacks_are_a_line_each_whatever_the_names() {
        let lcore = LcoreDocument { profile: profile(), empty_polls: EmptyPolls::default() };
        let expected = "fwd;lcore 1;main;loop;eth_null_rx (port 0) 700\n\
                        fwd;lcore 1;main;loop;std::f:?[2J 300\n";
        assert_eq!(folded(&document(vec![lcore])), expected);
    }
}

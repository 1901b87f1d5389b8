//! `pmdscope check`: are all apps healthy? For people, cron and probes.

mod hot_queues;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use pmdscope_render::number::plural;
use pmdscope_telemetry::finding::{self, Finding, FindingSubject, Lint, Severity};
use pmdscope_telemetry::{AppState, AppStatus, ErrorClass, FleetEvent, FleetState};
use serde::Serialize;

use self::hot_queues::HotQueues;
use crate::exit::FAILED;
use crate::number::whole;
use crate::output::{self, names, one_line};
use crate::session::AppArg;
use crate::source::{ReplayArg, Source};

/// Version of the JSON; raised when a field changes its meaning.
const CHECK_SCHEMA: u32 = 1;

/// Time between two samples. A trend wants several, and trouble in any interval counts.
const STEP: Duration = Duration::from_millis(250);

/// Check the health of DPDK apps, for people, cron and probes
///
/// Reports dead ports, missed packets, draining mempools, stuck poll loops and mbuf leaks.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope check -a fwd --for 30   watch longer to find slow leaks
  pmdscope check -q                for probes and cron: silent if healthy
  pmdscope check --replay FILE     all findings of a recording

Exit status: 0 healthy, 1 warning, critical finding or no answer, 2 wrong usage.")]
#[command(after_long_help = "\
Examples:
  pmdscope check                        all apps, sampled for two seconds
  pmdscope check -a reflector --for 30  watch longer to find slow leaks
  pmdscope check --json | jq .ok
  pmdscope check -q -a fwd              for probes and cron: silent if healthy
  pmdscope check --replay incident.jsonl.zst
                                        all findings of a recording

check samples each app four times a second.

Exit status:
  0  no finding of severity warning or critical; info findings do not count
  1  such a finding, an app that does not answer, an expected app that does not
     run, or no app at all
  2  wrong usage or configuration

Of a hot queue (queue_imbalance) of a linked app, check captures a sample of a
quarter of a second, to name the largest conversation.

The timeout of a probe must exceed --for by a second, for apps that do not
answer: timeoutSeconds: 5 in Kubernetes.")]
pub(crate) struct Args {
    #[command(flatten)]
    app: AppArg,

    #[command(flatten)]
    replay: ReplayArg,

    /// Time to watch, 1 to 3600
    ///
    /// Reports every finding of that time. A longer time finds slower problems.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 2, conflicts_with = "replay",
          value_parser = whole::<u64>(1..=3600))]
    seconds: u64,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// One line per finding, nothing if healthy
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (mut source, length) = match args.replay.player(&args.app)? {
        Some(player) => (Source::whole(player, &args.app), Duration::MAX),
        None => (Source::live(&args.app, STEP)?, Duration::from_secs(args.seconds)),
    };
    let begun = Instant::now();
    let mut seen = Seen::default();
    let mut hot_queues = match args.replay.replay {
        Some(_) => None,
        None => Some(HotQueues::new(args.app.settings()?, begun + length)),
    };
    // An app that does not answer makes rounds longer, but not the time that was asked for.
    while source.advance()? {
        seen.note(source.world());
        if let Some(hot_queues) = &mut hot_queues {
            hot_queues.update(&source);
        }
        if begun.elapsed() >= length {
            break;
        }
    }
    source.tell_notes();
    tell_choice(args, source.world());
    let mut world = source.world().clone();
    seen.add_to(&mut world);
    if let Some(hot_queues) = hot_queues {
        hot_queues.explain(&mut world);
    }
    let verdict = Verdict::of(&world);
    if args.json {
        output::print_json(&verdict)?;
    } else if args.quiet {
        output::print(&verdict.lines())?;
    } else {
        output::print(&verdict.text(&world))?;
    }
    Ok(if verdict.ok { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Says which app was checked where another one may have been meant, which does not run.
fn tell_choice(args: &Args, world: &FleetState) {
    let begins = |name: &str| {
        let mut others = world.apps.iter().filter(|app| app.name != name);
        others.find(|app| app.name.starts_with(name)).map(|app| app.name.clone())
    };
    if let Some(name) = &args.app.app
        && world.find(name).is_none()
        && let Some(app) = begins(name)
    {
        let text = format!("no app is named {name:?}: checked {app}, whose name begins so");
        output::tell(&text);
    }
}

/// Findings of earlier samples, of each app, lint and subject the newest of the worst.
#[derive(Default)]
struct Seen(BTreeMap<(String, Lint, FindingSubject), Finding>);

impl Seen {
    fn note(&mut self, world: &FleetState) {
        for finding in world.apps.iter().flat_map(|app| &app.findings) {
            let key = (finding.app.clone(), finding.lint, finding.subject.clone());
            let seen = self.0.entry(key).or_insert_with(|| finding.clone());
            // What is less bad now does not undo what was worse.
            if finding.severity >= seen.severity {
                seen.clone_from(finding);
            }
        }
    }

    /// Trouble that has passed is still trouble of the time that was watched.
    fn add_to(self, world: &mut FleetState) {
        for past in self.0.values() {
            if world.find(&past.app).is_none() {
                let reason = "ended before the recording did".to_owned();
                let (app, class) = (past.app.clone(), ErrorClass::Refused);
                world.apply(FleetEvent::Lost { app, class, reason, finding: None });
            }
        }
        for app in &mut world.apps {
            let past = self.0.values().filter(|past| past.app == app.name);
            let past: Vec<_> = past.cloned().collect();
            app.findings.retain(|now| !past.iter().any(|past| same(now, past)));
            app.findings.extend(past);
            finding::sort(&mut app.findings);
        }
    }
}

fn same(one: &Finding, other: &Finding) -> bool {
    (&one.app, one.lint, &one.subject) == (&other.app, other.lint, &other.subject)
}

#[derive(Serialize)]
struct Verdict<'a> {
    schema: u32,
    ok: bool,
    apps: Vec<Judged<'a>>,
}

#[derive(Serialize)]
struct Judged<'a> {
    app: &'a str,
    #[serde(flatten)]
    status: &'a AppStatus,
    findings: &'a [Finding],
}

impl<'a> Verdict<'a> {
    fn of(world: &'a FleetState) -> Self {
        let bad = |app: &AppState| {
            app.stale() || app.findings.iter().any(|f| f.severity >= Severity::Warning)
        };
        let judged = |app: &'a AppState| Judged {
            app: &app.name,
            status: &app.status,
            findings: &app.findings,
        };
        Self {
            schema: CHECK_SCHEMA,
            ok: !world.apps.iter().any(bad),
            apps: world.apps.iter().map(judged).collect(),
        }
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.apps.iter().flat_map(|app| app.findings)
    }

    fn lines(&self) -> String {
        self.silent()
            + &self.findings().map(|finding| finding_line(finding) + "\n").collect::<String>()
    }

    /// Apps that do not answer, where no finding says so.
    fn silent(&self) -> String {
        let silent = self.apps.iter().filter(|app| app.findings.is_empty());
        let line = |app: &Judged| match app.status {
            AppStatus::Live => None,
            AppStatus::Waiting => Some(format!("{}: has not answered yet", app.app)),
            AppStatus::Lost { reason } => Some(format!("{}: {reason}", app.app)),
        };
        silent.filter_map(line).map(|line| one_line(&line) + "\n").collect()
    }

    fn text(&self, world: &FleetState) -> String {
        let mut out = self.silent();
        out.extend(repeated(self.findings()).into_iter().map(|same| findings_text(&same)));
        if out.is_empty() {
            let ports: usize = world.models().map(|(_, model)| model.sample.ports.len()).sum();
            let apps = plural(self.apps.len() as u64, "app");
            let ports = plural(ports as u64, "port");
            let _ = writeln!(out, "ok: {apps}, {ports}, no findings");
        }
        out
    }
}

/// Findings that differ only in their app together, in the order of the first of them.
fn repeated<'a>(findings: impl Iterator<Item = &'a Finding>) -> Vec<Vec<&'a Finding>> {
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    let mut known = BTreeMap::new();
    for finding in findings {
        let Finding { lint, severity, subject, evidence, threshold, advice, .. } = finding;
        let key = (lint, severity, subject, evidence, threshold, advice);
        let at = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

fn findings_text(same: &[&Finding]) -> String {
    match same {
        [] => String::new(),
        [finding] => finding_text(finding),
        [finding, ..] => {
            let apps: Vec<&str> = same.iter().map(|finding| finding.app.as_str()).collect();
            finding_text(&Finding { app: names(&apps), ..(*finding).clone() })
        }
    }
}

fn finding_line(finding: &Finding) -> String {
    let about = format!("{} {}", finding.app, finding.subject);
    let severity = finding.severity.word();
    let line = format!("{}: {severity}: {}: {}", about.trim_end(), finding.lint, finding.evidence);
    one_line(&line)
}

fn finding_text(finding: &Finding) -> String {
    let Finding { threshold, advice, .. } = finding;
    let line = finding_line(finding);
    let (threshold, advice) = (one_line(threshold), one_line(advice));
    format!("{line}\n    threshold: {threshold}\n    what to do: {advice}\n")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn finding(severity: Severity) -> Finding {
        Finding {
            lint: Lint::RxMissed,
            severity,
            app: "reflector".to_owned(),
            subject: FindingSubject::Port("net_vhost0".to_owned()),
            evidence: "412 packets/s missed".to_owned(),
            threshold: "more than 0 missed packets/s".to_owned(),
            advice: "look for stalls".to_owned(),
        }
    }

    fn lost(finding: Option<Finding>) -> FleetState {
        let mut world = FleetState::default();
        let (app, reason) = ("reflector".to_owned(), "timed out".to_owned());
        world.apply(FleetEvent::Lost { app, class: ErrorClass::Timeout, reason, finding });
        world
    }

    #[test]
    fn findings_are_printed_with_threshold_and_advice() {
        let world = lost(Some(finding(Severity::Critical)));
        assert_snapshot!(Verdict::of(&world).text(&world));
        let lines = Verdict::of(&world).lines();
        assert_eq!(lines, "reflector net_vhost0: critical: rx_missed: 412 packets/s missed\n");
    }

    #[test]
    fn what_is_wrong_with_many_apps_is_said_once() {
        let mut world = FleetState::default();
        for number in 0..176 {
            let app = format!("app{number:03}");
            let about = Finding { app: app.clone(), ..finding(Severity::Warning) };
            let reason = "timed out".to_owned();
            let (class, finding) = (ErrorClass::Timeout, Some(about));
            world.apply(FleetEvent::Lost { app, class, reason, finding });
        }
        world.apps[5].findings[0].evidence = "9 packets/s missed".to_owned();
        let text = Verdict::of(&world).text(&world);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
        let expected = [
            "175 apps (app000, app001, app002, ...) net_vhost0: warning: rx_missed: 412 packets/s missed",
            "app005 net_vhost0: warning: rx_missed: 9 packets/s missed",
        ];
        assert_eq!(lines, expected);
        assert_eq!(
            Verdict::of(&world).lines().lines().count(),
            176,
            "a line per finding for programs"
        );
    }

    #[test]
    fn what_others_say_makes_no_lines_of_its_own() {
        let mut world = lost(None);
        world.apps[0].name = "ev\nok: all is well\x1b[31mil".to_owned();
        let expected = "ev?ok: all is well?[31mil: timed out\n";
        assert_eq!(Verdict::of(&world).text(&world), expected);
        let evidence = "one\nok: \x07two".to_owned();
        world.apps[0].findings = vec![Finding { evidence, ..finding(Severity::Warning) }];
        assert!(Verdict::of(&world).lines().ends_with("rx_missed: one?ok: ?two\n"));
        let advice = "do\nthat".to_owned();
        world.apps[0].findings = vec![Finding { advice, ..finding(Severity::Warning) }];
        assert_eq!(Verdict::of(&world).text(&world).lines().count(), 3);
    }

    #[test]
    fn all_is_well_only_when_every_app_answers_and_nothing_above_info_was_found() {
        let mut world = lost(None);
        assert!(!Verdict::of(&world).ok);
        assert_eq!(Verdict::of(&world).text(&world), "reflector: timed out\n");
        assert_eq!(Verdict::of(&world).lines(), "reflector: timed out\n");
        world.apps[0].status = AppStatus::Live;
        assert!(Verdict::of(&world).ok);
        assert_eq!(Verdict::of(&world).text(&world), "ok: 1 app, 0 ports, no findings\n");
        for (severity, ok) in
            [(Severity::Info, true), (Severity::Warning, false), (Severity::Critical, false)]
        {
            world.apps[0].findings = vec![finding(severity)];
            assert_eq!(Verdict::of(&world).ok, ok, "{severity:?}");
        }
    }

    #[test]
    fn trouble_that_has_passed_is_reported() {
        let mut world = lost(Some(finding(Severity::Warning)));
        let mut seen = Seen::default();
        seen.note(&world);
        world.apps[0].status = AppStatus::Live;
        world.apps[0].findings =
            vec![Finding { lint: Lint::NoPolling, ..finding(Severity::Critical) }];
        seen.add_to(&mut world);
        let lints: Vec<_> = world.apps[0].findings.iter().map(|f| f.lint).collect();
        assert_eq!(lints, [Lint::NoPolling, Lint::RxMissed]);
        assert!(!Verdict::of(&world).ok);
    }

    #[test]
    fn json_has_schema_verdict_and_reasons() {
        let world = lost(Some(finding(Severity::Warning)));
        let json = serde_json::to_value(Verdict::of(&world)).unwrap();
        assert_eq!((&json["schema"], &json["ok"]), (&1.into(), &false.into()));
        assert_eq!(json["apps"][0]["reason"], "timed out");
        assert_eq!(json["apps"][0]["findings"][0]["severity"], "warning");
    }
}

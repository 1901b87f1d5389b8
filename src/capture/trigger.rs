//! Triggers of the flight recorder: findings, packets, stolen poll cores, a signal, and `pmdscope capture trigger`.

mod edge;
mod socket;
mod stolen;

use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use pmdscope_packets::recorder::{self, PacketTrigger, TriggerSender};
use pmdscope_telemetry::finding::{Finding, FindingSubject, Lint};
use pmdscope_telemetry::model::Model;
use pmdscope_telemetry::{FleetEvent, LcoreStalls, RecordedStall};
use signal_hook::consts::SIGUSR2;
use signal_hook::iterator::Signals;

use self::edge::FindingEdges;
use self::socket::Socket;
use super::say;
use crate::attach::target::CaptureTarget;
use crate::exit::USAGE;
use crate::number::whole;
use crate::output;
use pmdscope_telemetry::fleet::{AppSampler, ROUND_TIMEOUT};

/// Time between two checks of the findings of an app.
const FINDINGS_INTERVAL: Duration = Duration::from_millis(200);
/// In front of the filter expression of a packet trigger.
const FILTER: &str = "filter:";

/// One value of `--trigger`.
#[derive(Clone, Debug)]
pub(super) enum Trigger {
    /// A new finding of this lint.
    Finding(Lint),
    /// A packet.
    Packet(PacketTrigger),
    /// Something has taken a poll core for so long.
    Stolen(Duration),
    /// SIGUSR2, which fires in any case.
    Signal,
}

impl FromStr for Trigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(expression) = text.strip_prefix(FILTER) {
            if expression.trim().is_empty() {
                return Err("expected filter:EXPRESSION; an empty expression matches every packet"
                    .to_owned());
            }
            return PacketTrigger::new(expression).map(Self::Packet).map_err(|e| e.to_string());
        }
        if let Some(length) = stolen::parse(text) {
            return length.map(Self::Stolen);
        }
        if text == "signal" {
            return Ok(Self::Signal);
        }
        text.parse().map(Self::Finding).map_err(|_| {
            let lints = Lint::ALL.iter().map(|lint| lint.name()).collect::<Vec<_>>();
            format!(
                "expected filter:EXPRESSION, stolen>TIME, signal, or a finding: {}",
                lints.join(", ")
            )
        })
    }
}

/// The packet triggers among all.
pub(super) fn filters(triggers: &[Trigger]) -> Vec<PacketTrigger> {
    let packet = |trigger: &Trigger| match trigger {
        Trigger::Packet(packet) => Some(packet.clone()),
        Trigger::Finding(_) | Trigger::Stolen(_) | Trigger::Signal => None,
    };
    triggers.iter().filter_map(packet).collect()
}

/// All that may fire a recorder from outside. Its threads end with the process.
#[derive(Debug)]
pub(super) struct TriggerWatcher {
    _socket: Option<Socket>,
}

impl TriggerWatcher {
    /// Watches the apps for the findings among the triggers, and listens for the signal and for
    /// `pmdscope capture trigger`.
    pub(super) fn start(
        triggers: &[Trigger],
        wanted: &[CaptureTarget],
        fire: &TriggerSender,
    ) -> anyhow::Result<Self> {
        let lints = triggers.iter().filter_map(|trigger| match trigger {
            Trigger::Finding(lint) => Some(*lint),
            Trigger::Packet(_) | Trigger::Stolen(_) | Trigger::Signal => None,
        });
        let lints = lints.collect::<Vec<_>>();
        for wanted in wanted.iter().filter(|_| !lints.is_empty()) {
            let app = wanted.settings.find(Some(&wanted.address))?;
            let sampler = AppSampler::new(app, &wanted.settings);
            let (lints, fire) = (lints.clone(), fire.clone());
            thread::spawn(move || watch_findings(sampler, &lints, &fire));
        }
        let lengths = triggers.iter().filter_map(|trigger| match trigger {
            Trigger::Stolen(length) => Some(*length),
            _ => None,
        });
        if let Some(least) = lengths.min() {
            stolen::watch(least, wanted, fire)?;
        }
        listen_for_signal(fire.clone())?;
        let names = wanted.iter().flat_map(CaptureTarget::names).collect::<Vec<_>>().join(", ");
        // The recorder works without it.
        let socket = Socket::serve(names, fire.clone())
            .inspect_err(|error| {
                say(format_args!(
                    "pmdscope: capture trigger cannot reach this recorder: {error:#}"
                ));
            })
            .ok();
        Ok(Self { _socket: socket })
    }
}

fn listen_for_signal(fire: TriggerSender) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGUSR2]).context("cannot handle SIGUSR2")?;
    thread::spawn(move || {
        for _ in signals.forever() {
            fire.fire(recorder::RecorderTrigger::now("signal", "SIGUSR2"));
        }
    });
    Ok(())
}

fn watch_findings(mut sampler: AppSampler, lints: &[Lint], fire: &TriggerSender) {
    let mut edges = FindingEdges::default();
    loop {
        let start = Instant::now();
        let event = sampler.sample(ROUND_TIMEOUT);
        let findings = match &event {
            FleetEvent::Sampled { findings, .. } => findings.as_slice(),
            FleetEvent::Lost { finding, .. } => finding.as_slice(),
            _ => &[],
        };
        let watched = findings.iter().filter(|finding| lints.contains(&finding.lint));
        for finding in edges.new_findings(watched, start) {
            let model =
                if let FleetEvent::Sampled { model, .. } = &event { Some(&**model) } else { None };
            fire.fire(fired_by(finding, model));
        }
        thread::sleep(FINDINGS_INTERVAL.saturating_sub(start.elapsed()));
    }
}

fn fired_by(finding: &Finding, model: Option<&Model>) -> recorder::RecorderTrigger {
    let about = format!("{} {}", finding.app, finding.subject);
    let about = about.trim_end();
    let plain = format!("{about}: {}", finding.evidence);
    let now = recorder::RecorderTrigger::now(finding.lint.name(), plain);
    let Some(model) = model else { return now };
    let at_sample = recorder::RecorderTrigger { moment_ns: model.sample.realtime_ns, ..now };
    match (finding.lint, &finding.subject) {
        (Lint::Stall, FindingSubject::Lcore(lcore)) => match stalls_of(*lcore, model) {
            Some((stall, stalls)) => fired_by_stall(about, finding, stall, &stalls),
            None => recorder::RecorderTrigger {
                comment: format!(
                    "{about}: the library does not report when it stalled; {}",
                    finding.evidence
                ),
                ..at_sample
            },
        },
        _ => at_sample,
    }
}

/// The longest stall of an lcore since the sample before, where the app has recorded it.
fn stalls_of(lcore: u32, model: &Model) -> Option<(RecordedStall, LcoreStalls)> {
    let lcores = model.sample.lcores.iter().zip(&model.lcores);
    let stalls = lcores.filter(|(sample, _)| sample.lcore == lcore);
    let mut recorded = stalls.filter_map(|(_, rates)| rates.stalls?.recorded.zip(rates.stalls));
    recorded.next()
}

/// The stall itself is in the file, with the history before it.
fn fired_by_stall(
    about: &str,
    finding: &Finding,
    stall: RecordedStall,
    stalls: &LcoreStalls,
) -> recorder::RecorderTrigger {
    let end_ns = stall.end_realtime_ns;
    let begin_ns = end_ns.saturating_sub(stall.us.saturating_mul(1000));
    let time = |ns: u64| Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::MAX);
    let of = match stalls.count {
        1 => String::new(),
        count if stalls.maybe_longer => format!(
            " (one of {count} stalls since the last sample, of which only the last are recorded)"
        ),
        count => format!(" (the longest of {count} stalls since the last sample)"),
    };
    let comment = format!(
        "{about}: stalled for {} us from {:.6} to {:.6}{of}; {}",
        stall.us,
        time(begin_ns),
        time(end_ns),
        finding.evidence
    );
    recorder::RecorderTrigger {
        moment_ns: end_ns,
        begin_ns: Some(begin_ns),
        ..recorder::RecorderTrigger::now(finding.lint.name(), comment)
    }
}

/// Trigger a running flight recorder
///
/// Prints the name of the file that the recorder writes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope capture trigger
  pmdscope capture trigger 4711 --comment 'customer reports an outage'

Exit status: 0 fired; 1 no recorder runs, or it accepts no more triggers;
2 wrong usage, or several recorders run and PID is missing.")]
pub(super) struct TriggerArgs {
    /// Process id of the recorder [default: the only one of this user]
    #[arg(value_name = "PID", value_parser = whole::<u32>(1..=u32::MAX.into()))]
    pid: Option<u32>,

    /// Comment on the first packet after the trigger
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    comment: String,
}

/// `pmdscope capture trigger`.
pub(super) fn run(args: &TriggerArgs) -> anyhow::Result<ExitCode> {
    let recorders = socket::running()?;
    let chosen = match (args.pid, recorders.as_slice()) {
        (Some(pid), all) => all
            .iter()
            .find(|recorder| recorder.pid == pid)
            .with_context(|| format!("no flight recorder of this user has PID {pid}"))?,
        (None, []) => anyhow::bail!(
            "no flight recorder of this user runs; start one with pmdscope capture --before 10s -w FILE"
        ),
        (None, [only]) => only,
        (None, several) => {
            say("pmdscope: error: several flight recorders run; give the PID of one:");
            for recorder in several {
                say(format_args!("{:>8}  {}", recorder.pid, recorder.describe()));
            }
            return Ok(ExitCode::from(USAGE));
        }
    };
    let file = chosen.fire(&args.comment)?;
    output::print_line(&file)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::LintRules;
    use pmdscope_telemetry::finding::evaluate;
    use pmdscope_telemetry::model::ModelTracker;
    use pmdscope_telemetry::sample::{LcoreSample, LibrarySample, Sample};

    use super::*;

    #[test]
    fn triggers_have_names() {
        assert!(matches!("rx_missed".parse(), Ok(Trigger::Finding(Lint::RxMissed))));
        assert!(matches!("signal".parse(), Ok(Trigger::Signal)));
        assert!(matches!("filter:udp port 53".parse(), Ok(Trigger::Packet(_))));
        assert_eq!(filters(&["stall".parse().unwrap(), "filter:arp".parse().unwrap()]).len(), 1);
    }

    /// An lcore that has stalled so often.
    fn lcore(
        stalls: u64,
        stall_last_us: Vec<u64>,
        stall_last_realtime_ns: Vec<u64>,
    ) -> LcoreSample {
        LcoreSample {
            lcore: 1,
            polls: 1 + stalls,
            stalls,
            gap_max_us: 500_000,
            stall_last_us,
            stall_last_realtime_ns,
            ..LcoreSample::default()
        }
    }

    /// A finding of lcore 1 that was so and is so now, and the model that it is of.
    fn found(before: LcoreSample, now: LcoreSample) -> (Finding, Model) {
        let sample = |second: u64, lcore| Sample {
            monotonic_ns: second * 1_000_000_000,
            realtime_ns: 1_780_000_000_000_000_000 + second * 1_000_000_000,
            library: Some(LibrarySample { stall_us: 1000, ..LibrarySample::default() }),
            lcores: vec![lcore],
            ..Sample::default()
        };
        let mut tracker = ModelTracker::default();
        tracker.update(sample(1, before));
        let model = tracker.update(sample(2, now));
        let findings = evaluate(&model, &LintRules::default());
        let stall = findings.into_iter().find(|found| found.lint == Lint::Stall).unwrap();
        (stall, model)
    }

    /// After two new stalls.
    fn stalled(last_us: Vec<u64>, last_realtime_ns: Vec<u64>) -> (Finding, Model) {
        found(lcore(5, Vec::new(), Vec::new()), lcore(7, last_us, last_realtime_ns))
    }

    #[test]
    fn a_stall_fires_at_its_end_and_says_when_it_was() {
        let end = 1_780_000_001_900_000_000;
        // Of two new stalls the longer one; the one of half a second was there before.
        let (finding, model) =
            stalled(vec![1500, 120_000, 500_000, 0], vec![end + 7, end, end - 900_000_000, 0]);
        let trigger = fired_by(&finding, Some(&model));
        assert_eq!((trigger.moment_ns, trigger.begin_ns), (end, Some(end - 120_000_000)));
        let says = ": stalled for 120000 us from 2026-05-28T20:26:41.780000Z to \
                    2026-05-28T20:26:41.900000Z (the longest of 2 stalls since the last sample); lcore 1 ";
        assert!(trigger.comment.contains(says), "{}", trigger.comment);
        assert!(trigger.comment.contains("between two polls 120.0 ms"), "{}", trigger.comment);
    }

    #[test]
    fn of_more_stalls_than_are_recorded_the_longest_is_named_in_every_text() {
        let end = 1_780_000_001_900_000_000;
        let (before, after) = (end - 800_000_000, end + 90_000_000);
        let last = |end_ns| (vec![1500; 4], vec![end_ns, 1, 1, 1]);
        let (us, ends) = last(after);
        let now = LcoreSample {
            stall_longest_us: vec![1500, 120_000, 500_000],
            stall_longest_realtime_ns: vec![after, end, before - 7],
            ..lcore(25, us, ends)
        };
        let (us, ends) = last(before);
        let (finding, model) = found(lcore(5, us, ends), now);
        let trigger = fired_by(&finding, Some(&model));
        assert_eq!((trigger.moment_ns, trigger.begin_ns), (end, Some(end - 120_000_000)));
        for says in ["stalled for 120000 us", "the longest of 20 stalls", "polls 120.0 ms"] {
            assert!(trigger.comment.contains(says), "{says}: {}", trigger.comment);
        }
    }

    #[test]
    fn a_library_that_does_not_record_stalls_is_told() {
        let (finding, model) = stalled(Vec::new(), Vec::new());
        let trigger = fired_by(&finding, Some(&model));
        assert_eq!((trigger.moment_ns, trigger.begin_ns), (model.sample.realtime_ns, None));
        assert!(trigger.comment.contains("does not report when"), "{}", trigger.comment);
    }

    #[test]
    fn an_unknown_trigger_is_told_what_there_is() {
        let error = "rx_mised".parse::<Trigger>().unwrap_err();
        assert!(error.contains("rx_missed, rx_nombuf") && error.contains("filter:"), "{error}");
        assert!("filter:udp prot 53".parse::<Trigger>().unwrap_err().contains("syntax error"));
        assert!("filter: ".parse::<Trigger>().is_err());
    }
}

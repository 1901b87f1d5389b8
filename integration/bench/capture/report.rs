//! The measurements as tables, and their targets.

use std::fmt::Write as _;

use pmdscope_integration::spread::Spread;

use crate::bench::{CaptureResults, CaptureRun, Plain};
use crate::capture::Who;
use crate::plan::{Case, Device, Group, Ladder, Rate};

/// Losses up to this count as next to none: a slice of the scheduler costs more.
const NEXT_TO_NONE: f64 = 0.005;
/// Packets in the peer's ring; there is no option for it.
const PEER_RING: f64 = 2048.0;
const RECORD_HEADER: u64 = 32;
/// Bytes of pcapng around a packet.
const PCAPNG_BLOCK: u32 = 64;
const RECORD_ALIGN: u64 = 16;

/// All tables.
pub(crate) fn tables(results: &CaptureResults, groups: &[Group], ladders: &[Ladder]) -> String {
    let mut out = String::new();
    plain(&mut out, results);
    costs(&mut out, results, groups);
    for ladder in ladders {
        rates(&mut out, results, ladder);
    }
    highest(&mut out, results, ladders);
    targets(&mut out, results, ladders);
    notes(&mut out, results);
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

macro_rules! line {
    ($out:expr, $($text:tt)*) => { line($out, format_args!($($text)*)) };
}

fn plain(out: &mut String, results: &CaptureResults) {
    line!(out, "\nWithout a capture, cycles per packet: median (quartiles)\n");
    line!(out, "| device | rate | nothing attached | the same again | libpmdscope, disarmed |");
    line!(out, "|---|---|---|---|---|");
    for ((device, rate), rounds) in &results.plain {
        let of = |pick: fn(&Plain) -> f64| Spread::of(rounds.iter().map(pick));
        let (again, disarmed) = (of(|plain| plain.again), of(|plain| plain.disarmed));
        line!(
            out,
            "| {} | {} | {} | {again:.2} | {disarmed:.2} |",
            device.label(),
            rate_name(*rate),
            of(|plain| plain.base)
        );
    }
}

fn costs(out: &mut String, results: &CaptureResults, groups: &[Group]) {
    line!(out, "\nWhat a capture adds in the app, and what it takes itself: median (quartiles)\n");
    line!(
        out,
        "| capture | rate | who | cycles per packet added | ratio | app, Mpps | lost, % | CPU of the \
         capture, ns per packet written |"
    );
    line!(out, "|---|---|---|---|---|---|---|---|");
    for case in groups.iter().flat_map(|group| &group.cases) {
        for who in [Who::Pmdscope, Who::Dumpcap] {
            let Some(samples) = results.costs.get(&(*case, who)) else { continue };
            let ratio = if who == Who::Dumpcap { ratio(results, case) } else { String::new() };
            line!(
                out,
                "| {} | {} | {} | {} | {ratio} | {:.2} | {:.2} | {:.0} |",
                case.label(),
                rate_name(case.rate),
                who.name(),
                Spread::of(samples.iter().map(|sample| sample.added)),
                Spread::of(samples.iter().map(|sample| sample.window.rate / 1e6)).median,
                Spread::of(samples.iter().map(|sample| sample.loss() * 100.0)),
                Spread::of(samples.iter().map(CaptureRun::ns_per_packet)),
            );
        }
    }
}

/// Ratio of the added cycles of the peer to those of pmdscope.
fn ratio(results: &CaptureResults, case: &Case) -> String {
    let [ours, peer] = [Who::Pmdscope, Who::Dumpcap].map(|who| added(results, case, who));
    format!("{:.1}", peer / ours)
}

fn added(results: &CaptureResults, case: &Case, who: Who) -> f64 {
    let samples = results.costs.get(&(*case, who)).into_iter().flatten();
    Spread::of(samples.map(|sample| sample.added)).median
}

fn rates(out: &mut String, results: &CaptureResults, ladder: &Ladder) {
    line!(out, "\nLoss in % by rate, {}: median (quartiles)\n", ladder.case.label());
    line!(
        out,
        "| Mpps | pmdscope | its ring holds, ms | ns per packet | {0} | its ring holds, ms | ns per \
         packet |",
        Who::Dumpcap.name()
    );
    line!(out, "|---|---|---|---|---|---|---|");
    for &rate in ladder.rates {
        let case = Case { rate, ..ladder.case };
        let cells = [Who::Pmdscope, Who::Dumpcap]
            .map(|who| rung(results, &case, who, rounds(results, ladder, who)));
        if cells.iter().any(Option::is_some) {
            let none = || "| | ".to_owned();
            let [ours, peer] = cells.map(|cell| cell.unwrap_or_else(none));
            line!(out, "| {} | {ours} | {peer} |", rate as f64 / 1e6);
        }
    }
}

fn rung(results: &CaptureResults, case: &Case, who: Who, rounds: usize) -> Option<String> {
    let samples = results.ladders.get(&(*case, who))?;
    let loss = Spread::of(samples.iter().map(|sample| sample.loss() * 100.0));
    let ns = Spread::of(samples.iter().map(CaptureRun::ns_per_packet)).median;
    let slow = if samples.iter().all(|sample| !sample.window.kept_up) {
        let rate = Spread::of(samples.iter().map(|sample| sample.window.rate / 1e6)).median;
        format!(", the app fell behind: {rate:.1} Mpps")
    } else {
        String::new()
    };
    let few = match samples.len() {
        all if all == rounds => String::new(),
        some => format!(", {some} of {rounds} rounds"),
    };
    Some(format!("{loss:.3}{few}{slow} | {} | {ns:.0}", tolerance(case, who, samples)))
}

/// Time for which the ring holds all packets of a capture that does not read.
fn tolerance(case: &Case, who: Who, samples: &[CaptureRun]) -> String {
    let packets = match (who, samples.iter().find_map(|sample| sample.ended.ring_bytes)) {
        (Who::Dumpcap, _) => PEER_RING,
        (Who::Pmdscope, Some(bytes)) => bytes as f64 / record_bytes(case) as f64,
        (Who::Pmdscope, None) => return "not seen".to_owned(),
    };
    format!("{:.2}", packets * 1e3 / case.rate as f64)
}

fn record_bytes(case: &Case) -> u64 {
    let size = u64::from(case.device.size());
    let kept = case.snaplen.map_or(size, |snaplen| size.min(snaplen.into()));
    (RECORD_HEADER + kept).next_multiple_of(RECORD_ALIGN)
}

/// Rounds of a ladder: each begins at the lowest rate, but not each reaches the highest.
fn rounds(results: &CaptureResults, ladder: &Ladder, who: Who) -> usize {
    let samples = |&rate| results.ladders.get(&(Case { rate, ..ladder.case }, who));
    ladder.rates.iter().filter_map(samples).map(Vec::len).max().unwrap_or(0)
}

/// Highest rate that lost no more than `most` in most rounds, with an app that kept up.
fn highest_rate(results: &CaptureResults, ladder: &Ladder, who: Who, most: f64) -> Option<Rate> {
    let good = |rate: &Rate| {
        let case = Case { rate: *rate, ..ladder.case };
        results.ladders.get(&(case, who)).is_some_and(|samples| {
            let fine = |sample: &&CaptureRun| sample.window.kept_up && sample.loss() <= most;
            samples.iter().filter(fine).count() * 2 > rounds(results, ladder, who)
        })
    };
    ladder.rates.iter().copied().filter(|rate| good(rate)).max()
}

fn highest(out: &mut String, results: &CaptureResults, ladders: &[Ladder]) {
    line!(out, "\nHighest rates, Mpps, of those above\n");
    line!(
        out,
        "| capture | pmdscope, none lost | {0}, none lost | pmdscope, <= 0.5 % | {0}, <= 0.5 % \
         | ratio at <= 0.5 % |",
        Who::Dumpcap.name()
    );
    line!(out, "|---|---|---|---|---|---|");
    for ladder in ladders {
        let of = |who, most| highest_rate(results, ladder, who, most);
        let text = |rate: Option<Rate>| {
            rate.map_or("none".to_owned(), |rate| (rate as f64 / 1e6).to_string())
        };
        let [ours, peer] = [Who::Pmdscope, Who::Dumpcap].map(|who| of(who, NEXT_TO_NONE));
        let ratio = ours.zip(peer).map(|(ours, peer)| ours as f64 / peer as f64);
        line!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            ladder.case.label(),
            text(of(Who::Pmdscope, 0.0)),
            text(of(Who::Dumpcap, 0.0)),
            text(ours),
            text(peer),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.1}"))
        );
    }
}

/// The targets. A missed target is reported, but is not a failure of the run.
fn targets(out: &mut String, results: &CaptureResults, ladders: &[Ladder]) {
    line!(out, "\nAims of `pmdscope capture`\n");
    line!(out, "| | aim | measured | met |\n|---|---|---|---|");
    let mut aim = |what: &str, aim: String, measured: f64, met: bool| {
        let measured = if measured.is_nan() { "-".to_owned() } else { format!("{measured:.2}") };
        line!(out, "| {what} | {aim} | {measured} | {} |", if met { "yes" } else { "no" });
    };
    let small = Device::Null(64);
    for ((_, rate), rounds) in results.plain.iter().filter(|((device, _), _)| *device == small) {
        let disarmed = Spread::of(rounds.iter().map(|plain| plain.disarmed));
        let noise = Spread::of(rounds.iter().map(|plain| plain.again));
        let bound = noise.high.abs().max(noise.low.abs());
        let what = format!("disarmed, 64 B, {}: cycles per packet", rate_name(*rate));
        aim(&what, format!("noise, {bound:.2}"), disarmed.median, disarmed.median <= bound);
    }
    for (case, who) in results.costs.keys() {
        let armed = case.device == small && !case.file;
        let filter = case.device.filtered();
        if *who == Who::Pmdscope && (armed || filter) {
            let most = if armed { 40.0 } else { 30.0 };
            let what = format!("{}, {}: cycles per packet", case.label(), rate_name(case.rate));
            let measured = added(results, case, *who);
            aim(&what, format!("<= {most:.0}"), measured, measured <= most);
        }
    }
    for ladder in ladders {
        let least = match (ladder.case.device, ladder.case.snaplen, ladder.case.file) {
            (Device::Null(64), None, true) => 8.0,
            (Device::Null(64), None, false) => 20.0,
            (Device::Null(1500), None, true) => 1.2,
            _ => continue,
        };
        let rate = highest_rate(results, ladder, Who::Pmdscope, NEXT_TO_NONE);
        let rate = rate.map_or(0.0, |rate| rate as f64 / 1e6);
        let what = format!("{}: Mpps with <= 0.5 % lost", ladder.case.label());
        aim(&what, format!(">= {least}"), rate, rate >= least);
        if (ladder.case.device, ladder.case.file) == (small, true)
            && let Some((writer, held)) = writer_and_ring(results, ladder)
        {
            aim("all its threads: ns per packet", "<= 50".into(), writer, writer <= 50.0);
            aim("its ring at 1 Mpps: ms", ">= 50".into(), held, held >= 50.0);
        }
    }
}

/// The writer at its best rate, nanoseconds per packet, and milliseconds of 1 Mpps in the ring.
fn writer_and_ring(results: &CaptureResults, ladder: &Ladder) -> Option<(f64, f64)> {
    let rungs = ladder
        .rates
        .iter()
        .filter_map(|&rate| results.ladders.get(&(Case { rate, ..ladder.case }, Who::Pmdscope)));
    let ns = |samples: &Vec<CaptureRun>| {
        Spread::of(samples.iter().map(CaptureRun::ns_per_packet)).median
    };
    let best = rungs.clone().map(ns).min_by(f64::total_cmp)?;
    let bytes = rungs.flatten().find_map(|sample| sample.ended.ring_bytes)?;
    Some((best, bytes as f64 / record_bytes(&ladder.case) as f64 / 1e3))
}

fn notes(out: &mut String, results: &CaptureResults) {
    line!(out, "");
    let plain = |size| Spread::of(results.plain_writes.iter().map(|ns| ns * f64::from(size)));
    let [small, large] = [64, 1500].map(|size| plain(size + PCAPNG_BLOCK));
    line!(
        out,
        "Plain writes of 1 MiB to tmpfs take {small:.0} ns of CPU time per packet of 64 B, and {large:.0} \
         ns of 1500 B: the page cache of the kernel."
    );
    for (who, count) in &results.deaths {
        line!(out, "The app died {count} times while {} was attached or stopped.", who.name());
    }
    if results.empty > 0 {
        line!(out, "In {} windows the app received nothing: it got no CPU.", results.empty);
    }
    for (who, count) in &results.checked {
        line!(out, "capinfos counted {count} files of {} as this bench did.", who.name());
    }
    let (mut all, mut exact) = (0, 0);
    for ((case, who), samples) in results.costs.iter().chain(&results.ladders) {
        // With a filter the number of matching packets is known exactly only at the end.
        if *who == Who::Pmdscope && !case.device.filtered() {
            let whole = |s: &&CaptureRun| s.offered == s.ended.written + s.ended.lost;
            all += samples.len();
            exact += samples.iter().filter(whole).count();
        }
    }
    line!(
        out,
        "In {exact} of {all} captures without a filter, pmdscope wrote or counted as lost every packet \
         that the app received."
    );
}

fn rate_name(rate: Rate) -> String {
    if rate == 0 { "flat out".to_owned() } else { format!("{} Mpps", rate as f64 / 1e6) }
}

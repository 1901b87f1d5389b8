//! What the generator measures: latency, pace, loss and their files, checked by other readers.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use libtest_mimic::Trial;
use pmdscope_integration::disk::Disk;
use pmdscope_integration::machine::Priority;
use pmdscope_integration::pair::{Link, Pair, PairOptions, eal};
use pmdscope_integration::process::{run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::{Memory, Scratch};
use pmdscope_integration::telemetry;
use pmdscope_integration::wire::captured;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, Needs, number, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("hdr_log_agrees_with_the_summary", Needs::Apps, hdr_log),
        trial("packets_leave_one_at_a_time", Needs::Wireshark, one_at_a_time),
        trial("packets_leave_in_bursts_if_asked", Needs::Wireshark, in_bursts),
        trial("csv_adds_up_to_the_summary", Needs::Apps, csv_sums),
        trial("statistics_make_no_dip_in_the_rate", Needs::Apps, no_dips),
        trial("a_dip_at_each_statistic_is_seen", Needs::Apps, dips),
        trial("a_full_disk_does_not_end_the_run", Needs::Disk, full_disk),
        trial("the_warm_up_is_not_counted", Needs::Apps, warm_up),
        trial("a_rate_in_percent_is_that_part_of_the_warm_up", Needs::Apps, rate_in_percent),
        trial("the_first_half_of_the_warm_up_sets_no_rate", Needs::Apps, rate_of_second_half),
        trial("find_rate_tells_how_it_was_found", Needs::Apps, find_rate),
        trial("find_rate_fails_on_a_lossy_path", Needs::Apps, find_rate_of_lossy_path),
    ]
}

/// Quantiles by their name in the summary.
const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99_9", 0.999),
    ("p99_99", 0.9999),
    ("p99_999", 0.99999),
];

fn pair(scratch: &Scratch, queues: u16) -> Result<Pair> {
    Pair::start(scratch, PairOptions { link: Link::Memif, queues, ..PairOptions::default() })
}

/// The intervals with a tag, or those without, as `HdrHistogram`'s own decoder reads them.
fn intervals(log: &[u8], tag: Option<&str>) -> Result<Vec<Histogram<u64>>> {
    let mut histograms = Vec::new();
    for entry in IntervalLogIterator::new(log) {
        let entry = entry.map_err(|error| anyhow::anyhow!("the log is no log: {error:?}"))?;
        let LogEntry::Interval(interval) = entry else { continue };
        if interval.tag().map(|it| it.as_str()) != tag {
            continue;
        }
        let bytes = BASE64_STANDARD.decode(interval.encoded_histogram())?;
        let histogram = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| anyhow::anyhow!("the histogram cannot be read: {error:?}"))?;
        histograms.push(histogram);
    }
    Ok(histograms)
}

/// Whether two values agree within the two digits that the generator keeps.
fn close(a: u64, b: u64) -> bool {
    a.abs_diff(b) * 100 <= a.max(b) + 100
}

fn hdr_log(scratch: &Scratch) -> Result<()> {
    let pair = pair(scratch, 2)?;
    let path = scratch.path("latency.hlog");
    let path_text = path.to_str().context("the path is text")?;
    let args = ["--rate", "50k", "--duration", "1", "--interval", "0.2", "--hdr-log", path_text];
    let summary = pair.generate(scratch, &args)?.finish(LIMIT)?;
    let histograms = intervals(&fs::read(&path)?, None)?;

    ensure!(histograms.len() >= 2, "{} intervals", histograms.len());
    let mut all = Histogram::<u64>::new(3)?;
    for histogram in &histograms {
        all.add(histogram)?;
    }
    ensure!(all.len() == number(&summary, "received")?, "{} values: {summary}", all.len());
    let latency = &summary["latency_ns"];
    for (name, quantile) in QUANTILES {
        check(latency, name, all.value_at_quantile(quantile))?;
    }
    check(latency, "min", all.min())?;
    check(latency, "max", all.max())?;

    // Between the packets of each of two queues.
    let gaps = intervals(&fs::read(&path)?, Some("inter-departure"))?;
    ensure!(gaps.len() == 1, "{} histograms of the pace", gaps.len());
    ensure!(gaps[0].len() + 2 == number(&summary, "sent")?, "{}: {summary}", gaps[0].len());
    check(&summary["inter_departure_ns"], "p50", gaps[0].value_at_quantile(0.5))?;
    check(&summary["inter_departure_ns"], "max", gaps[0].max())
}

fn check(latency: &Value, name: &str, logged: u64) -> Result<()> {
    ensure!(close(number(latency, name)?, logged), "{name} is {logged} in the log: {latency}");
    Ok(())
}

/// Packets per second of the tests of the pace.
const RATE: u64 = 20_000;
const GAP_NS: u64 = 1_000_000_000 / RATE;

/// Runs a generator whose driver stamps and writes what it is given, and returns the times between
/// packets as the driver saw them, ascending, and the summary.
fn departures(scratch: &Scratch, args: &[&str]) -> Result<(Vec<u64>, Value)> {
    let (file, json) = (scratch.path("sent.pcap"), scratch.path("summary.json"));
    let mut command = Command::new(programs::generator()?);
    eal(&mut command, "0@0", &scratch.prefix("pace"), Memory::available());
    command.args(["--vdev", &format!("net_pcap0,tx_pcap={}", file.display())]);
    command.args(["--", "--wait-link", "0", "--rate", &RATE.to_string(), "--json"]).arg(&json);
    // What it does with its CPU is tested, not whether others take that.
    let priority = Priority::raise()?;
    let (code, out, err) = run(command.args(args), scratch.dir(), LIMIT)?;
    drop(priority);
    ensure!(code == 1 && err.contains("came back"), "exit status {code}: {out}{err}");
    let packets = captured(&file)?;
    let mut gaps =
        packets.windows(2).map(|two| two[1].ns.saturating_sub(two[0].ns)).collect::<Vec<_>>();
    gaps.sort_unstable();
    Ok((gaps, summary(&json)?))
}

fn summary(json: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(json)?)?)
}

fn percentile(sorted: &[u64], percent: usize) -> Result<u64> {
    sorted.get(sorted.len() * percent / 100).copied().context("too few packets")
}

fn one_at_a_time(scratch: &Scratch) -> Result<()> {
    let (gaps, summary) = departures(scratch, &["--count", "40000"])?;
    let departure = &summary["inter_departure_ns"];
    ensure!(gaps.len() == 39_999, "{} gaps", gaps.len());
    // While it makes up for a stall, packets leave at twice the rate: never faster.
    let (p2, median) = (percentile(&gaps, 2)?, percentile(&gaps, 50)?);
    ensure!(p2 > GAP_NS * 4 / 10, "2 % of packets within {p2} ns: {departure}");
    ensure!(median < GAP_NS * 13 / 10, "half of the packets {median} ns apart: {departure}");
    ensure!(number(departure, "target")?.abs_diff(GAP_NS) <= 1, "{departure}");
    let own = number(departure, "p50")?;
    ensure!(own.abs_diff(median) * 10 < median, "{own} ns is not {median} ns");
    ensure!(number(&summary, "pace_skipped")? == 0, "{summary}");
    Ok(())
}

fn in_bursts(scratch: &Scratch) -> Result<()> {
    let args = ["--count", "40000", "--pace", "bursts", "--burst", "8"];
    let (gaps, summary) = departures(scratch, &args)?;
    let departure = &summary["inter_departure_ns"];
    // Seven of eight packets follow another one immediately.
    let (within, between) = (percentile(&gaps, 80)?, percentile(&gaps, 90)?);
    ensure!(within < GAP_NS / 5, "{within} ns within a burst: {departure}");
    ensure!(between > GAP_NS * 3, "{between} ns between bursts: {departure}");
    ensure!(number(departure, "p50")? == 0 && summary["pace"] == "bursts", "{summary}");
    Ok(())
}

fn warm_up(scratch: &Scratch) -> Result<()> {
    // Not memif, whose driver may crash a reflector that polls while the generator leaves.
    let mut pair = Pair::start(scratch, PairOptions { queues: 2, ..PairOptions::default() })?;
    let args = ["--rate", "20k", "--warm-up", "0.5", "--count", "5000"];
    let sent = pair.generate(scratch, &args)?.finish(LIMIT)?;
    pair.reflector.interrupt()?;
    let reflected = summary(&scratch.path("reflector.json"))?;

    ensure!(number(&sent, "sent")? == 5000, "{sent}");
    ensure!(number(&sent, "received")? + number(&sent, "lost")? == 5000, "{sent}");
    ensure!(number(&sent, "foreign")? == 0 && number(&sent, "duplicates")? == 0, "{sent}");
    ensure!(number(&sent["pool"], "in_use_end")? == 0, "{sent}");
    ensure!(number(&reflected, "received")? > 5000, "nothing was sent before: {reflected}");
    Ok(())
}

fn rate_in_percent(scratch: &Scratch) -> Result<()> {
    const WARM_UP_S: f64 = 0.5;
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let args = ["--rate", "25%", "--warm-up", &WARM_UP_S.to_string(), "--duration", "1"];
    let sent = pair.generate(scratch, &args)?.finish(LIMIT)?;
    pair.reflector.interrupt()?;
    let reflected = summary(&scratch.path("reflector.json"))?;

    let asked = number(&sent, "rate_asked")? as f64;
    let achieved = sent["rate_achieved"].as_f64().context("rate_achieved")?;
    // The warm-up takes as long as was asked for, or longer.
    let warm_up = (number(&reflected, "received")? - number(&sent, "sent")?) as f64;
    ensure!(asked > 0.0 && asked <= 0.25 * warm_up / WARM_UP_S + 1.0, "{warm_up}: {sent}");
    ensure!(achieved > 0.0 && achieved <= asked * 1.01, "{sent}");
    ensure!(number(&sent, "foreign")? == 0, "packets of the warm-up were counted: {sent}");
    Ok(())
}

/// The reflector is stopped in the first half of the warm-up, which must not lower the rate.
fn rate_of_second_half(scratch: &Scratch) -> Result<()> {
    const WARM_UP_S: f64 = 4.0;
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    let warm_up = WARM_UP_S.to_string();
    let args = ["--rate", "25%", "--warm-up", &warm_up, "--interval", "0.1", "--duration", "0.1"];
    let generator = pair.generate(scratch, &args)?;
    wait_until("packets of the warm-up", LIMIT, || {
        Ok(telemetry::number(pair.generator_app(), "/ethdev/stats,0", "opackets").unwrap_or(0) > 0)
    })?;
    pair.reflector.signal(Signal::STOP)?;
    sleep(Duration::from_millis(1200));
    pair.reflector.signal(Signal::CONT)?;
    let sent = generator.finish(LIMIT)?;
    pair.reflector.interrupt()?;
    let reflected = summary(&scratch.path("reflector.json"))?;

    let asked = number(&sent, "rate_asked")? as f64;
    let warm_up = (number(&reflected, "received")? - number(&sent, "sent")?) as f64;
    let mean = 0.25 * warm_up / WARM_UP_S;
    ensure!(asked > 1.15 * mean, "{asked} pps, of the whole warm-up {mean}: {sent}");
    Ok(())
}

/// Searches, and returns the exit status and the part of the summary about it.
fn search(scratch: &Scratch, pair: &Pair, args: &[&str]) -> Result<(bool, Value)> {
    let limits = ["--find-rate", "--rate", "4k", "--trial", "0.3"];
    let args = limits.iter().chain(args).copied().collect::<Vec<_>>();
    let mut generator = pair.generate(scratch, &args)?;
    let status = generator.process.wait(LIMIT)?;
    let summary = summary(&scratch.path("generator.json"))?;
    Ok((status.success(), summary["find_rate"].clone()))
}

fn find_rate(scratch: &Scratch) -> Result<()> {
    let pair = pair(scratch, 1)?;
    let args = ["--min-rate", "500", "--loss", "0.1%", "--resolution", "20"];
    let (found, result) = search(scratch, &pair, &args)?;
    let trials = result["trials"].as_array().context("trials")?;
    let mut best = None;
    for trial in trials {
        let (asked, sent) = (number(trial, "rate_asked")?, number(trial, "sent")?);
        let achieved = trial["rate_achieved"].as_f64().context("rate_achieved")?;
        ensure!((500..=4000).contains(&asked), "{trial}");
        ensure!(sent == number(trial, "received")? + number(trial, "lost")?, "{trial}");
        // A busy machine may miss the rate: then the trial proves nothing about the path.
        let verdict = match number(trial, "lost")? * 1000 <= sent && sent > 0 {
            true if achieved >= 0.99 * f64::from(u32::try_from(asked)?) => "pass",
            true => "fail: rate not reached",
            false => "fail: loss",
        };
        ensure!(trial["verdict"] == verdict, "{trial}");
        best = best.max((verdict == "pass").then_some(asked));
    }
    ensure!(number(&trials[0], "rate_asked")? == 4000, "{result}");
    ensure!(found == best.is_some(), "{result}");
    let rate = result["rate"].as_f64().map(|rate| rate.to_string());
    ensure!(rate == best.map(|best| best.to_string()), "{result}");
    Ok(())
}

fn find_rate_of_lossy_path(scratch: &Scratch) -> Result<()> {
    let options =
        PairOptions { link: Link::Memif, leak: Some("1/4".to_owned()), ..PairOptions::default() };
    let pair = Pair::start(scratch, options)?;
    let (found, result) = search(scratch, &pair, &["--loss", "0.1"])?;
    ensure!(!found && result["rate"].is_null(), "{result}");
    let trials = result["trials"].as_array().context("trials")?;
    ensure!(trials.len() == 2, "{result}");
    ensure!(trials.iter().all(|trial| trial["verdict"] == "fail: loss"), "{result}");
    Ok(())
}

/// A CSV file with named columns.
struct Table {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        ensure!(text.ends_with('\n'), "the last row is not whole");
        let split = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let mut lines = text.lines().map(split);
        let names = lines.next().context("no header")?;
        let rows = lines.collect::<Vec<_>>();
        ensure!(rows.iter().all(|row| row.len() == names.len()), "rows of several lengths: {text}");
        Ok(Self { names, rows })
    }

    /// Numbers of a column; `None` where there is none.
    fn column(&self, name: &str) -> Result<Vec<Option<f64>>> {
        let at = self.names.iter().position(|it| it == name);
        let at = at.with_context(|| format!("no column {name} in {:?}", self.names))?;
        let parse = |text: &String| (!text.is_empty()).then(|| text.parse()).transpose();
        Ok(self.rows.iter().map(|row| parse(&row[at])).collect::<Result<_, _>>()?)
    }

    fn sum(&self, name: &str) -> Result<f64> {
        Ok(self.column(name)?.into_iter().flatten().sum())
    }

    /// A column of numbers per second, times the seconds.
    fn integral(&self, name: &str) -> Result<f64> {
        let mut last = 0.0;
        let mut sum = 0.0;
        for (time, rate) in self.column("time_s")?.into_iter().zip(self.column(name)?) {
            let time = time.context("time_s")?;
            sum += rate.context("a rate")? * (time - last);
            last = time;
        }
        Ok(sum)
    }
}

fn csv_sums(scratch: &Scratch) -> Result<()> {
    let options = PairOptions {
        link: Link::Memif,
        queues: 2,
        leak: Some("1/50".to_owned()),
        ..PairOptions::default()
    };
    let pair = Pair::start(scratch, options)?;
    let csv = scratch.path("run.csv");
    let csv_text = csv.to_str().context("the path is text")?;
    let args = ["--rate", "20k", "--duration", "1.5", "--csv-interval", "0.1", "--csv", csv_text];
    let summary = pair.generate(scratch, &args)?.finish(LIMIT)?;
    let table = Table::read(&csv)?;

    let total = |name: &str| summary[name].as_f64().with_context(|| name.to_owned());
    ensure!(total("lost")? > 0.0, "the path loses nothing: {summary}");
    ensure!(table.rows.len() >= 2, "{} rows", table.rows.len());
    for (column, wanted) in
        [("lost", "lost"), ("reordered", "reordered"), ("duplicates", "duplicates")]
    {
        ensure!((table.sum(column)? - total(wanted)?).abs() < 0.5, "{column}: {summary}");
    }
    for (column, wanted) in [
        ("tx_pps", total("sent")?),
        ("rx_pps", total("received")?),
        ("lcore0_tx_pps", total("sent")?),
        ("tx_bps", total("sent_bytes")? * 8.0),
        ("rx_bps", total("received")? * 8.0 * total("sent_bytes")? / total("sent")?),
    ] {
        let seen = table.integral(column)?;
        ensure!((seen - wanted).abs() < wanted * 0.001, "{column}: {seen}, not {wanted}");
    }
    // A value that was not asked for is not 0.
    ensure!(table.column("corrupted")?.iter().all(Option::is_none), "corrupted without --verify");
    let max = table.column("latency_max_ns")?.into_iter().flatten().fold(0.0, f64::max);
    let wanted = summary["latency_ns"]["max"].as_f64().context("max")?;
    ensure!((max - wanted).abs() <= wanted * 0.01, "{max} is not {wanted}");
    Ok(())
}

fn full_disk(scratch: &Scratch) -> Result<()> {
    let disk = Disk::mount(&scratch.path("disk"), "64k")?;
    fs::write(disk.path().join("filler"), vec![0; 52 << 10])?;
    let pair = pair(scratch, 1)?;
    let csv = disk.path().join("run.csv");
    let csv_text = csv.to_str().context("the path is text")?;
    // Each row has 50 bytes and more, so that the space is used up long before the end.
    let args = ["--rate", "2k", "--duration", "3", "--csv-interval", "0.01", "--csv", csv_text];
    let mut generator = pair.generate(scratch, &args)?;
    let status = generator.process.wait(LIMIT)?;
    let output = generator.process.output();
    if disk.free()? > 8 << 10 {
        anyhow::bail!("the disk is not full: {output}");
    }
    ensure!(status.code() == Some(1), "{status}: {output}");
    ensure!(output.matches("the run goes on").count() == 1, "{output}");
    ensure!(output.contains("lines are missing"), "{output}");
    let summary = summary(&scratch.path("generator.json"))?;
    ensure!(number(&summary, "sent")? > 0 && number(&summary, "received")? > 0, "{summary}");
    ensure!(!Table::read(&csv)?.rows.is_empty(), "no row was written");
    Ok(())
}

/// Median of some rates.
fn median(mut rates: Vec<f64>) -> Result<f64> {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().context("no rates")
}

/// Median packets per second right before and after statistics are printed, and otherwise.
#[derive(Debug)]
struct Rates {
    before: f64,
    after: f64,
    between: f64,
}

impl Rates {
    fn have_dips(&self) -> bool {
        self.before.min(self.after) < self.between * 0.8
    }
}

/// On a busy machine, a run may pause, or pause at another time, for reasons of its own.
fn one_of_three(scratch: &Scratch, args: &[&str], wanted: fn(&Rates) -> bool) -> Result<()> {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let rates = rates(scratch, args)?;
        if wanted(&rates) {
            return Ok(());
        }
        seen.push(rates);
    }
    anyhow::bail!("{seen:?}")
}

/// A generator at full speed prints statistics ten times a second, and counts a hundred times.
fn rates(scratch: &Scratch, args: &[&str]) -> Result<Rates> {
    const REPORT_S: f64 = 0.1;
    let csv = scratch.path("run.csv");
    let mut command = Command::new(programs::generator()?);
    eal(&mut command, "0@0", &scratch.prefix("dips"), Memory::available());
    command.args(["--vdev", "net_ring0", "--", "--wait-link", "0", "--duration", "3"]);
    command.args(["--interval", "0.1", "--csv-interval", "0.01", "--csv"]).arg(&csv);
    let (code, out, err) = run(command.args(args), scratch.dir(), LIMIT)?;
    ensure!(code == 0, "exit status {code}: {err}");
    let table = Table::read(&csv)?;
    let times = table.column("time_s")?.into_iter().flatten().collect::<Vec<_>>();
    let rates = table.column("tx_pps")?.into_iter().flatten().collect::<Vec<_>>();
    ensure!(times.len() == rates.len() && times.len() > 50, "{} rows", times.len());

    let (mut before, mut after, mut between) = (Vec::new(), Vec::new(), Vec::new());
    // Statistics are printed right after the first row of each tenth of a second; the last row is
    // that of the end.
    let reports =
        |at: usize| at > 0 && (times[at] / REPORT_S).floor() > (times[at - 1] / REPORT_S).floor();
    for (at, &rate) in rates[..times.len() - 1].iter().enumerate().skip(1) {
        match (reports(at), reports(at - 1)) {
            (true, _) => before.push(rate),
            (false, true) => after.push(rate),
            (false, false) => between.push(rate),
        }
    }
    let lines = out.lines().filter(|line| line.contains("not back")).count();
    ensure!(lines >= 10 && before.len() >= 10 && after.len() >= 10, "{lines} lines of statistics");
    Ok(Rates { before: median(before)?, after: median(after)?, between: median(between)? })
}

fn no_dips(scratch: &Scratch) -> Result<()> {
    one_of_three(scratch, &[], |rates| !rates.have_dips())
}

/// The same check of a generator whose lcore pauses with each statistic, as that of the article.
fn dips(scratch: &Scratch) -> Result<()> {
    one_of_three(scratch, &["--inject-stall", "8000/100"], Rates::have_dips)
}

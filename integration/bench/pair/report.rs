//! Tables of the results.

use std::collections::BTreeMap;
use std::fmt;

use pmdscope_integration::spread::Spread;

use crate::link::{Link, Size};
use crate::run::{CacheLine, Held, Peer, Unlimited};

const MILLION: f64 = 1e6;
/// A cache line takes 30, 60, 330 or 700 ns: times that differ by less are of one distance of the CPUs.
const SAME: f64 = 1.25;

/// All measurements.
#[derive(Debug, Default)]
pub(crate) struct PairResults {
    /// By round.
    unlimited: BTreeMap<(Link, Size, Peer), Vec<Unlimited>>,
    /// By attempt.
    held: BTreeMap<(Link, Size), Vec<Held>>,
}

impl PairResults {
    pub(crate) fn unlimited(&mut self, link: Link, size: Size, peer: Peer, result: Unlimited) {
        self.unlimited.entry((link, size, peer)).or_default().push(result);
    }

    pub(crate) fn held(&mut self, link: Link, size: Size, held: Held) {
        self.held.entry((link, size)).or_default().push(held);
    }

    fn of(&self, link: Link, size: Size, peer: Peer) -> &[Unlimited] {
        self.unlimited.get(&(link, size, peer)).map_or(&[], Vec::as_slice)
    }

    /// Ratios of the rounds, of ours to a peer.
    fn ratios(&self, link: Link, size: Size, peer: Peer) -> Spread {
        let pairs = self.of(link, size, Peer::Pmdscope).iter().zip(self.of(link, size, peer));
        Spread::of(pairs.map(|(ours, theirs)| ours.rate / theirs.rate))
    }

    /// The most frequent distance of the CPUs.
    fn distance(&self) -> Distance {
        let lines = self.unlimited.values().flatten().map(|result| result.cache_line);
        let times: Vec<f64> = lines.flat_map(|line| [line.before_ns, line.after_ns]).collect();
        let around = |ns: f64| Distance { from_ns: ns / SAME, to_ns: ns * SAME };
        let count = |ns| times.iter().filter(|&&time| around(ns).includes(time)).count();
        let most = times.iter().copied().max_by_key(|&ns| count(ns));
        around(most.unwrap_or(f64::NAN))
    }

    /// The measurements before and after which the CPUs had a distance.
    fn at(&self, distance: Distance, link: Link, size: Size, peer: Peer) -> Vec<Unlimited> {
        let is_steady =
            |line: CacheLine| distance.includes(line.before_ns) && distance.includes(line.after_ns);
        let all = self.of(link, size, peer).iter();
        all.filter(|result| is_steady(result.cache_line)).copied().collect()
    }

    fn write_all(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Round trips, Mpps, all rounds: median (quartiles); ratios of the rounds, and of the \
             medians.\n"
        )?;
        writeln!(
            f,
            "| link | size | reflector of testpmd | testpmd | pmdscope | ratio by round | of medians |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        for &(link, size, peer) in self.unlimited.keys() {
            let Some(mode) = peer.forward_mode() else { continue };
            let theirs = rates(self.of(link, size, peer));
            let ours = rates(self.of(link, size, Peer::Pmdscope));
            writeln!(
                f,
                "| {} | {} | {mode} | {theirs:.2} | {ours:.2} | {:.2} | {:.2} |",
                link.name(),
                size.name(),
                self.ratios(link, size, peer),
                ours.median / theirs.median,
            )?;
        }
        Ok(())
    }

    fn write_steady(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let distance = self.distance();
        writeln!(
            f,
            "\nOf these, the measurements before and after which a cache line took {:.0} to {:.0} ns from \
             one CPU to the other and back: number, median, highest; ratio of the medians.\n",
            distance.from_ns, distance.to_ns,
        )?;
        writeln!(
            f,
            "| link | size | reflector of testpmd | n | testpmd | highest | n | pmdscope | highest | ratio |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|")?;
        for &(link, size, peer) in self.unlimited.keys() {
            let Some(mode) = peer.forward_mode() else { continue };
            let (theirs, ours) = (
                self.at(distance, link, size, peer),
                self.at(distance, link, size, Peer::Pmdscope),
            );
            let ratio = rates(&ours).median / rates(&theirs).median;
            writeln!(
                f,
                "| {} | {} | {mode} | {} | {} | {ratio:.2} |",
                link.name(),
                size.name(),
                columns(&theirs),
                columns(&ours),
            )?;
        }
        Ok(())
    }

    fn write_held(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nGenerator and reflector at 90 % of what they reached in the 3 s before.\n")?;
        writeln!(
            f,
            "| link | size | asked, Mpps | sent, Mpps | s | sent | lost | p50, us | p99.9, us | cache line before, after, ns |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|")?;
        for ((link, size), attempts) in &self.held {
            for held in attempts {
                let (asked, achieved) = (held.asked / MILLION, held.achieved / MILLION);
                let (p50, p99_9) = (held.p50_ns as f64 / 1e3, held.p99_9_ns as f64 / 1e3);
                writeln!(
                    f,
                    "| {} | {} | {asked:.2} | {achieved:.2} | {} | {} | {} | {p50:.1} | {p99_9:.1} | {:.0}, {:.0} |",
                    link.name(),
                    size.name(),
                    held.seconds,
                    held.sent,
                    held.lost,
                    held.cache_line.before_ns,
                    held.cache_line.after_ns,
                )?;
            }
        }
        Ok(())
    }
}

/// Times that a cache line takes from one CPU to the other and back, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Distance {
    from_ns: f64,
    to_ns: f64,
}

impl Distance {
    fn includes(self, time_ns: f64) -> bool {
        (self.from_ns..=self.to_ns).contains(&time_ns)
    }
}

/// In millions of packets per second.
fn rates(results: &[Unlimited]) -> Spread {
    Spread::of(results.iter().map(|result| result.rate / MILLION))
}

/// Number, median and highest rate, in millions of packets per second.
fn columns(results: &[Unlimited]) -> String {
    let highest = results.iter().map(|result| result.rate / MILLION).fold(f64::NAN, f64::max);
    format!("{} | {:.2} | {highest:.2}", results.len(), rates(results))
}

impl fmt::Display for PairResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_all(f)?;
        self.write_steady(f)?;
        if self.held.is_empty() {
            return Ok(());
        }
        self.write_held(f)
    }
}

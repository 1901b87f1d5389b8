//! Tables of the results.

use std::collections::BTreeMap;
use std::fmt;

use pmdscope_integration::cache_line::Distance;
use pmdscope_integration::spread::Spread;

use crate::link::{Link, Size};
use crate::run::{Held, Peer, Unlimited};

const MILLION: f64 = 1e6;
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

    fn distance(&self) -> Distance {
        Distance::most_frequent(self.unlimited.values().flatten().map(|result| result.round_trips))
    }

    /// The measurements before and after which the CPUs had a distance.
    fn at(&self, distance: Distance, link: Link, size: Size, peer: Peer) -> Vec<Unlimited> {
        let all = self.of(link, size, peer).iter();
        all.filter(|result| distance.is_of(result.round_trips)).copied().collect()
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
            "\nOf these, the measurements before and after which a cache line took {distance} from \
             one CPU to the other and back: number, median, highest; ratio of the medians.\n",
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
        writeln!(f, "\nGenerator and reflector at 90 % of what they reached just before.\n")?;
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
                    held.round_trips.before_ns,
                    held.round_trips.after_ns,
                )?;
            }
        }
        Ok(())
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
        if !self.unlimited.is_empty() {
            self.write_all(f)?;
            self.write_steady(f)?;
        }
        if self.held.is_empty() {
            return Ok(());
        }
        self.write_held(f)
    }
}

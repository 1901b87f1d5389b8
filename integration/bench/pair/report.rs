//! Tables of the results.

use std::collections::BTreeMap;
use std::fmt;

use pmdscope_integration::spread::Spread;

use crate::link::{Link, Size};
use crate::run::{Held, Peer};

const MILLION: f64 = 1e6;

/// All measurements.
#[derive(Debug, Default)]
pub(crate) struct PairResults {
    /// Packets per second, by round.
    rates: BTreeMap<(Link, Size, Peer), Vec<f64>>,
    held: BTreeMap<(Link, Size), Held>,
}

impl PairResults {
    pub(crate) fn rate(&mut self, link: Link, size: Size, peer: Peer, rate: f64) {
        self.rates.entry((link, size, peer)).or_default().push(rate);
    }

    pub(crate) fn held(&mut self, link: Link, size: Size, held: Held) {
        self.held.insert((link, size), held);
    }

    /// In millions of packets per second.
    fn spread(&self, link: Link, size: Size, peer: Peer) -> Spread {
        Spread::of(self.of(link, size, peer).iter().map(|rate| rate / MILLION))
    }

    fn of(&self, link: Link, size: Size, peer: Peer) -> &[f64] {
        self.rates.get(&(link, size, peer)).map_or(&[], Vec::as_slice)
    }

    /// In millions of packets per second: that of the round that was disturbed least.
    fn best(&self, link: Link, size: Size, peer: Peer) -> f64 {
        self.of(link, size, peer).iter().copied().fold(0.0, f64::max) / MILLION
    }

    /// Ratios of the rounds, of ours to a peer.
    fn ratios(&self, link: Link, size: Size, peer: Peer) -> Spread {
        let pairs = self.of(link, size, Peer::Pmdscope).iter().zip(self.of(link, size, peer));
        Spread::of(pairs.map(|(ours, theirs)| ours / theirs))
    }
}

impl fmt::Display for PairResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Round trips, Mpps: median (quartiles) and best round; ratios of the rounds, of the \
             medians, and of the best.\n"
        )?;
        writeln!(
            f,
            "| link | size | reflector of testpmd | testpmd | pmdscope | ratio by round | of medians | testpmd, best | pmdscope, best | of the best |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|")?;
        for &(link, size, peer) in self.rates.keys() {
            let Some(mode) = peer.forward_mode() else { continue };
            let theirs = self.spread(link, size, peer);
            let ours = self.spread(link, size, Peer::Pmdscope);
            let (link_name, size_name) = (link.name(), size.name());
            let (ratios, ratio) = (self.ratios(link, size, peer), ours.median / theirs.median);
            let their_best = self.best(link, size, peer);
            let our_best = self.best(link, size, Peer::Pmdscope);
            writeln!(
                f,
                "| {link_name} | {size_name} | {mode} | {theirs:.2} | {ours:.2} | {ratios:.2} \
                 | {ratio:.2} | {their_best:.2} | {our_best:.2} | {:.2} |",
                our_best / their_best
            )?;
        }
        if self.held.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nGenerator and reflector at 90 % of what they reached in the 3 s before.\n")?;
        writeln!(
            f,
            "| link | size | asked, Mpps | sent, Mpps | s | sent | lost | p50, us | p99.9, us |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        for ((link, size), held) in &self.held {
            let (asked, achieved) = (held.asked / MILLION, held.achieved / MILLION);
            let (p50, p99_9) = (held.p50_ns as f64 / 1e3, held.p99_9_ns as f64 / 1e3);
            writeln!(
                f,
                "| {} | {} | {asked:.2} | {achieved:.2} | {} | {} | {} | {p50:.1} | {p99_9:.1} |",
                link.name(),
                size.name(),
                held.seconds,
                held.sent,
                held.lost,
            )?;
        }
        Ok(())
    }
}

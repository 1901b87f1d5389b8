//! Extended counters of drivers that count losses: their meaning, rates, and plausibility.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::Interval;
use super::plausibility::{GrowthCheck, ImplausibleCounter, LinkLimits, Quantity, StatsCheck};
use crate::drivers::{
    self, CounterKind, CounterMeaning, CounterPlace, CounterUnit, DriverCounter, DriverIdentity,
    DriverTable,
};
use crate::rate::rate;
use crate::sample::{PortSample, PortStats, Sample, Xstats};

/// Basic counters of losses.
const BASIC_LOSSES: usize = 4;

/// The reason of a counter that no table has.
pub const UNEXPLAINED: &str = "unexplained";

/// What the driver of a port counts besides the basic counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortCounters {
    /// DPDK's name of the driver, with "probably" before one that only some counters suggest; `None` if
    /// it is unknown.
    pub driver: Option<String>,
    /// Number of counters of losses, basic ones included, that were compared with the previous sample.
    pub watched: usize,
    /// Packets per second that arrived from the wire, if the NIC counts all of them.
    pub arrived_pps: Option<f64>,
    /// Counters of losses that are not 0, by name.
    pub counted: Vec<CounterRates>,
    /// Counters that cannot be right since the previous sample; these have no rates.
    pub implausible: Vec<ImplausibleCounter>,
    /// Places and reasons of the losses that are counted, sorted; `None` for an unknown place.
    #[serde(skip)]
    pub places: Arc<[(Option<CounterPlace>, &'static str)]>,
    /// What is known about the driver.
    #[serde(skip)]
    pub table: Option<&'static DriverTable>,
}

/// One extended counter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CounterRates {
    /// Its name.
    pub name: String,
    /// What it counts; `None` for a counter that is known by no table, but seems to count losses.
    pub kind: Option<CounterKind>,
    /// Where it counts; `None` if that is unknown.
    pub place: Option<CounterPlace>,
    /// Why packets are counted, one word; `unexplained` if that is unknown.
    pub reason: &'static str,
    /// Its value.
    pub total: u64,
    /// Growth per second; `None` without an earlier sample, after a reset, or if it cannot be right.
    pub rate_ps: Option<f64>,
    /// Growth since the previous sample.
    #[serde(skip)]
    pub growth: u64,
    /// What is known about it.
    #[serde(skip)]
    pub known: Option<&'static DriverCounter>,
}

/// The counters of all ports of one app over time.
#[derive(Debug, Default)]
pub(super) struct DriverCounters(BTreeMap<u16, KnownPort>);

/// The counters of one port.
#[derive(Debug, Default)]
struct KnownPort {
    device: String,
    pci_id: Option<String>,
    /// Their names; the values are those of an earlier sample.
    names: Xstats,
    identity: Option<DriverIdentity>,
    counters: Vec<KnownCounter>,
    /// Places and reasons of lost packets, sorted.
    places: Arc<[(Option<CounterPlace>, &'static str)]>,
    /// Index of the counter of all packets from the wire.
    arrived: Option<usize>,
    stats: StatsCheck,
}

#[derive(Clone, Debug)]
struct KnownCounter {
    /// Index among the extended counters.
    at: usize,
    meaning: CounterMeaning,
    check: GrowthCheck,
}

/// The counters of a port since the previous sample.
#[derive(Debug, Default)]
pub(super) struct CheckedCounters {
    pub(super) counters: PortCounters,
    /// Basic counters, by index, that cannot be right.
    pub(super) implausible: Vec<usize>,
}

impl DriverCounters {
    /// Discards everything: the counters are those of another process.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the counters of all ports, in the order of `sample.ports`.
    pub(super) fn update(
        &mut self,
        sample: &Sample,
        interval: Option<&Interval<'_>>,
    ) -> Vec<CheckedCounters> {
        if sample.ports_are_complete() {
            self.0.retain(|id, _| sample.ports.iter().any(|port| port.id == *id));
        }
        let of_port = |port: &PortSample| {
            let known = self.0.entry(port.id).or_default();
            known.learn(port);
            let before = interval.and_then(|interval| interval.last.same_port(port));
            let seconds = interval.map_or(0.0, |interval| interval.seconds);
            known.update(port, before, seconds)
        };
        sample.ports.iter().map(of_port).collect()
    }
}

impl KnownPort {
    /// Looks up the counters if they, or the device, are others than before.
    fn learn(&mut self, port: &PortSample) {
        let same_device = (&self.device, &self.pci_id) == (&port.device, &port.pci_id);
        if same_device && self.names.has_names_of(&port.xstats) {
            return;
        }
        let identity = DriverIdentity::of(port);
        let table = identity.map(|identity| identity.table);
        let meaning = |(at, name): (usize, &str)| {
            let meaning = drivers::meaning(table, name)?;
            let harmless = matches!(meaning, CounterMeaning::Known(known) if known.kind == CounterKind::Harmless);
            let counter = KnownCounter { at, meaning, check: GrowthCheck::default() };
            (!harmless).then_some(counter)
        };
        let mut arrived = table.iter().flat_map(|table| &table.arrived);
        let place = |name: &String| port.xstats.names().position(|own| own == name);
        let counters: Vec<_> = port.xstats.names().enumerate().filter_map(meaning).collect();
        let lost = counters.iter().filter(|counter| counter.is_lost());
        let places: BTreeSet<_> = lost.map(KnownCounter::place).collect();
        *self = Self {
            places: places.into_iter().collect(),
            device: port.device.clone(),
            pci_id: port.pci_id.clone(),
            names: port.xstats.clone(),
            identity,
            counters,
            arrived: arrived.find_map(place),
            stats: if same_device { self.stats } else { StatsCheck::default() },
        };
    }

    fn update(
        &mut self,
        port: &PortSample,
        before: Option<&PortSample>,
        seconds: f64,
    ) -> CheckedCounters {
        let driver = self.identity.map(|identity| identity.words());
        let table = self.identity.map(|identity| identity.table);
        let places = Arc::clone(&self.places);
        let mut counters = PortCounters { driver, places, table, ..PortCounters::default() };
        let stats = before.map(|before| self.stats.check(port, &before.stats, seconds));
        let (implausible, found): (Vec<_>, Vec<_>) = stats.unwrap_or_default().into_iter().unzip();
        counters.implausible = found;
        let before = before.filter(|before| before.xstats.has_names_of(&port.xstats));
        if before.is_some() {
            let losses = self.counters.iter().filter(|own| own.is_loss()).count();
            counters.watched = BASIC_LOSSES + losses;
        }
        // A reply of zeros, and the one after it, are told by the basic counters.
        let zeros = port.stats == PortStats::default();
        let since = before.filter(|_| implausible.is_empty() && !zeros);
        let limits = LinkLimits::of(port);
        for counter in &mut self.counters {
            let Some((name, total)) = port.xstats.at(counter.at).filter(|of| of.1 > 0) else {
                continue;
            };
            let mut rates = counter.rates(name, total);
            if let Some((_, then)) = since.and_then(|before| before.xstats.at(counter.at)) {
                let what = (name, counter.quantity());
                let (check, values) = (&mut counter.check, (then, total));
                let wrong = ImplausibleCounter::of(check, what, values, limits, seconds);
                if wrong.is_none() {
                    rates.growth = total.saturating_sub(then);
                    rates.rate_ps = rate(total, then, seconds);
                }
                counters.implausible.extend(wrong);
            }
            counters.counted.push(rates);
        }
        let arrived = |sample: &PortSample| Some(sample.xstats.at(self.arrived?)?.1);
        counters.arrived_pps =
            since.and_then(|before| rate(arrived(port)?, arrived(before)?, seconds));
        CheckedCounters { counters, implausible }
    }
}

impl KnownCounter {
    /// Whether it counts packets that were lost.
    fn is_lost(&self) -> bool {
        use CounterKind::{Error, Loss};
        let packets = |known: &DriverCounter| {
            matches!(known.kind, Error | Loss) && known.unit == CounterUnit::Packets
        };
        match self.meaning {
            CounterMeaning::Known(known) => packets(known),
            CounterMeaning::Unexplained => true,
        }
    }

    fn place(&self) -> (Option<CounterPlace>, &'static str) {
        match self.meaning {
            CounterMeaning::Known(known) => (Some(known.place), &known.reason),
            CounterMeaning::Unexplained => (None, UNEXPLAINED),
        }
    }

    fn is_loss(&self) -> bool {
        use CounterKind::{Error, Event, Limit, Loss};
        match self.meaning {
            CounterMeaning::Known(known) => matches!(known.kind, Error | Event | Limit | Loss),
            CounterMeaning::Unexplained => true,
        }
    }

    fn quantity(&self) -> Quantity {
        match self.meaning {
            CounterMeaning::Known(known) if known.unit == CounterUnit::Packets => Quantity::Packets,
            CounterMeaning::Known(known) if known.unit == CounterUnit::Bytes => Quantity::Bytes,
            _ => Quantity::Other,
        }
    }

    fn rates(&self, name: &str, total: u64) -> CounterRates {
        let known = match self.meaning {
            CounterMeaning::Known(known) => Some(known),
            CounterMeaning::Unexplained => None,
        };
        let (place, reason) = self.place();
        CounterRates {
            name: name.to_owned(),
            kind: known.map(|known| known.kind),
            place,
            reason,
            total,
            rate_ps: None,
            growth: 0,
            known,
        }
    }
}

impl PortCounters {
    /// Returns the counters as averages over the time between two updates by the driver.
    pub(super) fn of_update(mut self, period_s: f64) -> Self {
        for counter in &mut self.counted {
            counter.rate_ps = counter.rate_ps.map(|_| counter.growth as f64 / period_s);
        }
        self
    }

    /// Returns the lost packets by place and reason, each packet once for a place and reason. A counter of
    /// several queues or priorities is their sum; of counters with other names, the highest counts.
    pub fn lost(&self) -> BTreeMap<(Option<CounterPlace>, &'static str), u64> {
        let mut names: BTreeMap<_, BTreeMap<String, u64>> =
            self.places.iter().map(|place| (*place, BTreeMap::new())).collect();
        for counter in &self.counted {
            let is_packets = |known: &DriverCounter| known.unit == CounterUnit::Packets;
            let name = without_numbers(&counter.name);
            let of_place = names.get_mut(&(counter.place, counter.reason));
            if let Some(of_place) = of_place.filter(|_| counter.known.is_none_or(is_packets)) {
                let sum = of_place.entry(name).or_default();
                *sum = sum.saturating_add(counter.total);
            }
        }
        let highest = |names: BTreeMap<String, u64>| names.into_values().max().unwrap_or(0);
        names.into_iter().map(|(place, names)| (place, highest(names))).collect()
    }

    /// Iterates over the counters that rise.
    pub fn rising(&self) -> impl Iterator<Item = &CounterRates> {
        self.counted.iter().filter(|counter| counter.rate_ps.is_some_and(|rate| rate > 0.0))
    }
}

/// Returns a name without the numbers of queues and priorities.
pub(crate) fn without_numbers(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Model, ModelTracker};
    use crate::sample::tests::{empty_sample, port};

    /// Returns the models of samples a second apart, with these extended counters.
    fn models(samples: &[&[(&str, u64)]]) -> Vec<Model> {
        let mut tracker = ModelTracker::default();
        let model = |(second, counters): (u64, &&[(&str, u64)])| {
            let mut sample = empty_sample();
            sample.monotonic_ns += second * 1_000_000_000;
            sample.ports = vec![port(0, second * 1000)];
            sample.ports[0].device = "0000:03:00.0".into();
            sample.ports[0].xstats =
                counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            tracker.update(sample)
        };
        (1..).zip(samples).map(model).collect()
    }

    #[test]
    fn counters_have_their_meaning_and_rate() {
        let at = |discards: u64, odd: u64| {
            [("rx_phy_discard_packets", discards), ("rx_odd_drops", odd), ("rx_good_packets", 9)]
        };
        let models = models(&[&at(10, 0), &at(15, 7)]);
        let counters = &models[1].ports[0].counters;
        assert_eq!((counters.driver.as_deref(), counters.watched), (Some("mlx5"), 6));
        let seen: Vec<_> = counters
            .rising()
            .map(|counter| (counter.name.as_str(), counter.reason, counter.rate_ps))
            .collect();
        assert_eq!(
            seen,
            [
                ("rx_odd_drops", UNEXPLAINED, Some(7.0)),
                ("rx_phy_discard_packets", "buffer", Some(5.0))
            ]
        );
        assert_eq!(models[0].ports[0].counters.watched, 0, "nothing to compare with");
    }

    #[test]
    fn lost_packets_count_once_by_place_and_reason() {
        let counters = [
            ("rx_phy_discard_packets", 50),
            ("rx_prio0_buf_discard", 30),
            ("rx_prio1_buf_discard", 20),
            ("rx_odd_drops", 0),
            ("rx_out_of_buffer", 7),
        ];
        let models = models(&[&counters]);
        let lost = models[0].ports[0].counters.lost();
        let expected = [
            ((None, UNEXPLAINED), 0),
            ((Some(CounterPlace::Nic), "buffer"), 50),
            ((Some(CounterPlace::Queue), "no_descriptor"), 7),
        ];
        assert_eq!(lost, expected.into());
    }

    #[test]
    fn what_went_below_zero_has_no_rate_and_is_told() {
        let models = models(&[
            &[("rx_phy_discard_packets", 3)],
            &[("rx_phy_discard_packets", u64::MAX - 4)],
        ]);
        let counters = &models[1].ports[0].counters;
        assert_eq!(counters.rising().count(), 0);
        assert_eq!(counters.implausible.len(), 1, "{counters:?}");
    }

    proptest! {
        #[test]
        fn any_counters_are_judged(
            samples in prop::collection::vec(
                prop::collection::vec(("[rt]x_[a-z0-9_]{0,20}(drop|error|_packets)?", any::<u64>()), 0..20),
                1..6,
            ),
            values in prop::collection::vec(any::<[u64; 8]>(), 6),
        ) {
            let mut tracker = ModelTracker::default();
            for (second, (counters, stats)) in samples.into_iter().zip(values).enumerate() {
                let mut sample = empty_sample();
                sample.monotonic_ns += second as u64 * 1_000_000_000;
                sample.ports = vec![port(0, 0)];
                sample.ports[0].stats = stats.into();
                let counted = counters.len();
                sample.ports[0].xstats = counters.into_iter().collect();
                let model = tracker.update(sample);
                let of_port = &model.ports[0].counters;
                prop_assert!(of_port.counted.len() <= counted);
                for rate in of_port.counted.iter().filter_map(|counter| counter.rate_ps) {
                    prop_assert!((0.0..1e13).contains(&rate));
                }
            }
        }
    }
}

//! Where the packets of a port went: received, missed, discarded, bad, sent, not sent.
//!
//! Basic counters and those of the driver overlap, as do several counters of a driver. So counters of
//! the same place and reason count once, by the highest, and basic counters at least as high as those
//! that they contain.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::drivers::{BasicCounter, CounterKind, CounterPlace, CounterUnit, DriverCounter};
use crate::model::driver_counters::without_numbers;
use crate::model::{CounterRates, PortRates};

/// The reason of counters of failed allocations.
const NO_MBUF: &str = "no_mbuf";

/// What counters have in common that are judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CounterClass {
    /// Explain the basic counter of missed packets.
    Missed,
    /// Failed allocations of receive buffers.
    NoMbuf,
    /// Packets discarded on the way to the app that no basic counter has.
    Discards,
    /// Received packets with errors.
    RxErrors,
    /// Packets that could not be sent.
    TxErrors,
    /// Packets that the NIC was told not to deliver.
    Filtered,
    /// Packets above an allowance.
    Limit,
    /// Pause frames.
    Pause,
    /// Faults and resets of a device.
    Event,
    /// Counters that no table has.
    Unexplained,
}

/// The packets of a port, by what became of them, since the previous sample.
#[derive(Clone, Debug)]
pub struct PortAccount<'a> {
    rates: &'a PortRates,
    counters: BTreeMap<CounterClass, Vec<&'a CounterRates>>,
}

/// The balance of a port, packets per second; `None` for what is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortBalance {
    /// Packets that arrived from the wire, if the NIC counts all of them; traffic that others than the app
    /// receive from the same NIC is included.
    pub arrived_pps: Option<f64>,
    /// Packets that the app could receive.
    pub received_pps: Option<f64>,
    /// Packets that found no free descriptor.
    pub missed_pps: Option<f64>,
    /// Packets that the NIC or the driver discarded, beyond missed ones; `None` if the driver is unknown.
    pub discarded_pps: Option<f64>,
    /// Received packets with errors.
    pub rx_errors_pps: Option<f64>,
    /// Failed allocations of receive buffers.
    pub nombuf_ps: Option<f64>,
    /// Packets sent.
    pub sent_pps: Option<f64>,
    /// Packets that could not be sent.
    pub tx_errors_pps: Option<f64>,
    /// Packets that the app offered and the driver refused; `None` without libpmdscope.
    pub refused_pps: Option<f64>,
}

impl<'a> PortAccount<'a> {
    /// Returns the packets of a port.
    pub fn of(rates: &'a PortRates) -> Self {
        let mut counters: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for counter in rates.counters.rising() {
            counters.entry(class(counter, rates)).or_default().push(counter);
        }
        for of_class in counters.values_mut() {
            of_class.sort_by(|a, b| b.growth.cmp(&a.growth).then(a.name.cmp(&b.name)));
        }
        Self { rates, counters }
    }

    /// Returns the counters of a class that rise, the fastest first.
    pub fn counters(&self, class: CounterClass) -> &[&'a CounterRates] {
        self.counters.get(&class).map_or(&[], Vec::as_slice)
    }

    /// Returns the packets per second of a class; at least as many were counted.
    pub fn sum(&self, class: CounterClass) -> f64 {
        // Those that a rising basic counter includes count with it.
        let apart = |counter: &&&CounterRates| {
            counter.known.is_none_or(|known| of_basic(known, self.rates).is_none())
        };
        let of_counters = sum(self.counters(class).iter().filter(apart));
        let basic = match class {
            CounterClass::Missed => self.rates.rx_missed_ps,
            CounterClass::NoMbuf => self.rates.rx_nombuf_ps,
            CounterClass::RxErrors => self.rates.rx_errors_ps,
            CounterClass::TxErrors => self.rates.tx_errors_ps,
            _ => None,
        };
        basic.unwrap_or(0.0).max(of_counters)
    }

    /// Returns the packets per second that arrived, as far as they were counted.
    pub fn arrived_pps(&self) -> f64 {
        let lost = [CounterClass::Missed, CounterClass::Discards, CounterClass::RxErrors];
        let lost: f64 = lost.into_iter().map(|class| self.sum(class)).sum();
        let counted = self.rates.rx_pps.unwrap_or(0.0) + lost;
        counted.max(self.rates.counters.arrived_pps.unwrap_or(0.0))
    }

    /// Returns the packets per second that were to be sent.
    pub fn offered_pps(&self) -> f64 {
        self.rates.tx_pps.unwrap_or(0.0) + self.sum(CounterClass::TxErrors)
    }

    /// Returns the balance.
    pub fn balance(&self) -> PortBalance {
        let rates = self.rates;
        let known = |basic: Option<f64>, class| basic.map(|_| self.sum(class));
        let has_driver = rates.counters.driver.is_some() && rates.counters.watched > 0;
        PortBalance {
            arrived_pps: rates.counters.arrived_pps,
            received_pps: rates.rx_pps,
            missed_pps: rates.rx_missed_ps,
            discarded_pps: has_driver.then(|| self.sum(CounterClass::Discards)),
            rx_errors_pps: known(rates.rx_errors_ps, CounterClass::RxErrors),
            nombuf_ps: known(rates.rx_nombuf_ps, CounterClass::NoMbuf),
            sent_pps: rates.tx_pps,
            tx_errors_pps: known(rates.tx_errors_ps, CounterClass::TxErrors),
            refused_pps: rates.unsent.map(|unsent| unsent.refused_pps),
        }
    }
}

fn class(counter: &CounterRates, rates: &PortRates) -> CounterClass {
    let Some(known) = counter.known else { return CounterClass::Unexplained };
    match known.kind {
        CounterKind::Filtered => CounterClass::Filtered,
        CounterKind::Limit => CounterClass::Limit,
        CounterKind::PauseReceived | CounterKind::PauseSent => CounterClass::Pause,
        CounterKind::Event | CounterKind::Harmless => CounterClass::Event,
        CounterKind::Loss | CounterKind::Error => {
            of_basic(known, rates).unwrap_or_else(|| own_class(known))
        }
    }
}

/// Returns the class of the basic counter that includes this one and rises as well.
fn of_basic(known: &DriverCounter, rates: &PortRates) -> Option<CounterClass> {
    let rises = |basic: &&BasicCounter| {
        let rate = match basic {
            BasicCounter::Imissed => rates.rx_missed_ps,
            BasicCounter::Ierrors => rates.rx_errors_ps,
            BasicCounter::Oerrors => rates.tx_errors_ps,
            BasicCounter::RxNombuf => rates.rx_nombuf_ps,
        };
        rate.is_some_and(|rate| rate > 0.0)
    };
    Some(match known.contained_in.iter().find(rises)? {
        BasicCounter::Imissed => CounterClass::Missed,
        BasicCounter::Ierrors => CounterClass::RxErrors,
        BasicCounter::Oerrors => CounterClass::TxErrors,
        BasicCounter::RxNombuf => CounterClass::NoMbuf,
    })
}

fn own_class(known: &DriverCounter) -> CounterClass {
    match known.kind {
        _ if known.is_sending() => CounterClass::TxErrors,
        _ if known.reason == NO_MBUF => CounterClass::NoMbuf,
        CounterKind::Error => CounterClass::RxErrors,
        _ => CounterClass::Discards,
    }
}

/// Returns the packets per second of counters, each place and reason once.
fn sum<'a, 'b: 'a>(counters: impl Iterator<Item = &'a &'b CounterRates>) -> f64 {
    // Of each place and reason, the rates by table entry and name without its numbers.
    let mut places: BTreeMap<(Option<CounterPlace>, &str), BTreeMap<String, f64>> = BTreeMap::new();
    let of_packets = |known: &DriverCounter| known.unit == CounterUnit::Packets;
    for counter in counters.filter(|counter| counter.known.is_none_or(of_packets)) {
        let names = places.entry((counter.place, counter.reason)).or_default();
        *names.entry(without_numbers(&counter.name)).or_default() += counter.rate_ps.unwrap_or(0.0);
    }
    places.values().map(|names| names.values().copied().fold(0.0, f64::max)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelTracker;
    use crate::sample::tests::{empty_sample, port};

    /// Returns the rates of a port after a second with these basic and extended counters.
    fn rates(missed: u64, errors: u64, xstats: &[(&str, u64)]) -> PortRates {
        let mut tracker = ModelTracker::default();
        let mut at = |second: u64| {
            let mut sample = empty_sample();
            sample.monotonic_ns += second * 1_000_000_000;
            sample.ports = vec![port(0, 1000 * second)];
            sample.ports[0].device = "0000:03:00.0".into();
            (sample.ports[0].stats.rx_missed, sample.ports[0].stats.rx_errors) =
                (missed * second, errors * second);
            let xstats = xstats.iter().map(|(name, value)| ((*name).to_owned(), value * second));
            sample.ports[0].xstats = xstats.collect();
            tracker.update(sample)
        };
        at(0);
        at(1).ports.remove(0)
    }

    #[test]
    fn packets_count_once_whatever_number_of_counters_has_them() {
        let discards = [
            ("rx_discards_phy", 500),
            ("rx_phy_discard_packets", 500),
            ("rx_prio0_buf_discard", 300),
            ("rx_prio3_buf_discard", 200),
        ];
        let rates = rates(0, 0, &discards);
        let account = PortAccount::of(&rates);
        assert_eq!(account.counters(CounterClass::Discards).len(), 4);
        let seen = (account.sum(CounterClass::Discards), account.arrived_pps());
        assert_eq!(seen, (500.0, 1500.0));
        assert_eq!(account.balance().discarded_pps, Some(500.0));
    }

    #[test]
    #[allow(clippy::float_cmp)] // Sums of whole numbers.
    fn a_counter_explains_the_basic_counter_that_has_it_or_stands_alone() {
        let name = [("rx_out_of_buffer", 70)];
        let in_missed = rates(70, 0, &name);
        let account = PortAccount::of(&in_missed);
        assert_eq!(account.counters(CounterClass::Missed).len(), 1);
        assert_eq!((account.sum(CounterClass::Missed), account.arrived_pps()), (70.0, 1070.0));
        let alone = rates(0, 0, &name);
        assert_eq!(PortAccount::of(&alone).sum(CounterClass::Discards), 70.0);
        let twice = rates(0, 9, &[("rx_q0_errors", 9), ("rx_crc_errors", 9)]);
        assert_eq!(PortAccount::of(&twice).sum(CounterClass::RxErrors), 9.0);
    }

    #[test]
    fn what_an_unknown_driver_discards_is_unknown() {
        let plain = rates(0, 9, &[]);
        let balance = PortAccount::of(&plain).balance();
        assert_eq!((balance.discarded_pps, balance.rx_errors_pps), (None, Some(9.0)));
    }
}

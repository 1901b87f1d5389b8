//! Starts, stops and link changes of ports, counted over a minute.
//!
//! libpmdscope counts them inside the app, including those between two samples. For a stock app, only
//! the differences between samples are known.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::sample::{PortEventsSample, PortSample, Sample};

/// Length of the window in which changes count, seconds.
const WINDOW_S: f64 = 60.0;

/// Starts, stops and link changes of one port in the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortFlaps {
    /// Number of starts of the port.
    pub starts: u64,
    /// Number of stops of the port.
    pub stops: u64,
    /// Number of changes of the link between up and down.
    pub link_changes: u64,
    /// Whether libpmdscope counted the changes; otherwise, changes between two samples may be missing.
    pub counted: bool,
}

impl PortFlaps {
    /// Returns the number of all changes.
    pub fn changes(&self) -> u64 {
        self.starts.saturating_add(self.stops).saturating_add(self.link_changes)
    }
}

/// The recent changes of each port of one app.
#[derive(Debug, Default)]
pub(crate) struct FlapCounters(BTreeMap<u16, PortFlapHistory>);

#[derive(Debug, Default)]
struct PortFlapHistory {
    device: String,
    /// Totals with their time (nanoseconds), oldest first; the first may be older than the window.
    totals: VecDeque<(u64, PortFlaps)>,
    /// The last state: started, link.
    state: Option<(bool, Option<bool>)>,
}

impl FlapCounters {
    /// Discards everything: the counters are those of another process.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the changes of each port, in the order of `sample.ports`; `None` for no changes.
    pub(crate) fn update(&mut self, sample: &Sample) -> Vec<Option<PortFlaps>> {
        if sample.ports_are_complete() {
            self.0.retain(|id, _| sample.ports.iter().any(|port| port.id == *id));
        }
        sample.ports.iter().map(|port| self.port(port, sample)).collect()
    }

    fn port(&mut self, port: &PortSample, sample: &Sample) -> Option<PortFlaps> {
        let past = self.0.entry(port.id).or_default();
        if past.device != port.device {
            *past = PortFlapHistory { device: port.device.clone(), ..PortFlapHistory::default() };
        }
        let mut events = sample.port_events.iter();
        let counted = events.find(|row| (row.port, &row.device) == (port.id, &port.device));
        // The table could not be read this time; that does not make the app a stock app.
        if counted.is_none() && past.totals.back().is_some_and(|(_, last)| last.counted) {
            return None;
        }
        let now_ns = sample.monotonic_ns;
        let total = counted.map_or_else(|| past.seen(port), PortFlaps::counted_by);
        if past.totals.back().is_some_and(|(_, last)| total.changes() < last.changes()) {
            past.totals.clear();
        }
        if past.totals.is_empty() {
            past.totals.push_back((now_ns, before_watch(total, counted, sample)));
        }
        past.totals.push_back((now_ns, total));
        let is_old =
            |(ns, _): &(u64, PortFlaps)| now_ns.saturating_sub(*ns) as f64 / 1e9 >= WINDOW_S;
        while past.totals.get(1).is_some_and(is_old) {
            past.totals.pop_front();
        }
        let (_, first) = past.totals.front()?;
        Some(total.since(first)).filter(|flaps| flaps.changes() > 0)
    }
}

impl PortFlapHistory {
    /// Returns the totals after adding the differences from the last sample.
    fn seen(&mut self, port: &PortSample) -> PortFlaps {
        let mut total = self.totals.back().map(|(_, last)| *last).unwrap_or_default();
        let before = self.state.replace((port.started, port.link_up));
        if let Some((started, link_up)) = before {
            total.starts += u64::from(!started && port.started);
            total.stops += u64::from(started && !port.started);
            let differs = link_up.zip(port.link_up).is_some_and(|(before, now)| before != now);
            total.link_changes += u64::from(differs);
        }
        total
    }
}

/// Returns the changes before the window, at the first sample: all but the last one, which has a
/// time, unless the app started within the window.
fn before_watch(
    total: PortFlaps,
    counted: Option<&PortEventsSample>,
    sample: &Sample,
) -> PortFlaps {
    let Some(row) = counted else { return total };
    let ago_s = |ns: u64| sample.realtime_ns.saturating_sub(ns) as f64 / 1e9;
    let started_ns = sample.library.as_ref().map_or(0, |library| library.start_realtime_ns);
    if ago_s(started_ns) < WINDOW_S {
        return PortFlaps { counted: true, ..PortFlaps::default() };
    }
    if row.changed_realtime_ns == 0 || ago_s(row.changed_realtime_ns) >= WINDOW_S {
        return total;
    }
    // It is unknown which of the three the last change was: the state of the port is a good guess.
    let mut before = total;
    let last = match () {
        () if row.started && before.starts > 0 => &mut before.starts,
        () if before.stops > 0 => &mut before.stops,
        () => &mut before.link_changes,
    };
    *last = last.saturating_sub(1);
    before
}

impl PortFlaps {
    fn counted_by(row: &PortEventsSample) -> Self {
        let PortEventsSample { starts, stops, link_changes, .. } = *row;
        Self { starts, stops, link_changes, counted: true }
    }

    fn since(&self, first: &Self) -> Self {
        Self {
            starts: self.starts.saturating_sub(first.starts),
            stops: self.stops.saturating_sub(first.stops),
            link_changes: self.link_changes.saturating_sub(first.link_changes),
            counted: self.counted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::LibrarySample;
    use crate::sample::tests::{empty_sample, port};

    fn at(second: u64, change: impl FnOnce(&mut Sample)) -> Sample {
        let mut sample = empty_sample();
        sample.monotonic_ns += second * 1_000_000_000;
        sample.realtime_ns += second * 1_000_000_000;
        sample.ports = vec![port(0, 0)];
        sample.ports[0].link_up = Some(true);
        change(&mut sample);
        sample
    }

    fn counted(second: u64, [starts, stops, link_changes]: [u64; 3]) -> Sample {
        at(second, |sample| {
            sample.library = Some(LibrarySample::default());
            sample.port_events = vec![PortEventsSample {
                port: 0,
                device: "net_null0".into(),
                started: true,
                starts,
                stops,
                link_changes,
                changed_realtime_ns: 0,
            }];
        })
    }

    #[test]
    fn counted_changes_are_reported_for_a_minute_to_everybody() {
        let mut counters = FlapCounters::default();
        let mut changes = |sample: Sample| counters.update(&sample)[0].map(|flaps| flaps.changes());
        assert_eq!(changes(counted(0, [7, 7, 7])), None, "long ago");
        assert_eq!(changes(counted(1, [9, 9, 7])), Some(4), "between two looks");
        assert_eq!(changes(counted(30, [9, 9, 8])), Some(5));
        assert_eq!(changes(counted(61, [9, 9, 8])), Some(1));
        assert_eq!(changes(counted(95, [9, 9, 8])), None);
        assert_eq!(changes(counted(96, [0, 0, 0])), None, "another library");
    }

    #[test]
    fn changes_before_the_first_sample_are_reported() {
        let first = |change: fn(&mut Sample)| {
            let mut sample = counted(0, [5, 5, 0]);
            change(&mut sample);
            FlapCounters::default().update(&sample)[0]
        };
        let recent =
            first(|s| s.port_events[0].changed_realtime_ns = s.realtime_ns - 1_000_000_000);
        assert_eq!(recent, Some(PortFlaps { starts: 1, counted: true, ..PortFlaps::default() }));
        let young = first(|s| {
            s.library.as_mut().unwrap().start_realtime_ns = s.realtime_ns - 9_000_000_000;
        });
        assert_eq!(young.unwrap().changes(), 10);
    }

    #[test]
    fn samples_of_a_stock_app_are_compared() {
        let mut counters = FlapCounters::default();
        let mut look = |second, started, link: Option<bool>| {
            let sample = at(second, |sample| {
                (sample.ports[0].started, sample.ports[0].link_up) = (started, link);
            });
            counters.update(&sample)[0]
        };
        assert_eq!(look(0, true, Some(true)), None);
        assert_eq!(look(1, true, Some(false)).unwrap().link_changes, 1);
        let flaps = look(2, false, Some(false)).unwrap();
        assert_eq!((flaps.stops, flaps.link_changes, flaps.counted), (1, 1, false));
        assert_eq!(look(3, true, None).unwrap().changes(), 3);
    }
}

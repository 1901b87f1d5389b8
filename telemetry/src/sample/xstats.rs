//! Extended counters of a port, by the names that its driver gives them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::QueueDirection;
use super::queue_counters::{self, QueueCounter};

/// Counters by name, sorted by name. Names rarely change, so copies share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xstats {
    names: Arc<XstatNames>,
    /// Values in the order of the names.
    values: Vec<u64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct XstatNames {
    /// Sorted, without duplicates.
    names: Vec<String>,
    /// Counters of queues, by direction and queue number: their meaning, and their indexes among the names.
    queues: Vec<(QueueDirection, u16, QueueCounter, usize)>,
}

impl Xstats {
    /// Returns the counter of that name.
    pub fn get(&self, name: &str) -> Option<u64> {
        let at = self.names.names.binary_search_by(|known| known.as_str().cmp(name)).ok()?;
        self.values.get(at).copied()
    }

    /// Iterates over names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.names.names.iter().map(String::as_str).zip(self.values.iter().copied())
    }

    /// Iterates over the names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.names.iter().map(String::as_str)
    }

    /// Returns how many copies share the names, including this one.
    pub fn sharers(&self) -> usize {
        Arc::strong_count(&self.names)
    }

    /// Returns the number of counters.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no counters.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether both have the same names, so that values at the same place are of the same counter.
    pub(crate) fn has_names_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.names, &other.names) || self.names.names == other.names.names
    }

    /// Returns the name and the value at an index.
    pub(crate) fn at(&self, index: usize) -> Option<(&str, u64)> {
        Some((self.names.names.get(index)?, *self.values.get(index)?))
    }

    /// Returns the values, in the order of the names.
    pub(crate) fn values_mut(&mut self) -> &mut [u64] {
        &mut self.values
    }

    /// Returns the counters of queues of a direction, by queue number: their meaning and value.
    pub(crate) fn of_queues(
        &self,
        direction: QueueDirection,
    ) -> impl Iterator<Item = (u16, QueueCounter, u64)> {
        let of_direction = self.names.queues.iter().filter(move |(of, ..)| *of == direction);
        of_direction
            .filter_map(|(_, queue, counter, at)| Some((*queue, *counter, *self.values.get(*at)?)))
    }
}

impl From<BTreeMap<String, u64>> for Xstats {
    fn from(counters: BTreeMap<String, u64>) -> Self {
        let (names, values): (Vec<String>, _) = counters.into_iter().unzip();
        let queue = |(at, name): (usize, &String)| {
            let (direction, queue, counter) = queue_counters::parse(name)?;
            Some((direction, queue, counter, at))
        };
        let mut queues: Vec<_> = names.iter().enumerate().filter_map(queue).collect();
        queues.sort_by_key(|(direction, queue, ..)| (*direction, *queue));
        Self { names: Arc::new(XstatNames { names, queues }), values }
    }
}

impl<const N: usize> From<[(String, u64); N]> for Xstats {
    fn from(counters: [(String, u64); N]) -> Self {
        counters.into_iter().collect()
    }
}

/// Among several counters with the same name, the last one is used.
impl FromIterator<(String, u64)> for Xstats {
    fn from_iter<I: IntoIterator<Item = (String, u64)>>(counters: I) -> Self {
        BTreeMap::from_iter(counters).into()
    }
}

impl Extend<(String, u64)> for Xstats {
    fn extend<I: IntoIterator<Item = (String, u64)>>(&mut self, counters: I) {
        let known = self.iter().map(|(name, value)| (name.to_owned(), value));
        *self = known.chain(counters).collect();
    }
}

impl Serialize for Xstats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Xstats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::<String, u64>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_as_a_map_in_the_order_of_their_names() {
        let of = |name: &str, value| (name.to_owned(), value);
        let mut xstats = Xstats::from([of("tx_q0_packets", 7), of("b", u64::MAX), of("a", 1)]);
        let json = r#"{"a":1,"b":18446744073709551615,"tx_q0_packets":7}"#;
        assert_eq!(serde_json::to_string(&xstats).unwrap(), json);
        assert_eq!(serde_json::from_str::<Xstats>(json).unwrap(), xstats);
        assert_eq!((xstats.get("b"), xstats.get("c")), (Some(u64::MAX), None));
        let sent: Vec<_> = xstats.of_queues(QueueDirection::Tx).collect();
        assert_eq!(sent, [(0, QueueCounter::Packets, 7)]);
        xstats.extend([of("b", 2), of("c", 3)]);
        assert_eq!((xstats.len(), xstats.get("b"), xstats.get("c")), (4, Some(2), Some(3)));
    }
}

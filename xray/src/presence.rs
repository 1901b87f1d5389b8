//! Which parts of a range of memory have content.

use std::ops::Range;

use pmdscope_telemetry::host::maps::Mapping;

/// Which parts of a range of memory have content. Reading a page that the app never touched would
/// allocate it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Parts with content, ascending, without overlaps.
    pub parts: Vec<Range<u64>>,
    /// Bytes outside of them whose content is unknown: they belong to files that could not be
    /// opened.
    pub unknown_bytes: u64,
}

impl Presence {
    /// For a range that is read completely.
    pub fn whole(range: Range<u64>) -> Self {
        Self { parts: vec![range], unknown_bytes: 0 }
    }

    /// Bytes of `range` in no part.
    pub(crate) fn absent_bytes(&self, range: &Range<u64>) -> u64 {
        let held = self.parts.iter().map(|part| bytes(&overlap(part, range)));
        bytes(range).saturating_sub(held.sum())
    }

    /// Adds the parts of `range` that the files of shared mappings contain, as `data` returns for
    /// each mapping. Known parts are not requested again.
    pub(crate) fn add_files<E>(
        &mut self,
        range: &Range<u64>,
        shared: &[Mapping],
        data: impl Fn(&Mapping) -> Result<Option<Vec<Range<u64>>>, E>,
    ) {
        for mapping in shared {
            let wanted = overlap(&(mapping.start..mapping.end), range);
            let absent = self.absent_bytes(&wanted);
            if absent == 0 {
                continue;
            }
            match data(mapping) {
                Ok(Some(parts)) => self.join(parts.iter().map(|part| overlap(part, &wanted))),
                Ok(None) => {}
                Err(_) => self.unknown_bytes += absent,
            }
        }
    }

    fn join(&mut self, parts: impl Iterator<Item = Range<u64>>) {
        self.parts.extend(parts.filter(|part| !part.is_empty()));
        self.parts.sort_unstable_by_key(|part| part.start);
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(self.parts.len());
        for part in self.parts.drain(..) {
            match joined.last_mut() {
                Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
                _ => joined.push(part),
            }
        }
        self.parts = joined;
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

fn bytes(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64) -> Mapping {
        Mapping { start, end, shared: true, ..Mapping::default() }
    }

    #[test]
    fn data_of_files_joins_what_is_in_page_tables() {
        let mut presence = Presence { parts: vec![10..20, 40..50], unknown_bytes: 0 };
        let data = |mapping: &Mapping| match mapping.start {
            0 => Ok(Some(vec![0..12, 20..25])),
            30 => Ok(None),
            40 => Err(()),
            _ => panic!("{mapping:?}"),
        };
        let shared = [mapping(0, 30), mapping(30, 40), mapping(40, 60), mapping(100, 200)];
        presence.add_files(&(5..60), &shared, data);
        assert_eq!(presence, Presence { parts: vec![5..25, 40..50], unknown_bytes: 10 });
        assert_eq!(presence.absent_bytes(&(0..60)), 30);
    }

    #[test]
    fn files_of_pages_in_page_tables_are_not_opened() {
        let mut presence = Presence::whole(5..60);
        presence.add_files(&(5..60), &[mapping(0, 100)], |_| Err(()));
        assert_eq!(presence, Presence::whole(5..60));
    }
}

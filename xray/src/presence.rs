//! Which parts of a range of memory have content.

use pmdscope_telemetry::host::maps::Mapping;

use crate::address::AddressRange;

/// Which parts of a range of memory have content. Reading a page that the app never touched would
/// allocate it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Parts with content, ascending, without overlaps.
    pub parts: Vec<AddressRange>,
    /// Bytes outside of them whose content is unknown: they belong to files that could not be
    /// opened.
    pub unknown_bytes: u64,
}

impl Presence {
    /// For a range that is read completely.
    pub fn whole(range: AddressRange) -> Self {
        Self { parts: vec![range], unknown_bytes: 0 }
    }

    /// Bytes of `range` in no part.
    pub(crate) fn absent_bytes(&self, range: &AddressRange) -> u64 {
        let held = self.parts.iter().map(|part| part.intersection(range).bytes());
        held.fold(range.bytes(), u64::saturating_sub)
    }

    /// Adds the parts of `range` that the files of shared mappings contain, as `data` returns for
    /// each mapping. Known parts are not requested again.
    pub(crate) fn add_files<E>(
        &mut self,
        range: &AddressRange,
        shared: &[Mapping],
        data: impl Fn(&Mapping) -> Result<Option<Vec<AddressRange>>, E>,
    ) {
        for mapping in shared {
            let wanted = AddressRange::from(mapping).intersection(range);
            let absent = self.absent_bytes(&wanted);
            if absent == 0 {
                continue;
            }
            match data(mapping) {
                Ok(Some(parts)) => self.join(parts.iter().map(|part| part.intersection(&wanted))),
                Ok(None) => {}
                Err(_) => self.unknown_bytes = self.unknown_bytes.saturating_add(absent),
            }
        }
    }

    fn join(&mut self, parts: impl Iterator<Item = AddressRange>) {
        self.parts.extend(parts.filter(|part| !part.is_empty()));
        self.parts.sort_unstable();
        self.parts.dedup_by(|next, last| last.join(next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64) -> Mapping {
        Mapping { start, end, shared: true, ..Mapping::default() }
    }

    fn ranges(ranges: &[(u64, u64)]) -> Vec<AddressRange> {
        ranges.iter().map(|(start, end)| (*start..*end).into()).collect()
    }

    #[test]
    fn data_of_files_joins_what_is_in_page_tables() {
        let mut presence = Presence { parts: ranges(&[(10, 20), (40, 50)]), unknown_bytes: 0 };
        let data = |mapping: &Mapping| match mapping.start {
            0 => Ok(Some(ranges(&[(0, 12), (20, 25)]))),
            30 => Ok(None),
            40 => Err(()),
            _ => panic!("{mapping:?}"),
        };
        let shared = [mapping(0, 30), mapping(30, 40), mapping(40, 60), mapping(100, 200)];
        presence.add_files(&(5..60).into(), &shared, data);
        assert_eq!(presence, Presence { parts: ranges(&[(5, 25), (40, 50)]), unknown_bytes: 10 });
        assert_eq!(presence.absent_bytes(&(0..60).into()), 30);
    }

    #[test]
    fn files_of_pages_in_page_tables_are_not_opened() {
        let mut presence = Presence::whole((5..60).into());
        presence.add_files(&(5..60).into(), &[mapping(0, 100)], |_| Err(()));
        assert_eq!(presence, Presence::whole((5..60).into()));
    }
}

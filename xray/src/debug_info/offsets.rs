//! Offsets from the debug information of an app: valid even if its DPDK was patched.

use std::time::Duration;

use gimli::{AttributeValue, Unit, UnitOffset};
use pmdscope_profile::SeparateFiles;

use super::{Data, DebugFiles, Dwarf, Entry, WorkDeadline, name_of};
use crate::layout::{Offsets, STRUCTURES};
use crate::memory::Memory;

/// Larger sections are not read.
const MOST_BYTES: u64 = 256 << 20;

/// Maximum number of type names and qualifiers from a member to its structure, and of structures
/// around a member.
const MOST_STEPS: usize = 16;

/// Larger offsets and sizes are not those of a structure; sums of some of them do not wrap.
const MOST_OFFSET: u64 = 1 << 24;

/// Time for all files of an app: DWARF may let each of a million units read the same tables.
const MOST_TIME: Duration = Duration::from_secs(10);

/// DPDK has some 300 with its drivers.
const MOST_LIBRARIES: usize = 1024;

/// Prefix of the names of DPDK's libraries.
const LIBRARIES: &str = "librte_";

/// Offsets in the structures that are complete in the debug information of the app's executable and
/// of DPDK's libraries; other structures are left out.
pub(crate) fn offsets_of_app(memory: &dyn Memory) -> Offsets {
    let mut offsets = Offsets::new();
    let deadline = WorkDeadline::after(MOST_TIME);
    for files in files(memory).unwrap_or_default() {
        offsets_of_files(&files, &deadline, &mut offsets);
    }
    offsets
}

/// The executable and the libraries of DPDK; none of a core file.
fn files(memory: &dyn Memory) -> Option<Vec<DebugFiles>> {
    let (pid, maps) = (memory.process()?, memory.maps().ok()?);
    let (rights, of_app) = memory.files()?;
    let is_library =
        |path: &str| path.rsplit('/').next().is_some_and(|name| name.starts_with(LIBRARIES));
    let mut libraries: Vec<_> = maps.iter().filter(|map| is_library(&map.path)).collect();
    libraries.dedup_by_key(|map| &map.path);
    libraries.truncate(MOST_LIBRARIES);
    rights.run(|| {
        let separate = SeparateFiles::of_process(Some(pid));
        let libraries = libraries
            .into_iter()
            .filter_map(|map| Some(DebugFiles::find(of_app.mapped(map)?, &map.path, &separate)));
        let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let executable = of_app.executable();
        let executable =
            executable.map(|file| DebugFiles::find(file, &path.to_string_lossy(), &separate));
        executable.into_iter().chain(libraries).collect()
    })
}

/// Adds the offsets of a file, except those that were found before.
pub(super) fn offsets_of_files(files: &DebugFiles, deadline: &WorkDeadline, offsets: &mut Offsets) {
    let all = |offsets: &Offsets| STRUCTURES.iter().all(|structure| has(offsets, structure));
    if all(offsets) || deadline.is_over() {
        return;
    }
    let Some(dwarf) = files.dwarf(MOST_BYTES) else { return };
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if all(offsets) || deadline.is_over() {
            return;
        }
        if let Ok(unit) = dwarf.unit(header) {
            // Offsets found before an error are kept.
            let _ = Types { dwarf: &dwarf, unit: &unit, deadline }.add(offsets);
        }
    }
}

fn has(offsets: &Offsets, (structure, members): &(&'static str, &[&'static str])) -> bool {
    members.iter().all(|member| offsets.contains_key(&(*structure, *member)))
}

/// The types of a unit.
struct Types<'a> {
    dwarf: &'a Dwarf,
    unit: &'a Unit<Data>,
    deadline: &'a WorkDeadline,
}

impl Types<'_> {
    fn add(&self, offsets: &mut Offsets) -> gimli::Result<()> {
        let mut entries = self.unit.entries();
        entries.next_dfs()?;
        let mut entry = entries.next_dfs()?;
        while let Some(found) = entry.filter(|_| !self.deadline.is_over()) {
            if let Some(wanted) = self.wanted(found).filter(|wanted| !has(offsets, wanted)) {
                let (structure, members) = wanted;
                let all: Option<Vec<_>> = members
                    .iter()
                    .map(|name| Some(((structure, *name), self.value(found, name)?)))
                    .collect();
                // Of a file that is broken.
                let plausible = all.filter(|all| all.iter().all(|(_, it)| *it <= MOST_OFFSET));
                offsets.extend(plausible.unwrap_or_default());
            }
            entry = entries.next_sibling()?;
        }
        Ok(())
    }

    /// The structure of DPDK that this entry defines, if it is needed.
    fn wanted(&self, entry: &Entry) -> Option<(&'static str, &'static [&'static str])> {
        let defines = entry.tag() == gimli::DW_TAG_structure_type
            && entry.attr_value(gimli::DW_AT_declaration).is_none();
        let name = if defines { self.name(entry)? } else { return None };
        STRUCTURES.iter().find(|(structure, _)| *structure == name).copied()
    }

    fn name(&self, entry: &Entry) -> Option<String> {
        name_of(&self.dwarf.attr_string(self.unit, entry.attr_value(gimli::DW_AT_name)?).ok()?)
    }

    /// The value that the table lists as `member` of the structure.
    fn value(&self, structure: &Entry, member: &str) -> Option<u64> {
        if member == "sizeof" {
            return structure.attr_value(gimli::DW_AT_byte_size)?.udata_value();
        }
        let member_at = |path: &str| self.member(structure, path, MOST_STEPS);
        if let Some(("stats", _)) = member.split_once('.') {
            // Their number is the number of lcores, which the table lists separately.
            return member_at("stats").is_none().then_some(0);
        }
        if let Some((offset, _)) = member_at(member) {
            return Some(offset);
        }
        self.array_length(&member_at(member.strip_suffix(".len")?)?.1)
    }

    /// Offset and entry of a member by its path; unnamed members are searched as well.
    fn member(&self, structure: &Entry, path: &str, steps: usize) -> Option<(u64, Entry)> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
        let mut tree = self.unit.entries_tree(Some(structure.offset())).ok()?;
        let mut members = tree.root().ok()?.children();
        while let Ok(Some(node)) = members.next() {
            let member = node.entry();
            if member.tag() != gimli::DW_TAG_member {
                continue;
            }
            // Structures may contain themselves, unnamed.
            if self.deadline.is_over() {
                return None;
            }
            let offset = member_offset(member);
            let inner = match (self.name(member), rest) {
                (Some(name), None) if name == first => return Some((offset, member.clone())),
                (Some(name), Some(rest)) if name == first => rest,
                (None, _) => path,
                _ => continue,
            };
            let found = self.type_of(member).and_then(|inside| self.member(&inside, inner, steps));
            if let Some((inside, member)) = found {
                return Some((offset.checked_add(inside)?, member));
            }
        }
        None
    }

    /// The type of a member, without names and qualifiers.
    fn type_of(&self, member: &Entry) -> Option<Entry> {
        let mut entry = self.referred(member)?;
        for _ in 0..MOST_STEPS {
            match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_atomic_type => entry = self.referred(&entry)?,
                _ => return Some(entry),
            }
        }
        None
    }

    fn referred(&self, entry: &Entry) -> Option<Entry> {
        let AttributeValue::UnitRef(offset) = entry.attr_value(gimli::DW_AT_type)? else {
            return None;
        };
        self.unit.entry(offset).ok()
    }

    fn array_length(&self, member: &Entry) -> Option<u64> {
        let array = self.type_of(member)?;
        let offset: UnitOffset<usize> = array.offset();
        let mut tree = self.unit.entries_tree(Some(offset)).ok()?;
        let mut ranges = tree.root().ok()?.children();
        while let Ok(Some(range)) = ranges.next() {
            let value = |name| range.entry().attr_value(name).and_then(|value| value.udata_value());
            if let Some(last) = value(gimli::DW_AT_upper_bound) {
                return last.checked_add(1);
            }
            if let Some(count) = value(gimli::DW_AT_count) {
                return Some(count);
            }
        }
        None
    }
}

/// Bytes before a member, which may be a bit field; 0 in a union.
fn member_offset(member: &Entry) -> u64 {
    let value = |name| member.attr_value(name).and_then(|value| value.udata_value());
    let bits = || value(gimli::DW_AT_data_bit_offset).map(|bits| bits / 8);
    value(gimli::DW_AT_data_member_location).or_else(bits).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::tests::Compiled;
    use super::*;

    /// Members that a patch moved, as the compiler lays them out.
    const PATCHED: &str = r"
        #include <stddef.h>
        #include <stdint.h>
        typedef struct { volatile uint32_t head, tail; union { int sync_type; int single; }; } headtail;
        struct rte_ring {
            char patched[3], name[32]; int flags; void *memzone; uint32_t size, mask, capacity;
            _Alignas(64) const union { headtail prod; char fill[64]; };
            union { headtail cons; char other[64]; };
        };
        struct malloc_elem {
            void *heap, *volatile prev, *volatile next, *list[2], *msl;
            int state : 3; int dirty : 8; uint32_t pad; size_t size;
        };
        struct rte_mempool_ops { void *first; char name[32]; };
        struct rte_mempool_ops_table { int lock; uint32_t num_ops; struct rte_mempool_ops ops[11]; };
        struct rte_memzone { char name[32]; };
        struct rte_mempool;
        struct rte_ring ring; struct malloc_elem elem; struct rte_mempool_ops_table table;
        struct rte_memzone zone; struct rte_mempool *pool;
    ";

    #[test]
    fn members_are_found_in_anonymous_unions_arrays_and_bit_fields() {
        for options in [&["-g"][..], &["-g", "-gz"], &["-gdwarf-4", "-O2"]] {
            let offsets = compiled(PATCHED, options);
            let offset = |structure, member| offsets.get(&(structure, member)).copied();
            assert_eq!(offset("rte_ring", "name"), Some(3));
            assert_eq!(offset("rte_ring", "prod.tail"), Some(68));
            assert_eq!(offset("rte_ring", "cons.sync_type"), Some(136));
            assert_eq!(offset("rte_ring", "sizeof"), Some(192));
            assert_eq!(offset("malloc_elem", "state"), Some(48));
            assert_eq!(offset("malloc_elem", "size"), Some(56));
            assert_eq!(offset("rte_mempool_ops_table", "ops.len"), Some(11));
            assert_eq!(offset("rte_mempool_ops", "name"), Some(8));
            // Members are missing, or only declared.
            assert_eq!(offset("rte_memzone", "name"), None);
            assert_eq!(offset("rte_mempool", "name"), None);
        }
    }

    #[test]
    fn a_file_without_debug_information_tells_nothing() {
        assert_eq!(compiled(PATCHED, &["-s"]), Offsets::new());
    }

    /// The offsets of a library of this source.
    pub(crate) fn compiled(source: &str, options: &[&str]) -> Offsets {
        let mut offsets = Offsets::new();
        offsets_of_files(
            &Compiled::new(source, options).files(),
            &WorkDeadline::after(MOST_TIME),
            &mut offsets,
        );
        offsets
    }
}

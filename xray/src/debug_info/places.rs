//! Where variables are declared: DWARF debug information.

use std::collections::HashMap;
use std::time::Duration;

use gimli::{AttributeValue, Operation, Unit};

use super::{Data, DebugFiles, Dwarf, Entry, WorkDeadline, name_of};

/// `file.c:14`, by the address of the variable in the file.
pub(crate) type Places = HashMap<u64, String>;

/// Larger debug information is not read.
const MOST_BYTES: u64 = 1 << 30;

/// Entries after which the time is looked at.
const ENTRIES_PER_CHECK: u32 = 1024;

/// Maximum number of references from an entry to its declaration.
const MOST_STEPS: usize = 4;

/// Time for one file: DWARF may let each of a million units read the same tables.
const MOST_TIME: Duration = Duration::from_secs(10);

/// Most variables of a file.
const MOST_PLACES: usize = 1 << 22;

/// The variables of a file; none if it has no debug information. A unit that cannot be read is left out,
/// as are those for which there is no time.
pub(crate) fn read(files: &DebugFiles) -> Places {
    let Some(dwarf) = files.dwarf(MOST_BYTES) else { return Places::new() };
    let deadline = WorkDeadline::after(MOST_TIME);
    let (mut places, mut units) = (Places::new(), dwarf.units());
    while let Ok(Some(header)) = units.next() {
        if deadline.is_over() || places.len() >= MOST_PLACES {
            break;
        }
        if let Ok(unit) = dwarf.unit(header) {
            // Variables found before an error are kept.
            let _ = variables(&dwarf, &unit, &deadline, &mut places);
        }
    }
    places
}

fn variables(
    dwarf: &Dwarf,
    unit: &Unit<Data>,
    deadline: &WorkDeadline,
    places: &mut Places,
) -> gimli::Result<()> {
    let (mut entries, mut seen) = (unit.entries(), 0_u32);
    while let Some(entry) = entries.next_dfs()? {
        seen = seen.wrapping_add(1);
        if seen.is_multiple_of(ENTRIES_PER_CHECK) && deadline.is_over() {
            break;
        }
        if entry.tag() != gimli::DW_TAG_variable {
            continue;
        }
        let Some(address) = address(unit, entry) else { continue };
        if let Some(place) = place(dwarf, unit, entry, MOST_STEPS) {
            places.insert(address, place);
        }
    }
    Ok(())
}

/// Address of a variable with static storage.
fn address(unit: &Unit<Data>, entry: &Entry) -> Option<u64> {
    let AttributeValue::Exprloc(expression) = entry.attr_value(gimli::DW_AT_location)? else {
        return None;
    };
    let mut operations = expression.operations(unit.encoding());
    match (operations.next(), operations.next()) {
        (Ok(Some(Operation::Address { address })), Ok(None)) => Some(address),
        _ => None,
    }
}

/// `file.c:14`; the entry may refer to its declaration.
fn place(dwarf: &Dwarf, unit: &Unit<Data>, entry: &Entry, steps: usize) -> Option<String> {
    let line = entry.attr_value(gimli::DW_AT_decl_line).and_then(|value| value.udata_value());
    let own = line.and_then(|line| Some(format!("{}:{line}", file_name(dwarf, unit, entry)?)));
    own.or_else(|| {
        let refers = [gimli::DW_AT_specification, gimli::DW_AT_abstract_origin];
        let to = refers.into_iter().find_map(|name| entry.attr_value(name))?;
        let AttributeValue::UnitRef(offset) = to else { return None };
        let declared = unit.entry(offset).ok()?;
        place(dwarf, unit, &declared, steps.checked_sub(1)?)
    })
}

/// Without its directory.
fn file_name(dwarf: &Dwarf, unit: &Unit<Data>, entry: &Entry) -> Option<String> {
    let index = match entry.attr_value(gimli::DW_AT_decl_file)? {
        AttributeValue::FileIndex(index) => index,
        other => other.udata_value()?,
    };
    let file = unit.line_program.as_ref()?.header().file(index)?;
    let name = name_of(&dwarf.attr_string(unit, file.path_name()).ok()?)?;
    Some(name.rsplit('/').next().unwrap_or(&name).to_owned())
}

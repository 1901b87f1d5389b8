//! Where variables are declared: DWARF debug information.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::rc::Rc;

use flate2::read::ZlibDecoder;
use gimli::{
    AttributeValue, DebuggingInformationEntry, EndianRcSlice, Operation, Reader, RunTimeEndian,
    Unit,
};
use object::{CompressionFormat, Object, ObjectSection, ReadCache};

/// `file.c:14` by the address of the variable in the file.
pub(crate) type Places = HashMap<u64, String>;

/// Larger debug information is not read.
const MOST_BYTES: u64 = 1 << 30;

/// Most references from an entry to the one that declares it.
const MOST_STEPS: usize = 4;

type Data = EndianRcSlice<RunTimeEndian>;
type Entry = DebuggingInformationEntry<Data>;

/// The variables of a file; none if it has no debug information. A unit that cannot be read is left out.
pub(crate) fn read(file: &File) -> Places {
    let cache = ReadCache::new(file);
    let Ok(elf) = object::File::parse(&cache) else { return Places::new() };
    let section = |id: gimli::SectionId| {
        let data = elf.section_by_name(id.name()).and_then(|section| bytes(&section));
        let data: Rc<[u8]> = data.unwrap_or_default().into();
        Ok::<_, gimli::Error>(EndianRcSlice::new(data, RunTimeEndian::default()))
    };
    let Ok(dwarf) = gimli::Dwarf::load(section) else { return Places::new() };
    let (mut places, mut units) = (Places::new(), dwarf.units());
    while let Ok(Some(header)) = units.next() {
        if let Ok(unit) = dwarf.unit(header) {
            // What was found before an error stays.
            let _ = variables(&dwarf, &unit, &mut places);
        }
    }
    places
}

/// The data of a section, also of one that is compressed.
fn bytes<'data>(section: &impl ObjectSection<'data>) -> Option<Vec<u8>> {
    let compressed = section.compressed_data().ok()?;
    if compressed.uncompressed_size > MOST_BYTES {
        return None;
    }
    match compressed.format {
        CompressionFormat::None => Some(compressed.data.to_vec()),
        CompressionFormat::Zlib => {
            let (mut bytes, most) = (Vec::new(), compressed.uncompressed_size);
            ZlibDecoder::new(compressed.data).take(most).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        }
        _ => None,
    }
}

fn variables(
    dwarf: &gimli::Dwarf<Data>,
    unit: &Unit<Data>,
    places: &mut Places,
) -> gimli::Result<()> {
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
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

/// Of a variable that stays where it is.
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

/// `file.c:14`; the entry itself may refer to that of its declaration.
fn place(
    dwarf: &gimli::Dwarf<Data>,
    unit: &Unit<Data>,
    entry: &Entry,
    steps: usize,
) -> Option<String> {
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
fn file_name(dwarf: &gimli::Dwarf<Data>, unit: &Unit<Data>, entry: &Entry) -> Option<String> {
    let index = match entry.attr_value(gimli::DW_AT_decl_file)? {
        AttributeValue::FileIndex(index) => index,
        other => other.udata_value()?,
    };
    let file = unit.line_program.as_ref()?.header().file(index)?;
    let name = dwarf.attr_string(unit, file.path_name()).ok()?;
    let name = name.to_string_lossy().ok()?;
    Some(name.rsplit('/').next().unwrap_or(&name).to_owned())
}

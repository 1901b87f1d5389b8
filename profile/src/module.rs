//! An executable or shared library of a process: its functions, and how its stack frames unwind.

use std::cell::OnceCell;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, NativeEndian, UnwindSection};
use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags};
use pmdscope_telemetry::host::maps::Mapping;

use crate::app_files::AppFiles;
use crate::limited_file::{CopiedFile, FileData};
use crate::separate_files::SeparateFiles;

/// A file of which a process has mapped code. It is kept open, so it stays readable when the
/// process ends, when the file is replaced, and from another mount namespace.
#[derive(Debug)]
pub(crate) struct Module {
    /// Name of the file, without its directory.
    pub(crate) name: String,
    /// Whether it is the executable of the process, not a library.
    pub(crate) is_executable: bool,
    /// Addresses at which it is mapped.
    pub(crate) mapped: Range<u64>,
    /// Difference of addresses in the process and in the file.
    pub(crate) bias: u64,
    /// The data of `.eh_frame` and of `.eh_frame_hdr`, with their addresses in the file.
    pub(crate) unwind: UnwindSections,
    /// Functions from the entries of `.eh_frame`, as addresses in the file, in ascending order.
    functions: Vec<Range<u64>>,
    file: File,
    /// Its separate debug file.
    debug_file: Option<File>,
    /// The debug file, if there is one, and the file, for the library that maps them.
    copies: OnceCell<Vec<CopiedFile>>,
}

/// Sections that are needed to unwind frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnwindSections {
    pub(crate) eh_frame: Option<(Range<u64>, Vec<u8>)>,
    pub(crate) eh_frame_hdr: Option<(Range<u64>, Vec<u8>)>,
    pub(crate) text: Option<Range<u64>>,
}

/// A variable in the data of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataSymbol {
    /// Address in the process.
    pub(crate) address: u64,
    /// Size, bytes.
    pub(crate) size: u64,
}

impl Module {
    /// Opens the module of these mappings, all of the same file; `None` if it cannot be read, is too
    /// long, or is no ELF file. To be used in [`FileRights::run`](crate::FileRights::run).
    pub(crate) fn open(
        files: &AppFiles,
        separate: &SeparateFiles,
        mappings: &[&Mapping],
        executable: u64,
    ) -> Option<Self> {
        let code = mappings.iter().find(|mapping| mapping.executable)?;
        let file = files.mapped(code).filter(CopiedFile::is_possible)?;
        let data = FileData::new(&file);
        let elf = object::File::parse(&data).ok()?;
        let bias = load_bias(&elf, code)?;
        let unwind = UnwindSections::of(&elf);
        let functions = unwind.functions();
        let start = mappings.iter().map(|mapping| mapping.start).min()?;
        let end = mappings.iter().map(|mapping| mapping.end).max()?;
        drop(data);
        Some(Self {
            name: file_name(&code.path),
            is_executable: code.inode == executable,
            mapped: start..end,
            bias,
            unwind,
            functions,
            debug_file: separate.find(&file, &code.path),
            file,
            copies: OnceCell::new(),
        })
    }

    /// Returns paths at which this process can read copies of the file and of its debug file, that with
    /// more symbols first.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let copies = self.copies.get_or_init(|| {
            let files = self.debug_file.iter().chain([&self.file]);
            files.filter_map(|file| CopiedFile::new(file).ok()).collect()
        });
        copies.iter().map(CopiedFile::path)
    }

    /// Returns the function with this address, by `.eh_frame`; both are addresses in the process.
    pub(crate) fn function(&self, address: u64) -> Option<Range<u64>> {
        let inside = address.checked_sub(self.bias)?;
        let next = self.functions.partition_point(|range| range.start <= inside);
        let range = self.functions.get(next.checked_sub(1)?)?;
        let moved = |at: u64| at.checked_add(self.bias);
        range
            .contains(&inside)
            .then(|| moved(range.start).zip(moved(range.end)))?
            .map(|(a, b)| a..b)
    }

    /// Returns the exported or local variable with this name.
    pub(crate) fn variable(&self, name: &str) -> Option<DataSymbol> {
        let data = FileData::new(&self.file);
        let elf = object::File::parse(&data).ok()?;
        let named = |symbol: &object::Symbol<'_, '_, _>| symbol.name() == Ok(name);
        let symbol = elf
            .dynamic_symbols()
            .filter(named)
            .chain(elf.symbols().filter(named))
            .find(|symbol| symbol.is_definition() && symbol.size() > 0)?;
        Some(DataSymbol { address: symbol.address().wrapping_add(self.bias), size: symbol.size() })
    }
}

impl UnwindSections {
    fn of<'data>(elf: &impl Object<'data>) -> Self {
        let section = |name: &str| {
            let section = elf.section_by_name(name)?;
            Some((section.address()..section.address().checked_add(section.size())?, section))
        };
        let data = |name: &str| {
            let (range, section) = section(name)?;
            Some((range, section.data().ok()?.to_vec()))
        };
        Self {
            eh_frame: data(".eh_frame"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            text: section(".text").map(|(range, _)| range),
        }
    }

    /// Returns the functions in `.eh_frame`; entries that cannot be read are left out.
    fn functions(&self) -> Vec<Range<u64>> {
        let Some((range, data)) = &self.eh_frame else { return Vec::new() };
        let section = EhFrame::from(EndianSlice::new(data, NativeEndian));
        let mut bases = BaseAddresses::default().set_eh_frame(range.start);
        if let Some((header, _)) = &self.eh_frame_hdr {
            bases = bases.set_eh_frame_hdr(header.start);
        }
        if let Some(text) = &self.text {
            bases = bases.set_text(text.start);
        }
        let mut functions = Vec::new();
        let mut entries = section.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let start = fde.initial_address();
            if let Some(end) = start.checked_add(fde.len()).filter(|end| *end > start) {
                functions.push(start..end);
            }
        }
        functions.sort_unstable_by_key(|range| range.start);
        functions
    }
}

/// Returns the difference of addresses in the process and in an ELF file, of which the process has
/// mapped `code`, a part of an executable segment. `None` if there is no such segment.
pub fn load_bias<'data>(elf: &impl Object<'data>, code: &Mapping) -> Option<u64> {
    let holds = |(begin, size): (u64, u64)| {
        // Mappings begin at page boundaries, segments anywhere.
        (begin & !0xfff..begin.saturating_add(size)).contains(&code.offset)
    };
    let is_code = |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
    let mut segments = elf.segments();
    let segment = segments.find(|s| is_code(s.flags()) && holds(s.file_range()))?;
    let address = segment.address().wrapping_add(code.offset).wrapping_sub(segment.file_range().0);
    Some(code.start.wrapping_sub(address))
}

/// Returns the name of a mapped file without its directory, also if the file was deleted.
pub fn file_name(path: &str) -> String {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use pmdscope_telemetry::host::maps;

    /// Returns the module of this test program.
    pub(crate) fn own() -> Module {
        let pid = std::process::id();
        let maps = maps::read(pid).unwrap();
        let exe = std::fs::metadata("/proc/self/exe").unwrap().ino();
        let own: Vec<_> = maps.iter().filter(|mapping| mapping.inode == exe).collect();
        let separate = SeparateFiles::below(Vec::new());
        Module::open(&AppFiles::new(Some(pid)), &separate, &own, exe).unwrap()
    }

    #[test]
    fn functions_are_found_by_any_of_their_addresses() {
        let (module, here) = (own(), own as fn() -> Module as usize as u64);
        assert!(module.is_executable && module.mapped.contains(&here));
        let range = module.function(here).unwrap();
        assert_eq!(range.start, here);
        assert_eq!(module.function(range.end - 1), Some(range));
        assert_eq!(module.function(0), None);
        assert_eq!(module.function(u64::MAX), None);
    }

    #[used]
    #[unsafe(no_mangle)]
    #[allow(unsafe_code)] // The test looks up its symbol.
    static PMDSCOPE_PROFILE_TEST: [u64; 3] = [1, 2, 3];

    #[test]
    fn variables_are_found_by_name() {
        let symbol = own().variable("PMDSCOPE_PROFILE_TEST").unwrap();
        let address = std::ptr::from_ref(&PMDSCOPE_PROFILE_TEST) as usize as u64;
        assert_eq!(symbol, DataSymbol { address, size: 24 });
        assert_eq!(own().variable("no_such_variable"), None);
    }

    /// Headers of a file may have any values.
    #[test]
    fn a_segment_at_the_end_of_the_numbers_has_a_bias() {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        let word = |bytes: &[u8], at: usize| {
            usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
        };
        let first = word(&bytes, 32);
        let headers = (0..usize::from(bytes[56])).map(|number| first + number * 56);
        let is_code = |at: &usize| bytes[*at..*at + 8] == [1, 0, 0, 0, 5, 0, 0, 0];
        let code = headers.into_iter().find(is_code).unwrap();
        // Offset, address, and length in the file.
        for (at, value) in [(8, u64::MAX - 0xfff), (16, u64::MAX), (32, u64::MAX)] {
            bytes[code + at..code + at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let elf = object::File::parse(&*bytes).unwrap();
        let mapping = Mapping { start: 0x5000, offset: u64::MAX - 0xfff, ..Mapping::default() };
        assert_eq!(load_bias(&elf, &mapping), Some(0x5001));
        assert_eq!(load_bias(&elf, &Mapping { offset: 0, ..mapping }), None);
    }

    #[test]
    fn names_of_files_need_no_directory() {
        assert_eq!(file_name("/usr/lib/librte_net_null.so.23 (deleted)"), "librte_net_null.so.23");
        assert_eq!(file_name("[vdso]"), "[vdso]");
    }
}

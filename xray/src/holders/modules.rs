//! Executables and libraries of an app: their variables, from the symbols of the file or of its
//! separate debug file.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use object::elf::{PF_W, PT_DYNAMIC, PT_TLS};
use object::read::elf::ProgramHeader;
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SegmentFlags, SymbolKind};
use pmdscope_profile::{file_name, load_bias, open_mapped_file};

use super::{Owned, Variable, link_maps};
use crate::Mapping;
use crate::debug_info::places::{self, Places};
use crate::debug_info::separate_files::SeparateFiles;
use crate::debug_info::{DebugFiles, open_regular_file};
use crate::memory::Memory;
use crate::report::Holder;

/// Maximum number of symbols read from a file.
const MOST_SYMBOLS: usize = 1 << 20;

/// Bytes of a file that are compared with the memory of a core file: the segment headers, and often
/// the build id.
const COMPARED: usize = 512;

/// A file whose code is mapped in an app.
#[derive(Debug)]
pub(super) struct Module {
    /// Without its directory.
    pub(super) name: String,
    /// It is the executable, not a library.
    pub(super) is_executable: bool,
    /// Difference between addresses in the process and in the file.
    bias: u64,
    /// Address of its dynamic section in the process.
    pub(super) dynamic: Option<u64>,
    /// Writable segments, as addresses in the process.
    data: Vec<(u64, u64)>,
    /// Variables in them, as addresses in the process.
    variables: Vec<Symbol>,
    /// Its thread-local storage.
    pub(super) tls: Option<ThreadLocals>,
    files: DebugFiles,
    places: OnceLock<Places>,
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) name: String,
}

/// The program header of thread-local storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TlsSegment {
    /// Bytes that the file initializes.
    pub(super) file_bytes: u64,
    /// Bytes of each thread.
    pub(super) bytes: u64,
    pub(super) alignment: u64,
}

/// Thread-local variables of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadLocals {
    pub(super) segment: TlsSegment,
    /// Number of the module in the table of a thread, if known for certain.
    pub(super) number: Option<u64>,
    /// Variables by their offsets in it.
    pub(super) variables: Vec<Symbol>,
}

/// The modules of an app. Files that cannot be opened, or are not ELF files, are left out.
pub(super) fn modules(memory: &dyn Memory, pid: Option<u32>, maps: &[Mapping]) -> Vec<Module> {
    let mut files: BTreeMap<(&str, u64, &str), Vec<&Mapping>> = BTreeMap::new();
    for mapping in maps.iter().filter(|mapping| mapping.path.starts_with('/')) {
        // A core file contains neither devices nor inodes.
        let file = (mapping.device.as_str(), mapping.inode, mapping.path.as_str());
        files.entry(file).or_default().push(mapping);
    }
    let executable = pid.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok());
    let executable = executable.map(|path| file_name(&path.to_string_lossy()));
    let code = files.values().filter_map(|maps| maps.iter().find(|mapping| mapping.executable));
    let module = |code: &&Mapping| {
        let mut module = Module::open(memory, pid, maps, code)?;
        module.is_executable = executable.as_ref() == Some(&module.name);
        Some(module)
    };
    let mut modules: Vec<Module> = code.filter_map(module).collect();
    link_maps::number_thread_locals(memory, &mut modules);
    modules
}

impl Module {
    fn open(
        memory: &dyn Memory,
        pid: Option<u32>,
        maps: &[Mapping],
        code: &Mapping,
    ) -> Option<Self> {
        let file = match pid {
            Some(pid) => open_mapped_file(pid, code)?,
            None => open_same_file(memory, maps, code)?,
        };
        let files = DebugFiles::find(file, &code.path, &SeparateFiles::of_process(pid));
        let cache = ReadCache::new(&files.file);
        let elf = object::File::parse(&cache).ok()?;
        let bias = load_bias(&elf, code)?;
        let data = writable(&elf, bias);
        let debug_cache = files.separate.as_ref().map(ReadCache::new);
        let debug_elf = debug_cache.as_ref().and_then(|cache| object::File::parse(cache).ok());
        let (mut variables, mut locals) = (Vec::new(), Vec::new());
        for elf in [Some(&elf), debug_elf.as_ref()].into_iter().flatten() {
            let symbols = elf.symbols().chain(elf.dynamic_symbols()).take(MOST_SYMBOLS);
            for symbol in symbols.filter(is_variable) {
                let Some(found) = Symbol::of(&symbol) else { continue };
                if symbol.kind() == SymbolKind::Tls {
                    locals.push(found);
                } else {
                    variables.extend(found.moved(bias));
                }
            }
        }
        variables.retain(|symbol| {
            data.iter().any(|data| data.0 <= symbol.start && symbol.end <= data.1)
        });
        let (dynamic, segment) = program_headers(&elf);
        let dynamic = dynamic.map(|address| address.wrapping_add(bias));
        let tls = segment.map(|segment| ThreadLocals { segment, number: None, variables: locals });
        drop(debug_elf);
        drop(debug_cache);
        drop(elf);
        drop(cache);
        Some(Self {
            name: file_name(&code.path),
            is_executable: false,
            bias,
            dynamic,
            data,
            variables,
            tls,
            files,
            places: OnceLock::new(),
        })
    }

    /// Writable segments, as addresses in the process.
    pub(super) fn writable(&self) -> impl Iterator<Item = (u64, u64)> {
        self.data.iter().copied()
    }

    /// Its data as a whole, without a known variable.
    pub(super) fn data(&self) -> impl Iterator<Item = Owned> {
        let holder = self.global(None);
        self.data.iter().map(move |(start, end)| Owned::new(*start, *end, holder.clone()))
    }

    /// Its variables; `number` is that of the module.
    pub(super) fn variables(&self, number: usize) -> impl Iterator<Item = Owned> {
        self.variables.iter().map(move |symbol| Owned {
            variable: Some(Variable {
                module: number,
                address: symbol.start.wrapping_sub(self.bias),
            }),
            ..Owned::new(symbol.start, symbol.end, self.global(Some(symbol.name.clone())))
        })
    }

    fn global(&self, symbol: Option<String>) -> Holder {
        Holder::Global { symbol, module: self.name.clone(), place: None }
    }

    /// The declaration of the variable at this address of the file. Reads the debug information,
    /// once.
    pub(super) fn place(&self, address: u64) -> Option<String> {
        self.places.get_or_init(|| places::read(&self.files)).get(&address).cloned()
    }
}

impl Symbol {
    fn of<'data>(symbol: &impl ObjectSymbol<'data>) -> Option<Self> {
        let (start, name) = (symbol.address(), symbol.name().ok()?);
        let end = start.checked_add(symbol.size())?;
        (!name.is_empty()).then(|| Self { start, end, name: source_name(name) })
    }

    fn moved(self, bias: u64) -> Option<Self> {
        let start = self.start.wrapping_add(bias);
        let end = start.checked_add(self.end - self.start)?;
        Some(Self { start, end, ..self })
    }
}

/// The name of a variable in the source: names of C++ and Rust are mangled.
fn source_name(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash.
        return format!("{rust:#}");
    }
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    cpp.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

fn is_variable<'data>(symbol: &impl ObjectSymbol<'data>) -> bool {
    let is_data = matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Tls);
    is_data && !symbol.is_undefined() && symbol.size() > 0
}

/// Writable segments.
fn writable<'data>(elf: &impl Object<'data>, bias: u64) -> Vec<(u64, u64)> {
    let is_data = |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & PF_W != 0);
    let mut ranges = Vec::new();
    for segment in elf.segments().filter(|segment| is_data(segment.flags())) {
        let start = segment.address().wrapping_add(bias);
        ranges.extend(start.checked_add(segment.size()).map(|end| (start, end)));
    }
    ranges
}

/// Address of the dynamic section in the file, and the thread-local storage.
fn program_headers<'data, R: ReadRef<'data>>(
    elf: &object::File<'data, R>,
) -> (Option<u64>, Option<TlsSegment>) {
    let object::File::Elf64(elf) = elf else { return (None, None) };
    let (endian, mut dynamic, mut tls) = (elf.endian(), None, None);
    for header in elf.elf_program_headers() {
        match header.p_type(endian) {
            PT_DYNAMIC => dynamic = Some(header.p_vaddr(endian)),
            PT_TLS => {
                tls = Some(TlsSegment {
                    file_bytes: header.p_filesz(endian),
                    bytes: header.p_memsz(endian),
                    alignment: header.p_align(endian),
                });
            }
            _ => {}
        }
    }
    (dynamic, tls)
}

/// The file at the path of a mapping, if the memory of the app begins with the same bytes: a core
/// file has only the path of the file.
fn open_same_file(memory: &dyn Memory, maps: &[Mapping], code: &Mapping) -> Option<File> {
    let begins = |mapping: &&Mapping| mapping.path == code.path && mapping.offset == 0;
    let begin = maps.iter().find(begins)?;
    let file = open_regular_file(Path::new(&code.path))?;
    let (mut of_file, mut of_memory) = ([0; COMPARED], [0; COMPARED]);
    file.read_exact_at(&mut of_file, 0).ok()?;
    memory.read(begin.start, &mut of_memory).ok()?;
    (of_file == of_memory).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::test_memory::TestMemory;

    #[test]
    fn a_core_file_that_names_a_pipe_keeps_nobody_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let path = path.to_string_lossy().into_owned();
        let code = Mapping { end: 0x1000, executable: true, path, ..Mapping::default() };
        let (sender, receiver) = mpsc::channel();
        let read = move || sender.send(modules(&TestMemory::default(), None, &[code]).len());
        let reader = thread::spawn(read);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(30)), Ok(0));
        reader.join().unwrap().unwrap();
    }

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(source_name("held_table"), "held_table");
        assert_eq!(source_name("_ZL10held_table"), "held_table");
        assert_eq!(source_name("_ZN5flows5cacheE"), "flows::cache");
        assert_eq!(source_name("_ZN5flows5cache17h0123456789abcdefE"), "flows::cache");
        assert_eq!(source_name("_Znonsense"), "_Znonsense");
    }
}

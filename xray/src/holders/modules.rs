//! Executables and libraries of an app: their variables, from the symbols of the file or of its
//! separate debug file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::Duration;

use object::elf::{PF_W, PT_DYNAMIC, PT_TLS};
use object::read::elf::ProgramHeader;
use object::{Object, ObjectSegment, ObjectSymbol, ReadRef, SegmentFlags, SymbolKind};
use pmdscope_profile::{AppFiles, FileData, SeparateFiles, file_name, load_bias};

use super::{Owned, Variable, link_maps};
use crate::Mapping;
use crate::address::{Address, AddressRange};
use crate::debug_info::places::{self, Places};
use crate::debug_info::{DebugFiles, WorkDeadline};
use crate::memory::Memory;
use crate::report::Holder;

/// Maximum number of symbols that are looked at in all files, and of variables that are kept of one.
const MOST_SYMBOLS: u64 = 1 << 24;
const MOST_VARIABLES: usize = 1 << 20;

/// Symbols after which the time is looked at.
const SYMBOLS_PER_CHECK: u64 = 1024;

/// Longer names in the source are cut: mangled ones may refer to parts of themselves, and so become any
/// length.
const MOST_NAME_BYTES: usize = 1024;

/// Time for the symbols of all files.
const MOST_TIME: Duration = Duration::from_secs(20);

/// Maximum number of writable segments of a file, which usually has one or two.
const MOST_SEGMENTS: usize = 64;

/// Maximum number of files of an app.
const MOST_MODULES: usize = 4096;

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
    data: Vec<AddressRange>,
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
    pub(super) range: AddressRange,
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

/// The modules of an app, and what was not read of them, one sentence each. Files that cannot be opened, or
/// are not ELF files, are left out.
pub(super) fn modules(
    memory: &dyn Memory,
    pid: Option<u32>,
    maps: &[Mapping],
) -> (Vec<Module>, Vec<String>) {
    let mut files: BTreeMap<(&str, u64, &str), Vec<&Mapping>> = BTreeMap::new();
    for mapping in maps.iter().filter(|mapping| mapping.path.starts_with('/')) {
        // A core file contains neither devices nor inodes.
        let file = (mapping.device.as_str(), mapping.inode, mapping.path.as_str());
        files.entry(file).or_default().push(mapping);
    }
    let executable = pid.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok());
    let executable = executable.map(|path| file_name(&path.to_string_lossy()));
    let code = files.values().filter_map(|maps| {
        Some((*maps.iter().find(|mapping| mapping.executable)?, maps.as_slice()))
    });
    let code: Vec<_> = code.take(MOST_MODULES).collect();
    let Some((rights, of_app)) = memory.files() else { return (Vec::new(), Vec::new()) };
    let separate = SeparateFiles::of_process(pid);
    let open = || {
        let open = |code: &Mapping, maps: &[&Mapping]| {
            let file = match pid {
                Some(_) => of_app.mapped(code)?,
                None => open_same_file(memory, &of_app, maps, code)?,
            };
            Some(DebugFiles::find(file, &code.path, &separate))
        };
        let opened = code.iter().map(|(code, maps)| (*code, open(code, maps)));
        opened.collect::<Vec<_>>()
    };
    let mut reader = SymbolReader::default();
    let opened = rights.run(open).unwrap_or_default();
    let mut modules: Vec<Module> =
        opened.into_iter().filter_map(|(code, files)| reader.module(code, files?)).collect();
    for module in &mut modules {
        module.is_executable = executable.as_ref() == Some(&module.name);
    }
    link_maps::number_thread_locals(memory, &mut modules);
    (modules, reader.problems)
}

/// Reads symbols, within limits for all files of an app.
#[derive(Debug)]
struct SymbolReader {
    deadline: WorkDeadline,
    seen: u64,
    problems: Vec<String>,
}

impl Default for SymbolReader {
    fn default() -> Self {
        Self { deadline: WorkDeadline::after(MOST_TIME), seen: 0, problems: Vec::new() }
    }
}

/// Variables of a file, as addresses in it.
#[derive(Debug, Default)]
struct Variables {
    globals: Vec<Symbol>,
    thread_locals: Vec<Symbol>,
}

impl SymbolReader {
    fn module(&mut self, code: &Mapping, files: DebugFiles) -> Option<Module> {
        let name = file_name(&code.path);
        let data = FileData::new(&files.file);
        let elf = object::File::parse(&data).ok()?;
        let bias = load_bias(&elf, code)?;
        let segments = writable(&elf, bias);
        let debug_data = files.separate.as_ref().map(FileData::new);
        let debug_elf = debug_data.as_ref().and_then(|data| object::File::parse(data).ok());
        let mut variables = Variables::default();
        let elves = [Some(&elf), debug_elf.as_ref()].into_iter().flatten();
        let whole = elves.map(|elf| self.add(elf, &mut variables)).fold(true, |all, it| all & it);
        if !whole || data.is_exceeded() || debug_data.as_ref().is_some_and(FileData::is_exceeded) {
            self.problems.push(format!(
                "not all symbols of {name} were read, as it has too many or is broken: some variables have \
                 no name"
            ));
        }
        let globals = variables.globals.into_iter().filter_map(|symbol| symbol.moved(bias));
        let inside = |symbol: &Symbol| segments.iter().any(|data| data.contains_all(&symbol.range));
        let globals = globals.filter(inside).collect();
        let (dynamic, segment) = program_headers(&elf);
        let locals = variables.thread_locals;
        let tls = segment.map(|segment| ThreadLocals { segment, number: None, variables: locals });
        drop(debug_elf);
        drop(debug_data);
        drop(elf);
        drop(data);
        Some(Module {
            name,
            is_executable: false,
            bias,
            dynamic: dynamic.map(|address| Address(address).moved(bias)),
            data: segments,
            variables: globals,
            tls,
            files,
            places: OnceLock::new(),
        })
    }

    /// False if some were left out.
    fn add<'data>(&mut self, elf: &impl Object<'data>, variables: &mut Variables) -> bool {
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            self.seen = self.seen.saturating_add(1);
            let kept = variables.globals.len().max(variables.thread_locals.len());
            let is_checked = self.seen.is_multiple_of(SYMBOLS_PER_CHECK);
            if self.seen > MOST_SYMBOLS
                || kept >= MOST_VARIABLES
                || is_checked && self.deadline.is_over()
            {
                return false;
            }
            let Some(found) = is_variable(&symbol).then(|| Symbol::of(&symbol)).flatten() else {
                continue;
            };
            match symbol.kind() {
                SymbolKind::Tls => variables.thread_locals.push(found),
                _ => variables.globals.push(found),
            }
        }
        true
    }
}

impl Module {
    /// Writable segments, as addresses in the process.
    pub(super) fn writable(&self) -> impl Iterator<Item = AddressRange> {
        self.data.iter().copied()
    }

    /// Its data as a whole, without a known variable.
    pub(super) fn data(&self) -> impl Iterator<Item = Owned> {
        let holder = self.global(None);
        self.data.iter().map(move |range| Owned::new(*range, holder.clone()))
    }

    /// Its variables; `number` is that of the module.
    pub(super) fn variables(&self, number: usize) -> impl Iterator<Item = Owned> {
        self.variables.iter().map(move |symbol| Owned {
            variable: Some(Variable {
                module: number,
                address: symbol.range.start().wrapping_sub(self.bias),
            }),
            ..Owned::new(symbol.range, self.global(Some(symbol.name.clone())))
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
        let range = AddressRange::of_length(symbol.address(), symbol.size())?;
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        Some(Self { range, name: source_name(name) })
    }

    fn moved(self, bias: u64) -> Option<Self> {
        let start = Address(self.range.start()).moved(bias);
        Some(Self { range: AddressRange::of_length(start, self.range.bytes())?, ..self })
    }
}

/// The name of a variable in the source: names of C++ and Rust are mangled.
fn source_name(name: &str) -> String {
    let mut source = ShortText::default();
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash.
        let _ = write!(source, "{rust:#}");
        return source.0;
    }
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    let options = cpp_demangle::DemangleOptions::default();
    match cpp.map(|symbol| symbol.structured_demangle(&mut source, &options)) {
        Some(Ok(())) => source.0,
        Some(Err(_)) if source.is_full() => source.0,
        _ => name.chars().take(MOST_NAME_BYTES).collect(),
    }
}

/// Text up to a length; ends what writes more.
#[derive(Debug, Default)]
struct ShortText(String);

impl ShortText {
    fn is_full(&self) -> bool {
        self.0.len() >= MOST_NAME_BYTES
    }
}

impl Write for ShortText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let left = MOST_NAME_BYTES.saturating_sub(self.0.len());
        self.0.extend(text.chars().take(left));
        if self.is_full() { Err(std::fmt::Error) } else { Ok(()) }
    }
}

fn is_variable<'data>(symbol: &impl ObjectSymbol<'data>) -> bool {
    let is_data = matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Tls);
    is_data && !symbol.is_undefined() && symbol.size() > 0
}

/// Writable segments.
fn writable<'data>(elf: &impl Object<'data>, bias: u64) -> Vec<AddressRange> {
    let is_data = |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & PF_W != 0);
    let data = elf.segments().filter(|segment| is_data(segment.flags())).take(MOST_SEGMENTS);
    data.filter_map(|segment| {
        AddressRange::of_length(Address(segment.address()).moved(bias), segment.size())
    })
    .collect()
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
fn open_same_file(
    memory: &dyn Memory,
    files: &AppFiles,
    maps: &[&Mapping],
    code: &Mapping,
) -> Option<File> {
    let begin = maps.iter().find(|mapping| mapping.offset == 0)?;
    let file = files.mapped(code)?;
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
        let read = move || sender.send(modules(&TestMemory::default(), None, &[code]).0.len());
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

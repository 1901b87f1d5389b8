//! Notes of a core file: process, threads with their registers, mapped files.

use object::elf::{EM_AARCH64, EM_X86_64, NT_FILE, NT_FPREGSET, NT_PRPSINFO, NT_PRSTATUS};

use crate::address::AddressRange;

/// `NT_X86_XSTATE`: the vector registers.
const NT_X86_XSTATE: u32 = 0x202;

/// `pr_pid` of `struct elf_prstatus`, the same on x86-64 and arm64.
const PRSTATUS_PID: usize = 32;
/// `pr_reg` of it.
const PRSTATUS_REGISTERS: usize = 112;
/// `pr_pid` of `struct elf_prpsinfo`.
const PRPSINFO_PID: usize = 24;
/// `pr_fname` of it.
const PRPSINFO_NAME: usize = 40;
/// Length of that.
const NAME_BYTES: usize = 16;

/// A thread of the app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreThread {
    /// Thread id, as seen by the app itself.
    pub id: u32,
    /// Stack pointer; `None` on an unknown machine.
    pub stack_pointer: Option<u64>,
    /// All words in its registers, including vector registers.
    pub registers: Vec<u64>,
}

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MappedFile {
    range: AddressRange,
    /// Of its first byte in the file, in bytes.
    offset: u64,
    pub(super) path: String,
}

impl MappedFile {
    /// The offset in the file of an address in it; that of the last byte of all files beyond it.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        self.range.offset(address).map(|offset| self.offset.saturating_add(offset))
    }
}

/// Content of the notes.
#[derive(Debug, Default)]
pub(super) struct CoreNotes {
    pub(super) pid: Option<u32>,
    pub(super) command: String,
    pub(super) threads: Vec<CoreThread>,
    /// By address.
    files: Vec<MappedFile>,
    /// Stack pointers, and the numbers of their threads, by address.
    stacks: Vec<(u64, usize)>,
}

impl CoreNotes {
    /// Adds a note; those that are broken or not needed are left out.
    pub(super) fn add(&mut self, machine: u16, kind: u32, bytes: &[u8]) {
        match kind {
            NT_PRSTATUS => self.threads.extend(thread(machine, bytes)),
            // These notes follow the status of their thread.
            NT_FPREGSET | NT_X86_XSTATE => {
                if let Some(thread) = self.threads.last_mut() {
                    thread.registers.extend(words(bytes));
                }
            }
            NT_PRPSINFO => {
                self.pid = u32_at(bytes, PRPSINFO_PID);
                let name = bytes.get(PRPSINFO_NAME..).unwrap_or_default();
                self.command = text(&name[..name.len().min(NAME_BYTES)]);
            }
            NT_FILE => self.files = files(bytes).unwrap_or_default(),
            _ => {}
        }
    }

    /// To be called when all have been added.
    pub(super) fn sort(&mut self) {
        self.files.sort_by_key(|file| file.range);
        let threads = self.threads.iter().enumerate();
        self.stacks = threads.filter_map(|(place, it)| Some((it.stack_pointer?, place))).collect();
        self.stacks.sort_unstable();
    }

    /// The file that is mapped at an address.
    pub(super) fn file_at(&self, address: u64) -> Option<&MappedFile> {
        let behind = self.files.partition_point(|file| file.range.start() <= address);
        self.files[..behind].last().filter(|file| file.range.contains(address))
    }

    /// A thread whose stack pointer is in a range.
    pub(super) fn thread_in(&self, range: &AddressRange) -> Option<&CoreThread> {
        let first = self.stacks.partition_point(|(pointer, _)| *pointer < range.start());
        let (_, place) = self.stacks.get(first).filter(|(pointer, _)| range.contains(*pointer))?;
        self.threads.get(*place)
    }
}

fn thread(machine: u16, bytes: &[u8]) -> Option<CoreThread> {
    let registers: Vec<u64> = words(bytes.get(PRSTATUS_REGISTERS..)?).collect();
    // The order is that of `struct user_regs_struct`.
    let stack_pointer = match machine {
        EM_X86_64 => registers.get(19).copied(),
        EM_AARCH64 => registers.get(31).copied(),
        _ => None,
    };
    Some(CoreThread { id: u32_at(bytes, PRSTATUS_PID)?, stack_pointer, registers })
}

/// Number of files, size of a page, start, end and offset in pages of each, then their names.
fn files(bytes: &[u8]) -> Option<Vec<MappedFile>> {
    let mut numbers = words(bytes);
    let count = usize::try_from(numbers.next()?).ok()?;
    let page = numbers.next()?;
    let names = bytes.get(count.checked_mul(24)?.checked_add(16)?..)?;
    let mut names = names.split(|byte| *byte == 0);
    let mut files = Vec::new();
    for _ in 0..count {
        let (start, end, offset) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let path = String::from_utf8_lossy(names.next()?).into_owned();
        // The kernel writes none that end before they begin.
        let range = AddressRange::new(start, end)?;
        files.push(MappedFile { range, offset: offset.checked_mul(page)?, path });
    }
    Some(files)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// Up to a zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_belong_to_their_ranges() {
        let numbers = [2_u64, 4096, 0x1000, 0x3000, 0, 0x8000, 0x9000, 2];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(b"/usr/bin/app\0/dev/hugepages/rtemap_0\0");
        let mut notes = CoreNotes::default();
        notes.add(EM_X86_64, NT_FILE, &bytes);
        notes.sort();
        let path = |address| notes.file_at(address).map(|file| (file.path.as_str(), file.offset));
        assert_eq!(path(0x2fff), Some(("/usr/bin/app", 0)));
        assert_eq!(path(0x8000), Some(("/dev/hugepages/rtemap_0", 8192)));
        assert_eq!(path(0x3000), None);
        // Cut, and with a count that no note can have.
        assert_eq!(files(&bytes[..40]), None);
        bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(files(&bytes), None);
    }

    #[test]
    fn a_thread_has_its_registers() {
        let mut bytes = vec![0; PRSTATUS_REGISTERS + 27 * 8];
        bytes[PRSTATUS_PID] = 42;
        bytes[PRSTATUS_REGISTERS + 19 * 8] = 7;
        let mut notes = CoreNotes::default();
        notes.add(EM_X86_64, NT_PRSTATUS, &bytes);
        notes.add(EM_X86_64, NT_X86_XSTATE, &9_u64.to_le_bytes());
        let [thread] = &notes.threads[..] else { panic!("one thread") };
        assert_eq!((thread.id, thread.stack_pointer), (42, Some(7)));
        assert_eq!((thread.registers.len(), thread.registers.last()), (28, Some(&9)));
    }
}

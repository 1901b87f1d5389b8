//! Reads the memory of another process: `process_vm_readv(2)`, which neither stops nor changes it.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use pmdscope_profile::{AppFiles, FileRights};
use pmdscope_telemetry::host::maps::{self, Mapping};
use pmdscope_telemetry::host::start_ticks;

use crate::address::AddressRange;
use crate::budget::{Pacer, ReadBudget};
use crate::error::XrayError;
use crate::presence::Presence;
use crate::thread::AppThread;
use crate::{pagemap, shared_files};

/// Maximum number of pieces per call: `IOV_MAX` of Linux.
const MOST_PIECES: usize = 1024;

/// Maximum bytes per call: takes a fraction of a millisecond, the longest time for which a reader
/// delays changes of the app's address space.
const MOST_BYTES: usize = 1 << 20;

/// The memory of an app, running or in a core file. Values may change between any two reads, and within
/// one that is longer than a word.
pub trait Memory: Debug + Send + Sync {
    /// Fills `buffer` from `address` on.
    ///
    /// # Errors
    /// [`XrayError::NotMapped`] if any byte of it is not mapped; the others if the app has ended or may not
    /// be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError>;

    /// Fills `buffer`, which consists of pieces of the same length, from these addresses. If one is
    /// not mapped, the whole call fails.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn read_pieces(&self, addresses: &[u64], buffer: &mut [u8]) -> Result<(), XrayError> {
        let length = bytes_each(buffer, addresses);
        for (address, piece) in addresses.iter().zip(buffer.chunks_exact_mut(length.max(1))) {
            self.read(*address, piece)?;
        }
        Ok(())
    }

    /// The current mappings, in ascending order.
    ///
    /// # Errors
    /// If the app has ended or may not be looked at.
    fn maps(&self) -> Result<Vec<Mapping>, XrayError>;

    /// The id of the process; `None` if it is not running, as for a core file.
    fn process(&self) -> Option<u32> {
        None
    }

    /// The threads in a core file; those of a running process are in `/proc`.
    fn threads(&self) -> Vec<AppThread> {
        Vec::new()
    }

    /// The files that the app names, and the rights with which they are opened; by default those of this
    /// process. `None` if there are none.
    fn files(&self) -> Option<(FileRights, AppFiles)> {
        Some((FileRights::of_process(std::process::id()).ok()?, AppFiles::new(None)))
    }

    /// The parts of `range` with content; by default all of it.
    ///
    /// # Errors
    /// If the app has ended or may not be looked at.
    fn present(&self, range: AddressRange) -> Result<Presence, XrayError> {
        Ok(Presence::whole(range))
    }
}

/// The memory of a running process. It belongs to one process and one program: if the process ends,
/// another one gets its id, or it executes another program, reads fail with [`XrayError::Ended`].
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
    start_ticks: u64,
    /// `/proc/PID/mem`, which refers to the address space for which it was opened.
    address_space: File,
    /// Shared file mappings when mappings were last read; `None` before.
    shared: Mutex<Option<Arc<[Mapping]>>>,
    pacer: Pacer,
}

impl ProcessMemory {
    /// Of the process with this id, without a limit on what is read.
    ///
    /// # Errors
    /// [`XrayError::Ended`] if there is none, [`XrayError::NotAllowed`] without the right to read it.
    pub fn open(pid: u32) -> Result<Self, XrayError> {
        let path = format!("/proc/{pid}/mem");
        let failed = |source: io::Error| XrayError::process(pid, path.clone(), source);
        let memory = Self {
            pid,
            address_space: File::open(&path).map_err(failed)?,
            start_ticks: start_ticks(pid).ok_or(XrayError::Ended { pid })?,
            shared: Mutex::new(None),
            pacer: Pacer::new(ReadBudget::UNLIMITED),
        };
        // The start time belongs to the same process only if it has not ended since.
        memory.check_alive()?;
        Ok(memory)
    }

    /// Sleeps between reads as the budget demands.
    #[must_use]
    pub fn with_budget(self, budget: ReadBudget) -> Self {
        Self { pacer: Pacer::new(budget), ..self }
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it began, clock ticks since boot.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// Whether the address space still exists, so that its process cannot have lost its id.
    fn check_alive(&self) -> Result<(), XrayError> {
        // Nothing is mapped at 0, so this read fails; if the address space was freed, it returns an
        // end of file.
        match self.address_space.read_at(&mut [0], 0) {
            Ok(0) => Err(XrayError::Ended { pid: self.pid }),
            _ => Ok(()),
        }
    }

    /// Reads the mappings if none are known.
    fn shared(&self) -> Result<Arc<[Mapping]>, XrayError> {
        let known = self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let read = || Ok(shared_of(&self.maps()?));
        known.map_or_else(read, Ok)
    }

    /// One call; what was not read is not mapped.
    fn read_some(&self, addresses: &[u64], buffer: &mut [u8]) -> Result<(), XrayError> {
        let (total, len) = (buffer.len(), bytes_each(buffer, addresses));
        let result = self.transfer(addresses, buffer);
        self.pacer.step(total);
        // Data that was read before that check belongs to this process.
        self.check_alive()?;
        let failed = |errno| {
            XrayError::read(self.pid, addresses.first().copied().unwrap_or_default(), len, errno)
        };
        let read = result.map_err(failed)?;
        if read < total {
            let missing = read.checked_div(len).and_then(|place| addresses.get(place).copied());
            let missing = missing.unwrap_or_default();
            return Err(XrayError::NotMapped { address: missing, bytes: len });
        }
        Ok(())
    }

    /// Number of bytes read, up to the first that is not mapped.
    fn transfer(&self, addresses: &[u64], buffer: &mut [u8]) -> nix::Result<usize> {
        let len = bytes_each(buffer, addresses);
        let pid = Pid::from_raw(i32::try_from(self.pid).map_err(|_| Errno::ESRCH)?);
        let mut remote = Vec::with_capacity(addresses.len());
        for address in addresses {
            let base = usize::try_from(*address).map_err(|_| Errno::EFAULT)?;
            remote.push(RemoteIoVec { base, len });
        }
        process_vm_readv(pid, &mut [IoSliceMut::new(buffer)], &remote)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        let bytes = buffer.len();
        let range = AddressRange::of_length(address, bytes as u64);
        let range = range.ok_or(XrayError::NotMapped { address, bytes })?;
        let pieces = buffer.chunks_mut(MOST_BYTES).zip(range.chunks(MOST_BYTES as u64));
        for (piece, range) in pieces {
            self.read_some(&[range.start()], piece)?;
        }
        Ok(())
    }

    fn read_pieces(&self, addresses: &[u64], buffer: &mut [u8]) -> Result<(), XrayError> {
        let length = bytes_each(buffer, addresses);
        if length == 0 {
            return Ok(());
        }
        if length > MOST_BYTES {
            let mut pieces = addresses.iter().zip(buffer.chunks_exact_mut(length));
            return pieces.try_for_each(|(address, piece)| self.read(*address, piece));
        }
        let at_once = MOST_BYTES.checked_div(length).unwrap_or(1).clamp(1, MOST_PIECES);
        let calls =
            addresses.chunks(at_once).zip(buffer.chunks_mut(length.saturating_mul(at_once)));
        for (addresses, buffer) in calls {
            let used = addresses.len().saturating_mul(length);
            self.read_some(addresses, buffer.get_mut(..used).unwrap_or_default())?;
        }
        Ok(())
    }

    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        let read = maps::read(self.pid);
        self.check_alive()?;
        let maps = read.map_err(|source| {
            XrayError::process(self.pid, format!("/proc/{}/maps", self.pid), source)
        })?;
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(shared_of(&maps));
        Ok(maps)
    }

    fn process(&self) -> Option<u32> {
        Some(self.pid)
    }

    fn files(&self) -> Option<(FileRights, AppFiles)> {
        Some((FileRights::of_process(self.pid).ok()?, AppFiles::new(Some(self.pid))))
    }

    fn present(&self, range: AddressRange) -> Result<Presence, XrayError> {
        let parts = match pagemap::present(self.pid, &range) {
            // The kernel was built without it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.maps().is_ok() => {
                return Ok(Presence::whole(range));
            }
            parts => parts.map_err(|source| {
                XrayError::process(self.pid, format!("/proc/{}/pagemap", self.pid), source)
            })?,
        };
        let mut presence = Presence { parts, unknown_bytes: 0 };
        if presence.absent_bytes(&range) > 0 {
            let data = |mapping: &Mapping| shared_files::parts_with_data(self.pid, mapping);
            presence.add_files(&range, &self.shared()?, data);
        }
        Ok(presence)
    }
}

/// Bytes of each piece of a buffer.
fn bytes_each(buffer: &[u8], addresses: &[u64]) -> usize {
    buffer.len().checked_div(addresses.len()).unwrap_or(buffer.len())
}

/// Mappings whose pages may exist although the process's page tables do not have them.
fn shared_of(maps: &[Mapping]) -> Arc<[Mapping]> {
    maps.iter().filter(|mapping| mapping.shared && mapping.inode != 0).cloned().collect()
}

/// `N` bytes at an address.
///
/// # Errors
/// As [`Memory::read`].
pub fn read_array<const N: usize>(memory: &dyn Memory, address: u64) -> Result<[u8; N], XrayError> {
    let mut bytes = [0; N];
    memory.read(address, &mut bytes)?;
    Ok(bytes)
}

/// The word of 16 bits at an address.
///
/// # Errors
/// As [`Memory::read`].
pub fn read_u16(memory: &dyn Memory, address: u64) -> Result<u16, XrayError> {
    Ok(u16::from_le_bytes(read_array(memory, address)?))
}

/// The word of 32 bits at an address.
///
/// # Errors
/// As [`Memory::read`].
pub fn read_u32(memory: &dyn Memory, address: u64) -> Result<u32, XrayError> {
    Ok(u32::from_le_bytes(read_array(memory, address)?))
}

/// The word of 64 bits at an address.
///
/// # Errors
/// As [`Memory::read`].
pub fn read_u64(memory: &dyn Memory, address: u64) -> Result<u64, XrayError> {
    Ok(u64::from_le_bytes(read_array(memory, address)?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn this_process_is_read_in_one_piece_and_in_many() {
        let words: Vec<u64> = (0..3000).map(|word| word * 7).collect();
        let addresses: Vec<u64> =
            words.iter().map(|word| std::ptr::from_ref(word) as u64).collect();
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        assert_eq!(read_u64(&memory, addresses[5]).unwrap(), 35);
        let mut bytes = vec![0; 3000 * 8];
        memory.read_pieces(&addresses, &mut bytes).unwrap();
        let read: Vec<_> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(read, words);
    }

    #[test]
    fn what_is_not_mapped_is_an_error() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        assert!(matches!(read_u64(&memory, 8), Err(XrayError::NotMapped { address: 8, .. })));
        assert!(matches!(read_u64(&memory, u64::MAX), Err(XrayError::NotMapped { .. })));
        assert!(matches!(ProcessMemory::open(u32::MAX), Err(XrayError::Ended { .. })));
    }

    #[test]
    fn long_reads_are_made_of_short_ones() {
        let bytes: Vec<u8> = (0..=250).cycle().take(3 * MOST_BYTES + 5).collect();
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let address = bytes.as_ptr() as u64;
        let mut read = vec![0; bytes.len()];
        memory.read(address, &mut read).unwrap();
        assert!(read == bytes);
        let half = bytes.len() / 2;
        let mut halves = vec![0; half * 2];
        memory.read_pieces(&[address + half as u64, address], &mut halves).unwrap();
        assert!(halves[half..] == bytes[..half] && halves[..half] == bytes[half..half * 2]);
        memory.read_pieces(&[], &mut []).unwrap();
        memory.read_pieces(&[8, 8], &mut [0]).unwrap();
    }

    /// The child and the first address of its stack.
    fn child(command: &str) -> (Child, u64) {
        let mut child = Command::new("sh");
        child.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut ready = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let maps = maps::read(child.id()).unwrap();
        let stack = maps.iter().find(|mapping| mapping.path == "[stack]").unwrap();
        (child, stack.end - 8)
    }

    #[test]
    fn a_process_that_ends_is_noticed() {
        let (mut child, stack) = child("echo; read line");
        let memory = ProcessMemory::open(child.id()).unwrap();
        assert!(read_u64(&memory, stack).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(read_u64(&memory, stack), Err(XrayError::Ended { .. })));
        assert!(matches!(memory.maps(), Err(XrayError::Ended { .. })));
    }

    /// A page of a shared file that was removed from the page tables, as by swapping, still
    /// contains references.
    #[test]
    fn pages_of_shared_files_are_present_though_in_no_page_table() {
        const SCRIPT: &str = "
import mmap, os, sys
file = os.memfd_create('pmdscope-pages')
os.ftruncate(file, 64 << 20)
shared = mmap.mmap(file, 64 << 20)
if sys.argv[1] == 'closed':
    os.close(file)
shared[32 << 20] = 1
shared.madvise(mmap.MADV_DONTNEED)
print(flush=True)
input()";
        for file in ["open", "closed"] {
            let mut child = Command::new("python3");
            child.args(["-c", SCRIPT, file]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = child.spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            let memory = ProcessMemory::open(child.id()).unwrap();
            let maps = memory.maps().unwrap();
            let mut shared = maps.iter().filter(|mapping| mapping.path.contains("pmdscope-pages"));
            let shared = shared.next().unwrap();
            let presence = memory.present(AddressRange::from(shared)).unwrap();
            let may_open = file == "open" || rustix::process::geteuid().is_root();
            let written = shared.start + (32 << 20);
            let holds = presence.parts.iter().any(|part| part.contains(written));
            assert_eq!(holds, may_open, "{file}: {presence:x?}");
            assert_eq!(presence.unknown_bytes > 0, !may_open, "{file}: {presence:x?}");
            let bytes: u64 = presence.parts.iter().map(AddressRange::bytes).sum();
            assert!(bytes <= 4 << 20, "{file}: {bytes} bytes");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The kernel does not distinguish a reused id, but the process has another address space.
    #[test]
    fn a_process_that_executes_another_program_is_noticed() {
        let (mut child, stack) = child("echo; read line; exec sh -c 'echo; read line'");
        let memory = ProcessMemory::open(child.id()).unwrap();
        assert!(read_u64(&memory, stack).is_ok());
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        assert!(matches!(read_u64(&memory, stack), Err(XrayError::Ended { .. })));
        assert!(matches!(memory.maps(), Err(XrayError::Ended { .. })));
        let again = ProcessMemory::open(child.id()).unwrap();
        assert_eq!(again.start_ticks(), memory.start_ticks());
        assert!(again.maps().is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

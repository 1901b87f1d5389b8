//! Reads the memory of another process: `process_vm_readv(2)`, which neither stops nor changes it.

use std::fmt::Debug;
use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use pmdscope_telemetry::host::maps::{self, Mapping};

use crate::error::XrayError;

/// Most pieces of one call: `IOV_MAX` of Linux.
const MOST_PIECES: usize = 1024;

/// The memory of an app, running or in a core file. Values may change between any two reads, and within
/// one that is longer than a word.
pub trait Memory: Debug + Send + Sync {
    /// Fills `buffer` from `address` on.
    ///
    /// # Errors
    /// [`XrayError::NotMapped`] if any byte of it is not mapped; the others if the app has ended or may not
    /// be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError>;

    /// Fills `buffer`, a row of pieces of the same length, from `addresses` on. One that is not mapped
    /// fails the whole call.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn read_pieces(&self, addresses: &[u64], buffer: &mut [u8]) -> Result<(), XrayError> {
        let length = buffer.len() / addresses.len().max(1);
        for (address, piece) in addresses.iter().zip(buffer.chunks_exact_mut(length.max(1))) {
            self.read(*address, piece)?;
        }
        Ok(())
    }

    /// What is mapped now, in ascending order.
    ///
    /// # Errors
    /// If the app has ended or may not be looked at.
    fn maps(&self) -> Result<Vec<Mapping>, XrayError>;
}

/// The memory of a running process.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
}

impl ProcessMemory {
    /// Of the process with this id.
    ///
    /// # Errors
    /// [`XrayError::Ended`] if there is none.
    pub fn open(pid: u32) -> Result<Self, XrayError> {
        let memory = Self { pid };
        memory.maps()?;
        Ok(memory)
    }

    fn raw_pid(&self) -> Result<Pid, XrayError> {
        let pid = i32::try_from(self.pid).map_err(|_| XrayError::Ended { pid: self.pid })?;
        Ok(Pid::from_raw(pid))
    }

    /// One call; what was not read is not mapped.
    fn read_some(&self, addresses: &[u64], buffer: &mut [u8]) -> Result<(), XrayError> {
        let total = buffer.len();
        let len = total / addresses.len().max(1);
        let place =
            |address: &u64| usize::try_from(*address).ok().map(|base| RemoteIoVec { base, len });
        let not_mapped = |address, bytes| XrayError::NotMapped { address, bytes };
        let first = addresses.first().copied().unwrap_or_default();
        let remote: Option<Vec<_>> = addresses.iter().map(place).collect();
        let remote = remote.ok_or_else(|| not_mapped(first, len))?;
        let read = process_vm_readv(self.raw_pid()?, &mut [IoSliceMut::new(buffer)], &remote)
            .map_err(|errno| XrayError::read(self.pid, first, len, errno))?;
        if read < total {
            let missing = addresses.get(read / len.max(1)).copied().unwrap_or(first);
            return Err(not_mapped(missing, len));
        }
        Ok(())
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        self.read_some(&[address], buffer)
    }

    fn read_pieces(&self, addresses: &[u64], buffer: &mut [u8]) -> Result<(), XrayError> {
        let length = (buffer.len() / addresses.len().max(1)).max(1);
        let calls = addresses.chunks(MOST_PIECES).zip(buffer.chunks_mut(length * MOST_PIECES));
        for (addresses, buffer) in calls {
            self.read_some(addresses, buffer)?;
        }
        Ok(())
    }

    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        maps::read(self.pid).map_err(|source| {
            match Errno::from_raw(source.raw_os_error().unwrap_or_default()) {
                Errno::ENOENT | Errno::ESRCH => XrayError::Ended { pid: self.pid },
                Errno::EACCES | Errno::EPERM => XrayError::NotAllowed { pid: self.pid },
                _ => XrayError::Io { what: format!("/proc/{}/maps", self.pid), source },
            }
        })
    }
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
        assert!(matches!(ProcessMemory::open(u32::MAX), Err(XrayError::Ended { .. })));
    }
}

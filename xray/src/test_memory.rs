//! Memory of an app that a test writes, and may change while it is read.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmdscope_telemetry::host::maps::Mapping;

use crate::error::XrayError;
use crate::memory::Memory;

/// Regions by their first addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestMemory {
    regions: BTreeMap<u64, Vec<u8>>,
}

impl TestMemory {
    /// Maps a region of zeros.
    pub(crate) fn map(&mut self, address: u64, bytes: u64) {
        self.insert(address, vec![0; usize::try_from(bytes).unwrap()]);
    }

    /// Maps these bytes.
    pub(crate) fn insert(&mut self, address: u64, bytes: Vec<u8>) {
        self.regions.insert(address, bytes);
    }

    /// Unmaps the region that begins there, and returns its bytes.
    pub(crate) fn remove(&mut self, address: u64) -> Vec<u8> {
        self.regions.remove(&address).unwrap()
    }

    /// All regions.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.regions.iter().map(|(address, bytes)| (*address, bytes.as_slice()))
    }

    /// The bytes of the region that begins there.
    pub(crate) fn region(&self, address: u64) -> &[u8] {
        &self.regions[&address]
    }

    fn find(&self, address: u64, length: usize) -> Option<&[u8]> {
        let (start, region) = self.regions.range(..=address).next_back()?;
        let begin = usize::try_from(address - start).ok()?;
        region.get(begin..begin.checked_add(length)?)
    }

    /// Writes bytes; if not all of them are mapped, none.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) {
        if let Some((start, region)) = self.regions.range_mut(..=address).next_back() {
            let begin = usize::try_from(address - start).unwrap();
            if let Some(place) = region.get_mut(begin..begin + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
    }

    pub(crate) fn write_u64(&mut self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes());
    }

    pub(crate) fn write_u32(&mut self, address: u64, value: u32) {
        self.write(address, &value.to_le_bytes());
    }

    pub(crate) fn write_u16(&mut self, address: u64, value: u16) {
        self.write(address, &value.to_le_bytes());
    }

    pub(crate) fn u32(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.find(address, 4).unwrap().try_into().unwrap())
    }

    /// Adds to a word, or takes from it.
    pub(crate) fn add_u32(&mut self, address: u64, more: i32) {
        self.write_u32(address, self.u32(address).wrapping_add_signed(more));
    }
}

impl Memory for TestMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        let not_mapped = || XrayError::NotMapped { address, bytes: buffer.len() };
        let bytes = self.find(address, buffer.len()).ok_or_else(not_mapped)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        let mapping = |(start, bytes): (u64, &[u8])| Mapping {
            start,
            end: start + bytes.len() as u64,
            readable: true,
            writable: true,
            ..Mapping::default()
        };
        Ok(self.regions().map(mapping).collect())
    }
}

/// Called before each read, with its address. Its error is that of the read.
type BeforeRead = Box<dyn FnMut(u64, &mut TestMemory) -> Result<(), XrayError> + Send>;

/// Memory that tests change while others read it.
pub(crate) struct ChangingMemory {
    memory: Mutex<TestMemory>,
    before_read: Mutex<Option<BeforeRead>>,
    maps: Mutex<Vec<Mapping>>,
}

impl fmt::Debug for ChangingMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ChangingMemory")
    }
}

impl From<TestMemory> for ChangingMemory {
    fn from(memory: TestMemory) -> Self {
        let maps = Mutex::new(memory.maps().unwrap());
        Self { memory: Mutex::new(memory), before_read: Mutex::new(None), maps }
    }
}

impl ChangingMemory {
    /// The memory, which nobody reads meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, TestMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mappings that are reported, at first those of all regions.
    pub(crate) fn mappings(&self) -> MutexGuard<'_, Vec<Mapping>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `before` before each read.
    pub(crate) fn before_read(
        &self,
        before: impl FnMut(u64, &mut TestMemory) -> Result<(), XrayError> + Send + 'static,
    ) {
        *self.before_read.lock().unwrap() = Some(Box::new(before));
    }

    /// Calls nothing any more.
    pub(crate) fn read_unchanged(&self) {
        *self.before_read.lock().unwrap() = None;
    }
}

impl Memory for ChangingMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        let mut memory = self.lock();
        let mut before = self.before_read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = &mut *before {
            before(address, &mut memory)?;
        }
        memory.read(address, buffer)
    }

    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        Ok(self.mappings().clone())
    }
}

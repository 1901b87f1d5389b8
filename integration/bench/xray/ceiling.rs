//! The time that the kernel alone takes for the reads of a scan: the limit of its speed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use pmdscope_xray::{AddressRange, Mapping, Memory, Presence, XrayError, XrayTarget};

/// One read: addresses, and the bytes of each piece.
type Call = (Vec<u64>, usize);

/// Memory of an app, and a record of its reads.
#[derive(Debug)]
pub(crate) struct RecordedMemory {
    memory: Arc<dyn Memory>,
    calls: Mutex<Vec<Call>>,
}

impl RecordedMemory {
    /// The target with its memory, whose reads are recorded.
    pub(crate) fn of(target: &XrayTarget) -> (Arc<Self>, XrayTarget) {
        let memory = Arc::clone(&target.memory);
        let recorded = Arc::new(Self { memory, calls: Mutex::default() });
        let mut target = target.clone();
        target.memory = Arc::<Self>::clone(&recorded);
        (recorded, target)
    }

    fn record(&self, addresses: &[u64], bytes: usize) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push((addresses.to_vec(), bytes));
    }

    /// Repeats the reads without using the data, and returns the time, milliseconds. Memory that is
    /// no longer mapped is skipped.
    pub(crate) fn repeat(&self) -> Result<f64> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = calls.iter().map(|(addresses, bytes)| addresses.len() * bytes).max();
        let mut buffer = vec![0; longest.unwrap_or_default()];
        let began = Instant::now();
        for (addresses, bytes) in &*calls {
            match self.memory.read_pieces(addresses, &mut buffer[..addresses.len() * bytes]) {
                Ok(()) | Err(XrayError::NotMapped { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(began.elapsed().as_secs_f64() * 1e3)
    }
}

impl Memory for RecordedMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        self.record(&[address], buffer.len());
        self.memory.read(address, buffer)
    }

    fn read_pieces(&self, addresses: &[u64], buffer: &mut [u8]) -> Result<(), XrayError> {
        self.record(addresses, buffer.len() / addresses.len().max(1));
        self.memory.read_pieces(addresses, buffer)
    }

    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        self.memory.maps()
    }

    fn process(&self) -> Option<u32> {
        self.memory.process()
    }

    fn present(&self, range: AddressRange) -> Result<Presence, XrayError> {
        self.memory.present(range)
    }
}

//! Memory that an app reserved by name.

use crate::address::AddressRange;

/// A piece of memory that the app reserved by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memzone {
    /// Its name.
    pub name: String,
    /// First address in the app.
    pub address: u64,
    /// Length.
    pub bytes: u64,
}

impl Memzone {
    /// Its addresses.
    pub fn range(&self) -> AddressRange {
        AddressRange::up_to_length(self.address, self.bytes)
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        self.range().contains(address)
    }
}

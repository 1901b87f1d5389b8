//! Memory that an app reserved by name.

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
    /// Whether an address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.bytes)
    }
}

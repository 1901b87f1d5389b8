//! A message that is being filled.

/// Bytes before the first set.
const HEAD: usize = 16;

/// Version of IPFIX in every message.
const VERSION: u16 = 10;

/// Sets of this number and above hold data.
const FIRST_DATA: u16 = 256;

/// What a message says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageHeader {
    /// Seconds since 1970.
    pub(super) time: u32,
    /// Data records in all messages before.
    pub(super) sequence: u32,
    /// Observation domain.
    pub(super) domain: u32,
}

/// Sets of records, no longer than allowed.
#[derive(Debug)]
pub(super) struct IpfixMessage {
    bytes: Vec<u8>,
    limit: usize,
    /// Number of the set that is being filled, and where it begins.
    set: Option<(u16, usize)>,
    records: u32,
}

impl IpfixMessage {
    pub(super) fn new(limit: usize) -> Self {
        let mut bytes = Vec::with_capacity(limit);
        bytes.resize(HEAD, 0);
        Self { bytes, limit, set: None, records: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() == HEAD
    }

    /// Adds a record to a set; false when there is no room.
    pub(super) fn add(&mut self, set: u16, record: &[u8]) -> bool {
        let goes_on = self.set.is_some_and(|(open, _)| open == set);
        let head = if goes_on { 0 } else { 4 };
        if self.bytes.len() + head + record.len() > self.limit {
            return false;
        }
        if !goes_on {
            self.close_set();
            self.set = Some((set, self.bytes.len()));
            self.bytes.extend(set.to_be_bytes());
            self.bytes.extend([0, 0]);
        }
        self.bytes.extend(record);
        self.records += u32::from(set >= FIRST_DATA);
        true
    }

    /// The next record begins a set.
    pub(super) fn close_set(&mut self) {
        let Some((_, begin)) = self.set.take() else { return };
        let length = length(self.bytes.len() - begin);
        self.bytes[begin + 2..begin + 4].copy_from_slice(&length);
    }

    /// Completes it, and begins the next one. Returns the message and the number of its data records.
    pub(super) fn seal(&mut self, head: MessageHeader) -> (Vec<u8>, u32) {
        self.close_set();
        let full = std::mem::replace(self, Self::new(self.limit));
        let mut bytes = full.bytes;
        bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        let size = length(bytes.len());
        bytes[2..4].copy_from_slice(&size);
        bytes[4..8].copy_from_slice(&head.time.to_be_bytes());
        bytes[8..12].copy_from_slice(&head.sequence.to_be_bytes());
        bytes[12..HEAD].copy_from_slice(&head.domain.to_be_bytes());
        (bytes, full.records)
    }
}

/// The limit keeps it within 16 bits.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

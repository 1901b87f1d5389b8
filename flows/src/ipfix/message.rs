//! A message that is being encoded.

/// Length of the message header.
const HEAD: usize = 16;

/// Version of IPFIX in every message.
const VERSION: u16 = 10;

/// Sets with this id and above contain data records.
const FIRST_DATA: u16 = 256;

/// Fields of the message header.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageHeader {
    /// Seconds since 1970.
    pub(super) time: u32,
    /// Number of data records in all previous messages.
    pub(super) sequence: u32,
    /// Observation domain.
    pub(super) domain: u32,
}

/// Sets of records, up to a size limit.
#[derive(Debug)]
pub(super) struct IpfixMessage {
    bytes: Vec<u8>,
    limit: usize,
    /// Id of the current set, and its offset.
    set: Option<(u16, usize)>,
    records: u32,
    /// Those of conversations.
    flows: u32,
}

impl IpfixMessage {
    pub(super) fn new(limit: usize) -> Self {
        let mut bytes = Vec::with_capacity(limit);
        bytes.resize(HEAD, 0);
        Self { bytes, limit, set: None, records: 0, flows: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() == HEAD
    }

    /// Adds a record to a set; returns false if it does not fit.
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

    /// Adds a record of a conversation as [`Self::add`].
    pub(super) fn add_flow(&mut self, set: u16, record: &[u8]) -> bool {
        let added = self.add(set, record);
        self.flows += u32::from(added);
        added
    }

    /// Ends the current set; the next record begins a new one.
    pub(super) fn close_set(&mut self) {
        let Some((_, begin)) = self.set.take() else { return };
        let length = length(self.bytes.len() - begin);
        self.bytes[begin + 2..begin + 4].copy_from_slice(&length);
    }

    /// Completes the message, and begins the next one. Returns the message, the number of its data records,
    /// and how many of these are of conversations.
    pub(super) fn seal(&mut self, head: MessageHeader) -> (Vec<u8>, u32, u32) {
        self.close_set();
        let full = std::mem::replace(self, Self::new(self.limit));
        let mut bytes = full.bytes;
        bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        let size = length(bytes.len());
        bytes[2..4].copy_from_slice(&size);
        bytes[4..8].copy_from_slice(&head.time.to_be_bytes());
        bytes[8..12].copy_from_slice(&head.sequence.to_be_bytes());
        bytes[12..HEAD].copy_from_slice(&head.domain.to_be_bytes());
        (bytes, full.records, full.flows)
    }
}

/// Encodes a length, which fits into 16 bits because of the size limit.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

//! Byte order of numbers in capture files.

/// Byte order of the numbers in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// That of this machine.
    pub(crate) const HOST: Self =
        if cfg!(target_endian = "little") { Self::Little } else { Self::Big };

    /// Decodes a number of at most 8 bytes.
    pub(crate) fn number(self, bytes: &[u8]) -> u64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            Self::Little => bytes.iter().rev().fold(0, add),
            Self::Big => bytes.iter().fold(0, add),
        }
    }

    /// Encodes a 16-bit number.
    pub(crate) fn bytes_of_u16(self, number: u16) -> [u8; 2] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }

    /// Encodes a 32-bit number.
    pub(crate) fn bytes_of_u32(self, number: u32) -> [u8; 4] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }

    /// Returns the 32-bit number at an offset; 0 beyond the end.
    pub(crate) fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        match (self, bytes.get(at..).and_then(<[u8]>::first_chunk)) {
            (Self::Little, Some(word)) => u32::from_le_bytes(*word),
            (Self::Big, Some(word)) => u32::from_be_bytes(*word),
            (_, None) => 0,
        }
    }
}

//! Changes of valid data, made from the input: garbage alone would be refused at its first word.

/// A change of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// Number of reads after which it is made.
    pub(crate) after: u32,
    /// Number of the 32-bit word at which the change begins.
    pub(crate) place: usize,
    value: [u8; 8],
    width: usize,
    is_pointer: bool,
}

/// Bytes of the input for each.
const PATCH_BYTES: usize = 11;

impl Patch {
    /// The changes in an input, sorted by time; a rest at its end is ignored.
    pub(crate) fn all(input: &[u8]) -> Vec<Self> {
        let (patches, _) = input.as_chunks::<PATCH_BYTES>();
        let mut patches: Vec<_> = patches.iter().map(Self::new).collect();
        patches.sort_by_key(|patch| patch.after);
        patches
    }

    fn new([kind, low, high, value @ ..]: &[u8; PATCH_BYTES]) -> Self {
        let late = u32::from(kind >> 3);
        Self {
            after: late * late * 2,
            place: usize::from(u16::from_le_bytes([*low, *high])),
            value: *value,
            width: 1 << (kind & 3),
            is_pointer: kind & 4 != 0,
        }
    }

    /// The bytes that it writes; `address` returns the address of a word, for changes that write a
    /// pointer.
    pub(crate) fn bytes(&self, address: impl FnOnce(usize) -> u64) -> Vec<u8> {
        if !self.is_pointer {
            return self.value[..self.width].to_vec();
        }
        let [low, high, offset, ..] = self.value;
        let word = address(usize::from(u16::from_le_bytes([low, high])));
        word.wrapping_add_signed(i64::from(offset.cast_signed())).to_le_bytes().to_vec()
    }
}

//! Options of pcapng blocks that are passed on from one file to another as they are.

/// Most bytes of them that are passed on of one block; those beyond are left out.
const MOST: usize = 256 << 10;
/// Longest value of an option: its length must fit into 16 bits after padding.
pub(crate) const MAX_OPTION: usize = 0xfffc;

/// A comment.
pub(crate) const COMMENT: u16 = 1;

/// Appends an option in the byte order of this machine, unless it is too long.
pub(crate) fn append(options: &mut Vec<u8>, code: u16, value: &[u8]) {
    let padded = value.len().next_multiple_of(4);
    let Ok(length) = u16::try_from(value.len()) else { return };
    if value.len() > MAX_OPTION || options.len() + 4 + padded > MOST {
        return;
    }
    options.extend_from_slice(&code.to_ne_bytes());
    options.extend_from_slice(&length.to_ne_bytes());
    options.extend_from_slice(value);
    options.resize(options.len() + padded - value.len(), 0);
}

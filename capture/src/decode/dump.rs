//! The bytes of a packet, laid out as tcpdump lays them out.

use std::fmt::Write;

use super::Bytes;

const PER_LINE: usize = 16;
/// Eight groups of a space and four digits.
const HEX_WIDTH: usize = 40;

/// Appends the bytes, each line after a line break; `header` bytes are left out unless all are
/// wanted.
pub(super) fn append(out: &mut String, bytes: Bytes, data: &[u8], header: usize) {
    let from = |whole: bool| if whole { data } else { data.get(header..).unwrap_or_default() };
    match bytes {
        Bytes::None => {}
        Bytes::Hex { whole } => hex(out, from(whole), false),
        Bytes::HexAscii { whole } => hex(out, from(whole), true),
        Bytes::Ascii { whole } => ascii(out, from(whole)),
    }
}

fn hex(out: &mut String, data: &[u8], with_ascii: bool) {
    for (number, chunk) in data.chunks(PER_LINE).enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n\t0x{:04x}: ", number * PER_LINE);
        let start = out.len();
        for (index, byte) in chunk.iter().enumerate() {
            let space = if index % 2 == 0 { " " } else { "" };
            let _ = write!(out, "{space}{byte:02x}");
        }
        if with_ascii {
            let width = HEX_WIDTH - (out.len() - start);
            let _ = write!(out, "{:width$}  ", "");
            out.extend(
                chunk
                    .iter()
                    .map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }),
            );
        }
    }
}

fn ascii(out: &mut String, data: &[u8]) {
    out.push('\n');
    for (index, byte) in data.iter().enumerate() {
        match byte {
            // A line of text may end with both; the first of them is not shown.
            b'\r' if matches!(data.get(index + 1), None | Some(b'\n')) => {}
            b'\t' | b'\n' | b' ' => out.push(char::from(*byte)),
            byte if byte.is_ascii_graphic() => out.push(char::from(*byte)),
            _ => out.push('.'),
        }
    }
}

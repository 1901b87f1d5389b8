//! Lines for a terminal: the prefix of a packet, and text without control characters.

use std::fmt::Write as _;
use std::io::{self, Write};

use pmdscope_packets::{DIR_RX, DIR_TX, SinkError};
use pmdscope_telemetry::printable::is_printable;

use super::stage::Head;
use super::timestamp::Stamps;

/// Number, time, interface and direction.
pub(super) struct LinePrefix {
    pub(super) number: bool,
    pub(super) stamps: Stamps,
    pub(super) named: bool,
}

impl LinePrefix {
    pub(super) fn write(&mut self, out: &mut String, head: &Head, name: &str) {
        // Writing to a string cannot fail.
        if self.number {
            let _ = write!(out, "{:5}  ", head.id.saturating_add(1));
        }
        self.stamps.write(out, head.ns);
        // Old capture files do not have it.
        if (self.named || head.named) && !name.is_empty() {
            let direction = match head.dir {
                DIR_RX => "In",
                DIR_TX => "Out",
                _ => "?",
            };
            append(out, name.as_bytes());
            let padding = 5_usize.saturating_sub(name.chars().count());
            let _ = write!(out, "{:padding$} {direction:<3} ", "");
        }
    }
}

/// Appends text with everything replaced that a terminal would act upon.
pub(super) fn append(out: &mut String, text: &[u8]) {
    // Most lines are plain, and this is several times faster. Counting has no early end, so it is vectorized.
    let is_plain = |byte: u8| matches!(byte, b'\t' | b' '..=b'~');
    if text.iter().filter(|byte| !is_plain(**byte)).count() == 0
        && let Ok(text) = std::str::from_utf8(text)
    {
        out.push_str(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\t' => out.push('\t'),
                // Writing to a string cannot fail.
                letter if is_printable(letter) => out.push(letter),
                letter if letter.is_control() => {
                    let _ = write!(out, "\\x{:02x}", u32::from(letter));
                }
                letter => {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(letter));
                }
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

/// Writes text to standard output immediately, and empties it.
pub(super) fn bring_out(out: &mut dyn Write, text: &mut String) -> Result<(), SinkError> {
    let result = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    text.clear();
    result.map_err(|source| {
        let name = "standard output".to_owned();
        match source.kind() {
            io::ErrorKind::BrokenPipe => SinkError::Closed { name },
            _ => SinkError::Write { name, source },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &[u8]) -> String {
        let mut out = String::new();
        append(&mut out, text);
        out
    }

    #[test]
    fn nothing_commands_the_terminal() {
        assert_eq!(escaped(b"plain\ttext"), "plain\ttext");
        assert_eq!(escaped(b"\x1b[31mred\x07\r"), "\\x1b[31mred\\x07\\x0d");
        assert_eq!(escaped("10.0.0.1 → ä".as_bytes()), "10.0.0.1 → ä");
        assert_eq!(escaped(b"\xc2\x9b31m \x9b \xff"), "\\x9b31m \\x9b \\xff");
        assert_eq!(escaped("\u{202e}txt".as_bytes()), "\\u{202e}txt");
    }
}

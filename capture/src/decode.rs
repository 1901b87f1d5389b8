//! Packets as text, in the words of tcpdump: numbers only, no state, one line each unless asked for
//! more.
//!
//! What comes from a packet is printed as numbers, or with its control characters replaced, so
//! nothing in a packet reaches a terminal as a command.

mod arp;
mod checksum;
mod dump;
mod icmp;
mod ip;
mod link;
mod stamp;
mod transport;

pub use stamp::{Clock, Stamps};

/// What to show of a packet; the fields are tcpdump's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// `-e`
    pub link_header: bool,
    /// `-v`, how many times.
    pub verbose: u8,
    /// `-q`
    pub quick: bool,
    /// Not `-K`
    pub checksums: bool,
    /// `-x`, `-X` and `-A`
    pub bytes: Bytes,
}

/// Which bytes of a packet to add, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bytes {
    /// None.
    #[default]
    None,
    /// `-x`, or `-xx` when `whole`.
    Hex {
        /// With the Ethernet header.
        whole: bool,
    },
    /// `-X`, or `-XX` when `whole`.
    HexAscii {
        /// With the Ethernet header.
        whole: bool,
    },
    /// `-A`, or `-AA` when `whole`.
    Ascii {
        /// With the Ethernet header.
        whole: bool,
    },
}

/// Text in the making.
struct Line<'a> {
    out: &'a mut String,
    style: Style,
}

impl Line<'_> {
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = std::fmt::Write::write_fmt(self.out, text);
    }

    /// A layer that is not there as a whole.
    fn truncated(&mut self, layer: &str) {
        self.put(format_args!(" [|{layer}]"));
    }
}

/// Appends a line with what is in an Ethernet frame of `len` bytes, of which `data` was kept, and
/// further lines for what the style asks for beyond.
pub fn describe(out: &mut String, data: &[u8], len: u32, style: Style) {
    let header = link::ethernet(&mut Line { out, style }, data, len);
    dump::append(out, style.bytes, data, header);
    out.push('\n');
}

#[cfg(test)]
mod tests;

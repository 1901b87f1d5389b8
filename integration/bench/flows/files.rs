//! Capture files of known conversations.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

const BEGIN: u32 = 1_780_000_000;
/// Nanoseconds between packets.
const PACE: u64 = 1000;
/// Ethernet, IPv4 and UDP, or the part of TCP that matters.
const HEADERS: usize = 54;

/// Content of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) packets: u32,
    /// Conversations: those of even numbers TCP, the others UDP.
    pub(crate) flows: u32,
    /// Sizes of frames, in turn.
    sizes: &'static [u16],
}

/// A simple mix of Internet traffic: 7 small, 4 medium, 1 large.
const MIX: &[u16] = &[64, 64, 570, 64, 64, 570, 64, 570, 64, 1518, 64, 570];

impl Traffic {
    pub(crate) fn all(packets: u32) -> Vec<Self> {
        let kinds = [(10_000, &[64][..]), (10_000, MIX), (100_000, &[64]), (100_000, MIX)];
        kinds.map(|(flows, sizes)| Self { packets, flows, sizes }).to_vec()
    }

    /// Of mixed sizes.
    pub(crate) fn mixed(packets: u32) -> Self {
        Self { packets, flows: 10_000, sizes: MIX }
    }

    pub(crate) fn label(&self) -> String {
        let sizes = if self.sizes.len() == 1 { "64 B" } else { "mixed" };
        format!("{} packets, {} flows, {sizes}", self.packets, self.flows)
    }

    /// Writes the file. The order of conversations has no pattern, and each of them is in the first
    /// packets.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 1] {
            out.write_all(&word.to_le_bytes())?;
        }
        let mut state = 1_u64;
        for number in 0..self.packets {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = u32::try_from((state >> 33) % u64::from(self.flows))?;
            let flow = if number < self.flows { number } else { random };
            let size = self.sizes[number as usize % self.sizes.len()];
            let ns = u64::from(number) * PACE;
            let rest = u32::try_from(ns % 1_000_000_000)?;
            let seconds = BEGIN + u32::try_from(ns / 1_000_000_000)?;
            for word in [seconds, rest, size.into(), size.into()] {
                out.write_all(&word.to_le_bytes())?;
            }
            out.write_all(&headers(flow, size))?;
            out.write_all(&[0; 1518][HEADERS..usize::from(size)])?;
        }
        out.flush().with_context(|| format!("write {}", path.display()))
    }
}

fn headers(flow: u32, size: u16) -> [u8; HEADERS] {
    let tcp = flow.is_multiple_of(2);
    let mut frame = [0; HEADERS];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..16].copy_from_slice(&[0x45, 0]);
    frame[16..18].copy_from_slice(&(size - 14).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, if tcp { 6 } else { 17 }]);
    frame[26..30].copy_from_slice(&(0x0a00_0000 + flow).to_be_bytes());
    frame[30..34].copy_from_slice(&[192, 0, 2, 1]);
    frame[34..38].copy_from_slice(&[0x9c, 0x40, 0, if tcp { 80 } else { 99 }]);
    if tcp {
        frame[46..50].copy_from_slice(&[0x50, 0x10, 0x20, 0]);
    } else {
        frame[38..40].copy_from_slice(&(size - 34).to_be_bytes());
    }
    frame
}

//! Redacts capture files: packets, comments, names.
//!
//! Copies the blocks and options that are known, and no others.

use anyhow::{Result, bail, ensure};

use super::Redactor;
use super::packet;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Options of text: comment and, by block, names, descriptions, hardware, system and application.
const SECTION_TEXT: &[u16] = &[1, 2, 3, 4];
const INTERFACE_TEXT: &[u16] = &[1, 2, 3, 12, 15];
/// The filter of an interface; its first byte is the type of the filter.
const INTERFACE_FILTER: u16 = 11;
/// Speed, resolution and offset of times.
const INTERFACE_NUMBERS: &[u16] = &[8, 9, 14];
/// Flags, drops, number, queue.
const PACKET_NUMBERS: &[u16] = &[2, 4, 5, 6];
const COMMENT: &[u16] = &[1];
const STATISTICS_NUMBERS: &[u16] = &[2, 3, 4, 5, 6, 7, 8];

/// The redacted file. A block that is cut off at the end is left out.
///
/// # Errors
///
/// When it is no pcapng file of the byte order of this machine.
pub(super) fn redact(file: &[u8], redactor: &mut Redactor) -> Result<Vec<u8>> {
    ensure!(word(file, 0)? == SECTION_HEADER, "it is no pcapng file");
    let mut out = Vec::with_capacity(file.len());
    let mut linktypes = Vec::new();
    let mut rest = file;
    while rest.len() >= 12 {
        let size = word(rest, 4)? as usize;
        if size < 12 || !size.is_multiple_of(4) {
            bail!("a block is damaged");
        }
        let Some(block) = rest.get(..size) else { break };
        copy_block(&mut out, &mut linktypes, word(rest, 0)?, &block[8..size - 4], redactor)?;
        rest = &rest[size..];
    }
    Ok(out)
}

fn copy_block(
    out: &mut Vec<u8>,
    linktypes: &mut Vec<u16>,
    kind: u32,
    body: &[u8],
    redactor: &mut Redactor,
) -> Result<()> {
    let mut block = Vec::new();
    match kind {
        SECTION_HEADER => {
            ensure!(word(body, 0)? == BYTE_ORDER_MAGIC, "it is of another byte order");
            linktypes.clear();
            block.extend_from_slice(part(body, 0, 8)?);
            block.extend_from_slice(&[0xff; 8]); // Length unknown.
            copy_options(&mut block, part_from(body, 16)?, SECTION_TEXT, &[], redactor);
        }
        INTERFACE => {
            let linktype = word(body, 0)?.to_ne_bytes();
            linktypes.push(u16::from_ne_bytes([linktype[0], linktype[1]]));
            block.extend_from_slice(part(body, 0, 8)?);
            let options = part_from(body, 8)?;
            copy_options(&mut block, options, INTERFACE_TEXT, INTERFACE_NUMBERS, redactor);
        }
        PACKET => {
            let (interface, captured) = (word(body, 0)? as usize, word(body, 12)? as usize);
            let data = part(body, 20, captured)?;
            let linktype = linktypes.get(interface).copied().unwrap_or(u16::MAX);
            let data = packet::redact(linktype, data, &mut redactor.pseudonyms);
            block.extend_from_slice(part(body, 0, 12)?);
            block.extend_from_slice(&u32::try_from(data.len())?.to_ne_bytes());
            block.extend_from_slice(part(body, 16, 4)?);
            padded(&mut block, &data);
            let options = part_from(body, 20 + captured.next_multiple_of(4))?;
            copy_options(&mut block, options, COMMENT, PACKET_NUMBERS, redactor);
        }
        STATISTICS => {
            block.extend_from_slice(part(body, 0, 12)?);
            let options = part_from(body, 12)?;
            copy_options(&mut block, options, COMMENT, STATISTICS_NUMBERS, redactor);
        }
        // Names of hosts, keys, and what is not known.
        _ => return Ok(()),
    }
    let size = u32::try_from(block.len() + 12)?.to_ne_bytes();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&size);
    out.extend_from_slice(&block);
    out.extend_from_slice(&size);
    Ok(())
}

/// Copies options of numbers as they are, and of text without addresses.
fn copy_options(
    out: &mut Vec<u8>,
    mut options: &[u8],
    text: &[u16],
    numbers: &[u16],
    redactor: &mut Redactor,
) {
    while let [a, b, c, d, rest @ ..] = options {
        let (code, size) = (u16::from_ne_bytes([*a, *b]), u16::from_ne_bytes([*c, *d]));
        let Some(value) = rest.get(..size.into()).filter(|_| code != 0) else { break };
        if text.contains(&code) || (code == INTERFACE_FILTER && text == INTERFACE_TEXT) {
            let (kind, value) =
                value.split_at(usize::from(code == INTERFACE_FILTER).min(value.len()));
            let value = redactor.text(&String::from_utf8_lossy(value)).into_owned();
            option(out, code, &[kind, value.as_bytes()].concat());
        } else if numbers.contains(&code) {
            option(out, code, value);
        }
        options = rest.get(usize::from(size).next_multiple_of(4)..).unwrap_or_default();
    }
    option(out, 0, &[]);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    // Text can have become longer than fits.
    let value = &value[..value.len().min(0xfffc)];
    out.extend_from_slice(&code.to_ne_bytes());
    out.extend_from_slice(&u16::try_from(value.len()).unwrap_or(0).to_ne_bytes());
    padded(out, value);
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
}

fn part(bytes: &[u8], at: usize, size: usize) -> Result<&[u8]> {
    match part_from(bytes, at)?.get(..size) {
        Some(part) => Ok(part),
        None => bail!("a block is too short"),
    }
}

fn part_from(bytes: &[u8], at: usize) -> Result<&[u8]> {
    match bytes.get(at..) {
        Some(part) => Ok(part),
        None => bail!("a block is too short"),
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let bytes = part(bytes, at, 4)?;
    Ok(u32::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default()))
}

#[cfg(test)]
#[path = "pcapng_tests.rs"]
mod tests;

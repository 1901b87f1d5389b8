//! The sum over 16-bit words that IP, TCP and UDP protect themselves with.

use std::net::IpAddr;

fn add(sum: u32, bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    bytes.chunks(2).map(word).fold(sum, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

/// The right checksum of `bytes`, which has one `at` that is left out.
pub(super) fn plain(bytes: &[u8], at: usize) -> Option<u16> {
    Some(!finish(0, bytes, at)?)
}

/// The same with the addresses and the protocol of IP in front.
pub(super) fn with_addresses(
    bytes: &[u8],
    at: usize,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
) -> Option<u16> {
    let addresses = [source, destination].iter().fold(0, |sum, address| match address {
        IpAddr::V4(address) => add(sum, &address.octets()),
        IpAddr::V6(address) => add(sum, &address.octets()),
    });
    let length = u32::try_from(bytes.len()).ok()?;
    let sum = add(add(addresses, &length.to_be_bytes()), &[0, protocol]);
    Some(!finish(sum, bytes, at)?)
}

fn finish(sum: u32, bytes: &[u8], at: usize) -> Option<u16> {
    let (before, after) = (bytes.get(..at)?, bytes.get(at + 2..)?);
    u16::try_from(add(add(sum, before), after)).ok()
}

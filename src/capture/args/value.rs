//! Parsers of option values.

use std::time::Duration;

use pmdscope_capture::layout::{RING_MAX_SIZE, RING_MIN_SIZE};

use crate::{duration, size};

/// Size of a file: millions of bytes, or with K, M, G binary ones, as tcpdump has it.
pub(super) fn parse_file_size(text: &str) -> Result<u64, String> {
    size::parse(text, &size::BINARY[..3], 1_000_000).ok_or_else(|| {
        "expected a size: 100 is 100,000,000 bytes; 100K, 100M and 100G are powers of 1024"
            .to_owned()
    })
}

pub(super) fn parse_ring_size(text: &str) -> Result<u32, String> {
    let bytes = size::parse(text, &size::BINARY, 1).and_then(|bytes| u32::try_from(bytes).ok());
    bytes
        .filter(|bytes| bytes.is_power_of_two())
        .filter(|bytes| (RING_MIN_SIZE..=RING_MAX_SIZE).contains(bytes))
        .ok_or_else(|| "expected a power of two from 64K to 64M".to_owned())
}

/// tcpdump's buffer size in KiB, as the size of a ring: the next power of two within its range.
pub(super) fn parse_buffer_size(text: &str) -> Result<u32, String> {
    let kib = text.parse::<u32>().ok().filter(|kib| *kib > 0 && !text.starts_with('+'));
    let bytes = kib.map(|kib| u64::from(kib) << 10);
    bytes
        .map(|bytes| bytes.clamp(RING_MIN_SIZE.into(), RING_MAX_SIZE.into()))
        .and_then(|bytes| u32::try_from(bytes.next_power_of_two()).ok())
        .ok_or_else(|| "expected a whole number of KiB, at least 1".to_owned())
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::within(text, Duration::from_millis(1)..=Duration::MAX, "10s or 5m")
}

/// Packets of DPDK are Ethernet.
pub(super) fn parse_linktype(text: &str) -> Result<String, String> {
    if text.eq_ignore_ascii_case("EN10MB") {
        return Ok(text.to_owned());
    }
    Err("DPDK ports are Ethernet: the only link type is EN10MB".to_owned())
}

/// The app stamps packets when it polls.
pub(super) fn parse_time_stamp_type(text: &str) -> Result<String, String> {
    if text == "host" {
        return Ok(text.to_owned());
    }
    Err("the host timestamps packets when the app polls them: the only type is host".to_owned())
}

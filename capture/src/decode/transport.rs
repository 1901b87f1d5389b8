//! TCP, UDP and SCTP.

use std::fmt;

use etherparse::{TcpHeaderSlice, TcpOptionElement, UdpHeaderSlice};

use super::ip::Payload;
use super::{Line, checksum};

/// Bytes of a UDP header.
const UDP_HEADER: u32 = 8;

/// `10.0.0.1.1234 > 10.0.0.2.53: `
fn flow(line: &mut Line<'_>, payload: &Payload<'_>, source: u16, destination: u16) {
    line.put(format_args!("{}.{source} > {}.{destination}: ", payload.source, payload.destination));
}

/// The right checksum where it can be known.
fn right_checksum(line: &Line<'_>, payload: &Payload<'_>, at: usize) -> Option<u16> {
    if !line.style.checksums || !payload.is_whole() {
        return None;
    }
    let Payload { data, source, destination, protocol, .. } = payload;
    checksum::with_addresses(data, at, *source, *destination, *protocol)
}

pub(super) fn udp(line: &mut Line<'_>, payload: &Payload<'_>) {
    let Ok(header) = UdpHeaderSlice::from_slice(payload.data) else {
        line.put(format_args!("{} > {}: ", payload.source, payload.destination));
        line.truncated("udp");
        return;
    };
    flow(line, payload, header.source_port(), header.destination_port());
    // As tcpdump does: in IPv4 it may be missing, so it is worth less there.
    if line.style.verbose > u8::from(payload.source.is_ipv4()) && line.style.checksums {
        udp_checksum(line, payload, header.checksum());
    }
    let length = match u32::from(header.length()) {
        length if length >= UDP_HEADER => length,
        _ => payload.length,
    };
    line.put(format_args!("UDP, length {}", length.saturating_sub(UDP_HEADER)));
}

fn udp_checksum(line: &mut Line<'_>, payload: &Payload<'_>, found: u16) {
    if found == 0 && payload.source.is_ipv4() {
        line.put(format_args!("[no cksum] "));
        return;
    }
    // A sum of 0 is sent as its other form, as 0 means none.
    let right = right_checksum(line, payload, 6).map(|sum| if sum == 0 { 0xffff } else { sum });
    match right {
        Some(right) if right == found => line.put(format_args!("[udp sum ok] ")),
        Some(right) => line.put(format_args!("[bad udp cksum 0x{found:04x} -> 0x{right:04x}!] ")),
        None => {}
    }
}

pub(super) fn tcp(line: &mut Line<'_>, payload: &Payload<'_>) {
    let Ok(header) = TcpHeaderSlice::from_slice(payload.data) else {
        line.put(format_args!("{} > {}: ", payload.source, payload.destination));
        line.truncated("tcp");
        return;
    };
    flow(line, payload, header.source_port(), header.destination_port());
    let length = payload.length.saturating_sub(header.slice().len() as u32);
    if line.style.quick {
        line.put(format_args!("tcp {length}"));
        return;
    }
    line.put(format_args!("Flags [{}]", Flags(header.slice()[13])));
    if line.style.verbose > 0 {
        tcp_checksum(line, payload, header.checksum());
    }
    let sequence = header.sequence_number();
    if length > 0 {
        let end = sequence.wrapping_add(length);
        line.put(format_args!(", seq {sequence}:{end}"));
    } else if line.style.verbose > 1 || header.syn() || header.fin() || header.rst() {
        line.put(format_args!(", seq {sequence}"));
    }
    if header.ack() {
        line.put(format_args!(", ack {}", header.acknowledgment_number()));
    }
    line.put(format_args!(", win {}", header.window_size()));
    if header.urg() {
        line.put(format_args!(", urg {}", header.urgent_pointer()));
    }
    options(line, &header);
    line.put(format_args!(", length {length}"));
}

fn tcp_checksum(line: &mut Line<'_>, payload: &Payload<'_>, found: u16) {
    match right_checksum(line, payload, 16) {
        Some(right) if right == found => {
            line.put(format_args!(", cksum 0x{found:04x} (correct)"));
        }
        Some(right) => {
            line.put(format_args!(", cksum 0x{found:04x} (incorrect -> 0x{right:04x})"));
        }
        None => line.put(format_args!(", cksum 0x{found:04x}")),
    }
}

struct Flags(u8);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let set = "FSRP.UEW".chars().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        f.write_str(&set.map(|(_, letter)| letter).collect::<String>())
    }
}

fn options(line: &mut Line<'_>, header: &TcpHeaderSlice<'_>) {
    if header.options().is_empty() {
        return;
    }
    let mut separator = ", options [";
    let mut options = header.options_iterator();
    for option in options.by_ref() {
        line.put(format_args!("{separator}"));
        separator = ",";
        match option {
            Ok(option) => line.put(format_args!("{}", Opt(option))),
            Err(_) => line.put(format_args!("bad or unknown option")),
        }
    }
    // The iterator takes the end of the list for the end of the options.
    if options.rest().first() == Some(&0) {
        line.put(format_args!("{separator}eol"));
        separator = ",";
    }
    if separator == "," {
        line.put(format_args!("]"));
    }
}

struct Opt(TcpOptionElement);

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TcpOptionElement::Noop => f.write_str("nop"),
            TcpOptionElement::MaximumSegmentSize(size) => write!(f, "mss {size}"),
            TcpOptionElement::WindowScale(shift) => write!(f, "wscale {shift}"),
            TcpOptionElement::SelectiveAcknowledgementPermitted => f.write_str("sackOK"),
            TcpOptionElement::Timestamp(value, echo) => write!(f, "TS val {value} ecr {echo}"),
            TcpOptionElement::SelectiveAcknowledgement(first, others) => {
                let blocks = [Some(*first)].into_iter().chain(*others).flatten();
                let blocks = blocks.collect::<Vec<_>>();
                write!(f, "sack {} ", blocks.len())?;
                blocks.iter().try_for_each(|(from, to)| write!(f, "{{{from}:{to}}}"))
            }
        }
    }
}

pub(super) fn sctp(line: &mut Line<'_>, payload: &Payload<'_>) {
    let [s0, s1, d0, d1, ..] = *payload.data else {
        line.put(format_args!("{} > {}: ", payload.source, payload.destination));
        line.truncated("sctp");
        return;
    };
    flow(line, payload, u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    line.put(format_args!("sctp, length {}", payload.length));
}

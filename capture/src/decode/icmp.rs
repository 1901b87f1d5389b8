//! ICMP of both versions: echoes, errors and neighbours; others by number.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Line;
use super::ip::Payload;

const TCP: u8 = 6;
const UDP: u8 = 17;

fn word(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

fn address_v4(data: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(<[u8; 4]>::try_from(data.get(at..at + 4)?).ok()?.into())
}

fn address_v6(data: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(<[u8; 16]>::try_from(data.get(at..at + 16)?).ok()?.into())
}

pub(super) fn v4(line: &mut Line<'_>, payload: &Payload<'_>) {
    line.put(format_args!("{} > {}: ICMP ", payload.source, payload.destination));
    match message_v4(payload.data) {
        Some(text) => line.put(format_args!("{text}, length {}", payload.length)),
        None => line.truncated("icmp"),
    }
}

fn message_v4(data: &[u8]) -> Option<String> {
    let (kind, code) = (*data.first()?, *data.get(1)?);
    Some(match kind {
        0 | 8 => {
            let what = if kind == 8 { "request" } else { "reply" };
            format!("echo {what}, id {}, seq {}", word(data, 4)?, word(data, 6)?)
        }
        3 => unreachable_v4(data, code)?,
        5 => {
            let scope = if code == 0 { "net" } else { "host" };
            format!("redirect {} to {scope} {}", address_v4(data, 8 + 16)?, address_v4(data, 4)?)
        }
        11 if code == 0 => "time exceeded in-transit".to_owned(),
        11 if code == 1 => "ip reassembly time exceeded".to_owned(),
        11 => format!("time exceeded-#{code}"),
        9 => "router advertisement".to_owned(),
        10 => "router solicitation".to_owned(),
        _ => format!("type-#{kind}"),
    })
}

/// What the packet inside the error was sent to.
fn unreachable_v4(data: &[u8], code: u8) -> Option<String> {
    let inner = data.get(8..)?;
    let destination = address_v4(inner, 16)?;
    let port = || {
        let header = usize::from(inner.first()? & 0xf) * 4;
        let port = word(inner, header + 2)?;
        let protocol = *inner.get(9)?;
        Some(match protocol {
            TCP => format!("{destination} tcp port {port} unreachable"),
            UDP => format!("{destination} udp port {port} unreachable"),
            _ => format!("{destination} protocol {protocol} port {port} unreachable"),
        })
    };
    Some(match code {
        0 => format!("net {destination} unreachable"),
        1 => format!("host {destination} unreachable"),
        2 => format!("{destination} protocol {} unreachable", inner.get(9)?),
        3 => port()?,
        4 => match word(data, 6)? {
            0 => format!("{destination} unreachable - need to frag"),
            mtu => format!("{destination} unreachable - need to frag (mtu {mtu})"),
        },
        10 => format!("host {destination} unreachable - admin prohibited"),
        13 => format!("host {destination} unreachable - admin prohibited filter"),
        _ => format!("{destination} unreachable - #{code}"),
    })
}

pub(super) fn v6(line: &mut Line<'_>, payload: &Payload<'_>) {
    line.put(format_args!("{} > {}: ICMP6, ", payload.source, payload.destination));
    match message_v6(payload.data) {
        Some(text) => line.put(format_args!("{text}, length {}", payload.length)),
        None => line.truncated("icmp6"),
    }
}

fn message_v6(data: &[u8]) -> Option<String> {
    let (kind, code) = (*data.first()?, *data.get(1)?);
    let number = |at| Some(u32::from(word(data, at)?) << 16 | u32::from(word(data, at + 2)?));
    Some(match kind {
        1 => {
            let destination = address_v6(data, 8 + 24)?;
            match code {
                0 => format!("destination unreachable, unreachable route {destination}"),
                1 => format!("destination unreachable, unreachable prohibited {destination}"),
                3 => format!("destination unreachable, unreachable address {destination}"),
                4 => unreachable_port_v6(data, destination)?,
                _ => format!("destination unreachable, unreachable code-#{code} {destination}"),
            }
        }
        2 => format!("packet too big, mtu {}", number(4)?),
        3 => format!("time exceeded {}", if code == 0 { "in-transit" } else { "(reassembly)" }),
        128 => format!("echo request, id {}, seq {}", word(data, 4)?, word(data, 6)?),
        129 => format!("echo reply, id {}, seq {}", word(data, 4)?, word(data, 6)?),
        133 => "router solicitation".to_owned(),
        134 => "router advertisement".to_owned(),
        135 => format!("neighbor solicitation, who has {}", address_v6(data, 8)?),
        136 => format!("neighbor advertisement, tgt is {}", address_v6(data, 8)?),
        137 => format!("redirect, {} to {}", address_v6(data, 24)?, address_v6(data, 8)?),
        _ => format!("type-#{kind}"),
    })
}

fn unreachable_port_v6(data: &[u8], destination: Ipv6Addr) -> Option<String> {
    let (protocol, port) = (*data.get(8 + 6)?, word(data, 8 + 40 + 2));
    Some(match (protocol, port) {
        (TCP, Some(port)) => {
            format!("destination unreachable, unreachable port, {destination} tcp port {port}")
        }
        (UDP, Some(port)) => {
            format!("destination unreachable, unreachable port, {destination} udp port {port}")
        }
        _ => format!("destination unreachable, unreachable port, {destination}"),
    })
}

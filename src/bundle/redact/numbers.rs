//! Addresses that are written as one number.

use std::net::Ipv4Addr;

use regex::Captures;

use super::pseudonym::Pseudonyms;
use super::text::{mac_text, parse_hex_mac};

/// The first number that may be an address where only its place suggests that: smaller ones are lengths, types
/// and ports.
const LEAST_ADDRESS: u32 = 1 << 24;

/// What takes the place of a part of an address.
const REMOVED: &str = "(removed)";

/// Bytes of a header that a filter compares with a number, as in `ip[12:4] = 0xc6120001`.
#[derive(Debug)]
pub(super) struct HeaderBytes {
    protocol: String,
    at: u32,
    size: u32,
    /// Only a part of them is compared.
    is_shifted: bool,
}

impl HeaderBytes {
    /// Of the groups of these names: protocol, offset, size, shift.
    pub(super) fn of(found: &Captures<'_>, groups: [&str; 4]) -> Self {
        let [protocol, at, size, shift] = groups.map(|name| found.name(name).map(|it| it.as_str()));
        let number = |text: Option<&str>| text.and_then(|text| text.parse().ok());
        Self {
            protocol: protocol.unwrap_or_default().to_ascii_lowercase(),
            at: number(at).unwrap_or(0),
            size: number(size).unwrap_or(1),
            is_shifted: shift.is_some(),
        }
    }

    /// What takes the place of a number with which they are compared: the pseudonym of a whole IPv4 address; a
    /// part of an address would be no part of its pseudonym.
    pub(super) fn compared(&self, value: &str, pseudonyms: &mut Pseudonyms) -> Option<String> {
        let number = number_of(value)?;
        let Some((begin, end)) = self.address() else {
            if self.may_be_address(number) {
                return Some(written_as(value, pseudonyms.ipv4(number.into()).to_bits()));
            }
            let digits = digits_of(value)?;
            return Some(format!("0x{}", hex_number(digits, pseudonyms)?));
        };
        let is_whole = (self.at, self.size) == (*begin, 4) && end - begin == 4;
        if !is_whole || self.is_shifted {
            return Some(REMOVED.to_owned());
        }
        Some(written_as(value, pseudonyms.ipv4(number.into()).to_bits()))
    }

    /// The address that is there, first byte and end. Behind the header of Ethernet that of IPv4 is likely.
    fn address(&self) -> Option<&'static (u32, u32)> {
        let fields: &[(u32, u32)] = match self.protocol.as_str() {
            "ip" => &[(12, 16), (16, 20)],
            "ip6" => &[(8, 24), (24, 40)],
            "ether" | "link" => &[(0, 6), (6, 12), (26, 30), (30, 34)],
            "arp" | "rarp" => &[(8, 14), (14, 18), (18, 24), (24, 28)],
            _ => &[],
        };
        fields.iter().find(|(begin, end)| self.at < *end && self.at + self.size > *begin)
    }

    /// Whether it may be an address behind other headers, as of tunnels: there its place is not known.
    fn may_be_address(&self, number: u32) -> bool {
        let first = match self.protocol.as_str() {
            "ether" | "link" => 26,
            "ip" => 32,
            "ip6" => 52,
            "udp" | "icmp" | "icmp6" => 20,
            _ => return false,
        };
        self.size == 4 && self.at >= first && number >= LEAST_ADDRESS
    }
}

/// The numbers in a text that are IPv4 addresses replaced by their pseudonyms, in both orders of bytes, if the
/// bundle has the address elsewhere, too. Where they can be nothing else, all are replaced.
pub(super) fn replaced(text: &str, is_certain: bool, pseudonyms: &mut Pseudonyms) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let is_part = |c: char| c.is_ascii_alphanumeric();
        let end = rest[at..].find(|c| !is_part(c)).map_or(rest.len(), |length| at + length);
        let word = &rest[at..end];
        out.push_str(&rest[..at]);
        let address = number_of(word).filter(|_| word.len() >= 8);
        let pseudonym = address.and_then(|number| pseudonym(number, word, is_certain, pseudonyms));
        out.push_str(&pseudonym.map_or_else(|| word.to_owned(), |bits| written_as(word, bits)));
        rest = &rest[end..];
    }
    out + rest
}

fn pseudonym(
    number: u32,
    word: &str,
    is_certain: bool,
    pseudonyms: &mut Pseudonyms,
) -> Option<u32> {
    // Hexadecimal numbers are no counters.
    let near = digits_of(word).and_then(|_| pseudonyms.ipv4_near_known(number.into()));
    let known = near.or_else(|| pseudonyms.known_ipv4(number.into())).map(Ipv4Addr::to_bits);
    known.or_else(|| swapped(number, pseudonyms)).or_else(|| {
        (is_certain && number >= LEAST_ADDRESS).then(|| pseudonyms.ipv4(number.into()).to_bits())
    })
}

/// The pseudonym of an address as one hexadecimal number: of 32 digits any IPv6 address; of 12 a MAC address
/// and of 8 an IPv4 address, if the bundle has it elsewhere, too, or another one of the same vendor or of the
/// same /16. With its bytes in the other order, an IPv4 address that the bundle has: many small numbers would
/// be one of the same /16.
pub(super) fn hex_number(digits: &str, pseudonyms: &mut Pseudonyms) -> Option<String> {
    match digits.len() {
        32 => {
            let address = u128::from_str_radix(digits, 16).ok()?;
            Some(format!("{:032x}", pseudonyms.ipv6(address.into()).to_bits()))
        }
        12 => pseudonyms.mac_near_known(parse_hex_mac(digits)?).map(|mac| mac_text(mac, "")),
        8 => {
            let number = u32::from_str_radix(digits, 16).ok()?;
            let near = pseudonyms.ipv4_near_known(number.into()).map(Ipv4Addr::to_bits);
            near.or_else(|| swapped(number, pseudonyms)).map(|bits| format!("{bits:08x}"))
        }
        _ => None,
    }
}

/// The pseudonym of an IPv4 address that the bundle has, with its bytes in the other order, as is the result.
fn swapped(number: u32, pseudonyms: &Pseudonyms) -> Option<u32> {
    let known = pseudonyms.known_ipv4(number.swap_bytes().into())?;
    Some(known.to_bits().swap_bytes())
}

/// A decimal number, or a hexadecimal one with `0x`.
fn number_of(text: &str) -> Option<u32> {
    match digits_of(text) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn digits_of(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

/// A number as another one is written.
fn written_as(text: &str, number: u32) -> String {
    match digits_of(text) {
        Some(_) => format!("0x{number:08x}"),
        None => number.to_string(),
    }
}

//! Replaces addresses and host names in text and JSON.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex::{Captures, Regex};

use super::numbers::{self, HeaderBytes, hex_number};
use super::pseudonym::{Mac, Pseudonyms};

/// What may contain an address: a run of the characters of which addresses consist, MAC addresses with
/// dashes (as of `BOOTIF=` after the type of the link), hexadecimal numbers, interface names that end
/// with a MAC address, numbers and networks in filters, and decimal numbers that are written as addresses
/// are: all others are counters, times and sizes.
const CANDIDATE: &str = r"(?xi)
    (?P<filter> \b (?P<protocol> ether | link | ip6 | ip | arp | rarp | udp | icmp6 | icmp ) \s* \[ \s*
      (?P<at> \d{1,3} ) \s* (?: : \s* (?P<size> [124] ) \s* )? \] \s*
      (?: (?: [&|^] | (?P<shift> << | >> ) ) \s* (?: 0x )? [0-9a-f]+ \s* )* \)* \s*
      [=!<>]=? \s* (?P<value> 0x [0-9a-f]{1,8} | \d{1,10} ) \b )
  | (?P<reversed> \b (?P<left> 0x [0-9a-f]{1,8} | \d{1,10} ) \s* [=!<>]=? \s* (?: \( \s* )*
      (?P<right> ether | link | ip6 | ip | arp | rarp | udp | icmp6 | icmp ) \s* \[ \s*
      (?P<right_at> \d{1,3} ) \s* (?: : \s* (?P<right_size> [124] ) \s* )? \] (?: \s* (?P<right_shift> << | >> ) )? )
  | (?P<named> \b (?: host | net ) (?: [\s\x00]+ | [\x22'] \s* , \s* [\x22'] )
      (?P<operand> 0x [0-9a-f]{7,8} | \d{8,10} ) \b )
  | (?P<net> \b net (?: [\s\x00]+ | [\x22'] \s* , \s* [\x22'] ) (?P<octets> \d{1,3} (?: \. \d{1,3} ){0,3} ) \b )
  | (?P<labelled> (?: \b | _ ) (?: (?P<certain> ip (?:v?4)? [_-]? addr (?:ess (?:es)? )? s?
        | (?: src | dst | source | dest (?:ination)? | remote | local | peer | server | client | next [_-]? hop
            | gateway | gw ) [_-]? (?: ip (?:v?4)? | addr (?:ess (?:es)? )? ) s?
        | [sd]addr | ip (?:v?4)? [_-] (?: src | dst ) )
      | ip (?:v?4)? s? | inet | addr (?:ess (?:es)? )? s? | hosts? | src | dst | source | destination | gateways?
      | gw | next [_-]? hops? | peers? | neighbou?rs? | remote | local | server | client )
      (?: [\x22']? (?: \s* [:=] \s* | \x20+ ) | [\x22'] \s* , \s* [\x22'] | \x00 )
      (?P<numbers> [\x22']? (?: 0x [0-9a-f]{8} | \d{8,10} ) \b
        | \[ \s* [\x22']? \d{8,10} [\x22']? (?: \s* , \s* [\x22']? \d{8,10} [\x22']? )* \s* \] ) )
  | (?P<written> \b \d{8,10} (?: : \d{1,5} )? (?: / \d{1,2} | \s* <?[-=]> \s* \d{8,10} ) \b )
  | (?P<dashes> \b (?P<before> (?:[0-9a-f]{2}-)*) (?P<mac> (?:[0-9a-f]{2}-){5} [0-9a-f]{2}) \b )
  | (?P<name> \b (?:enx|wlx|wwx) (?P<hex> [0-9a-f]{12}) \b )
  | (?P<number> \b 0x (?P<digits> [0-9a-f]{8,32}) \b )
  | (?P<run> [0-9a-f:.]{7,} | [0-9a-f:]* :: [0-9a-f:.]* )";

static CANDIDATES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(CANDIDATE).ok());

/// Finds what to replace in text.
#[derive(Debug)]
pub(super) struct TextRedactor {
    candidates: &'static Regex,
    /// Names of hosts.
    hosts: Option<Regex>,
}

impl TextRedactor {
    /// Replaces these names of hosts, and all names below domains, which begin with a dot.
    pub(super) fn new(hosts: &[String]) -> Result<Self> {
        let candidates = CANDIDATES.as_ref().context("the pattern of addresses is invalid")?;
        let known = hosts.iter().filter(|name| !name.is_empty() && *name != "localhost");
        let mut known = known.map(|name| name_pattern(name)).collect::<Vec<_>>();
        // Of names that begin alike, the first that fits is taken.
        known.sort_by_key(|pattern| std::cmp::Reverse(pattern.len()));
        // A name that is the key of a JSON object stays.
        let pattern = format!(r#"(?i)\b(?:{})\b(?P<key>":)?"#, known.join("|"));
        let hosts = (!known.is_empty()).then(|| Regex::new(&pattern)).transpose();
        Ok(Self { candidates, hosts: hosts.context("too many names of hosts")? })
    }

    /// The text without the addresses and the names of hosts.
    pub(super) fn redact<'a>(&self, text: &'a str, pseudonyms: &mut Pseudonyms) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        if let Some(hosts) = &self.hosts {
            let replace = |found: &Captures<'_>| match found.name("key") {
                Some(_) => found[0].to_owned(),
                None => pseudonyms.name("host", &found[0].to_ascii_lowercase()),
            };
            if let Cow::Owned(replaced) = hosts.replace_all(&text, replace) {
                text = Cow::Owned(replaced);
            }
        }
        match self.addresses(&text, pseudonyms) {
            Cow::Owned(replaced) => Cow::Owned(replaced),
            Cow::Borrowed(_) => text,
        }
    }

    /// The text without the addresses.
    pub(super) fn addresses<'a>(&self, text: &'a str, pseudonyms: &mut Pseudonyms) -> Cow<'a, str> {
        let replace = |found: &Captures<'_>| masked(found, pseudonyms);
        self.candidates.replace_all(text, replace)
    }
}

/// A pattern for a name of a host, or for all names below a domain.
fn name_pattern(name: &str) -> String {
    match name.strip_prefix('.') {
        Some(domain) => format!(r"(?:[a-z0-9_-]+\.)+{}", regex::escape(domain)),
        None => regex::escape(name),
    }
}

fn masked(found: &Captures<'_>, pseudonyms: &mut Pseudonyms) -> String {
    let text = &found[0];
    // What is replaced is at the end.
    let ended = |end: &str, replacement: String| {
        format!("{}{replacement}", &text[..text.len() - end.len()])
    };
    let replaced = if let Some(value) = found.name("value") {
        HeaderBytes::of(found, ["protocol", "at", "size", "shift"])
            .compared(value.as_str(), pseudonyms)
            .map(|number| ended(value.as_str(), number))
    } else if let Some(left) = found.name("left") {
        HeaderBytes::of(found, ["right", "right_at", "right_size", "right_shift"])
            .compared(left.as_str(), pseudonyms)
            .map(|number| number + &text[left.len()..])
    } else if let Some(operand) = found.name("operand") {
        Some(ended(operand.as_str(), numbers::replaced(operand.as_str(), true, pseudonyms)))
    } else if let Some(octets) = found.name("octets") {
        network(octets.as_str(), pseudonyms).map(|network| ended(octets.as_str(), network))
    } else if let Some(numbers) = found.name("numbers") {
        let is_certain = found.name("certain").is_some();
        Some(ended(numbers.as_str(), numbers::replaced(numbers.as_str(), is_certain, pseudonyms)))
    } else if found.name("written").is_some() {
        Some(numbers::replaced(text, false, pseudonyms))
    } else if let Some(mac) = found.name("mac") {
        parse_mac(mac.as_str(), '-')
            .map(|address| ended(mac.as_str(), mac_text(pseudonyms.mac(address), "-")))
    } else if let Some(hex) = found.name("hex") {
        parse_hex_mac(hex.as_str())
            .map(|address| ended(hex.as_str(), mac_text(pseudonyms.mac(address), "")))
    } else if let Some(digits) = found.name("digits") {
        hex_number(digits.as_str(), pseudonyms).map(|number| ended(digits.as_str(), number))
    } else {
        Some(run(text, pseudonyms))
    };
    replaced.unwrap_or_else(|| text.to_owned())
}

/// Replaces the addresses in a run of hexadecimal digits, colons and dots.
fn run(text: &str, pseudonyms: &mut Pseudonyms) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let address = first_address(rest, pseudonyms);
        let address = address.or_else(|| first_hex_number(text, rest, pseudonyms));
        let (replaced, taken) = address.unwrap_or_else(|| {
            let next = group_end(rest);
            (rest[..next].to_owned(), next)
        });
        out.push_str(&replaced);
        rest = &rest[taken..];
    }
    out
}

/// The same for an address at the start of the rest of a run that is a hexadecimal number. One of decimal
/// digits alone is taken for a count, unless a port follows.
fn first_hex_number(run: &str, rest: &str, pseudonyms: &mut Pseudonyms) -> Option<(String, usize)> {
    let before = &run[..run.len() - rest.len()];
    let digits = rest.split([':', '.']).next().unwrap_or_default();
    let is_whole = before.is_empty() || before.ends_with([':', '.']);
    if !is_whole {
        return None;
    }
    if digits.bytes().all(|digit| digit.is_ascii_digit()) {
        let port = rest[digits.len()..].strip_prefix(':')?;
        let is_port =
            before.is_empty() && !port.contains([':', '.']) && port.parse::<u16>().is_ok();
        return is_port.then(|| (numbers::replaced(digits, false, pseudonyms), digits.len()));
    }
    Some((hex_number(digits, pseudonyms)?, digits.len()))
}

/// Bytes up to the next place at which an address may begin.
fn group_end(text: &str) -> usize {
    let Some(first) = text.chars().next() else { return 0 };
    let is_same = |c: char| !":.".contains(c) && c.is_ascii_digit() == first.is_ascii_digit();
    let same = text.chars().take_while(|c| is_same(*c)).count();
    if ":.".contains(first) { 1 } else { same.max(1) }
}

/// The pseudonym of the longest address at the start of `text`, and the length of that address.
fn first_address(text: &str, pseudonyms: &mut Pseudonyms) -> Option<(String, usize)> {
    let ends = text.match_indices([':', '.']).map(|(at, _)| at).chain([text.len()]);
    let mut ends: Vec<_> = ends.filter(|end| *end > 0).collect();
    // An address may also end with the two colons.
    ends.extend(text.match_indices("::").map(|(at, _)| at + 2));
    ends.sort_unstable();
    ends.dedup();
    ends.iter().rev().find_map(|end| Some((replacement(&text[..*end], pseudonyms)?, *end)))
}

fn replacement(text: &str, pseudonyms: &mut Pseudonyms) -> Option<String> {
    if let Some(mac) = parse_mac(text, ':') {
        return Some(mac_text(pseudonyms.mac(mac), ":"));
    }
    if let Some(mac) = parse_cisco_mac(text) {
        let hex = mac_text(pseudonyms.mac(mac), "");
        return Some([&hex[..4], &hex[4..8], &hex[8..]].join("."));
    }
    let v6 = text.parse::<Ipv6Addr>().ok().map(IpAddr::from);
    let address = v6.or_else(|| parse_ipv4(text).map(IpAddr::from))?;
    Some(pseudonyms.ip(address).to_string())
}

/// The first octets of an address, as filters name a network: prefixes of addresses are those of pseudonyms.
fn network(octets: &str, pseudonyms: &mut Pseudonyms) -> Option<String> {
    let count = octets.split('.').count();
    let address = parse_ipv4(&(octets.to_owned() + &".0".repeat(4 - count)))?;
    let pseudonym = pseudonyms.ipv4(address).octets();
    let kept: Vec<String> = pseudonym.iter().take(count).map(u8::to_string).collect();
    Some(kept.join("."))
}

/// Also with leading zeros, which [`Ipv4Addr`] refuses.
fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let octets: Option<Vec<u8>> = text.split('.').map(|octet| octet.parse().ok()).collect();
    <[u8; 4]>::try_from(octets?).ok().map(Ipv4Addr::from)
}

fn parse_mac(text: &str, separator: char) -> Option<Mac> {
    let octet =
        |octet: &str| (octet.len() == 2).then(|| u8::from_str_radix(octet, 16).ok()).flatten();
    let octets: Option<Vec<u8>> = text.split(separator).map(octet).collect();
    octets?.try_into().ok()
}

pub(super) fn parse_hex_mac(digits: &str) -> Option<Mac> {
    let octets = (0..6).map(|at| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok());
    octets.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// As in `0200.00ab.cd01`.
fn parse_cisco_mac(text: &str) -> Option<Mac> {
    let groups: Vec<&str> = text.split('.').collect();
    let is_mac = groups.len() == 3 && groups.iter().all(|group| group.len() == 4);
    is_mac.then(|| parse_hex_mac(&groups.concat())).flatten()
}

pub(super) fn mac_text(mac: Mac, separator: &str) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(separator)
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;

//! Replaces addresses and host names in text and JSON.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex::{Captures, Regex};

use super::pseudonym::{Mac, Pseudonyms};

/// What may contain an address: a run of the characters of which addresses consist, MAC addresses with
/// dashes (as of `BOOTIF=` after the type of the link), hexadecimal numbers, interface names that end
/// with a MAC address, what filters compare with bytes of a header, and decimal numbers behind a word for
/// an address: all others are counters, times and sizes.
const CANDIDATE: &str = r"(?xi)
    (?P<filter> \b (?P<protocol> ether | link | ip6 | ip | arp | rarp ) \s* \[ \s* (?P<at> \d{1,2} ) \s*
      (?: : \s* (?P<size> [124] ) \s* )? \] \s* (?: [&|] \s* (?: 0x )? [0-9a-f]+ \s* )? \)* \s*
      [=!<>]=? \s* (?P<value> 0x [0-9a-f]{1,8} | \d{1,10} ) \b )
  | (?P<labelled> (?: \b | _ ) (?: (?: ip | ipv4 | inet ) _? (?: addr (?:ess)? )? | [sd]?addr (?:ess)?
      | host | src | dst | source | destination | gateway | gw | next_?hop | peer | neighbou?r ) [\x22']?
      (?: \s* [:=] \s* | \x20+ ) [\x22']? (?P<decimal> \d{8,10} ) \b )
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
        compared(found, pseudonyms).map(|number| ended(value.as_str(), number))
    } else if let Some(decimal) = found.name("decimal") {
        decimal_number(decimal.as_str(), pseudonyms).map(|number| ended(decimal.as_str(), number))
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

/// What takes the place of a number with which a filter compares a part of an address: the pseudonym of a
/// whole IPv4 address; a part of an address would be no part of its pseudonym.
fn compared(found: &Captures<'_>, pseudonyms: &mut Pseudonyms) -> Option<String> {
    let number = |name| found.name(name).and_then(|text| text.as_str().parse::<u32>().ok());
    let (at, size) = (number("at")?, number("size").unwrap_or(1));
    let fields: &[(u32, u32)] = match found["protocol"].to_ascii_lowercase().as_str() {
        "ip" => &[(12, 16), (16, 20)],
        "ip6" => &[(8, 24), (24, 40)],
        "ether" | "link" => &[(0, 6), (6, 12)],
        _ => &[(8, 14), (14, 18), (18, 24), (24, 28)],
    };
    let field = fields.iter().find(|(begin, end)| at < *end && at + size > *begin);
    let value = found["value"].to_ascii_lowercase();
    let digits = value.strip_prefix("0x");
    let Some((begin, end)) = field else {
        return Some(format!("0x{}", hex_number(digits?, pseudonyms)?));
    };
    if (at, size) != (*begin, 4) || end - begin != 4 {
        return Some("(removed)".to_owned());
    }
    let address = match digits {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => value.parse().ok()?,
    };
    let pseudonym = pseudonyms.ipv4(address.into()).to_bits();
    Some(if digits.is_some() { format!("0x{pseudonym:08x}") } else { pseudonym.to_string() })
}

/// The pseudonym of an address as one hexadecimal number: of 32 digits any IPv6 address; of 12 a MAC address
/// and of 8 an IPv4 address, if the bundle has it elsewhere, too, or another one of the same vendor or of the
/// same /16. With its bytes in the other order, an IPv4 address that the bundle has: many small numbers would
/// be one of the same /16.
fn hex_number(digits: &str, pseudonyms: &mut Pseudonyms) -> Option<String> {
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

/// The pseudonym of an IPv4 address as a decimal number, in both orders of bytes, if the bundle has it
/// elsewhere, too.
fn decimal_number(digits: &str, pseudonyms: &Pseudonyms) -> Option<String> {
    let number = digits.parse::<u32>().ok()?;
    let known = pseudonyms.known_ipv4(number.into()).map(Ipv4Addr::to_bits);
    known.or_else(|| swapped(number, pseudonyms)).map(|bits| bits.to_string())
}

/// The pseudonym of an IPv4 address that the bundle has, with its bytes in the other order, as is the result.
fn swapped(number: u32, pseudonyms: &Pseudonyms) -> Option<u32> {
    let known = pseudonyms.known_ipv4(number.swap_bytes().into())?;
    Some(known.to_bits().swap_bytes())
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
/// digits alone is taken for a count.
fn first_hex_number(run: &str, rest: &str, pseudonyms: &mut Pseudonyms) -> Option<(String, usize)> {
    let before = &run[..run.len() - rest.len()];
    let digits = rest.split([':', '.']).next().unwrap_or_default();
    let is_whole = before.is_empty() || before.ends_with([':', '.']);
    if !is_whole || digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
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

fn parse_hex_mac(digits: &str) -> Option<Mac> {
    let octets = (0..6).map(|at| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok());
    octets.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// As in `0200.00ab.cd01`.
fn parse_cisco_mac(text: &str) -> Option<Mac> {
    let groups: Vec<&str> = text.split('.').collect();
    let is_mac = groups.len() == 3 && groups.iter().all(|group| group.len() == 4);
    is_mac.then(|| parse_hex_mac(&groups.concat())).flatten()
}

fn mac_text(mac: Mac, separator: &str) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(separator)
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;

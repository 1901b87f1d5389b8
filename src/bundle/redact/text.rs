//! Replaces addresses and host names in text and JSON.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex::{Captures, Regex};

use super::pseudonym::{Mac, Pseudonyms};

/// What may contain an address: a run of the characters of which addresses consist, MAC addresses with
/// dashes, and interface names that end with a MAC address.
const CANDIDATE: &str = r"(?xi)
    (?P<dashes> \b (?:[0-9a-f]{2}-){5} [0-9a-f]{2} \b )
  | (?P<name> \b (?:enx|wlx|wwx) (?P<hex> [0-9a-f]{12}) \b )
  | (?P<run> [0-9a-f:.]{7,} | [0-9a-f:]* :: [0-9a-f:.]* )";

static CANDIDATES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(CANDIDATE).ok());

/// Finds what to replace in text.
#[derive(Debug)]
pub(super) struct TextRedactor {
    candidates: &'static Regex,
    /// Names of this machine, and what stands for them.
    hosts: Vec<(Regex, String)>,
}

impl TextRedactor {
    /// For text of a machine with these names.
    pub(super) fn new(hosts: &[String], pseudonyms: &Pseudonyms) -> Result<Self> {
        let candidates = CANDIDATES.as_ref().context("the pattern of addresses is invalid")?;
        let pattern = |name: &String| -> Result<_> {
            // A name that is the key of a JSON object stays.
            let pattern = format!(r#"(?i)\b{}\b(?P<key>":)?"#, regex::escape(name));
            Ok((Regex::new(&pattern)?, pseudonyms.name("host", name)))
        };
        let known = hosts.iter().filter(|name| !name.is_empty() && *name != "localhost");
        Ok(Self { candidates, hosts: known.map(pattern).collect::<Result<_>>()? })
    }

    /// The text without the addresses and the names of this machine.
    pub(super) fn redact<'a>(&self, text: &'a str, pseudonyms: &mut Pseudonyms) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (name, replacement) in &self.hosts {
            let replace = |found: &Captures<'_>| match found.name("key") {
                Some(_) => found[0].to_owned(),
                None => replacement.clone(),
            };
            if let Cow::Owned(replaced) = name.replace_all(&text, replace) {
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

fn masked(found: &Captures<'_>, pseudonyms: &mut Pseudonyms) -> String {
    let text = &found[0];
    if found.name("dashes").is_some() {
        return parse_mac(text, '-')
            .map_or_else(|| text.to_owned(), |mac| mac_text(pseudonyms.mac(mac), "-"));
    }
    if let Some(hex) = found.name("hex") {
        let prefix = &text[..text.len() - hex.len()];
        let octets = (0..6).map(|at| hex.as_str().get(2 * at..2 * at + 2));
        let octets: Option<Vec<u8>> =
            octets.map(|octet| u8::from_str_radix(octet?, 16).ok()).collect();
        let mac = octets.and_then(|octets| Mac::try_from(octets).ok());
        return mac.map_or_else(
            || text.to_owned(),
            |mac| format!("{prefix}{}", mac_text(pseudonyms.mac(mac), "")),
        );
    }
    run(text, pseudonyms)
}

/// Replaces the addresses in a run of hexadecimal digits, colons and dots.
fn run(text: &str, pseudonyms: &mut Pseudonyms) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (replaced, taken) = first_address(rest, pseudonyms).unwrap_or_else(|| {
            let next = group_end(rest);
            (rest[..next].to_owned(), next)
        });
        out.push_str(&replaced);
        rest = &rest[taken..];
    }
    out
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

fn mac_text(mac: Mac, separator: &str) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(separator)
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;

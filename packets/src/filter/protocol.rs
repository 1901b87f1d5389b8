//! Names of IP protocols in filters, on machines without `/etc/protocols`.
//!
//! There, the C library cannot look up a name, libpcap uses protocol 0 for it, and a filter such as
//! `ip proto \tcp` would silently match nothing.

use std::borrow::Cow;
use std::ops::Range;

/// A protocol that is in no list; as a host name, it does not resolve either.
const UNKNOWN: &str = "protocol.invalid";

/// Protocols that filters use; others can be given by number.
const NUMBERS: [(&str, u8); 28] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("icmp6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("etherip", 97),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// Replaces names that libpcap would take for 0 by their numbers; fails with the first name that has no
/// number here. `compiles` tells whether libpcap accepts an expression.
pub(super) fn resolve(
    expression: &str,
    compiles: impl Fn(&str) -> bool,
) -> Result<Cow<'_, str>, String> {
    let Some(first) = expression.find("proto") else { return Ok(Cow::Borrowed(expression)) };
    if !compiles(&format!("ip proto {UNKNOWN}")) {
        return Ok(Cow::Borrowed(expression));
    }
    let mut resolved = expression.to_owned();
    // From the end, so that offsets before a replaced name remain valid.
    for place in words(expression).into_iter().rev().filter(|place| place.start > first) {
        let word = &expression[place.clone()];
        let put = |text: &str| {
            let mut changed = resolved.clone();
            changed.replace_range(place.clone(), text);
            changed
        };
        // A protocol name and not a keyword, in a position where libpcap accepts even an unknown
        // protocol.
        let is_name = !word.starts_with(|first: char| first.is_ascii_digit())
            && compiles(&format!("ip proto {word}"))
            && compiles(&put(UNKNOWN));
        if is_name {
            let name = word.trim_start_matches('\\');
            let known = NUMBERS.iter().find(|(known, _)| *known == name);
            resolved = put(&known.ok_or_else(|| name.to_owned())?.1.to_string());
        }
    }
    Ok(Cow::Owned(resolved))
}

/// Returns the ranges of the words of an expression.
fn words(expression: &str) -> Vec<Range<usize>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.:\\".contains(c);
    let mut words: Vec<Range<usize>> = Vec::new();
    for (at, c) in expression.char_indices().filter(|(_, c)| is_part(*c)) {
        match words.last_mut() {
            Some(word) if word.end == at => word.end += c.len_utf8(),
            _ => words.push(at..at + c.len_utf8()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_list_nothing_is_changed() {
        let refuses = |expression: &str| !expression.contains(UNKNOWN);
        assert_eq!(resolve(r"ip proto \tcp", refuses), Ok(r"ip proto \tcp".into()));
    }

    #[test]
    fn the_numbers_are_those_of_the_list() {
        let Ok(list) = std::fs::read_to_string("/etc/protocols") else {
            return pmdscope_testing::skip_without(&pmdscope_testing::current_test(), "netbase");
        };
        let listed = |name: &str| {
            let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines.find(|words| words.first() == Some(&name)).and_then(|words| words[1].parse().ok())
        };
        for (name, number) in NUMBERS {
            assert!(listed(name).is_none_or(|listed: u8| listed == number), "{name}");
        }
        assert!(listed("tcp").is_some());
    }
}

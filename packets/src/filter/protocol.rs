//! Names of IP protocols in filters, on machines without a list of them (`/etc/protocols`).
//!
//! There the C library fails to look a name up, libpcap takes that for protocol 0, and a filter such as
//! `ip proto \tcp` would match nothing, without a word.

use std::borrow::Cow;
use std::ops::Range;

/// A protocol that no list has; as the name of a host it is unknown everywhere, too.
const UNKNOWN: &str = "protocol.invalid";

/// Those that have been filtered by; the rest can be given by number.
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

/// The expression with numbers in place of names that libpcap would take for 0, or the first name that
/// has no number here. `compiles` tells whether libpcap takes an expression.
pub(super) fn resolve(
    expression: &str,
    compiles: impl Fn(&str) -> bool,
) -> Result<Cow<'_, str>, String> {
    let Some(first) = expression.find("proto") else { return Ok(Cow::Borrowed(expression)) };
    if !compiles(&format!("ip proto {UNKNOWN}")) {
        return Ok(Cow::Borrowed(expression));
    }
    let mut resolved = expression.to_owned();
    // From the end, so that places before a replaced name stay where they are.
    for place in words(expression).into_iter().rev().filter(|place| place.start > first) {
        let word = &expression[place.clone()];
        let put = |text: &str| {
            let mut changed = resolved.clone();
            changed.replace_range(place.clone(), text);
            changed
        };
        // A name, no keyword; and it stands where even an unknown protocol would be taken.
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

/// Where the words of an expression stand.
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

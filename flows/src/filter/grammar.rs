//! The words of one test.

use winnow::Parser;
use winnow::combinator::{alt, delimited, opt, peek, terminated};
use winnow::token::{one_of, take_while};

use super::address::EndPattern;
use super::expression::{Parsed, blanks, mistake};
use super::ports::{self, Comparison};
use super::states::{self, StateSet};
use super::test::{Ends, FlowTest, PlacePattern};
use crate::Tunnel;
use crate::protocols::protocol_number;

const EXPECTED: &str = "expected src, dst, host, sport, dport, port, state, exclude, proto, tcp, udp, \
                        app, dev, vlan, vni or tunnel";

/// Parses one test of a conversation.
///
/// # Errors
/// Where it is wrong, and what is expected there.
pub fn test(input: &mut &str) -> Parsed<FlowTest> {
    let from = *input;
    let word = word(input)?;
    // The whole word, and not the beginning of another.
    if input.chars().next().is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '/')) {
        return mistake(from, EXPECTED);
    }
    blanks(input)?;
    match word {
        "src" => address(input, Ends::Local),
        "dst" => address(input, Ends::Remote),
        "host" => address(input, Ends::Either),
        "sport" => port(input, Ends::Local),
        "dport" => port(input, Ends::Remote),
        "port" => port(input, Ends::Either),
        "state" => {
            let equal = equality(input)?;
            let set = state_set(input)?;
            Ok(FlowTest::State(if equal { set } else { set.others() }))
        }
        "exclude" => state(input).map(|set| FlowTest::State(set.others())),
        "proto" => protocol(input),
        "app" => {
            let equal = equality(input)?;
            let name = value(input, "expected the name of an app")?;
            Ok(FlowTest::App { equal, name: name.to_owned() })
        }
        "dev" => place(input),
        "vlan" => vlan(input),
        "vni" => {
            let comparison = comparison(input)?.unwrap_or(Comparison::Equal);
            let id = number(input, "expected the number of a VXLAN or GENEVE network", 0xff_ffff)?;
            Ok(FlowTest::Vni { comparison, id })
        }
        "tunnel" => tunnel(input),
        "ip" => Ok(FlowTest::Version { v6: false }),
        "ip6" => Ok(FlowTest::Version { v6: true }),
        // As protocols, these two are tunnels.
        "ipip" | "ipv6" => mistake(from, EXPECTED),
        name => match protocol_number(name) {
            Some(number) => Ok(FlowTest::Protocol { equal: true, number }),
            None => mistake(from, EXPECTED),
        },
    }
}

fn address(input: &mut &str, ends: Ends) -> Parsed<FlowTest> {
    let equal = equality(input)?;
    Ok(FlowTest::Address { ends, equal, pattern: EndPattern::parse(input)? })
}

fn port(input: &mut &str, ends: Ends) -> Parsed<FlowTest> {
    let comparison = comparison(input)?.unwrap_or(Comparison::Equal);
    Ok(FlowTest::Port { ends, comparison, port: ports::port(input)? })
}

/// `state a state b` is either, as in ss(8).
fn state_set(input: &mut &str) -> Parsed<StateSet> {
    let mut set = state(input)?;
    while opt(delimited(blanks, "state", take_while(1.., char::is_whitespace)))
        .parse_next(input)?
        .is_some()
    {
        set = set.union(state(input)?);
    }
    Ok(set)
}

fn state(input: &mut &str) -> Parsed<StateSet> {
    let from = *input;
    let name = value(input, "expected a state, such as established")?;
    match StateSet::named(name) {
        Some(set) => Ok(set),
        None => mistake(from, format!("no state '{name}': {}", states::NAMES)),
    }
}

fn protocol(input: &mut &str) -> Parsed<FlowTest> {
    let equal = equality(input)?;
    let from = *input;
    let name = value(input, "expected a protocol, such as udp or 89")?;
    match protocol_number(name).or_else(|| name.parse().ok()) {
        Some(number) => Ok(FlowTest::Protocol { equal, number }),
        None => mistake(from, format!("no protocol '{name}': write its number")),
    }
}

/// `fwd`, `fwd:0`, `fwd:0:3`, `0` or `0:3`.
fn place(input: &mut &str) -> Parsed<FlowTest> {
    let equal = equality(input)?;
    let from = *input;
    let word = value(input, "expected a port, such as fwd:0, fwd:0:3 or 0")?;
    match PlacePattern::of(word) {
        Some(pattern) => Ok(FlowTest::Place { equal, pattern }),
        None => mistake(from, format!("no port '{word}': APP, APP:PORT, APP:PORT:QUEUE or PORT")),
    }
}

/// Without a number, any.
fn vlan(input: &mut &str) -> Parsed<FlowTest> {
    let comparison = comparison(input)?;
    if comparison.is_none() && !input.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(FlowTest::AnyVlan);
    }
    let id = number(input, "expected a VLAN id", 4095)?;
    let id = u16::try_from(id).unwrap_or(u16::MAX);
    Ok(FlowTest::Vlan { comparison: comparison.unwrap_or(Comparison::Equal), id })
}

/// Without a kind, any.
fn tunnel(input: &mut &str) -> Parsed<FlowTest> {
    let from = *input;
    let equal = equality(input)?;
    let operand = *input;
    let kind = word(input)?;
    if let Some(kind) = Tunnel::KINDS.into_iter().find(|known| *known == kind) {
        return Ok(FlowTest::Tunnel { equal, kind });
    }
    if operand.len() < from.len() {
        return mistake(operand, format!("expected one of {}", Tunnel::KINDS.join(", ")));
    }
    *input = operand;
    Ok(FlowTest::AnyTunnel)
}

/// `=` or `!=`, and nothing for the first.
fn equality(input: &mut &str) -> Parsed<bool> {
    let from = *input;
    match comparison(input)? {
        None | Some(Comparison::Equal) => Ok(true),
        Some(Comparison::NotEqual) => Ok(false),
        Some(_) => mistake(from, "expected = or !="),
    }
}

/// An operator, if there is one, and the blanks behind it.
fn comparison(input: &mut &str) -> Parsed<Option<Comparison>> {
    let signs = take_while(1..=2, ['=', '!', '<', '>']);
    let letters = terminated(take_while(2..=3, 'a'..='z'), peek(one_of(char::is_whitespace)));
    let operator = alt((signs, letters)).verify_map(Comparison::named);
    opt(delimited(blanks, operator, blanks)).parse_next(input)
}

fn number(input: &mut &str, expected: &str, largest: u32) -> Parsed<u32> {
    let from = *input;
    let digits = value(input, expected)?;
    match digits.parse() {
        Ok(number) if number <= largest => Ok(number),
        _ => mistake(from, format!("{expected}, 0 to {largest}")),
    }
}

/// The name of a test, of a protocol or of a kind of tunnels; it may be empty.
fn word<'i>(input: &mut &'i str) -> Parsed<&'i str> {
    take_while(0.., ('a'..='z', '0'..='9', '-')).parse_next(input)
}

/// What is up to a blank, an operator or a parenthesis.
pub(super) fn value<'i>(input: &mut &'i str, expected: &str) -> Parsed<&'i str> {
    let ends = |c: char| c.is_whitespace() || "()&|!=<>".contains(c);
    let word: Parsed<&'i str> = take_while(1.., |c| !ends(c)).parse_next(input);
    word.or_else(|_| mistake(input, expected))
}

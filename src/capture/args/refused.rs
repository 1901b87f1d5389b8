//! Options that tcpdump has, and that make no sense here: each says why, and what to do instead.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// An option of tcpdump that is not available.
#[derive(Debug)]
struct Refusal {
    /// As people write it.
    option: &'static str,
    short: Option<char>,
    long: Option<&'static str>,
    /// It has a value.
    value: bool,
    /// What tcpdump does with it.
    meaning: &'static str,
    /// Why not here, and what instead.
    instead: &'static str,
}

const PIPE: &str =
    "pipe the packets into tcpdump: pmdscope capture -w - | tcpdump -r - with the option";

const REFUSED: [Refusal; 9] = [
    Refusal {
        option: "-I",
        short: Some('I'),
        long: Some("monitor-mode"),
        value: false,
        meaning: "puts a Wi-Fi interface into monitor mode",
        instead: "DPDK ports are Ethernet and have none",
    },
    Refusal {
        option: "-E",
        short: Some('E'),
        long: None,
        value: true,
        meaning: "decrypts IPsec ESP with a secret on the command line",
        instead: PIPE,
    },
    Refusal {
        option: "-M",
        short: Some('M'),
        long: None,
        value: true,
        meaning: "checks TCP-MD5 signatures with a secret on the command line",
        instead: PIPE,
    },
    Refusal {
        option: "-m",
        short: Some('m'),
        long: None,
        value: true,
        meaning: "loads an SMI MIB module",
        instead: PIPE,
    },
    Refusal {
        option: "-f",
        short: Some('f'),
        long: None,
        value: false,
        meaning: "shows foreign addresses as numbers",
        instead: "what is foreign depends on an address of the interface, and DPDK ports have none: \
                  -n shows all addresses as numbers",
    },
    Refusal {
        option: "-g",
        short: Some('g'),
        long: Some("ip-oneline"),
        value: false,
        meaning: "puts the IP header on the line of the packet",
        instead: "it is new in tcpdump 5; the lines here are those of tcpdump 4.99",
    },
    Refusal {
        option: "--lengths",
        short: None,
        long: Some("lengths"),
        value: false,
        meaning: "shows captured and original length of every packet",
        instead: "it is new in tcpdump 5; -e shows the original length, and -w keeps both",
    },
    Refusal {
        option: "--print-sampling",
        short: None,
        long: Some("print-sampling"),
        value: true,
        meaning: "shows one packet in N",
        instead: "--sample N has the app hand over no others",
    },
    Refusal {
        option: "--time-t-size",
        short: None,
        long: Some("time-t-size"),
        value: false,
        meaning: "tells the size of time_t",
        instead: "times have 64 bits of nanoseconds since 1970 here, until 2554",
    },
];

impl Refusal {
    fn arg(&self) -> Arg {
        let action = if self.value { ArgAction::Append } else { ArgAction::Count };
        let arg = Arg::new(self.option).hide(true).action(action);
        let arg = self.short.map_or(arg.clone(), |letter| arg.short(letter));
        self.long.map_or(arg.clone(), |name| arg.long(name))
    }

    fn is_given(&self, matches: &ArgMatches) -> bool {
        if self.value {
            matches.get_many::<String>(self.option).is_some()
        } else {
            matches.get_count(self.option) > 0
        }
    }

    fn error(&self) -> Error {
        let Self { option, meaning, instead, .. } = self;
        let text = format!("{option} of tcpdump {meaning}, which is not available here: {instead}");
        Error::raw(ErrorKind::UnknownArgument, text)
    }
}

/// None of the options that are refused: one that is given ends the parsing with its reason.
#[derive(Debug)]
pub(super) struct Refused;

impl Args for Refused {
    fn augment_args(command: Command) -> Command {
        command.args(REFUSED.iter().map(Refusal::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Refused {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = REFUSED.iter().find(|refusal| refusal.is_given(matches));
        given.map_or(Ok(Self), |refusal| Err(refusal.error()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Adds the nearest letter to an error about an unknown one: the same in the other case.
pub(crate) fn suggest(mut error: Error, command: &Command) -> Error {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => option.clone(),
        _ => return error,
    };
    let mut letters = unknown.trim_start_matches('-').chars();
    let (Some(letter), None) = (letters.next(), letters.next()) else { return error };
    let other = |known: char| known != letter && known.eq_ignore_ascii_case(&letter);
    let mut known = command.get_arguments().filter(|arg| !arg.is_hide_set());
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(nearest) = known.find_map(|arg| arg.get_short().filter(|short| other(*short)))
    {
        let nearest = ContextValue::String(format!("-{nearest}"));
        error.insert(ContextKind::SuggestedArg, nearest);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_in_the_documentation() {
        let text = include_str!("../../../docs/capture.md");
        for refusal in &REFUSED {
            let option = refusal.option;
            assert!(text.contains(&format!("`{option}")), "{option} is not in docs/capture.md");
        }
    }
}

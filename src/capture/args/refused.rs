//! Options of tcpdump that are not supported, each with the reason and an alternative.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// An option of tcpdump that is not available.
#[derive(Debug)]
struct Refusal {
    /// As people write it, or empty.
    short: &'static str,
    long: &'static str,
    /// What tcpdump does with it.
    meaning: &'static str,
    /// Why not here, and what instead.
    instead: &'static str,
}

const PIPE: &str =
    "pipe the packets into tcpdump: pmdscope capture -w - | tcpdump -r - with the option";

const NO_DECODER: &str = "--decoder is gone: tcpdump prints the packets; for another program, pipe them: \
     pmdscope capture -w - | tshark -r -";

const REFUSED: [Refusal; 9] = [
    Refusal {
        short: "-I",
        long: "--monitor-mode",
        meaning: "puts a Wi-Fi interface into monitor mode",
        instead: "DPDK ports are Ethernet and have none",
    },
    Refusal {
        short: "-E",
        long: "",
        meaning: "decrypts IPsec ESP with a secret on the command line",
        instead: PIPE,
    },
    Refusal {
        short: "-M",
        long: "",
        meaning: "checks TCP-MD5 signatures with a secret on the command line",
        instead: PIPE,
    },
    Refusal { short: "-m", long: "", meaning: "loads an SMI MIB module", instead: PIPE },
    Refusal {
        short: "-f",
        long: "",
        meaning: "shows foreign addresses as numbers",
        instead: "what is foreign depends on an address of the interface, and DPDK ports have none: \
                  -n shows all addresses as numbers",
    },
    Refusal {
        short: "-g",
        long: "--ip-oneline",
        meaning: "puts the IP header on the line of the packet",
        instead: "it is new in tcpdump 5; the lines here are those of tcpdump 4.99",
    },
    Refusal {
        short: "",
        long: "--lengths",
        meaning: "shows captured and original length of every packet",
        instead: "it is new in tcpdump 5; -e shows the original length, and -w keeps both",
    },
    Refusal {
        short: "",
        long: "--print-sampling",
        meaning: "shows one packet in N",
        instead: "--sample N has the app hand over no others",
    },
    Refusal {
        short: "",
        long: "--time-t-size",
        meaning: "prints the size of time_t",
        instead: "times have 64 bits of nanoseconds since 1970 here, until 2554",
    },
];

impl Refusal {
    fn is_called(&self, option: &str) -> bool {
        !option.is_empty() && [self.short, self.long].contains(&option)
    }

    fn text(&self, option: &str) -> String {
        let Self { meaning, instead, .. } = self;
        format!("{option} of tcpdump {meaning}, which is not available here: {instead}")
    }
}

/// Explains an unknown option: its meaning in tcpdump, or the nearest letter, which is the same in
/// the other case.
pub(crate) fn explain(mut error: Error, command: &mut Command) -> Error {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => {
            option.clone()
        }
        _ => return error,
    };
    if let Some(refusal) = REFUSED.iter().find(|refusal| refusal.is_called(&unknown)) {
        return command.error(ErrorKind::UnknownArgument, refusal.text(&unknown));
    }
    if unknown == "--decoder" {
        return command.error(ErrorKind::UnknownArgument, NO_DECODER);
    }
    let mut letters = unknown.trim_start_matches('-').chars();
    let (Some(letter), None) = (letters.next(), letters.next()) else { return error };
    let other = |known: &char| *known != letter && known.eq_ignore_ascii_case(&letter);
    let nearest = command.get_arguments().find_map(|arg| arg.get_short().filter(other));
    if let Some(nearest) = nearest {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("-{nearest}")));
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
            let option = if refusal.short.is_empty() { refusal.long } else { refusal.short };
            assert!(text.contains(&format!("`{option}`")), "{option} is not in docs/capture.md");
        }
    }
}

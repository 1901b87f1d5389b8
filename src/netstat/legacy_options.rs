//! Options of netstat(8) and ss(8) that mean something else here, or nothing.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use crate::capture;
use crate::exit::Usage;

/// Letters that people write together behind `-a`; a name of an app of these alone needs a space.
const WITH_ALL: &str = "nptul46sic";

/// What people look for with options that are not available, and where it is.
const ABSENT: [(&str, &str); 7] = [
    ("-p", "the process of a socket: here -a NAME selects an app, and pmdscope ls lists them"),
    ("-e", "more of every socket: --json prints all fields"),
    ("-o", "timers of sockets: not visible in packets; the columns First and Last are ages"),
    (
        "-w",
        "raw sockets: a filter selects packets by protocol, such as pmdscope netstat 'ip proto 89'",
    ),
    ("-g", "multicast groups: not visible in packets"),
    ("-x", "sockets of the kernel: DPDK apps have none; pmdscope ls lists the apps"),
    ("-W", "full addresses: always shown; without a terminal all columns are shown"),
];

const ROUTES: Usage = Usage(
    "-r of netstat shows the routes of the kernel, and DPDK ports have none; here -r FILE reads a \
     capture file",
);
const ONE_PROTOCOL: Usage =
    Usage("-s shows all protocols: a filter selects one, such as pmdscope netstat -s udp");

/// Reads a command line of netstat where it can mean only one thing: `-a` without a name is all apps, as it
/// is without `-a`.
///
/// # Errors
///
/// When an option has another meaning here.
pub(crate) fn adapt(arguments: &[OsString]) -> Result<Vec<OsString>, Usage> {
    let mut adapted = Vec::new();
    for (at, argument) in arguments.iter().enumerate() {
        if argument == "--" {
            adapted.extend_from_slice(&arguments[at..]);
            break;
        }
        let no_value = arguments.get(at + 1).is_none_or(|next| is_option(next));
        match letters(argument) {
            Some(letters) => adapted.extend(adapt_letters(letters, no_value)?),
            None => adapted.push(argument.clone()),
        }
    }
    Ok(adapted)
}

fn is_option(argument: &OsStr) -> bool {
    argument.len() > 1 && argument.as_encoded_bytes().starts_with(b"-")
}

/// Short options that are written together.
fn letters(argument: &OsStr) -> Option<&str> {
    let letters = argument.to_str()?.strip_prefix('-')?;
    let is_letter = |c: char| c.is_ascii_alphanumeric();
    (!letters.is_empty() && letters.chars().all(is_letter)).then_some(letters)
}

/// The same options, if any are left. Behind them is `no_value`.
fn adapt_letters(letters: &str, no_value: bool) -> Result<Option<OsString>, Usage> {
    let (flags, value) =
        letters.find(['a', 'r', 'I', 'N', 'Q']).map_or((letters, ""), |at| letters.split_at(at));
    let is_bare = value.len() == 1 && no_value;
    let mut rest = flags.to_owned();
    if let Some(name) = value.strip_prefix('a') {
        let together = !name.is_empty() && name.chars().all(|c| WITH_ALL.contains(c));
        rest += if is_bare || together { name } else { value };
    } else if let Some(file) = value.strip_prefix('r') {
        let together = !file.is_empty() && file.chars().all(|c| "nevW46C".contains(c));
        if is_bare || together && !Path::new(file).exists() {
            return Err(ROUTES);
        }
        rest += value;
    } else {
        rest += value;
    }
    let shows = |letter| flags.contains(letter);
    if shows('s') && (shows('t') || shows('u')) {
        return Err(ONE_PROTOCOL);
    }
    Ok((!rest.is_empty()).then(|| format!("-{rest}").into()))
}

/// Explains an unknown option by its meaning in netstat.
pub(crate) fn explain(error: Error, command: &mut Command) -> Error {
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => option,
        _ => return error,
    };
    match ABSENT.iter().find(|(absent, _)| absent == option) {
        Some((absent, meaning)) => {
            // Without the usage of this command, which does not help users who mean another
            // command.
            Error::raw(ErrorKind::UnknownArgument, format!("{absent} of netstat shows {meaning}\n"))
        }
        None => capture::explain(error, command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapted(line: &str) -> String {
        let words = line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        match adapt(&words) {
            Ok(words) => words.join(OsStr::new(" ")).into_string().unwrap(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn all_sockets_are_all_conversations() {
        for (line, meant) in [
            ("-a", ""),
            ("-an", "-n"),
            ("-na", "-n"),
            ("-ant", "-nt"),
            ("-tuna", "-tun"),
            ("-a -n udp", "-n udp"),
            ("-anp", "-np"),
            ("-a --json", "--json"),
        ] {
            assert_eq!(adapted(line), meant, "{line}");
        }
    }

    #[test]
    fn what_has_another_meaning_is_left_alone() {
        for line in [
            "-a fwd",
            "-afwd",
            "-na fwd",
            "-a n",
            "-c -a n -t",
            "-r in.pcap",
            "-nr in.pcap",
            "-tnr - udp",
            "-rin.pcap",
            "-N 5",
            "-N5",
            "-I 2s -c",
            "-Qin",
            "-tunl",
            "-- -an",
            "--app n",
            "-s udp",
        ] {
            assert_eq!(adapted(line), line);
        }
    }

    #[test]
    fn what_is_not_here_is_told() {
        for line in ["-r", "-rn", "-nr", "-r -n", "-nre"] {
            assert!(adapted(line).contains("routes of the kernel"), "{line}");
        }
        for line in ["-su", "-st", "-nsu"] {
            assert!(adapted(line).contains("netstat -s udp"), "{line}");
        }
    }
}

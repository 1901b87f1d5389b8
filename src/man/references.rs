//! Files and other pages that belong to a command.

use clap::Command;
use pmdscope_bypass::DEFAULT_STATE_DIRECTORY;

/// A file, and what it is.
type NamedFile = (&'static str, &'static str);

/// Files of single commands.
const FILES: [(&str, &[NamedFile]); 6] = [
    (
        "bundle",
        &[(
            "pmdscope-bundle-TIME.tar.zst",
            "A bundle. INDEX.txt in it lists what it has, and what is missing.",
        )],
    ),
    (
        "bypass",
        &[(
            DEFAULT_STATE_DIRECTORY,
            "State of interfaces before 'up', and the XDP program of each.",
        )],
    ),
    (
        "capture",
        &[(
            "FILE.part",
            "A capture that is being written, or was killed: it can be read as it is.",
        )],
    ),
    (
        "completions",
        &[
            ("/etc/bash_completion.d/pmdscope", "Completion in bash."),
            ("~/.zfunc/_pmdscope", "Completion in zsh, where fpath has ~/.zfunc."),
            ("~/.config/fish/completions/pmdscope.fish", "Completion in fish."),
        ],
    ),
    (
        "record",
        &[
            (
                "pmdscope-TIME.jsonl.zst",
                "A file of a recording in a directory: lines of JSON, compressed by Zstandard.",
            ),
            ("FILE.part", "A file that is being written, or was killed: it can be read as it is."),
        ],
    ),
    (
        "pmdscope",
        &[
            (
                "/etc/pmdscope/pmdscope.toml",
                "Configuration file, if it exists. $PMDSCOPE_CONFIG and --config name another.",
            ),
            (
                "/var/run/dpdk/PREFIX",
                "Runtime directory of an app, with the socket of its telemetry.",
            ),
        ],
    ),
];

/// Of commands about apps.
const OF_APPS: NamedFile = (
    "/var/run/dpdk/PREFIX",
    "Runtime directory of an app. Others are searched below $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR, \
     /run/user and /tmp.",
);
/// Of commands that read the configuration.
const CONFIGURATION: NamedFile = (
    "/etc/pmdscope/pmdscope.toml",
    "Configuration file, if it exists and neither $PMDSCOPE_CONFIG nor --config names one.",
);

/// Pages of other programs, by command.
const OTHERS: [(&str, &[(&str, u8)]); 8] = [
    ("bypass", &[("ethtool", 8), ("ip-link", 8)]),
    ("bundle", &[("tar", 1), ("zstd", 1)]),
    ("capture", &[("tcpdump", 8), ("pcap-filter", 7), ("tshark", 1)]),
    ("interrupts", &[("bpftrace", 8)]),
    ("netstat", &[("netstat", 8), ("ss", 8), ("pcap-filter", 7)]),
    ("record", &[("zstd", 1), ("jq", 1)]),
    ("top", &[("top", 1)]),
    ("xdp", &[("ip-link", 8), ("nft", 8)]),
];

/// Pages of this program, by command.
const RELATED: [(&str, &[&str]); 14] = [
    ("bundle", &["record", "top", "doctor", "leaks"]),
    ("bypass", &["xdp", "capture"]),
    ("capture", &["netstat", "bundle"]),
    ("check", &["top", "doctor", "record", "export"]),
    ("completions", &[]),
    ("doctor", &["check", "bundle"]),
    ("export", &["check", "record"]),
    ("interrupts", &["lcores", "check"]),
    ("lcores", &["interrupts", "record"]),
    ("leaks", &["check", "record", "bundle"]),
    ("ls", &["top", "capture"]),
    ("netstat", &["capture", "record"]),
    ("record", &["top", "check", "leaks", "bundle"]),
    ("top", &["check", "record", "netstat", "lcores"]),
];

/// The files of a command, which is called by its name in the name of its page.
pub(super) fn files(name: &str, command: &Command) -> Vec<NamedFile> {
    let has = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    let own = FILES.iter().find(|(of, _)| *of == outer(name));
    let mut files = own.map_or(Vec::new(), |(_, files)| files.to_vec());
    files.extend(has("app").then_some(OF_APPS));
    files.extend(has("config").then_some(CONFIGURATION));
    files
}

/// The pages to read next, with their sections.
pub(super) fn see_also(name: &str, command: &Command) -> Vec<(String, u8)> {
    let own = |name: &str| (format!("pmdscope-{name}"), 1);
    let mut pages = Vec::new();
    if name != "pmdscope" {
        pages.push(("pmdscope".to_owned(), 1));
    }
    if outer(name) != name {
        pages.push(own(outer(name)));
    }
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    pages.extend(inner.map(|inner| match name {
        "pmdscope" => own(inner.get_name()),
        name => own(&format!("{name}-{}", inner.get_name())),
    }));
    let related = RELATED.iter().find(|(of, _)| *of == name);
    pages.extend(related.into_iter().flat_map(|(_, names)| names.iter()).map(|name| own(name)));
    let others = OTHERS.iter().find(|(of, _)| *of == outer(name));
    let others = others.into_iter().flat_map(|(_, pages)| pages.iter());
    pages.extend(others.map(|(page, section)| ((*page).to_owned(), *section)));
    pages
}

/// The command that a command belongs to: `bypass` of `bypass-up`.
fn outer(name: &str) -> &str {
    name.split_once('-').map_or(name, |(outer, _)| outer)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn references_lead_to_commands() {
        let cli = crate::Cli::command();
        let is_command =
            |name: &str| cli.find_subcommand(name).is_some_and(|found| !found.is_hide_set());
        for (name, related) in RELATED {
            assert!(is_command(name), "{name}");
            for related in related {
                assert!(is_command(related) && *related != name, "{name}: {related}");
            }
        }
        for name in FILES.map(|(name, _)| name).into_iter().chain(OTHERS.map(|(name, _)| name)) {
            assert!(is_command(name) || name == "pmdscope", "{name}");
        }
    }
}

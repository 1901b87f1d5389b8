//! What may stand for a value on a command line: running apps, their ports, and files.
//!
//! A shell inserts candidates into a command line, and their names come from other users: those that a shell
//! could take for more than a word are left out. Errors leave out candidates, too.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use clap_complete::PathCompleter;
use clap_complete::engine::ValueCompleter;
use pmdscope_telemetry::discover::{DiscoveredApp, Reachability, primary};
use pmdscope_telemetry::{AppLock, Deadline, FleetSettings, PortId, TelemetryClient};

use crate::config::ConfigArg;

/// Endings of captures, without that of a compression, and of bundles.
pub(super) const CAPTURES: [&str; 5] = [".pcapng", ".pcap", ".cap", ".dmp", ".tar.zst"];
/// Endings of recordings and bundles.
pub(super) const RECORDINGS: [&str; 3] = [".jsonl.zst", ".jsonl.zst.part", ".tar.zst"];
/// Endings of compressed captures.
const COMPRESSIONS: [&str; 3] = [".gz", ".zst", ".lz4"];

/// How long the search for apps may take.
const SEARCH: Duration = Duration::from_millis(300);
/// How long an app may take for the list of its ports.
const ANSWER: Duration = Duration::from_millis(300);
/// Most candidates: nobody reads more.
const MOST: usize = 500;

/// Running apps whose names begin so. None of them is connected to.
pub(super) fn apps(begin: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begin) = begin.to_str() else { return Vec::new() };
    let apps = running(&settings()).into_iter();
    apps.filter(|app| app.name.starts_with(begin)).map(|app| candidate(app.name)).collect()
}

/// What may stand behind `-i`: apps, and the ports of an app that is written out. That app alone is asked.
pub(super) fn interfaces(begin: &OsStr) -> Vec<CompletionCandidate> {
    let Some(begin) = begin.to_str() else { return Vec::new() };
    let apps = running(&settings());
    let written = apps.iter().filter(|app| is_written_out(app, begin));
    let mut names = Vec::new();
    // A name may begin with that of another app and a colon.
    match (written.max_by_key(|app| app.name.len()), apps.as_slice()) {
        (Some(app), _) | (None, [app]) => {
            names.push(format!("{}:any", app.name));
            names.extend(ports(app).into_iter().map(|port| format!("{}:{port}", app.name)));
        }
        (None, _) => names.extend(apps.iter().map(|app| format!("{}:", app.name))),
    }
    names.push("any".to_owned());
    names.retain(|name| name.starts_with(begin));
    names.into_iter().map(candidate).collect()
}

fn is_written_out(app: &DiscoveredApp, begin: &str) -> bool {
    begin.strip_prefix(&app.name).is_some_and(|rest| rest.starts_with(':'))
}

/// Files below the directory of a word whose names have one of these endings, and directories. If there are
/// none, all files: names may be any.
pub(super) fn files(begin: &OsStr, endings: &[&'static str]) -> Vec<CompletionCandidate> {
    let wanted = endings.to_vec();
    let named =
        PathCompleter::file().filter(move |path| path.is_file() && has_ending(path, &wanted));
    let is_file = |found: &CompletionCandidate| !is_directory(found.get_value());
    let mut found = named.complete(begin);
    if !found.iter().any(is_file) {
        found = PathCompleter::file().complete(begin);
    }
    found.retain(|found| is_harmless_path(found.get_value()));
    found.truncate(MOST);
    found
}

fn is_directory(path: &OsStr) -> bool {
    path.as_encoded_bytes().ends_with(b"/")
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return false };
    let plain = COMPRESSIONS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    endings.iter().any(|ending| name.ends_with(ending) || plain.ends_with(ending))
}

/// The settings of the usual configuration.
fn settings() -> FleetSettings {
    let mut settings = ConfigArg::default().load().unwrap_or_default().settings;
    settings.discover.timeout = SEARCH;
    settings
}

/// Apps that run, by the lock of their directory; an app that runs in memory has none.
fn running(settings: &FleetSettings) -> Vec<DiscoveredApp> {
    let mut apps = settings.names();
    apps.retain(|app| {
        let is_locked = || primary(&app.dir).is_ok_and(|pid| pid.is_some());
        let is_in_memory = || !app.dir.join("config").exists() && app.socket.exists();
        app.state == Reachability::Stale
            && is_harmless(&app.name)
            && (is_locked() || is_in_memory())
    });
    apps.truncate(MOST);
    apps
}

/// The ids of the ports of an app; none if it does not answer at once, or another tool is asking it.
fn ports(app: &DiscoveredApp) -> Vec<u16> {
    let deadline = Deadline::after(ANSWER);
    let Ok(lock) = AppLock::open(&app.dir) else { return Vec::new() };
    let Ok(_held) = lock.hold(deadline) else { return Vec::new() };
    let ports = TelemetryClient::connect(&app.socket, deadline)
        .and_then(|mut client| client.ports(deadline))
        .unwrap_or_default();
    ports.into_iter().map(PortId::number).take(MOST).collect()
}

fn candidate(name: impl Into<OsString>) -> CompletionCandidate {
    CompletionCandidate::new(name)
}

/// A name that is one word in every shell, and no option.
fn is_harmless(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:@/+".contains(c);
    !name.starts_with('-') && !name.is_empty() && name.chars().all(is_plain)
}

/// A path in which no shell finds a command, whether or not it is quoted.
fn is_harmless_path(path: &OsStr) -> bool {
    path.to_str()
        .is_some_and(|path| !path.chars().any(|c| c.is_control() || "`$;|&<>!\\\"'".contains(c)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn values(found: &[CompletionCandidate]) -> Vec<String> {
        found.iter().map(|found| found.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn files_are_those_that_the_command_reads() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "a.pcap",
            "b.pcapng.zst",
            "c.jsonl.zst",
            "d.tar.zst",
            "e.txt",
            "$(x).pcap",
            "f\ng.pcap",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        fs::create_dir(dir.path().join("sub")).unwrap();
        let within = |begin: &str, endings: &[&'static str]| {
            let begin = dir.path().join(begin);
            let found = values(&files(begin.as_os_str(), endings));
            let directory = dir.path().to_str().unwrap();
            found
                .iter()
                .map(|path| path.strip_prefix(directory).unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(within("", &CAPTURES), ["/a.pcap", "/b.pcapng.zst", "/d.tar.zst", "/sub/"]);
        assert_eq!(within("", &RECORDINGS), ["/c.jsonl.zst", "/d.tar.zst", "/sub/"]);
        // Nothing else is there.
        assert_eq!(within("e", &CAPTURES), ["/e.txt"]);
        assert!(within("z", &CAPTURES).is_empty());
    }

    #[test]
    fn names_that_a_shell_would_take_apart_are_left_out() {
        for name in ["fwd", "rte:1", "alice/fwd", "rte@4f1c", "a.b_c-d+e"] {
            assert!(is_harmless(name), "{name}");
        }
        for name in ["", "-x", "a b", "$(reboot)", "a;b", "a\nb", "`x`", "a*", "é"] {
            assert!(!is_harmless(name), "{name}");
        }
    }

    #[test]
    fn a_port_follows_an_app_that_is_written_out() {
        let app =
            |name: &str| DiscoveredApp::in_dir("/nowhere", name, "socket", Reachability::Live);
        assert!(is_written_out(&app("fwd"), "fwd:") && is_written_out(&app("fwd"), "fwd:0"));
        assert!(is_written_out(&app("fwd:1"), "fwd:1:"));
        assert!(!is_written_out(&app("fwd"), "fwd") && !is_written_out(&app("fw"), "fwd:0"));
    }
}

//! Errors of choosing an app, with advice.

use std::path::PathBuf;

use super::unreadable::unreadable_text;
use super::{DiscoveredApp, UnreachableReason};
use crate::printable::harmless;

/// Most apps that an error names.
const MOST_NAMES: usize = 20;

/// The reason why no single app could be chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// No app runs.
    #[error("{}", no_app(.roots, .unreadable, *.hidden))]
    NoApp {
        /// The directories that were searched.
        roots: Vec<PathBuf>,
        /// Directories that could not be read.
        unreadable: Vec<PathBuf>,
        /// There are processes with mount namespaces that could not be read.
        hidden: bool,
    },
    /// No app has this name.
    #[error("{}", unknown(.name, .running, .unreadable))]
    Unknown {
        /// The requested name.
        name: String,
        /// The running apps.
        running: Vec<DiscoveredApp>,
        /// Directories that could not be read.
        unreadable: Vec<PathBuf>,
    },
    /// The search was interrupted.
    #[error("interrupted while looking for apps")]
    Interrupted,
    /// Several apps match: no name was given, or the name or prefix is not unique.
    #[error("several DPDK apps match; choose one with --app: {}", names(.0))]
    Several(Vec<DiscoveredApp>),
    /// The app runs without a telemetry socket.
    #[error("{} runs without telemetry; start it without --no-telemetry", harmless(&.0.name, &[]))]
    NoTelemetry(Box<DiscoveredApp>),
    /// The app cannot be queried.
    #[error("cannot ask {}: {}", harmless(&.0.name, &[]), .0.with_activity(.1.advice().into()))]
    Unreachable(Box<DiscoveredApp>, UnreachableReason),
}

fn paths(roots: &[PathBuf], leaf: &str) -> String {
    let paths: Vec<_> = roots.iter().map(|root| root.join(leaf).display().to_string()).collect();
    harmless(&paths.join(", "), &[])
}

/// If directories could not be read, these are the reason, and the whole message.
fn no_app(roots: &[PathBuf], unreadable: &[PathBuf], hidden: bool) -> String {
    unreadable_text(unreadable).unwrap_or_else(|| {
        let (paths, hidden) = (paths(roots, "dpdk"), hidden_hint(hidden));
        format!(
            "no running DPDK app under {paths}; start one, or run as the user of the app{hidden}"
        )
    })
}

fn unknown(name: &str, running: &[DiscoveredApp], unreadable: &[PathBuf]) -> String {
    let mut unknown = format!("no DPDK app is named {name:?}; running: {}", names(running));
    let of_others = running.iter().filter(|app| app.user.is_some());
    let of_others = of_others.filter(|app| app.name == app.qualified(name.to_owned()));
    if let Some(app) = of_others.map(|app| &app.name).next() {
        unknown += &harmless(&format!("; {app} belongs to another user: give its whole name"), &[]);
    }
    match unreadable_text(unreadable) {
        None => unknown,
        Some(cause) if running.is_empty() => cause,
        Some(cause) => format!("{cause}; of those that can be seen, {unknown}"),
    }
}

/// Returns a hint who can see the apps that this program may not see.
fn hidden_hint(hidden: bool) -> &'static str {
    if hidden {
        "; apps in containers are seen with CAP_SYS_PTRACE only, as by root of the host"
    } else {
        ""
    }
}

/// Returns the names, or the directory if a name is not unique, since that is accepted as a name too.
fn names(apps: &[DiscoveredApp]) -> String {
    if apps.is_empty() {
        return "none".to_owned();
    }
    let unique =
        |app: &DiscoveredApp| apps.iter().filter(|other| other.name == app.name).count() == 1;
    let name = |app: &DiscoveredApp| {
        if unique(app) { app.name.clone() } else { app.dir.display().to_string() }
    };
    // Other users may have many.
    let (own, others): (Vec<_>, Vec<_>) = apps.iter().partition(|app| app.user.is_none());
    let names: Vec<_> = own.into_iter().chain(others).take(MOST_NAMES).map(name).collect();
    let more = match apps.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    harmless(&(names.join(", ") + &more), &[])
}

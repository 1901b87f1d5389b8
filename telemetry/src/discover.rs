//! Finds running DPDK apps.
//!
//! EAL never removes its runtime directories, so a directory proves nothing: an app runs when its
//! socket accepts a connection, or when the lock on its `config` file is held.

mod find_error;
mod namespaces;
mod unreadable;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};
use serde::Serialize;

use crate::client::TelemetryClient;
use crate::deadline::Deadline;
use crate::error::{ErrorClass, TelemetryError};
use crate::host::foreign::{open_file, root_pid};
use crate::host::{Container, process};
use crate::parallel;

pub use self::find_error::FindError;
pub use self::unreadable::{UnreadableWarning, unreadable, unreadable_text};

/// Name of the telemetry socket; further in-memory instances append `:N`.
const SOCKET: &str = "dpdk_telemetry.v2";

/// Longest startup time of the EAL until it opens the telemetry socket: with many hugepages it takes
/// a minute.
const LONGEST_START: Duration = Duration::from_secs(180);

/// The EAL option of an app without a telemetry socket.
const NO_TELEMETRY: &str = "--no-telemetry";

/// Where and how to search for apps.
#[derive(Clone, Debug)]
pub struct DiscoverOptions {
    /// Directories that may hold `dpdk/<prefix>`.
    pub roots: Vec<PathBuf>,
    /// The mount point of proc, to search the mount namespaces of all other processes too; `None` to
    /// leave those out.
    pub proc: Option<PathBuf>,
    /// Whether to list directories of ended apps too.
    pub stale: bool,
    /// How long to wait for the banner of each app.
    pub timeout: Duration,
}

impl Default for DiscoverOptions {
    /// The directories in which EAL puts its runtime files, for any user it may run as.
    fn default() -> Self {
        let from_env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let roots = [
            from_env("RUNTIME_DIRECTORY"),
            Some("/var/run".into()),
            from_env("XDG_RUNTIME_DIR"),
            Some("/tmp".into()),
        ];
        Self {
            roots: roots.into_iter().flatten().collect(),
            proc: Some(process::PROC.into()),
            stale: false,
            timeout: Duration::from_millis(300),
        }
    }
}

/// A DPDK app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoveredApp {
    /// File-prefix, followed by `:N` for further in-memory instances.
    pub name: String,
    /// Runtime directory.
    pub dir: PathBuf,
    /// Telemetry socket, whether or not it exists.
    pub socket: PathBuf,
    /// Process id on this host; `None` when unknown.
    pub pid: Option<u32>,
    /// DPDK version, as "DPDK 22.11.11"; `None` when unknown.
    pub dpdk_version: Option<String>,
    /// The container that it runs in.
    pub container: Option<Container>,
    /// Whether it can be queried.
    #[serde(flatten)]
    pub state: Reachability,
}

impl DiscoveredApp {
    /// Returns an app of which only its runtime directory and the name of its socket there are known.
    pub fn in_dir(
        dir: impl Into<PathBuf>,
        name: impl Into<String>,
        socket: &str,
        state: Reachability,
    ) -> Self {
        let dir = dir.into();
        let socket = dir.join(socket);
        let name = name.into();
        Self { name, dir, socket, pid: None, dpdk_version: None, container: None, state }
    }
}

/// Whether an app can be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
pub enum Reachability {
    /// Its telemetry socket answers.
    Live,
    /// It runs without telemetry, so that nothing is known about it.
    NoTelemetry,
    /// It has ended and left its files behind.
    Stale,
    /// It may run, but cannot be queried.
    Unreachable(UnreachableReason),
}

/// Why an app cannot be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnreachableReason {
    /// It belongs to another user.
    Permission,
    /// It has locked its configuration, but not opened its socket yet.
    Starting,
    /// Its socket refuses connections, and its lock cannot be read.
    Refused,
    /// It accepts the connection, but sends nothing: it is stopped or overloaded.
    Timeout,
    /// All of its telemetry connections are taken.
    Busy,
    /// The process that listens does not speak DPDK's telemetry protocol.
    Protocol,
    /// This program failed during the query, which is a bug.
    Internal,
}

impl From<ErrorClass> for UnreachableReason {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::Permission => Self::Permission,
            ErrorClass::Timeout => Self::Timeout,
            ErrorClass::Busy => Self::Busy,
            ErrorClass::Refused | ErrorClass::Missing | ErrorClass::TelemetryOff => Self::Refused,
            ErrorClass::IdentityMismatch | ErrorClass::Protocol | ErrorClass::Truncated => {
                Self::Protocol
            }
            ErrorClass::Internal => Self::Internal,
        }
    }
}

impl From<UnreachableReason> for ErrorClass {
    fn from(why: UnreachableReason) -> Self {
        match why {
            UnreachableReason::Permission => Self::Permission,
            UnreachableReason::Refused | UnreachableReason::Starting => Self::Refused,
            UnreachableReason::Timeout => Self::Timeout,
            UnreachableReason::Busy => Self::Busy,
            UnreachableReason::Protocol => Self::Protocol,
            UnreachableReason::Internal => Self::Internal,
        }
    }
}

impl UnreachableReason {
    /// Returns the meaning, and what to do next.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Permission => "permission denied: run as root or as the user of the app",
            Self::Starting => {
                "it is starting and has not opened its telemetry socket yet: wait, with many \
                 hugepages for a minute or more"
            }
            Self::Refused => "its socket refuses connections: check whether the app still runs",
            Self::Timeout => "it does not answer in time: check whether the app is stopped",
            Self::Busy => "its 10 telemetry connections are taken: close other telemetry clients",
            Self::Protocol => "what listens there does not speak DPDK telemetry: check the path",
            Self::Internal => "pmdscope itself failed while it asked: please report this",
        }
    }
}

/// Returns the apps on this machine, sorted by name.
pub fn discover(options: &DiscoverOptions) -> Vec<DiscoveredApp> {
    look(options, &[])
}

/// Searches as [`discover`], without connecting to apps that the caller is `connected` to: each
/// connection starts a thread in the app, and takes one of ten.
pub fn look(options: &DiscoverOptions, connected: &[DiscoveredApp]) -> Vec<DiscoveredApp> {
    let probe = |app: DiscoveredApp| match connected.iter().find(|known| known.socket == app.socket)
    {
        Some(known) => known.called(app.name),
        None => probe(app, options.timeout),
    };
    let mut apps = all_instances(&runtime_dirs(options), &probe);
    apps.retain(|app| options.stale || app.state != Reachability::Stale);
    apps.sort_by(|a, b| (&a.name, &a.dir).cmp(&(&b.name, &b.dir)));
    apps
}

/// Returns the only live app with this file-prefix (and `:N`) or runtime directory, or the only one
/// with a name that begins with `name`; without a name, the only live app.
///
/// # Errors
/// When there is none, when there are several, or when it cannot be queried.
pub fn find(name: Option<&str>, options: &DiscoverOptions) -> Result<DiscoveredApp, FindError> {
    choose(name, discover(&DiscoverOptions { stale: false, ..options.clone() }), options)
}

/// Returns the only live app of that name among `running`, or the only one with a name that begins with it.
pub(crate) fn choose(
    name: Option<&str>,
    running: Vec<DiscoveredApp>,
    options: &DiscoverOptions,
) -> Result<DiscoveredApp, FindError> {
    if running.is_empty() && name.is_none() {
        let (roots, unreadable) = (options.roots.clone(), unreadable(options));
        let hidden = options.proc.as_deref().is_some_and(namespaces::are_hidden);
        return Err(FindError::NoApp { roots, unreadable, hidden });
    }
    let mut matching: Vec<DiscoveredApp> = match name {
        Some(name) => named(name, &running),
        None => running.clone(),
    };
    if matching.iter().any(|app| app.state == Reachability::Live) {
        matching.retain(|app| app.state == Reachability::Live);
    }
    match (matching.pop(), matching.is_empty()) {
        (Some(app), true) => app.live(),
        (Some(app), false) => {
            matching.push(app);
            Err(FindError::Several(matching))
        }
        (None, _) => {
            let (name, unreadable) = (name.unwrap_or_default().into(), unreadable(options));
            Err(FindError::Unknown { name, running, unreadable })
        }
    }
}

/// Returns the apps of that name; if there are none, those with names that begin with it.
pub(crate) fn named(name: &str, running: &[DiscoveredApp]) -> Vec<DiscoveredApp> {
    let exact: Vec<DiscoveredApp> =
        running.iter().filter(|app| app.is_called(name)).cloned().collect();
    if !exact.is_empty() || name.is_empty() {
        return exact;
    }
    running.iter().filter(|app| app.begins_with(name)).cloned().collect()
}

impl DiscoveredApp {
    /// Returns the same app, live, with this name.
    fn called(&self, name: String) -> Self {
        Self { name, state: Reachability::Live, ..self.clone() }
    }

    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name
            || self.prefix().is_some_and(|prefix| prefix == name)
            || self.name_in_container().is_some_and(|own| own == name)
            || self.dir == Path::new(name)
            || self.socket == Path::new(name)
    }

    /// Whether its name or its file-prefix begins with `text`.
    fn begins_with(&self, text: &str) -> bool {
        let others = [self.prefix(), self.name_in_container()];
        self.name.starts_with(text) || others.iter().flatten().any(|name| name.starts_with(text))
    }

    /// Returns its file-prefix and its container, which distinguish it from apps in other containers:
    /// `rte@4f1c9a2b3c4d`.
    pub(crate) fn name_in_container(&self) -> Option<String> {
        Some(format!("{}@{}", self.prefix()?, self.container.as_ref()?.short_id()))
    }

    /// Returns its file-prefix, followed by `:N` for further in-memory instances, whatever its name.
    fn prefix(&self) -> Option<String> {
        let suffix = instance_suffix(self.socket.file_name()?.to_str()?)?;
        Some(format!("{}{suffix}", self.dir.file_name()?.to_string_lossy()))
    }

    /// Returns `reason` and, for an app that does not answer in time, what its process does as far as
    /// the kernel reports it.
    pub fn with_activity(&self, reason: String) -> String {
        let silent = self.state == Reachability::Unreachable(UnreachableReason::Timeout);
        let pid = self.pid.filter(|_| silent);
        match pid.and_then(|pid| Some((pid, process::activity(pid)?))) {
            Some((pid, activity)) => format!("{reason}; process {pid} {activity}"),
            None => reason,
        }
    }

    fn live(self) -> Result<Self, FindError> {
        match self.state {
            Reachability::Live => Ok(self),
            Reachability::NoTelemetry => Err(FindError::NoTelemetry(self.into())),
            Reachability::Unreachable(reason) => Err(FindError::Unreachable(self.into(), reason)),
            Reachability::Stale => {
                let (running, unreadable) = (Vec::new(), Vec::new());
                Err(FindError::Unknown { name: self.name, running, unreadable })
            }
        }
    }
}

/// Returns all `dpdk/<prefix>` directories; each once, though roots may be links to each other, and
/// containers may share directories with the host.
fn runtime_dirs(options: &DiscoverOptions) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let mut dirs = Vec::new();
    let here = options.roots.iter().map(|root| root.join("dpdk"));
    let elsewhere = options.proc.iter().flat_map(|proc| namespaces::dpdk_dirs(proc));
    for parent in here.chain(elsewhere) {
        let Ok(entries) = fs::read_dir(parent) else { continue };
        for dir in entries.flatten().map(|entry| entry.path()) {
            // EAL creates no links; those of other users could lead root anywhere.
            let Ok(metadata) = fs::symlink_metadata(&dir) else { continue };
            if metadata.is_dir() && seen.insert((metadata.dev(), metadata.ino())) {
                dirs.push(dir);
            }
        }
    }
    dirs
}

/// Returns the apps of all runtime directories.
fn all_instances(
    dirs: &[PathBuf],
    probe: &(impl Fn(DiscoveredApp) -> DiscoveredApp + Sync),
) -> Vec<DiscoveredApp> {
    let apps = parallel::map(dirs.iter().collect(), |dir: &PathBuf| instances_or_panic(dir, probe));
    apps.into_iter().flatten().collect()
}

/// Returns the apps of one runtime directory; after a panic, an app that cannot be queried, so that
/// none is taken for ended.
fn instances_or_panic(
    dir: &Path,
    probe: &impl Fn(DiscoveredApp) -> DiscoveredApp,
) -> Vec<DiscoveredApp> {
    catch_unwind(AssertUnwindSafe(|| instances(dir, probe))).unwrap_or_else(|_| {
        let prefix = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        vec![DiscoveredApp::in_dir(
            dir,
            prefix,
            SOCKET,
            Reachability::Unreachable(UnreachableReason::Internal),
        )]
    })
}

/// Returns the apps of one runtime directory: one per socket, or one for the directory.
fn instances(dir: &Path, probe: impl Fn(DiscoveredApp) -> DiscoveredApp) -> Vec<DiscoveredApp> {
    let Some(prefix) = dir.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return Vec::new();
    };
    let app = |name, socket: &str, state| DiscoveredApp::in_dir(dir, name, socket, state);
    let Ok(entries) = fs::read_dir(dir) else {
        return vec![app(prefix, SOCKET, Reachability::Unreachable(UnreachableReason::Permission))];
    };
    let files = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut apps: Vec<DiscoveredApp> = files
        .filter_map(|file| {
            let suffix = instance_suffix(&file)?;
            Some(probe(app(format!("{prefix}{suffix}"), &file, Reachability::Stale)))
        })
        .collect();
    // In-memory apps have no lock; a lock without a live socket belongs to an app without telemetry.
    if !apps.iter().any(|app| app.name == prefix) {
        apps.push(app(prefix.clone(), SOCKET, Reachability::Stale));
    }
    for app in apps.iter_mut().filter(|app| app.name == prefix) {
        match app.state {
            Reachability::Stale => (app.state, app.pid) = unanswered(&primary(dir)),
            Reachability::Unreachable(UnreachableReason::Timeout) => {
                app.pid = app.pid.or(primary(dir).ok().flatten().filter(|pid| *pid > 0));
            }
            _ => {}
        }
    }
    for app in &mut apps {
        app.container = app.pid.or(root_pid(dir)).and_then(Container::of);
    }
    apps
}

/// Returns `""` for the first instance, `":N"` for further ones, `None` for another file.
fn instance_suffix(file: &str) -> Option<&str> {
    let suffix = file.strip_prefix(SOCKET)?;
    let number = suffix.strip_prefix(':').is_some_and(|n| n.parse::<u32>().is_ok());
    (suffix.is_empty() || number).then_some(suffix)
}

/// Connects to an app and reads the banner. DPDK before 22.11.5 leaks a connection when a client
/// closes it before the banner, so waiting for it also protects the app.
fn probe(mut app: DiscoveredApp, timeout: Duration) -> DiscoveredApp {
    let (mut peer, deadline) = (None, Deadline::after(timeout));
    let connected = TelemetryClient::connect_to(&app.socket, &mut peer, deadline);
    app.pid = peer.map(|peer| peer.pid).filter(|pid| *pid > 0);
    app.state = match connected {
        Ok(client) => {
            app.dpdk_version = Some(client.banner().version.clone());
            Reachability::Live
        }
        Err(TelemetryError::Refused) => Reachability::Stale,
        Err(TelemetryError::Permission) => Reachability::Unreachable(UnreachableReason::Permission),
        Err(TelemetryError::Timeout(_)) => Reachability::Unreachable(UnreachableReason::Timeout),
        Err(TelemetryError::Busy) => Reachability::Unreachable(UnreachableReason::Busy),
        Err(_) => Reachability::Unreachable(UnreachableReason::Protocol),
    };
    app
}

/// Returns the state of an app with a socket that is missing or refuses connections.
fn unanswered(lock: &io::Result<Option<u32>>) -> (Reachability, Option<u32>) {
    match lock {
        Ok(Some(pid)) => {
            let state = without_socket(process::arguments(*pid).as_deref(), process::age(*pid));
            (state, Some(*pid).filter(|pid| *pid > 0))
        }
        Ok(None) => (Reachability::Stale, None),
        Err(_) => (Reachability::Unreachable(UnreachableReason::Refused), None),
    }
}

/// Returns the state of a process that runs without a socket. Its arguments tell whether it will open
/// one and, if it may have passed other arguments to the EAL, its age.
fn without_socket(arguments: Option<&[String]>, age: Option<Duration>) -> Reachability {
    let eal = arguments.unwrap_or_default().iter().take_while(|argument| *argument != "--");
    // The EAL accepts abbreviated options as well.
    let is_off =
        |argument: &String| argument.len() > 6 && NO_TELEMETRY.starts_with(argument.as_str());
    if !eal.into_iter().any(is_off) && age.is_some_and(|age| age < LONGEST_START) {
        return Reachability::Unreachable(UnreachableReason::Starting);
    }
    Reachability::NoTelemetry
}

/// Returns the primary process of a runtime directory, which holds the lock on `config`; 0 for a
/// process that is not visible from here.
///
/// # Errors
/// If the lock cannot be read.
pub fn primary(dir: &Path) -> io::Result<Option<u32>> {
    // Non-blocking, in case it is a FIFO, in a directory that any user may write to.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let config = match open_file(&dir.join("config"), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let holder = fcntl_getlk(&config, &Flock::from(FlockType::WriteLock))?;
    Ok(holder.map(|lock| {
        lock.pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok()).unwrap_or(0)
    }))
}

#[cfg(test)]
#[path = "discover_tests.rs"]
mod tests;

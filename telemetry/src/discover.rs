//! Finds running DPDK apps.
//!
//! EAL never removes its runtime directories, so a directory proves nothing: an app runs when its
//! socket accepts a connection, or when the lock on its `config` file is held.

mod choice;
mod find_error;
mod identify;
mod listing;
mod namespaces;
mod stop;
mod unreadable;
mod users;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};
use serde::Serialize;

use self::users::Crowd;
use crate::deadline::Deadline;
use crate::error::ErrorClass;
use crate::host::foreign::open_file;
use crate::host::{Container, process};

pub use self::choice::find;
#[cfg(test)]
pub(crate) use self::choice::named;
pub(crate) use self::choice::{choose, no_app, one_live};
pub use self::find_error::FindError;
pub use self::stop::StopFlag;
pub use self::unreadable::{UnreadableWarning, unreadable, unreadable_text};
pub use self::users::LeftOut;

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
    /// Directories that may hold `dpdk/<prefix>`. [`DiscoverOptions::USERS`] stands for those of all
    /// users.
    pub roots: Vec<PathBuf>,
    /// The mount point of proc, to search the mount namespaces of all other processes too; `None` to
    /// leave those out.
    pub proc: Option<PathBuf>,
    /// Whether to list directories of ended apps too.
    pub stale: bool,
    /// How long to wait for the banners, of all apps together.
    pub timeout: Duration,
    /// Whether to list apps of users other than root and the caller.
    pub other_users: bool,
    /// Most apps of each other user; of all of them, four times as many.
    pub per_user: usize,
    /// Ends the search early.
    pub stop: StopFlag,
    /// What the last search left out.
    pub left_out: LeftOut,
}

impl DiscoverOptions {
    /// The runtime directories of all users: those below `/run/user`, and others in which a telemetry
    /// socket of a user other than root and the caller listens.
    pub const USERS: &str = "/run/user/*";

    /// Default of the most apps of each other user.
    const PER_USER: usize = 32;

    fn searches_users(&self) -> bool {
        self.roots.iter().any(|root| root == Path::new(Self::USERS))
    }
}

impl Default for DiscoverOptions {
    /// The directories in which EAL puts its runtime files, for any user it may run as.
    fn default() -> Self {
        let from_env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let roots = [
            from_env("RUNTIME_DIRECTORY"),
            Some("/var/run".into()),
            from_env("XDG_RUNTIME_DIR"),
            Some(Self::USERS.into()),
            Some("/tmp".into()),
        ];
        Self {
            roots: roots.into_iter().flatten().collect(),
            proc: Some(process::PROC.into()),
            stale: false,
            timeout: Duration::from_millis(300),
            other_users: true,
            per_user: Self::PER_USER,
            stop: StopFlag::default(),
            left_out: LeftOut::default(),
        }
    }
}

/// A DPDK app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoveredApp {
    /// File-prefix, after `USER/` for an app of a user other than root and the caller, and followed by
    /// `:N` for further in-memory instances.
    pub name: String,
    /// The user that it belongs to, unless that is root or the caller.
    pub user: Option<String>,
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
        Self {
            name,
            user: None,
            dir,
            socket,
            pid: None,
            dpdk_version: None,
            container: None,
            state,
        }
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
    /// Another user than the owner of its directory listens on its socket.
    Untrusted,
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
            ErrorClass::Untrusted => Self::Untrusted,
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
            UnreachableReason::Untrusted => Self::Untrusted,
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
            Self::Untrusted => {
                "another user than the owner of its directory listens there: it may pretend to be an \
                 app"
            }
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
    let deadline = Deadline::after(options.timeout);
    examine(listing::candidates(options, deadline), options, connected, deadline)
}

/// Searches as [`look`], but connects only to the apps that may have that name, and to those that may
/// be mistaken for them; `name_of` gives apps their names. Empty if no such app runs.
pub(crate) fn look_for(
    name: &str,
    name_of: impl Fn(&[DiscoveredApp]) -> Vec<DiscoveredApp>,
    options: &DiscoverOptions,
    connected: &[DiscoveredApp],
) -> Vec<DiscoveredApp> {
    let deadline = Deadline::after(options.timeout);
    // The name that an app has if no other one runs.
    let alone = |app: &DiscoveredApp| name_of(std::slice::from_ref(app)).pop().map(|it| it.name);
    let is_meant =
        |app: &DiscoveredApp| alone(app).is_some_and(|own| own == name) || app.is_called(name);
    let mut candidates = listing::candidates(options, deadline);
    let meant = candidates.iter().filter(|app| is_meant(app));
    let meant: BTreeSet<String> = meant.filter_map(alone).collect();
    candidates.retain(|app| alone(app).is_some_and(|own| meant.contains(&own)));
    let running = examine(candidates, options, connected, deadline);
    let named = name_of(&running);
    let exact: Vec<DiscoveredApp> = named.iter().filter(|app| app.name == name).cloned().collect();
    if !exact.is_empty() {
        return exact;
    }
    let called = running.iter().zip(named).filter(|(app, _)| is_meant(app));
    called.map(|(_, app)| app).collect()
}

/// Returns the names that apps may have, of which some may have ended. Nothing is connected to.
pub(crate) fn candidates(options: &DiscoverOptions) -> Vec<DiscoveredApp> {
    listing::candidates(options, Deadline::after(options.timeout))
}

/// Finds out which apps run, and which of them answer.
fn examine(
    candidates: Vec<DiscoveredApp>,
    options: &DiscoverOptions,
    connected: &[DiscoveredApp],
    deadline: Deadline,
) -> Vec<DiscoveredApp> {
    let (mut apps, mut unknown) = (Vec::new(), Vec::new());
    for app in candidates {
        match connected.iter().find(|known| known.socket == app.socket) {
            Some(known) => apps.push(known.called(app.name)),
            None if app.state == Reachability::Stale => unknown.push(app),
            None => apps.push(app),
        }
    }
    let mut crowd = Crowd::new(options.per_user);
    apps.extend(identify::identify(unknown, &mut crowd, deadline, &options.stop));
    apps.iter_mut().for_each(DiscoveredApp::settle);
    apps.retain(|app| options.stale || app.state != Reachability::Stale);
    // Those that answer first: one user may have more than are shown, of which most do not.
    apps.sort_by_key(|app| app.state != Reachability::Live);
    let mut shown = Crowd::new(options.per_user);
    apps.retain(|app| shown.admits(app.user.as_deref()));
    options.left_out.set(shown.and(crowd));
    apps.sort_by(|a, b| (&a.name, &a.dir).cmp(&(&b.name, &b.dir)));
    apps
}

impl DiscoveredApp {
    /// Returns the same app, live, with this name.
    fn called(&self, name: String) -> Self {
        Self { name, state: Reachability::Live, ..self.clone() }
    }

    /// Completes what is known of an app whose socket was connected to, by the lock of its directory.
    fn settle(&mut self) {
        let is_first = self.socket.file_name().is_some_and(|name| name == SOCKET);
        match self.state {
            // In-memory apps have no lock; a lock without a live socket belongs to an app without
            // telemetry.
            Reachability::Stale if is_first => {
                (self.state, self.pid) = unanswered(&primary(&self.dir));
            }
            Reachability::Unreachable(UnreachableReason::Timeout) if is_first => {
                self.pid = self.pid.or(primary(&self.dir).ok().flatten().filter(|pid| *pid > 0));
            }
            _ => {}
        }
        self.container = self.pid.and_then(Container::of).or(self.container.take());
    }

    /// Whether this is one of its names: those that tools give it, its file-prefix, its directory if
    /// it is the first instance there, and its socket.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let is_first = || self.socket.file_name().is_some_and(|file| file == SOCKET);
        self.name == name
            || self.prefix().is_some_and(|prefix| prefix == name)
            || self.is_in_container(name)
            || (self.dir == Path::new(name) && is_first())
            || self.socket == Path::new(name)
    }

    /// Whether a name is its file-prefix and the begin of the id of its container.
    fn is_in_container(&self, name: &str) -> bool {
        let id =
            name.rsplit_once('@').filter(|(prefix, _)| self.prefix().as_deref() == Some(*prefix));
        let (Some((_, id)), Some(container)) = (id, &self.container) else { return false };
        !id.is_empty() && container.id.starts_with(id)
    }

    /// Returns its file-prefix and its container, which distinguish it from apps in other containers:
    /// `rte@4f1c9a2b3c4d`.
    pub(crate) fn name_in_container(&self) -> Option<String> {
        Some(format!("{}@{}", self.prefix()?, self.container.as_ref()?.short_id()))
    }

    /// Returns its file-prefix, qualified and followed by `:N` as its name is, whatever its name.
    fn prefix(&self) -> Option<String> {
        let suffix = instance_suffix(self.socket.file_name()?.to_str()?)?;
        Some(self.qualified(format!("{}{suffix}", self.dir.file_name()?.to_string_lossy())))
    }

    /// Returns a name as that of an app of the same user.
    pub(crate) fn qualified(&self, name: String) -> String {
        match &self.user {
            Some(user) => format!("{user}/{name}"),
            None => name,
        }
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
}

/// Returns `""` for the first instance, `":N"` for further ones, `None` for another file.
fn instance_suffix(file: &str) -> Option<&str> {
    let suffix = file.strip_prefix(SOCKET)?;
    let number = suffix.strip_prefix(':').is_some_and(|n| n.parse::<u32>().is_ok());
    (suffix.is_empty() || number).then_some(suffix)
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

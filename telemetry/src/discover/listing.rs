//! The runtime directories, and the apps that may run in them. Nothing is connected to.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::users::UserNames;
use super::{DiscoverOptions, DiscoveredApp, Reachability, SOCKET, UnreachableReason};
use super::{instance_suffix, namespaces};
use crate::deadline::Deadline;
use crate::host::Container;
use crate::host::foreign::root_pid;
use crate::host::process;

/// Most entries that are read of a directory in which another user may create them.
const MOST_ENTRIES: usize = 4096;

/// A runtime directory, and its user unless that is root or the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RuntimeDir {
    path: PathBuf,
    user: Option<String>,
}

/// Returns the apps that may run: one for each telemetry socket, and the first instance of each
/// directory, with the state of ended ones. Those of root and of the caller come first; those of other
/// users end at the deadline, or are left out if the options say so.
pub(super) fn candidates(options: &DiscoverOptions, deadline: Deadline) -> Vec<DiscoveredApp> {
    let goes_on = || !deadline.passed() && !options.stop.is_set();
    let (own, others): (Vec<_>, Vec<_>) =
        runtime_dirs(options, deadline).into_iter().partition(|dir| dir.user.is_none());
    let others = others.into_iter().filter(|_| options.other_users).take_while(|_| goes_on());
    own.into_iter().chain(others).flat_map(|dir| instances(&dir)).collect()
}

/// Returns all `dpdk/<prefix>` directories; each once, though roots may be links to each other, and
/// containers may share directories with the host.
fn runtime_dirs(options: &DiscoverOptions, deadline: Deadline) -> Vec<RuntimeDir> {
    let mut seen = BTreeSet::new();
    let mut users = UserNames::default();
    let mut dirs = Vec::new();
    let proc = || options.proc.iter();
    let elsewhere = proc().flat_map(|proc| namespaces::dpdk_dirs(proc, options, deadline));
    let usual = parents(options).into_iter().chain(elsewhere).map(|dir| (dir, true));
    let listening = proc().filter(|_| options.searches_users());
    let listening = listening
        .flat_map(|proc| namespaces::listening_dirs(proc, deadline))
        .map(|dir| (dir, false));
    for (parent, is_usual) in usual.chain(listening) {
        let (Ok(entries), Ok(of_parent)) = (fs::read_dir(&parent), fs::metadata(&parent)) else {
            continue;
        };
        let outer = [of_parent.uid()].into_iter().chain(user_of_namespace(&parent));
        let outer: Vec<u32> = outer.collect();
        let most = if is_shared(&of_parent, &mut users) { MOST_ENTRIES } else { usize::MAX };
        for dir in entries.take(most).flatten().map(|entry| entry.path()) {
            // EAL creates no links; those of other users could lead root anywhere.
            let Ok(metadata) = fs::symlink_metadata(&dir) else { continue };
            if metadata.is_dir() && seen.insert((metadata.dev(), metadata.ino())) {
                // Whoever owns what is around it can put another one in its place.
                let mut all = [metadata.uid()].into_iter().chain(outer.iter().copied());
                let user = all.find_map(|uid| users.other(uid));
                // Root and the caller know where their apps are.
                if is_usual || user.is_some() {
                    dirs.push(RuntimeDir { path: dir, user });
                }
            }
        }
    }
    dirs.sort_by(|a, b| a.path.cmp(&b.path));
    dirs
}

/// Whether other users than root and the caller may create entries.
fn is_shared(dir: &Metadata, users: &mut UserNames) -> bool {
    users.other(dir.uid()).is_some() || dir.mode() & 0o022 != 0
}

/// Returns the user of the process through whose root a directory is reached: in a mount namespace of
/// an ordinary user, he decides what is where.
fn user_of_namespace(dir: &Path) -> Option<u32> {
    let process = Path::new(process::PROC).join(root_pid(dir)?.to_string());
    fs::metadata(process).ok().map(|metadata| metadata.uid())
}

/// Returns the directories with runtime directories of this mount namespace.
fn parents(options: &DiscoverOptions) -> Vec<PathBuf> {
    let users = Path::new(DiscoverOptions::USERS);
    let mut parents = Vec::new();
    for root in &options.roots {
        if root == users {
            let homes = users.parent().and_then(|dir| fs::read_dir(dir).ok());
            let homes = homes.into_iter().flatten().flatten();
            parents.extend(homes.map(|home| home.path().join("dpdk")));
        } else {
            parents.push(root.join("dpdk"));
        }
    }
    parents
}

/// Returns the apps of one runtime directory: one per socket, and the first one in any case.
fn instances(dir: &RuntimeDir) -> Vec<DiscoveredApp> {
    let Some(prefix) = dir.path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return Vec::new();
    };
    let qualified = match &dir.user {
        Some(user) => format!("{user}/{prefix}"),
        None => prefix,
    };
    let container = root_pid(&dir.path).and_then(Container::of);
    let app = |suffix: &str, state| DiscoveredApp {
        user: dir.user.clone(),
        container: container.clone(),
        ..DiscoveredApp::in_dir(
            &dir.path,
            format!("{qualified}{suffix}"),
            &format!("{SOCKET}{suffix}"),
            state,
        )
    };
    let Ok(entries) = fs::read_dir(&dir.path) else {
        return vec![app("", Reachability::Unreachable(UnreachableReason::Permission))];
    };
    let most = if dir.user.is_some() { MOST_ENTRIES } else { usize::MAX };
    let files =
        entries.take(most).flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let suffixes = files.filter_map(|file| instance_suffix(&file).map(str::to_owned));
    // The lock of an app without telemetry is that of the first instance.
    let suffixes: BTreeSet<String> = suffixes.chain([String::new()]).collect();
    suffixes.iter().map(|suffix| app(suffix, Reachability::Stale)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn options(roots: &[&Path]) -> DiscoverOptions {
        let roots = roots.iter().map(|root| root.to_path_buf()).collect();
        DiscoverOptions { roots, proc: None, ..DiscoverOptions::default() }
    }

    fn runtime_dir(root: &Path, prefix: &str) -> PathBuf {
        let dir = root.join("dpdk").join(prefix);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn names(options: &DiscoverOptions) -> Vec<String> {
        let soon = Deadline::after(options.timeout);
        candidates(options, soon).into_iter().map(|app| app.name).collect()
    }

    #[test]
    fn a_root_given_twice_is_searched_once() {
        let root = tempfile::tempdir().unwrap();
        runtime_dir(root.path(), "app");
        let again = root.path().join("again");
        symlink(root.path(), &again).unwrap();
        let options = options(&[root.path(), &again, Path::new("/nonexistent")]);
        assert_eq!(names(&options), ["app"]);
    }

    #[test]
    fn apps_of_other_users_come_last_and_with_their_user() {
        let root = tempfile::tempdir().unwrap();
        let mine = runtime_dir(root.path(), "zebra");
        fs::write(mine.join("dpdk_telemetry.v2:3"), "").unwrap();
        let theirs = runtime_dir(root.path(), "app");
        if chown(&theirs, Some(1_234_567), None).is_err() {
            return;
        }
        let mut options = options(&[root.path()]);
        assert_eq!(names(&options), ["zebra", "zebra:3", "1234567/app"]);
        options.other_users = false;
        assert_eq!(names(&options), ["zebra", "zebra:3"]);
        // The owner of the directory around it could have put it there.
        chown(root.path().join("dpdk"), Some(1_234_568), None).unwrap();
        options.other_users = true;
        assert_eq!(names(&options), ["1234567/app", "1234568/zebra", "1234568/zebra:3"]);
    }

    #[test]
    fn many_directories_of_others_are_not_all_read() {
        let root = tempfile::tempdir().unwrap();
        let dir = runtime_dir(root.path(), "a0").parent().unwrap().to_owned();
        for number in 1..MOST_ENTRIES + 10 {
            fs::create_dir(dir.join(format!("a{number}"))).unwrap();
        }
        assert_eq!(names(&options(&[root.path()])).len(), MOST_ENTRIES + 10);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(names(&options(&[root.path()])).len(), MOST_ENTRIES);
    }

    #[test]
    fn sockets_of_other_users_are_found_wherever_they_are() {
        let (proc, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = runtime_dir(home.path(), "app");
        fs::create_dir_all(proc.path().join("self/net")).unwrap();
        let socket = dir.join(SOCKET).display().to_string();
        let table = format!("0: 00000002 00000000 00010000 0005 01 4711 {socket}\n");
        fs::write(proc.path().join("self/net/unix"), table).unwrap();
        let mut options = options(&[Path::new(DiscoverOptions::USERS)]);
        options.proc = Some(proc.path().into());
        let found = || names(&options).iter().any(|name| name.ends_with("app"));
        assert!(!found(), "that of the caller");
        if chown(&dir, Some(1_234_567), None).is_ok() {
            assert!(found());
        }
    }
}

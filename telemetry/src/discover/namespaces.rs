//! Runtime directories in other mount namespaces, such as those of containers.
//!
//! They are reached through `/proc/PID/root` of a process in the namespace, which requires ptrace
//! access to that process (root with `CAP_SYS_PTRACE`, or the same user without more capabilities).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::users::{Crowd, UserNames};
use super::{DiscoverOptions, instance_suffix};
use crate::deadline::Deadline;
use crate::host::foreign::{open_root, resolve};
use crate::host::process;

/// Directories in which the EAL of any user creates `dpdk`, unless a variable names another one.
const ROOTS: [&str; 3] = ["run", "var/run", "tmp"];

/// Most bytes of the table of unix sockets, to which any user can add.
const TABLE_BYTES: u64 = 4 << 20;

/// Contains `$XDG_RUNTIME_DIR` of each user.
const USERS: &str = "run/user";

/// Type and state of a listening socket in `/proc/PID/net/unix`: `SOCK_SEQPACKET`, and not connected.
const LISTENING: [&str; 2] = ["0005", "01"];

/// Returns the parents of runtime directories in other mount namespaces, `/proc/PID/root/.../dpdk`.
/// Those of other users are limited as their apps are, and end at the deadline.
pub(super) fn dpdk_dirs(
    proc: &Path,
    options: &DiscoverOptions,
    deadline: Deadline,
) -> Vec<PathBuf> {
    let mut sockets = SocketDirs::default();
    let mut dirs = Vec::new();
    let (own, others): (Vec<_>, Vec<_>) =
        first_processes(proc).into_iter().partition(|(_, user)| user.is_none());
    let mut crowd = Crowd::new(if options.other_users { options.per_user } else { 0 });
    let others = others.into_iter().filter(|(_, user)| crowd.admits(user.as_deref()));
    let others = others.take_while(|_| !deadline.passed() && !options.stop.is_set());
    for (pid, _) in own.into_iter().chain(others) {
        let process = proc.join(pid.to_string());
        let root_path = process.join("root");
        let Ok(root) = open_root(&root_path) else { continue };
        let fixed = ROOTS.iter().map(|root| Path::new(root).join("dpdk"));
        let users =
            resolve(&root, Path::new(USERS)).and_then(|dir| root_path.join(dir).read_dir().ok());
        let users = users.into_iter().flatten().flatten();
        let users = users.map(|user| Path::new(USERS).join(user.file_name()).join("dpdk"));
        let listening = sockets.of(&process).iter().cloned();
        let found = fixed.chain(users).chain(listening).filter_map(|dir| resolve(&root, &dir));
        let found: BTreeSet<PathBuf> = found.map(|dir| root_path.join(dir)).collect();
        dirs.extend(found);
    }
    dirs
}

/// Whether there are processes with mount namespaces that this program may not read.
pub(super) fn are_hidden(proc: &Path) -> bool {
    let mut namespaces = processes(proc).map(|(name, _)| proc.join(name).join("ns/mnt"));
    let is_denied = |path: PathBuf| {
        fs::read_link(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    namespaces.any(is_denied)
}

/// Returns all processes: names of their directories, and ids.
fn processes(proc: &Path) -> impl Iterator<Item = (String, u32)> {
    let names = fs::read_dir(proc).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| {
        let name = name.into_string().ok()?;
        let pid = name.parse().ok()?;
        Some((name, pid))
    })
}

/// Returns the oldest process of each other mount namespace, which will probably not end before the
/// apps in there, and its user unless that is root or the caller.
fn first_processes(proc: &Path) -> Vec<(u32, Option<String>)> {
    let namespace = |pid: &str| fs::read_link(proc.join(pid).join("ns/mnt")).ok();
    let own = namespace("self");
    let mut first: BTreeMap<PathBuf, (u64, u32)> = BTreeMap::new();
    for (name, pid) in processes(proc) {
        let Some(theirs) = namespace(&name).filter(|theirs| Some(theirs) != own.as_ref()) else {
            continue;
        };
        let age = (process::start_ticks(pid).unwrap_or(u64::MAX), pid);
        match first.entry(theirs) {
            Entry::Vacant(vacant) => _ = vacant.insert(age),
            Entry::Occupied(mut known) => *known.get_mut() = age.min(*known.get()),
        }
    }
    let mut users = UserNames::default();
    let user = |pid: u32| fs::metadata(proc.join(pid.to_string())).ok().map(|it| it.uid());
    let first = first.into_values().map(|(_, pid)| pid);
    first.map(|pid| (pid, user(pid).and_then(|uid| users.other(uid)))).collect()
}

/// Directories of telemetry sockets, by network namespace: several mount namespaces may share one.
#[derive(Debug, Default)]
struct SocketDirs(BTreeMap<Option<PathBuf>, BTreeSet<PathBuf>>);

impl SocketDirs {
    /// Returns the directories in the network namespace of a process. They find a socket outside of
    /// the usual directories; if the socket belongs to another mount namespace, the directory does
    /// not exist here.
    fn of(&mut self, process: &Path) -> &BTreeSet<PathBuf> {
        let namespace = fs::read_link(process.join("ns/net")).ok();
        self.0.entry(namespace).or_insert_with(|| table_dirs(&process.join("net/unix")))
    }
}

/// Returns the directories in which telemetry sockets listen, wherever `XDG_RUNTIME_DIR` led them, in the network
/// namespaces of all processes: the kernel lists a socket in that of its process only.
pub(super) fn listening_dirs(proc: &Path, deadline: Deadline) -> BTreeSet<PathBuf> {
    let mut sockets = SocketDirs::default();
    sockets.of(&proc.join("self"));
    for (name, _) in processes(proc).take_while(|_| !deadline.passed()) {
        sockets.of(&proc.join(name));
    }
    sockets.0.into_values().flatten().collect()
}

/// As [`socket_dirs`], from a file.
fn table_dirs(table: &Path) -> BTreeSet<PathBuf> {
    let mut text = Vec::new();
    let opened = fs::File::open(table);
    let read = opened.and_then(|file| file.take(TABLE_BYTES).read_to_end(&mut text));
    read.map(|_| socket_dirs(&text)).unwrap_or_default()
}

/// Returns `DIR/dpdk` of each `DIR/dpdk/PREFIX/dpdk_telemetry.v2` that listens, from the text of
/// `/proc/PID/net/unix`.
fn socket_dirs(text: &[u8]) -> BTreeSet<PathBuf> {
    let dir = |line: &[u8]| {
        // Columns: Num RefCount Protocol Flags Type St Inode Path
        let text = str::from_utf8(line).ok()?;
        let mut fields = text.split_ascii_whitespace().skip(4);
        let listens = fields.next()? == LISTENING[0] && fields.next()? == LISTENING[1];
        let path = &text[text.find('/')?..];
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        instance_suffix(path.file_name()?.to_str()?)?;
        let dpdk = path.parent()?.parent()?;
        (listens && dpdk.file_name()? == "dpdk").then(|| dpdk.to_owned())
    };
    text.split(|byte| *byte == b'\n').filter_map(dir).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    /// A `/proc` with processes in these mount namespaces, each with a root directory of its own.
    fn proc(processes: &[(u32, u32)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        let add = |pid: &str, namespace: u32| {
            let dir = proc.path().join(pid);
            fs::create_dir_all(dir.join("ns")).unwrap();
            fs::create_dir_all(dir.join("net")).unwrap();
            fs::create_dir_all(dir.join("root")).unwrap();
            symlink(format!("mnt:[{namespace}]"), dir.join("ns/mnt")).unwrap();
            symlink(format!("net:[{namespace}]"), dir.join("ns/net")).unwrap();
        };
        add("self", 1);
        for (pid, namespace) in processes {
            add(&pid.to_string(), *namespace);
        }
        proc
    }

    #[test]
    fn one_process_stands_for_each_other_namespace() {
        // None of these processes exist, so that all have the same age.
        let base = 4_200_000_000;
        let proc = proc(&[(base, 1), (base + 9, 2), (base + 3, 2), (base + 5, 3)]);
        fs::create_dir(proc.path().join("sys")).unwrap();
        let pids = |proc| first_processes(proc).into_iter().map(|(pid, _)| pid).collect::<Vec<_>>();
        assert_eq!(pids(proc.path()), [base + 3, base + 5]);
        assert_eq!(pids(Path::new("/nonexistent")), [0; 0]);
    }

    #[test]
    fn the_usual_places_and_those_of_sockets_are_searched() {
        let pid = 4_200_000_000;
        let proc = proc(&[(pid, 2)]);
        let root = proc.path().join(pid.to_string()).join("root");
        for dir in ["tmp/dpdk/a", "run/user/7/dpdk/b", "srv/app/dpdk/c", "opt/dpdk/d", "var"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        let line =
            "0: 00000002 00000000 00010000 0005 01 4711 /srv/app/dpdk/c/dpdk_telemetry.v2:1\n";
        fs::write(proc.path().join(pid.to_string()).join("net/unix"), line).unwrap();
        let options = DiscoverOptions::default();
        let found = dpdk_dirs(proc.path(), &options, Deadline::after(options.timeout));
        assert_eq!(
            found,
            ["run/user/7/dpdk", "srv/app/dpdk", "tmp/dpdk"].map(|dir| root.join(dir))
        );
    }

    #[test]
    fn sockets_of_all_network_namespaces_are_found() {
        let base = 4_200_000_000;
        let proc = proc(&[(base, 2), (base + 1, 3)]);
        for (pid, dir) in
            [("self".to_owned(), "/a"), (base.to_string(), "/b"), ((base + 1).to_string(), "/c")]
        {
            let line =
                format!("0: 00000002 00000000 00010000 0005 01 9 {dir}/dpdk/x/dpdk_telemetry.v2\n");
            fs::write(proc.path().join(pid).join("net/unix"), line).unwrap();
        }
        let found =
            listening_dirs(proc.path(), Deadline::after(DiscoverOptions::default().timeout));
        assert_eq!(found, ["/a/dpdk", "/b/dpdk", "/c/dpdk"].map(PathBuf::from).into());
    }

    #[test]
    fn sockets_that_listen_name_their_directories() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 9 /run/dpdk/a b/dpdk_telemetry.v2\n\
            0000000000000000: 00000003 00000000 00000000 0005 03 9 /run1/dpdk/rte/dpdk_telemetry.v2\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 9 /run2/dpdk/rte/dpdk_telemetry.v2\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 9 /run3/dpdk/rte/other\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 9 /run4/rte/dpdk_telemetry.v2\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 9 @/run5/dpdk/rte/x\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 9\n";
        assert_eq!(socket_dirs(text.as_bytes()), BTreeSet::from(["/run/dpdk".into()]));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text: Vec<u8>, path in "[ -~]{0,40}") {
            let _ = socket_dirs(&text);
            let _ = socket_dirs(format!("0: 2 0 1 0005 01 9 {path}").as_bytes());
        }
    }
}

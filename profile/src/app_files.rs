//! Files that an app or its core file names, opened with the rights of the app's user.
//!
//! A user may link a name to a file of root, or map a file that he can execute but not read. So a thread
//! of its own takes the user's and groups' ids for the file system, without the capabilities to override
//! permissions, and opens the files. These ids alone (not the effective ones) leave signals and ptrace of
//! the user without effect on this process.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use pmdscope_telemetry::host::maps::Mapping;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups};

/// Opening a named pipe must not wait, nor may a terminal become that of this process.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Capabilities that override the permissions of files.
const OVERRIDES: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);

/// The ids that decide which files a user may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRights {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl FileRights {
    /// Those of a process.
    ///
    /// # Errors
    /// If it has ended.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let status = fs::read(format!("/proc/{pid}/status"))?;
        Self::parse(&String::from_utf8_lossy(&status))
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Those of the owner of a file, such as a core file.
    pub fn of_owner(file: &Metadata) -> Self {
        Self { user: file.uid(), group: file.gid(), groups: Vec::new() }
    }

    fn parse(status: &str) -> Option<Self> {
        let ids = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().map(|id| id.parse().ok()).collect::<Option<Vec<u32>>>()
        };
        // Real, effective, saved, and of the file system.
        let of_file_system = |name| ids(name)?.get(3).copied();
        Some(Self {
            user: of_file_system("Uid:")?,
            group: of_file_system("Gid:")?,
            groups: ids("Groups:")?,
        })
    }

    /// Calls `open` in a thread that has these rights; where this process may not take them, in one that
    /// has those of its own user, without capabilities that override permissions. `None` if the thread
    /// cannot be started, or panics.
    pub fn run<T: Send>(&self, open: impl FnOnce() -> T + Send) -> Option<T> {
        let dumpable = dumpable_behavior();
        let result = thread::scope(|scope| {
            let thread = thread::Builder::new().name("open".to_owned());
            let thread = thread.spawn_scoped(scope, || {
                self.take();
                open()
            });
            thread.ok()?.join().ok()
        });
        // The kernel has changed it with the ids, for all threads.
        if dumpable == Ok(DumpableBehavior::Dumpable) {
            let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
        }
        result
    }

    /// Of this thread only.
    fn take(&self) {
        let groups: Vec<_> =
            self.groups.iter().map(|id| rustix::process::Gid::from_raw(*id)).collect();
        if self.user != rustix::process::geteuid().as_raw() {
            // Without CAP_SETGID and CAP_SETUID these have no effect.
            let _ = set_thread_groups(&groups);
            setfsgid(Gid::from_raw(self.group));
            setfsuid(Uid::from_raw(self.user));
        }
        if self.user != 0
            && let Ok(mut sets) = capabilities(None)
        {
            sets.effective.remove(OVERRIDES);
            let _ = set_capabilities(None, sets);
        }
    }
}

/// The files of a process or of a core file.
#[derive(Clone, Debug)]
pub struct AppFiles {
    /// `None` for a core file.
    pid: Option<u32>,
}

impl AppFiles {
    /// Those in the root directory of a process, or in this one's for a core file. To be used in
    /// [`FileRights::run`].
    pub fn new(pid: Option<u32>) -> Self {
        Self { pid }
    }

    /// The executable of the process.
    pub fn executable(&self) -> Option<File> {
        regular(openat(CWD, format!("/proc/{}/exe", self.pid?), FLAGS, Mode::empty()))
    }

    /// The file of a mapping, even if another one has its path now; of a core file that with its path.
    pub fn mapped(&self, mapping: &Mapping) -> Option<File> {
        let Some(pid) = self.pid else { return self.at(Path::new(&mapping.path)) };
        let exact = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
        regular(openat(CWD, exact, FLAGS, Mode::empty())).or_else(|| {
            let file = self.at(Path::new(&mapping.path))?;
            (file.metadata().ok()?.ino() == mapping.inode).then_some(file)
        })
    }

    /// The regular file with this path in the root directory. Links in it stay in that directory.
    pub fn at(&self, path: &Path) -> Option<File> {
        let root =
            self.pid.map_or_else(|| PathBuf::from("/"), |pid| format!("/proc/{pid}/root").into());
        open_below(&root, path)
    }
}

/// The regular file with this path below a root directory, where links in the path end too. Opening it
/// neither waits nor acts on a device.
pub fn open_below(root: &Path, path: &Path) -> Option<File> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root_fd = openat(CWD, root, directory, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match openat2(&root_fd, path, FLAGS, Mode::empty(), resolve) {
        // Linux before 5.6, or a filter of system calls.
        Err(Errno::NOSYS | Errno::PERM) => {
            let path = path.strip_prefix("/").unwrap_or(path);
            regular(openat(&root_fd, path, FLAGS, Mode::empty()))
        }
        opened => regular(opened),
    }
}

fn regular(opened: rustix::io::Result<rustix::fd::OwnedFd>) -> Option<File> {
    let file = File::from(opened.ok()?);
    file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn ids_are_those_for_files() {
        let status = "Name:\tapp\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n";
        let rights = FileRights { user: 4, group: 8, groups: vec![9, 10] };
        assert_eq!(FileRights::parse(status), Some(rights));
        assert_eq!(FileRights::parse("Uid:\t1\nGid:\t1\nGroups:\t\n"), None);
        assert!(FileRights::of_process(std::process::id()).is_ok());
        assert!(FileRights::of_process(u32::MAX).is_err());
    }

    /// A directory that all may enter, with a file for all and one for its owner only.
    fn files() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, mode) in [("public", 0o644), ("private", 0o600)] {
            fs::write(dir.path().join(name), name).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("private", dir.path().join("link")).unwrap();
        dir
    }

    #[test]
    fn files_are_read_with_the_rights_of_the_user() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: only root can take the rights of others");
            return;
        }
        let dir = files();
        let readable = |user: u32, name: &str| {
            let rights = FileRights { user, group: user, groups: Vec::new() };
            rights.run(|| AppFiles::new(None).at(&dir.path().join(name)).is_some()).unwrap()
        };
        assert!(readable(0, "private") && readable(0, "link") && readable(1234, "public"));
        assert!(!readable(1234, "private") && !readable(1234, "link"));
        // This thread has kept its rights, and this process its files in /proc.
        assert!(File::open(dir.path().join("private")).is_ok());
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable));
    }

    #[test]
    fn links_end_in_the_root_of_the_app() {
        let dir = files();
        symlink("/public", dir.path().join("absolute")).unwrap();
        symlink("../../../../../../../etc/passwd", dir.path().join("outside")).unwrap();
        let read = |name: &str| {
            let mut text = String::new();
            open_below(dir.path(), Path::new(name))?.read_to_string(&mut text).ok()?;
            Some(text)
        };
        assert_eq!(read("/absolute").as_deref(), Some("public"));
        assert_eq!(read("/../public").as_deref(), Some("public"));
        assert_eq!(read("/outside"), None);
        assert_eq!(read("/"), None);
    }

    #[test]
    fn a_pipe_keeps_nobody_waiting() {
        let dir = files();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(AppFiles::new(None).at(&pipe).is_none());
    }
}

//! Files and sockets of apps, including those in mount namespaces of other processes, below `/proc/PID/root`.
//!
//! A symbolic link in another root file system would be resolved from the root of this process: the
//! processes of a container could redirect a root user of the host anywhere. So links are not
//! followed there.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, open, openat2, readlinkat};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::process::PROC;

/// Longest path of a socket address: `sizeof(sun_path)` without the terminating zero.
const ADDRESS_BYTES: usize = 107;

/// Splits `/proc/PID/root/PATH` into the root of the process and the path relative to it. `None` for
/// another path.
pub fn split_root(path: &Path) -> Option<(&Path, &Path)> {
    let inner = path.strip_prefix(PROC).ok()?;
    let mut parts = inner.components();
    let pid = parts.next()?.as_os_str().to_str()?;
    let is_root = parts.next()? == Component::Normal(OsStr::new("root"));
    let inner = parts.as_path();
    let root = path.ancestors().nth(inner.components().count())?;
    (is_root && pid.parse::<u32>().is_ok()).then_some((root, inner))
}

/// Returns the process of `/proc/PID/root/PATH`.
pub(crate) fn root_pid(path: &Path) -> Option<u32> {
    let (root, _) = split_root(path)?;
    root.parent()?.file_name()?.to_str()?.parse().ok()
}

/// Opens a file; below the root of another process, no links are followed.
///
/// # Errors
/// As open(2); `ELOOP` for a link.
pub fn open_file(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let Some((root, inner)) = split_root(path) else { return open(path, flags, mode) };
    let root = open_root(root)?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, inner, flags, mode, resolve)
}

/// Opens the root directory of a process.
pub(crate) fn open_root(root: &Path) -> Result<OwnedFd> {
    open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Resolves a path of another root, relative to that root and without links. `None` if it does not
/// exist.
pub(crate) fn resolve(root: &OwnedFd, path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = path.strip_prefix("/").unwrap_or(path);
    let reach = |path: &Path, resolve| openat2(root, path, flags, Mode::empty(), resolve).ok();
    let direct = |path: &Path| reach(path, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS);
    if direct(path).is_some() {
        return Some(path.to_owned());
    }
    let there = reach(path, ResolveFlags::IN_ROOT)?;
    // The kernel reports the path from the root of the mount namespace, which may be another root.
    let told = readlinkat(CWD, fd_path(&there), Vec::new()).ok()?;
    let told = Path::new(OsStr::from_bytes(told.as_bytes())).strip_prefix("/").ok()?;
    let id = |fd: &OwnedFd| fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
    direct(told).filter(|found| id(found).is_some() && id(found) == id(&there))?;
    Some(told.to_owned())
}

/// Returns the address of a socket, and a descriptor that keeps it valid. Paths below the root of
/// another process, and paths that are too long for an address, lead through a descriptor of their
/// directory.
///
/// # Errors
/// When the directory cannot be opened, or the name itself is too long.
pub fn socket_address(path: &Path) -> Result<(SocketAddrUnix, Option<OwnedFd>)> {
    if split_root(path).is_none() && path.as_os_str().len() <= ADDRESS_BYTES {
        return Ok((SocketAddrUnix::new(path)?, None));
    }
    let (dir, name) = path.parent().zip(path.file_name()).ok_or(Errno::NOENT)?;
    let dir = open_file(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((socket_in(&dir, name)?, Some(dir)))
}

/// Returns the address of a socket in an open directory, valid as long as that is open.
///
/// # Errors
/// When the name is too long.
pub(crate) fn socket_in(dir: &OwnedFd, name: &OsStr) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(fd_path(dir).join(name))
}

fn fd_path(fd: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("{PROC}/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// Whether a process has this unix socket of that type open; a process that has ended leaves its
/// socket behind. Nothing is sent, and a socket with a full queue, as of a stopped process, is not
/// waited for.
///
/// # Errors
/// When that is unknown: without permission to connect, or for a socket of another type.
pub fn is_served(path: &Path, kind: SocketType) -> Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connected = socket_with(AddressFamily::UNIX, kind, flags, None).and_then(|socket| {
        let (address, _dir) = socket_address(path)?;
        connect(&socket, &address)
    });
    match connected {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// Returns a path as another process would see it: below the root of this process.
    fn foreign(path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("{PROC}/{}/root", std::process::id()));
        root.join(path.strip_prefix("/").unwrap())
    }

    #[test]
    fn paths_below_the_root_of_a_process_are_known() {
        let split = |path| split_root(Path::new(path));
        let expected = (Path::new("/proc/17/root"), Path::new("run/dpdk/rte"));
        assert_eq!(split("/proc/17/root/run/dpdk/rte"), Some(expected));
        assert_eq!(split("/proc/17/root"), Some((Path::new("/proc/17/root"), Path::new(""))));
        assert_eq!(root_pid(Path::new("/proc/17/root/run")), Some(17));
        for other in ["/run/dpdk/rte", "/proc/self/root/run", "/proc/17/cwd/run", "/proc", "/"] {
            assert_eq!(split(other), None, "{other}");
        }
    }

    #[test]
    fn no_link_is_followed_in_another_root() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::fs::write(real.join("config"), "").unwrap();
        symlink(&real, dir.path().join("link")).unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open = |path: PathBuf| open_file(&path, flags, Mode::empty());
        assert!(open(foreign(&real.join("config"))).is_ok());
        let through_link = dir.path().join("link/config");
        assert!(open(through_link.clone()).is_ok(), "as before in our own");
        let error = open(foreign(&through_link)).unwrap_err();
        assert_eq!(error, Errno::LOOP);
    }

    #[test]
    fn links_of_directories_are_resolved_in_their_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("run/dpdk")).unwrap();
        symlink("run", dir.path().join("relative")).unwrap();
        symlink("/nowhere", dir.path().join("dangling")).unwrap();
        let own = open_root(Path::new("/")).unwrap();
        let inner = dir.path().strip_prefix("/").unwrap();
        let real = inner.join("run/dpdk");
        assert_eq!(resolve(&own, &dir.path().join("run/dpdk")), Some(real.clone()));
        assert_eq!(resolve(&own, &inner.join("relative/dpdk")), Some(real));
        assert_eq!(resolve(&own, &inner.join("dangling")), None);
        assert_eq!(resolve(&own, &inner.join("run/none")), None);
    }

    #[test]
    fn sockets_of_other_roots_and_with_long_paths_are_reached() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100));
        std::fs::create_dir(&deep).unwrap();
        let near = dir.path().join("s");
        let address = |path: &Path| socket_address(path).unwrap();
        let name = |address: &SocketAddrUnix| {
            PathBuf::from(OsStr::from_bytes(address.path_bytes().unwrap()))
        };
        assert!(address(&near).1.is_none());
        for (bound, seen) in [(&near, foreign(&near)), (&deep.join("s"), deep.join("s"))] {
            let (at, _dir) = address(bound);
            let _served = UnixListener::bind(name(&at)).unwrap();
            let (to, dir) = address(&seen);
            assert!(dir.is_some());
            UnixStream::connect(name(&to)).unwrap();
        }
        assert!(socket_address(&dir.path().join("n".repeat(120))).is_err());
    }
}

//! A small file system that is unmounted with its owner.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::process::run_to_success;

/// A mounted file system. Dropping it unmounts it, whatever is still in it.
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts one of this size, as mount(8) writes sizes, on a new directory.
    pub fn mount(path: &Path, size: &str) -> Result<Self> {
        Self::mount_as("tmpfs", &format!("size={size}"), path)
    }

    /// Mounts hugepages of 2 MiB that a user may take, on a new directory.
    pub fn hugepages(path: &Path, user: u32) -> Result<Self> {
        let options = format!("pagesize=2M,uid={user},gid={user},mode=700");
        Self::mount_as("hugetlbfs", &options, path)
    }

    fn mount_as(kind: &str, options: &str, path: &Path) -> Result<Self> {
        std::fs::create_dir(path)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, "pmdscope-test"]).arg(path);
        run_to_success(&mut mount)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Its mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Free bytes.
    pub fn free(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok(stat.f_bfree * stat.f_frsize)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run_to_success(Command::new("umount").arg("-l").arg(&self.path));
    }
}

//! A small file system that is unmounted with its owner.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::process::run_to_success;

/// A mounted tmpfs. Dropping it unmounts it, whatever is still in it.
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts one of this size, as mount(8) writes sizes, on a new directory.
    pub fn mount(path: &Path, size: &str) -> Result<Self> {
        std::fs::create_dir(path)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "pmdscope-test"]).arg(path);
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

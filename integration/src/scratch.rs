//! A directory, unique DPDK file-prefixes, and the removal of everything DPDK leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tempfile::TempDir;

const RUNTIME_ROOT: &str = "/var/run/dpdk";
const HUGEPAGES: &str = "/dev/hugepages";
/// Hugepages of 2 MiB that a pair of apps and one more need.
const PAGES_NEEDED: u64 = 256;

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Memory that the DPDK processes run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// 2 MiB hugepages.
    Huge,
    /// Ordinary pages (`--no-huge`).
    Ordinary,
}

impl Memory {
    /// Hugepages when enough are free, ordinary pages otherwise or when `PMDSCOPE_NO_HUGE` is set.
    pub fn available() -> Self {
        if std::env::var_os("PMDSCOPE_NO_HUGE").is_some() {
            return Self::Ordinary;
        }
        let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
            .unwrap_or(0);
        if free >= PAGES_NEEDED { Self::Huge } else { Self::Ordinary }
    }
}

/// Scratch space of one test or demo. Dropping it removes files, runtime directories and
/// hugepage files of every prefix it named.
pub struct Scratch {
    dir: TempDir,
    suffix: String,
    prefixes: Mutex<Vec<String>>,
}

impl Scratch {
    /// A new, empty one.
    pub fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("pmdscope-").tempdir().context("scratch")?;
        let suffix = match SERIAL.fetch_add(1, Ordering::Relaxed) {
            0 => std::process::id().to_string(),
            serial => format!("{}.{serial}", std::process::id()),
        };
        Ok(Self { dir, suffix, prefixes: Mutex::default() })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A DPDK file-prefix that nobody else uses.
    pub fn prefix(&self, role: &str) -> String {
        let prefix = format!("{role}-{}", self.suffix);
        self.named().push(prefix.clone());
        prefix
    }

    fn named(&self) -> MutexGuard<'_, Vec<String>> {
        self.prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files in DPDK's hugepage directory that belong to this scratch.
    pub fn hugepage_files(&self) -> Vec<PathBuf> {
        let prefixes = self.named();
        let ours = |name: &str| prefixes.iter().any(|p| name.starts_with(&format!("{p}map_")));
        fs::read_dir(HUGEPAGES)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| ours(&entry.file_name().to_string_lossy()))
            .map(|entry| entry.path())
            .collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for file in self.hugepage_files() {
            let _ = fs::remove_file(file);
        }
        // The EAL never removes the runtime directory of a prefix.
        for prefix in self.named().iter() {
            let _ = fs::remove_dir_all(Path::new(RUNTIME_ROOT).join(prefix));
        }
    }
}

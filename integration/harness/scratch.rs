//! A directory, unique DPDK file-prefixes, and the removal of everything DPDK leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use tempfile::TempDir;

use crate::fake::{connect, receive};
use crate::telemetry;

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

    /// One whose prefixes are the `roles` themselves, for apps that people name. Where a running app has
    /// one of them, all get a suffix, as those of [`Scratch::new`].
    pub fn with_plain_prefixes(roles: &[&str]) -> Result<Self> {
        let mut scratch = Self::new()?;
        if !roles.iter().any(|role| is_taken(role)) {
            scratch.suffix.clear();
            // Files that a killed app has left must not look like a running app.
            for role in roles {
                let _ = fs::remove_dir_all(Path::new(RUNTIME_ROOT).join(role));
            }
        }
        Ok(scratch)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A DPDK file-prefix that no other app uses.
    pub fn prefix(&self, role: &str) -> String {
        let prefix = match self.suffix.as_str() {
            "" => role.to_owned(),
            suffix => format!("{role}-{suffix}"),
        };
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

/// An app of that file-prefix runs: it holds the lock of its configuration, or listens.
fn is_taken(prefix: &str) -> bool {
    let config = fs::File::open(Path::new(RUNTIME_ROOT).join(prefix).join("config"));
    let lock = config.map(|file| fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)));
    // An app that does not answer still runs; a client that disconnects before the greeting would
    // do harm.
    let listens = || connect(&telemetry::socket(prefix)).map(|peer| receive(&peer)).is_ok();
    matches!(lock, Ok(Ok(Some(_)))) || listens()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Another app may have taken a plain prefix before our apps did.
        if self.suffix.is_empty() {
            self.named().retain(|prefix| !is_taken(prefix));
        }
        for file in self.hugepage_files() {
            let _ = fs::remove_file(file);
        }
        // The EAL never removes the runtime directory of a prefix.
        for prefix in self.named().iter() {
            let _ = fs::remove_dir_all(Path::new(RUNTIME_ROOT).join(prefix));
        }
    }
}

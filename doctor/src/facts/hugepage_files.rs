//! Hugepage files of apps that have ended: the EAL removes them neither when it is killed nor when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use pmdscope_telemetry::host::maps;
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use crate::tree::{Fact, Unknown};

/// Files of one directory that are looked at.
const MOST_FILES: usize = 1 << 20;

/// A younger file may belong to an app that is about to map it.
const SETTLED: Duration = Duration::from_secs(10);

/// The hugepage files of one ended app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftFiles {
    /// Mount point of hugetlbfs.
    pub(crate) dir: String,
    /// File-prefix of the app.
    pub(crate) prefix: String,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Directory and prefix of a file, and its bytes.
type FoundFile = ((String, String), u64);

/// A file by device and inode, as `/proc/PID/maps` has them.
type FileKey = (String, u64);

/// Returns the hugepage files in these directories that no process has mapped, by file-prefix. A process of
/// another user cannot be looked at without CAP_SYS_PTRACE; then nothing is known.
pub(crate) fn left(mounts: &[String], proc: &Path) -> Fact<Vec<LeftFiles>> {
    let mut candidates = BTreeMap::new();
    for dir in mounts {
        candidates.extend(files(dir).map_err(|error| Unknown(format!("{dir}: {error}")))?);
    }
    if !candidates.is_empty() {
        let used = mapped(proc, &candidates).map_err(|error| {
            Unknown(format!("not all processes can be looked at, run as root: {error}"))
        })?;
        candidates.retain(|key, _| !used.contains(key));
    }
    let mut left: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for (app, bytes) in candidates.into_values() {
        let (files, sum) = left.entry(app).or_default();
        (*files, *sum) = (files.saturating_add(1), sum.saturating_add(bytes));
    }
    let left = left.into_iter();
    Ok(left
        .map(|((dir, prefix), (files, bytes))| LeftFiles { dir, prefix, files, bytes })
        .collect())
}

/// Returns the hugepage files in a directory, with directory, prefix and size.
fn files(dir: &str) -> io::Result<Vec<(FileKey, FoundFile)>> {
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let prefix = prefix(&name)?.to_owned();
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let age = SystemTime::now().duration_since(metadata.modified().ok()?);
        if age.is_ok_and(|age| age < SETTLED) {
            return None;
        }
        let device = metadata.dev();
        let key = (format!("{:02x}:{:02x}", major(device), minor(device)), metadata.ino());
        // A file of many pages may have holes.
        let bytes = metadata.len().min(metadata.blocks().saturating_mul(512));
        Some((key, ((dir.to_owned(), prefix), bytes)))
    };
    Ok(fs::read_dir(dir)?.take(MOST_FILES).flatten().filter_map(file).collect())
}

/// Returns the file-prefix of a file of the EAL: `PREFIXmap_NUMBER`.
fn prefix(name: &str) -> Option<&str> {
    let (prefix, number) = name.rsplit_once("map_")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !prefix.is_empty()).then_some(prefix)
}

/// Returns those of the files that a process has mapped.
fn mapped<T>(proc: &Path, files: &BTreeMap<FileKey, T>) -> io::Result<BTreeSet<FileKey>> {
    let mut used = BTreeSet::new();
    for process in fs::read_dir(proc)?.flatten() {
        let is_process =
            process.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
        if !is_process {
            continue;
        }
        let text = match fs::read(process.path().join("maps")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // It has ended.
            Err(_) => continue,
        };
        let keys = maps::parse(&String::from_utf8_lossy(&text)).into_iter();
        used.extend(
            keys.map(|mapping| (mapping.device, mapping.inode))
                .filter(|key| files.contains_key(key)),
        );
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn files_that_no_process_has_mapped_are_counted_by_prefix() {
        let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let old = SystemTime::now() - 2 * SETTLED;
        let put = |name: &str, time: SystemTime| {
            let path = dir.path().join(name);
            fs::write(&path, [1; 4096]).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            fs::metadata(path).unwrap()
        };
        for name in ["edgemap_0", "edgemap_1", "rtemap_7", "readme", "map_1", "edgemap_x"] {
            put(name, old);
        }
        put("freshmap_0", SystemTime::now());
        let used = put("usedmap_0", old);
        let device = format!("{:02x}:{:02x}", major(used.dev()), minor(used.dev()));
        fs::create_dir(proc.path().join("17")).unwrap();
        let line =
            format!("1000-2000 rw-s 00000000 {device} {} /dev/hugepages/usedmap_0\n", used.ino());
        fs::write(proc.path().join("17/maps"), line).unwrap();
        fs::create_dir(proc.path().join("sys")).unwrap();
        let mount = dir.path().display().to_string();
        let left = left(std::slice::from_ref(&mount), proc.path()).unwrap();
        let of = |prefix: &str, files| LeftFiles {
            dir: mount.clone(),
            prefix: prefix.to_owned(),
            files,
            bytes: files * 4096,
        };
        assert_eq!(left, [of("edge", 2), of("rte", 1)]);
    }

    #[test]
    fn without_files_nothing_else_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mount = [dir.path().display().to_string()];
        assert_eq!(left(&mount, Path::new("/nonexistent")).ok(), Some(Vec::new()));
        assert!(left(&["/nonexistent".to_owned()], Path::new("/proc")).is_err());
    }
}

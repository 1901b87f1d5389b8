//! The parts of a shared mapping that have content: the data of its file.
//!
//! `/proc/PID/pagemap` shows the page tables of the process. The kernel removes pages of a shared
//! file from them when it swaps the page out, makes huge pages of several, or is requested to
//! (`MADV_DONTNEED`), but the file keeps them. The file itself reports its holes (`SEEK_DATA`).

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pmdscope_profile::FileRights;
use pmdscope_telemetry::host::maps::Mapping;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::address::AddressRange;

/// Maximum number of parts of a file; the rest counts as data.
const MOST_PARTS: usize = 1 << 16;

/// Bytes of a block, the unit in which the kernel counts the size of a file on disk.
const BLOCK_BYTES: u64 = 512;

/// The parts of a shared mapping whose pages exist, ascending: those in the page tables or not.
/// `None` for memory of which only the page tables show this: devices, and hugepage files with
/// holes.
///
/// # Errors
/// If the file may not be opened, or was removed.
pub(crate) fn parts_with_data(
    pid: u32,
    mapping: &Mapping,
) -> io::Result<Option<Vec<AddressRange>>> {
    let (path, metadata) = find(pid, mapping)?;
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.blocks().saturating_mul(BLOCK_BYTES) >= metadata.len() {
        let in_file = metadata.len().saturating_sub(mapping.offset);
        let all = AddressRange::up_to_length(mapping.start, in_file).intersection(&mapping.into());
        return Ok(Some(if all.is_empty() { Vec::new() } else { vec![all] }));
    }
    let file = open(pid, &path, &metadata)?;
    if is_hugetlbfs(&file) {
        return Ok(None);
    }
    let of_file = AddressRange::up_to_length(mapping.offset, AddressRange::from(mapping).bytes());
    let parts = data(&file, &of_file)?;
    Ok(Some(parts.iter().filter_map(|part| part.moved(mapping.offset, mapping.start)).collect()))
}

/// Opens a file that was found, with the rights of the app. Another may have its path meanwhile.
fn open(pid: u32, path: &Path, found: &Metadata) -> io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
    let flags = i32::try_from(nonblocking).unwrap_or_default();
    let open = || OpenOptions::new().read(true).custom_flags(flags).open(path);
    let opened = FileRights::of_process(pid)?.run(open);
    let file = opened.ok_or(io::ErrorKind::Other)??;
    let metadata = file.metadata()?;
    let is_same = (metadata.dev(), metadata.ino()) == (found.dev(), found.ino());
    if is_same { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// hugetlbfs reports no holes: for `SEEK_DATA` the whole file is data.
fn is_hugetlbfs(file: &File) -> bool {
    const HUGETLBFS_MAGIC: u64 = 0x958_458f6;
    rustix::fs::fstatfs(file).is_ok_and(|kind| u64::try_from(kind.f_type) == Ok(HUGETLBFS_MAGIC))
}

/// The parts of a file within a range of offsets that are not holes.
pub(crate) fn data(file: &File, range: &AddressRange) -> io::Result<Vec<AddressRange>> {
    let (mut at, end) = (range.start(), range.end());
    let mut parts = Vec::new();
    while at < end {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < end => start,
            // There is no data after it.
            Ok(_) | Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        at = if parts.len() < MOST_PARTS {
            rustix::fs::seek(file, SeekFrom::Hole(start))?.clamp(start, end)
        } else {
            end
        };
        if at == start {
            break; // the file has just become shorter
        }
        parts.extend(AddressRange::new(start, at));
    }
    Ok(parts)
}

/// A path by which the file of a mapping can be opened. The first takes `CAP_CHECKPOINT_RESTORE` or
/// `CAP_SYS_ADMIN`; with the others the user of the app reaches memory without a path that the app keeps open, and
/// files that still have their path.
fn find(pid: u32, mapping: &Mapping) -> io::Result<(PathBuf, Metadata)> {
    let (start, end) = (mapping.start, mapping.end);
    let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    let error = match fs::metadata(&mapped) {
        Ok(metadata) => return Ok((mapped, metadata)),
        Err(error) => error,
    };
    let is_it = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok().filter(|found| is_file_of(found, mapping))?;
        Some((path, metadata))
    };
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let in_root =
        Path::new(&format!("/proc/{pid}/root")).join(mapping.path.trim_start_matches('/'));
    open.map(|entry| entry.path()).chain([in_root]).find_map(is_it).ok_or(error)
}

fn is_file_of(file: &Metadata, mapping: &Mapping) -> bool {
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    file.ino() == mapping.inode && format!("{major:02x}:{minor:02x}") == mapping.device
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    const PAGE: u64 = 65_536;

    fn file_with_data(places: &[u64], len: u64) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        for place in places {
            file.seek(io::SeekFrom::Start(*place)).unwrap();
            file.write_all(&vec![1; 65_536]).unwrap();
        }
        file
    }

    #[test]
    fn holes_are_left_out() {
        let file = file_with_data(&[PAGE, 5 * PAGE], 8 * PAGE);
        let holds = |parts: &[AddressRange], at| parts.iter().any(|part| part.contains(at));
        let parts = data(&file, &(0..8 * PAGE).into()).unwrap();
        assert!(holds(&parts, PAGE) && holds(&parts, 5 * PAGE), "{parts:?}");
        assert!(!holds(&parts, 3 * PAGE) && !holds(&parts, 7 * PAGE), "{parts:?}");
        let parts = data(&file, &(PAGE + 8..2 * PAGE + 8).into()).unwrap();
        assert_eq!((parts.len(), &parts[0]), (1, &(PAGE + 8..2 * PAGE).into()));
        assert_eq!(data(&file, &(6 * PAGE..70 * PAGE).into()).unwrap(), []);
    }

    #[test]
    fn a_file_is_found_among_those_that_are_open() {
        let file = file_with_data(&[0], PAGE);
        let metadata = file.metadata().unwrap();
        let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        let mapping = Mapping {
            start: 0x10_0000,
            end: 0x11_0000,
            device: format!("{major:02x}:{minor:02x}"),
            inode: metadata.ino(),
            path: "/gone (deleted)".to_owned(),
            ..Mapping::default()
        };
        let parts = parts_with_data(std::process::id(), &mapping).unwrap().unwrap();
        assert_eq!((parts.len(), &parts[0]), (1, &(0x10_0000..0x11_0000).into()));
        assert!(parts_with_data(std::process::id(), &Mapping { inode: 1, ..mapping }).is_err());
    }
}

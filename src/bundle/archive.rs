//! Writes the archive: a file that is complete, or none.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use pmdscope_files::{Directory, FileMode, Place};
use pmdscope_render::number;
use tar::{Builder, EntryType, Header};
use zstd::stream::write::Encoder;

use super::index::{FileEntry, PartEntry};
use super::staging::{PREFIX, mark_as_used};

/// Recordings are compressed already; text and packets become small at any level.
const LEVEL: i32 = 3;

/// Extension of a bundle.
pub(super) const EXTENSION: &str = ".tar.zst";

/// A file that gets its name when it is complete. Dropped before, it is removed.
#[derive(Debug)]
pub(super) struct ArchiveFile {
    target: Place,
    file: File,
    unfinished: Option<Place>,
}

impl ArchiveFile {
    /// Creates the file beside `target`.
    ///
    /// # Errors
    ///
    /// When nothing can be written there.
    pub(super) fn create(target: &Path, mode: FileMode) -> Result<Self> {
        let failed = || format!("cannot write {}", target.display());
        let place = Place::of(target).with_context(failed)?;
        let is_stream = place.is_stream().with_context(failed)?;
        ensure!(!is_stream, "cannot write {}: not a regular file", target.display());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{PREFIX}{}-{}", std::process::id(), since.as_nanos());
        let unfinished = place.directory().place(OsStr::new(&name));
        let file = unfinished.create_new(mode).with_context(failed)?;
        mark_as_used(&file);
        Ok(Self { target: place, file, unfinished: Some(unfinished) })
    }

    /// The path of the file that it becomes.
    pub(super) fn target(&self) -> &Path {
        self.target.path()
    }

    /// The directory of the file.
    pub(super) fn directory(&self) -> &Directory {
        self.target.directory()
    }

    /// Writes everything below `root`, into a directory of this name: first the files of `first`.
    /// Returns the size of the archive, bytes.
    ///
    /// # Errors
    ///
    /// When something cannot be read, or written: there is no file then.
    pub(super) fn write(mut self, root: &Path, name: &str, first: &[&str]) -> Result<u64> {
        let target = self.target().to_owned();
        let failed = || format!("cannot write {}", target.display());
        let mut encoder = Encoder::new(&mut self.file, LEVEL).with_context(failed)?;
        encoder.include_checksum(true).with_context(failed)?;
        let mut archive = Builder::new(encoder);
        archive.follow_symlinks(false);
        let mut paths: Vec<PathBuf> = first.iter().map(|path| root.join(path)).collect();
        let rest = files_below(root).with_context(failed)?;
        paths.extend(rest.into_iter().filter(|path| !first.iter().any(|f| root.join(f) == *path)));
        for path in paths {
            let inside = Path::new(name).join(path.strip_prefix(root).unwrap_or(&path));
            append(&mut archive, &path, &inside).with_context(failed)?;
        }
        let encoder = archive.into_inner().with_context(failed)?;
        encoder.finish().with_context(failed)?;
        self.file.sync_all().with_context(failed)?;
        let size = self.file.metadata().with_context(failed)?.len();
        if let Some(unfinished) = &self.unfinished {
            unfinished.rename(&self.target).with_context(failed)?;
        }
        self.unfinished = None;
        Ok(size)
    }
}

impl Drop for ArchiveFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // The next run removes what cannot be removed now.
            let _ = unfinished.remove();
        }
    }
}

/// The directory of a file.
pub(super) fn directory(file: &Path) -> &Path {
    file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Everything below a directory, sorted: directories before what they contain.
pub(super) fn files_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Leaves out the largest files of parts that are more than so many bytes together.
pub(super) fn limit(parts: &mut [PartEntry], staging: &Path, most_bytes: u64) {
    let mut sizes: Vec<(u64, usize, FileEntry)> = Vec::new();
    for (part, entry) in parts.iter().enumerate() {
        sizes.extend(entry.files.iter().map(|file| (file.bytes, part, file.clone())));
    }
    sizes.sort_by_key(|(bytes, part, _)| (*bytes, *part));
    let mut sum = 0;
    for (bytes, part, file) in sizes {
        sum += bytes;
        if sum <= most_bytes {
            continue;
        }
        let path = staging.join(&file.path);
        let _ =
            if path.is_dir() { fs::remove_dir_all(&path) } else { pmdscope_files::remove(&path) };
        if let Some(part) = parts.get_mut(part) {
            part.files.retain(|kept| *kept != file);
            let (size, most) = (number::bytes(bytes), number::bytes(most_bytes));
            part.lose(&format!("{} ({size}) does not fit into --max-size {most}", file.path));
        }
    }
}

/// Appends a file, a symbolic link or a directory; anything else is left out.
fn append<W: Write>(archive: &mut Builder<W>, path: &Path, inside: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let mut header = Header::new_gnu();
    // No owner is stored: the user who unpacks the archive owns the files.
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(0);
    if metadata.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        return archive.append_link(&mut header, inside, fs::read_link(path)?);
    }
    if metadata.is_dir() {
        header.set_entry_type(EntryType::Directory);
        header.set_mode(0o755);
        return archive.append_data(&mut header, inside, io::empty());
    }
    if !metadata.is_file() {
        return Ok(());
    }
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(metadata.len());
    archive.append_data(&mut header, inside, File::open(path)?)
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;

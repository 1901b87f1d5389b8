//! Reads bundles: files from elsewhere, which may be damaged or malicious.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use pmdscope_files::{Directory, FileMode, Place};
use pmdscope_packets::read::CaptureFile;
use tar::{Archive, Entry, EntryType};
use tempfile::TempDir;
use zstd::stream::read::Decoder;

use super::index::TEXT;

/// Start of a Zstandard file.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The place of the magic in a tar header.
const USTAR: std::ops::Range<usize> = 257..262;
/// Size of a tar header.
const HEADER: usize = 512;
/// Largest window, as a power of two: what a reader must hold.
const LARGEST_WINDOW: u32 = 27;
/// Most entries, and bytes of an unpacked bundle.
const MOST_ENTRIES: usize = 200_000;
const MOST_BYTES: u64 = 8 << 30;
/// Longest path within a bundle, bytes, and its most components.
const LONGEST_PATH: usize = 1024;
const MOST_COMPONENTS: usize = 64;

/// Directory with the packets of each app.
const CAPTURES: &str = "capture";

type Input = io::Take<Decoder<'static, BufReader<File>>>;

/// A file is a bundle, whatever its name.
pub(crate) fn is_bundle(path: &Path) -> bool {
    path.is_file() && first_entry(path).unwrap_or(false)
}

fn first_entry(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut magic = [0; 4];
    file.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(0))?;
    let mut decoder = Decoder::new(file)?;
    decoder.window_log_max(LARGEST_WINDOW)?;
    let mut header = [0; HEADER];
    decoder.read_exact(&mut header)?;
    let name = header.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_index = Path::new(&String::from_utf8_lossy(name).into_owned()).ends_with(TEXT);
    Ok(header[USTAR] == *b"ustar" && is_index)
}

/// The recordings of a bundle, as unnamed files, which exist as long as this process.
///
/// # Errors
///
/// When it is damaged, or has none.
pub(crate) fn recordings(bundle: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for_each(bundle, |path, entry| {
        if path.starts_with("recording") && entry.header().entry_type() == EntryType::Regular {
            found.push(nameless(entry)?);
        }
        Ok(())
    })?;
    if found.is_empty() {
        bail!("{} has no recording: its {TEXT} says why", bundle.display());
    }
    Ok(found)
}

/// Capture files, and in place of a bundle those in it, merged by time: of `BUNDLE` all below `capture`; of
/// `BUNDLE/leaks` or `BUNDLE/leaks/fwd.pcapng` those. Other paths stay as they are.
///
/// # Errors
///
/// When a bundle is damaged, or has no such capture.
pub(crate) fn capture_files(paths: &[PathBuf]) -> Result<Vec<CaptureFile>> {
    let mut files = Vec::new();
    for path in paths {
        match bundle_of(path) {
            Some((bundle, inside)) => files.push(captures(bundle, inside)?),
            None => files.push(CaptureFile::from(path.clone())),
        }
    }
    Ok(files)
}

/// The bundle that is named, or that has the named file, and the path within.
pub(crate) fn bundle_of(path: &Path) -> Option<(&Path, &Path)> {
    let bundle = path.ancestors().find(|path| path.is_file())?;
    is_bundle(bundle).then(|| (bundle, path.strip_prefix(bundle).unwrap_or(Path::new(""))))
}

fn captures(bundle: &Path, inside: &Path) -> Result<CaptureFile> {
    let wanted = if inside.as_os_str().is_empty() { Path::new(CAPTURES) } else { inside };
    let mut found = Vec::new();
    let mut others = Vec::new();
    for_each(bundle, |path, entry| {
        let is_capture = path.extension().is_some_and(|extension| extension == "pcapng");
        if !is_capture || entry.header().entry_type() != EntryType::Regular {
            return Ok(());
        }
        if path.starts_with(wanted) {
            let name = format!("{} of {}", path.display(), bundle.display());
            found.push(CaptureFile { path: nameless(entry)?, name, merged: Vec::new() });
        } else {
            others.push(path.display().to_string());
        }
        Ok(())
    })?;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let mut found = found.into_iter();
    let Some(first) = found.next() else {
        let (bundle, wanted) = (bundle.display(), wanted.display());
        ensure!(!others.is_empty(), "{bundle} has no captured packets: its {TEXT} says why");
        bail!("{bundle} has no capture {wanted}: name one as in {bundle}/{}", others.join(", "));
    };
    Ok(CaptureFile { merged: found.collect(), ..first })
}

/// Copies a file to an unnamed one, which is removed when this process ends in any way.
fn nameless(entry: &mut impl Read) -> Result<PathBuf> {
    let mut file = tempfile::tempfile().context("cannot create a temporary file")?;
    io::copy(entry, &mut file).context("cannot unpack into a temporary file")?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // Stays open: the reader opens the path again.
    let _ = file.into_raw_fd();
    Ok(path)
}

/// Unpacks what is below a directory of a bundle, such as `doctor/tree`, into a temporary directory, which
/// is removed when the returned value is dropped. Links that lead out of it are left out.
///
/// # Errors
///
/// When the bundle is damaged, has nothing there, or there is no space.
pub(crate) fn unpack(bundle: &Path, below: &str) -> Result<TempDir> {
    let root = pmdscope_files::temporary_directory("pmdscope-")
        .context("cannot create a temporary directory")?;
    let mut links = Vec::new();
    let mut is_empty = true;
    for_each(bundle, |path, entry| {
        let Ok(inside) = path.strip_prefix(below) else { return Ok(()) };
        if inside.as_os_str().is_empty() {
            return Ok(());
        }
        is_empty = false;
        let target = root.path().join(inside);
        let failed = || format!("cannot unpack {}", path.display());
        match entry.header().entry_type() {
            EntryType::Directory => Directory::create(&target).map(drop).with_context(failed)?,
            EntryType::Regular => {
                create_directory_of(&target).with_context(failed)?;
                let file = pmdscope_files::create_new(&target, FileMode::default());
                let mut file = file.with_context(failed)?;
                io::copy(entry, &mut file).with_context(failed)?;
            }
            EntryType::Symlink => {
                let to = entry.link_name().with_context(failed)?;
                links.extend(to.map(|to| (inside.to_owned(), to.into_owned())));
            }
            _ => {}
        }
        Ok(())
    })?;
    ensure!(!is_empty, "{} has no {below}: its {TEXT} says why", bundle.display());
    // Last: no file is written through a link.
    for (inside, to) in links.into_iter().filter(|(inside, to)| stays_inside(inside, to)) {
        let target = root.path().join(&inside);
        let made = create_directory_of(&target).and_then(|()| Place::itself(&target)?.link_to(&to));
        made.with_context(|| format!("cannot unpack {}", inside.display()))?;
    }
    Ok(root)
}

fn create_directory_of(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), |parent| Directory::create(parent).map(drop))
}

/// A relative link that leads to a place below the root, whatever the components of its path are links to:
/// it goes up only at its start, where all directories are real ones.
fn stays_inside(link: &Path, to: &Path) -> bool {
    let depth = link.components().count().saturating_sub(1);
    let mut components = to.components().peekable();
    let mut up = 0;
    while components.next_if_eq(&Component::ParentDir).is_some() {
        up += 1;
    }
    up <= depth && components.all(|component| matches!(component, Component::Normal(_)))
}

/// Calls `visit` with each entry, and its path below the directory of the bundle.
fn for_each(
    bundle: &Path,
    mut visit: impl FnMut(&Path, &mut Entry<'_, Input>) -> Result<()>,
) -> Result<()> {
    let failed = || format!("cannot read the bundle {}", bundle.display());
    let file = File::open(bundle).with_context(failed)?;
    let mut decoder = Decoder::new(file).with_context(failed)?;
    decoder.window_log_max(LARGEST_WINDOW).with_context(failed)?;
    let mut archive = Archive::new(decoder.take(MOST_BYTES));
    for (count, entry) in archive.entries().with_context(failed)?.enumerate() {
        let mut entry = entry.with_context(failed)?;
        ensure!(count < MOST_ENTRIES, "{} has too many files", bundle.display());
        let path = entry.path().with_context(failed)?.into_owned();
        let Some(inside) = checked(&path) else {
            bail!("{}: the path {} is not one of a bundle", bundle.display(), path.display());
        };
        visit(&inside, &mut entry).with_context(failed)?;
    }
    Ok(())
}

/// A path of an archive without its first component; `None` for one that leads elsewhere.
fn checked(path: &Path) -> Option<PathBuf> {
    let is_normal = path.components().all(|component| matches!(component, Component::Normal(_)));
    let is_short =
        path.as_os_str().len() <= LONGEST_PATH && path.components().count() <= MOST_COMPONENTS;
    (is_normal && is_short).then(|| path.components().skip(1).collect())
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;

//! `--redact`: removes payloads, addresses and host names from what was collected.

mod host_names;
mod numbers;
mod packet;
mod pcapng;
mod pseudonym;
mod text;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pmdscope_files::{FileMode, Place};
use pmdscope_recording::{EXTENSION, PART};
use pmdscope_render::number;

pub(super) use self::host_names::{known_hosts, names_of_this_machine};
use self::pseudonym::Pseudonyms;
use self::text::TextRedactor;
use super::HOST_TREE;
use super::archive::files_below;
use super::collect::file_entry;
use super::index::PartEntry;
use super::recording;

/// Replaces the same by the same in all files of one bundle.
#[derive(Debug)]
pub(super) struct Redactor {
    pseudonyms: Pseudonyms,
    text: TextRedactor,
}

impl Redactor {
    /// For files with these names of hosts; of domains, which begin with a dot, all names.
    ///
    /// # Errors
    ///
    /// When the system has no random numbers.
    pub(super) fn new(hosts: &[String]) -> Result<Self> {
        let pseudonyms = Pseudonyms::new()?;
        let text = TextRedactor::new(hosts)?;
        Ok(Self { pseudonyms, text })
    }

    /// Text or JSON without addresses and names of hosts.
    pub(super) fn text<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        self.text.redact(text, &mut self.pseudonyms)
    }

    /// Notes the addresses of a file, so that they are found as numbers in all others.
    fn learn(&mut self, path: &Path) {
        // What cannot be read is reported when it is replaced.
        let kind = FileKind::of(path);
        if kind == FileKind::Recording {
            return recording::learn(path, self);
        }
        let Ok(bytes) = fs::read(path) else { return };
        if kind == FileKind::Capture {
            let _ = pcapng::redact(&bytes, self);
        } else if let Ok(text) = str::from_utf8(&bytes) {
            self.text(text);
        }
    }

    /// Replaces a file, and its name, by the redacted form. An error if it cannot be read or written, or is
    /// neither text nor a capture file: it must then not become a part of the bundle. Returns its path.
    fn entry(&mut self, staging: &Path, path: &Path) -> Result<PathBuf> {
        let failed = || format!("cannot redact {}", path.display());
        let is_of_kernel = is_named_by_kernel(path.strip_prefix(staging).unwrap_or(path));
        let metadata = fs::symlink_metadata(path).with_context(failed)?;
        if metadata.is_symlink() {
            self.link(path, is_of_kernel).with_context(failed)?;
        } else if metadata.is_file() {
            self.file(path)?;
        }
        let name = path.file_name().unwrap_or_default().to_str().context("its name is not text");
        let name = name.with_context(failed)?;
        let redacted = path.with_file_name(self.name(name, is_of_kernel).as_ref());
        pmdscope_files::rename(path, &redacted).with_context(failed)?;
        Ok(redacted)
    }

    /// A name of a file.
    fn name<'a>(&mut self, name: &'a str, is_of_kernel: bool) -> Cow<'a, str> {
        if is_of_kernel {
            return self.text.addresses(name, &mut self.pseudonyms);
        }
        self.text(name)
    }

    fn link(&mut self, path: &Path, is_of_kernel: bool) -> Result<()> {
        let to = fs::read_link(path)?;
        let to = to.to_str().context("it is not text")?;
        if let Cow::Owned(redacted) = self.name(to, is_of_kernel) {
            let place = Place::itself(path)?;
            place.remove()?;
            place.link_to(Path::new(&redacted))?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<()> {
        let failed = || format!("cannot redact {}", path.display());
        let kind = FileKind::of(path);
        if kind == FileKind::Recording {
            return recording::redact(path, self);
        }
        let bytes = fs::read(path).with_context(failed)?;
        let redacted = if kind == FileKind::Capture {
            pcapng::redact(&bytes, self).with_context(failed)?
        } else {
            let text = str::from_utf8(&bytes).context("it is not text").with_context(failed)?;
            self.text(text).into_owned().into_bytes()
        };
        pmdscope_files::write(path, &redacted, FileMode::default()).with_context(failed)
    }
}

/// How a file is read, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Capture,
    Recording,
    Text,
}

impl FileKind {
    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(PART).unwrap_or(&name);
        match name {
            name if name.ends_with(".pcapng") => Self::Capture,
            name if name.ends_with(EXTENSION) => Self::Recording,
            _ => Self::Text,
        }
    }
}

/// Redacts the files of all parts, and what the index says of them.
pub(super) fn parts(redactor: &mut Redactor, staging: &Path, parts: &mut [PartEntry]) {
    for path in parts.iter().flat_map(|part| &part.files).map(|file| staging.join(&file.path)) {
        for path in files_of(&path).iter().filter(|path| path.is_file() && !path.is_symlink()) {
            redactor.learn(path);
        }
    }
    for text in parts.iter_mut().flat_map(said) {
        redactor.text(text);
    }
    for entry in parts {
        part(redactor, staging, entry);
    }
}

/// A file, or everything below a directory.
fn files_of(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() { files_below(path).unwrap_or_default() } else { vec![path.to_owned()] }
}

/// Redacts the files of a part. Those that cannot be redacted are removed.
fn part(redactor: &mut Redactor, staging: &Path, part: &mut PartEntry) {
    let mut removed = Vec::new();
    let mut redacted = Vec::new();
    for file in &part.files {
        let whole = staging.join(&file.path);
        let mut renamed = whole.clone();
        // What a directory contains comes before it, and can be renamed.
        for path in files_of(&whole).iter().rev() {
            match redactor.entry(staging, path) {
                Ok(name) if *path == whole => renamed = name,
                Ok(_) => {}
                Err(error) => {
                    let _ = pmdscope_files::remove(path);
                    removed.push(format!("{error:#}"));
                }
            }
        }
        redacted.extend(file_entry(staging, renamed.strip_prefix(staging).unwrap_or(&renamed)));
    }
    part.files = redacted;
    if let Some(first) = removed.first() {
        let others = match removed.len() - 1 {
            0 => String::new(),
            others => format!(", and {}", number::plural(others as u64, "other file")),
        };
        part.lose(&format!("left out: {first}{others}"));
    }
    for text in said(part) {
        *text = redactor.text(text).into_owned();
    }
}

/// What the index says of a part, except for its files, which have their new names already.
fn said(part: &mut PartEntry) -> impl Iterator<Item = &mut String> {
    let texts = [&mut part.app, &mut part.reason, &mut part.command];
    texts.into_iter().flatten().chain(&mut part.messages)
}

/// A path whose name is one of the kernel, and would no longer be found by `doctor` if a machine that is
/// called `vm` or `node0` gave it its pseudonym. Names of control groups are those of people.
fn is_named_by_kernel(path: &Path) -> bool {
    path.strip_prefix(HOST_TREE).is_ok_and(|inside| !inside.starts_with("sys/fs/cgroup"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_address_is_replaced_in_hexadecimal_whatever_file_comes_first() {
        let staging = tempfile::tempdir().unwrap();
        let files = [("a.txt", "flow 0xc6120001"), ("b.txt", "198.18.0.1")];
        let mut entries = files.map(|(name, text)| part_of(staging.path(), name, text));
        parts(&mut Redactor::new(&[]).unwrap(), staging.path(), &mut entries);
        let text = |name| fs::read_to_string(staging.path().join(name)).unwrap();
        let address: std::net::Ipv4Addr = text("b.txt").parse().unwrap();
        assert_eq!(text("a.txt"), format!("flow 0x{:08x}", address.to_bits()));
    }

    /// A part of one file with this content.
    fn part_of(staging: &Path, name: &str, text: &str) -> PartEntry {
        fs::write(staging.join(name), text).unwrap();
        let mut entry = PartEntry::begun("reports");
        entry.files = file_entry(staging, Path::new(name)).into_iter().collect();
        entry
    }

    #[test]
    fn a_file_with_another_name_stays_in_its_part() {
        let staging = tempfile::tempdir().unwrap();
        let entry = part_of(staging.path(), "gw7.txt", "gw7 at 198.18.0.1");
        let mut entries = [entry];
        parts(&mut Redactor::new(&["gw7".to_owned()]).unwrap(), staging.path(), &mut entries);
        let [file] = &entries[0].files[..] else { panic!("{:?}", entries[0].files) };
        let extension = Path::new(&file.path).extension();
        assert!(
            file.path.starts_with("host-") && extension.is_some_and(|it| it == "txt"),
            "{}",
            file.path
        );
        assert!(fs::read_to_string(staging.path().join(&file.path)).unwrap().starts_with("host-"));
    }

    #[test]
    fn the_index_names_a_file_as_it_is_called_in_the_bundle() {
        let staging = tempfile::tempdir().unwrap();
        let mut entry = part_of(staging.path(), "198.18.0.1.txt", "gw7");
        entry.app = Some("198.18.0.1".to_owned());
        entry.command = Some("pmdscope capture -i 198.18.0.1:any".to_owned());
        entry.lose("gw7 did not answer");
        entry.messages = vec!["note: 0xc6120001 of gw7".to_owned()];
        let mut entries = [entry];
        let mut redactor = Redactor::new(&["gw7".to_owned()]).unwrap();
        parts(&mut redactor, staging.path(), &mut entries);
        let [entry] = entries;
        let app = entry.app.unwrap();
        assert_ne!(app, "198.18.0.1");
        assert_eq!(entry.files[0].path, format!("{app}.txt"));
        assert_eq!(entry.command.unwrap(), format!("pmdscope capture -i {app}:any"));
        let said = format!("{} {}", entry.reason.unwrap(), entry.messages[0]);
        assert!(!said.contains("gw7") && !said.contains("c6120001"), "{said}");
    }

    #[test]
    fn names_of_the_kernel_are_kept_in_the_files_for_doctor() {
        let staging = tempfile::tempdir().unwrap();
        let tree = staging.path().join(HOST_TREE);
        for file in ["proc/sys/vm/nr_hugepages", "sys/fs/cgroup/vm/cpu.max", "etc/hostname"] {
            let file = tree.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "vm 198.18.0.1\n").unwrap();
        }
        symlink("vm", tree.join("driver")).unwrap();
        fs::create_dir_all(tree.join("sys/class/net/enx525400123456")).unwrap();
        let mut entry = PartEntry::begun("host files");
        entry.files = file_entry(staging.path(), Path::new(HOST_TREE)).into_iter().collect();
        part(&mut Redactor::new(&["vm".to_owned()]).unwrap(), staging.path(), &mut entry);
        assert_eq!((entry.reason, entry.files.len()), (None, 1));
        for file in ["proc/sys/vm/nr_hugepages", "etc/hostname"] {
            let text = fs::read_to_string(tree.join(file)).unwrap();
            assert!(text.starts_with("host-") && !text.contains("198.18.0.1"), "{text}");
        }
        assert_eq!(fs::read_link(tree.join("driver")).unwrap(), Path::new("vm"));
        assert!(!tree.join("sys/fs/cgroup/vm").exists());
        assert!(!tree.join("sys/class/net/enx525400123456").exists());
    }
}

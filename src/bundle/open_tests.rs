//! Tests of reading bundles, also of malicious ones.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};

use tar::{Builder, Header};
use zstd::stream::write::Encoder;

use super::super::archive::ArchiveFile;
use super::*;

/// An entry: its path, its kind, and its content or where it leads.
type Entry<'a> = (&'a str, EntryType, &'a str);

/// Writes a bundle with paths as they are, which the crate itself would refuse.
fn bundle(dir: &Path, entries: &[Entry<'_>]) -> PathBuf {
    let path = dir.join("x.tar.zst");
    let mut archive = Builder::new(Encoder::new(File::create(&path).unwrap(), 1).unwrap());
    for (name, kind, content) in [&[("x/INDEX.txt", EntryType::Regular, "index")], entries].concat()
    {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        let mut body = content;
        if kind != EntryType::Regular {
            let link = &mut header.as_gnu_mut().unwrap().linkname;
            link[..content.len()].copy_from_slice(content.as_bytes());
            body = "";
        }
        header.set_size(body.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append(&header, body.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
    path
}

#[test]
fn a_bundle_is_known_by_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let path = bundle(dir.path(), &[]);
    let renamed = dir.path().join("whatever");
    fs::rename(path, &renamed).unwrap();
    assert!(is_bundle(&renamed));
    let recording = dir.path().join("y.tar.zst");
    let mut encoder = Encoder::new(File::create(&recording).unwrap(), 1).unwrap();
    encoder.write_all(b"{\"header\":{}}\n").unwrap();
    encoder.finish().unwrap();
    assert!(!is_bundle(&recording) && !is_bundle(dir.path()));
    assert!(!is_bundle(&dir.path().join("missing")));
}

#[test]
fn recordings_are_read_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let recording = ("x/recording/a.jsonl.zst", EntryType::Regular, "lines");
    let path = bundle(dir.path(), &[recording, ("x/capture/a.pcapng", EntryType::Regular, "p")]);
    let files = recordings(&path).unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(fs::read_to_string(&files[0]).unwrap(), "lines");
    assert_eq!(fs::metadata(&files[0]).unwrap().nlink(), 0, "it has no name");
    let without = recordings(&bundle(dir.path(), &[])).unwrap_err();
    assert!(without.to_string().ends_with("has no recording: its INDEX.txt says why"), "{without}");
}

#[test]
fn captures_are_read_by_app() {
    let dir = tempfile::tempdir().unwrap();
    let entries = [
        ("x/leaks/fwd.pcapng", EntryType::Regular, "lost"),
        ("x/capture/gw.pcapng", EntryType::Regular, "second"),
        ("x/capture/fwd.pcapng", EntryType::Regular, "first"),
        ("x/leaks/leaks.txt", EntryType::Regular, "text"),
    ];
    let path = bundle(dir.path(), &entries);
    let other = dir.path().join("other.pcapng");
    let read = |paths: &[PathBuf]| {
        let files = capture_files(paths)?;
        let content = |file: &CaptureFile| fs::read_to_string(&file.path).unwrap_or_default();
        let [file] = &files[..] else { panic!("{files:?}") };
        let all = std::iter::once(file).chain(&file.merged);
        Ok::<_, anyhow::Error>(all.map(content).collect::<Vec<_>>())
    };
    assert_eq!(read(std::slice::from_ref(&path)).unwrap(), ["first", "second"]);
    assert_eq!(read(&[path.join("leaks")]).unwrap(), ["lost"]);
    assert_eq!(read(&[path.join("capture/gw.pcapng")]).unwrap(), ["second"]);
    let both = capture_files(&[other.clone(), path.join("leaks/fwd.pcapng")]).unwrap();
    assert_eq!(both[0], CaptureFile::from(other));
    assert_eq!(both[1].name, format!("leaks/fwd.pcapng of {}", path.display()));
    let unknown = read(&[path.join("capture/no.pcapng")]).unwrap_err().to_string();
    assert!(
        unknown.ends_with("/leaks/fwd.pcapng, capture/gw.pcapng, capture/fwd.pcapng"),
        "{unknown}"
    );
    let without = read(&[bundle(dir.path(), &[])]).unwrap_err().to_string();
    assert!(without.ends_with("has no captured packets: its INDEX.txt says why"), "{without}");
}

#[test]
fn what_was_packed_is_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let staging = dir.path().join("staging");
    fs::create_dir_all(staging.join("doctor/tree/sys/bus/pci/devices")).unwrap();
    fs::create_dir_all(staging.join("doctor/tree/sys/devices/pci0")).unwrap();
    fs::write(staging.join("INDEX.txt"), "index").unwrap();
    fs::write(staging.join("doctor/tree/sys/devices/pci0/vendor"), "0x8086").unwrap();
    symlink("../../../devices/pci0", staging.join("doctor/tree/sys/bus/pci/devices/0")).unwrap();
    let target = dir.path().join("x.tar.zst");
    let archive = ArchiveFile::create(&target, FileMode::default()).unwrap();
    archive.write(&staging, "x", &["INDEX.txt"]).unwrap();
    let root = unpack(&target, "doctor/tree").unwrap();
    let through_link = root.path().join("sys/bus/pci/devices/0/vendor");
    assert_eq!(fs::read_to_string(through_link).unwrap(), "0x8086");
    let path = root.path().to_owned();
    drop(root);
    assert!(!path.exists());
    assert!(unpack(&target, "nothing").is_err());
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["../evil", "x/../../evil", "/evil", "x/recording/../../../evil"] {
        let path = bundle(dir.path(), &[(name, EntryType::Regular, "evil")]);
        for result in [recordings(&path).map(drop), unpack(&path, "recording").map(drop)] {
            let error = format!("{:#}", result.unwrap_err());
            assert!(error.contains("not one of a bundle"), "{name}: {error}");
        }
    }
    assert!(!dir.path().parent().unwrap().join("evil").exists());
}

#[test]
fn links_that_lead_elsewhere_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, "before").unwrap();
    let outside = secret.to_str().unwrap();
    let entries = [
        ("x/t/d/up", EntryType::Symlink, "../../../secret"),
        ("x/t/d/absolute", EntryType::Symlink, outside),
        ("x/t/d/deep", EntryType::Symlink, "../s/../../secret"),
        ("x/t/d/hard", EntryType::Link, outside),
        ("x/t/d/good", EntryType::Symlink, "../s/file"),
        ("x/t/s/file", EntryType::Regular, "inside"),
    ];
    let root = unpack(&bundle(dir.path(), &entries), "t").unwrap();
    let found = fs::read_dir(root.path().join("d")).unwrap();
    let found: Vec<_> = found.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(found, ["good"]);
    assert_eq!(fs::read_to_string(root.path().join("d/good")).unwrap(), "inside");
}

#[test]
fn nothing_is_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let entries =
        [("x/t/link", EntryType::Symlink, "other"), ("x/t/link/file", EntryType::Regular, "evil")];
    // The file makes a directory, in whose place no link can be made.
    assert!(unpack(&bundle(dir.path(), &entries), "t").is_err());
    let twice = [("x/t/a", EntryType::Regular, "one"), ("x/t/a", EntryType::Regular, "two")];
    assert!(unpack(&bundle(dir.path(), &twice), "t").is_err());
}

#[test]
fn a_damaged_bundle_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let recording = ("x/recording/a.jsonl.zst", EntryType::Regular, "lines");
    let path = bundle(dir.path(), &[recording]);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    assert!(recordings(&path).is_err());
}

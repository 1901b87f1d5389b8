//! Separate debug files, found in the places where gdb searches them.

use std::fs;
use std::time::Duration;

use object::Object;
use pmdscope_profile::{FileData, SeparateFiles};

use crate::debug_info::offsets::offsets_of_files;
use crate::debug_info::places::{self, Places};
use crate::debug_info::tests::Compiled;
use crate::debug_info::{DebugFiles, WorkDeadline};
use crate::layout::Offsets;

const SOURCE: &str = "
    struct rte_memzone {
        char moved[8], name[32]; unsigned long phys_addr, addr, len;
        unsigned long hugepage_sz; int socket_id; unsigned flags;
    };
    struct rte_tailq_entry { void *next, *previous, *data; } entry;
";

/// A library without debug information, and `library.debug` with it.
fn split() -> Compiled {
    let compiled = Compiled::new(SOURCE, &["-g"]);
    compiled.run("objcopy", &["--only-keep-debug", "library.so", "library.debug"]);
    compiled.run("objcopy", &["--strip-all", "library.so"]);
    compiled
}

/// The same, with a link in the library to its debug file.
fn linked() -> Compiled {
    let compiled = split();
    compiled.run("objcopy", &["--add-gnu-debuglink=library.debug", "library.so"]);
    compiled.run("objcopy", &["--remove-section=.note.gnu.build-id", "library.so"]);
    compiled
}

/// Finds offsets and places in an app whose root directory is that of the library, which is in
/// `/opt/app`.
fn found(compiled: &Compiled) -> (Offsets, Places) {
    let separate = SeparateFiles::below(vec![compiled.path("none"), compiled.path("")]);
    let path = "/opt/app/library.so";
    let files = DebugFiles::find(compiled.library(), path, &separate);
    let mut offsets = Offsets::new();
    offsets_of_files(&files, &WorkDeadline::after(Duration::from_secs(60)), &mut offsets);
    (offsets, places::read(&files))
}

fn assert_found(compiled: &Compiled) {
    let (offsets, places) = found(compiled);
    assert_eq!(offsets.get(&("rte_tailq_entry", "data")), Some(&16));
    assert_eq!(places.into_values().collect::<Vec<_>>(), ["source.c:6"]);
}

fn assert_not_found(compiled: &Compiled) {
    assert_eq!(found(compiled), (Offsets::new(), Places::new()));
}

/// Moves the debug file into a directory below the root.
fn put(compiled: &Compiled, directory: &str, name: &str) {
    fs::create_dir_all(compiled.path(directory)).unwrap();
    let to = compiled.path(directory).join(name);
    fs::rename(compiled.path("library.debug"), to).unwrap();
}

/// Directory and name of the debug file by build id, below the root.
fn by_build_id(compiled: &Compiled) -> (String, String) {
    let file = compiled.library();
    let data = FileData::new(&file);
    let elf = object::File::parse(&data).unwrap();
    let id = elf.build_id().unwrap().unwrap();
    let id = id.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    (format!("usr/lib/debug/.build-id/{}", &id[..2]), format!("{}.debug", &id[2..]))
}

#[test]
fn a_separate_file_is_found_by_build_id() {
    let compiled = split();
    assert_not_found(&compiled);
    let (directory, name) = by_build_id(&compiled);
    put(&compiled, &directory, &name);
    assert_found(&compiled);
}

#[test]
fn a_file_of_another_build_is_not_used() {
    let compiled = split();
    let (directory, name) = by_build_id(&compiled);
    let other = Compiled::new("int other;", &["-g"]);
    fs::create_dir_all(compiled.path(&directory)).unwrap();
    fs::copy(other.path("library.so"), compiled.path(&directory).join(name)).unwrap();
    assert_not_found(&compiled);

    let compiled = linked();
    fs::create_dir_all(compiled.path("opt/app")).unwrap();
    fs::copy(other.path("library.so"), compiled.path("opt/app/library.debug")).unwrap();
    assert_not_found(&compiled);
    // A right file in another place is found nevertheless.
    put(&compiled, "opt/app/.debug", "library.debug");
    assert_found(&compiled);
}

#[test]
fn a_separate_file_is_found_by_its_link() {
    for directory in ["opt/app", "opt/app/.debug", "usr/lib/debug/opt/app"] {
        let compiled = linked();
        assert_not_found(&compiled);
        put(&compiled, directory, "library.debug");
        assert_found(&compiled);
    }
}

#[test]
fn a_named_pipe_in_its_place_keeps_nobody_waiting() {
    let compiled = linked();
    fs::create_dir_all(compiled.path("opt/app")).unwrap();
    compiled.run("mkfifo", &["opt/app/library.debug"]);
    assert_not_found(&compiled);
}

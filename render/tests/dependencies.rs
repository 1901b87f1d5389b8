//! Text needs no terminal: this crate links no library for one, and commands that only print use
//! nothing that does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn no_library_for_terminals_is_linked() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges=normal", "--prefix=none"])
        .args(["--package=pmdscope-render", "--format={lib}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    let libraries: Vec<&str> = tree.lines().collect();
    assert!(libraries.contains(&"pmdscope_telemetry"), "{tree}");
    for terminal in ["ratatui", "ratatui_core", "crossterm", "pmdscope_tui"] {
        assert!(!libraries.contains(&terminal), "{terminal}: {tree}");
    }
}

#[test]
fn commands_that_print_do_not_use_the_display() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    for command in ["ls", "leaks", "netstat", "check", "doctor"] {
        let mut files = vec![src.join(command).with_extension("rs")];
        files.extend(sources(&src.join(command)));
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains("pmdscope_tui"), "{}", file.display());
        }
    }
}

/// All files below a folder; none where there is no such folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

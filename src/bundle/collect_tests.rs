//! Tests of how the end of a command is reported.

use super::*;

fn exit(code: i32) -> ExitStatus {
    ExitStatus::from_raw(code << 8)
}

#[test]
fn exit_status_1_with_a_result_is_no_failure() {
    let said = ["pmdscope: 3 packets of 1 sites written".to_owned()];
    assert_eq!(failure(exit(0), &said, false), None);
    assert_eq!(failure(exit(1), &said, true), None);
    assert_eq!(failure(exit(1), &said, false), Some(said[0].clone()));
}

#[test]
fn failures_have_their_reason() {
    let said = ["note".to_owned(), "pmdscope: error: no app runs".to_owned(), "  see".to_owned()];
    assert_eq!(failure(exit(1), &said, true).as_deref(), Some("no app runs"));
    assert_eq!(failure(exit(2), &[], true).as_deref(), Some("exit status 2"));
    assert_eq!(failure(ExitStatus::from_raw(9), &[], true).as_deref(), Some("killed by signal 9"));
}

#[test]
fn empty_files_are_no_result() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    fs::write(dir.path().join("dir/file"), "abc").unwrap();
    assert_eq!(file_entry(dir.path(), Path::new("empty")), None);
    assert_eq!(file_entry(dir.path(), Path::new("missing")), None);
    let entry = file_entry(dir.path(), Path::new("dir")).unwrap();
    assert_eq!((entry.path.as_str(), entry.bytes), ("dir", 3));
}

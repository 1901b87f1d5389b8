//! Tests that cannot run on this machine: reported, and listed at the end of `make test`.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Names the file to which skipped tests are added, one a line.
const LIST: &str = "PMDSCOPE_SKIPS";
/// `programs`: a test that is skipped because a program is missing fails.
const NO_SKIP: &str = "PMDSCOPE_NO_SKIP";

/// Is a missing program a failure? Then `PMDSCOPE_NO_SKIP` is `programs`.
pub fn programs_are_required() -> bool {
    std::env::var_os(NO_SKIP).is_some_and(|value| value == "programs")
}

/// The test that runs in this thread, as libtest names its threads.
pub fn current_test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

/// Reports that `test`, or a part of it, is skipped: the hardware, the kernel or its rights do not allow
/// it.
///
/// # Panics
/// When it cannot be listed.
pub fn skip(test: &str, reason: impl Display) {
    let line = format!("SKIP {test}: {reason}");
    eprintln!("{line}");
    let Some(list) = std::env::var_os(LIST) else { return };
    // One write, so that lines of tests that run at the same time stay whole.
    let added = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&list)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = added {
        panic!("cannot add to {}: {error}", list.display());
    }
}

/// Reports that `test`, or a part of it, is skipped because `program` is missing.
///
/// # Panics
/// Where programs are required.
pub fn skip_without(test: &str, program: impl Display) {
    assert!(!programs_are_required(), "{program} is not installed: `make setup` installs it");
    skip(test, format!("{program} is not installed"));
}

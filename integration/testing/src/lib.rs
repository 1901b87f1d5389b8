//! What the tests of all crates share: skips that are told, and limits on how long a program runs.
#![allow(clippy::panic)] // a test fails by panicking

mod limit;
mod skip;

pub use limit::{LIMIT, limited, output, spawn};
pub use skip::{current_test, programs_are_required, skip, skip_without};

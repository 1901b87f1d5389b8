//! What the tests of all crates share: reports of skips, limits on how long a program runs, testpmd, and an
//! app that answers as a test has it.
#![allow(clippy::panic)] // a test fails by panicking

mod fake_app;
mod limit;
#[cfg(feature = "schema")]
pub mod schema;
mod skip;
mod stopped;
mod testpmd;

pub use fake_app::{BANNER, Exchange, FakeApp, FakeConnection, connect, null, receive};
pub use limit::{LIMIT, limited, output, spawn};
pub use skip::{current_test, programs_are_required, skip, skip_without};
pub use stopped::all_stopped;
pub use testpmd::{TESTPMD, Testpmd, skip_without_testpmd};

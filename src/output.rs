//! Standard output that may go away.

use std::io::{self, Write};

use anyhow::{Context, Result};

/// Prints; `false` when nobody reads any more, as behind `| head -1`, which is no error.
pub(crate) fn print(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).context("cannot write to standard output"),
    }
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<bool> {
    let mut line = serde_json::to_string(value).context("cannot write JSON")?;
    line.push('\n');
    print(&line)
}

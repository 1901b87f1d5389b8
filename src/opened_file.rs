//! `pmdscope FILE`: the command that opens a file.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::file_kind::FileKind;
use crate::top;

/// The words that take the place of a file that stands where a command would; `None` for a word that is no
/// file. `is_alone`: nothing follows, which could be an option of one of the commands.
///
/// # Errors
///
/// When the word can only be a file, and that is not there, or nothing that can be opened.
pub(crate) fn command(word: &OsStr, is_alone: bool) -> Result<Option<Vec<OsString>>> {
    let path = Path::new(word);
    let bytes = word.as_encoded_bytes();
    if bytes.is_empty() || bytes.starts_with(b"-") {
        return Ok(None);
    }
    let Some(kind) = FileKind::of(path) else { return refuse(path).map(|()| None) };
    let command = command_for(kind, is_alone && !top::has_terminal());
    Ok(Some(vec![command.into(), "-r".into(), word.to_owned()]))
}

/// Without a terminal, a recording is checked: that is its summary.
fn command_for(kind: FileKind, summarize: bool) -> &'static str {
    match kind {
        FileKind::Capture => "capture",
        FileKind::Recording | FileKind::Bundle if summarize => "check",
        FileKind::Recording | FileKind::Bundle => "top",
    }
}

/// Names the file that cannot be opened, where the word is not a command that was mistyped.
fn refuse(path: &Path) -> Result<()> {
    let is_path = path.as_os_str().as_encoded_bytes().iter().any(|byte| b"/.".contains(byte));
    let name = path.display();
    match path.metadata() {
        Err(error) if is_path => Err(error).with_context(|| format!("cannot open {name}")),
        Ok(found) if is_path || found.is_file() => {
            bail!("{name} is neither a command nor a capture, recording or bundle")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_played_on_a_terminal_and_checked_elsewhere() {
        for (kind, on_terminal, elsewhere) in [
            (FileKind::Capture, "capture", "capture"),
            (FileKind::Recording, "top", "check"),
            (FileKind::Bundle, "top", "check"),
        ] {
            assert_eq!(
                [command_for(kind, false), command_for(kind, true)],
                [on_terminal, elsewhere]
            );
        }
    }

    #[test]
    fn a_word_is_a_command_unless_it_is_a_file() {
        let opened =
            |word: &str| command(OsStr::new(word), true).map_err(|error| format!("{error:#}"));
        for word in ["tpo", "", "-h", "--version", "src"] {
            assert_eq!(opened(word), Ok(None), "{word}");
        }
        assert!(
            opened("absent.pcapng").unwrap_err().starts_with("cannot open absent.pcapng: No such")
        );
        assert!(opened("Cargo.toml").unwrap_err().contains("neither a command nor a capture"));
        assert!(opened("./src").is_err());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jsonl.zst");
        std::fs::write(&path, "").unwrap();
        // With options, those of `top`.
        let words = command(path.as_os_str(), false).unwrap().unwrap();
        assert_eq!(words, [OsStr::new("top"), OsStr::new("-r"), path.as_os_str()]);
    }
}

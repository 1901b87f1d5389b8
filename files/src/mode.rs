//! Access modes of files.

use std::str::FromStr;

use rustix::fs::Mode;

/// What its owner needs of a file that is being written.
const OWNER: u32 = 0o600;
/// What can be granted: nobody executes what the tools write.
const GRANTED: u32 = 0o666;

/// The access mode of a new file: 0600 unless asked otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileMode(Option<u32>);

impl FileMode {
    /// For files without secrets that other users need: 0644.
    pub const PUBLIC: Self = Self(Some(0o644));

    /// Returns the bits for open(2).
    pub(crate) fn bits(self) -> Mode {
        Mode::from_raw_mode(self.0.unwrap_or(OWNER))
    }

    /// Returns the bits that were asked for, whatever the umask is.
    pub(crate) fn asked(self) -> Option<Mode> {
        self.0.map(Mode::from_raw_mode)
    }
}

impl FromStr for FileMode {
    type Err = String;

    /// Reads an octal number, as chmod(1).
    fn from_str(text: &str) -> Result<Self, String> {
        let bits = u32::from_str_radix(text, 8).ok().filter(|_| !text.starts_with('+'));
        let bits = bits.filter(|bits| bits & OWNER == OWNER && bits & !GRANTED == 0);
        bits.map(|bits| Self(Some(bits)))
            .ok_or_else(|| "expected 600, 640, 644, 660, 664 or the like".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_leave_the_owner_in() {
        assert_eq!("640".parse(), Ok(FileMode(Some(0o640))));
        assert_eq!("0644".parse(), Ok(FileMode::PUBLIC));
        for wrong in ["", "440", "700", "1600", "4644", "8", "u+r", "+640", "-600", "99999999999"] {
            assert!(wrong.parse::<FileMode>().is_err(), "{wrong}");
        }
    }
}

//! Memory mappings of a process: `/proc/PID/maps`.

use std::fs;
use std::io;

use super::process::PROC;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // the four permissions
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// Whether the app may read it.
    pub readable: bool,
    /// Whether the app may write it.
    pub writable: bool,
    /// Whether it is executable.
    pub executable: bool,
    /// Whether changes are shared with other processes.
    pub shared: bool,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Device of the file, as `major:minor` in hexadecimal.
    pub device: String,
    /// Inode of the file; 0 without one.
    pub inode: u64,
    /// Path of the file in the mount namespace of the process, a name such as `[heap]`, or empty.
    pub path: String,
}

impl Mapping {
    /// Whether it contains an address.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Reads the mappings of a process, in ascending order.
///
/// # Errors
/// When the process has ended, or access is denied.
pub fn read(pid: u32) -> io::Result<Vec<Mapping>> {
    // A path need not be UTF-8.
    Ok(parse(&String::from_utf8_lossy(&fs::read(format!("{PROC}/{pid}/maps"))?)))
}

/// Parses the text of `/proc/PID/maps`; lines of unknown form are ignored.
pub fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE   PATH`
fn line(line: &str) -> Option<Mapping> {
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (device, rest) = rest.split_once(' ')?;
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let permission = |place: usize, letter| permissions.as_bytes().get(place) == Some(&letter);
    let (start, end) = (hex(start)?, hex(end)?);
    if start >= end {
        return None;
    }
    Some(Mapping {
        start,
        end,
        readable: permission(0, b'r'),
        writable: permission(1, b'w'),
        executable: permission(2, b'x'),
        shared: permission(3, b's'),
        offset: hex(offset)?,
        device: device.to_owned(),
        inode: inode.parse().ok()?,
        path: path.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_read_with_and_without_a_file() {
        let text = "\
7f10-7f20 rw-s 00001000 fe:01 1234                       /dev/hugepages/a b (deleted)
7f20-7f30 r-xp 00000000 00:00 0
7f40-7f30 r-xp 00000000 00:00 0
nonsense
";
        let maps = parse(text);
        assert_eq!(maps.len(), 2);
        let first = &maps[0];
        assert!(first.readable && first.writable && first.shared && !first.executable);
        assert_eq!(
            (first.start, first.end, first.offset, first.inode),
            (0x7f10, 0x7f20, 4096, 1234)
        );
        assert_eq!(
            (first.device.as_str(), first.path.as_str()),
            ("fe:01", "/dev/hugepages/a b (deleted)")
        );
        assert!(first.contains(0x7f1f) && !first.contains(0x7f20));
        assert!(maps[1].executable && !maps[1].writable && !maps[1].shared);
    }

    #[test]
    fn this_process_has_code() {
        let maps = read(std::process::id()).unwrap();
        let here = this_process_has_code as fn() as usize as u64;
        assert!(maps.iter().any(|mapping| mapping.executable && mapping.contains(here)));
        assert!(maps.is_sorted_by_key(|mapping| mapping.start));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert_eq!(read(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    proptest! {
        #[test]
        fn any_text_parses(text in "([0-9a-f]{0,17}[- ]){0,3}[rwxps-]{0,5}( [0-9a-f:]{0,9}){0,3}.*") {
            let _ = parse(&text);
        }
    }
}

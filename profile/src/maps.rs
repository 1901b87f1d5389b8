//! What a process has mapped into memory: `/proc/PID/maps`.

use std::fs;
use std::io;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address.
    pub(crate) start: u64,
    /// Address behind the last.
    pub(crate) end: u64,
    /// The pages hold code.
    pub(crate) executable: bool,
    /// Offset of `start` in the file.
    pub(crate) offset: u64,
    /// Inode of the file; 0 without one.
    pub(crate) inode: u64,
    /// Path of the file in the mount namespace of the process, or a name such as `[vdso]`.
    pub(crate) path: String,
}

impl Mapping {
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// The mappings of a process.
///
/// # Errors
///
/// When the process has ended, or may not be looked at.
pub(crate) fn read(pid: u32) -> io::Result<Vec<Mapping>> {
    Ok(parse(&fs::read_to_string(format!("/proc/{pid}/maps"))?))
}

fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE   PATH`
fn line(line: &str) -> Option<Mapping> {
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        offset: hex(offset)?,
        inode: inode.parse().ok()?,
        path: path.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_and_without_a_file() {
        let text = "\
7f10-7f20 r-xp 00001000 fe:01 1234                       /usr/lib/a b.so (deleted)
7f20-7f30 rw-p 00000000 00:00 0
7ffd-7ffe r-xp 00000000 00:00 0                          [vdso]
nonsense
";
        let maps = parse(text);
        assert_eq!(maps.len(), 3);
        let first = Mapping {
            start: 0x7f10,
            end: 0x7f20,
            executable: true,
            offset: 0x1000,
            inode: 1234,
            path: "/usr/lib/a b.so (deleted)".to_owned(),
        };
        assert_eq!(maps[0], first);
        assert!(!maps[1].executable && maps[1].path.is_empty());
        assert_eq!((maps[2].path.as_str(), maps[2].inode), ("[vdso]", 0));
        assert!(first.contains(0x7f1f) && !first.contains(0x7f20));
    }

    #[test]
    fn this_process_has_code() {
        let maps = read(std::process::id()).unwrap();
        let here = this_process_has_code as fn() as usize as u64;
        assert!(maps.iter().any(|mapping| mapping.executable && mapping.contains(here)));
    }
}

//! The text of `/proc/PID/maps`, and a mapped file.

use std::sync::{Arc, OnceLock};

use pmdscope_telemetry::host::maps::parse;
use pmdscope_xray::{
    AppThread, Holder, HolderMap, HolderSources, Layout, Mapping, Memory, MemoryConfig, XrayError,
    XrayTarget,
};

use crate::input_file::InputFile;
use crate::made_up_app;

/// Stands for the path of the file.
const FILE: &str = "/app";

/// The memory configuration is searched in at most this many bytes.
const MOST_SEARCHED: u128 = 16 << 20;

/// Text, then a zero byte and the file that the text calls `/app`.
pub fn maps(input: &[u8]) {
    read(input);
}

/// All holders that were found.
fn read(input: &[u8]) -> Vec<Holder> {
    static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
    let Some(layout) = LAYOUT.get_or_init(made_up_app::layout) else { return Vec::new() };
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (text, file) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    let mut maps = parse(&String::from_utf8_lossy(text));
    for mapping in &maps {
        assert!(mapping.start < mapping.end, "{mapping:?}");
        assert_eq!(parse(&line(mapping)), std::slice::from_ref(mapping));
    }
    let Ok(input_file) = InputFile::new(file) else { return Vec::new() };
    for mapping in maps.iter_mut().filter(|mapping| mapping.path == FILE) {
        mapping.path = input_file.path().display().to_string();
    }
    let memory = Arc::new(MappedFile { maps: maps.clone(), file: file.to_vec() });
    let mapped = maps.iter().map(|mapping| u128::from(mapping.end - mapping.start)).sum::<u128>();
    if mapped < MOST_SEARCHED {
        let _ = MemoryConfig::find(memory.as_ref());
    }
    let target = XrayTarget::new(memory, layout.clone(), Vec::new());
    let threads = vec![AppThread { id: 42, is_main: true, name: "made".to_owned() }];
    let holders = HolderMap::new(&target, &HolderSources { pid: None, threads }, &maps);
    let mut found = Vec::new();
    for mapping in &maps {
        for address in [mapping.start.wrapping_sub(1), mapping.start, mapping.end - 1, mapping.end]
        {
            let _ = (holders.holder(address), holders.can_refer(address));
        }
        let words = (mapping.start..mapping.end).step_by(8).take(1024);
        let mut ids: Vec<_> = words.map(|address| holders.id(address)).collect();
        ids.dedup();
        found.extend(ids.into_iter().map(|id| holders.get(id)));
    }
    found
}

/// A line in the format of the kernel.
fn line(mapping: &Mapping) -> String {
    let permission = |is_set, letter| if is_set { letter } else { '-' };
    format!(
        "{:x}-{:x} {}{}{}{} {:08x} {} {} {}",
        mapping.start,
        mapping.end,
        permission(mapping.readable, 'r'),
        permission(mapping.writable, 'w'),
        permission(mapping.executable, 'x'),
        if mapping.shared { 's' } else { 'p' },
        mapping.offset,
        mapping.device,
        mapping.inode,
        mapping.path,
    )
}

/// Each mapping has the content of the file at its offset; nothing can be read beyond its end.
#[derive(Debug)]
struct MappedFile {
    maps: Vec<Mapping>,
    file: Vec<u8>,
}

impl Memory for MappedFile {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), XrayError> {
        let not_mapped = XrayError::NotMapped { address, bytes: buffer.len() };
        let piece =
            self.maps.iter().find(|mapping| mapping.contains(address)).and_then(|mapping| {
                let begin = (address - mapping.start).checked_add(mapping.offset)?;
                let begin = usize::try_from(begin).ok()?;
                self.file.get(begin..begin.checked_add(buffer.len())?)
            });
        buffer.copy_from_slice(piece.ok_or(not_mapped)?);
        Ok(())
    }

    fn maps(&self) -> Result<Vec<Mapping>, XrayError> {
        Ok(self.maps.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Otherwise the fuzzer would see no valid file.
    #[test]
    fn the_seed_has_variables() {
        let dir = tempfile::tempdir().unwrap();
        let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");
        let library = dir.path().join("library.so");
        let options = ["-shared", "-fPIC", "-g", "-nostdlib", "-o"];
        let mut cc = Command::new("cc");
        cc.args(options).arg(&library).arg(format!("{seeds}/library.c"));
        assert!(cc.status().unwrap().success());
        let text = std::fs::read(format!("{seeds}/maps.txt")).unwrap();
        let library = std::fs::read(library).unwrap();
        let found = read(&[&text[..], &[0], &library].concat());
        let is_held = |holder: &Holder| match holder {
            Holder::Global { symbol, place, .. } => {
                symbol.as_deref() == Some("held") && place.as_deref() == Some("library.c:4")
            }
            _ => false,
        };
        assert!(found.iter().any(is_held), "{found:?}");
        for end in (0..library.len()).step_by(500) {
            maps(&[&text[..], &[0], &library[..end]].concat());
        }
    }
}

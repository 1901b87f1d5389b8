//! Tells in advance whether files have packets of several interfaces.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::item::FileItem;
use super::merged::ReplayInput;
use super::reader::CaptureFile;
use crate::control::RunControl;

/// Most bytes of packets of all files that are looked at: a small part of a second.
const MOST: u64 = 16 << 20;

/// Returns whether files have several named interfaces, of one section or of several, as far as their first
/// 16 MiB tell. Pipes are not read, and whatever is wrong with a file is left to its reader.
pub fn have_several_interfaces(files: &[CaptureFile], stop: &Arc<AtomicBool>) -> bool {
    let (mut names, mut bytes) = (BTreeSet::new(), 0);
    // Not counted as read: the replay reads it again.
    let control = RunControl { stop: Arc::clone(stop), ..RunControl::default() };
    let readable = files.iter().filter(|file| file.path.is_file() || file.path.is_dir());
    for file in readable {
        let Ok(mut input) = ReplayInput::open(file, &control) else { continue };
        while bytes < MOST && matches!(input.advance(), Ok(true)) {
            match input.item() {
                Ok(FileItem::Interface(interface)) if !interface.name.is_empty() => {
                    names.insert(interface.name);
                    if names.len() > 1 {
                        return true;
                    }
                }
                Ok(FileItem::Packet(packet)) => bytes += packet.data.len() as u64,
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
    false
}

//! The object file of the XDP program, and the settings in it.

use object::{Object, ObjectSection, ObjectSymbol};

use crate::error::BypassError;
use crate::flow::{BypassFlow, MAX_FLOWS};

/// The compiled `integration/bypass/redirect.bpf.c`.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

/// Name of the program.
pub(crate) const PROGRAM_NAME: &str = "pmdscope_bypass";

/// Name of the variable with the settings.
const SETTINGS: &str = "bypass_settings";

/// Size of `struct settings`.
pub(crate) const SETTINGS_SIZE: usize = 8 + 4 * MAX_FLOWS;

/// Encodes `struct settings` of the program.
pub(crate) fn settings(queue: u32, flows: &[BypassFlow]) -> [u8; SETTINGS_SIZE] {
    let mut settings = [0; SETTINGS_SIZE];
    let flows = &flows[..flows.len().min(MAX_FLOWS)];
    let count = u32::try_from(flows.len()).unwrap_or(0);
    settings[..4].copy_from_slice(&queue.to_ne_bytes());
    settings[4..8].copy_from_slice(&count.to_ne_bytes());
    for (entry, flow) in settings[8..].chunks_exact_mut(4).zip(flows) {
        entry[..2].copy_from_slice(&flow.port.to_ne_bytes());
        entry[2] = flow.protocol.number();
    }
    settings
}

/// Returns the object file with these settings as initial values, so that its loader need not set them.
pub(crate) fn with_settings(settings: &[u8; SETTINGS_SIZE]) -> Result<Vec<u8>, BypassError> {
    let unexpected = || BypassError::Unexpected(format!("{SETTINGS} in the object file"));
    let file = object::File::parse(OBJECT).map_err(|_| unexpected())?;
    let symbol = file.symbol_by_name(SETTINGS).ok_or_else(unexpected)?;
    let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
    let (offset, _) = section.and_then(|section| section.file_range()).ok_or_else(unexpected)?;
    let start = usize::try_from(offset + symbol.address()).map_err(|_| unexpected())?;
    let mut bytes = OBJECT.to_vec();
    let place = bytes.get_mut(start..start + SETTINGS_SIZE).ok_or_else(unexpected)?;
    if symbol.size() != SETTINGS_SIZE as u64 {
        return Err(unexpected());
    }
    place.copy_from_slice(settings);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_into_the_object_file() {
        let flows = ["udp:53".parse().unwrap(), "tcp:443".parse().unwrap()];
        let settings = settings(2, &flows);
        assert_eq!(settings[..16], [2, 0, 0, 0, 2, 0, 0, 0, 53, 0, 17, 0, 0xbb, 1, 6, 0]);
        let object = with_settings(&settings).unwrap();
        let changed = object.iter().zip(OBJECT).filter(|(new, old)| new != old).count();
        assert_eq!(object.len(), OBJECT.len());
        assert!((1..=SETTINGS_SIZE).contains(&changed));
        assert!(object.windows(SETTINGS_SIZE).any(|bytes| bytes == settings));
    }
}

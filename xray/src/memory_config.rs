//! Finds the memory configuration of the EAL (`struct rte_mem_config`) in the memory of an app, and
//! the memzones in it. No symbol, file or socket of the app is needed, so it also works for
//! stripped programs, `--in-memory`, apps that are stopped, and core files.
//!
//! The structure is private to DPDK and differs between releases, but the following has not changed
//! from 21.11 to 25.11: the magic number and the version at its start, and shortly after them the
//! `struct rte_fbarray` named `memzone`, whose elements are `struct rte_memzone`.

use std::thread::sleep;
use std::time::Duration;

use crate::address::{Address, AddressRange};
use crate::error::XrayError;
use crate::field::Field;
use crate::memory::{Memory, read_array};
use crate::memzone::Memzone;
use crate::search;

/// `RTE_MAGIC`, written when the EAL is initialised.
const MAGIC: u32 = 19_820_526;

/// Maximum distance of the array of memzones from the start of the configuration.
const MOST_DISTANCE: u64 = 128;

/// The name of the array, with its terminating zero.
pub(crate) const ARRAY_NAME: [u8; 8] = *b"memzone\0";

/// `struct rte_fbarray`.
const ARRAY_LEN: u64 = 68;
const ARRAY_ELEMENT_BYTES: u64 = 72;
const ARRAY_DATA: u64 = 80;
pub(crate) const ARRAY_BYTES: usize = 96;

/// `struct rte_memzone`, whose name has 32 bytes.
const ZONE_ADDRESS: u64 = 40;
const ZONE_LEN: u64 = 48;
const ZONE_NAME_BYTES: usize = 32;
const ZONE_BYTES: usize = 72;

/// Maximum plausible number of memzones; the default of DPDK is 2560.
const MOST_ZONES: usize = 1 << 17;

/// Addresses of programs have 47 bits, or 56 with five levels of pages.
const MOST_ADDRESS: u64 = 1 << 56;

/// How often the memzones are read if they change meanwhile.
const ATTEMPTS: u32 = 5;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// The memory configuration of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Address in the app.
    pub address: u64,
    /// Address of the name of its array of memzones.
    pub array: u64,
    /// Release of DPDK, as [`SocketBanner::version`](pmdscope_telemetry::SocketBanner::version) has it.
    pub version: String,
    /// The memzones, by address.
    pub memzones: Vec<Memzone>,
}

impl MemoryConfig {
    /// Finds it.
    ///
    /// # Errors
    /// [`XrayError::NoMemoryConfig`] if there is none, or several; [`XrayError::Implausible`] if its
    /// memzones contradict each other; as [`Memory::read`].
    pub fn find(memory: &dyn Memory) -> Result<Self, XrayError> {
        let maps = memory.maps()?;
        let mut searched = 0_u64;
        let mut implausible = None;
        for ranges in search::ranges(&maps) {
            let mut found: Vec<Self> = Vec::new();
            for range in ranges {
                for name in search::find_word(memory, &range, ARRAY_NAME)? {
                    match Self::at(memory, range.start(), name) {
                        Ok(Some(config)) => found.push(config),
                        Ok(None) => {}
                        Err(error @ XrayError::Ended { .. }) => return Err(error),
                        Err(error) => implausible = Some(error),
                    }
                }
                searched = range.bytes().saturating_add(searched);
            }
            match (found.pop(), found.len()) {
                (None, _) => {}
                (Some(config), 0) => return Ok(config),
                (Some(_), others) => {
                    let why = format!("{} of them are there", others.saturating_add(1));
                    return Err(XrayError::NoMemoryConfig { why });
                }
            }
        }
        let why = format!(
            "{searched} bytes of its writable memory hold none: it is no DPDK app, or its EAL is not \
             initialised yet"
        );
        Err(implausible.unwrap_or(XrayError::NoMemoryConfig { why }))
    }

    /// That in the mapping from `start` on whose array of memzones has its name at this address;
    /// `None` if there is no configuration.
    fn at(memory: &dyn Memory, start: u64, name: u64) -> Result<Option<Self>, XrayError> {
        let begin = name.saturating_sub(MOST_DISTANCE).max(start);
        let head = AddressRange::from(begin..name);
        let mut head = vec![0; usize::try_from(head.bytes()).unwrap_or_default()];
        let Ok(()) = memory.read(begin, &mut head) else { return Ok(None) };
        let Ok(array) = read_array::<ARRAY_BYTES>(memory, name) else { return Ok(None) };
        let Some((offset, version)) = version(&head) else { return Ok(None) };
        let Some(zones) = ZoneArray::parse(&array) else { return Ok(None) };
        let memzones = zones.read(memory)?;
        let address = Address(begin).member(offset as u64)?;
        Ok(Some(Self { address, array: name, version, memzones }))
    }

    /// The current memzones, by address, in the array whose name is at [`MemoryConfig::array`].
    ///
    /// # Errors
    /// [`XrayError::Implausible`] if the array is not there any more, or the memzones contradict each other;
    /// as [`Memory::read`].
    pub fn memzones_in(memory: &dyn Memory, array: u64) -> Result<Vec<Memzone>, XrayError> {
        let bytes = read_array::<ARRAY_BYTES>(memory, array)?;
        let zones = bytes.starts_with(&ARRAY_NAME).then(|| ZoneArray::parse(&bytes)).flatten();
        let gone = || XrayError::implausible("the memzones", "they are somewhere else now");
        zones.ok_or_else(gone)?.read(memory)
    }
}

/// Offset of the configuration in `head`, and the release in it.
fn version(head: &[u8]) -> Option<(usize, String)> {
    (0..head.len()).step_by(8).rev().find_map(|offset| {
        let head = head.get(offset..).unwrap_or_default();
        let field = |offset| Field { bytes: head, offset }.u32();
        let [year, month, minor, release] = field(4).to_be_bytes();
        let is_release = (16..=99).contains(&year) && (1..=12).contains(&month);
        if field(0) != MAGIC || !is_release {
            return None;
        }
        // 99 means a release, less than 16 a release candidate.
        let candidate = if release < 16 { format!("-rc{release}") } else { String::new() };
        Some((offset, format!("DPDK {year}.{month:02}.{minor}{candidate}")))
    })
}

/// The `struct rte_fbarray` of the memzones.
#[derive(Clone, Copy, Debug)]
struct ZoneArray {
    elements: usize,
    data: u64,
}

impl ZoneArray {
    fn parse(array: &[u8]) -> Option<Self> {
        let field = |offset| Field { bytes: array, offset };
        let elements = usize::try_from(field(ARRAY_LEN).u32()).ok()?;
        let data = field(ARRAY_DATA).u64();
        let known = field(ARRAY_ELEMENT_BYTES).u32() as usize == ZONE_BYTES
            && (1..=MOST_ZONES).contains(&elements)
            && data.is_multiple_of(8)
            && (1..MOST_ADDRESS).contains(&data);
        known.then_some(Self { elements, data })
    }

    fn zone_bytes(&self) -> usize {
        self.elements.saturating_mul(ZONE_BYTES)
    }

    /// The mask of used elements follows them: the number of its words in 8 bytes, and the words.
    fn mask_bytes(&self) -> usize {
        self.elements.div_ceil(64).saturating_add(1).saturating_mul(8)
    }

    /// The memzones, by address. If the app reserves or frees memzones meanwhile, they are read
    /// again. Memzones of a stopped app that are only partly reserved or freed are left out.
    fn read(&self, memory: &dyn Memory) -> Result<Vec<Memzone>, XrayError> {
        let mut bytes = vec![0; self.zone_bytes().saturating_add(self.mask_bytes())];
        let mut again = vec![0; bytes.len()];
        let mut last = None;
        memory.read(self.data, &mut bytes)?;
        for _ in 0..ATTEMPTS {
            memory.read(self.data, &mut again)?;
            last = (bytes == again).then(|| self.parse_zones(&bytes));
            match &last {
                Some(Ok((_, changing))) if *changing == 0 => break,
                _ => sleep(PAUSE),
            }
            std::mem::swap(&mut bytes, &mut again);
        }
        let why = format!("they changed each of {ATTEMPTS} times that they were read");
        let (memzones, _) =
            last.unwrap_or_else(|| Err(XrayError::implausible("the memzones", why)))?;
        Ok(memzones)
    }

    /// The memzones, by address, and the number of further ones that are being reserved or freed.
    fn parse_zones(&self, bytes: &[u8]) -> Result<(Vec<Memzone>, usize), XrayError> {
        let implausible = |why: String| XrayError::implausible("the memzones", why);
        let (zones, mask) = bytes.split_at(self.zone_bytes());
        let words = Field { bytes: mask, offset: 0 }.u32() as usize;
        if words != self.elements.div_ceil(64) {
            return Err(implausible(format!("{words} words for {} elements", self.elements)));
        }
        let is_used = |index: usize| {
            let (words, _) = mask.as_chunks::<8>();
            let word = words.get((index / 64).saturating_add(1)).copied().unwrap_or_default();
            u64::from_le_bytes(word) & 1 << (index % 64) != 0
        };
        let used = zones.chunks_exact(ZONE_BYTES).enumerate().filter(|(index, _)| is_used(*index));
        let (mut memzones, mut changing) = (Vec::new(), 0_usize);
        for (index, bytes) in used {
            let zone = zone(bytes);
            if zone.name.is_empty() || zone.address == 0 || zone.bytes == 0 {
                changing = changing.saturating_add(1);
            } else if is_plausible(&zone) {
                memzones.push(zone);
            } else {
                return Err(implausible(format!("number {index} has no valid name or address")));
            }
        }
        memzones.sort_by_key(|zone| zone.address);
        let mut pairs = memzones.iter().zip(memzones.iter().skip(1));
        if let Some((one, other)) = pairs.find(|(one, other)| one.contains(other.address)) {
            return Err(implausible(format!("{} and {} overlap", one.name, other.name)));
        }
        Ok((memzones, changing))
    }
}

/// A `struct rte_memzone`.
fn zone(bytes: &[u8]) -> Memzone {
    let field = |offset| Field { bytes, offset };
    Memzone {
        name: field(0).text(ZONE_NAME_BYTES),
        address: field(ZONE_ADDRESS).u64(),
        bytes: field(ZONE_LEN).u64(),
    }
}

fn is_plausible(zone: &Memzone) -> bool {
    zone.name.len() < ZONE_NAME_BYTES
        && !zone.name.contains(char::is_control)
        && zone.address.checked_add(zone.bytes).is_some_and(|end| end < MOST_ADDRESS)
}

#[cfg(test)]
#[path = "memory_config_tests.rs"]
pub(crate) mod tests;

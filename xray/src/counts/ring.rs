//! Software rings: number of entries between producers and consumers.

use crate::address::Address;
use crate::error::XrayError;
use crate::memzone::Memzone;
use crate::target::{XrayTarget, is_ring_size};

use super::{ATTEMPTS, Counts, RING_ZONE, RingCount, read_words};

/// `RTE_RING_NAMESIZE` in all releases: a name of a memzone without [`RING_ZONE`].
const NAME_BYTES: usize = 29;

/// `RTE_RING_SYNC_ST`
const SINGLE_THREAD: u32 = 1;

/// Words that are read of a ring: the producers' tail is read again after the consumers' tail, to
/// detect whether it has moved.
const WORDS: usize = 3;

/// A ring with a valid header.
struct Ring<'a> {
    zone: &'a Memzone,
    capacity: u32,
    single_producer: bool,
    single_consumer: bool,
    /// The last plausible positions of producers and consumers, though perhaps not of one moment.
    positions: Option<[u32; 2]>,
}

/// Adds the counts of these rings.
pub(super) fn count(
    target: &XrayTarget,
    zones: &[&Memzone],
    counts: &mut Counts,
) -> Result<(), XrayError> {
    let mut rings = headers(target, zones, counts)?;
    let mut moving: Vec<&mut Ring<'_>> = rings.iter_mut().collect();
    for _ in 0..ATTEMPTS {
        if moving.is_empty() {
            break;
        }
        let words: Vec<_> = moving.iter().flat_map(|ring| words(target, ring.zone)).collect();
        let words: Vec<u64> = words.into_iter().collect::<Result<_, _>>()?;
        let values = match read_words(target.memory.as_ref(), &words) {
            // One ring was freed.
            Err(XrayError::NotMapped { .. }) => {
                counts.outdated = true;
                break;
            }
            values => values?,
        };
        let (values, _) = values.as_chunks::<WORDS>();
        let read = moving.into_iter().zip(values);
        moving = read.filter_map(|(ring, values)| (!ring.take(*values)).then_some(ring)).collect();
    }
    for ring in rings {
        let name = ring.zone.name.strip_prefix(RING_ZONE).unwrap_or_default().to_owned();
        let Some([enqueued, dequeued]) = ring.positions else {
            let why = format!("its entries do not fit into its {}", ring.capacity);
            counts.problems.push(XrayError::implausible(format!("ring {name}"), why));
            continue;
        };
        counts.rings.push(RingCount {
            name,
            capacity: u64::from(ring.capacity),
            used: u64::from(enqueued.wrapping_sub(dequeued)),
            address: ring.zone.address,
            enqueued,
            dequeued,
            single_producer: ring.single_producer,
            single_consumer: ring.single_consumer,
        });
    }
    Ok(())
}

fn words(target: &XrayTarget, zone: &Memzone) -> [Result<u64, XrayError>; WORDS] {
    let layout = &target.layout.ring;
    let tails = [layout.prod_tail, layout.cons_tail, layout.prod_tail];
    tails.map(|offset| Address(zone.address).member(offset))
}

impl Ring<'_> {
    /// Stores the positions of producers and consumers; false if they have to be read again.
    fn take(&mut self, [before, consumer, after]: [u32; WORDS]) -> bool {
        let used = before.wrapping_sub(consumer);
        if used <= self.capacity {
            self.positions = Some([before, consumer]);
        }
        before == after && used <= self.capacity
    }
}

/// The rings whose headers are valid.
fn headers<'a>(
    target: &XrayTarget,
    zones: &[&'a Memzone],
    counts: &mut Counts,
) -> Result<Vec<Ring<'a>>, XrayError> {
    let layout = &target.layout.ring;
    let last = layout.capacity.max(layout.prod_sync_type).max(layout.cons_sync_type);
    let length = usize::try_from(last).unwrap_or_default();
    let length = length.saturating_add(size_of::<u32>());
    let addresses: Vec<u64> = zones.iter().map(|zone| zone.address).collect();
    let mut bytes = vec![0; length.saturating_mul(zones.len())];
    if zones.is_empty() {
        return Ok(Vec::new());
    }
    match target.memory.read_pieces(&addresses, &mut bytes) {
        Err(XrayError::NotMapped { .. }) => return one_by_one(target, zones, counts, length),
        read => read?,
    }
    let headers = zones.iter().zip(bytes.chunks_exact(length));
    let rings = headers.map(|(zone, header)| ring(target, zone, header));
    rings.filter_map(|ring| counts.keep(ring).transpose()).collect()
}

/// Reads them one by one, as some were freed.
fn one_by_one<'a>(
    target: &XrayTarget,
    zones: &[&'a Memzone],
    counts: &mut Counts,
    length: usize,
) -> Result<Vec<Ring<'a>>, XrayError> {
    let mut header = vec![0; length];
    let mut read = |zone: &&'a Memzone| {
        target.memory.read(zone.address, &mut header)?;
        ring(target, zone, &header)
    };
    zones.iter().filter_map(|zone| counts.keep(read(zone)).transpose()).collect()
}

fn ring<'a>(target: &XrayTarget, zone: &'a Memzone, header: &[u8]) -> Result<Ring<'a>, XrayError> {
    let layout = &target.layout.ring;
    let at = |offset: u64| header.get(usize::try_from(offset).unwrap_or(usize::MAX)..);
    let word = |offset| {
        at(offset)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let implausible = |why| Err(XrayError::implausible(format!("memzone {}", zone.name), why));
    let name = at(layout.name).unwrap_or_default();
    let name = &name[..name.len().min(NAME_BYTES)];
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if zone.name.strip_prefix(RING_ZONE).map(str::as_bytes) != Some(name) {
        return implausible(format!(
            "the name of its ring reads {:?}",
            String::from_utf8_lossy(name)
        ));
    }
    let (size, mask, capacity) = (word(layout.size), word(layout.mask), word(layout.capacity));
    if !is_ring_size(size, mask) || capacity > mask {
        let why = format!("a ring of size {size} with mask {mask} and capacity {capacity}");
        return implausible(why);
    }
    Ok(Ring {
        zone,
        capacity,
        single_producer: word(layout.prod_sync_type) == SINGLE_THREAD,
        single_consumer: word(layout.cons_sync_type) == SINGLE_THREAD,
        positions: None,
    })
}

//! Memzones whose names show what they are.

use super::Owned;
use super::queues::{PortQueues, port};
use crate::address::Address;
use crate::layout::RingLayout;
use crate::memory::{Memory, read_u32};
use crate::memzone::Memzone;
use crate::report::Holder;
use crate::target::{XrayTarget, is_ring_size};

/// Prefix of the memzone names of rings.
const RING_ZONE: &str = "RG_";

/// The memzones of an app.
pub(super) fn memzones(target: &XrayTarget, ports: &[PortQueues]) -> Vec<Owned> {
    let owned = |zone: &Memzone| Owned::new(zone.range(), holder(target, ports, zone));
    target.memzones.iter().map(owned).collect()
}

fn holder(target: &XrayTarget, ports: &[PortQueues], zone: &Memzone) -> Holder {
    let ring = || {
        let name = zone.name.strip_prefix(RING_ZONE)?.to_owned();
        let (used, capacity) =
            ring_fill(target.memory.as_ref(), &target.layout.ring, zone.address)?;
        Some(Holder::Ring { name, used, capacity })
    };
    let queue = || {
        let queue = queue_of_name(&zone.name)?;
        let known = ports.iter().find(|known| known.port == port(&queue).unwrap_or(u16::MAX));
        // The control queue of virtio has the number after the last.
        let other = known.filter(|known| !known.has(&queue));
        Some(other.map_or(queue, |other| Holder::PortDriver { port: other.port }))
    };
    ring().or_else(queue).unwrap_or_else(|| Holder::Memzone { name: zone.name.clone() })
}

/// Entries in use, and those that are usable; `None` if the ring is not consistent.
fn ring_fill(memory: &dyn Memory, layout: &RingLayout, ring: u64) -> Option<(u64, u64)> {
    let field = |offset: u64| read_u32(memory, Address(ring).plus(offset)?).ok();
    // Read consumers first: entries that producers add meanwhile only increase the number.
    let consumed = field(layout.cons_tail)?;
    let produced = field(layout.prod_tail)?;
    let (size, mask, capacity) =
        (field(layout.size)?, field(layout.mask)?, field(layout.capacity)?);
    let plausible = is_ring_size(size, mask) && capacity <= mask;
    // More entries may have been added than it holds, if consumers were active between the two
    // reads.
    let used = produced.wrapping_sub(consumed).min(capacity);
    plausible.then(|| (used.into(), capacity.into()))
}

/// Queues of drivers: `eth_p0_q1_rx_ring` by `rte_eth_dma_zone_reserve()`, `port0_vq3` by virtio,
/// where RX and TX queues alternate.
pub(super) fn queue_of_name(name: &str) -> Option<Holder> {
    if let Some(rest) = name.strip_prefix("eth_p") {
        let (port, rest) = number(rest)?;
        let (queue, purpose) = number(rest.strip_prefix("_q")?)?;
        // The queues of flow director carry no packets of the app, although their names contain
        // "rx".
        return match purpose.strip_prefix('_')? {
            purpose if purpose.contains("fdir") => None,
            purpose if purpose.contains("rx") => Some(Holder::RxQueue { port, queue }),
            purpose if purpose.contains("tx") => Some(Holder::TxQueue { port, queue }),
            _ => None,
        };
    }
    let (port, rest) = number(name.strip_prefix("port")?)?;
    let (ring, rest) = number(rest.strip_prefix("_vq")?)?;
    let queue = ring / 2;
    match (rest, ring % 2) {
        ("" | "_hdr", 0) => Some(Holder::RxQueue { port, queue }),
        ("" | "_hdr", _) => Some(Holder::TxQueue { port, queue }),
        _ => None,
    }
}

/// The number with which a text begins, and the rest.
fn number(text: &str) -> Option<(u16, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_name_their_queues() {
        let rx = |port, queue| Some(Holder::RxQueue { port, queue });
        let tx = |port, queue| Some(Holder::TxQueue { port, queue });
        assert_eq!(queue_of_name("eth_p0_q1_rx_ring"), rx(0, 1));
        assert_eq!(queue_of_name("eth_p12_q0_tx_ring"), tx(12, 0));
        assert_eq!(queue_of_name("eth_p3_q15_i40e_tx_ring"), tx(3, 15));
        assert_eq!(queue_of_name("port1_vq4"), rx(1, 2));
        assert_eq!(queue_of_name("port1_vq5_hdr"), tx(1, 2));
        for other in [
            "eth_p0_q0_fdir_rx_ring",
            "eth_p0_q0_cq_ring",
            "eth_p0_q",
            "eth_p99999_q0_rx_ring",
            "eth_p_q_rx",
            "port0_shadow_cvq",
            "port0_vq1x",
            "rte_eth_dev_data",
            "",
        ] {
            assert_eq!(queue_of_name(other), None, "{other}");
        }
    }
}

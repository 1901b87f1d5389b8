//! Ethernet, its tags, and labels of MPLS.

use super::{IPV4, IPV6, NetworkLayer, VlanTags, be16, ip};

const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
const MPLS: [u16; 2] = [0x8847, 0x8848];

/// `None` where the header is not there as a whole, or that of IP behind it.
#[inline]
pub(super) fn ethernet<'a>(
    data: &'a [u8],
    tags: &mut VlanTags,
) -> Option<(NetworkLayer, &'a [u8])> {
    typed(be16(data, 12)?, &data[14..], tags)
}

/// What stands behind a type.
#[inline]
pub(super) fn typed<'a>(
    mut ether_type: u16,
    mut data: &'a [u8],
    tags: &mut VlanTags,
) -> Option<(NetworkLayer, &'a [u8])> {
    while VLAN.contains(&ether_type) {
        tags.push(be16(data, 0)? & 0x0fff);
        (ether_type, data) = (be16(data, 2)?, &data[4..]);
    }
    match ether_type {
        IPV4 => ip::v4(data),
        IPV6 => ip::v6(data),
        _ if MPLS.contains(&ether_type) => labelled(ether_type, data),
        _ => Some((NetworkLayer::Other(ether_type), data)),
    }
}

/// IP of either version, without a type in front.
pub(super) fn raw(data: &[u8]) -> Option<(NetworkLayer, &[u8])> {
    match data.first()? >> 4 {
        4 => ip::v4(data),
        6 => ip::v6(data),
        _ => None,
    }
}

/// Labels do not say what they carry; where it does not look like IP, it is none.
fn labelled(ether_type: u16, data: &[u8]) -> Option<(NetworkLayer, &[u8])> {
    let (labels, _) = data.as_chunks::<4>();
    let last = labels.iter().position(|label| label[2] & 1 == 1)?;
    let carried = &data[(last + 1) * 4..];
    Some(raw(carried).unwrap_or((NetworkLayer::Other(ether_type), carried)))
}

//! What lost packets have in common: one group per port, protocol, segments, reference count and, where
//! one stands out, conversation.

use std::collections::{BTreeMap, BTreeSet};

use pmdscope_flows::{FlowEndpoint, PacketContent};
use pmdscope_packets::ETHERNET;
use pmdscope_render::conversation;
use pmdscope_telemetry::sample::LostGroupSample;
use pmdscope_xray::LostMbuf;

/// Most groups of a pool; the smallest of more are one.
const MOST_GROUPS: usize = 6;

/// Fewest packets of a group in which a conversation is looked for that stands out.
const FEWEST_TO_DIVIDE: usize = 4;

/// A lost mbuf, and the packet in it.
#[derive(Clone, Debug)]
pub(super) struct LostPacket<'a> {
    pub(super) mbuf: &'a LostMbuf,
    pub(super) content: PacketContent,
}

/// Lost packets with something in common.
#[derive(Clone, Debug)]
pub(super) struct LostGroup<'a> {
    pub(super) packets: Vec<LostPacket<'a>>,
}

impl<'a> LostPacket<'a> {
    /// With the first bytes of the packet, as far as they could be read.
    pub(super) fn new(mbuf: &'a LostMbuf, data: &[u8]) -> Self {
        Self { mbuf, content: PacketContent::of(ETHERNET, data, mbuf.packet_bytes) }
    }

    fn ends(&self) -> Option<(u8, FlowEndpoint, FlowEndpoint)> {
        match self.content {
            PacketContent::Ip { protocol, source, destination } => {
                Some((protocol, source, destination))
            }
            _ => None,
        }
    }

    fn source(&self) -> Option<FlowEndpoint> {
        self.ends().map(|(_, source, _)| source)
    }

    fn destination(&self) -> Option<FlowEndpoint> {
        self.ends().map(|(_, _, destination)| destination)
    }

    /// Its name; `None` where the packet cannot be read.
    fn protocol(&self) -> Option<String> {
        match self.content {
            PacketContent::Ip { protocol, .. } => Some(conversation::protocol(protocol)),
            PacketContent::Other(0x0806) => Some("arp".to_owned()),
            PacketContent::Other(ether_type) => Some(format!("{ether_type:#06x}")),
            PacketContent::Unreadable => None,
        }
    }
}

/// The packets by what they have in common, the largest group first.
pub(super) fn grouped<'a>(packets: Vec<LostPacket<'a>>) -> Vec<LostGroup<'a>> {
    let mut alike: BTreeMap<_, Vec<LostPacket<'a>>> = BTreeMap::new();
    for packet in packets {
        let mbuf = packet.mbuf;
        let key = (mbuf.port, packet.protocol(), mbuf.segments, mbuf.refcnt);
        alike.entry(key).or_default().push(packet);
    }
    let mut groups: Vec<_> = alike.into_values().flat_map(divided).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.packets.len()));
    if groups.len() > MOST_GROUPS {
        let others = groups.split_off(MOST_GROUPS - 1);
        let packets = others.into_iter().flat_map(|group| group.packets).collect();
        groups.push(LostGroup { packets });
    }
    groups
}

/// Sets the packets of a conversation, or else of a receiver, apart that has half of them or more.
fn divided(packets: Vec<LostPacket<'_>>) -> Vec<LostGroup<'_>> {
    let conversation = |packet: &LostPacket| packet.ends();
    let receiver = |packet: &LostPacket| {
        packet.destination().map(|end| (0, end, FlowEndpoint { port: 0, ..end }))
    };
    let top = dominant(&packets, conversation).map(|of| (of, true));
    let top = top.or_else(|| dominant(&packets, receiver).map(|of| (of, false)));
    let Some((top, by_conversation)) = top else { return vec![LostGroup { packets }] };
    let is_top = |packet: &LostPacket| {
        let key = if by_conversation { conversation(packet) } else { receiver(packet) };
        key == Some(top)
    };
    let (packets, others): (Vec<_>, Vec<_>) = packets.into_iter().partition(is_top);
    let groups = [packets, others].map(|packets| LostGroup { packets });
    groups.into_iter().filter(|group| !group.packets.is_empty()).collect()
}

fn dominant<K: Ord + Copy>(
    packets: &[LostPacket<'_>],
    key: impl Fn(&LostPacket<'_>) -> Option<K>,
) -> Option<K> {
    let mut counts: BTreeMap<K, usize> = BTreeMap::new();
    for key in packets.iter().filter_map(key) {
        *counts.entry(key).or_default() += 1;
    }
    let (key, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (packets.len() >= FEWEST_TO_DIVIDE && count * 2 >= packets.len()).then_some(key)
}

impl LostGroup<'_> {
    /// What is common to all of it.
    #[allow(clippy::redundant_closure_for_method_calls)] // a method is of one lifetime only
    pub(super) fn summary(&self) -> LostGroupSample {
        let packets = &self.packets;
        let ends: BTreeSet<_> = packets.iter().filter_map(LostPacket::ends).collect();
        let lengths = || packets.iter().map(|packet| packet.mbuf.packet_bytes);
        LostGroupSample {
            mbufs: packets.len() as u64,
            port: common(packets, |packet| packet.mbuf.port),
            protocol: common(packets, |packet| packet.protocol()),
            source: common_end(packets, |packet| packet.source()),
            destination: common_end(packets, |packet| packet.destination()),
            conversations: ends.len() as u64,
            least_bytes: lengths().min().unwrap_or(0),
            most_bytes: lengths().max().unwrap_or(0),
            segments: common(packets, |packet| Some(packet.mbuf.segments)),
            refcnt: common(packets, |packet| Some(packet.mbuf.refcnt)),
            oldest_at_least_ms: oldest_at_least_ms(packets.iter().map(|packet| packet.mbuf)),
        }
    }
}

/// The longest time that one of them was lost for at least.
pub(super) fn oldest_at_least_ms<'a>(mbufs: impl Iterator<Item = &'a LostMbuf>) -> u64 {
    mbufs.map(|mbuf| mbuf.age_at_least_ms).max().unwrap_or(0)
}

/// What all packets have.
fn common<T: PartialEq>(
    packets: &[LostPacket<'_>],
    of: impl Fn(&LostPacket<'_>) -> Option<T>,
) -> Option<T> {
    let (first, others) = packets.split_first()?;
    let value = of(first)?;
    others.iter().all(|packet| of(packet).as_ref() == Some(&value)).then_some(value)
}

/// The end of all packets, or its address if only the ports differ.
fn common_end(
    packets: &[LostPacket<'_>],
    of: impl Fn(&LostPacket<'_>) -> Option<FlowEndpoint>,
) -> Option<String> {
    let address = |packet: &LostPacket<'_>| of(packet).map(|end| FlowEndpoint { port: 0, ..end });
    common(packets, &of).or_else(|| common(packets, address)).map(conversation::endpoint)
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // of small numbers
mod tests {
    use super::*;

    fn mbuf(address: u64, port: u16, packet_bytes: u32) -> LostMbuf {
        let age_at_least_ms = 1_000 + address;
        let port = Some(port);
        LostMbuf { address, port, refcnt: 1, segments: 1, packet_bytes, age_at_least_ms }
    }

    /// UDP from 198.18.0.1 with this port to 198.18.1.`receiver`:53.
    fn frame(source_port: u16, receiver: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        frame[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 18, 1, receiver]);
        frame[34..36].copy_from_slice(&source_port.to_be_bytes());
        frame[36..40].copy_from_slice(&[0, 53, 0, 26]);
        frame
    }

    fn summaries(packets: Vec<LostPacket<'_>>) -> Vec<LostGroupSample> {
        grouped(packets).iter().map(LostGroup::summary).collect()
    }

    #[test]
    fn one_conversation_is_one_group() {
        let mbufs: Vec<_> = (0..5).map(|address| mbuf(address, 0, 60)).collect();
        let packets = mbufs.iter().map(|mbuf| LostPacket::new(mbuf, &frame(1024, 1))).collect();
        let [group] = &summaries(packets)[..] else { panic!("one group") };
        assert_eq!((group.mbufs, group.conversations, group.oldest_at_least_ms), (5, 1, 1_004));
        assert_eq!(group.words(), "port 0, udp, 198.18.0.1:1024 > 198.18.1.1:53, 60 bytes");
        assert_eq!((group.segments, group.refcnt), (Some(1), Some(1)));
    }

    #[test]
    fn what_differs_is_not_common_and_who_stands_out_is_apart() {
        let mbufs: Vec<_> = (0..10).map(|address| mbuf(address, 0, 60 + address as u32)).collect();
        let receiver = |address| if address < 6 { 1 } else { 2 + address as u8 };
        let packet = |mbuf: &'_ LostMbuf| frame(1024 + mbuf.address as u16, receiver(mbuf.address));
        let packets = mbufs.iter().map(|mbuf| LostPacket::new(mbuf, &packet(mbuf))).collect();
        let groups = summaries(packets);
        let words: Vec<_> = groups.iter().map(LostGroupSample::words).collect();
        assert_eq!(
            words,
            [
                "port 0, udp, 198.18.0.1 > 198.18.1.1:53, 60-65 bytes",
                "port 0, udp, 198.18.0.1 > *, 66-69 bytes"
            ]
        );
        assert_eq!(groups.iter().map(|group| group.conversations).collect::<Vec<_>>(), [6, 4]);
    }

    #[test]
    fn many_groups_end_in_one_of_the_others() {
        let mbufs: Vec<_> = (0..9).map(|port| mbuf(1, port, 60)).collect();
        let packets = mbufs.iter().map(|mbuf| LostPacket::new(mbuf, &frame(1, 1))).collect();
        let groups = summaries(packets);
        assert_eq!(groups.len(), MOST_GROUPS);
        assert_eq!(groups.iter().map(|group| group.mbufs).sum::<u64>(), 9);
        assert_eq!(groups.iter().filter(|group| group.port.is_none()).count(), 1);
    }

    #[test]
    fn bytes_that_are_no_packet_have_no_protocol() {
        let mbufs = [mbuf(1, 0, 0), mbuf(2, 0, 0)];
        let packets = mbufs.iter().map(|mbuf| LostPacket::new(mbuf, &[])).collect();
        let [group] = &summaries(packets)[..] else { panic!("one group") };
        assert_eq!(
            (group.protocol.as_ref(), group.conversation(), group.conversations),
            (None, None, 0)
        );
        let mut arp = frame(1, 1);
        arp[13] = 6;
        assert_eq!(LostPacket::new(&mbufs[0], &arp).protocol().as_deref(), Some("arp"));
    }
}

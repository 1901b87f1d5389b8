//! Templates, and the IANA elements that they consist of.

/// An element: its number, and its length in our records.
#[derive(Clone, Copy, Debug)]
pub(super) struct TemplateField(u16, u16);

/// Set ids of templates.
pub(super) const TEMPLATES: u16 = 2;
pub(super) const OPTIONS_TEMPLATES: u16 = 3;

/// Ids of options templates.
pub(super) const SAMPLING: u16 = 260;
pub(super) const INTERFACES: u16 = 261;
/// Ids of options templates of the ends of tunnels, IPv4 and IPv6.
const TUNNELS: u16 = 266;

/// Bytes for an interface name. Collectors that read names require a fixed length.
pub(super) const NAME: usize = 64;

const IPV4: [TemplateField; 2] = [TemplateField(8, 4), TemplateField(12, 4)]; // sourceIPv4Address, destinationIPv4Address
const IPV6: [TemplateField; 2] = [TemplateField(27, 16), TemplateField(28, 16)]; // sourceIPv6Address, destinationIPv6Address

/// Fields in the order in which [`super::record::FlowRecord`] writes them.
const COMMON: [TemplateField; 14] = [
    TemplateField(7, 2),   // sourceTransportPort
    TemplateField(11, 2),  // destinationTransportPort
    TemplateField(4, 1),   // protocolIdentifier
    TemplateField(6, 2),   // tcpControlBits
    TemplateField(58, 2),  // vlanId
    TemplateField(245, 2), // dot1qCustomerVlanId
    TemplateField(351, 8), // layer2SegmentId
    TemplateField(10, 4),  // ingressInterface
    TemplateField(14, 4),  // egressInterface
    TemplateField(2, 8),   // packetDeltaCount
    TemplateField(1, 8),   // octetDeltaCount
    TemplateField(152, 8), // flowStartMilliseconds
    TemplateField(153, 8), // flowEndMilliseconds
    TemplateField(136, 1), // flowEndReason
];

/// flowId of conversations in tunnels, to which an option with the ends of the tunnel belongs.
const FLOW_ID: TemplateField = TemplateField(148, 8);

const DIRECTION: TemplateField = TemplateField(61, 1); // flowDirection

/// samplingInterval alone: goflow2 reads it correctly, and nfdump 1.7 reads it only without
/// samplingAlgorithm or the selector elements.
const SAMPLING_FIELDS: [TemplateField; 2] = [TemplateField(149, 4), TemplateField(34, 4)];

/// ingressInterface is not a scope field, although the name belongs to it: nfdump reads it only as an
/// option.
#[allow(clippy::cast_possible_truncation)] // A constant.
const INTERFACE_FIELDS: [TemplateField; 3] =
    [TemplateField(149, 4), TemplateField(10, 4), TemplateField(83, NAME as u16)];

/// A template of conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TemplateShape {
    pub(super) ipv6: bool,
    /// The records have a direction: received or sent.
    pub(super) directed: bool,
    /// The records have a flow id: their tunnel has ends.
    pub(super) tunnelled: bool,
}

impl TemplateShape {
    /// Returns all shapes, in the order of their ids.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [false, true].into_iter().flat_map(|tunnelled| {
            [(false, true), (true, true), (false, false), (true, false)]
                .map(|(ipv6, directed)| Self { ipv6, directed, tunnelled })
        })
    }

    /// Returns the id of the template.
    pub(super) fn id(self) -> u16 {
        let first = if self.tunnelled { 262 } else { 256 };
        first + u16::from(self.ipv6) + 2 * u16::from(!self.directed)
    }

    /// Returns the template record.
    pub(super) fn template(self) -> Vec<u8> {
        let addresses = if self.ipv6 { IPV6 } else { IPV4 };
        let direction = self.directed.then_some(DIRECTION);
        let flow_id = self.tunnelled.then_some(FLOW_ID);
        let fields = addresses.into_iter().chain(COMMON).chain(direction).chain(flow_id);
        let fields = fields.collect::<Vec<_>>();
        record(self.id(), &fields, None)
    }
}

/// Returns the options template of the sampling; its scope is the observation domain.
pub(super) fn sampling() -> Vec<u8> {
    record(SAMPLING, &SAMPLING_FIELDS, Some(1))
}

/// Returns the options template of interface names; its scope is the observation domain.
pub(super) fn interfaces() -> Vec<u8> {
    record(INTERFACES, &INTERFACE_FIELDS, Some(1))
}

/// Returns the options template of the ends of tunnels; its scope is a flow id.
pub(super) fn tunnels(ipv6: bool) -> Vec<u8> {
    let [source, destination] = if ipv6 { IPV6 } else { IPV4 };
    record(tunnels_id(ipv6), &[FLOW_ID, source, destination], Some(1))
}

/// Returns the id of that template.
pub(super) fn tunnels_id(ipv6: bool) -> u16 {
    TUNNELS + u16::from(ipv6)
}

fn record(id: u16, fields: &[TemplateField], scopes: Option<u16>) -> Vec<u8> {
    let count = u16::try_from(fields.len()).unwrap_or(u16::MAX);
    let head = [Some(id), Some(count), scopes].into_iter().flatten();
    let fields = fields.iter().flat_map(|&TemplateField(number, length)| [number, length]);
    head.chain(fields).flat_map(u16::to_be_bytes).collect()
}

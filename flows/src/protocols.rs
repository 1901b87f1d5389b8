//! Names of IP protocols.

/// IP protocols with a name.
const PROTOCOLS: [(u8, &str); 16] = [
    (1, "icmp"),
    (2, "igmp"),
    (4, "ipip"),
    (6, "tcp"),
    (17, "udp"),
    (41, "ipv6"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (58, "icmp6"),
    (88, "eigrp"),
    (89, "ospf"),
    (103, "pim"),
    (112, "vrrp"),
    (132, "sctp"),
    (136, "udplite"),
];

/// Name of an IP protocol; `None` if it has none here.
pub fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Number of an IP protocol with a name.
pub(crate) fn protocol_number(name: &str) -> Option<u8> {
    PROTOCOLS.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}

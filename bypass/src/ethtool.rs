//! Settings of ethtool(8): driver, queues, counters, steering rules. Structures are those of
//! `linux/ethtool.h`; tests compare the requests with those of ethtool(8).

use std::io;

use crate::ethtool_ioctl::{EthtoolRequest, EthtoolSocket};
use crate::flow::{BypassFlow, FlowProtocol};
use crate::name::InterfaceName;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
const ETHTOOL_GRXCLSRULE: u32 = 0x2f;
const ETHTOOL_GRXCLSRLALL: u32 = 0x30;
const ETHTOOL_SRXCLSRLDEL: u32 = 0x31;
const ETHTOOL_SRXCLSRLINS: u32 = 0x32;
const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const ETHTOOL_SRXFHINDIR: u32 = 0x39;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

const ETH_SS_STATS: u32 = 1;
const ETH_FLAG_NTUPLE: u32 = 1 << 27;
const RX_CLS_LOC_SPECIAL: u64 = 1 << 31;
const RX_CLS_LOC_ANY: u32 = u32::MAX;

/// `ETH_GSTRING_LEN`.
const STRING_SIZE: usize = 32;

/// Size of `struct ethtool_rxnfc`, and offsets in it.
const RXNFC_SIZE: usize = 192;
const RXNFC_DATA: usize = 8;
const RXNFC_FLOW_TYPE: usize = 16;
const RXNFC_VALUE: usize = 20;
const RXNFC_MASK: usize = 92;
const RXNFC_QUEUE: usize = 168;
const RXNFC_LOCATION: usize = 176;
const RXNFC_COUNT: usize = 184;
const RXNFC_LOCATIONS: usize = 188;

/// Offset of the destination port in `struct ethtool_tcpip4_spec`, and in that of IPv6.
const IPV4_PORT: usize = 10;
const IPV6_PORT: usize = 34;

/// Limit of the plausible number of counters, rules and table entries.
const LIMIT: u32 = 1 << 16;

/// A rule by which a NIC steers packets to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SteeringRule {
    pub(crate) flow: BypassFlow,
    pub(crate) ipv6: bool,
    pub(crate) queue: u32,
}

impl SteeringRule {
    /// Returns the `flow_type` of the kernel.
    fn flow_type(&self) -> u32 {
        let ipv4 = match self.flow.protocol {
            FlowProtocol::Tcp => 1,
            FlowProtocol::Udp => 2,
            FlowProtocol::Sctp => 3,
        };
        if self.ipv6 { ipv4 + 4 } else { ipv4 }
    }

    fn port_offset(&self) -> usize {
        if self.ipv6 { IPV6_PORT } else { IPV4_PORT }
    }

    fn insertion(&self, location: u32) -> EthtoolRequest {
        let mut request = EthtoolRequest::new(ETHTOOL_SRXCLSRLINS, RXNFC_SIZE);
        request.set_u32(RXNFC_FLOW_TYPE, self.flow_type());
        request.set(RXNFC_VALUE + self.port_offset(), &self.flow.port.to_be_bytes());
        request.set(RXNFC_MASK + self.port_offset(), &[0xff, 0xff]);
        request.set(RXNFC_QUEUE, &u64::from(self.queue).to_ne_bytes());
        request.set_u32(RXNFC_LOCATION, location);
        request
    }

    /// Returns whether the answer to `ETHTOOL_GRXCLSRULE` is this rule, without any difference from the
    /// request.
    fn is(&self, answer: &[u8]) -> bool {
        let wanted = self.insertion(0).bytes();
        [RXNFC_FLOW_TYPE..RXNFC_QUEUE, RXNFC_QUEUE..RXNFC_LOCATION]
            .into_iter()
            .all(|part| answer.get(part.clone()).is_some_and(|given| given == &wanted[part]))
    }
}

/// The settings of an interface that can be read and changed. Tests implement it without hardware.
pub(crate) trait Nic {
    /// Returns the number of RX queues; `None` if the driver does not report it.
    fn rx_queues(&self) -> Option<u32>;
    /// Returns the locations of all rules; an error if the NIC cannot steer.
    fn rules(&self) -> io::Result<Vec<u32>>;
    /// Returns whether the rule at this location is `rule`.
    fn has_rule(&self, location: u32, rule: &SteeringRule) -> io::Result<bool>;
    /// Adds a rule at a free location.
    fn add_rule(&self, rule: &SteeringRule) -> io::Result<()>;
    /// Removes the rule at this location.
    fn remove_rule(&self, location: u32) -> io::Result<()>;
    /// Returns whether rules are active (`ethtool -k`: ntuple-filters).
    fn steering_enabled(&self) -> io::Result<bool>;
    /// Activates or deactivates rules.
    fn enable_steering(&self, enable: bool) -> io::Result<()>;
    /// Returns the RSS table: the queue by hash of a packet (`ethtool -x`).
    fn rss_table(&self) -> io::Result<Vec<u32>>;
    /// Sets the RSS table.
    fn set_rss_table(&self, table: &[u32]) -> io::Result<()>;
}

/// An interface of this network namespace.
pub(crate) struct EthtoolNic<'a> {
    name: &'a InterfaceName,
    socket: EthtoolSocket,
}

impl<'a> EthtoolNic<'a> {
    pub(crate) fn open(name: &'a InterfaceName) -> io::Result<Self> {
        Ok(Self { name, socket: EthtoolSocket::open()? })
    }

    fn ask(&self, mut request: EthtoolRequest) -> io::Result<Vec<u8>> {
        self.socket.request(self.name, &mut request)?;
        Ok(request.bytes())
    }

    /// Returns the name of the driver; empty if unknown.
    pub(crate) fn driver(&self) -> String {
        let answer = self.ask(EthtoolRequest::new(ETHTOOL_GDRVINFO, 196));
        answer.map(|answer| text(answer.get(4..36).unwrap_or_default())).unwrap_or_default()
    }

    /// Returns the counters of the driver by name; empty if it has none.
    pub(crate) fn counters(&self) -> io::Result<Vec<(String, u64)>> {
        let answer = self.ask(EthtoolRequest::new(ETHTOOL_GDRVINFO, 196))?;
        let count = u32_at(&answer, 180).min(LIMIT);
        if count == 0 {
            return Ok(Vec::new());
        }
        let count_bytes = count as usize;
        let mut request = EthtoolRequest::new(ETHTOOL_GSTRINGS, 12 + count_bytes * STRING_SIZE);
        request.set_u32(4, ETH_SS_STATS);
        request.set_u32(8, count);
        let names = self.ask(request)?;
        let mut request = EthtoolRequest::new(ETHTOOL_GSTATS, 8 + count_bytes * 8);
        request.set_u32(4, count);
        let values = self.ask(request)?;
        // If the driver's counters have changed in between, names and values may not match.
        if u32_at(&names, 8) != count || u32_at(&values, 4) != count {
            return Err(io::Error::other("the driver changed its counters meanwhile"));
        }
        Ok(counters(&names, &values))
    }

    fn rule_slots(&self) -> io::Result<(u32, u64)> {
        let answer = self.ask(EthtoolRequest::new(ETHTOOL_GRXCLSRLCNT, RXNFC_SIZE))?;
        Ok((u32_at(&answer, RXNFC_COUNT).min(LIMIT), u64_at(&answer, RXNFC_DATA)))
    }
}

impl Nic for EthtoolNic<'_> {
    fn rx_queues(&self) -> Option<u32> {
        let answer = self.ask(EthtoolRequest::new(ETHTOOL_GCHANNELS, 36)).ok()?;
        let (rx, combined) = (u32_at(&answer, 20), u32_at(&answer, 32));
        Some(rx.saturating_add(combined)).filter(|queues| *queues > 0)
    }

    fn rules(&self) -> io::Result<Vec<u32>> {
        let (count, _) = self.rule_slots()?;
        let size = RXNFC_LOCATIONS + count as usize * 4;
        let mut request = EthtoolRequest::new(ETHTOOL_GRXCLSRLALL, size.max(RXNFC_SIZE));
        request.set_u32(RXNFC_COUNT, count);
        let answer = self.ask(request)?;
        let count = u32_at(&answer, RXNFC_COUNT).min(count) as usize;
        Ok((0..count).map(|rule| u32_at(&answer, RXNFC_LOCATIONS + rule * 4)).collect())
    }

    fn has_rule(&self, location: u32, rule: &SteeringRule) -> io::Result<bool> {
        let mut request = EthtoolRequest::new(ETHTOOL_GRXCLSRULE, RXNFC_SIZE);
        request.set_u32(RXNFC_LOCATION, location);
        Ok(rule.is(&self.ask(request)?))
    }

    fn add_rule(&self, rule: &SteeringRule) -> io::Result<()> {
        let (_, capacity) = self.rule_slots()?;
        let location = if capacity & RX_CLS_LOC_SPECIAL != 0 {
            RX_CLS_LOC_ANY
        } else {
            // The driver needs a location: use the last free one, as ethtool(8) does.
            let used = self.rules()?;
            let slots = u32::try_from(capacity).unwrap_or(0);
            (0..slots)
                .rev()
                .find(|slot| !used.contains(slot))
                .ok_or_else(|| io::Error::other("no room for another rule"))?
        };
        self.ask(rule.insertion(location)).map(|_| ())
    }

    fn remove_rule(&self, location: u32) -> io::Result<()> {
        let mut request = EthtoolRequest::new(ETHTOOL_SRXCLSRLDEL, RXNFC_SIZE);
        request.set_u32(RXNFC_LOCATION, location);
        self.ask(request).map(|_| ())
    }

    fn steering_enabled(&self) -> io::Result<bool> {
        let answer = self.ask(EthtoolRequest::new(ETHTOOL_GFLAGS, 8))?;
        Ok(u32_at(&answer, 4) & ETH_FLAG_NTUPLE != 0)
    }

    fn enable_steering(&self, enable: bool) -> io::Result<()> {
        let answer = self.ask(EthtoolRequest::new(ETHTOOL_GFLAGS, 8))?;
        let others = u32_at(&answer, 4) & !ETH_FLAG_NTUPLE;
        let mut request = EthtoolRequest::new(ETHTOOL_SFLAGS, 8);
        request.set_u32(4, others | if enable { ETH_FLAG_NTUPLE } else { 0 });
        self.ask(request).map(|_| ())
    }

    fn rss_table(&self) -> io::Result<Vec<u32>> {
        let size = u32_at(&self.ask(EthtoolRequest::new(ETHTOOL_GRXFHINDIR, 8))?, 4).min(LIMIT);
        let mut request = EthtoolRequest::new(ETHTOOL_GRXFHINDIR, 8 + size as usize * 4);
        request.set_u32(4, size);
        let answer = self.ask(request)?;
        Ok((0..size as usize).map(|entry| u32_at(&answer, 8 + entry * 4)).collect())
    }

    fn set_rss_table(&self, table: &[u32]) -> io::Result<()> {
        let mut request = EthtoolRequest::new(ETHTOOL_SRXFHINDIR, 8 + table.len() * 4);
        request.set_u32(4, u32::try_from(table.len()).unwrap_or(0));
        table.iter().enumerate().for_each(|(entry, queue)| request.set_u32(8 + entry * 4, *queue));
        self.ask(request).map(|_| ())
    }
}

/// Returns the counters in the answers to `ETHTOOL_GSTRINGS` and `ETHTOOL_GSTATS`.
fn counters(names: &[u8], values: &[u8]) -> Vec<(String, u64)> {
    let names = names.get(12..).unwrap_or_default().chunks_exact(STRING_SIZE).map(text);
    let values = values.get(8..).unwrap_or_default().chunks_exact(8).map(|value| u64_at(value, 0));
    names.zip(values).collect()
}

/// Returns the text up to a NUL byte or the end of the field.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// Returns a number; 0 if the answer is too short.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes.get(offset..offset + 4).and_then(|field| field.try_into().ok());
    field.map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let field = bytes.get(offset..offset + 8).and_then(|field| field.try_into().ok());
    field.map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the bytes other than 0, with their offsets.
    fn set_bytes(request: &EthtoolRequest) -> Vec<(usize, u8)> {
        request.bytes().into_iter().enumerate().filter(|(_, byte)| *byte != 0).collect()
    }

    #[test]
    fn rules_are_sent_as_ethtool_sends_them() {
        // ethtool 6.1: -N IFACE flow-type udp4 dst-port 53 action 2
        let rule = SteeringRule { flow: "udp:53".parse().unwrap(), ipv6: false, queue: 2 };
        let ipv4 = [(0, 0x32), (16, 2), (31, 0x35), (102, 0xff), (103, 0xff), (168, 2)];
        let any = [(176, 0xff), (177, 0xff), (178, 0xff), (179, 0xff)];
        assert_eq!(set_bytes(&rule.insertion(RX_CLS_LOC_ANY)), [&ipv4[..], &any].concat());
        // ethtool 6.1: -N IFACE flow-type tcp6 dst-port 443 action 3 loc 7
        let rule = SteeringRule { flow: "tcp:443".parse().unwrap(), ipv6: true, queue: 3 };
        let ipv6 =
            [(0, 0x32), (16, 5), (54, 1), (55, 0xbb), (126, 0xff), (127, 0xff), (168, 3), (176, 7)];
        assert_eq!(set_bytes(&rule.insertion(7)), ipv6);
    }

    #[test]
    fn a_rule_is_recognized_in_what_the_driver_answers() {
        let rule = SteeringRule { flow: "udp:53".parse().unwrap(), ipv6: false, queue: 2 };
        let answer = rule.insertion(1000).bytes();
        assert!(rule.is(&answer));
        assert!(!rule.is(&answer[..100]));
        for other in
            [("udp:54", false, 2), ("tcp:53", false, 2), ("udp:53", true, 2), ("udp:53", false, 1)]
        {
            let other =
                SteeringRule { flow: other.0.parse().unwrap(), ipv6: other.1, queue: other.2 };
            assert!(!other.is(&answer), "{other:?}");
        }
    }

    #[test]
    fn the_loopback_interface_answers() {
        let name = "lo".parse().unwrap();
        let nic = EthtoolNic::open(&name).unwrap();
        assert_eq!(nic.counters().unwrap_or_default(), []);
        assert!(nic.rules().is_err());
        assert_eq!(nic.rx_queues(), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_understood_or_ignored(names in any::<Vec<u8>>(), values in any::<Vec<u8>>()) {
            prop_assert!(counters(&names, &values).len() <= values.len() / 8);
            let rule = SteeringRule { flow: "udp:53".parse().unwrap(), ipv6: false, queue: 2 };
            prop_assert!(!rule.is(&names) || names.len() >= RXNFC_LOCATION);
        }
    }
}

//! Replies about ports.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::UnsignedNumber;

/// `/ethdev/info`.
#[derive(Debug, Deserialize)]
pub(crate) struct PortInfo {
    pub(crate) name: String,
    pub(crate) port_id: UnsignedNumber,
    pub(crate) mtu: UnsignedNumber,
    pub(crate) nb_rx_queues: u16,
    pub(crate) nb_tx_queues: u16,
    pub(crate) dev_started: UnsignedNumber,
    pub(crate) promiscuous: Option<UnsignedNumber>,
    pub(crate) mac_addr: Option<String>,
    #[serde(default = "unknown_node")]
    pub(crate) numa_node: i64,
    /// State of each receive queue: 0 stopped, 1 started, 2 hairpin.
    #[serde(default)]
    pub(crate) rxq_state: Vec<UnsignedNumber>,
}

fn unknown_node() -> i64 {
    -1
}

/// `/ethdev/stats`. A missing counter makes the reply invalid: it must not become 0.
#[derive(Debug, Deserialize)]
pub(crate) struct PortCountersReply {
    pub(crate) ipackets: UnsignedNumber,
    pub(crate) opackets: UnsignedNumber,
    pub(crate) ibytes: UnsignedNumber,
    pub(crate) obytes: UnsignedNumber,
    pub(crate) imissed: UnsignedNumber,
    pub(crate) ierrors: UnsignedNumber,
    pub(crate) oerrors: UnsignedNumber,
    pub(crate) rx_nombuf: UnsignedNumber,
    /// Received packets by queue; zeros for a driver that does not count them.
    #[serde(default)]
    pub(crate) q_ipackets: Vec<UnsignedNumber>,
}

/// `/ethdev/link_status`.
#[derive(Debug, Deserialize)]
pub(crate) struct LinkReply {
    pub(crate) status: LinkState,
    pub(crate) speed: Option<UnsignedNumber>,
}

/// `/ethdev/rx_queue`, since DPDK 23.07.
#[derive(Debug, Deserialize)]
pub(crate) struct RxQueueInfo {
    pub(crate) nb_desc: UnsignedNumber,
    /// The mempool of the queue.
    pub(crate) mempool_name: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum LinkState {
    Up,
    Down,
}

/// `/ethdev/xstats`, in the order of the reply, with duplicate names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct XstatsReply {
    /// `None` if the names are the known ones.
    pub(crate) names: Option<Vec<String>>,
    pub(crate) values: Vec<u64>,
}

/// Parses [`XstatsReply`] without allocating names that have not changed, which is the usual case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XstatsShape<'a> {
    pub(crate) known: &'a [String],
}

impl<'de> DeserializeSeed<'de> for XstatsShape<'_> {
    type Value = XstatsReply;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<XstatsReply, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for XstatsShape<'_> {
    type Value = XstatsReply;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("named counters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<XstatsReply, A::Error> {
        let mut xstats = XstatsReply { names: None, values: Vec::with_capacity(self.known.len()) };
        while let Some(new) = map.next_key_seed(Name(self.known.get(xstats.values.len())))? {
            if let (None, Some(_)) = (&xstats.names, &new) {
                xstats.names = Some(self.known.iter().take(xstats.values.len()).cloned().collect());
            }
            if let Some(names) = &mut xstats.names {
                let known = || self.known.get(xstats.values.len()).cloned();
                names.extend(new.or_else(known));
            }
            xstats.values.push(map.next_value::<UnsignedNumber>()?.0);
        }
        if xstats.names.is_none() && xstats.values.len() < self.known.len() {
            xstats.names = Some(self.known.iter().take(xstats.values.len()).cloned().collect());
        }
        Ok(xstats)
    }
}

/// Parses a name; `None` if it is the known one.
struct Name<'a>(Option<&'a String>);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.is_none_or(|known| known != name).then(|| name.to_owned()))
    }
}

/// The type of a reply about a port, for requests that are made together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PortShape<'a> {
    Xstats(XstatsShape<'a>),
    Info,
    Link,
}

/// A reply about a port.
#[derive(Debug)]
pub(crate) enum PortReply {
    Xstats(XstatsReply),
    Info(PortInfo),
    Link(LinkReply),
}

impl<'de> DeserializeSeed<'de> for PortShape<'_> {
    type Value = PortReply;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PortReply, D::Error> {
        match self {
            Self::Xstats(shape) => shape.deserialize(deserializer).map(PortReply::Xstats),
            Self::Info => PortInfo::deserialize(deserializer).map(PortReply::Info),
            Self::Link => LinkReply::deserialize(deserializer).map(PortReply::Link),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::error::TelemetryError;
    use crate::reply::{reply, reply_as};

    fn xstats(json: &str, known: &[&str]) -> Result<XstatsReply, TelemetryError> {
        let known: Vec<_> = known.iter().map(|name| (*name).to_owned()).collect();
        let bytes = format!(r#"{{"/x":{json}}}"#);
        reply_as(bytes.as_bytes(), "/x", XstatsShape { known: &known })
    }

    /// Returns named counters, with names that are not the known ones.
    fn named(counters: &[(&str, u64)]) -> XstatsReply {
        let (names, values) =
            counters.iter().map(|(name, value)| ((*name).to_owned(), value)).unzip();
        XstatsReply { names: Some(names), values }
    }

    #[test]
    fn counters_above_two_to_the_53_stay_exact() {
        let read = xstats(r#"{"a":18446744073709551615,"b":9007199254740993}"#, &[]).unwrap();
        assert_eq!(read, named(&[("a", u64::MAX), ("b", 9_007_199_254_740_993)]));
    }

    #[test]
    fn a_number_beyond_u64_is_refused_not_rounded() {
        let read = xstats(r#"{"a":18446744073709551616}"#, &["a"]);
        assert!(matches!(read, Err(TelemetryError::Malformed(_))));
    }

    #[test]
    fn equal_names_count_towards_the_limit_of_entries() {
        assert_eq!(xstats(r#"{"a":1,"a":2}"#, &[]).unwrap(), named(&[("a", 1), ("a", 2)]));
    }

    #[test]
    fn names_are_parsed_only_if_they_changed() {
        let json = r#"{"a":1,"b":2}"#;
        let known = XstatsReply { names: None, values: vec![1, 2] };
        assert_eq!(xstats(json, &["a", "b"]).unwrap(), known);
        let all = named(&[("a", 1), ("b", 2)]);
        for others in
            [&["a"][..], &["b", "a"], &["x", "b"], &["a", "b", "c"], &["a", "x", "y"], &[]]
        {
            assert_eq!(xstats(json, others).unwrap(), all, "{others:?}");
        }
    }

    #[test]
    fn a_missing_counter_is_an_error_and_never_zero() {
        let bytes = br#"{"/ethdev/stats":{"ipackets":1}}"#;
        let error = reply::<PortCountersReply>(bytes, "/ethdev/stats").unwrap_err();
        assert!(error.to_string().contains("opackets"), "{error}");
    }

    #[test]
    fn missing_fields_of_a_port_are_unknown() {
        let bytes = br#"{"/ethdev/info":{"name":"a","port_id":0,"mtu":1500,"nb_rx_queues":1,
            "nb_tx_queues":1,"dev_started":1,"promiscuous":1,"mac_addr":"02:00:00:00:00:01"}}"#;
        let info: PortInfo = reply(bytes, "/ethdev/info").unwrap();
        assert_eq!(info.promiscuous, Some(UnsignedNumber(1)));
        assert_eq!((info.mac_addr.as_deref(), info.numa_node), (Some("02:00:00:00:00:01"), -1));
        let old = String::from_utf8_lossy(bytes).replace("promiscuous", "x").replace("mac_", "y_");
        let info: PortInfo = reply(old.as_bytes(), "/ethdev/info").unwrap();
        assert_eq!((info.promiscuous, info.mac_addr), (None, None));
    }

    proptest! {
        #[test]
        fn known_names_are_not_parsed_again(
            counters in prop::collection::vec(("[ab\\\\\"]{0,2}", 0_u64..9), 0..5),
            known in prop::collection::vec("[ab\\\\\"]{0,2}", 0..5),
        ) {
            let entries: Vec<_> = counters
                .iter()
                .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
                .collect();
            let json = format!("{{{}}}", entries.join(","));
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            let read = xstats(&json, &known).unwrap();
            let names: Vec<_> = counters.iter().map(|(name, _)| name.clone()).collect();
            prop_assert_eq!(read.names.is_none(), names == known);
            prop_assert_eq!(read.names.unwrap_or_else(|| names.clone()), names);
            prop_assert_eq!(read.values, counters.iter().map(|c| c.1).collect::<Vec<_>>());
        }
    }
}

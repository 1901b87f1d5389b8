//! Parses what an app sends: total over any bytes, exact over every u64.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;

use crate::error::Error;
use crate::leak::LedgerMode;

/// Largest reply that an app may announce; far above DPDK's 16 KiB.
const MAX_OUTPUT: u64 = 16 << 20;

/// What the app says when a client connects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Banner {
    /// DPDK version, as "DPDK 22.11.11".
    pub version: String,
    /// Process id, as the app sees it.
    pub pid: u32,
    /// Longest reply, bytes.
    pub max_output_len: u64,
}

/// Parses the banner.
pub(crate) fn banner(bytes: &[u8]) -> Result<Banner, Error> {
    let banner: Banner = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
    if banner.max_output_len == 0 || banner.max_output_len > MAX_OUTPUT {
        return Err(Error::Malformed(format!("max_output_len {}", banner.max_output_len)));
    }
    Ok(banner)
}

/// Parses a reply, which must be an object with the one key `command`.
pub(crate) fn reply<T: de::DeserializeOwned>(bytes: &[u8], command: &str) -> Result<T, Error> {
    let Keyed { key, body, more } =
        serde_json::from_slice::<Keyed<T>>(bytes).map_err(|e| malformed(&e))?;
    if key != command {
        return Err(Error::Mismatch { got: key });
    }
    if more {
        return Err(Error::Malformed("more than one key".into()));
    }
    match body {
        Body::Null => Err(Error::Null),
        Body::Shape(body) => Ok(body),
        Body::Unshaped(reason) => Err(Error::Malformed(reason)),
    }
}

fn malformed(error: &serde_json::Error) -> Error {
    let kind = match error.classify() {
        Category::Eof => "cut JSON",
        Category::Data => "unexpected content",
        Category::Syntax | Category::Io => "not JSON",
    };
    Error::Malformed(format!("{kind}: {error}"))
}

/// An object with one key of interest.
struct Keyed<T> {
    key: String,
    body: Body<T>,
    more: bool,
}

enum Body<T> {
    Null,
    Shape(T),
    Unshaped(String),
}

impl<'de, T: de::DeserializeOwned> Deserialize<'de> for Keyed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeyedVisitor(PhantomData))
    }
}

struct KeyedVisitor<T>(PhantomData<T>);

impl<'de, T: de::DeserializeOwned> Visitor<'de> for KeyedVisitor<T> {
    type Value = Keyed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keyed<T>, A::Error> {
        let Some(key) = map.next_key::<String>()? else {
            return Err(de::Error::custom("no key"));
        };
        // The key decides first: a wrong shape under a wrong key is a reply to something else.
        let value = map.next_value::<Box<serde_json::value::RawValue>>()?;
        let body = match serde_json::from_str::<Option<T>>(value.get()) {
            Ok(None) => Body::Null,
            Ok(Some(body)) => Body::Shape(body),
            Err(error) => Body::Unshaped(error.to_string()),
        };
        let mut more = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok(Keyed { key, body, more })
    }
}

/// A natural number, written as one or as a decimal or hex string: DPDK versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Natural(pub(crate) u64);

impl<'de> Deserialize<'de> for Natural {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NaturalVisitor)
    }
}

struct NaturalVisitor;

impl Visitor<'_> for NaturalVisitor {
    type Value = Natural;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 0 to 2^64-1, or one in a string")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Natural, E> {
        Ok(Natural(value))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Natural, E> {
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        parsed.map(Natural).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

/// `/ethdev/info`.
#[derive(Debug, Deserialize)]
pub(crate) struct PortInfo {
    pub(crate) name: String,
    pub(crate) port_id: Natural,
    pub(crate) mtu: Natural,
    pub(crate) nb_rx_queues: u16,
    pub(crate) nb_tx_queues: u16,
    pub(crate) dev_started: Natural,
    pub(crate) promiscuous: Option<Natural>,
    pub(crate) mac_addr: Option<String>,
    #[serde(default = "unknown_node")]
    pub(crate) numa_node: i64,
}

fn unknown_node() -> i64 {
    -1
}

/// `/ethdev/stats`. A counter that is missing makes the reply invalid: it must not become 0.
#[derive(Debug, Deserialize)]
pub(crate) struct Counters {
    pub(crate) ipackets: Natural,
    pub(crate) opackets: Natural,
    pub(crate) ibytes: Natural,
    pub(crate) obytes: Natural,
    pub(crate) imissed: Natural,
    pub(crate) ierrors: Natural,
    pub(crate) oerrors: Natural,
    pub(crate) rx_nombuf: Natural,
}

/// `/ethdev/link_status`.
#[derive(Debug, Deserialize)]
pub(crate) struct Link {
    pub(crate) status: LinkStatus,
    pub(crate) speed: Option<Natural>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum LinkStatus {
    Up,
    Down,
}

/// `/ethdev/xstats`, with the number of entries that were sent, equal names counted each.
#[derive(Debug)]
pub(crate) struct Xstats {
    pub(crate) entries: usize,
    pub(crate) counters: BTreeMap<String, u64>,
}

impl<'de> Deserialize<'de> for Xstats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(XstatsVisitor)
    }
}

struct XstatsVisitor;

impl<'de> Visitor<'de> for XstatsVisitor {
    type Value = Xstats;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("named counters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Xstats, A::Error> {
        let mut xstats = Xstats { entries: 0, counters: BTreeMap::new() };
        while let Some((name, Natural(value))) = map.next_entry()? {
            xstats.entries += 1;
            xstats.counters.insert(name, value);
        }
        Ok(xstats)
    }
}

/// `/mempool/info`. The counts exist since DPDK 23.03.
#[derive(Debug, Deserialize)]
pub(crate) struct PoolInfo {
    pub(crate) name: String,
    pub(crate) socket_id: i64,
    pub(crate) size: Natural,
    pub(crate) cache_size: Natural,
    pub(crate) elt_size: Natural,
    pub(crate) header_size: Natural,
    pub(crate) trailer_size: Natural,
    pub(crate) total_cache_count: Option<Natural>,
    pub(crate) common_pool_count: Option<Natural>,
}

/// `/ring/info`, since DPDK 24.03.
#[derive(Debug, Deserialize)]
pub(crate) struct RingInfo {
    pub(crate) name: String,
    pub(crate) capacity: Natural,
    pub(crate) used_count: Natural,
}

/// `/pmdscope`.
#[derive(Debug, Deserialize)]
pub(crate) struct Library {
    pub(crate) schema: u64,
    pub(crate) version: String,
    pub(crate) tsc_hz: u64,
    pub(crate) start_realtime_ns: u64,
    pub(crate) sample_ms: u64,
    pub(crate) window_ms: u64,
    pub(crate) stall_us: u64,
    pub(crate) tables: Vec<String>,
    pub(crate) tee_socket: String,
    pub(crate) foreign_polls: u64,
    pub(crate) foreign_bursts: u64,
    pub(crate) control_shares_poll_cpu: u64,
    pub(crate) abandoned_bytes: u64,
}

/// `/pmdscope/arm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Armed {
    /// 1 while stamps are written.
    pub armed: u64,
    /// When stamps are written.
    pub mode: LedgerMode,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn counters_above_two_to_the_53_stay_exact() {
        let bytes = br#"{"/ethdev/xstats":{"a":18446744073709551615,"b":9007199254740993}}"#;
        let xstats: Xstats = reply(bytes, "/ethdev/xstats").unwrap();
        assert_eq!(xstats.counters["a"], u64::MAX);
        assert_eq!(xstats.counters["b"], 9_007_199_254_740_993);
    }

    #[test]
    fn a_number_beyond_u64_is_refused_not_rounded() {
        let bytes = br#"{"/ethdev/xstats":{"a":18446744073709551616}}"#;
        assert!(matches!(reply::<Xstats>(bytes, "/ethdev/xstats"), Err(Error::Malformed(_))));
    }

    #[test]
    fn equal_names_count_towards_the_limit_of_entries() {
        let xstats: Xstats = reply(br#"{"/x":{"a":1,"a":2}}"#, "/x").unwrap();
        assert_eq!((xstats.entries, xstats.counters.len()), (2, 1));
    }

    #[test]
    fn numbers_are_read_from_hex_strings_too() {
        let read = |text| serde_json::from_str::<Natural>(text).map(|n| n.0).ok();
        assert_eq!(read("\"0x1f\""), Some(31));
        assert_eq!(read("\"64\""), Some(64));
        assert_eq!(read("7"), Some(7));
        for bad in
            ["-1", "1.5", "\"0x\"", "\"\"", "\"-1\"", "null", "[]", "\"0x10000000000000000\""]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn each_defect_of_a_reply_has_its_class() {
        let parse = |bytes: &[u8]| reply::<Value>(bytes, "/a").unwrap_err();
        assert!(matches!(parse(br#"{"/a":null}"#), Error::Null));
        assert!(matches!(parse(br#"{"/b":1}"#), Error::Mismatch { got } if got == "/b"));
        assert!(matches!(parse(br#"{"/b":{"bad":[}"#), Error::Malformed(_)));
        assert!(matches!(parse(br#"{"/a":1,"/b":2}"#), Error::Malformed(_)));
        assert!(matches!(parse(br#"{"/a":1,"/a":2}"#), Error::Malformed(_)));
        assert!(matches!(parse(br#"{"/a":1}x"#), Error::Malformed(_)));
        assert!(matches!(parse(br#"{"/x"y":null}"#), Error::Malformed(_)));
        assert!(matches!(parse(br"{}"), Error::Malformed(_)));
        assert!(matches!(parse(br"[1]"), Error::Malformed(_)));
        assert!(matches!(parse(b""), Error::Malformed(_)));
        assert!(matches!(parse(&[0xff, 0xfe]), Error::Malformed(_)));
    }

    #[test]
    fn a_missing_counter_is_an_error_and_never_zero() {
        let bytes = br#"{"/ethdev/stats":{"ipackets":1}}"#;
        let error = reply::<Counters>(bytes, "/ethdev/stats").unwrap_err();
        assert!(error.to_string().contains("opackets"), "{error}");
    }

    #[test]
    fn what_a_port_does_not_tell_is_unknown() {
        let bytes = br#"{"/ethdev/info":{"name":"a","port_id":0,"mtu":1500,"nb_rx_queues":1,
            "nb_tx_queues":1,"dev_started":1,"promiscuous":1,"mac_addr":"02:00:00:00:00:01"}}"#;
        let info: PortInfo = reply(bytes, "/ethdev/info").unwrap();
        assert_eq!(info.promiscuous, Some(Natural(1)));
        assert_eq!((info.mac_addr.as_deref(), info.numa_node), (Some("02:00:00:00:00:01"), -1));
        let old = String::from_utf8_lossy(bytes).replace("promiscuous", "x").replace("mac_", "y_");
        let info: PortInfo = reply(old.as_bytes(), "/ethdev/info").unwrap();
        assert_eq!((info.promiscuous, info.mac_addr), (None, None));
    }

    #[test]
    fn banners_with_absurd_limits_are_refused() {
        let with = |len: &str| {
            banner(format!(r#"{{"version":"DPDK 1","pid":1,"max_output_len":{len}}}"#).as_bytes())
        };
        assert_eq!(with("16384").unwrap().max_output_len, 16384);
        for bad in ["0", "-1", "99999999999", "\"x\""] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail_but_never_panic(bytes: Vec<u8>) {
            let _ = banner(&bytes);
            let _ = reply::<Value>(&bytes, "/a");
        }

        #[test]
        fn any_text_under_the_right_key_parses_or_fails(body in "[\\[\\]{}\":,0-9a-z. -]{0,60}") {
            let bytes = format!("{{\"/a\":{body}}}").into_bytes();
            let _ = reply::<PortInfo>(&bytes, "/a");
            let _ = reply::<Counters>(&bytes, "/a");
            let _ = reply::<Link>(&bytes, "/a");
            let _ = reply::<Xstats>(&bytes, "/a");
            let _ = reply::<PoolInfo>(&bytes, "/a");
            let _ = reply::<RingInfo>(&bytes, "/a");
            let _ = reply::<Library>(&bytes, "/a");
        }
    }
}

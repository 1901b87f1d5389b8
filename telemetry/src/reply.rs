//! Parses messages of apps. Any bytes are accepted as input, and every u64 is exact.

mod ports;

use std::fmt;
#[cfg(test)]
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;

pub(crate) use self::ports::{
    LinkReply, LinkState, PortCountersReply, PortInfo, PortReply, PortShape, RxQueueInfo,
    XstatsReply, XstatsShape,
};
use crate::commands::LibraryTable;
use crate::error::TelemetryError;
use crate::sample::LedgerMode;

/// Largest reply that an app may announce; much more than DPDK's 16 KiB.
const MAX_OUTPUT: u64 = 16 << 20;

/// The message that an app sends when a client connects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SocketBanner {
    /// DPDK version, as "DPDK 22.11.11".
    pub version: String,
    /// Process id, in the PID namespace of the app.
    pub pid: u32,
    /// Longest reply, bytes.
    pub max_output_len: u64,
}

/// Parses the banner.
pub(crate) fn banner(bytes: &[u8]) -> Result<SocketBanner, TelemetryError> {
    let banner: SocketBanner = serde_json::from_slice(bytes).map_err(|e| malformed(&e))?;
    if banner.max_output_len == 0 || banner.max_output_len > MAX_OUTPUT {
        return Err(TelemetryError::Malformed(format!("max_output_len {}", banner.max_output_len)));
    }
    Ok(banner)
}

/// Parses a reply, which must be an object with the single key `command`.
#[cfg(test)]
pub(crate) fn reply<T: de::DeserializeOwned>(
    bytes: &[u8],
    command: &str,
) -> Result<T, TelemetryError> {
    reply_as(bytes, command, PhantomData)
}

/// Parses a reply, which must be an object with the single key `command`; its value is parsed by `shape`.
pub(crate) fn reply_as<T>(
    bytes: &[u8],
    command: &str,
    shape: impl for<'de> DeserializeSeed<'de, Value = T>,
) -> Result<T, TelemetryError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let body = json.deserialize_map(Keyed { command, shape }).map_err(|e| malformed(&e))?;
    json.end().map_err(|e| malformed(&e))?;
    match body {
        Body::Other(key) => Err(TelemetryError::Mismatch { got: key }),
        Body::Null => Err(TelemetryError::Null),
        Body::Shape(body) => Ok(body),
    }
}

fn malformed(error: &serde_json::Error) -> TelemetryError {
    let kind = match error.classify() {
        Category::Eof => "cut JSON",
        Category::Data => "unexpected content",
        Category::Syntax | Category::Io => "not JSON",
    };
    TelemetryError::Malformed(format!("{kind}: {error}"))
}

/// Parses an object with the single key `command`.
struct Keyed<'a, S> {
    command: &'a str,
    shape: S,
}

enum Body<T> {
    Null,
    Shape(T),
    /// A reply to something else, with its key.
    Other(String),
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Keyed<'_, S> {
    type Value = Body<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some(key) = map.next_key::<String>()? else {
            return Err(de::Error::custom("no key"));
        };
        // The key is checked first: a wrong shape under a wrong key is a reply to something else.
        let body = if key == self.command {
            map.next_value_seed(Nullable(self.shape))?.map_or(Body::Null, Body::Shape)
        } else {
            map.next_value::<IgnoredAny>()?;
            Body::Other(key)
        };
        match map.next_key::<IgnoredAny>()? {
            None => Ok(body),
            Some(_) => Err(de::Error::custom("more than one key")),
        }
    }
}

/// Parses `null` as `None`.
struct Nullable<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// An unsigned integer, as a number or a decimal or hexadecimal string: DPDK versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnsignedNumber(pub(crate) u64);

impl<'de> Deserialize<'de> for UnsignedNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NaturalVisitor)
    }
}

struct NaturalVisitor;

impl Visitor<'_> for NaturalVisitor {
    type Value = UnsignedNumber;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 0 to 2^64-1, or one in a string")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<UnsignedNumber, E> {
        Ok(UnsignedNumber(value))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<UnsignedNumber, E> {
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        parsed.map(UnsignedNumber).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

/// `/mempool/info`. The counts exist since DPDK 23.03.
#[derive(Debug, Deserialize)]
pub(crate) struct PoolInfo {
    pub(crate) name: String,
    pub(crate) socket_id: i64,
    pub(crate) size: UnsignedNumber,
    pub(crate) cache_size: UnsignedNumber,
    pub(crate) elt_size: UnsignedNumber,
    pub(crate) header_size: UnsignedNumber,
    pub(crate) trailer_size: UnsignedNumber,
    pub(crate) total_cache_count: Option<UnsignedNumber>,
    pub(crate) common_pool_count: Option<UnsignedNumber>,
}

/// `/ring/info`, since DPDK 24.03.
#[derive(Debug, Deserialize)]
pub(crate) struct RingInfo {
    pub(crate) name: String,
    pub(crate) capacity: UnsignedNumber,
    pub(crate) used_count: UnsignedNumber,
    /// `SP`, `MP`, `MP_RTS` or `MP_HTS`.
    pub(crate) producer_type: Option<String>,
    /// `SC`, `MC`, `MC_RTS` or `MC_HTS`.
    pub(crate) consumer_type: Option<String>,
}

/// `/eal/heap_info`. The name of the id was `Head_id` before DPDK 23.03.
#[derive(Debug, Deserialize)]
pub(crate) struct HeapInfo {
    #[serde(rename = "Heap_id", alias = "Head_id")]
    pub(crate) id: UnsignedNumber,
    #[serde(rename = "Name")]
    pub(crate) name: String,
    #[serde(rename = "Heap_size")]
    pub(crate) size: UnsignedNumber,
    #[serde(rename = "Alloc_size")]
    pub(crate) allocated: UnsignedNumber,
    #[serde(rename = "Free_size")]
    pub(crate) free: UnsignedNumber,
    #[serde(rename = "Greatest_free_size")]
    pub(crate) greatest_free: UnsignedNumber,
    #[serde(rename = "Alloc_count")]
    pub(crate) allocations: UnsignedNumber,
}

/// `/eal/memzone_info`.
#[derive(Debug, Deserialize)]
pub(crate) struct MemzoneInfo {
    #[serde(rename = "Zone")]
    pub(crate) id: UnsignedNumber,
    #[serde(rename = "Name")]
    pub(crate) name: String,
    #[serde(rename = "Address")]
    pub(crate) address: UnsignedNumber,
    #[serde(rename = "Length")]
    pub(crate) bytes: UnsignedNumber,
}

/// `/eal/lcore/usage`, since DPDK 23.03: one column for each number.
#[derive(Debug, Deserialize)]
pub(crate) struct LcoreUsage {
    pub(crate) lcore_ids: Vec<u32>,
    pub(crate) total_cycles: Vec<UnsignedNumber>,
    pub(crate) busy_cycles: Vec<UnsignedNumber>,
}

/// `/eal/lcore/info`, since DPDK 23.03.
#[derive(Debug, Deserialize)]
pub(crate) struct LcoreInfo {
    pub(crate) lcore_id: u32,
    pub(crate) role: String,
    #[serde(default)]
    pub(crate) cpuset: Vec<u32>,
}

/// `/pmdscope`.
#[derive(Debug, Deserialize)]
pub(crate) struct LibraryReply {
    pub(crate) schema: u64,
    pub(crate) version: String,
    pub(crate) tsc_hz: u64,
    pub(crate) start_realtime_ns: u64,
    pub(crate) sample_ms: u64,
    pub(crate) window_ms: u64,
    pub(crate) stall_us: u64,
    /// Changes when rows of any table are added or removed.
    pub(crate) generation: u64,
    pub(crate) tables: Vec<String>,
    pub(crate) tee_socket: String,
    pub(crate) foreign_polls: u64,
    pub(crate) foreign_bursts: u64,
    pub(crate) control_shares_poll_cpu: u64,
    pub(crate) abandoned_bytes: u64,
    /// Missing in older libraries.
    pub(crate) traced_units: Option<u64>,
}

impl LibraryReply {
    /// Whether it has this table.
    pub(crate) fn serves(&self, table: LibraryTable) -> bool {
        self.tables.iter().any(|name| name == table.name())
    }
}

/// `/pmdscope/arm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ArmReply {
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
    fn numbers_are_read_from_hex_strings_too() {
        let read = |text| serde_json::from_str::<UnsignedNumber>(text).map(|n| n.0).ok();
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
        assert!(matches!(parse(br#"{"/a":null}"#), TelemetryError::Null));
        assert!(matches!(parse(br#"{"/b":1}"#), TelemetryError::Mismatch { got } if got == "/b"));
        assert!(matches!(parse(br#"{"/b":{"bad":[}"#), TelemetryError::Malformed(_)));
        assert!(matches!(parse(br#"{"/a":1,"/b":2}"#), TelemetryError::Malformed(_)));
        assert!(matches!(parse(br#"{"/a":1,"/a":2}"#), TelemetryError::Malformed(_)));
        assert!(matches!(parse(br#"{"/a":1}x"#), TelemetryError::Malformed(_)));
        assert!(matches!(parse(br#"{"/x"y":null}"#), TelemetryError::Malformed(_)));
        assert!(matches!(parse(br"{}"), TelemetryError::Malformed(_)));
        assert!(matches!(parse(br"[1]"), TelemetryError::Malformed(_)));
        assert!(matches!(parse(b""), TelemetryError::Malformed(_)));
        assert!(matches!(parse(&[0xff, 0xfe]), TelemetryError::Malformed(_)));
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
            let _ = reply::<PortCountersReply>(&bytes, "/a");
            let _ = reply::<LinkReply>(&bytes, "/a");
            let _ = reply::<RxQueueInfo>(&bytes, "/a");
            let _ = reply_as(&bytes, "/a", XstatsShape { known: &["a".into()] });
            let _ = reply::<PoolInfo>(&bytes, "/a");
            let _ = reply::<RingInfo>(&bytes, "/a");
            let _ = reply::<LibraryReply>(&bytes, "/a");
            let _ = reply::<HeapInfo>(&bytes, "/a");
            let _ = reply::<MemzoneInfo>(&bytes, "/a");
            let _ = reply::<LcoreUsage>(&bytes, "/a");
            let _ = reply::<LcoreInfo>(&bytes, "/a");
        }
    }
}

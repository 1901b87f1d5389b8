//! The leak data of libpmdscope: the ledger of each pool, the sites that lost mbufs, the stages.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The site of mbufs that were lost before stamps were written.
pub const BEFORE_ARMING: &str = "before arming";
/// The site of lost mbufs that code without stamps allocated, whoever had them before.
pub const UNTRACED_CODE: &str = "untraced code";
/// Prefix of the last known place of mbufs, if code without stamps may have had them since.
pub const NOT_PROVEN: &str = "not proven, after ";

/// The text of [`LedgerSample::imbalance`] between the name of the pool and the numbers.
pub(crate) const LEDGER_IMBALANCE: &str = " adds up to ";

/// Conditions under which stamps, which name sites, are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LedgerMode {
    /// When mbufs seem to be lost, and on demand.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl fmt::Display for LedgerMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

/// Ledger of one pool: its mbufs by place. `common` to `unplaced` add up to `size`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerSample {
    /// Name of the pool.
    pub name: String,
    /// Number of mbufs.
    pub size: u64,
    /// Free mbufs in the common ring.
    pub common: u64,
    /// Free mbufs in per-lcore caches.
    pub cached: u64,
    /// Mbufs posted to the receive ring of a NIC.
    pub rx_posted: u64,
    /// Mbufs given to a NIC for sending and not yet returned.
    pub tx_pending: u64,
    /// Mbufs in software rings.
    pub rings: u64,
    /// Mbufs held by the app and not suspected to be lost.
    pub held: u64,
    /// Mbufs that are proven to be lost.
    pub leaked: u64,
    /// Mbufs in use at an unknown place; while the stamps are disarmed, all in use except `rings` and
    /// `leaked`.
    pub unplaced: u64,
    /// Lower bound of the lost mbufs if the pool is too empty for a proof, otherwise 0.
    pub lost_at_least: u64,
    /// Mbufs in `leaked` that were lost before the stamps were armed, so that their site is unknown.
    pub prearm: u64,
    /// Whether stamps are written now.
    pub armed: bool,
    /// Conditions under which stamps are written.
    pub mode: LedgerMode,
    /// Whether free mbufs cannot be identified, because the common pool is no `rte_ring`: lost mbufs are
    /// then only counted, and all in use are `unplaced`.
    #[serde(default)]
    pub opaque: bool,
    /// Growth of the in-use count over the window of the library, mbufs per 1000 s.
    pub slope_milli: i64,
    /// Time until the pool is empty at this slope, milliseconds; `None` if the growth is not significant.
    pub exhausted_in_ms: Option<u64>,
    /// Wall clock when the first loss was proven, nanoseconds since 1970; 0 if there was none.
    pub first_leak_realtime_ns: u64,
    /// Completed walks over the pool.
    pub walks: u64,
    /// CPU time of the last walk, microseconds.
    pub walk_us: u64,
    /// Double frees detected by stamps, since start.
    pub double_frees: u64,
    /// Uses after free detected by stamps, since start.
    pub use_after_frees: u64,
}

/// One of the places where an mbuf can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MbufPlace {
    /// Free in the common ring.
    Common,
    /// Free in per-lcore caches.
    Cached,
    /// Given to a NIC's receive ring.
    RxPosted,
    /// Given to a NIC for sending.
    TxPending,
    /// In software rings.
    Rings,
    /// Held by the app.
    Held,
    /// Confirmed lost.
    Leaked,
    /// In use, place not known.
    Unplaced,
}

impl MbufPlace {
    /// Returns its name in `/pmdscope/leaks`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Cached => "cached",
            Self::RxPosted => "rx_posted",
            Self::TxPending => "tx_pending",
            Self::Rings => "rings",
            Self::Held => "held",
            Self::Leaked => "leaked",
            Self::Unplaced => "unplaced",
        }
    }
}

impl LedgerSample {
    /// Returns the mbufs in each place, in the order in which a ledger is shown.
    pub fn parts(&self) -> [(MbufPlace, u64); 8] {
        [
            (MbufPlace::Common, self.common),
            (MbufPlace::Cached, self.cached),
            (MbufPlace::RxPosted, self.rx_posted),
            (MbufPlace::TxPending, self.tx_pending),
            (MbufPlace::Rings, self.rings),
            (MbufPlace::Held, self.held),
            (MbufPlace::Leaked, self.leaked),
            (MbufPlace::Unplaced, self.unplaced),
        ]
    }

    /// Returns the sum of the parts, which should be the size.
    pub fn sum(&self) -> u64 {
        self.parts().iter().fold(0, |sum, (_, part)| sum.saturating_add(*part))
    }

    /// Describes how the parts fail to add up; `None` if they do.
    pub fn imbalance(&self) -> Option<String> {
        let (sum, size) = (self.sum(), self.size);
        (sum != size)
            .then(|| format!("the ledger of {}{LEDGER_IMBALANCE}{sum} of {size} mbufs", self.name))
    }

    /// Whether mbufs of this pool are certainly lost.
    pub fn loses(&self) -> bool {
        self.leaked > 0 || self.lost_at_least > 0
    }

    /// Whether almost no mbuf is free.
    pub fn empty(&self) -> bool {
        self.common.saturating_add(self.cached) < self.size.div_ceil(50)
    }

    /// Whether almost no mbuf is free, and most are in software rings: their consumers are slow.
    pub fn queued_up(&self) -> bool {
        self.empty() && self.rings.saturating_mul(2) > self.size
    }

    /// Whether almost no mbuf is free, most are not in software rings, and none is proven to be lost:
    /// mbufs that do not move prove nothing.
    pub fn starves(&self) -> bool {
        self.empty() && !self.loses() && !self.queued_up()
    }

    /// Returns the growth of the in-use count, mbufs per second, as the library computes it.
    pub fn slope_ps(&self) -> f64 {
        self.slope_milli as f64 / 1000.0
    }
}

/// What happened to mbufs at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SiteKind {
    /// Lost: held by nothing and never freed.
    Leak,
    /// Given to TX and never returned.
    TxLost,
    /// Referenced by a leaked clone.
    Pinned,
    /// Freed twice.
    DoubleFree,
    /// Used after being freed.
    UseAfterFree,
}

impl SiteKind {
    /// Whether mbufs are missing, rather than misused.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Leak | Self::TxLost | Self::Pinned)
    }
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leak => "leak",
            Self::TxLost => "tx_lost",
            Self::Pinned => "pinned",
            Self::DoubleFree => "double_free",
            Self::UseAfterFree => "use_after_free",
        })
    }
}

/// A site in the app that lost or misused mbufs of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiteSample {
    /// Name of the pool.
    pub pool: String,
    /// `file:line` at level 2; a queue or stage at level 1; `before arming` or `untraced code` if it is
    /// unknown.
    pub site: String,
    /// Name of the function; empty at level 1, or if nothing is proven.
    pub function: String,
    /// Last operation on the mbufs at the site: `rx`, `alloc`, `clone`, `tx`, `free`, ...
    pub operation: String,
    /// What happened to the mbufs.
    pub kind: SiteKind,
    /// Id of the site, as in leak records of the capture ring.
    pub id: u32,
    /// Mbufs lost at this site now.
    pub count: u64,
    /// Mbufs found to be lost or misused at this site; never decreases.
    pub events: u64,
    /// Time since the first of these mbufs was last seen to move, or was misused, milliseconds.
    pub oldest_ms: u64,
    /// Time since the last of these mbufs was last seen to move, or was misused, milliseconds.
    pub newest_ms: u64,
    /// Wall clock when the first loss or misuse was proven, nanoseconds since 1970.
    pub first_realtime_ns: u64,
}

impl SiteSample {
    /// Returns the site with its function, for people.
    pub fn place(&self) -> String {
        self.with_function(&self.site)
    }

    /// Whether no other code can have had these mbufs since they were at this site.
    pub fn proven(&self) -> bool {
        !self.site.starts_with(NOT_PROVEN)
    }

    /// Returns the text of [`SiteSample::place`], without the directories of a source file.
    pub fn brief_place(&self) -> String {
        self.with_function(self.brief_site())
    }

    /// Returns the site without the directories of a source file.
    pub fn brief_site(&self) -> &str {
        if self.function.is_empty() {
            return &self.site;
        }
        self.site.rsplit('/').next().unwrap_or(&self.site)
    }

    fn with_function(&self, site: &str) -> String {
        if self.function.is_empty() {
            site.to_owned()
        } else {
            format!("{site} {}()", self.function)
        }
    }
}

/// A place where mbufs stay for a while: a stage, queue or call site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageSample {
    /// Name of the place.
    pub stage: String,
    /// Mbufs with a last stamp of this place.
    pub held: u64,
    /// Whether the place may hold mbufs for any time (`pmdscope_stage_hold()`).
    pub hold: bool,
    /// Learned limit of the residence, milliseconds; mbufs that stay longer are suspect.
    pub bound_ms: u64,
    /// Longest residence after which an mbuf moved on, milliseconds.
    pub longest_ms: u64,
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
pub(crate) mod tests;

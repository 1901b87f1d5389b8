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

/// When the stamps that name sites are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum LedgerMode {
    /// When mbufs go missing, and on demand.
    #[default]
    Auto,
    /// All the time.
    Always,
    /// Not at all.
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

/// Where the mbufs of one pool are. The parts add up to the size, see [`LedgerSample::parts`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerSample {
    /// Name of the pool.
    pub name: String,
    /// Mbufs.
    pub size: u64,
    /// Free in the common ring.
    pub common: u64,
    /// Free in per-lcore caches.
    pub cached: u64,
    /// Given to a NIC's receive ring.
    pub rx_posted: u64,
    /// Given to a NIC for sending and not yet back.
    pub tx_pending: u64,
    /// In software rings.
    pub rings: u64,
    /// Held by the app, not suspected.
    pub held: u64,
    /// Confirmed lost.
    pub leaked: u64,
    /// In use, place not known: all of it while the stamps are disarmed.
    pub unplaced: u64,
    /// Lower bound of lost mbufs when the pool is too empty for proof, else 0.
    pub lost_at_least: u64,
    /// Of `leaked`, lost before the stamps were armed: their site is not known.
    pub prearm: u64,
    /// Stamps are written now.
    pub armed: bool,
    /// When stamps are written.
    pub mode: LedgerMode,
    /// The free mbufs cannot be told one by one (the common pool is no `rte_ring`): losses are only
    /// counted, and all that is in use is unplaced.
    #[serde(default)]
    pub opaque: bool,
    /// Growth of the in-use count over the library's window, mbufs per 1000 s.
    pub slope_milli: i64,
    /// Time until the pool is empty at that slope, milliseconds; `None` when it does not grow.
    pub exhausted_in_ms: Option<u64>,
    /// Wall clock when the first leak was confirmed; 0 when none was.
    pub first_leak_realtime_ns: u64,
    /// Completed walks over the pool.
    pub walks: u64,
    /// CPU time of the last walk, microseconds.
    pub walk_us: u64,
    /// Double frees that stamps revealed, since start.
    pub double_frees: u64,
    /// Uses after free that stamps revealed, since start.
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
    /// Held by nobody, never freed.
    Leak,
    /// Given to TX, never came back.
    TxLost,
    /// Kept by a leaked clone.
    Pinned,
    /// Freed again.
    DoubleFree,
    /// Used after it was freed.
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

/// A place in the app that has lost mbufs of a pool, or misused them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiteSample {
    /// Name of the pool.
    pub pool: String,
    /// `file:line` at level 2; a queue or stage at level 1.
    pub site: String,
    /// Function; empty at level 1.
    pub function: String,
    /// What was done there last: `rx`, `alloc`, `clone`, `tx`, `free`, ...
    pub operation: String,
    /// What happened.
    pub kind: SiteKind,
    /// Id of the site, as in leak records of the capture ring.
    pub id: u32,
    /// Mbufs lost here now.
    pub count: u64,
    /// Ever found here; never goes back.
    pub events: u64,
    /// Time since the first of these mbufs was last seen to move, or was misused, milliseconds.
    pub oldest_ms: u64,
    /// Time since the last of these mbufs was last seen to move, or was misused, milliseconds.
    pub newest_ms: u64,
    /// Wall clock when the first was confirmed.
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

/// A place where mbufs stay for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StageSample {
    /// Name.
    pub stage: String,
    /// Mbufs whose last stamp is of this stage.
    pub held: u64,
    /// It may keep mbufs for any time (`pmdscope_stage_hold()`).
    pub hold: bool,
    /// Learned residence bound, milliseconds: held for longer is suspect.
    pub bound_ms: u64,
    /// Longest residence that ended well, milliseconds.
    pub longest_ms: u64,
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
pub(crate) mod tests;

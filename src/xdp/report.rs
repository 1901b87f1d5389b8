//! Filters as text and JSON.

use std::fmt::Write as _;

use pmdscope_render::number::{bytes, count, known, percent};
use pmdscope_telemetry::interface::{FilterMode, FilterSample};
use pmdscope_xdp::{Filter, Prefix, PrefixAction, Settings, XdpError};
use serde::Serialize;

/// Most prefixes in the text; JSON has all.
const SHOWN_PREFIXES: usize = 20;

/// Version of the JSON; raised when a field changes its meaning.
const XDP_SCHEMA: u32 = 1;

/// Output of `xdp status --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document<'a> {
    /// Version of the JSON; raised when a field changes its meaning.
    #[cfg_attr(test, schemars(extend("const" = XDP_SCHEMA)))]
    schema: u32,
    /// Filters of pmdscope on interfaces; empty if there are none.
    filters: &'a [FilterReport],
}

impl<'a> Document<'a> {
    pub(super) fn of(filters: &'a [FilterReport]) -> Self {
        Self { schema: XDP_SCHEMA, filters }
    }
}

/// Status of a filter.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FilterReport {
    /// Name of the interface.
    interface: String,
    /// Index of the interface.
    index: u32,
    #[serde(flatten)]
    sample: FilterSample,
    /// Limits and switches of the filter.
    settings: Settings,
    /// Listed prefixes, in ascending order.
    prefixes: Vec<PrefixReport>,
}

/// A listed prefix.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PrefixReport {
    /// Addresses with the same leading bits, such as `192.0.2.0/24`.
    #[cfg_attr(test, schemars(with = "String"))]
    prefix: Prefix,
    /// Action for packets from the prefix; the longest matching prefix decides.
    action: PrefixAction,
}

impl FilterReport {
    pub(super) fn of(filter: &Filter) -> Result<Self, XdpError> {
        let prefixes = filter.prefixes()?.into_iter();
        Ok(Self {
            interface: filter.interface().to_owned(),
            index: filter.index(),
            sample: filter.sample()?,
            settings: filter.settings()?,
            prefixes: prefixes.map(|(prefix, action)| PrefixReport { prefix, action }).collect(),
        })
    }

    fn text(&self) -> String {
        let mode = match self.sample.mode {
            FilterMode::Native => "native",
            FilterMode::Generic => "generic",
        };
        let mut text = format!("{}: {mode}, program {}\n", self.interface, self.sample.program);
        let _ =
            writeln!(text, "  {:10}  {:>15}  {:>8}  {:>6}", "verdict", "packets", "bytes", "share");
        let seen = self.sample.verdicts.iter().map(|verdict| verdict.packets).sum::<u64>();
        let share = |packets: u64| known((seen > 0).then(|| packets as f64 / seen as f64), percent);
        let mut row = |name: &str, packets, volume| {
            let (share, packets, volume) = (share(packets), count(packets), bytes(volume));
            let _ = writeln!(text, "  {name:10}  {packets:>15}  {volume:>8}  {share:>6}");
        };
        for verdict in &self.sample.verdicts {
            row(&verdict.reason, verdict.packets, verdict.bytes);
        }
        row("all", seen, self.sample.verdicts.iter().map(|verdict| verdict.bytes).sum());
        self.write_sources(&mut text);
        let _ = writeln!(text, "  {}", settings(&self.settings));
        self.write_prefixes(&mut text);
        text
    }

    fn write_sources(&self, text: &mut String) {
        if self.sample.top_sources.is_empty() {
            return;
        }
        text.push_str("  sources of dropped packets\n");
        for source in &self.sample.top_sources {
            let _ = writeln!(
                text,
                "    {:39}  {:>15}",
                source.address.to_string(),
                count(source.packets)
            );
        }
        if self.sample.uncounted_sources > 0 {
            let others = count(self.sample.uncounted_sources);
            let _ = writeln!(text, "    {:39}  {others:>15}", "not counted by source");
        }
    }

    fn write_prefixes(&self, text: &mut String) {
        for listed in self.prefixes.iter().take(SHOWN_PREFIXES) {
            let _ = writeln!(text, "  {:5} {}", listed.action.to_string(), listed.prefix);
        }
        if let Some(more) = self.prefixes.len().checked_sub(SHOWN_PREFIXES).filter(|more| *more > 0)
        {
            let _ = writeln!(text, "  and {} prefixes more: --json lists all", count(more as u64));
        }
    }
}

/// All filters; empty if there is none.
pub(super) fn text(filters: &[FilterReport]) -> String {
    filters.iter().map(FilterReport::text).collect::<Vec<_>>().join("\n")
}

/// Limits and switches in one line.
pub(super) fn settings(settings: &Settings) -> String {
    let limit =
        |limit: Option<u32>| limit.map_or_else(|| "off".to_owned(), |pps| count(pps.into()));
    format!(
        "rate limit {}, SYN limit {}, non-IP {}, fragments {}",
        limit(settings.rate_limit),
        limit(settings.syn_limit),
        if settings.pass_non_ip { "pass" } else { "drop" },
        if settings.drop_fragments { "drop" } else { "pass" },
    )
}

#[cfg(test)]
mod tests {
    use insta::{assert_json_snapshot, assert_snapshot};
    use pmdscope_telemetry::interface::{SourceSample, VerdictSample};

    use super::*;

    fn verdict(reason: &str, packets: u64) -> VerdictSample {
        VerdictSample {
            reason: reason.to_owned(),
            dropped: reason != "passed",
            packets,
            bytes: packets * 60,
        }
    }

    fn flooded() -> FilterReport {
        let source =
            |address: &str, packets| SourceSample { address: address.parse().unwrap(), packets };
        let listed =
            |prefix: &str, action| PrefixReport { prefix: prefix.parse().unwrap(), action };
        FilterReport {
            interface: "eth0".to_owned(),
            index: 2,
            sample: FilterSample {
                program: 42,
                mode: FilterMode::Native,
                verdicts: vec![
                    verdict("passed", 1_204_118),
                    verdict("malformed", 88_120_443),
                    verdict("denied", 4_000),
                ],
                top_sources: vec![source("203.0.113.9", 60_000_000), source("2001:db8::7", 4_000)],
                uncounted_sources: 28_120_443,
            },
            settings: Settings { rate_limit: Some(20_000), ..Settings::default() },
            prefixes: vec![
                listed("192.0.2.0/24", PrefixAction::Deny),
                listed("192.0.2.7", PrefixAction::Allow),
            ],
        }
    }

    #[test]
    fn filters_are_shown() {
        let mut idle = flooded();
        idle.interface = "eth1".to_owned();
        idle.sample.verdicts = vec![verdict("passed", 0), verdict("malformed", 0)];
        idle.sample.top_sources.clear();
        idle.settings = Settings { drop_fragments: true, pass_non_ip: true, ..Settings::default() };
        let prefix = |host: u8| format!("192.0.2.{host}").parse().unwrap();
        let denied = |host| PrefixReport { prefix: prefix(host), action: PrefixAction::Deny };
        idle.prefixes = (1..=25).map(denied).collect();
        assert_snapshot!(text(&[flooded(), idle]));
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn json_has_all() {
        assert_json_snapshot!(Document::of(&[flooded()]));
    }
}

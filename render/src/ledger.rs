//! The ledger of a pool as text, and the characters of its bar.

use std::fmt::Write;

use pmdscope_telemetry::sample::{LedgerSample, MbufPlace, StageSample};

use crate::number::{UNKNOWN, count, seconds, signed};
use crate::theme::Theme;

/// Parts in the order in which a bar shows them: what is wrong comes first.
const BAR_ORDER: [MbufPlace; 8] = [
    MbufPlace::Leaked,
    MbufPlace::Unplaced,
    MbufPlace::Held,
    MbufPlace::Rings,
    MbufPlace::TxPending,
    MbufPlace::RxPosted,
    MbufPlace::Cached,
    MbufPlace::Common,
];

/// The sign of a place in bars. All differ, also without colours.
fn sign(place: MbufPlace, theme: Theme) -> char {
    let [held, cached, common] = theme.bar();
    match place {
        MbufPlace::Leaked => '!',
        MbufPlace::Unplaced => '?',
        MbufPlace::Held => held,
        MbufPlace::Rings => 'o',
        MbufPlace::TxPending => '>',
        MbufPlace::RxPosted => '<',
        MbufPlace::Cached => cached,
        MbufPlace::Common => common,
    }
}

/// What the signs of a bar mean, in one line.
pub fn legend(theme: Theme) -> String {
    let each = BAR_ORDER.map(|place| format!("{} {}", sign(place, theme), short(place)));
    each.join("  ")
}

fn short(place: MbufPlace) -> &'static str {
    match place {
        MbufPlace::Leaked => "leaked",
        MbufPlace::Unplaced => "unplaced",
        MbufPlace::Held => "held",
        MbufPlace::Rings => "rings",
        MbufPlace::TxPending => "tx",
        MbufPlace::RxPosted => "rx",
        MbufPlace::Cached => "cached",
        MbufPlace::Common => "free",
    }
}

/// The parts of a pool as a bar of `width` characters. A part that is not empty is always seen, if
/// there are as many characters as parts.
pub(crate) fn bar(parts: &[(MbufPlace, u64)], width: usize, theme: Theme) -> String {
    let of = |place| parts.iter().find(|(p, _)| *p == place).map_or(0, |(_, part)| *part);
    let present: Vec<_> = BAR_ORDER
        .map(|place| (place, of(place)))
        .into_iter()
        .filter(|(_, part)| *part > 0)
        .collect();
    let total: u128 = present.iter().map(|(_, part)| u128::from(*part)).sum();
    let free_columns = width.saturating_sub(present.len()) as u128;
    let (mut before, mut bar) = (0, String::new());
    for (place, part) in present {
        let after = before + u128::from(part);
        let more = (after * free_columns / total).saturating_sub(before * free_columns / total);
        let columns = 1 + usize::try_from(more).unwrap_or(0);
        bar.extend(std::iter::repeat_n(sign(place, theme), columns));
        before = after;
    }
    bar.chars().chain(std::iter::repeat(' ')).take(width).collect()
}

/// The meaning of a place.
fn meaning(place: MbufPlace, ledger: &LedgerSample) -> &'static str {
    match place {
        MbufPlace::Common => "free, in the common ring of the pool",
        MbufPlace::Cached => "free, in the caches of lcores",
        MbufPlace::RxPosted => "posted to a NIC for receiving",
        MbufPlace::TxPending => "given to a NIC for sending, not yet returned",
        MbufPlace::Rings => "waiting in software rings",
        MbufPlace::Held => "held by the app, not suspected to be lost",
        MbufPlace::Leaked => "lost: never freed, and in no queue, ring or cache",
        MbufPlace::Unplaced if ledger.armed => "in use, place unknown",
        MbufPlace::Unplaced => "in use, place unknown while stamps are disarmed",
    }
}

/// The ledger line by line, with its sum and its trend.
pub fn explain(ledger: &LedgerSample, stages: &[StageSample]) -> Vec<String> {
    let stamps = if ledger.armed { "stamps armed" } else { "stamps disarmed" };
    let mut lines = vec![
        format!("{}: {} mbufs; {stamps} (mode {})", ledger.name, count(ledger.size), ledger.mode),
        String::new(),
    ];
    for (index, (place, part)) in ledger.parts().into_iter().enumerate() {
        let plus = if index == 0 { ' ' } else { '+' };
        lines.push(format!(
            "{plus} {:>10}  {:<10}  {}",
            count(part),
            place.name(),
            meaning(place, ledger)
        ));
    }
    lines.push(format!("= {:>10}  {}", count(ledger.sum()), sum_line(ledger)));
    lines.push(String::new());
    lines.extend(remarks(ledger));
    lines.extend(holders(stages));
    lines
}

fn sum_line(ledger: &LedgerSample) -> String {
    match ledger.imbalance() {
        None => "all mbufs of the pool".to_owned(),
        Some(_) => format!("does not add up to the size of {}", count(ledger.size)),
    }
}

fn remarks(ledger: &LedgerSample) -> Vec<String> {
    let mut trend = format!("growth of use: {}/s", signed(ledger.slope_ps()));
    if let Some(ms) = ledger.exhausted_in_ms {
        let _ = write!(trend, ", empty in {}", seconds(ms as f64 / 1000.0));
    }
    let mut lines = vec![trend];
    if ledger.opaque {
        lines.push("losses are only counted: the common pool is not an rte_ring".into());
    }
    let counted = [
        (ledger.prearm, "of the lost were lost before the stamps were armed: no site"),
        (ledger.lost_at_least, "or more are lost; the pool is too empty to prove which"),
        (ledger.double_frees, "times an mbuf was freed twice"),
        (ledger.use_after_frees, "times an mbuf was used after it was freed"),
    ];
    let there = counted.into_iter().filter(|(number, _)| *number > 0);
    lines.extend(there.map(|(number, what)| format!("{} {what}", count(number))));
    lines.push(match ledger.walks {
        0 => "no walk completed yet".to_owned(),
        walks => format!("{} walks completed, the last took {} us", count(walks), ledger.walk_us),
    });
    lines
}

/// Stages that hold mbufs of any pool.
fn holders(stages: &[StageSample]) -> Vec<String> {
    let mut lines = Vec::new();
    for stage in stages.iter().filter(|stage| stage.held > 0) {
        if lines.is_empty() {
            lines.extend([String::new(), "stages that hold mbufs, of all pools:".to_owned()]);
        }
        lines.push(format!(
            "  {:>10}  {:<24}  {}",
            count(stage.held),
            stage.stage,
            time_limit(stage)
        ));
    }
    lines
}

fn time_limit(stage: &StageSample) -> String {
    let longest = stage_ms(stage.longest_ms);
    if stage.hold {
        format!("may hold them for any time; longest so far {longest}")
    } else {
        format!("suspect after {}; longest so far {longest}", stage_ms(stage.bound_ms))
    }
}

/// A residence, or that there was none.
pub fn stage_ms(ms: u64) -> String {
    match ms {
        0 => UNKNOWN.to_owned(),
        1..10_000 => format!("{ms}ms"),
        _ => seconds(ms as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use pmdscope_telemetry::fixture::{ledger, stages};

    use super::*;

    const ASCII: Theme = Theme::ASCII;

    #[test]
    fn every_part_is_visible_and_has_its_own_symbol() {
        let parts = [
            (MbufPlace::Common, 10_000),
            (MbufPlace::Cached, 300),
            (MbufPlace::RxPosted, 1),
            (MbufPlace::TxPending, 1),
            (MbufPlace::Rings, 1),
            (MbufPlace::Held, 1),
            (MbufPlace::Leaked, 1),
            (MbufPlace::Unplaced, 1),
        ];
        assert_eq!(bar(&parts, 16, ASCII), "!?#o><=.........");
        assert_eq!(bar(&parts, 4, ASCII), "!?#o");
        assert_eq!(bar(&parts[..1], 4, ASCII), "....");
        assert_eq!(
            bar(&[(MbufPlace::Common, 50), (MbufPlace::Leaked, 50)], 10, ASCII),
            "!!!!!....."
        );
        assert_eq!(bar(&[], 3, ASCII), "   ");
        assert_eq!(
            bar(&[(MbufPlace::Held, u64::MAX), (MbufPlace::Common, u64::MAX)], 4, ASCII),
            "##.."
        );
        for theme in [ASCII, Theme::default()] {
            let mut signs = BAR_ORDER.map(|place| sign(place, theme));
            signs.sort_unstable();
            assert!(signs.windows(2).all(|pair| pair[0] != pair[1]), "{signs:?}");
        }
    }

    #[test]
    fn a_ledger_is_explained_line_by_line() {
        let mut ledger = ledger();
        let armed = explain(&ledger, &stages()).join("\n");
        (ledger.unplaced, ledger.held, ledger.armed) = (ledger.held + 5, 0, false);
        let disarmed = explain(&ledger, &[]).join("\n");
        assert_snapshot!(format!("{armed}\n----\n{disarmed}"));
    }
}

//! What scans found, as text: a table of lost mbufs, and notes.

use pmdscope_render::number::{UNKNOWN, bytes, count, known, plural, seconds, si};
use pmdscope_render::{Cell, Column, Subject, TextTable, Tone};
use pmdscope_telemetry::sample::{LostGroupSample, PoolScanSample, ScanSample};

/// One row per pool that lost mbufs, and one per group if its packets differ.
pub(super) fn lost_mbufs<'a>(scans: impl Iterator<Item = (&'a str, &'a ScanSample)>) -> TextTable {
    let columns = vec![
        Column::text("App"),
        Column::text("Pool"),
        Column::number("Lost"),
        Column::number("Rate/s"),
        Column::number("Age at least"),
        Column::number("Port"),
        Column::text("Protocol"),
        Column::text("Conversation"),
        Column::number("Bytes"),
        Column::number("Segs"),
        Column::number("Refs"),
    ];
    let mut table = TextTable::new("Lost mbufs", columns);
    for (app, scan) in scans {
        for pool in scan.pools.iter().filter(|pool| pool.lost > 0) {
            let subject = Subject::Pool { app: app.to_owned(), pool: pool.name.clone() };
            table.push(subject.clone(), false, pool_cells(app, pool));
            for group in pool.groups.iter().filter(|_| pool.groups.len() > 1) {
                table.push(subject.clone(), false, group_cells(group));
            }
        }
    }
    table
}

fn pool_cells(app: &str, pool: &PoolScanSample) -> Vec<Cell> {
    let mut cells = vec![
        Cell::text(app),
        Cell::text(&pool.name),
        Cell::number(Some(pool.lost as f64), count(pool.lost)).tone(Tone::Bad).flag(),
        Cell::text(known(pool.lost_ps, si)),
        Cell::text(seconds(pool.oldest_at_least_ms as f64 / 1000.0)),
    ];
    match &pool.groups[..] {
        [group] => cells.extend(common_cells(group)),
        groups => {
            let kinds = format!("{}:", plural(groups.len() as u64, "group"));
            cells.extend([Cell::text(""), Cell::text(""), Cell::text(kinds)]);
            cells.extend([Cell::text(""), Cell::text(""), Cell::text("")]);
        }
    }
    cells
}

fn group_cells(group: &LostGroupSample) -> Vec<Cell> {
    let mut cells = vec![
        Cell::text(""),
        Cell::text(""),
        Cell::text(count(group.mbufs)),
        Cell::text(""),
        Cell::text(seconds(group.oldest_at_least_ms as f64 / 1000.0)),
    ];
    cells.extend(common_cells(group));
    cells
}

fn common_cells(group: &LostGroupSample) -> [Cell; 6] {
    let number = |value: Option<u16>| Cell::text(known(value, |value| value.to_string()));
    [
        number(group.port),
        Cell::text(group.protocol.as_deref().unwrap_or(UNKNOWN)),
        Cell::text(conversation(group)),
        Cell::text(group.lengths()),
        number(group.segments),
        number(group.refcnt),
    ]
}

/// The ends that are common, and how many conversations they belong to if to several.
fn conversation(group: &LostGroupSample) -> String {
    let several = match group.conversations {
        0 | 1 => None,
        number => Some(plural(number, "conversation")),
    };
    match (group.conversation(), several) {
        (Some(ends), Some(several)) => format!("{ends} ({several})"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => UNKNOWN.to_owned(),
    }
}

/// Why the table has no rate of an app that can be scanned again.
pub(super) fn rate_note(scan: &ScanSample) -> Option<String> {
    let unknown = |pool: &PoolScanSample| pool.lost > 0 && pool.lost_ps.is_none();
    scan.pools
        .iter()
        .any(unknown)
        .then(|| "the rate is unknown until the next scan: --watch repeats it".to_owned())
}

/// Notes on a scan, in addition to the table.
pub(super) fn notes(scan: &ScanSample) -> Vec<String> {
    let mut notes = Vec::new();
    for pool in scan.pools.iter().filter(|pool| pool.not_judged > 0) {
        let why = match &pool.not_judged_why[..] {
            [] => String::new(),
            why => format!(": {}", why.join("; ")),
        };
        let (part, size) = (count(pool.not_judged), count(pool.size));
        notes.push(format!("{part} of {size} mbufs of {} are not judged{why}", pool.name));
    }
    notes.extend(scan.problems.iter().cloned());
    let lost = scan.lost();
    let mbufs: u64 = scan.pools.iter().map(|pool| pool.size).sum();
    let searched = format!(
        "{} of {} in {}",
        plural(scan.scans.into(), "scan"),
        bytes(scan.scanned_bytes),
        seconds(scan.duration_ms as f64 / 1000.0)
    );
    notes.push(match lost {
        0 if scan.pools.is_empty() => "no mbuf pool was found".to_owned(),
        0 => {
            let pools = plural(scan.pools.len() as u64, "pool");
            let not_judged: u64 = scan.pools.iter().map(|pool| pool.not_judged).sum();
            let mbufs = count(mbufs.saturating_sub(not_judged));
            let judged = if not_judged > 0 { "judged " } else { "" };
            format!("no lost mbufs in {pools} of {mbufs} {judged}mbufs ({searched})")
        }
        _ => format!(
            "{} lost: nothing refers to them any more ({searched}); --write FILE.pcapng writes the \
             packets, --explain shows who holds the others",
            plural(lost, "mbuf")
        ),
    });
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_is_unknown_is_told() {
        let pool = |lost, lost_ps| PoolScanSample { lost, lost_ps, ..PoolScanSample::default() };
        let note = |pools| rate_note(&ScanSample { pools, ..ScanSample::default() });
        assert_eq!(note(vec![pool(0, None), pool(3, Some(0.0))]), None);
        let told = "the rate is unknown until the next scan: --watch repeats it";
        assert_eq!(note(vec![pool(0, None), pool(3, None)]).as_deref(), Some(told));
    }
}

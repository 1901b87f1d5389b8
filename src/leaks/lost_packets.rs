//! `--write` of an app that was scanned: its lost packets, some of each group.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use pmdscope_capture::layout::{LEAK_LOST, LeakInfo};
use pmdscope_capture::leak;
use pmdscope_packets::SinkError;
use pmdscope_packets::file::{CaptureFiles, FileSettings};
use pmdscope_render::number::{count, plural};
use pmdscope_telemetry::realtime_ns;
use pmdscope_xray::LostMbuf;

use super::groups::LostGroup;
use super::scan::{self, AppScan, ScannedMemory};
use super::{lost_table, verdict_of_scan};
use crate::exit::FAILED;
use crate::output;

/// What a reader must know of the packets.
const ABOUT: &str = "Packets in mbufs that are in use and that nothing in the app's memory refers to. Each is \
                     shown at the time since when it was lost for sure; it may have been lost before.";

/// The content of the comment on a packet.
struct Evidence<'a> {
    mbuf: &'a LostMbuf,
    /// What its group has in common.
    group: String,
}

/// Writes at most `per_group` packets of each group.
pub(super) fn write(app: &str, scan: &AppScan, path: &Path, per_group: usize) -> Result<ExitCode> {
    for note in lost_table::notes(&scan.sample).iter().filter(|_| scan.sample.lost() == 0) {
        output::tell(&format!("{app}: {note}"));
    }
    let Some(live) = scan.live.as_ref().filter(|_| scan.sample.lost() > 0) else {
        output::tell(&format!("{app}: nothing to write"));
        return Ok(verdict_of_scan(&scan.sample));
    };
    let (mut mbufs, mut evidence, mut groups) = (Vec::new(), BTreeMap::new(), 0_u32);
    for pool in &live.report.pools {
        for group in scan::groups_of(&live.target, pool) {
            groups += 1;
            let common = words(&group);
            for packet in group.packets.iter().take(per_group) {
                mbufs.extend(lost(live, packet.mbuf, &pool.name, groups));
                let found = Evidence { mbuf: packet.mbuf, group: common.clone() };
                evidence.insert(packet.mbuf.address, found);
            }
        }
    }
    if mbufs.is_empty() {
        bail!(
            "{app}: the packets cannot be read: the mbufs have changed since, or the app has ended"
        );
    }
    let mut files = CaptureFiles::create(&FileSettings::new(path))?;
    let comment = |mbuf: &leak::DumpedMbuf| match evidence.get(&mbuf.leak.mbuf) {
        Some(found) => comment(found, &mbuf.leak.pool),
        None => String::new(),
    };
    match leak::write(&mut files, app, &mbufs, ABOUT, comment) {
        Err(SinkError::Closed { .. }) => {}
        written => written?,
    }
    let target =
        if path == Path::new("-") { "standard output".into() } else { path.display().to_string() };
    output::tell(&format!(
        "{} of {} written to {target}, of {}",
        plural(mbufs.len() as u64, "packet"),
        plural(groups.into(), "group"),
        plural(scan.sample.lost(), "lost mbuf")
    ));
    Ok(ExitCode::from(FAILED))
}

/// `None` for one that was used again since the scan.
fn lost(live: &ScannedMemory, mbuf: &LostMbuf, pool: &str, group: u32) -> Option<leak::DumpedMbuf> {
    let data = pmdscope_xray::packet(&live.target, mbuf).ok()?;
    let age_ms = mbuf.age_at_least_ms;
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    Some(leak::DumpedMbuf {
        leak: LeakInfo {
            mbuf: mbuf.address,
            age_ms,
            site: group,
            kind: LEAK_LOST,
            pool: pool.to_owned(),
        },
        port: mbuf.port,
        queue: None,
        dir: 0,
        ns: realtime_ns().saturating_sub(age_ms.saturating_mul(1_000_000)),
        len: mbuf.packet_bytes.max(length),
        data,
    })
}

fn words(group: &LostGroup<'_>) -> String {
    let summary = group.summary();
    format!("one of {}: {}", count(summary.mbufs), summary.words())
}

fn comment(found: &Evidence<'_>, pool: &str) -> String {
    let Evidence { mbuf, group } = found;
    let port = mbuf.port.map_or_else(|| "no port".to_owned(), |port| format!("port {port}"));
    format!(
        "lost for at least {:.1} s, pool {pool}, {port}, refcnt {}, {}, mbuf {:#x}; {group}",
        mbuf.age_at_least_ms as f64 / 1000.0,
        mbuf.refcnt,
        plural(mbuf.segments.into(), "segment"),
        mbuf.address
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_says_where_since_when_and_which() {
        let mbuf = LostMbuf {
            address: 0x1_4000_0880,
            port: Some(0),
            refcnt: 1,
            segments: 1,
            packet_bytes: 60,
            age_at_least_ms: 1_520,
        };
        let found = Evidence { mbuf: &mbuf, group: "one of 4: port 0, udp, 60 bytes".into() };
        assert_eq!(
            comment(&found, "mb_pool"),
            "lost for at least 1.5 s, pool mb_pool, port 0, refcnt 1, 1 segment, mbuf 0x140000880; \
             one of 4: port 0, udp, 60 bytes"
        );
    }
}

//! `--write`: writes the lost packets of an app to a file.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use pmdscope_capture::CaptureSession;
use pmdscope_capture::layout::{
    ANY, CaptureRequest, LEAK_LOST, LEAK_PINNED, LEAK_TX_LOST, QueueSelect, TEE_LEAKED,
};
use pmdscope_capture::leak::{self, DumpedMbuf, LeakDump, LeakError};
use pmdscope_packets::file::{CaptureFiles, FileSettings};
use pmdscope_packets::{DIR_RX, DIR_TX, SinkError};
use pmdscope_render::number::count;
use pmdscope_telemetry::SampleCollector;
use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::sample::{BEFORE_ARMING, Sample, SiteSample};

use super::scan::Scanner;
use super::{Args, lost_packets, report, unanswering};
use crate::attach::running::RunningApp;
use crate::attach::transport::library_socket;
use crate::exit::{FAILED, Usage};
use crate::output::{self, StandardOutput};
use pmdscope_telemetry::fleet::ROUND_TIMEOUT;

/// What a reader must know of the packets.
const ABOUT: &str = "Packets in mbufs that the app has lost. Each is shown at the time when it was last \
                     seen to move.";

/// How long the app may take to send everything.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Refuses to write to a terminal.
pub(super) fn check_target(path: &Path) -> Result<(), Usage> {
    if path == Path::new("-") && StandardOutput::is_terminal() {
        return Err(Usage("pcapng is not for a terminal: give -w FILE"));
    }
    Ok(())
}

/// Writes packets of each site of an app with a ledger, or of each group of one that is scanned.
pub(super) fn run(args: &Args, path: &Path) -> Result<ExitCode> {
    check_target(path)?;
    let app = match args.app.the_app() {
        Ok(app) => app,
        Err(error) => match unanswering(&error).filter(|_| args.scans()) {
            Some(app) => return scanned(args, &app, path),
            None => return Err(error),
        },
    };
    let name = app.name.clone();
    let sample = SampleCollector::new(app.clone())
        .collect(ROUND_TIMEOUT)
        .with_context(|| format!("cannot ask {name}"))?;
    if sample.library.is_none() && args.scans() {
        return scanned(args, &app, path);
    }
    if sample.ledger.is_empty() {
        bail!("{name}: {}", report::why_no_ledger_of(&sample));
    }
    of_ledger(app, &sample, path, args.per_site)
}

fn scanned(args: &Args, app: &DiscoveredApp, path: &Path) -> Result<ExitCode> {
    let scan = Scanner::new(args.scan).scan_once(app);
    let scan = scan.with_context(|| format!("cannot scan {}", app.name))?;
    lost_packets::write(&app.name, &scan, path, args.per_site())
}

/// Writes at most `per_site` packets of each site.
fn of_ledger(app: DiscoveredApp, sample: &Sample, path: &Path, per_site: u32) -> Result<ExitCode> {
    let to_stdout = path == Path::new("-");
    let name = app.name.clone();
    let lost: u64 = sample.ledger.iter().map(|ledger| ledger.leaked).sum();
    if lost == 0 {
        output::tell(&format!("{name} has lost no mbufs, so there is nothing to write"));
        return Ok(ExitCode::SUCCESS);
    }
    let socket = library_socket(&RunningApp { app, sample: Some(sample.clone()) })?;
    let session = CaptureSession::open(&socket, &request(per_site), TIMEOUT);
    let dump = session
        .map_err(LeakError::from)
        .and_then(|session| leak::receive(session, TIMEOUT))
        .with_context(|| no_packets(&name, sample))?;
    let mut files = CaptureFiles::create(&FileSettings::new(path))?;
    match leak::write(&mut files, &name, &dump.mbufs, ABOUT, |mbuf| comment(mbuf, sample)) {
        Err(SinkError::Closed { .. }) => {}
        written => written?,
    }
    output::tell(&summary(&dump, lost, path, to_stdout));
    Ok(ExitCode::from(FAILED))
}

fn no_packets(name: &str, sample: &Sample) -> String {
    let version = sample.library.as_ref().map_or("", |library| &library.version);
    format!("cannot get the lost packets of {name} (libpmdscope {version})")
}

fn request(per_site: u32) -> CaptureRequest {
    let everything = QueueSelect { port: ANY, queue: ANY, dirs: u16::from(DIR_RX | DIR_TX) };
    CaptureRequest {
        sample: per_site,
        selects: vec![everything],
        flags: TEE_LEAKED,
        ..CaptureRequest::default()
    }
}

/// Site, function, age, pool, kind and address of an mbuf.
fn comment(mbuf: &DumpedMbuf, sample: &Sample) -> String {
    let leak = &mbuf.leak;
    let kind = kind_word(leak.kind);
    let same = |site: &&SiteSample| site.id == leak.site && site.pool == leak.pool;
    let site = sample.sites.iter().find(same);
    let place = match site {
        Some(site) if site.site == BEFORE_ARMING => "before the stamps were armed".to_owned(),
        Some(site) => format!("at {}", site.place()),
        None => format!("at site {}", leak.site),
    };
    let after = site.map(|site| site.operation.as_str()).filter(|operation| !operation.is_empty());
    let after = after.map_or(String::new(), |operation| format!(" after {operation}"));
    format!(
        "{kind} {place}{after}, {:.1} s ago, pool {}, mbuf {:#x}",
        leak.age_ms as f64 / 1000.0,
        leak.pool,
        leak.mbuf
    )
}

fn kind_word(kind: u8) -> String {
    match kind {
        LEAK_LOST => "leak".into(),
        LEAK_TX_LOST => "tx_lost".into(),
        LEAK_PINNED => "pinned".into(),
        other => format!("loss of kind {other}"),
    }
}

fn summary(dump: &LeakDump, lost: u64, path: &Path, to_stdout: bool) -> String {
    let site = |mbuf: &DumpedMbuf| (mbuf.leak.pool.clone(), mbuf.leak.site, mbuf.leak.kind);
    let mut sites: Vec<_> = dump.mbufs.iter().map(site).collect();
    sites.sort_unstable();
    sites.dedup();
    let target = if to_stdout { "standard output".into() } else { path.display().to_string() };
    let full = match dump.dropped {
        0 => String::new(),
        dropped => format!("; {} more did not fit into the ring", count(dropped)),
    };
    format!(
        "{} packets of {} sites written to {target}, of {} lost mbufs{full}",
        count(dump.mbufs.len() as u64),
        sites.len(),
        count(lost)
    )
}

#[cfg(test)]
mod tests {
    use pmdscope_capture::layout::LeakInfo;

    use super::*;
    use crate::leaks::report::tests::leaking;

    fn mbuf(site: u32, kind: u8) -> DumpedMbuf {
        let pool = "mb_pool".to_owned();
        DumpedMbuf {
            leak: LeakInfo { mbuf: 0x1_4000_0880, age_ms: 1_520, site, kind, pool },
            port: Some(0),
            queue: Some(1),
            dir: DIR_RX,
            ns: 1,
            len: 60,
            data: vec![0; 60],
        }
    }

    #[test]
    fn a_comment_says_where_when_and_which() {
        assert_eq!(
            comment(&mbuf(18, LEAK_LOST), &leaking()),
            "leak at app_fwd.c:18 forward() after rx, 1.5 s ago, pool mb_pool, mbuf 0x140000880"
        );
        assert_eq!(
            comment(&mbuf(0, LEAK_TX_LOST), &leaking()),
            "tx_lost before the stamps were armed, 1.5 s ago, pool mb_pool, mbuf 0x140000880"
        );
        assert_eq!(
            comment(&mbuf(999, 9), &leaking()),
            "loss of kind 9 at site 999, 1.5 s ago, pool mb_pool, mbuf 0x140000880"
        );
    }

    #[test]
    fn the_summary_counts_packets_and_sites_and_what_is_missing() {
        let mbufs = vec![mbuf(1, 1), mbuf(1, 1), mbuf(2, 1)];
        let mut dump = LeakDump { mbufs, dropped: 0 };
        let path = Path::new("x.pcapng");
        assert_eq!(
            summary(&dump, 1047, path, false),
            "3 packets of 2 sites written to x.pcapng, of 1,047 lost mbufs"
        );
        dump.dropped = 7;
        assert!(summary(&dump, 1047, path, true).ends_with("; 7 more did not fit into the ring"));
    }
}

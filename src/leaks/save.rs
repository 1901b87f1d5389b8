//! All reports of one round of scans as files, for `pmdscope bundle`: an app is scanned once for all of them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pmdscope_files::{Directory, FileMode};
use pmdscope_render::plain_text;
use pmdscope_telemetry::FleetState;

use super::scan::AppScans;
use super::{Args, lost_packets, report};
use crate::output;

/// Files that `--save` writes into its directory.
pub(crate) const FILES: [&str; 3] = ["leaks.txt", "leaks.json", "explain.txt"];

/// Where the lost packets of an app go that was scanned: `APP FILE`, repeatedly.
pub(super) fn packet_files(words: &[String]) -> impl Iterator<Item = (&str, PathBuf)> {
    words.chunks_exact(2).map(|pair| (pair[0].as_str(), PathBuf::from(&pair[1])))
}

/// Writes the reports into a directory, and the lost packets of apps that were scanned.
pub(super) fn write(args: &Args, dir: &Path, fleet: &FleetState, scans: &AppScans) -> Result<()> {
    let json = output::json_line(&report::Document::of(fleet, scans))?;
    let explained = report::explain(fleet, scans, None);
    if explained.is_empty() {
        output::tell(&report::why_no_ledger(fleet, scans));
    }
    Directory::create(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let found = plain_text(&report::text(fleet, scans));
    for (file, text) in FILES.into_iter().zip([found, json, explained]) {
        let path = dir.join(file);
        pmdscope_files::write(&path, text.as_bytes(), FileMode::default())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    for (app, path) in packet_files(&args.save_packets) {
        let Some(Ok(scan)) = scans.get(app) else { continue };
        if scan.sample.lost() > 0
            && let Err(error) = lost_packets::write(app, scan, &path, args.per_site())
        {
            output::tell(&format!("{error:#}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_app_has_a_file() {
        let words = ["a", "x/a.pcapng", "b", "x/b.pcapng"].map(str::to_owned);
        let files: Vec<_> = packet_files(&words).collect();
        assert_eq!(files, [("a", "x/a.pcapng".into()), ("b", "x/b.pcapng".into())]);
    }
}

//! Names of incident files.

use std::path::{Path, PathBuf};

use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Extensions of compressed files, which follow the extension of the format.
const COMPRESSED: [&str; 3] = ["zst", "gz", "lz4"];

/// Why the path of `-w` does not give file names.
#[derive(Debug, thiserror::Error)]
pub enum IncidentNameError {
    /// The path has no file name.
    #[error("{} does not name a file", .0.display())]
    NoFile(PathBuf),
    /// strftime cannot expand the path.
    #[error("{}: {reason}", path.display())]
    Time {
        /// The path.
        path: PathBuf,
        /// Which conversion is invalid.
        reason: String,
    },
}

/// Returns the file name of an incident: `NAME-STAMP-NUMBER-TRIGGER.pcapng` for `NAME.pcapng`. If the
/// path has strftime conversions, these are expanded with the time of the event, and the stamp is left
/// out. Times are local.
pub(super) fn incident(
    path: &Path,
    moment_ns: u64,
    number: u64,
    trigger: &str,
) -> Result<PathBuf, IncidentNameError> {
    let moment = local(moment_ns);
    let text = path.to_string_lossy();
    let (expanded, stamp) = if text.contains('%') {
        let reason = |error: jiff::Error| IncidentNameError::Time {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        (PathBuf::from(strtime::format(text.as_bytes(), &moment).map_err(reason)?), String::new())
    } else {
        (path.to_owned(), moment.strftime("-%Y%m%dT%H%M%S").to_string())
    };
    let file = expanded.file_name().ok_or_else(|| IncidentNameError::NoFile(path.to_owned()))?;
    let file = file.to_string_lossy();
    let (stem, ending) = file.split_at(stem_len(&file));
    Ok(expanded.with_file_name(format!("{stem}{stamp}-{number}-{trigger}{ending}")))
}

fn local(ns: u64) -> Zoned {
    let moment = Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::MAX);
    moment.to_zoned(TimeZone::system())
}

/// Returns the length of a file name before its extension, or its two extensions.
fn stem_len(name: &str) -> usize {
    let cut = |name: &str| name.rfind('.').filter(|dot| *dot > 0);
    match cut(name) {
        Some(dot) if COMPRESSED.contains(&&name[dot + 1..]) => cut(&name[..dot]).unwrap_or(dot),
        Some(dot) => dot,
        None => name.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: u64 = 1_773_483_300_123_456_789;

    fn name(path: &str) -> String {
        incident(Path::new(path), NS, 2, "rx_missed").unwrap().display().to_string()
    }

    #[test]
    fn moment_number_and_trigger_stand_before_the_ending() {
        let stamp = local(NS).strftime("%Y%m%dT%H%M%S").to_string();
        assert_eq!(name("incident.pcapng"), format!("incident-{stamp}-2-rx_missed.pcapng"));
        assert_eq!(name("/a.b/x"), format!("/a.b/x-{stamp}-2-rx_missed"));
        assert_eq!(name("x.pcapng.zst"), format!("x-{stamp}-2-rx_missed.pcapng.zst"));
        assert_eq!(name(".hidden"), format!(".hidden-{stamp}-2-rx_missed"));
        assert_eq!(name("host.example.gz"), format!("host-{stamp}-2-rx_missed.example.gz"));
    }

    #[test]
    fn conversions_of_strftime_take_the_place_of_the_stamp() {
        let day = local(NS).strftime("%Y/%j").to_string();
        assert_eq!(name("%Y/%j.pcapng"), format!("{day}-2-rx_missed.pcapng"));
    }

    #[test]
    fn a_path_that_names_no_file_is_refused() {
        for bad in ["/", "..", "x%"] {
            assert!(incident(Path::new(bad), NS, 1, "stall").is_err(), "{bad}");
        }
    }
}

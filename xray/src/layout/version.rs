//! The release in the version that an app reports.

use super::table::{self, Release};

/// Year and month of `DPDK 22.11.11`, `DPDK 24.11.0-rc3`, `MLNX_DPDK 22.11.2410.1`.
pub(super) fn stated(version: &str) -> Result<Release, String> {
    let is_number = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
    let numbers = version.split_whitespace().find(is_number);
    numbers.and_then(parse).ok_or_else(|| "no YEAR.MONTH in it".to_owned())
}

/// Whether the table has it, or the reason why not.
pub(super) fn known(release: Release) -> Result<(), String> {
    let Some((first, last)) = table::releases() else {
        return Err("no release is known".to_owned());
    };
    if (first..=last).contains(&release) && [3, 7, 11].contains(&release.1) {
        return Ok(());
    }
    let text = |(year, month): Release| format!("{year}.{month:02}");
    Err(format!("releases {} to {} are known", text(first), text(last)))
}

/// `YEAR.MONTH`, not followed by a digit.
fn parse(numbers: &str) -> Option<Release> {
    let mut parts = numbers.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_from_what_apps_state() {
        for (version, expected) in [
            ("DPDK 22.11.11", (22, 11)),
            ("DPDK 21.11.0", (21, 11)),
            ("DPDK 23.07.0-rc1", (23, 7)),
            ("MLNX_DPDK 22.11.2410.1.0", (22, 11)),
            ("DPDK 24.11-vendor7", (24, 11)),
            ("25.11", (25, 11)),
        ] {
            assert_eq!(stated(version), Ok(expected), "{version}");
            assert_eq!(known(expected), Ok(()), "{version}");
        }
    }

    #[test]
    fn other_releases_are_refused() {
        for version in
            ["", "DPDK", "DPDK 22", "DPDK x.y", "DPDK 20.11.10", "DPDK 22.05.0", "DPDK 99.11.0"]
        {
            assert!(stated(version).and_then(known).is_err(), "{version}");
        }
    }
}

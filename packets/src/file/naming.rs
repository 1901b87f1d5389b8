//! Names of files: those of tcpdump, and names with the number before the extension.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::FileRotation;

/// Digits of a number before the extension.
const NUMBER_WIDTH: usize = 5;
/// Compression extensions, which follow another extension.
const OUTER_EXTENSIONS: [&str; 2] = [".gz", ".zst"];

/// Generates the file names of a capture.
#[derive(Debug)]
pub(super) struct FileNaming {
    template: PathBuf,
    rotation: FileRotation,
    /// The name without its number.
    base: PathBuf,
    count: u32,
}

/// The error for a name that strftime cannot expand.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidFileName(pub String);

impl FileNaming {
    /// Returns the names of files that begin at this time.
    pub(super) fn new(
        template: &Path,
        rotation: &FileRotation,
        ns: u64,
    ) -> Result<Self, InvalidFileName> {
        let mut naming = Self {
            template: template.to_owned(),
            rotation: rotation.clone(),
            base: PathBuf::new(),
            count: 0,
        };
        naming.base = naming.expand(ns)?;
        Ok(naming)
    }

    /// Returns the name of the current file.
    pub(super) fn path(&self) -> PathBuf {
        let files = self.rotation.files.unwrap_or(0);
        if self.rotation.count_before_extension {
            let number = u64::from(self.count) + 1;
            return before_extension(&self.base, number, digits(files).max(NUMBER_WIDTH));
        }
        let sized = self.rotation.bytes.is_some();
        let width = if sized { digits(files.saturating_sub(1)) } else { 0 };
        if self.count == 0 && width == 0 {
            return self.base.clone();
        }
        let mut name = self.base.clone().into_os_string();
        name.push(format!("{:0width$}", self.count));
        name.into()
    }

    /// Advances to the next file after the current one has reached its size.
    pub(super) fn next_by_size(&mut self) {
        self.count += 1;
        if self.rotation.reuses_names() && self.rotation.files.is_some_and(|max| self.count >= max)
        {
            self.count = 0;
        }
    }

    /// Advances to the next file, because its period has begun.
    pub(super) fn next_by_time(&mut self, ns: u64) -> Result<(), InvalidFileName> {
        let base = self.expand(ns)?;
        let runs_on = self.rotation.bounded && base == self.base;
        if self.rotation.count_before_extension || runs_on {
            self.count += 1;
        } else {
            self.count = 0;
        }
        self.base = base;
        Ok(())
    }

    fn expand(&self, ns: u64) -> Result<PathBuf, InvalidFileName> {
        if self.rotation.seconds.is_none() {
            return Ok(self.template.clone());
        }
        let text = self.template.to_str().ok_or_else(|| bad_name("it is not UTF-8"))?;
        let time = Timestamp::from_nanosecond(ns.into()).unwrap_or(Timestamp::MAX);
        let local = time.to_zoned(TimeZone::system());
        let name = jiff::fmt::strtime::format(text, &local);
        name.map(PathBuf::from).map_err(bad_name)
    }
}

fn bad_name(reason: impl Display) -> InvalidFileName {
    InvalidFileName(format!("-G needs a name that strftime understands: {reason}"))
}

/// Returns the number of decimal digits; 0 has none.
fn digits(number: u32) -> usize {
    number.checked_ilog10().map_or(0, |digits| digits as usize + 1)
}

fn before_extension(path: &Path, number: u64, width: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let outer = OUTER_EXTENSIONS.into_iter().find(|outer| name.ends_with(outer)).unwrap_or("");
    let inner = &name[..name.len() - outer.len()];
    // A name with a dot only at its start has no extension.
    let stem = inner.rfind('.').filter(|at| *at > 0).map_or(inner, |at| &inner[..at]);
    path.with_file_name(format!("{stem}_{number:0width$}{}", &name[stem.len()..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NS: u64 = 1_780_000_000_123_456_789;

    fn rotation(bytes: bool, seconds: bool, files: Option<u32>) -> FileRotation {
        FileRotation {
            bytes: bytes.then_some(1_000_000),
            seconds: seconds.then_some(60),
            files,
            ..FileRotation::default()
        }
    }

    fn by_size(rotation: &FileRotation, template: &str, count: usize) -> Vec<String> {
        let mut naming = FileNaming::new(Path::new(template), rotation, NS).unwrap();
        let mut names = vec![naming.path()];
        for _ in 1..count {
            naming.next_by_size();
            names.push(naming.path());
        }
        names.into_iter().map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn sizes_are_counted_after_the_name() {
        assert_eq!(
            by_size(&rotation(true, false, None), "d/x.pcap", 3),
            ["d/x.pcap", "d/x.pcap1", "d/x.pcap2"]
        );
        assert_eq!(by_size(&rotation(true, false, Some(2)), "x", 3), ["x0", "x1", "x0"]);
        assert_eq!(by_size(&rotation(true, false, Some(11)), "x", 12)[9..], ["x09", "x10", "x00"]);
        assert_eq!(by_size(&rotation(true, false, Some(10)), "x", 2), ["x0", "x1"]);
        assert_eq!(by_size(&rotation(true, false, Some(1)), "x", 2), ["x", "x"]);
        let bounded = FileRotation { bounded: true, ..rotation(true, false, Some(2)) };
        assert_eq!(by_size(&bounded, "x", 4), ["x0", "x1", "x2", "x3"]);
    }

    #[test]
    fn numbers_can_stand_before_the_extension() {
        let before =
            |files| FileRotation { count_before_extension: true, ..rotation(true, false, files) };
        assert_eq!(
            by_size(&before(None), "a.b/x.pcapng", 2),
            ["a.b/x_00001.pcapng", "a.b/x_00002.pcapng"]
        );
        assert_eq!(
            by_size(&before(Some(2)), "x.y.pcapng.zst", 3),
            ["x.y_00001.pcapng.zst", "x.y_00002.pcapng.zst", "x.y_00001.pcapng.zst"]
        );
        assert_eq!(by_size(&before(None), "x.gz", 1), ["x_00001.gz"]);
        assert_eq!(by_size(&before(None), ".x", 1), [".x_00001"]);
    }

    #[test]
    fn a_period_counts_anew_with_names_of_its_own() {
        let both = rotation(true, true, Some(3));
        let mut naming = FileNaming::new(Path::new("x%s-"), &both, NS).unwrap();
        naming.next_by_size();
        assert_eq!(naming.path(), Path::new("x1780000000-1"));
        naming.next_by_time(NS + 60_000_000_000).unwrap();
        assert_eq!(naming.path(), Path::new("x1780000060-0"));
        let bounded = FileRotation { bounded: true, ..both };
        let mut naming = FileNaming::new(Path::new("x"), &bounded, NS).unwrap();
        naming.next_by_size();
        naming.next_by_time(NS + 60_000_000_000).unwrap();
        assert_eq!(naming.path(), Path::new("x2"));
    }

    #[test]
    fn names_without_a_period_keep_their_percent_signs() {
        assert_eq!(by_size(&rotation(true, false, None), "100%", 1), ["100%"]);
        let error =
            FileNaming::new(Path::new("100%"), &rotation(false, true, None), NS).unwrap_err();
        assert!(error.to_string().contains("strftime"), "{error}");
    }

    /// Returns a name by the rule in tcpdump's manual.
    fn model(base: &str, sized: bool, files: Option<u32>, count: u64) -> String {
        let width = match files {
            Some(files) if files > 1 => (files - 1).to_string().len(),
            _ => 0,
        };
        let count = files.map_or(count, |files| count % u64::from(files));
        if !sized || count == 0 && width == 0 {
            base.to_owned()
        } else {
            format!("{base}{count:0width$}")
        }
    }

    proptest! {
        #[test]
        fn names_are_those_of_tcpdump(
            files in proptest::option::of(1_u32..1200),
            periods in proptest::collection::vec(0_u64..40, 1..4),
            sized: bool,
            timed: bool,
        ) {
            let rotation = rotation(sized, timed, files);
            let mut naming = FileNaming::new(Path::new("n%s."), &rotation, NS).unwrap();
            for (period, sizes) in periods.iter().enumerate() {
                let seconds = NS / 1_000_000_000 + 60 * period as u64;
                if period > 0 {
                    if !timed { break; }
                    naming.next_by_time(seconds * 1_000_000_000).unwrap();
                }
                let base = if timed { format!("n{seconds}.") } else { "n%s.".to_owned() };
                for count in 0..=if sized { *sizes } else { 0 } {
                    if count > 0 { naming.next_by_size(); }
                    let expected = model(&base, sized, files, count);
                    prop_assert_eq!(naming.path(), Path::new(&expected));
                }
            }
        }
    }
}

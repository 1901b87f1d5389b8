//! Clock frequencies of CPUs (`/sys/devices/system/cpu/cpuN/cpufreq`).

use std::fs;
use std::path::{Path, PathBuf};

/// The CPUs of this machine.
#[derive(Clone, Debug)]
pub(crate) struct CpuClocks(PathBuf);

/// The clock frequency of one CPU, kHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuClock {
    /// Present frequency.
    pub(crate) khz: u64,
    /// Sustainable frequency.
    pub(crate) max_khz: u64,
}

impl Default for CpuClocks {
    fn default() -> Self {
        Self("/sys/devices/system/cpu".into())
    }
}

impl CpuClocks {
    /// Returns the CPUs below another directory.
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self(root.into())
    }

    /// Reads the frequency of a CPU; `None` if the kernel does not control it, as in most virtual machines.
    pub(crate) fn read(&self, cpu: u32) -> Option<CpuClock> {
        let dir = self.0.join(format!("cpu{cpu}/cpufreq"));
        let khz = number(&dir.join("scaling_cur_freq"))?;
        // The CPU may reach its highest frequency only for moments.
        let base = number(&dir.join("base_frequency"));
        let max_khz = base.or_else(|| number(&dir.join("cpuinfo_max_freq")))?;
        Some(CpuClock { khz, max_khz })
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok().filter(|khz| *khz > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_read_from_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("cpu3/cpufreq");
        fs::create_dir_all(&dir).unwrap();
        let clocks = CpuClocks::at(root.path());
        assert_eq!(clocks.read(3), None);
        fs::write(dir.join("scaling_cur_freq"), "800000\n").unwrap();
        fs::write(dir.join("cpuinfo_max_freq"), "3600000\n").unwrap();
        assert_eq!(clocks.read(3), Some(CpuClock { khz: 800_000, max_khz: 3_600_000 }));
        fs::write(dir.join("base_frequency"), "2100000\n").unwrap();
        assert_eq!(clocks.read(3), Some(CpuClock { khz: 800_000, max_khz: 2_100_000 }));
        fs::write(dir.join("scaling_cur_freq"), "<unknown>\n").unwrap();
        assert_eq!((clocks.read(3), clocks.read(4)), (None, None));
    }
}

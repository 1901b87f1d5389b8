//! Results of memory scans, to be added to the samples of these apps.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::sample::{Sample, ScanSample};

/// The last scan of each process. Shared by the threads that scan and those that sample.
#[derive(Debug, Default)]
pub struct ScanResults(Mutex<BTreeMap<u32, ScanSample>>);

impl ScanResults {
    /// Sets the last scan of the process with this id.
    pub fn set(&self, pid: u32, scan: ScanSample) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, scan);
    }

    /// Sets [`Sample::scan`], if that process was scanned since it started.
    pub(crate) fn complete(&self, sample: &mut Sample) {
        let scans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = sample.app.start_realtime_ns;
        sample.scan = scans.get(&sample.app.pid).filter(|scan| scan.realtime_ns >= begun).cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::AppIdentity;

    #[test]
    fn a_scan_is_that_of_its_process_and_not_of_one_before() {
        let results = ScanResults::default();
        results.set(7, ScanSample { realtime_ns: 100, ..ScanSample::default() });
        let of = |pid, start_realtime_ns| {
            let app = AppIdentity { pid, start_realtime_ns, ..AppIdentity::default() };
            let mut sample = Sample { app, ..Sample::default() };
            results.complete(&mut sample);
            sample.scan.is_some()
        };
        assert!(of(7, 50) && !of(7, 150) && !of(8, 50));
    }
}

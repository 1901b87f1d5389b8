//! Sampling that changes while a capture runs.

use super::{CaptureError, CaptureLoop, CapturedApp, CapturedAppState};

impl CaptureLoop {
    /// Asks apps for a sampling that they were not asked for yet; 0 leaves it as it is. One that cannot
    /// be asked now is tried again.
    pub(super) fn resample(&mut self, sample: u32) -> Result<(), CaptureError> {
        if sample == 0 {
            return Ok(());
        }
        self.wanted = sample;
        for app in &mut self.apps {
            if !matches!(app.state, CapturedAppState::Running) || app.asked == sample {
                continue;
            }
            let Some(session) = &mut app.source.session else { continue };
            match session.resample(sample) {
                Ok(true) => app.asked = sample,
                Ok(false) => {}
                Err(source) => {
                    return Err(CaptureError::Session { app: app.source.app.clone(), source });
                }
            }
        }
        Ok(())
    }

    /// Takes over the sampling of the rings that have brought something.
    pub(super) fn update_sampling(&mut self) {
        let Self { readers, merge, .. } = self;
        let fed = readers.iter_mut().enumerate().filter_map(|(index, reader)| {
            let fed = std::mem::take(&mut reader.fed);
            merge.stream(index).filter(|_| fed).map(|records| records.weight())
        });
        self.sample = fed.max().unwrap_or(self.sample);
        self.highest_sample = self.highest_sample.max(self.sample);
    }

    /// Apps that cannot be asked for what is wanted.
    pub(super) fn fixed(&self) -> Vec<String> {
        let wanted = self.wanted;
        let differs = |asked: u32| wanted != 0 && asked != wanted;
        let apps = self.apps.iter().filter(|app| differs(app.asked));
        let resamples = |app: &&CapturedApp| app.source.session.as_ref()?.resamples();
        let fixed = apps.filter(|app| resamples(app) == Some(false));
        fixed.map(|app| app.source.app.clone()).collect()
    }
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;

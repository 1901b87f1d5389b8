//! Changes the sampling while a capture runs.

use super::{CaptureError, CaptureLoop, CapturedApp, CapturedAppState};

impl CaptureLoop {
    /// Requests a sampling from all apps that do not have it yet; 0 leaves it unchanged. If an app
    /// cannot be asked now, the next call tries again.
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

    /// Updates the current sampling from the rings that had packets since the last call.
    pub(super) fn update_sampling(&mut self) {
        let Self { readers, merge, .. } = self;
        let fed = readers.iter_mut().enumerate().filter_map(|(index, reader)| {
            let fed = std::mem::take(&mut reader.fed);
            merge.stream(index).filter(|_| fed).map(|records| records.weight())
        });
        self.sample = fed.max().unwrap_or(self.sample);
        self.highest_sample = self.highest_sample.max(self.sample);
    }

    /// Returns the apps that do not support a change to the wanted sampling.
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

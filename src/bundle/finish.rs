//! What follows the collection: redaction, the index, and the page.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use pmdscope_telemetry::discover::{unreadable, unreadable_text};

use super::findings::{BundleFindings, UnaskedApp};
use super::index::{
    self, BundleIndex, INDEX_SCHEMA, PartEntry, Redaction, rounded_seconds, time_text,
};
use super::redact::{self, names_of_this_machine};
use super::report::{self, PlayLimit, RecordedHistory};
use super::{APP, Bundle, RECORDING, archive, write};

/// How long the recording may be read for the page.
const PAGE_BUDGET: Duration = Duration::from_secs(15);

/// All that was collected, as the index and the page show it.
pub(super) struct CollectedBundle {
    pub(super) parts: Vec<PartEntry>,
    found: BundleFindings,
    /// Of the recording, or why there is none.
    history: Result<RecordedHistory, String>,
}

impl Bundle<'_> {
    /// Redacts what was collected, reads what the index and the page show of it, and leaves out what exceeds
    /// the size limit. All that is read is redacted by then.
    pub(super) fn finish(&mut self) -> CollectedBundle {
        let mut parts = std::mem::take(&mut self.collector.parts);
        let staging = self.collector.staging;
        if let Some(redactor) = &mut self.redactor {
            self.collector.progress.tell("redacting");
            redact::parts(redactor, staging, &mut parts);
        }
        let found = BundleFindings::read(staging, self.unasked(&parts));
        let history = self.history(&parts);
        archive::limit(&mut parts, staging, self.args.max_size);
        CollectedBundle { parts, found, history }
    }

    /// Apps that gave nothing, and apps that were not looked for.
    fn unasked(&mut self, parts: &[PartEntry]) -> Vec<UnaskedApp> {
        let silent = parts.iter().filter(|part| part.part == APP && part.app.is_some());
        let silent = silent.map(|part| UnaskedApp {
            app: part.app.clone(),
            reason: part.why_missing().to_owned(),
        });
        let mut unasked: Vec<_> = silent.collect();
        let discover = &self.settings.discover;
        let others = self.args.app.config.leaves_out_others();
        let left_out = [
            discover.left_out.text(),
            unreadable_text(&unreadable(discover)),
            others.then(|| "apps of other users are left out: --no-other-users".to_owned()),
        ];
        for reason in left_out.into_iter().flatten() {
            let reason = self.redacted(&reason);
            unasked.push(UnaskedApp { app: None, reason });
        }
        unasked
    }

    /// What the recording shows over time, or why nothing.
    fn history(&self, parts: &[PartEntry]) -> Result<RecordedHistory, String> {
        let mut recordings = parts.iter().filter(|part| part.part == RECORDING);
        if !recordings.clone().any(PartEntry::has_files) {
            let reason = recordings.find_map(|part| part.reason.clone());
            return Err(reason.unwrap_or_else(|| "none was collected".to_owned()));
        }
        let stop = self.collector.stop;
        let limit =
            PlayLimit { deadline: Instant::now() + PAGE_BUDGET, is_unwanted: &|| stop.count() > 1 };
        let dir = self.collector.staging.join(RECORDING);
        RecordedHistory::play(&dir, &self.settings, &limit).map_err(|error| format!("{error:#}"))
    }

    /// Writes the index, for people and for programs, and the page.
    ///
    /// # Errors
    ///
    /// When one of them cannot be written.
    pub(super) fn write_index(
        &mut self,
        collected: CollectedBundle,
        started: Timestamp,
    ) -> Result<()> {
        let CollectedBundle { parts, found, history } = collected;
        let ended = Timestamp::now();
        let time = Duration::try_from(ended.duration_since(started)).unwrap_or_default();
        let index = BundleIndex {
            schema: INDEX_SCHEMA,
            tool: env!("CARGO_PKG_VERSION"),
            host: self.redacted(&names_of_this_machine().into_iter().next().unwrap_or_default()),
            started: time_text(started),
            ended: time_text(ended),
            seconds: rounded_seconds(time),
            interrupted: self.collector.stop.count() > 0,
            found,
            redaction: self.args.redact.then_some(Redaction::DONE),
            parts,
        };
        let staging = self.collector.staging;
        write(staging, Path::new(index::TEXT), &index.text())?;
        write(staging, Path::new(index::JSON), &index.json()?)?;
        write(staging, Path::new(report::FILE), &report::page(&index, &history))
    }

    /// A text without addresses and names, if the bundle has none.
    fn redacted(&mut self, text: &str) -> String {
        match &mut self.redactor {
            Some(redactor) => redactor.text(text).into_owned(),
            None => text.to_owned(),
        }
    }
}

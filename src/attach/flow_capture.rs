//! Captures that count conversations.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use pmdscope_capture::layout::TEE_HEADERS;
use pmdscope_capture::{
    CaptureLoop, CaptureObserver, CaptureReport, CaptureSettings, CaptureSource,
};
use pmdscope_flows::{FlowTable, FlowTableSettings, LatestSnapshot, SNAPLEN};
use pmdscope_packets::RunControl;

use super::target::CaptureTarget;
use super::{CaptureOptions, open};

/// Armed captures that fill a table of conversations. Dropping it disarms.
pub(crate) struct FlowCapture {
    capture: CaptureLoop,
    latest: LatestSnapshot,
}

impl FlowCapture {
    /// Counts the conversations of captures that are armed.
    pub(crate) fn new(
        sources: Vec<CaptureSource>,
        settings: CaptureSettings,
        table: FlowTableSettings,
    ) -> Self {
        let (table, latest) = FlowTable::new(table);
        let settings = CaptureSettings { snaplen: SNAPLEN, ..settings };
        Self { capture: CaptureLoop::new(sources, settings, Box::new(table)), latest }
    }

    /// Arms a capture of the headers of one app, unless told to stop; `length` ends it by itself.
    ///
    /// # Errors
    ///
    /// As [`open`].
    pub(crate) fn open(
        wanted: &CaptureTarget,
        ask: CaptureOptions,
        table: FlowTableSettings,
        length: Option<Duration>,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let source = open(
            wanted,
            &CaptureOptions { snaplen: SNAPLEN, flags: TEE_HEADERS, ..ask },
            false,
            stop,
        )?;
        let settings = CaptureSettings { duration: length, ..CaptureSettings::default() };
        Ok(Self::new(vec![source], settings, table))
    }

    /// The newest counts, also after the capture has ended.
    pub(crate) fn latest(&self) -> LatestSnapshot {
        self.latest.clone()
    }

    /// Counts until told to stop, for the length that was asked for, or until the apps end.
    pub(crate) fn run(
        self,
        control: &RunControl,
        observer: &mut dyn CaptureObserver,
    ) -> CaptureReport {
        self.capture.run(control, observer)
    }
}

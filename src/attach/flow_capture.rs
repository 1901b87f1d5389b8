//! Captures that count conversations.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use pmdscope_capture::{CaptureError, CaptureLoop, CaptureObserver, CaptureSettings};
use pmdscope_flows::{FlowTable, FlowTableSettings, LatestSnapshot, SNAPLEN};
use pmdscope_packets::RunControl;

use super::target::CaptureTarget;
use super::{CaptureOptions, open};

/// An armed capture of one app, for its table of conversations. Dropping it disarms.
pub(crate) struct FlowCapture {
    capture: CaptureLoop,
    latest: LatestSnapshot,
}

impl FlowCapture {
    /// Arms a capture of headers, unless told to stop; `length` ends it by itself.
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
        let source = open(wanted, &CaptureOptions { snaplen: SNAPLEN, ..ask }, false, stop)?;
        let (table, latest) = FlowTable::new(table);
        let settings =
            CaptureSettings { snaplen: SNAPLEN, duration: length, ..CaptureSettings::default() };
        let capture = CaptureLoop::new(vec![source], settings, Box::new(table));
        Ok(Self { capture, latest })
    }

    /// Where the newest counts are, also when the capture has ended.
    pub(crate) fn latest(&self) -> LatestSnapshot {
        self.latest.clone()
    }

    /// Counts until told to stop, for the length that was asked for, or until the app ends.
    ///
    /// # Errors
    ///
    /// When the capture fails.
    pub(crate) fn run(
        self,
        control: &RunControl,
        observer: &mut dyn CaptureObserver,
    ) -> Result<(), CaptureError> {
        self.capture.run(control, observer).failure.map_or(Ok(()), Err)
    }
}

//! The state of all apps at one time, and its output formats.

use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;
use pmdscope_telemetry::discover::UnreadableWarning;
use pmdscope_telemetry::finding::Lint;
use pmdscope_telemetry::{AppInventory, FleetState};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::document::Document;
use crate::family::MetricFamily;
use crate::journal;
use crate::message::NetworkCounts;
use crate::metrics::{self, ExporterCounters, MetricsContext};
use crate::options::ExportOptions;
use crate::series_limits::SeriesLimits;
use crate::text::{self, TextFormat};

/// Minimum length for compression: shorter texts fit into a few packets.
const MIN_GZIP_BYTES: usize = 8 << 10;

/// Settings of the output, and state that all snapshots share.
#[derive(Debug, Default)]
pub(crate) struct RenderOptions {
    /// Limits on the number of series.
    pub(crate) limits: SeriesLimits,
    /// Lints that do not make an app unhealthy.
    pub(crate) tolerate: Vec<Lint>,
    /// The expected apps and ports.
    pub(crate) expected: AppInventory,
    /// URL of the dashboards.
    pub(crate) dashboards: Option<String>,
    /// Metrics are pushed.
    pushes: bool,
    /// What the network process counted last; `None` without one.
    network: std::sync::Mutex<Option<NetworkCounts>>,
    /// Length of the longest text so far, bytes.
    length: AtomicUsize,
    /// Unreadable directories that were logged.
    unreadable: std::sync::Mutex<UnreadableWarning>,
}

impl RenderOptions {
    pub(crate) fn new(options: &ExportOptions, expected: &AppInventory) -> Self {
        Self {
            limits: options.series_limits.clone(),
            tolerate: options.tolerate.clone(),
            expected: expected.clone(),
            dashboards: options.dashboards.clone(),
            pushes: options.otlp.is_some(),
            network: std::sync::Mutex::default(),
            length: AtomicUsize::new(0),
            unreadable: std::sync::Mutex::default(),
        }
    }

    /// Takes the counts of the network process.
    pub(crate) fn set_network(&self, counts: NetworkCounts) {
        *self.network.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
    }

    /// Logs the unreadable directories whenever they change.
    fn warn_of_unreadable(&self, dirs: &[PathBuf]) {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = unreadable.update(dirs) {
            journal::warn(&text);
        }
    }
}

/// Format and content of an exposition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpositionForm {
    /// The text format.
    pub(crate) format: TextFormat,
    /// The client accepts gzip.
    pub(crate) gzip: bool,
    /// Export only this app, and nothing about the exporter; with an empty name only the exporter.
    pub(crate) only: Option<String>,
}

/// The state at one time.
#[derive(Debug)]
pub(crate) struct ScrapeSnapshot {
    /// All apps.
    pub(crate) fleet: FleetState,
    counters: ExporterCounters,
    pub(crate) render_options: Arc<RenderOptions>,
    /// Encoded texts, which all requests share.
    texts: Mutex<Vec<(ExpositionForm, ExpositionText)>>,
}

/// The metrics in one form.
#[derive(Clone, Debug)]
pub(crate) struct ExpositionText {
    pub(crate) document: Document,
    /// Whether it is compressed.
    pub(crate) gzip: bool,
}

impl ScrapeSnapshot {
    pub(crate) fn new(
        fleet: FleetState,
        counters: ExporterCounters,
        render_options: Arc<RenderOptions>,
    ) -> Self {
        render_options.warn_of_unreadable(&fleet.unreadable);
        Self { fleet, counters, render_options, texts: Mutex::default() }
    }

    /// Returns all metrics, those of one app, or with an empty name those of the exporter.
    pub(crate) fn families(&self, only: Option<&str>) -> Vec<MetricFamily> {
        let RenderOptions { limits, tolerate, expected, .. } = &*self.render_options;
        let network = self.render_options.network.lock();
        let network = *network.unwrap_or_else(PoisonError::into_inner);
        let counters = ExporterCounters {
            connections: network.map(|counts| counts.connections),
            pushes: network.map(|counts| counts.pushes).filter(|_| self.render_options.pushes),
            ..self.counters
        };
        let context = MetricsContext { limits, tolerate, expected, counters, only };
        metrics::families(&self.fleet, &context)
    }

    /// Returns the metrics as text, which is encoded in another thread.
    ///
    /// # Errors
    /// Fails if there is no memory for the text.
    pub(crate) async fn text(
        self: &Arc<Self>,
        form: &ExpositionForm,
    ) -> io::Result<ExpositionText> {
        let mut texts = self.texts.lock().await;
        if let Some((_, text)) = texts.iter().find(|(encoded, _)| encoded == form) {
            return Ok(text.clone());
        }
        let (snapshot, wanted) = (Arc::clone(self), form.clone());
        let encoded = spawn_blocking(move || snapshot.encode(&wanted)).await;
        let text = encoded.unwrap_or_else(|error| resume_unwind(error.into_panic()))?;
        texts.push((form.clone(), text.clone()));
        Ok(text)
    }

    /// Encodes the metrics; a short text is not compressed.
    fn encode(&self, form: &ExpositionForm) -> io::Result<ExpositionText> {
        let mut text = String::with_capacity(self.render_options.length.load(Ordering::Relaxed));
        text::encode(&self.families(form.only.as_deref()), form.format, &mut text);
        self.render_options.length.fetch_max(text.len(), Ordering::Relaxed);
        let worth = form.gzip && text.len() > MIN_GZIP_BYTES;
        let compressed = worth.then(|| compressed(text.as_bytes())).flatten();
        let gzip = compressed.is_some();
        let document = Document::new(compressed.as_deref().unwrap_or(text.as_bytes()))?;
        Ok(ExpositionText { document, gzip })
    }
}

fn compressed(text: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder.write_all(text).ok()?;
    encoder.finish().ok()
}

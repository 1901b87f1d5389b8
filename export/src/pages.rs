//! The contents of all pages, which the collector makes for the network process.

mod landing;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::discover::unreadable_text;
use serde::Serialize;

use crate::document::Document;
use crate::health::AppHealth;
use crate::message::{Content, Page};
use crate::otlp::ExporterIdentity;
use crate::scrape::{ScrapeScope, Scraper};
use crate::snapshot::{ExpositionForm, ScrapeSnapshot};

pub(crate) use landing::PATHS;

/// Makes a page with what is known at `deadline`; `broken` is the reason why a changed web configuration
/// is not used.
///
/// # Errors
/// Fails if there is no memory for the page.
pub(crate) async fn page(
    scraper: &Arc<Scraper>,
    exporter: &ExporterIdentity,
    page: Page,
    deadline: Instant,
    broken: Option<String>,
) -> io::Result<(Content, Document)> {
    let snapshot = scraper.snapshot(scope(&page), deadline).await;
    let (content, bytes) = match page {
        Page::Metrics { app: Some(ref name), .. } | Page::Ready { app: Some(ref name) }
            if scope(&page) != ScrapeScope::Names && snapshot.fleet.find(name).is_none() =>
        {
            (Content::Unknown, unknown_app(&snapshot.fleet, name).into_bytes())
        }
        Page::Metrics { app, format, gzip } => {
            let text = snapshot.text(&ExpositionForm { format, gzip, only: app }).await?;
            return Ok((Content::Metrics { gzip: text.gzip }, text.document));
        }
        Page::Ready { app } => readiness(&snapshot, app.as_deref()),
        Page::Names => {
            let apps = snapshot.fleet.apps.iter();
            (Content::Names, json(&apps.map(|app| app.name.as_str()).collect::<Vec<_>>()))
        }
        Page::Overview => {
            (Content::Overview, landing::page(&snapshot, broken.as_deref()).into_bytes())
        }
        Page::Push => (Content::Push, exporter.request(&snapshot)),
    };
    Ok((content, Document::new(&bytes)?))
}

fn scope(page: &Page) -> ScrapeScope {
    match page {
        Page::Names => ScrapeScope::Names,
        // Metrics of the exporter only: it needs just the names of apps.
        Page::Metrics { app: Some(name), .. } if name.is_empty() => ScrapeScope::Names,
        Page::Metrics { app: Some(name), .. } | Page::Ready { app: Some(name) } => {
            ScrapeScope::App(name.clone())
        }
        Page::Metrics { app: None, .. }
        | Page::Ready { app: None }
        | Page::Overview
        | Page::Push => ScrapeScope::All,
    }
}

fn readiness(snapshot: &ScrapeSnapshot, app: Option<&str>) -> (Content, Vec<u8>) {
    let tolerate = &snapshot.render_options.tolerate;
    if let Some(member) = app.and_then(|name| snapshot.fleet.find(name)) {
        let health = AppHealth::of(member, tolerate);
        return (Content::Readiness { ready: health.ready }, json(&health));
    }
    let all = ReadinessReport::of(snapshot);
    (Content::Readiness { ready: all.ready }, json(&all))
}

/// Readiness of all apps.
#[derive(Serialize)]
struct ReadinessReport<'a> {
    ready: bool,
    apps: Vec<AppHealth<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl<'a> ReadinessReport<'a> {
    /// Returns the readiness of all apps; a machine without apps is not ready, as in `pmdscope check`.
    fn of(snapshot: &'a ScrapeSnapshot) -> Self {
        let tolerate = &snapshot.render_options.tolerate;
        let apps: Vec<_> =
            snapshot.fleet.apps.iter().map(|app| AppHealth::of(app, tolerate)).collect();
        let ready = !apps.is_empty() && apps.iter().all(|health| health.ready);
        let no_apps = || apps.is_empty().then(|| landing::NO_APPS.to_owned());
        let advice = unreadable_text(&snapshot.fleet.unreadable).or_else(no_apps);
        Self { ready, apps, advice }
    }
}

fn unknown_app(fleet: &FleetState, app: &str) -> String {
    let names: Vec<_> = fleet.apps.iter().map(|app| app.name.as_str()).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let unknown = format!("no app is named {app:?}; known: {known}");
    // If a directory is unreadable, its apps are unknown.
    let message = match unreadable_text(&fleet.unreadable) {
        None => unknown,
        Some(cause) if names.is_empty() => cause,
        Some(cause) => format!("{cause}; {unknown}"),
    };
    format!("{message}\n")
}

fn json(page: &impl Serialize) -> Vec<u8> {
    // These types always serialize.
    serde_json::to_vec(page).unwrap_or_default()
}

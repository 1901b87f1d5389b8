//! The pages that the exporter serves.

mod landing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::discover::unreadable_text;
use serde::Serialize;

use crate::health::AppHealth;
use crate::negotiate;
use crate::scrape::{ScrapeScope, Scraper};
use crate::snapshot::{ExpositionForm, ScrapeSnapshot};
use crate::web::{AuthTimeout, ReloadingWebPolicy, WebPolicy};

/// Header with the scrape timeout of Prometheus, seconds.
const SCRAPE_TIMEOUT_HEADER: &str = "x-prometheus-scrape-timeout-seconds";

/// Metrics of the exporter only. This is a path because Prometheus drops parameters without a value.
const EXPORTER_PATH: &str = "/metrics/exporter";

/// Time reserved for sending an answer before the scrape timeout.
const RESPONSE_MARGIN: Duration = Duration::from_millis(200);

/// Timeout of probes: the default timeout of kubelets is one second.
const PROBE_TIMEOUT: Duration = Duration::from_millis(800);

type HttpResponse = Response<Full<Bytes>>;

/// All pages, and what they need.
pub(crate) struct Routes {
    pub(crate) scraper: Arc<Scraper>,
    pub(crate) web: ReloadingWebPolicy,
    /// Longest time for one scrape.
    pub(crate) timeout: Duration,
}

/// The listener of a request.
#[derive(Clone, Debug)]
pub(crate) struct ListenerInfo {
    /// Its address; used for service discovery if a request has no Host header.
    pub(crate) address: Arc<str>,
    /// The connection uses TLS.
    pub(crate) tls: bool,
}

impl Routes {
    /// Answers one request; a client without authentication learns nothing else.
    pub(crate) async fn answer<B>(
        &self,
        request: &Request<B>,
        listener: &ListenerInfo,
    ) -> HttpResponse {
        let began = Instant::now();
        let policy = self.web.policy();
        let authorization = request.headers().get(header::AUTHORIZATION);
        let admitted =
            policy.basic_auth.authenticate(authorization.map(HeaderValue::as_bytes)).await;
        let page = match admitted {
            Ok(true) => self.route(began, request, listener).await,
            Ok(false) => unauthorized(),
            Err(AuthTimeout) => too_many_passwords(),
        };
        with_common_headers(page, &policy)
    }

    async fn route<B>(
        &self,
        began: Instant,
        request: &Request<B>,
        listener: &ListenerInfo,
    ) -> HttpResponse {
        let path = request.uri().path();
        if !["/", "/metrics", EXPORTER_PATH, "/ready", "/healthz", "/sd"].contains(&path) {
            return closing(text(StatusCode::NOT_FOUND, format!("{}\n", landing::PATHS)));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let page = text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned());
            return closing(with(page, header::ALLOW, "GET, HEAD"));
        }
        let app = app(request.uri().query().unwrap_or_default());
        match path {
            "/metrics" => self.metrics(began, request.headers(), app).await,
            EXPORTER_PATH => self.metrics(began, request.headers(), Some(String::new())).await,
            "/ready" => self.ready(began, request.headers(), app).await,
            "/sd" => self.targets(began, request.headers(), listener).await,
            "/healthz" => text(StatusCode::OK, "ok\n".to_owned()),
            _ => self.landing(began, request.headers()).await,
        }
    }

    async fn metrics(
        &self,
        began: Instant,
        headers: &HeaderMap,
        app: Option<String>,
    ) -> HttpResponse {
        let format = negotiate::format(value(headers, &header::ACCEPT));
        let gzip = negotiate::gzip(value(headers, &header::ACCEPT_ENCODING));
        let form = ExpositionForm { format, gzip, only: app.clone() };
        let scope = match app.clone() {
            None => ScrapeScope::All,
            // Metrics of the exporter only: it needs just the names of apps.
            Some(name) if name.is_empty() => ScrapeScope::Names,
            Some(name) => ScrapeScope::App(name),
        };
        let deadline = deadline(began, headers, self.timeout, self.timeout);
        let snapshot = self.scraper.snapshot(scope, deadline).await;
        let unknown = |app: &String| !app.is_empty() && snapshot.fleet.find(app).is_none();
        if let Some(name) = app.filter(unknown) {
            return unknown_app(&snapshot.fleet, &name);
        }
        let text = snapshot.text(&form).await;
        let page =
            with(Response::new(Full::new(text.bytes)), header::CONTENT_TYPE, format.content_type());
        let page = with(page, header::VARY, "Accept, Accept-Encoding");
        if text.gzip { with(page, header::CONTENT_ENCODING, "gzip") } else { page }
    }

    async fn ready(
        &self,
        began: Instant,
        headers: &HeaderMap,
        app: Option<String>,
    ) -> HttpResponse {
        let scope = app.clone().map_or(ScrapeScope::All, ScrapeScope::App);
        let deadline = deadline(began, headers, PROBE_TIMEOUT.min(self.timeout), self.timeout);
        let snapshot = self.scraper.snapshot(scope, deadline).await;
        let tolerate = &snapshot.render_options.tolerate;
        let Some(name) = app else {
            let all = ReadinessReport::of(&snapshot);
            return json(readiness_status(all.ready), &all);
        };
        let Some(member) = snapshot.fleet.find(&name) else {
            return unknown_app(&snapshot.fleet, &name);
        };
        let health = AppHealth::of(member, tolerate);
        json(readiness_status(health.ready), &health)
    }

    async fn targets(
        &self,
        began: Instant,
        headers: &HeaderMap,
        listener: &ListenerInfo,
    ) -> HttpResponse {
        let deadline = deadline(began, headers, self.timeout, self.timeout);
        let snapshot = self.scraper.snapshot(ScrapeScope::Names, deadline).await;
        let address = value(headers, &header::HOST).unwrap_or(&listener.address);
        let apps = snapshot
            .fleet
            .apps
            .iter()
            .map(|app| ScrapeTarget::of(&app.name, address, listener.tls));
        let targets: Vec<_> =
            iter::once(ScrapeTarget::exporter(address, listener.tls)).chain(apps).collect();
        json(StatusCode::OK, &targets)
    }

    async fn landing(&self, began: Instant, headers: &HeaderMap) -> HttpResponse {
        let deadline = deadline(began, headers, self.timeout, self.timeout);
        let snapshot = self.scraper.snapshot(ScrapeScope::All, deadline).await;
        let html = landing::page(&snapshot, self.web.reload_error().as_deref());
        let page =
            with(Response::new(html.into()), header::CONTENT_TYPE, "text/html; charset=utf-8");
        with(page, header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'")
    }
}

/// Returns the app in a query.
fn app(query: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key == "app").map(|(_, name)| name.into_owned())
}

fn value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the deadline of an answer: before the scrape timeout if the client sends one, otherwise
/// after `default_timeout`; never later than after `longest`.
fn deadline(
    began: Instant,
    headers: &HeaderMap,
    default_timeout: Duration,
    longest: Duration,
) -> Instant {
    let announced =
        headers.get(SCRAPE_TIMEOUT_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
    let announced = announced.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let announced = announced.filter(|announced| !announced.is_zero());
    // A timeout shorter than the margin is halved.
    let time = announced.map_or(default_timeout, |announced| {
        announced.saturating_sub(RESPONSE_MARGIN).max(announced / 2)
    });
    began + time.min(longest)
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

/// One target of Prometheus' HTTP service discovery.
#[derive(Serialize)]
struct ScrapeTarget<'a> {
    targets: [&'a str; 1],
    labels: BTreeMap<&'static str, String>,
}

impl<'a> ScrapeTarget<'a> {
    /// Returns the target of the exporter itself, which is also scraped while there are no apps.
    fn exporter(address: &'a str, tls: bool) -> Self {
        let labels =
            [("__metrics_path__", EXPORTER_PATH.to_owned()), ("instance", address.to_owned())];
        Self::with(&labels, address, tls)
    }

    fn of(app: &str, address: &'a str, tls: bool) -> Self {
        // All targets have the same address, so each needs its own instance label.
        let labels = [
            ("__metrics_path__", "/metrics".to_owned()),
            ("__param_app", app.to_owned()),
            ("instance", format!("{address}/{app}")),
        ];
        Self::with(&labels, address, tls)
    }

    fn with(labels: &[(&'static str, String)], address: &'a str, tls: bool) -> Self {
        let scheme = ("__scheme__", if tls { "https" } else { "http" }.to_owned());
        let labels = labels.iter().cloned().chain([scheme]).collect();
        Self { targets: [address], labels }
    }
}

fn readiness_status(ready: bool) -> StatusCode {
    if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn unknown_app(fleet: &FleetState, app: &str) -> HttpResponse {
    let names: Vec<_> = fleet.apps.iter().map(|app| app.name.as_str()).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let unknown = format!("no app is named {app:?}; known: {known}");
    // If a directory is unreadable, its apps are unknown.
    let message = match unreadable_text(&fleet.unreadable) {
        None => unknown,
        Some(cause) if names.is_empty() => cause,
        Some(cause) => format!("{cause}; {unknown}"),
    };
    text(StatusCode::NOT_FOUND, format!("{message}\n"))
}

fn unauthorized() -> HttpResponse {
    let page = text(StatusCode::UNAUTHORIZED, "Unauthorized\n".to_owned());
    closing(with(page, header::WWW_AUTHENTICATE, "Basic realm=\"pmdscope\", charset=\"UTF-8\""))
}

/// Returned while others keep trying passwords.
fn too_many_passwords() -> HttpResponse {
    let page = text(StatusCode::SERVICE_UNAVAILABLE, "too many passwords to check\n".to_owned());
    with(page, header::RETRY_AFTER, "1")
}

fn text(status: StatusCode, body: String) -> HttpResponse {
    let page = with(Response::new(body.into()), header::CONTENT_TYPE, "text/plain; charset=utf-8");
    with_status(page, status)
}

fn json(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    // These types always serialize.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let page =
        with(Response::new(Full::new(body.into())), header::CONTENT_TYPE, "application/json");
    with_status(page, status)
}

/// Closes the connection after the answer, so that other clients can connect.
fn closing(page: HttpResponse) -> HttpResponse {
    with(page, header::CONNECTION, "close")
}

fn with_status(mut page: HttpResponse, status: StatusCode) -> HttpResponse {
    *page.status_mut() = status;
    page
}

fn with(mut page: HttpResponse, name: HeaderName, value: &'static str) -> HttpResponse {
    page.headers_mut().insert(name, HeaderValue::from_static(value));
    page
}

/// Adds the headers of all pages, and those of the web configuration.
fn with_common_headers(page: HttpResponse, policy: &WebPolicy) -> HttpResponse {
    let page = with(page, header::CACHE_CONTROL, "no-store");
    let mut page = with(page, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    for (name, value) in &policy.headers {
        page.headers_mut().insert(name, value.clone());
    }
    page
}

//! The pages that the exporter serves: HTTP around what the collector answers.

mod body;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;

use crate::collector_client::CollectorClient;
use crate::connections::Client;
use crate::document::Document;
use crate::message::{Content, MAX_NAME, Page, Question};
use crate::negotiate;
use crate::pages::PATHS;
use crate::web::{AuthTimeout, CurrentWebPolicy, WebPolicy};
pub(crate) use body::PageBody;

/// Header with the scrape timeout of Prometheus, seconds.
const SCRAPE_TIMEOUT_HEADER: &str = "x-prometheus-scrape-timeout-seconds";

/// Metrics of the exporter only. This is a path because Prometheus drops parameters without a value.
const EXPORTER_PATH: &str = "/metrics/exporter";

/// Time reserved for sending an answer before the scrape timeout.
const RESPONSE_MARGIN: Duration = Duration::from_millis(200);

/// Timeout of probes: the default timeout of kubelets is one second.
const PROBE_TIMEOUT: Duration = Duration::from_millis(800);

/// Media types of short pages.
const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

type HttpResponse = Response<PageBody>;

/// All pages, and what they need.
pub(crate) struct Routes {
    pub(crate) collector: Arc<CollectorClient>,
    pub(crate) web: CurrentWebPolicy,
    /// Longest time for one scrape.
    pub(crate) timeout: Duration,
}

/// The connection of a request.
#[derive(Clone, Debug)]
pub(crate) struct ListenerInfo {
    /// Address of its listener; used for service discovery if a request has no Host header.
    pub(crate) address: Arc<str>,
    /// The connection uses TLS.
    pub(crate) tls: bool,
    /// Who asks.
    pub(crate) client: Client,
}

impl Routes {
    /// Answers one request; a client without authentication learns nothing else.
    pub(crate) async fn answer<B>(
        &self,
        request: &Request<B>,
        listener: &ListenerInfo,
    ) -> HttpResponse {
        let began = Instant::now();
        let policy = self.web.policy().await;
        let authorization = request.headers().get(header::AUTHORIZATION);
        let admitted = policy
            .basic_auth
            .authenticate(authorization.map(HeaderValue::as_bytes), listener.client)
            .await;
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
            return closing(text(StatusCode::NOT_FOUND, format!("{PATHS}\n")));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let page = text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned());
            return closing(with(page, header::ALLOW, "GET, HEAD"));
        }
        let app = app(request.uri().query().unwrap_or_default());
        if let Some(name) = app.as_ref().filter(|name| name.len() > MAX_NAME) {
            let length = name.len();
            return closing(text(
                StatusCode::NOT_FOUND,
                format!("no app has a name of {length} bytes\n"),
            ));
        }
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
        let deadline = deadline(began, headers, self.timeout, self.timeout);
        let page = match self.ask(Page::Metrics { app, format, gzip }, deadline).await {
            (Content::Metrics { gzip }, Some(document)) => {
                let page = document_page(document, format.content_type());
                if gzip { with(page, header::CONTENT_ENCODING, "gzip") } else { page }
            }
            other => return other_page(other),
        };
        with(page, header::VARY, "Accept, Accept-Encoding")
    }

    async fn ready(
        &self,
        began: Instant,
        headers: &HeaderMap,
        app: Option<String>,
    ) -> HttpResponse {
        let deadline = deadline(began, headers, PROBE_TIMEOUT.min(self.timeout), self.timeout);
        match self.ask(Page::Ready { app }, deadline).await {
            (Content::Readiness { ready }, Some(document)) => {
                with_status(document_page(document, JSON), readiness_status(ready))
            }
            other => other_page(other),
        }
    }

    async fn targets(
        &self,
        began: Instant,
        headers: &HeaderMap,
        listener: &ListenerInfo,
    ) -> HttpResponse {
        let deadline = deadline(began, headers, self.timeout, self.timeout);
        let answer = self.ask(Page::Names, deadline).await;
        let names = match &answer {
            (Content::Names, Some(names)) => names.read().ok(),
            _ => None,
        };
        let Some(names) =
            names.and_then(|names| serde_json::from_slice::<Vec<String>>(&names).ok())
        else {
            return failed();
        };
        let address = value(headers, &header::HOST).unwrap_or(&listener.address);
        let apps = names.iter().map(|app| ScrapeTarget::of(app, address, listener.tls));
        let targets: Vec<_> =
            iter::once(ScrapeTarget::exporter(address, listener.tls)).chain(apps).collect();
        // These types always serialize.
        let body = serde_json::to_vec(&targets).unwrap_or_default();
        with(Response::new(PageBody::from(body)), header::CONTENT_TYPE, JSON)
    }

    async fn landing(&self, began: Instant, headers: &HeaderMap) -> HttpResponse {
        let deadline = deadline(began, headers, self.timeout, self.timeout);
        let page = match self.ask(Page::Overview, deadline).await {
            (Content::Overview, Some(document)) => {
                document_page(document, "text/html; charset=utf-8")
            }
            other => return other_page(other),
        };
        with(page, header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'")
    }

    async fn ask(&self, page: Page, deadline: Instant) -> (Content, Option<Document>) {
        let within = deadline.saturating_duration_since(Instant::now());
        let answer = self.collector.ask(Question::Page { page, within }).await;
        // The exporter ends when the collector does, and says so.
        answer.unwrap_or((Content::Failed, None))
    }
}

fn document_page(document: Document, media: &'static str) -> HttpResponse {
    with(Response::new(PageBody::Document(document.body())), header::CONTENT_TYPE, media)
}

/// Returns the page for an answer that is not the one that was asked for.
fn other_page(answer: (Content, Option<Document>)) -> HttpResponse {
    match answer {
        (Content::Unknown, Some(document)) => {
            with_status(document_page(document, PLAIN), StatusCode::NOT_FOUND)
        }
        _ => failed(),
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

fn failed() -> HttpResponse {
    text(
        StatusCode::SERVICE_UNAVAILABLE,
        "the exporter has no answer; its log says why\n".to_owned(),
    )
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
    let body = PageBody::from(body.into_bytes());
    let page = with(Response::new(body), header::CONTENT_TYPE, PLAIN);
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

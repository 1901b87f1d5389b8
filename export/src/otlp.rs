//! Pushes metrics to an OTLP receiver: protobuf over HTTP, in a separate thread.
//!
//! All values are cumulative, so only the latest push matters: a push that has not succeeded when
//! the next one is due is dropped and counted.

mod encode;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hyper::Uri;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use pmdscope_telemetry::realtime_ns;
use prost::Message;
use tokio::time::{MissedTickBehavior, interval};
use ureq::Agent;
use ureq::http::StatusCode;
use ureq::tls::{RootCerts, TlsConfig};

use crate::collector_client::CollectorClient;
use crate::document::Document;
use crate::journal;
use crate::message::{Content, Page, Question};
use crate::metrics::PushCounters;
use crate::snapshot::ScrapeSnapshot;
pub(crate) use encode::ExporterIdentity;

/// Default path of OTLP receivers.
const PATH: &str = "/v1/metrics";

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Shortest and longest pause between attempts (exponential backoff), unless the receiver requests
/// another.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum size of an answer that is read.
const MAX_RESPONSE_BYTES: u64 = 64 << 10;

/// The URL of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtlpReceiver(String);

impl fmt::Display for OtlpReceiver {
    /// Formats the URL for logs: without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
        write!(f, "{scheme}://{}", &rest[host..])
    }
}

/// The error for a text that is not a valid receiver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid OTLP receiver {0:?}: expected a URL such as http://localhost:4318")]
pub struct OtlpReceiverError(String);

impl FromStr for OtlpReceiver {
    type Err = OtlpReceiverError;

    fn from_str(text: &str) -> Result<Self, OtlpReceiverError> {
        let refused = || OtlpReceiverError(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        if !known || uri.host().is_none_or(str::is_empty) {
            return Err(refused());
        }
        let bare = uri.path() == "/" && uri.query().is_none();
        let text = text.trim_end_matches('/');
        Ok(Self(if bare { format!("{text}{PATH}") } else { text.to_owned() }))
    }
}

impl ExporterIdentity {
    /// Returns the identity of this process.
    pub(crate) fn new() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { host: host.trim().to_owned(), start_ns: realtime_ns() }
    }

    /// Returns a request with all metrics.
    pub(crate) fn request(&self, snapshot: &ScrapeSnapshot) -> Vec<u8> {
        encode::request(&snapshot.families(None), &snapshot.fleet, self).encode_to_vec()
    }
}

/// Holds the newest request for the thread that pushes.
#[derive(Debug, Default)]
struct RequestMailbox {
    newest: Mutex<PendingRequest>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct PendingRequest {
    request: Option<Document>,
    closed: bool,
}

impl RequestMailbox {
    fn lock(&self) -> MutexGuard<'_, PendingRequest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a request; returns whether it replaces an older one.
    fn put(&self, request: Document) -> bool {
        let older = self.lock().request.replace(request);
        self.arrived.notify_one();
        older.is_some()
    }

    /// Waits for a request; `None` if the mailbox is closed.
    fn take(&self) -> Option<Document> {
        let waiting = |mail: &mut PendingRequest| mail.request.is_none() && !mail.closed;
        let mail = self.arrived.wait_while(self.lock(), waiting);
        let mut mail = mail.unwrap_or_else(PoisonError::into_inner);
        if mail.closed { None } else { mail.request.take() }
    }

    /// Waits for `pause`, or until the mailbox is closed.
    fn pause(&self, pause: Duration) {
        let end = Instant::now() + pause;
        let mut mail = self.lock();
        while !mail.closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.arrived.wait_timeout(mail, left);
            mail = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn is_outdated(&self) -> bool {
        let mail = self.lock();
        mail.closed || mail.request.is_some()
    }
}

/// Makes the thread end soon.
struct CloseOnDrop(Arc<RequestMailbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.arrived.notify_all();
    }
}

/// Asks for all metrics every `pause`, waiting at most `timeout` for them, and has a thread push them, until
/// this future is dropped.
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) async fn push(
    receiver: OtlpReceiver,
    pause: Duration,
    collector: Arc<CollectorClient>,
    timeout: Duration,
) -> std::io::Result<()> {
    let mailbox = Arc::new(RequestMailbox::default());
    let _closing = CloseOnDrop(Arc::clone(&mailbox));
    let (theirs, counted) = (Arc::clone(&mailbox), Arc::clone(&collector.pushes));
    thread::Builder::new()
        .name("otlp".to_owned())
        .spawn(move || OtlpPusher::new(receiver, counted).run(&theirs))?;
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let question = Question::Page { page: Page::Push, within: timeout.min(pause) };
        // Without the collector, the exporter ends.
        if let Ok((Content::Push, Some(request))) = collector.ask(question).await
            && mailbox.put(request)
        {
            PushCounters::count(&collector.pushes.dropped);
        }
    }
}

/// State of the thread that pushes.
struct OtlpPusher {
    receiver: OtlpReceiver,
    agent: Agent,
    counters: Arc<PushCounters>,
    /// The last push failed; this is logged once.
    failing: bool,
    /// Pause before the next attempt; doubled with each failure, also across pushes.
    pause: Duration,
}

/// The result of an attempt.
enum PushOutcome {
    Accepted,
    /// The receiver rejected a part, with its reason.
    Partial(String),
    /// The receiver rejected the push permanently, with the reason.
    Rejected(String),
    /// The attempt failed temporarily, with the reason and the pause that the receiver requested.
    Failed(String, Option<Duration>),
}

impl OtlpPusher {
    fn new(receiver: OtlpReceiver, counters: Arc<PushCounters>) -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let agent = Agent::config_builder()
            .timeout_global(Some(ATTEMPT_TIMEOUT))
            .http_status_as_error(false)
            // A redirected push would become a GET.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("pmdscope/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .build()
            .new_agent();
        Self { receiver, agent, counters, failing: false, pause: FIRST_RETRY_INTERVAL }
    }

    fn run(mut self, mailbox: &RequestMailbox) {
        while let Some(request) = mailbox.take() {
            match request.read() {
                Ok(body) => self.deliver(&body, mailbox),
                Err(error) => journal::warn(&format!("cannot read what to push: {error}")),
            }
        }
    }

    /// Retries until the push is accepted or rejected permanently, or a newer one is due.
    fn deliver(&mut self, body: &[u8], mailbox: &RequestMailbox) {
        loop {
            let outcome = self.attempt(body);
            self.tell(&outcome);
            let PushOutcome::Failed(_, asked) = outcome else {
                self.pause = FIRST_RETRY_INTERVAL;
                return;
            };
            mailbox.pause(asked.unwrap_or(self.pause).min(MAX_RETRY_INTERVAL));
            self.pause = (self.pause * 2).min(MAX_RETRY_INTERVAL);
            if mailbox.is_outdated() {
                return PushCounters::count(&self.counters.dropped);
            }
        }
    }

    fn attempt(&self, body: &[u8]) -> PushOutcome {
        let request = self.agent.post(&self.receiver.0);
        let sent = request.header("Content-Type", "application/x-protobuf").send(body);
        let mut answer = match sent {
            Ok(answer) => answer,
            Err(error) => return PushOutcome::Failed(error.to_string(), None),
        };
        let status = answer.status();
        let after = answer.headers().get("retry-after").and_then(|after| after.to_str().ok());
        let after = after.and_then(|after| after.trim().parse().ok()).map(Duration::from_secs);
        let text = answer
            .body_mut()
            .with_config()
            .limit(MAX_RESPONSE_BYTES)
            .read_to_vec()
            .unwrap_or_default();
        match status {
            status if status.is_success() => accepted(&text),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                PushOutcome::Failed(format!("it answers {status}"), after)
            }
            status => PushOutcome::Rejected(format!("it answers {status}")),
        }
    }

    /// Counts the result, and logs a change.
    fn tell(&mut self, outcome: &PushOutcome) {
        let (number, trouble) = match outcome {
            PushOutcome::Accepted => (&self.counters.accepted, None),
            PushOutcome::Partial(why) => (&self.counters.partial, Some(why)),
            PushOutcome::Rejected(why) => (&self.counters.rejected, Some(why)),
            PushOutcome::Failed(why, _) => (&self.counters.failed, Some(why)),
        };
        PushCounters::count(number);
        match trouble {
            Some(why) if !self.failing => {
                journal::warn(&format!("cannot push to {}: {why}", self.receiver));
            }
            None if self.failing => journal::note(&format!("pushing to {} again", self.receiver)),
            _ => {}
        }
        self.failing = trouble.is_some();
    }
}

fn accepted(answer: &[u8]) -> PushOutcome {
    // Receivers may answer with an empty body or with JSON.
    let part = ExportMetricsServiceResponse::decode(answer).ok().and_then(|a| a.partial_success);
    match part.filter(|part| part.rejected_data_points > 0) {
        Some(part) => PushOutcome::Partial(format!(
            "it rejects {} values: {}",
            part.rejected_data_points, part.error_message
        )),
        None => PushOutcome::Accepted,
    }
}

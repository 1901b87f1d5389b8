//! Pushes what is known to an OTLP receiver: protobuf over HTTP, from a thread of its own.
//!
//! All values are cumulative, so only the newest push matters: one that has not got through when the
//! next is due is dropped, and counted.

mod encode;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::Uri;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use tokio::time::{MissedTickBehavior, interval};
use ureq::Agent;
use ureq::http::StatusCode;
use ureq::tls::{RootCerts, TlsConfig};

use crate::journal;
use crate::metrics::PushCounters;
use crate::scrape::{ScrapeScope, Scraper};
use crate::snapshot::ScrapeSnapshot;
use encode::Origin;

/// Path of OTLP receivers.
const PATH: &str = "/v1/metrics";

/// Longest time for one attempt.
const ATTEMPT: Duration = Duration::from_secs(10);

/// Pauses between attempts, unless the receiver asks for another.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Longest answer that is read.
const ANSWER: u64 = 64 << 10;

/// A receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiver(String);

impl fmt::Display for Receiver {
    /// For logs: without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
        write!(f, "{scheme}://{}", &rest[host..])
    }
}

/// Text that names no receiver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no OTLP receiver; give a URL such as http://localhost:4318")]
pub struct ReceiverError(String);

impl FromStr for Receiver {
    type Err = ReceiverError;

    fn from_str(text: &str) -> Result<Self, ReceiverError> {
        let refused = || ReceiverError(text.to_owned());
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

/// Where the newest snapshot waits for the thread.
#[derive(Debug, Default)]
struct Mailbox {
    newest: Mutex<Mail>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Mail {
    snapshot: Option<Arc<ScrapeSnapshot>>,
    closed: bool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an older one was still there.
    fn put(&self, snapshot: Arc<ScrapeSnapshot>) -> bool {
        let older = self.lock().snapshot.replace(snapshot);
        self.arrived.notify_one();
        older.is_some()
    }

    /// Waits for the newest; `None` when there will be no more.
    fn take(&self) -> Option<Arc<ScrapeSnapshot>> {
        let waiting = |mail: &mut Mail| mail.snapshot.is_none() && !mail.closed;
        let mail = self.arrived.wait_while(self.lock(), waiting);
        let mut mail = mail.unwrap_or_else(PoisonError::into_inner);
        if mail.closed { None } else { mail.snapshot.take() }
    }

    /// Waits that long for a newer one to come, or the end.
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
        mail.closed || mail.snapshot.is_some()
    }
}

/// Ends the thread, soon.
struct Closing(Arc<Mailbox>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.arrived.notify_all();
    }
}

/// Asks for a snapshot every `pause`, for `timeout` at most, and has a thread push it, until this future
/// is dropped.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) async fn push(
    receiver: Receiver,
    pause: Duration,
    scraper: Arc<Scraper>,
    timeout: Duration,
    counters: Arc<PushCounters>,
) -> std::io::Result<()> {
    let mailbox = Arc::new(Mailbox::default());
    let _closing = Closing(Arc::clone(&mailbox));
    let (theirs, counted) = (Arc::clone(&mailbox), Arc::clone(&counters));
    thread::Builder::new()
        .name("otlp".to_owned())
        .spawn(move || Pusher::new(receiver, counted).run(&theirs))?;
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let deadline = Instant::now() + timeout.min(pause);
        let snapshot = scraper.snapshot(ScrapeScope::All, None, deadline).await;
        if mailbox.put(snapshot) {
            PushCounters::count(&counters.dropped);
        }
    }
}

/// The thread that pushes.
struct Pusher {
    receiver: Receiver,
    agent: Agent,
    origin: Origin,
    counters: Arc<PushCounters>,
    /// The last push failed: said once.
    failing: bool,
    /// Before the next attempt; longer with each failure, also from one push to the next.
    pause: Duration,
}

/// How an attempt ended.
enum Outcome {
    Accepted,
    /// Some of it was not taken, and why.
    Partial(String),
    /// It will never be taken, and why.
    Rejected(String),
    /// It may be taken later, why not now, and when.
    Failed(String, Option<Duration>),
}

impl Pusher {
    fn new(receiver: Receiver, counters: Arc<PushCounters>) -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let agent = Agent::config_builder()
            .timeout_global(Some(ATTEMPT))
            .http_status_as_error(false)
            // A push that follows a redirect would become a GET.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("pmdscope/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .build()
            .new_agent();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ns = u64::try_from(now.as_nanos()).unwrap_or(0);
        let origin = Origin { host: host.trim().to_owned(), start_ns };
        Self { receiver, agent, origin, counters, failing: false, pause: FIRST_PAUSE }
    }

    fn run(mut self, mailbox: &Mailbox) {
        while let Some(snapshot) = mailbox.take() {
            let families = snapshot.families(None);
            let body = encode::request(&families, &snapshot.world, &self.origin).encode_to_vec();
            self.deliver(&body, mailbox);
        }
    }

    /// Tries until it gets through, is refused for good, or there is a newer one.
    fn deliver(&mut self, body: &[u8], mailbox: &Mailbox) {
        loop {
            let outcome = self.attempt(body);
            self.tell(&outcome);
            let Outcome::Failed(_, asked) = outcome else {
                self.pause = FIRST_PAUSE;
                return;
            };
            mailbox.pause(asked.unwrap_or(self.pause).min(LONGEST_PAUSE));
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            if mailbox.is_outdated() {
                return PushCounters::count(&self.counters.dropped);
            }
        }
    }

    fn attempt(&self, body: &[u8]) -> Outcome {
        let request = self.agent.post(&self.receiver.0);
        let sent = request.header("Content-Type", "application/x-protobuf").send(body);
        let mut answer = match sent {
            Ok(answer) => answer,
            Err(error) => return Outcome::Failed(error.to_string(), None),
        };
        let status = answer.status();
        let after = answer.headers().get("retry-after").and_then(|after| after.to_str().ok());
        let after = after.and_then(|after| after.trim().parse().ok()).map(Duration::from_secs);
        let text = answer.body_mut().with_config().limit(ANSWER).read_to_vec().unwrap_or_default();
        match status {
            status if status.is_success() => accepted(&text),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Outcome::Failed(format!("it answers {status}"), after),
            status => Outcome::Rejected(format!("it answers {status}")),
        }
    }

    /// Counts, and says what has changed.
    fn tell(&mut self, outcome: &Outcome) {
        let (number, trouble) = match outcome {
            Outcome::Accepted => (&self.counters.accepted, None),
            Outcome::Partial(why) => (&self.counters.partial, Some(why)),
            Outcome::Rejected(why) => (&self.counters.rejected, Some(why)),
            Outcome::Failed(why, _) => (&self.counters.failed, Some(why)),
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

fn accepted(answer: &[u8]) -> Outcome {
    // Receivers may answer with nothing, or with JSON.
    let part = ExportMetricsServiceResponse::decode(answer).ok().and_then(|a| a.partial_success);
    match part.filter(|part| part.rejected_data_points > 0) {
        Some(part) => Outcome::Partial(format!(
            "it rejects {} values: {}",
            part.rejected_data_points, part.error_message
        )),
        None => Outcome::Accepted,
    }
}

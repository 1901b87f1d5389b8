//! The exporter service: startup, notifications to the service manager, shutdown.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::finding::Thresholds;
use sd_notify::NotifyState;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;

use crate::journal;
use crate::listen::{self, HttpListener, ListenError};
use crate::metrics::PushCounters;
use crate::options::ExportOptions;
use crate::otlp::{self, OtlpReceiver, OtlpReceiverError};
use crate::routes::Routes;
use crate::scrape::{ScrapeScope, Scraper, WaitLimits};
use crate::server::{self, ServerLimits};
use crate::snapshot::{ExpositionForm, RenderOptions};
use crate::text::TextFormat;
use crate::web::{ReloadingWebPolicy, WebError};

/// Idle timeout of blocking threads, which query apps, format metrics and check passwords.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(600);

/// Why the exporter cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The web configuration cannot be used.
    #[error(transparent)]
    Web(#[from] WebError),
    /// The exporter cannot listen on an address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The OTLP receiver is not a valid URL.
    #[error(transparent)]
    Otlp(#[from] OtlpReceiverError),
    /// The system refuses a basic resource.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl ServeError {
    /// Returns whether the settings are wrong, and not the system.
    pub fn is_misuse(&self) -> bool {
        matches!(self, Self::Web(_) | Self::Otlp(_))
    }
}

/// A function that reads the thresholds again.
///
/// # Errors
/// Returns the reason why they cannot be used, in one or more lines.
pub type ThresholdReader = dyn Fn() -> Result<Thresholds, String> + Send + Sync;

/// Serves until SIGTERM or SIGINT. On SIGHUP, it uses the thresholds that `thresholds` returns, or
/// keeps the previous ones if that fails.
///
/// # Errors
/// Fails if the exporter cannot start; it then serves nothing.
pub fn serve(
    options: &ExportOptions,
    settings: FleetSettings,
    thresholds: Arc<ThresholdReader>,
) -> Result<(), ServeError> {
    let runtime = runtime()?;
    let served = runtime.block_on(run(options, settings, thresholds));
    // A thread may still wait for an app; it is not joined.
    runtime.shutdown_background();
    served
}

/// Returns the metrics of the running apps as text.
///
/// # Errors
/// Fails if the system refuses a basic resource.
pub fn once(
    options: &ExportOptions,
    settings: FleetSettings,
    format: TextFormat,
) -> Result<String, ServeError> {
    let runtime = runtime()?;
    // There is no later scrape, so it waits for slow apps until the timeout.
    let limits =
        WaitLimits { first: options.timeout, answer: options.timeout, ..WaitLimits::default() };
    let scraper = scraper(options, settings, None, limits);
    let form = ExpositionForm { format, gzip: false, only: None };
    let deadline = Instant::now() + options.timeout;
    let text = runtime
        .block_on(async { scraper.snapshot(ScrapeScope::All, deadline).await.text(&form).await });
    // A thread may still wait for an app; it is not joined.
    runtime.shutdown_background();
    Ok(String::from_utf8_lossy(&text.bytes).into_owned())
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .thread_name("worker")
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()
}

fn scraper(
    options: &ExportOptions,
    settings: FleetSettings,
    pushes: Option<Arc<PushCounters>>,
    limits: WaitLimits,
) -> Arc<Scraper> {
    let render_options = RenderOptions::new(options, &settings.rules.expected, pushes);
    Scraper::new(settings, render_options, options.timeout, limits)
}

async fn run(
    options: &ExportOptions,
    settings: FleetSettings,
    thresholds: Arc<ThresholdReader>,
) -> Result<(), ServeError> {
    let web = ReloadingWebPolicy::open(options.web_config.as_deref())?;
    let receiver = options.otlp.as_deref().map(str::parse::<OtlpReceiver>).transpose()?;
    let mut listeners = Vec::new();
    for address in &options.listen {
        listeners.extend(listen::bind(address)?);
    }
    let stop = stop()?;
    let hang_up = signal(SignalKind::hangup())?;
    warn_of_openness(&listeners, &web);
    let addresses: Vec<String> = listeners.iter().map(HttpListener::address).collect();
    let addresses = addresses.join(", ");
    let counters = receiver.is_some().then(Arc::<PushCounters>::default);
    let scraper = scraper(options, settings, counters.clone(), WaitLimits::default());
    let routes = Routes { scraper: Arc::clone(&scraper), web, timeout: options.timeout };
    tokio::spawn(reload(hang_up, Arc::clone(&scraper), thresholds));
    journal::note(&format!("serving metrics at {addresses}"));
    notify(&[NotifyState::Ready, NotifyState::Status(&format!("Serving at {addresses}"))]);
    let watchdog = sd_notify::watchdog_enabled().map(|limit| watch(limit / 2));
    let push = receiver.zip(counters).map(|(receiver, counters)| {
        otlp::push(receiver, options.otlp_interval, scraper, options.timeout, counters)
    });
    tokio::select! {
        () = server::serve(listeners, Arc::new(routes), ServerLimits::default(), stop) => Ok(()),
        () = forever(watchdog) => Ok(()),
        Err(error) = forever(push) => Err(error.into()),
    }
}

/// Runs the task; without a task it never returns.
async fn forever<T>(work: Option<impl Future<Output = T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

/// Returns a future that completes at SIGTERM or SIGINT.
fn stop() -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        notify(&[NotifyState::Stopping, NotifyState::Status("Answering what was asked before")]);
    })
}

/// Reads the thresholds again on each SIGHUP.
async fn reload(mut hang_up: Signal, scraper: Arc<Scraper>, thresholds: Arc<ThresholdReader>) {
    while hang_up.recv().await.is_some() {
        let thresholds = Arc::clone(&thresholds);
        match spawn_blocking(move || thresholds()).await {
            Ok(Ok(thresholds)) => {
                scraper.set_thresholds(thresholds);
                journal::note("thresholds reloaded");
            }
            Ok(Err(errors)) => {
                errors.lines().for_each(journal::warn);
                journal::warn("thresholds not reloaded; the previous ones stay in force");
            }
            Err(error) => journal::warn(&format!("thresholds not reloaded: {error}")),
        }
    }
}

/// Warns if other machines can read the metrics without TLS or without a password.
fn warn_of_openness(listeners: &[HttpListener], web: &ReloadingWebPolicy) {
    let policy = web.policy();
    let missing = match (
        policy.tls.is_some(),
        policy.basic_auth.is_disabled() && !policy.requires_client_cert(),
    ) {
        (true, false) => return,
        (false, true) => "without TLS and without a password",
        (false, false) => "without TLS: passwords are sent in clear text",
        (true, true) => "without a password",
    };
    for listener in listeners.iter().filter(|listener| listener.is_remote()) {
        let address = listener.address();
        journal::warn(&format!(
            "every machine that reaches {address} can read the metrics, {missing}; see --web-config"
        ));
    }
}

async fn watch(pause: Duration) {
    loop {
        notify(&[NotifyState::Watchdog]);
        tokio::time::sleep(pause).await;
    }
}

fn notify(state: &[NotifyState<'_>]) {
    // Without systemd there is no notification.
    let _ = sd_notify::notify(state);
}

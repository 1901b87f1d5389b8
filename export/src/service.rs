//! The two processes at work: startup, notifications to the service manager, shutdown.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::finding::Thresholds;
use sd_notify::NotifyState;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::address::ListenAddress;
use crate::channel::{self, Channel, ChannelError};
use crate::collector::{Collector, CollectorError};
use crate::collector_client::{CollectorClient, CollectorGone};
use crate::confine::confine;
use crate::connections::ConnectionTable;
use crate::journal;
use crate::listen::{HttpListener, ListenError, SocketFile};
use crate::message::{NetworkSettings, Question};
use crate::options::ExportOptions;
use crate::otlp::{self, OtlpReceiver, OtlpReceiverError};
use crate::processes::{CollectorExit, wait_for_collector};
use crate::routes::Routes;
use crate::scrape::{ScrapeScope, Scraper, WaitLimits};
use crate::server::{self, ServerTimeouts};
use crate::service_manager::ServiceManager;
use crate::snapshot::{ExpositionForm, RenderOptions};
use crate::text::TextFormat;
use crate::web::{CurrentWebPolicy, WebError, WebFiles, WebPolicy};

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
    /// One process has ended, and the other cannot work alone.
    #[error("{0}")]
    Ended(String),
}

impl From<CollectorError> for ServeError {
    fn from(error: CollectorError) -> Self {
        Self::Ended(error.to_string())
    }
}

impl From<CollectorExit> for ServeError {
    fn from(exit: CollectorExit) -> Self {
        Self::Ended(exit.to_string())
    }
}

impl From<ChannelError> for ServeError {
    fn from(error: ChannelError) -> Self {
        Self::Ended(format!("the processes of the exporter cannot speak to each other: {error}"))
    }
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

/// Is the collector: answers the network process until that ends. On request, it uses the thresholds that
/// `thresholds` returns, or keeps the previous ones if that fails.
///
/// # Errors
/// Fails if it cannot start, or if the network process is killed or misbehaves.
pub fn collect(
    options: &ExportOptions,
    settings: FleetSettings,
    thresholds: Arc<ThresholdReader>,
) -> Result<(), ServeError> {
    let socket = channel::inherited()?;
    let _files = socket_files(options);
    let runtime = runtime()?;
    let collected = runtime.block_on(async {
        let _signals =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        pmdscope_signals::take_over()?;
        let web = WebFiles::open(options.web_config.as_deref())?;
        let scraper = scraper(options, settings, WaitLimits::default());
        let channel = Channel::new(socket)?;
        let most = options.connections.total;
        let collector = Collector::new(channel, scraper, web, thresholds, options.timeout, most);
        Ok(collector.run().await?)
    });
    // A thread may still wait for an app; it is not joined.
    runtime.shutdown_background();
    collected
}

/// Returns the files of unix sockets, which the network process cannot remove.
fn socket_files(options: &ExportOptions) -> Vec<SocketFile> {
    let paths = options.listen.iter().filter_map(|address| match address {
        ListenAddress::Unix(path) => Some(path.clone()),
        _ => None,
    });
    paths.map(SocketFile).collect()
}

/// Is the network process: gives up all rights, and serves until SIGTERM or SIGINT. On SIGHUP, it has the
/// collector read the thresholds again.
///
/// # Errors
/// Fails if it cannot start, or if the collector ends.
pub fn serve() -> Result<(), ServeError> {
    let socket = channel::inherited()?;
    let Some((settings, sockets)) = channel::receive::<NetworkSettings>(&socket)? else {
        return Err(io::Error::other("no settings").into());
    };
    let manager = Arc::new(ServiceManager::connect());
    let missing = confine(settings.otlp.is_some())?;
    let runtime = runtime()?;
    let served = runtime.block_on(run(socket, &settings, sockets, &missing, manager));
    runtime.shutdown_background();
    let exit = wait_for_collector(settings.collector);
    match served {
        // Its exit status says more.
        Err(ServeError::Ended(_)) => Err(exit.into()),
        served => served,
    }
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
    let scraper = scraper(options, settings, limits);
    let form = ExpositionForm { format, gzip: false, only: None };
    let deadline = Instant::now() + options.timeout;
    let text = runtime
        .block_on(async { scraper.snapshot(ScrapeScope::All, deadline).await.text(&form).await });
    let text = text.and_then(|text| text.document.read());
    // A thread may still wait for an app; it is not joined.
    runtime.shutdown_background();
    Ok(String::from_utf8_lossy(&text?).into_owned())
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .thread_name("worker")
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()
}

fn scraper(options: &ExportOptions, settings: FleetSettings, limits: WaitLimits) -> Arc<Scraper> {
    let render_options = RenderOptions::new(options, &settings.rules.expected);
    Scraper::new(settings, render_options, options.timeout, limits)
}

async fn run(
    socket: OwnedFd,
    settings: &NetworkSettings,
    sockets: Vec<OwnedFd>,
    missing: &[&str],
    manager: Arc<ServiceManager>,
) -> Result<(), ServeError> {
    let connections = ConnectionTable::new(settings.limits);
    let collector = CollectorClient::new(Channel::new(socket)?, connections);
    let receiver = settings.otlp.as_deref().map(str::parse::<OtlpReceiver>).transpose()?;
    let listeners = sockets.into_iter().map(HttpListener::new).collect::<io::Result<Vec<_>>>()?;
    let stop = stop(Arc::clone(&manager))?;
    let hang_up = signal(SignalKind::hangup())?;
    pmdscope_signals::take_over()?;
    let web = CurrentWebPolicy::open(Arc::clone(&collector), settings.web_config).await;
    let web = web.map_err(|why| ServeError::Ended(format!("web configuration: {why}")))?;
    warn_of_openness(&listeners, &*web.policy().await);
    let addresses: Vec<String> = listeners.iter().map(HttpListener::address).collect();
    let addresses = addresses.join(", ");
    let routes = Routes { collector: Arc::clone(&collector), web, timeout: settings.timeout };
    tokio::spawn(reload(hang_up, Arc::clone(&collector)));
    journal::note(&format!("serving metrics at {addresses}"));
    if settings.lowered {
        let total = settings.limits.total;
        journal::warn(&format!(
            "at most {total} connections: the limit of open files permits no more; raise it \
             (ulimit -n, LimitNOFILE=)"
        ));
    }
    if !missing.is_empty() {
        let missing = missing.join(" and ");
        journal::warn(&format!(
            "the network process runs without {missing}; see \"Two processes\" in docs/export.md"
        ));
    }
    manager.notify(&[NotifyState::Ready, NotifyState::Status(&format!("Serving at {addresses}"))]);
    let watchdog = sd_notify::watchdog_enabled()
        .map(|limit| watch(limit / 2, Arc::clone(&collector), manager));
    let push = receiver.map(|receiver| {
        otlp::push(receiver, settings.otlp_interval, Arc::clone(&collector), settings.timeout)
    });
    tokio::select! {
        () = server::serve(listeners, Arc::new(routes), ServerTimeouts::default(), stop) => {
            collector.stop().await;
            Ok(())
        }
        () = collector.ended() => Err(ServeError::Ended(CollectorGone.to_string())),
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
fn stop(manager: Arc<ServiceManager>) -> io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let status = NotifyState::Status("Answering what was asked before");
        manager.notify(&[NotifyState::Stopping, status]);
    })
}

/// Has the thresholds read again on each SIGHUP.
async fn reload(mut hang_up: Signal, collector: Arc<CollectorClient>) {
    while hang_up.recv().await.is_some() {
        // Without the collector, the exporter ends.
        let _ = collector.ask(Question::Reload).await;
    }
}

/// Warns if other machines can read the metrics without TLS or without a password.
fn warn_of_openness(listeners: &[HttpListener], policy: &WebPolicy) {
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

/// Tells the service manager that both processes work.
async fn watch(pause: Duration, collector: Arc<CollectorClient>, manager: Arc<ServiceManager>) {
    while collector.ask(Question::Ping).await.is_ok() {
        manager.notify(&[NotifyState::Watchdog]);
        tokio::time::sleep(pause).await;
    }
    std::future::pending::<()>().await;
}

//! Accepts connections, within limits, until shutdown.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutWriter;

use crate::journal;
use crate::listen::{ClientStream, HttpListener};
use crate::routes::{ListenerInfo, Routes};

/// Limits that protect clients from each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerLimits {
    /// Most simultaneous connections; more are rejected.
    pub(crate) max_connections: usize,
    /// Timeout of the first request, including the TLS handshake.
    pub(crate) first_request_timeout: Duration,
    /// Timeout of further requests.
    pub(crate) keep_alive_timeout: Duration,
    /// The same for connections that are accepted when three quarters of the limit are in use.
    pub(crate) crowded_keep_alive_timeout: Duration,
    /// Timeout of writing a part of an answer.
    pub(crate) write_timeout: Duration,
    /// Longest wait for open connections at shutdown.
    pub(crate) shutdown_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            max_connections: 128,
            first_request_timeout: Duration::from_secs(10),
            // Longer than common scrape intervals, so that connections are reused.
            keep_alive_timeout: Duration::from_secs(150),
            crowded_keep_alive_timeout: Duration::from_secs(3),
            write_timeout: Duration::from_secs(10),
            shutdown_timeout: Duration::from_secs(3),
        }
    }
}

/// Longest request header, bytes.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Pause after a failed accept, for example because all descriptors are in use.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Answer to a connection beyond the limit.
const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\
    Connection: close\r\nRetry-After: 1\r\n\r\n";

/// State that all connections share.
struct ServerState {
    routes: Arc<Routes>,
    limits: ServerLimits,
    permits: Arc<Semaphore>,
}

/// Serves until `stop` completes, then answers the requests that were received before.
pub(crate) async fn serve(
    listeners: Vec<HttpListener>,
    routes: Arc<Routes>,
    limits: ServerLimits,
    stop: impl Future<Output = ()>,
) {
    let permits = Arc::new(Semaphore::new(limits.max_connections));
    let state = Arc::new(ServerState { routes, limits, permits });
    let graceful = Arc::new(GracefulShutdown::new());
    let accept_loops: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            tokio::spawn(accept_loop(listener, Arc::clone(&state), Arc::clone(&graceful)))
        })
        .collect();
    stop.await;
    for accept_loop in accept_loops {
        accept_loop.abort();
        // The listener is closed only when the task has ended.
        let _ = accept_loop.await;
    }
    if let Some(graceful) = Arc::into_inner(graceful) {
        // Connections that remain open are dropped.
        let _ = timeout(limits.shutdown_timeout, graceful.shutdown()).await;
    }
}

async fn accept_loop(
    listener: HttpListener,
    state: Arc<ServerState>,
    graceful: Arc<GracefulShutdown>,
) {
    let address: Arc<str> = listener.address().into();
    let mut failing = false;
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) if is_transient(&error) => continue,
            Err(error) => {
                if !failing {
                    journal::warn(&format!("cannot accept at {address}: {error}; trying again"));
                }
                failing = true;
                sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            }
        };
        failing = false;
        match Arc::clone(&state.permits).try_acquire_owned() {
            Ok(place) => {
                let connection = HttpConnection {
                    state: Arc::clone(&state),
                    address: Arc::clone(&address),
                    watcher: graceful.watcher(),
                    _place: place,
                };
                tokio::spawn(connection.run(stream));
            }
            Err(_) => stream.reject(),
        }
    }
}

/// Returns whether an error concerns only one connection.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | TimedOut)
}

impl ClientStream {
    /// Sends the answer if that does not block.
    fn reject(self) {
        // Errors are ignored: the connection is closed anyway.
        let _ = match self {
            Self::Tcp(stream) => stream.try_write(TOO_MANY_CONNECTIONS),
            Self::Unix(stream) => stream.try_write(TOO_MANY_CONNECTIONS),
        };
    }
}

/// State of one connection.
struct HttpConnection {
    state: Arc<ServerState>,
    address: Arc<str>,
    watcher: Watcher,
    /// Released when the connection ends.
    _place: OwnedSemaphorePermit,
}

impl HttpConnection {
    async fn run(self, stream: ClientStream) {
        match stream {
            ClientStream::Tcp(stream) => self.handshake(stream).await,
            ClientStream::Unix(stream) => self.handshake(stream).await,
        }
    }

    async fn handshake<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let limits = self.state.limits;
        let mut stream = TimeoutWriter::new(stream);
        stream.set_timeout(Some(limits.write_timeout));
        let stream = Box::pin(stream);
        let policy = self.state.routes.web.policy();
        let Some(tls) = &policy.tls else { return self.serve(stream, false).await };
        let Ok(Ok(stream)) = timeout(limits.first_request_timeout, tls.accept(stream)).await else {
            return;
        };
        if policy.allows(stream.get_ref().1.peer_certificates()) {
            self.serve(stream, true).await;
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S, tls: bool) {
        let Self { state, address, watcher, _place } = self;
        let requested = AtomicBool::new(false);
        let listener = ListenerInfo { address, tls };
        let service = service_fn(|request: Request<Incoming>| {
            requested.store(true, Ordering::Relaxed);
            let (routes, listener) = (&state.routes, &listener);
            async move { Ok::<_, Infallible>(routes.answer(&request, listener).await) }
        });
        let limits = state.limits;
        // Idle connections must not use up the last permits.
        let crowded = state.permits.available_permits() < limits.max_connections / 4;
        let keep_alive_timeout =
            if crowded { limits.crowded_keep_alive_timeout } else { limits.keep_alive_timeout };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(keep_alive_timeout)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let no_request = async {
            sleep(state.limits.first_request_timeout).await;
            if requested.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        // Errors of a connection concern only its client.
        tokio::select! {
            _ = pin!(watcher.watch(connection)) => {}
            () = no_request => {}
        }
    }
}

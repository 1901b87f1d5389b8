//! Accepts connections, within limits, until shutdown.

#[cfg(test)]
mod tests;

mod stream;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutWriter;

use crate::connections::{Client, ConnectionTable, Phase, Place};
use crate::journal;
use crate::listen::{ClientStream, HttpListener};
use crate::routes::{ListenerInfo, Routes};
use stream::{PhasedBody, PhasedStream};

/// Timeouts of the server, besides those of [`crate::options::ConnectionLimits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerTimeouts {
    /// Timeout of writing a part of an answer.
    pub(crate) write: Duration,
    /// Longest wait for open connections at shutdown.
    pub(crate) shutdown: Duration,
}

impl Default for ServerTimeouts {
    fn default() -> Self {
        Self { write: Duration::from_secs(10), shutdown: Duration::from_secs(3) }
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
    connections: Arc<ConnectionTable>,
    timeouts: ServerTimeouts,
}

/// Serves until `stop` completes, then answers the requests that were received before.
pub(crate) async fn serve(
    listeners: Vec<HttpListener>,
    routes: Arc<Routes>,
    timeouts: ServerTimeouts,
    stop: impl Future<Output = ()>,
) {
    let connections = Arc::clone(&routes.collector.connections);
    let state = Arc::new(ServerState { routes, connections, timeouts });
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
        let _ = timeout(timeouts.shutdown, graceful.shutdown()).await;
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
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
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
        match state.connections.admit(client) {
            Ok(place) => {
                let connection = HttpConnection {
                    state: Arc::clone(&state),
                    address: Arc::clone(&address),
                    client,
                    watcher: graceful.watcher(),
                    place: Arc::new(place),
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
    client: Client,
    watcher: Watcher,
    /// Released when the connection ends.
    place: Arc<Place>,
}

impl HttpConnection {
    async fn run(self, stream: ClientStream) {
        let place = Arc::clone(&self.place);
        let work = async {
            match stream {
                ClientStream::Tcp(stream) => self.handshake(stream).await,
                ClientStream::Unix(stream) => self.handshake(stream).await,
            }
        };
        tokio::select! {
            () = work => {}
            () = place.overdue() => {}
        }
    }

    async fn handshake<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let stream = PhasedStream::new(stream, Arc::clone(&self.place));
        let mut stream = TimeoutWriter::new(stream);
        stream.set_timeout(Some(self.state.timeouts.write));
        let stream = Box::pin(stream);
        let policy = self.state.routes.web.policy().await;
        let Some(tls) = &policy.tls else { return self.serve(stream, false).await };
        let Ok(stream) = tls.accept(stream).await else { return };
        if policy.allows(stream.get_ref().1.peer_certificates()) {
            self.serve(stream, true).await;
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S, tls: bool) {
        let Self { state, address, client, watcher, place } = self;
        let listener = ListenerInfo { address, tls, client };
        let service = service_fn(|request: Request<Incoming>| {
            place.enter(Phase::Answering);
            let (routes, listener, place) = (&state.routes, &listener, Arc::clone(&place));
            async move {
                let response = routes.answer(&request, listener).await;
                place.enter(Phase::Sending);
                Ok::<_, Infallible>(response.map(|body| PhasedBody::new(body, place)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // The deadlines of the place are stricter.
            .header_read_timeout(None)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        // Errors of a connection concern only its client.
        let _ = pin!(watcher.watch(connection)).await;
    }
}

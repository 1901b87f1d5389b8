//! Accepts connections, within limits, until it is told to stop.

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

use crate::journal;
use crate::listen::{Listener, Stream};
use crate::patience::Patience;
use crate::routes::{ListenerInfo, Routes};

/// Limits that keep clients from hurting each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at once; more are turned away.
    pub(crate) connections: usize,
    /// Longest wait for the first request, a handshake included.
    pub(crate) first_request: Duration,
    /// Longest wait for the next request.
    pub(crate) next_request: Duration,
    /// The same for those who come when three of four places are taken.
    pub(crate) crowded: Duration,
    /// Longest wait for a client to take a part of an answer.
    pub(crate) write: Duration,
    /// Longest wait for the connections that are left when the exporter stops.
    pub(crate) farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            first_request: Duration::from_secs(10),
            // Above common scrape intervals, so that connections are kept.
            next_request: Duration::from_secs(150),
            crowded: Duration::from_secs(3),
            write: Duration::from_secs(10),
            farewell: Duration::from_secs(3),
        }
    }
}

/// Longest head of a request, bytes.
const HEAD: usize = 16 << 10;

/// Pause after the system refused to accept, for instance because all descriptors are in use.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// Said to a client that is one too many.
const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\
    Connection: close\r\nRetry-After: 1\r\n\r\n";

/// What all connections share.
struct House {
    routes: Arc<Routes>,
    limits: Limits,
    places: Arc<Semaphore>,
}

/// Serves until `stop` is done, and then what was asked before that.
pub(crate) async fn serve(
    listeners: Vec<Listener>,
    routes: Arc<Routes>,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let house = Arc::new(House { routes, limits, places });
    let graceful = Arc::new(GracefulShutdown::new());
    let doors: Vec<_> = listeners
        .into_iter()
        .map(|listener| tokio::spawn(door(listener, Arc::clone(&house), Arc::clone(&graceful))))
        .collect();
    stop.await;
    for door in doors {
        door.abort();
        // Its listener is closed only when it has ended.
        let _ = door.await;
    }
    if let Some(graceful) = Arc::into_inner(graceful) {
        // Those who do not leave are left.
        let _ = timeout(limits.farewell, graceful.shutdown()).await;
    }
}

async fn door(listener: Listener, house: Arc<House>, graceful: Arc<GracefulShutdown>) {
    let address: Arc<str> = listener.address().into();
    let mut refused = false;
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) if passes(&error) => continue,
            Err(error) => {
                if !refused {
                    journal::warn(&format!("cannot accept at {address}: {error}; trying again"));
                }
                refused = true;
                sleep(REFUSED_PAUSE).await;
                continue;
            }
        };
        refused = false;
        match Arc::clone(&house.places).try_acquire_owned() {
            Ok(place) => {
                let visit = Visit {
                    house: Arc::clone(&house),
                    address: Arc::clone(&address),
                    watcher: graceful.watcher(),
                    _place: place,
                };
                tokio::spawn(visit.begin(stream));
            }
            Err(_) => stream.turn_away(),
        }
    }
}

/// Errors of one connection, which say nothing about the next.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | TimedOut)
}

impl Stream {
    /// Says so if that can be done at once.
    fn turn_away(self) {
        // Nobody is owed an answer here.
        let _ = match self {
            Self::Tcp(stream) => stream.try_write(TURNED_AWAY),
            Self::Unix(stream) => stream.try_write(TURNED_AWAY),
        };
    }
}

/// One connection.
struct Visit {
    house: Arc<House>,
    address: Arc<str>,
    watcher: Watcher,
    /// Free again when the connection ends.
    _place: OwnedSemaphorePermit,
}

impl Visit {
    async fn begin(self, stream: Stream) {
        match stream {
            Stream::Tcp(stream) => self.greet(stream).await,
            Stream::Unix(stream) => self.greet(stream).await,
        }
    }

    async fn greet<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let limits = self.house.limits;
        let stream = Patience::new(stream, limits.write);
        let policy = self.house.routes.web.policy();
        let Some(tls) = &policy.tls else { return self.converse(stream, false).await };
        let Ok(Ok(stream)) = timeout(limits.first_request, tls.accept(stream)).await else {
            return;
        };
        if policy.allows(stream.get_ref().1.peer_certificates()) {
            self.converse(stream, true).await;
        }
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        stream: S,
        tls: bool,
    ) {
        let Self { house, address, watcher, _place } = self;
        let spoken = AtomicBool::new(false);
        let listener = ListenerInfo { address, tls };
        let service = service_fn(|request: Request<Incoming>| {
            spoken.store(true, Ordering::Relaxed);
            let (routes, listener) = (&house.routes, &listener);
            async move { Ok::<_, Infallible>(routes.answer(&request, listener).await) }
        });
        let limits = house.limits;
        // Those who keep places without need must not take the last ones.
        let crowded = house.places.available_permits() < limits.connections / 4;
        let next_request = if crowded { limits.crowded } else { limits.next_request };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(next_request)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), service);
        let silence = async {
            sleep(house.limits.first_request).await;
            if spoken.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        // How a connection ends concerns its client alone.
        tokio::select! {
            _ = pin!(watcher.watch(connection)) => {}
            () = silence => {}
        }
    }
}

//! Tests with clients on real sockets: many, slow, malformed, and with certificates.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::discover::DiscoverOptions;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use super::*;
use crate::fake::{DEADLINE, NEVER, PoolApp, WAIT, collector, until};
use crate::listen::bind;
use crate::options::ConnectionLimits;
use crate::scrape::Scraper;
use crate::snapshot::RenderOptions;
use crate::web::{CurrentWebPolicy, WebFiles};

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// An exporter on loopback, stopped on drop.
struct TestServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl TestServer {
    async fn start(root: &Path, limits: ConnectionLimits) -> Self {
        Self::with(root, limits, WebFiles::open(None).unwrap()).await
    }

    async fn with(root: &Path, limits: ConnectionLimits, web: WebFiles) -> Self {
        Self::timed(root, limits, ServerTimeouts { shutdown: NEVER, ..Default::default() }, web)
            .await
    }

    async fn timed(
        root: &Path,
        limits: ConnectionLimits,
        timeouts: ServerTimeouts,
        web: WebFiles,
    ) -> Self {
        let roots = vec![root.to_owned()];
        let discover = DiscoverOptions { roots, proc: None, ..DiscoverOptions::default() };
        let settings = FleetSettings { discover, ..FleetSettings::default() };
        let timeout = Duration::from_secs(5);
        let scraper = Scraper::new(settings, RenderOptions::default(), timeout, WAIT);
        let collector = collector(scraper, web, timeout, limits);
        let web = CurrentWebPolicy::open(Arc::clone(&collector), true).await.unwrap();
        let routes = Arc::new(Routes { collector, web, timeout });
        let bound = bind(&"127.0.0.1:0".parse().unwrap()).unwrap().into_iter();
        let listeners: Vec<_> =
            bound.map(|bound| HttpListener::new(bound.socket).unwrap()).collect();
        let address = listeners[0].address().parse().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let served = tokio::spawn(serve(listeners, routes, timeouts, stopped));
        Self { address, stop: Some(stop), served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Connects from another address of this machine.
    async fn connect_from(&self, client: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, client], 0))).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn ask_from(&self, client: u8, request: &[u8]) -> String {
        let mut stream = self.connect_from(client).await;
        stream.write_all(request).await.unwrap();
        answer(&mut stream).await
    }

    async fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request).await.unwrap();
        answer(&mut stream).await
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        self.served.await.unwrap();
    }
}

/// Reads one answer, by its length.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_none_or(|length| body.len() >= length.parse().unwrap()) {
                return text;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return text,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Returns whether the server closes the connection within `limit`.
async fn ends(stream: &mut TcpStream, limit: Duration) -> bool {
    let end = async {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    timeout(limit, end).await.is_ok()
}

/// Returns limits that end no connection before the test does.
fn no_timeouts() -> ConnectionLimits {
    ConnectionLimits {
        header_timeout: NEVER,
        idle_timeout: NEVER,
        response_timeout: NEVER,
        ..ConnectionLimits::default()
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test]
async fn a_persistent_connection_serves_several_requests() {
    let root = tempfile::tempdir().unwrap();
    let app = PoolApp::start(root.path(), "a");
    let server = TestServer::start(root.path(), ConnectionLimits::default()).await;
    let mut stream = server.connect().await;
    for round in 1..=3 {
        stream.write_all(GET).await.unwrap();
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("dpdk_up{app=\"a\"} 1\n"));
        assert_eq!(app.rounds(), round);
    }
    let head = server.ask(b"HEAD /healthz HTTP/1.0\r\n\r\n").await;
    assert!(head.contains("content-length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn a_hundred_concurrent_requests_share_one_query() {
    let root = tempfile::tempdir().unwrap();
    let app = PoolApp::start(root.path(), "a");
    let server = Arc::new(TestServer::start(root.path(), ConnectionLimits::default()).await);
    server.ask(GET).await;
    app.hold(true);
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.ask(GET).await })
        })
        .collect();
    let shared = "\ndpdk_exporter_shared_scrapes_total 99\n";
    let metrics = b"GET /metrics/exporter HTTP/1.1\r\nHost: x\r\n\r\n";
    until(async || server.ask(metrics).await.contains(shared)).await;
    app.hold(false);
    for client in clients {
        assert!(client.await.unwrap().contains("dpdk_up{app=\"a\"} 1\n"));
    }
    assert_eq!(app.rounds(), 2);
}

/// Value of a counter of rejected connections.
async fn rejected(server: &TestServer, client: u8, reason: &str) -> f64 {
    let page = server.ask_from(client, b"GET /metrics/exporter HTTP/1.0\r\n\r\n").await;
    let series = format!("dpdk_exporter_connections_rejected_total{{reason=\"{reason}\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&series));
    value.unwrap_or_else(|| panic!("no {series} in {page}")).parse().unwrap()
}

#[tokio::test]
async fn idle_connections_and_half_requests_of_one_client_refuse_no_other() {
    let root = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits { total: 40, per_client: 20, ..no_timeouts() };
    let server = TestServer::start(root.path(), limits).await;
    let mut attack = Vec::new();
    for number in 0..200 {
        let mut stream = server.connect_from(2).await;
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX-Half: ").await;
        }
        attack.push(stream);
        if number % 20 == 0 {
            let answer = server.ask_from(3, GET).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{number}: {answer}");
        }
    }
    // A client that attacks can still ask, because its oldest connections make room.
    assert!(server.ask_from(2, GET).await.starts_with("HTTP/1.1 200 "));
    assert!(rejected(&server, 3, "displaced").await >= 180.0);
    assert!(ends(&mut attack[0], DEADLINE).await && !ends(&mut attack[199], ms(50)).await);
}

#[tokio::test]
async fn clients_with_few_connections_keep_them_when_all_are_in_use() {
    let root = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits { total: 10, per_client: 5, ..no_timeouts() };
    let server = TestServer::start(root.path(), limits).await;
    let mut kept = server.connect_from(9).await;
    kept.write_all(GET).await.unwrap();
    assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200 "));
    let mut attack = Vec::new();
    for number in 0..50 {
        attack.push(server.connect_from(2 + number % 3).await);
    }
    assert!(server.ask_from(8, GET).await.starts_with("HTTP/1.1 200 "));
    kept.write_all(GET).await.unwrap();
    assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200 "), "the oldest, but its only one");
}

#[tokio::test]
async fn connections_with_requests_are_not_closed_for_others() {
    let root = tempfile::tempdir().unwrap();
    let app = PoolApp::start(root.path(), "a");
    let limits = ConnectionLimits { total: 4, per_client: 2, ..no_timeouts() };
    let server = TestServer::start(root.path(), limits).await;
    server.ask_from(2, GET).await;
    app.hold(true);
    let mut asked = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect_from(2).await;
        stream.write_all(GET).await.unwrap();
        asked.push(stream);
        app.asked().await;
    }
    let metrics = b"GET /metrics/exporter HTTP/1.0\r\n\r\n";
    let both = "\ndpdk_exporter_shared_scrapes_total 1\n";
    until(async || server.ask_from(3, metrics).await.contains(both)).await;
    assert!(server.ask_from(2, b"").await.starts_with("HTTP/1.1 503 "));
    assert!(rejected(&server, 3, "client_limit").await >= 1.0);
    app.hold(false);
    for mut stream in asked {
        assert!(answer(&mut stream).await.contains("dpdk_up{app=\"a\"} 1\n"));
    }
}

#[tokio::test]
async fn the_header_of_each_request_has_a_deadline() {
    let root = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits { header_timeout: ms(1000), ..no_timeouts() };
    let server = TestServer::start(root.path(), limits).await;
    let mut half = server.connect().await;
    half.write_all(GET).await.unwrap();
    assert!(answer(&mut half).await.starts_with("HTTP/1.1 200 "));
    // Idle for longer than that, and then half a request.
    assert!(!ends(&mut half, ms(1500)).await);
    half.write_all(&GET[..10]).await.unwrap();
    assert!(ends(&mut half, DEADLINE).await);
    assert!(rejected(&server, 1, "header_timeout").await >= 1.0);
}

#[tokio::test]
async fn a_client_that_reads_slowly_has_a_deadline() {
    let root = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits { response_timeout: ms(300), ..no_timeouts() };
    let server = TestServer::start(root.path(), limits).await;
    let slow = server.connect().await;
    slow.writable().await.unwrap();
    let end = Instant::now() + DEADLINE;
    // Requests without number, and none of the responses is read: until it is closed.
    let many = GET.repeat(100);
    loop {
        match slow.try_write(&many) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(ms(10)).await,
            Err(_) => break,
        }
        assert!(Instant::now() < end, "it is not closed");
        tokio::task::yield_now().await;
    }
    assert!(rejected(&server, 1, "response_timeout").await >= 1.0);
}

#[tokio::test]
async fn a_silent_client_and_a_slow_one_are_disconnected() {
    let root = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits { header_timeout: ms(700), ..no_timeouts() };
    let server = TestServer::start(root.path(), limits).await;
    let mut silent = server.connect().await;
    let mut slow = server.connect().await;
    let endless_request = async {
        slow.write_all(b"GET /metrics HTTP/1.1\r\nX-Endless: ").await?;
        loop {
            slow.write_all(b"x").await?;
            sleep(ms(20)).await;
        }
    };
    let end: Result<std::io::Result<()>, _> = timeout(DEADLINE, endless_request).await;
    assert!(end.unwrap().is_err());
    assert!(ends(&mut slow, DEADLINE).await);
    assert!(ends(&mut silent, DEADLINE).await);
}

#[tokio::test]
async fn a_client_with_a_request_has_a_longer_idle_timeout() {
    let root = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits { header_timeout: ms(1500), ..no_timeouts() };
    let server = TestServer::start(root.path(), limits).await;
    let mut kept = server.connect().await;
    kept.write_all(GET).await.unwrap();
    assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200 "));
    sleep(limits.header_timeout + ms(500)).await;
    kept.write_all(GET).await.unwrap();
    assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200 "), "kept beyond the first wait");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let root = tempfile::tempdir().unwrap();
    let limits = ConnectionLimits { idle_timeout: ms(1000), ..no_timeouts() };
    let server = TestServer::start(root.path(), limits).await;
    let mut idle = server.connect().await;
    idle.write_all(GET).await.unwrap();
    assert!(answer(&mut idle).await.starts_with("HTTP/1.1 200 "));
    assert!(ends(&mut idle, DEADLINE).await);
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other() {
    let root = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..8).map(|n| format!("app-{n}")).collect();
    let _apps: Vec<_> = names.iter().map(|name| PoolApp::start(root.path(), name)).collect();
    let limits = ConnectionLimits { total: 1, ..no_timeouts() };
    let timeouts = ServerTimeouts { write: ms(200), ..ServerTimeouts::default() };
    let web = WebFiles::open(None).unwrap();
    let server = TestServer::timed(root.path(), limits, timeouts, web).await;
    let rude = server.connect().await;
    rude.writable().await.unwrap();
    // Many answers that are not read fill the buffers of both sides.
    let mut asked = 0;
    while asked < 2000 && rude.try_write(GET).is_ok() {
        asked += 1;
    }
    // Before its first answer it waits, and would be closed for the next client.
    rude.readable().await.unwrap();
    let began = Instant::now();
    until(async || server.ask(GET).await.starts_with("HTTP/1.1 200 ")).await;
    assert!(began.elapsed() >= timeouts.write / 2, "it was waited for: {:?}", began.elapsed());
}

#[tokio::test]
async fn an_invalid_request_only_closes_its_connection() {
    let root = tempfile::tempdir().unwrap();
    let server = TestServer::start(root.path(), no_timeouts()).await;
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(2 * MAX_HEADER_BYTES));
    let headers = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(500));
    for request in
        [b"\x16\x03\x01\x00".as_slice(), b"\r\n\r\n\0\0", long.as_bytes(), headers.as_bytes()]
    {
        let mut stream = server.connect().await;
        let _ = stream.write_all(request).await;
        let _ = stream.shutdown().await;
        assert!(ends(&mut stream, DEADLINE).await);
    }
    assert!(server.ask(GET).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_request_body_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    let server = TestServer::start(root.path(), no_timeouts()).await;
    let mut stream = server.connect().await;
    let head = b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n";
    stream.write_all(head).await.unwrap();
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 405 "));
    assert!(ends(&mut stream, DEADLINE).await);
}

#[tokio::test]
async fn a_running_scrape_is_answered_at_shutdown() {
    let root = tempfile::tempdir().unwrap();
    let app = PoolApp::start(root.path(), "a");
    let server = TestServer::start(root.path(), no_timeouts()).await;
    server.ask(GET).await;
    app.hold(true);
    let mut stream = server.connect().await;
    stream.write_all(GET).await.unwrap();
    app.asked().await;
    let address = server.address;
    let stopping = tokio::spawn(server.stop());
    until(async || TcpStream::connect(address).await.is_err()).await;
    app.hold(false);
    assert!(answer(&mut stream).await.contains("dpdk_up{app=\"a\"} 1\n"));
    stopping.await.unwrap();
}

/// A certificate authority.
struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

impl TestAuthority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(parameters, key).unwrap())
    }

    /// Returns a certificate and its key, as PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        let key = KeyPair::generate().unwrap();
        (parameters.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn client(
        &self,
        identity: Option<&(String, String)>,
        version: &'static SupportedProtocolVersion,
    ) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

/// Writes certificate, key and authority below `dir`, and a web configuration with `more` TLS settings.
fn tls_files(dir: &Path, authority: &TestAuthority, more: &str) -> std::path::PathBuf {
    let (certificate, key) = authority.sign("localhost");
    std::fs::write(dir.join("cert.pem"), certificate).unwrap();
    std::fs::write(dir.join("key.pem"), key).unwrap();
    std::fs::write(dir.join("ca.pem"), authority.0.pem()).unwrap();
    let config = dir.join("web.yml");
    let text = format!("tls_server_config: {{cert_file: cert.pem, key_file: key.pem{more}}}\n");
    std::fs::write(&config, text).unwrap();
    config
}

async fn ask_tls(server: &TestServer, client: &TlsConnector) -> Option<String> {
    let name = "localhost".to_owned().try_into().unwrap();
    let mut stream = client.connect(name, server.connect().await).await.ok()?;
    stream.write_all(GET).await.ok()?;
    Some(answer(&mut stream).await).filter(|answer| !answer.is_empty())
}

#[tokio::test]
async fn metrics_come_over_tls_of_the_configured_versions() {
    let root = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new();
    let config = tls_files(root.path(), &authority, ", min_version: TLS13");
    let server = TestServer::with(
        root.path(),
        ConnectionLimits::default(),
        WebFiles::open(Some(&config)).unwrap(),
    )
    .await;
    let answer = ask_tls(&server, &authority.client(None, &TLS13)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(ask_tls(&server, &authority.client(None, &TLS12)).await, None);
    assert_eq!(ask_tls(&server, &TestAuthority::new().client(None, &TLS13)).await, None);
    assert!(!server.ask(GET).await.contains("HTTP/1.1 200"), "clear text is not answered");
}

#[tokio::test]
async fn clients_need_the_right_certificate() {
    let root = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new();
    let more = ", client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert, \
                client_allowed_sans: [prometheus.example]";
    let config = tls_files(root.path(), &authority, more);
    let server = TestServer::with(
        root.path(),
        ConnectionLimits::default(),
        WebFiles::open(Some(&config)).unwrap(),
    )
    .await;
    let right = authority.sign("prometheus.example");
    let other = authority.sign("other.example");
    let forged = TestAuthority::new().sign("prometheus.example");
    for (identity, admitted) in
        [(Some(&right), true), (Some(&other), false), (Some(&forged), false), (None, false)]
    {
        let answer = ask_tls(&server, &authority.client(identity, &TLS13)).await;
        assert_eq!(answer.is_some(), admitted);
    }
}

#[tokio::test]
async fn certificates_are_read_again_and_broken_ones_are_not_used() {
    let root = tempfile::tempdir().unwrap();
    let (old, new) = (TestAuthority::new(), TestAuthority::new());
    let config = tls_files(root.path(), &old, "");
    let server = TestServer::with(
        root.path(),
        ConnectionLimits::default(),
        WebFiles::open(Some(&config)).unwrap(),
    )
    .await;
    let (old, new_client) = (old.client(None, &TLS13), new.client(None, &TLS13));
    assert!(ask_tls(&server, &old).await.is_some());
    std::fs::write(root.path().join("cert.pem"), "no certificate").unwrap();
    sleep(ms(1050)).await;
    assert!(ask_tls(&server, &old).await.is_some(), "the last good one stays in use");
    tls_files(root.path(), &new, "");
    sleep(ms(1050)).await;
    assert!(ask_tls(&server, &old).await.is_none());
    assert!(ask_tls(&server, &new_client).await.is_some());
    std::fs::write(&config, "").unwrap();
    sleep(ms(1050)).await;
    assert!(ask_tls(&server, &new_client).await.is_some(), "TLS does not go away");
}

#[tokio::test]
async fn passwords_are_required_and_headers_added() {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("web.yml");
    let hash = bcrypt::hash("secret", 4).unwrap();
    let text = format!(
        "basic_auth_users: {{ann: {hash}}}\n\
         http_server_config: {{headers: {{X-Frame-Options: deny}}}}\n"
    );
    std::fs::write(&config, text).unwrap();
    let server =
        TestServer::with(root.path(), no_timeouts(), WebFiles::open(Some(&config)).unwrap()).await;
    let authorized = |credentials: &str| {
        format!("GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {credentials}\r\n\r\n")
    };
    // ann:secret, ann:wrong
    let admitted = server.ask(authorized("YW5uOnNlY3JldA==").as_bytes()).await;
    assert!(admitted.starts_with("HTTP/1.1 200 "), "{admitted}");
    assert!(admitted.contains("x-frame-options: deny\r\n"));
    for request in [GET.to_vec(), authorized("YW5uOndyb25n").into_bytes()] {
        let mut stream = server.connect().await;
        stream.write_all(&request).await.unwrap();
        let refused = answer(&mut stream).await;
        assert!(ends(&mut stream, DEADLINE).await, "its place is free again");
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
        assert!(refused.contains("www-authenticate: Basic realm="));
        assert!(!refused.contains("dpdk_"));
    }
}

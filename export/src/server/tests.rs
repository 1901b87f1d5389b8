//! Tests with clients on real sockets: many, slow, malformed, and with certificates.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use pmdscope_telemetry::FleetSettings;
use pmdscope_telemetry::discover::DiscoverOptions;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use super::*;
use crate::fake::{DEADLINE, NEVER, PoolApp, WAIT, until};
use crate::listen::bind;
use crate::scrape::Scraper;
use crate::snapshot::RenderOptions;
use crate::web::ReloadingWebPolicy;

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// An exporter on loopback, stopped on drop.
struct TestServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl TestServer {
    fn start(root: &Path, limits: ServerLimits) -> Self {
        Self::with(root, limits, ReloadingWebPolicy::open(None).unwrap())
    }

    fn with(root: &Path, limits: ServerLimits, web: ReloadingWebPolicy) -> Self {
        let roots = vec![root.to_owned()];
        let discover = DiscoverOptions { roots, proc: None, ..DiscoverOptions::default() };
        let settings = FleetSettings { discover, ..FleetSettings::default() };
        let scraper =
            Scraper::new(settings, RenderOptions::default(), Duration::from_secs(5), WAIT);
        let routes = Arc::new(Routes { scraper, web, timeout: Duration::from_secs(5) });
        let listeners = bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listeners[0].address().parse().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let served = tokio::spawn(serve(listeners, routes, limits, stopped));
        Self { address, stop: Some(stop), served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
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
fn no_timeouts() -> ServerLimits {
    ServerLimits {
        first_request_timeout: NEVER,
        keep_alive_timeout: NEVER,
        shutdown_timeout: NEVER,
        ..ServerLimits::default()
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test]
async fn a_persistent_connection_serves_several_requests() {
    let root = tempfile::tempdir().unwrap();
    let app = PoolApp::start(root.path(), "a");
    let server = TestServer::start(root.path(), ServerLimits::default());
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
    let server = Arc::new(TestServer::start(root.path(), ServerLimits::default()));
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

#[tokio::test]
async fn a_connection_beyond_the_limit_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let server = TestServer::start(
        root.path(),
        ServerLimits { max_connections: 2, ..ServerLimits::default() },
    );
    let (mut first, _second) = (server.connect().await, server.connect().await);
    first.write_all(GET).await.unwrap();
    answer(&mut first).await;
    let mut third = server.connect().await;
    assert!(answer(&mut third).await.starts_with("HTTP/1.1 503 "));
    assert!(ends(&mut third, DEADLINE).await);
    drop(first);
    // A released permit is used again.
    until(async || server.ask(GET).await.starts_with("HTTP/1.1 200 ")).await;
}

#[tokio::test]
async fn the_last_connections_are_not_kept_alive() {
    let root = tempfile::tempdir().unwrap();
    let limits = ServerLimits {
        max_connections: 4,
        crowded_keep_alive_timeout: ms(2000),
        ..ServerLimits::default()
    };
    let server = TestServer::start(root.path(), limits);
    let mut kept = Vec::new();
    for _ in 0..4 {
        let mut stream = server.connect().await;
        stream.write_all(GET).await.unwrap();
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200 "));
        kept.push(stream);
    }
    assert!(ends(&mut kept[3], DEADLINE).await);
    assert!(!ends(&mut kept[0], ms(300)).await);
    assert!(server.ask(GET).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_silent_client_and_a_slow_one_are_disconnected() {
    let root = tempfile::tempdir().unwrap();
    let limits = ServerLimits { first_request_timeout: ms(700), ..no_timeouts() };
    let server = TestServer::start(root.path(), limits);
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
    let limits = ServerLimits { first_request_timeout: ms(3000), ..no_timeouts() };
    let server = TestServer::start(root.path(), limits);
    let mut kept = server.connect().await;
    kept.write_all(GET).await.unwrap();
    assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200 "));
    sleep(limits.first_request_timeout + ms(500)).await;
    kept.write_all(GET).await.unwrap();
    assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200 "), "kept beyond the first wait");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let root = tempfile::tempdir().unwrap();
    let limits = ServerLimits { keep_alive_timeout: ms(2000), ..no_timeouts() };
    let server = TestServer::start(root.path(), limits);
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
    let limits =
        ServerLimits { max_connections: 1, write_timeout: ms(200), ..ServerLimits::default() };
    let server = TestServer::start(root.path(), limits);
    let rude = server.connect().await;
    rude.writable().await.unwrap();
    // Many answers that are not read fill the buffers of both sides.
    let mut asked = 0;
    while asked < 2000 && rude.try_write(GET).is_ok() {
        asked += 1;
    }
    let began = Instant::now();
    until(async || server.ask(GET).await.starts_with("HTTP/1.1 200 ")).await;
    assert!(began.elapsed() >= limits.write_timeout, "it was waited for: {:?}", began.elapsed());
}

#[tokio::test]
async fn an_invalid_request_only_closes_its_connection() {
    let root = tempfile::tempdir().unwrap();
    let server = TestServer::start(root.path(), no_timeouts());
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
    let server = TestServer::start(root.path(), no_timeouts());
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
    let server = TestServer::start(root.path(), no_timeouts());
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
        ServerLimits::default(),
        ReloadingWebPolicy::open(Some(&config)).unwrap(),
    );
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
        ServerLimits::default(),
        ReloadingWebPolicy::open(Some(&config)).unwrap(),
    );
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
        ServerLimits::default(),
        ReloadingWebPolicy::open(Some(&config)).unwrap(),
    );
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
    let server = TestServer::with(
        root.path(),
        no_timeouts(),
        ReloadingWebPolicy::open(Some(&config)).unwrap(),
    );
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

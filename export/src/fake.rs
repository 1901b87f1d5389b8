//! A fake app with a pool and without ports, for tests that need slow apps.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pmdscope_testing::FakeApp;

use crate::channel::{self, Channel};
use crate::collector::Collector;
use crate::collector_client::CollectorClient;
use crate::connections::ConnectionTable;
use crate::options::ConnectionLimits;
use crate::scrape::{Scraper, WaitLimits};
use crate::web::WebFiles;

/// Longest wait for an event that is certain to happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Longer than any test runs.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

/// Limits that wait for any app that answers, on slow machines as well.
pub(crate) const WAIT: WaitLimits = WaitLimits { first: NEVER, answer: NEVER, slot: NEVER };

/// Number of objects of the pool.
const POOL_SIZE: usize = 1000;

/// Returns the reply about the pool with this many objects in use.
fn pool(in_use: usize) -> String {
    format!(
        r#"{{"/mempool/info":{{"name":"pool","pool_id":0,"flags":16,"socket_id":0,
        "size":{POOL_SIZE},"cache_size":0,"elt_size":64,"header_size":64,"trailer_size":0,
        "private_data_size":0,"ops_index":7,"populated_size":{POOL_SIZE},"total_cache_count":0,
        "common_pool_count":{}}}}}"#,
        POOL_SIZE - in_use
    )
}

/// An app that runs until it is dropped.
pub(crate) struct PoolApp(FakeApp);

impl PoolApp {
    /// Starts an app with this file-prefix below `root`. In each round one more object is in use.
    pub(crate) fn start(root: &Path, name: &str) -> Self {
        let socket = root.join("dpdk").join(name).join("dpdk_telemetry.v2");
        let rounds = AtomicUsize::new(0);
        let app = FakeApp::answering(&socket, move |request| {
            let reply = match request.split(',').next().unwrap_or_default() {
                "/" => r#"{"/":["/","/ethdev/list","/mempool/list","/mempool/info"]}"#,
                "/ethdev/list" => r#"{"/ethdev/list":[]}"#,
                "/mempool/list" => r#"{"/mempool/list":["pool"]}"#,
                "/mempool/info" => return Some(pool(1 + rounds.fetch_add(1, Ordering::Relaxed))),
                _ => return None,
            };
            Some(reply.to_owned())
        });
        Self(app.unwrap())
    }

    /// Stops answering, or answers all requests again.
    pub(crate) fn hold(&self, held: bool) {
        self.0.hold(held);
    }

    /// Waits until a client waits for an answer.
    pub(crate) async fn asked(&self) {
        until(async || self.0.unanswered() > 0).await;
    }

    /// Returns the number of rounds, each of which asks once for the occupancy of the pool.
    pub(crate) fn rounds(&self) -> usize {
        let exchanges = self.0.exchanges();
        exchanges.iter().filter(|exchange| exchange.request.starts_with("/mempool/info")).count()
    }
}

/// Starts a collector in a task, and returns the other end of its channel.
pub(crate) fn collector(
    scraper: Arc<Scraper>,
    web: WebFiles,
    timeout: Duration,
    limits: ConnectionLimits,
) -> Arc<CollectorClient> {
    let (network, end) = channel::pair().unwrap();
    let thresholds = Arc::new(|| Err("no file".to_owned()));
    let end = Channel::new(end).unwrap();
    tokio::spawn(Collector::new(end, scraper, web, thresholds, timeout, limits.total).run());
    CollectorClient::new(Channel::new(network).unwrap(), ConnectionTable::new(limits))
}

/// Waits until a condition is true.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "what is sure to come has not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

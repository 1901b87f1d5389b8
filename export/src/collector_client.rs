//! The collector, as the network process sees it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::channel::Channel;
use crate::connections::ConnectionTable;
use crate::document::Document;
use crate::journal;
use crate::message::{Answer, Content, NetworkCounts, Question, ToCollector};
use crate::metrics::PushCounters;

/// Longest wait for the end of the collector.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The collector process has ended, or is about to.
#[derive(Debug, thiserror::Error)]
#[error("the collector process has ended")]
pub(crate) struct CollectorGone;

type Reply = (Content, Option<Document>);

/// Asks the collector.
#[derive(Debug)]
pub(crate) struct CollectorClient {
    outgoing: mpsc::UnboundedSender<ToCollector>,
    last: AtomicU64,
    /// Those who wait for answers, by the number of the question; `None` after the collector has ended.
    waiting: Mutex<Option<BTreeMap<u64, oneshot::Sender<Reply>>>>,
    ended: watch::Sender<bool>,
    pub(crate) connections: Arc<ConnectionTable>,
    pub(crate) pushes: Arc<PushCounters>,
}

impl CollectorClient {
    /// Speaks to the collector at the other end of a channel, in tasks of its own.
    pub(crate) fn new(channel: Channel, connections: Arc<ConnectionTable>) -> Arc<Self> {
        let channel = Arc::new(channel);
        let (outgoing, mut to_send) = mpsc::unbounded_channel::<ToCollector>();
        let client = Arc::new(Self {
            outgoing,
            last: AtomicU64::new(0),
            waiting: Mutex::new(Some(BTreeMap::new())),
            ended: watch::channel(false).0,
            connections,
            pushes: Arc::default(),
        });
        let sending = Arc::clone(&channel);
        tokio::spawn(async move {
            while let Some(message) = to_send.recv().await {
                if sending.send(&message, None).await.is_err() {
                    // The other task sees the end as well.
                    return;
                }
            }
        });
        tokio::spawn(Arc::clone(&client).receive(channel));
        client
    }

    async fn receive(self: Arc<Self>, channel: Arc<Channel>) {
        loop {
            let (answer, file) = match channel.receive::<Answer>().await {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(error) => {
                    journal::warn(&format!("collector: {error}"));
                    break;
                }
            };
            let waiting = self.waiting().as_mut().and_then(|waiting| waiting.remove(&answer.id));
            let document = file.map(Document::of).transpose();
            // A client that has left does not wait any more.
            if let (Some(waiting), Ok(document)) = (waiting, document) {
                let _ = waiting.send((answer.content, document));
            }
        }
        // Nobody waits any more.
        *self.waiting() = None;
        self.ended.send_replace(true);
    }

    /// Returns the answer to a question.
    ///
    /// # Errors
    /// Fails if the collector has ended.
    pub(crate) async fn ask(self: &Arc<Self>, question: Question) -> Result<Reply, CollectorGone> {
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting().as_mut().ok_or(CollectorGone)?.insert(id, sender);
        let counts =
            NetworkCounts { connections: self.connections.counts(), pushes: self.pushes.read() };
        let asked = AskedQuestion { client: Arc::clone(self), id };
        let ask = ToCollector::Ask { id, question, counts };
        self.outgoing.send(ask).map_err(|_| CollectorGone)?;
        let answered = answer.await.map_err(|_| CollectorGone);
        drop(asked);
        answered
    }

    /// Tells the collector that this process is about to end, and waits until it has ended.
    pub(crate) async fn stop(&self) {
        let _ = self.outgoing.send(ToCollector::Stopping);
        let _ = timeout(STOP_TIMEOUT, self.ended()).await;
    }

    /// Waits until the collector has ended.
    pub(crate) async fn ended(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    fn waiting(&self) -> MutexGuard<'_, Option<BTreeMap<u64, oneshot::Sender<Reply>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question; when nobody waits for its answer any more, the collector need not work on it.
struct AskedQuestion {
    client: Arc<CollectorClient>,
    id: u64,
}

impl Drop for AskedQuestion {
    fn drop(&mut self) {
        let unanswered =
            self.client.waiting().as_mut().and_then(|waiting| waiting.remove(&self.id));
        if unanswered.is_some() {
            let _ = self.client.outgoing.send(ToCollector::Forget { id: self.id });
        }
    }
}

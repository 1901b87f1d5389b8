//! The process that asks the apps. It answers the questions of the network process, and checks them: that
//! process may have been taken over.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{AbortHandle, spawn_blocking};

use crate::channel::{Channel, ChannelError};
use crate::document::Document;
use crate::journal;
use crate::message::{Answer, Content, Page, Question, ToCollector};
use crate::otlp::ExporterIdentity;
use crate::pages;
use crate::scrape::Scraper;
use crate::service::ThresholdReader;
use crate::web::WebFiles;

/// Questions besides those of connections: pings, pushes, the web configuration, thresholds.
const OTHER_QUESTIONS: usize = 16;

/// Why the collector ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectorError {
    /// The network process did something that it never does.
    #[error("the network process misbehaves, and the exporter ends: {0}")]
    Misbehaviour(String),
    /// The network process was killed, or failed.
    #[error("the network process has ended, and the exporter ends as well")]
    Abandoned,
}

impl From<ChannelError> for CollectorError {
    fn from(error: ChannelError) -> Self {
        Self::Misbehaviour(error.to_string())
    }
}

/// What answers questions.
pub(crate) struct Collector {
    scraper: Arc<Scraper>,
    exporter: ExporterIdentity,
    web: Mutex<WebFiles>,
    thresholds: Arc<ThresholdReader>,
    /// Longest time of a scrape.
    timeout: Duration,
    /// Most questions at a time.
    max_questions: usize,
    channel: Channel,
    /// Questions that are being answered.
    running: Mutex<BTreeMap<u64, AbortHandle>>,
}

impl Collector {
    pub(crate) fn new(
        channel: Channel,
        scraper: Arc<Scraper>,
        web: WebFiles,
        thresholds: Arc<ThresholdReader>,
        timeout: Duration,
        max_connections: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            scraper,
            exporter: ExporterIdentity::new(),
            web: Mutex::new(web),
            thresholds,
            timeout,
            max_questions: max_connections + OTHER_QUESTIONS,
            channel,
            running: Mutex::default(),
        })
    }

    /// Answers until the network process ends.
    ///
    /// # Errors
    /// Fails if that process misbehaves, or ends without notice.
    pub(crate) async fn run(self: Arc<Self>) -> Result<(), CollectorError> {
        while let Some((message, file)) = self.channel.receive::<ToCollector>().await? {
            if file.is_some() {
                return Err(CollectorError::Misbehaviour("it passes a file".to_owned()));
            }
            match message {
                ToCollector::Ask { id, question, counts } => {
                    question.check().map_err(CollectorError::Misbehaviour)?;
                    self.scraper.render_options().set_network(counts);
                    self.begin(id, question)?;
                }
                ToCollector::Forget { id } => {
                    if let Some(question) = self.running().remove(&id) {
                        question.abort();
                    }
                }
                ToCollector::Stopping => return Ok(()),
            }
        }
        Err(CollectorError::Abandoned)
    }

    fn begin(self: &Arc<Self>, id: u64, question: Question) -> Result<(), CollectorError> {
        let mut running = self.running();
        if running.len() >= self.max_questions || running.contains_key(&id) {
            let number = running.len();
            return Err(CollectorError::Misbehaviour(format!("question {id} beside {number}")));
        }
        let collector = Arc::clone(self);
        let task = tokio::spawn(async move { collector.answer(id, question).await });
        running.insert(id, task.abort_handle());
        Ok(())
    }

    async fn answer(self: Arc<Self>, id: u64, question: Question) {
        let (content, document) = match self.content(question).await {
            Ok((content, document)) => (content, document),
            Err(error) => {
                journal::warn(&format!("cannot answer a request: {error}"));
                (Content::Failed, None)
            }
        };
        self.running().remove(&id);
        let file = document.as_ref().map(Document::descriptor);
        // If the network process has ended, nobody waits.
        let _ = self.channel.send(&Answer { id, content }, file).await;
    }

    async fn content(&self, question: Question) -> io::Result<(Content, Option<Document>)> {
        match question {
            Question::Page { page, within } => {
                let deadline = Instant::now() + within.min(self.timeout);
                let broken = (page == Page::Overview)
                    .then(|| self.web().reload_error().map(str::to_owned))
                    .flatten();
                let page =
                    pages::page(&self.scraper, &self.exporter, page, deadline, broken).await?;
                Ok((page.0, Some(page.1)))
            }
            Question::Web { known } => {
                let update = self.web().update(known);
                let text = serde_json::to_vec(&update).map_err(io::Error::other)?;
                Ok((Content::Web, Some(Document::new(&text)?)))
            }
            Question::Reload => {
                self.reload().await;
                Ok((Content::Done, None))
            }
            Question::Ping => Ok((Content::Done, None)),
        }
    }

    /// Reads the thresholds again.
    async fn reload(&self) {
        let thresholds = Arc::clone(&self.thresholds);
        match spawn_blocking(move || thresholds()).await {
            Ok(Ok(thresholds)) => {
                self.scraper.set_thresholds(thresholds);
                journal::note("thresholds reloaded");
            }
            Ok(Err(errors)) => {
                errors.lines().for_each(journal::warn);
                journal::warn("thresholds not reloaded; the previous ones stay in force");
            }
            Err(error) => journal::warn(&format!("thresholds not reloaded: {error}")),
        }
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, AbortHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn web(&self) -> MutexGuard<'_, WebFiles> {
        self.web.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Asks apps when somebody wants to know, and only then: no timer, no cache.
//!
//! Each app is asked by at most one thread at a time; whoever wants to know while it is asked shares
//! the answer. A request waits for the apps that it is about and for no other, and no longer than its
//! deadline: what has not answered by then is told as late, and the rest as it is.

mod scheduler;
mod scope;
#[cfg(test)]
mod tests;
mod worker_pool;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pmdscope_telemetry::fleet::FleetSettings;
use tokio::sync::oneshot;

use crate::snapshot::{ExpositionForm, RenderOptions, ScrapeSnapshot};
use scheduler::{Scheduler, ScrapeRequest};
pub(crate) use scope::ScrapeScope;
use worker_pool::WorkerPool;

/// Answers requests about apps.
#[derive(Debug)]
pub(crate) struct Scraper(WorkerPool);

impl Scraper {
    /// Has asked nobody yet; gives each app `timeout`, whatever the deadlines of requests are.
    pub(crate) fn new(
        settings: FleetSettings,
        render_options: RenderOptions,
        timeout: Duration,
    ) -> Self {
        Self(WorkerPool::new(Scheduler::new(settings, render_options, timeout)))
    }

    /// What is known at `deadline`, or as soon as all that is wanted is known. A `form` that is named
    /// has been put together by then, off the caller's thread.
    pub(crate) async fn snapshot(
        &self,
        scope: ScrapeScope,
        form: Option<ExpositionForm>,
        deadline: Instant,
    ) -> Arc<ScrapeSnapshot> {
        let (answer, answered) = oneshot::channel();
        self.0.accept(ScrapeRequest::new(scope.clone(), form, answer));
        match tokio::time::timeout_at(deadline.into(), answered).await {
            Ok(Ok(snapshot)) => snapshot,
            _ => Arc::new(self.0.late(&scope)),
        }
    }
}

//! Connects to many apps at the same time, to find out which of them answer.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::stop::StopFlag;
use super::users::Crowd;
use super::{DiscoveredApp, Reachability, UnreachableReason};
use crate::client::Greeting;
use crate::deadline::Deadline;
use crate::error::TelemetryError;
use crate::reply::SocketBanner;

/// Connections at the same time. Each needs two descriptors, of which a process usually has 1024.
const AT_ONCE: usize = 400;

/// Interval of attempts to connect to an app whose backlog is full.
const RETRY: Duration = Duration::from_millis(5);

/// Interval of checks whether the search has been interrupted.
const STOP_STEP: Duration = Duration::from_millis(50);

/// An app that has not sent its banner yet.
struct Visit {
    app: DiscoveredApp,
    greeting: Greeting,
}

/// Returns the apps with their states: each is connected to, and its banner awaited, all of them until
/// one deadline. The first ones are connected to first. Apps of other users beyond the limit of the
/// crowd are missing.
///
/// DPDK before 22.11.5 leaks a connection when a client closes it before the banner, so waiting for it
/// also protects the app.
pub(super) fn identify(
    apps: Vec<DiscoveredApp>,
    crowd: &mut Crowd,
    deadline: Deadline,
    stop: &StopFlag,
) -> Vec<DiscoveredApp> {
    let mut apps = VecDeque::from(apps);
    let (mut found, mut waiting) = (Vec::new(), Vec::<Visit>::new());
    let mut buffer = Vec::new();
    loop {
        let is_over = deadline.passed() || stop.is_set();
        while !is_over && waiting.len() < AT_ONCE {
            let Some(app) = apps.pop_front() else { break };
            match begin(app, crowd) {
                Ok(visit) => waiting.extend(visit),
                Err(app) => found.push(*app),
            }
        }
        for mut visit in std::mem::take(&mut waiting) {
            match visit.advance(&mut buffer) {
                Ok(None) => waiting.push(visit),
                Ok(Some(banner)) => found.push(visit.end(Ok(banner))),
                Err(error) => found.push(visit.end(Err(error))),
            }
        }
        if is_over || (waiting.is_empty() && apps.is_empty()) {
            break;
        }
        wait(&waiting, deadline);
    }
    let timeout = |visit: Visit| visit.end(Err(TelemetryError::Timeout("looking for apps")));
    found.extend(waiting.into_iter().map(timeout));
    let late = Reachability::Unreachable(UnreachableReason::Timeout);
    found.extend(apps.into_iter().map(|app| DiscoveredApp { state: late, ..app }));
    found
}

/// Connects to an app. Nothing is returned for one that is left out, and the app itself if that is all
/// that is to be known.
fn begin(app: DiscoveredApp, crowd: &mut Crowd) -> Result<Option<Visit>, Box<DiscoveredApp>> {
    let mut greeting = match Greeting::new(&app.socket) {
        Ok(greeting) => greeting,
        Err(error) => return Err(Box::new(judged(app, Err(error)))),
    };
    let connected = greeting.connect();
    // What nobody serves is no app, however many of these there are.
    if !matches!(connected, Err(TelemetryError::Refused)) && !crowd.admits(app.user.as_deref()) {
        return Ok(None);
    }
    let visit = Visit { app, greeting };
    match connected {
        Ok(_) => Ok(Some(visit)),
        Err(error) => Err(Box::new(visit.end(Err(error)))),
    }
}

/// Waits until one of these apps may have sent its banner.
fn wait(waiting: &[Visit], deadline: Deadline) {
    let connected = waiting.iter().filter(|visit| visit.greeting.peer.is_some());
    let mut ready: Vec<_> =
        connected.map(|visit| PollFd::new(&visit.greeting, PollFlags::IN)).collect();
    let step = if ready.len() < waiting.len() { RETRY } else { STOP_STEP };
    let step = Timespec::try_from(step.min(deadline.remaining())).ok();
    // A signal may have interrupted the search.
    let _ = poll(&mut ready, step.as_ref());
}

impl Visit {
    /// Goes on as far as possible without waiting; `None` before the banner.
    fn advance(&mut self, buffer: &mut Vec<u8>) -> Result<Option<SocketBanner>, TelemetryError> {
        match self.greeting.connect()? {
            Some(()) => self.greeting.banner(buffer),
            None => Ok(None),
        }
    }

    fn end(mut self, result: Result<SocketBanner, TelemetryError>) -> DiscoveredApp {
        self.app.pid = self.greeting.peer.map(|peer| peer.pid).filter(|pid| *pid > 0);
        judged(self.app, result)
    }
}

/// Returns the app with what the attempt to connect to it shows.
fn judged(mut app: DiscoveredApp, result: Result<SocketBanner, TelemetryError>) -> DiscoveredApp {
    app.state = match result {
        Ok(banner) => {
            app.dpdk_version = Some(banner.version);
            Reachability::Live
        }
        Err(TelemetryError::Refused) => Reachability::Stale,
        Err(error) => Reachability::Unreachable(error.class().into()),
    };
    app
}

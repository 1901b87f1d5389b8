//! One round of requests: collects failures, and makes no more requests once the connection is lost.

use std::fmt::Display;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed};

use crate::client::{LIST_LIMIT, TelemetryClient};
use crate::commands::TelemetryCommand;
use crate::deadline::Deadline;
use crate::error::TelemetryError;
use crate::sample::CUT_LIST;

/// Attempts of a request with a null reply or a reply about something else: while other programs
/// query the same app, DPDK may mix up the parameters (see [`AppLock`](crate::AppLock)).
const ATTEMPTS: u32 = 2;

pub(super) struct RequestRound<'a> {
    client: &'a mut TelemetryClient,
    deadline: Deadline,
    requests_before: u32,
    answered: bool,
    lost: Option<TelemetryError>,
    /// The first failure that did not end the connection.
    failed: Option<TelemetryError>,
    partial: Vec<String>,
}

impl<'a> RequestRound<'a> {
    pub(super) fn new(client: &'a mut TelemetryClient, deadline: Deadline) -> Self {
        let requests_before = client.requests();
        Self {
            client,
            deadline,
            requests_before,
            answered: false,
            lost: None,
            failed: None,
            partial: Vec::new(),
        }
    }

    /// Returns the number of requests in this round.
    pub(super) fn requests(&self) -> u32 {
        self.client.requests() - self.requests_before
    }

    /// Records a part that failed, and the reason.
    pub(super) fn note(&mut self, part: impl Display, reason: impl Display) {
        self.partial.push(format!("{part}: {reason}"));
    }

    /// Ends the round; returns the parts that failed.
    ///
    /// # Errors
    /// The loss of the connection, if nothing was `learned` or answered; or the first failure, if
    /// nothing was answered in this round: then all data are from the cache.
    pub(super) fn finish(self, learned: bool) -> Result<Vec<String>, TelemetryError> {
        self.client.withdraw(self.deadline);
        match (self.lost, self.failed) {
            (Some(error), _) if !(learned && self.answered) => Err(error),
            (None, Some(error)) if !self.answered => Err(error),
            _ => Ok(self.partial),
        }
    }

    /// Whether the connection is lost, so that nothing more can be requested.
    pub(super) fn is_over(&self) -> bool {
        self.lost.is_some() || !self.client.is_usable()
    }

    /// Whether all requests so far succeeded.
    pub(super) fn is_without_failure(&self) -> bool {
        self.partial.is_empty()
    }

    /// Makes a request; records the part if that fails.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, endpoint: &TelemetryCommand) -> Option<T> {
        let asked = self.request(endpoint);
        self.keep(endpoint, asked)
    }

    /// Makes a request as [`RequestRound::ask`], for a reply that names its subject; `subject` must
    /// accept it.
    pub(super) fn ask_about<T: DeserializeOwned>(
        &mut self,
        endpoint: &TelemetryCommand,
        subject: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let asked = self.request_about(endpoint, subject);
        self.keep(endpoint, asked)
    }

    /// Requests a list; records the part if it fails or may be truncated.
    pub(super) fn list<T>(
        &mut self,
        endpoint: &TelemetryCommand,
        list: impl FnOnce(&mut TelemetryClient, Deadline) -> Result<Vec<T>, TelemetryError>,
    ) -> Option<Vec<T>> {
        let listed = match self.lost {
            Some(_) => Err(TelemetryError::Closed),
            None => list(self.client, self.deadline),
        };
        self.answered |= listed.is_ok();
        let items = self.keep(endpoint, listed)?;
        if items.len() >= LIST_LIMIT || self.client.reply_nearly_full() {
            self.note(endpoint, format!("{CUT_LIST} after {} entries", items.len()));
        }
        Some(items)
    }

    /// Whether the last reply is so long that DPDK may have truncated it.
    pub(super) fn reply_nearly_full(&self) -> bool {
        self.client.reply_nearly_full()
    }

    /// Makes a request once.
    pub(super) fn request<T: DeserializeOwned>(
        &mut self,
        endpoint: &TelemetryCommand,
    ) -> Result<T, TelemetryError> {
        self.request_as(endpoint, PhantomData)
    }

    /// Makes a request once, for a reply of this shape.
    pub(super) fn request_as<T>(
        &mut self,
        endpoint: &TelemetryCommand,
        shape: impl for<'de> DeserializeSeed<'de, Value = T>,
    ) -> Result<T, TelemetryError> {
        if self.lost.is_some() {
            return Err(TelemetryError::Closed);
        }
        let asked = self.client.request_as(endpoint, shape, self.deadline);
        self.answered |= asked.is_ok();
        asked
    }

    /// Announces the next requests, in their order.
    pub(super) fn announce(&mut self, requests: Vec<TelemetryCommand>) {
        if self.lost.is_none() {
            self.client.announce(requests, self.deadline);
        }
    }

    /// Makes each request once, for replies of these shapes.
    pub(super) fn request_each<T>(
        &mut self,
        requests: &[(TelemetryCommand, impl for<'de> DeserializeSeed<'de, Value = T> + Copy)],
    ) -> Vec<Result<T, TelemetryError>> {
        let asked = self.client.request_each(requests, self.deadline);
        self.answered |= asked.iter().any(Result::is_ok);
        asked
    }

    /// Requests an object that exists, so that null or another subject is worth a second attempt.
    pub(super) fn request_about<T: DeserializeOwned>(
        &mut self,
        endpoint: &TelemetryCommand,
        subject: impl Fn(&T) -> bool,
    ) -> Result<T, TelemetryError> {
        self.request_about_as(endpoint, PhantomData, subject)
    }

    /// Makes a request as [`RequestRound::request_about`], for a reply of this shape.
    pub(super) fn request_about_as<T>(
        &mut self,
        endpoint: &TelemetryCommand,
        shape: impl for<'de> DeserializeSeed<'de, Value = T> + Copy,
        subject: impl Fn(&T) -> bool,
    ) -> Result<T, TelemetryError> {
        let mut last = TelemetryError::Null;
        for _ in 0..ATTEMPTS {
            match self.request_as(endpoint, shape) {
                Ok(reply) if subject(&reply) => return Ok(reply),
                Ok(_) => last = TelemetryError::Mismatch { got: "another object".into() },
                Err(TelemetryError::Null) => last = TelemetryError::Null,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Returns the value, or records the part: also each part that is no longer requested because the
    /// connection is lost, so that its absence is not taken for an answer.
    pub(super) fn keep<T>(
        &mut self,
        part: impl Display,
        asked: Result<T, TelemetryError>,
    ) -> Option<T> {
        match asked {
            Ok(value) => return Some(value),
            Err(_) if self.lost.is_some() => self.note(part, "not asked, the connection was lost"),
            Err(error) => {
                self.note(part, &error);
                if self.client.is_usable() {
                    self.failed.get_or_insert(error);
                } else {
                    self.lost = Some(error);
                }
            }
        }
        None
    }
}

//! Going back in time: moments of a live history or of a recording, and the ways between them.
//!
//! A [`FrameSource`] gives frames by their time. [`live::LiveTimeline`] shows the present over a
//! [`history::FrameHistory`] of the last minutes; [`replay::ReplayTimeline`] shows frames that take
//! time to read, such as those of a [`recording_cursor::RecordingCursor`], from a thread of its own.
//! The display knows both as [`Timeline`].

pub mod gaps;
pub mod history;
pub mod live;
pub mod marks;
mod mem_size;
pub mod recording_cursor;
pub mod replay;
pub mod time_bar;
pub mod trends;

use std::sync::Arc;

use pmdscope_telemetry::FleetState;
use pmdscope_telemetry::finding::Finding;

use self::marks::{FindingMark, NewFindings};
use self::time_bar::TimeBar;
use self::trends::Trends;

/// The state at one moment.
#[derive(Clone, Debug)]
pub struct TimelineFrame {
    /// When, nanoseconds on the clock of its [`FrameSource`]: the monotonic one of a history, the wall
    /// clock of a recording.
    pub at: u64,
    /// All apps as last heard of then.
    pub fleet: Arc<FleetState>,
}

/// From the oldest moment to the newest, nanoseconds on the clock of a [`FrameSource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// Not after `newest`.
    pub oldest: u64,
    /// Not before `oldest`.
    pub newest: u64,
}

impl TimeSpan {
    /// Nanoseconds.
    pub fn length(self) -> u64 {
        self.newest.saturating_sub(self.oldest)
    }

    /// The closest time within.
    pub fn clamp(self, at: u64) -> u64 {
        at.clamp(self.oldest, self.newest.max(self.oldest))
    }
}

/// Which moment to show next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// The oldest.
    Oldest,
    /// The newest; the present where there is one.
    Newest,
    /// The newest one at or before that time.
    At(u64),
    /// Nanoseconds later, or earlier when negative.
    By(i64),
    /// Moments later, or earlier when negative.
    Step(i32),
    /// The next one in which a finding began.
    NextMark,
    /// The one before in which a finding began.
    PreviousMark,
}

impl SeekTarget {
    /// So many seconds later, or earlier when negative.
    pub const fn seconds(seconds: i64) -> Self {
        Self::By(seconds * 1_000_000_000)
    }
}

/// Frames of the past, by their time.
pub trait FrameSource {
    /// Why a moment cannot be shown.
    type Error: std::error::Error;

    /// What there is; `None` when there is nothing.
    fn span(&self) -> Option<TimeSpan>;

    /// The newest moment at or before `at`, else the oldest one; `None` when there is nothing.
    ///
    /// # Errors
    /// When it cannot be read.
    fn at(&mut self, at: u64) -> Result<Option<TimelineFrame>, Self::Error>;

    /// The oldest moment after `at`; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    fn after(&mut self, at: u64) -> Result<Option<TimelineFrame>, Self::Error>;

    /// What is damaged or missing, as far as it was read.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The moment that `to` leads to from the one at `from`; marks are not known here.
    ///
    /// # Errors
    /// When it cannot be read.
    fn seek(&mut self, from: u64, to: SeekTarget) -> Result<Option<TimelineFrame>, Self::Error> {
        match to {
            SeekTarget::Oldest => self.at(0),
            SeekTarget::Newest => self.at(u64::MAX),
            SeekTarget::At(at) => self.at(at),
            SeekTarget::By(ns) => self.at(from.saturating_add_signed(ns)),
            SeekTarget::Step(steps) => self.step(from, steps),
            SeekTarget::NextMark | SeekTarget::PreviousMark => self.at(from),
        }
    }

    /// The moment that many moments after the one at `from`, or before it, as far as there are any.
    ///
    /// # Errors
    /// When it cannot be read.
    fn step(&mut self, from: u64, steps: i32) -> Result<Option<TimelineFrame>, Self::Error> {
        let (mut at, mut found) = (from, None);
        for _ in 0..steps.unsigned_abs() {
            let next = if steps > 0 {
                self.after(at)?
            } else {
                self.at(at.saturating_sub(1))?.filter(|earlier| earlier.at < at)
            };
            let Some(next) = next else { break };
            at = next.at;
            found = Some(next);
        }
        if found.is_some() { Ok(found) } else { self.at(from) }
    }
}

/// What the display shows, and how it goes through time. Never waits.
pub trait Timeline {
    /// What comes in from other threads.
    type Update: Send + 'static;

    /// Applies an update.
    fn take(&mut self, update: Self::Update);

    /// Called before each frame with the present time, nanoseconds.
    fn tick(&mut self, monotonic_ns: u64, realtime_ns: u64);

    /// The state to show.
    fn fleet(&self) -> &FleetState;

    /// The line with the shown moment; `None` for the present.
    fn time_bar(&self) -> Option<TimeBar>;

    /// The time before the moment that is shown.
    fn trends(&self) -> Trends;

    /// Shows another moment.
    fn seek(&mut self, to: SeekTarget);

    /// Holds the values, or lets them go on.
    fn hold(&mut self);

    /// Goes on faster or slower; `false` when it has no speed of its own.
    fn hasten(&mut self, faster: bool) -> bool;
}

/// The findings that `now` has and `before` had not.
pub(crate) fn began(before: &FleetState, now: &FleetState) -> Option<NewFindings> {
    let new = now.apps.iter().flat_map(|app| {
        let earlier = before.find(&app.name).map_or(&[][..], |app| &app.findings);
        app.findings.iter().filter(|finding| !earlier.iter().any(|earlier| same(earlier, finding)))
    });
    let earlier = |finding: &&Finding| before.interfaces.findings().any(|old| same(old, finding));
    let of_host = now.interfaces.findings().filter(|finding| !earlier(finding));
    new.chain(of_host).map(NewFindings::of).reduce(NewFindings::with)
}

fn same(one: &Finding, other: &Finding) -> bool {
    (one.lint, &one.subject) == (other.lint, &other.subject)
}

/// Where the next or previous mark leads from `from`; anything else remains as it is. `None` when
/// there is no such mark.
pub(crate) fn resolve(to: SeekTarget, from: u64, marks: &[FindingMark]) -> Option<SeekTarget> {
    let mark = match to {
        SeekTarget::NextMark => marks.iter().find(|mark| mark.at > from),
        SeekTarget::PreviousMark => marks.iter().rev().find(|mark| mark.at < from),
        other => return Some(other),
    };
    mark.map(|mark| SeekTarget::At(mark.at))
}

#[cfg(test)]
mod screen_tests;
#[cfg(test)]
mod tests;

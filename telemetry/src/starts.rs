//! Starts of one app: processes of the same name, one after the other.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use crate::sample::Sample;

/// More starts than any threshold asks for are not remembered.
const MOST: usize = 1000;

/// The processes of one app that were seen, oldest first.
#[derive(Debug, Default)]
pub(crate) struct StartCounter(VecDeque<Start>);

/// One start of an app.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// Wall clock at the start, nanoseconds since the epoch.
    realtime_ns: u64,
    pid: u32,
    /// Clock ticks since boot at the start.
    ticks: u64,
    /// When it was seen to answer last, wall clock.
    seen_ns: u64,
}

/// Starts of an app in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppRestarts {
    /// Processes that were started; more may have come and gone between two looks.
    pub starts: u64,
    /// From the first of these starts until now.
    pub seconds: f64,
    /// The longest that one of those that have ended was seen to run, seconds.
    pub longest_life_s: f64,
}

impl StartCounter {
    /// Takes in who answered.
    pub(crate) fn update(&mut self, sample: &Sample) {
        let app = &sample.app;
        let now_ns = sample.realtime_ns;
        let same = |last: &&mut Start| (last.pid, last.ticks) == (app.pid, app.start_ticks);
        if let Some(last) = self.0.back_mut().filter(same) {
            last.seen_ns = now_ns;
            return;
        }
        // One whose start is not known was there for ever if it was there first.
        let unknown = if self.0.is_empty() { 0 } else { now_ns };
        let realtime_ns = Some(app.start_realtime_ns).filter(|ns| *ns > 0).unwrap_or(unknown);
        self.0.push_back(Start {
            realtime_ns,
            pid: app.pid,
            ticks: app.start_ticks,
            seen_ns: now_ns,
        });
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    /// Forgets everything: the clock is another.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The starts of this last stretch of time; `None` when no process has replaced another in it.
    pub(crate) fn within(&self, window: Duration, now_ns: u64) -> Option<AppRestarts> {
        let ago = |start: &Start| Duration::from_nanos(now_ns.saturating_sub(start.realtime_ns));
        let recent: Vec<&Start> = self.0.iter().filter(|start| ago(start) <= window).collect();
        let replaced = self.0.len() > 1;
        let first = recent.first().filter(|_| replaced)?;
        let life = |start: &Start| start.seen_ns.saturating_sub(start.realtime_ns);
        let ended = recent.len().saturating_sub(1);
        let longest = recent.iter().take(ended).map(|start| life(start)).max().unwrap_or(0);
        Some(AppRestarts {
            starts: recent.len() as u64,
            seconds: ago(first).as_secs_f64(),
            longest_life_s: longest as f64 / 1e9,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::empty_sample;

    const S: u64 = 1_000_000_000;

    /// Seen each second, with a new process each so many.
    fn looping(seconds: u64, life: u64) -> Option<AppRestarts> {
        let mut counter = StartCounter::default();
        let mut now_ns = 0;
        for second in 0..=seconds {
            let mut sample = empty_sample();
            now_ns = sample.realtime_ns + second * S;
            let start = second / life * life;
            sample.app.start_ticks = start * 100;
            sample.app.start_realtime_ns = sample.realtime_ns + start * S;
            sample.realtime_ns = now_ns;
            counter.update(&sample);
        }
        counter.within(Duration::from_secs(60), now_ns)
    }

    #[test]
    fn starts_of_the_last_minute_are_counted() {
        assert_eq!(looping(100, 1000), None);
        let restarts = looping(5, 2).unwrap();
        assert_eq!((restarts.starts, restarts.seconds, restarts.longest_life_s), (3, 5.0, 1.0));
        assert_eq!(looping(100, 20).unwrap().starts, 4);
        assert_eq!(looping(100, 50).unwrap().starts, 2);
    }
}

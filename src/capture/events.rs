//! Reports events of files while the thread of the capture waits for the files.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pmdscope_packets::file::FileEvent;

use super::args::EventFilter;
use super::report;
use crate::progress::StatusLine;
use crate::terminal;

/// Time between checks whether it must end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A thread that reports events until it is dropped.
#[derive(Debug)]
pub(super) struct EventPrinter {
    /// Its end ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EventPrinter {
    pub(super) fn start(events: Receiver<FileEvent>, filter: EventFilter) -> Self {
        let (end, ended) = channel::<()>();
        let thread = thread::spawn(move || {
            let mut waiting = WaitingLine::default();
            // A writer that was given up holds its end of the channel: that is not waited for.
            while ended.try_recv() != Err(TryRecvError::Disconnected) {
                match events.recv_timeout(POLL_INTERVAL) {
                    Ok(event) => waiting.report(&event, filter),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            for event in events.try_iter() {
                waiting.report(&event, filter);
            }
            waiting.line.clear();
        });
        Self { end: Some(end), thread: Some(thread) }
    }
}

/// What the end waits for: a line that is updated on a terminal, and one line elsewhere.
#[derive(Debug, Default)]
struct WaitingLine {
    line: StatusLine,
    told: bool,
}

impl WaitingLine {
    fn report(&mut self, event: &FileEvent, filter: EventFilter) {
        match event {
            FileEvent::Waiting { name, packets } if filter.waiting && terminal::is_on_stderr() => {
                self.line.show(&report::waiting(name, *packets));
            }
            FileEvent::Waiting { .. } if std::mem::replace(&mut self.told, true) => {}
            event => {
                self.line.clear();
                report::file(event, filter);
            }
        }
    }
}

impl Drop for EventPrinter {
    fn drop(&mut self) {
        self.end = None;
        // Its panic was reported on standard error.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

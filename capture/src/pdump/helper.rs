//! A running `pmdscope-pdump`: its start, its standard error, and its end.
//!
//! It is attached to an app's memory, so it is never killed: it detaches and exits when its socket is
//! closed. After its session is dropped it is kept in a list until it has exited.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::PdumpOptions;
use super::process::{EXIT_POLL_INTERVAL, wait_for};
use super::program::NAME;

/// Most bytes that are kept of a line of its standard error.
const LINE_MAX: usize = 1024;

/// Beginning of lines for the user of a capture that goes on.
const NOTE: &str = "pmdscope-pdump: note: ";

/// Most of these lines that wait to be shown; further ones are counted.
const NOTES_MAX: usize = 16;

/// How long to wait for the exit status of a process after its socket was closed.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long to wait for the rest of its standard error.
const LAST_LINE_TIMEOUT: Duration = Duration::from_millis(200);

/// Helpers of dropped sessions, which may still be attached to an app.
///
/// Process-wide, because they are child processes of this process: sessions are dropped on any
/// thread, while a new capture of the same app, by any caller, and the end of this process must
/// wait for all of them.
static EXITING: Mutex<Vec<PdumpProcess>> = Mutex::new(Vec::new());

/// State files of helpers that exited without undoing everything; process-wide for the same reason.
static STATE_FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The last line of a stream, which may be endless, and the notes in it that were not shown yet.
#[derive(Debug, Default)]
struct LastLine {
    line: Vec<u8>,
    complete: bool,
    notes: VecDeque<String>,
    /// Notes for which there was no room.
    passed_over: u64,
    /// The stream has ended.
    over: bool,
}

impl LastLine {
    fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                self.complete = true;
                self.keep_note();
            } else {
                if std::mem::take(&mut self.complete) {
                    self.line.clear();
                }
                if self.line.len() < LINE_MAX {
                    self.line.push(*byte);
                }
            }
        }
    }

    /// Moves a note out of the way of the last line.
    fn keep_note(&mut self) {
        let Some(note) = self.line.strip_prefix(NOTE.as_bytes()) else { return };
        let note = String::from_utf8_lossy(note).trim().to_owned();
        self.line.clear();
        if self.notes.len() < NOTES_MAX {
            self.notes.push_back(note);
        } else {
            self.passed_over += 1;
        }
    }

    fn take_note(&mut self) -> Option<String> {
        let note = self.notes.pop_front();
        let passed_over = if note.is_none() { std::mem::take(&mut self.passed_over) } else { 0 };
        note.or_else(|| (passed_over > 0).then(|| format!("{passed_over} more notes")))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.line).trim().to_owned()
    }
}

/// The file that lists the changes of a helper in the app; removed when all of them are undone.
#[derive(Debug, Default)]
struct StateFile {
    dir: PathBuf,
    /// Its name; `None` if it contains a process id of the helper that is not known here.
    name: Option<String>,
}

impl StateFile {
    fn of(pdump: &PdumpOptions, pid: u32) -> Self {
        let dir = pdump.runtime_root.join("dpdk").join(&pdump.file_prefix);
        Self { dir, name: (!pdump.other_pids).then(|| format!("{NAME}.{pid}")) }
    }

    /// Returns its path, if it exists.
    fn left(&self) -> Option<PathBuf> {
        if let Some(own) = &self.name {
            return Some(self.dir.join(own)).filter(|path| path.exists());
        }
        let is_state = |name: &str| {
            let pid = name.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('.'));
            pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
        };
        let files = self.dir.read_dir().ok()?.flatten();
        files
            .map(|file| file.path())
            .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_state))
    }
}

/// A running `pmdscope-pdump`.
#[derive(Debug)]
pub(crate) struct PdumpProcess {
    child: Option<Child>,
    app: u32,
    state: StateFile,
    tail: Arc<Mutex<LastLine>>,
}

impl PdumpProcess {
    /// Starts the program with a socket as its standard input, so that no other process can inherit it.
    pub(crate) fn start(pdump: &PdumpOptions, socket: OwnedFd) -> io::Result<Self> {
        let mut command = Command::new(&pdump.program);
        // The file may have another name, but helpers are recognized by this one.
        command.arg0(NAME);
        command.args(arguments(pdump)).env("RUNTIME_DIRECTORY", &pdump.runtime_root);
        // Signals of the terminal are for this process only.
        command.process_group(0);
        command.stdin(socket).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let tail = Arc::new(Mutex::new(LastLine::default()));
        let stderr = child.stderr.take();
        let state = StateFile::of(pdump, child.id());
        let helper = Self { child: Some(child), app: pdump.pid, state, tail: Arc::clone(&tail) };
        let listen = move || {
            let _ = stderr.map(|stderr| listen(stderr, &tail));
            lock(&tail).over = true;
        };
        thread::Builder::new().name("pdump-stderr".to_owned()).spawn(listen)?;
        Ok(helper)
    }

    /// Returns the next note for the user of the capture.
    pub(crate) fn take_note(&self) -> Option<String> {
        lock(&self.tail).take_note()
    }

    /// Returns how it ended, and the last line of its standard error. Waits for a short time.
    pub(crate) fn exit_reason(&mut self) -> String {
        let status = self.child.as_mut().and_then(|child| wait_for(child, EXIT_TIMEOUT).ok()?);
        let end = match status {
            None => "closed the connection".to_owned(),
            Some(status) => end_of(status),
        };
        match self.last_line() {
            none if none.is_empty() => end,
            said => format!("{end}: {said}"),
        }
    }

    /// Returns the last line of its standard error, once it has exited or after a short time.
    pub(crate) fn last_error_line(&mut self) -> String {
        let _ = self.child.as_mut().map(|child| wait_for(child, EXIT_TIMEOUT));
        self.last_line()
    }

    /// Returns the last line so far; another thread reads the stream.
    fn last_line(&self) -> String {
        let deadline = Instant::now() + LAST_LINE_TIMEOUT;
        loop {
            let tail = lock(&self.tail);
            if tail.over || Instant::now() >= deadline {
                return tail.text();
            }
            drop(tail);
            thread::sleep(EXIT_POLL_INTERVAL);
        }
    }

    fn has_exited(&mut self) -> bool {
        // A child that cannot be waited for does not exist.
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

impl Drop for PdumpProcess {
    /// Its socket is closed before or right after this, which makes it exit.
    fn drop(&mut self) {
        let state = std::mem::take(&mut self.state);
        if self.has_exited() {
            lock(&STATE_FILES).extend(state.left());
            return;
        }
        let (child, tail) = (self.child.take(), Arc::clone(&self.tail));
        let exiting = Self { child, app: self.app, state, tail };
        lock(&EXITING).push(exiting);
    }
}

/// Waits until the helpers of dropped sessions have exited, all or those of one app, until the timeout
/// or until `stop` is true. Returns the process ids of those that are still running.
pub(crate) fn wait_for_exits(app: Option<u32>, timeout: Duration, stop: &AtomicBool) -> Vec<u32> {
    let deadline = Instant::now() + timeout;
    loop {
        let mut exiting = lock(&EXITING);
        exiting.retain_mut(|helper| !helper.has_exited());
        let selected = exiting.iter().filter(|helper| app.is_none_or(|app| app == helper.app));
        let pids = selected.filter_map(|helper| helper.child.as_ref().map(Child::id));
        let pids = pids.collect::<Vec<_>>();
        drop(exiting);
        if pids.is_empty() || Instant::now() >= deadline || stop.load(Ordering::Relaxed) {
            return pids;
        }
        thread::sleep(EXIT_POLL_INTERVAL);
    }
}

/// Returns the state files of helpers that exited without undoing everything, unless a later one
/// has removed them.
pub(crate) fn remaining_state_files() -> Vec<PathBuf> {
    lock(&STATE_FILES).iter().filter(|state| state.exists()).cloned().collect()
}

fn arguments(pdump: &PdumpOptions) -> Vec<String> {
    let mut arguments = vec!["--fd=0".to_owned()];
    arguments.push(format!("--file-prefix={}", pdump.file_prefix));
    arguments.push(format!("--pid={}", pdump.pid));
    arguments.push(format!("--cpus={}", pdump.cpus));
    for port in &pdump.ports {
        let (id, device) = (port.id, &port.device);
        arguments.push(format!("--port={id},{},{},{device}", port.rx_queues, port.tx_queues));
    }
    if pdump.force {
        arguments.push("--force".to_owned());
    }
    arguments
}

/// Reads to the end, so that the writer never blocks, and keeps the last line.
fn listen(mut stderr: ChildStderr, tail: &Mutex<LastLine>) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        match stderr.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => lock(tail).feed(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn end_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Ignores poisoning: a panic of another thread leaves no partial update.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_line_is_kept_and_no_more_than_that() {
        let text = |parts: &[&[u8]]| {
            let mut tail = LastLine::default();
            for part in parts {
                tail.feed(part);
            }
            tail.text()
        };
        assert_eq!(text(&[b"one\ntw", b"o\n"]), "two");
        assert_eq!(text(&[b"one\n", b"tw"]), "tw");
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[&[b'x'; 5000], b"\n"]).len(), LINE_MAX);
    }

    #[test]
    fn notes_are_separate_from_the_last_line_and_bounded() {
        let mut tail = LastLine::default();
        tail.feed(b"pmdscope-pdump: note: port 1 is gone\nEAL: broken\npmdscope-pdump: note: back");
        assert_eq!(tail.take_note().as_deref(), Some("port 1 is gone"));
        assert_eq!(tail.take_note(), None);
        tail.feed(b"\nlast\n");
        assert_eq!((tail.take_note().as_deref(), &*tail.text()), (Some("back"), "last"));
        for _ in 0..NOTES_MAX + 3 {
            tail.feed(format!("{NOTE}again\n").as_bytes());
        }
        let notes = std::iter::from_fn(|| tail.take_note()).collect::<Vec<_>>();
        assert_eq!(notes.len(), NOTES_MAX + 1);
        assert_eq!(notes.last().map(String::as_str), Some("3 more notes"));
    }

    #[test]
    fn exit_statuses_are_described() {
        let end = |raw| end_of(ExitStatus::from_raw(raw));
        assert_eq!(
            [end(0), end(2 << 8), end(9)],
            ["ended with code 0", "ended with code 2", "was killed by signal 9"]
        );
    }

    #[test]
    fn only_the_state_file_of_the_helper_itself_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(dir.path().join(name), "").unwrap();
        let left = |name: Option<&str>| {
            let state = StateFile { dir: dir.path().into(), name: name.map(str::to_owned) };
            state.left().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        let own = format!("{NAME}.12");
        write(&format!("{NAME}.x"));
        assert_eq!((left(Some(&own)), left(None)), (None, None));
        write(&format!("{NAME}.13"));
        assert_eq!(left(Some(&own)), None);
        // Its process id is not known if it has entered another namespace.
        assert_eq!(left(None), Some(format!("{NAME}.13")));
        write(&own);
        assert_eq!(left(Some(&own)), Some(own.clone()));
    }

    proptest! {
        #[test]
        fn a_tail_is_bounded_whatever_comes(parts: Vec<Vec<u8>>) {
            let mut tail = LastLine::default();
            for part in parts {
                tail.feed(&part);
                prop_assert!(tail.line.len() <= LINE_MAX);
                prop_assert!(!tail.line.contains(&b'\n'));
                prop_assert!(tail.notes.len() <= NOTES_MAX);
            }
        }
    }
}

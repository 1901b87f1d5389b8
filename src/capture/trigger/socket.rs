//! Sockets for `pmdscope capture trigger`: one per recorder, in a directory of the user.
//!
//! A request is a word, a line feed, and for `fire` a comment up to the end of the stream. The
//! answer is `ok ` or `error ` and a text.

use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use pmdscope_packets::recorder::{RecorderTrigger, TriggerAnswer, TriggerSender};
use pmdscope_telemetry::host::foreign::is_served;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::process::{Uid, geteuid};

/// Directory of root.
const ROOT_DIR: &str = "/run/pmdscope";
/// Names of sockets, around the process id.
const PREFIX: &str = "recorder-";
const SUFFIX: &str = ".sock";
/// Mode bits of group and others, who have no access to a directory of sockets.
const OTHERS: u32 = 0o077;
/// How long either side waits for the other.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(3);
/// Most bytes of a request.
const REQUEST_MAX: u64 = 4096;

const FIRE: &str = "fire";
const DESCRIBE: &str = "describe";

/// The recorder's end; the name goes away with it.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = pmdscope_files::remove(&self.path);
    }
}

impl Socket {
    /// Answers requests in a thread; `names` lists what is recorded.
    pub(super) fn serve(names: String, fire: TriggerSender) -> anyhow::Result<Self> {
        Self::serve_in(&own_directory()?, names, fire)
    }

    fn serve_in(dir: &Path, names: String, fire: TriggerSender) -> anyhow::Result<Self> {
        make_private(dir)?;
        let name = format!("{PREFIX}{}", std::process::id());
        let (path, fresh) = (dir.join(name.clone() + SUFFIX), dir.join(name));
        let _ = pmdscope_files::remove(&fresh);
        let listener = UnixListener::bind(&fresh)
            .with_context(|| format!("cannot make a socket {}", fresh.display()))?;
        // It listens before it gets its name: a process that cannot connect to it takes it for
        // stale.
        pmdscope_files::rename(&fresh, &path)
            .with_context(|| format!("cannot make a socket {}", path.display()))?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that sends an invalid request, or leaves before the answer, gets none.
                let _ = answer(stream, &names, &fire);
            }
        });
        Ok(Self { path })
    }
}

fn answer(mut stream: UnixStream, names: &str, fire: &TriggerSender) -> io::Result<()> {
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    let peer = sockopt::socket_peercred(&stream)?.uid;
    let answer = if peer == geteuid() || peer == Uid::ROOT {
        let mut request = String::new();
        (&stream).take(REQUEST_MAX).read_to_string(&mut request)?;
        obey(&request, names, fire)
    } else {
        Err("the recorder belongs to another user".to_owned())
    };
    match answer {
        Ok(text) => write!(stream, "ok {text}"),
        Err(text) => write!(stream, "error {text}"),
    }
}

fn obey(request: &str, names: &str, fire: &TriggerSender) -> Result<String, String> {
    match request.split_once('\n') {
        Some((DESCRIBE, _)) => Ok(names.to_owned()),
        Some((FIRE, comment)) => {
            let comment = comment.replace(char::is_control, " ");
            let (reply, answer) = sync_channel(1);
            let trigger = RecorderTrigger {
                reply: Some(reply),
                ..RecorderTrigger::now("manual", comment.trim())
            };
            if !fire.fire(trigger) {
                return Err("the recorder is shutting down".to_owned());
            }
            match answer.recv_timeout(SOCKET_TIMEOUT) {
                Ok(TriggerAnswer::Writing(path)) => Ok(absolute(path)),
                Ok(TriggerAnswer::Done) => Err("the recorder accepts no more triggers".to_owned()),
                Ok(TriggerAnswer::Failed(reason)) => Err(reason),
                Err(_) => Err("the recorder does not answer".to_owned()),
            }
        }
        _ => Err("unknown request".to_owned()),
    }
}

fn absolute(path: PathBuf) -> String {
    std::path::absolute(&path).unwrap_or(path).display().to_string()
}

/// A recorder that runs.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) pid: u32,
    path: PathBuf,
}

impl Recorder {
    /// What it records.
    pub(super) fn describe(&self) -> String {
        self.ask(DESCRIBE, "").unwrap_or_else(|error| format!("({error:#})"))
    }

    /// Fires it; the name of the file that it writes.
    pub(super) fn fire(&self, comment: &str) -> anyhow::Result<String> {
        ensure!(
            comment.len() as u64 + (FIRE.len() as u64) < REQUEST_MAX,
            "the comment is too long: the limit is {} bytes",
            REQUEST_MAX - FIRE.len() as u64 - 1
        );
        self.ask(FIRE, comment)
    }

    fn ask(&self, word: &str, text: &str) -> anyhow::Result<String> {
        let answer = self.exchange(&format!("{word}\n{text}")).with_context(|| {
            format!("the flight recorder of process {} does not answer", self.pid)
        })?;
        match answer.split_once(' ') {
            Some(("ok", text)) => Ok(text.to_owned()),
            Some(("error", text)) => bail!("process {}: {text}", self.pid),
            _ => bail!("process {} is not a flight recorder", self.pid),
        }
    }

    fn exchange(&self, request: &str) -> io::Result<String> {
        let mut stream = connect(&self.path)?;
        // The recorder itself may wait as long.
        stream.set_read_timeout(Some(SOCKET_TIMEOUT * 2))?;
        stream.write_all(request.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.take(REQUEST_MAX * 2).read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Waits for room in the queue of a recorder that is stopped for `SOCKET_TIMEOUT` only.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket =
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(SOCKET_TIMEOUT))?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// The recorders of this user; sockets of dead recorders are removed.
pub(super) fn running() -> anyhow::Result<Vec<Recorder>> {
    running_in(&own_directory()?)
}

fn running_in(dir: &Path) -> anyhow::Result<Vec<Recorder>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", dir.display())),
    };
    let recorder = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let pid = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()?;
        Some(Recorder { pid, path })
    };
    let mut found: Vec<_> =
        entries.flatten().filter_map(|entry| recorder(entry.path())).filter(is_alive).collect();
    found.sort_by_key(|recorder| recorder.pid);
    Ok(found)
}

fn is_alive(recorder: &Recorder) -> bool {
    let alive = is_served(&recorder.path, SocketType::STREAM).unwrap_or(true);
    if !alive {
        let _ = pmdscope_files::remove(&recorder.path);
    }
    alive
}

/// The directory for sockets of this user.
fn own_directory() -> anyhow::Result<PathBuf> {
    if geteuid().is_root() {
        return Ok(PathBuf::from(ROOT_DIR));
    }
    let dir = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    dir.map(|dir| Path::new(&dir).join("pmdscope"))
        .context("no directory for the recorder socket: XDG_RUNTIME_DIR is not set")
}

/// Makes a directory that no other user can enter.
#[allow(clippy::disallowed_methods)] // What is there must be such a directory, and no link.
fn make_private(dir: &Path) -> anyhow::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {}", dir.display()));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(dir).with_context(|| format!("no {}", dir.display()))?;
    let others = found.mode() & OTHERS;
    let private = found.is_dir() && found.uid() == geteuid().as_raw() && others == 0;
    ensure!(private, "{} must be a directory of this user with mode 0700", dir.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use pmdscope_packets::recorder::{FlightRecorder, RecorderSettings};
    use pmdscope_packets::{NullSink, PacketSink as _};

    use super::*;

    fn recorder(dir: &Path) -> (FlightRecorder, Socket) {
        let settings = RecorderSettings {
            path: PathBuf::from("/x/incident.pcapng"),
            before: Duration::from_secs(1),
            after: Duration::from_secs(1),
            memory: pmdscope_packets::recorder::MIN_MEMORY,
            max_incidents: Some(1),
            filters: Vec::new(),
        };
        let open = Box::new(|_: &Path| Ok(Box::new(NullSink::default()) as _));
        let (target, fire) = FlightRecorder::start(settings, open).unwrap();
        (target, Socket::serve_in(dir, "rte:0".into(), fire).unwrap())
    }

    #[test]
    fn a_recorder_with_a_full_queue_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recorder-1.sock");
        let listener =
            net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)
                .unwrap();
        net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        net::listen(&listener, 0).unwrap();
        let _first = connect(&path).unwrap();
        let error = Recorder { pid: 1, path }.fire("").unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with("the flight recorder of process 1 does not answer"), "{error}");
    }

    #[test]
    fn a_recorder_is_found_and_fired_and_leaves_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("pmdscope");
        let (mut target, socket) = recorder(&dir);
        let [found] = running_in(&dir).unwrap().try_into().unwrap();
        assert_eq!((found.pid, found.describe()), (std::process::id(), "rte:0".into()));
        let asked = thread::spawn(move || (found.fire("a\tb"), found.exchange("dance\n").unwrap()));
        while !asked.is_finished() {
            target.flush().unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        let (file, refused) = asked.join().unwrap();
        let file = file.unwrap();
        assert!(file.starts_with("/x/incident-") && file.ends_with("-1-manual.pcapng"), "{file}");
        assert_eq!(refused, "error unknown request");
        drop(socket);
        assert!(running_in(&dir).unwrap().is_empty());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn a_recorder_that_has_ended_is_told_and_a_stale_name_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("pmdscope");
        let (target, _socket) = recorder(&dir);
        drop(target);
        let stale = dir.join("recorder-1.sock");
        drop(UnixListener::bind(&stale).unwrap());
        let [found] = running_in(&dir).unwrap().try_into().unwrap();
        assert!(!stale.exists());
        let error = found.fire("").unwrap_err().to_string();
        assert!(error.ends_with("the recorder is shutting down"), "{error}");
        assert!(found.fire(&"x".repeat(5000)).is_err());
    }

    #[test]
    fn a_directory_that_others_may_enter_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = make_private(dir.path()).unwrap_err().to_string();
        assert!(error.contains("mode 0700"), "{error}");
        assert!(running_in(&dir.path().join("none")).unwrap().is_empty());
    }
}

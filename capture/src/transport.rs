//! How packets of an app are captured: by its own capture socket, by a helper, or as a sample from
//! its memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::layout::CaptureRequest;
use crate::pdump::{PdumpOptions, PdumpProcess, helper};
use crate::peek::{self, PeekError, PeekOptions};
use crate::session::{CaptureSession, SessionError, reason};

/// How long a helper may take to attach to an app, which has to answer requests of the helper for
/// that.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a capture cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The capture session with the app or the helper failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The packets cannot be read from the memory of the app.
    #[error(transparent)]
    Peek(#[from] PeekError),
    /// The helper cannot be started.
    #[error("cannot start {}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The helper refused the capture.
    #[error("pmdscope-pdump: {text}{}", more(.said))]
    Refused {
        /// Cause, and what to do.
        text: String,
        /// Last line of its standard error, if it says more.
        said: String,
    },
    /// The helper exited before it answered; how it exited.
    #[error("pmdscope-pdump {0}; the app goes on without it")]
    Died(String),
    /// The helper did not answer in time.
    #[error(
        "pmdscope-pdump did not get into the app within {} s: the app's control threads are stuck or \
         starved, or wait for another secondary process of it{}", .waited.as_secs(), more(.said)
    )]
    Timeout {
        /// Timeout.
        waited: Duration,
        /// Last line of its standard error.
        said: String,
    },
}

fn more(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

/// How packets of an app are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The app has libpmdscope, which listens on this socket.
    Library(PathBuf),
    /// The app has no libpmdscope, but has called `rte_pdump_init()`: a helper captures.
    Pdump(Box<PdumpOptions>),
    /// The app cannot be captured: a sample is read from its memory.
    Peek(Box<PeekOptions>),
}

impl Transport {
    /// Result of [`Transport::via`] for the helper.
    pub const PDUMP: &str = "pdump";
    /// Result of [`Transport::via`] for a sample that is read from the memory of the app.
    pub const PEEK: &str = "peek";

    /// Opens a capture, unless `stop` is true. A helper gets more time than an app: at least 10 s.
    ///
    /// # Errors
    /// As [`CaptureSession::open_unless`]; and when the helper cannot be started, or refuses
    /// because it would do harm; and when the memory of the app cannot be read.
    pub fn open(
        &self,
        request: &CaptureRequest,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<CaptureSession, TransportError> {
        match self {
            Self::Library(path) => Ok(CaptureSession::open_unless(stop, path, request, timeout)?),
            Self::Pdump(pdump) => attach(pdump, request, timeout.max(ATTACH_TIMEOUT), stop),
            Self::Peek(options) => Ok(peek::open(options, request, timeout, stop)?),
        }
    }

    /// Returns what passes on the packets of the app, for display; `None` for the app itself.
    pub fn via(&self) -> Option<&'static str> {
        match self {
            Self::Library(_) => None,
            Self::Pdump(_) => Some(Self::PDUMP),
            Self::Peek(_) => Some(Self::PEEK),
        }
    }
}

fn attach(
    pdump: &PdumpOptions,
    request: &CaptureRequest,
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<CaptureSession, TransportError> {
    // The app serves one pdump process at a time.
    helper::wait_for_exits(Some(pdump.pid), timeout, stop);
    if stop.load(Ordering::Relaxed) {
        return Err(SessionError::Stopped.into());
    }
    let start = |source| TransportError::Start { program: pdump.program.clone(), source };
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .and_then(|pair| ioctl_fionbio(&pair.0, true).map(|()| pair))
        .map_err(|errno| start(errno.into()))?;
    let mut helper = PdumpProcess::start(pdump, theirs).map_err(start)?;
    match CaptureSession::over(ours, request, timeout, stop) {
        Ok(session) => Ok(session.beside(helper)),
        Err(SessionError::Refused { code, text, .. }) => {
            let text = reason(&text, code);
            // The last line is often the same text.
            let said = Some(helper.last_error_line()).filter(|said| !said.ends_with(&text));
            Err(TransportError::Refused { text, said: said.unwrap_or_default() })
        }
        Err(SessionError::Timeout(_)) => {
            Err(TransportError::Timeout { waited: timeout, said: helper.last_error_line() })
        }
        Err(SessionError::Closed | SessionError::Socket(Errno::CONNRESET | Errno::PIPE)) => {
            Err(TransportError::Died(helper.exit_reason()))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;

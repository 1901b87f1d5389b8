//! How the packets of an app are reached: by its own capture socket, by a helper of ours, or as a sample
//! from its memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::layout::CaptureRequest;
use crate::pdump::{PdumpOptions, PdumpProcess, helper};
use crate::peek::{self, PeekError, PeekOptions};
use crate::session::{CaptureSession, SessionError, reason};

/// How long a helper may take to get into an app, which has to answer requests of its own for that.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an app cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The app has libpmdscope, and does not hand out its packets.
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
        /// Why.
        source: std::io::Error,
    },
    /// The helper found something that speaks against a capture.
    #[error("pmdscope-pdump: {text}{}", more(.said))]
    Refused {
        /// Cause and cure.
        text: String,
        /// What else it said.
        said: String,
    },
    /// The helper ended before it could say anything to us.
    #[error("pmdscope-pdump {0}; the app goes on without it")]
    Died(String),
    /// The helper is not done in time.
    #[error(
        "pmdscope-pdump did not get into the app within {} s: the app's control threads are stuck or \
         starved, or wait for another secondary process of it{}", .waited.as_secs(), more(.said)
    )]
    Timeout {
        /// How long it was waited for.
        waited: Duration,
        /// What it said last.
        said: String,
    },
}

fn more(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

/// How the packets of an app are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The app has libpmdscope, which listens there.
    Library(PathBuf),
    /// The app has only called `rte_pdump_init()`.
    Pdump(Box<PdumpOptions>),
    /// The app hands out none: a sample is read from its memory.
    Peek(Box<PeekOptions>),
}

impl Transport {
    /// What [`Transport::via`] calls the helper.
    pub const PDUMP: &str = "pdump";
    /// What [`Transport::via`] calls a sample that is read from the memory of the app.
    pub const PEEK: &str = "peek";

    /// Arms a capture, unless told to stop. A helper gets more time than an app: at least 10 s.
    ///
    /// # Errors
    /// As [`CaptureSession::open_unless`]; and when the helper cannot be started, or finds that it would do
    /// harm.
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

    /// What stands between the app and its packets, for people; `None` for the app itself.
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
        Err(SessionError::Refused { code, text }) => {
            let text = reason(&text, code);
            // Mostly the same once more.
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

//! What a capture is of, and how it is made.

use std::fmt;
use std::time::Duration;

use pmdscope_packets::MAX_SNAPLEN;

use crate::session::CaptureSession;

/// Tries to reach an app that has ended: its ports and an armed capture, once it is back.
pub type ReopenApp = Box<dyn FnMut() -> Option<(Vec<CapturePort>, CaptureSession)> + Send>;

/// One app to capture from.
pub struct CaptureSource {
    /// File-prefix of the app.
    pub app: String,
    /// What stands between the app and its packets; `None` for the app itself.
    pub via: Option<&'static str>,
    /// Its ports, to give interfaces their device names.
    pub ports: Vec<CapturePort>,
    /// The armed capture; none where another has it.
    pub session: Option<CaptureSession>,
    /// It was asked to keep one packet in this many; 0 and 1 keep all.
    pub sample: u32,
    /// How to go on when the app comes back; `None` gives it up.
    pub reopen: Option<ReopenApp>,
}

impl CaptureSource {
    /// The same app, to which another listens.
    pub(crate) fn unattended(&self) -> Self {
        let Self { app, via, ports, sample, .. } = self;
        let (app, ports) = (app.clone(), ports.clone());
        Self { app, via: *via, ports, session: None, sample: *sample, reopen: None }
    }
}

impl fmt::Debug for CaptureSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("app", &self.app).finish_non_exhaustive()
    }
}

/// A port of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturePort {
    /// DPDK port id.
    pub id: u16,
    /// Device name.
    pub device: String,
    /// It was asked for, so it has an interface even if it has no packets.
    pub selected: bool,
}

/// How to capture.
#[derive(Clone, Debug, Default)]
pub struct CaptureSettings {
    /// Most bytes kept of a packet; 0 means 262144.
    pub snaplen: u32,
    /// Leave out the first packets.
    pub skip: u64,
    /// Stop after so many packets.
    pub count: Option<u64>,
    /// Stop after so long.
    pub duration: Option<Duration>,
    /// Filter expression, to be noted in the file.
    pub filter: String,
    /// Outgoing packets are captured, to be explained in the file.
    pub outgoing: bool,
}

impl CaptureSettings {
    /// Most bytes kept of a packet.
    pub fn effective_snaplen(&self) -> u32 {
        if self.snaplen == 0 { MAX_SNAPLEN } else { self.snaplen }
    }
}

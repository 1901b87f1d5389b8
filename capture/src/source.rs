//! Sources and settings of a capture.

use std::fmt;
use std::time::Duration;

use pmdscope_packets::MAX_SNAPLEN;

use crate::session::CaptureSession;

/// Tries to reach an app that has ended; returns its ports and an armed capture once it is back.
pub type ReopenApp = Box<dyn FnMut() -> Option<(Vec<CapturePort>, CaptureSession)> + Send>;

/// One app to capture from.
pub struct CaptureSource {
    /// File-prefix of the app.
    pub app: String,
    /// What passes on the packets of the app, as in [`Transport::via`](crate::Transport::via);
    /// `None` for the app itself.
    pub via: Option<&'static str>,
    /// Ports of the app, for the device names of interfaces.
    pub ports: Vec<CapturePort>,
    /// The armed capture; `None` if another `CaptureSource` of the app has it.
    pub session: Option<CaptureSession>,
    /// The requested sampling: one packet in this many is kept; 0 and 1 keep all.
    pub sample: u32,
    /// Reopens the capture when the app comes back; `None` to end with the app.
    pub reopen: Option<ReopenApp>,
}

impl CaptureSource {
    /// Returns the same source without the session.
    pub(crate) fn unattended(&self) -> Self {
        let Self { app, via, ports, sample, .. } = self;
        let (app, ports) = (app.clone(), ports.clone());
        Self { app, via: *via, ports, session: None, sample: *sample, reopen: None }
    }
}

impl fmt::Debug for CaptureSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureSource").field("app", &self.app).finish_non_exhaustive()
    }
}

/// A port of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturePort {
    /// DPDK port id.
    pub id: u16,
    /// Device name.
    pub device: String,
    /// Whether it was requested, so that it has an interface even if it has no packets.
    pub selected: bool,
}

/// Settings of a capture.
#[derive(Clone, Debug, Default)]
pub struct CaptureSettings {
    /// Most bytes kept of a packet; 0 means 262144.
    pub snaplen: u32,
    /// Number of packets to skip first.
    pub skip: u64,
    /// Stop after this many packets.
    pub count: Option<u64>,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Filter expression, which is written to the file.
    pub filter: String,
    /// Whether outgoing packets are captured, which the file explains.
    pub outgoing: bool,
}

impl CaptureSettings {
    /// Returns the most bytes kept of a packet.
    pub fn effective_snaplen(&self) -> u32 {
        if self.snaplen == 0 { MAX_SNAPLEN } else { self.snaplen }
    }
}

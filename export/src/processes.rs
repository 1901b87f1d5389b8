//! How the exporter becomes two processes.
//!
//! The one that was started checks the settings, listens, and starts the collector, which keeps all rights. Then
//! it executes itself anew as the network process: that has the same process id, so the service manager, signals
//! and probes reach it, and none of the memory of the first.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

use crate::channel::{self, MAX_FILES};
use crate::confine::fit_open_files;
use crate::listen::{BoundSocket, bind};
use crate::message::NetworkSettings;
use crate::options::ExportOptions;
use crate::otlp::OtlpReceiver;
use crate::service::ServeError;
use crate::web::WebFiles;

/// Longest wait for the exit status of the collector.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Variables of the service manager, which are for the network process.
const SERVICE_VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// One of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportProcess {
    /// It asks the apps.
    Collector,
    /// It speaks to clients.
    Network,
}

/// Starts the collector and becomes the network process. `command` returns the command line of one of them.
///
/// # Errors
/// Fails if the exporter cannot start; it then serves nothing.
pub fn start(
    options: &ExportOptions,
    command: impl Fn(ExportProcess) -> io::Result<Command>,
) -> Result<Infallible, ServeError> {
    WebFiles::open(options.web_config.as_deref())?;
    options.otlp.as_deref().map(str::parse::<OtlpReceiver>).transpose()?;
    let sockets = listen(options)?;
    let limits = fit_open_files(options.connections);
    let (network_end, collector_end) = channel::pair()?;
    let mut collector = command(ExportProcess::Collector)?;
    for variable in SERVICE_VARIABLES {
        collector.env_remove(variable);
    }
    // Signals of a terminal reach the network process alone, which ends the other in order.
    let collector = collector.stdin(collector_end.try_clone()?).process_group(0).spawn()?;
    let settings = NetworkSettings {
        collector: collector.id(),
        timeout: options.timeout,
        limits,
        lowered: limits != options.connections,
        web_config: options.web_config.is_some(),
        otlp: options.otlp.clone(),
        otlp_interval: options.otlp_interval,
    };
    let sockets: Vec<_> = sockets.iter().map(|bound| bound.socket.as_fd()).collect();
    channel::send(&collector_end, &settings, &sockets)?;
    drop(collector_end);
    // A process that is not root keeps only these when it executes a program. Old kernels have none.
    let _ = rustix::thread::clear_ambient_capability_set();
    Err(command(ExportProcess::Network)?.stdin(network_end).exec().into())
}

fn listen(options: &ExportOptions) -> Result<Vec<BoundSocket>, ServeError> {
    let mut sockets = Vec::new();
    for address in &options.listen {
        sockets.extend(bind(address)?);
    }
    if sockets.len() > MAX_FILES {
        let number = sockets.len();
        let error = format!("{number} listening sockets; at most {MAX_FILES} are possible");
        return Err(io::Error::other(error).into());
    }
    Ok(sockets)
}

/// How the collector ended.
#[derive(Debug)]
pub(crate) struct CollectorExit {
    pid: u32,
    status: Option<WaitStatus>,
}

impl fmt::Display for CollectorExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the collector, process {}, ", self.pid)?;
        let status = self.status.as_ref();
        if let Some(signal) = status.and_then(|status| status.terminating_signal()) {
            write!(f, "was killed by signal {signal}")?;
        } else if let Some(status) = status.and_then(|status| status.exit_status()) {
            write!(f, "ended with exit status {status}")?;
        } else {
            f.write_str("does not answer")?;
        }
        f.write_str(", and the exporter ends as well; start it again")
    }
}

/// Waits a moment for the collector, which is a child of this process, to end.
pub(crate) fn wait_for_collector(pid: u32) -> CollectorExit {
    let end = Instant::now() + EXIT_TIMEOUT;
    let child = i32::try_from(pid).ok().and_then(Pid::from_raw);
    while let Some(child) = child {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => return CollectorExit { pid, status: Some(status) },
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            _ => break,
        }
    }
    CollectorExit { pid, status: None }
}

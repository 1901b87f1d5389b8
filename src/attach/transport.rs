//! How the packets of a running app are reached: through libpmdscope in it, a helper beside it, or its
//! memory.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use pmdscope_capture::Transport;
use pmdscope_capture::pdump::PdumpProgram;
use pmdscope_capture::peek::PeekOptions;
use pmdscope_telemetry::discover::DiscoveredApp;
use pmdscope_telemetry::host::foreign::{is_served, split_root};
use pmdscope_telemetry::sample::Sample;
use rustix::net::SocketType;

use super::policy::AttachPolicy;
use super::preflight;
use super::running::RunningApp;

/// Telemetry socket and capture socket of a first instance; further ones append `:N` to both.
const TELEMETRY_SOCKET: &str = "dpdk_telemetry.v2";
const CAPTURE_SOCKET: &str = "pmdscope.sock";

/// The result of the checks before a capture: how the packets of an app can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Preflight {
    /// Its libpmdscope listens there.
    Library(PathBuf),
    /// A helper can attach to it: this program.
    Pdump(PdumpProgram),
    /// A sample is read from its memory.
    Peek,
}

impl Preflight {
    /// Whether packets can be had from an app, and how; nothing is touched to find out.
    ///
    /// # Errors
    /// States what prevents that, and what to do about it.
    pub(crate) fn of(running: &RunningApp, policy: AttachPolicy) -> anyhow::Result<Self> {
        match stock(running) {
            Some(_) if policy == AttachPolicy::Never => Err(forbidden(running)),
            Some(_) if policy == AttachPolicy::Peek => Ok(Self::Peek),
            Some(sample) => preflight::check(&running.app, sample, policy).map(Self::Pdump),
            None => library_socket(running).map(Self::Library),
        }
    }

    /// The same for a capture that follows. The helper of one that has just ended is waited for.
    ///
    /// # Errors
    /// As [`Preflight::of`].
    pub(super) fn for_capture(running: &RunningApp, policy: AttachPolicy) -> anyhow::Result<Self> {
        let attaches = !matches!(policy, AttachPolicy::Never | AttachPolicy::Peek);
        if attaches && let Some(sample) = stock(running) {
            preflight::await_departure(&running.app, sample);
        }
        Self::of(running, policy)
    }

    /// How the packets are read, for people; `None` if the app itself hands them out.
    pub(crate) fn via(&self) -> Option<&'static str> {
        match self {
            Self::Library(_) => None,
            Self::Pdump(_) => Some(Transport::PDUMP),
            Self::Peek => Some(Transport::PEEK),
        }
    }

    /// How to reach the packets of the app that this was found of.
    ///
    /// # Errors
    /// When a helper cannot be placed beside the app.
    pub(super) fn transport(
        self,
        running: &RunningApp,
        policy: AttachPolicy,
    ) -> anyhow::Result<Transport> {
        match (self, &running.sample) {
            (Self::Pdump(program), Some(sample)) => {
                let pdump = preflight::pdump(&running.app, sample, program, policy)?;
                Ok(Transport::Pdump(Box::new(pdump)))
            }
            (Self::Pdump(_), None) => Err(silent(running)),
            (Self::Peek, _) => Ok(Transport::Peek(Box::new(PeekOptions {
                app: running.app.clone(),
                cpu_percent: PeekOptions::DEFAULT_CPU_PERCENT,
            }))),
            (Self::Library(socket), _) => Ok(Transport::Library(socket)),
        }
    }
}

/// What can be done about packets that were dropped at these `places`, as `APP:PORT`. `own` is that for
/// apps that hand them out themselves; the others are `helped` to. Without places, any may be meant.
pub(crate) fn cure<'a>(
    mut places: impl Iterator<Item = &'a str> + Clone,
    helped: &[String],
    own: &str,
) -> String {
    let is_of = |place: &str, app: &String| {
        place.strip_prefix(app.as_str()).is_some_and(|port| port.starts_with(':'))
    };
    let is_helped = |place: &str| helped.iter().any(|app| is_of(place, app));
    let known = places.clone().next().is_some();
    let by_helper = if known { places.clone().any(is_helped) } else { !helped.is_empty() };
    let by_itself = if known { !places.all(is_helped) } else { helped.is_empty() };
    let mut cures = Vec::new();
    if by_itself {
        cures.push(own);
    }
    if by_helper {
        cures.push(
            "for pdump an app copies every packet before filter and sampling: fewer queues, one \
             direction (-Q) or libpmdscope can help",
        );
    }
    cures.join("; ")
}

/// The sample of an app without libpmdscope.
fn stock(running: &RunningApp) -> Option<&Sample> {
    let sample = running.sample.as_ref().filter(|sample| sample.library.is_none())?;
    (!find_socket(running)
        .is_some_and(|path| is_served(&path, SocketType::SEQPACKET).unwrap_or(true)))
    .then_some(sample)
}

fn forbidden(running: &RunningApp) -> anyhow::Error {
    anyhow!(
        "{} runs without libpmdscope, and --no-pdump forbids to attach to it: leave that out, or link \
         it with libpmdscope",
        running.app.name
    )
}

fn silent(RunningApp { app, .. }: &RunningApp) -> anyhow::Error {
    anyhow!("{} does not answer on {}", app.name, app.socket.display())
}

/// Where the libpmdscope of an app offers its packets.
pub(crate) fn library_socket(running: &RunningApp) -> anyhow::Result<PathBuf> {
    if let Some(socket) = find_socket(running) {
        return Ok(socket);
    }
    let RunningApp { app, sample } = running;
    match sample.as_ref().map(|sample| &sample.library) {
        None => Err(silent(running)),
        Some(None) => bail!(
            "{} runs without libpmdscope, so its packets cannot be captured: link it with libpmdscope \
             and call pmdscope_init() after rte_eal_init()",
            app.name
        ),
        Some(Some(_)) => bail!(
            "{} offers no captures: it was started with PMDSCOPE_F_NO_TEE, or its log says why the \
             capture socket could not be opened",
            app.name
        ),
    }
}

/// The path that the app reports, as seen from here, or else the default path.
fn find_socket(RunningApp { app, sample }: &RunningApp) -> Option<PathBuf> {
    let library = sample.as_ref().and_then(|sample| sample.library.as_ref());
    let told = library.and_then(|library| library.tee_socket.as_ref()).map(PathBuf::from);
    let here = told.as_ref().and_then(|path| path.file_name()).map(|name| app.dir.join(name));
    // In another mount namespace, the path is not that of the same socket here.
    let told = told.filter(|_| split_root(&app.dir).is_none());
    let places = [told, here, Some(convention(app))];
    places.into_iter().flatten().find(|path| path.exists())
}

/// Where the capture socket of an app ought to be.
pub(super) fn convention(app: &DiscoveredApp) -> PathBuf {
    let file = app.socket.file_name().unwrap_or_default().to_string_lossy();
    let instance = file.strip_prefix(TELEMETRY_SOCKET).unwrap_or_default();
    app.dir.join(format!("{CAPTURE_SOCKET}{instance}"))
}

#[cfg(test)]
mod tests {
    use pmdscope_telemetry::discover::Reachability;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, socket_with};

    use super::*;

    fn app(socket: &str) -> DiscoveredApp {
        DiscoveredApp::in_dir("/run/dpdk/rte", "rte", socket, Reachability::Live)
    }

    #[test]
    fn what_helps_against_losses_is_told_for_the_apps_that_have_them() {
        let cure = |places: &[&str]| cure(places.iter().copied(), &["fwd".to_owned()], "filter");
        assert_eq!(cure(&["fwd2:0", "rte:1"]), "filter");
        for places in [&["fwd:0"][..], &[]] {
            assert!(cure(places).starts_with("for pdump an app copies every packet"));
        }
        assert!(cure(&["fwd:0", "rte:1"]).starts_with("filter; for pdump"));
    }

    #[test]
    fn sockets_that_were_left_behind_are_not_served() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pmdscope.sock");
        let flags = SocketFlags::CLOEXEC;
        let server = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&server, 1).unwrap();
        assert_eq!(is_served(&path, SocketType::SEQPACKET), Ok(true));
        drop(server);
        assert!(path.exists());
        assert_eq!(is_served(&path, SocketType::SEQPACKET), Ok(false));
    }

    #[test]
    fn further_instances_have_sockets_of_the_same_number() {
        let path = |socket: &str| convention(&app(socket));
        assert_eq!(path("dpdk_telemetry.v2"), PathBuf::from("/run/dpdk/rte/pmdscope.sock"));
        assert_eq!(path("dpdk_telemetry.v2:2"), PathBuf::from("/run/dpdk/rte/pmdscope.sock:2"));
    }
}

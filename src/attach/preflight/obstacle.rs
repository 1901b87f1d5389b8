//! The reasons why a secondary process cannot attach, and what to do about them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pmdscope_capture::pdump::{BUILD_COMMAND, PdumpProgram, release};
use pmdscope_telemetry::discover::{DiscoveredApp, primary};
use pmdscope_telemetry::host::foreign::split_root;
use pmdscope_telemetry::host::{device, process_here, secondaries};
use pmdscope_telemetry::sample::Sample;
use pmdscope_xray::{MemoryConfig, ProcessMemory};
use rustix::process::geteuid;

/// The one kernel driver that stops a device when any process with it open ends.
const UIO: &str = "uio_pci_generic";

/// The memzone with the counters of `librte_pdump`.
const PDUMP_ZONE: &str = "rte_pdump_stats";

/// Time between two checks of the secondary processes of an app.
const DEPARTURE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why no helper may attach to an app.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Obstacle {
    #[error("was started with {0}, so no other process can share its memory")]
    Private(&'static str),
    #[error("has no config file in {}, so no other process can share its memory", .0.display())]
    Unshared(PathBuf),
    #[error("is a further instance of its file-prefix, whose memory no other process can share")]
    Further,
    #[error("is a secondary process, and packets are copied in the primary one{}", pid(*.0))]
    Secondary(Option<u32>),
    #[error("runs {app}, and pmdscope-pdump was built with {ours}: both must be of one release")]
    Version { app: String, ours: String },
    #[error("belongs to another user (uid {0})")]
    OtherUser(u32),
    #[error("cannot be inspected ({0}), which is needed to find its mempools")]
    Sealed(String),
    #[error("is a process that cannot be seen from here, as from within a container")]
    Unseen,
    #[error("has no ports")]
    NoPorts,
    #[error("has not called rte_pdump_init()")]
    NoPdump,
    #[error("is already captured by pmdscope-pdump (process {0})")]
    Taken(u32),
    #[error("runs in other namespaces, such as a container, which only root may enter")]
    Enclosed,
    #[error("runs in a container with its own user namespace, which no helper can enter")]
    OtherUsers,
    #[error(
        "uses {device} through {UIO}, which turns the device off when any secondary process ends"
    )]
    Uio { device: String },
    #[error("has other secondary processes ({}), which may use the same hooks and memory", pids(.0))]
    Company(Vec<u32>),
}

fn pid(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

fn pids(pids: &[u32]) -> String {
    let pids = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    format!("process {pids}")
}

impl Obstacle {
    /// The same in a word or two.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Private(option) => option.trim_start_matches('-'),
            Self::Unshared(_) => "no config file",
            Self::Further => "further instance",
            Self::Secondary(_) => "secondary process",
            Self::Version { .. } => "other DPDK",
            Self::OtherUser(_) => "other user",
            Self::Sealed(_) => "no rights",
            Self::Unseen => "not seen from here",
            Self::NoPorts => "no ports",
            Self::NoPdump => "no rte_pdump_init()",
            Self::Taken(_) => "captured already",
            Self::Enclosed | Self::OtherUsers => "in a container",
            Self::Uio { .. } => UIO,
            Self::Company(_) => "other secondaries",
        }
    }

    /// What to do.
    pub(super) fn cure(&self) -> String {
        let library = "link it with libpmdscope, or sample its packets with --peek";
        match self {
            Self::Private(option) => format!("restart it without {option}, {library}"),
            Self::Unshared(_) => {
                format!("restart it without --in-memory and --no-shconf, {library}")
            }
            Self::Further => format!("give it a --file-prefix of its own, {library}"),
            Self::Secondary(_) => "name the primary one, or link this one with libpmdscope".into(),
            Self::Version { app, .. } => format!(
                "build one with its {app} by `{BUILD_COMMAND}`, name another by $PMDSCOPE_PDUMP, or \
                 sample its packets with --peek"
            ),
            Self::OtherUser(_) => "run pmdscope as root or as that user".into(),
            Self::Sealed(_) => {
                "run pmdscope as root, with CAP_SYS_PTRACE and kernel.yama.ptrace_scope below 3"
                    .into()
            }
            Self::Unseen => "run pmdscope where the app runs, or on the host".into(),
            Self::NoPorts => "there is nothing to capture from".into(),
            Self::NoPdump => format!("call it after rte_eal_init(), {library}"),
            Self::Taken(_) => "a port has one capture hook: stop the other capture first".into(),
            Self::Enclosed => format!("run pmdscope as root, {library}"),
            Self::OtherUsers => {
                format!("run pmdscope in that container, for example by nsenter(1), {library}")
            }
            Self::Uio { device } => {
                format!("bind {device} to vfio-pci, or risk it with --force-pdump")
            }
            Self::Company(_) => "end them first, or risk it with --force-pdump".into(),
        }
    }
}

/// What can be seen of an app from outside.
#[derive(Clone, Debug)]
pub(super) struct PreflightFacts {
    arguments: Vec<String>,
    config: Option<PathBuf>,
    further: bool,
    /// The app, and who holds its runtime directory; `None` if no process does, or if it is
    /// unknown.
    pid: u32,
    primary: Option<u32>,
    versions: [String; 2],
    /// User of the app and ours; `None` where the app is not seen.
    user: Option<u32>,
    us: u32,
    /// Why its memory cannot be read.
    sealed: Option<String>,
    ports: usize,
    /// It has called `rte_pdump_init()`; `None` if that is unknown.
    pdump: Option<bool>,
    /// It is in other namespaces, and what keeps a helper out of them.
    enclosed: Option<Obstacle>,
    uio: Option<String>,
    secondaries: Vec<u32>,
    /// The one of them that captures for another of us.
    taken: Option<u32>,
}

impl PreflightFacts {
    pub(super) fn gather(app: &DiscoveredApp, sample: &Sample, program: &PdumpProgram) -> Self {
        let pid = sample.app.pid;
        let config = app.dir.join("config");
        let secondaries = secondaries_here(&app.dir, pid);
        let us = geteuid().as_raw();
        let socket = app.socket.file_name().unwrap_or_default().to_string_lossy();
        let sealed = sealed(pid);
        Self {
            arguments: sample.app.eal_args.clone(),
            config: (!config.exists()).then(|| app.dir.clone()),
            further: socket.contains(':'),
            pid,
            primary: primary(&app.dir).ok().flatten(),
            versions: [sample.app.dpdk_version.clone(), program.dpdk.clone()],
            user: fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid()),
            us,
            pdump: sealed.is_none().then(|| has_pdump(pid)).flatten(),
            sealed,
            ports: sample.ports.len(),
            enclosed: is_apart(&app.dir, pid).then(|| keeps_out(pid, us)).flatten(),
            uio: on_uio(sample),
            taken: secondaries.iter().copied().find(|pid| is_pdump(*pid)),
            secondaries,
        }
    }

    /// The first obstacle; a forced helper only stops for what cannot work at all.
    pub(super) fn obstacle(&self, forced: bool) -> Option<Obstacle> {
        self.barrier().or_else(|| self.risk().filter(|_| !forced))
    }

    fn barrier(&self) -> Option<Obstacle> {
        let [app, ours] = self.versions.clone();
        let stranger = self.user.filter(|user| self.us != 0 && self.us != *user);
        let secondary = self.is_secondary();
        let checks = [
            self.further.then_some(Obstacle::Further),
            private(&self.arguments).map(Obstacle::Private),
            secondary.then(|| Obstacle::Secondary(self.primary.filter(|pid| *pid != 0))),
            self.config.clone().map(Obstacle::Unshared),
            self.enclosed.clone(),
            differ(&app, &ours).then_some(Obstacle::Version { app, ours }),
            stranger.map(Obstacle::OtherUser),
            (self.pid == 0).then_some(Obstacle::Unseen),
            self.sealed.clone().map(Obstacle::Sealed),
            (self.ports == 0).then_some(Obstacle::NoPorts),
            (self.pdump == Some(false)).then_some(Obstacle::NoPdump),
            self.taken.map(Obstacle::Taken),
        ];
        checks.into_iter().flatten().next()
    }

    /// The lock names no process (0) where it cannot see it.
    fn is_secondary(&self) -> bool {
        let other = self.primary.is_some_and(|primary| primary != 0 && primary != self.pid);
        other || options(&self.arguments).any(|option| option == "--proc-type=secondary")
    }

    fn risk(&self) -> Option<Obstacle> {
        let company = (!self.secondaries.is_empty()).then(|| self.secondaries.clone());
        let checks = [
            self.uio.clone().map(|device| Obstacle::Uio { device }),
            company.map(Obstacle::Company),
        ];
        checks.into_iter().flatten().next()
    }
}

/// Whether two versions are of different releases, or cannot be compared.
fn differ(app: &str, ours: &str) -> bool {
    match (release(app), release(ours)) {
        (Some(app), Some(ours)) => app != ours,
        _ => app != ours,
    }
}

/// Long options of the EAL, each with its value.
fn options(arguments: &[String]) -> impl Iterator<Item = String> {
    let mut words = arguments.iter().skip(1).take_while(|word| *word != "--").peekable();
    std::iter::from_fn(move || {
        let word = words.next()?;
        let value = words.next_if(|next| !word.contains('=') && !next.starts_with('-'));
        Some(value.map_or_else(|| word.clone(), |value| format!("{word}={value}")))
    })
}

/// The option that keeps others out of the memory of an app. The EAL takes any unambiguous beginning.
fn private(arguments: &[String]) -> Option<&'static str> {
    let is = |option: &str, shortest: &str, whole: &str| {
        option.starts_with(shortest) && whole.starts_with(option)
    };
    options(arguments).find_map(|option| {
        let (name, value) = option.split_once('=').unwrap_or((&option, "always"));
        match name {
            _ if is(name, "--in", "--in-memory") => Some("--in-memory"),
            _ if is(name, "--no-s", "--no-shconf") => Some("--no-shconf"),
            _ if is(name, "--no-hu", "--no-huge") => Some("--no-huge"),
            _ if is(name, "--huge-u", "--huge-unlink") && value == "always" => {
                Some("--huge-unlink=always")
            }
            _ => None,
        }
    })
}

/// Why the memory of a process cannot be read; asked of the kernel, whose rules are many.
fn sealed(pid: u32) -> Option<String> {
    let error = File::open(format!("/proc/{pid}/mem")).err()?;
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    denied.then(|| "ptrace permission denied".to_owned())
}

/// Whether a process has called `rte_pdump_init()`, which reserves a memzone; `None` if its memzones are not
/// found.
fn has_pdump(pid: u32) -> Option<bool> {
    let memory = ProcessMemory::open(pid).ok()?;
    let config = MemoryConfig::find(&memory).ok()?;
    Some(config.memzones.iter().any(|zone| zone.name == PDUMP_ZONE))
}

/// Waits for a helper to leave an app, but not for longer than a limit: it may be about to, because
/// its consumer has ended, or has been killed.
pub(super) fn await_departure(dir: &Path, app: u32, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    while secondaries_here(dir, app).into_iter().any(is_pdump) && Instant::now() < deadline {
        thread::sleep(DEPARTURE_POLL_INTERVAL);
    }
}

/// A helper, by the name of the process.
fn is_pdump(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.is_ok_and(|name| name.trim_end() == "pmdscope-pdump")
}

/// Secondary processes by their ids here, as far as they are seen.
fn secondaries_here(dir: &Path, app: u32) -> Vec<u32> {
    secondaries(dir).into_iter().map(|own| process_here(own, app).unwrap_or(own)).collect()
}

/// A process is in another namespace of a kind. An unknown namespace counts as the same.
pub(super) fn differs(kind: &str, pid: u32) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    namespace(&pid.to_string()).is_some_and(|theirs| namespace("self") != Some(theirs))
}

/// What keeps a helper out of the namespaces of a process.
fn keeps_out(pid: u32, us: u32) -> Option<Obstacle> {
    let obstacle = (us != 0).then_some(Obstacle::Enclosed);
    obstacle.or_else(|| differs("user", pid).then_some(Obstacle::OtherUsers))
}

/// Whether an app is in any other namespace, so that a helper has to enter those.
fn is_apart(dir: &Path, pid: u32) -> bool {
    let kinds = ["mnt", "pid", "net", "ipc", "uts", "cgroup", "user"];
    split_root(dir).is_some() || kinds.iter().any(|kind| differs(kind, pid))
}

/// A device that a port is on, or that the arguments name.
fn on_uio(sample: &Sample) -> Option<String> {
    let of_ports = sample.ports.iter().filter_map(|port| device::of_port(&port.device));
    let mut devices = of_ports.chain(sample.devices.iter().cloned());
    devices.find(|device| device.driver.as_deref() == Some(UIO)).map(|device| device.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> PreflightFacts {
        PreflightFacts {
            arguments: words("testpmd -l 0-1 --file-prefix fwd -- -i"),
            config: None,
            further: false,
            pid: 7,
            primary: Some(7),
            versions: ["DPDK 22.11.11".into(), "DPDK 22.11.11".into()],
            user: Some(0),
            us: 0,
            sealed: None,
            ports: 2,
            pdump: Some(true),
            enclosed: None,
            uio: None,
            secondaries: Vec::new(),
            taken: None,
        }
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn obstacle(change: impl FnOnce(&mut PreflightFacts)) -> Option<Obstacle> {
        let mut facts = good();
        change(&mut facts);
        facts.obstacle(false)
    }

    #[test]
    fn an_app_like_any_other_has_no_obstacle() {
        assert_eq!(obstacle(|_| ()), None);
        assert_eq!(obstacle(|facts| facts.primary = None), None);
        assert_eq!(obstacle(|facts| facts.pdump = None), None);
        assert_eq!(obstacle(|facts| facts.pdump = Some(false)), Some(Obstacle::NoPdump));
        assert_eq!(obstacle(|facts| (facts.user, facts.us) = (Some(5), 5)), None);
        assert_eq!(obstacle(|facts| facts.versions[0] = "DPDK 22.11.4".into()), None, "an update");
    }

    #[test]
    fn options_that_hide_memory_are_found_however_they_are_written() {
        let private = |line: &str| private(&words(line));
        assert_eq!(private("app --in-memory -- x"), Some("--in-memory"));
        assert_eq!(private("app --in-mem"), Some("--in-memory"));
        assert_eq!(private("app -l 0 --no-shconf"), Some("--no-shconf"));
        assert_eq!(private("app --no-huge -m 64"), Some("--no-huge"));
        for always in ["--huge-unlink", "--huge-unlink=always", "--huge-u -l 1"] {
            assert_eq!(private(&format!("app {always}")), Some("--huge-unlink=always"), "{always}");
        }
        for fine in ["app --huge-unlink=never", "app --no-pci --no-hpet", "app -- --in-memory", ""]
        {
            assert_eq!(private(fine), None, "{fine}");
        }
    }

    #[test]
    fn risks_can_be_taken_and_barriers_cannot() {
        let mut facts = good();
        facts.uio = Some("0000:03:00.0".into());
        facts.secondaries = vec![17, 18];
        assert!(facts.obstacle(false).is_some());
        assert_eq!(facts.obstacle(true), None);
        facts.enclosed = Some(Obstacle::Enclosed);
        assert_eq!(facts.obstacle(true), Some(Obstacle::Enclosed));
        facts.versions[0] = "DPDK 23.11.0".into();
        assert!(facts.obstacle(true).is_some());
    }

    #[test]
    fn a_secondary_process_is_told_by_its_arguments_or_the_lock() {
        let named = |line: &str| obstacle(|facts| facts.arguments = words(line));
        assert_eq!(named("app --proc-type=secondary"), Some(Obstacle::Secondary(Some(7))));
        assert_eq!(named("app --proc-type secondary -l 1"), Some(Obstacle::Secondary(Some(7))));
        assert_eq!(named("app --proc-type=primary"), None);
        let locked = |by| obstacle(|facts| facts.primary = Some(by));
        assert_eq!(locked(9), Some(Obstacle::Secondary(Some(9))));
        assert_eq!(locked(0), None, "a process of another namespace");
    }

    #[test]
    fn every_obstacle_says_what_it_is_and_what_to_do() {
        let version = |text: &str| format!("DPDK {text}");
        let all = [
            Obstacle::Private("--in-memory"),
            Obstacle::Unshared("/run/dpdk/fwd".into()),
            Obstacle::Further,
            Obstacle::Secondary(Some(9)),
            Obstacle::Version { app: version("23.11.0"), ours: version("22.11.11") },
            Obstacle::OtherUser(1000),
            Obstacle::Sealed("ptrace permission denied".into()),
            Obstacle::Unseen,
            Obstacle::NoPorts,
            Obstacle::Taken(17),
            Obstacle::Enclosed,
            Obstacle::OtherUsers,
            Obstacle::Uio { device: "0000:03:00.0".into() },
            Obstacle::Company(vec![17, 18]),
        ];
        let lines = all.map(|obstacle| format!("fwd {obstacle}; {}", obstacle.cure()));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn this_process_is_as_open_as_it_is() {
        let me = std::process::id();
        assert!(!is_apart(Path::new("/run/dpdk/rte"), me));
        assert_eq!(sealed(me), None);
    }
}

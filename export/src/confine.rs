//! Takes all rights from the network process that it does not need: capabilities, the user root, files.

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{
    Gid, Resource, Rlimit, Uid, parent_process_death_signal, set_parent_process_death_signal,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::options::ConnectionLimits;

/// `nobody`, and `nogroup` or the group `nobody`.
const NOBODY: u32 = 65534;

/// Rights that the rules name; a kernel that knows fewer enforces those.
const RIGHTS: ABI = ABI::V6;

/// Files besides those of connections.
const OTHER_FILES: u64 = 64;

/// What it takes to resolve the name of an OTLP receiver and to verify its certificate.
const FOR_PUSHES: [&str; 19] = [
    "/usr",
    "/lib",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls",
    "/etc/pki/ca-trust",
    "/etc/ca-certificates",
    "/run/systemd/resolve",
];

/// Confines this process, which must have one thread, and returns what the system does not support.
///
/// # Errors
/// Fails if it would keep a capability, or could get one.
pub(crate) fn confine(pushes: bool) -> io::Result<Vec<&'static str>> {
    let mut missing = Vec::new();
    let with_parent = parent_process_death_signal()?;
    for capability in CapabilitySet::all().iter() {
        // Only with CAP_SETPCAP; without it, no_new_privs has the same effect.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    if rustix::process::geteuid().is_root() && become_nobody().is_err() {
        missing.push("a user of its own (CAP_SETUID and CAP_SETGID)");
    }
    drop_capabilities()?;
    // The kernel has forgotten it with the user. Who started this process may rely on it.
    set_parent_process_death_signal(with_parent)?;
    rustix::thread::set_no_new_privs(true)?;
    match close_files(pushes) {
        Ok(RulesetStatus::NotEnforced) | Err(_) => missing.push("Landlock"),
        Ok(RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced) => {}
    }
    Ok(missing)
}

/// This process has one thread, so what is done to the thread is done to the process.
fn become_nobody() -> rustix::io::Result<()> {
    let (group, user) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

/// Where a sandbox forbids capset(2), those that can only be inherited stay: no program that this process could
/// start would get them.
fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    let dropped = rustix::thread::set_capabilities(None, sets);
    let has = rustix::thread::capabilities(None)?;
    if has.permitted.is_empty() { Ok(()) } else { Ok(dropped?) }
}

/// Closes all files and, unless metrics are pushed, the way to other machines. Listening sockets and the
/// socket of the collector are open already.
fn close_files(pushes: bool) -> Result<RulesetStatus, RulesetError> {
    let mut network = BitFlags::from(AccessNet::BindTcp);
    if !pushes {
        network |= AccessNet::ConnectTcp;
    }
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .handle_access(network)?
        .scope(Scope::from_all(RIGHTS))?
        .create()?;
    let certificates = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(std::env::var_os);
    let readable = FOR_PUSHES.into_iter().map(PathBuf::from).chain(certificates.map(PathBuf::from));
    let readable = readable.filter(|_| pushes);
    let rules = path_beneath_rules(readable, AccessFs::from_read(RIGHTS));
    Ok(ruleset.add_rules(rules)?.restrict_self()?.ruleset)
}

/// Raises the limit of open files for the connections, as far as the system permits, and lowers the number
/// of connections to what then fits: each has a socket, and a document.
pub(crate) fn fit_open_files(limits: ConnectionLimits) -> ConnectionLimits {
    let wanted = 2 * limits.total as u64 + OTHER_FILES;
    let old = rustix::process::getrlimit(Resource::Nofile);
    let most = old.maximum.unwrap_or(u64::MAX);
    let mut now = old.current.unwrap_or(u64::MAX);
    if now < wanted {
        let raised = Rlimit { current: Some(wanted.min(most)), maximum: old.maximum };
        if rustix::process::setrlimit(Resource::Nofile, raised).is_ok() {
            now = wanted.min(most);
        }
    }
    let fits = usize::try_from(now.saturating_sub(OTHER_FILES) / 2).unwrap_or(usize::MAX);
    ConnectionLimits { total: limits.total.min(fits.max(1)), ..limits }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;

    use super::*;

    /// What the confined process tries, by the directory that it must not read.
    const DIRECTORY: &str = "PMDSCOPE_TEST_CONFINED";

    /// The test that runs in the confined process: nothing if it is not.
    #[test]
    fn confined_process() {
        let Some(directory) = std::env::var_os(DIRECTORY) else { return };
        let directory = PathBuf::from(directory);
        let address = fs::read_to_string(directory.join("address")).unwrap();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let number = |part: &str| part.parse::<u32>().unwrap_or(0);
        let mut release = release.split(['.', '-']).map(number);
        let controls_tcp = (release.next(), release.next()) >= (Some(6), Some(7));
        // In a thread of its own: that of the harness stays as it is.
        let missing = confine(false).unwrap();
        let status = fs::read_to_string("/proc/thread-self/status");
        let has = rustix::thread::capabilities(None).unwrap();
        assert!(has.permitted.is_empty() && has.effective.is_empty());
        assert!(rustix::thread::no_new_privs().unwrap());
        if missing.contains(&"Landlock") {
            return;
        }
        assert!(status.is_err(), "/proc is closed, too");
        assert!(fs::read_dir(&directory).is_err() && fs::read(directory.join("address")).is_err());
        assert!(fs::write(directory.join("new"), "x").is_err());
        if controls_tcp {
            assert!(TcpListener::bind("127.0.0.1:0").is_err());
            assert!(TcpStream::connect(address).is_err());
        }
    }

    #[test]
    fn a_confined_process_has_no_capability_and_opens_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let address = listener.local_addr().unwrap().to_string();
        fs::write(directory.path().join("address"), &address).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "confine::tests::confined_process", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        assert!(
            fs::read_dir(directory.path()).unwrap().count() == 1
                && TcpStream::connect(address).is_ok()
        );
    }

    #[test]
    fn connections_fit_into_the_open_files() {
        let default = ConnectionLimits::default();
        let fitted = fit_open_files(default);
        assert!(fitted.total >= 1 && fitted.total <= default.total);
        let all = ConnectionLimits { total: usize::MAX / 4, ..default };
        let most = rustix::process::getrlimit(Resource::Nofile).maximum;
        if let Some(most) = most {
            assert!(fit_open_files(all).total as u64 <= most / 2);
        }
    }
}

//! Why the kernel denies a process the memory of another.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// `CAP_SYS_PTRACE` in the masks of `/proc/PID/status`.
const CAP_SYS_PTRACE: u64 = 1 << 19;

/// The user ids of the first user namespace, as in `/proc/PID/uid_map`.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// Why a process may not read another, and the cure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessDenial {
    /// `kernel.yama.ptrace_scope` is 3.
    YamaForbidsAll,
    /// `kernel.yama.ptrace_scope` is 1 or 2.
    YamaNeedsCapability {
        /// Its value.
        scope: u32,
    },
    /// This program has the right only in a user namespace other than the app's.
    OtherUserNamespace,
    /// This program runs as root, without `CAP_SYS_PTRACE`.
    RootWithoutCapability,
    /// The app runs as another user or group.
    OtherUser {
        /// User id of the app.
        uid: u32,
    },
    /// The app is of this user, but not dumpable: it changed its user or has file capabilities.
    NotDumpable,
    /// The app has capabilities that this program lacks.
    MoreCapabilities,
    /// None of these: a security module or a filter of system calls.
    SecurityModule,
    /// `/proc` does not report it.
    Unknown,
}

impl fmt::Display for AccessDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::YamaForbidsAll => f.write_str(
                "kernel.yama.ptrace_scope is 3, which forbids it to everybody until the next boot: set \
                 it to 2 or less in /etc/sysctl.d and reboot",
            ),
            Self::YamaNeedsCapability { scope } => write!(
                f,
                "kernel.yama.ptrace_scope is {scope}, which allows it only with CAP_SYS_PTRACE: run \
                 pmdscope as root, or set it to 0 with sysctl"
            ),
            Self::OtherUserNamespace => f.write_str(
                "the app runs in another user namespace, in which the capabilities of this one do not \
                 count: run pmdscope as root of the host",
            ),
            Self::RootWithoutCapability => f.write_str(
                "this is root without CAP_SYS_PTRACE, as in containers: add that capability, such as \
                 with docker run --cap-add SYS_PTRACE, or run pmdscope on the host",
            ),
            Self::OtherUser { uid } => write!(
                f,
                "the app runs as another user (user id {uid}) or group: run pmdscope as root or with \
                 CAP_SYS_PTRACE"
            ),
            Self::NotDumpable => f.write_str(
                "the app is protected from its own user (not dumpable: it changed its user, or its file \
                 has capabilities): run pmdscope as root or with CAP_SYS_PTRACE",
            ),
            Self::MoreCapabilities => f.write_str(
                "the app has capabilities that this program has not: run pmdscope as root or with \
                 CAP_SYS_PTRACE",
            ),
            Self::SecurityModule => f.write_str(
                "a security module (SELinux, AppArmor, Landlock) or a seccomp filter forbids it: look \
                 for the denial in the kernel's log (dmesg, ausearch -m avc)",
            ),
            Self::Unknown => f.write_str(
                "it needs root, CAP_SYS_PTRACE, or the user of the app where kernel.yama.ptrace_scope \
                 is 0",
            ),
        }
    }
}

/// The values that decide whether a process may read another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AccessFacts {
    /// `kernel.yama.ptrace_scope`; 0 without Yama.
    yama_scope: u32,
    /// This process is in the first user namespace.
    in_first_namespace: bool,
    own: Credentials,
    app: Credentials,
    /// Owner of the app's files in `/proc`: root, if the app is not dumpable.
    proc_owner: u32,
}

/// Values of `/proc/PID/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Credentials {
    /// Real, effective and saved ids of the user and of the group.
    ids: [[u32; 3]; 2],
    permitted: u64,
    effective: u64,
}

impl AccessDenial {
    /// Why this process may not read the memory of process `pid`.
    pub(crate) fn of(pid: u32) -> Self {
        AccessFacts::read(pid).map_or(Self::Unknown, |facts| facts.denial())
    }
}

impl AccessFacts {
    fn read(pid: u32) -> Option<Self> {
        let credentials = |process: &str| {
            Credentials::parse(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
        };
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
        let map = fs::read_to_string("/proc/self/uid_map").ok()?;
        Some(Self {
            yama_scope: scope.ok().and_then(|scope| scope.trim().parse().ok()).unwrap_or(0),
            in_first_namespace: map.split_ascii_whitespace().eq(ALL_USERS),
            own: credentials("self")?,
            app: credentials(&pid.to_string())?,
            // The directory itself always belongs to the user.
            proc_owner: fs::metadata(format!("/proc/{pid}/status")).ok()?.uid(),
        })
    }

    /// In the order in which the kernel decides.
    fn denial(&self) -> AccessDenial {
        let [users, groups] = self.app.ids;
        let [[_, user, _], [_, group, _]] = self.own.ids;
        if self.yama_scope >= 3 {
            AccessDenial::YamaForbidsAll
        } else if self.own.effective & CAP_SYS_PTRACE != 0 {
            if self.in_first_namespace {
                AccessDenial::SecurityModule
            } else {
                AccessDenial::OtherUserNamespace
            }
        } else if user == 0 {
            AccessDenial::RootWithoutCapability
        } else if users != [user; 3] || groups != [group; 3] {
            AccessDenial::OtherUser { uid: users[0] }
        } else if self.proc_owner != user {
            AccessDenial::NotDumpable
        } else if self.app.permitted & !self.own.permitted != 0 {
            AccessDenial::MoreCapabilities
        } else if self.yama_scope > 0 {
            AccessDenial::YamaNeedsCapability { scope: self.yama_scope }
        } else {
            AccessDenial::SecurityModule
        }
    }
}

impl Credentials {
    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
        };
        let ids = |name| {
            let mut ids = field(name)?.split('\t').map_while(|id| id.parse().ok());
            Some([ids.next()?, ids.next()?, ids.next()?])
        };
        let mask = |name| u64::from_str_radix(field(name)?, 16).ok();
        Some(Self {
            ids: [ids("Uid")?, ids("Gid")?],
            permitted: mask("CapPrm")?,
            effective: mask("CapEff")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(id: u32) -> Credentials {
        Credentials { ids: [[id; 3]; 2], permitted: 0, effective: 0 }
    }

    #[test]
    fn each_cause_has_its_name() {
        let facts = AccessFacts {
            yama_scope: 0,
            in_first_namespace: true,
            own: user(1000),
            app: user(1000),
            proc_owner: 1000,
        };
        let powerful = |id| Credentials { permitted: u64::MAX, effective: u64::MAX, ..user(id) };
        let cases = [
            (
                AccessFacts { yama_scope: 3, own: powerful(0), ..facts.clone() },
                AccessDenial::YamaForbidsAll,
            ),
            (AccessFacts { own: powerful(0), ..facts.clone() }, AccessDenial::SecurityModule),
            (
                AccessFacts { own: powerful(0), in_first_namespace: false, ..facts.clone() },
                AccessDenial::OtherUserNamespace,
            ),
            (AccessFacts { own: user(0), ..facts.clone() }, AccessDenial::RootWithoutCapability),
            (
                AccessFacts { app: user(0), yama_scope: 1, proc_owner: 0, ..facts.clone() },
                AccessDenial::OtherUser { uid: 0 },
            ),
            (AccessFacts { proc_owner: 0, ..facts.clone() }, AccessDenial::NotDumpable),
            (AccessFacts { app: powerful(1000), ..facts.clone() }, AccessDenial::MoreCapabilities),
            (
                AccessFacts { yama_scope: 1, ..facts.clone() },
                AccessDenial::YamaNeedsCapability { scope: 1 },
            ),
            (facts, AccessDenial::SecurityModule),
        ];
        for (facts, denial) in cases {
            assert_eq!(facts.denial(), denial, "{facts:?}");
        }
    }

    #[test]
    fn this_process_tells_its_credentials() {
        let facts = AccessFacts::read(std::process::id()).unwrap();
        assert_eq!(facts.own, facts.app);
        assert_eq!(facts.app.ids[0][1], rustix::process::geteuid().as_raw());
        assert_eq!(AccessDenial::of(u32::MAX), AccessDenial::Unknown);
    }

    proptest! {
        #[test]
        fn any_status_parses_or_not(text in "((Uid|Gid|CapPrm|CapEff):\t[0-9a-f\t]{0,40}\n){0,6}") {
            let _ = Credentials::parse(&text);
        }
    }
}

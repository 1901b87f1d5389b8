//! A container as an engine makes one: processes in it have mounts, ids, interfaces and hugepages of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Process, wait_until};
use crate::scratch::Scratch;

const START: Duration = Duration::from_secs(10);

/// Containers of this process so far.
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Makes the mounts of the container. Its first process ends with its standard input, and the others
/// with it.
const HOLD: &str = "mount -t tmpfs tmpfs /run && mkdir /run/dpdk && \
    mount -t hugetlbfs -o pagesize=2M hugetlbfs /dev/hugepages && \
    mount -t proc proc /proc && ip link set lo up && echo ready && exec cat";

/// Joins a control group, and becomes a program.
const JOIN: &str = r#"echo 0 >"$0/cgroup.procs" && exec "$@""#;

/// Namespaces that are not those of this process.
const NAMESPACES: [&str; 5] = ["--mount", "--pid", "--net", "--ipc", "--uts"];

/// Where control groups may be: version 2, the same beside version 1, and one of version 1.
const GROUPS: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"];

/// Processes apart from those of the host. Dropping it ends them all.
pub struct Container {
    // Dropped first: the processes in the group end with it.
    holder: Holder,
    group: Group,
    id: String,
}

/// The first process of a container, behind the one that started it.
struct Holder {
    process: Process,
    pid: u32,
}

/// A control group, named as that of a container.
struct Group(PathBuf);

impl Container {
    /// Starts one; `number` makes its id.
    pub fn start(scratch: &Scratch, number: u8) -> Result<Self> {
        fs::create_dir_all("/run/dpdk")?;
        // No other test has its first 12 digits, which name it, nor another run.
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let id = format!("{number:02x}{serial:04x}{:06x}{}", std::process::id(), "0".repeat(52));
        let group = Group::new(&id)?;
        let mut command = Command::new("unshare");
        command.args(NAMESPACES).args(["--fork", "--kill-child", "--", "sh", "-c", HOLD]);
        let name = format!("container-{number}");
        let process = Process::spawn_with_console(&name, &mut command, scratch.dir())?;
        let mut holder = Holder { pid: process.pid(), process };
        wait_until("a container", START, || {
            if let Some(status) = holder.process.exited()? {
                bail!("it ended with {status}: {}", holder.process.output());
            }
            Ok(holder.process.output().contains("ready"))
        })?;
        holder.pid = only_child(holder.process.pid()).context("a container without processes")?;
        Ok(Self { holder, group, id })
    }

    /// Its id, in the format of a container engine.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its root directory, seen from the host.
    pub fn root(&self) -> PathBuf {
        format!("/proc/{}/root", self.holder.pid).into()
    }

    /// Runtime directory of an app in it, seen from the host.
    pub fn runtime_dir(&self, app: &str) -> PathBuf {
        self.root().join("run/dpdk").join(app)
    }

    /// A command that runs in it. The process that is started here stays outside; see [`only_child`].
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(NAMESPACES).args(["--target", &self.holder.pid.to_string(), "--"]);
        command.args(["sh", "-c", JOIN]).arg(&self.group.0).arg(program.as_ref());
        command
    }
}

impl Drop for Holder {
    /// The process outside does not forward signals.
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Group {
    fn new(id: &str) -> Result<Self> {
        let root = GROUPS.iter().find(|root| Path::new(root).join("cgroup.procs").exists());
        let group =
            Path::new(root.context("no control groups")?).join(format!("docker-{id}.scope"));
        fs::create_dir(&group).with_context(|| format!("create {}", group.display()))?;
        Ok(Self(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Busy until its last process has been waited for.
        let _ =
            wait_until(
                "a control group to be empty",
                START,
                || Ok(fs::remove_dir(&self.0).is_ok()),
            );
    }
}

/// The only child of a process: the one in the container that a process outside has started.
pub fn only_child(pid: u32) -> Option<u32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?.trim().parse().ok()
}

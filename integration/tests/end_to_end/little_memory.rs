//! Captures from an app whose memory cgroup has little left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::pair::{Pair, PairOptions};
use pmdscope_integration::process::{run, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;

use crate::support::{LIMIT, Missing, Needs, tee_sessions, trial_unless};

/// What the cgroup leaves, bytes: a ring of 16 MiB does not fit, one of 4 MiB does.
const LEFT: u64 = 16 << 20;

pub(crate) fn trials() -> Vec<Trial> {
    let missing = Needs::Apps.missing().or_else(|| {
        let reason = "no memory cgroup can be made here".to_owned();
        MemoryGroup::new(u64::MAX >> 12).is_none().then_some(Missing::Machine(reason))
    });
    vec![trial_unless("an_app_at_its_limit_of_memory_gets_smaller_rings", missing, smaller_rings)]
}

/// A cgroup whose memory is limited. The processes in it must have ended when it is dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(bytes: u64) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = |line: &str| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            match controllers {
                "" => Some((format!("/sys/fs/cgroup{path}"), "memory.max")),
                "memory" => Some((format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes")),
                _ => None,
            }
        };
        own.lines().filter_map(path).find_map(|(dir, limit)| {
            let group = Path::new(&dir).join(format!("pmdscope-test-{}", std::process::id()));
            fs::create_dir(&group).ok()?;
            let group = Self(group);
            let limited = fs::OpenOptions::new().write(true).open(group.0.join(limit)).ok()?;
            std::io::Write::write_all(&mut &limited, bytes.to_string().as_bytes()).ok()?;
            Some(group)
        })
    }

    fn add(&self, pid: u32) -> Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).context("move an app")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has ended may still be leaving it.
        let removed = || Ok(fs::remove_dir(&self.0).is_ok());
        if let Err(error) = wait_until("an empty cgroup", LIMIT, removed) {
            eprintln!("{}: {error:#}", self.0.display());
        }
    }
}

fn smaller_rings(scratch: &Scratch) -> Result<()> {
    let group = MemoryGroup::new(LEFT).context("no memory cgroup")?;
    let mut pair = Pair::start(scratch, PairOptions::default())?;
    wait_until("the app to answer", LIMIT, || Ok(tee_sessions(pair.app()).is_ok()))?;
    group.add(pair.reflector.pid())?;
    let interface = format!("{}:0", pair.app());
    let capture = |args: &[&str]| {
        let mut command = Command::new(programs::pmdscope()?);
        command.args(["capture", "-i", &interface, "--duration", "0.2", "-w", "few.pcapng"]);
        run(command.args(args).current_dir(scratch.dir()), scratch.dir(), LIMIT)
    };

    let (code, _, errors) = capture(&[])?;
    ensure!(
        code == 0 && errors.contains("rings of 4096 KiB: ring_size: no memory for"),
        "{errors}"
    );
    ensure!(errors.contains("the app's cgroup has 1"), "{errors}");
    // The size that the user named is not changed.
    let (code, _, errors) = capture(&["-B", "16384"])?;
    ensure!(code == 1 && errors.contains("KiB fit"), "{code}: {errors}");
    let (code, _, errors) = capture(&["-B", "2048"])?;
    ensure!(code == 0 && !errors.contains("no memory"), "{code}: {errors}");
    wait_until("the captures to end", LIMIT, || Ok(tee_sessions(pair.app())? == 0))?;
    pair.reflector.interrupt()?;
    Ok(())
}

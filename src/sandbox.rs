//! Runs a program that parses untrusted data with minimal privileges.
//!
//! `pmdscope sandbox` is for internal use: the live view starts pmdscope with it, which drops its
//! privileges and executes the program. Open descriptors, such as pipes, are inherited.
#![allow(unsafe_code)] // Leaves the network of the system, which rustix calls unsafe.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Gid, Resource, Rlimit, Uid};
use rustix::thread::UnshareFlags;

use crate::output;

/// `nobody` and `nogroup`, or the group `nobody`, on every Linux.
const NOBODY: u32 = 65534;
/// Rights that the rules speak of; a kernel that knows fewer enforces those.
const RIGHTS: ABI = ABI::V6;
/// Files a process may have open: libraries one after the other, and pipes.
const OPEN_FILES: u64 = 64;
/// Bytes of memory that a program may use.
const MEMORY: u64 = 512 << 20;

/// What programs need to start and to know names: code, locales, the resolver's settings.
const READABLE: [&str; 21] = [
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/nix/store",
    "/gnu/store",
    "/etc/alternatives",
    "/etc/ethers",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/run/systemd/resolve",
    "/dev/urandom",
];

/// Run a program without rights. Started by `pmdscope capture` itself
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Without a network
    #[arg(long)]
    offline: bool,

    /// Say what this system cannot take away
    #[arg(long)]
    tell: bool,

    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the program.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (program, rest) = args.command.split_first().context("no program to run")?;
    let mut missing = Vec::new();
    if args.offline && leave_network().is_err() {
        missing.push("a network of its own");
    }
    limit().context("cannot limit resources")?;
    if rustix::process::geteuid().is_root() {
        become_nobody().context(
            "cannot become nobody: run with CAP_SETUID and CAP_SETGID, or write packets with -w",
        )?;
    }
    // Later than the change of the user: that one would fail if the user `nobody` already has
    // processes.
    set(Resource::Nproc, 0).context("cannot limit processes")?;
    rustix::thread::set_no_new_privs(true).context("cannot set no_new_privs")?;
    match close_files(Path::new(program), args.offline) {
        Ok(RulesetStatus::NotEnforced) | Err(_) => missing.push("landlock"),
        Ok(RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced) => {}
    }
    if args.tell && !missing.is_empty() {
        let missing = missing.join(" and ");
        output::tell(&format!(
            "this system does not support {missing} for the sandbox of the decoder"
        ));
    }
    let error = Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

fn set(resource: Resource, most: u64) -> rustix::io::Result<()> {
    // A limit that is lower already stays.
    let most = rustix::process::getrlimit(resource).maximum.map_or(most, |old| old.min(most));
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    rustix::process::setrlimit(resource, limit)
}

fn limit() -> rustix::io::Result<()> {
    set(Resource::Core, 0)?;
    // Pipes have no size, so output goes on.
    set(Resource::Fsize, 0)?;
    set(Resource::Nofile, OPEN_FILES)?;
    set(Resource::As, MEMORY)
}

/// Root leaves it as it is; others need a user namespace for it, in which they stay who they are.
#[allow(clippy::disallowed_methods)] // Files of the kernel.
fn leave_network() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() {
        return unshare(UnshareFlags::NEWNET);
    }
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
    let (user, group) = (user.as_raw(), group.as_raw());
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: no file table is unshared, which is what could confuse other threads; there are none.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// This process has one thread, so what is done to the thread is done to the process.
fn become_nobody() -> rustix::io::Result<()> {
    let (group, user) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

fn close_files(program: &Path, offline: bool) -> Result<RulesetStatus, RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::from_read(RIGHTS);
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .scope(Scope::from_all(RIGHTS))?;
    if offline {
        ruleset = ruleset.handle_access(AccessNet::from_all(RIGHTS))?;
    }
    let status = ruleset
        .create()?
        .add_rules(path_beneath_rules(READABLE, read))?
        .add_rules(path_beneath_rules([program], read))?
        .add_rules(path_beneath_rules(["/dev/null"], read | AccessFs::WriteFile))?
        .restrict_self()?;
    Ok(status.ruleset)
}

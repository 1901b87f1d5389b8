//! Stock apps of another user, who controls their files and their memory: tools that run as root do nothing
//! for that user that the user could not do.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::disk::Disk;
use pmdscope_integration::pdump::helpers;
use pmdscope_integration::process::{Process, run};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::testpmd::{Setup, Testpmd};

use crate::pdump::await_hooks;
use crate::support::{LIMIT, Needs, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_helper_has_no_more_rights_than_its_app", Needs::Pdump, rights),
        trial("links_of_a_hostile_app_reach_no_file_of_root", Needs::Pdump, links),
        trial("a_bundle_attaches_to_no_app_that_was_not_named", Needs::Pdump, unnamed),
    ]
}

/// A user without rights; the machine need not know the name.
const USER: u32 = 1234;

/// An app of that user.
struct UsersApp {
    // Dropped before its memory is unmounted.
    testpmd: Testpmd,
    runtime_root: PathBuf,
    hugepages: Disk,
}

impl UsersApp {
    fn start(scratch: &Scratch) -> Result<Self> {
        fs::set_permissions(scratch.dir(), Permissions::from_mode(0o755))?;
        let runtime_root = scratch.path("run");
        fs::create_dir(&runtime_root)?;
        chown(&runtime_root, Some(USER), Some(USER))?;
        let hugepages = Disk::hugepages(&scratch.path("huge"), USER)?;
        let mut command = Command::new("setpriv");
        let user = USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
        let setup = Setup { eal: &["-m", "64"], ..Setup::FLAT_OUT };
        let testpmd = Testpmd::start_as(scratch, command, &runtime_root, hugepages.path(), setup)?;
        Ok(Self { testpmd, runtime_root, hugepages })
    }

    /// Its name for root.
    fn name(&self) -> String {
        format!("{USER}/{}", self.testpmd.app())
    }

    /// A command of root that finds it.
    fn pmdscope(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(programs::pmdscope()?);
        command.env("RUNTIME_DIRECTORY", &self.runtime_root).args(args);
        Ok(command)
    }
}

/// Watchdog and worker are processes of its user, with no capability, and what they create is of that user.
fn rights(scratch: &Scratch) -> Result<()> {
    let app = UsersApp::start(scratch)?;
    let file = scratch.path("user.pcapng");
    let mut command = app.pmdscope(&["capture", "-i", &format!("{}:any", app.name()), "-w"])?;
    let mut capture = Process::spawn("capture", command.arg(file), scratch.dir())?;
    await_hooks(&mut capture, &app.testpmd)?;
    let attached = helpers(app.testpmd.app())?;
    ensure!(attached.len() == 2, "{attached:?}");
    for helper in attached {
        has_rights_of_user(helper.pid, app.testpmd.pid())?;
    }
    for file in fs::read_dir(app.testpmd.runtime_dir())? {
        let file = file?;
        ensure!(file.metadata()?.uid() == USER, "{file:?}");
    }
    let report = capture.interrupt()?;
    ensure!(report.contains("packets captured"), "{report}");
    ensure!(app.testpmd.hooks()? == 0, "callbacks are left in the app");
    Ok(())
}

fn has_rights_of_user(pid: u32, app: u32) -> Result<()> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let ids = format!("\t{USER}\t{USER}\t{USER}\t{USER}");
    let none = "\t0000000000000000";
    for (field, expected) in [
        ("Uid", ids.as_str()),
        ("Gid", ids.as_str()),
        ("Groups", ""),
        ("CapInh", none),
        ("CapPrm", none),
        ("CapEff", none),
        ("CapBnd", none),
        ("CapAmb", none),
        ("NoNewPrivs", "\t1"),
    ] {
        let value = status.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
        let value = value.with_context(|| format!("no {field} in {status}"))?;
        ensure!(value.trim_end() == expected, "{field} of process {pid} is {value:?}");
    }
    for kind in ["mnt", "pid", "net", "ipc", "uts", "user", "cgroup"] {
        let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/{kind}"));
        ensure!(namespace(pid)? == namespace(app)?, "another {kind} namespace");
    }
    let environment = fs::read(format!("/proc/{pid}/environ"))?;
    ensure!(environment.iter().all(|byte| *byte == 0), "the environment of root: {environment:?}");
    Ok(())
}

/// All that root would notice about a file.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    content: Vec<u8>,
    modified: SystemTime,
    changed: (i64, i64),
    mode: u32,
    owner: u32,
}

impl Snapshot {
    fn take(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            content: fs::read(path)?,
            modified: metadata.modified()?,
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            mode: metadata.mode(),
            owner: metadata.uid(),
        })
    }
}

/// A file of root in place of each of its hugepages, state files and arrays.
fn plant_links(scratch: &Scratch, app: &UsersApp) -> Result<Vec<PathBuf>> {
    // As long as the true directory, in whose place the app names it.
    let named = scratch.path("fake");
    fs::create_dir(&named)?;
    let mut places = Vec::new();
    for entry in fs::read_dir(app.hugepages.path())? {
        places.push(named.join(entry?.file_name()));
    }
    ensure!(!places.is_empty(), "no hugepage files of the app");
    let info = app.testpmd.runtime_dir().join("hugepage_info");
    let mut bytes = fs::read(&info)?;
    let (old, new) = (app.hugepages.path().as_os_str(), named.as_os_str());
    let at = bytes.windows(old.len()).position(|part| part == old.as_bytes());
    let at = at.context("the app does not name its hugepages")?;
    bytes[at..at + new.len()].copy_from_slice(new.as_bytes());
    OpenOptions::new().write(true).open(&info)?.write_all(&bytes)?;
    let left_names =
        ["pmdscope-pdump.7", "pmdscope-pdump-new.7", "fbarray_memzone_7", "mp_socket_7_1"];
    places.extend(left_names.map(|name| app.testpmd.runtime_dir().join(name)));
    let mut of_root = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let file = scratch.path(&format!("of-root-{number}"));
        fs::write(&file, format!("secret {number}"))?;
        fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        symlink(&file, place)?;
        of_root.push(file);
    }
    Ok(of_root)
}

fn links(scratch: &Scratch) -> Result<()> {
    let app = UsersApp::start(scratch)?;
    let files = plant_links(scratch, &app)?;
    let take = || files.iter().map(|file| Snapshot::take(file)).collect::<Result<Vec<_>>>();
    let before = take()?;
    let (name, port) = (app.name(), format!("{}:0", app.name()));
    let (packets, bundle) = (scratch.path("links.pcapng"), scratch.path("links.tar.zst"));
    let (packets, bundle) = (packets.display().to_string(), bundle.display().to_string());
    for args in [
        &["capture", "-i", &port, "-c", "1", "--duration", "2", "-w", &packets][..],
        &["netstat", "-a", &name, "--for", "200ms"],
        &["bundle", "-a", &name, "-o", &bundle, "--for", "1s", "--packets", "10"],
    ] {
        let (code, _, said) = run(&mut app.pmdscope(args)?, scratch.dir(), LIMIT)?;
        let is_whole = args[0] == "bundle";
        ensure!(code == i32::from(!is_whole), "{args:?} ended with {code}: {said}");
        ensure!(is_whole || said.contains("as its user"), "{args:?} gives no reason: {said}");
        let after = take()?;
        ensure!(after == before, "{args:?} changed {before:?} into {after:?}");
    }
    ensure!(
        app.testpmd.hooks()? == 0 && helpers(app.testpmd.app())?.is_empty(),
        "a helper is in the app"
    );
    Ok(())
}

/// Only what attaches is started through a program in its place, which leaves a mark.
fn unnamed(scratch: &Scratch) -> Result<()> {
    let testpmd = Testpmd::start(scratch, Setup::FLAT_OUT)?;
    let (mark, program) = (scratch.path("mark"), scratch.path("pdump"));
    let script = "#!/bin/sh\n[ \"$1\" = --version ] || touch \"$MARK\"\nexec \"$PDUMP\" \"$@\"\n";
    fs::write(&program, script)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    for named in [None, Some(testpmd.app())] {
        let bundle = scratch.path("bundle.tar.zst");
        let mut command = Command::new(programs::pmdscope()?);
        command.env("PMDSCOPE_PDUMP", &program).env("PDUMP", programs::pdump()?);
        command.env("MARK", &mark).args(["bundle", "--for", "1s", "--no-xray", "--packets", "10"]);
        command.args(named.map(|app| ["-a", app]).into_iter().flatten()).arg("-o").arg(&bundle);
        let (code, out, said) = run(&mut command, scratch.dir(), LIMIT)?;
        ensure!(code == 0, "{named:?}: {code}: {out}{said}");
        ensure!(mark.exists() == named.is_some(), "{named:?}: {said}");
        let hint = format!("name it (-a {})", testpmd.app());
        ensure!(said.contains(&hint) == named.is_none(), "{named:?}: {said}");
    }
    Ok(())
}

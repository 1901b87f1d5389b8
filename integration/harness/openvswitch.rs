//! Debian's Open vSwitch on DPDK, all of it in a scratch directory and in a network of its own.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{Process, run, wait_until};
use crate::programs;
use crate::scratch::Scratch;
use crate::telemetry;

const START: Duration = Duration::from_secs(30);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Where `make setup` unpacked it, if it did.
pub fn unpacked() -> Option<PathBuf> {
    let usr = programs::root().join("build/tools/openvswitch/usr");
    usr.join("sbin/ovsdb-server").exists().then_some(usr)
}

/// A switch that forwards between two ports of virtual devices.
pub struct Switch {
    /// `ovs-vswitchd`.
    pub process: Process,
    prefix: String,
    _database: Process,
}

impl Switch {
    /// Starts one; `devices` are virtual devices, `eal` goes to the EAL.
    pub fn start(scratch: &Scratch, devices: &[&str], eal: &str) -> Result<Self> {
        let usr = unpacked().context("Open vSwitch is not unpacked: run `make setup`")?;
        let prefix = scratch.prefix("switch");
        let database = start_database(scratch, &usr)?;
        let extra = format!("other_config:dpdk-extra=--file-prefix={prefix} --no-pci {eal}");
        let vsctl = |words: &[&str]| vsctl(scratch, &usr, words);
        vsctl(&["init"])?;
        vsctl(&[
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-init=true",
            "other_config:dpdk-socket-mem=512",
            "other_config:pmd-cpu-mask=0x2",
            &extra,
        ])?;
        vsctl(&["add-br", "bridge", "--", "set", "bridge", "bridge", "datapath_type=netdev"])?;
        for (number, device) in devices.iter().enumerate() {
            let port = format!("port{number}");
            let devargs = format!("options:dpdk-devargs=\"{device}\"");
            vsctl(&[
                "add-port",
                "bridge",
                &port,
                "--",
                "set",
                "Interface",
                &port,
                "type=dpdk",
                &devargs,
            ])?;
        }
        let mut command = Command::new("unshare");
        // Its bridge is a network interface: in a separate network namespace it is removed with the
        // process.
        command
            .args(["--net", "--"])
            .arg(usr.join("lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"));
        command.arg(format!("unix:{}", scratch.path("db.sock").display()));
        command.arg(format!("--unixctl={}", scratch.path("vswitchd.ctl").display()));
        let mut process =
            Process::spawn("ovs-vswitchd", own_places(&mut command, scratch), scratch.dir())?;
        let mut state = String::new();
        let found = wait_until("the ports of Open vSwitch", START, || {
            if let Some(status) = process.exited()? {
                bail!("ovs-vswitchd ended ({status}):\n{}", process.output());
            }
            let ports = telemetry::ask(&prefix, "/ethdev/list");
            state = format!("{ports:?}");
            Ok(ports.is_ok_and(|ports| ports.as_array().map(Vec::len) == Some(devices.len())))
        });
        found.with_context(|| format!("{state}; it printed:\n{}", process.output()))?;
        Ok(Self { process, prefix, _database: database })
    }

    /// Its file-prefix: its name for `pmdscope`.
    pub fn app(&self) -> &str {
        &self.prefix
    }
}

fn start_database(scratch: &Scratch, usr: &std::path::Path) -> Result<Process> {
    let (database, socket) = (scratch.path("conf.db"), scratch.path("db.sock"));
    let schema = usr.join("share/openvswitch/vswitch.ovsschema");
    let mut create = Command::new(usr.join("bin/ovsdb-tool"));
    create.arg("create").arg(&database).arg(schema);
    let (code, _, err) = run(own_places(&mut create, scratch), scratch.dir(), COMMAND_TIMEOUT)?;
    ensure!(code == 0, "ovsdb-tool create ended with {code}: {err}");
    let mut server = Command::new(usr.join("sbin/ovsdb-server"));
    server.arg(&database).arg(format!("--remote=punix:{}", socket.display()));
    server.arg(format!("--unixctl={}", scratch.path("db.ctl").display()));
    let process = Process::spawn("ovsdb-server", own_places(&mut server, scratch), scratch.dir())?;
    wait_until("the database of Open vSwitch", COMMAND_TIMEOUT, || Ok(socket.exists()))?;
    Ok(process)
}

fn vsctl(scratch: &Scratch, usr: &std::path::Path, words: &[&str]) -> Result<()> {
    let mut command = Command::new(usr.join("bin/ovs-vsctl"));
    command
        .arg(format!("--db=unix:{}", scratch.path("db.sock").display()))
        .arg("--no-wait")
        .args(words);
    let (code, out, err) = run(own_places(&mut command, scratch), scratch.dir(), COMMAND_TIMEOUT)?;
    ensure!(code == 0, "ovs-vsctl {} ended with {code}: {out}{err}", words.join(" "));
    Ok(())
}

/// Nothing of the system's own switch is read or written.
fn own_places<'a>(command: &'a mut Command, scratch: &Scratch) -> &'a mut Command {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(name, scratch.dir());
    }
    command
}

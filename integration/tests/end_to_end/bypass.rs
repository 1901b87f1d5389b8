//! One RX queue bypasses the kernel: what the app gets, what the kernel gets, and that nothing is left behind.
//! Compared with the counts of the sender, sockets, tcpdump and ethtool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::namespaces::{INTERFACE, NamespacePair, Side};
use pmdscope_integration::process::{Process, run_to_success, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::telemetry::{number, socket};
use pmdscope_testing::{output, spawn};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    LIMIT, Missing, Needs, document, missing_program, start_capture, trial_unless,
};

/// The bypassed queue: `integration/bypass/steer.bpf.c` sends ports 53 and 54 there.
const QUEUE: &str = "2";

/// Sends this many packets to each port, in portions that the wire can hold.
const SEND: &str = "
import socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ports = [(int(port), int(count)) for port, count in (word.split('=') for word in sys.argv[2:])]
for i in range(max(count for _, count in ports)):
    for port, count in ports:
        if i < count:
            sock.sendto(b'x' * 40, (sys.argv[1], port))
    # Room in the app's ring for half a second without a CPU.
    if i % 32 == 31:
        time.sleep(0.01)
";

/// Counts what arrives at sockets of these ports until it is interrupted.
const COUNT: &str = "
import select, signal, socket, sys
socks = {}
for word in sys.argv[2:]:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
    sock.bind((sys.argv[1], int(word)))
    socks[sock] = [word, 0]
print('ready', flush=True)
signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    while True:
        for sock in select.select(list(socks), [], [])[0]:
            sock.recv(2048)
            socks[sock][1] += 1
            print(*('%s=%d' % tuple(count) for count in socks.values()), flush=True)
except KeyboardInterrupt:
    pass
";

pub(crate) fn trials() -> Vec<Trial> {
    let needs = || {
        let programs = ["ethtool", "tc", "nsenter", "python3", "clang", "ping"];
        let missing = Needs::Wireshark.missing().or_else(|| Needs::Testpmd.missing());
        missing.or_else(|| missing_program(&programs)).or_else(without_wire)
    };
    vec![
        trial_unless("one_queue_bypasses_the_kernel", needs(), halves),
        trial_unless("a_killed_bypass_is_taken_down", needs(), killed),
        trial_unless("top_and_exporter_show_both_halves_of_a_nic", needs(), shown),
    ]
}

fn without_wire() -> Option<Missing> {
    let error = Wire::steered(&Scratch::new().ok()?).err()?;
    Some(Missing::Machine(format!("no veth with queues, or no BPF: {error:#}")))
}

/// Two namespaces whose sender chooses the queue as a NIC with ntuple filters would.
struct Wire {
    pair: NamespacePair,
}

impl Drop for Wire {
    fn drop(&mut self) {
        // A failed test must not leave the state of a namespace that no longer exists.
        let _ = self.down();
    }
}

impl Wire {
    fn steered(scratch: &Scratch) -> Result<Self> {
        let pair = NamespacePair::with_queues(&[Side::Near, Side::Far], 4)?;
        let object = steering_object(scratch)?;
        // What a socket sends has no checksum yet, which no NIC would deliver.
        pair.write_checksums(Side::Near)?;
        run_to_success(
            pair.command(Side::Near, "tc").args(["qdisc", "add", "dev", INTERFACE, "clsact"]),
        )?;
        let filter = ["filter", "add", "dev", INTERFACE, "egress", "bpf", "da", "obj"];
        run_to_success(
            pair.command(Side::Near, "tc").args(filter).arg(object).args(["sec", "tc"]),
        )?;
        Ok(Self { pair })
    }

    /// Runs `pmdscope bypass` at the receiver; the exit code must be this one.
    fn bypass(&self, args: &[&str], code: i32) -> Result<String> {
        let pmdscope = programs::pmdscope()?;
        let mut command = self.pair.command(Side::Far, &pmdscope);
        let out = output(command.arg("bypass").args(args)).context("no pmdscope")?;
        let (text, errors) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        ensure!(out.status.code() == Some(code), "{args:?}: {}\n{text}{errors}", out.status);
        Ok(text.into_owned())
    }

    fn up(&self, flow: &str) -> Result<String> {
        self.up_queue(QUEUE, flow)
    }

    fn up_queue(&self, queue: &str, flow: &str) -> Result<String> {
        let args = ["up", INTERFACE, "--queue", queue, "--flow", flow, "--json"];
        let prepared = document(&["bypass", "up"], &self.bypass(&args, 0)?)?;
        Ok(prepared["vdev"].as_str().context("no vdev")?.to_owned())
    }

    fn down(&self) -> Result<String> {
        self.bypass(&["down", INTERFACE], 0)
    }

    fn status(&self, code: i32) -> Result<Value> {
        let args = ["status", INTERFACE, "--json"];
        let all = document(&["bypass", "status"], &self.bypass(&args, code)?)?;
        Ok(all["bypasses"][0].clone())
    }

    /// Sends to ports and returns how many packets the wire took, of all that were sent.
    fn send(&self, ports: &[(u16, u64)]) -> Result<u64> {
        let lost_before = self.lost_by_sender()?;
        let mut sender = self.pair.command(Side::Near, "python3");
        sender.args(["-c", SEND, Side::Far.address()]);
        sender.args(ports.iter().map(|(port, count)| format!("{port}={count}")));
        run_to_success(&mut sender)?;
        let sent: u64 = ports.iter().map(|(_, count)| count).sum();
        Ok(sent - (self.lost_by_sender()? - lost_before))
    }

    /// Packets for which the wire had no room.
    fn lost_by_sender(&self) -> Result<u64> {
        let shown = run_to_success(
            self.pair.command(Side::Near, "ip").args(["-j", "-s", "link", "show", INTERFACE]),
        )?;
        let shown: Value = serde_json::from_str(&shown)?;
        shown[0]["stats64"]["tx"]["dropped"].as_u64().context("no dropped packets")
    }

    /// A counter of the receiver's queues, as ethtool(8) shows it.
    fn queues(&self, counter: &str) -> Result<Vec<u64>> {
        let shown =
            run_to_success(self.pair.command(Side::Far, "ethtool").args(["-S", INTERFACE]))?;
        let value = |queue: u32| {
            let name = format!("rx_queue_{queue}_{counter}: ");
            let line = shown.lines().find_map(|line| line.trim().strip_prefix(&name));
            line.and_then(|value| value.parse().ok()).with_context(|| name.clone())
        };
        (0..4).map(value).collect()
    }

    /// What ip(8) shows of the receiver.
    fn link(&self) -> Result<Value> {
        let shown = run_to_success(
            self.pair.command(Side::Far, "ip").args(["-j", "-d", "link", "show", INTERFACE]),
        )?;
        Ok(serde_json::from_str::<Value>(&shown)?[0].clone())
    }

    /// An app in the receiver's namespace.
    fn start(&self, scratch: &Scratch, program: &Path, args: &[&str]) -> Result<(String, Process)> {
        let app = scratch.prefix("bypass");
        let mut command = self.pair.command(Side::Far, program);
        command.args(["--lcores", "0@0,1@1", "--no-pci", "--no-huge", "-m", "128"]);
        command.args(["--file-prefix", &app]).args(args);
        let mut process = Process::spawn_with_console(&app, &mut command, scratch.dir())?;
        wait_until("the app", LIMIT, || {
            let ended = process.exited()?;
            ensure!(ended.is_none(), "it ended ({ended:?}):\n{}", process.output());
            // The device is started last.
            Ok(std::fs::exists(socket(&app))?
                && number(&app, "/ethdev/info,0", "dev_started").is_ok_and(|started| started == 1))
        })?;
        Ok((app, process))
    }

    fn testpmd(&self, scratch: &Scratch, vdev: &str) -> Result<(String, Process)> {
        let own = ["-i", "--no-mlockall", "--total-num-mbufs=16384", "--forward-mode=rxonly", "-a"];
        self.start(scratch, Path::new("dpdk-testpmd"), &[&[vdev, "--"], &own[..]].concat())
    }

    /// Sockets of the kernel that count what arrives at these ports.
    fn sockets(&self, scratch: &Scratch, name: &str, ports: &[&str]) -> Result<Process> {
        let mut command = self.pair.command(Side::Far, "python3");
        command.args(["-c", COUNT, Side::Far.address()]).args(ports);
        let process = Process::spawn(name, &mut command, scratch.dir())?;
        wait_until("sockets", LIMIT, || Ok(process.output().starts_with("ready")))?;
        Ok(process)
    }
}

/// Waits until sockets have got so many packets.
fn await_sockets(sockets: &Process, counts: &str) -> Result<()> {
    let last = || sockets.output().lines().last().unwrap_or_default().to_owned();
    wait_until(&format!("sockets to get {counts}"), LIMIT, || Ok(last() == counts))
        .with_context(last)
        .map(|_| ())
}

fn steering_object(scratch: &Scratch) -> Result<PathBuf> {
    let object = scratch.path("steer.o");
    let source = programs::root().join("integration/bypass/steer.bpf.c");
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-target", "bpf", &headers, "-c"]).arg(source).arg("-o").arg(&object);
    run_to_success(&mut clang)?;
    Ok(object)
}

/// Packets that the app has received, or lost for want of mbufs in its ring.
fn received(app: &str) -> Result<u64> {
    let counter = |name| number(app, "/ethdev/stats,0", name);
    Ok(counter("ipackets")? + counter("imissed")?)
}

/// Packets in a capture, and those of them to this port.
fn captured(file: &Path, port: u16) -> Result<(u64, u64)> {
    let count = |filter: &[&str]| -> Result<u64> {
        let mut tcpdump = Command::new("tcpdump");
        let out = output(tcpdump.arg("-nr").arg(file).args(filter)).context("no tcpdump")?;
        Ok(String::from_utf8_lossy(&out.stdout).lines().count() as u64)
    };
    Ok((count(&[])?, count(&["udp", "dst", "port", &port.to_string()])?))
}

fn halves(scratch: &Scratch) -> Result<()> {
    let wire = Wire::steered(scratch)?;
    let before = wire.link()?;
    let vdev = wire.up("udp:53")?;
    ensure!(wire.status(0)?["phase"] == "waiting");
    let (app, mut reflector) =
        wire.start(scratch, &programs::reflector()?, &[&vdev, "--", "--queues", "1"])?;
    let status = wire.status(0)?;
    ensure!(status["phase"] == "running" && status["app"]["prefix"] == app.as_str(), "{status}");

    let ours = scratch.path("bypassed.pcapng");
    let mut capture = start_capture(scratch, &app, &ours, &["-Q", "in"])?;
    // The app's control thread, which arms the capture, shares its CPUs with poll loops.
    sleep(Duration::from_secs(2));
    let theirs = scratch.path("kernel.pcap");
    let mut tcpdump = wire.pair.command(Side::Far, "tcpdump");
    tcpdump.args(["-U", "-B", "65536", "-Q", "in", "-i", INTERFACE, "-w"]).arg(&theirs);
    let mut tcpdump = Process::spawn("tcpdump", &mut tcpdump, scratch.dir())?;
    wait_until("tcpdump", LIMIT, || Ok(tcpdump.output().contains("listening")))?;
    let sockets = wire.sockets(scratch, "sockets", &["53", "9999"])?;

    let earlier: u64 = wire.queues("xdp_packets")?.iter().sum();
    let sent = wire.send(&[(53, 4000), (9999, 3000)])?;
    ensure!(sent == 7000, "the wire lost {} packets", 7000 - sent);
    wait_until("4000 packets at the app", LIMIT, || Ok(received(&app)? >= 4000))?;
    await_sockets(&sockets, "53=0 9999=3000")?;
    ensure!(received(&app)? == 4000);
    ensure!(wire.queues("xdp_redirect")? == [0, 0, 4000, 0]);
    let mut told = String::new();
    wait_until("counters that agree with tcpdump", LIMIT, || {
        let (packets, status) = (wire.queues("xdp_packets")?, wire.status(0)?);
        let (all, wanted) = captured(&theirs, 9999)?;
        told = format!("{packets:?}, tcpdump {all} of which {wanted}, {status}");
        // Other packets of the sender's kernel are in tcpdump's capture, or came earlier.
        let Some(strays) = all.checked_sub(3000) else { return Ok(false) };
        let counts = &status["counts"];
        let mut shown = packets.iter().enumerate();
        Ok(wanted == 3000
            && packets[2] == 4000
            && packets.iter().sum::<u64>() == earlier + sent + strays
            && shown.all(|(queue, packets)| status["queues"][queue]["packets"] == *packets)
            && counts["bypassed"] == 4000
            && counts["kernel"] == earlier + 3000 + strays
            && counts["no_socket"] == 0
            && counts["other_queue"] == 0)
    })
    .with_context(|| told.clone())?;
    tcpdump.interrupt()?;
    // Packets that the app has sent back were received before, by the app and by the capture.
    let reflected = || Ok(number(&app, "/ethdev/stats,0", "opackets")? >= 4000);
    wait_until("4000 packets to be reflected", LIMIT, reflected)?;
    capture.interrupt()?;
    ensure!(captured(&ours, 53)? == (4000, 4000), "{:?}", captured(&ours, 53)?);
    ensure!(captured(&theirs, 53)?.1 == 0, "tcpdump has packets that bypassed the kernel");

    full_ring(&wire, &app, &reflector)?;
    drop(sockets);
    reflector.interrupt()?;
    ensure!(wire.link()?["xdp"].is_null(), "the program is still attached");
    let undone = wire.bypass(&["down", INTERFACE, "--json"], 0)?;
    document(&["bypass", "down"], &undone)?;
    as_before(scratch, &wire, &before)
}

/// An app that reads nothing for a while: packets that its ring does not hold are counted by the queue, and
/// nowhere else.
fn full_ring(wire: &Wire, app: &str, reflector: &Process) -> Result<()> {
    let before = (received(app)?, wire.queues("drops")?[2]);
    reflector.signal(Signal::STOP)?;
    let sent = wire.send(&[(53, 12000)])?;
    reflector.signal(Signal::CONT)?;
    let sum = || -> Result<(u64, u64)> {
        Ok((received(app)? - before.0, wire.queues("drops")?[2] - before.1))
    };
    let mut last = (0, 0);
    wait_until("the rest of the ring", LIMIT, || {
        last = sum()?;
        Ok(last.0 + last.1 >= sent)
    })
    .with_context(|| format!("{last:?} of {sent}"))?;
    ensure!(last.0 > 0 && last.1 > 0 && last.0 + last.1 == sent, "{last:?} of {sent}");
    let status = wire.status(0)?;
    ensure!(status["counts"]["bypassed"] == 4000 + sent, "{status}");
    ensure!(status["queues"][2]["dropped"] == before.1 + last.1, "{status}");
    Ok(())
}

/// The interface is as it was, and works.
fn as_before(scratch: &Scratch, wire: &Wire, before: &Value) -> Result<()> {
    let after = wire.link()?;
    for field in ["flags", "mtu", "xdp", "promiscuity", "ifindex"] {
        ensure!(before[field] == after[field], "{field}: {} {}", before[field], after[field]);
    }
    wire.bypass(&["status", INTERFACE], 1)?;
    let sockets = wire.sockets(scratch, "afterwards", &["53"])?;
    wire.send(&[(53, 100)])?;
    await_sockets(&sockets, "53=100")?;
    run_to_success(wire.pair.command(Side::Near, "ping").args([
        "-c",
        "1",
        "-W",
        "30",
        Side::Far.address(),
    ]))?;
    Ok(())
}

fn killed(scratch: &Scratch) -> Result<()> {
    let wire = Wire::steered(scratch)?;
    let before = wire.link()?;
    kill_the_tool(&wire)?;
    let vdev = wire.up("udp:53")?;
    let (app, mut testpmd) = wire.testpmd(scratch, &vdev)?;
    // Flows change while the app runs, and queues do not.
    wire.up("udp:54")?;
    let interface = INTERFACE;
    wire.bypass(&["up", interface, "--queue", "1", "--flow", "udp:54"], 1)?;
    let sockets = wire.sockets(scratch, "sockets", &["53", "54"])?;
    wire.send(&[(53, 300), (54, 200)])?;
    await_sockets(&sockets, "53=300 54=0")?;
    wait_until("200 packets at the app", LIMIT, || Ok(received(&app)? == 200))?;

    testpmd.signal(Signal::KILL)?;
    testpmd.wait(LIMIT)?;
    let status = wire.status(1)?;
    let problem = status["problems"][0].as_str().context("no problem")?;
    ensure!(problem.contains("has left the XDP program behind"), "{status}");
    ensure!(!wire.link()?["xdp"].is_null(), "no program is left, and status says so");
    // The kernel gets all packets until the bypass is cleaned up.
    wire.send(&[(54, 100)])?;
    await_sockets(&sockets, "53=300 54=100")?;
    ensure!(wire.status(1)?["counts"]["no_socket"] == 100);
    drop(sockets);

    // Up again: the next app can start, which it else could not.
    wire.up("udp:53")?;
    let (_, mut testpmd) = wire.testpmd(scratch, &vdev)?;
    ensure!(wire.status(0)?["phase"] == "running");
    let unseen = wire.bypass(&["down", interface], 0)?;
    ensure!(unseen.contains("still runs, and gets no more packets"), "{unseen}");
    testpmd.signal(Signal::KILL)?;
    testpmd.wait(LIMIT)?;

    // Packets that arrive on other queues than that of the app are reported.
    let vdev = wire.up_queue("3", "udp:53")?;
    let (_, mut testpmd) = wire.testpmd(scratch, &vdev)?;
    wire.send(&[(53, 100)])?;
    let status = wire.status(1)?;
    let told = status["problems"][0].as_str().is_some_and(|told| told.contains("other queues"));
    ensure!(told && status["counts"]["other_queue"] == 100, "{status}");
    testpmd.signal(Signal::KILL)?;
    testpmd.wait(LIMIT)?;
    let undone = wire.down()?;
    ensure!(undone.contains("detached the XDP program, ended promiscuous mode"), "{undone}");
    ensure!(wire.down()?.contains("nothing to undo"));
    as_before(scratch, &wire, &before)
}

/// Kills the tool at ten moments; each time the interface can be put back as it was.
fn kill_the_tool(wire: &Wire) -> Result<()> {
    let pmdscope = programs::pmdscope()?;
    for moment in 0..10 {
        let mut command = wire.pair.command(Side::Far, &pmdscope);
        command.args(["bypass", "up", INTERFACE, "-q", QUEUE, "-f", "udp:53"]);
        let mut up = spawn(command.stdout(std::process::Stdio::null()))?;
        sleep(Duration::from_millis(5 * moment));
        let _ = up.kill();
        up.wait()?;
        wire.bypass(&["status"], 0)?;
        wire.down()?;
        ensure!(wire.link()?["xdp"].is_null());
    }
    Ok(())
}

/// Both halves side by side in `top` and the exporter, and their sum is what was sent.
fn shown(scratch: &Scratch) -> Result<()> {
    let wire = Wire::steered(scratch)?;
    let interface = INTERFACE;
    let vdev = wire.up("udp:53")?;
    let (app, _reflector) =
        wire.start(scratch, &programs::reflector()?, &[&vdev, "--", "--queues", "1"])?;
    let sockets = wire.sockets(scratch, "sockets", &["9999"])?;
    let sent = wire.send(&[(53, 4000), (9999, 3000)])?;
    ensure!(sent == 7000, "the wire lost {} packets", 7000 - sent);
    wait_until("4000 packets at the app", LIMIT, || Ok(received(&app)? >= 4000))?;
    await_sockets(&sockets, "9999=3000")?;

    let pmdscope = programs::pmdscope()?;
    let tool = |args: &[&str]| run_to_success(wire.pair.command(Side::Far, &pmdscope).args(args));
    // On a busy machine, the app may report the name of its port later.
    let mut top = Value::Null;
    wait_until("an app with a port in top", LIMIT, || {
        top = document(&["top"], &tool(&["top", "--once", "--json", "-a", &app])?)?;
        Ok(!top["interfaces"][0]["bypass"]["port"].is_null())
    })?;
    let [shown] = top["interfaces"].as_array().map_or(&[][..], Vec::as_slice) else {
        anyhow::bail!("not one interface: {top:#}");
    };
    let bypass = &shown["bypass"];
    ensure!(shown["name"] == interface && bypass["queue"] == 2, "{shown:#}");
    ensure!(bypass["app"] == app.as_str() && bypass["port"] == 0, "{bypass}");
    let queues = shown["queues"].as_array().context("queues")?;
    let sum = |counter: &str| queues.iter().filter_map(|of| of[counter].as_u64()).sum::<u64>();
    ensure!((sum("packets"), sum("redirected")) == (7000, 4000), "{shown:#}");
    ensure!(queues[2]["packets"] == 4000 && queues[2]["redirected"] == 4000, "{shown:#}");
    let stats = &top["apps"][0]["model"]["sample"]["ports"][0]["stats"];
    ensure!(stats["rx_packets"] == 4000, "{stats}");
    let text = tool(&["top", "--once"])?;
    ensure!(text.contains("Interface queues") && text.contains(&format!("{app}:0")), "{text}");

    let queue = |queue: u32| format!("{{interface=\"{interface}\",queue=\"{queue}\"}}");
    let labels = format!(
        "interface=\"{interface}\",queue=\"2\",app=\"{app}\",port=\"net_af_xdp0\",flows=\"udp:53\""
    );
    let wanted = [
        format!("dpdk_interface_queue_receive_packets_total{} 4000", queue(2)),
        format!("dpdk_interface_queue_redirected_packets_total{} 4000", queue(2)),
        format!("dpdk_interface_queue_redirected_packets_total{} 0", queue(0)),
        format!("dpdk_interface_receive_packets_total{{interface=\"{interface}\"}} 7000"),
        format!("dpdk_interface_bypass_info{{{labels}}} 1"),
    ];
    wait_until(&format!("metrics with {wanted:#?}"), LIMIT, || {
        let metrics = tool(&["export", "--once"])?;
        Ok(wanted.iter().all(|line| metrics.lines().any(|told| told == line)))
    })?;
    Ok(())
}

//! The XDP filter between two network namespaces, compared with the packets that were sent and that a
//! socket receives, and with the kernel's own counters.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::namespaces::{INTERFACE, NamespacePair, Side};
use pmdscope_integration::process::{Process, run, run_to_success, wait_until};
use pmdscope_integration::programs;
use pmdscope_integration::scratch::Scratch;
use pmdscope_testing::output;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{LIMIT, Missing, document, missing_program, trial_unless};

/// Port of the socket that legitimate traffic goes to.
const PORT: &str = "7000";

/// Addresses behind the sender, in a prefix that tests deny.
const DENIED: &str = "198.19.0.0/16";

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn(&Scratch) -> Result<()>| trial_unless(name, missing(), test);
    vec![
        trial("xdp_drops_a_flood_and_no_traffic_native", |s| flood(s, "native")),
        trial("xdp_drops_a_flood_and_no_traffic_generic", |s| flood(s, "generic")),
        trial("xdp_prefixes_change_while_packets_come", prefixes),
        trial("xdp_limits_sources_and_new_connections", limits),
        trial("xdp_survives_its_killed_loader", killed),
        trial("xdp_leaves_programs_of_others_alone", foreign),
        trial("xdp_refuses_what_cannot_be", refused),
    ]
}

/// Why the tests cannot run here. Asked of the kernel once.
fn missing() -> Option<Missing> {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let reason = REASON.get_or_init(|| {
        let pair = match NamespacePair::new(&[]) {
            Ok(pair) => pair,
            Err(error) => return Some(format!("{error:#}")),
        };
        let mut attach = pair.command(Side::Far, programs::pmdscope().ok()?);
        let out = output(attach.args(["xdp", "attach", INTERFACE, "--mode", "generic"]))?;
        let told = String::from_utf8_lossy(&out.stderr);
        told.contains("does not permit").then(|| told.trim().to_owned())
    });
    missing_program(&["python3", "clang"]).or_else(|| reason.clone().map(Missing::Machine))
}

/// Two namespaces: a sender, and a host whose interface has the filter.
struct Site<'a> {
    pair: NamespacePair,
    scratch: &'a Scratch,
}

impl<'a> Site<'a> {
    fn new(scratch: &'a Scratch) -> Result<Self> {
        let pair = NamespacePair::new(&[Side::Near, Side::Far])?;
        for side in [Side::Near, Side::Far] {
            // Reports of multicast groups would be counted.
            let off =
                "[ ! -d /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6";
            run_to_success(pair.command(side, "sh").args(["-c", off])).context("disable_ipv6")?;
        }
        Ok(Self { pair, scratch })
    }

    /// `pmdscope xdp` on the host: exit code, standard output and error.
    fn xdp(&self, args: &[&str]) -> Result<(i32, String, String)> {
        let mut command = self.pair.command(Side::Far, programs::pmdscope()?);
        run(command.arg("xdp").args(args), self.scratch.dir(), LIMIT)
    }

    /// The same, which must succeed.
    fn done(&self, args: &[&str]) -> Result<String> {
        let (code, out, error) = self.xdp(args)?;
        ensure!(code == 0, "pmdscope xdp {}: {code}: {out}{error}", args.join(" "));
        Ok(out)
    }

    /// The same, which must fail with this exit code; returns its message.
    fn fails(&self, args: &[&str], expected: i32) -> Result<String> {
        let (code, out, error) = self.xdp(args)?;
        ensure!(code == expected, "pmdscope xdp {}: {code}: {out}{error}", args.join(" "));
        Ok(error)
    }

    fn status(&self) -> Result<Value> {
        let out = self.done(&["status", INTERFACE, "--json"])?;
        Ok(document(&["xdp", "status"], &out)?["filters"][0].clone())
    }

    fn script(&self, side: Side, args: &[&str]) -> Command {
        let script = programs::root().join("integration/tests/end_to_end/xdp_traffic.py");
        let mut command = self.pair.command(side, "python3");
        command.arg(script).args(args);
        command
    }

    /// Sends frames as they are, each repeated by its count; returns how many were sent.
    fn send_frames(&self, frames: &[(u32, Vec<u8>)]) -> Result<u64> {
        let mut flood = self.flood(frames)?;
        sent(&mut flood)
    }

    fn flood(&self, frames: &[(u32, Vec<u8>)]) -> Result<Process> {
        let file = self.frame_file(frames)?;
        let file = file.to_str().context("path")?;
        Process::spawn(
            "flood",
            &mut self.script(Side::Near, &["flood", INTERFACE, file]),
            self.scratch.dir(),
        )
    }

    fn frame_file(&self, frames: &[(u32, Vec<u8>)]) -> Result<PathBuf> {
        let mut text = String::new();
        for (count, frame) in frames {
            write!(text, "{count} ")?;
            for byte in frame {
                write!(text, "{byte:02x}")?;
            }
            text.push('\n');
        }
        let file = self.scratch.path("frames");
        fs::write(&file, text)?;
        Ok(file)
    }

    /// Sends numbered datagrams from an ordinary socket to [`PORT`].
    fn send_datagrams(&self, number: u64) -> Result<Process> {
        let args = ["send", Side::Far.address(), PORT, &number.to_string()];
        Process::spawn("send", &mut self.script(Side::Near, &args), self.scratch.dir())
    }

    /// A socket that receives them.
    fn receiver(&self) -> Result<Process> {
        let mut command = self.script(Side::Far, &["receive", PORT]);
        let receiver = Process::spawn_with_console("receive", &mut command, self.scratch.dir())?;
        wait_until("a socket", LIMIT, || Ok(receiver.output().contains("ready")))?;
        Ok(receiver)
    }

    /// Packets to the host, as the kernel counts them.
    fn sent_by_kernel(&self) -> Result<u64> {
        let mut command = self.pair.command(Side::Near, "ip");
        let links: Value = serde_json::from_str(&run_to_success(
            command.args(["-j", "-s", "link", "show", INTERFACE]),
        )?)?;
        links[0]["stats64"]["tx"]["packets"].as_u64().context("tx packets")
    }

    /// The status when all of these packets have been judged.
    fn judged(&self, packets: u64) -> Result<Value> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = self.status()?;
            if all(&status)? >= packets || Instant::now() > deadline {
                ensure!(all(&status)? == packets, "not {packets} packets: {status:#}");
                return Ok(status);
            }
            sleep(Duration::from_millis(20));
        }
    }
}

/// The number of packets that a sender reports as sent.
fn sent(sender: &mut Process) -> Result<u64> {
    let out = sender.finish(LIMIT)?;
    out.trim().parse().with_context(|| format!("sender: {out}"))
}

/// Ends a receiver: datagrams received, and different ones among them.
fn received(mut receiver: Process) -> Result<(u64, u64)> {
    receiver.type_line("end")?;
    let out = receiver.finish(LIMIT)?;
    let line = out.lines().last().unwrap_or_default();
    let (all, different) = line.split_once(' ').with_context(|| format!("receiver: {out}"))?;
    Ok((all.parse()?, different.parse()?))
}

/// Packets of one verdict.
fn packets(status: &Value, reason: &str) -> Result<u64> {
    let verdicts = status["verdicts"].as_array().context("verdicts")?;
    let verdict = verdicts.iter().find(|verdict| verdict["reason"] == reason);
    verdict.and_then(|verdict| verdict["packets"].as_u64()).with_context(|| reason.to_owned())
}

fn all(status: &Value) -> Result<u64> {
    let verdicts = status["verdicts"].as_array().context("verdicts")?;
    verdicts.iter().map(|verdict| verdict["packets"].as_u64().context("packets")).sum()
}

/// A frame to the host.
fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// An IPv4 packet to the host, with a right checksum.
fn ipv4(source: [u8; 4], protocol: u8, fragment: u16, payload: &[u8]) -> Result<Vec<u8>> {
    let mut header = vec![0x45, 0];
    header.extend(u16::try_from(20 + payload.len())?.to_be_bytes());
    header.extend([0, 1]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(source);
    header.extend([198, 18, 0, 2]);
    let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16))?;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend(payload);
    Ok(ethernet(0x0800, &header))
}

fn udp(source: [u8; 4]) -> Result<Vec<u8>> {
    let segment = [[4, 0, 0, 9, 0, 26, 0, 0].as_slice(), &[0xab; 18]].concat();
    ipv4(source, 17, 0, &segment)
}

fn syn(source: [u8; 4], port: u8) -> Result<Vec<u8>> {
    let segment = [4, 0, 0, port, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0];
    ipv4(source, 6, 0, &segment)
}

/// A flood of garbage beside ordinary traffic.
fn flood(scratch: &Scratch, mode: &str) -> Result<()> {
    let site = Site::new(scratch)?;
    site.done(&["attach", INTERFACE, "--mode", mode, "--deny", DENIED])?;
    let (before, receiver) = (site.sent_by_kernel()?, site.receiver()?);

    let mut malformed = udp([198, 18, 0, 77])?;
    malformed[24] ^= 0xff;
    let tiny = ipv4([198, 18, 0, 78], 6, 0x2000, &[0; 8])?;
    let garbage = [
        (60_000, "malformed", malformed),
        (50_000, "not_ip", ethernet(0x8864, &[0; 46])),
        (40_000, "fragment", tiny),
        (30_000, "denied", udp([198, 19, 0, 7])?),
    ];
    let frames = garbage.iter().map(|(count, _, frame)| (*count, frame.clone()));
    let mut flood = site.flood(&frames.collect::<Vec<_>>())?;
    let mut datagrams = site.send_datagrams(20_000)?;
    let (garbage_sent, legitimate) = (sent(&mut flood)?, sent(&mut datagrams)?);
    ensure!((garbage_sent, legitimate) == (180_000, 20_000), "{garbage_sent}, {legitimate}");

    let status = site.judged(garbage_sent + legitimate)?;
    let by_kernel = site.sent_by_kernel()? - before;
    ensure!(by_kernel == garbage_sent + legitimate, "the kernel counts {by_kernel}");
    ensure!(status["mode"] == mode, "{status:#}");
    for (count, reason, _) in &garbage {
        ensure!(packets(&status, reason)? == u64::from(*count), "{reason} in {status:#}");
    }
    ensure!(packets(&status, "passed")? == legitimate, "{status:#}");
    ensure!(received(receiver)? == (legitimate, legitimate), "legitimate packets were lost");

    let top = status["top_sources"].as_array().context("top_sources")?;
    let top = top.iter().map(|s| (s["address"].as_str(), s["packets"].as_u64()));
    let expected = [("198.18.0.77", 60_000), ("198.18.0.78", 40_000), ("198.19.0.7", 30_000)];
    let expected = expected.map(|(address, packets)| (Some(address), Some(packets)));
    ensure!(top.eq(expected) && status["uncounted_sources"] == 0, "{status:#}");

    let text = site.done(&["status"])?;
    ensure!(text.contains(&format!("{INTERFACE}: {mode}")) && text.contains("200,000"), "{text}");
    detached(&site)
}

/// Removes the filter; nothing of it is left.
fn detached(site: &Site<'_>) -> Result<()> {
    let program = site.status()?["program"].as_u64().context("program")?;
    site.done(&["detach", INTERFACE])?;
    site.fails(&["status", INTERFACE], 1)?;
    let told =
        run_to_success(site.pair.command(Side::Far, "ip").args(["link", "show", INTERFACE]))?;
    ensure!(!told.contains("xdp") && !told.contains(&format!("id {program}")), "{told}");
    Ok(())
}

fn prefixes(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch)?;
    site.done(&["attach", INTERFACE])?;
    let receiver = site.receiver()?;
    let mut judged = 0;
    let mut verdicts = |steps: &[&str]| -> Result<(u64, u64)> {
        let before = site.status()?;
        sent(&mut site.send_datagrams(500)?)?;
        judged += 500;
        let after = site.judged(judged).with_context(|| steps.join(" "))?;
        let more =
            |reason| Ok::<_, anyhow::Error>(packets(&after, reason)? - packets(&before, reason)?);
        Ok((more("passed")?, more("denied")?))
    };
    ensure!(verdicts(&["attached"])? == (500, 0));
    site.done(&["deny", INTERFACE, "198.18.0.0/24", "2001:db8::/32"])?;
    ensure!(verdicts(&["denied"])? == (0, 500));
    site.done(&["allow", INTERFACE, Side::Near.address()])?;
    ensure!(verdicts(&["the longest prefix"])? == (500, 0));
    site.done(&["allow", INTERFACE, "--delete", Side::Near.address()])?;
    ensure!(verdicts(&["no longer allowed"])? == (0, 500));
    let listed = site.status()?["prefixes"].clone();
    ensure!(listed.as_array().is_some_and(|listed| listed.len() == 2), "{listed}");
    site.done(&["deny", INTERFACE, "--delete", "198.18.0.0/24"])?;
    ensure!(verdicts(&["no longer denied"])? == (500, 0));
    let told = site.fails(&["deny", INTERFACE, "--delete", "198.18.0.0/24"], 1)?;
    ensure!(told.contains("not listed"), "{told}");
    ensure!(received(receiver)?.0 == 1500);
    Ok(())
}

/// Passed of many packets at a limit: a second's worth, and what came since.
fn assert_limited(passed: u64, limit: u64, started: Instant) -> Result<()> {
    let most = limit as f64 * (1.0 + started.elapsed().as_secs_f64()) + 1.0;
    ensure!(passed >= limit && passed as f64 <= most, "{passed} passed of {limit} to {most}");
    Ok(())
}

fn limits(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch)?;
    let started = Instant::now();
    site.done(&["attach", INTERFACE, "--rate-limit", "100"])?;
    let sent =
        site.send_frames(&[(20_000, udp([198, 18, 0, 77])?), (50, udp([198, 18, 0, 78])?)])?;
    let status = site.judged(sent)?;
    let passed = packets(&status, "passed")?;
    assert_limited(passed - 50, 100, started)?;
    ensure!(passed + packets(&status, "rate_limit")? == sent, "{status:#}");
    let top = &status["top_sources"];
    ensure!(top[0]["address"] == "198.18.0.77" && top[1].is_null(), "{top:#}");

    let started = Instant::now();
    let changed = ["set", INTERFACE, "--rate-limit", "off", "--syn-limit", "50"];
    let told = site.done(&changed)?;
    ensure!(told.contains("rate limit off, SYN limit 50"), "{told}");
    let mut frames =
        (0..100).map(|i| Ok((100, syn([198, 18, 1, i], 80)?))).collect::<Result<Vec<_>>>()?;
    frames.push((50, syn([198, 18, 0, 78], 22)?));
    frames.push((1000, udp([198, 18, 0, 78])?));
    let more = site.send_frames(&frames)?;
    let status = site.judged(sent + more)?;
    let refused = packets(&status, "syn_flood")?;
    assert_limited(10_000 - refused, 50, started)?;
    ensure!(packets(&status, "passed")? == passed + more - refused, "{status:#}");
    Ok(())
}

fn killed(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch)?;
    // At any moment: then it is attached, or not, but never broken.
    for delay in [0, 1, 2, 4, 8, 16, 32] {
        let mut command = site.pair.command(Side::Far, programs::pmdscope()?);
        command.args(["xdp", "attach", INTERFACE, "--replace"]);
        let mut loader = Process::spawn("attach", &mut command, scratch.dir())?;
        sleep(Duration::from_millis(delay));
        loader.signal(Signal::KILL)?;
        loader.wait(LIMIT)?;
        let (code, out, error) = site.xdp(&["status", INTERFACE])?;
        let sane = code == 0 || error.contains("has no filter");
        ensure!(sane, "after {delay} ms: {code}: {out}{error}");
    }
    let mut command = site.pair.command(Side::Far, programs::pmdscope()?);
    command.args(["xdp", "attach", INTERFACE, "--replace"]);
    let mut loader = Process::spawn("attach", &mut command, scratch.dir())?;
    wait_until("the filter", LIMIT, || Ok(loader.output().contains("attached")))?;
    // It may have ended already.
    let _ = loader.signal(Signal::KILL);
    loader.wait(LIMIT)?;
    ensure!(all(&site.status()?)? == 0, "counters of a new filter");
    let sent = site.send_frames(&[(1000, ethernet(0x8864, &[0; 46]))])?;
    ensure!(packets(&site.judged(sent)?, "not_ip")? == 1000);

    let told = site.fails(&["attach", INTERFACE], 1)?;
    ensure!(told.contains("--replace"), "{told}");
    let old = site.status()?["program"].clone();
    site.done(&["attach", INTERFACE, "--replace", "--deny", DENIED])?;
    let new = site.status()?;
    ensure!(new["program"] != old && all(&new)? == 0, "{new:#}");
    let told = site.fails(&["attach", INTERFACE, "--replace", "--mode", "generic"], 1)?;
    ensure!(told.contains("detach it first"), "{told}");
    detached(&site)
}

/// Attaches a program that is not pmdscope's, as `ip` does.
fn attach_foreign(site: &Site<'_>) -> Result<()> {
    let source = site.scratch.path("foreign.c");
    let object = site.scratch.path("foreign.o");
    let program = "__attribute__((section(\"xdp\"), used)) int somebody(void *c) { return 2; }\n\
                   char license[] __attribute__((section(\"license\"), used)) = \"GPL\";\n";
    fs::write(&source, program.replace("license[]", "license_of_it[]"))?;
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-target", "bpf", "-c"]).arg(&source).arg("-o").arg(&object);
    let (code, _, error) = run(&mut clang, site.scratch.dir(), LIMIT)?;
    ensure!(code == 0, "{error}");
    let mut ip = site.pair.command(Side::Far, "ip");
    ip.args(["link", "set", "dev", INTERFACE, "xdp", "obj"]).arg(&object).args(["sec", "xdp"]);
    let (code, _, error) = run(&mut ip, site.scratch.dir(), LIMIT)?;
    ensure!(code == 0, "ip link set xdp: {error}");
    Ok(())
}

fn foreign(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch)?;
    attach_foreign(&site)?;
    let mode = |mode| ["attach", INTERFACE, "--replace", "--mode", mode];
    for args in [
        &mode("native")[..],
        &mode("generic"),
        &mode("auto"),
        &["detach", INTERFACE],
        &["status", INTERFACE],
        &["deny", INTERFACE, DENIED],
        &["set", INTERFACE, "--rate-limit", "1"],
    ] {
        let told = site.fails(args, 1)?;
        ensure!(told.contains("not pmdscope's") && told.contains("'somebody'"), "{told}");
    }
    site.done(&["detach", "--all"])?;
    let told =
        run_to_success(site.pair.command(Side::Far, "ip").args(["link", "show", INTERFACE]))?;
    ensure!(told.contains("prog/xdp"), "the foreign program is gone: {told}");
    Ok(())
}

fn refused(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch)?;
    for (args, code, expected) in [
        (&["attach", "nothing0"][..], 1, "no interface nothing0"),
        (&["attach", "lo"], 1, "loopback"),
        (&["detach", INTERFACE], 1, "has no filter"),
        (&["deny", INTERFACE, DENIED], 1, "has no filter"),
        (&["status"], 1, "no interface of this network namespace has a filter"),
        (&["attach", INTERFACE, "--deny", "10.0.0.1/8"], 2, "10.0.0.0/8"),
        (&["attach", INTERFACE, "--rate-limit", "0"], 2, "1 to 100000000, or off"),
        (&["deny", INTERFACE], 2, "PREFIX"),
        (&["set", INTERFACE], 2, "at least one"),
    ] {
        let told = site.fails(args, code)?;
        ensure!(told.contains(expected), "{args:?}: {told}");
    }
    let (code, out, _) = site.xdp(&["status", "--json"])?;
    ensure!(code == 1 && out.trim() == r#"{"schema":1,"filters":[]}"#, "{code}: {out}");
    site.done(&["detach", "--all"])?;

    // As a user without the right to do so.
    site.done(&["attach", INTERFACE])?;
    let mut unprivileged = site.pair.command(Side::Far, "setpriv");
    unprivileged.args(["--bounding-set=-all", "--inh-caps=-all", "--"]).arg(programs::pmdscope()?);
    let status = run(unprivileged.args(["xdp", "status"]), scratch.dir(), LIMIT)?;
    if status.0 == 0 {
        bail!("the kernel permits everything: {status:?}");
    }
    ensure!(status.2.contains("run as root"), "{status:?}");
    Ok(())
}

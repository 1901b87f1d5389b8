//! `pmdscope capture` on files, with tcpdump as the oracle.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pmdscope_testing::{LIMIT, current_test, output, skip, spawn};
use tempfile::TempDir;

/// A time zone that needs no list of the machine.
const ZONE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

/// Ethernet, IPv4 and UDP or TCP, from port 1000 to another.
fn frame(protocol: u8, port: u16, size: usize) -> Vec<u8> {
    let mut frame = vec![0x20; size];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    let total = u16::try_from(size - 14).unwrap().to_be_bytes();
    let header = [0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, protocol, 0, 0];
    frame[14..26].copy_from_slice(&header);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let udp = u16::try_from(size - 34).unwrap().to_be_bytes();
    frame[34..36].copy_from_slice(&1000u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..42].copy_from_slice(&[udp[0], udp[1], 0, 0]);
    if protocol == 6 {
        frame[38..54].copy_from_slice(&[0, 0, 0, 7, 0, 0, 0, 0, 0x50, 2, 16, 0, 0, 0, 0, 0]);
    }
    frame
}

/// Ten packets, one every 1.1 seconds.
fn write_pcap(path: &Path) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for number in 0..10_u32 {
        let frame = if number % 2 == 0 { frame(17, 9999, 100) } else { frame(6, 80, 70) };
        let size = u32::try_from(frame.len()).unwrap();
        for word in [1_700_000_000 + number, number * 100_000, size, size] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&frame);
    }
    fs::write(path, file).unwrap();
}

fn sample() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("in.pcap");
    write_pcap(&path);
    (dir, path)
}

fn capture(dir: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
    command.arg("capture").current_dir(dir.path()).env("TZ", ZONE);
    command
}

fn run(dir: &TempDir, line: &str) -> Output {
    output(capture(dir).args(line.split_whitespace()).stdin(Stdio::null())).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a line with tcpdump, too; `None`, said aloud, where there is none.
fn oracle(dir: &TempDir, line: &str) -> Option<Output> {
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(line.split_whitespace()).current_dir(dir.path()).env("TZ", ZONE);
    output(tcpdump.stdin(Stdio::null()))
}

#[test]
fn lines_for_tcpdump_print_what_tcpdump_prints() {
    let (dir, _) = sample();
    let lines = [
        "-nr in.pcap",
        "-nnvvr in.pcap",
        "-nr in.pcap udp",
        "tcp port 80 -nr in.pcap -c 2",
        "-n -r in.pcap -c3 -e -- udp and len > 50",
        "-nqtr in.pcap",
        "-nttttSr in.pcap tcp",
        "-ntttXXr in.pcap -c 3",
        "-nttr in.pcap",
        "-nttr in.pcap --nano",
        "-nttttr in.pcap --nano",
        "-nttttr in.pcap --micro",
        "-ntttr in.pcap --nano",
        "-ntttttr in.pcap --micro",
        "-ntttttr in.pcap --nano",
        "-nKAr in.pcap udp",
        "-nr in.pcap --nano -#",
        "--count -r in.pcap",
        "--count -r in.pcap udp",
        "--count -r in.pcap -c 1",
        "-d -y EN10MB udp port 53",
        "-ddd -y EN10MB -O -s 96 tcp[13] & 2 != 0",
    ];
    for line in lines {
        let Some(expected) = oracle(&dir, line) else { return };
        let found = run(&dir, line);
        assert_eq!(text(&found.stdout), text(&expected.stdout), "{line}: {found:?}");
        assert_eq!(found.status.code(), expected.status.code(), "{line}");
    }
}

#[test]
fn what_is_written_is_what_tcpdump_reads() {
    let (dir, _) = sample();
    for (line, name) in [
        ("-r in.pcap -w out.pcapng udp", "out.pcapng"),
        ("-r in.pcap -w out.pcap --pcap udp", "out.pcap"),
        ("-r in.pcap -w micro.pcap --pcap --micro udp", "micro.pcap"),
    ] {
        let output = run(&dir, line);
        assert!(output.status.success(), "{line}: {output:?}");
        let Some(expected) = oracle(&dir, "-ttnr in.pcap --nano udp") else { return };
        let found = oracle(&dir, &format!("-ttnr {name} --nano")).unwrap();
        assert_eq!(text(&found.stdout), text(&expected.stdout), "{line}");
    }
    let names = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(names.count(), 4, "nothing is left behind");
}

#[test]
fn files_come_compressed_in_lists_and_through_pipes() {
    let (dir, path) = sample();
    assert!(run(&dir, "-r in.pcap -w a.pcapng.gz").status.success());
    assert!(run(&dir, "-r in.pcap -w b.pcapng.zst").status.success());
    fs::write(dir.path().join("list"), "a.pcapng.gz\nb.pcapng.zst\nin.pcap\n").unwrap();
    assert_eq!(text(&run(&dir, "-V list --count tcp").stdout), "15 packets\n");
    let mut piped = capture(&dir);
    piped.args(["-r", "-", "--count"]).stdin(File::open(path).unwrap());
    assert_eq!(text(&output(&mut piped).unwrap().stdout), "10 packets\n");
}

#[test]
fn a_file_that_is_cut_off_gives_its_whole_packets_and_an_error() {
    let (dir, path) = sample();
    let whole = fs::read(&path).unwrap();
    fs::write(dir.path().join("cut"), &whole[..whole.len() - 1]).unwrap();
    let output = run(&dir, "-r cut -w out.pcapng");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cut is cut off"), "{output:?}");
    assert_eq!(text(&run(&dir, "-r out.pcapng --count").stdout), "9 packets\n");
}

#[test]
fn an_input_is_not_overwritten() {
    let (dir, path) = sample();
    let before = fs::read(&path).unwrap();
    let output = run(&dir, "-r in.pcap -w ./in.pcap");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn exit_codes_tell_misuse_from_failure() {
    let (dir, _) = sample();
    fs::write(dir.path().join("noise"), "this is no capture file").unwrap();
    let codes = [
        ("-r in.pcap --count", 0),
        ("-r missing", 1),
        ("-r noise", 1),
        ("-Z no-such-user -r in.pcap --count", i32::from(rustix::process::geteuid().is_root())),
        ("-r in.pcap udp prot", 2),
        ("-r in.pcap -I", 2),
        ("-r in.pcap -w out --quota 1 -C 1", 2),
        ("-r in.pcap -i 0", 2),
        ("-r in.pcap --decoder tshark", 2),
    ];
    for (line, code) in codes {
        let output = run(&dir, line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        assert_eq!(code != 0, text(&output.stderr).contains("error: "), "{line}: {output:?}");
    }
}

#[test]
fn names_of_complete_files_are_printed() {
    let (dir, _) = sample();
    let output = run(&dir, "-r in.pcap -w part -C 1K --exact --print-files --quiet");
    let names = text(&output.stdout);
    let files = names.lines().collect::<Vec<_>>();
    assert!(files.len() > 1 && files[..2] == ["part", "part1"], "{output:?}");
    let packets = |name: &&str| text(&run(&dir, &format!("-r {name} --count")).stdout);
    let counts = files.iter().map(packets).collect::<Vec<_>>();
    let count = |line: &String| line.split(' ').next().unwrap().parse::<u32>().unwrap();
    assert_eq!(counts.iter().map(count).sum::<u32>(), 10, "{counts:?}");
}

#[test]
fn files_that_are_deleted_are_named_on_demand_only() {
    let (dir, _) = sample();
    let told = text(&run(&dir, "-r in.pcap -w quiet.pcapng -C 1K -W 1 --exact").stderr);
    assert!(!told.contains("deleted"), "{told}");
    let told = text(&run(&dir, "-r in.pcap -w named.pcapng -C 1K -W 1 --exact -v").stderr);
    assert!(told.contains("pmdscope: deleted named.pcapng\n"), "{told}");
}

#[test]
fn an_end_that_waits_for_a_slow_reader_is_told() {
    let (dir, path) = sample();
    let mut packets = fs::read(&path).unwrap();
    let (header, records) = packets.split_at(24);
    // More than a pipe holds.
    packets = [header, &records.repeat(2000)].concat();
    fs::write(dir.path().join("large.pcap"), packets).unwrap();
    let mut command = capture(&dir);
    command.args(["-r", "large.pcap", "-w", "-"]).stdin(Stdio::null());
    let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    let told = BufReader::new(child.stderr.take().unwrap());
    // It reads nothing before it was told.
    let line = told.lines().map(Result::unwrap).find(|line| line.contains("waiting for"));
    let line = line.expect("nothing is told");
    let rest = line.strip_prefix("pmdscope: waiting for standard output to take ").unwrap();
    assert!(rest.ends_with(" packets; ^C again gives them up"), "{line}");
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    fs::write(dir.path().join("out.pcapng"), out).unwrap();
    assert_eq!(text(&run(&dir, "-r out.pcapng --count").stdout), "20000 packets\n");
}

/// Does the process handle every one of these signals?
fn handles(pid: u32, signals: &[Signal]) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    signals.iter().all(|signal| caught >> (*signal as i32 - 1) & 1 == 1)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The main thread of a process stays in one system call.
fn is_waiting(pid: u32) -> bool {
    let call = || fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
    let first = call();
    let stays = (0..5).all(|_| {
        std::thread::sleep(Duration::from_millis(10));
        call() == first
    });
    stays && !first.starts_with("running")
}

/// Sends a signal, behind those that end nothing, when the packets have been taken from standard input;
/// and waits for the end.
fn end_by(signal: Signal, mut child: Child) -> Output {
    let pipe = child.stdin.take().unwrap();
    let others = [Signal::SIGUSR1, Signal::SIGUSR2];
    let all = [others[0], others[1], signal];
    eventually("signals are handled", || handles(child.id(), &all));
    eventually("the pipe is empty", || rustix::io::ioctl_fionread(&pipe).unwrap() == 0);
    // A signal ends it at once, whatever it has read and not passed on yet.
    eventually("it waits for more", || is_waiting(child.id()));
    for signal in all {
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    drop(pipe);
    output
}

#[test]
fn signals_end_a_silent_pipe_in_order() {
    let (dir, path) = sample();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGPIPE] {
        let name = format!("{signal}.pcapng");
        // Under nohup and in the background of a script some are ignored, and stay so.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_pmdscope"), "capture"]);
        command.current_dir(dir.path()).env("TZ", "UTC");
        command.args(["-r", "-", "-w", &name]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(&mut command).unwrap();
        child.stdin.as_mut().unwrap().write_all(&fs::read(&path).unwrap()).unwrap();
        let output = end_by(signal, child);
        assert!(output.status.success(), "{signal}: {output:?}");
        let count = run(&dir, &format!("-r {name} --count"));
        assert_eq!(text(&count.stdout), "10 packets\n", "{signal}");
    }
}

#[test]
fn an_ignored_hangup_does_not_end_a_capture_and_sigterm_does() {
    let (dir, path) = sample();
    let mut command = Command::new("env");
    command.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_pmdscope"), "capture"]);
    command.current_dir(dir.path()).args(["-r", "-", "-w", "out.pcapng"]);
    let mut child = spawn(command.stdin(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    eventually("signals are handled", || handles(child.id(), &[Signal::SIGTERM]));
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGHUP).unwrap();
    // Only a capture that goes on reads them.
    child.stdin.as_mut().unwrap().write_all(&fs::read(&path).unwrap()).unwrap();
    let output = end_by(Signal::SIGTERM, child);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&run(&dir, "-r out.pcapng --count").stdout), "10 packets\n");
}

#[test]
fn without_tcpdump_packets_can_be_written_and_not_printed() {
    let (dir, _) = sample();
    let bare = |words: &[&str]| {
        // tcpdump is looked for in root's directories, too.
        let hide = "mount -t tmpfs none /usr/sbin && mount -t tmpfs none /usr/bin && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", hide, "sh", env!("CARGO_BIN_EXE_pmdscope")]);
        command.args(words).current_dir(dir.path()).env("PATH", "/usr/bin:/usr/sbin");
        output(command.stdin(Stdio::null())).unwrap()
    };
    if !bare(&["--version"]).status.success() {
        return skip(&current_test(), "needs the right to mount");
    }
    let printed = bare(&["capture", "-r", "in.pcap"]);
    assert_eq!(printed.status.code(), Some(1), "{printed:?}");
    let says = "tcpdump not found: install the package tcpdump, or write packets with -w";
    assert!(text(&printed.stderr).contains(says), "{printed:?}");
    assert!(bare(&["capture", "-r", "in.pcap", "-w", "out.pcapng"]).status.success());
}

#[test]
fn an_option_that_is_gone_says_what_to_use() {
    let (dir, _) = sample();
    for line in ["-r in.pcap --decoder tshark", "-r in.pcap --decoder=builtin"] {
        let found = run(&dir, line);
        assert_eq!(found.status.code(), Some(2), "{found:?}");
        assert!(text(&found.stderr).contains("capture -w - | tshark -r -"), "{found:?}");
    }
}

#[test]
fn usage_stands_on_lines_of_its_own() {
    let (dir, _) = sample();
    let output = output(capture(&dir).arg("--no-such\nFORGED")).unwrap();
    let told = text(&output.stderr);
    assert!(told.starts_with("pmdscope: error: unexpected argument '--no-such\n"), "{told}");
    assert!(told.contains("\n\n  Usage: pmdscope capture "), "{told}");
    assert!(told.lines().skip(1).all(|line| line.is_empty() || line.starts_with("  ")), "{told}");
}

/// On a machine without `/etc/protocols` libpcap takes every protocol's name for number 0.
#[test]
fn names_of_protocols_need_no_list_of_the_machine() {
    let (dir, _) = sample();
    let bare = |filter: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs none /etc && exec \"$@\"", "sh"]);
        command.args([env!("CARGO_BIN_EXE_pmdscope"), "capture", "-d", "-y", "EN10MB", filter]);
        output(command.current_dir(dir.path()).stdin(Stdio::null())).unwrap()
    };
    if !bare("ip").status.success() {
        return skip(&current_test(), "needs the right to mount");
    }
    for (named, numbered) in [
        (r"ip proto \tcp", "ip proto 6"),
        (
            r"udp or (ip proto \icmp or ospf) and not host 10.0.0.1",
            "udp or (ip proto 1 or 89) and not host 10.0.0.1",
        ),
        (r"ip6 proto \udp and ether proto \ip6", r"ip6 proto 17 and ether proto \ip6"),
        (r"ip protochain \tcp", "ip protochain 6"),
        ("ip proto 6 and tcp", "ip proto 6 and tcp"),
    ] {
        let (found, expected) = (bare(named), bare(numbered));
        assert!(expected.status.success(), "{numbered}: {expected:?}");
        assert_eq!(text(&found.stdout), text(&expected.stdout), "{named}: {found:?}");
    }
    for (filter, says) in
        [("ip proto swipe", "no number of protocol 'swipe'"), ("tcp port http", "/etc/services")]
    {
        let found = bare(filter);
        assert_eq!(found.status.code(), Some(2), "{found:?}");
        assert!(text(&found.stderr).contains(says), "{found:?}");
    }
}

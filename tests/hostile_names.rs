//! Names that command a terminal, in front of every command: none of it reaches whoever looks on.
//!
//! Apps are directories that any local user may make; devices, pools, rings, stages and sites are what
//! whoever listens there says.

#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../telemetry/tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use pmdscope_packets::file::{CaptureFiles, FileSettings};
use pmdscope_packets::{CaptureInterface, ETHERNET, Packet, PacketSink, SectionOrigin};
use pmdscope_telemetry::printable::is_printable;
use pmdscope_testing::{output, schema, spawn};
use serde_json::Value;
use support::{Machine, Recording, Running};

/// Sets the title, clears the screen, turns text round, hides, and begins a line of its own.
const EVIL: &str = "\u{1b}]0;t\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{2066}\u{200b}\u{7f}\r\nFORGED";

/// Names in the recordings that an app may choose.
const CHOSEN: [&str; 13] = [
    "net_null0",
    "pipeline_packets",
    "pipeline_clones",
    "rx_to_worker_0",
    "worker_to_tx_0",
    "faults.c",
    "early_return",
    "tx_reject",
    "linearize",
    "tx_burst",
    "tools-pipe",
    "socket_0",
    "0.1.0",
];

/// What a recording below `telemetry/tests/data` says, with names that command a terminal.
fn evil(recording: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("telemetry/tests/data").join(recording);
    let mut evil = Recording::default();
    for line in fs::read_to_string(path).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Some(request) = line["request"].as_str() else { continue };
        let mut reply: Value = serde_json::from_str(line["reply"].as_str().unwrap()).unwrap();
        rename(&mut reply);
        evil = evil.with(request, &reply.to_string());
    }
    evil
}

fn rename(value: &mut Value) {
    match value {
        Value::String(text) if CHOSEN.iter().any(|name| text.contains(name)) => text.push_str(EVIL),
        Value::Array(values) => values.iter_mut().for_each(rename),
        Value::Object(values) => values.values_mut().for_each(rename),
        _ => {}
    }
}

/// Apps with hostile names: one with libpmdscope that leaks, a stock one, one that answers about
/// something else, one that answers nonsense, and one that has ended.
struct Apps {
    machine: Machine,
    _running: Vec<Running>,
}

impl Apps {
    fn start() -> Self {
        let machine = Machine::new();
        let stock = evil("dpdk-22.11/testpmd-null.jsonl")
            .with("/ethdev/stats,1", &quoted(r#"{"/ethdev/stats":"#, "}"))
            .with("/ethdev/link_status,0", &quoted(r#"{"/ethdev/link_status":{"status":"#, "}}"));
        let mismatch = Recording::default().with("/", &quoted("{", ":[]}"));
        let nonsense = Recording::default().with("/", EVIL);
        let running = [
            ("leaks", evil("dpdk-22.11/pmdscope-leaking.jsonl")),
            ("stock", stock),
            ("other", mismatch),
            ("words", nonsense),
        ];
        let running = running.map(|(name, says)| machine.run(&named(name), &says));
        let apps = Self { machine, _running: running.into() };
        fs::create_dir(apps.root().join("dpdk").join(named("ended"))).unwrap();
        apps
    }

    fn root(&self) -> PathBuf {
        self.machine.settings().discover.roots.remove(0)
    }

    /// `pmdscope` with arguments, which sees these apps.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmdscope"));
        command.args(words).current_dir(self.root()).stdin(Stdio::null());
        command.env("RUNTIME_DIRECTORY", self.root()).env("PMDSCOPE_CONFIG", "none");
        command
    }

    /// Runs a command; what it says is harmless, and names something by these apps.
    fn check(&self, words: &[&str]) -> Output {
        let output = self.check_silent(words);
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        assert!(
            String::from_utf8_lossy(&said).contains("FORGED"),
            "{words:?} names none: {output:?}"
        );
        output
    }

    /// As [`Apps::check`], where no name need be said.
    fn check_silent(&self, words: &[&str]) -> Output {
        let output = output(&mut self.command(words)).unwrap();
        assert_harmless(words, &output.stdout);
        assert_harmless(words, &output.stderr);
        output
    }
}

fn named(name: &str) -> String {
    format!("{name}{EVIL}")
}

/// `EVIL` as JSON between two texts.
fn quoted(before: &str, after: &str) -> String {
    format!("{before}{}{after}", Value::String(EVIL.to_owned()))
}

/// No character does more than be shown, and no line begins where a name had it so.
fn assert_harmless(what: &[&str], text: &[u8]) {
    let text = str::from_utf8(text).unwrap();
    let bad = text.chars().find(|letter| !is_printable(*letter) && !['\n', '\t'].contains(letter));
    assert_eq!(bad, None, "{what:?}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("FORGED")), "{what:?}: {text}");
}

#[test]
fn apps_are_listed_judged_and_reported() {
    let apps = Apps::start();
    let leaks = named("leaks");
    apps.check(&["ls"]);
    apps.check(&["ls", "--all"]);
    apps.check(&["top", "--once"]);
    apps.check(&["top", "-n", "2", "-i", "0.1", "--ascii"]);
    for table in ["apps", "ports", "queues", "pools", "findings"] {
        apps.check(&["top", "--csv", table]);
    }
    apps.check(&["top", "--once", "-a", "nobody"]);
    apps.check(&["top", "--once", "--flows", "-a", &leaks]);
    apps.check(&["check", "--for", "1"]);
    apps.check(&["check", "--for", "1", "-q"]);
    apps.check(&["doctor", "-v"]);
    apps.check(&["doctor", "--fix-script"]);
    apps.check(&["leaks", "-i", "0.1"]);
    apps.check(&["leaks", "--mode"]);
    apps.check(&["leaks", "--explain"]);
    apps.check(&["leaks", "--explain", "nothing"]);
    apps.check(&["leaks", "--arm"]);
    for act in ["--arm", "--disarm", "--write=lost.pcapng"] {
        apps.check(&["leaks", "-a", &leaks, act]);
    }
    apps.check_silent(&["completions", "bash"]);
    apps.check_silent(&["--nonsense"]);
}

#[test]
fn threads_and_bundles_of_apps_are_told_of() {
    let apps = Apps::start();
    let leaks = named("leaks");
    apps.check(&["lcores", "-a", &leaks]);
    apps.check(&["lcores", "-a", "nobody"]);
    apps.check(&["interrupts", "--for", "1", "-a", "nobody"]);
    let file = named("b").replace('/', "_") + ".tar.zst";
    apps.check(&["bundle", "--for", "1", "--packets", "0", "-a", &leaks, "-o", &file]);
}

#[test]
fn interfaces_of_the_kernel_that_are_none_are_named() {
    let apps = Apps::start();
    let nothing = named("nothing");
    for command in [["xdp", "status"], ["xdp", "detach"], ["bypass", "status"], ["bypass", "down"]]
    {
        apps.check(&[command[0], command[1], &nothing]);
    }
    apps.check(&["xdp", "attach", &nothing, "--syn-limit", "1"]);
    apps.check(&["xdp", "deny", &nothing, "10.0.0.0/8"]);
    apps.check(&["bypass", "up", &nothing, "--queue", "1", "--flow", "udp:53"]);
}

/// What `pmdscope --help` lists stands in a test above, unless it names nothing but itself.
#[test]
fn every_command_was_given_these_names() {
    let help = output(Command::new(env!("CARGO_BIN_EXE_pmdscope")).arg("--help")).unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.len() > 10, "{help}");
    for command in commands {
        let words = format!("[\"{command}\"");
        assert!(include_str!("hostile_names.rs").contains(&words), "no test of {command}");
    }
}

#[test]
fn json_says_the_names_as_they_are_in_harmless_characters() {
    let apps = Apps::start();
    let commands: [&[&str]; 7] = [
        &["ls", "--json"],
        &["top", "--json"],
        &["check", "--for", "1", "--json"],
        &["doctor", "--json"],
        &["leaks", "-i", "0.1", "--json"],
        &["capture", "-D", "--json"],
        &["netstat", "-i", "--json"],
    ];
    for words in commands {
        let output = apps.check(words);
        let printed = String::from_utf8(output.stdout).unwrap();
        let json = &schema::documents(words, &printed).unwrap()[0];
        assert!(strings(json).iter().any(|text| text.contains(EVIL)), "{words:?}: {json}");
    }
}

fn strings(json: &Value) -> Vec<&str> {
    match json {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        Value::Object(values) => values.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn captures_name_ports_and_what_is_in_their_way() {
    let apps = Apps::start();
    let (leaks, stock) = (named("leaks"), named("stock"));
    apps.check(&["capture", "-D"]);
    apps.check_silent(&["--extcap-interfaces", "--extcap-version=4.0"]);
    apps.check(&["capture", "-i", "nothing", "-c", "1"]);
    for app in [&leaks, &stock] {
        apps.check(&["capture", "-a", app, "-i", "0", "-c", "1", "-w", "out.pcapng"]);
        apps.check(&["capture", "-a", app, "-i", "nothing", "-c", "1"]);
        apps.check(&["capture", "-a", app, "-c", "1"]);
    }
    apps.check(&["capture", "-L", "-i", &leaks]);
    apps.check(&["netstat", "-i"]);
    for view in ["-s", "-l", "--queues", "--all"] {
        apps.check(&["netstat", view, "--for", "100ms", "-a", &leaks]);
    }
    apps.check(&["netstat", "--on", "nothing"]);
}

#[test]
fn a_recording_is_told_of_and_played() {
    let apps = Apps::start();
    let file = named("x.jsonl.zst").replace('/', "_") + ".jsonl.zst";
    apps.check(&["record", "--for", "1", "-i", "0.2", "-w", &file]);
    apps.check(&["ls", "--all"]);
    for command in ["check", "leaks"] {
        apps.check(&[command, "--replay", &file]);
    }
    apps.check(&["top", "--once", "--replay", &file]);
    apps.check(&["netstat", "-i", "--replay", &file]);
    fs::write(apps.root().join(&file), "nonsense").unwrap();
    apps.check(&["check", "--replay", &file]);
}

/// A capture file with an interface of that name, and a packet whose bytes command a terminal.
fn capture_file(path: &Path) {
    let mut files = CaptureFiles::create(&FileSettings::new(path)).unwrap();
    files
        .section(&SectionOrigin { application: named("app"), ..SectionOrigin::default() })
        .unwrap();
    for name in ["one", "two"] {
        let (name, description, comment) = (named(name), named("device"), named("comment"));
        let (filter, options, snaplen, linktype) = (named("udp"), Vec::new(), 65535, ETHERNET);
        let interface =
            CaptureInterface { name, description, filter, comment, options, snaplen, linktype };
        files.interface(&interface).unwrap();
    }
    let mut frame = vec![0; 42];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame.extend([0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, u8::try_from(EVIL.len()).unwrap()]);
    frame.extend_from_slice(EVIL.as_bytes());
    frame.extend([0, 0, 1, 0, 1]);
    let (ip, udp) =
        (u16::try_from(frame.len() - 14).unwrap(), u16::try_from(frame.len() - 34).unwrap());
    frame[14..16].copy_from_slice(&[0x45, 0]);
    frame[16..18].copy_from_slice(&ip.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..38].copy_from_slice(&[4, 0, 0, 53]);
    frame[38..40].copy_from_slice(&udp.to_be_bytes());
    for interface in [0, 1] {
        let len = u32::try_from(frame.len()).unwrap();
        let (ns, dir, queue, lcore, weight, dropped, id) = (1, 1, None, None, 1, 0, 0);
        let (data, comment, options) = (&frame[..], EVIL, &[]);
        let packet = Packet {
            interface,
            ns,
            data,
            len,
            dir,
            queue,
            lcore,
            weight,
            dropped,
            id,
            comment,
            options,
        };
        files.packet(&packet).unwrap();
    }
    files.finish().unwrap();
}

#[test]
fn packets_and_the_names_in_their_file_are_shown() {
    let apps = Apps::start();
    let file = named("file").replace('/', "_") + ".pcapng";
    capture_file(&apps.root().join(&file));
    apps.check(&["capture", "-r", &file, "-w", &(file.clone() + "2"), "-C", "1", "--print-files"]);
    apps.check(&["netstat", "-r", &file, "--json"]);
    apps.check_silent(&["netstat", "-r", &file]);
    apps.check_silent(&["netstat", "-s", "-r", &file]);
    apps.check(&["netstat", "-r", &named("nothing")]);
    apps.check(&["capture", "-r", &named("nothing")]);
    if output(Command::new("tcpdump").arg("--version")).is_none() {
        return;
    }
    for options in ["-n", "-nv", "-nAXe"] {
        apps.check(&["capture", options, "-r", &file]);
    }
}

/// Ends with the test.
struct Exporter(Child);

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_exporter_tells_of_apps_harmlessly() {
    let apps = Apps::start();
    apps.check(&["export", "--once"]);
    apps.check_silent(&["export", "--print-config"]);
    apps.check(&[
        "export",
        "--listen",
        &format!("unix:{}/{}", apps.root().display(), named("no/where")),
    ]);
    let mut command = apps.command(&["export", "--listen", "127.0.0.1:0"]);
    let mut exporter = Exporter(spawn(command.stderr(Stdio::piped())).unwrap());
    let mut errors = BufReader::new(exporter.0.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    for page in ["/", "/metrics", "/ready", "/ready?app=nobody", "/sd"] {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {page} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.0 "), "{page}: {answer:?}");
    }
    exporter.0.kill().unwrap();
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert_harmless(&["export"], (line + &rest).as_bytes());
}

//! Clients that attack the exporter refuse no scrape of another client, and the process that they reach has no
//! rights.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use pmdscope_integration::exporter::{Exporter, Scrape};
use pmdscope_integration::fake;
use pmdscope_integration::machine::children;
use pmdscope_integration::process::wait_until;
use pmdscope_integration::scratch::Scratch;
use pmdscope_integration::site::Site;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::support::{LIMIT, Needs, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_hostile_client_refuses_no_other", Needs::Apps, attacked),
        trial("the_process_that_listens_has_no_rights", Needs::Apps, without_rights),
        trial("either_process_of_the_exporter_ends_with_the_other", Needs::Apps, ends),
    ]
}

const RECORDING: &str = "dpdk-22.11/testpmd-null.jsonl";
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const VICTIM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const IDLE: usize = 1000;
const HALVES: usize = 200;
const SCRAPES: usize = 30;
/// Timeout of a scrape, which Prometheus has as well.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connects from an address of this machine.
fn connect(from: Ipv4Addr, exporter: &Exporter) -> Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(from, 0))?;
    let SocketAddr::V4(to) = exporter.address() else { bail!("{}", exporter.address()) };
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// One scrape over a connection of its own; an error unless it is complete in time.
fn scrape(from: Ipv4Addr, exporter: &Exporter) -> Result<Scrape> {
    let mut stream = connect(from, exporter)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let (end, mut page) = (Instant::now() + TIMEOUT, Vec::new());
    while Read::by_ref(&mut stream).take(1 << 16).read_to_end(&mut page)? > 0 {
        ensure!(Instant::now() < end, "it takes longer than {TIMEOUT:?}");
    }
    let page = String::from_utf8(page)?;
    let (head, body) = page.split_once("\r\n\r\n").context("no response")?;
    ensure!(head.starts_with("HTTP/1.0 200 "), "{head}");
    Scrape::parse(body)
}

/// A connection of an attack, which it opens again when it is closed.
struct Hostile {
    stream: TcpStream,
    half: bool,
}

impl Hostile {
    fn open(exporter: &Exporter, half: bool) -> Result<Self> {
        let mut stream = connect(ATTACKER, exporter)?;
        stream.set_nonblocking(true)?;
        if half {
            // It may be closed already.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Half: ");
        }
        Ok(Self { stream, half })
    }

    fn is_open(&mut self) -> bool {
        let read = self.stream.read(&mut [0; 512]);
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

fn attacked(scratch: &Scratch) -> Result<()> {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?;
    let site = Site::new(scratch, "run", "")?;
    let _app = fake::replay(&site.socket("app"), RECORDING)?;
    let exporter = Exporter::start(scratch, &site.config())?;
    let mut hostile = (0..IDLE + HALVES)
        .map(|number| Hostile::open(&exporter, number >= IDLE))
        .collect::<Result<Vec<_>>>()?;
    let over = AtomicBool::new(false);
    let scrapes = thread::scope(|scope| {
        scope.spawn(|| {
            for at in (0..hostile.len()).cycle() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if !hostile[at].is_open()
                    && let Ok(again) = Hostile::open(&exporter, hostile[at].half)
                {
                    hostile[at] = again;
                }
            }
        });
        let scrapes: Vec<_> = (0..SCRAPES).map(|_| scrape(VICTIM, &exporter)).collect();
        let own = scrape(ATTACKER, &exporter);
        over.store(true, Ordering::Relaxed);
        scrapes.into_iter().chain([own]).collect::<Result<Vec<_>>>()
    })?;
    for scrape in &scrapes {
        ensure!(scrape.value("dpdk_up", &[("app", "app")]) == Some(1.0), "the app is not up");
    }
    let last = scrape(VICTIM, &exporter)?;
    let name = "dpdk_exporter_connections_rejected_total";
    let displaced = last.value(name, &[("reason", "displaced")]).context("no counter")?;
    ensure!(displaced >= (IDLE + HALVES - 512) as f64, "{displaced} were displaced");
    ensure!(last.all(name, &[]).count() == 5, "{:?}", last.all(name, &[]).collect::<Vec<_>>());
    Ok(())
}

/// A line of /proc/PID/status.
fn status(pid: u32, key: &str) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    Ok(line.with_context(|| format!("no {key} of {pid}"))?.trim().to_owned())
}

/// Whether a process has the socket that listens at the address of the exporter.
fn listens(pid: u32, exporter: &Exporter) -> Result<bool> {
    let port = format!(":{:04X} 00000000:0000 0A ", exporter.address().port());
    let table = fs::read_to_string("/proc/net/tcp")?;
    let line = table.lines().find(|line| line.contains(&port)).context("nothing listens")?;
    let inode = line.split_whitespace().nth(9).context("no inode")?;
    let open = fs::read_dir(format!("/proc/{pid}/fd"))?
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let name = format!("socket:[{inode}]");
    Ok(open.into_iter().any(|file| file.to_string_lossy() == name))
}

fn without_rights(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch, "run", "")?;
    let _app = fake::replay(&site.socket("app"), RECORDING)?;
    // As EAL creates it.
    fs::set_permissions(site.dir("app"), std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    let exporter = Exporter::start(scratch, &site.config())?;
    ensure!(
        exporter.scrape()?.value("dpdk_up", &[("app", "app")]) == Some(1.0),
        "the app is not up"
    );
    let main = exporter.process.pid();
    let processes: Vec<u32> = [main].into_iter().chain(children(main)?).collect();
    let mut reached = Vec::new();
    for pid in processes {
        if listens(pid, &exporter)? {
            reached.push(pid);
        }
    }
    let [network] = reached[..] else { bail!("processes that listen: {reached:?}") };
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
        let has = status(network, set)?;
        ensure!(has.bytes().all(|digit| digit == b'0'), "{set} is {has}");
    }
    ensure!(status(network, "NoNewPrivs")? == "1", "it could get rights");
    let owner = fs::metadata(site.dir("app"))?.uid();
    let users = status(network, "Uid")?;
    ensure!(users.split_whitespace().all(|user| user != owner.to_string()), "users are {users}");
    ensure!(status(network, "Groups")?.is_empty(), "it has groups");
    for file in fs::read_dir(format!("/proc/{network}/fd"))? {
        let file = fs::read_link(file?.path()).unwrap_or_default();
        ensure!(!file.starts_with(scratch.dir().join("run")), "it has {}", file.display());
    }
    Ok(())
}

fn ends(scratch: &Scratch) -> Result<()> {
    let site = Site::new(scratch, "run", "")?;
    let kill = |pid: u32| -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(pid)?).context("no process")?;
        Ok(kill_process(pid, Signal::KILL)?)
    };
    let only_child = |exporter: &Exporter| -> Result<u32> {
        let children = children(exporter.process.pid())?;
        let [child] = children[..] else { bail!("children: {children:?}") };
        Ok(child)
    };
    let mut exporter = Exporter::start(scratch, &site.config())?;
    kill(only_child(&exporter)?)?;
    let code = exporter.process.wait(LIMIT)?;
    ensure!(code.code() == Some(1), "it ends with {code}");
    let output = exporter.process.output();
    ensure!(output.contains("collector") && output.contains("signal 9"), "{output}");

    let mut exporter = Exporter::start(scratch, &site.config())?;
    let collector = only_child(&exporter)?;
    kill(exporter.process.pid())?;
    exporter.process.wait(LIMIT)?;
    wait_until("the collector to end", LIMIT, || {
        Ok(!fs::exists(format!("/proc/{collector}"))?
            || status(collector, "State")?.starts_with('Z'))
    })?;
    Ok(())
}

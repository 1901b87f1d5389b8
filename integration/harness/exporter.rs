//! A running `pmdscope export`, and its metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ureq::http::StatusCode;

use crate::http::{Reply, get};
use crate::process::{Process, wait_until};
use crate::programs;
use crate::scratch::Scratch;

const START: Duration = Duration::from_secs(10);

/// Time between two scrapes if the first did not wait for all apps.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The header in which Prometheus states its scrape timeout.
pub const TIMEOUT_HEADER: &str = "X-Prometheus-Scrape-Timeout-Seconds";

/// An exporter on a port of its own. Dropping it ends it.
pub struct Exporter {
    /// The process.
    pub process: Process,
    address: SocketAddr,
}

impl Exporter {
    /// Starts one with further arguments, and waits until it listens.
    pub fn start(scratch: &Scratch, args: &[&str]) -> Result<Self> {
        let mut command = Command::new(programs::pmdscope()?);
        Self::listening(scratch, "exporter", command.arg("export").args(args), free_address()?)
    }

    /// Starts the `command` of one with a name for its log, and waits until it listens on that address.
    pub fn listening(
        scratch: &Scratch,
        name: &str,
        command: &mut Command,
        address: SocketAddr,
    ) -> Result<Self> {
        command.args(["--listen", &address.to_string()]);
        let mut process = Process::spawn(name, command, scratch.dir())?;
        wait_until("the exporter", START, || {
            if let Some(status) = process.exited()? {
                bail!("the exporter ended at once ({status}):\n{}", process.output());
            }
            Ok(get(address, "/healthz", &[], &[]).is_ok_and(|reply| reply.status == StatusCode::OK))
        })?;
        Ok(Self { process, address })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The response to a path with its query, for instance `/ready?app=x`.
    pub fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Reply> {
        get(self.address, path, headers, &[])
    }

    /// One scrape of everything; each connection is a new one. On a busy machine the first one may not
    /// wait for all apps, and is repeated.
    pub fn scrape(&self) -> Result<Scrape> {
        let begin = Instant::now();
        loop {
            let scrape = self.get("/metrics", &[])?.scrape()?;
            let found = scrape.value("dpdk_apps_discovered", &[]).unwrap_or(0.0);
            if scrape.all("dpdk_up", &[]).count() as f64 >= found || begin.elapsed() > START {
                return Ok(scrape);
            }
            sleep(RETRY_INTERVAL);
        }
    }

    /// As [`Exporter::scrape`], in at most so many seconds.
    pub fn scrape_within(&self, seconds: f64) -> Result<Scrape> {
        self.get("/metrics", &[(TIMEOUT_HEADER, &seconds.to_string())])?.scrape()
    }
}

/// An address of the loopback interface that no process listens on.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

impl Reply {
    /// Parses the samples in the body.
    pub fn scrape(&self) -> Result<Scrape> {
        ensure!(self.status == StatusCode::OK, "{}: {}", self.status, self.body);
        Scrape::parse(&self.body)
    }
}

/// The samples of one scrape.
#[derive(Debug)]
pub struct Scrape(pub Vec<Sample>);

/// One line of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name of the metric.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Scrape {
    /// Reads either text format; a line that is neither a sample nor a comment is an error, and so is
    /// a duplicate sample.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines
            .map(|line| sample(line).with_context(|| format!("no sample: {line}")))
            .collect::<Result<Vec<_>>>()?;
        let mut seen = BTreeSet::new();
        for Sample { name, labels, .. } in &samples {
            ensure!(seen.insert((name, labels)), "a series that is there twice: {name} {labels:?}");
        }
        Ok(Self(samples))
    }

    /// The samples of a metric that have these labels, and maybe others.
    pub fn all<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            let has = |(key, value): &(&str, &str)| sample.label(key) == *value;
            sample.name == name && labels.iter().all(has)
        })
    }

    /// The value of the only sample of a metric that has these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut samples = self.all(name, labels);
        let first = samples.next()?;
        samples.next().is_none().then_some(first.value)
    }
}

impl Sample {
    /// Value of a label; empty when it has none, which is the same to Prometheus.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// `name{label="value",...} value`.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(behind) = rest.strip_prefix('}') {
                rest = behind;
                break;
            }
            let (key, value) = rest.split_once("=\"")?;
            let (text, behind) = quoted(value)?;
            labels.insert(key.to_owned(), text).is_none().then_some(())?;
            rest = behind;
        }
    }
    let value = rest.strip_prefix(' ')?.split(' ').next()?.parse().ok()?;
    (!name.is_empty()).then(|| Sample { name: name.to_owned(), labels, value })
}

/// The text before the closing quote, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

//! A real Prometheus on loopback, with the rules and alerts of this repository.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::exporter::free_address;
use crate::http::{Reply, get};
use crate::process::{Process, wait_until};
use crate::programs;
use crate::scratch::Scratch;

const START: Duration = Duration::from_secs(30);

/// Prometheus, where `make setup` put it or where it is installed.
pub fn binary() -> Option<PathBuf> {
    let unpacked = programs::root().join("build/tools/prometheus/usr/bin/prometheus");
    [unpacked, "/usr/bin/prometheus".into()].into_iter().find(|path| path.exists())
}

/// Time that an alert of this repository waits here before it fires. The real times are tested with the
/// rules, in dashboards/tests.
const PENDING: &str = "2s";

/// A running Prometheus that scrapes once per second.
pub struct Prometheus {
    /// The process.
    pub process: Process,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts one that scrapes `targets`, as job `pmdscope`.
    pub fn start(scratch: &Scratch, targets: &[SocketAddr]) -> Result<Self> {
        let config = configuration(&copied_rules(scratch)?, targets)?;
        Self::launch(scratch, "prometheus", &config, &["--storage.tsdb.path"])
    }

    /// Starts the one that agents of a fleet send to, by the configuration of this repository. Alerts fire
    /// soon.
    pub fn receiver(scratch: &Scratch) -> Result<Self> {
        copied_rules(scratch)?;
        let config = repository_file("prometheus-fleet.yml")?;
        let config = replaced(&config, "evaluation_interval: 15s", "evaluation_interval: 1s")?;
        let args = ["--web.enable-remote-write-receiver", "--storage.tsdb.path"];
        Self::launch(scratch, "receiver", &config, &args)
    }

    /// Starts an agent by the configuration of this repository, once per second: it scrapes these two, and
    /// sends to a receiver.
    pub fn agent(scratch: &Scratch, targets: [SocketAddr; 2], receiver: &Self) -> Result<Self> {
        let config = repository_file("agent.yml")?;
        let config = replaced(&config, "scrape_interval: 15s", "scrape_interval: 1s")?;
        let config = replaced(&config, "scrape_timeout: 10s", "scrape_timeout: 1s")?;
        let config = replaced(&config, "host1:9177", &targets[0].to_string())?;
        let config = replaced(&config, "host2:9177", &targets[1].to_string())?;
        let config = replaced(&config, "metrics.example.org:9090", &receiver.address.to_string())?;
        Self::launch(scratch, "agent", &config, &["--enable-feature=agent", "--storage.agent.path"])
    }

    /// Starts one with a name for its files; the last argument takes the path of its storage.
    fn launch(scratch: &Scratch, name: &str, config: &str, args: &[&str]) -> Result<Self> {
        let file = scratch.path(&format!("{name}.yml"));
        fs::write(&file, config)?;
        let address = free_address()?;
        let mut command = Command::new(binary().context("prometheus is not installed")?);
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--web.listen-address={address}"))
            .args(args)
            .arg(scratch.path(name));
        let process = Process::spawn(name, &mut command, scratch.dir())?;
        let mut prometheus = Self { process, address };
        wait_until(&format!("the {name} to be ready"), START, || {
            if let Some(status) = prometheus.process.exited()? {
                bail!("{name} ended with {status}: {}", prometheus.process.output());
            }
            Ok(prometheus.get("/-/ready", &[]).is_ok())
        })?;
        Ok(prometheus)
    }

    /// The samples of an expression now.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>> {
        self.data("/api/v1/query", &[("query", expression)], "result")
    }

    /// The series of an expression in the last `seconds`.
    pub fn query_range(&self, expression: &str, seconds: u64) -> Result<Vec<Value>> {
        let now = self.query("time()")?;
        let now =
            now.get(1).and_then(|now| Some(now.as_str()?.parse::<f64>())).context("time")??;
        let start = (now - seconds as f64).to_string();
        let parameters =
            [("query", expression), ("start", &start), ("end", &now.to_string()), ("step", "1")];
        self.data("/api/v1/query_range", &parameters, "result")
    }

    /// The values that a label has in series that match a selector.
    pub fn label_values(&self, selector: &str, label: &str) -> Result<Vec<String>> {
        let path = format!("/api/v1/label/{label}/values");
        let reply = self.reply(&path, &[("match[]", selector)])?;
        let values = reply["data"].as_array().context("no values")?;
        Ok(values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect())
    }

    /// Alerts that are pending or firing.
    pub fn alerts(&self) -> Result<Vec<Value>> {
        self.data("/api/v1/alerts", &[], "alerts")
    }

    /// Rules, as Prometheus has loaded them.
    pub fn rule_groups(&self) -> Result<Vec<Value>> {
        self.data("/api/v1/rules", &[], "groups")
    }

    fn data(&self, path: &str, parameters: &[(&str, &str)], field: &str) -> Result<Vec<Value>> {
        let mut reply = self.reply(path, parameters)?;
        match reply["data"][field].take() {
            Value::Array(values) => Ok(values),
            other => bail!("no {field} in the reply to {path} {parameters:?}: {other}"),
        }
    }

    fn reply(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let text = self.get(path, parameters)?;
        let reply: Value = serde_json::from_str(&text)?;
        ensure!(reply["status"] == "success", "{path} {parameters:?}: {}", reply["error"]);
        Ok(reply)
    }

    fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<String> {
        let Reply { status, body, .. } = get(self.address, path, &[], parameters)?;
        // The body of a query error has more details than its status.
        ensure!(status.is_success() || body.starts_with('{'), "{path}: {status}: {body}");
        Ok(body)
    }
}

fn configuration(rules: &[PathBuf], targets: &[SocketAddr]) -> Result<String> {
    let mut text = String::from(
        "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  evaluation_interval: 1s\n",
    );
    text += "rule_files:\n";
    for file in rules {
        writeln!(text, "  - {}", file.display())?;
    }
    text += "scrape_configs:\n  - job_name: pmdscope\n    static_configs:\n";
    writeln!(
        text,
        "      - targets: {:?}",
        targets.iter().map(ToString::to_string).collect::<Vec<_>>()
    )?;
    Ok(text)
}

/// A file next to the rules of this repository.
fn repository_file(name: &str) -> Result<String> {
    let path = programs::root().join("dashboards/prometheus").join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// A text with one part of it replaced, which must be in it.
fn replaced(text: &str, old: &str, new: &str) -> Result<String> {
    ensure!(text.matches(old).count() == 1, "{old:?} is not once in the configuration:\n{text}");
    Ok(text.replace(old, new))
}

/// Copies of the rules whose alerts fire soon, in a directory `rules`.
fn copied_rules(scratch: &Scratch) -> Result<Vec<PathBuf>> {
    let rules = scratch.path("rules");
    fs::create_dir(&rules)?;
    let copy = |file: PathBuf| {
        let name = file.file_name().context("rules without a name")?;
        let copy = rules.join(name);
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let lines = text.lines().map(|line| match line.split_once("  for: ") {
            Some((indent, _)) => format!("{indent}  for: {PENDING}"),
            None => line.to_owned(),
        });
        fs::write(&copy, lines.collect::<Vec<_>>().join("\n"))?;
        Ok(copy)
    };
    rule_files()?.into_iter().map(copy).collect()
}

/// The rules and alerts of this repository.
fn rule_files() -> Result<Vec<PathBuf>> {
    let directory: &Path = &programs::root().join("dashboards/prometheus/rules");
    let entries = fs::read_dir(directory)
        .with_context(|| format!("rules of Prometheus in {}", directory.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut files: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "yml")).collect();
    files.sort();
    ensure!(!files.is_empty(), "no rules in {}", directory.display());
    Ok(files)
}

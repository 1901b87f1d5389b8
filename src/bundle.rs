//! `pmdscope bundle`: all that helps to understand an incident, in one file.

mod archive;
mod collect;
mod commands;
mod findings;
mod finish;
mod index;
pub(crate) mod open;
mod progress;
mod recording;
mod redact;
mod redaction;
mod report;
mod signals;
mod staging;
mod versions;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use pmdscope_files::{Directory, FileMode};
use pmdscope_render::number;
use pmdscope_telemetry::FleetSettings;

use self::archive::{ArchiveFile, EXTENSION, directory};
use self::collect::{Collector, PartCommand, file_entry};
use self::commands::{CommandContext, file_name};
use self::index::{PartEntry, PartStatus, rounded_seconds};
use self::progress::Progress;
use self::recording::{CopyOptions, given_recordings, running_recordings};
use self::redact::{Redactor, known_hosts};
use self::signals::StopRequests;
use self::staging::{StagingDirectory, remove_abandoned};
use self::versions::VersionedApp;
use crate::doctor::live_apps;
use crate::number::whole;
use crate::session::{self, AppArg};
use crate::size::parse_bytes;
use crate::{duration, output};

/// How long everything may take beyond `--for`.
const BUDGET: Duration = Duration::from_secs(90);
/// Most apps of which packets are captured.
const MOST_APPS: usize = 16;
/// Share of `--max-size` that a copied recording may take.
const RECORDING_SHARE: u64 = 2;
/// Part and directory of recordings.
const RECORDING: &str = "recording";
/// Part with packets.
const CAPTURE: &str = "capture";
/// What is missing of an app that does not answer.
const APP: &str = "telemetry";
/// Part with the files of the machine that `doctor` reads.
const HOST_FILES: &str = "host files";
/// Their directory, as `doctor -r` takes it.
pub(crate) const HOST_TREE: &str = "doctor/tree";

/// Collect everything about an incident into one file
///
/// Recording, findings, leaks with packets, a short capture, checks of the machine, versions and
/// configuration, with an index and a page for browsers. `pmdscope FILE` opens the bundle on another
/// machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pmdscope bundle -w incident.tar.zst   collect for 10 seconds
  pmdscope bundle --redact --for 30s    without payloads and addresses
  pmdscope incident.tar.zst             open it, as top -r

Exit status: 0 written, 1 nothing collected or not written, 2 wrong usage.")]
#[command(after_long_help = "\
Examples:
  pmdscope bundle                        all apps, 10 seconds, into the current directory
  pmdscope bundle -a fwd -w fwd.tar.zst --for 30s
  pmdscope bundle --redact               without payloads, addresses and host name
  tar --zstd -xOf fwd.tar.zst --wildcards '*/INDEX.txt'
  pmdscope top -r fwd.tar.zst            also check, leaks, lcores, netstat and doctor -r

Parts that cannot be collected are missing from the bundle; INDEX.txt gives the reasons. ^C stops
the collection and writes the parts collected so far; a second ^C exits without a file.

Exit status:
  0  the bundle was written, even if parts are missing
  1  nothing could be collected, no app has that name, or the file cannot be written
  2  wrong usage or configuration")]
#[allow(clippy::struct_excessive_bools)] // Switches of a command line.
pub(crate) struct Args {
    /// File or directory [default: ./pmdscope-bundle-TIME.tar.zst]
    #[arg(short = 'w', long = "write", short_alias = 'o', alias = "output", value_name = "FILE",
          value_hint = clap::ValueHint::AnyPath)]
    output: Option<PathBuf>,

    #[command(flatten)]
    app: AppArg,

    /// How long to observe, 1s to 10m
    ///
    /// Everything else takes up to 90 seconds more.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = observation)]
    time: Duration,

    /// How much of a running recording to copy
    ///
    /// Applies to recorders that run on this machine (`pmdscope record`) and to -r. Without a
    /// recording, bundle records for the time of --for.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = history)]
    last: Duration,

    /// Copy this recording [default: those of running recorders]
    #[arg(short = 'r', long = "read", alias = "recording", value_name = "FILE",
          value_hint = clap::ValueHint::AnyPath, add = crate::completions::recordings())]
    recording: Option<PathBuf>,

    /// Mask addresses and names of hosts, cut payloads
    ///
    /// The index lists what is replaced and what is not.
    #[arg(long)]
    redact: bool,

    /// Packets to capture per app; 0: none
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = whole::<u64>(0..=10_000_000),
          hide_short_help = true)]
    packets: u64,

    /// Bytes to capture per packet
    #[arg(short, long, value_name = "BYTES", default_value_t = 256, value_parser = whole::<u32>(1..=262_144),
          hide_short_help = true)]
    snapshot_length: u32,

    /// Do not attach to apps without libpmdscope to capture packets
    ///
    /// Without --app, bundle never attaches to them.
    #[arg(long, hide_short_help = true)]
    no_pdump: bool,

    /// Do not read the memory of apps
    ///
    /// Mempools and rings of apps without libpmdscope are then counted only as far as DPDK reports them, and
    /// lost mbufs are not searched for.
    #[arg(long, hide_short_help = true)]
    no_xray: bool,

    /// Largest total size of the files, before compression
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_bytes)]
    max_size: u64,

    /// Access mode of the file [default: 600]
    #[arg(
        long,
        value_name = "MODE",
        default_value = "600",
        hide_default_value = true,
        hide_short_help = true
    )]
    file_mode: FileMode,

    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
}

fn observation(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::from_secs(600);
    duration::within(text, range, "10s")
}

fn history(text: &str) -> Result<Duration, String> {
    let range = Duration::from_secs(1)..=Duration::MAX;
    duration::within(text, range, "90s or 10m")
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut settings = args.app.settings()?;
    session::xray_unless(args.no_xray, &mut settings);
    let stop = StopRequests::register()?;
    let started = Timestamp::now();
    let name = format!("pmdscope-bundle-{}", started.strftime("%Y%m%dT%H%M%SZ"));
    let archive = ArchiveFile::create(&args.target(&name), args.file_mode)?;
    let abandoned = remove_abandoned(archive.directory());
    let staging = StagingDirectory::create_in(directory(archive.target()))?;
    let redactor = args.redact.then(|| Redactor::new(&known_hosts())).transpose()?;
    let progress = Progress::new(args.quiet);
    if abandoned > 0 {
        let leftovers = number::plural(abandoned as u64, "leftover");
        progress.tell(&format!("removed {leftovers} of bundles that were killed"));
    }
    let collector = Collector {
        staging: staging.path(),
        stop: &stop,
        progress: &progress,
        deadline: Instant::now() + args.time + BUDGET,
        most_bytes: args.max_size,
        parts: Vec::new(),
    };
    let apps = versions::ask(&settings, args.app.app.as_deref())?;
    let mut bundle = Bundle { args, settings, collector, redactor, apps };
    bundle.collect();
    let collected = bundle.finish();
    if stop.count() > 1 {
        bail!("interrupted: no bundle was written");
    }
    let parts = &collected.parts;
    if !parts.iter().any(|part| part.has_files() && !is_always_there(part)) {
        let failed = parts.iter().filter(|part| part.status == PartStatus::Failed);
        let why = failed.chain(parts).find_map(|part| part.reason.as_deref());
        bail!("nothing could be collected: {}", why.unwrap_or("no app runs"));
    }
    let missing = parts.iter().filter(|part| part.status != PartStatus::Complete).count();
    bundle
        .write_index(collected, started)
        .with_context(|| format!("cannot write {}", archive.target().display()))?;
    let target = archive.target().to_owned();
    progress.doing(&format!("writing {}", target.display()));
    let size = archive.write(staging.path(), &name, &[index::TEXT, index::JSON, report::FILE])?;
    progress.tell(&summary(&target, size, missing));
    Ok(ExitCode::SUCCESS)
}

/// Parts that are always present.
fn is_always_there(part: &PartEntry) -> bool {
    ["versions", "configuration", HOST_FILES].contains(&part.part)
}

fn summary(target: &Path, size: u64, missing: usize) -> String {
    let missing = match missing {
        0 => String::new(),
        missing => {
            let parts = number::plural(missing as u64, "part");
            format!("; {parts} missing or incomplete: INDEX.txt says why")
        }
    };
    format!("{} written, {}{missing}", target.display(), number::bytes(size))
}

impl Args {
    /// The file to write.
    fn target(&self, name: &str) -> PathBuf {
        let file = format!("{name}{EXTENSION}");
        match &self.output {
            None => file.into(),
            Some(path) if path.is_dir() => path.join(file),
            Some(path) => path.clone(),
        }
    }

    /// Whole seconds to observe.
    fn seconds(&self) -> u64 {
        self.time.as_secs() + u64::from(self.time.subsec_nanos() > 0)
    }
}

/// A bundle that is being collected.
struct Bundle<'a> {
    args: &'a Args,
    settings: FleetSettings,
    collector: Collector<'a>,
    redactor: Option<Redactor>,
    apps: Vec<VersionedApp>,
}

impl<'a> Bundle<'a> {
    fn collect(&mut self) {
        self.add_versions();
        self.add_silent();
        let sources = match &self.args.recording {
            Some(path) => given_recordings(path),
            None => Ok(running_recordings()),
        };
        let sources = sources.unwrap_or_else(|error| {
            let reason = format!("{error:#}");
            self.collector.add(PartEntry::skipped(RECORDING, None, &reason));
            Vec::new()
        });
        let context = self.context();
        self.observe(context, sources.is_empty());
        if !sources.is_empty() && !self.copy_recordings(&sources) {
            self.collector.run(vec![context.recording()]);
        }
        self.add_host_files();
        let mut commands = vec![context.profile()];
        commands.extend(context.reports());
        let has_ledger = |app: &str| self.apps.iter().any(|it| it.name == app && it.is_linked());
        let (linked, scanned): (Vec<_>, Vec<_>) =
            self.file_names().into_iter().partition(|(app, _)| has_ledger(app));
        commands.push(context.leaks(&scanned));
        commands.extend(linked.iter().map(|(app, name)| context.lost_packets(app, name)));
        if self.collector.parts.iter().any(|part| part.part == RECORDING && part.has_files()) {
            commands.extend(context.recorded_findings());
        }
        for command in commands {
            self.collector.progress.doing(&format!("collecting {}", command.part));
            // One after the other: apps may share their CPUs with us.
            self.collector.run(vec![command]);
        }
    }

    fn context(&self) -> CommandContext<'a> {
        CommandContext {
            staging: self.collector.staging,
            app: self.args.app.app.as_deref(),
            config: self.args.app.config.named_file(),
            no_other_users: self.args.app.config.leaves_out_others(),
            seconds: self.args.seconds(),
            packets: self.args.packets,
            snaplen: self.args.snapshot_length,
            no_pdump: self.args.no_pdump,
            no_xray: self.args.no_xray,
        }
    }

    /// Apps that answer, and their names in file names.
    fn file_names(&self) -> Vec<(String, String)> {
        let mut names = Vec::new();
        let live = self.apps.iter().filter(|app| app.answers);
        let pair = |app: &VersionedApp| {
            let name = file_name(&app.name, &names);
            names.push(name.clone());
            (app.name.clone(), name)
        };
        live.map(pair).collect()
    }

    /// Observes all apps in the same seconds.
    fn observe(&mut self, context: CommandContext<'_>, record: bool) {
        let mut commands = context.observations();
        if record {
            commands.push(context.recording());
        }
        let names = self.file_names();
        if self.args.packets > 0 {
            commands.extend(self.captures(context, &names));
        }
        let apps = number::plural(names.len() as u64, "app");
        let seconds = number::seconds(self.args.time.as_secs_f64());
        self.collector.progress.tell(&format!("observing {apps} for {seconds}"));
        self.collector.run(commands);
        if self.collector.end_reason().is_none() {
            self.collector.progress.tell("collecting reports");
        }
    }

    /// Captures of the apps with these names in file names. Nothing attaches to an app that was not named.
    fn captures(
        &mut self,
        context: CommandContext<'_>,
        names: &[(String, String)],
    ) -> Vec<PartCommand> {
        let is_named = self.args.app.app.is_some();
        let offers = |app: &String| self.apps.iter().any(|it| it.name == *app && it.is_linked());
        let (captured, stock): (Vec<_>, Vec<_>) =
            names.iter().partition(|(app, _)| is_named || offers(app));
        for (app, _) in stock {
            let reason = format!(
                "{app} runs without libpmdscope: name it (-a {app}) to have pmdscope-pdump attach to it"
            );
            self.collector.add(PartEntry::skipped(CAPTURE, Some(app.clone()), &reason));
        }
        for (app, _) in captured.iter().skip(MOST_APPS) {
            let reason =
                format!("packets of at most {MOST_APPS} apps are captured: choose with -a");
            self.collector.add(PartEntry::skipped(CAPTURE, Some(app.clone()), &reason));
        }
        captured.iter().take(MOST_APPS).map(|(app, name)| context.capture(app, name)).collect()
    }

    /// Copies recordings; true if every app that answers is in them.
    fn copy_recordings(&mut self, sources: &[PathBuf]) -> bool {
        let begun = Instant::now();
        let mut entry = PartEntry::begun(RECORDING);
        let into = self.collector.staging.join(RECORDING);
        let options = CopyOptions {
            since: SystemTime::now().checked_sub(self.args.last).unwrap_or(SystemTime::UNIX_EPOCH),
            app: self.args.app.app.as_deref(),
            most_bytes: self.args.max_size / RECORDING_SHARE,
        };
        let copied = Directory::create(&into)
            .context("cannot create a directory")
            .and_then(|_| recording::copy(sources, &into, &options));
        let mut is_whole = false;
        match copied {
            Ok(copied) => {
                let missing = self.apps.iter().filter(|app| app.answers);
                let missing = missing.filter(|app| !copied.apps.contains(&app.name));
                let missing = missing.map(|app| app.name.as_str()).collect::<Vec<_>>();
                is_whole = missing.is_empty();
                entry.messages = copied.notes;
                if !is_whole {
                    let missing = output::names(&missing);
                    entry.messages.push(format!("not in the recording that was copied: {missing}"));
                }
                let inside = copied.files.iter().filter_map(|file| file.file_name());
                let inside = inside.map(|name| Path::new(RECORDING).join(name));
                let staging = self.collector.staging;
                entry.files = inside.filter_map(|path| file_entry(staging, &path)).collect();
            }
            Err(error) => {
                (entry.status, entry.reason) = (PartStatus::Failed, Some(format!("{error:#}")));
            }
        }
        entry.seconds = rounded_seconds(begun.elapsed());
        self.collector.add(entry);
        is_whole
    }

    fn add_versions(&mut self) {
        let path = Path::new("versions/versions.txt");
        let mut entry = PartEntry::begun("versions");
        let written = write(self.collector.staging, path, &versions::text(&self.apps));
        entry.files = file_entry(self.collector.staging, path).into_iter().collect();
        if let Err(error) = written {
            (entry.status, entry.reason) = (PartStatus::Failed, Some(format!("{error:#}")));
        }
        self.collector.add(entry);
    }

    /// Notes the apps of which nothing can be collected.
    fn add_silent(&mut self) {
        for app in self.apps.iter().filter(|app| !app.answers) {
            let why = app.silent.as_deref().unwrap_or("it did not answer");
            self.collector.add(PartEntry::skipped(APP, Some(app.name.clone()), why));
        }
    }

    /// Copies the files of this machine that `doctor` reads, for `doctor -r` elsewhere.
    fn add_host_files(&mut self) {
        if let Some(reason) = self.collector.end_reason() {
            return self.collector.add(PartEntry::skipped(HOST_FILES, None, reason));
        }
        let begun = Instant::now();
        let mut entry = PartEntry::begun(HOST_FILES);
        let staging = self.collector.staging;
        let apps = live_apps(self.settings.clone(), self.args.app.app.as_deref());
        match pmdscope_doctor::collect(&staging.join(HOST_TREE), apps.as_deref().ok()) {
            Ok(()) => {
                entry.files = file_entry(staging, Path::new(HOST_TREE)).into_iter().collect();
                if let Err(error) = apps {
                    entry.lose(&format!("nothing of apps: {error:#}"));
                }
            }
            Err(error) => {
                // Half a copy would be taken for a machine without these files.
                let _ = std::fs::remove_dir_all(staging.join(HOST_TREE));
                entry.lose(&error.to_string());
            }
        }
        entry.seconds = rounded_seconds(begun.elapsed());
        self.collector.add(entry);
    }
}

/// Writes a file below the staging directory.
fn write(staging: &Path, path: &Path, text: &str) -> Result<()> {
    let path = staging.join(path);
    let failed = || format!("cannot write {}", path.display());
    Directory::create(directory(&path)).with_context(failed)?;
    pmdscope_files::write(&path, text.as_bytes(), FileMode::default()).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_checked() {
        assert_eq!(observation("10"), Ok(Duration::from_secs(10)));
        assert_eq!(observation("10m"), Ok(Duration::from_secs(600)));
        for wrong in ["0", "500ms", "11m", "x", ""] {
            assert!(observation(wrong).is_err(), "{wrong}");
        }
        assert!(history("0").is_err() && history("10m").is_ok() && history("10").is_ok());
    }

    #[test]
    fn the_summary_says_whether_something_is_missing() {
        let path = Path::new("x.tar.zst");
        assert_eq!(summary(path, 2048, 0), "x.tar.zst written, 2.0 KiB");
        assert!(
            summary(path, 2048, 1).ends_with("; 1 part missing or incomplete: INDEX.txt says why")
        );
    }
}

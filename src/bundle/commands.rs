//! The commands whose output is collected.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::collect::PartCommand;
use crate::leaks::save;

/// How long a command may take that does not last for a set time.
const USUAL_LIMIT: Duration = Duration::from_secs(15);
/// The same beyond the time that a command lasts.
const STARTUP_LIMIT: Duration = Duration::from_secs(15);
/// How long scans of the memory of apps may take: a million mbufs on ordinary pages take 20 s.
const SCAN_LIMIT: Duration = Duration::from_secs(45);
/// Samples per second of a recording that is made for the bundle.
const RECORDING_INTERVAL: &str = "0.2";
/// Longest profile, seconds: with 997 samples per second, some thousand of each lcore.
const PROFILE_SECONDS: u64 = 3;
/// Lost packets of each place that loses mbufs.
const LOST_PER_SITE: &str = "16";

/// What is the same for all commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandContext<'a> {
    pub(super) staging: &'a Path,
    /// The only app, as it was named.
    pub(super) app: Option<&'a str>,
    /// The configuration file, if one was named.
    pub(super) config: Option<&'a Path>,
    /// Leave out apps of other users.
    pub(super) no_other_users: bool,
    /// How long commands observe.
    pub(super) seconds: u64,
    /// Packets per app, and bytes of each.
    pub(super) packets: u64,
    pub(super) snaplen: u32,
    /// Do not attach to apps without libpmdscope.
    pub(super) no_pdump: bool,
    /// Do not read the memory of apps.
    pub(super) no_xray: bool,
}

impl CommandContext<'_> {
    fn command(&self, part: &'static str, args: &[&str]) -> PartCommand {
        let mut args: Vec<OsString> = args.iter().map(OsString::from).collect();
        if let Some(config) = self.config {
            args.extend([OsStr::new("--config").to_owned(), config.as_os_str().to_owned()]);
        }
        args.extend(self.no_other_users.then(|| "--no-other-users".into()));
        let (stdout, outputs) = (None, Vec::new());
        PartCommand { part, app: None, args, stdout, outputs, limit: USUAL_LIMIT }
    }

    /// The same for the app that was chosen, if one was.
    fn of_apps(&self, part: &'static str, args: &[&str]) -> PartCommand {
        let command = self.command(part, args);
        match self.app {
            Some(app) => command.with(["-a", app]),
            None => command,
        }
    }

    fn observing(&self, part: &'static str, args: &[&str]) -> PartCommand {
        self.lasting(self.seconds, part, args)
    }

    fn lasting(&self, seconds: u64, part: &'static str, args: &[&str]) -> PartCommand {
        let mut command = self.of_apps(part, args);
        command.limit = Duration::from_secs(seconds) + STARTUP_LIMIT;
        command.with(["--for", &seconds.to_string()])
    }

    /// The same where pools and rings are counted in the memory of apps unless told otherwise.
    fn counting(&self, command: PartCommand) -> PartCommand {
        if self.no_xray { command.with(["--no-xray"]) } else { command }
    }

    /// A recording of the time in which the bundle is collected.
    pub(super) fn recording(&self) -> PartCommand {
        let file = PathBuf::from("recording/bundle.jsonl.zst");
        let mut command = self.observing("recording", &["record", "-q", "-i", RECORDING_INTERVAL]);
        if !self.no_xray {
            command = command.with(["--xray"]);
        }
        let unfinished = PathBuf::from("recording/bundle.jsonl.zst.part");
        command.writing("-w", self.staging, file).and_output(unfinished)
    }

    /// What is observed in the same seconds.
    pub(super) fn observations(&self) -> Vec<PartCommand> {
        let findings = ["check", "--json"];
        let interrupts = ["interrupts", "--json"];
        vec![
            self.counting(self.observing("findings", &["check"]))
                .into_file("findings/findings.txt"),
            self.counting(self.observing("findings", &findings))
                .into_file("findings/findings.json"),
            self.observing("interrupts", &interrupts).into_file("interrupts/interrupts.json"),
        ]
    }

    /// Where poll threads spend their time. Not while others observe: each sample is an interrupt, which
    /// they would see.
    pub(super) fn profile(&self) -> PartCommand {
        let seconds = self.seconds.min(PROFILE_SECONDS);
        let command = self.lasting(seconds, "profile", &["lcores", "--profile", "--json"]);
        command.into_file("lcores/profile.json")
    }

    /// A capture of all ports of an app; `name` is its name in file names.
    pub(super) fn capture(&self, app: &str, name: &str) -> PartCommand {
        let (interface, count) = (format!("{app}:any"), self.packets.to_string());
        let (seconds, snaplen) = (self.seconds.to_string(), self.snaplen.to_string());
        let args =
            ["capture", "-i", &interface, "-c", &count, "-s", &snaplen, "--duration", &seconds];
        let mut command = self.command("capture", &args).with(["--exit-with-app"]);
        if self.no_pdump {
            command = command.with(["--no-pdump"]);
        }
        command.limit = Duration::from_secs(self.seconds) + STARTUP_LIMIT;
        let (file, part) =
            (format!("capture/{name}.pcapng"), format!("capture/{name}.pcapng.part"));
        command.of(app).writing("-w", self.staging, file.into()).and_output(part.into())
    }

    /// The lost packets of an app that knows them itself.
    pub(super) fn lost_packets(&self, app: &str, name: &str) -> PartCommand {
        let command = self.command("lost packets", &["leaks", "-a", app, "-N", LOST_PER_SITE]);
        command.of(app).writing("--write", self.staging, format!("leaks/{name}.pcapng").into())
    }

    /// Reports of leaks, and lost packets of `scanned` apps, each with its name in file names. They are made
    /// by one command, which scans the memory of an app once for all of them.
    pub(super) fn leaks(&self, scanned: &[(String, String)]) -> PartCommand {
        let dir = Path::new("leaks");
        let command = self.of_apps("leaks", &["leaks", "-N", LOST_PER_SITE]);
        let command = self.counting(command);
        let command = if self.no_xray { command.with(["--no-scan"]) } else { command };
        let mut command = command.with(["--save"]);
        command.limit = SCAN_LIMIT;
        command.args.push(self.staging.join(dir).into_os_string());
        command.outputs.extend(save::FILES.map(|file| dir.join(file)));
        for (app, name) in scanned {
            command = command.with(["--save-packets", app]);
            let file = dir.join(format!("{name}.pcapng"));
            command.args.push(self.staging.join(&file).into_os_string());
            command = command.and_output(file);
        }
        command
    }

    /// Reports of one moment, to be made one after the other.
    pub(super) fn reports(&self) -> Vec<PartCommand> {
        vec![
            self.command("apps", &["ls"]).into_file("apps/ls.txt"),
            self.command("apps", &["ls", "--json"]).into_file("apps/ls.json"),
            self.counting(self.of_apps("apps", &["top", "--once", "-i", "1"]))
                .into_file("apps/top.txt"),
            self.counting(self.of_apps("apps", &["top", "--json", "-n", "1", "-i", "1"]))
                .into_file("apps/top.json"),
            self.counting(self.of_apps("doctor", &["doctor"])).into_file("doctor/doctor.txt"),
            self.counting(self.of_apps("doctor", &["doctor", "--json"]))
                .into_file("doctor/doctor.json"),
            self.command("configuration", &["export", "--print-config"])
                .into_file("configuration/pmdscope.toml"),
        ]
    }

    /// Findings of a recording that was collected.
    pub(super) fn recorded_findings(&self) -> Vec<PartCommand> {
        let recording = self.staging.join("recording");
        let command = |args: &[&str]| {
            let mut command = self.of_apps("findings", args);
            command.args.extend(["-r".into(), recording.clone().into_os_string()]);
            command
        };
        vec![
            command(&["check"]).into_file("findings/recorded.txt"),
            command(&["check", "--json"]).into_file("findings/recorded.json"),
        ]
    }
}

impl PartCommand {
    fn with<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.args.extend(args.map(OsString::from));
        self
    }

    fn of(mut self, app: &str) -> Self {
        self.app = Some(app.to_owned());
        self
    }

    fn into_file(mut self, path: &str) -> Self {
        self.stdout = Some(path.into());
        self
    }

    fn writing(mut self, option: &str, staging: &Path, path: PathBuf) -> Self {
        self.args.extend([option.into(), staging.join(&path).into_os_string()]);
        self.and_output(path)
    }

    fn and_output(mut self, path: PathBuf) -> Self {
        self.outputs.push(path);
        self
    }
}

/// A name of a file for an app; `others` have theirs already.
pub(super) fn file_name(app: &str, others: &[String]) -> String {
    const LONGEST: usize = 64;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let plain: String =
        app.chars().take(LONGEST).map(|c| if is_plain(c) { c } else { '_' }).collect();
    let plain = plain.trim_start_matches('.').to_owned();
    let plain = if plain.is_empty() { "app".to_owned() } else { plain };
    let mut candidates = (2..).map(|number| format!("{plain}-{number}"));
    if others.contains(&plain) {
        return candidates.find(|name| !others.contains(name)).unwrap_or(plain);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_plain_and_different() {
        let mut names = Vec::new();
        for app in ["fwd", "../etc/x", "..", "a b", "a_b", "a b", ""] {
            let name = file_name(app, &names);
            names.push(name);
        }
        assert_eq!(names, ["fwd", "_etc_x", "app", "a_b", "a_b-2", "a_b-3", "app-2"]);
    }

    fn commands(no_xray: bool) -> Vec<PartCommand> {
        let context = CommandContext {
            staging: Path::new("/staging"),
            app: Some("fwd"),
            config: Some(Path::new("/etc/x.toml")),
            no_other_users: false,
            seconds: 10,
            packets: 1000,
            snaplen: 96,
            no_pdump: true,
            no_xray,
        };
        let mut commands = context.observations();
        commands.extend(context.reports());
        commands.extend(context.recorded_findings());
        commands.extend([
            context.recording(),
            context.profile(),
            context.capture("fwd", "fwd"),
            context.lost_packets("fwd", "fwd"),
            context.leaks(&[("fwd".into(), "fwd".into()), ("x y".into(), "x_y".into())]),
        ]);
        commands
    }

    #[test]
    fn every_command_is_one_that_this_program_takes() {
        for command in [commands(false), commands(true)].concat() {
            let args = std::iter::once("pmdscope".into()).chain(command.args.clone());
            let parsed = crate::try_parse(args.collect());
            assert!(parsed.is_ok(), "{:?}: {}", command.args, parsed.err().unwrap());
        }
    }

    #[test]
    fn memory_of_apps_is_read_unless_told_otherwise() {
        let given = |commands: &[PartCommand], option: &str| {
            let has = |command: &&PartCommand| command.args.iter().any(|arg| arg == option);
            commands.iter().filter(has).map(|command| command.part).collect::<Vec<_>>()
        };
        let (with, without) = (commands(false), commands(true));
        assert_eq!(given(&with, "--xray"), ["recording"]);
        assert_eq!((given(&with, "--no-xray"), given(&with, "--no-scan")), (vec![], vec![]));
        assert_eq!(
            (given(&without, "--xray"), given(&without, "--no-scan")),
            (vec![], vec!["leaks"])
        );
        let parts = ["findings", "findings", "apps", "apps", "doctor", "doctor", "leaks"];
        assert_eq!(given(&without, "--no-xray"), parts);
    }
}

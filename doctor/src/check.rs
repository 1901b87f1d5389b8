//! Checks, and their results.

use serde::Serialize;

use crate::app::AppFacts;
use crate::baseline::Baseline;
use crate::cpu_set::CpuSet;
use crate::facts::{Distribution, HostFacts};
use crate::tree::{Fact, Unknown};

/// Result of a check, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// The check found no problem.
    Pass,
    /// The check could not be made.
    Skip,
    /// A problem that costs packets at high rates or in rare cases.
    Warn,
    /// A problem that prevents an app from working, or costs packets now.
    Fail,
}

/// Group of checks in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CheckGroup {
    /// Changes since the last good run.
    Changes,
    /// Running apps.
    Apps,
    /// NICs and their drivers.
    Nics,
    /// Hugepages and memory limits.
    Memory,
    /// Isolation of poll CPUs from interrupts and other tasks.
    Isolation,
    /// Power management and topology of CPUs.
    Cpus,
}

impl CheckGroup {
    /// Returns the heading of the group.
    pub fn title(self) -> &'static str {
        match self {
            Self::Changes => "Changes since the last good run",
            Self::Apps => "Apps",
            Self::Nics => "NICs",
            Self::Memory => "Memory",
            Self::Isolation => "Isolation of poll CPUs",
            Self::Cpus => "CPUs",
        }
    }
}

/// How to fix a problem. The commands are for a POSIX shell, run as root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fix {
    /// Commands that take effect immediately. If `persistent` is not empty, the effect is lost at a reboot.
    pub now: Vec<String>,
    /// Commands with an effect that persists across reboots.
    pub persistent: Vec<String>,
    /// Kernel command line arguments that `persistent` sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_arguments: Vec<String>,
    /// What to do in addition to the commands, or if there is no command.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

impl Fix {
    /// Returns a fix with a command that takes effect immediately.
    pub(crate) fn now(command: impl Into<String>) -> Self {
        Self { now: vec![command.into()], ..Self::default() }
    }

    /// Returns a fix with a command that persists after a reboot.
    pub(crate) fn persistent(command: impl Into<String>) -> Self {
        Self { persistent: vec![command.into()], ..Self::default() }
    }

    /// Returns a fix without a command: advice in words.
    pub(crate) fn advice(text: impl Into<String>) -> Self {
        Self { advice: text.into(), ..Self::default() }
    }

    pub(crate) fn and_now(mut self, command: impl Into<String>) -> Self {
        self.now.push(command.into());
        self
    }

    pub(crate) fn and_persistent(mut self, command: impl Into<String>) -> Self {
        self.persistent.push(command.into());
        self
    }

    pub(crate) fn and_advice(mut self, text: impl Into<String>) -> Self {
        self.advice = text.into();
        self
    }
}

/// The result of a check for one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) status: CheckStatus,
    pub(crate) found: String,
    pub(crate) fix: Fix,
}

pub(crate) fn pass(found: impl Into<String>) -> Verdict {
    Verdict { status: CheckStatus::Pass, found: found.into(), fix: Fix::default() }
}

pub(crate) fn warn(found: impl Into<String>, fix: Fix) -> Verdict {
    Verdict { status: CheckStatus::Warn, found: found.into(), fix }
}

pub(crate) fn fail(found: impl Into<String>, fix: Fix) -> Verdict {
    Verdict { status: CheckStatus::Fail, found: found.into(), fix }
}

pub(crate) fn skip(why: impl Into<String>) -> Verdict {
    Verdict { status: CheckStatus::Skip, found: why.into(), fix: Fix::default() }
}

/// One check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    /// Its name in JSON and documentation.
    pub(crate) id: &'static str,
    pub(crate) group: CheckGroup,
    pub(crate) title: &'static str,
    /// Why it matters, in one sentence.
    pub(crate) matters: &'static str,
    /// The check itself; returns a result for each of its subjects.
    pub(crate) run: fn(&Evidence) -> Fact<Vec<Verdict>>,
}

/// The input of the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) host: &'a HostFacts,
    /// `None` where the apps were not queried.
    pub(crate) apps: Option<&'a [AppFacts]>,
    pub(crate) baseline: Option<&'a Baseline>,
}

impl<'a> Evidence<'a> {
    /// Returns the apps.
    pub(crate) fn apps(&self) -> Fact<&'a [AppFacts]> {
        self.apps.ok_or_else(|| Unknown("this tree has no data of apps".into()))
    }

    /// Returns the apps that run and answer.
    pub(crate) fn running(&self) -> Fact<Vec<&'a AppFacts>> {
        let apps = self.apps()?;
        let running: Vec<_> = apps.iter().filter(|app| app.sample.is_some()).collect();
        let silent = apps.iter().filter(|app| app.unreachable.is_some());
        let silent: Vec<_> = silent.map(AppFacts::label).collect();
        match (running.is_empty(), silent.is_empty()) {
            (false, _) => Ok(running),
            (true, true) => Err(Unknown("no app runs".into())),
            (true, false) => Err(Unknown(format!("no app answers: {}", silent.join(", ")))),
        }
    }

    /// Returns the CPUs on which apps poll, or will poll.
    pub(crate) fn poll_cpus(&self) -> Fact<&'a CpuSet> {
        self.host.poll_cpus.as_ref().map_err(Clone::clone)
    }

    /// Returns the CPUs for everything else; empty where apps poll on all.
    pub(crate) fn other_cpus(&self) -> CpuSet {
        let poll = self.host.poll_cpus.clone().unwrap_or_default();
        self.host.cpus.online.clone().unwrap_or_default().without(&poll)
    }

    /// Returns a fix that adds arguments to the kernel command line permanently.
    pub(crate) fn kernel_arguments(&self, arguments: &[String]) -> Fix {
        Fix {
            kernel_arguments: arguments.to_vec(),
            persistent: vec![kernel_arguments_command(self.host.kernel.distribution, arguments)],
            ..Fix::default()
        }
    }
}

/// Returns the command that adds arguments to the kernel command line.
pub(crate) fn kernel_arguments_command(distribution: Distribution, arguments: &[String]) -> String {
    let words = arguments.join(" ");
    match distribution {
        Distribution::Debian => format!(
            "mkdir -p /etc/default/grub.d && \
             echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {words}\"' >> /etc/default/grub.d/pmdscope.cfg && \
             update-grub"
        ),
        Distribution::RedHat => format!("grubby --update-kernel=ALL --args='{words}'"),
        Distribution::Suse => format!(
            "sed -i 's/^GRUB_CMDLINE_LINUX_DEFAULT=\"/&{words} /' /etc/default/grub && \
             grub2-mkconfig -o /boot/grub2/grub.cfg"
        ),
        Distribution::Other => format!("echo 'add to the kernel command line: {words}'"),
    }
}

/// Returns a word of a shell command, quoted if necessary.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

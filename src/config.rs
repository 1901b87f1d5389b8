//! The configuration file: where it is, how it is read and printed, and its errors.

mod catalogue;
mod error;
mod key;
mod kind;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pmdscope_export::ExportOptions;
use pmdscope_telemetry::{AppNames, FleetSettings};
use toml::de::DeTable;

pub(crate) use self::error::ConfigError;
use self::error::{Problem, Source, meant, not_text};
use crate::top::settings::TopSettings;

/// The file that is read without being asked for, where it exists.
const DEFAULT: &str = "/etc/pmdscope/pmdscope.toml";

/// Names the file for all commands.
const VARIABLE: &str = "PMDSCOPE_CONFIG";

/// Stands for no file.
const NONE: &str = "none";

/// All that can be configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// Which apps there are, and how they are judged.
    pub(crate) settings: FleetSettings,
    /// What [`FleetSettings::names`] was made of.
    names: Vec<NameRule>,
    /// What the exporter serves.
    pub(crate) export: ExportOptions,
    /// The exporter traces what takes the CPU from lcores.
    pub(crate) export_interrupts: bool,
    /// The exporter counts mempools and rings in the memory of apps.
    pub(crate) export_xray: bool,
    /// How `pmdscope top` starts, and its keys.
    pub(crate) top: TopSettings,
}

/// What apps with such a file-prefix are called.
#[derive(Clone, Debug, Default)]
struct NameRule {
    pattern: String,
    app: String,
}

/// Which configuration file to use.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ConfigArg {
    /// Configuration file, or 'none' for the defaults
    ///
    /// Default: `$PMDSCOPE_CONFIG` if it is set, else /etc/pmdscope/pmdscope.toml if it exists.
    #[arg(id = "config", long = "config", value_name = "FILE", hide_short_help = true,
          value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// Leave out apps of users other than root and yourself
    #[arg(long, hide_short_help = true)]
    no_other_users: bool,
}

impl ConfigArg {
    /// The file that was named on the command line.
    pub(crate) fn named_file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether apps of other users were left out on the command line.
    pub(crate) fn leaves_out_others(&self) -> bool {
        self.no_other_users
    }

    /// The configuration, or the defaults when there is no file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or anything in it is wrong.
    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        let mut config = match choose(self.file.as_deref(), std::env::var_os(VARIABLE)) {
            Some((path, required)) => load(&path, required)?,
            None => Config::default(),
        };
        config.settings.discover.other_users &= !self.no_other_users;
        Ok(config)
    }
}

/// The file to use, and whether it must exist.
fn choose(given: Option<&Path>, variable: Option<OsString>) -> Option<(PathBuf, bool)> {
    match given.map(PathBuf::from).or_else(|| variable.map(PathBuf::from)) {
        Some(path) if path.as_os_str().is_empty() || path == Path::new(NONE) => None,
        Some(path) => Some((path, true)),
        None => Some((DEFAULT.into(), false)),
    }
}

fn load(path: &Path, required: bool) -> Result<Config, ConfigError> {
    let path = path.to_owned();
    match fs::read(&path) {
        Ok(bytes) => parse(&bytes).map_err(|problems| ConfigError::Wrong { path, problems }),
        Err(error) if !required && error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
        Err(why) => Err(ConfigError::Unreadable { path, why }),
    }
}

/// Reads a configuration; with everything that is wrong with it, or nothing.
fn parse(bytes: &[u8]) -> Result<Config, Vec<Problem>> {
    let text = str::from_utf8(bytes).map_err(|e| vec![not_text(bytes, e.valid_up_to())])?;
    let mut source = Source::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        source.blame(&error.span().unwrap_or_default(), error.message().to_owned());
    }
    let mut config = Config::default();
    // Errors that follow from a typing mistake would only hide it.
    if errors.is_empty() {
        read(&mut source, document.get_ref(), &mut config);
    }
    let rules = config.names.iter().map(|rule| (rule.pattern.clone(), rule.app.clone()));
    match AppNames::new(rules.collect()) {
        Ok(names) => config.settings.names = names,
        Err(error) => source.blame(&(0..0), error.to_string()),
    }
    let problems = source.problems();
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn read(source: &mut Source<'_>, document: &DeTable<'_>, into: &mut Config) {
    let parts = catalogue::parts();
    let outer = || parts.iter().filter(|part| !part.name().contains('.'));
    for (name, value) in document {
        if let Some(part) = outer().find(|part| *part.name() == **name.get_ref()) {
            part.read(source, value, into);
        } else {
            let meant = meant(name.get_ref(), outer().map(|part| part.name()));
            source.blame(&name.span(), format!("there is no table [{}]; {meant}", name.get_ref()));
        }
    }
    for part in &parts {
        let Some((outer, inner)) = part.name().split_once('.') else { continue };
        let table = document.get(outer).and_then(|value| value.get_ref().as_table());
        if let Some(value) = table.and_then(|table| table.get(inner)) {
            part.read(source, value, into);
        }
    }
}

impl Config {
    /// The values in force, as a file that gives the same configuration again.
    pub(crate) fn text(&self) -> String {
        let mut out = format!(
            "# Effective configuration of pmdscope {}. Omitted keys have their defaults.\n",
            env!("CARGO_PKG_VERSION")
        );
        let mut config = self.clone();
        for part in catalogue::parts() {
            part.print(&mut out, &mut config);
        }
        out
    }
}

#[cfg(test)]
mod tests;

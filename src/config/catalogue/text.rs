//! Values that are text: names, files, addresses, patterns.

use std::path::{Path, PathBuf};

use pmdscope_export::address::ListenAddress;
use pmdscope_render::Palette;
use pmdscope_telemetry::discover::DiscoverOptions;
use pmdscope_telemetry::finding::Lint;
use regex::{Regex, RegexSet};
use toml::Value;
use toml::de::DeValue;

use super::default_roots;
use crate::config::error::meant;
use crate::config::kind::{Flag, InvalidValue, Kind, List, Text};

/// An absolute path: a service has no useful working directory.
pub(super) fn file() -> Text<PathBuf> {
    Text { what: "an absolute path", parse: absolute, show: shown }
}

/// Paths of the command line may be relative.
fn shown(path: &PathBuf) -> String {
    std::path::absolute(path).as_ref().unwrap_or(path).display().to_string()
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if path.is_absolute() && !text.contains('\0') { Ok(path.into()) } else { Err(String::new()) }
}

pub(super) fn address() -> Text<ListenAddress> {
    Text {
        what: "HOST:PORT, [IPV6]:PORT, :PORT, unix:/PATH or systemd",
        parse: |text| text.parse().map_err(|_| String::new()),
        show: ListenAddress::to_string,
    }
}

/// The name of a theme.
pub(super) fn theme() -> Text<Palette> {
    Text {
        what: "ansi, truecolor, truecolor-light, colorblind or mono",
        parse: |name| Palette::named(name).ok_or_else(String::new),
        show: Palette::to_string,
    }
}

/// The name of a lint.
pub(super) fn lint() -> Text<Lint> {
    Text { what: "the name of a finding", parse: known_lint, show: Lint::to_string }
}

fn known_lint(text: &str) -> Result<Lint, String> {
    let known = || Lint::ALL.iter().map(|lint| lint.name());
    text.parse().map_err(|_| format!("there is no such finding; {}", meant(text, known())))
}

pub(super) fn url() -> Text<String> {
    Text { what: "a URL with http:// or https://", parse: http, show: String::clone }
}

fn http(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    let odd = text.chars().any(|c| c.is_whitespace() || c.is_control());
    if host && !odd { Ok(text.to_owned()) } else { Err(String::new()) }
}

/// The name of an app: a label, and a line on the terminal.
pub(super) fn name() -> Text<String> {
    Text { what: "a name without spaces", parse: word, show: String::clone }
}

pub(super) fn word(text: &str) -> Result<String, String> {
    let odd = text.chars().any(|c| c.is_whitespace() || c.is_control());
    if text.is_empty() || odd { Err(String::new()) } else { Ok(text.to_owned()) }
}

/// Directories to look into; an empty list stands for those that DPDK may choose, which depend on
/// the environment of the user who runs the program.
pub(super) struct Roots;

impl Kind for Roots {
    type Value = Vec<PathBuf>;

    fn description(&self) -> String {
        List(file()).description()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Vec<PathBuf>, InvalidValue> {
        let roots = List(file()).read(value)?;
        Ok(if roots.is_empty() { default_roots() } else { roots })
    }

    fn write(&self, value: &Vec<PathBuf>) -> Option<Value> {
        let roots = if *value == default_roots() { &Vec::new() } else { value };
        List(file()).write(roots)
    }
}

/// Whether other mount namespaces are searched.
pub(super) struct Containers;

impl Kind for Containers {
    type Value = Option<PathBuf>;

    fn description(&self) -> String {
        Flag.description()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Option<PathBuf>, InvalidValue> {
        let searched = Flag.read(value)?;
        Ok(DiscoverOptions::default().proc.filter(|_| searched))
    }

    fn write(&self, value: &Option<PathBuf>) -> Option<Value> {
        Flag.write(&value.is_some())
    }
}

/// Regular expressions, of which one must match.
pub(super) struct Patterns;

impl Kind for Patterns {
    type Value = RegexSet;

    fn description(&self) -> String {
        List(pattern()).description()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<RegexSet, InvalidValue> {
        let patterns = List(pattern()).read(value)?;
        RegexSet::new(patterns).map_err(|error| InvalidValue { span: None, why: error.to_string() })
    }

    fn write(&self, value: &RegexSet) -> Option<Value> {
        List(pattern()).write(&value.patterns().to_vec())
    }
}

fn pattern() -> Text<String> {
    Text { what: "a regular expression", parse: compiled, show: String::clone }
}

fn compiled(text: &str) -> Result<String, String> {
    Regex::new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

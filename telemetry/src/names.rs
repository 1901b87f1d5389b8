//! Names of apps: a file-prefix often contains a pid, which would be a new name at every start.

use std::ffi::OsStr;
use std::path::Path;

use regex::Regex;

use crate::discover::DiscoveredApp;
use crate::host::foreign::root_pid;

/// Rules that map file-prefixes to permanent names; without rules, the name of an app is its prefix.
#[derive(Clone, Debug, Default)]
pub struct AppNames {
    rules: Vec<(Regex, String)>,
}

/// An invalid rule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppNamesError {
    /// The pattern is an invalid regular expression.
    #[error("invalid regular expression {pattern:?}: {source}")]
    Pattern {
        /// The pattern as given.
        pattern: String,
        /// The error of the pattern.
        source: regex::Error,
    },
    /// The name refers to a group that the pattern does not have.
    #[error("the name {name:?} refers to ${group}, but {pattern:?} has no such group")]
    Group {
        /// The pattern as given.
        pattern: String,
        /// The name as given.
        name: String,
        /// Number or name of the group.
        group: String,
    },
    /// Every app would have an empty name.
    #[error("the name for {pattern:?} is empty")]
    Empty {
        /// The pattern as given.
        pattern: String,
    },
}

impl AppNames {
    /// Parses rules. Each has a pattern, which must match a whole file-prefix, and a name, in which
    /// `$1` or `${name}` is replaced by the match of a group. The first rule that matches applies.
    ///
    /// # Errors
    /// When a pattern is an invalid regular expression, or a name is empty or refers to a group that
    /// does not exist.
    pub fn new(rules: Vec<(String, String)>) -> Result<Self, AppNamesError> {
        let rules = rules.into_iter().map(|(pattern, name)| rule(&pattern, name));
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    /// Returns the apps with their names. Apps that a rule would give the same name keep their
    /// file-prefixes; apps with the same file-prefix get the name of their container too, and others
    /// are named by their directories, or by their sockets if there are several in a directory. An app
    /// in this mount namespace keeps its name beside one of another mount namespace. Apps of other
    /// users have the name of the user in front, so that they never have that of another app.
    pub fn give(&self, apps: &[DiscoveredApp]) -> Vec<DiscoveredApp> {
        let distinct = |names: &[String], other: &dyn Fn(usize) -> String| {
            let keeps = |at: usize| root_pid(&apps[at].dir).is_none();
            distinct(names, keeps, other)
        };
        let mapped = distinct(&self.map(apps), &|at| apps[at].name.clone());
        let dir = |at: usize| apps[at].dir.display().to_string();
        let names =
            distinct(&mapped, &|at| apps[at].name_in_container().unwrap_or_else(|| dir(at)));
        let names = distinct(&names, &|at| apps[at].socket.display().to_string());
        apps.iter().zip(names).map(|(app, name)| DiscoveredApp { name, ..app.clone() }).collect()
    }

    /// Returns the name of an app with this file-prefix or directory, if no other app gets the same name.
    pub(crate) fn of(&self, name: &str) -> String {
        let prefix = Path::new(name).file_name().and_then(OsStr::to_str);
        self.name(prefix.unwrap_or(name))
    }

    fn map(&self, apps: &[DiscoveredApp]) -> Vec<String> {
        let name = |app: &DiscoveredApp| {
            let user = app.user.as_deref().unwrap_or_default();
            let own = app.name.strip_prefix(user).and_then(|name| name.strip_prefix('/'));
            app.qualified(self.name(own.filter(|_| app.user.is_some()).unwrap_or(&app.name)))
        };
        apps.iter().map(name).collect()
    }

    /// Returns the name for a file-prefix; the `:N` of a further in-memory instance is kept.
    fn name(&self, prefix: &str) -> String {
        let instance = |(_, number): &(&str, &str)| number.parse::<u32>().is_ok();
        let base = prefix.rsplit_once(':').filter(instance).map_or(prefix, |(base, _)| base);
        let matching = self.rules.iter().find_map(|(pattern, name)| {
            let groups = pattern.captures(base)?;
            let mut expanded = String::new();
            groups.expand(name, &mut expanded);
            Some(expanded).filter(|name| !name.is_empty())
        });
        let suffix = prefix.get(base.len()..).unwrap_or_default();
        matching.map_or_else(|| prefix.to_owned(), |name| name + suffix)
    }
}

fn rule(pattern: &str, name: String) -> Result<(Regex, String), AppNamesError> {
    let broken = |source| AppNamesError::Pattern { pattern: pattern.to_owned(), source };
    // Compiled alone first: the error should show the pattern as given.
    Regex::new(pattern).map_err(broken)?;
    let whole = Regex::new(&format!("^(?:{pattern})$")).map_err(broken)?;
    if name.is_empty() {
        return Err(AppNamesError::Empty { pattern: pattern.to_owned() });
    }
    if let Some(group) = groups(&name).into_iter().find(|group| !has_group(&whole, group)) {
        return Err(AppNamesError::Group { pattern: pattern.to_owned(), name, group });
    }
    Ok((whole, name))
}

/// Returns the groups that a name refers to, as [`regex::Captures::expand`] parses them.
fn groups(name: &str) -> Vec<String> {
    let mut groups = Vec::new();
    let plain = name.replace("$$", "");
    for part in plain.split('$').skip(1) {
        let group: String = match part.strip_prefix('{') {
            Some(braced) => braced.chars().take_while(|c| *c != '}').collect(),
            None => part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect(),
        };
        groups.extend(Some(group).filter(|group| !group.is_empty()));
    }
    groups
}

fn has_group(pattern: &Regex, group: &str) -> bool {
    match group.parse::<usize>() {
        Ok(number) => number < pattern.captures_len(),
        Err(_) => pattern.capture_names().flatten().any(|name| name == group),
    }
}

/// Returns the names, with each one that is not unique replaced by `other` of its index. The only one
/// of its name that `keeps` it is not replaced.
fn distinct(
    names: &[String],
    keeps: impl Fn(usize) -> bool,
    other: impl Fn(usize) -> String,
) -> Vec<String> {
    let count = |name: &String, which: &dyn Fn(usize) -> bool| {
        names.iter().enumerate().filter(|(at, other)| *other == name && which(*at)).count()
    };
    let name = |(at, name): (usize, &String)| {
        let is_only = count(name, &|_| true) == 1 || (keeps(at) && count(name, &keeps) == 1);
        if is_only { name.clone() } else { other(at) }
    };
    names.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::discover::Reachability;
    use crate::host::Container;

    fn app(name: &str, dir: &str) -> DiscoveredApp {
        let instance = name.find(':').map_or("", |at| &name[at..]);
        let socket = format!("dpdk_telemetry.v2{instance}");
        DiscoveredApp::in_dir(dir, name, &socket, Reachability::Live)
    }

    fn apps(names: &[&str]) -> Vec<DiscoveredApp> {
        names.iter().map(|name| app(name, &format!("/run/dpdk/{name}"))).collect()
    }

    fn rules(rules: &[(&str, &str)]) -> Result<AppNames, AppNamesError> {
        AppNames::new(rules.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect())
    }

    fn given(names: &AppNames, apps: &[DiscoveredApp]) -> Vec<String> {
        names.give(apps).into_iter().map(|app| app.name).collect()
    }

    #[test]
    fn without_rules_apps_are_called_by_their_prefixes() {
        let names = AppNames::default();
        assert_eq!(given(&names, &apps(&["a", "b:1"])), ["a", "b:1"]);
        let twice = [app("a", "/run/dpdk/a"), app("a", "/tmp/dpdk/a"), app("b", "/tmp/dpdk/b")];
        assert_eq!(given(&names, &twice), ["/run/dpdk/a", "/tmp/dpdk/a", "b"]);
    }

    #[test]
    fn apps_of_one_prefix_are_told_apart_by_their_containers() {
        let contained = |name: &str, pid: u32, id: &str| {
            let container = Container { id: id.repeat(16), pod: None };
            let dir = format!("/proc/{pid}/root/run/dpdk/rte");
            DiscoveredApp { container: Some(container), ..app(name, &dir) }
        };
        let all = [
            app("rte", "/run/dpdk/rte"),
            contained("rte", 7, "4f1c"),
            contained("rte", 8, "9a2b"),
            contained("rte:1", 8, "9a2b"),
        ];
        let names = AppNames::default();
        assert_eq!(given(&names, &all), ["rte", "rte@4f1c4f1c4f1c", "rte@9a2b9a2b9a2b", "rte:1"]);
        assert_eq!(given(&names, &all[2..]), ["rte", "rte:1"]);
        let ask = |name: &str| crate::discover::named(name, &names.give(&all)).len();
        assert_eq!(ask("rte@4f1c4f1c4f1c"), 1);
        assert_eq!(ask("rte@9a2"), 1, "cut short");
        assert_eq!([ask("rte@"), ask("rt@9a2"), ask("rte@a2b")], [0; 3]);
        assert_eq!(ask("rte"), 1, "the one of the host");
        assert_eq!(ask("/proc/8/root/run/dpdk/rte"), 1, "the first instance");
        assert_eq!(crate::discover::named("rte", &names.give(&all[1..])).len(), 2);
    }

    #[test]
    fn no_other_user_takes_a_name_away() {
        let of = |user: &str, name: &str, dir: &str| DiscoveredApp {
            user: Some(user.into()),
            ..app(&format!("{user}/{name}"), dir)
        };
        let all = [
            app("fwd-1", "/run/dpdk/fwd-1"),
            of("eve", "fwd-1", "/tmp/dpdk/fwd-1"),
            of("eve", "fwd-2", "/tmp/dpdk/fwd-2"),
            of("bob", "fwd-1", "/run/user/7/dpdk/fwd-1"),
        ];
        let names = rules(&[(r"fwd-\d+", "fwd")]).unwrap();
        assert_eq!(given(&names, &all), ["fwd", "eve/fwd-1", "eve/fwd-2", "bob/fwd"]);
        assert_eq!(given(&AppNames::default(), &all)[0], "fwd-1");
    }

    #[test]
    fn instances_of_two_users_are_called_by_their_sockets() {
        let users = ["/run/dpdk/a", "/tmp/dpdk/a"];
        let both = users.map(|dir| [app("a", dir), app("a:1", dir)]).concat();
        let sockets: Vec<_> = both.iter().map(|app| app.socket.display().to_string()).collect();
        assert_eq!(given(&AppNames::default(), &both), sockets);
    }

    #[test]
    fn the_first_rule_that_matches_the_whole_prefix_counts() {
        let names =
            rules(&[(r"fwd-(\d+)|x", "fwd"), ("(?<kind>[a-z]+)-.*", "${kind}_$1"), ("..", "no")]);
        let names = names.unwrap();
        assert_eq!(
            given(&names, &apps(&["fwd-17", "gen-9", "afwd-1", "xy:2", "three"])),
            ["fwd", "gen_gen", "afwd_afwd", "no:2", "three"]
        );
    }

    #[test]
    fn two_apps_that_would_share_a_name_keep_their_prefixes() {
        let names = rules(&[(r"fwd-\d+", "fwd")]).unwrap();
        let both = apps(&["fwd-1", "fwd-2", "gen"]);
        assert_eq!(given(&names, &both), ["fwd-1", "fwd-2", "gen"]);
        let with_plain = apps(&["fwd", "fwd-2"]);
        assert_eq!(given(&names, &with_plain), ["fwd", "fwd-2"]);
    }

    #[test]
    fn instances_of_one_prefix_keep_their_numbers() {
        let names = rules(&[(r"fwd-\d+", "fwd")]).unwrap();
        let instances = apps(&["fwd-7", "fwd-7:1"]);
        assert_eq!(given(&names, &instances), ["fwd", "fwd:1"]);
    }

    #[test]
    fn bad_rules_say_what_is_wrong() {
        let error = rules(&[("fwd-(", "fwd")]).unwrap_err().to_string();
        assert!(error.starts_with("invalid regular expression \"fwd-(\""), "{error}");
        let error = rules(&[("fwd-(.)", "fwd$2")]).unwrap_err().to_string();
        assert_eq!(error, "the name \"fwd$2\" refers to $2, but \"fwd-(.)\" has no such group");
        assert!(rules(&[("fwd-(.)", "$1x")]).is_err(), "$1x is the group named 1x");
        assert!(rules(&[("fwd-(.)", "${1}x$$5")]).is_ok());
        assert!(rules(&[("fwd", "")]).is_err());
    }

    proptest! {
        #[test]
        fn names_are_always_distinct(
            prefixes in prop::collection::btree_set(("(/run|/tmp)/dpdk", "[ab]-[0-3]", "(:1)?"), 0..9)
        ) {
            let app = |(root, prefix, instance): &(String, String, String)| {
                app(&format!("{prefix}{instance}"), &format!("{root}/{prefix}"))
            };
            let apps: Vec<_> = prefixes.iter().map(app).collect();
            let mut names = given(&rules(&[("(.)-.", "$1"), (".*", "z")]).unwrap(), &apps);
            names.sort();
            let all = names.len();
            names.dedup();
            prop_assert_eq!(names.len(), all);
        }

        #[test]
        fn any_rule_is_followed_or_refused(pattern: String, name: String, prefix: String) {
            if let Ok(names) = AppNames::new(vec![(pattern, name)]) {
                prop_assert!(prefix.is_empty() || !names.name(&prefix).is_empty());
            }
        }
    }
}

//! Every key of the configuration file.

mod expected;
mod export;
mod names;
mod text;
mod thresholds;
mod top;
mod top_columns;
mod top_keys;

use std::time::Duration;

use pmdscope_telemetry::discover::DiscoverOptions;

use super::Config;
use super::key::{ConfigKey, ConfigPart, ConfigTable};
use super::kind::{Count, Flag, Time};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// All tables, in the order in which they are printed.
pub(super) fn parts() -> Vec<Box<dyn ConfigPart>> {
    vec![
        Box::new(discovery()),
        Box::new(names::tables()),
        Box::new(expected::tables()),
        Box::new(thresholds::table()),
        Box::new(export::table()),
        Box::new(top::table()),
        Box::new(top_keys::TopKeys),
        Box::new(top_columns::TopColumns),
    ]
}

fn discovery() -> ConfigTable {
    let keys = vec![
        ConfigKey::new(
            "roots",
            text::Roots,
            |c: &mut Config| &mut c.settings.discover.roots,
            r#"["/var/run"]"#,
            "Directories to search for dpdk/PREFIX; empty: all that DPDK may select",
        ),
        ConfigKey::new(
            "containers",
            text::Containers,
            |c| &mut c.settings.discover.proc,
            "false",
            "Search the mount namespaces of all processes too, such as those of containers",
        ),
        ConfigKey::new(
            "timeout",
            Time(10 * MILLISECOND, 10 * SECOND),
            |c| &mut c.settings.discover.timeout,
            r#""300ms""#,
            "Timeout for the identification of all apps; commands that look once wait at least 1s",
        ),
        ConfigKey::new(
            "other_users",
            Flag,
            |c| &mut c.settings.discover.other_users,
            "false",
            "Find apps of users other than root and the one who runs the tool, as USER/APP",
        ),
        ConfigKey::new(
            "per_user",
            Count(1, 4096),
            |c| &mut c.settings.discover.per_user,
            "64",
            "Most apps of each other user; of all other users, four times as many",
        ),
        ConfigKey::new(
            "keep_lost",
            Time(Duration::ZERO, 365 * DAY),
            |c| &mut c.settings.keep_lost,
            r#""1h""#,
            "How long an app that has exited is shown as down; expected apps always are",
        ),
    ];
    ConfigTable { name: "discovery", keys, tables: &[], check: |_| Ok(()) }
}

/// The directories of [`DiscoverOptions::default`] depend on the environment.
fn default_roots() -> Vec<std::path::PathBuf> {
    DiscoverOptions::default().roots
}

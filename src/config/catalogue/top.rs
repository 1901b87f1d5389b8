//! `[top]`: how `pmdscope top` starts.

use std::time::Duration;

use super::{MILLISECOND, text};
use crate::config::Config;
use crate::config::key::{ConfigKey, ConfigTable};
use crate::config::kind::{Flag, Omittable, Text, Time};
use crate::top::settings::{filter, page};

pub(super) fn table() -> ConfigTable {
    let keys = vec![
        ConfigKey::new(
            "interval",
            Time(100 * MILLISECOND, Duration::from_secs(60)),
            |c: &mut Config| &mut c.top.interval,
            r#""1s""#,
            "Sampling interval; a single report samples for 0.2 s",
        ),
        ConfigKey::new(
            "page",
            Text { what: "the name of a page, in lowercase", parse: page, show: |tab| tab.name() },
            |c| &mut c.top.page,
            r#""ports""#,
            "Page that is shown first",
        ),
        ConfigKey::new(
            "filter",
            Text { what: "text, as typed after /", parse: filter, show: String::clone },
            |c| &mut c.top.filter,
            r#""app:fwd""#,
            "Filter at first, and after a reset",
        ),
        ConfigKey::new(
            "theme",
            text::theme(),
            |c| &mut c.top.theme,
            r#""colorblind""#,
            "Colors; --theme and the environment variable NO_COLOR take precedence",
        ),
        ConfigKey::new(
            "ascii",
            Omittable(Flag),
            |c| &mut c.top.ascii,
            "true",
            "ASCII characters only; not set: by locale",
        ),
        ConfigKey::new(
            "mouse",
            Flag,
            |c| &mut c.top.mouse,
            "false",
            "Capture the mouse, so that clicks and the wheel work",
        ),
        ConfigKey::new(
            "read_only",
            Flag,
            |c| &mut c.top.read_only,
            "true",
            "Disable keys that capture, write, arm or attach",
        ),
    ];
    ConfigTable { name: "top", keys, tables: &["keys", "columns"], check: |_| Ok(()) }
}

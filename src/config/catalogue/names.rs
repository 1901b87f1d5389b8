//! `[[name]]`: names of apps.

use pmdscope_telemetry::AppNames;

use super::text;
use crate::config::NameRule;
use crate::config::key::{ConfigKey, ConfigTables};
use crate::config::kind::Text;

pub(super) fn tables() -> ConfigTables<NameRule> {
    let keys = vec![
        ConfigKey::new(
            "match",
            Text { what: "a regular expression", parse: text::word, show: String::clone },
            |rule: &mut NameRule| &mut rule.pattern,
            r"'fwd-\d+'",
            "Pattern for the whole file-prefix of an app",
        )
        .required(),
        ConfigKey::new(
            "app",
            text::name(),
            |rule: &mut NameRule| &mut rule.app,
            r#""fwd""#,
            "Name of such an app; $1 or ${name} is the text that a group matched",
        )
        .required(),
    ];
    ConfigTables {
        name: "name",
        means: "Name for apps whose file-prefix changes at every start; the first match applies",
        keys,
        of: |c| &mut c.names,
        check,
    }
}

fn check(rule: &NameRule, above: &[NameRule]) -> Result<(), String> {
    if above.iter().any(|other| other.pattern == rule.pattern) {
        return Err(format!("{:?} is named already, further up", rule.pattern));
    }
    let rule = (rule.pattern.clone(), rule.app.clone());
    AppNames::new(vec![rule]).map(drop).map_err(|error| error.to_string())
}

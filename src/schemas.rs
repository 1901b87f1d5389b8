//! `docs/schema` has the JSON Schema of every document that `--json` prints, made from its type.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::CommandFactory;
use pmdscope_bypass::{BypassDownResult, BypassStatus};
use pmdscope_tui::report::TopDocument;
use regex::Regex;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use crate::{Cli, bypass, capture, check, interrupts, lcores, leaks, ls, netstat, xdp};

/// By the name of the file; the options without which the document is another one.
fn schemas() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        (
            "bypass-down",
            schema::<bypass::document::Bypasses<BypassDownResult>>("bypass down --json"),
        ),
        (
            "bypass-status",
            schema::<bypass::document::Bypasses<BypassStatus>>("bypass status --json"),
        ),
        ("bypass-up", schema::<bypass::document::Prepared>("bypass up --json")),
        ("capture-interfaces", schema::<capture::list::Document>("capture -D --json")),
        ("capture-statistics", schema::<capture::statistics::Document>("capture -w FILE --json")),
        ("check", schema::<check::result::CheckDocument>("check --json")),
        ("doctor", schema::<pmdscope_doctor::Report>("doctor --json")),
        ("interrupts", schema::<interrupts::report::Document>("interrupts --json")),
        ("interrupts-events", schema::<interrupts::report::EventDocument>("interrupts --events")),
        ("lcores", schema::<lcores::table::Document>("lcores --json")),
        ("lcores-profile", schema::<lcores::profile::ProfileDocument>("lcores --profile --json")),
        ("leaks", schema::<leaks::report::Document>("leaks --json")),
        ("ls", schema::<ls::Listing>("ls --json")),
        ("netstat", schema::<netstat::document::NetstatDocument>("netstat --json")),
        ("top", schema::<TopDocument>("top --json")),
        ("xdp-status", schema::<xdp::report::Document>("xdp status --json")),
    ])
}

fn schema<T: JsonSchema>(command: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(for_readers_of_json).transform(&mut schema);
    schema.insert("title".to_owned(), format!("pmdscope {command}").into());
    schema.to_value()
}

/// The types are described in terms of Rust. What recordings of older versions lack has a default, which no
/// document needs.
fn for_readers_of_json(schema: &mut Schema) {
    schema.remove("default");
    let Some(object) = schema.as_object_mut() else { return };
    if let Some(Value::String(text)) = object.get_mut("description") {
        let link = Regex::new(r"\[(`[^`]+`)\](\([^)]*\))?").unwrap();
        *text = link.replace_all(text, "$1").replace("`None`", "null");
    }
}

#[test]
fn the_schemas_are_those_of_the_types() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema");
    let schemas = schemas();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(&directory).unwrap();
        for (name, schema) in &schemas {
            let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
            fs::write(directory.join(format!("{name}.json")), text).unwrap();
        }
    }
    let files = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let mut names = files.map(|file| file.file_stem().unwrap().to_string_lossy().into_owned());
    assert!(names.all(|name| schemas.contains_key(name.as_str())), "docs/schema has other files");
    for (name, schema) in &schemas {
        let text = fs::read(directory.join(format!("{name}.json"))).unwrap();
        assert!(
            serde_json::from_slice::<Value>(&text).unwrap() == *schema,
            "docs/schema/{name}.json is stale: run UPDATE_DOCS=1 cargo test -p pmdscope schemas"
        );
    }
}

#[test]
fn every_command_with_json_has_a_schema() {
    let schemas = schemas();
    let mut cli = Cli::command();
    cli.build();
    let with_json = |command: &clap::Command| {
        command.get_arguments().any(|argument| argument.get_long() == Some("json"))
    };
    for command in cli.get_subcommands() {
        let name = command.get_name();
        let inner = command.get_subcommands().filter(|inner| with_json(inner));
        let mut wanted =
            inner.map(|inner| format!("{name}-{}", inner.get_name())).collect::<Vec<_>>();
        wanted.extend(with_json(command).then(|| name.to_owned()));
        for wanted in wanted {
            assert!(schemas.keys().any(|name| name.starts_with(&wanted)), "{wanted}");
        }
    }
}

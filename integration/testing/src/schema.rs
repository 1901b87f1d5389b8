//! Compares what `pmdscope --json` prints with the JSON Schemas in `docs/schema`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

/// Keywords whose value is the schema of another place in a document.
const PLACES: [&str; 3] = ["items", "additionalProperties", "unevaluatedProperties"];

/// The same with several of them, by name.
const PLACES_BY_NAME: [&str; 2] = ["properties", "patternProperties"];

/// Keywords whose schemas are about the same place as the one that has them.
const SAME_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// The documents of a command line with `--json`, if each is as `docs/schema` says.
///
/// # Errors
/// What is not; a field that the schema does not name, too.
pub fn documents(arguments: &[&str], printed: &str) -> Result<Vec<Value>, String> {
    let name = schema_name(arguments);
    let validator = validator(&name)?;
    let mut documents = Vec::new();
    for line in printed.lines() {
        let document: Value =
            serde_json::from_str(line).map_err(|error| format!("{name}: {error}: {line}"))?;
        let wrong = validator.iter_errors(&document);
        let wrong = wrong.map(|error| format!("{}: {error}", error.instance_path()));
        let wrong = wrong.collect::<Vec<_>>();
        if !wrong.is_empty() {
            return Err(format!("not as docs/schema/{name}.json says: {}", wrong.join("; ")));
        }
        documents.push(document);
    }
    Ok(documents)
}

/// Name of the schema of what a command line prints.
pub fn schema_name(arguments: &[&str]) -> String {
    let has = |option: &str| arguments.iter().any(|argument| argument.starts_with(option));
    let mut words = arguments.iter().filter(|argument| !argument.starts_with('-'));
    let command = words.next().copied().unwrap_or_default();
    match command {
        "lcores" if has("--profile") => "lcores-profile".to_owned(),
        "interrupts" if has("--events") => "interrupts-events".to_owned(),
        "capture" if has("-w") => "capture-statistics".to_owned(),
        "capture" => "capture-interfaces".to_owned(),
        "bypass" | "xdp" => {
            format!("{command}-{}", words.next().copied().unwrap_or_default())
        }
        _ => command.to_owned(),
    }
}

/// Schemas in `docs` let fields be added; a test must know each.
fn validator(name: &str) -> Result<jsonschema::Validator, String> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let path = directory.join(format!("{name}.json"));
    let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut schema: Value =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    close_place(&mut schema);
    jsonschema::validator_for(&schema).map_err(|error| format!("{}: {error}", path.display()))
}

/// Refuses fields that no schema of this place of a document names.
fn close_place(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    close_within(schema);
    schema.entry("unevaluatedProperties").or_insert(json!(false));
}

fn close_within(schema: &mut Map<String, Value>) {
    for (keyword, value) in schema.iter_mut() {
        match (keyword.as_str(), value) {
            (keyword, value) if PLACES.contains(&keyword) => close_place(value),
            (keyword, Value::Object(named)) if PLACES_BY_NAME.contains(&keyword) => {
                named.values_mut().for_each(close_place);
            }
            ("prefixItems", Value::Array(listed)) => listed.iter_mut().for_each(close_place),
            (keyword, Value::Array(listed)) if SAME_PLACE.contains(&keyword) => {
                listed.iter_mut().filter_map(Value::as_object_mut).for_each(close_within);
            }
            ("$defs", Value::Object(named)) => {
                named.values_mut().filter_map(Value::as_object_mut).for_each(close_within);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_has_one_schema() {
        for (line, name) in [
            ("top --json -n 2", "top"),
            ("lcores --json", "lcores"),
            ("lcores --profile=99 --json", "lcores-profile"),
            ("interrupts --events --min 1ms", "interrupts-events"),
            ("capture -D --json", "capture-interfaces"),
            ("capture -w x --json", "capture-statistics"),
            ("bypass status eth0 --json", "bypass-status"),
        ] {
            assert_eq!(schema_name(&line.split(' ').collect::<Vec<_>>()), name, "{line}");
        }
    }

    #[test]
    fn unknown_fields_are_refused_everywhere() {
        let mut schema = json!({
            "properties": {
                "list": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
                "map": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Row"}},
                "either": {"anyOf": [{"$ref": "#/$defs/Row"}, {"type": "null"}]},
            },
            "oneOf": [{"properties": {"kind": {"const": "a"}}}],
            "$defs": {"Row": {"properties": {"name": {"type": "string"}}}},
        });
        close_place(&mut schema);
        let validator = jsonschema::validator_for(&schema).unwrap();
        let row = json!({"name": "x"});
        let fine = json!({"kind": "a", "list": [row], "map": {"any": row}, "either": row});
        assert!(validator.is_valid(&fine), "{schema}");
        let odd = json!({"name": "x", "odd": 1});
        for wrong in [
            json!({"odd": 1}),
            json!({"list": [odd]}),
            json!({"map": {"any": odd}}),
            json!({"either": odd}),
        ] {
            assert!(!validator.is_valid(&wrong), "{wrong}");
        }
    }
}

//! `[top.columns]`: the columns of tables in `pmdscope top`.

use std::borrow::Cow;
use std::fmt::Write;

use pmdscope_render::Column;
use pmdscope_tui::columns::{KnownTable, known_tables};
use toml::Spanned;
use toml::de::DeValue;

use crate::config::Config;
use crate::config::error::{Source, meant};
use crate::config::key::ConfigPart;
use crate::config::kind::{InvalidValue, Kind, List, Text};

/// The columns of each table.
pub(super) struct TopColumns;

/// Names of columns.
fn names() -> List<Text<String>> {
    List(Text { what: "a column", parse: |text| Ok(text.to_owned()), show: String::clone })
}

fn written(columns: &[String]) -> String {
    names().write(&columns.to_vec()).map(|value| value.to_string()).unwrap_or_default()
}

/// A line of the file: a table with the columns that it has by default.
fn default_line(table: &KnownTable) -> String {
    let columns: Vec<String> = table.columns.iter().map(|c| c.name().to_owned()).collect();
    format!("{} = {}", table.name, written(&columns))
}

impl TopColumns {
    fn read_table(
        &self,
        source: &mut Source<'_>,
        known: &[KnownTable],
        (name, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>),
        into: &mut Config,
    ) {
        let Some(table) = known.iter().find(|known| known.name == **name.get_ref()) else {
            let tables = known.iter().map(|known| known.name.as_str());
            let text = format!(
                "there is no table {}.{}; {}",
                self.name(),
                name.get_ref(),
                meant(name.get_ref(), tables)
            );
            return source.blame(&name.span(), text);
        };
        let columns = match names().read(value.get_ref()) {
            Ok(columns) => columns,
            Err(InvalidValue { span, .. }) => {
                let text = format!(
                    "{}.{} must be a list of columns, for instance {}",
                    self.name(),
                    table.name,
                    default_line(table)
                );
                return source.blame(&span.unwrap_or_else(|| value.span()), text);
            }
        };
        let is_known = |name: &String| table.columns.iter().any(|column| column.is(name));
        if let Some(unknown) = columns.iter().find(|name| !is_known(name)) {
            let known = table.columns.iter().map(Column::name);
            let meant = meant(unknown, known);
            let text = format!("{}.{} has no column {unknown}; {meant}", self.name(), table.name);
            return source.blame(&value.span(), text);
        }
        if columns.is_empty() {
            let text = format!("{}.{} needs a column", self.name(), table.name);
            return source.blame(&value.span(), text);
        }
        into.top.columns.set(&table.name, columns.iter().map(String::as_str));
    }
}

impl ConfigPart for TopColumns {
    fn name(&self) -> &'static str {
        "top.columns"
    }

    fn read(&self, source: &mut Source<'_>, value: &Spanned<DeValue<'_>>, into: &mut Config) {
        let Some(tables) = value.get_ref().as_table() else {
            let text = "top.columns must be a table: write [top.columns] above its keys".to_owned();
            return source.blame(&value.span(), text);
        };
        let known = known_tables();
        for table in tables {
            self.read_table(source, &known, table, into);
        }
    }

    fn print(&self, out: &mut String, from: &mut Config) {
        let _ = writeln!(
            out,
            "\n# Columns of tables, in their order; a line with # is the default\n[{}]",
            self.name()
        );
        for table in known_tables() {
            let _ = match from.top.columns.get(&table.name) {
                Some(columns) => writeln!(out, "{} = {}", table.name, written(columns)),
                None => writeln!(out, "# {}", default_line(&table)),
            };
        }
    }

    #[cfg(test)]
    fn rows(&self) -> Vec<String> {
        let row = |table: KnownTable| {
            let columns: Vec<&str> = table.columns.iter().map(Column::name).collect();
            format!("| `{}` | {} |", table.name, columns.join(", "))
        };
        known_tables().into_iter().map(row).collect()
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(String, String)> {
        let example = |table: KnownTable| {
            let name = format!("{}.{}", self.name(), table.name);
            (format!("{}.{}", self.name(), default_line(&table)), name)
        };
        known_tables().into_iter().map(example).collect()
    }
}

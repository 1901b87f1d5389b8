//! Keys and tables of the configuration file.

use std::fmt::Write;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

use super::Config;
use super::error::{Source, meant};
use super::kind::{InvalidValue, Kind};

/// One key of a table that fills a `T`.
pub(super) struct ConfigKey<T> {
    pub(super) name: &'static str,
    /// What it means, without a full stop.
    pub(super) means: &'static str,
    /// A value, as in the file.
    pub(super) example: &'static str,
    /// It cannot be left out.
    pub(super) required: bool,
    field: Box<dyn Access<T>>,
}

/// A field of `T`, and the kind of its value.
trait Access<T> {
    fn description(&self) -> String;
    fn read(&self, value: &DeValue<'_>, into: &mut T) -> Result<(), InvalidValue>;
    fn write(&self, from: &mut T) -> Option<Value>;
}

struct Field<T, K: Kind> {
    kind: K,
    of: fn(&mut T) -> &mut K::Value,
}

impl<T, K: Kind> Access<T> for Field<T, K> {
    fn description(&self) -> String {
        self.kind.description()
    }

    fn read(&self, value: &DeValue<'_>, into: &mut T) -> Result<(), InvalidValue> {
        *(self.of)(into) = self.kind.read(value)?;
        Ok(())
    }

    fn write(&self, from: &mut T) -> Option<Value> {
        self.kind.write((self.of)(from))
    }
}

impl<T: 'static> ConfigKey<T> {
    pub(super) fn new<K: Kind + 'static>(
        name: &'static str,
        kind: K,
        of: fn(&mut T) -> &mut K::Value,
        example: &'static str,
        means: &'static str,
    ) -> Self {
        Self { name, means, example, required: false, field: Box::new(Field { kind, of }) }
    }

    pub(super) fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// What is accepted.
    pub(super) fn description(&self) -> String {
        self.field.description()
    }

    /// The value as in the file; `None` when there is none.
    pub(super) fn written(&self, from: &mut T) -> Option<String> {
        self.field.write(from).map(|value| value.to_string())
    }

    fn read(
        &self,
        source: &mut Source<'_>,
        table: &str,
        value: &Spanned<DeValue<'_>>,
        into: &mut T,
    ) {
        let Err(InvalidValue { span, why }) = self.field.read(value.get_ref(), into) else {
            return;
        };
        let span = span.unwrap_or_else(|| value.span());
        let why = if why.is_empty() { why } else { format!(": {why}") };
        let Self { name, example, .. } = self;
        let text = format!(
            "{table}.{name} cannot be {}{why}; it must be {}, for instance {name} = {example}",
            source.quote(&span),
            self.description(),
        );
        source.blame(&span, text);
    }

    fn print(&self, out: &mut String, from: &mut T) {
        let _ = writeln!(out, "# {}: {}", self.means, self.description());
        let _ = match self.written(from) {
            Some(value) => writeln!(out, "{} = {value}", self.name),
            None => writeln!(out, "# {} = {}", self.name, self.example),
        };
    }
}

/// A table of the file, or a list of tables.
pub(super) trait ConfigPart {
    /// Its name; that of a table within another one has a dot.
    fn name(&self) -> &'static str;

    /// Reads it from the file; what is wrong is noted in `source`.
    fn read(&self, source: &mut Source<'_>, value: &Spanned<DeValue<'_>>, into: &mut Config);

    /// Writes it with a comment for each key.
    fn print(&self, out: &mut String, from: &mut Config);

    /// A line of a table for each key: its name, what it means, what is accepted, its default.
    #[cfg(test)]
    fn rows(&self) -> Vec<String>;

    /// A file with the example of each key, and the key.
    #[cfg(test)]
    fn examples(&self) -> Vec<(String, String)>;
}

/// A table that occurs at most once.
pub(super) struct ConfigTable {
    pub(super) name: &'static str,
    pub(super) keys: Vec<ConfigKey<Config>>,
    /// Names of tables within it, which are parts of their own.
    pub(super) tables: &'static [&'static str],
    /// What is wrong with values that are right one by one.
    pub(super) check: fn(&Config) -> Result<(), String>,
}

impl ConfigPart for ConfigTable {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, source: &mut Source<'_>, value: &Spanned<DeValue<'_>>, into: &mut Config) {
        let DeValue::Table(table) = value.get_ref() else {
            let name = self.name;
            let text = format!("{name} must be a table: write [{name}] above its keys");
            return source.blame(&value.span(), text);
        };
        if fill(source, self.name, (&self.keys, self.tables), table, into)
            && let Err(why) = (self.check)(into)
        {
            source.blame(&value.span(), format!("[{}]: {why}", self.name));
        }
    }

    fn print(&self, out: &mut String, from: &mut Config) {
        let _ = writeln!(out, "\n[{}]", self.name);
        self.keys.iter().for_each(|key| key.print(out, from));
    }

    #[cfg(test)]
    fn rows(&self) -> Vec<String> {
        rows(&self.keys, &mut Config::default())
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(String, String)> {
        let example = |key: &ConfigKey<Config>| {
            let name = format!("{}.{}", self.name, key.name);
            (format!("{name} = {}", key.example), name)
        };
        self.keys.iter().map(example).collect()
    }
}

/// A table that may occur several times.
pub(super) struct ConfigTables<T> {
    pub(super) name: &'static str,
    /// What one of them is for, without a full stop.
    pub(super) means: &'static str,
    pub(super) keys: Vec<ConfigKey<T>>,
    pub(super) of: fn(&mut Config) -> &mut Vec<T>,
    /// What is wrong with one, seen with those above it.
    pub(super) check: fn(&T, &[T]) -> Result<(), String>,
}

impl<T: Default + 'static> ConfigPart for ConfigTables<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, source: &mut Source<'_>, value: &Spanned<DeValue<'_>>, into: &mut Config) {
        let name = self.name;
        let items = value.get_ref().as_array().map_or(&[][..], |items| items);
        let tables: Vec<_> =
            items.iter().filter_map(|i| Some((i.span(), i.get_ref().as_table()?))).collect();
        if tables.len() < items.len() || value.get_ref().as_array().is_none() {
            let text = format!("{name} must be tables: write [[{name}]] above the keys of each");
            return source.blame(&value.span(), text);
        }
        for (span, table) in tables {
            let mut item = T::default();
            if !fill(source, name, (&self.keys, &[]), table, &mut item) {
                continue;
            }
            let missing = self.keys.iter().find(|k| k.required && !table.contains_key(k.name));
            let judged = match missing {
                Some(ConfigKey { name, example, .. }) => {
                    Err(format!("{name} is missing; add for instance {name} = {example}"))
                }
                None => (self.check)(&item, (self.of)(into)),
            };
            match judged {
                Ok(()) => (self.of)(into).push(item),
                Err(why) => source.blame(&span, format!("[[{name}]]: {why}")),
            }
        }
    }

    fn print(&self, out: &mut String, from: &mut Config) {
        let mut items = std::mem::take((self.of)(from));
        let _ = writeln!(out, "\n# {}", self.means);
        if items.is_empty() {
            let mut example = String::new();
            self.keys.iter().for_each(|key| {
                let _ = writeln!(example, "# {} = {}", key.name, key.example);
            });
            let _ = write!(out, "# [[{}]]\n{example}", self.name);
        }
        for (index, item) in items.iter_mut().enumerate() {
            let _ = writeln!(out, "{}[[{}]]", if index > 0 { "\n" } else { "" }, self.name);
            self.keys.iter().for_each(|key| key.print(out, item));
        }
        *(self.of)(from) = items;
    }

    #[cfg(test)]
    fn rows(&self) -> Vec<String> {
        rows(&self.keys, &mut T::default())
    }

    #[cfg(test)]
    fn examples(&self) -> Vec<(String, String)> {
        let pairs = self.keys.iter().map(|key| format!("{} = {}", key.name, key.example));
        let all = pairs.collect::<Vec<_>>().join(", ");
        vec![(format!("{} = [{{ {all} }}]", self.name), self.name.to_owned())]
    }
}

/// Reads the keys of one table, and leaves tables within it alone; false when something was wrong.
fn fill<T: 'static>(
    source: &mut Source<'_>,
    name: &str,
    (keys, tables): (&[ConfigKey<T>], &[&'static str]),
    table: &DeTable<'_>,
    into: &mut T,
) -> bool {
    let before = source.count();
    for (given, value) in table {
        if let Some(key) = keys.iter().find(|key| *key.name == **given.get_ref()) {
            key.read(source, name, value, into);
        } else if !tables.contains(&&**given.get_ref()) {
            let known = keys.iter().map(|key| key.name).chain(tables.iter().copied());
            let meant = meant(given.get_ref(), known);
            let text = format!("there is no key {name}.{}; {meant}", given.get_ref());
            source.blame(&given.span(), text);
        }
    }
    source.count() == before
}

#[cfg(test)]
fn rows<T: 'static>(keys: &[ConfigKey<T>], defaults: &mut T) -> Vec<String> {
    let row = |key: &ConfigKey<T>| {
        let default = if key.required { None } else { key.written(defaults) };
        let default = match (key.required, default) {
            (true, _) => "required".to_owned(),
            (false, Some(default)) => format!("`{default}`"),
            (false, None) => "not set".to_owned(),
        };
        format!("| `{}` | {} | {} | {default} |", key.name, key.means, key.description())
    };
    keys.iter().map(row).collect()
}

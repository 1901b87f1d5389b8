//! Types of values: range, parser, and description.

use std::ops::Range;
use std::time::Duration;

use toml::Value;
use toml::de::DeValue;

use crate::duration;

/// A kind of value.
pub(super) trait Kind {
    /// What the program makes of it.
    type Value;

    /// What is accepted, as in "must be ...".
    fn description(&self) -> String;

    /// # Errors
    /// When it is something else.
    fn read(&self, value: &DeValue<'_>) -> Result<Self::Value, InvalidValue>;

    /// `None` for what is not set.
    fn write(&self, value: &Self::Value) -> Option<Value>;
}

/// Why a value is refused.
#[derive(Debug, Default)]
pub(super) struct InvalidValue {
    /// Which part of it; `None` for all.
    pub(super) span: Option<Range<usize>>,
    /// Details beyond that it is of another kind; may be empty.
    pub(super) why: String,
}

/// A number of this range.
pub(super) struct Number(pub(super) f64, pub(super) f64);

impl Kind for Number {
    type Value = f64;

    fn description(&self) -> String {
        if self.1.is_finite() {
            format!("a number from {} to {}", self.0, self.1)
        } else {
            format!("a number of at least {}", self.0)
        }
    }

    fn read(&self, value: &DeValue<'_>) -> Result<f64, InvalidValue> {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(_) => integer(value).map(|number| number as f64),
            _ => None,
        };
        number
            .filter(|n| n.is_finite() && (self.0..=self.1).contains(n))
            .ok_or_else(InvalidValue::default)
    }

    fn write(&self, value: &f64) -> Option<Value> {
        Some(Value::Float(*value))
    }
}

/// A whole number of this range.
pub(super) struct Count(pub(super) usize, pub(super) usize);

impl Kind for Count {
    type Value = usize;

    fn description(&self) -> String {
        format!("a whole number from {} to {}", self.0, self.1)
    }

    fn read(&self, value: &DeValue<'_>) -> Result<usize, InvalidValue> {
        let number = integer(value).and_then(|number| usize::try_from(number).ok());
        number.filter(|n| (self.0..=self.1).contains(n)).ok_or_else(InvalidValue::default)
    }

    fn write(&self, value: &usize) -> Option<Value> {
        i64::try_from(*value).ok().map(Value::Integer)
    }
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// Yes or no.
pub(super) struct Flag;

impl Kind for Flag {
    type Value = bool;

    fn description(&self) -> String {
        "true or false".to_owned()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<bool, InvalidValue> {
        value.as_bool().ok_or_else(InvalidValue::default)
    }

    fn write(&self, value: &bool) -> Option<Value> {
        Some(Value::Boolean(*value))
    }
}

/// A duration of this range.
pub(super) struct Time(pub(super) Duration, pub(super) Duration);

impl Kind for Time {
    type Value = Duration;

    fn description(&self) -> String {
        let [least, most] = [self.0, self.1].map(duration::show);
        format!("a duration from {least} to {most}")
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Duration, InvalidValue> {
        let time = value.as_str().and_then(duration::parse);
        time.filter(|time| (self.0..=self.1).contains(time)).ok_or_else(InvalidValue::default)
    }

    fn write(&self, value: &Duration) -> Option<Value> {
        Some(Value::String(duration::show(*value)))
    }
}

/// A duration that the program has in seconds.
pub(super) struct Seconds(pub(super) Time);

impl Kind for Seconds {
    type Value = f64;

    fn description(&self) -> String {
        self.0.description()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<f64, InvalidValue> {
        self.0.read(value).map(|time| time.as_secs_f64())
    }

    fn write(&self, value: &f64) -> Option<Value> {
        self.0.write(&Duration::try_from_secs_f64(*value).unwrap_or(self.0.1))
    }
}

/// Text that is parsed.
pub(super) struct Text<T> {
    pub(super) what: &'static str,
    /// The error has details beyond that it is something else, or is empty.
    pub(super) parse: fn(&str) -> Result<T, String>,
    pub(super) show: fn(&T) -> String,
}

impl<T> Kind for Text<T> {
    type Value = T;

    fn description(&self) -> String {
        self.what.to_owned()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<T, InvalidValue> {
        let text = value.as_str().ok_or_else(InvalidValue::default)?;
        (self.parse)(text).map_err(|why| InvalidValue { span: None, why })
    }

    fn write(&self, value: &T) -> Option<Value> {
        Some(Value::String((self.show)(value)))
    }
}

/// Something, or empty text for none of it.
pub(super) struct OptionalText<K>(pub(super) K);

impl<K: Kind> Kind for OptionalText<K> {
    type Value = Option<K::Value>;

    fn description(&self) -> String {
        format!("{}, or \"\" for none", self.0.description())
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Self::Value, InvalidValue> {
        if value.as_str() == Some("") { Ok(None) } else { self.0.read(value).map(Some) }
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        match value {
            None => Some(Value::String(String::new())),
            Some(value) => self.0.write(value),
        }
    }
}

/// Something that may be left out.
pub(super) struct Omittable<K>(pub(super) K);

impl<K: Kind> Kind for Omittable<K> {
    type Value = Option<K::Value>;

    fn description(&self) -> String {
        self.0.description()
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Self::Value, InvalidValue> {
        self.0.read(value).map(Some)
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        self.0.write(value.as_ref()?)
    }
}

/// Any number of something, each once.
pub(super) struct List<K>(pub(super) K);

impl<K: Kind> Kind for List<K> {
    type Value = Vec<K::Value>;

    fn description(&self) -> String {
        format!("a list, each {}", self.0.description())
    }

    fn read(&self, value: &DeValue<'_>) -> Result<Self::Value, InvalidValue> {
        let mut seen = Vec::new();
        let items = value.as_array().ok_or_else(InvalidValue::default)?;
        let read = |item: &toml::Spanned<DeValue<'_>>| {
            let at = |wrong: InvalidValue| InvalidValue {
                span: wrong.span.or(Some(item.span())),
                ..wrong
            };
            let read = self.0.read(item.get_ref()).map_err(at)?;
            let written = self.0.write(&read);
            if seen.contains(&written) {
                return Err(InvalidValue {
                    span: Some(item.span()),
                    why: "it is listed twice".into(),
                });
            }
            seen.push(written);
            Ok(read)
        };
        items.iter().map(read).collect()
    }

    fn write(&self, value: &Self::Value) -> Option<Value> {
        Some(Value::Array(value.iter().filter_map(|item| self.0.write(item)).collect()))
    }
}

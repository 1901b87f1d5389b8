//! The values of a column, and the cell of a row.

use std::fmt;

use serde::de::value::{Error, SeqDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// The values of a column.
#[derive(Debug, PartialEq)]
pub(super) enum Cells {
    Unsigned(Vec<u64>),
    Signed(Vec<i64>),
    Text(Texts),
    /// The number of values of other types, or of mixed types.
    Other(usize),
}

/// Concatenated strings, and the end of each.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Texts {
    joined: String,
    ends: Vec<usize>,
}

/// A value of a column.
enum ColumnValue<'a> {
    Unsigned(u64),
    Signed(i64),
    Text(&'a str),
    Other,
}

impl Cells {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Unsigned(values) => values.len(),
            Self::Signed(values) => values.len(),
            Self::Text(texts) => texts.ends.len(),
            Self::Other(count) => *count,
        }
    }

    pub(super) fn at(&self, row: usize) -> Cell<'_> {
        let cell = match self {
            Self::Unsigned(values) => values.get(row).copied().map(Cell::Unsigned),
            Self::Signed(values) => values.get(row).copied().map(Cell::Signed),
            Self::Text(texts) => texts.get(row).map(Cell::Text),
            Self::Other(_) => None,
        };
        cell.unwrap_or(Cell::Other)
    }

    pub(super) fn part(&self, from: usize, width: usize) -> Cell<'_> {
        match self {
            Self::Unsigned(values) => {
                values.get(from..from + width).map_or(Cell::Other, Cell::List)
            }
            _ => Cell::Other,
        }
    }

    pub(super) fn list(&self) -> Cell<'_> {
        self.part(0, self.len())
    }

    /// Adds a value; a column of mixed types can be counted, but not read.
    fn push(&mut self, value: ColumnValue<'_>) {
        use ColumnValue::{Signed, Text, Unsigned};
        match (&mut *self, value) {
            (Self::Unsigned(values), Unsigned(value)) => values.push(value),
            (Self::Text(texts), Text(text)) => texts.push(text),
            (Self::Signed(values), Signed(value)) => values.push(value),
            (Self::Signed(values), Unsigned(value)) if i64::try_from(value).is_ok() => {
                values.push(value.cast_signed());
            }
            (Self::Unsigned(values), Signed(value)) => {
                let signed = values.iter().map(|value| i64::try_from(*value));
                *self = match signed.chain([Ok(value)]).collect() {
                    Ok(values) => Self::Signed(values),
                    Err(_) => Self::Other(self.len() + 1),
                };
            }
            (Self::Unsigned(values), Text(text)) if values.is_empty() => {
                let mut texts = Texts::default();
                texts.push(text);
                *self = Self::Text(texts);
            }
            _ => *self = Self::Other(self.len() + 1),
        }
    }
}

impl Texts {
    fn push(&mut self, text: &str) {
        self.joined.push_str(text);
        self.ends.push(self.joined.len());
    }

    fn get(&self, at: usize) -> Option<&str> {
        let begin = at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.joined.get(begin..*self.ends.get(at)?)
    }
}

/// The value or values of a row in a column.
#[derive(Clone, Copy)]
pub(super) enum Cell<'a> {
    Unsigned(u64),
    Signed(i64),
    Text(&'a str),
    List(&'a [u64]),
    Other,
}

impl IntoDeserializer<'_> for Cell<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Cell<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Unsigned(value) => visitor.visit_u64(value),
            Self::Signed(value) => visitor.visit_i64(value),
            Self::Text(text) => visitor.visit_str(text),
            Self::List(values) => visitor.visit_seq(SeqDeserializer::new(values.iter().copied())),
            Self::Other => Err(serde::de::Error::custom("neither a number nor a string")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Text(text) => text.into_deserializer().deserialize_enum(name, variants, visitor),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier
    }
}

/// Adds a value to a column while it is parsed, without an intermediate copy.
pub(super) struct NextCell<'a>(pub(super) &'a mut Cells);

impl NextCell<'_> {
    #[expect(clippy::unnecessary_wraps, reason = "what a visitor returns")]
    fn push<E>(self, value: ColumnValue<'_>) -> Result<(), E> {
        self.0.push(value);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for NextCell<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NextCell<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.push(ColumnValue::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.push(u64::try_from(value).map_or(ColumnValue::Signed(value), ColumnValue::Unsigned))
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.push(ColumnValue::Text(text))
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.push(ColumnValue::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.push(ColumnValue::Other)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.push(ColumnValue::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while values.next_element::<IgnoredAny>()?.is_some() {}
        self.push(ColumnValue::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        self.push(ColumnValue::Other)
    }
}

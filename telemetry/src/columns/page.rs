//! One page of a table: its columns as they were told, read row by row.
//!
//! Columns are parsed as vectors of numbers or strings, since most pages hold thousands of numbers.

use std::fmt;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeOwned, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use crate::error::TelemetryError;

/// The schema of tables that this code reads.
pub(crate) const SCHEMA: u64 = 1;

/// More rows than any app has; bounds the work that a broken app can cause.
const MAX_ROWS: u64 = 1 << 16;

/// Behind the name of a column of lists: how many values each has.
const BUCKETS_SUFFIX: &str = "_buckets";

/// Columns with a length of their own.
const SPARSE_PREFIX: &str = "caches_";

/// A page as it was told.
#[derive(Debug, Default)]
pub(crate) struct PageFields {
    /// `None` for what is not a natural number.
    header: Vec<(String, Option<u64>)>,
    columns: Vec<(String, Cells)>,
}

/// One page of a table.
#[derive(Debug)]
pub(crate) struct TablePage {
    pub(crate) generation: u64,
    /// Its first row.
    pub(crate) offset: u64,
    pub(crate) total: u64,
    /// First row of the next page; `None` on the last page.
    pub(crate) next: Option<u64>,
    rows: usize,
    columns: Vec<TableColumn>,
    sparse: Vec<(String, Cells)>,
}

/// A column with as many values for each row of its page.
#[derive(Debug)]
struct TableColumn {
    name: String,
    cells: Cells,
    /// How many values each row has, if it has a list of them.
    list: Option<usize>,
}

/// The values of a column.
#[derive(Debug, PartialEq)]
enum Cells {
    Unsigned(Vec<u64>),
    Signed(Vec<i64>),
    Text(Vec<String>),
    /// So many values of other types, or of several.
    Other(usize),
}

impl PageFields {
    /// A number of the header.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.header.iter().find(|(known, _)| known == name)?.1
    }

    fn required(&self, name: &str) -> Result<u64, TelemetryError> {
        let missing = || TelemetryError::Malformed(format!("a page without the number {name}"));
        self.number(name).ok_or_else(missing)
    }

    /// Values of each row of a column, if its rows have lists; 0, which no list has, for what is no number.
    fn buckets(&self, column: &str) -> Option<u64> {
        let is_of = |name: &str| name.strip_suffix(BUCKETS_SUFFIX) == Some(column);
        Some(self.header.iter().find(|(name, _)| is_of(name))?.1.unwrap_or(0))
    }

    /// Number of rows on the page, when the header makes sense.
    fn rows(&self) -> Result<usize, TelemetryError> {
        let (offset, total) = (self.required("offset")?, self.required("total")?);
        let next = self.number("next");
        let end = next.unwrap_or(total);
        let last_or_advances = next.is_none_or(|next| next > offset && next < total);
        if total > MAX_ROWS || !last_or_advances {
            let what = format!("page from {offset} to {end} of {total} rows");
            return Err(TelemetryError::Malformed(what));
        }
        end.checked_sub(offset).and_then(|rows| usize::try_from(rows).ok()).ok_or_else(|| {
            TelemetryError::Malformed(format!("page starts at {offset} of {total} rows"))
        })
    }
}

impl TablePage {
    /// Checks the header and the length of every column.
    pub(crate) fn parse(mut fields: PageFields) -> Result<Self, TelemetryError> {
        match fields.required("schema")? {
            SCHEMA => {}
            other => return Err(TelemetryError::Schema(other)),
        }
        let (generation, rows) = (fields.required("generation")?, fields.rows()?);
        let (mut columns, mut sparse) = (Vec::new(), Vec::new());
        for (name, cells) in std::mem::take(&mut fields.columns) {
            if let Some(name) = name.strip_prefix(SPARSE_PREFIX) {
                sparse.push((name.to_owned(), cells));
                continue;
            }
            let list = fields.buckets(&name);
            columns.push(TableColumn::new(name, cells, list, rows)?);
        }
        Ok(Self {
            generation,
            offset: fields.required("offset")?,
            total: fields.required("total")?,
            next: fields.number("next"),
            rows,
            columns,
            sparse,
        })
    }

    /// The row behind its last.
    pub(crate) fn end(&self) -> u64 {
        self.next.unwrap_or(self.total)
    }

    pub(crate) fn rows<T: DeserializeOwned>(&self) -> Result<Vec<T>, TelemetryError> {
        let row = |row: usize| {
            let cells = self.columns.iter().map(|column| (column.name.as_str(), column.cell(row)));
            T::deserialize(MapDeserializer::new(cells)).map_err(malformed)
        };
        (0..self.rows).map(row).collect()
    }

    /// The rows, read as `Row` and turned into samples.
    pub(crate) fn convert<Row, Sample>(&self) -> Result<Vec<Sample>, TelemetryError>
    where
        Row: DeserializeOwned,
        Sample: From<Row>,
    {
        Ok(self.rows::<Row>()?.into_iter().map(Sample::from).collect())
    }

    /// The columns with a length of their own, each as a list.
    pub(super) fn sparse<T: DeserializeOwned>(&self) -> Result<T, TelemetryError> {
        let lists = self.sparse.iter().map(|(name, cells)| (name.as_str(), cells.list()));
        T::deserialize(MapDeserializer::new(lists)).map_err(malformed)
    }
}

impl TableColumn {
    fn new(
        name: String,
        cells: Cells,
        buckets: Option<u64>,
        rows: usize,
    ) -> Result<Self, TelemetryError> {
        let width = usize::try_from(buckets.unwrap_or(1)).unwrap_or(0);
        if width == 0 || rows.checked_mul(width) != Some(cells.len()) {
            let count = cells.len();
            let what = format!("column {name} has {count} values for {rows} rows");
            return Err(TelemetryError::Malformed(what));
        }
        Ok(Self { name, cells, list: buckets.map(|_| width) })
    }

    fn cell(&self, row: usize) -> Cell<'_> {
        match self.list {
            Some(width) => self.cells.part(row * width, width),
            None => self.cells.at(row),
        }
    }
}

impl Cells {
    fn len(&self) -> usize {
        match self {
            Self::Unsigned(values) => values.len(),
            Self::Signed(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::Other(count) => *count,
        }
    }

    fn at(&self, row: usize) -> Cell<'_> {
        let cell = match self {
            Self::Unsigned(values) => values.get(row).copied().map(Cell::Unsigned),
            Self::Signed(values) => values.get(row).copied().map(Cell::Signed),
            Self::Text(values) => values.get(row).map(|text| Cell::Text(text)),
            Self::Other(_) => None,
        };
        cell.unwrap_or(Cell::Other)
    }

    fn part(&self, from: usize, width: usize) -> Cell<'_> {
        match self {
            Self::Unsigned(values) => {
                values.get(from..from + width).map_or(Cell::Other, Cell::List)
            }
            _ => Cell::Other,
        }
    }

    fn list(&self) -> Cell<'_> {
        self.part(0, self.len())
    }

    /// Adds a value; a column of several types can be counted, and not read.
    fn push(&mut self, value: PageValue) {
        match (&mut *self, value) {
            (Self::Unsigned(values), PageValue::Unsigned(value)) => values.push(value),
            (Self::Text(values), PageValue::Text(value)) => values.push(value),
            (Self::Signed(values), PageValue::Signed(value)) => values.push(value),
            (Self::Signed(values), PageValue::Unsigned(value)) if i64::try_from(value).is_ok() => {
                values.push(value.cast_signed());
            }
            (Self::Unsigned(values), PageValue::Signed(value)) => {
                let signed = values.iter().map(|value| i64::try_from(*value));
                *self = match signed.chain([Ok(value)]).collect() {
                    Ok(values) => Self::Signed(values),
                    Err(_) => Self::Other(self.len() + 1),
                };
            }
            (Self::Unsigned(values), PageValue::Text(value)) if values.is_empty() => {
                *self = Self::Text(vec![value]);
            }
            _ => *self = Self::Other(self.len() + 1),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn malformed(error: Error) -> TelemetryError {
    TelemetryError::Malformed(error.to_string())
}

/// What a row has in a column.
#[derive(Clone, Copy)]
enum Cell<'a> {
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

impl<'de> Deserialize<'de> for PageFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = PageFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PageFields, A::Error> {
        let mut fields = PageFields::default();
        while let Some((name, value)) = map.next_entry::<String, PageValue>()? {
            match value {
                PageValue::Cells(cells) => fields.columns.push((name, cells)),
                PageValue::Unsigned(value) => fields.header.push((name, Some(value))),
                PageValue::Signed(_) | PageValue::Text(_) | PageValue::Other => {
                    fields.header.push((name, None));
                }
            }
        }
        Ok(fields)
    }
}

/// A JSON value, as far as pages have them.
enum PageValue {
    Unsigned(u64),
    Signed(i64),
    Text(String),
    Cells(Cells),
    Other,
}

impl<'de> Deserialize<'de> for PageValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ToldVisitor)
    }
}

struct ToldVisitor;

impl<'de> Visitor<'de> for ToldVisitor {
    type Value = PageValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_u64<E>(self, value: u64) -> Result<PageValue, E> {
        Ok(PageValue::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<PageValue, E> {
        Ok(u64::try_from(value).map_or(PageValue::Signed(value), PageValue::Unsigned))
    }

    fn visit_str<E>(self, text: &str) -> Result<PageValue, E> {
        Ok(PageValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<PageValue, A::Error> {
        let mut cells = Cells::Unsigned(Vec::new());
        while let Some(value) = values.next_element::<PageValue>()? {
            cells.push(value);
        }
        Ok(PageValue::Cells(cells))
    }

    fn visit_f64<E>(self, _: f64) -> Result<PageValue, E> {
        Ok(PageValue::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<PageValue, E> {
        Ok(PageValue::Other)
    }

    fn visit_unit<E>(self) -> Result<PageValue, E> {
        Ok(PageValue::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PageValue, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(PageValue::Other)
    }
}

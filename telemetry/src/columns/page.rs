//! A page of a table: columns as they were received, read row by row.
//!
//! Columns are parsed as vectors of numbers or strings, since most pages hold thousands of numbers.

use std::fmt;

use serde::de::value::{Error, MapDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use super::cells::{Cell, Cells, NextCell};
use crate::error::TelemetryError;

/// The schema of tables that this code reads.
pub(crate) const SCHEMA: u64 = 1;

/// More rows than any app has; bounds the work that a broken app can cause.
const MAX_ROWS: u64 = 1 << 16;

/// Suffix of a header field: the number of values in each list of a column.
const BUCKETS_SUFFIX: &str = "_buckets";

/// Prefix of columns with an independent length.
const SPARSE_PREFIX: &str = "caches_";

/// A page as it was received.
#[derive(Debug, Default)]
pub(crate) struct PageFields {
    /// `None` for a value that is not an unsigned integer.
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

/// A column with the same number of values for each row of its page.
#[derive(Debug)]
struct TableColumn {
    name: String,
    cells: Cells,
    /// Number of values of each row, if it has a list of them.
    list: Option<usize>,
}

impl PageFields {
    /// Returns a number of the header.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.header.iter().find(|(known, _)| known == name)?.1
    }

    fn required(&self, name: &str) -> Result<u64, TelemetryError> {
        let missing = || TelemetryError::Malformed(format!("a page without the number {name}"));
        self.number(name).ok_or_else(missing)
    }

    /// Returns the number of values of each row, if the column has lists; 0, which no list has, if it
    /// is not a number.
    fn buckets(&self, column: &str) -> Option<u64> {
        let is_of = |name: &str| name.strip_suffix(BUCKETS_SUFFIX) == Some(column);
        Some(self.header.iter().find(|(name, _)| is_of(name))?.1.unwrap_or(0))
    }

    /// Returns the number of rows on the page, if the header is consistent.
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
    /// Parses a page: checks the header and the length of every column.
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

    /// Returns the number of the row after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.next.unwrap_or(self.total)
    }

    pub(crate) fn rows<T: DeserializeOwned>(&self) -> Result<Vec<T>, TelemetryError> {
        let (columns, mut fields) = (self.columns.as_slice(), None);
        let row = |row: usize| {
            T::deserialize(RowCells { columns, row, fields: &mut fields }).map_err(malformed)
        };
        (0..self.rows).map(row).collect()
    }

    /// Returns the rows, parsed as `Row` and converted into samples.
    pub(crate) fn convert<Row, Sample>(&self) -> Result<Vec<Sample>, TelemetryError>
    where
        Row: DeserializeOwned,
        Sample: From<Row>,
    {
        Ok(self.rows::<Row>()?.into_iter().map(Sample::from).collect())
    }

    /// Returns the columns with an independent length, each as a list.
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

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn malformed(error: Error) -> TelemetryError {
    TelemetryError::Malformed(error.to_string())
}

/// Reads a row. The first row determines which columns hold the fields of its type: its columns are
/// read by name, so that a missing or duplicate field is an error.
struct RowCells<'a, 'f> {
    columns: &'a [TableColumn],
    row: usize,
    /// The columns of the fields, once they are known; `None` for an optional field without a column.
    fields: &'f mut Option<Vec<Option<&'a TableColumn>>>,
}

impl<'de> Deserializer<'de> for RowCells<'_, '_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Some(columns) = self.fields {
            let cells = columns.iter().map(|column| column.map(|column| column.cell(self.row)));
            return visitor.visit_seq(FieldCells(cells));
        }
        let column = |field: &&str| self.columns.iter().find(|column| column.name == *field);
        *self.fields = Some(fields.iter().map(column).collect());
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let cells = self.columns.iter();
        let cells = cells.map(|column| (column.name.as_str(), column.cell(self.row)));
        visitor.visit_map(MapDeserializer::new(cells))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The cells of a row for the fields of its type, in their order.
struct FieldCells<I>(I);

impl<'de, 'a, I: Iterator<Item = Option<Cell<'a>>>> SeqAccess<'de> for FieldCells<I> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        self.0.next().flatten().map(|cell| seed.deserialize(cell)).transpose()
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
        let mut numbers = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            match map.next_value_seed(ColumnVisitor { numbers: &mut numbers })? {
                PageValue::Cells(cells) => fields.columns.push((name, cells)),
                PageValue::Number(value) => fields.header.push((name, Some(value))),
                PageValue::Other => fields.header.push((name, None)),
            }
        }
        Ok(fields)
    }
}

/// A value of a page.
enum PageValue {
    /// An unsigned integer.
    Number(u64),
    Cells(Cells),
    Other,
}

/// Parses a value.
struct ColumnVisitor<'a> {
    /// Scratch buffer, which grows with the first column, so that each one becomes a vector of the
    /// right size.
    numbers: &'a mut Vec<u64>,
}

impl<'de> DeserializeSeed<'de> for ColumnVisitor<'_> {
    type Value = PageValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PageValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ColumnVisitor<'_> {
    type Value = PageValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_u64<E>(self, value: u64) -> Result<PageValue, E> {
        Ok(PageValue::Number(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<PageValue, E> {
        Ok(u64::try_from(value).map_or(PageValue::Other, PageValue::Number))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<PageValue, A::Error> {
        let mut cells = Cells::Unsigned(std::mem::take(self.numbers));
        while values.next_element_seed(NextCell(&mut cells))?.is_some() {}
        if let Cells::Unsigned(numbers) = &mut cells {
            let column = numbers.clone();
            *self.numbers = std::mem::replace(numbers, column);
            self.numbers.clear();
        }
        Ok(PageValue::Cells(cells))
    }

    fn visit_str<E>(self, _: &str) -> Result<PageValue, E> {
        Ok(PageValue::Other)
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

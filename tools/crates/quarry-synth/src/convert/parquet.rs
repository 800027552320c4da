// SPDX-License-Identifier: MIT
//! Tables for query engines: Parquet, compressed with Snappy, in groups of rows, so that memory is bounded.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::Error;
use super::rows::{Kind, Rows, Table, Value};

/// Rows of a group.
const GROUP: usize = if cfg!(test) { 1000 } else { 1 << 18 };

/// Columns whose numbers are rarely twice the same, but close to each other: written as differences.
const SPREAD: [&str; 10] = [
    "object",
    "birth",
    "birth_ns",
    "death",
    "death_ns",
    "lifetime",
    "lifetime_ns",
    "time_ns",
    "address",
    "old_address",
];

/// The rows of a group in one column; a level of 0 for each that is missing.
enum Column {
    Numbers { values: Vec<i64>, levels: Option<Vec<i16>> },
    Words { values: Vec<ByteArray>, levels: Vec<i16> },
}

impl Column {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Number => Column::Numbers { values: Vec::new(), levels: None },
            Kind::Maybe => Column::Numbers { values: Vec::new(), levels: Some(Vec::new()) },
            Kind::Text => Column::Words { values: Vec::new(), levels: Vec::new() },
        }
    }

    fn push(&mut self, value: &Value) {
        match self {
            Column::Numbers { values, levels } => {
                let number = if let Value::Number(number) = value { Some(*number) } else { None };
                if let Some(levels) = levels {
                    levels.push(i16::from(number.is_some()));
                }
                // Query engines calculate with signs; what has 64 bits is no size of a block.
                let signed = number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
                values.extend(if levels.is_some() { signed } else { Some(signed.unwrap_or(0)) });
            }
            Column::Words { values, levels } => {
                let word = match value {
                    Value::Word(word) => Some(ByteArray::from(*word)),
                    Value::Text(text) => Some(ByteArray::from(text.as_str())),
                    Value::Null | Value::Number(_) => None,
                };
                levels.push(i16::from(word.is_some()));
                values.extend(word);
            }
        }
    }

    fn clear(&mut self) {
        match self {
            Column::Numbers { values, levels } => {
                values.clear();
                levels.iter_mut().for_each(Vec::clear);
            }
            Column::Words { values, levels } => {
                values.clear();
                levels.clear();
            }
        }
    }
}

fn failed(error: ParquetError) -> Error {
    match error {
        ParquetError::External(error) => Error::Write(std::io::Error::other(error)),
        other => Error::Write(std::io::Error::other(other)),
    }
}

/// Writes a table.
pub struct ParquetTable<W: Write + Send> {
    /// `None` after the end.
    writer: Option<SerializedFileWriter<W>>,
    columns: Vec<Column>,
    rows: usize,
}

impl<W: Write + Send> ParquetTable<W> {
    /// Begin to write.
    pub fn new(output: W, rows: Rows) -> Result<Self, Error> {
        let mut schema = format!("message {} {{", if rows == Rows::Events { "events" } else { "objects" });
        for (name, kind) in rows.columns() {
            schema += &match kind {
                Kind::Number => format!("REQUIRED INT64 {name};"),
                Kind::Maybe => format!("OPTIONAL INT64 {name};"),
                Kind::Text => format!("OPTIONAL BYTE_ARRAY {name} (STRING);"),
            };
        }
        let schema = parse_message_type(&(schema + "}")).map_err(failed)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("quarry ", env!("CARGO_PKG_VERSION")).into());
        for name in SPREAD {
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(name), false)
                .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
        }
        let properties = properties.build();
        let writer =
            SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
        let columns = rows.columns().iter().map(|&(_, kind)| Column::new(kind)).collect();
        Ok(Self { writer: Some(writer), columns, rows: 0 })
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut group = writer.next_row_group().map_err(failed)?;
        for column in &mut self.columns {
            let Some(mut place) = group.next_column().map_err(failed)? else { break };
            match (&*column, place.untyped()) {
                (Column::Numbers { values, levels }, ColumnWriter::Int64ColumnWriter(to)) => {
                    to.write_batch(values, levels.as_deref(), None)
                }
                (Column::Words { values, levels }, ColumnWriter::ByteArrayColumnWriter(to)) => {
                    to.write_batch(values, Some(levels), None)
                }
                _ => unreachable!("the schema is made of the same list as the columns"),
            }
            .map_err(failed)?;
            place.close().map_err(failed)?;
            column.clear();
        }
        group.close().map_err(failed)?;
        Ok(())
    }
}

impl<W: Write + Send> Table for ParquetTable<W> {
    fn row(&mut self, row: &[Value]) -> Result<(), Error> {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value);
        }
        self.rows += 1;
        if self.rows == GROUP { self.flush() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.writer.take().map_or(Ok(()), |writer| writer.close().map(drop)).map_err(failed)
    }
}

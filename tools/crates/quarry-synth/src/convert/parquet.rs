// SPDX-License-Identifier: MIT
//! Tables for query engines: Parquet, compressed with Snappy, in groups of rows, so that memory is bounded.
//!
//! A file is `PAR1`, the columns of each group, what describes them, its length, and `PAR1`. A column of a group is
//! a page with its dictionary, if it has one, and pages of values. <https://parquet.apache.org/docs/file-format/>

mod column;
mod encode;
mod thrift;

use std::io::{self, Write};

use super::Error;
use super::rows::{Kind, Rows, Table, Value};
use column::{Column, Page};
use thrift::Struct;

/// Rows of a group.
const GROUP: usize = if cfg!(test) { 1000 } else { 1 << 18 };
/// A group ends before that as soon as its texts have as many bytes.
const GROUP_TEXTS: usize = if cfg!(test) { 10_000 } else { 64 << 20 };

const MAGIC: &[u8] = b"PAR1";
const INT64: i32 = 2;
const BYTE_ARRAY: i32 = 6;
const REQUIRED: i32 = 0;
const OPTIONAL: i32 = 1;
const UTF8: i32 = 0;
const SNAPPY: i32 = 1;
/// The encoding of levels: whether a value is there.
const RLE: i32 = 3;
const DATA_PAGE: i32 = 0;
const DICTIONARY_PAGE: i32 = 2;

/// Where a column of a group lies in the file, and what is in it.
struct Chunk {
    encodings: Vec<i32>,
    values: i64,
    nulls: i64,
    range: Option<(i64, i64)>,
    dictionary: Option<i64>,
    data: i64,
    uncompressed: i64,
    compressed: i64,
}

struct Group {
    rows: i64,
    chunks: Vec<Chunk>,
}

/// Writes a table.
pub struct ParquetTable<W: Write> {
    output: W,
    /// Bytes so far.
    at: i64,
    rows: Rows,
    columns: Vec<Column>,
    groups: Vec<Group>,
    /// Of the group that has begun.
    held: usize,
    texts: usize,
}

fn too_large() -> Error {
    Error::Write(io::Error::other("too large for Parquet"))
}

fn short(number: usize) -> Result<i32, Error> {
    i32::try_from(number).map_err(|_| too_large())
}

fn long(number: usize) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| too_large())
}

impl<W: Write> ParquetTable<W> {
    /// Begin to write.
    pub fn new(output: W, rows: Rows) -> Result<Self, Error> {
        let columns = rows.columns().iter().map(|&(name, kind)| Column::new(name, kind)).collect();
        let mut table = Self { output, at: 0, rows, columns, groups: Vec::new(), held: 0, texts: 0 };
        table.write(MAGIC)?;
        Ok(table)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.output.write_all(bytes).map_err(Error::Write)?;
        self.at += long(bytes.len())?;
        Ok(())
    }

    /// A page, behind what says how long it is.
    fn page(&mut self, page: &Page, chunk: &mut Chunk) -> Result<(), Error> {
        let packed = snap::raw::Encoder::new()
            .compress_vec(&page.bytes)
            .map_err(|error| Error::Write(error.into()))?;
        let (before, after, values) = (short(page.bytes.len())?, short(packed.len())?, short(page.values)?);
        let mut head = Vec::new();
        Struct::write(&mut head, |header| {
            header.i32(1, if page.is_dictionary { DICTIONARY_PAGE } else { DATA_PAGE });
            header.i32(2, before);
            header.i32(3, after);
            header.within(if page.is_dictionary { 7 } else { 5 }, |what| {
                what.i32(1, values);
                what.i32(2, page.encoding);
                if !page.is_dictionary {
                    what.i32(3, RLE);
                    what.i32(4, RLE);
                }
            });
        });
        if page.is_dictionary {
            chunk.dictionary = Some(self.at);
        } else if chunk.data == 0 {
            chunk.data = self.at;
        }
        for encoding in [page.encoding, RLE] {
            if !chunk.encodings.contains(&encoding) {
                chunk.encodings.push(encoding);
            }
        }
        chunk.uncompressed += long(head.len() + page.bytes.len())?;
        chunk.compressed += long(head.len() + packed.len())?;
        self.write(&head)?;
        self.write(&packed)
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.held == 0 {
            return Ok(());
        }
        let mut group = Group { rows: long(self.held)?, chunks: Vec::new() };
        let mut columns = std::mem::take(&mut self.columns);
        for column in &mut columns {
            let mut chunk = Chunk {
                encodings: Vec::new(),
                values: group.rows,
                nulls: long(column.nulls())?,
                range: column.range(),
                dictionary: None,
                data: 0,
                uncompressed: 0,
                compressed: 0,
            };
            for page in column.pages(self.held) {
                self.page(&page, &mut chunk)?;
            }
            group.chunks.push(chunk);
            column.clear();
        }
        self.columns = columns;
        self.groups.push(group);
        (self.held, self.texts) = (0, 0);
        Ok(())
    }

    /// What describes the file.
    fn footer(&self) -> Vec<u8> {
        let columns = self.rows.columns();
        let mut to = Vec::new();
        Struct::write(&mut to, |file| {
            file.i32(1, 1);
            // The list is the tree of columns, depth first; the root has no type.
            let tree: Vec<_> = std::iter::once(None).chain(columns.iter().map(Some)).collect();
            file.structs(2, &tree, |node, of| match node {
                None => {
                    of.bytes(4, if self.rows == Rows::Events { b"events" } else { b"objects" });
                    of.i32(5, i32::try_from(columns.len()).unwrap_or(i32::MAX));
                }
                Some((name, kind)) => {
                    of.i32(1, if *kind == Kind::Text { BYTE_ARRAY } else { INT64 });
                    of.i32(3, if *kind == Kind::Number { REQUIRED } else { OPTIONAL });
                    of.bytes(4, name.as_bytes());
                    if *kind == Kind::Text {
                        of.i32(6, UTF8);
                        of.within(10, |logical| logical.within(1, |_| ()));
                    }
                }
            });
            file.i64(3, self.groups.iter().map(|group| group.rows).sum());
            file.structs(4, &self.groups, |group, of| {
                let chunks: Vec<_> = group.chunks.iter().zip(columns).collect();
                of.structs(1, &chunks, |(chunk, column), of| chunk.describe(column.0, column.1, of));
                of.i64(2, group.chunks.iter().map(|chunk| chunk.uncompressed).sum());
                of.i64(3, group.rows);
            });
            file.bytes(6, concat!("quarry ", env!("CARGO_PKG_VERSION")).as_bytes());
            // The order of least and largest is that of the type.
            file.structs(7, columns, |_, order| order.within(1, |_| ()));
        });
        to
    }
}

impl Chunk {
    fn describe(&self, name: &str, kind: Kind, of: &mut Struct) {
        of.i64(2, self.dictionary.unwrap_or(self.data));
        of.within(3, |of| {
            of.i32(1, if kind == Kind::Text { BYTE_ARRAY } else { INT64 });
            of.i32s(2, &self.encodings);
            of.texts(3, &[name]);
            of.i32(4, SNAPPY);
            of.i64(5, self.values);
            of.i64(6, self.uncompressed);
            of.i64(7, self.compressed);
            of.i64(9, self.data);
            if let Some(dictionary) = self.dictionary {
                of.i64(11, dictionary);
            }
            of.within(12, |statistics| {
                statistics.i64(3, self.nulls);
                if let Some((least, largest)) = self.range {
                    statistics.bytes(5, &largest.to_le_bytes());
                    statistics.bytes(6, &least.to_le_bytes());
                }
            });
        });
    }
}

impl<W: Write> Table for ParquetTable<W> {
    fn row(&mut self, row: &[Value]) -> Result<(), Error> {
        for (column, value) in self.columns.iter_mut().zip(row) {
            self.texts += column.push(value);
        }
        self.held += 1;
        if self.held == GROUP || self.texts >= GROUP_TEXTS { self.flush() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.flush()?;
        let footer = self.footer();
        let length = u32::try_from(footer.len()).map_err(|_| too_large())?;
        self.write(&footer)?;
        self.write(&length.to_le_bytes())?;
        self.write(MAGIC)?;
        self.output.flush().map_err(Error::Write)
    }
}

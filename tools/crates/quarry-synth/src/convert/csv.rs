// SPDX-License-Identifier: MIT
//! Tables as text: commas, a line of names first, quotes where they are needed (RFC 4180). Addresses are decimal, as
//! all numbers; what is missing is empty.

use std::io::Write;

use super::Error;
use super::rows::{Rows, Table, Value};

/// What tables begin with: of events, and of objects.
pub const FIRST: [&str; 2] = ["time_ns,thread,op,", "object,part,size,"];

/// Writes a table.
pub struct CsvTable<W: Write> {
    output: W,
    line: String,
}

impl<W: Write> CsvTable<W> {
    /// Write the names of the columns.
    pub fn new(mut output: W, rows: Rows) -> Result<Self, Error> {
        let names: Vec<&str> = rows.columns().iter().map(|(name, _)| *name).collect();
        writeln!(output, "{}", names.join(",")).map_err(Error::Write)?;
        Ok(Self { output, line: String::new() })
    }
}

impl<W: Write> Table for CsvTable<W> {
    fn row(&mut self, row: &[Value]) -> Result<(), Error> {
        use std::fmt::Write as _;
        self.line.clear();
        for (index, value) in row.iter().enumerate() {
            if index > 0 {
                self.line.push(',');
            }
            match value {
                Value::Null => {}
                Value::Number(number) => {
                    // Writing to a string cannot fail.
                    let _ = write!(self.line, "{number}");
                }
                Value::Word(word) => self.line.push_str(word),
                Value::Text(text) => quote(text, &mut self.line),
            }
        }
        self.line.push('\n');
        self.output.write_all(self.line.as_bytes()).map_err(Error::Write)
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.output.flush().map_err(Error::Write)
    }
}

/// A text that may have anything in it. An empty one is quoted, to tell it from what is missing.
fn quote(text: &str, to: &mut String) {
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        to.push_str(text);
        return;
    }
    to.push('"');
    for c in text.chars() {
        if c == '"' {
            to.push('"');
        }
        to.push(c);
    }
    to.push('"');
}

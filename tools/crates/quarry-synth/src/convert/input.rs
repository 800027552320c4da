// SPDX-License-Identifier: MIT
//! Input that is not trusted: unpacked where it is packed, in lines of bounded length where it is text.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

use super::Error;

/// No line may be longer.
pub const LINE: usize = 16 << 20;

/// So much is looked at to tell the format.
const BEGIN: usize = 4096;

const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const GZIP: [u8; 2] = [0x1F, 0x8B];

/// Counts the bytes that were read.
struct Counted<R> {
    input: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.bytes.set(self.bytes.get() + n as u64);
        Ok(n)
    }
}

/// Packed data that ends early ends there; that it does is noted.
struct Forgiving<R> {
    input: R,
    cut: Rc<Cell<bool>>,
}

impl<R: Read> Read for Forgiving<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cut.get() {
            return Ok(0);
        }
        self.input.read(buffer).or_else(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                self.cut.set(true);
                Ok(0)
            }
            _ => Err(error),
        })
    }
}

/// An input, unpacked where it is packed.
pub struct Input {
    reader: Box<dyn BufRead>,
    begin: Vec<u8>,
    bytes: Rc<Cell<u64>>,
    cut: Rc<Cell<bool>>,
    length: u64,
    packed: &'static str,
}

impl Input {
    /// `length`: bytes of the input, 0 if not known.
    pub fn new(input: impl Read + 'static, length: u64) -> Result<Self, Error> {
        let (bytes, cut) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let mut input = Counted { input, bytes: bytes.clone() };
        let mark = up_to(&mut input, ZSTD.len())?;
        let (zstd, gzip) = (mark.starts_with(&ZSTD), mark.starts_with(&GZIP));
        let plain = BufReader::with_capacity(1 << 16, Cursor::new(mark).chain(input));
        let (mut reader, packed): (Box<dyn Read>, _) = if zstd {
            let input = zstd::Decoder::with_buffer(plain).map_err(Error::Read)?;
            (Box::new(Forgiving { input, cut: cut.clone() }), "zstd")
        } else if gzip {
            let input = flate2::bufread::MultiGzDecoder::new(plain);
            (Box::new(Forgiving { input, cut: cut.clone() }), "gzip")
        } else {
            (Box::new(plain), "")
        };
        let begin = up_to(&mut reader, BEGIN)?;
        let again = Cursor::new(begin.clone()).chain(reader);
        let reader = Box::new(BufReader::with_capacity(1 << 16, again));
        Ok(Self { reader, begin, bytes, cut, length, packed })
    }

    /// The first bytes, unpacked: 4096, or fewer if there are no more.
    pub fn begin(&self) -> &[u8] {
        &self.begin
    }

    /// "gzip", "zstd", or nothing.
    pub fn packed(&self) -> &'static str {
        self.packed
    }

    /// Bytes that were read, packed as they are.
    pub fn done(&self) -> u64 {
        self.bytes.get()
    }

    /// Bytes there are; 0: not known.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Did packed data end early?
    pub fn is_cut(&self) -> bool {
        self.cut.get()
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// So many bytes, or as many as there are.
fn up_to(input: &mut impl Read, most: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    input.take(most as u64).read_to_end(&mut bytes).map_err(Error::Read)?;
    Ok(bytes)
}

/// Reads an input line by line.
pub struct Lines {
    input: Input,
    line: Vec<u8>,
    number: u64,
    /// Did the last line end with a newline?
    whole: bool,
    /// The line at which the file was cut.
    cut: Option<u64>,
}

impl Lines {
    /// Begin.
    pub fn new(input: Input) -> Self {
        Self { input, line: Vec::new(), number: 0, whole: true, cut: None }
    }

    /// Go to the next line; is there one?
    pub fn advance(&mut self) -> Result<bool, Error> {
        self.line.clear();
        let read = (&mut self.input.reader).take(LINE as u64 + 1).read_until(b'\n', &mut self.line);
        let read = read.map_err(Error::Read)?;
        if read == 0 {
            if self.input.is_cut() && self.cut.is_none() {
                self.cut = Some(self.number);
            }
            return Ok(false);
        }
        self.number += 1;
        self.whole = self.line.last() == Some(&b'\n');
        if self.line.len() > LINE {
            return Err(Error::line(
                self.number,
                format!("longer than {LINE} bytes; this is no text format"),
            ));
        }
        while let Some(b'\n' | b'\r') = self.line.last() {
            self.line.pop();
        }
        Ok(true)
    }

    /// The line, without its end.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// The same, to be taken and put back.
    pub(super) fn line_mut(&mut self) -> &mut Vec<u8> {
        &mut self.line
    }

    /// Its number, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The line makes no sense. If it is the last one, and has no newline, the file was cut off in it, and that is no
    /// error: `Ok`. `what` says what is wrong with it else.
    pub fn refuse(&mut self, what: impl Into<String>) -> Result<(), Error> {
        if self.whole {
            return Err(Error::line(self.number, what));
        }
        self.cut = Some(self.number);
        Ok(())
    }

    /// What is to be said about the end of the file.
    pub fn remarks(&self) -> Vec<String> {
        self.cut.map(cut_off).into_iter().collect()
    }

    /// Was the file cut off?
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// The input.
    pub fn input(&self) -> &Input {
        &self.input
    }
}

/// What is said of a file that was cut off.
pub fn cut_off(line: u64) -> String {
    format!("the file was cut off in or behind line {line}; what stands before was used")
}

/// A word as a message shows it.
pub fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 60;
    let text: String =
        bytes.iter().take(MOST).copied().flat_map(std::ascii::escape_default).map(char::from).collect();
    if bytes.len() > MOST { text + "..." } else { text }
}

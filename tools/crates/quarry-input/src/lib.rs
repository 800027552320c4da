// SPDX-License-Identifier: MIT
//! Files as users have them: packed or not, in UTF-8 or UTF-16, named by a path or `-`, regular files, pipes and sockets.
//!
//! [`Input`] is a stream of unpacked bytes. [`Input::into_file`] makes a regular file of it, for readers that go back
//! and forth. Nothing that is read is trusted: packed data that ends early ends there, and [`Input::is_cut`] says so.

#![deny(unsafe_code)]

mod open;
mod packing;
mod spool;
mod utf16;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use packing::Packing;
use quarry_measure::descriptor;

/// So much is looked at to tell what an input is.
const BEGIN: usize = 4096;
/// An archive in an archive in an archive; nobody has more.
const LAYERS: usize = 3;
const BUFFER: usize = 1 << 16;

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
    /// The input itself, where it is a regular file that can be read as it is.
    file: Option<File>,
    modified: Option<SystemTime>,
}

impl Input {
    /// Open a path; `-` is standard input. A pipe waits for its writer, and any signal may end that.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (reader, file, length) = open::open(path)?;
        let mut input = Self::new(reader, length)?;
        let stdin = || descriptor::duplicate(0).and_then(|stdin| File::from(stdin).metadata()).ok();
        let about = match &file {
            Some(file) => file.metadata().ok(),
            // A pipe has a time, which is that of its last byte.
            None if path == Path::new("-") => stdin().filter(|about| about.is_file()),
            None => None,
        };
        input.modified = about.and_then(|about| about.modified().ok());
        input.file = file.filter(|_| input.packed.is_empty());
        Ok(input)
    }

    /// The same of anything that can be read. `length`: bytes of the input, 0 if not known.
    pub fn new(input: impl Read + 'static, length: u64) -> io::Result<Self> {
        let (bytes, cut) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let mut reader: Box<dyn Read> = Box::new(Counted { input, bytes: bytes.clone() });
        let mut packed = "";
        for _ in 0..LAYERS {
            let mark = up_to(&mut reader, Packing::MARK)?;
            let packing = Packing::of(&mark);
            let plain = BufReader::with_capacity(BUFFER, Cursor::new(mark).chain(reader));
            let Some(packing) = packing else {
                reader = Box::new(plain);
                break;
            };
            packed = if packed.is_empty() { packing.name() } else { packed };
            reader = Box::new(Forgiving { input: packing.unpacked(plain)?, cut: cut.clone() });
        }
        let begin = up_to(&mut reader, BEGIN)?;
        let again = Cursor::new(begin.clone()).chain(reader);
        let reader = Box::new(BufReader::with_capacity(BUFFER, again));
        Ok(Self { reader, begin, bytes, cut, length, packed, file: None, modified: None })
    }

    /// The first bytes, unpacked: 4096, or fewer if there are no more.
    pub fn begin(&self) -> &[u8] {
        &self.begin
    }

    /// How it was packed: "gzip", "zstd", "xz", "lz4", "UTF-16", or nothing.
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

    /// Was it opened as a regular file that can be read at any place?
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// When a file was changed last; `None`: it is none, or that is not known.
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// A regular file of the same bytes: the input itself, or a copy without a name. True: packed data ended early.
    pub fn into_file(mut self) -> io::Result<(File, bool)> {
        match self.file.take() {
            Some(mut file) => {
                file.rewind()?;
                Ok((file, false))
            }
            None => Ok((spool::copy(&mut self.reader)?, self.cut.get())),
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }
}

/// What a path has, as it is: packed where it is packed.
pub fn raw(path: &Path) -> io::Result<Box<dyn Read>> {
    open::open(path).map(|(reader, ..)| reader)
}

/// What messages call a path: `-` is standard input.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") { String::from("standard input") } else { path.display().to_string() }
}

/// The next `most` bytes, or fewer if the input ends.
fn up_to(input: &mut impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: MIT
//! The allocation simulation file, `.ms`: a list of commands on numbered slots.
//!
//! | command | meaning |
//! |---|---|
//! | `i=n` | slot i gets n bytes: malloc if it is empty, else realloc |
//! | `i` | slot i is freed, and empty from then on; an empty one is free(NULL) |
//! | `s` | the statistics function is called; any word that begins with s says so |
//! | `e` | the end, at the first letter e wherever it stands |
//!
//! Words are separated by white space, by `=` and by zero bytes. Every file that the original simulator runs
//! without undefined behaviour means the same here, with the exceptions below. What follows from its way of
//! reading is kept, since files may rely on it: empty words do not count, so `3= 5` is `3=5`, and in `3 =5` two
//! slots are freed; `=` only notes the slot for the next number, so `3=s 5` is `s` and then `3=5`, and `3=5=7` is
//! `5=7`; a word that an e cuts short does not count.
//!
//! On purpose different from the original:
//! - the last command counts without a separator behind it (the original drops it);
//! - a zero byte is a separator (the original skips the rest of the 256 bytes it has just read);
//! - tab and carriage return are white space (there they are parts of numbers, and an empty line with a carriage
//!   return frees slot 0);
//! - sizes have 64 bits (there 32 with a sign), and words may have any length (there 79 bytes, without a check);
//! - slots above 4095 are refused, or allowed with [`Options::wide`] (there they are memory beyond the table);
//! - what is not a number is refused (there it is as much of a number as it begins with, or 0), and so is a file
//!   that ends after `=`.

use std::io::{self, Read, Write};

use thiserror::Error;

/// Slots of a plain file: 0 to 4095.
pub const SLOTS: u32 = 4096;

/// Slots of a wide file. A table of pointers for all of them has 512 MiB.
pub const WIDE_SLOTS: u32 = 1 << 26;

/// Commands that the writer puts on a line.
const PER_LINE: u32 = 8;

/// One command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// malloc if the slot is empty, else realloc.
    Alloc {
        /// which
        slot: u32,
        /// bytes
        size: u64,
    },
    /// free; the slot is empty from then on.
    Free {
        /// which
        slot: u32,
    },
    /// The statistics function is called.
    Stats,
    /// The file ends here, whatever follows.
    End,
}

/// How to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Slots up to [`WIDE_SLOTS`] instead of [`SLOTS`].
    pub wide: bool,
}

impl Options {
    fn slots(self) -> u32 {
        if self.wide { WIDE_SLOTS } else { SLOTS }
    }
}

/// Why a file cannot be read.
#[derive(Debug, Error)]
#[error("line {line}, column {column}: {what}")]
pub struct MsError {
    /// From 1.
    pub line: u64,
    /// In bytes, from 1: where the word begins.
    pub column: u64,
    /// What is wrong there.
    pub what: What,
}

/// What is wrong, and what to do about it.
#[derive(Debug, Error)]
pub enum What {
    /// A word that is neither a number nor begins with s or e.
    #[error("'{0}' is no command: commands are SLOT=SIZE, SLOT, s and e, with decimal numbers")]
    Word(String),
    /// A size that has more than 64 bits.
    #[error("the size {0} has more than 64 bits")]
    Size(String),
    /// A slot that a plain file cannot have.
    #[error("slot {0} is above {max}: renumber the slots, or say --wide to allow up to {wide}",
            max = SLOTS - 1, wide = WIDE_SLOTS - 1)]
    Slot(String),
    /// A slot that not even a wide file can have.
    #[error("slot {0} is above {max}: renumber the slots", max = WIDE_SLOTS - 1)]
    WideSlot(String),
    /// `3=` and then the end of the file.
    #[error("the file ends before the size of slot {0}: was it cut off?")]
    NoSize(u32),
    /// The file cannot be read.
    #[error("cannot read any further: {0}")]
    Io(#[from] io::Error),
}

/// Read a whole file. For files that may be large use [`Reader`].
pub fn parse(reader: impl Read) -> Result<Vec<Command>, MsError> {
    Reader::new(reader, Options::default()).collect()
}

/// The same with options.
pub fn parse_with(reader: impl Read, options: Options) -> Result<Vec<Command>, MsError> {
    Reader::new(reader, options).collect()
}

const BUFFER: usize = 64 * 1024;

/// So much of a word is kept for its error message.
const KEPT: usize = 40;

/// Where a byte stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    line: u64,
    column: u64,
}

/// The word that is being read: its value as far as it is a number, and what it begins with.
#[derive(Debug, Default)]
struct Word {
    begin: Vec<u8>,
    length: u64,
    /// `None`: more than 64 bits.
    value: Option<u64>,
    number: bool,
}

impl Word {
    fn clear(&mut self) {
        self.begin.clear();
        self.length = 0;
        self.value = Some(0);
        self.number = true;
    }

    fn push(&mut self, byte: u8) {
        self.length += 1;
        if self.begin.len() < KEPT {
            self.begin.push(byte);
        }
        let digit = u64::from(byte.wrapping_sub(b'0'));
        self.number &= digit < 10;
        if self.number {
            self.value = self.value.and_then(|value| value.checked_mul(10)?.checked_add(digit));
        }
    }

    fn is_stats(&self) -> bool {
        self.begin.first() == Some(&b's')
    }

    fn text(&self) -> String {
        let text: String = self.begin.escape_ascii().map(char::from).collect();
        if self.length > KEPT as u64 { text + "..." } else { text }
    }
}

/// Reads commands one by one, in bounded memory. Ends after [`Command::End`] and after an error.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    slots: u32,
    buffer: Vec<u8>,
    /// What is not yet used of the buffer: `at..end`.
    at: usize,
    end: usize,
    /// Of the byte that comes next.
    place: Place,
    /// Of the word's first byte.
    began: Place,
    word: Word,
    /// The slot before a `=`, and where it stands.
    slot: Option<(u32, Place)>,
    bytes: u64,
    done: bool,
    /// Was all of the input read?
    at_end: bool,
}

impl<R: Read> Reader<R> {
    /// Begin to read.
    pub fn new(input: R, options: Options) -> Self {
        let start = Place { line: 1, column: 1 };
        let mut word = Word::default();
        word.clear();
        Self {
            input,
            slots: options.slots(),
            buffer: vec![0; BUFFER],
            at: 0,
            end: 0,
            place: start,
            began: start,
            word,
            slot: None,
            bytes: 0,
            done: false,
            at_end: false,
        }
    }

    /// Bytes used so far.
    pub fn offset(&self) -> u64 {
        self.bytes
    }

    /// The line of what comes next, from 1.
    pub fn line(&self) -> u64 {
        self.place.line
    }

    /// The input.
    pub fn input(&self) -> &R {
        &self.input
    }

    /// Was all of the input read, not only up to an e or an error?
    pub fn at_end(&self) -> bool {
        self.at_end
    }

    /// The next command; `None` at the end.
    pub fn next_command(&mut self) -> Result<Option<Command>, MsError> {
        while !self.done {
            let Some(byte) = self.byte()? else {
                (self.done, self.at_end) = (true, true);
                return self.last();
            };
            let here = self.advance(byte);
            match byte {
                b'e' => {
                    self.done = true;
                    return Ok(Some(Command::End));
                }
                b' ' | b'\n' | b'\t' | b'\r' | 0 | b'=' => {
                    if let Some(command) = self.word_ends(byte == b'=')? {
                        return Ok(Some(command));
                    }
                }
                _ => {
                    if self.word.length == 0 {
                        self.began = here;
                    }
                    self.word.push(byte);
                }
            }
        }
        Ok(None)
    }

    /// The next byte.
    fn byte(&mut self) -> Result<Option<u8>, MsError> {
        while self.at == self.end {
            match self.input.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(n) => (self.at, self.end) = (0, n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail(self.place, error.into())),
            }
        }
        Ok(Some(self.buffer[self.at]))
    }

    /// Step over this byte; where it stands.
    fn advance(&mut self, byte: u8) -> Place {
        let here = self.place;
        self.at += 1;
        self.bytes += 1;
        self.place = if byte == b'\n' {
            Place { line: here.line + 1, column: 1 }
        } else {
            Place { column: here.column + 1, ..here }
        };
        here
    }

    /// A separator stands here: what the word before it means.
    fn word_ends(&mut self, equals: bool) -> Result<Option<Command>, MsError> {
        if self.word.length == 0 {
            return Ok(None);
        }
        let command = if self.word.is_stats() {
            Some(Command::Stats)
        } else if equals {
            self.slot = Some((self.slot_of_word()?, self.began));
            None
        } else {
            Some(match self.slot.take() {
                Some((slot, _)) => Command::Alloc { slot, size: self.size_of_word()? },
                None => Command::Free { slot: self.slot_of_word()? },
            })
        };
        self.word.clear();
        Ok(command)
    }

    /// The file ends here.
    fn last(&mut self) -> Result<Option<Command>, MsError> {
        let command = self.word_ends(false)?;
        match self.slot {
            // Only `s` leaves a slot waiting when it becomes a command, as in `3=s`.
            Some((slot, place)) => Err(self.fail(place, What::NoSize(slot))),
            None => Ok(command),
        }
    }

    fn slot_of_word(&mut self) -> Result<u32, MsError> {
        let text = || self.word.text();
        let what = match self.word.value {
            _ if !self.word.number => What::Word(text()),
            Some(slot) if slot < u64::from(self.slots) => return Ok(slot as u32),
            Some(slot) if slot < u64::from(WIDE_SLOTS) => What::Slot(text()),
            _ => What::WideSlot(text()),
        };
        Err(self.fail(self.began, what))
    }

    fn size_of_word(&mut self) -> Result<u64, MsError> {
        match self.word.value {
            _ if !self.word.number => Err(self.fail(self.began, What::Word(self.word.text()))),
            Some(size) => Ok(size),
            None => Err(self.fail(self.began, What::Size(self.word.text()))),
        }
    }

    fn fail(&mut self, place: Place, what: What) -> MsError {
        self.done = true;
        MsError { line: place.line, column: place.column, what }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Command, MsError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_command().transpose()
    }
}

/// Writes commands, eight on a line. The caller buffers the output.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: W,
    on_line: u32,
}

impl<W: Write> Writer<W> {
    /// Begin to write.
    pub fn new(output: W) -> Self {
        Self { output, on_line: 0 }
    }

    /// Write a command.
    pub fn command(&mut self, command: Command) -> io::Result<()> {
        if self.on_line > 0 {
            self.output.write_all(if self.on_line == PER_LINE { b"\n" } else { b" " })?;
            self.on_line %= PER_LINE;
        }
        self.on_line += 1;
        match command {
            Command::Alloc { slot, size } => write!(self.output, "{slot}={size}"),
            Command::Free { slot } => write!(self.output, "{slot}"),
            Command::Stats => self.output.write_all(b"s"),
            Command::End => self.output.write_all(b"e"),
        }
    }

    /// End the last line and give the output back.
    pub fn finish(mut self) -> io::Result<W> {
        if self.on_line > 0 {
            self.output.write_all(b"\n")?;
        }
        self.output.flush()?;
        Ok(self.output)
    }
}

#[cfg(test)]
#[path = "ms_tests.rs"]
mod tests;

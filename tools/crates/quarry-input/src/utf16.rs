// SPDX-License-Identifier: MIT
//! Text in UTF-16, as a Windows shell writes the output of a command to a file, becomes UTF-8.

use std::io::{self, Read};

/// Which byte of two comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

/// Reads UTF-16 and gives UTF-8. Halves of pairs that stand alone become U+FFFD.
pub(crate) struct Reader<R> {
    input: R,
    order: Order,
    /// Bytes of a unit, or of a pair of units, that is not whole yet.
    rest: Vec<u8>,
    text: Vec<u8>,
    at: usize,
    ended: bool,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R, order: Order) -> Self {
        Self { input, order, rest: Vec::new(), text: Vec::new(), at: 0, ended: false }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        let n = self.input.read(&mut buffer)?;
        self.ended = n == 0;
        self.rest.extend_from_slice(&buffer[..n]);
        let unit = |pair: &[u8]| match self.order {
            Order::Little => u16::from_le_bytes([pair[0], pair[1]]),
            Order::Big => u16::from_be_bytes([pair[0], pair[1]]),
        };
        let mut units: Vec<u16> = self.rest.chunks_exact(2).map(unit).collect();
        // The second half of a pair may be still to come.
        let waits = |last: &u16| (0xD800..0xDC00).contains(last) && !self.ended;
        if units.last().is_some_and(waits) {
            units.pop();
        }
        self.rest.drain(..units.len() * 2);
        (self.text, self.at) = (Vec::new(), 0);
        for letter in char::decode_utf16(units) {
            let letter = letter.unwrap_or(char::REPLACEMENT_CHARACTER);
            // The mark of the order of bytes.
            if letter != '\u{FEFF}' {
                self.text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        if self.ended && !std::mem::take(&mut self.rest).is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.text.len() && !self.ended {
            self.fill()?;
        }
        let n = buffer.len().min(self.text.len() - self.at);
        buffer[..n].copy_from_slice(&self.text[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

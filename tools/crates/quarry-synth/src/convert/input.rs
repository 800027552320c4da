// SPDX-License-Identifier: MIT
//! Text that is not trusted, in lines of bounded length.

use std::collections::VecDeque;
use std::io::{BufRead, Read};

pub use quarry_input::Input;

use super::Error;

/// Of files from old editors, or after `tr`.
const RETURNS: &str = "its lines end with a carriage return alone; tr '\\r' '\\n' makes newlines of them";

/// No line may be longer.
pub const LINE: usize = 16 << 20;

/// Reads an input line by line.
pub struct Lines {
    input: Input,
    line: Vec<u8>,
    number: u64,
    /// Did the last line end with a newline?
    whole: bool,
    /// The line at which the file was cut.
    cut: Option<u64>,
    /// The line at which another file begins.
    another: Option<u64>,
    /// Lines that were read and come once more.
    again: VecDeque<Taken>,
}

/// A line, and whether it ended with a newline.
pub(super) type Taken = (Vec<u8>, bool);

impl Lines {
    /// Begin.
    pub fn new(input: Input) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
            whole: true,
            cut: None,
            another: None,
            again: VecDeque::new(),
        }
    }

    /// Go to the next line; is there one?
    pub fn advance(&mut self) -> Result<bool, Error> {
        if self.another.is_some() {
            return Ok(false);
        }
        if let Some((line, whole)) = self.again.pop_front() {
            (self.line, self.whole) = (line, whole);
            self.number += 1;
            return Ok(true);
        }
        self.line.clear();
        let read = (&mut self.input).take(LINE as u64 + 1).read_until(b'\n', &mut self.line);
        let read = read.map_err(Error::Read)?;
        if read == 0 {
            if self.input.is_cut() && self.cut.is_none() {
                self.cut = Some(self.number);
            }
            return Ok(false);
        }
        self.number += 1;
        self.whole = self.line.last() == Some(&b'\n');
        // One file has lines of one kind, so that the first one tells.
        if self.number == 1 && self.line.trim_ascii_end().contains(&b'\r') {
            return Err(Error::line(1, RETURNS));
        }
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

    /// Take the line, to be handed to [`Lines::again`] perhaps.
    pub(super) fn take(&mut self) -> Taken {
        (std::mem::take(&mut self.line), self.whole)
    }

    /// The last lines, which were taken, come once more.
    pub(super) fn again(&mut self, lines: Vec<Taken>) {
        self.number -= lines.len() as u64;
        self.again.extend(lines);
    }

    /// Another file begins with this line, as after `cat`. Numbers in it mean something else, so that the first one ends here.
    pub(super) fn end_before_another(&mut self) {
        self.another = Some(self.number);
    }

    /// Is the line one without a newline, and so perhaps a part of one? Then the file was cut off in it.
    pub(super) fn is_part(&mut self) -> bool {
        if !self.whole {
            self.cut = Some(self.number);
        }
        !self.whole
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
        self.cut.map(cut_off).into_iter().chain(self.another.map(another)).collect()
    }

    /// Is a part of the file missing, or not read because it is another file?
    pub fn is_cut(&self) -> bool {
        self.cut.is_some() || self.another.is_some()
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

fn another(line: u64) -> String {
    format!(
        "another file begins in line {line}; only what stands before was used (tail -n +{line} has the rest)"
    )
}

/// A word as a message shows it.
pub fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 60;
    let text: String =
        bytes.iter().take(MOST).copied().flat_map(std::ascii::escape_default).map(char::from).collect();
    if bytes.len() > MOST { text + "..." } else { text }
}

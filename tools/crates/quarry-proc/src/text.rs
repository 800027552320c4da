// SPDX-License-Identifier: MIT
//! Text that nobody has checked: lines of bounded length, words, numbers.

use std::io::{self, BufRead, Read};

/// A longer line is cut: paths end at 4096 bytes, each of which may be written as four.
const LONGEST: u64 = 64 << 10;

/// The lines of a text, one at a time in one buffer.
pub(crate) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    whole: bool,
    /// A carriage return before the end of a line is a part of that end.
    returns: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, line: Vec::new(), number: 0, whole: true, returns: false }
    }

    /// From now on lines may end with a carriage return and a newline. In what the kernel writes itself they do not: there a
    /// carriage return belongs to a name.
    pub(crate) fn take_returns(&mut self) {
        self.returns = true;
    }

    /// The next line without its end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        if self.reader.by_ref().take(LONGEST).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.whole = self.line.pop_if(|last| *last == b'\n').is_some();
        if self.whole && self.returns {
            // A terminal may have put one before that of the copy.
            while self.line.pop_if(|last| *last == b'\r').is_some() {}
        }
        if !self.whole && self.line.len() as u64 == LONGEST {
            self.reader.skip_until(b'\n')?;
        }
        Ok(Some(&self.line))
    }

    /// The number of the line read last, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Did the line read last end where lines end?
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }
}

/// The lines of what was read already.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}

/// A copy of a text with line ends as the kernel has them.
pub(crate) fn without_returns(text: Vec<u8>) -> Vec<u8> {
    let mut clean = Vec::with_capacity(text.len());
    for byte in text {
        while byte == b'\n' && clean.pop_if(|last| *last == b'\r').is_some() {}
        clean.push(byte);
    }
    clean
}

/// What stands between blanks.
pub(crate) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A number of decimal digits and nothing else; `None` also where it does not fit.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    number(text, 10)
}

/// The same of hexadecimal digits.
pub(crate) fn hex(text: &[u8]) -> Option<u64> {
    number(text, 16)
}

/// As the kernel prints pointers.
pub(crate) fn pointer(text: &[u8]) -> Option<u64> {
    hex(text.strip_prefix(b"0x")?)
}

fn number(text: &[u8], base: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, &digit| {
        let digit = char::from(digit).to_digit(base)?;
        sum.checked_mul(u64::from(base))?.checked_add(u64::from(digit))
    })
}

/// "12 kB" in bytes.
pub(crate) fn kilobytes(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    decimal(text.strip_suffix(b"kB")?.trim_ascii_end())?.checked_mul(1024)
}

/// As text, with marks for what is none.
pub(crate) fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_and_fit() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for text in [&b""[..], b"18446744073709551616", b"+1", b"-1", b" 1", b"1a", b"0x1"] {
            assert_eq!(decimal(text), None, "{text:?}");
        }
        assert_eq!(hex(b"ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(hex(b"1ffffffffffffffff"), None);
        assert_eq!(pointer(b"0x7ffe"), Some(0x7ffe));
        assert_eq!(pointer(b"7ffe"), None);
        assert_eq!(kilobytes(b"      12 kB"), Some(12 << 10));
        assert_eq!(kilobytes(b"18446744073709551615 kB"), None);
        assert_eq!(kilobytes(b"12"), None);
    }

    #[test]
    fn ends_of_lines_are_those_of_the_kernel() {
        for (text, clean) in [("a\r\nb\r\r\n\r\n", "a\nb\n\n"), ("a\rb\n", "a\rb\n"), ("\r", "\r"), ("", "")]
        {
            assert_eq!(without_returns(text.into()), clean.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn long_lines_are_cut_and_the_next_one_is_whole() {
        let mut text = vec![b'x'; 3 * LONGEST as usize];
        text.extend(b"\nnext\nlast");
        let mut lines = Lines::new(&text[..]);
        assert_eq!(lines.next_line().unwrap().map(<[u8]>::len), Some(LONGEST as usize));
        assert!(!lines.is_whole());
        assert_eq!(lines.next_line().unwrap(), Some(&b"next"[..]));
        assert!(lines.is_whole());
        assert_eq!(lines.next_line().unwrap(), Some(&b"last"[..]));
        assert!(!lines.is_whole() && lines.number() == 3);
        assert_eq!(lines.next_line().unwrap(), None);
    }
}

// SPDX-License-Identifier: MIT
//! The lines of a file that grows.

/// A line that is longer is damage.
const LONGEST: usize = 1 << 20;

/// Takes bytes as they come, and gives whole lines.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
    /// Is the rest of a line that was too long still to come?
    skipping: bool,
    too_long: u64,
}

impl Lines {
    /// Take bytes; `each` gets the lines that they complete.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            if !self.skipping && self.rest.len() + text.len() > LONGEST {
                self.too_long += 1;
                self.skipping = true;
                self.rest = Vec::new();
            }
            match (self.skipping, ends) {
                (true, _) => {}
                // An empty one stands behind a write that failed as a whole.
                (false, true) if self.rest.is_empty() => {
                    if !text.is_empty() {
                        each(text);
                    }
                }
                (false, _) => self.rest.extend_from_slice(text),
            }
            if ends {
                if !self.rest.is_empty() {
                    each(&self.rest);
                }
                self.rest.clear();
                self.skipping = false;
            }
        }
    }

    /// Bytes of a line whose end is missing: of a process that was killed while it wrote.
    pub fn unfinished(&self) -> usize {
        self.rest.len()
    }

    /// Lines that were too long to be kept.
    pub fn too_long(&self) -> u64 {
        self.too_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Lines) {
        let (mut all, mut lines) = (Vec::new(), Lines::default());
        pieces.iter().for_each(|piece| lines.take(piece, |line| all.push(line.to_vec())));
        (all, lines)
    }

    #[test]
    fn pieces_make_lines_wherever_they_end() {
        let text = b"one\n\ntwo\nthree";
        for cut in 0..text.len() {
            let (all, left) = lines(&[&text[..cut], &text[cut..]]);
            assert_eq!(all, [b"one".to_vec(), b"two".to_vec()], "{cut}");
            assert_eq!(left.unfinished(), 5);
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let block = vec![b'x'; 1 << 16];
        let mut pieces: Vec<&[u8]> = vec![&block; 100];
        pieces.push(b"\nnext\n");
        let (all, left) = lines(&pieces);
        assert_eq!((all, left.too_long()), (vec![b"next".to_vec()], 1));
        assert!(left.rest.capacity() <= 2 * LONGEST);
    }
}

// SPDX-License-Identifier: MIT
//! What a program wrote, without keeping it: a digest of all, and the end of it.

/// FNV-1a, 64 bits: enough to tell two outputs apart, and the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    hash: u64,
    bytes: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, bytes: 0 }
    }
}

impl Digest {
    /// Take in the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        self.hash = data
            .iter()
            .fold(self.hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }

    /// How many bytes were taken in.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The digest in hexadecimal.
    pub fn hex(&self) -> String {
        format!("{:016x}", self.hash)
    }
}

/// The last `LIMIT` bytes of a stream.
#[derive(Debug, Default)]
pub struct Tail {
    data: Vec<u8>,
}

impl Tail {
    const LIMIT: usize = 4096;

    /// Take in the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.data.extend_from_slice(data);
        if self.data.len() > 2 * Self::LIMIT {
            self.data.drain(..self.data.len() - Self::LIMIT);
        }
    }

    /// What is kept, as text.
    pub fn text(&self) -> String {
        let kept = &self.data[self.data.len().saturating_sub(Self::LIMIT)..];
        String::from_utf8_lossy(kept).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_knows_reference_values_and_not_the_cuts() {
        let mut whole = Digest::default();
        assert_eq!(whole.hex(), "cbf29ce484222325");
        whole.update(b"foobar");
        assert_eq!(whole.hex(), "85944171f73967e8");
        let mut parts = Digest::default();
        parts.update(b"foo");
        parts.update(b"bar");
        assert_eq!(parts, whole);
        assert_eq!(parts.bytes(), 6);
    }

    #[test]
    fn tail_keeps_the_end() {
        let mut tail = Tail::default();
        for i in 0..10_000 {
            tail.update(format!("line {i}\n").as_bytes());
        }
        assert!(tail.text().ends_with("line 9999"));
        assert!(tail.text().len() <= Tail::LIMIT);
        assert!(tail.data.len() <= 2 * Tail::LIMIT + 16);
    }
}

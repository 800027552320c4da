// SPDX-License-Identifier: MIT
//! Numbers in records: varints, zigzag, and addresses as differences.

/// Why a record cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The bytes end within it.
    Short,
    /// It is no record.
    Bad(&'static str),
}

/// Bytes that are read from the front. Reading never goes beyond them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    data: &'a [u8],
    pub at: usize,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(data: &'a [u8], at: usize) -> Self {
        Self { data, at }
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.data.get(self.at).ok_or(Stop::Short)?;
        self.at += 1;
        Ok(byte)
    }

    /// A varint. Most have one byte; up to eight are taken at once.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Stop> {
        if let Some(word) = self.data.get(self.at..self.at + 8) {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            if word & 0x80 == 0 {
                self.at += 1;
                return Ok(word & 0x7f);
            }
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let bits = ends.trailing_zeros() + 1;
                self.at += bits as usize / 8;
                return Ok(gather(word & (u64::MAX >> (64 - bits))));
            }
        }
        self.long_varint()
    }

    /// Pass over a varint of at most eight bytes; false if it is longer, or if that cannot be seen here.
    #[inline]
    pub(crate) fn skip_varint(&mut self) -> bool {
        let Some(word) = self.data.get(self.at..self.at + 8) else { return false };
        let ends = !u64::from_le_bytes(word.try_into().unwrap_or_default()) & 0x8080_8080_8080_8080;
        self.at += ends.trailing_zeros() as usize / 8 + 1;
        ends != 0
    }

    #[cold]
    fn long_varint(&mut self) -> Result<u64, Stop> {
        let mut value = 0;
        for index in 0..10 {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if index == 9 && bits > 1 {
                return Err(Stop::Bad("a number of more than 64 bits"));
            }
            value |= bits << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Stop::Bad("a number of more than 10 bytes"))
    }

    /// A varint that must be small.
    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Stop> {
        u32::try_from(self.varint()?).map_err(|_| Stop::Bad("a number of more than 32 bits"))
    }

    /// A length and so many bytes.
    pub(crate) fn slice(&mut self) -> Result<&'a [u8], Stop> {
        let length = self.varint()?;
        let have = self.data.len() - self.at;
        if length > u64::from(crate::block::MOST) {
            return Err(Stop::Bad("a text that no block has room for"));
        }
        if length > have as u64 {
            return Err(Stop::Short);
        }
        let from = self.at;
        self.at += length as usize;
        Ok(&self.data[from..self.at])
    }

    /// A text. What is not UTF-8 in it is replaced.
    pub(crate) fn text(&mut self) -> Result<String, Stop> {
        Ok(String::from_utf8_lossy(self.slice()?).into_owned())
    }
}

/// Squeeze out the top bit of each byte.
#[inline]
fn gather(word: u64) -> u64 {
    let w = word & 0x7f7f_7f7f_7f7f_7f7f;
    let w = w & 0x007f_007f_007f_007f | (w & 0x7f00_7f00_7f00_7f00) >> 1;
    let w = w & 0x0000_3fff_0000_3fff | (w & 0x3fff_0000_3fff_0000) >> 2;
    w & 0x0000_0000_0fff_ffff | (w & 0x0fff_ffff_0000_0000) >> 4
}

pub(crate) fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

pub(crate) fn put_text(to: &mut Vec<u8>, text: &str) {
    put_varint(to, text.len() as u64);
    to.extend_from_slice(text.as_bytes());
}

/// A signed difference, small in either direction.
pub(crate) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (((difference as i64) >> 63) as u64)
}

pub(crate) fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// Which earlier address an address refers to.
pub(crate) mod address {
    /// Frees; the kinds below are allocations by size.
    pub(crate) const FREE: usize = 32;
    /// Allocations from pools.
    pub(crate) const POOL_ALLOC: usize = 33;
    /// Frees into pools.
    pub(crate) const POOL_FREE: usize = 34;
    /// How many kinds there are.
    pub(crate) const KINDS: usize = 35;

    /// The kind of an allocation of this size.
    #[inline]
    pub(crate) fn of_size(size: u64) -> usize {
        // (size + 15) / 16, without overflow.
        let units = (size >> 4).wrapping_add(u64::from(size & 15 != 0));
        (units & 31) as usize
    }
}

/// The last address of each kind in a block.
#[derive(Debug, Clone)]
pub(crate) struct Addresses([u64; address::KINDS]);

impl Addresses {
    pub(crate) fn new(first: u64) -> Self {
        Self([first & !15; address::KINDS])
    }

    /// The address that a field stands for.
    #[inline]
    pub(crate) fn take(&mut self, kind: usize, field: u64) -> u64 {
        let last = &mut self.0[kind];
        let difference = unzigzag(field >> 1);
        let address =
            last.wrapping_add(if field & 1 == 0 { difference.wrapping_mul(16) } else { difference });
        *last = address & !15;
        address
    }

    /// The field that stands for an address. There is none for one that is no multiple of 16 and more than
    /// a quarter of the address space away: the field has lost a bit to the mark.
    #[inline]
    pub(crate) fn put(&mut self, kind: usize, address: u64) -> Option<u64> {
        let last = &mut self.0[kind];
        let difference = address.wrapping_sub(*last);
        let field = if address & 15 == 0 {
            zigzag(((difference as i64) >> 4) as u64) << 1
        } else {
            let field = zigzag(difference);
            if field >> 63 != 0 {
                return None;
            }
            field << 1 | 1
        };
        *last = address & !15;
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length() {
        for shift in 0..64 {
            for value in
                [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift, 0x0123_4567_89ab_cdef >> shift]
            {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                let short = bytes.len();
                for tail in [0, 1, 9, 20] {
                    bytes.resize(short + tail, 0xff);
                    let mut from = Bytes::new(&bytes, 0);
                    assert_eq!(from.varint(), Ok(value), "{value:x} with {tail} behind");
                    assert_eq!(from.at, short);
                }
                for cut in 0..short {
                    assert_eq!(Bytes::new(&bytes[..cut], 0).varint(), Err(Stop::Short));
                }
            }
        }
        assert_eq!(Bytes::new(&[0xff; 12], 0).varint(), Err(Stop::Bad("a number of more than 64 bits")));
        let nine_and_two = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2];
        assert_eq!(Bytes::new(&nine_and_two, 0).varint(), Err(Stop::Bad("a number of more than 64 bits")));
        assert_eq!(Bytes::new(&[0x80, 0x80, 0], 0).varint(), Ok(0), "long forms are not forbidden");
    }

    #[test]
    fn zigzags() {
        for (difference, value) in
            [(0i64, 0), (-1, 1), (1, 2), (-2, 3), (i64::MAX, u64::MAX - 1), (i64::MIN, u64::MAX)]
        {
            assert_eq!(zigzag(difference as u64), value);
            assert_eq!(unzigzag(value), difference as u64);
        }
    }

    #[test]
    fn addresses_come_back() {
        let some = [0, 1, 15, 16, 17, 0x7fff_ffff_fff0, 0x5555_0000_0010, 1 << 63, u64::MAX, u64::MAX - 15];
        for first in [0, 0x7f12_3456_7890, !15u64] {
            let (mut there, mut back) = (Addresses::new(first), Addresses::new(first));
            for a in some {
                for b in some {
                    for address in [a, b] {
                        match there.put(5, address) {
                            Some(field) => {
                                assert_eq!(back.take(5, field), address, "from {first:x} {a:x} {b:x}");
                            }
                            None => assert!(address % 16 != 0, "from {first:x} {a:x} {b:x}"),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        assert_eq!(Addresses::new(0).put(0, (1 << 62) + 1), None);
        assert_eq!(Addresses::new(0).put(0, (1 << 62) - 1), Some((((1 << 63) - 2) << 1) | 1));
    }

    #[test]
    fn kinds_of_allocations() {
        let kinds = [0, 1, 16, 17, 31 * 16, 31 * 16 + 1, u64::MAX].map(address::of_size);
        assert_eq!(kinds, [0, 1, 1, 2, 31, 0, 0]);
    }

    #[test]
    fn a_length_is_not_believed() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 1 << 63);
        assert!(matches!(Bytes::new(&bytes, 0).slice(), Err(Stop::Bad(_))));
        assert_eq!(Bytes::new(b"\x03ab", 0).slice(), Err(Stop::Short));
        assert_eq!(Bytes::new(b"\x02\xffa", 0).text(), Ok("\u{FFFD}a".into()));
    }
}

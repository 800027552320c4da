// SPDX-License-Identifier: MIT
//! How Parquet packs the values of a column.

/// Values of a block of differences. The format asks for a multiple of 128.
const BLOCK: usize = 128;
/// Values of a part of a block, which have a width of their own. The format asks for a multiple of 32.
const PART: usize = 32;
/// As many equal numbers in a row are one run.
const RUN: usize = 8;

/// Seven bits in each byte, the lowest first; all bytes but the last have the top bit.
pub(super) fn varint(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    to.push(number.to_le_bytes()[0]);
}

/// The sign becomes the lowest bit, so that numbers close to 0 are short.
pub(super) fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

/// Bits of the largest of some numbers.
fn width(numbers: &[u64]) -> u32 {
    64 - numbers.iter().fold(0, |all, number| all | number).leading_zeros()
}

/// The lowest `width` bits of each, without gaps. The last byte is filled with zeros.
fn pack(numbers: impl IntoIterator<Item = u64>, width: u32, to: &mut Vec<u8>) {
    let (mut held, mut bits) = (0_u128, 0);
    for number in numbers {
        held |= u128::from(number) << bits;
        bits += width;
        while bits >= 8 {
            to.push(held.to_le_bytes()[0]);
            held >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        to.push(held.to_le_bytes()[0]);
    }
}

/// `DELTA_BINARY_PACKED`: the differences between neighbours.
pub(super) fn differences(numbers: &[i64], to: &mut Vec<u8>) {
    for head in [BLOCK, BLOCK / PART, numbers.len()] {
        varint(head as u64, to);
    }
    varint(zigzag(numbers.first().copied().unwrap_or(0)), to);
    let all: Vec<i64> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    for block in all.chunks(BLOCK) {
        let least = block.iter().copied().min().unwrap_or(0);
        let above: Vec<u64> =
            block.iter().map(|difference| difference.wrapping_sub(least).cast_unsigned()).collect();
        varint(zigzag(least), to);
        // A part without values has the width 0 and no bytes.
        let widths: Vec<u32> = above.chunks(PART).map(width).collect();
        to.extend(widths.iter().map(|width| width.to_le_bytes()[0]));
        to.resize(to.len() + BLOCK / PART - widths.len(), 0);
        for (part, &width) in above.chunks(PART).zip(&widths) {
            pack(part.iter().copied().chain(std::iter::repeat_n(0, PART - part.len())), width, to);
        }
    }
}

/// Bits of the numbers below `count`; at least 1.
pub(super) fn width_of(count: usize) -> u32 {
    (usize::BITS - count.saturating_sub(1).leading_zeros()).max(1)
}

/// `RLE`: runs of equal numbers of at most `width` bits, and between them numbers that are packed by eight.
pub(super) fn runs(numbers: &[u32], width: u32, to: &mut Vec<u8>) {
    let packed = |numbers: &[u32], to: &mut Vec<u8>| {
        if !numbers.is_empty() {
            let groups = numbers.len().div_ceil(8);
            varint((groups as u64) << 1 | 1, to);
            let rest = std::iter::repeat_n(0, groups * 8 - numbers.len());
            pack(numbers.iter().copied().map(u64::from).chain(rest), width, to);
        }
    };
    let (mut from, mut at) = (0, 0);
    while at < numbers.len() {
        let equal = numbers[at..].iter().take_while(|&&number| number == numbers[at]).count();
        if equal < RUN {
            at += equal;
        } else if (at - from) % 8 > 0 {
            // Only whole groups can stand before a run. Its first numbers make the last one whole.
            at += 8 - (at - from) % 8;
        } else {
            packed(&numbers[from..at], to);
            varint((equal as u64) << 1, to);
            to.extend(&numbers[at].to_le_bytes()[..width.div_ceil(8) as usize]);
            at += equal;
            from = at;
        }
    }
    packed(&numbers[from..], to);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut to = Vec::new();
        encode(&mut to);
        to
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(bytes(|to| varint(0, to)), [0]);
        assert_eq!(bytes(|to| varint(300, to)), [0xAC, 2]);
        assert_eq!(bytes(|to| varint(u64::MAX, to)).len(), 10);
        assert_eq!([0, -1, 1, i64::MIN, i64::MAX].map(zigzag), [0, 1, 2, u64::MAX, u64::MAX - 1]);
        assert_eq!([0, 1, 2, 3, 256, 257].map(width_of), [1, 1, 1, 2, 8, 9]);
    }

    /// The two examples of the format's description.
    #[test]
    fn differences_are_as_described() {
        let even = bytes(|to| differences(&[1, 2, 3, 4, 5], to));
        assert_eq!(even, [0x80, 1, 4, 5, 2, 2, 0, 0, 0, 0]);
        let odd = bytes(|to| differences(&[7, 5, 3, 1, 2, 3, 4, 5], to));
        // The least is -2; above it are 0, 0, 0, 3, 3, 3, 3 of two bits.
        assert_eq!(odd, [0x80, 1, 4, 8, 14, 3, 2, 0, 0, 0, 0xC0, 0x3F, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(|to| differences(&[], to)), [0x80, 1, 4, 0, 0]);
    }

    #[test]
    fn runs_are_as_described() {
        // The numbers 0 to 7 of three bits, packed, are an example of the format's description.
        let packed = bytes(|to| runs(&[0, 1, 2, 3, 4, 5, 6, 7], 3, to));
        assert_eq!(packed, [3, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        assert_eq!(bytes(|to| runs(&[1; 100], 1, to)), [200, 1, 1]);
        assert_eq!(bytes(|to| runs(&[300; 8], 9, to)), [16, 0x2C, 1]);
        // The run gives one number to the group before it, and its rest is short.
        let both = bytes(|to| runs(&[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1], 1, to));
        assert_eq!(both, [5, 0b1100_0000, 0b0111_1111]);
        let long = bytes(|to| runs(&[&[0; 7][..], &[1; 20]].concat(), 1, to));
        assert_eq!(long, [3, 0b1000_0000, 38, 1]);
        assert!(bytes(|to| runs(&[], 1, to)).is_empty());
    }
}

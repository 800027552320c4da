// SPDX-License-Identifier: MIT
//! How a file is packed, told by its first bytes. UTF-16, as Windows writes text, is unpacked like all others.

use std::io::{self, BufRead, Read};

use crate::utf16;

/// How something is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
    Xz,
    Lz4,
    Bzip2,
    Utf16(utf16::Order),
    /// A mark of three bytes before the text, and nothing else.
    Utf8,
}

impl Packing {
    /// The number of first bytes that tell the packing.
    pub(crate) const MARK: usize = 6;

    pub(crate) fn of(begin: &[u8]) -> Option<Self> {
        const MARKS: [(&[u8], Packing); 8] = [
            (&[0x28, 0xB5, 0x2F, 0xFD], Packing::Zstd),
            (&[0x1F, 0x8B], Packing::Gzip),
            (&[0xFD, b'7', b'z', b'X', b'Z', 0], Packing::Xz),
            (&[0x04, 0x22, 0x4D, 0x18], Packing::Lz4),
            (b"BZh", Packing::Bzip2),
            (&[0xFF, 0xFE], Packing::Utf16(utf16::Order::Little)),
            (&[0xFE, 0xFF], Packing::Utf16(utf16::Order::Big)),
            (&[0xEF, 0xBB, 0xBF], Packing::Utf8),
        ];
        // What pzstd and others put before their frames.
        let skipped = begin.len() >= 4 && begin[0] & 0xF0 == 0x50 && begin[1..4] == [0x2A, 0x4D, 0x18];
        let known = MARKS.iter().find(|(mark, _)| begin.starts_with(mark)).map(|(_, packing)| *packing);
        known.or(skipped.then_some(Packing::Zstd))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
            Packing::Xz => "xz",
            Packing::Lz4 => "lz4",
            Packing::Bzip2 => "bzip2",
            Packing::Utf16(_) => "UTF-16",
            Packing::Utf8 => "UTF-8 with a mark",
        }
    }

    pub(crate) fn unpacked(self, mut input: impl BufRead + 'static) -> io::Result<Box<dyn Read>> {
        /// What `zstd --long=31` asks of whoever unpacks.
        const WINDOW: u32 = 31;
        Ok(match self {
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            Packing::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(input)?;
                decoder.window_log_max(WINDOW)?;
                Box::new(decoder)
            }
            Packing::Xz => Box::new(lzma_rust2::XzReader::new(input, true)),
            Packing::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(input)),
            Packing::Bzip2 => {
                return Err(io::Error::other("is packed with bzip2; unpack it first (bunzip2)"));
            }
            Packing::Utf16(order) => Box::new(utf16::Reader::new(input, order)),
            Packing::Utf8 => {
                input.read_exact(&mut [0; 3])?;
                Box::new(input)
            }
        })
    }
}

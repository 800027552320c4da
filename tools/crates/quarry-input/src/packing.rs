// SPDX-License-Identifier: MIT
//! How a file is packed, told by its first bytes. UTF-16, as Windows writes text, is unpacked like all others.

use std::io::{self, BufRead, Read};
use std::marker::PhantomData;

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
            Packing::Gzip => Box::new(Members::<_, flate2::bufread::GzDecoder<_>>::new(input)),
            Packing::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(input)?;
                decoder.window_log_max(WINDOW)?;
                Box::new(decoder)
            }
            Packing::Xz => Box::new(lzma_rust2::XzReader::new(input, true)),
            Packing::Lz4 => Box::new(Members::<_, lz4_flex::frame::FrameDecoder<_>>::new(input)),
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

/// What unpacks one member of a file.
trait Member<R>: Read {
    fn begin(input: R) -> Self;
    fn end(self) -> R;
    /// The first bytes that a member may have.
    fn begins(byte: u8) -> bool;
}

impl<R: BufRead> Member<R> for flate2::bufread::GzDecoder<R> {
    fn begin(input: R) -> Self {
        Self::new(input)
    }
    fn end(self) -> R {
        self.into_inner()
    }
    fn begins(byte: u8) -> bool {
        byte == 0x1F
    }
}

impl<R: BufRead> Member<R> for lz4_flex::frame::FrameDecoder<R> {
    fn begin(input: R) -> Self {
        Self::new(input)
    }
    fn end(self) -> R {
        self.into_inner()
    }
    fn begins(byte: u8) -> bool {
        byte == 0x04 || byte & 0xF0 == 0x50
    }
}

/// Members one behind the other, as `cat a.gz b.gz` makes them. Zeros behind them fill up a block of a tape, and are none.
struct Members<R, M> {
    member: Option<M>,
    input: PhantomData<R>,
}

impl<R: BufRead, M: Member<R>> Members<R, M> {
    fn new(input: R) -> Self {
        Self { member: Some(M::begin(input)), input: PhantomData }
    }
}

/// The next byte that is not zero, if there is one. It stays.
fn behind_zeros(input: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        let piece = input.fill_buf()?;
        let zeros = piece.iter().take_while(|&&byte| byte == 0).count();
        match piece.get(zeros) {
            Some(&byte) => {
                input.consume(zeros);
                return Ok(Some(byte));
            }
            None if piece.is_empty() => return Ok(None),
            None => input.consume(zeros),
        }
    }
}

impl<R: BufRead, M: Member<R>> Read for Members<R, M> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let length = member.read(buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            let Some(mut input) = self.member.take().map(M::end) else { break };
            match behind_zeros(&mut input)? {
                None => break,
                Some(byte) if M::begins(byte) => self.member = Some(M::begin(input)),
                Some(_) => {
                    return Err(io::Error::other("has something else behind what is packed; cut that off"));
                }
            }
        }
        Ok(0)
    }
}

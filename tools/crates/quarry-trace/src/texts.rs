// SPDX-License-Identifier: MIT
//! Texts that tools put behind a trace. All else of it is copied as it is.

use std::io::{self, Write};

use crate::block::{BlockHead, HEAD, PACKED, SEALED, kind, sum};
use crate::error::TraceError;
use crate::source::Source;

/// Texts are read up to so many bytes, unpacked,
pub(crate) const ROOM: u64 = 16 << 20;
/// and as many more for each byte of the file.
pub(crate) const EACH: u64 = 16;
/// Bytes that are copied at once.
const PIECE: usize = 256 << 10;
/// The compression level: the default of zstd.
const LEVEL: i32 = 3;

/// Copy up to `end`, and write the texts behind it. `grain`: where blocks begin in a recorder's file; else 0.
pub(crate) fn copy(
    from: &Source,
    end: u64,
    grain: u64,
    process: u32,
    to: &mut impl Write,
    texts: &[Vec<u8>],
) -> Result<(), TraceError> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < end {
        let wanted = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
        let n = from.read_at(&mut piece[..wanted], at)?;
        if n == 0 {
            break;
        }
        to.write_all(&piece[..n]).map_err(TraceError::Write)?;
        at += n as u64;
    }
    let grain = grain.max(8);
    let padding = at.next_multiple_of(grain) - at;
    write_zeros(to, padding).map_err(TraceError::Write)?;
    for text in texts {
        let (head, stored) = block(text, process, grain).map_err(TraceError::Write)?;
        to.write_all(&head.bytes()).and_then(|()| to.write_all(&stored)).map_err(TraceError::Write)?;
        write_zeros(to, (head.span as usize - HEAD - stored.len()) as u64).map_err(TraceError::Write)?;
    }
    to.flush().map_err(TraceError::Write)
}

fn write_zeros(to: &mut impl Write, n: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), n), to).map(drop)
}

/// A text as a block.
pub(crate) fn block(text: &[u8], process: u32, grain: u64) -> io::Result<(BlockHead, Vec<u8>)> {
    let packed = zstd::bulk::compress(text, LEVEL)?;
    let (flags, stored) = if packed.len() < text.len() { (PACKED, packed) } else { (0, text.to_vec()) };
    let span = ((HEAD + stored.len()) as u64).next_multiple_of(grain);
    let head = BlockHead {
        kind: kind::TEXT,
        flags: flags | SEALED,
        span: u32::try_from(span).map_err(io::Error::other)?,
        used: stored.len() as u32,
        raw: text.len() as u32,
        thread: 0,
        sequence: 0,
        events: 0,
        time: 0,
        address: 0,
        sum: sum(&stored),
        process,
    };
    Ok((head, stored))
}

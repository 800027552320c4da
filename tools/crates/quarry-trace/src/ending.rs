// SPDX-License-Identifier: MIT
//! The end of a recorder's file whose process could not write one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::block::{BlockHead, HEAD, SEALED, kind, sum};
use crate::head::{End, Head};

/// Put an end into the place that the recorder kept for it, behind the head. False: it is taken, or there is none.
/// Nobody may write to the trace any more.
pub fn end_cut_off(file: &File, end: &End) -> io::Result<bool> {
    let mut first = [0; HEAD];
    file.read_exact_at(&mut first, 0)?;
    let Some(head) = BlockHead::parse(&first).ok().filter(|head| head.kind == kind::HEAD) else {
        return Ok(false);
    };
    let mut text = vec![0; head.used as usize];
    file.read_exact_at(&mut text, HEAD as u64)?;
    let grain = serde_json::from_slice::<Head>(&text).map_or(0, |head| head.grain);
    let place = u64::from(head.span);
    if grain < HEAD as u64 || !place.is_multiple_of(grain) {
        return Ok(false);
    }
    // The recorder's own end may have been begun.
    let mut before = [0; HEAD];
    file.read_exact_at(&mut before, place)?;
    let is_begun = BlockHead::parse(&before).is_ok_and(|head| head.kind == kind::END && head.used == 0);
    if !is_begun && before[..4] != [0; 4] {
        return Ok(false);
    }
    let text = serde_json::to_vec(end)?;
    let Some(span) = u32::try_from(grain).ok().filter(|&span| text.len() <= span as usize - HEAD) else {
        return Ok(false);
    };
    let block = BlockHead {
        kind: kind::END,
        flags: SEALED,
        span,
        used: text.len() as u32,
        raw: text.len() as u32,
        thread: 0,
        sequence: 0,
        events: 0,
        time: 0,
        address: 0,
        sum: sum(&text),
        process: head.process,
    };
    // The head makes it one.
    file.write_all_at(&text, place + HEAD as u64)?;
    file.write_all_at(&block.bytes(), place)?;
    Ok(true)
}

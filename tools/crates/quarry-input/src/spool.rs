// SPDX-License-Identifier: MIT
//! A copy in a file without a name, for readers that go back and forth.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Zeros of this length are left out, as they are in core files: the file system knows them without room on the disk.
const PIECE: usize = 1 << 16;

/// Copy all that can be read.
pub(crate) fn copy(input: &mut impl Read) -> io::Result<File> {
    let explain = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot be copied to a temporary file: {error} (TMPDIR names the folder)"),
        )
    };
    let mut file = tempfile::tempfile().map_err(explain)?;
    let mut piece = Vec::with_capacity(PIECE);
    let mut length = 0u64;
    loop {
        piece.clear();
        input.take(PIECE as u64).read_to_end(&mut piece)?;
        if piece.is_empty() {
            break;
        }
        length += piece.len() as u64;
        let written = match piece.iter().all(|&byte| byte == 0) {
            true => file.seek(SeekFrom::Start(length)).map(drop),
            false => file.write_all(&piece),
        };
        written.map_err(explain)?;
    }
    file.set_len(length).and_then(|()| file.rewind()).map_err(explain)?;
    Ok(file)
}

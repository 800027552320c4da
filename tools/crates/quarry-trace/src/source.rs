// SPDX-License-Identifier: MIT
//! Where the bytes of a trace come from: a regular file that is read in pieces, or memory.

use std::fs::{File, FileType};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};

use crate::error::TraceError;

/// Bytes that can be read from anywhere, again and again.
#[derive(Debug)]
pub(crate) enum Source {
    File(File, u64),
    Memory(Vec<u8>),
}

impl Source {
    pub(crate) fn of_file(file: File) -> Result<Self, TraceError> {
        let about = file.metadata().map_err(TraceError::Open)?;
        if about.is_file() { Ok(Self::File(file, about.len())) } else { Err(Self::refuse(about.file_type())) }
    }

    /// Why a file that is no regular one is not read.
    pub(crate) fn refuse(kind: FileType) -> TraceError {
        TraceError::NotRegular(match () {
            () if kind.is_dir() => "a directory",
            () if kind.is_fifo() => "a pipe",
            () if kind.is_socket() => "a socket",
            () => "a device",
        })
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File(_, len) => *len,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Read into the whole buffer, or as far as there are bytes; how many.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, TraceError> {
        match self {
            Self::Memory(bytes) => {
                let from = usize::try_from(offset).map_or(bytes.len(), |from| from.min(bytes.len()));
                let n = buffer.len().min(bytes.len() - from);
                buffer[..n].copy_from_slice(&bytes[from..from + n]);
                Ok(n)
            }
            Self::File(file, _) => {
                let mut done = 0;
                while done < buffer.len() {
                    match file.read_at(&mut buffer[done..], offset + done as u64) {
                        Ok(0) => break,
                        Ok(n) => done += n,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(TraceError::Read { offset: offset + done as u64, error }),
                    }
                }
                Ok(done)
            }
        }
    }
}

// SPDX-License-Identifier: MIT
//! Why a trace cannot be read at all, or not any further. What is merely damaged is no error: see
//! [`Damage`](crate::Damage).

use std::io;

use thiserror::Error;

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot be opened: {0}")]
    Open(#[source] io::Error),
    /// The file cannot be read.
    #[error("cannot be read at byte {offset}: {error}")]
    Read {
        /// where
        offset: u64,
        /// why
        #[source]
        error: io::Error,
    },
    /// A copy of it cannot be written.
    #[error("cannot be written: {0}")]
    Write(#[source] io::Error),
    /// It is a pipe, a device or a directory, and a trace is not read in one go.
    #[error("is {0}; a trace is read from a regular file, as its threads stand in different places")]
    NotRegular(&'static str),
    /// There is nothing in it.
    #[error("is empty: nothing was recorded, or the writer could not write")]
    Empty,
    /// It is something else.
    #[error("is not a trace: it has no block that begins with QTRB")]
    Foreign,
    /// It has another format.
    #[error("is a trace of version {0}, and this reader knows version 1; use a newer quarry")]
    Version(u16),
    /// More threads are active at once than a reader has room for.
    #[error("has more than {0} threads at once")]
    Threads(usize),
}

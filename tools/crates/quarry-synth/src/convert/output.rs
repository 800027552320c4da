// SPDX-License-Identifier: MIT
//! Output, packed where its name says so.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::GzEncoder;

fn ending(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

/// How an output is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip
    Gzip,
    /// Zstandard
    Zstd,
}

impl Packing {
    /// What a name stands for: `.gz`, `.zst`.
    pub fn of_name(path: &Path) -> Self {
        match ending(path).as_deref() {
            Some("gz") => Packing::Gzip,
            Some("zst") => Packing::Zstd,
            _ => Packing::Plain,
        }
    }

    /// What a name stands for that is unpacked when it is read, and not written.
    pub fn unwritten(path: &Path) -> Option<String> {
        ending(path).filter(|ending| matches!(ending.as_str(), "xz" | "lz4" | "bz2"))
    }
}

/// Counts what is written.
struct Counted<W> {
    output: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.output.write(bytes)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

enum To<W: Write> {
    Plain(BufWriter<Counted<W>>),
    Gzip(BufWriter<GzEncoder<Counted<W>>>),
    Zstd(BufWriter<zstd::Encoder<'static, Counted<W>>>),
}

const BUFFER: usize = 1 << 18;

/// An output that packs; [`Output::finish`] writes its end.
pub struct Output<W: Write>(To<W>);

impl<W: Write> Output<W> {
    /// Begin to write.
    pub fn new(output: W, packing: Packing) -> io::Result<Self> {
        let output = Counted { output, bytes: 0 };
        Ok(Self(match packing {
            Packing::Plain => To::Plain(BufWriter::with_capacity(BUFFER, output)),
            Packing::Gzip => {
                let packer = GzEncoder::new(output, flate2::Compression::default());
                To::Gzip(BufWriter::with_capacity(BUFFER, packer))
            }
            Packing::Zstd => To::Zstd(BufWriter::with_capacity(BUFFER, zstd::Encoder::new(output, 0)?)),
        }))
    }

    /// Write what is left; the output, and how many bytes went there.
    pub fn finish(self) -> io::Result<(W, u64)> {
        let mut output = match self.0 {
            To::Plain(buffer) => buffer.into_inner().map_err(io::IntoInnerError::into_error)?,
            To::Gzip(buffer) => buffer.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?,
            To::Zstd(buffer) => buffer.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?,
        };
        output.flush()?;
        Ok((output.output, output.bytes))
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            To::Plain(to) => to.write(bytes),
            To::Gzip(to) => to.write(bytes),
            To::Zstd(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            To::Plain(to) => to.flush(),
            To::Gzip(to) => to.flush(),
            To::Zstd(to) => to.flush(),
        }
    }
}

// SPDX-License-Identifier: MIT
//! MiniDebugInfo: the symbols of functions that a stripped program keeps, packed, in its section `.gnu_debugdata`. Fedora
//! and its kin ship all programs so.

use std::fs::File;
use std::io::{Read, Result};
use std::path::Path;

use object::read::ReadCache;
use object::{Object, ObjectSection};

/// Nobody's symbols are longer, unpacked.
const MOST: u64 = 256 << 20;

/// Functions by address.
pub(crate) struct Mini {
    /// First address, length, name.
    symbols: Vec<(u64, u64, String)>,
}

impl Mini {
    /// Those in a file; `None`: it has none, or they are damaged.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let inner = unpacked(file.section_by_name(".gnu_debugdata")?.data().ok()?).ok()?;
        let inner = object::File::parse(&*inner).ok()?;
        // It has the addresses of the program around it.
        let symbols = inner.symbol_map();
        let symbols =
            symbols.symbols().iter().map(|one| (one.address(), one.size(), one.name().to_owned())).collect();
        Some(Self { symbols })
    }

    /// The function at an address, and where it begins.
    pub(crate) fn find(&self, address: u64) -> Option<(&str, u64)> {
        let behind = self.symbols.partition_point(|(first, ..)| *first <= address);
        let (first, size, name) = self.symbols[..behind].last()?;
        (*size == 0 || address - first < *size).then_some((name.as_str(), *first))
    }
}

fn unpacked(packed: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    lzma_rust2::XzReader::new(packed, true).take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

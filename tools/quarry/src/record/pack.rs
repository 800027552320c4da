// SPDX-License-Identifier: MIT
//! Traces whose name ends in .gz or .zst are packed when they are complete. The recorder writes them in place, so that they can be
//! read if the program is killed, and whoever reads them tells by what they hold.

use std::fs::File;
use std::io;
use std::path::Path;

use quarry_synth::convert::output::{Output as Packed, Packing};

use super::count::Counted;
use super::name::Name;
use crate::failure;
use crate::trace_file::Target;

/// Pack what is complete; why others are not.
pub fn pack(name: &Name, counted: &mut [Counted]) -> Vec<String> {
    let packing = name.packing();
    if packing == Packing::Plain {
        return Vec::new();
    }
    let mut notes = Vec::new();
    for Counted { recorded, path, .. } in counted {
        let file = &recorded.file;
        if recorded.running {
            notes.push(format!("{file} is not packed: its process still writes to it"));
            continue;
        }
        match one(path, packing) {
            Ok(bytes) => recorded.bytes = bytes,
            Err(error) => notes.push(format!("{file} is not packed: {}", failure::words(&error))),
        }
    }
    notes
}

/// The packed file takes the place of the other; its length.
fn one(file: &Path, packing: Packing) -> anyhow::Result<u64> {
    let mut input = File::open(file)?;
    let mut target = Target::open(Some(file), true)?;
    let mut packed = Packed::new(&mut target, packing)?;
    io::copy(&mut input, &mut packed)?;
    let (_, bytes) = packed.finish()?;
    target.keep()?;
    Ok(bytes)
}

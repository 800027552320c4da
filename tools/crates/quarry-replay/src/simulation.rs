// SPDX-License-Identifier: MIT
//! From a `.ms` file to a plan. It has one thread; slots keep their numbers as long as these are small.

use std::io::{Read, Seek, Write};

use quarry_synth::ms::{Command, Options, Reader};

use crate::builder::{Builder, Cut, How};
use crate::plan::{Head, PlanError};

/// Slots below this number are the plan's slots of the same number. Larger ones are numbered from here on
/// in the order of their first use.
pub const SAME: u32 = 1 << 16;

/// Compile a `.ms` file. `progress` is told now and then how many bytes have been read; when it says false, the
/// file ends there.
pub fn compile<W: Write + Seek>(
    input: impl Read,
    output: W,
    cut: Cut,
    wide: bool,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Head, PlanError> {
    let mut reader = Reader::new(input, Options { wide });
    let mut builder = Builder::new(output, cut)?;
    let mut numbers = hashbrown::HashMap::<u32, u32, crate::hash::Addresses>::default();
    let mut full: Vec<bool> = Vec::new();
    let mut commands = 0u64;
    while let Some(command) = reader.next_command()? {
        let mut slot_of = |slot: u32| {
            let next = SAME + numbers.len() as u32;
            let slot = if slot < SAME { slot } else { *numbers.entry(slot).or_insert(next) };
            if slot as usize >= full.len() {
                full.resize(slot as usize + 1, false);
            }
            slot
        };
        match command {
            Command::Alloc { slot, size } => {
                let slot = slot_of(slot);
                match std::mem::replace(&mut full[slot as usize], true) {
                    true => builder.realloc(0, slot, size)?,
                    false => builder.alloc_in(0, slot, How::Malloc, size)?,
                }
            }
            Command::Free { slot } => {
                let slot = slot_of(slot);
                match std::mem::replace(&mut full[slot as usize], false) {
                    true => builder.free_in(0, slot)?,
                    false => builder.free_null(0)?,
                }
            }
            Command::Stats => builder.stats(0)?,
            Command::End => break,
        }
        commands += 1;
        if commands.is_multiple_of(1 << 16) && !progress(reader.offset()) {
            break;
        }
    }
    builder.finish()
}

// SPDX-License-Identifier: MIT
//! The plan of a random simulation, for the replayer.

use std::io::{self, Cursor};

use quarry_measure::scratch::Scratch;
use quarry_replay::builder::{Cut, Order};
use quarry_replay::plan::PlanError;
use quarry_replay::simulation;
use quarry_synth::ms::Writer;
use quarry_synth::random_ms::{self, Options};
use thiserror::Error;

use crate::catalog::{Ms, Size};

/// It cannot be made.
#[derive(Debug, Error)]
pub enum Error {
    /// Nowhere to write.
    #[error("cannot make the plan of a simulation in {0}: {1}; TMPDIR names the directory")]
    Temporary(String, io::Error),
    /// The plan is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Make the plan of this set in a temporary file.
pub fn plan(ms: Ms, size: Size) -> Result<Scratch, Error> {
    let options =
        Options { min: ms.min, max: ms.max, count: ms.commands(size), slots: ms.slots, seed: ms.seed };
    let failed = |error| Error::Temporary(std::env::temp_dir().display().to_string(), error);
    let mut writer = Writer::new(Vec::new());
    for command in random_ms::commands(options) {
        writer.command(command).map_err(failed)?;
    }
    let text = writer.finish().map_err(failed)?;
    let plan = Scratch::new().map_err(failed)?;
    simulation::compile(
        Cursor::new(text),
        io::BufWriter::new(plan.file()),
        Cut::new(Order::Deps),
        false,
        &mut |_| true,
    )?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_made() {
        let ms = Ms { count: 500, quick_count: Some(50), slots: 16, min: 32, max: 1000, seed: 1 };
        let bytes = |size| std::fs::metadata(plan(ms, size).unwrap().path()).unwrap().len();
        assert!(bytes(Size::Full) > 3500 && bytes(Size::Quick) < bytes(Size::Full) / 2);
    }
}

// SPDX-License-Identifier: MIT
//! The field's usual suite and real programs: whole programs under each malloc in turns, compared with the best of each run.
//!
//! [`runs`] is the table of what is started, [`launch`] makes one run, [`session`] makes rounds of them, [`samples`] keeps what
//! came of it, [`sums`] says what it amounts to, and [`targets`] what the heap is to reach.

pub mod launch;
pub mod runs;
pub mod samples;
pub mod session;
pub mod sums;
#[cfg(test)]
mod sums_tests;
pub mod targets;

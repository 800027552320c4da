// SPDX-License-Identifier: MIT
//! What is sampled, and how far that is: the same for a screen and for what is written.

use std::time::Duration;

use crate::estimate;
use crate::query::By;

/// A process, and what was taken of it so far.
#[derive(Debug, Clone, Copy)]
pub struct Sampled<'a> {
    /// Which process.
    pub process: i32,
    /// Its program.
    pub program: &'a str,
    /// Mean bytes from one sample to the next.
    pub mean: u64,
    /// Sampled allocations.
    pub samples: u64,
    /// Samples and ends of them that are missing.
    pub lost: u64,
    /// Bytes of all live blocks of the process, exact: it counts them. `None`: it says nothing of it.
    pub heap: Option<u64>,
    /// How long it is sampled.
    pub time: Duration,
    /// What the last look took.
    pub cost: Duration,
    /// What one row is.
    pub by: By,
    /// Why nothing more comes.
    pub ended: Option<&'a str>,
}

impl Sampled<'_> {
    /// All that lives, behind what is estimated of a part of it.
    pub(super) fn of_all(&self) -> String {
        self.heap.map_or_else(String::new, |heap| format!("; in all {}", estimate::bytes(heap)))
    }

    /// What is missing, behind the number of samples.
    pub(super) fn missing(&self) -> String {
        match self.lost {
            0 => String::new(),
            lost => format!(", {lost} missing"),
        }
    }
}
